// The modules as they nest, with the operators in them; a module has the sum of what is in it.

/** A node of the tree: a module, or an operator, which is a leaf. */
class Node {
  constructor(name, parent, width) {
    this.name = name;
    this.parent = parent;
    this.children = [];
    this.values = new Float64Array(width);
    this.operator = -1;
  }

  get isOperator() {
    return this.operator >= 0;
  }

  /** Names from the outermost module on. */
  get path() {
    const names = [];
    for (let node = this; node.parent; node = node.parent) names.unshift(node.name);
    return names.join(".") || this.name;
  }
}

/** The tree of all modules and operators; its root is the total. */
function treeOf(data) {
  const { columns, modules, operators } = data;
  const nodes = modules.map(([name]) => new Node(name, null, columns.length));
  modules.forEach(([, parent], index) => {
    if (parent < 0) return;
    nodes[index].parent = nodes[parent];
    nodes[parent].children.push(nodes[index]);
  });
  operators.id.forEach((id, index) => {
    const parent = nodes[operators.module[index]];
    const node = new Node(id.slice(id.lastIndexOf("/") + 1), parent, columns.length);
    node.operator = index;
    columns.forEach((_, column) => { node.values[column] = operators.values[column][index]; });
    parent.children.push(node);
  });
  for (let index = nodes.length - 1; index >= 0; index -= 1) {
    const node = nodes[index];
    for (const child of node.children) {
      child.values.forEach((value, column) => { node.values[column] += value; });
    }
  }
  const [root] = nodes;
  root.children.forEach(joined);
  nodes.forEach(setApart);
  return root;
}

/** Has operators that stand beside modules be in a row of their own, behind these. */
function setApart(node) {
  const own = node.children.filter((child) => child.isOperator);
  if (!own.length || own.length === node.children.length) return;
  const apart = new Node("(own operators)", node, node.values.length);
  apart.children = own;
  for (const child of own) {
    child.parent = apart;
    child.values.forEach((value, column) => { apart.values[column] += value; });
  }
  node.children = [...node.children.filter((child) => !child.isOperator), apart];
}

/** Has a chain of modules with nothing else in them be one: `encoder.layer`. */
function joined(top) {
  const waiting = [top];
  while (waiting.length) {
    const node = waiting.pop();
    while (node.children.length === 1 && !node.children[0].isOperator) {
      const [only] = node.children;
      node.name = `${node.name}.${only.name}`;
      node.children = only.children;
      node.children.forEach((child) => { child.parent = node; });
    }
    waiting.push(...node.children);
  }
}

/** Names and values of a node, for a tip. */
function described(node, data) {
  const { columns, operators, lines } = data;
  const found = [];
  if (node.isOperator) {
    found.push(["operator", operators.id[node.operator]], ["type", operators.type[node.operator]]);
    const line = lines[operators.line[node.operator]];
    if (line) found.push(["line", line[0]]);
    if (line && line[1]) found.push(["", line[1]]);
  }
  columns.forEach(({ title, unit }, column) => {
    if (node.values[column]) found.push([title, shown(node.values[column], unit)]);
  });
  return found;
}
