// Making elements, and asking the server. Text from data only ever becomes text.
export const byId = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { cache: "default", ...options });
  } catch {
    throw new Error("The server does not answer; start miue view again.");
  }
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer;
}

export const askJson = async (path, options) => (await ask(path, options)).json();

export function short(value, digits = 4) { // a number with this many digits, and all those before its point
  if (value == null || Number.isNaN(value)) return "—";
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-4) return value.toExponential(2);
  return size >= 10 ** digits ? value.toFixed(0) : String(Number(value.toPrecision(digits)));
}

export function percent(p) {
  return p > 0.9995 || p < 0.0005 ? `${(100 * p).toFixed(2)} %` : `${(100 * p).toFixed(1)} %`;
}
