// Flame graphs: modules and operators below one another, as wide as their numbers are large.

const FRAME = 22; // pixels of a frame's height
const THIN = 0.0008; // shares of the width that nobody can see

/** The choices of what is drawn: a column, or one forward and one backward. */
function flameChoices(columns) {
  const choices = [];
  const taken = new Set();
  columns.forEach(({ title, unit }, index) => {
    if (unit === "share" || taken.has(index)) return;
    const other = columns.findIndex((column) => column.unit === unit
      && column.title === (title === "Forward" ? "Backward" : `Backward ${title}`));
    if (other < 0) {
      choices.push({ label: title, panels: [[title, index]] });
      return;
    }
    taken.add(other);
    const what = title === "Forward" ? "Time" : title;
    choices.push({
      label: `${what}, forward and backward`,
      panels: [["Forward", index], ["Backward", other]],
    });
  });
  const first = choices.findIndex(({ panels }) => columns[panels[0][1]].unit === "nanoseconds");
  return { choices, first: Math.max(first, 0) };
}

class FlameGraph {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    this.zoomed = root;
    this.text = "";
    const { choices, first } = flameChoices(data.columns);
    this.choices = choices;
    this.choice = choices[first];
    const select = element("select", {
      id: "flame-choice",
      onchange: () => { this.choice = choices[select.selectedIndex]; this.render(); },
    }, ...choices.map(({ label }) => element("option", {}, label)));
    select.selectedIndex = first;
    this.out = element("button", { type: "button", onclick: () => this.zoom(root) }, "Zoom out");
    this.found = element("span", { class: "count", role: "status" });
    this.panels = element("div", { class: "panels" });
    this.element = element("div", { class: "block" },
      element("div", { class: "bar" },
        element("label", { for: "flame-choice" }, "Width shows"), select,
        searchField("Search frames", (text) => { this.text = text; this.render(); }),
        this.out, this.found),
      this.panels,
      element("p", { class: "hint" }, "Click a frame, or press Enter on it, to zoom in; "
        + "Escape zooms out. Arrow keys move from frame to frame."));
  }

  zoom(node, panel = 0) {
    this.zoomed = node;
    this.render();
    const frame = this.frames[panel]?.get(node);
    if (frame) frame.focus();
  }

  render() {
    this.out.disabled = this.zoomed === this.root;
    this.frames = [];
    this.found.textContent = "";
    const panels = this.choice.panels.map(([title, column], index) => (
      this.panel(title, column, index)));
    this.panels.replaceChildren(...panels.filter(Boolean));
    if (this.text) this.found.textContent = this.matched();
  }

  panel(title, column, index) {
    const { unit } = this.data.columns[column];
    const total = this.root.values[column];
    this.frames[index] = new Map();
    if (!total) return null;
    const around = [];
    for (let at = this.zoomed.parent; at; at = at.parent) around.unshift(at);
    const placed = around.map((node, depth) => [node, depth, 0, 1]);
    let deepest = 0;
    if (this.zoomed.values[column]) {
      this.place(this.zoomed, around.length, 0, 1, column, placed);
    }
    const graph = element("div", { class: "flame", role: "tree", "aria-label": title });
    for (const [node, depth, left, width] of placed) {
      deepest = Math.max(deepest, depth);
      const frame = this.frame(node, depth, left, width, column, index);
      this.frames[index].set(node, frame);
      graph.append(frame);
    }
    graph.style.height = `${(deepest + 1) * FRAME}px`;
    const entry = this.frames[index].get(this.zoomed) || graph.firstElementChild;
    if (entry) entry.tabIndex = 0;
    return element("div", { class: "panel" },
      element("h3", {}, title, " ", element("span", { class: "sum" },
        shown(this.zoomed.values[column], unit)),
      this.zoomed === this.root ? null : element("span", { class: "of" },
        ` of ${shown(total, unit)}, in ${this.zoomed.path}`)),
      graph);
  }

  /** Places a node and all below it that can be seen; values below none are none. */
  place(top, depth, left, width, column, placed) {
    const waiting = [[top, depth, left, width]];
    while (waiting.length) {
      const entry = waiting.pop();
      placed.push(entry);
      const [node, level, from, share] = entry;
      const whole = node.values[column];
      let at = from;
      const below = [];
      for (const child of node.children) {
        const part = share * (child.values[column] / whole);
        if (part > THIN) below.push([child, level + 1, at, part]);
        at += Math.max(part, 0);
      }
      waiting.push(...below.reverse());
    }
  }

  frame(node, depth, left, width, column, panel) {
    const { unit } = this.data.columns[column];
    const { type } = this.data.operators;
    const value = node.values[column];
    const share = value / this.root.values[column];
    const matches = this.text && this.matches(node);
    const kind = node.isOperator ? "operator" : "module";
    const frame = element("div", {
      class: `frame ${kind}${matches ? " match" : ""}${this.text && !matches ? " other" : ""}`,
      role: "treeitem",
      tabindex: "-1",
      "aria-level": depth + 1,
      "aria-label": `${node.name}, ${shown(value, unit)}, ${shown(share, "share")}`,
      "aria-expanded": node.children.length ? "true" : null,
      style: {
        left: `${left * 100}%`,
        width: `${width * 100}%`,
        top: `${depth * FRAME}px`,
        "--hue": node.isOperator ? hueOf(type[node.operator]) : 0,
      },
      onclick: () => this.zoom(node, panel),
      onmousemove: (event) => this.tip(node, share, event.clientX, event.clientY),
      onmouseleave: () => tip.hide(),
      onfocus: () => {
        const box = frame.getBoundingClientRect();
        if (frame.matches(":focus-visible")) this.tip(node, share, box.left, box.bottom - 12);
      },
      onblur: () => tip.hide(),
      onkeydown: (event) => this.key(event, node, panel),
    }, width * (this.panels.clientWidth || 1000) > 26 ? node.name : "");
    return frame;
  }

  tip(node, share, x, y) {
    const lines = [["of all", shown(share, "share")], ...described(node, this.data)];
    tip.show(node.path, lines, x, y);
  }

  matches(node) {
    const { id, type } = this.data.operators;
    const words = node.isOperator ? `${id[node.operator]} ${type[node.operator]}` : node.name;
    return words.toLowerCase().includes(this.text);
  }

  /** How much of the first panel matches, what is in a match counted once. */
  matched() {
    const [[, column]] = this.choice.panels;
    let sum = 0;
    const waiting = [this.root];
    while (waiting.length) {
      const node = waiting.pop();
      if (node !== this.root && this.matches(node)) sum += node.values[column];
      else waiting.push(...node.children);
    }
    return `${shown(sum / (this.root.values[column] || 1), "share")} matches`;
  }

  key(event, node, panel) {
    const frames = this.frames[panel];
    const siblings = node.parent ? node.parent.children.filter((child) => frames.has(child)) : [node];
    const beside = (step) => siblings[siblings.indexOf(node) + step];
    const moves = {
      ArrowUp: () => node.parent,
      ArrowDown: () => node.children.find((child) => frames.has(child)),
      ArrowLeft: () => beside(-1),
      ArrowRight: () => beside(1),
      Enter: () => { this.zoom(node, panel); },
      " ": () => { this.zoom(node, panel); },
      Escape: () => { this.zoom(this.zoomed.parent || this.root, panel); },
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const next = frames.get(moves[event.key]());
    if (!next) return;
    frames.forEach((frame) => { frame.tabIndex = -1; });
    next.tabIndex = 0;
    next.focus();
  }
}
