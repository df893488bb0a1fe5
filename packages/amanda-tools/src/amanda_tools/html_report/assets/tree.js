// The modules as a treegrid: rows that expand, sort among their siblings, and are searched.

const AT_MOST = 500; // rows at a time
const SOON = 25; // rows that are expanded when the page opens, at most

class TreeGrid {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    const { columns } = data;
    this.columns = [
      { title: "Module", number: false },
      ...columns.map(({ title, detail }) => ({ title, detail, number: true })),
    ];
    this.sort = { column: -1, descending: false };
    this.expanded = new Set([root]);
    this.found = null; // nodes that match a search, and those around them
    this.limit = AT_MOST;
    this.expandFirst();
    this.head = element("thead");
    this.body = element("tbody");
    this.count = element("span", { class: "count", role: "status" });
    this.more = element("button", {
      type: "button", class: "more", onclick: () => { this.limit += AT_MOST; this.render(); },
    });
    this.element = element("div", { class: "block" },
      element("div", { class: "bar" },
        searchField("Search modules and operators", (text) => this.search(text)),
        element("button", { type: "button", onclick: () => this.expandAll() }, "Expand all"),
        element("button", { type: "button", onclick: () => this.collapseAll() }, "Collapse all"),
        this.count),
      element("div", { class: "scrolls tall" },
        element("table", {
          role: "treegrid",
          "aria-label": "Modules and the operators in them",
          onkeydown: (event) => this.key(event),
          onclick: (event) => this.click(event),
        }, this.head, this.body)),
      this.more);
    this.render();
  }

  /** Expands as many levels as can be looked through. */
  expandFirst() {
    let level = [this.root];
    let rows = 1;
    while (level.length) {
      const next = level.flatMap((node) => node.children);
      if (rows + next.length > SOON && level[0] !== this.root) break;
      level.forEach((node) => this.expanded.add(node));
      rows += next.length;
      level = next.filter((node) => node.children.some((child) => !child.isOperator));
    }
  }

  expandAll() {
    const waiting = [this.root];
    while (waiting.length) {
      const node = waiting.pop();
      if (!node.children.length) continue;
      this.expanded.add(node);
      waiting.push(...node.children);
    }
    this.render();
  }

  collapseAll() {
    this.expanded = new Set([this.root]);
    this.limit = AT_MOST;
    this.render();
  }

  search(text) {
    this.found = null;
    this.count.textContent = "";
    if (text) {
      this.found = new Set();
      let matches = 0;
      const waiting = [this.root];
      while (waiting.length) {
        const node = waiting.pop();
        waiting.push(...node.children);
        if (!this.words(node).includes(text)) continue;
        matches += 1;
        for (let at = node; at && !this.found.has(at); at = at.parent) this.found.add(at);
      }
      this.count.textContent = `${matches.toLocaleString("en")} found`;
    }
    this.limit = AT_MOST;
    this.render();
  }

  words(node) {
    const { id, type } = this.data.operators;
    const words = node.isOperator ? `${id[node.operator]} ${type[node.operator]}` : node.path;
    return words.toLowerCase();
  }

  isOpen(node) {
    return this.found ? node.children.some((child) => this.found.has(child))
      : this.expanded.has(node);
  }

  childrenOf(node) {
    const shownOnes = this.found ? node.children.filter((child) => this.found.has(child))
      : node.children;
    const { column, descending } = this.sort;
    if (column < 0) return shownOnes;
    const sign = descending ? -1 : 1;
    const key = column === 0 ? (child) => child.name : (child) => child.values[column - 1];
    return [...shownOnes].sort((one, other) => compared(key(one), key(other), sign));
  }

  /** Nodes with their level, in the order of their rows. */
  visible() {
    const rows = [];
    const waiting = [[this.root, 1, 1, 1]];
    while (waiting.length && rows.length <= this.limit) {
      const row = waiting.pop();
      rows.push(row);
      const [node, level] = row;
      if (!node.children.length || !this.isOpen(node)) continue;
      const children = this.childrenOf(node);
      for (let index = children.length - 1; index >= 0; index -= 1) {
        waiting.push([children[index], level + 1, index + 1, children.length]);
      }
    }
    return rows;
  }

  render(focused = null) {
    replaceHeadings(this.head, headings(this.columns, this.sort, (sort) => {
      this.sort = sort;
      this.render();
    }));
    const rows = this.visible();
    this.more.hidden = rows.length <= this.limit;
    this.more.textContent = `Show ${AT_MOST.toLocaleString("en")} more rows`;
    this.nodes = new Map();
    this.body.replaceChildren(...rows.slice(0, this.limit).map((row) => this.row(...row)));
    const current = focused || this.current;
    const at = [...this.nodes].find(([, node]) => node === current) || [this.body.rows[0]];
    this.tabTo(at[0]);
    if (focused) at[0].focus();
  }

  row(node, level, position, siblings) {
    const { columns, operators } = this.data;
    const expandable = node.children.length > 0;
    const open = expandable && this.isOpen(node);
    const row = element("tr", {
      role: "row",
      tabindex: "-1",
      class: node.isOperator ? "operator" : (level === 1 ? "root" : null),
      "aria-level": level,
      "aria-posinset": position,
      "aria-setsize": siblings,
      "aria-expanded": expandable ? String(open) : null,
    });
    const type = node.isOperator ? operators.type[node.operator] : null;
    row.append(element("th", { scope: "row", role: "rowheader", style: { "--level": level - 1 } },
      element("span", { class: expandable ? "twist" : "leaf", "aria-hidden": "true" }),
      element("span", { class: "name" }, node.name),
      type && !node.name.startsWith(type) ? element("span", { class: "type" }, type) : null));
    columns.forEach(({ unit, detail }, column) => {
      const value = node.values[column];
      const cell = element("td", { role: "gridcell", class: detail ? "number detail" : "number" });
      if (value) cell.append(figure(value, unit));
      if (this.sort.column - 1 === column || (this.sort.column < 1 && unit === "share")) {
        cell.classList.add("shared");
        cell.style.setProperty("--share", value / (this.root.values[column] || 1));
      }
      row.append(cell);
    });
    this.nodes.set(row, node);
    return row;
  }

  tabTo(row) {
    if (!row) return;
    for (const other of this.body.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    row.tabIndex = 0;
    this.current = this.nodes.get(row);
  }

  focus(row) {
    if (!row) return;
    this.tabTo(row);
    row.focus();
  }

  toggle(node, open) {
    if (!node.children.length || this.found) return;
    if (open) this.expanded.add(node);
    else this.expanded.delete(node);
    this.render(node);
  }

  click(event) {
    const row = event.target.closest("tbody tr");
    if (!row) return;
    const node = this.nodes.get(row);
    this.tabTo(row);
    if (!String(document.getSelection())) this.toggle(node, !this.expanded.has(node));
  }

  key(event) {
    const row = event.target.closest("tbody tr");
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const node = this.nodes.get(row);
    const moves = {
      ArrowDown: () => this.focus(row.nextElementSibling),
      ArrowUp: () => this.focus(row.previousElementSibling),
      Home: () => this.focus(this.body.firstElementChild),
      End: () => this.focus(this.body.lastElementChild),
      Enter: () => this.toggle(node, !this.expanded.has(node)),
      " ": () => this.toggle(node, !this.expanded.has(node)),
      ArrowRight: () => {
        if (this.isOpen(node)) this.focus(row.nextElementSibling);
        else this.toggle(node, true);
      },
      ArrowLeft: () => {
        if (node.children.length && this.expanded.has(node)) this.toggle(node, false);
        else this.focus([...this.nodes].find(([, other]) => other === node.parent)?.[0]);
      },
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    moves[event.key]();
  }
}
