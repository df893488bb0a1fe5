// Puts the parts of the page together.

const data = JSON.parse(document.getElementById("data").textContent);

/** Columns of numbers: shares and times first, which most people look for. */
function numberColumns(columns, valueOf, totals) {
  const place = { share: 0, nanoseconds: 1 };
  const order = columns.map((column, index) => ({ ...column, index }));
  order.sort((one, other) => (place[one.unit] ?? 2) - (place[other.unit] ?? 2));
  return order.map(({ title, unit, detail, index }) => ({
    title,
    detail,
    number: true,
    value: (row) => valueOf(row, index) || null,
    content: (row) => (valueOf(row, index) ? figure(valueOf(row, index), unit) : null),
    share: (row) => valueOf(row, index) / (totals[index] || 1),
  }));
}

function showTotals(root) {
  const named = (title, unit) => {
    if (title === "Count") return "Executions";
    return unit === "nanoseconds" ? `${title} time` : title;
  };
  const tiles = data.columns
    .map(({ title, unit }, index) => [named(title, unit), unit, root.values[index]])
    .filter(([, unit, value]) => unit !== "share" && value);
  const operators = data.operators.id.length;
  document.getElementById("totals").append(element("dl", {},
    ...[...tiles, ["Operators", "count", operators]].map(([title, unit, value]) => (
      element("div", {}, element("dt", {}, title), element("dd", {}, figure(value, unit)))))));
}

function operatorTable(root) {
  const { columns, operators, lines } = data;
  const at = (row) => lines[operators.line[row]];
  const fixed = [{
    title: "Operator",
    kind: "id",
    value: (row) => operators.id[row],
    content: (row) => element("div", {},
      operators.id[row],
      at(row) ? element("div", { class: "line" },
        at(row)[1] ? element("code", { title: at(row)[1] }, at(row)[1]) : null,
        element("span", { class: "where" }, at(row)[0])) : null),
  }];
  return new DataTable({
    columns: [...fixed, ...numberColumns(columns, (row, c) => operators.values[c][row], root.values)],
    rows: operators.id.map((_, index) => index),
    label: "Operators",
    sort: { column: fixed.length, descending: true },
    words: (row) => [operators.id[row], operators.type[row], ...(at(row) || [])].join(" "),
  });
}

function typeTable(root) {
  const { columns, operators } = data;
  const sums = new Map();
  operators.type.forEach((type, row) => {
    if (!sums.has(type)) sums.set(type, { type, operators: 0, values: columns.map(() => 0) });
    const sum = sums.get(type);
    sum.operators += 1;
    columns.forEach((_, column) => { sum.values[column] += operators.values[column][row]; });
  });
  const fixed = [
    { title: "Type", value: (row) => row.type, content: (row) => row.type, kind: "id" },
    {
      title: "Operators", number: true, detail: true,
      value: (row) => row.operators, content: (row) => exact(row.operators),
    },
  ];
  return new DataTable({
    columns: [...fixed, ...numberColumns(columns, (row, c) => row.values[c], root.values)],
    rows: [...sums.values()],
    label: "Types",
    sort: { column: fixed.length, descending: true },
    words: (row) => row.type,
  });
}

function showParts() {
  data.sections.forEach(({ parts, rows }, index) => {
    const section = document.getElementById(`tool-${index + 1}`);
    const name = section.querySelector("h2").textContent;
    const place = section.querySelector(".parts");
    for (const part of parts) {
      if (part.kind === "table") {
        if (part.caption) place.append(element("h3", {}, part.caption));
        place.append(tableOf(part, part.caption || part.titles[0] || name));
      } else place.append(element(part.kind === "terminal" ? "pre" : "p", { class: "said" }, part.text));
    }
    if (!rows) return;
    const all = element("details", {},
      element("summary", {}, `All ${rows.of.toLocaleString("en")} rows`));
    all.addEventListener("toggle", () => {
      if (all.children.length === 1) all.append(tableOf(rows, `Rows of ${name}`));
    });
    section.append(all);
  });
}

/** The switch between light, dark, and what the system says; what was chosen is remembered. */
function themeSwitch() {
  const button = document.getElementById("theme");
  const names = { system: "as the system", light: "light", dark: "dark" };
  const order = Object.keys(names);
  let theme = "system";
  try {
    theme = localStorage.getItem("amanda-theme") || theme;
  } catch {
    // pages of files may not remember anything
  }
  const apply = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${names[theme]}`;
    document.dispatchEvent(new Event("themed"));
  };
  if (!(theme in names)) theme = "system";
  button.addEventListener("click", () => {
    theme = order[(order.indexOf(theme) + 1) % order.length];
    try {
      localStorage.setItem("amanda-theme", theme);
    } catch {
      // as above
    }
    apply();
  });
  apply();
}

themeSwitch();
if (data.operators.id.length) {
  const root = treeOf(data);
  showTotals(root);
  document.getElementById("modules").append(new TreeGrid(root, data).element);
  if (data.flames.choices.length) {
    document.getElementById("flame").append(new FlameGraph(root, data).element);
  }
  document.getElementById("slowest").append(operatorTable(root).element);
  document.getElementById("types").append(typeTable(root).element);
}
if (data.timelines.length) {
  document.getElementById("timeline").append(new TimelineView(data.timelines, data).element);
}
showParts();
