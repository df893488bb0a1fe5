// The executions of a run as arrays, and what of them can be told apart in a drawing.

/** What a timeline's columns say, as arrays; starts are in order. */
function unpacked(timeline) {
  const size = timeline.start.length;
  const starts = new Float64Array(size);
  let at = 0;
  for (let i = 0; i < size; i += 1) {
    at += timeline.start[i];
    starts[i] = at;
  }
  const lanes = timeline.lanes.map((name) => ({ name, entries: [], depth: 1, open: [] }));
  const depths = new Uint16Array(size);
  let end = 0;
  for (let i = 0; i < size; i += 1) {
    const lane = lanes[timeline.lane[i]];
    while (lane.open.length && lane.open[lane.open.length - 1] <= starts[i]) lane.open.pop();
    depths[i] = lane.open.length;
    lane.open.push(starts[i] + timeline.duration[i]);
    lane.depth = Math.max(lane.depth, Math.min(lane.open.length, 12));
    lane.entries.push(i);
    end = Math.max(end, starts[i] + timeline.duration[i]);
  }
  lanes.sort((one, other) => other.name.startsWith("forward") - one.name.startsWith("forward")
    || one.name.localeCompare(other.name, "en", { numeric: true }));
  return { ...timeline, names: timeline.lanes, starts, depths, lanes, end };
}

/** The first entry of a lane that starts at a time or later. */
function firstFrom(entries, starts, time) {
  let low = 0;
  let high = entries.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[entries[middle]] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The executions of a lane that a view shows; of those that share a pixel, the first. */
function laneRows({ starts, duration, depths, kind, kinds }, lane, [from, to], width, selected) {
  const pixel = (to - from) / width;
  const painted = new Float64Array(lane.depth).fill(-Infinity); // until when each row is full
  const last = firstFrom(lane.entries, starts, to);
  const rows = [];
  for (let at = 0; at < last; at += 1) {
    const index = lane.entries[at];
    const start = starts[index];
    const end = start + duration[index];
    const row = Math.min(depths[index], lane.depth - 1);
    if (end < from || (end <= painted[row] && index !== selected)) continue;
    painted[row] = Math.max(end, start + pixel);
    const [type] = kinds[kind[index]];
    rows.push({ index, type, hue: hueOf(type), start, end, y: lane.top + row * ROW });
  }
  return rows;
}

/** The memory in a view; of several sizes in one pixel, the largest and the last. */
function curveRows(memory, [from, to], width) {
  const rows = [{ time: from, bytes: 0, pixel: -1 }];
  for (const [time, bytes] of memory) {
    if (time > to) break;
    const pixel = Math.max(-1, Math.floor(((time - from) / (to - from)) * width));
    const [largest, last] = rows.slice(-2);
    if (pixel < 0) rows[0].bytes = bytes;
    else if (last && largest.pixel === pixel) {
      largest.bytes = Math.max(largest.bytes, last.bytes);
      Object.assign(last, { time, bytes });
    } else rows.push({ time, bytes, pixel });
  }
  return [...rows, { time: to, bytes: rows[rows.length - 1].bytes }];
}
