// The curves: drawn by plotly, linked to the step, in the colours of the page.

const PLOT_OPTIONS = { displayModeBar: false, responsive: true, doubleClick: false, showTips: false };

async function loadPlotly() {
  const source = new TextDecoder().decode(await inflate(document.getElementById("plotly").textContent));
  const script = document.createElement("script");
  script.textContent = source;
  document.head.append(script);
  if (!window.Plotly) throw new Error("the plotting library did not load");
}

function pageColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function themeOfPlots() {
  return {
    "font.color": pageColour("--soft"),
    "hoverlabel.bgcolor": pageColour("--panel"),
    "hoverlabel.bordercolor": pageColour("--line"),
    "hoverlabel.font.color": pageColour("--ink"),
  };
}

function markerAt(x, colour) {
  return {
    type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: { color: colour, width: 1.75 },
  };
}

const WORD_PLOTS = ["mass", "spread", "rate", "held", "gradient"];

class Charts {
  // colourOf gives a palette colour as it is on the present ground. onPick(step, layer) is called when
  // somebody clicks a curve (layer undefined) or a cell of the layer map.
  constructor(data, colourOf, onPick) {
    this.data = data;
    this.colourOf = colourOf;
    this.onPick = onPick;
    this.plots = [...document.querySelectorAll("[data-plot]")];
    this.drawn = false;
    this.step = 0;
  }

  // The marker of a step: the layer map counts steps and is full of colour, the curves have the noise axis.
  marker(plot, step) {
    if (plot.dataset.plot === "layers") return markerAt(this.data.steps.index[step], "#FF7A1A");
    return markerAt(this.data.steps.position[step], pageColour("--accent"));
  }

  async draw() {
    for (const plot of this.plots) {
      // A copy: plotly writes into what it draws, and the colours of the light look are needed again.
      const { data, layout } = structuredClone(this.data.figures[plot.dataset.plot]);
      layout.hoverdistance = -1;
      layout.shapes = [this.marker(plot, this.step)];
      layout.autosize = true;
      await window.Plotly.newPlot(plot, data, layout, PLOT_OPTIONS);
      plot.on("plotly_click", (event) => {
        const point = event.points[0];
        if (plot.dataset.plot === "layers") this.onPick(point.pointIndex[1], point.pointIndex[0]);
        else this.onPick(point.customdata);
      });
    }
    this.drawn = true;
    this.theme();
  }

  theme() {
    if (!this.drawn) return;
    for (const plot of this.plots) {
      window.Plotly.relayout(plot, themeOfPlots());
      this.colourLines(plot);
    }
    this.mark(this.step);
  }

  colourLines(plot) {
    const lines = this.data.figures[plot.dataset.plot].data
      .map(({ line }, index) => [index, line?.color])
      .filter(([, colour]) => colour);
    if (lines.length === 0) return;
    const colours = lines.map(([, colour]) => this.colourOf(colour));
    const change = { "line.color": colours, "marker.color": colours };
    if (plot.dataset.plot === "tokens") change.fillcolor = colours.map((colour) => `${colour}99`);
    window.Plotly.restyle(plot, change, lines.map(([index]) => index));
  }

  mark(step) {
    this.step = step;
    if (!this.drawn) return;
    for (const plot of this.plots) window.Plotly.relayout(plot, { shapes: [this.marker(plot, step)] });
  }

  // Draw one word's curves strong, and show its layers; null draws all alike.
  choose(word) {
    if (!this.drawn) return;
    const count = this.data.words.length;
    // Line 0 is the unseen one that heads the tool tip.
    const lines = this.data.words.map((_, index) => index + 1);
    for (const plot of this.plots) {
      if (WORD_PLOTS.includes(plot.dataset.plot)) {
        const strong = lines.map((_, index) => word === null || index === word);
        window.Plotly.restyle(plot, {
          "line.width": strong.map((is) => (is && word !== null ? 3.5 : 1.5)),
          opacity: strong.map((is) => (is || count === 1 ? 1 : 0.75)),
        }, lines);
      }
      if (plot.dataset.plot === "layers" && word !== null) this.showLayers(plot, word);
    }
  }

  showLayers(plot, word) {
    const { shape, values } = this.data.arrays.word_stats;
    const rows = this.data.layers.map((_, layer) => this.data.steps.index.map((__, step) => {
      const value = values[flatIndex(shape, [word, layer + 1, step])];
      return Number.isNaN(value) ? null : value;
    }));
    window.Plotly.restyle(plot, { z: [rows] }, [0]);
    document.getElementById("layers-word").textContent = `“${this.data.words[word].label}”`;
  }

  // Paper has its own width; afterwards plots follow the window again.
  fit(width) {
    if (!this.drawn) return;
    for (const plot of this.plots) {
      window.Plotly.relayout(plot, width ? { autosize: false, width } : { autosize: true, width: null });
    }
  }
}
