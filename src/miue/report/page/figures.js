// Figures: how they look, reliability, and distributions.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const draws = []; // every figure is drawn again when the color scheme changes

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function runColor(run) {
  return color("run-" + (1 + (groupOf[run] % 8)));
}

function runLine(run, width) {
  return { color: runColor(run), width, dash: ["solid", "dash", "dot", "dashdot", "longdash"][placeInGroup[run] % 5] };
}

function faint(hex, opacity) {
  return hex + Math.round(255 * opacity).toString(16).padStart(2, "0");
}

function plain(text) { // plotly reads tags in texts; these must show as they are
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function wrapped(text, width, most = 3) { // in lines, as plotly breaks none itself and cuts off what does not fit
  const lines = [""];
  for (const word of String(text).split(/\s+/)) {
    const last = lines[lines.length - 1];
    if (last === "" || last.length + 1 + word.length <= width) lines[lines.length - 1] = last === "" ? word : last + " " + word;
    else lines.push(word);
  }
  const short = lines.flatMap((line) => line.match(new RegExp(`.{1,${width}}`, "gu")) ?? [""]);
  if (short.length > most) short[most - 1] = short[most - 1].slice(0, width - 1) + "…";
  return short.slice(0, most).map(plain).join("<br>");
}

const IN_LEGEND = 34; // letters of a line

function axis(title, more = {}) {
  const lines = { gridcolor: color("line"), linecolor: color("line"), zerolinecolor: color("line") };
  return { title: { text: title, standoff: 8 }, automargin: true, ...lines, ...more };
}

function drawPlot(id, traces, layout) {
  const whole = {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: color("ink"), family: getComputedStyle(document.body).fontFamily, size: 13 },
    margin: { l: 56, r: 14, t: 10, b: 46 },
    hovermode: "closest",
    hoverlabel: { bgcolor: color("card"), bordercolor: color("line"), font: { color: color("ink") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: color("quiet"), activecolor: color("ink") },
    legend: { orientation: "h", traceorder: "normal", y: 1.02, yanchor: "bottom", x: 0 },
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
  if (!byId("reliability")) return; // no item has a label
  const levels = data.levels[chosenLevel()];
  const traces = [
    { x: [0, 1], y: [0, 1], mode: "lines", line: { dash: "dot", color: color("quiet"), width: 1.5 }, hoverinfo: "skip", showlegend: false },
  ];
  const reasons = [], sizes = [];
  levels.forEach((level, run) => {
    if (!level || level.reliability.reason) {
      reasons.push(data.runs[run].title + ": " + (level ? level.reliability.reason : "no predictions of instances"));
      return;
    }
    const { confidence, accuracy, low, high, count: counts } = level.reliability;
    const text = counts.map((one, group) =>
      `${plain(data.runs[run].title)}<br>mean probability ${percent(confidence[group])}<br>correct ${percent(accuracy[group])} (${percent(low[group])} to ${percent(high[group])})<br>${count(one)} items`);
    const array = high.map((end, group) => end - accuracy[group]), arrayminus = low.map((end, group) => accuracy[group] - end);
    traces.push({ name: wrapped(data.runs[run].title, IN_LEGEND), hovertext: text, hoverinfo: "text", x: confidence, y: accuracy, mode: "lines+markers", line: runLine(run, 1.5), marker: { size: 8 }, error_y: { type: "data", symmetric: false, array, arrayminus, thickness: 1.5, width: 4, color: runColor(run) } });
    sizes.push(...counts);
  });
  const none = reasons.length === levels.length;
  showMissing("reliability", none ? reasons[0] : "");
  byId("reliability-groups").textContent = none ? "" : `Here, each point stands for ${range(sizes)} ${sizes.every((size) => size === 1) ? chosenLevel().slice(0, -1) : chosenLevel()}.`;
  if (none) return;
  const low = Math.min(Math.max(0, Math.floor(10 / classCount) / 10), ...levels.flatMap((one) => one?.reliability.low ?? [])) - 0.02;
  drawPlot("reliability-plot", traces, {
    xaxis: axis("probability of the predicted class", { range: [low, 1.02], tickformat: ".0%" }),
    yaxis: axis("share that is correct", { range: [low, 1.02], tickformat: ".0%" }),
  });
}

function range(values) {
  const low = Math.min(...values), high = Math.max(...values);
  return low === high ? count(low) : `${count(low)} to ${count(high)}`;
}

function drawOwn() { // the figures of the target, of the chosen predictions
  const sections = document.querySelectorAll(".own");
  const found = data.figures[chosenRun()];
  sections.forEach((section, number) => {
    const figure = found[number], id = `own-${number}`;
    showMissing(id, figure ? "" : data.runs[chosenRun()].title + " has no labels");
    byId(`${id}-caption`).textContent = figure?.caption ?? "";
    drawOwnTable(byId(`${id}-table`), figure?.table ?? []);
    if (figure) drawOwnPlot(`${id}-plot`, figure);
  });
}

function drawOwnTable(part, [head, ...rows]) {
  const cell = (tag, attributes) => (text, place) => element(place ? tag : "th", { ...attributes, class: place ? null : "text" }, text);
  part.parentElement.hidden = !head;
  part.replaceChildren(...(head ? [
    element("caption", { class: "hidden" }, "Numbers of the figure"),
    element("thead", {}, element("tr", {}, ...head.map(cell("th", { scope: "col" })))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((text, place) => cell(place ? "td" : "th", place ? {} : { scope: "row" })(text, place))))),
  ] : []));
}

