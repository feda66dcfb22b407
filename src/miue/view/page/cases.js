// The worklist: search, filters, and which cases have a verdict.
import { byId, make, percent } from "./elements.js";

const SHOWN = 200; // rows that are added at once

export class CaseList {
  constructor(run, verdicts, onOpen) {
    Object.assign(this, { run, verdicts, onOpen, open: null, limit: SHOWN });
    const look = [...new Set(run.cases.map((one) => one.look))], decided = [...new Set(run.cases.map((one) => one.decision).filter(Boolean))];
    const predicted = [...new Set(run.cases.map((one) => one.predicted))];
    const option = (value, text) => make("option", { value }, text);
    const group = (label, key, names) => names.length > 1 && make("optgroup", { label }, ...names.map((name) => option(JSON.stringify([key, name]), name)));
    byId("filter").replaceChildren(option("", `all ${run.cases.length.toLocaleString("en")}`), ...[
      group("Look", "look", look), group("Decision", "decision", decided), group("Predicted", "predicted", predicted),
    ].filter(Boolean));
    for (const id of ["search", "filter", "state"]) byId(id).addEventListener("input", () => { this.limit = SHOWN; this.draw(); });
    byId("more").onclick = () => { this.limit += SHOWN; this.draw(); };
    this.draw();
  }

  labelOf(one) {
    return this.verdicts.get(one.name)?.label ?? "";
  }

  get found() {
    const words = byId("search").value.trim().toLowerCase(), state = byId("state").value;
    const [key, name] = byId("filter").value ? JSON.parse(byId("filter").value) : [];
    return this.run.cases.filter((one) =>
      (!words || `${one.name} ${one.patient ?? ""} ${one.reason}`.toLowerCase().includes(words)) && (!key || one[key] === name)
      && (!state || (state === "done") === Boolean(this.labelOf(one))) || one === this.open);
  }

  draw() {
    const found = this.found;
    byId("list").replaceChildren(...found.slice(0, this.limit).map((one) => this.row(one)));
    byId("more").hidden = found.length <= this.limit;
    byId("count").textContent = found.length === this.run.cases.length ? this.run.order : `${found.length.toLocaleString("en")} of ${this.run.cases.length.toLocaleString("en")}`;
    const done = this.run.cases.filter((one) => this.labelOf(one)).length;
    byId("progress").textContent = `${done.toLocaleString("en")} of ${this.run.cases.length.toLocaleString("en")} reviewed`;
    byId("bar").firstElementChild.style.width = `${(100 * done) / this.run.cases.length}%`;
  }

  row(one) {
    const label = this.labelOf(one);
    const button = make("button", { type: "button", "aria-current": one === this.open ? "true" : null, onclick: () => this.onOpen(one) },
      make("span", { class: `dot ${label ? "done" : one.look}`, "aria-hidden": "true" }),
      make("span", { class: "name" }, one.name),
      make("span", { class: "predicted" }, one.probability == null ? one.predicted : `${one.predicted} ${percent(one.probability)}`),
      make("span", { class: "reason" }, label ? `verdict: ${label}` : one.reason || "routine"));
    return make("li", {}, button);
  }

  select(one) {
    this.open = one;
    if (this.found.indexOf(one) >= this.limit) this.limit = this.found.indexOf(one) + SHOWN;
    this.draw();
    byId("list").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  step(by) { // to the next case that is shown
    const found = this.found, place = found.indexOf(this.open) + by;
    if (found[place]) this.onOpen(found[place]);
  }
}
