// The patches of a slide, and their values as colors. Far out a layer is one picture, of some pixels for each patch,
// that is drawn larger or smaller; near by the patches in view are drawn themselves, each exactly where it is.
const MOST_DRAWN = 3000; // patches that are drawn one by one
const LONGEST = 3072; // pixels of the picture of a layer
const FINEST = 8; // pixels of a patch in that picture

export class Patches {
  constructor(buffer, count, columns, side) {
    this.count = count;
    this.side = side;
    this.x = new Int32Array(buffer, 0, count);
    this.y = new Int32Array(buffer, 4 * count, count);
    this.instance = new Int32Array(buffer, 8 * count, count);
    this.columns = new Map(columns.map((one, k) => [one.name, new Float32Array(buffer, 4 * count * (3 + k), count)]));
    this.left = this.top = Infinity;
    this.right = this.bottom = -Infinity;
    for (let i = 0; i < count; i++) {
      this.left = Math.min(this.left, this.x[i]); this.right = Math.max(this.right, this.x[i] + side);
      this.top = Math.min(this.top, this.y[i]); this.bottom = Math.max(this.bottom, this.y[i] + side);
    }
    const row = Int32Array.from(this.y, (y) => Math.floor((y - this.top) / side)); // a row is as high as a patch
    const place = Float64Array.from(this.x, (x, i) => row[i] * 2 ** 32 + x);
    this.sorted = Uint32Array.from(this.x, (_, i) => i).sort((i, j) => place[i] - place[j]);
    this.starts = new Uint32Array(Math.floor((this.bottom - this.top) / side) + 2); // of rows in the order
    for (let i = 0; i < count; i++) this.starts[row[i] + 1]++;
    for (let r = 1; r < this.starts.length; r++) this.starts[r] += this.starts[r - 1];
    const flags = this.columns.get("flagged");
    this.flagged = this.sorted.filter((i) => flags[i]);
  }

  within(left, top, right, bottom) { // the patches that reach into a rectangle, null where these are too many
    const found = [], rows = this.starts.length - 1;
    const first = Math.max(0, Math.floor((top - this.top) / this.side) - 1), last = Math.min(rows - 1, Math.floor((bottom - this.top) / this.side));
    for (let r = first; r <= last; r++) {
      let low = this.starts[r], end = this.starts[r + 1];
      for (let high = end; low < high;) {
        const middle = (low + high) >> 1;
        if (this.x[this.sorted[middle]] + this.side <= left) low = middle + 1;
        else high = middle;
      }
      for (; low < end && this.x[this.sorted[low]] < right; low++) {
        const i = this.sorted[low];
        if (this.y[i] + this.side > top && this.y[i] < bottom) found.push(i);
      }
      if (found.length > MOST_DRAWN) return null;
    }
    return found;
  }

  at(x, y, values) { // the patch at a place, of several that with the highest value; -1 where there is none
    const found = this.within(x, y, x + 1e-6, y + 1e-6) ?? [];
    return found.reduce((best, i) => (best < 0 || (values && values[i] > values[best]) ? i : best), -1);
  }
}

export function share(value, [low, high]) { // of a range, from 0 to 1
  return Math.min(1, Math.max(0, (value - low) / (high - low)));
}

const opacity = (share) => 0.12 + 0.88 * share ** 0.6; // so that tissue is seen where values are low

