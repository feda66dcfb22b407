// The figure, drawn again when the color scheme changes or the page is printed.
const { traces, layout } = JSON.parse(document.getElementById("data").textContent);
const plot = document.getElementById("figure");
const root = document.documentElement;

function colored(value) { // with the names of colors replaced by those of the page's style
  if (Array.isArray(value)) return value.map(colored);
  if (value === null || typeof value !== "object") return value;
  const color = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, /color$/.test(key) ? color(one) : colored(one)]));
}

function draw(size) {
  const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];
  Plotly.react(plot, traces.map(colored), { ...colored(layout), ...size }, { displaylogo: false, responsive: true, modeBarButtons: buttons });
}

draw({ autosize: true });
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
