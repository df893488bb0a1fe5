// The executions of a run over time, in lanes, and its steps as bars above them.

const ROW = 18; // pixels of a row's height; more is in the specification
const GAP = 26; // above each lane, with its name
const CURVE = 48;

class TimelineView {
  constructor(timelines, data) {
    this.data = data;
    this.operators = new Map(data.operators.id.map((id, index) => [id, index]));
    this.bars = new Chart("steps", "canvas", { class: "strip", "aria-hidden": "true" });
    this.bars.on("clicked", ({ step }) => {
      this.range.value = String(step);
      this.toStep(step);
    });
    this.chart = new Chart("lanes", "canvas", {
      class: "lanes",
      tabindex: "0",
      role: "application",
      "aria-label": "Executions over time",
      "aria-describedby": "timeline-keys",
      onkeydown: (event) => this.key(event),
    }, {
      told: ({ index }) => [this.title(index), this.lines(index)],
      resized: () => this.draw(),
    });
    this.chart.on("clicked", ({ index, moved }) => { if (!moved) this.select(index); });
    this.chart.on("view", (view) => {
      if (view === this.view) return; // which was set here
      this.view = view;
      this.draw();
    });
    this.chosen = element("p", { class: "chosen", "aria-live": "polite" });
    this.range = element("input", {
      type: "range", min: "0", step: "1", value: "0", id: "timeline-step",
      oninput: () => this.toStep(Number(this.range.value)),
    });
    this.which = element("output", { for: "timeline-step" });
    this.steps = element("div", { class: "steps" },
      element("div", { class: "bar" },
        element("label", { for: "timeline-step" }, "Step"), this.range, this.which,
        element("span", { class: "key forward" }, "forward"),
        element("span", { class: "key backward" }, "backward"),
        element("span", { class: "key between" }, "between operators")),
      this.bars.element);
    const select = timelines.length < 2 ? null : element("select", {
      "aria-label": "Timeline of",
      onchange: () => this.open(timelines[select.selectedIndex]),
    }, ...timelines.map(({ name }) => element("option", {}, name)));
    this.note = element("span", { class: "note" });
    this.element = element("div", { class: "block" },
      this.steps,
      element("div", { class: "bar" },
        select,
        element("button", { type: "button", onclick: () => this.zoomBy(0.5) }, "Zoom in"),
        element("button", { type: "button", onclick: () => this.zoomBy(2) }, "Zoom out"),
        element("button", { type: "button", onclick: () => this.all() }, "All"),
        this.note),
      this.chart.element,
      this.chosen,
      element("p", { class: "hint", id: "timeline-keys" }, "Left and right arrows go from execution "
        + "to execution, up and down between lanes; + and − zoom, with Shift arrows move along. "
        + "Drag to move, and turn the wheel with Ctrl to zoom."));
    this.open(timelines[0]);
  }

  open(timeline) {
    this.run = unpacked(timeline);
    this.chosen.textContent = "";
    this.selected = -1;
    const { steps, memory, lanes, starts } = this.run;
    this.steps.hidden = steps.length < 2;
    this.range.max = String(steps.length);
    const number = starts.length.toLocaleString("en");
    this.note.textContent = this.run.left_out
      ? `the first ${number} executions; ${this.run.left_out.toLocaleString("en")} more ran`
      : `${number} executions`;
    let top = memory.length ? CURVE + GAP : 0;
    for (const lane of lanes) {
      lane.top = top + GAP;
      top += GAP + lane.depth * ROW + 4;
    }
    const peak = memory.reduce((most, [, bytes]) => Math.max(most, bytes), 1);
    this.chart.show({
      peak,
      peakText: memory.length ? `memory, at most ${shown(peak, "bytes")}` : "",
      end: this.run.end || 1,
      height: top,
    }, { lanes: lanes.map(({ name, top: at }) => ({ name, top: at })) });
    const longest = steps.reduce((most, [start, end]) => Math.max(most, end - start), 1);
    this.bars.show({ longest, count: steps.length || 1 }, {
      steps: steps.map(([start, end, forward, backward], index) => ({
        step: index + 1, took: end - start, forward, backward, between: end - start - forward - backward,
      })),
    });
    this.all();
  }

  laneName(index) {
    return this.run.names[this.run.lane[index]];
  }

  all() {
    this.range.value = "0";
    this.view = [0, this.run.end || 1];
    this.sayStep(0);
    this.draw();
  }

