// The panel of a bag: its prediction and why it is on the list, verdict and note, the patches to look at.
import { byId, make, percent, short } from "./elements.js";

const TOP = 8; // patches shown as pictures

export class BagPanel {
  constructor(run, verdicts, actions) {
    Object.assign(this, { run, verdicts, actions, bag: null, one: null });
  }

  show(one, bag) {
    Object.assign(this, { one, bag });
    this.verdict = make("section", { class: "verdict" });
    this.patch = make("section", { class: "patch" });
    this.top = make("section", { class: "top" });
    const patient = bag.patient && bag.patient !== bag.name ? [make("p", { class: "quiet" }, `patient ${bag.patient}`)] : [];
    byId("bag").replaceChildren(make("h2", {}, bag.name), ...patient, this.why(), this.prediction(), this.verdict, this.patch, this.top, this.details());
    this.drawVerdict();
    this.drawPatch(null);
  }

  why() {
    const { one, bag } = this;
    const decision = bag.decision ?? (one.look === "first" ? "look first" : one.look), reason = one.reason || bag.reason;
    const isSaid = reason.includes(decision);
    return make("p", { class: `why ${one.look}` }, isSaid ? null : make("strong", {}, `${decision} `), reason);
  }

  prediction() {
    const { bag, run } = this;
    const ranked = bag.probabilities.map((p, k) => [p, run.classes[k], k]);
    if (ranked.length > 8) ranked.sort((a, b) => b[0] - a[0]).splice(8);
    const rows = ranked.map(([p, name]) => {
      const inSet = bag.set?.includes(name);
      return make("div", { class: "class" }, make("span", { class: "name" }, name, inSet ? make("span", { class: "in", title: "in the prediction set" }, "in set") : null),
        make("span", { class: "value" }, percent(p)), bar(p));
    });
    const values = Object.entries(bag.values).map(([name, value]) => make("div", { class: "fact" }, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, short(value))));
    const note = bag.isCalibrated ? "calibrated" : "not calibrated";
    return make("section", {}, make("h3", {}, "Prediction ", make("small", {}, note)), values.length ? make("dl", {}, ...values) : null, ...rows,
      bag.set && !bag.set.length ? make("p", { class: "quiet" }, "The prediction set is empty.") : null);
  }

  details() {
    const rows = this.bag.uncertainties.map((one) => make("tr", {}, make("th", { scope: "row", title: one.text }, one.name.replaceAll("_", " ")), make("td", {}, short(one.value))));
    return make("details", {}, make("summary", {}, "All measures of this bag"), make("table", {}, make("tbody", {}, ...rows)));
  }

  drawVerdict() {
    if (!this.one) return;
    const said = this.verdicts.get(this.one.name), label = said?.label ?? "";
    const labels = [...this.run.choices, this.run.cannotTell];
    const buttons = labels.map((name, k) => {
      const key = k === labels.length - 1 ? "0" : k < 9 ? String(k + 1) : "";
      return make("button", { type: "button", "aria-pressed": String(label === name), onclick: () => this.actions.say(name) }, name, key ? make("kbd", {}, key) : null);
    });
    const note = this.verdict.querySelector("textarea")?.value ?? said?.note ?? "";
    const isTyping = document.activeElement?.id === "note";
    this.verdict.replaceChildren(make("h3", {}, "Verdict"), make("div", { class: "choices", role: "group", "aria-label": "Verdict" }, ...buttons),
      make("label", {}, make("span", {}, "Note ", make("kbd", {}, "N")), make("textarea", { id: "note", rows: 2, maxlength: 4000, onchange: (event) => this.actions.keepNote(this.one, event.target.value) })),
      make("div", { class: "said" }, make("p", { class: "quiet", role: "status" }, this.status(said, label)),
        make("button", { type: "button", id: "undo", disabled: !this.actions.canUndo(), onclick: () => this.actions.undo() }, "Undo ", make("kbd", {}, "U"))));
    this.verdict.querySelector("textarea").value = note;
    if (isTyping) byId("note").focus();
  }

  status(said, label) {
    if (said?.waits) return "not written yet";
    if (!label) return said ? `taken back by ${said.person}` : "none yet";
    const time = new Date(said.time);
    return `by ${said.person}, ${Number.isNaN(time.getTime()) ? said.time : time.toLocaleString([], { dateStyle: "medium", timeStyle: "short" })}`;
  }

  get note() {
    return this.verdict?.querySelector("textarea")?.value ?? "";
  }

  drawTop(view, base) { // the patches with the highest value of the layer
    this.top.replaceChildren();
    if (!view.layer || !view.patches.count) return;
    const items = Array.from({ length: Math.min(TOP, view.patches.count) }, (_, rank) => {
      const patch = view.layer.highest(rank), value = short(view.layer.values[patch], 3);
      const open = () => { view.rank = rank; view.goTo(patch); };
      const picture = view.picture.isSlide ? make("img", { src: `${base}/patch/${patch}`, alt: "", loading: "lazy" }) : swatch(view, patch);
      return make("li", {}, make("button", { type: "button", onclick: open, "aria-label": `Patch ${view.patches.instance[patch]}, ${value}` }, picture, make("span", {}, value)));
    });
    this.top.append(make("h3", {}, "Highest ", make("small", {}, view.layer.about.title)), make("ol", { class: "pictures" }, ...items));
  }

  drawPatch(table) {
    this.patch.replaceChildren(...(table ? [make("h3", {}, "Patch"), table] : []));
  }
}

function bar(p) {
  const inner = make("i");
  inner.style.width = `${100 * p}%`;
  return make("span", { class: "bar", "aria-hidden": "true" }, inner);
}

function swatch(view, patch) {
  const block = make("i", { class: "swatch" });
  block.style.background = view.run.maps[view.layer.about.map][view.layer.color[patch]];
  return block;
}
