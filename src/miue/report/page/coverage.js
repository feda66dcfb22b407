// Risk and coverage: the curves of all runs, and a slider on one of them.
const LISTED = 40; // bags named below the slider

function coverageMeasure(level, run) { // the chosen measure, or each run's own default
  const chosen = byId("coverage-measure").value;
  const found = data.levels[level][run];
  return chosen === "" && found ? found.defaults.confidence : chosen;
}

function coverageCurve(level, run) { // {kept, errors, total} or {reason}
  const found = data.levels[level][run];
  if (!found) return { reason: "no predictions of instances" };
  const measure = coverageMeasure(level, run);
  if (!(measure in found.distributions)) return { reason: `no measure "${named(measure)}"` };
  if (!found.coverage.reason) {
    const { kept, errors, threshold } = found.coverage[measure];
    return { kept, errors, threshold, total: kept[kept.length - 1] };
  }
  if (level === "instances") return { reason: found.coverage.reason };
  const values = measureOf(run, measure).filter((value, bag) => shared[bag]).sort(); // referral needs no label
  const ends = [];
  values.forEach((value, place) => { if (value !== values[place + 1]) ends.push(place); });
  return { kept: ends.map((end) => end + 1), errors: null, threshold: ends.map((end) => values[end]), total: values.length, reason: found.coverage.reason };
}

function referred(run) { // {threshold, kept, bags: those less certain than the slider's threshold, the least certain first}
  const curve = coverageCurve("bags", run);
  const values = measureOf(run, coverageMeasure("bags", run));
  if (!curve.kept || !values) return [];
  const counted = (bag) => shared[bag] && (curve.errors === null || isLabelledInside(bag));
  const sorted = values.filter((value, bag) => counted(bag)).sort();
  const threshold = sorted[curve.kept[sliderPlace(curve)] - 1];
  const bags = [...values.keys()].filter((bag) => values[bag] > threshold);
  return bags.sort((a, b) => values[b] - values[a]);
}

function sliderPlace(curve) { // the point of the curve nearest to the coverage that the slider asks for
  const wanted = (Number(byId("coverage-slider").value) / 100) * curve.total;
  let best = 0;
  curve.kept.forEach((kept, place) => { if (Math.abs(kept - wanted) < Math.abs(curve.kept[best] - wanted)) best = place; });
  return best;
}

function drawCoverage() {
  const level = byId("coverage-level").value, chosen = Number(byId("coverage-run").value);
  const curves = data.runs.map((run, number) => coverageCurve(level, number));
  const drawn = curves.map((curve, run) => ({ curve, run })).filter(({ curve }) => curve.errors);
  const why = curves[chosen].reason ?? (drawn.length ? "" : curves[0].reason);
  showMissing("coverage", drawn.length && !curves[chosen].reason ? "" : `${data.runs[chosen].title}: ${why}`);
  byId("coverage-plot").hidden = drawn.length === 0;
  byId("coverage-slide").hidden = !curves[chosen].kept;
  if (drawn.length) {
    const traces = drawn.map(({ curve, run }) => ({
      x: curve.kept.map((kept) => kept / curve.total),
      y: curve.errors.map((errors, place) => errors / curve.kept[place]),
      name: plain(data.runs[run].title),
      mode: "lines",
      line: runLine(run, run === chosen ? 3 : 1.8),
      hovertemplate: `${plain(data.runs[run].title).replaceAll("%{", "% {")}<br>keep %{x:.0%}: %{y:.1%} wrong<extra></extra>`,
    }));
    traces.push({ x: [], y: [], mode: "markers", marker: { size: 13, color: runColour(chosen), line: { color: colour("card"), width: 2 } }, hoverinfo: "skip", showlegend: false });
    drawPlot("coverage-plot", traces, {
      xaxis: axis("coverage: share that is kept", { range: [0, 1.02], tickformat: ".0%" }),
      yaxis: axis("error among the kept", { rangemode: "tozero", tickformat: ".1~%" }),
    });
  }
  moveSlider();
}

function moveSlider() {
  const level = byId("coverage-level").value, run = Number(byId("coverage-run").value);
  const curve = coverageCurve(level, run);
  if (!curve.kept) return;
  const place = sliderPlace(curve), last = curve.kept.length - 1, kept = curve.kept[place];
  const error = (at) => (curve.errors ? percent(curve.errors[at] / curve.kept[at], 2) : "— no labels");
  byId("coverage-share").textContent = percent(kept / curve.total);
  byId("coverage-slider").setAttribute("aria-valuetext", `${percent(kept / curve.total)} kept`);
  byId("coverage-error").textContent = error(place);
  byId("coverage-all").textContent = error(last);
  byId("coverage-kept").textContent = `${count(kept)} of ${count(curve.total)}`;
  byId("coverage-referred").textContent = count(curve.total - kept);
  if (curve.errors) {
    const drawn = byId("coverage-plot").data ?? [];
    const marker = drawn.length - 1;
    if (marker >= 0) Plotly.restyle("coverage-plot", { x: [[kept / curve.total]], y: [[curve.errors[place] / kept]] }, [marker]);
  }
  byId("coverage-list").replaceChildren(...(level === "bags" ? referredList(run) : []));
  if (level === "bags") referredChanged();
}

function referredList(run) {
  const bags = referred(run);
  const inside = bags.filter((bag) => setName(bag) === "");
  const chips = inside.slice(0, LISTED).map((bag) => {
    const wrong = labels[bag] >= 0 && predictedBy(run, bag) !== labels[bag];
    const open = element("button", { type: "button", title: data.bags.id[bag], onclick: () => openBag(bag) }, data.bags.id[bag]);
    if (wrong) open.append(element("span", { class: "wrong" }, " wrong"));
    return element("li", {}, open);
  });
  const more = inside.length - chips.length;
  const foreign = data.bags.sets.map((name, set) => {
    if (name === "") return null;
    const all = [...shared.keys()].filter((bag) => sets[bag] === set && shared[bag]).length;
    const out = bags.filter((bag) => sets[bag] === set).length;
    return element("li", {}, `${name}: ${count(out)} of ${count(all)} out-of-distribution bags are referred at the same threshold (${percent(out / all)})`);
  });
  const show = element("button", { type: "button", onclick: showReferred }, bags.length === 1 ? "Show the referred bag in the table" : `Show all ${count(bags.length)} referred bags in the table`);
  const parts = [
    element("p", {}, inside.length ? `Referred, the least certain first${more > 0 ? ` (${count(more)} more are not named here)` : ""}:` : "No bag is referred of those that are not known to be out of distribution."),
    element("ul", { class: "chips" }, ...chips),
    element("ul", {}, ...foreign),
    bags.length ? show : null,
  ];
  return parts.filter((part) => part !== null);
}

function startCoverage() {
  fillSelect("coverage-level", levelOptions, "bags", () => { fillCoverageMeasures(); drawCoverage(); });
  fillSelect("coverage-run", runOptions, 0, drawCoverage);
  byId("coverage-measure").onchange = drawCoverage;
  byId("coverage-slider").addEventListener("input", moveSlider);
  fillCoverageMeasures();
  draws.push(drawCoverage);
}

function fillCoverageMeasures() {
  const names = measuresOf(byId("coverage-level").value).map((name) => [name, named(name)]);
  fillSelect("coverage-measure", [["", "the usual one of each method"], ...names]);
}
