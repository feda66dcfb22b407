// One bag: every run's prediction of it, its instances as a map or as bars, and pictures.
const IN_TABLE = 100; // instances listed as numbers
const BESIDE_BARS = 14; // letters beside half a figure, also on paper
const BESIDE_MAP = 28;
const HATCHED = 200; // bars that are wide enough for a pattern and a gap between them

function openBag(bag) {
  table.open = bag;
  const hash = "#bag=" + encodeURIComponent(data.bags.id[bag]);
  if (location.hash !== hash) history.pushState(null, "", hash);
  drawBags();
  const panel = byId("bag");
  panel.hidden = false;
  panel.replaceChildren(bagHead(bag), bagPredictions(bag), ...bagInstances(bag));
  drawInstances();
  panel.focus({ preventScroll: true });
  panel.scrollIntoView({ block: "start", behavior: "instant" });
}

function closeBag() { // the focus returns to the row of the bag
  if (location.hash.startsWith("#bag=")) history.pushState(null, "", "#bags");
  hideBag().focus();
}

function hideBag() { // returns the row of the bag that was open
  const bag = table.open;
  table.open = -1;
  byId("bag").hidden = true;
  const place = matchingBags().indexOf(bag);
  if (place >= 0) table.page = Math.floor(place / ROWS);
  drawBags();
  return byId("bags-table").querySelector(`[data-bag="${bag}"]`) ?? byId("bags-search");
}

function openLinked() { // the bag that the address names
  if (!location.hash.startsWith("#bag=")) { // a link to a section, or Back: the page must not scroll to the table
    const within = byId("bag").contains(document.activeElement);
    const row = table.open >= 0 ? hideBag() : null;
    if (within) row?.focus({ preventScroll: true });
    return;
  }
  const name = linkedName();
  const bag = data.bags.id.indexOf(name);
  if (bag >= 0 && bag !== table.open) openBag(bag);
  else if (bag < 0) byId("bags-count").textContent = `No bag is named “${name}”.`;
  if (bag < 0) byId("bags").scrollIntoView();
}

function linkedName() {
  const text = location.hash.slice("#bag=".length);
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // not an escaped name
  }
}

function startBag() {
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && table.open >= 0) closeBag();
  });
  window.addEventListener("hashchange", openLinked);
}

function bagHead(bag) {
  const truth = labelOf(bag) ? `label: ${labelOf(bag)}` : "label unknown";
  const origin = setName(bag) ? `known to be out of distribution (${setName(bag)})` : stated[bag] ? "known to be in distribution" : "not known to be in or out of distribution";
  const address = data.view && `${data.view}#bag=${encodeURIComponent(data.bags.id[bag])}`;
  return element("div", { class: "bag-head" },
    element("div", {}, element("h3", {}, "Bag ", element("bdi", {}, data.bags.id[bag])), element("p", { class: "quiet" }, `${truth}; ${origin}${patientOf(bag) ? "; patient " + patientOf(bag) : ""}`)),
    address ? element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, "Open on the slide") : null,
    element("button", { type: "button", onclick: closeBag }, "Close"));
}

function bagPredictions(bag) {
  const names = measuresOf("bags");
  const row = (text, cells) => element("tr", {}, element("th", { scope: "row", class: "text" }, text), ...cells.map((cell) => element("td", {}, cell)));
  const every = data.runs.map((_, number) => number);
  const rows = [
    ...(outcomes ? valueNames.map((name) => row(named(name), every.map((run) => decimal(valueOf(run, name, bag))))) : [row("predicted", every.map((run) => className(predictedBy(run, bag))))]),
    ...data.classes.map((name, place) => row(`P(${name})`, every.map((run) => decimal(probabilitiesOf(run, bag)[place])))),
    ...names.map((name) => row(named(name), every.map((run) => decimal(measureOf(run, name)?.[bag] ?? NaN)))),
  ];
  const lacking = data.runs.some((run, number) => names.some((name) => !Number.isFinite(measureOf(number, name)?.[bag] ?? NaN)));
  const why = lacking ? element("p", { class: "quiet below" }, "—: these predictions lack this bag, or their method has no such measure (softmax has no evidence).") : null;
  const numbers = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Predictions of this bag" },
    element("table", { class: "measures" }, element("caption", { class: "hidden" }, "Predictions of this bag"), element("thead", {}, element("tr", {}, ...["", ...data.runs.map((run) => run.title)].map((text) => element("th", { scope: "col", class: "whole" }, text)))), element("tbody", {}, ...rows)));
  return element("div", {}, numbers, why, ...bagDecisions(bag));
}

