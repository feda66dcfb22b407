"""An evaluation as a table for a person."""

from __future__ import annotations

from miue.evaluation.decisions import DecisionEvaluation
from miue.evaluation.evaluate import Evaluation, LevelEvaluation
from miue.evaluation.metrics import Metric
from miue.measures import MEASURES
from miue.terminal import TextTable

Row = tuple[str, Metric, bool]  # name, value, whether it is shown in percent

TITLES = {
    "accuracy": "Acc.",
    "auroc": "AUROC of the class",
    "ece": "ECE",
    "brier": "Brier",
    "nll": "NLL",
    "aurc": "AURC",
    "ue": "UE, mean of Conf. and OOD",
}
DECISION_TITLES = {
    "kept": "kept",
    "referred": "referred to a human",
    "flagged": "called out of distribution (false alarms)",
    "error_among_kept": "error among the kept",
    "coverage": "label in its set",
    "set_size": "labels in a set, mean",
    "empty_sets": "empty sets",
    "single_sets": "sets of one label",
    "ece": "ECE, calibrated",
    "brier": "Brier, calibrated",
    "nll": "NLL, calibrated",
}
IN_PERCENT = {"accuracy", "auroc", "ece", "aurc", "ue"}


def evaluation_table(evaluation: Evaluation) -> TextTable:
    """Return metrics as rows and levels as columns; shares in percent, "—" with its reason where undefined."""
    named = {"bags": evaluation.bags, "instances": evaluation.instances, "patients": evaluation.patients}
    present = {name: level for name, level in named.items() if level is not None}
    levels = list(present.values())
    table = TextTable(title="Evaluation")
    table.add_column("metric")
    for name, level in present.items():
        table.add_column(f"{name} ({level.count:,})", justify="right")
    reasons: list[str] = []
    for rows in zip(*(_rows(level) for level in levels), strict=True):
        table.add_row(rows[0][0], *(_cell(metric, percent, reasons) for _, metric, percent in rows))
    for score in _scores(levels):
        for ood_set in levels[0].ood:
            found = [_by_score(level, score, ood_set) for level in levels]
            table.add_row(f"OOD {ood_set}, AUROC by {score}", *(_cell(one, True, reasons) for one in found))
    units = "Shares in %. Brier in [0, 2], NLL in nats."
    table.caption = "\n".join([units, *(f"[{i}] {reason}" for i, reason in enumerate(reasons, 1))])
    return table


def decision_table(evaluation: DecisionEvaluation) -> TextTable:
    """Return what the decisions came to, in percent of in-distribution bags unless said otherwise."""
    table = TextTable("decisions of bags")
    table.add_column("", justify="right")
    metrics, reasons = evaluation.metrics, list[str]()
    for key, title in DECISION_TITLES.items():
        in_percent = key not in ("set_size", "brier", "nll")
        shown = _cell(metrics[key], in_percent, reasons)
        if key == "error_among_kept" and metrics[key].value is not None:
            low, high = (_cell(metrics[name], True, reasons) for name in ("error_low", "error_high"))
            shown += f" ({low} to {high})"
        table.add_row(title, shown)
    for name, metric in evaluation.coverage_by_class.items():
        table.add_row(f"label in its set, class {name}", _cell(metric, True, reasons))
    for name in evaluation.found:
        table.add_row(f"{name}: called out of distribution", _cell(evaluation.found[name], True, reasons))
        table.add_row(f"{name}: so called or referred", _cell(evaluation.not_kept[name], True, reasons))
    units = "In % of in-distribution bags; of the error among the kept, the exact 95 % interval."
    table.caption = "\n".join([units, *(f"[{i}] {reason}" for i, reason in enumerate(reasons, 1))])
    return table


def _rows(level: LevelEvaluation) -> list[Row]:
    separations = {"Conf.": level.confidence, **{f"OOD {name}": one for name, one in level.ood.items()}}
    rows: list[Row] = [(TITLES["accuracy"], level.metrics["accuracy"], True)]
    rows += [(f"{name}, AUROC", one.auroc, True) for name, one in separations.items()]
    rows.append((TITLES["ue"], level.metrics["ue"], True))
    for name, one in separations.items():
        rows += [(f"{name}, AUPR", one.aupr, True), (f"{name}, FPR95", one.fpr95, True)]
    for key in ("auroc", "ece", "brier", "nll", "aurc"):
        rows.append((TITLES[key], level.metrics[key], key in IN_PERCENT))
    return rows


def _scores(levels: list[LevelEvaluation]) -> list[str]:
    """Return the extra scores; a bag's "knn_mean" stands in the row of its instances' "knn"."""
    names = [name for level in reversed(levels) for name in level.by_measure if name not in MEASURES]
    return list(dict.fromkeys(name.removesuffix("_mean") for name in names if not name.endswith("_high")))


def _by_score(level: LevelEvaluation, score: str, ood_set: str) -> Metric:
    for name in (score, f"{score}_mean"):
        if name in level.by_measure:
            return level.by_measure[name].ood[ood_set].auroc
    return Metric.undefined(f"no score {score!r} at this level")


def _cell(metric: Metric, percent: bool, reasons: list[str]) -> str:
    if metric.value is None:
        if metric.reason not in reasons:
            reasons.append(metric.reason)
        return f"— [{reasons.index(metric.reason) + 1}]"
    return f"{100 * metric.value:.2f}" if percent else f"{metric.value:.4f}"
