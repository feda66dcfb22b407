// The table of bags: sorted, searched, filtered, a page at a time.
const ROWS = 25;
const table = { sort: "uncertainty", falling: true, page: 0, open: -1, whole: false };

const anyFlagged = (data.instances?.runs ?? []).some((run) => run?.flags);
const COLUMNS = [
  { key: "id", text: "bag", words: true, of: (bag) => data.bags.id[bag] },
  ...(anyDecisions ? [{ key: "decision", text: "decision", words: true, of: (bag, run) => decided(run, bag, "decision") || "— none" }] : []),
  ...(outcomes ? valueNames.map((name) => ({ key: "value-" + name, text: named(name), of: (bag, run) => valueOf(run, name, bag) })) : [
    { key: "predicted", text: "predicted", words: true, of: (bag, run) => className(predictedBy(run, bag)) },
    { key: "probability", text: "probability", of: (bag, run) => Math.max(...probabilitiesOf(run, bag)) },
  ]),
  { key: "uncertainty", text: "uncertainty", of: (bag, run) => chosenMeasure(run)?.[bag] ?? NaN },
  ...(labels.some((label) => label >= 0) ? [{ key: "label", text: "label", words: true, of: (bag) => labelOf(bag) || "— unknown" }] : []),
  ...(anyStated || (!outcomes && (anyDecisions || anyLabeled)) ? [{ key: "outcome", text: "outcome", words: true, of: (bag, run) => outcome(bag, run) }] : []),
  ...(anyStated ? [{ key: "set", text: "known set", words: true, of: (bag) => knownSet(bag) }] : []),
  ...(data.bags.patient ? [{ key: "patient", text: "patient", words: true, of: (bag) => patientOf(bag) || "— unknown" }] : []),
  ...(data.instances ? [{ key: "size", text: "instances", of: (bag) => bagSizes[bag] }] : []),
  ...(anyFlagged ? [{ key: "flags", text: "flagged", of: (bag, run) => flagsOf(run, bag) }] : []),
  { key: "reason", text: "reason", words: true, long: true, of: (bag, run) => whyDecided(run, bag) || reasonFor(run, bag) },
];
const FILTERS = {
  all: ["all bags", () => true],
  cases: ["to look at first", (bag, run) => reasonFor(run, bag) !== ""],
  incorrect: ["incorrect", (bag, run) => judged(bag, run) === "incorrect"],
  correct: ["correct", (bag, run) => judged(bag, run) === "correct"],
  inside: ["known in distribution", (bag) => stated[bag] && setName(bag) === ""],
  outside: ["known out of distribution", (bag) => setName(bag) !== ""],
  unflagged: ["not known to be in or out", (bag) => !stated[bag]],
  unlabeled: ["without a label", (bag) => labels[bag] < 0],
  lacking: ["lacked by some predictions", (bag) => !shared[bag]],
  sent: ["decided: deferred", (bag, run) => decided(run, bag, "decision") === "deferred"],
  flagged: ["decided: out of distribution", (bag, run) => decided(run, bag, "decision") === "out of distribution"],
  empty: ["with an empty prediction set", (bag, run) => hasEmptySet(bag, run)],
  flags: ["with flagged instances", (bag, run) => flagsOf(run, bag) > 0],
  given: ["decided: a class", (bag, run) => !["", "deferred", "out of distribution"].includes(decided(run, bag, "decision"))],
  deferred: ["deferred at the slider's coverage", (bag) => deferredNow.has(bag)],
};
const bagSizes = data.instances ? unpacked(data.instances.total) : null;
let deferredNow = new Set();

function whyDecided(run, bag) { // an empty set is a reason to look also where a bag is accepted
  return [decided(run, bag, "reason"), hasEmptySet(bag, run) ? "empty prediction set" : ""].filter(Boolean).join("; ");
}

