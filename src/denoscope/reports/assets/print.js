// What stands on paper instead of the stage: strips of six steps, the picture alone and under each map.

function evenSteps(count, wanted = 6) {
  const last = count - 1;
  const steps = Array.from({ length: wanted }, (_, index) => Math.round((index * last) / (wanted - 1)));
  return [...new Set(steps)];
}

function buildStrips(data, pictureOf, table) {
  const place = document.getElementById("strips");
  const steps = evenSteps(data.steps.index.length);
  const sample = pictureOf(data.steps.index[0]);
  const [rows, columns] = data.grid;
  const ratio = sample ? sample.naturalHeight / sample.naturalWidth : rows / columns;
  const choices = [
    { kind: "none", title: "Predicted picture" },
    ...data.words.map(({ label }, word) => (
      { kind: "word", word, layer: -1, title: `Attention on “${label}”` }
    )),
  ];
  if (data.arrays.guidance) choices.push({ kind: "guidance", title: "Guidance difference" });
  for (const choice of choices) {
    const range = mapRange(data, choice, data.steps.index.keys());
    const strip = document.createElement("div");
    strip.className = "strip";
    const title = document.createElement("h3");
    title.textContent = choice.title;
    if (range) title.textContent += `, ${show(range[0])} (dark) to ${show(range[1])} (bright)`;
    strip.append(title);
    for (const step of steps) strip.append(stripCell(data, choice, step, { pictureOf, range, table, ratio }));
    place.append(strip);
  }
}

function stripCell(data, choice, step, { pictureOf, range, table, ratio }) {
  const cell = document.createElement("div");
  const canvas = document.createElement("canvas");
  canvas.width = 160;
  canvas.height = Math.round(160 * ratio);
  paintPicture(canvas, pictureOf(data.steps.index[step]), true);
  const map = chosenMap(data, choice, step);
  if (map && range) {
    const layer = document.createElement("canvas");
    layer.width = canvas.width;
    layer.height = canvas.height;
    paintMap(layer, map, { low: range[0], high: range[1], table, smooth: true, alpha: 200 });
    canvas.getContext("2d").drawImage(layer, 0, 0);
  }
  cell.append(canvas, `step ${data.steps.index[step]}`);
  return cell;
}