export function colorTable(map) { // the colors of a map as pixels
  return Uint32Array.from(map, (color, k) => {
    const rgb = parseInt(color.slice(1), 16), alpha = Math.round(255 * opacity(k / (map.length - 1)));
    return ((alpha << 24) | ((rgb & 0xff) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
  });
}

function colorStyles(map) { // the same as a canvas takes them
  return map.map((color, k) => color + Math.round(255 * opacity(k / (map.length - 1))).toString(16).padStart(2, "0"));
}

export class Layer { // one number of each patch, with its colors
  constructor(about, map, patches) {
    this.about = about;
    this.patches = patches;
    this.values = patches.columns.get(about.column);
    this.table = colorTable(map);
    this.styles = colorStyles(map);
    const last = map.length - 1;
    this.color = Uint8Array.from(this.values, (value) => Math.round(last * share(value, about.range)));
    this.order = Uint32Array.from(this.values, (_, i) => i).sort((a, b) => this.values[a] - this.values[b]);
    this.rank = new Uint32Array(this.order.length);
    this.order.forEach((i, rank) => { this.rank[i] = rank; });
    this.threshold = -Infinity;
    this.picture = null;
  }

  from(threshold) { // leave out the patches below
    this.threshold = threshold;
    this.picture = null;
  }

  highest(rank) { // the patch with this place among the highest, from 0
    return this.order[this.order.length - 1 - rank];
  }

  draw() { // all patches as one picture
    const { x, y, side, left, top, right, bottom } = this.patches;
    const across = Math.max(right - left, bottom - top) / side;
    const fine = Math.max(1, Math.min(FINEST, Math.floor(LONGEST / across))), scale = Math.min(fine, LONGEST / across) / side;
    const canvas = new OffscreenCanvas(Math.ceil((right - left) * scale), Math.ceil((bottom - top) * scale));
    const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
    const pixels = new Uint32Array(image.data.buffer);
    for (const i of this.order) {
      if (!(this.values[i] >= this.threshold)) continue;
      const first = Math.round((x[i] - left) * scale), row = Math.round((y[i] - top) * scale);
      const end = Math.min(canvas.width, Math.max(first + 1, Math.round((x[i] + side - left) * scale)));
      const below = Math.min(canvas.height, Math.max(row + 1, Math.round((y[i] + side - top) * scale)));
      const color = this.table[this.color[i]];
      for (let r = row; r < below; r++) for (let place = r * canvas.width + first; place < r * canvas.width + end; place++) pixels[place] = color;
    }
    context.putImageData(image, 0, 0);
    this.picture = { canvas, scale };
  }
}

export function paint(context, layer, view, near) { // view: x and y of the corner, pixels for each of level 0
  const { width, height } = context.canvas;
  context.clearRect(0, 0, width, height);
  if (!layer) return;
  if (near) {
    const { x, y, side } = layer.patches;
    for (const i of near.sort((i, j) => layer.rank[i] - layer.rank[j])) {
      if (!(layer.values[i] >= layer.threshold)) continue;
      const left = Math.round((x[i] - view.x) * view.scale), top = Math.round((y[i] - view.y) * view.scale);
      context.fillStyle = layer.styles[layer.color[i]];
      context.fillRect(left, top, Math.round((x[i] + side - view.x) * view.scale) - left, Math.round((y[i] + side - view.y) * view.scale) - top);
    }
    return;
  }
  if (!layer.picture) layer.draw();
  const { canvas, scale } = layer.picture, { left, top } = layer.patches;
  context.imageSmoothingEnabled = view.scale < scale;
  context.drawImage(canvas, (left - view.x) * view.scale, (top - view.y) * view.scale, (canvas.width / scale) * view.scale, (canvas.height / scale) * view.scale);
}

const OUTLINED = 26; // pixels of a patch from which its border is drawn

export function mark(context, patches, view, near, { flagged, chosen, hovered, colors }) {
  const { width, height } = context.canvas;
  context.clearRect(0, 0, width, height);
  if (!patches) return;
  const size = patches.side * view.scale;
  const outline = (i, color, weight, grow = 0) => {
    const length = Math.max(3, Math.round(size) - 1) + 2 * grow;
    context.strokeStyle = color;
    context.lineWidth = weight;
    context.strokeRect(Math.round((patches.x[i] - view.x) * view.scale) + 0.5 - grow, Math.round((patches.y[i] - view.y) * view.scale) + 0.5 - grow, length, length);
  };
  if (near && size >= OUTLINED) near.forEach((i) => outline(i, colors.border, 1));
  if (flagged) (near ? near.filter((i) => patches.columns.get("flagged")[i]) : patches.flagged).forEach((i) => outline(i, colors.flag, 2));
  for (const [i, weight] of [[hovered, 2], [chosen, 3]]) {
    if (i < 0) continue;
    outline(i, "#fff", weight + 2, 1);
    outline(i, colors.chosen, weight, 1);
  }
}