function bagDecisions(bag) {
  return data.runs.map((run, number) => {
    const decision = decided(number, bag, "decision");
    if (!decision) return null;
    const classes = decided(number, bag, "set").split(" ").filter(Boolean).map((place) => data.classes[Number(place)] ?? place);
    const held = data.predictions[number].decisions.set ? ` Prediction set: ${classes.length ? classes.join(", ") : "empty"}.` : "";
    const who = data.runs.length > 1 ? `${run.title}: ` : "";
    return element("p", { class: "decision" }, `${who}decision `, element("strong", {}, decision), `, as ${decided(number, bag, "reason") || "no reason is given"}.${held}`);
  }).filter((one) => one !== null);
}

function instancesOf(bag) { // {from, to, total} in the packed arrays
  const starts = unpacked(data.instances.starts);
  return { from: starts[bag], to: starts[bag + 1], total: unpacked(data.instances.total)[bag] };
}

function bagInstances(bag) {
  if (!data.instances) return [element("p", { class: "missing" }, "— no predictions of instances")];
  const { from, to, total } = instancesOf(bag);
  if (to === from) {
    const why = total ? `the ${count(total)} instances of this bag were left out to keep the file below its size limit` : "no predictions of this bag's instances";
    return [element("p", { class: "missing" }, "— " + why)];
  }
  const parts = [element("h3", {}, "Instances")];
  if (to - from < total) {
    parts.push(element("p", { class: "note" }, `${count(to - from)} of ${count(total)} instances are listed, ${anyFlags(data.runs.map((_, number) => [number]).filter(([number]) => data.instances.runs[number])) ? "flagged ones, " : ""}the most uncertain and the most probable; ${count(total - to + from)} are not.`));
  }
  const runs = data.runs.map((run, number) => [number, run.title]).filter(([number]) => data.instances.runs[number]);
  const choice = element("select", { id: "bag-run", onchange: drawInstances }, ...runs.map(([number, title]) => element("option", { value: number }, title)));
  const chosen = String(chosenRun());
  if (runs.some(([number]) => String(number) === chosen)) choice.value = chosen;
  const controls = element("div", { class: "controls" }, element("label", {}, "Predictions ", choice));
  const map = onSlide(from, to);
  if (map) {
    const shown = [["uncertainty", named(data.instances.measures[runs[0][0]])], ["probability", probabilityName(bag)]].map(([value, text]) => element("option", { value }, text));
    controls.append(element("label", {}, "Color ", element("select", { id: "bag-color", onchange: drawInstances }, ...shown)));
    const slides = slidesOf(from, to), options = [...new Set(slides)].map((slide) => element("option", { value: slide }, data.instances.slides[slide] ?? "—"));
    if (slides.length) controls.append(element("label", {}, "Slide ", element("select", { id: "bag-slide", onchange: drawInstances }, ...options)));
  }
  if (anyFlags(runs)) controls.append(element("label", {}, "Show ", element("select", { id: "bag-shown", onchange: drawInstances })));
  if (anyFlags(runs)) parts.push(element("p", { class: "flags", id: "bag-flags", role: "status" }));
  const plot = element("div", { class: map ? "plot map" : "plot", id: "bag-plot", role: "group", "aria-labelledby": "bag-caption" });
  parts.push(controls, element("p", { class: "missing", id: "bag-none", hidden: true }, "— no such instance is listed"), element("figure", {}, plot, element("figcaption", { id: "bag-caption" })), ...bagPictures(bag));
  parts.push(element("details", {}, element("summary", {}, "Instances as numbers"), element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Instances as numbers" }, element("table", { id: "bag-instances" }))));
  return parts;
}

function anyFlags(runs) {
  return runs.some(([number]) => data.instances.runs[number].flagged);
}

function flagsOf(run, bag) { // how many instances of a bag are flagged, NaN where they were not calibrated
  const packed = data.instances?.runs[run]?.flags;
  return packed ? unpacked(packed)[bag] : NaN;
}

const SHOWN = { all: () => true, flagged: (flagged) => flagged === 1, others: (flagged) => flagged === 0 };

function drawFlags(run, bag) { // how many are flagged, and what is promised of them; returns which to show
  if (!byId("bag-flags")) return SHOWN.all;
  const flags = flagsOf(run, bag), { total } = instancesOf(bag);
  if (Number.isNaN(flags)) {
    byId("bag-flags").textContent = `Instances are not flagged by ${data.runs[run].title}: no promise was calibrated.`;
    fillSelect("bag-shown", [["all", "all instances"]], "all");
    return SHOWN.all;
  }
  byId("bag-flags").textContent = `${count(flags)} of ${count(total)} instances ${flags === 1 ? "is" : "are"} ${data.instances.promises[run] || "flagged"}.`;
  const chosen = fillSelect("bag-shown", [["all", "all instances"], ["flagged", `flagged (${count(flags)})`], ["others", `not flagged (${count(total - flags)})`]]);
  return SHOWN[chosen] ?? SHOWN.all;
}

function onSlide(from, to) { // whether the place of every instance in its slide is known
  return data.instances.located !== null && unpacked(data.instances.located).subarray(from, to).every(Boolean);
}

function slidesOf(from, to) { // the slide of each instance by its number, none where bags do not hold several
  return data.instances.slide ? Array.from(unpacked(data.instances.slide).subarray(from, to)) : [];
}

function classInQuestion(bag, run) {
  return classCount === 2 ? 1 : Math.max(0, predictedBy(run, bag));
}

function probabilityName(bag) {
  const run = Number(byId("bag-run")?.value ?? chosenRun());
  if (outcomes) return named(valueNames[0]);
  return `probability of ${data.classes[classInQuestion(bag, run)]}`;
}

function drawInstances() {
  const bag = table.open;
  if (bag < 0 || !byId("bag-plot")) return;
  const run = Number(byId("bag-run").value);
  const { from, to } = instancesOf(bag);
  const passes = drawFlags(run, bag), packedFlags = data.instances.runs[run].flagged;
  const flags = packedFlags ? unpacked(packedFlags).subarray(from, to) : new Uint8Array(to - from);
  const slides = slidesOf(from, to), chosen = byId("bag-slide")?.value;
  const isOnMap = (place) => chosen === undefined || slides[place] === Number(chosen);
  const part = (packed) => Array.from(unpacked(packed).subarray(from, to)).filter((_, place) => passes(flags[place]) && isOnMap(place));
  const shown = {
    flagged: packedFlags ? part(packedFlags) : null,
    position: part(data.instances.position),
    label: part(data.instances.label),
    isOod: part(data.instances.isOod),
    probability: part(data.instances.runs[run].probability),
    uncertainty: part(data.instances.runs[run].uncertainty),
  };
  const names = { probability: probabilityName(bag), uncertainty: named(data.instances.measures[run]) };
  showPictures(bag, shown);
  const none = shown.position.length === 0;
  byId("bag-none").hidden = !none;
  byId("bag-plot").parentElement.hidden = none;
  const whole = (packed) => Array.from(unpacked(packed).subarray(from, to)).filter((_, place) => isOnMap(place));
  drawInstanceTable(shown, names);
  if (none) return;
  if (onSlide(from, to)) drawMap(shown, part(data.instances.x), part(data.instances.y), names, [whole(data.instances.x), whole(data.instances.y)]);
  else drawBars(shown, names);
}

function isFlagged(shown, place) {
  return shown.flagged !== null && shown.flagged[place] === 1;
}

function showPictures(bag, shown) { // those that the filter lets pass, flagged ones marked by the chosen predictions
  const place = new Map(shown.position.map((position, number) => [String(position), number]));
  for (const item of document.querySelectorAll("#bag .strip li")) {
    const number = place.get(item.dataset.position);
    item.hidden = number === undefined;
    const flagged = number !== undefined && isFlagged(shown, number);
    item.classList.toggle("flagged", flagged);
    item.querySelector(".flag").textContent = flagged ? "flagged" : "";
  }
}

function instanceKind(shown, place) {
  if (shown.isOod[place]) return "out of distribution";
  return shown.label[place] < 0 ? "label unknown" : data.classes[shown.label[place]];
}

function instanceColor(shown, place) {
  if (shown.isOod[place]) return color("ood-1");
  return color(shown.label[place] > 0 ? "in" : shown.label[place] === 0 ? "class-0" : "unknown");
}

function drawBars(shown, names) {
  const x = shown.position; // from 0, as in the tables
  const wide = x.length <= HATCHED;
  const hover = shown.position.map((position, place) =>
    `instance ${position}<br>${plain(names.probability)}: ${decimal(shown.probability[place])}<br>${plain(names.uncertainty)}: ${decimal(shown.uncertainty[place])}<br>${plain(instanceKind(shown, place))}${isFlagged(shown, place) ? "<br>flagged" : ""}`);
  const edges = { color: color("flag"), width: x.map((_, place) => (isFlagged(shown, place) ? 3 : 0)) };
  const bars = { type: "bar", x, hovertext: hover, hoverinfo: "text", marker: { line: edges, color: x.map((_, place) => instanceColor(shown, place)), pattern: { shape: x.map((_, place) => (wide && instanceKind(shown, place) === "label unknown" ? "/" : "")), solidity: 0.45 } }, showlegend: false };
  drawPlot("bag-plot", [{ ...bars, y: shown.probability }, { ...bars, y: shown.uncertainty, yaxis: "y2" }], {
    xaxis: axis("instance", { anchor: "y2", nticks: Math.min(24, x.length), tickformat: "d", ...(x.length > 24 ? {} : { tickvals: x }) }),
    yaxis: axis("", { domain: [0.56, 1], ...(outcomes ? {} : { range: [0, 1] }), title: beside(names.probability) }),
    yaxis2: axis("", { domain: [0, 0.44], rangemode: "tozero", title: beside(names.uncertainty) }),
    bargap: wide ? 0.25 : 0,
  });
  const kinds = [...new Set(shown.position.map((_, place) => instanceKind(shown, place)))].join(", ");
  byId("bag-caption").textContent = `Top: ${names.probability} of each instance by itself. Bottom: its ${names.uncertainty}, higher where less certain. Instances in this bag: ${kinds}. ${outcomes ? "Values of instances are relative to each other only: no instance has a label." : `Dark bars are ${classCount === 2 ? data.classes[1] : `not ${data.classes[0]}`}, light ones ${data.classes[0]}, ${wide ? "hatched" : "gray"} ones of unknown label, orange ones out of distribution.`}${shown.flagged ? " Bars with a frame are flagged." : ""}`;
}

function beside(name) { // the title of an axis that is half as high as the figure
  return { text: wrapped(name, BESIDE_BARS), standoff: 8, font: { size: 13 } };
}

function drawMap(shown, x, y, names, [everyX, everyY]) { // the grid is that of all instances, whichever are shown
  const by = byId("bag-color").value;
  const values = shown[by];
  const nearest = Math.min(gridStep(everyX), gridStep(everyY));
  const step = Number.isFinite(nearest) ? nearest : 1; // a bag of one instance has no grid
  const wide = Math.round((Math.max(...everyX) - Math.min(...everyX)) / step) + 1, high = Math.round((Math.max(...everyY) - Math.min(...everyY)) / step) + 1;
  const [start, end] = by === "probability" ? data.instances.span : data.instances.ranges[Number(byId("bag-run").value)]; // as exported heatmaps have it
  const look = by === "probability" ? { colorscale: "Cividis" } : { colorscale: "YlOrRd", reversescale: true };
  const scale = { ...look, zmin: start, zmax: end, cmin: start, cmax: end, colorbar: { title: { text: wrapped(names[by], BESIDE_MAP), side: "right" }, thickness: 14 } };
  const square = { xaxis: axis("x, level-0 pixels", { constrain: "domain" }), yaxis: axis("y", { autorange: "reversed", scaleanchor: "x", constrain: "domain" }) };
  const cells = wide * high;
  const scattered = Math.max(wide, high) > 150 && everyX.length < cells / 50; // on no grid, so that a cell is hardly a dot
  if (cells <= 250000 && !scattered) {
    const left = Math.min(...everyX), top = Math.min(...everyY);
    const z = Array.from({ length: high }, () => new Array(wide).fill(null));
    values.forEach((value, place) => { z[Math.round((y[place] - top) / step)][Math.round((x[place] - left) / step)] = value; });
    const { zmin, zmax, colorscale, reversescale, colorbar } = scale;
    drawPlot("bag-plot", [{ type: "heatmap", z, x0: left + step / 2, dx: step, y0: top + step / 2, dy: step, zmin, zmax, colorscale, reversescale, colorbar, hoverongaps: false, hovertemplate: "center x %{x}, y %{y}: %{z:.3f}<extra></extra>" }, ...frames(shown, x, y, step)], square);
  } else {
    const { cmin, cmax, colorscale, reversescale, colorbar } = scale;
    const line = { color: color("flag"), width: x.map((_, place) => (isFlagged(shown, place) ? 2 : 0)) };
    drawPlot("bag-plot", [{ mode: "markers", x, y, marker: { color: values, size: scattered ? 9 : 5, symbol: "square", line, cmin, cmax, colorscale, reversescale, colorbar }, hovertemplate: "x %{x}, y %{y}: %{marker.color:.3f}<extra></extra>" }], square);
  }
  byId("bag-caption").textContent = `Each square is an instance at its position in the slide; the scale of ${names[by]} is the same for every bag and in exported heatmaps. Where the map is empty, no instance is ${byId("bag-shown")?.value in { flagged: 0, others: 0 } ? "shown" : "listed"} here. Values are as predicted, not ranked or smoothed.${shown.flagged ? " Squares with a frame are flagged." : ""}`;
}

function frames(shown, x, y, step) { // a line around every flagged square, as in exported heatmaps
  const corners = x.map((_, place) => place).filter((place) => isFlagged(shown, place));
  if (!corners.length) return [];
  const around = (values, offsets) => corners.flatMap((place) => [...offsets.map((offset) => values[place] + offset * step), null]);
  const line = { color: color("flag"), width: 2 };
  return [{ mode: "lines", x: around(x, [0, 1, 1, 0, 0]), y: around(y, [0, 0, 1, 1, 0]), line, hoverinfo: "skip", showlegend: false }];
}

function gridStep(values) { // the smallest distance between two different coordinates, Infinity where all are one
  const distinct = [...new Set(values)].sort((a, b) => a - b);
  let step = Infinity;
  for (let place = 1; place < distinct.length; place++) step = Math.min(step, distinct[place] - distinct[place - 1]);
  return step;
}

function bagPictures(bag) {
  if (!data.pictures || !data.pictures.pictures[bag]) return [];
  const { width, height, positions, pictures } = data.pictures;
  const size = 80 / Math.max(width, height);
  const { from, to } = instancesOf(bag);
  const all = Array.from(unpacked(data.instances.position).subarray(from, to));
  const run = data.instances.runs.findIndex((one) => one !== null);
  const items = positions[bag].map((position, place) => {
    const picture = element("span", { class: "picture", role: "img", "aria-label": `instance ${position}` });
    Object.assign(picture.style, {
      width: `${width * size}px`, height: `${height * size}px`, backgroundImage: `url("${pictures[bag]}")`,
      backgroundSize: `${width * size * positions[bag].length}px ${height * size}px`, backgroundPosition: `${-place * width * size}px 0`,
    });
    const at = from + all.indexOf(position);
    const { probability, uncertainty } = data.instances.runs[run];
    const shown = { label: [unpacked(data.instances.label)[at]], isOod: [unpacked(data.instances.isOod)[at]] };
    const tone = shown.isOod[0] ? "ood" : shown.label[0] > 0 ? "positive" : null;
    return element("li", { "data-position": position }, picture, element("strong", { class: "flag" }), `${position}: p ${decimal(unpacked(probability)[at])}`, element("br"), `u ${decimal(unpacked(uncertainty)[at])}`, element("br"), element("span", { class: tone }, instanceKind(shown, 0)));
  });
  const more = all.length - items.length;
  const note = `Pictures of ${count(items.length)} instances${more > 0 ? `, ${data.instances.runs[run].flagged ? "flagged ones first, then " : ""}the most uncertain and the most probable (${count(more)} more not shown)` : ""}; p is ${probabilityName(bag)}, u is ${named(data.instances.measures[run])}, by ${data.runs[run].title}.`;
  return [element("ul", { class: "strip" }, ...items), element("p", { class: "quiet" }, note)];
}

function drawInstanceTable(shown, names) {
  const order = shown.position.map((_, place) => place).sort((a, b) => shown.uncertainty[b] - shown.uncertainty[a]);
  const head = ["instance", ...(shown.flagged ? ["flagged"] : []), "label", names.probability, names.uncertainty].map((text) => element("th", { scope: "col" }, text));
  const rows = order.slice(0, IN_TABLE).map((place) => element("tr", {},
    element("th", { scope: "row" }, String(shown.position[place])),
    shown.flagged ? element("td", { class: isFlagged(shown, place) ? "flag" : null }, isFlagged(shown, place) ? "flagged" : "no") : null,
    element("td", {}, instanceKind(shown, place)),
    element("td", {}, decimal(shown.probability[place])), element("td", {}, decimal(shown.uncertainty[place]))));
  const caption = order.length > IN_TABLE
    ? element("caption", {}, `The ${IN_TABLE} most uncertain of ${count(order.length)}`)
    : element("caption", { class: "hidden" }, "Instances of this bag");
  byId("bag-instances").replaceChildren(caption, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}
