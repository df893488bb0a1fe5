// Flame graphs: modules and operators below one another, as wide as their numbers are large.

const FRAME = 22; // pixels of a frame's height, as in its specification

class FlameGraph {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    this.zoomed = root;
    this.text = "";
    this.nodes = [];
    for (const waiting = [root]; waiting.length;) {
      const node = waiting.pop();
      node.id = this.nodes.push(node) - 1;
      waiting.push(...node.children.toReversed());
    }
    const { choices, first } = data.flames;
    const select = element("select", {
      id: "flame-choice", onchange: () => this.choose(choices[select.selectedIndex]),
    }, ...choices.map(([label]) => element("option", {}, label)));
    select.selectedIndex = first;
    this.out = element("button", { type: "button", onclick: () => this.zoom(root) }, "Zoom out");
    this.found = element("span", { class: "count", role: "status" });
    this.panels = [0, 1].map(() => this.panel());
    this.element = element("div", { class: "block" },
      element("div", { class: "bar" },
        element("label", { for: "flame-choice" }, "Width shows"), select,
        searchField("Search frames", (text) => { this.text = text; this.render(); }),
        this.out, this.found),
      element("div", { class: "panels" }, ...this.panels.map(({ place }) => place)),
      element("p", { class: "hint", id: "flame-keys" }, "Click a frame, or press Enter on it, to zoom "
        + "in; Escape zooms out. Arrow keys move from frame to frame."));
    this.choose(choices[first]);
  }

  panel() {
    const panel = { heading: element("h3"), focused: this.root };
    panel.chart = new Chart("flame", "svg", {
      class: "flame",
      tabindex: "0",
      role: "application",
      "aria-describedby": "flame-keys",
      onkeydown: (event) => this.key(event, panel),
      onfocus: () => {
        if (panel.chart.element.matches(":focus-visible")) this.focus(panel, panel.focused);
      },
      onblur: () => { tip.hide(); panel.chart.show({ focused: -1 }); },
    }, { told: ({ id }) => this.told(panel, this.nodes[id]) });
    panel.chart.on("clicked", ({ id }) => this.zoom(this.nodes[id]));
    panel.place = element("div", { class: "panel" }, panel.heading, panel.chart.element);
    return panel;
  }

  /** Shows other numbers. */
  choose([, ...panels]) {
    this.panels.forEach((panel, index) => {
      [panel.title, panel.column] = panels[index] || ["", -1];
      panel.place.hidden = !this.root.values[panel.column];
      if (panel.place.hidden) return;
      panel.chart.element.setAttribute("aria-label", panel.title);
      panel.chart.show({}, { frames: this.nodes.map((node) => this.frame(panel, node)) });
    });
    this.render();
  }

  frame(panel, node) {
    return {
      id: node.id,
      parent: node.parent ? node.parent.id : null,
      own: node.children.length ? 0 : Math.max(node.values[panel.column], 0),
      name: node.name,
      label: this.label(panel, node),
      words: this.words(node),
      hue: node.isOperator ? hueOf(this.data.operators.type[node.operator]) : -1,
    };
  }

  label({ column }, node) {
    const value = node.values[column];
    const share = value / this.root.values[column];
    return `${node.name}, ${shown(value, this.data.columns[column].unit)}, ${shown(share, "share")}`;
  }

  words(node) {
    const { id, type } = this.data.operators;
    const words = node.isOperator ? `${id[node.operator]} ${type[node.operator]}` : node.name;
    return words.toLowerCase();
  }

  zoom(node) {
    this.zoomed = node;
    for (const panel of this.panels) panel.focused = node;
    this.render();
  }

  render() {
    this.out.disabled = this.zoomed === this.root;
    this.found.textContent = this.text ? this.matched() : "";
    for (const { place, heading, title, column, chart } of this.panels) {
      if (place.hidden) continue;
      const { unit } = this.data.columns[column];
      heading.replaceChildren(`${title} `,
        element("span", { class: "sum" }, shown(this.zoomed.values[column], unit)),
        this.zoomed === this.root ? "" : element("span", { class: "of" },
          ` of ${shown(this.root.values[column], unit)}, in ${this.zoomed.path}`));
      chart.show({ zoomed: this.zoomed.id, search: this.text });
    }
  }

  told({ column }, node) {
    const share = node.values[column] / this.root.values[column];
    return [node.path, [["of all", shown(share, "share")], ...described(node, this.data)]];
  }

  /** How much of the first panel matches, what is in a match counted once. */
  matched() {
    const [{ column }] = this.panels;
    let sum = 0;
    const waiting = [this.root];
    while (waiting.length) {
      const node = waiting.pop();
      if (node !== this.root && this.words(node).includes(this.text)) sum += node.values[column];
      else waiting.push(...node.children);
    }
    return `${shown(sum / (this.root.values[column] || 1), "share")} matches`;
  }

  /** Moves to a frame by keyboard, and tells of it. */
  async focus(panel, node) {
    panel.focused = node;
    const inside = node.children.length;
    speak(`${this.label(panel, node)}${inside ? `, ${exact(inside)} inside` : ""}`);
    await panel.chart.show({ focused: node.id });
    const frame = panel.chart.view.data("shown").find(({ id }) => id === node.id);
    if (!frame || document.activeElement !== panel.chart.element) return;
    const { left, top } = panel.chart.element.getBoundingClientRect();
    tip.show(...this.told(panel, node), left + frame.left, top + (frame.depth + 1) * FRAME - 12);
  }

  key(event, panel) {
    const node = panel.focused;
    const beside = (seen, step) => {
      const siblings = node.parent ? node.parent.children.filter(seen) : [node];
      return siblings[siblings.indexOf(node) + step];
    };
    const moves = {
      ArrowUp: () => node.parent,
      ArrowDown: (seen) => node.children.find(seen),
      ArrowLeft: (seen) => beside(seen, -1),
      ArrowRight: (seen) => beside(seen, 1),
      Enter: () => { this.zoom(node); return node; },
      " ": () => { this.zoom(node); return node; },
      Escape: () => { this.zoom(this.zoomed.parent || this.root); return this.zoomed; },
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const ids = new Set(panel.chart.view.data("shown").map(({ id }) => id));
    const next = moves[event.key]((child) => ids.has(child.id));
    if (next) this.focus(panel, next);
  }
}
