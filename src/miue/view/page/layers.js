// The patches of a slide, and their values as colors. Every frame is painted anew from the numbers themselves, so
// that each square is where its patch is at any zoom; a frame of 100,000 patches takes some milliseconds.
export class Patches {
  constructor(buffer, count, columns, side) {
    this.count = count;
    this.side = side;
    this.x = new Int32Array(buffer, 0, count);
    this.y = new Int32Array(buffer, 4 * count, count);
    this.instance = new Int32Array(buffer, 8 * count, count);
    this.columns = new Map(columns.map((one, k) => [one.name, new Float32Array(buffer, 4 * count * (3 + k), count)]));
    this.first = new Map(); // of each cell as wide as a patch, the last patch that begins in it
    this.before = new Int32Array(count); // the patch that began there before, or -1
    for (let i = 0; i < count; i++) {
      const cell = this.cell(Math.floor(this.x[i] / side), Math.floor(this.y[i] / side));
      this.before[i] = this.first.get(cell) ?? -1;
      this.first.set(cell, i);
    }
  }

  cell(column, row) {
    return column * 4194304 + row;
  }

  at(x, y, values) { // the patch at a place, of several that with the highest value; -1 where there is none
    let found = -1;
    const column = Math.floor(x / this.side), row = Math.floor(y / this.side);
    for (const [c, r] of [[column, row], [column - 1, row], [column, row - 1], [column - 1, row - 1]]) {
      for (let i = this.first.get(this.cell(c, r)) ?? -1; i >= 0; i = this.before[i]) {
        const inside = x >= this.x[i] && x < this.x[i] + this.side && y >= this.y[i] && y < this.y[i] + this.side;
        if (inside && (found < 0 || (values && values[i] > values[found]))) found = i;
      }
    }
    return found;
  }
}

export function share(value, [low, high]) { // of a range, from 0 to 1
  return Math.min(1, Math.max(0, (value - low) / (high - low)));
}

export function colorTable(map) { // the colors of a map as pixels, low values more transparent
  return Uint32Array.from(map, (color, k) => {
    const rgb = parseInt(color.slice(1), 16);
    const alpha = Math.round(255 * (0.12 + 0.88 * (k / (map.length - 1)) ** 0.6));
    return ((alpha << 24) | ((rgb & 0xff) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
  });
}

export class Layer { // one number of each patch, with its colors
  constructor(about, map, patches) {
    this.about = about;
    this.patches = patches;
    this.values = patches.columns.get(about.column);
    this.table = colorTable(map);
    const last = map.length - 1;
    this.color = Uint8Array.from(this.values, (value) => Math.round(last * share(value, about.range)));
    this.order = Uint32Array.from(this.values, (_, i) => i).sort((a, b) => this.values[a] - this.values[b]);
    this.threshold = -Infinity;
  }

  highest(rank) { // the patch with this place among the highest, from 0
    return this.order[this.order.length - 1 - rank];
  }
}

export function paint(context, layer, view) { // view: x and y of the corner, pixels for each of level 0
  const { width, height } = context.canvas;
  if (!width || !height) return;
  const image = context.createImageData(width, height);
  if (layer) {
    const pixels = new Uint32Array(image.data.buffer);
    const { x, y, side } = layer.patches;
    for (const i of layer.order) {
      if (!(layer.values[i] >= layer.threshold)) continue;
      let left = Math.round((x[i] - view.x) * view.scale), right = Math.round((x[i] + side - view.x) * view.scale);
      if (right <= 0 && left < 0 || left >= width) continue;
      let top = Math.round((y[i] - view.y) * view.scale), bottom = Math.round((y[i] + side - view.y) * view.scale);
      if (bottom <= 0 && top < 0 || top >= height) continue;
      left = Math.max(0, left); top = Math.max(0, top);
      right = Math.min(width, Math.max(right, left + 1)); bottom = Math.min(height, Math.max(bottom, top + 1));
      const color = layer.table[layer.color[i]];
      for (let row = top; row < bottom; row++) pixels.fill(color, row * width + left, row * width + right);
    }
  }
  context.putImageData(image, 0, 0);
}

const OUTLINED = 26; // pixels of a patch from which its border is drawn

export function mark(context, patches, view, { flagged, chosen, hovered, colors }) {
  const { width, height } = context.canvas;
  context.clearRect(0, 0, width, height);
  if (!patches) return;
  const size = patches.side * view.scale;
  const box = (i, grow = 0) => [
    Math.round((patches.x[i] - view.x) * view.scale) + 0.5 - grow, Math.round((patches.y[i] - view.y) * view.scale) + 0.5 - grow,
    Math.max(3, Math.round(size) - 1) + 2 * grow, Math.max(3, Math.round(size) - 1) + 2 * grow,
  ];
  const isSeen = (i) => {
    const left = (patches.x[i] - view.x) * view.scale, top = (patches.y[i] - view.y) * view.scale;
    return left < width && top < height && left + size > 0 && top + size > 0;
  };
  const flags = flagged ? patches.columns.get("flagged") : null;
  for (let i = 0; (size >= OUTLINED || flags) && i < patches.count; i++) {
    const isFlagged = flags && flags[i];
    if ((!isFlagged && size < OUTLINED) || !isSeen(i)) continue;
    context.strokeStyle = isFlagged ? colors.flag : colors.border;
    context.lineWidth = isFlagged ? 2 : 1;
    context.strokeRect(...box(i));
  }
  for (const [i, weight] of [[hovered, 2], [chosen, 3]]) {
    if (i < 0) continue;
    context.lineWidth = weight + 2;
    context.strokeStyle = "#fff";
    context.strokeRect(...box(i, 1));
    context.lineWidth = weight;
    context.strokeStyle = colors.chosen;
    context.strokeRect(...box(i, 1));
  }
}
