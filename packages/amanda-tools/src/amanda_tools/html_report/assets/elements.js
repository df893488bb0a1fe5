// Elements of the page. Text becomes text, never markup.

/** An element; properties that begin with "on" are listeners, and others are attributes. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") setStyle(made, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function setStyle(made, values) {
  for (const [name, value] of Object.entries(values)) made.style.setProperty(name, value);
}

/** A cell's content: digits and unit apart, so that numbers stand below one another. */
function figure(value, unit) {
  const [number, name] = scaled(value, unit);
  const full = unit === "count" && value >= 1000 ? exact(value) : null;
  return element(
    "span", { class: "figure", title: full }, number, element("span", { class: "unit" }, name && ` ${name}`),
  );
}

/** Says something to who cannot see it. */
function speak(text) {
  document.getElementById("spoken").textContent = text;
}

/** A field that searches: calls `found` with the words, in lower case, a moment after typing. */
function searchField(label, found) {
  let waiting = 0;
  const input = element("input", {
    type: "search",
    placeholder: label,
    "aria-label": label,
    spellcheck: "false",
    oninput: () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => found(input.value.trim().toLowerCase()), 120);
    },
  });
  return input;
}

const tip = {
  at: document.getElementById("tip"),

  /** Shows lines of names and values near a point of the window. */
  show(title, lines, x, y) {
    this.at.replaceChildren(
      element("strong", {}, title),
      element("dl", {}, ...lines.map(([name, value]) => (
        element("div", {}, element("dt", {}, name), element("dd", {}, value))
      ))),
    );
    this.at.hidden = false;
    const { width, height } = this.at.getBoundingClientRect();
    const left = Math.min(x + 14, window.innerWidth - width - 8);
    const below = y + 18 + height < window.innerHeight;
    this.at.style.left = `${Math.max(8, left)}px`;
    this.at.style.top = `${Math.max(8, below ? y + 18 : y - height - 12)}px`;
  },

  hide() {
    this.at.hidden = true;
  },
};
document.addEventListener("scroll", () => tip.hide(), { capture: true, passive: true });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hide(); });