function drawOwnPlot(id, figure) {
  const traces = figure.series.flatMap((series, number) => {
    const shade = figure.series.length > 1 ? color("run-" + (1 + (number % 8))) : runColor(chosenRun());
    return series.shape === "steps" ? steps(series, shade, number) : [points(series, shade)];
  });
  const values = figure.series.flatMap(({ x, y, low, high }) => [...x, ...y, ...low, ...high]);
  const ends = figure.shares === "xy" ? [0, 1] : [Math.min(...values), Math.max(...values)];
  if (figure.diagonal) traces.unshift({ x: ends, y: ends, mode: "lines", line: { dash: "dot", color: color("quiet"), width: 1.5 }, hoverinfo: "skip", showlegend: false });
  const share = (name) => (figure.shares.includes(name) ? { tickformat: ".0%", range: [-0.02, 1.02] } : {});
  drawPlot(id, traces, {
    xaxis: axis(figure.x, { ...share("x"), ...(figure.ticks ? { tickvals: figure.ticks, rangemode: "tozero" } : {}) }),
    yaxis: axis(figure.y, share("y")),
    showlegend: figure.series.length > 1,
  });
}

function points({ name, x, y, low, high }, shade) {
  const text = x.map((value, place) => `${plain(name)}<br>${decimal(value)}: ${decimal(y[place])}${low.length ? ` (${decimal(low[place])} to ${decimal(high[place])})` : ""}`);
  const array = high.map((end, place) => end - y[place]), arrayminus = low.map((end, place) => y[place] - end);
  const bars = low.length ? { error_y: { type: "data", symmetric: false, array, arrayminus, thickness: x.length > 30 ? 0.7 : 1.5, width: x.length > 30 ? 0 : 4, color: shade } } : {};
  return { name, x, y, hovertext: text, hoverinfo: "text", mode: "markers", marker: { size: x.length > 30 ? 6 : 9, color: shade }, ...bars };
}

function steps({ name, x, y, low, high }, shade, number) {
  const dash = ["solid", "dash", "dot", "dashdot", "longdash"][number % 5];
  const end = { x, mode: "lines", line: { color: "rgba(0,0,0,0)", shape: "hv" }, hoverinfo: "skip", showlegend: false };
  return [
    { ...end, y: low },
    { ...end, y: high, fill: "tonexty", fillcolor: faint(shade, 0.14) },
    { name, x, y, mode: "lines", line: { color: shade, width: 2, shape: "hv", dash }, hovertemplate: `${plain(name)}<br>%{x}: %{y:.0%}<extra></extra>` },
  ];
}

function drawDistributions() {
  const level = chosenLevel(), run = chosenRun();
  const found = data.levels[level][run];
  const measure = measureFor(level, run, "ood");
  const lacks = found && !(measure in found.distributions);
  byId("distributions-table").replaceChildren();
  byId("distributions-measure-text").textContent = "";
  showMissing("distributions", found ? (lacks ? `${data.runs[run].title} has no measure "${named(measure)}"` : "") : data.runs[run].title + " has no predictions of instances");
  if (!found || lacks) return;
  const { edges, groups } = found.distributions[measure];
  let outside = 0;
  const traces = groups.map((group) => {
    const shade = group.kind === "out" ? color("ood-" + (1 + (outside++ % 5))) : color(group.kind === "in" ? "in" : "unknown");
    const x = [edges[0], ...edges], y = [0, ...group.share, 0]; // from the axis up, along, and down again
    const text = y.map((share) => `${plain(group.name)}<br>${percent(share)} of ${count(group.count)} items`);
    const dash = group.kind === "unknown" ? "dot" : "solid";
    return { x, y, name: wrapped(group.name, IN_LEGEND), line: { color: shade, shape: "hv", width: 2, dash }, fill: "tozeroy", fillcolor: faint(shade, 0.18), mode: "lines", hovertext: text, hoverinfo: "text+x", showlegend: true };
  });
  drawPlot("distributions-plot", traces, {
    xaxis: axis(wrapped(`${named(measure)} (less certain\u00a0→)`, IN_LEGEND)),
    yaxis: axis("share of the set", { tickformat: ".0%", rangemode: "tozero" }),
    hovermode: "closest",
  });
  byId("distributions-measure-text").textContent = `Shown: ${named(measure)}, ${data.measures[measure].kind}: ${data.measures[measure].text}.`;
  drawDistributionNumbers(groups);
}

function drawDistributionNumbers(groups) {
  const detects = groups.some((group) => group.kind === "out");
  const head = ["set", chosenLevel(), "median (quartiles)", ...(detects ? ["OOD detection (AUROC)"] : [])].map((text, place) =>
    element("th", { scope: "col", class: place === 0 ? "text" : null }, text));
  const rows = groups.map((group) => {
    const detected = group.kind === "out" ? (group.auroc === null ? "— " + group.reason : percent(group.auroc)) : "";
    const [low, median, high] = group.quartiles.map(decimal);
    return element("tr", {}, element("th", { scope: "row", class: "text", title: group.name }, group.name),
      ...[count(group.count), `${median} (${low} to ${high})`, ...(detects ? [detected] : [])].map((text) => element("td", {}, text)));
  });
  byId("distributions-table").replaceChildren(element("caption", { class: "hidden" }, "Numbers of the figure"), element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

function startFigures() {
  whenChosen.push(drawReliability, drawDistributions);
  draws.push(drawReliability, drawDistributions);
}
