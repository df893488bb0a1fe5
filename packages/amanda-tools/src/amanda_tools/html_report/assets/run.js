// The executions of a run as arrays, and what follows from them.

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

/** How long each step was in operators, forward and backward; in both at once is backward. */
function stepSums(run) {
  const { steps, starts, duration } = run;
  const sums = steps.map(() => [0, 0]);
  for (const which of [0, 1]) {
    let until = -1;
    let step = 0;
    for (let i = 0; i < starts.length; i += 1) {
      if (run.names[run.lane[i]].startsWith("backward") !== (which === 1)) continue;
      const from = Math.max(starts[i], until);
      const to = starts[i] + duration[i];
      if (to <= from) continue;
      until = to;
      while (step < steps.length && steps[step][1] <= from) step += 1;
      for (let at = step; at < steps.length && steps[at][0] < to; at += 1) {
        sums[at][which] += Math.min(to, steps[at][1]) - Math.max(from, steps[at][0]);
      }
    }
  }
  return sums.map(([forward, backward], index) => {
    const [start, end] = steps[index];
    return [Math.min(forward, end - start - backward), backward];
  });
}