function hasEmptySet(bag, run) {
  return Boolean(data.predictions[run].decisions?.set) && decided(run, bag, "decision") !== "" && decided(run, bag, "set") === "";
}

function className(number) {
  return number < 0 ? "— not predicted" : data.classes[number];
}

function judged(bag, run) { // whether the predicted class is the label; "" where that cannot be judged
  const predicted = predictedBy(run, bag);
  if (outcomes || predicted < 0 || !isLabeledInside(bag)) return "";
  return predicted === labels[bag] ? "correct" : "incorrect";
}

function outcome(bag, run) { // of the decision, where there is one; nothing is correct unless the label is known
  if (predictedBy(run, bag) < 0) return "— not predicted";
  const decision = decided(run, bag, "decision"), isOut = setName(bag) !== "";
  if (decision === "out of distribution") return isOut ? "detected" : stated[bag] ? "false alarm" : "— unknown";
  if (decision === "deferred") return judged(bag, run) ? `deferred, class ${judged(bag, run)}` : "deferred";
  if (isOut) return decision ? "missed" : "— OOD";
  return judged(bag, run) || (outcomes ? "—" : "— no label");
}

const TONES = { correct: "right", detected: "right", incorrect: "wrong", missed: "wrong", "false alarm": "wrong" };

function shownFor() { // what the column of the uncertainty is for
  return byId("bags-filter").value === "deferred" ? "confidence" : "ood";
}

function chosenMeasure(run) {
  return measureOf(run, measureFor("bags", run, shownFor()));
}

function matchingBags() {
  const run = chosenRun();
  const wanted = byId("bags-search").value.trim().toLowerCase();
  const passes = FILTERS[byId("bags-filter").value][1];
  const words = COLUMNS.filter((column) => column.words);
  const found = [];
  for (let bag = 0; bag < bagCount; bag++) {
    if (passes(bag, run) && (!wanted || words.some((column) => column.of(bag, run).toLowerCase().includes(wanted)))) found.push(bag);
  }
  const column = COLUMNS.find((one) => one.key === table.sort);
  const keys = new Map(found.map((bag) => [bag, column.of(bag, run)]));
  const order = new Intl.Collator("en", { numeric: true });
  return found.sort((a, b) => {
    const one = keys.get(a), other = keys.get(b);
    if (column.words) return (table.falling ? -1 : 1) * order.compare(one, other) || a - b;
    if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) - Number.isNaN(other) || a - b; // missing last
    return (table.falling ? other - one : one - other) || a - b;
  });
}

function drawBags() {
  const run = chosenRun();
  const bags = matchingBags();
  const rows = table.whole ? Math.max(1, bags.length) : ROWS;
  const pages = Math.max(1, Math.ceil(bags.length / rows));
  table.page = Math.min(table.page, pages - 1);
  byId("bags-table").tHead.replaceChildren(element("tr", {}, ...COLUMNS.map(headCell)));
  byId("bags-table").tBodies[0].replaceChildren(...bags.slice(table.page * rows, (table.page + 1) * rows).map((bag) => bagRow(bag, run)));
  byId("bags-count").textContent = `${count(bags.length)} of ${count(bagCount)} bag${bagCount === 1 ? "" : "s"}` + (bags.length ? "" : "; change the search or the choice under Show");
  byId("bags-page").textContent = `page ${count(table.page + 1)} of ${count(pages)}`;
  byId("bags-back").disabled = table.page === 0;
  byId("bags-next").disabled = table.page === pages - 1;
}

function drawAllBags(whole) { // on paper, every row that the search and the filter let pass
  const page = table.page;
  table.whole = whole;
  drawBags();
  if (!whole) return;
  table.page = page; // to return to after printing
  sayChoices();
}

function headText(column) {
  return column.key === "uncertainty" ? named(measureFor("bags", chosenRun(), shownFor())) : column.text;
}

