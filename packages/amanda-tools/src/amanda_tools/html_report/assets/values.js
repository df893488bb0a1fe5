// Numbers as people read them, in three digits and a unit, and back again.

const SCALES = {
  count: [1000, ["", "k", "M", "G", "T", "P", "E"]],
  bytes: [1024, ["B", "KiB", "MiB", "GiB", "TiB"]],
  nanoseconds: [1000, ["ns", "µs", "ms", "s"]],
};

/** A number and its unit, as the terminal shows them. */
function scaled(value, unit) {
  if (unit === "share") return [(value * 100).toFixed(1), "%"];
  const [step, units] = SCALES[unit] || SCALES.count;
  let power = 0;
  while (Math.abs(value) >= step - 0.5 && power < units.length - 1) {
    value /= step;
    power += 1;
  }
  const digits = power === 0 ? 0 : Number(Math.abs(value) < 10) + Number(Math.abs(value) < 100);
  return [value.toFixed(digits), units[power]];
}

/** The same as one text. */
function shown(value, unit) {
  const [number, name] = scaled(value, unit);
  return unit === "share" ? number + name : `${number} ${name}`.trim();
}

/** A plain number in full. */
function exact(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return value.toLocaleString("en");
  if (size >= 1000 && size < 1e15) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(4)));
}

const FACTORS = { "%": 0.01 };
for (const [step, units] of Object.values(SCALES)) {
  units.forEach((unit, power) => { FACTORS[unit] = step ** power; });
}

/** What a number is that a table shows, for sorting; null if it is none. */
function numberIn(text) {
  const found = /^([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*(\S*)$/i.exec(String(text).trim());
  if (!found || !(found[2] in FACTORS)) return null;
  return Number(found[1].replaceAll(",", "")) * FACTORS[found[2]];
}

/** A hue for a name, the same wherever it is drawn. */
function hueOf(name) {
  let hash = 2166136261;
  for (let i = 0; i < name.length; i += 1) {
    hash = Math.imul(hash ^ name.charCodeAt(i), 16777619);
  }
  return ((hash >>> 0) * 0.618034) % 360;
}
