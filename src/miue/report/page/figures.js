// Figures: how they look, reliability, and distributions.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const draws = []; // every figure is drawn again when the colour scheme changes

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function runColour(run) {
  return colour("run-" + (1 + (groupOf[run] % 8)));
}

function runLine(run, width) {
  return { color: runColour(run), width, dash: ["solid", "dash", "dot", "dashdot", "longdash"][placeInGroup[run] % 5] };
}

function faint(hex, opacity) {
  return hex + Math.round(255 * opacity).toString(16).padStart(2, "0");
}

function plain(text) { // plotly reads tags in texts; these must show as they are
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function axis(title, more = {}) {
  const lines = { gridcolor: colour("line"), linecolor: colour("line"), zerolinecolor: colour("line") };
  return { title: { text: title, standoff: 8 }, automargin: true, ...lines, ...more };
}

function drawPlot(id, traces, layout) {
  const whole = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("ink"), family: getComputedStyle(document.body).fontFamily, size: 13 },
    margin: { l: 56, r: 14, t: 10, b: 46 },
    hovermode: "closest",
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("quiet"), activecolor: colour("ink") },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    ...layout,
  };
  const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];
  Plotly.react(byId(id), traces, whole, { displaylogo: false, responsive: true, modeBarButtons: buttons });
}

function showMissing(part, reason) { // a figure that cannot be drawn says why
  byId(part + "-missing").hidden = !reason;
  byId(part + "-missing").textContent = reason ? "— " + reason : "";
  byId(part + "-plot").hidden = Boolean(reason);
}

function drawReliability() {
  const levels = data.levels[byId("reliability-level").value];
  const traces = [
    { x: [0, 1], y: [0, 1], mode: "lines", line: { dash: "dot", color: colour("quiet"), width: 1.5 }, hoverinfo: "skip", showlegend: false },
  ];
  const reasons = [];
  levels.forEach((level, run) => {
    if (!level || level.reliability.reason) {
      reasons.push(data.runs[run].title + ": " + (level ? level.reliability.reason : "no predictions of instances"));
      return;
    }
    const { centre, confidence, accuracy, count: counts } = level.reliability;
    const total = counts.reduce((sum, one) => sum + one, 0);
    const text = counts.map((one, bin) =>
      `${plain(data.runs[run].title)}<br>said ${percent(confidence[bin])}, right ${percent(accuracy[bin])}<br>${count(one)} items`);
    const look = { name: plain(data.runs[run].title), legendgroup: run, hovertext: text, hoverinfo: "text" };
    traces.push({ ...look, x: confidence, y: accuracy, mode: "lines+markers", line: runLine(run, 2), marker: { size: 8 } });
    traces.push({ ...look, type: "bar", x: centre, y: counts.map((one) => one / total), yaxis: "y2", showlegend: false, marker: { color: faint(runColour(run), 0.75 - 0.25 * (placeInGroup[run] % 3)) } });
  });
  const none = reasons.length === levels.length;
  showMissing("reliability", none ? reasons[0] : "");
  if (none) return;
  const low = Math.max(0, Math.floor(10 / classCount) / 10 - 0.02);
  drawPlot("reliability-plot", traces, {
    xaxis: axis("probability of the predicted class", { range: [low, 1.02], tickformat: ".0%", anchor: "y2" }),
    yaxis: axis("share that is right", { range: [-0.03, 1.04], tickformat: ".0%", domain: [0.3, 1] }),
    yaxis2: axis("items", { domain: [0, 0.2], tickformat: ".0%", rangemode: "tozero", nticks: 3 }),
    barmode: "group",
    bargap: 0.3,
  });
}

function drawDistributions() {
  const level = byId("distributions-level").value;
  const run = Number(byId("distributions-run").value);
  const found = data.levels[level][run];
  const options = found ? Object.keys(found.distributions).map((name) => [name, named(name)]) : [];
  const before = byId("distributions-measure").value;
  const measure = fillSelect("distributions-measure", options, options.some(([name]) => name === before) ? before : found?.defaults.ood);
  byId("distributions-table").replaceChildren();
  byId("distributions-measure-text").textContent = "";
  showMissing("distributions", found ? "" : data.runs[run].title + " has no predictions of instances");
  if (!found) return;
  const { edges, groups } = found.distributions[measure];
  let foreign = 0;
  const traces = groups.map((group) => {
    const shade = group.kind === "out" ? colour("foreign-" + (1 + (foreign++ % 5))) : colour(group.kind === "in" ? "inside" : "bar");
    const x = [edges[0], ...edges], y = [0, ...group.share, 0]; // from the axis up, along, and down again
    const text = y.map((share) => `${plain(group.name)}<br>${percent(share)} of ${count(group.count)} items`);
    return { x, y, name: plain(group.name), line: { color: shade, shape: "hv", width: 2 }, fill: "tozeroy", fillcolor: faint(shade, 0.18), mode: "lines", hovertext: text, hoverinfo: "text+x" };
  });
  drawPlot("distributions-plot", traces, {
    xaxis: axis(named(measure) + "  (less certain →)"),
    yaxis: axis("share of the set", { tickformat: ".0%", rangemode: "tozero" }),
    hovermode: "closest",
  });
  byId("distributions-measure-text").textContent = `Shown: ${named(measure)}, ${data.measures[measure].kind}: ${data.measures[measure].text}.`;
  drawDistributionNumbers(groups);
}

function drawDistributionNumbers(groups) {
  const head = ["set", byId("distributions-level").value, "median", "AUROC against known in distribution"].map((text, place) =>
    element("th", { scope: "col", class: place === 0 ? "text" : null }, text));
  const rows = groups.map((group) => {
    const detected = group.kind === "out" ? (group.auroc === null ? "— " + group.reason : percent(group.auroc)) : "";
    return element("tr", {}, element("th", { scope: "row", class: "text", title: group.name }, group.name),
      ...[count(group.count), decimal(group.median), detected].map((text) => element("td", {}, text)));
  });
  byId("distributions-table").replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

function startFigures() {
  fillSelect("reliability-level", levelOptions, "bags", drawReliability);
  fillSelect("distributions-level", levelOptions, "bags", drawDistributions);
  fillSelect("distributions-run", runOptions, 0, drawDistributions);
  byId("distributions-measure").onchange = drawDistributions;
  draws.push(drawReliability, drawDistributions);
  for (const swatch of document.querySelectorAll(".swatch")) swatch.style.background = `var(--run-${1 + (groupOf[swatch.dataset.run] % 8)})`;
}
