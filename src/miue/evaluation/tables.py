"""The tables of an evaluation, for terminal, text and notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from miue.calibration import PREFERRED_MEASURES
from miue.common.errors import first_few
from miue.common.text import ResultTable
from miue.distributions import MEASURES
from miue.evaluation.class_metrics import METRICS, NAMED_METRICS, units
from miue.evaluation.decisions import DecisionEvaluation, GroupEvaluation
from miue.evaluation.instances import FLAG_TITLES, FLAGS_IN_PERCENT, FROC_TITLES, FlagEvaluation
from miue.evaluation.level import LevelEvaluation
from miue.evaluation.metrics import Metric, Separation
from miue.predictions import HIGH, MEAN, distance_of

if TYPE_CHECKING:
    from miue.evaluation.decisions import GroupEvaluation

OF_DECISIONS = ("accepted", "deferred", "flagged", "selective_risk", "coverage")
"""What is shown of the decisions of a group."""
NO_SUCH_SET = "no item of this out-of-distribution set at this level"

MOST_CLASSES = 10  # that are listed with their numbers of items
BEFORE_RECALLS = ("accuracy", "ue", "auroc", "balanced_accuracy")
DECISION_TITLES = {
    "accepted": "accepted",
    "deferred": "deferred to a person",
    "flagged": "called out of distribution",
    "false_alarms": "false alarms, of those in distribution",
    "selective_risk": "selective risk",
    "coverage": "label in its set",
    "set_size": "labels in a set, mean",
    "bound_coverage": "no event before the bound",
    "empty_sets": "empty sets",
    "single_sets": "sets of one label",
    "ece": "ECE, calibrated",
    "brier": "Brier, calibrated",
    "nll": "NLL, calibrated",
}


def level_table(levels: Mapping[str, LevelEvaluation], classes: Sequence[str]) -> ResultTable:
    """Return metrics as rows and levels as columns; shares in percent, "—" with its reason where undefined.

    Rows and levels without any value are left out; notes name them, with the reason.

    Args:
        levels: by their names.
        classes: names in order.
    """
    headings = [f"{name} ({level.count:,})" for name, level in levels.items()]
    rows = list(_rows(list(levels.values()), classes))
    columns = [n for n in range(len(levels)) if any(_has_value(row.metrics[n]) for row in rows)]
    notes = list(_notes(levels, classes)) if columns else []
    missing = {headings[n]: rows[0].reasons([n]) for n in range(len(levels)) if n not in columns}
    notes += [f"No metric of {heading}: {reason}" for heading, reason in missing.items() if reason]
    cells, reasons, undefined = list[tuple[str, ...]](), list[str](), dict[str, list[str]]()
    for row in rows if columns else ():
        shown = [row.metrics[n] for n in columns]
        if any(map(_has_value, shown)):
            cells.append((row.title, *(metric_cell(metric, row.in_percent, reasons) for metric in shown)))
        else:
            undefined.setdefault(row.reasons(columns), []).append(row.title)
    notes += [f"No value of {'; '.join(titles)}: {reason}" for reason, titles in undefined.items()]
    heading = ("metric", *(headings[n] for n in columns))
    return ResultTable(heading, tuple(cells), (*notes, *numbered(reasons)))


def _notes(levels: Mapping[str, LevelEvaluation], classes: Sequence[str]) -> Iterator[str]:
    """Yield what values are in, and which items the metrics are of."""
    yield units()
    own = dict.fromkeys(name for level in levels.values() for name in level.metrics if name not in METRICS)
    if own:
        yield f"Not in %: {', '.join(map(_title, own))}."
    counted = []
    for name, one in levels.items():
        of_classes = (f"{c} ({n:,})" for c, n in zip(classes, map(sum, one.confusion), strict=True))
        counted += [f"{name} {first_few(of_classes, MOST_CLASSES)}"] * bool(one.labeled and not one.is_numeric)
    if counted:
        yield f"Items of the class metrics: {'; '.join(counted)}."
    labeled = {name: (one.labeled, one.count - one.out_of_distribution) for name, one in levels.items()}
    some = [f"{count:,} of {total:,} {name}" for name, (count, total) in labeled.items() if 0 < count < total]
    if some:
        note = f"With a label: {', '.join(some)}. Class metrics use these."
        if "patients" in levels and levels["patients"].labeled < levels["patients"].count:
            note += " A patient has a label where all labeled bags have the same."
        yield note
    known = {name: one.in_distribution + one.out_of_distribution for name, one in levels.items()}
    unknown = [
        f"{one.count - known[name]:,} of {one.count:,} {name}"
        for name, one in levels.items()
        if known[name] < one.count
    ]
    if unknown:
        yield (
            f"Not known to be in or out of distribution: {', '.join(unknown)}. They count for class metrics if "
            "they have a label, but not for OOD metrics."
        )


def decision_table(
    evaluation: DecisionEvaluation, classes: Sequence[str], *, is_numeric: bool = False
) -> ResultTable:
    """Return what the decisions came to, in percent of bags not known to be out of distribution.

    Args:
        evaluation: of the decisions.
        classes: names in order.
        is_numeric: whether labels are numbers, of which what has no value is left out.
    """
    reasons, rows = list[str](), list[tuple[str, str]]()
    metrics = {name: one for name, one in evaluation.metrics.items() if not is_numeric or one.value is not None}
    for key, title in DECISION_TITLES.items():
        if key not in metrics:
            continue
        in_percent = key not in ("set_size", "brier", "nll")
        shown = metric_cell(metrics[key], in_percent, reasons)
        if key == "selective_risk" and metrics[key].value is not None:
            low, high = (
                metric_cell(metrics[name], True, reasons) for name in ("selective_risk_low", "selective_risk_high")
            )
            shown += f" ({low} to {high})"
        rows.append((title, shown))
    for number, metric in evaluation.coverage_by_class.items():
        rows.append((f"label in its set, class {classes[int(number)]}", metric_cell(metric, True, reasons)))
    for name in evaluation.found:
        rows.append((f"{name}: called out of distribution", metric_cell(evaluation.found[name], True, reasons)))
        stopped = metric_cell(evaluation.not_accepted[name], True, reasons)
        rows.append((f"{name}: deferred or called out of distribution", stopped))
    units = (
        "In % of the bags that are not known to be out of distribution; false alarms, in % of those known to be "
        "in distribution; mean number of labels, Brier from 0 to 2, NLL in nats. The selective risk (the error "
        "among the accepted bags) has its 95 % interval (exact; wider where patients are known to have several "
        "bags, which depend on each other)."
    )
    if is_numeric:
        units = "In % of the bags that are not known to be out of distribution; mean number of intervals in a set."
    notes = [units, *numbered(reasons)]
    if evaluation.metrics["empty_sets"].value:
        notes.append(
            "An empty set: no class is probable enough. A person should look at the bag, also where it is "
            "accepted. A model that is right more often than the coverage that was asked for has many."
        )
    return ResultTable(("decisions of bags", ""), tuple(rows), tuple(notes))


def instance_table(
    froc: Mapping[str, Metric] | None, flags: FlagEvaluation | None, notes: Sequence[str] = ()
) -> ResultTable:
    """Return the sensitivity at rates of false positives, and what the flags came to beside their promise.

    Args:
        froc: the sensitivities; None for none.
        flags: the flags; None for none.
        notes: of which class is negative.
    """
    reasons, rows, notes = list[str](), list[tuple[str, str]](), [*notes]
    units = "In %." if flags is None else "In %; the controlled risk and the mean number of flags are not."
    for name, metric in (froc or {}).items():
        rows.append((FROC_TITLES[name], metric_cell(metric, True, reasons)))
    if flags is not None:
        for name, metric in flags.metrics.items():
            title = f"{FLAG_TITLES[name]}, at most {flags.level:g}" if name == "loss" else FLAG_TITLES[name]
            rows.append((title, metric_cell(metric, name in FLAGS_IN_PERCENT, reasons)))
        notes.append(f"Flagged where {flags.rule}; promised: {flags.promise}.")
    return ResultTable(
        ("instances, positive against negative", ""), tuple(rows), (units, *notes, *numbered(reasons))
    )


@dataclass(frozen=True)
class Row:
    """A metric of every level.

    Attributes:
        title: of the metric.
        metrics: of each level; None where a level has no such metric.
        in_percent: whether it is shown in percent.
    """

    title: str
    metrics: tuple[Metric | None, ...]
    in_percent: bool = True

    def reasons(self, levels: Sequence[int]) -> str:
        """Return why it is undefined at these levels, by their numbers."""
        found = [metric.reason for number in levels if (metric := self.metrics[number]) is not None]
        return "; ".join(dict.fromkeys(found))


def _rows(levels: Sequence[LevelEvaluation], classes: Sequence[str]) -> Iterator[Row]:
    sets = list(dict.fromkeys(name for level in levels for name in level.ood))
    columns = [{title: (metric, of) for title, metric, of in _metrics(level, sets, classes)} for level in levels]
    for title, in_percent in {title: of for column in columns for title, (_, of) in column.items()}.items():
        yield Row(title, tuple(column[title][0] if title in column else None for column in columns), in_percent)
    judged = [] if levels[0].is_numeric else levels
    for measure in reversed(PREFERRED_MEASURES):  # Conf. of a Dirichlet is by max alpha, as published
        used = [level for level in judged if measure in level.by_measure]
        if any(level.confidence_measure != measure for level in used):
            confs = (level.by_measure[measure].confidence.auroc if level in used else None for level in levels)
            yield Row(f"Conf., AUROC by {measure}", tuple(confs))
    for score in _own_scores(judged):
        confs = (
            level.by_measure[score].confidence.auroc if score in level.by_measure else None for level in levels
        )
        yield Row(f"Conf., AUROC by {score}", tuple(confs))
    for score in _scores(levels):
        for ood_set in sets:
            found = (_by_score(level, score, ood_set) for level in levels)
            yield Row(f"OOD {ood_set}, AUROC by {score}", tuple(found))


def _metrics(
    level: LevelEvaluation, sets: Sequence[str], classes: Sequence[str]
) -> Iterator[tuple[str, Metric, bool]]:
    """Yield title, value and whether it is in percent, of what every level has."""
    if level.is_numeric:
        yield from ((_title(name), metric, False) for name, metric in level.metrics.items())
        return
    absent = Separation.undefined(NO_SUCH_SET)
    separations = {"Conf.": level.confidence, **{f"OOD {name}": level.ood.get(name, absent) for name in sets}}
    yield METRICS["accuracy"].title, level.metrics["accuracy"], True
    yield from ((f"{name}, AUROC", one.auroc, True) for name, one in separations.items())
    if not sets:
        yield "OOD, AUROC", level.metrics["ue"], True
    yield METRICS["ue"].title, level.metrics["ue"], True
    for name, one in separations.items():
        yield f"{name}, AUPR", one.aupr, True
        yield f"{name}, FPR95", one.fpr95, True
    for key in ("auroc", "balanced_accuracy"):
        yield METRICS[key].title, level.metrics[key], True
    for title, recall in zip(_recall_titles(classes), level.recall_by_class.values(), strict=True):
        yield title, recall, True
    for key, named in METRICS.items():
        if key not in BEFORE_RECALLS:
            yield named.title, level.metrics[key], named.is_share
    yield from ((_title(name), metric, False) for name, metric in level.metrics.items() if name not in METRICS)


def _title(name: str) -> str:
    """Return the title of a metric that is none of classes: of a target, or of a user by its name."""
    return NAMED_METRICS[name].title if name in NAMED_METRICS else name


def _recall_titles(classes: Sequence[str]) -> list[str]:
    """Return the titles of the recalls of all classes, of two as they are called in diagnostics."""
    if len(classes) != 2:
        return [f"Recall of {name}" for name in classes]
    return [f"Specificity, recall of {classes[0]}", f"Sensitivity, recall of {classes[1]}"]


def _own_scores(levels: Sequence[LevelEvaluation]) -> list[str]:
    """Return the scores that are no distances, such as those that a user adds to a table."""
    names = list(dict.fromkeys(name for level in levels for name in level.by_measure))
    known = {*MEASURES, *PREFERRED_MEASURES}
    return [name for name in names if name not in known and distance_of(name, names) is None]


def _scores(levels: Sequence[LevelEvaluation]) -> list[str]:
    """Return the extra scores of OOD; a bag's "knn_mean" has the row of the instances' "knn", "knn_high" has none.

    A score that is no distance has a row, whatever its name ends in.
    """
    of_errors = {*MEASURES, *PREFERRED_MEASURES}
    names = [name for level in reversed(levels) for name in level.by_measure if name not in of_errors]
    distances = {name: distance_of(name, names) for name in names}
    shown = [name for name in names if distances[name] is None or name != f"{distances[name]}{HIGH}"]
    return list(dict.fromkeys(distances[name] or name for name in shown))


def _by_score(level: LevelEvaluation, score: str, ood_set: str) -> Metric:
    for name in (score, score + MEAN):
        if name in level.by_measure:
            found = level.by_measure[name].ood.get(ood_set)
            return found.auroc if found else Metric.undefined(NO_SUCH_SET)
    return Metric.undefined(f"no score {score!r} at this level")


def _has_value(metric: Metric | None) -> bool:
    return metric is not None and metric.value is not None


def group_tables(groups: Mapping[str, GroupEvaluation], classes: Sequence[str]) -> Iterator[ResultTable]:
    """Yield the metrics with a row for each group, and what decisions came to where there are any.

    Args:
        groups: by name.
        classes: names in order.
    """
    yield _metrics_by_group(groups, classes)
    decisions = {name: one.decisions for name, one in groups.items() if one.decisions is not None}
    if decisions:
        yield decisions_by_group(decisions)


def _metrics_by_group(groups: Mapping[str, GroupEvaluation], classes: Sequence[str]) -> ResultTable:
    two, reasons, rows = len(classes) == 2, list[str](), list[tuple[str, ...]]()
    for name, one in groups.items():
        metrics = one.bags.metrics
        by_class = one.bags.recall_by_class.values() if two else (metrics["balanced_accuracy"],)
        accuracy, *shares = (
            metric_cell(metric, True, reasons, decimals=1)
            for metric in (metrics["accuracy"], *by_class, metrics["auroc"])
        )
        nll = metric_cell(metrics["nll"], False, reasons)
        rows.append((name, f"{one.bags.labeled:,}", accuracy, _interval(one), *shares, nll))
    of_classes = ("spec.", "sens.") if two else ("balanced acc.",)
    notes = [
        "Labeled bags not known to be out of distribution, in %; NLL in nats. The interval is that of the "
        "accuracy (exact; wider where patients are known to have several bags, which depend on each other)."
    ]
    if two:
        notes.append(
            f"Specificity (spec.) is the recall of {classes[0]}, sensitivity (sens.) that of {classes[1]}."
        )
    if len(rows) > 2:
        notes.append("Of many groups, some differ by chance alone: compare their intervals.")
    heading = ("group", "labeled", "Acc.", "95 % interval", *of_classes, "AUROC", "NLL")
    return ResultTable(heading, tuple(rows), (*notes, *numbered(reasons)))


def decisions_by_group(groups: Mapping[str, DecisionEvaluation], heading: str = "group") -> ResultTable:
    """Return what decisions came to, with a row for each group, or for what else is told apart."""
    reasons, rows = list[str](), list[tuple[str, ...]]()
    for name, one in groups.items():
        rows.append((name, *(metric_cell(one.metrics[key], True, reasons, decimals=1) for key in OF_DECISIONS)))
    columns = (heading, "accepted", "deferred", "called OOD", "selective risk", "label in set")
    notes = (
        "Decisions of bags not known to be out of distribution, in %; label in set: of the prediction set.",
        *numbered(reasons),
    )
    return ResultTable(columns, tuple(rows), notes)


def _interval(group: GroupEvaluation) -> str:
    low, high = group.accuracy_low.value, group.accuracy_high.value
    return "" if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f}"


def numbered(reasons: Sequence[str]) -> list[str]:
    """Return the reasons below a table, by the numbers that ``metric_cell`` gives them."""
    return [f"[{number}] {reason}" for number, reason in enumerate(reasons, 1)]


def metric_cell(metric: Metric | None, percent: bool, reasons: list[str], decimals: int = 2) -> str:
    """Return a metric as text, "" for none; an undefined one as the number of its reason.

    Args:
        metric: the value, or why there is none.
        percent: whether it is shown in percent.
        reasons: of the table, which the reason joins.
        decimals: of a value in percent.
    """
    if metric is None:
        return ""
    if metric.value is None:
        if metric.reason not in reasons:
            reasons.append(metric.reason)
        return f"— [{reasons.index(metric.reason) + 1}]"
    return f"{100 * metric.value:.{decimals}f}" if percent else f"{metric.value:.4f}"
