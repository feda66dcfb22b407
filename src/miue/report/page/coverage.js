// Risk and coverage: the curves of all runs, and a slider on one of them.
const LISTED = 10; // bags named below the slider

function coverageCurve(level, run) { // {accepted, errors, low, high, total} or {reason}
  const found = data.levels[level][run];
  if (!found) return { reason: "no predictions of instances" };
  const measure = measureFor(level, run, "confidence");
  if (!(measure in found.distributions)) return { reason: `no measure "${named(measure)}"` };
  if (!found.coverage.reason) {
    const curve = found.coverage[measure];
    return { ...curve, total: curve.accepted[curve.accepted.length - 1] };
  }
  if (level === "instances") return { reason: found.coverage.reason };
  const values = measureOf(run, measure).filter((value, bag) => shared[bag]).sort(); // deferral needs no label
  const ends = [];
  values.forEach((value, place) => { if (value !== values[place + 1]) ends.push(place); });
  return { accepted: ends.map((end) => end + 1), errors: null, total: values.length, reason: found.coverage.reason };
}

function acceptedUpTo(run) { // the uncertainty of bags up to which the slider accepts them; null where there is none
  const curve = coverageCurve("bags", run);
  const values = measureOf(run, measureFor("bags", run, "confidence"));
  if (!curve.accepted || !values) return null;
  const counted = (bag) => shared[bag] && (curve.errors === null || isLabeledInside(bag));
  return values.filter((value, bag) => counted(bag)).sort()[curve.accepted[sliderPlace(curve)] - 1];
}

function deferred(run) { // bags less certain than the slider's threshold, the least certain first
  const threshold = acceptedUpTo(run);
  if (threshold === null) return [];
  const values = measureOf(run, measureFor("bags", run, "confidence"));
  const bags = [...values.keys()].filter((bag) => values[bag] > threshold);
  return bags.sort((a, b) => values[b] - values[a]);
}

function sliderPlace(curve) { // the point of the curve nearest to the coverage that the slider asks for
  const wanted = (Number(byId("coverage-slider").value) / 100) * curve.total;
  let best = 0;
  curve.accepted.forEach((accepted, place) => { if (Math.abs(accepted - wanted) < Math.abs(curve.accepted[best] - wanted)) best = place; });
  return best;
}

function drawCoverage() {
  const level = chosenLevel(), chosen = chosenRun();
  const curves = data.runs.map((run, number) => coverageCurve(level, number));
  const drawn = curves.map((curve, run) => ({ curve, run })).filter(({ curve }) => curve.errors);
  const why = curves[chosen].reason ?? (drawn.length ? "" : curves[0].reason);
  showMissing("coverage", why && anyLabeled ? `${data.runs[chosen].title}: ${why}` : "");
  byId("coverage-plot").hidden = drawn.length === 0;
  byId("coverage-slide").hidden = !curves[chosen].accepted;
  if (drawn.length) {
    const traces = [...bandOf(curves[chosen], chosen), ...drawn.map(({ curve, run }) => ({
      x: curve.accepted.map((accepted) => accepted / curve.total),
      y: curve.errors.map((errors, place) => errors / curve.accepted[place]),
      name: wrapped(data.runs[run].title, IN_LEGEND),
      mode: "lines",
      line: runLine(run, run === chosen ? 3 : 1.8),
      hovertemplate: `${plain(data.runs[run].title).replaceAll("%{", "% {")}<br>accept %{x:.0%}: %{y:.1%} incorrect<extra></extra>`,
    }))];
    traces.push({ x: [], y: [], mode: "markers", marker: { size: 13, color: runColor(chosen), line: { color: color("card"), width: 2 } }, hoverinfo: "skip", showlegend: false });
    drawPlot("coverage-plot", traces, {
      xaxis: axis("coverage: share that is accepted", { range: [0, 1.02], tickformat: ".0%" }),
      yaxis: axis("selective risk", { range: [0, riskEnd(drawn, curves[chosen])], tickformat: ".1~%" }),
    });
  }
  moveSlider();
}

