// Reads what the page carries: the JSON document and its block of arrays.

async function inflate(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

async function readData() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const block = await inflate(data.block);
  delete data.block;
  for (const [name, { kind, shape, offset }] of Object.entries(data.arrays)) {
    const size = shape.reduce((product, length) => product * length, 1);
    const Kind = kind === "uint8" ? Uint8Array : Float32Array;
    const values = new Kind(block, offset, size);
    data.arrays[name] = { shape, values };
  }
  return data;
}

// The flat index of an element; fewer numbers than axes give the start of what lies below.
function flatIndex(shape, indices) {
  let index = 0;
  indices.forEach((at, axis) => { index = index * shape[axis] + at; });
  for (let axis = indices.length; axis < shape.length; axis += 1) index *= shape[axis];
  return index;
}

// One map by its indices: { values, width, height }, or null where the step was not observed.
function readMap(arrays, name, ...indices) {
  const { shape, values } = arrays[name];
  const [height, width] = shape.slice(-2);
  const scales = arrays[`${name}_scale`];
  const scale = scales.values[flatIndex(scales.shape, indices)];
  if (Number.isNaN(scale)) return null;
  const start = flatIndex(shape, indices);
  const map = new Float32Array(width * height);
  for (let i = 0; i < map.length; i += 1) map[i] = (values[start + i] / 255) * scale;
  return { values: map, width, height };
}

// Numbers as a person reads them: three digits, a real minus, ∞ for the ends of the noise axis.
function show(value) {
  if (value === "inf") return "+∞";
  if (value === "-inf") return "−∞";
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  let text;
  if (size === 0) text = "0";
  else if (size >= 1e5 || size < 1e-4) text = value.toExponential(2);
  else if (size >= 1000) text = String(Math.round(value));
  else text = value.toPrecision(3);
  return text.replace(/-/g, "−");
}
