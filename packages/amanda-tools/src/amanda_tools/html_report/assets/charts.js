// What all charts share: Vega draws them from specifications, in the page's colours.

const COLORS = [
  "ink", "muted", "rule", "accent", "forward", "backward", "between", "module", "match",
];

/** The page's colours by name, as light or dark as it is now. */
function pageColors() {
  const probe = element("span", { hidden: true });
  document.body.append(probe);
  const { theme } = document.documentElement.dataset;
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const found = { dark: (theme || system) === "dark" };
  for (const name of COLORS) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

class Chart {
  /** A chart of a specification; `told` gives the title and lines of a tip. */
  constructor(name, renderer, properties, { told, resized } = {}) {
    const drawing = element("div");
    this.element = element("div", properties, drawing);
    this.ready = vegaEmbed(drawing, SPECIFICATIONS[name], {
      mode: "vega",
      ast: true, // which needs no script that is made of text
      actions: false,
      defaultStyle: false,
      renderer,
      tooltip: (handler, event, item, value) => {
        if (told && value && !event.buttons) tip.show(...told(value), event.clientX, event.clientY);
        else tip.hide();
      },
    }).then(({ view }) => {
      this.view = view;
    });
    const paint = () => this.show({ colors: pageColors() });
    paint();
    document.addEventListener("themed", paint);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
    new ResizeObserver(() => {
      this.show({ width: this.width });
      if (resized) resized();
    }).observe(this.element);
  }

  get width() {
    return this.element.clientWidth;
  }

  /** Draws it with other signals, and other rows of its data. */
  async show(signals, rows = {}) {
    await this.ready;
    for (const [name, value] of Object.entries(signals)) this.view.signal(name, value);
    for (const [name, values] of Object.entries(rows)) this.view.data(name, values);
    await this.view.resize().runAsync();
  }

  /** Calls back whenever a signal has another value. */
  async on(signal, called) {
    await this.ready;
    this.view.addSignalListener(signal, (_, value) => called(value));
  }
}
