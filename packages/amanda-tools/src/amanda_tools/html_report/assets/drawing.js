// What is drawn of a run on canvases.

const ROW = 18;
const GAP = 26; // above each lane, with its name
const STRIP = 72;
const CURVE = 48;

function drawAxis(context, width, bottom, [from, to], colors) {
  const rough = ((to - from) / width) * 110;
  const power = 10 ** Math.floor(Math.log10(rough));
  const tick = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  for (let time = Math.ceil(from / tick) * tick; time < to; time += tick) {
    const x = ((time - from) / (to - from)) * width;
    context.fillStyle = colors.line;
    context.fillRect(Math.round(x), 0, 1, bottom);
    context.fillStyle = colors.muted;
    context.fillText(shown(Math.round(time), "nanoseconds"), x + 3, bottom + 14);
  }
}

function drawLane(context, width, { name, entries, top, depth }, view, run, selected, colors) {
  const [from, to] = view;
  const scale = width / (to - from);
  const { starts, duration, depths, kind, kinds } = run;
  context.fillStyle = colors.muted;
  context.fillText(name, 2, top - 8);
  const painted = new Float64Array(depth).fill(-1); // up to where each row is painted
  const last = firstFrom(entries, starts, to);
  for (let at = 0; at < last; at += 1) {
    const index = entries[at];
    const end = starts[index] + duration[index];
    if (end < from) continue;
    const row = Math.min(depths[index], depth - 1);
    const x = Math.max((starts[index] - from) * scale, -1);
    const right = Math.min((end - from) * scale, width + 1);
    if (right <= painted[row] && index !== selected) continue;
    const wide = Math.max(right - x, 1);
    painted[row] = x + wide;
    const [type] = kinds[kind[index]];
    context.fillStyle = fillOf(type, colors.dark);
    const y = top + row * ROW;
    context.fillRect(x, y, wide > 3 ? wide - 0.5 : wide, ROW - 2);
    if (wide > 34) {
      context.fillStyle = colors.ink;
      context.fillText(cut(type, (wide - 8) / 6), Math.max(x, 0) + 4, y + 12);
    }
    if (index === selected) {
      context.strokeStyle = colors.ink;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y, Math.max(wide - 2, 2), ROW - 2);
    }
  }
}

function drawMemory(context, width, memory, [from, to], colors) {
  const most = memory.reduce((max, [, bytes]) => Math.max(max, bytes), 1);
  context.fillStyle = colors.muted;
  context.fillText(`memory, at most ${shown(most, "bytes")}`, 2, 14);
  context.beginPath();
  context.moveTo(0, GAP + CURVE);
  let before = 0;
  for (const [time, bytes] of memory) {
    const x = ((time - from) / (to - from)) * width;
    if (x > width) break;
    if (x >= 0) {
      context.lineTo(x, GAP + CURVE * (1 - before / most));
      context.lineTo(x, GAP + CURVE * (1 - bytes / most));
    }
    before = bytes;
  }
  context.lineTo(width, GAP + CURVE * (1 - before / most));
  context.lineTo(width, GAP + CURVE);
  context.fillStyle = colors.forward;
  context.globalAlpha = 0.35;
  context.fill();
  context.globalAlpha = 1;
}

/** Bars of all steps; of so many that a bar is less than a pixel, the longest is seen. */
function drawSteps(canvas, steps, sums, current, colors) {
  const width = canvas.clientWidth;
  const context = fitted(canvas, width, STRIP);
  const longest = steps.reduce((most, [start, end]) => Math.max(most, end - start), 1);
  const wide = width / steps.length;
  steps.forEach(([start, end], index) => {
    const x = index * wide;
    const box = Math.max(wide - (wide > 4 ? 2 : 0), 1);
    const height = ((STRIP - 6) * (end - start)) / longest;
    const scale = height / (end - start || 1);
    const [forward, backward] = sums[index].map((sum) => sum * scale);
    const faded = current && current !== index + 1;
    context.globalAlpha = faded ? 0.45 : 1;
    context.fillStyle = colors.between;
    context.fillRect(x, STRIP - height, box, height);
    context.fillStyle = colors.backward;
    context.fillRect(x, STRIP - forward - backward, box, backward);
    context.fillStyle = colors.forward;
    context.fillRect(x, STRIP - forward, box, forward);
  });
  context.globalAlpha = 1;
}

/** A canvas of so many pixels of the page, sharp on every screen. */
function fitted(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

const fills = new Map();

function fillOf(type, dark) {
  const key = `${type}${dark}`;
  if (!fills.has(key)) {
    fills.set(key, dark ? `hsl(${hueOf(type)} 40% 34%)` : `hsl(${hueOf(type)} 62% 78%)`);
  }
  return fills.get(key);
}

function cut(text, characters) {
  if (text.length <= characters) return text;
  return characters < 3 ? "" : `${text.slice(0, characters - 1)}…`;
}
