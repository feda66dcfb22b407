// Everything is drawn once, and again when the color scheme changes or the page is printed.
startChoices();
startFigures();
startCoverage();
startBags();
startBag();
draws.push(drawInstances);
for (const draw of draws) draw();
sayChoices();
openLinked();
dark.addEventListener("change", () => { for (const draw of draws) draw(); });
const PRINTED = 640; // pixels across a printed page
window.addEventListener("beforeprint", () => {
  drawAllBags(true);
  for (const details of document.querySelectorAll("#provenance details")) details.open = true;
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    Plotly.relayout(plot, { width: plot.classList.contains("square") ? 440 : PRINTED, height: plot.classList.contains("square") ? 440 : 380, autosize: false });
  }
});
window.addEventListener("afterprint", () => {
  drawAllBags(false);
  for (const plot of document.querySelectorAll(".js-plotly-plot")) Plotly.relayout(plot, { width: null, height: null, autosize: true });
});
document.documentElement.dataset.ready = "yes";