function headCell(column) {
  const sorted = table.sort === column.key;
  const text = headText(column);
  const sort = element("button", { type: "button", "data-key": column.key, onclick: () => sortBy(column) }, text, sorted ? (table.falling ? " ▼" : " ▲") : "");
  return element("th", { scope: "col", class: column.words ? "text" : null, "aria-sort": sorted ? (table.falling ? "descending" : "ascending") : "none" }, sort);
}

function sortBy(column) {
  table.falling = table.sort === column.key ? !table.falling : !column.words;
  table.sort = column.key;
  table.page = 0;
  drawBags();
  byId("bags-table").tHead.querySelector(`[data-key="${column.key}"]`).focus();
}

function bagRow(bag, run) {
  const cells = COLUMNS.map((column) => {
    const value = column.of(bag, run);
    if (column.key === "id") {
      const open = element("button", { type: "button", class: "link", title: value, "data-bag": bag, onclick: () => openBag(bag) }, element("bdi", {}, value));
      return element("th", { scope: "row", class: "text" }, open);
    }
    const text = column.words ? value : ["size", "flags"].includes(column.key) ? (Number.isNaN(value) ? "—" : count(value)) : decimal(value);
    const tone = column.key === "outcome" && value in TONES ? " " + TONES[value] : "";
    return element("td", { class: column.words ? (column.long ? "text long" : "text" + tone) : null, title: column.words ? value : null }, text);
  });
  return element("tr", { class: bag === table.open ? "open" : null }, ...cells);
}

function deferredChanged() {
  deferredNow = new Set(deferred(chosenRun()));
  if (byId("bags-filter").value === "deferred") drawBags();
}

function showFiltered(filter) {
  byId("bags-filter").value = filter;
  byId("bags-search").value = "";
  Object.assign(table, { sort: "uncertainty", falling: true, page: 0 });
  drawBags();
  byId("bags").scrollIntoView();
  byId("bags-filter").focus({ preventScroll: true });
}

function safeCell(value) { // as a spreadsheet shows it: text that would begin a formula gets an apostrophe before it
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
  let text = value.replace(/((?:^|[;\t\r\n])[ "]*)([=+\-@\uFF1D\uFF0B\uFF0D\uFF20])/g, "$1'$2");
  if (/^[\t\r\n]/.test(text)) text = "'" + text;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function filteredCsv() {
  const run = chosenRun();
  const rows = matchingBags().map((bag) => COLUMNS.map((column) => column.of(bag, run)));
  return [COLUMNS.map(headText), ...rows].map((row) => row.map(safeCell).join(",") + "\r\n").join("");
}

function saveCsv() {
  const url = URL.createObjectURL(new Blob(["\ufeff" + filteredCsv()], { type: "text/csv" }));
  element("a", { href: url, download: "bags.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function startBags() {
  const again = () => { table.page = 0; drawBags(); sayChoices(); };
  const needs = {
    lacking: shared.includes(0), unflagged: anyStated && stated.includes(0),
    inside: stated.some((known, bag) => known && setName(bag) === ""), outside: data.bags.sets.some((name) => name !== ""),
    incorrect: anyLabeled, correct: anyLabeled, unlabeled: labels.some((label) => label >= 0), sent: anyDecisions, flagged: anyDecisions, given: anyDecisions, flags: anyFlagged,
    empty: labels.some((_, bag) => data.runs.some((_, run) => hasEmptySet(bag, run))),
  };
  const possible = Object.entries(FILTERS).filter(([key]) => needs[key] ?? true);
  fillSelect("bags-filter", possible.map(([key, [text]]) => [key, text]), "all", again);
  byId("bags-search").addEventListener("input", again);
  byId("bags-back").addEventListener("click", () => { table.page -= 1; drawBags(); });
  byId("bags-next").addEventListener("click", () => { table.page += 1; drawBags(); });
  byId("bags-csv").addEventListener("click", saveCsv);
  whenChosen.push(again);
  drawBags();
}
