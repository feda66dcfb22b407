// The slide with deep zoom, the layers over it, and the patch under the pointer.
import { byId, make, short } from "./elements.js";
import { Layer, Patches, mark, paint, share } from "./layers.js";

const AROUND = 7; // patches across the view of one patch
const BAR = 150; // longest scale bar in pixels

export class SlideView {
  constructor(run, onPatch) {
    this.run = run;
    this.onPatch = onPatch;
    this.picture = this.patches = this.layer = null;
    this.chosen = this.hovered = -1;
    this.rank = -1;
    this.frames = [];
    this.paintCanvas = byId("paint").getContext("2d", { willReadFrequently: true });
    this.markCanvas = byId("marks").getContext("2d", { willReadFrequently: true });
    this.viewer = OpenSeadragon({
      element: byId("slide"), drawer: "canvas", showNavigationControl: false, showNavigator: true,
      navigatorPosition: "BOTTOM_RIGHT", navigatorSizeRatio: 0.18, navigatorAutoFade: false, animationTime: 0.5, springStiffness: 8,
      maxZoomPixelRatio: 4, minZoomImageRatio: 0.6, visibilityRatio: 0.3, gestureSettingsMouse: { clickToZoom: false },
      gestureSettingsTouch: { clickToZoom: false }, gestureSettingsPen: { clickToZoom: false }, imageLoaderLimit: 4,
      maxImageCacheCount: 120, zoomPerScroll: 1.3, crossOriginPolicy: false,
    });
    this.viewer.addHandler("canvas-key", (event) => { event.preventDefaultAction = true; }); // keys are ours
    for (const event of ["update-viewport", "resize", "open"]) this.viewer.addHandler(event, () => this.draw());
    this.viewer.addHandler("canvas-click", (event) => {
      if (event.quick) this.choose(this.patchAt(event.position));
    });
    byId("stage").addEventListener("pointermove", (event) => this.hover(event));
    byId("stage").addEventListener("pointerleave", () => this.hover(null));
    byId("in").onclick = () => this.zoom(1.6);
    byId("out").onclick = () => this.zoom(1 / 1.6);
    byId("home").onclick = () => this.viewer.viewport.goHome();
    new ResizeObserver(() => this.draw()).observe(byId("stage"));
  }

  clear() {
    this.picture = this.patches = this.layer = null;
    this.chosen = this.hovered = this.rank = -1;
    this.viewer.close();
    this.draw();
  }

  open(picture, base) { // a slide, or the map of patches alone
    this.clear();
    this.picture = picture;
    byId("problem").hidden = !picture.problem;
    byId("problem").textContent = picture.problem;
    byId("empty").hidden = picture.width != null;
    byId("empty").textContent = "There is no slide, and no patch has a position.";
    if (picture.width == null) return;
    const plain = { width: picture.width, height: picture.height, tileSize: 512, minLevel: 0, maxLevel: 0 };
    const tiled = {
      width: picture.width, height: picture.height, tileSize: picture.tileSize, tileOverlap: picture.overlap,
      minLevel: picture.minLevel, maxLevel: picture.maxLevel,
      getTileUrl: (level, column, row) => `${base}/tile/${level}/${column}/${row}`,
    };
    this.viewer.open({ tileSource: picture.isSlide ? tiled : { ...plain, getTileUrl: () => "", tileExists: () => false } });
  }

  show(buffer) { // the values of the patches
    if (buffer) this.patches = new Patches(buffer, this.picture.count, this.run.columns, this.picture.patchSize);
  }

  setLayer(about) {
    this.layer = about && this.patches ? new Layer(about, this.run.maps[about.map], this.patches) : null;
    this.rank = -1;
    this.draw();
  }

  setThreshold(value) {
    this.layer?.from(value);
    this.draw();
  }

  get isOpen() {
    return this.picture?.width != null && this.viewer.world.getItemCount() > 0;
  }

