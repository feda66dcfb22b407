// Reading the data of the page, and making elements. Text from the data only ever becomes text.
const data = JSON.parse(document.getElementById("data").textContent);
const KINDS = { f4: Float32Array, i4: Int32Array, i2: Int16Array, u1: Uint8Array };
const unpackedBefore = new Map();

function unpacked(packed) {
  if (!unpackedBefore.has(packed)) {
    const raw = atob(packed.base64);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    unpackedBefore.set(packed, new KINDS[packed.kind](bytes.buffer));
  }
  return unpackedBefore.get(packed);
}

const byId = (id) => document.getElementById(id);
const bagCount = data.bags.id.length;
const labels = unpacked(data.bags.label);
const sets = unpacked(data.bags.set);
const stated = unpacked(data.bags.known); // whether it is known of a bag that it is in, or out of, distribution
const anyStated = stated.includes(1);
const shared = unpacked(data.bags.shared);
const classCount = data.classes.length;

function setName(bag) {
  return data.bags.sets[sets[bag]];
}

function patientOf(bag) { // "" where it is not known
  const known = data.bags.patient;
  return known ? known.texts[unpacked(known.codes)[bag]] : "";
}

function knownSet(bag) { // what was stated of a bag, never what was decided
  return setName(bag) || (stated[bag] ? "in distribution" : "— unknown");
}

function probabilitiesOf(run, bag) {
  const { probabilities, width } = data.predictions[run];
  return Array.from(unpacked(probabilities).subarray(bag * width, (bag + 1) * width));
}

function predictedBy(run, bag) { // class, or -1 where this run lacks the bag
  const probabilities = probabilitiesOf(run, bag);
  return Number.isNaN(probabilities[0]) ? -1 : probabilities.indexOf(Math.max(...probabilities));
}

function measureOf(run, name) { // values of all bags, or null where the run has no such measure
  const packed = data.predictions[run].measures[name];
  return packed ? unpacked(packed) : null;
}

function reasonFor(run, bag) { // why a bag should be looked at first, "" where it is routine
  const { texts, codes } = data.predictions[run].reasons;
  return texts[unpacked(codes)[bag]] ?? "";
}

const anyDecisions = data.predictions.some((one) => one.decisions);

function decided(run, bag, what) { // "decision", "reason" or "set" of a bag as text, "" where there is none
  const found = data.predictions[run].decisions?.[what];
  const code = found ? unpacked(found.codes)[bag] : -1;
  return code < 0 ? "" : found.texts[code];
}

const outcomes = data.bags.outcome; // labels that are numbers, as texts; null where they are classes
const valueNames = [...new Set(data.predictions.flatMap((one) => Object.keys(one.values)))];

function labelOf(bag) { // as text, "" where it is not known
  if (!outcomes) return labels[bag] < 0 ? "" : data.classes[labels[bag]];
  return outcomes.texts[unpacked(outcomes.codes)[bag]] ?? "";
}

function valueOf(run, name, bag) { // what is predicted of a number
  const packed = data.predictions[run].values[name];
  return packed ? unpacked(packed)[bag] : NaN;
}

function isLabeledInside(bag) {
  return labels[bag] >= 0 && setName(bag) === "";
}

function named(name) {
  return name.replaceAll("_", " ");
}

function count(value) {
  return value.toLocaleString("en-US");
}

function percent(share, digits = 1) {
  return Number.isFinite(share) ? (100 * share).toFixed(digits) + " %" : "—";
}

function decimal(value) {
  if (Number.isNaN(value)) return "—";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 0.001 || size >= 1e5) ? value.toExponential(2) : value.toFixed(size < 10 ? 3 : 1);
  return text.replaceAll("-", "−"); // as the tables of the page have it
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function fillSelect(id, options, chosen, onChange) { // options: [value, text]
  const select = byId(id);
  const before = chosen ?? select.value;
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  if (options.some(([value]) => String(value) === String(before))) select.value = before;
  if (onChange) select.onchange = onChange;
  return select.value;
}

const LEVELS = ["bags", "instances"].filter((level) => data.levels[level].some((one) => one !== null));
const anyLabeled = LEVELS.some((level) => data.levels[level].some((one) => one && !one.reliability.reason));
// Runs of one name are seeds of one method: they share a color and differ in their dash.
const groups = [...new Set(data.runs.map((run) => run.name))];
const groupOf = data.runs.map((run) => groups.indexOf(run.name));
const placeInGroup = data.runs.map((run, number) => data.runs.slice(0, number).filter((other) => other.name === run.name).length);

const runOptions = data.runs.map((run, number) => [number, run.title]);

function measuresOf(level) { // of any run at this level
  const names = data.levels[level].flatMap((one) => (one ? Object.keys(one.distributions) : []));
  return [...new Set(names)];
}
