// The stage: the picture of a step, and a map over it.

// 256 colours between the anchors, as [r, g, b, r, g, b, …].
function colourTable(anchors) {
  const table = new Uint8ClampedArray(256 * 3);
  const parse = (hex, channel) => parseInt(hex.slice(1 + 2 * channel, 3 + 2 * channel), 16);
  for (let level = 0; level < 256; level += 1) {
    const at = (level / 255) * (anchors.length - 1);
    const low = Math.min(Math.floor(at), anchors.length - 2);
    for (let channel = 0; channel < 3; channel += 1) {
      const from = parse(anchors[low], channel);
      const to = parse(anchors[low + 1], channel);
      table[level * 3 + channel] = Math.round(from + (to - from) * (at - low));
    }
  }
  return table;
}

// The value at a place (0..1 across the picture); smooth is linear between the centres of the map's cells.
function sampleMap(map, u, v, smooth) {
  const { values, width, height } = map;
  if (!smooth) {
    const x = Math.min(width - 1, Math.floor(u * width));
    return values[Math.min(height - 1, Math.floor(v * height)) * width + x];
  }
  const x = Math.min(Math.max(u * width - 0.5, 0), width - 1);
  const y = Math.min(Math.max(v * height - 0.5, 0), height - 1);
  const left = Math.floor(x);
  const top = Math.floor(y);
  const right = Math.min(left + 1, width - 1);
  const bottom = Math.min(top + 1, height - 1);
  const above = values[top * width + left] * (1 - x + left) + values[top * width + right] * (x - left);
  const below = values[bottom * width + left] * (1 - x + left) + values[bottom * width + right] * (x - left);
  return above * (1 - y + top) + below * (y - top);
}

// Paint a map into a canvas; low and high are the values of the first and the last colour. Low values are let
// through more than high ones: the picture stays to be seen where the map has nothing to say.
function paintMap(canvas, map, { low, high, table, smooth, alpha }) {
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (!map) return;
  const image = context.createImageData(canvas.width, canvas.height);
  const span = high > low ? high - low : 1;
  let at = 0;
  for (let row = 0; row < canvas.height; row += 1) {
    for (let column = 0; column < canvas.width; column += 1) {
      const value = sampleMap(map, (column + 0.5) / canvas.width, (row + 0.5) / canvas.height, smooth);
      const level = Math.round(Math.min(Math.max((value - low) / span, 0), 1) * 255);
      image.data[at] = table[level * 3];
      image.data[at + 1] = table[level * 3 + 1];
      image.data[at + 2] = table[level * 3 + 2];
      image.data[at + 3] = alpha * (0.2 + 0.8 * (level / 255));
      at += 4;
    }
  }
  context.putImageData(image, 0, 0);
}

function paintPicture(canvas, picture, smooth) {
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (!picture) return;
  context.imageSmoothingEnabled = smooth;
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
}

// All pictures of the steps, decoded once; without any, the final one stands in.
async function loadPictures({ sources, steps }) {
  const final = document.getElementById("final");
  const shown = sources.length ? sources : [final?.src].filter(Boolean);
  const images = await Promise.all(shown.map(async (source) => {
    const image = new Image();
    image.src = source;
    await image.decode();
    return image;
  }));
  return (step) => {
    let best = 0;
    steps.forEach((at, index) => { if (Math.abs(at - step) < Math.abs(steps[best] - step)) best = index; });
    return images[best] || null;
  };
}

// In the place of a layer: what the word adds to the prediction, not where anybody looks.
const INFORMATION = -2;

// The map of a step under a choice { kind, word, layer }, or null.
function chosenMap(data, choice, step) {
  if (choice.kind === "guidance") return readMap(data.arrays, "guidance", step);
  if (choice.kind !== "word") return null;
  if (choice.layer === INFORMATION) return readMap(data.arrays, "information", choice.word, step);
  if (choice.layer < 0) return readMap(data.arrays, "words", choice.word, step);
  return readMap(data.arrays, "layers", choice.word, choice.layer, step);
}

// The numbers of a step under a choice: from the full maps, so exact even where the maps here are coarser.
function chosenNumbers(data, choice, step) {
  if (choice.kind === "guidance") {
    const [mass, peak] = data.arrays.guidance_stats.values.slice(step * 2, step * 2 + 2);
    return { mass, peak, spread: null };
  }
  if (choice.kind !== "word") return { mass: null, peak: null, spread: null };
  const informed = choice.layer === INFORMATION;
  const { shape, values } = informed ? data.arrays.information_stats : data.arrays.word_stats;
  const start = flatIndex(shape, informed ? [choice.word, step] : [choice.word, choice.layer + 1, step]);
  return { mass: values[start], peak: values[start + 1], spread: values[start + 2] };
}

// The smallest and the largest value over some steps' maps.
function mapRange(data, choice, steps) {
  let low = Infinity;
  let high = -Infinity;
  for (const step of steps) {
    const map = chosenMap(data, choice, step);
    if (!map) continue;
    for (const value of map.values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : null;
}