  get view() { // where the canvas is on the slide
    const bounds = this.viewer.viewport.getBounds(true);
    const { width } = this.picture;
    const ratio = window.devicePixelRatio || 1;
    return { x: bounds.x * width, y: bounds.y * width, scale: (byId("stage").clientWidth * ratio) / (bounds.width * width), ratio };
  }

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      const begin = performance.now();
      this.drawNow();
      this.frames.push([begin, performance.now() - begin]);
      if (this.frames.length > 600) this.frames.shift();
    });
  }

  drawNow() {
    const stage = byId("stage"), ratio = window.devicePixelRatio || 1;
    const width = Math.round(stage.clientWidth * ratio), height = Math.round(stage.clientHeight * ratio);
    for (const { canvas } of [this.paintCanvas, this.markCanvas]) {
      if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    }
    const view = this.isOpen ? this.view : { x: 0, y: 0, scale: 1, ratio };
    const near = this.isOpen && this.patches?.within(view.x, view.y, view.x + width / view.scale, view.y + height / view.scale);
    paint(this.paintCanvas, this.isOpen ? this.layer : null, view, near);
    const style = getComputedStyle(document.documentElement);
    const colors = { flag: style.getPropertyValue("--flag"), chosen: style.getPropertyValue("--chosen"), border: "rgba(20, 30, 45, .35)" };
    mark(this.markCanvas, this.isOpen ? this.patches : null, view, near, { colors, flagged: this.picture?.isFlagged, chosen: this.chosen, hovered: this.hovered });
    this.drawScale(view);
  }

  drawScale({ scale, ratio }) {
    const width = this.isOpen ? this.picture.micronsPerPixel : null;
    byId("scale").hidden = width == null;
    if (width == null) return;
    const unit = width / (scale / ratio), power = 10 ** Math.floor(Math.log10(BAR * unit)); // µm for each pixel of CSS
    const length = [5, 2, 1].map((step) => step * power).find((one) => one <= BAR * unit);
    byId("scale").style.width = `${length / unit}px`;
    byId("scale").firstElementChild.textContent = length >= 1000 ? `${short(length / 1000)} mm` : `${short(length)} µm`;
  }

  patchAt(position) { // of a point in the stage
    if (!this.isOpen || !this.patches) return -1;
    const { x, y, scale, ratio } = this.view;
    return this.patches.at(x + (position.x * ratio) / scale, y + (position.y * ratio) / scale, this.layer?.values);
  }

  hover(event) {
    const stage = byId("stage").getBoundingClientRect();
    const isOverSlide = event && event.target.closest(".openseadragon-canvas") && !event.target.closest(".navigator");
    const point = event && { x: event.clientX - stage.left, y: event.clientY - stage.top };
    const found = isOverSlide && event.buttons === 0 ? this.patchAt(point) : -1;
    const tip = byId("tip");
    if (found !== this.hovered) {
      this.hovered = found;
      tip.replaceChildren(...(found < 0 ? [] : [this.valuesOf(found)]));
      this.tick(found);
      this.draw();
    }
    tip.hidden = found < 0;
    if (found >= 0) {
      tip.style.left = `${Math.min(point.x + 18, stage.width - tip.offsetWidth - 8)}px`;
      tip.style.top = `${Math.max(8, Math.min(point.y + 18, stage.height - tip.offsetHeight - 8))}px`;
    }
  }

  tick(patch) { // where a patch is on the legend
    byId("tick").hidden = patch < 0 || !this.layer;
    if (patch >= 0 && this.layer) byId("tick").style.left = `${100 * share(this.layer.values[patch], this.layer.about.range)}%`;
  }

  valuesOf(patch) { // a table of all that is known of a patch
    const rows = this.run.columns.filter((one) => one.name !== "flagged" || this.picture.isFlagged).map((one) => {
      const value = this.patches.columns.get(one.name)[patch];
      const text = one.name === "flagged" ? (value ? "yes" : "no") : short(value);
      const isShown = one.name === this.layer?.about.column;
      return make("tr", { class: isShown ? "shown" : null }, make("th", { scope: "row", title: one.text }, one.title), make("td", {}, text));
    });
    const caption = `patch ${this.patches.instance[patch]} at ${this.patches.x[patch]}, ${this.patches.y[patch]}`;
    return make("table", {}, make("caption", {}, caption), make("tbody", {}, ...rows));
  }

  choose(patch) {
    this.chosen = patch;
    this.tick(patch);
    this.onPatch(patch);
    this.draw();
  }

  goTo(patch) { // show a patch with its neighbors, and choose it
    const { x, y, side } = this.patches, width = this.picture.width;
    const around = ((AROUND - 1) / 2) * side;
    const rect = new OpenSeadragon.Rect((x[patch] - around) / width, (y[patch] - around) / width, (AROUND * side) / width, (AROUND * side) / width);
    this.viewer.viewport.fitBounds(rect);
    this.choose(patch);
  }

  step(by) { // to the next patch by the value of the layer, the highest first
    if (!this.layer) return;
    this.rank = Math.min(this.patches.count - 1, Math.max(0, this.rank + by));
    this.goTo(this.layer.highest(this.rank));
  }

  zoom(factor) {
    if (!this.isOpen) return;
    this.viewer.viewport.zoomBy(factor).applyConstraints();
  }

  pan(x, y) { // by shares of the view
    if (!this.isOpen) return;
    const bounds = this.viewer.viewport.getBounds();
    this.viewer.viewport.panBy(new OpenSeadragon.Point(x * bounds.width, y * bounds.height)).applyConstraints();
  }
}
