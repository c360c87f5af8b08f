// The page: its state, its controls, and what a change of state redraws.

const PLAY_SECONDS = 6;

class Report {
  constructor(data, pictureOf) {
    this.data = data;
    this.pictureOf = pictureOf;
    this.count = data.steps.index.length;
    this.table = colourTable(data.colours);
    this.choice = { kind: "none", word: data.first_word, layer: -1 };
    if (data.first_word !== null) this.choice.kind = "word";
    else if (data.arrays.guidance) this.choice.kind = "guidance";
    this.step = this.count - 1;
    this.timer = null;
    this.pointer = null;
    this.ranges = new Map();
    this.charts = new Charts(
      data, (colour) => this.colourOf(colour), (step, layer) => this.pick(step, layer),
    );
    this.part = (id) => document.getElementById(id);
  }

  start() {
    document.querySelectorAll("[data-word]").forEach((button) => {
      const word = Number(button.dataset.word);
      button.addEventListener("click", () => this.choose({ kind: "word", word }));
    });
    this.part("show-none").addEventListener("click", () => this.choose({ kind: "none" }));
    this.part("show-guidance")?.addEventListener("click", () => this.choose({ kind: "guidance" }));
    this.part("layer")?.addEventListener("change", (event) => {
      this.choose({ layer: Number(event.target.value) });
    });
    this.part("step").addEventListener("input", (event) => {
      this.stop();
      this.go(Number(event.target.value));
    });
    this.part("play").addEventListener("click", () => (this.timer === null ? this.play() : this.stop()));
    for (const id of ["opacity", "range", "exact"]) {
      this.part(id)?.addEventListener("input", () => this.paint());
    }
    this.part("theme").addEventListener("click", () => this.switchTheme());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.themed());
    const stage = this.part("stage");
    stage.addEventListener("pointermove", (event) => this.point(event));
    stage.addEventListener("pointerdown", (event) => this.point(event));
    stage.addEventListener("pointerleave", () => { this.pointer = null; this.readPointer(); });
    const picture = this.pictureOf(this.data.steps.index[0]);
    const [rows, columns] = this.data.grid;
    const [wide, high] = picture ? [picture.naturalWidth, picture.naturalHeight] : [columns, rows];
    stage.style.aspectRatio = `${wide} / ${high}`;
    new ResizeObserver(() => this.paint()).observe(stage);
    this.part("ramp").style.background = `linear-gradient(to right, ${this.data.colours.join(", ")})`;
    addEventListener("beforeprint", () => this.charts.fit(680));
    addEventListener("afterprint", () => this.charts.fit(null));
    buildStrips(this.data, this.pictureOf, this.table);
    this.themed();
    this.choose({});
    this.go(this.step);
  }

  // The dark or the light look that is on now, from the button or else from the system.
  isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  colourOf(colour) {
    return (this.isDark() && this.data.on_dark[colour]) || colour;
  }

  switchTheme() {
    document.documentElement.dataset.theme = this.isDark() ? "light" : "dark";
    this.themed();
  }

  themed() {
    this.part("theme").textContent = this.isDark() ? "Light" : "Dark";
    document.querySelectorAll("[data-colour]").forEach((element) => {
      element.style.setProperty("--word", this.colourOf(element.dataset.colour));
    });
    this.charts.theme();
  }

  choose(change) {
    Object.assign(this.choice, change);
    const { kind, word } = this.choice;
    document.querySelectorAll("[data-word]").forEach((button) => {
      button.setAttribute("aria-pressed", String(kind === "word" && Number(button.dataset.word) === word));
    });
    this.part("show-none").setAttribute("aria-pressed", String(kind === "none"));
    this.part("show-guidance")?.setAttribute("aria-pressed", String(kind === "guidance"));
    if (this.part("layer")) {
      this.part("layer").disabled = kind !== "word";
      this.part("layer").value = String(this.choice.layer);
    }
    this.charts.choose(kind === "word" ? word : null);
    this.paint();
    this.read();
  }

  pick(step, layer) {
    this.stop();
    if (layer !== undefined) this.choose({ kind: "word", layer });
    this.go(step);
  }

  go(step) {
    this.step = Math.min(Math.max(step, 0), this.count - 1);
    const slider = this.part("step");
    slider.value = String(this.step);
    this.paint();
    this.read();
    slider.setAttribute("aria-valuetext", this.sentence());
    // Curves are slower than the picture: many moves in one frame mark the curves once.
    if (!this.marking) {
      this.marking = requestAnimationFrame(() => { this.marking = 0; this.charts.mark(this.step); });
    }
  }

  play() {
    if (this.step === this.count - 1) this.go(0);
    this.part("play").textContent = "Pause";
    this.part("play").setAttribute("aria-label", "Pause");
    const pause = Math.min(400, Math.max(60, (PLAY_SECONDS * 1000) / this.count));
    this.timer = setInterval(() => {
      this.go(this.step + 1);
      if (this.step === this.count - 1) this.stop();
    }, pause);
  }

  stop() {
    if (this.timer === null) return;
    clearInterval(this.timer);
    this.timer = null;
    this.part("play").textContent = "Play";
    this.part("play").setAttribute("aria-label", "Play the steps");
    this.read();
  }

  // The values of the first and the last colour: over the whole run, or of this step alone.
  range() {
    const whole = this.part("range")?.value !== "step";
    const { kind, word, layer } = this.choice;
    const key = [kind, word, layer, whole ? "run" : this.step].join();
    if (!this.ranges.has(key)) {
      const steps = whole ? this.data.steps.index.keys() : [this.step];
      this.ranges.set(key, mapRange(this.data, this.choice, steps));
    }
    return this.ranges.get(key);
  }

  paint() {
    const smooth = this.part("exact").value === "smooth";
    const box = this.part("stage").getBoundingClientRect();
    const picture = this.part("picture");
    const overlay = this.part("overlay");
    const density = Math.min(devicePixelRatio || 1, 2);
    for (const [canvas, side] of [[picture, 1024], [overlay, 448]]) {
      const width = Math.round(Math.min(box.width * density, side)) || 1;
      const height = Math.round((width * box.height) / box.width) || 1;
      // Setting a size clears the canvas even when it stays the same.
      if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    }
    paintPicture(picture, this.pictureOf(this.data.steps.index[this.step]), smooth);
    const range = this.range();
    const [low, high] = range || [0, 1];
    this.map = chosenMap(this.data, this.choice, this.step);
    const alpha = Number(this.part("opacity")?.value) * 2.55;
    paintMap(overlay, this.map, { low, high, table: this.table, smooth, alpha });
    this.part("legend").classList.toggle("off", !range);
    this.part("ramp-low").textContent = show(low);
    this.part("ramp-middle").textContent = show((low + high) / 2);
    this.part("ramp-high").textContent = show(high);
    this.part("legend-title").textContent = this.mapName();
    this.readPointer();
  }

  mapName() {
    const { kind, word, layer } = this.choice;
    if (kind === "guidance") return "Guidance difference, ‖ε(prompt) − ε(no prompt)‖² at each place";
    if (kind !== "word") return "No overlay";
    if (layer === INFORMATION) return `What “${this.data.words[word].label}” adds at each place (${this.data.quantity})`;
    const where = layer < 0 ? "mean over layers" : `layer ${this.data.layers[layer]}`;
    return `Attention on “${this.data.words[word].label}”, ${where}`;
  }

  massName() {
    const { kind, layer } = this.choice;
    if (kind === "guidance") return "effort";
    return kind === "word" && layer === INFORMATION ? "nats" : "mass";
  }

  read() {
    const { steps } = this.data;
    const numbers = chosenNumbers(this.data, this.choice, this.step);
    this.part("read-step").textContent = `${steps.index[this.step]} / ${steps.index[this.count - 1]}`;
    this.part("step-label").textContent = `step ${steps.index[this.step]}`;
    for (const name of ["timestep", "logsnr", "sigma"]) {
      this.part(`read-${name}`).textContent = show(steps[name]?.[this.step]);
    }
    this.part("name-mass").textContent = this.massName();
    for (const name of ["mass", "peak"]) this.part(`read-${name}`).textContent = show(numbers[name]);
    // Maps are mostly wide: what tells them apart is behind the nines.
    const spread = numbers.spread;
    this.part("read-spread").textContent = Number.isFinite(spread) ? spread.toFixed(4) : show(spread);
    this.part("stage").setAttribute("aria-label", `Predicted picture. ${this.sentence()}`);
    // While it plays, a screen reader would never stop talking.
    if (this.timer === null) this.part("status").textContent = this.sentence();
  }

  sentence() {
    const { steps } = this.data;
    const numbers = chosenNumbers(this.data, this.choice, this.step);
    const start = `Step ${steps.index[this.step]}, log-SNR ${show(steps.logsnr?.[this.step])}`;
    if (this.choice.kind === "none") return `${start}. No overlay.`;
    if (!Number.isFinite(numbers.mass)) return `${start}. ${this.mapName()}: not observed.`;
    return `${start}. ${this.mapName()}: ${this.massName()} ${show(numbers.mass)}, peak ${show(numbers.peak)}.`;
  }

  point(event) {
    const box = this.part("stage").getBoundingClientRect();
    this.pointer = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    this.readPointer();
  }

  readPointer() {
    const inside = this.pointer && this.map && this.pointer.every((at) => at >= 0 && at < 1);
    this.part("read-pointer").textContent = inside ? show(sampleMap(this.map, ...this.pointer, false)) : "–";
  }
}

async function main() {
  const data = await readData();
  const report = new Report(data, await loadPictures(data.pictures));
  report.start();
  // The picture is there at once; the curves follow when their library is unpacked.
  await loadPlotly();
  await report.charts.draw();
  report.charts.choose(report.choice.kind === "word" ? report.choice.word : null);
  report.charts.mark(report.step);
  document.documentElement.dataset.ready = "yes";
}

main().catch((error) => {
  const failure = document.getElementById("failure");
  failure.textContent = `The page could not be drawn: ${error.message}. It needs a browser from 2023 or later.`;
  failure.hidden = false;
  console.error(error);
});
