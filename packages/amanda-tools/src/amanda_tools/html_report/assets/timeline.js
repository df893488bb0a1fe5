// The executions of a run over time, in lanes, and its steps as bars above them.

class TimelineView {
  constructor(timelines, data) {
    this.data = data;
    this.timelines = timelines;
    this.operators = new Map(data.operators.id.map((id, index) => [id, index]));
    this.strip = element("canvas", { class: "strip", height: STRIP, "aria-hidden": "true" });
    this.canvas = element("canvas", {
      class: "lanes",
      tabindex: "0",
      role: "application",
      "aria-label": "Executions over time",
      "aria-describedby": "timeline-keys",
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
      this.strip);
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
      this.canvas,
      this.chosen,
      element("p", { class: "hint", id: "timeline-keys" }, "Left and right arrows go from execution "
        + "to execution, up and down between lanes; + and − zoom, with Shift arrows move along. "
        + "Drag to move, and turn the wheel with Ctrl to zoom."));
    this.listen();
    this.open(timelines[0]);
  }

  open(timeline) {
    this.run = unpacked(timeline);
    this.chosen.textContent = "";
    this.selected = -1;
    const { steps } = this.run;
    this.steps.hidden = steps.length < 2;
    this.range.max = String(steps.length);
    this.sums = stepSums(this.run);
    const number = this.run.starts.length.toLocaleString("en");
    this.note.textContent = this.run.left_out
      ? `the first ${number} executions; ${this.run.left_out.toLocaleString("en")} more ran`
      : `${number} executions`;
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
      const [start, end] = steps[number - 1];
      const [forward, backward] = this.sums[number - 1];
      text = `${number} of ${steps.length.toLocaleString("en")}: ${shown(end - start, "nanoseconds")}`
        + ` (${shown(forward, "nanoseconds")} forward, ${shown(backward, "nanoseconds")} backward)`;
    }
    this.which.textContent = text;
    this.range.setAttribute("aria-valuetext", text);
  }

  zoomBy(factor, at = null) {
    const [from, to] = this.view;
    let middle = at;
    if (middle === null) {
      const { starts, duration } = this.run;
      middle = this.selected < 0 ? (from + to) / 2
        : starts[this.selected] + duration[this.selected] / 2;
    }
    const span = Math.min(Math.max((to - from) * factor, 100), this.run.end * 1.1 || 1);
    const share = at === null && factor < 1 && this.selected >= 0 ? 0.5 : (middle - from) / (to - from);
    this.view = [middle - span * share, middle + span * (1 - share)];
    this.draw();
  }

  moveBy(share) {
    const span = this.view[1] - this.view[0];
    const low = Math.max(-span * 0.5, Math.min(this.view[0] + span * share, this.run.end - span * 0.5));
    this.view = [low, low + span];
    this.draw();
  }

  listen() {
    const { canvas } = this;
    let grabbed = null;
    canvas.addEventListener("pointerdown", (event) => {
      grabbed = { x: event.clientX, moved: false, view: this.view };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (grabbed) {
        const by = event.clientX - grabbed.x;
        grabbed.moved ||= Math.abs(by) > 3;
        if (!grabbed.moved) return;
        const [from, to] = grabbed.view;
        const time = (by / canvas.clientWidth) * (to - from);
        this.view = [from - time, to - time];
        this.draw();
        tip.hide();
        return;
      }
      const index = this.at(event);
      canvas.style.cursor = index < 0 ? "grab" : "pointer";
      if (index < 0) tip.hide();
      else tip.show(this.title(index), this.lines(index), event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (grabbed && !grabbed.moved) this.select(this.at(event));
      grabbed = null;
    });
    canvas.addEventListener("pointercancel", () => { grabbed = null; });
    canvas.addEventListener("pointerleave", () => tip.hide());
    canvas.addEventListener("dblclick", (event) => this.zoomBy(0.25, this.timeAt(event)));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoomBy(event.deltaY > 0 ? 1.25 : 0.8, this.timeAt(event));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.strip.addEventListener("click", (event) => {
      const { steps } = this.run;
      const number = 1 + Math.floor((event.offsetX / this.strip.clientWidth) * steps.length);
      this.range.value = String(number);
      this.toStep(number);
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    document.addEventListener("themed", () => this.draw());
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

  timeAt(event) {
    const [from, to] = this.view;
    return from + (event.offsetX / this.canvas.clientWidth) * (to - from);
  }

  /** The execution under the pointer; -1 if there is none. */
  at(event) {
    const time = this.timeAt(event);
    const slack = ((this.view[1] - this.view[0]) / this.canvas.clientWidth) * 1.5;
    const { starts, depths, duration } = this.run;
    for (const { entries, top, depth } of this.placed) {
      const row = Math.floor((event.offsetY - top) / ROW);
      if (row < 0 || row >= depth) continue;
      let at = firstFrom(entries, starts, time + slack) - 1;
      for (let tried = 0; at >= 0 && tried < 5000; at -= 1, tried += 1) {
        const index = entries[at];
        if (Math.min(depths[index], depth - 1) !== row) continue;
        return starts[index] + duration[index] + slack >= time ? index : -1;
      }
    }
    return -1;
  }

  colors() {
    const style = getComputedStyle(this.element);
    const dark = style.colorScheme === "dark"
      || (style.colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    return {
      dark,
      ink: style.color,
      forward: dark ? "#5b8fe0" : "#3f78d1",
      backward: dark ? "#d98a4e" : "#cf7432",
      between: dark ? "#3a424f" : "#d7dce4",
      line: dark ? "#323945" : "#dfe3e9",
      muted: dark ? "#9aa4b2" : "#5b6575",
    };
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width || !this.run) return;
    const colors = this.colors();
    let top = this.run.memory.length ? CURVE + GAP : 0;
    this.placed = this.run.lanes.map((lane) => {
      const placed = { ...lane, top: top + GAP };
      top += GAP + lane.depth * ROW + 4;
      return placed;
    });
    const context = fitted(this.canvas, width, top + 22);
    context.font = "11px system-ui, sans-serif";
    drawAxis(context, width, top, this.view, colors);
    if (this.run.memory.length) drawMemory(context, width, this.run.memory, this.view, colors);
    for (const lane of this.placed) {
      drawLane(context, width, lane, this.view, this.run, this.selected, colors);
    }
    if (this.steps.hidden) return;
    drawSteps(this.strip, this.run.steps, this.sums, Number(this.range.value), colors);
  }
}
