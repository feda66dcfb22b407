// Everything is drawn once, and again when the colour scheme changes.
startFigures();
startCoverage();
startBags();
draws.push(drawInstances);
for (const draw of draws) draw();
dark.addEventListener("change", () => { for (const draw of draws) draw(); });
document.documentElement.dataset.ready = "yes";
