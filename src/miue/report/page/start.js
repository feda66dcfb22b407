// Everything is drawn once, and again when the color scheme changes or the page is printed.
startChoices();
startFigures();
startCoverage();
startBags();
startBag();
draws.push(drawInstances, drawOwn);
whenChosen.push(drawOwn);
drawAll();
sayChoices();
openLinked();
dark.addEventListener("change", drawAll);
const PRINTED = { plot: [640, 300], square: [400, 400] }; // pixels on a printed page, as in report.css
window.addEventListener("beforeprint", () => {
  document.documentElement.dataset.printed = "yes"; // in light colors: paper is white
  drawAll();
  drawAllBags(true);
  const provenance = document.querySelector("#provenance details");
  provenance.dataset.before ??= provenance.open;
  provenance.open = true;
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    const [width, height] = PRINTED[plot.classList.contains("square") ? "square" : "plot"];
    Plotly.relayout(plot, { width, height, autosize: false });
  }
});
window.addEventListener("afterprint", () => {
  delete document.documentElement.dataset.printed;
  drawAll();
  drawAllBags(false);
  const provenance = document.querySelector("#provenance details");
  provenance.open = provenance.dataset.before === "true";
  delete provenance.dataset.before;
  for (const plot of document.querySelectorAll(".js-plotly-plot")) Plotly.relayout(plot, { width: null, height: null, autosize: true });
});
document.documentElement.dataset.ready = "yes";

function drawAll() {
  for (const draw of draws) draw();
}
