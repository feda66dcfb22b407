// The choices that all figures and tables share: predictions, level and uncertainty.
const whenChosen = []; // called after every choice

function chosenRun() {
  return Number(byId("choose-run").value);
}

function chosenLevel() {
  return byId("choose-level").value;
}

function measureFor(level, run, purpose) { // the chosen uncertainty, else the default for "confidence" or "ood"; null without one
  const found = data.levels[level][run];
  if (!found) return null;
  const chosen = byId("choose-measure").value;
  if (chosen === "") return found.defaults[purpose];
  const others = [`${chosen}_mean`, chosen.replace(/_mean$/, "")]; // the same distance at the other level
  return [chosen, ...others].find((name) => name in found.distributions) ?? chosen;
}

function fillMeasures() {
  const of = data.levels[chosenLevel()][chosenRun()];
  const { confidence, ood } = (of ?? data.levels.bags[chosenRun()]).defaults;
  const text = confidence === ood ? named(ood) : `${named(confidence)} / ${named(ood)}`;
  fillSelect("choose-measure", [["", `${text} (default)`], ...measuresOf(chosenLevel()).map((name) => [name, named(name)])]);
}

function startChoices() {
  const again = () => { fillMeasures(); for (const one of whenChosen) one(); sayChoices(); };
  fillSelect("choose-run", runOptions, 0, again);
  fillSelect("choose-level", LEVELS.map((level) => [level, level]), "bags", again);
  fillMeasures();
  byId("choose-measure").onchange = again;
  byId("choose-run-label").hidden = data.runs.length < 2;
  byId("choose-level-label").hidden = LEVELS.length < 2;
  for (const choice of document.querySelectorAll(".choose-pair")) {
    choice.onchange = () => showPair(choice);
    showPair(choice);
  }
  whenChosen.push(showCases);
  showCases();
  for (const button of document.querySelectorAll(".show-cases")) button.addEventListener("click", () => showFiltered("cases"));
  for (const swatch of document.querySelectorAll(".swatch")) swatch.style.background = `var(--run-${1 + (groupOf[swatch.dataset.run] % 8)})`;
  for (const id of ["cases", "reliability", "coverage", "distributions", "bags"]) {
    byId(id)?.querySelector("h2").after(element("p", { class: "print-only shown" }));
  }
}

function showCases() {
  for (const part of document.querySelectorAll(".cases")) part.hidden = Number(part.dataset.run) !== chosenRun();
}

function showPair(choice) { // the differences in one metric
  const all = document.querySelectorAll(`.pair[data-level="${choice.dataset.level}"]`);
  all.forEach((part, place) => { part.hidden = place !== Number(choice.value); });
}

function sayChoices() { // what a printed page shows, below each heading
  const run = chosenRun(), level = chosenLevel(), title = data.runs[run].title;
  const by = (purpose) => named(measureFor(level, run, purpose) ?? "— none");
  const search = byId("bags-search").value.trim();
  const threshold = level === "bags" ? acceptedUpTo(run) : null;
  const sorted = COLUMNS.find((one) => one.key === table.sort);
  const listed = document.querySelectorAll(".cases:not([hidden]) li").length;
  const texts = {
    cases: `Shown: ${title}${listed ? `; the first ${count(listed)}` : ""}.`,
    reliability: `Shown: all predictions; ${level}.`,
    coverage: `Shown: all predictions; ${level}. The numbers: ${title}; by ${by("confidence")}; coverage ${byId("coverage-share").textContent}${threshold === null ? "" : `, accepted up to ${decimal(threshold)}`}.`,
    distributions: `Shown: ${title}; ${level}; ${by("ood")}.`,
    bags: `Shown: ${title}; ${byId("bags-filter").selectedOptions[0].text}${search ? `, search “${search}”` : ""}: ${byId("bags-count").textContent}, by ${headText(sorted)}, ${table.falling ? "descending" : "ascending"}.`,
  };
  for (const [id, text] of Object.entries(texts)) {
    const line = byId(id)?.querySelector(".shown");
    if (line) line.textContent = text;
  }
}
