// The page: what is open, verdicts on their way to the file, keys.
import { BagPanel } from "./bag.js";
import { CaseList } from "./cases.js";
import { ask, askJson, byId, make, short } from "./elements.js";
import { SlideView } from "./slide.js";

const SECONDS = 10; // between looks for the verdicts of others
const FIRST_LAYERS = ["error_probability", "score_error_probability", "mutual_information", "entropy"];

const run = await askJson("run.json");
const verdicts = new Map(Object.entries(await askJson("verdicts.json")));
const waiting = new Map(); // verdicts that could not be written, by bag
const done = []; // what undo takes back: [case, verdict before]
let opened = 0; // counts the bags that were opened, so that an answer that comes late is dropped
let base = "";

const view = new SlideView(run, (patch) => panel.drawPatch(patch < 0 ? null : view.valuesOf(patch)));
const panel = new BagPanel(run, verdicts, { say, keepNote, undo, canUndo: () => done.length > 0 });
const list = new CaseList(run, verdicts, (one) => { location.hash = `bag=${encodeURIComponent(one.name)}`; });

document.title = `${run.title} · miue view`;
byId("title").textContent = run.title;
byId("person").textContent = `${run.person} → ${run.file.split("/").pop()}`;
byId("person").title = run.file;
if (run.warning) complain(run.warning, "note");

function complain(text, kind = "error", again = null) {
  byId("alert").hidden = !text;
  byId("alert").className = kind;
  byId("alert").replaceChildren(make("span", {}, text), ...(again ? [make("button", { type: "button", onclick: again }, "Try again")] : []),
    make("button", { type: "button", "aria-label": "Close", onclick: () => complain("") }, "×"));
}

async function open(one) {
  const mine = ++opened;
  list.select(one);
  view.clear();
  byId("stage").dataset.ready = "";
  try {
    const bag = await askJson(`bags/${one.bag}`);
    if (mine !== opened) return;
    panel.show(one, bag);
    drawPictures(one, bag);
    await openPicture(one, bag, 0);
  } catch (error) {
    if (mine === opened) complain(error.message);
  }
}

function drawPictures(one, bag) { // of a bag of several slides
  byId("pictures").hidden = bag.pictures.length < 2;
  byId("pictures").replaceChildren(...bag.pictures.map((picture, number) =>
    make("button", { type: "button", onclick: () => openPicture(one, bag, number) }, picture.name)));
}

async function openPicture(one, bag, number) {
  const mine = opened, picture = bag.pictures[number];
  base = `bags/${one.bag}/${number}`;
  [...byId("pictures").children].forEach((button, k) => button.setAttribute("aria-pressed", String(k === number)));
  view.open(picture, base);
  if (picture.count) {
    const values = await (await ask(`${base}/values`)).arrayBuffer();
    if (mine !== opened || view.picture !== picture) return;
    view.show(values);
  }
  setLayer();
  byId("stage").dataset.ready = "yes";
}

// layers
const layers = run.layers;
byId("tools").hidden = !layers.length;
byId("layer").replaceChildren(...layers.map((one, k) => make("option", { value: k }, one.title)), make("option", { value: -1 }, "none"));
byId("layer").value = Math.max(0, layers.findIndex((one) => one.column === FIRST_LAYERS.find((name) => layers.some((other) => other.column === name))));
byId("layer").addEventListener("input", setLayer);
byId("threshold").addEventListener("input", setThreshold);
byId("opacity").addEventListener("input", setOpacity);
byId("next-patch").onclick = () => view.step(1);

function setLayer() {
  const about = layers[byId("layer").value];
  view.setLayer(about);
  panel.drawTop(view, base);
  if (view.chosen >= 0) panel.drawPatch(view.valuesOf(view.chosen));
  byId("legend").hidden = !about;
  if (about) {
    const context = byId("legend").querySelector("canvas").getContext("2d");
    run.maps[about.map].forEach((color, k) => { context.fillStyle = color; context.fillRect(k, 0, 1, 1); });
    byId("low").textContent = short(about.range[0], 3);
    byId("high").textContent = short(about.range[1], 3);
    byId("unit").textContent = about.unit;
  }
  byId("threshold").value = 0;
  setThreshold();
}

function setThreshold() {
  const about = layers[byId("layer").value], share = byId("threshold").value / 1000;
  if (!about) return;
  const value = about.range[0] + share * (about.range[1] - about.range[0]);
  byId("threshold-value").textContent = short(value, 3);
  view.setThreshold(share ? value : -Infinity);
}

function setOpacity() {
  byId("paint").style.opacity = byId("opacity").value / 100;
}
setOpacity();

