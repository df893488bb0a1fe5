// A table that sorts by its headings, searches, and shows as many rows as one can look through.

const FEW = 12;
const MORE = 200;
const NO_FIGURE = /^(nan|-?inf)$/; // of numbers, which come last
const LONG = 60; // characters of a cell that is not to be squeezed

/** Compares two values; what there is none of comes last, whichever way the table is sorted. */
function compared(one, other, sign) {
  const missing = [one, other].map((v) => v === null || v === undefined || v === "");
  if (missing[0] || missing[1]) return missing[0] - missing[1];
  if (typeof one === "number" && typeof other === "number") return sign * (one - other);
  return sign * String(one).localeCompare(String(other), "en", { numeric: true });
}

/**
 * Headings that sort.
 *
 * Columns have a `title`, whether they are of `number`s, and whether they are a `detail`; `sort`
 * is `{ column, descending }`, with column -1 for the order in which rows came.
 */
function headings(columns, sort, sorted) {
  return element("tr", {}, ...columns.map((column, index) => {
    const active = sort && sort.column === index;
    const direction = active ? (sort.descending ? "descending" : "ascending") : null;
    const cell = element("th", {
      scope: "col",
      class: [column.number && "number", column.detail && "detail"].filter(Boolean).join(" ") || null,
      "aria-sort": direction,
    });
    if (!sort) {
      cell.append(column.title);
      return cell;
    }
    cell.append(element("button", {
      type: "button",
      onclick: () => {
        const first = Boolean(column.number);
        if (!active) sorted({ column: index, descending: first });
        else if (sort.descending === first) sorted({ column: index, descending: !first });
        else sorted({ column: -1, descending: false });
      },
    }, column.title, element("span", { class: "arrow", "aria-hidden": "true" })));
    return cell;
  }));
}

/** Puts new headings in the place of old ones, with the focus where it was. */
function replaceHeadings(head, row) {
  const buttons = [...head.querySelectorAll("button")];
  const focused = buttons.indexOf(document.activeElement);
  head.replaceChildren(row);
  if (focused >= 0) head.querySelectorAll("button")[focused].focus();
}

class DataTable {
  /**
   * @param options columns: `title`, `number`, `detail`, `value(row)` by which it sorts, and
   *   `content(row)`, what it shows; rows; label; sort; and `words(row)`, in which it searches.
   */
  constructor({ columns, rows, label, sort, words, note, few = FEW }) {
    Object.assign(this, { columns, rows, label, sort, words, few });
    this.limit = few;
    this.matching = rows;
    this.head = element("thead");
    this.body = element("tbody");
    this.count = element("span", { class: "count", role: "status" });
    this.more = element("button", { type: "button", class: "more", onclick: () => this.showMore() });
    const search = rows.length > few && words
      ? searchField(`Search ${label.toLowerCase()}`, (text) => this.search(text)) : null;
    this.element = element("div", { class: "block" },
      search || note ? element("div", { class: "bar" }, search, this.count,
        note ? element("span", { class: "note" }, note) : null) : null,
      element("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": `Table of ${label.toLowerCase()}` },
        element("table", { "aria-label": label }, this.head, this.body)),
      this.more);
    this.render();
  }

  search(text) {
    this.matching = text ? this.rows.filter((row) => this.words(row).toLowerCase().includes(text))
      : this.rows;
    this.limit = this.few;
    this.count.textContent = text ? `${this.matching.length.toLocaleString("en")} found` : "";
    this.render();
  }

  showMore() {
    const before = this.limit;
    this.limit += MORE;
    this.render();
    const next = this.body.rows[before];
    if (next && this.more.hidden) { // the button that had the focus is gone
      next.tabIndex = -1;
      next.focus();
    }
  }

  inOrder() {
    if (!this.sort || this.sort.column < 0) return this.matching;
    const { column, descending } = this.sort;
    const sign = descending ? -1 : 1;
    const keyed = this.matching.map((row) => [this.columns[column].value(row), row]);
    keyed.sort(([one], [other]) => compared(one, other, sign));
    return keyed.map(([, row]) => row);
  }

  render() {
    replaceHeadings(this.head, headings(this.columns, this.sort, (sort) => {
      this.sort = sort;
      this.render();
    }));
    this.body.replaceChildren(...this.inOrder().slice(0, this.limit).map((row) => this.row(row)));
    if (!this.matching.length) {
      this.body.append(element("tr", {},
        element("td", { colspan: this.columns.length, class: "none" }, "Nothing found")));
    }
    const rest = this.matching.length - this.limit;
    this.more.hidden = rest <= 0;
    this.more.textContent = `Show ${Math.min(rest, MORE).toLocaleString("en")} more of `
      + `${this.matching.length.toLocaleString("en")}`;
  }

  row(row) {
    return element("tr", {}, ...this.columns.map((column, index) => {
      const names = [column.number && "number", column.detail && "detail", column.kind];
      const cell = element(index === 0 ? "th" : "td", {
        scope: index === 0 ? "row" : null,
        class: names.filter(Boolean).join(" ") || null,
      });
      const content = column.content(row);
      if (content !== null && content !== "") cell.append(content);
      if (typeof content === "string" && content.length > LONG) cell.classList.add("long");
      if (column.share && this.sort && this.sort.column === index) {
        cell.style.setProperty("--share", Math.max(0, Math.min(1, column.share(row))));
        cell.classList.add("shared");
      }
      return cell;
    }));
  }
}

/** The table of a part of a tool's report, or of its rows. */
function tableOf(part, label) {
  const columns = part.titles.map((title, index) => {
    const cells = part.rows.map((row) => row[index]).filter((cell) => cell !== null && cell !== "");
    const areNumbers = cells.every((cell) => typeof cell === "number" || NO_FIGURE.test(cell));
    const asText = part.units[index] === "shown" || (!areNumbers
      && cells.every((cell) => numberIn(cell) !== null)
      && cells.some((cell) => /\D/.test(cell))); // and not names that happen to be digits
    return {
      title: title.replaceAll("_", " "),
      number: cells.length > 0 && (areNumbers || asText),
      value: (row) => {
        if (asText) return numberIn(row[index]);
        return areNumbers && typeof row[index] === "string" ? null : row[index];
      },
      content: (row) => contentOf(row[index], part.units[index]),
      kind: part.nested && index === 0 ? "nested" : null,
    };
  });
  const kept = part.rows.length < part.of
    ? `the first ${part.rows.length.toLocaleString("en")} of ${part.of.toLocaleString("en")} rows`
    : null;
  const table = new DataTable({
    columns,
    rows: part.rows,
    label,
    sort: part.nested ? null : { column: -1, descending: false },
    words: (row) => row.join(" "),
    note: kept,
    few: part.nested ? 40 : FEW,
  });
  return table.element;
}

function contentOf(value, unit) {
  if (value === null) return null;
  if (typeof value !== "number") return String(value);
  if (unit && unit !== "shown") return figure(value, unit);
  return exact(value);
}
