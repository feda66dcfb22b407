// Risk and coverage: the curves of all runs, and a slider on one of them.
const LISTED = 10; // bags named below the slider

function coverageCurve(level, run) { // {kept, errors, low, high, total} or {reason}
  const found = data.levels[level][run];
  if (!found) return { reason: "no predictions of instances" };
  const measure = measureFor(level, run, "confidence");
  if (!(measure in found.distributions)) return { reason: `no measure "${named(measure)}"` };
  if (!found.coverage.reason) {
    const curve = found.coverage[measure];
    return { ...curve, total: curve.kept[curve.kept.length - 1] };
  }
  if (level === "instances") return { reason: found.coverage.reason };
  const values = measureOf(run, measure).filter((value, bag) => shared[bag]).sort(); // referral needs no label
  const ends = [];
  values.forEach((value, place) => { if (value !== values[place + 1]) ends.push(place); });
  return { kept: ends.map((end) => end + 1), errors: null, total: values.length, reason: found.coverage.reason };
}

function referred(run) { // bags less certain than the slider's threshold, the least certain first
  const curve = coverageCurve("bags", run);
  const values = measureOf(run, measureFor("bags", run, "confidence"));
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
  const level = chosenLevel(), chosen = chosenRun();
  const curves = data.runs.map((run, number) => coverageCurve(level, number));
  const drawn = curves.map((curve, run) => ({ curve, run })).filter(({ curve }) => curve.errors);
  const why = curves[chosen].reason ?? (drawn.length ? "" : curves[0].reason);
  showMissing("coverage", why && anyLabelled ? `${data.runs[chosen].title}: ${why}` : "");
  byId("coverage-plot").hidden = drawn.length === 0;
  byId("coverage-slide").hidden = !curves[chosen].kept;
  if (drawn.length) {
    const traces = [...bandOf(curves[chosen], chosen), ...drawn.map(({ curve, run }) => ({
      x: curve.kept.map((kept) => kept / curve.total),
      y: curve.errors.map((errors, place) => errors / curve.kept[place]),
      name: plain(data.runs[run].title),
      mode: "lines",
      line: runLine(run, run === chosen ? 3 : 1.8),
      hovertemplate: `${plain(data.runs[run].title).replaceAll("%{", "% {")}<br>accept %{x:.0%}: %{y:.1%} incorrect<extra></extra>`,
    }))];
    traces.push({ x: [], y: [], mode: "markers", marker: { size: 13, color: runColour(chosen), line: { color: colour("card"), width: 2 } }, hoverinfo: "skip", showlegend: false });
    drawPlot("coverage-plot", traces, {
      xaxis: axis("coverage: share that is accepted", { range: [0, 1.02], tickformat: ".0%" }),
      yaxis: axis("selective risk", { range: [0, riskEnd(drawn, curves[chosen])], tickformat: ".1~%" }),
    });
  }
  moveSlider();
}

function bandOf(curve, run) { // between both ends of the exact interval
  if (!curve.errors) return [];
  const x = curve.kept.map((kept) => kept / curve.total);
  const shade = { color: "rgba(0,0,0,0)" };
  const ends = { mode: "lines", line: shade, hoverinfo: "skip", showlegend: false };
  return [{ ...ends, x, y: curve.low }, { ...ends, x, y: curve.high, fill: "tonexty", fillcolor: faint(runColour(run), 0.16) }];
}

function riskEnd(drawn, chosen) { // the lines fit, and the band where it is of some items
  const lines = drawn.flatMap(({ curve }) => curve.errors.map((errors, place) => (curve.kept[place] >= 5 ? errors / curve.kept[place] : 0)));
  const band = (chosen.high ?? []).filter((_, place) => chosen.kept[place] >= 0.2 * chosen.total);
  return Math.min(1, 1.1 * Math.max(0.01, ...lines, ...band));
}

function moveSlider() {
  const level = chosenLevel(), run = chosenRun();
  const curve = coverageCurve(level, run);
  if (!curve.kept) return;
  const place = sliderPlace(curve), last = curve.kept.length - 1, kept = curve.kept[place];
  const error = (at) => (curve.errors ? percent(curve.errors[at] / curve.kept[at], 2) : "— no labels");
  byId("coverage-share").textContent = percent(kept / curve.total);
  byId("coverage-by").textContent = named(measureFor(level, run, "confidence"));
  byId("coverage-slider").setAttribute("aria-valuetext", `${percent(kept / curve.total)} accepted`);
  byId("coverage-interval").textContent = curve.errors ? `${count(curve.errors[place])} of ${count(kept)}; ${percent(curve.low[place])} to ${percent(curve.high[place])}` : "";
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
  sayChoices();
}

function referredList(run) {
  const bags = referred(run);
  const inside = bags.filter((bag) => setName(bag) === "");
  const chips = inside.slice(0, LISTED).map((bag) => {
    const wrong = labels[bag] >= 0 && predictedBy(run, bag) !== labels[bag];
    const open = element("button", { type: "button", title: data.bags.id[bag], onclick: () => openBag(bag) }, data.bags.id[bag]);
    if (wrong) open.append(element("span", { class: "wrong" }, " incorrect"));
    return element("li", {}, open);
  });
  const more = inside.length - chips.length;
  const outside = data.bags.sets.map((name, set) => {
    if (name === "") return null;
    const all = [...shared.keys()].filter((bag) => sets[bag] === set && shared[bag]).length;
    const out = bags.filter((bag) => sets[bag] === set).length;
    return element("li", {}, `${name}: ${count(out)} of ${count(all)} out-of-distribution bags are deferred at the same threshold (${percent(out / all)})`);
  });
  const show = element("button", { type: "button", onclick: () => showFiltered("referred") }, bags.length === 1 ? "Show the deferred bag in the table" : `Show all ${count(bags.length)} deferred bags in the table`);
  const parts = [
    element("p", {}, inside.length ? `Deferred, the least certain first${more > 0 ? ` (${count(more)} more are not named here)` : ""}:` : "No bag is deferred of those that are not known to be out of distribution."),
    element("ul", { class: "chips" }, ...chips),
    element("ul", {}, ...outside),
    bags.length ? show : null,
  ];
  return parts.filter((part) => part !== null);
}

function startCoverage() {
  for (const part of document.querySelectorAll("#coverage .labelled")) part.hidden = !anyLabelled;
  byId("coverage-slider").addEventListener("input", moveSlider);
  whenChosen.push(drawCoverage);
  draws.push(drawCoverage);
}