// verdicts: kept here until the file has them
async function say(label, one = list.open, note = panel.note, isUndo = false) {
  if (!one) return;
  if (!isUndo) done.push([one, verdicts.get(one.name)]);
  const waits = { label, note, person: run.person, time: new Date().toISOString(), waits: true };
  verdicts.set(one.name, waits);
  waiting.set(one.name, { one, label, note });
  redraw();
  await write(one.name);
}

function keepNote(one, note) { // that was written after the verdict; a click that left the note comes first
  setTimeout(() => {
    const said = verdicts.get(one.name);
    if (said?.label && said.note !== note.trim().split(/\s+/).join(" ")) say(said.label, one, note);
  }, 300);
}

async function write(name) {
  const { one, label, note } = waiting.get(name);
  try {
    const said = await askJson("verdicts", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ bag: one.bag, label, note }),
    });
    if (waiting.get(name)?.label === label) waiting.delete(name);
    if (!waiting.has(name)) verdicts.set(name, said);
    if (!waiting.size && byId("alert").className === "error") complain("");
  } catch (error) {
    complain(`Not written, and kept on this page: ${error.message}`, "error", () => [...waiting.keys()].forEach(write));
  }
  redraw();
}

function undo() {
  if (!done.length) return;
  const [one, before] = done.pop();
  if (one !== list.open) list.onOpen(one);
  say(before?.label ?? "", one, before?.note ?? "", true);
}

function redraw() {
  list.draw();
  panel.drawVerdict();
}

async function look() { // for verdicts of others
  if (document.hidden) return;
  try {
    for (const [name, said] of Object.entries(await askJson("verdicts.json"))) {
      if (!waiting.has(name) && said.time !== verdicts.get(name)?.time) {
        verdicts.set(name, said);
        redraw();
      }
    }
  } catch (error) {
    complain(error.message);
  }
}
setInterval(look, SECONDS * 1000);
addEventListener("focus", look);
addEventListener("beforeunload", (event) => { if (waiting.size) event.preventDefault(); });

// keys
const STEP = 0.2; // of the view
const KEYS = [
  ["J", "next case", () => list.step(1)], ["K", "case before", () => list.step(-1)],
  ...run.choices.slice(0, 9).map((name, k) => [String(k + 1), `verdict: ${name}`, () => say(name)]),
  ["0", `verdict: ${run.cannotTell}`, () => say(run.cannotTell)],
  ["U", "undo the last verdict", undo], ["N", "write a note (Esc ends it)", () => byId("note")?.focus()],
  [".", "next patch by the value of the layer", () => view.step(1)], [",", "patch before", () => view.step(-1)],
  ["L", "next layer", () => nextLayer()], ["H", "hide or show the layer", () => toggleLayer()],
  ["+", "zoom in", () => view.zoom(1.6)], ["-", "zoom out", () => view.zoom(1 / 1.6)], ["W", "whole slide", () => byId("home").click()],
  ["ArrowLeft", "left", () => view.pan(-STEP, 0)], ["ArrowRight", "right", () => view.pan(STEP, 0)],
  ["ArrowUp", "up", () => view.pan(0, -STEP)], ["ArrowDown", "down", () => view.pan(0, STEP)],
  ["/", "search the worklist", () => byId("search").focus()], ["?", "these keys", () => byId("help").showModal()],
];
const ARROWS = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };
byId("keys").replaceChildren(...KEYS.map(([key, text]) => make("div", {}, make("dt", {}, make("kbd", {}, ARROWS[key] ?? key)), make("dd", {}, text))));
byId("help-button").onclick = () => byId("help").showModal();

function nextLayer() {
  const select = byId("layer");
  select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
  setLayer();
}

function toggleLayer() {
  byId("paint").hidden = !byId("paint").hidden;
}

addEventListener("keydown", (event) => {
  const field = event.target.closest("input:not([type=range]):not([type=checkbox]), textarea, select, dialog");
  if (event.key === "Escape" && field && !field.closest("dialog")) field.blur();
  const usesArrows = event.key.startsWith("Arrow") && event.target.closest("input, select");
  if (field || usesArrows || event.ctrlKey || event.metaKey || event.altKey || !byId("keys-on").checked) return;
  const key = KEYS.find(([name]) => name.toLowerCase() === (event.key === "=" ? "+" : event.key.toLowerCase()));
  if (!key) return;
  event.preventDefault();
  key[2]();
});

function fromHash() {
  const name = new URLSearchParams(location.hash.slice(1)).get("bag");
  const one = run.cases.find((other) => other.name === name);
  if (name != null && !one) complain(`There is no ${run.per} ${name}.`);
  if ((one ?? run.cases[0]) !== list.open) open(one ?? run.cases[0]);
}
addEventListener("hashchange", fromHash);
fromHash();
window.miueView = { view, list }; // for a look at frame times
document.documentElement.dataset.ready = "yes";