function bandOf(curve, run) { // between both ends of the exact interval
  if (!curve.errors) return [];
  const x = curve.accepted.map((accepted) => accepted / curve.total);
  const shade = { color: "rgba(0,0,0,0)" };
  const ends = { mode: "lines", line: shade, hoverinfo: "skip", showlegend: false };
  return [{ ...ends, x, y: curve.low }, { ...ends, x, y: curve.high, fill: "tonexty", fillcolor: faint(runColor(run), 0.16) }];
}

function riskEnd(drawn, chosen) { // the lines fit, and the band where it is of some items
  const lines = drawn.flatMap(({ curve }) => curve.errors.map((errors, place) => (curve.accepted[place] >= 5 ? errors / curve.accepted[place] : 0)));
  const band = (chosen.high ?? []).filter((_, place) => chosen.accepted[place] >= 0.2 * chosen.total);
  return Math.min(1, 1.1 * Math.max(0.01, ...lines, ...band));
}

function moveSlider() {
  const level = chosenLevel(), run = chosenRun();
  const curve = coverageCurve(level, run);
  if (!curve.accepted) return;
  const place = sliderPlace(curve), last = curve.accepted.length - 1, accepted = curve.accepted[place];
  const error = (at) => (curve.errors ? percent(curve.errors[at] / curve.accepted[at], 2) : "— no labels");
  byId("coverage-share").textContent = percent(accepted / curve.total);
  byId("coverage-by").textContent = named(measureFor(level, run, "confidence"));
  byId("coverage-slider").setAttribute("aria-valuetext", `${percent(accepted / curve.total)} accepted`);
  byId("coverage-interval").textContent = curve.errors ? `${count(curve.errors[place])} of ${count(accepted)}; ${percent(curve.low[place])} to ${percent(curve.high[place])}` : "";
  byId("coverage-error").textContent = error(place);
  byId("coverage-all").textContent = error(last);
  byId("coverage-accepted").textContent = `${count(accepted)} of ${count(curve.total)}`;
  byId("coverage-deferred").textContent = count(curve.total - accepted);
  if (curve.errors) {
    const drawn = byId("coverage-plot").data ?? [];
    const marker = drawn.length - 1;
    if (marker >= 0) Plotly.restyle("coverage-plot", { x: [[accepted / curve.total]], y: [[curve.errors[place] / accepted]] }, [marker]);
  }
  byId("coverage-list").replaceChildren(...(level === "bags" ? deferredList(run) : []));
  if (level === "bags") deferredChanged();
  sayChoices();
}

function deferredList(run) {
  const bags = deferred(run);
  const inside = bags.filter((bag) => setName(bag) === "");
  const chips = inside.slice(0, LISTED).map((bag) => {
    const wrong = judged(bag, run) === "incorrect";
    const open = element("button", { type: "button", title: data.bags.id[bag], onclick: () => openBag(bag) }, element("bdi", {}, data.bags.id[bag]));
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
  const show = element("button", { type: "button", onclick: () => showFiltered("deferred") }, bags.length === 1 ? "Show the deferred bag in the table" : `Show all ${count(bags.length)} deferred bags in the table`);
  const parts = [
    element("p", {}, inside.length ? `Deferred bags, least certain first${more > 0 ? ` (${count(more)} more not shown)` : ""}:` : "Of the bags that are not known to be out of distribution, none is deferred."),
    element("ul", { class: "chips" }, ...chips),
    element("ul", {}, ...outside),
    bags.length ? show : null,
  ];
  return parts.filter((part) => part !== null);
}

function startCoverage() {
  for (const part of document.querySelectorAll("#coverage .labeled")) part.hidden = !anyLabeled;
  byId("coverage-slider").addEventListener("input", moveSlider);
  whenChosen.push(drawCoverage);
  draws.push(drawCoverage);
}
