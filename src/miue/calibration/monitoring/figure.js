// The figures, drawn again when the color scheme changes or the page is printed; that of each score once it is unfolded.
const { together, traces, layout } = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;

function colored(value) { // with the names of colors replaced by those of the page's style
  if (Array.isArray(value)) return value.map(colored);
  if (value === null || typeof value !== "object") return value;
  const color = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, /color$/.test(key) ? color(one) : colored(one)]));
}

function draw(size) {
  const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];
  for (const [id, lines] of [["figure", together], ["scores", traces]]) {
    const plot = document.getElementById(id);
    if (plot.closest("details:not([open])")) continue;
    Plotly.react(plot, lines.map(colored), { ...colored(layout), ...size }, { displaylogo: false, responsive: true, modeBarButtons: buttons });
  }
}

draw({ autosize: true });
document.querySelector("details").addEventListener("toggle", () => draw({ autosize: true }));
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw({ autosize: true }));
window.addEventListener("beforeprint", () => {
  root.dataset.printed = "yes"; // in light colors: paper is white
  draw({ width: 620, autosize: false });
});
window.addEventListener("afterprint", () => {
  delete root.dataset.printed;
  draw({ autosize: true });
});
root.dataset.ready = "yes";