  toStep(number) {
    if (!number) {
      this.all();
      return;
    }
    const [start, end] = this.run.steps[number - 1];
    const margin = (end - start) * 0.01 || 1;
    this.view = [start - margin, end + margin];
    this.sayStep(number);
    this.draw();
  }

  sayStep(number) {
    const { steps } = this.run;
    let text = `all ${steps.length.toLocaleString("en")}`;
    if (number) {
      const [start, end, forward, backward] = steps[number - 1];
      text = `${number} of ${steps.length.toLocaleString("en")}: ${shown(end - start, "nanoseconds")}`
        + ` (${shown(forward, "nanoseconds")} forward, ${shown(backward, "nanoseconds")} backward)`;
    }
    this.which.textContent = text;
    this.range.setAttribute("aria-valuetext", text);
  }

  /** Zooms about the middle, or about what is selected, which comes to be there. */
  zoomBy(by) {
    const { starts, duration } = this.run;
    const [from, to] = this.view;
    const about = this.selected < 0 ? (from + to) / 2
      : starts[this.selected] + duration[this.selected] / 2;
    const at = by < 1 && this.selected >= 0 ? 0.5 : (about - from) / (to - from);
    this.chart.show({ zoom: { about, at, by } });
  }

  moveBy(share) {
    const span = this.view[1] - this.view[0];
    const low = Math.max(-span * 0.5, Math.min(this.view[0] + span * share, this.run.end - span * 0.5));
    this.view = [low, low + span];
    this.draw();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = {
      ArrowLeft: () => (event.shiftKey ? this.moveBy(-0.2) : this.next(-1)),
      ArrowRight: () => (event.shiftKey ? this.moveBy(0.2) : this.next(1)),
      ArrowUp: () => this.nextLane(-1),
      ArrowDown: () => this.nextLane(1),
      "+": () => this.zoomBy(0.5),
      "=": () => this.zoomBy(0.5),
      "-": () => this.zoomBy(2),
      Home: () => this.select(0),
      End: () => this.select(this.run.starts.length - 1),
      Escape: () => this.all(),
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    moves[event.key]();
  }

  laneOf(index) {
    return this.run.lanes.findIndex(({ name }) => name === this.laneName(index));
  }

  next(step) {
    if (this.selected < 0) {
      this.select(0);
      return;
    }
    const { entries } = this.run.lanes[this.laneOf(this.selected)];
    const at = firstFrom(entries, this.run.starts, this.run.starts[this.selected]);
    const same = entries.indexOf(this.selected, at);
    this.select(entries[same + step] ?? this.selected);
  }

  nextLane(step) {
    const lane = this.selected < 0 ? null : this.run.lanes[this.laneOf(this.selected) + step];
    if (!lane) return;
    const at = firstFrom(lane.entries, this.run.starts, this.run.starts[this.selected]);
    this.select(lane.entries[Math.min(at, lane.entries.length - 1)]);
  }

  select(index) {
    this.selected = index;
    if (index >= 0) {
      const { starts, duration } = this.run;
      const [from, to] = this.view;
      if (starts[index] < from || starts[index] + duration[index] > to) {
        const span = Math.max(to - from, duration[index] * 1.2);
        const middle = starts[index] + duration[index] / 2;
        this.view = [middle - span / 2, middle + span / 2];
      }
      const lines = this.lines(index).filter(([name]) => name !== "operator");
      this.chosen.replaceChildren(element("strong", {}, this.title(index)),
        ...lines.map(([name, value]) => element("span", {}, name ? `${name} ${value}` : value)));
    } else this.chosen.textContent = "";
    this.draw();
  }

  title(index) {
    return this.run.kinds[this.run.kind[index]][1];
  }

  lines(index) {
    const { kinds, kind, starts, duration } = this.run;
    const [type, , forward] = kinds[kind[index]];
    const lines = [
      ["", this.laneName(index)],
      ["type", type],
      ["took", shown(duration[index], "nanoseconds")],
      ["at", shown(starts[index], "nanoseconds")],
    ];
    const line = this.data.lines[this.data.operators.line[this.operators.get(forward)]];
    if (line) lines.push(["line", line[0]]);
    return lines;
  }

  draw() {
    const { width } = this.chart;
    if (!width) return;
    this.bars.show({ step: Number(this.range.value) });
    this.chart.show({ view: this.view, selected: this.selected }, {
      executions: this.run.lanes.flatMap((lane) => (
        laneRows(this.run, lane, this.view, width, this.selected))),
      memory: this.run.memory.length ? curveRows(this.run.memory, this.view, width) : [],
    });
  }
}
