"""The answer on the first screen: how good the predictions are and what may be relied on, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from miue.bags.classes import names_or_numbers
from miue.calibration import PARTS, Calibration, count_patients, describe_negative_class, needed_by_default
from miue.common.errors import first_few
from miue.common.text import is_or_are, plural
from miue.evaluation import (
    RISK,
    DecisionEvaluation,
    Interval,
    LevelEvaluation,
    Metric,
    applied_negative_class,
    detection_score,
)
from miue.predictions import Decisions, PredictionTable, distance_of
from miue.report.levels import RunLevel
from miue.report.runs import Run
from miue.report.tables import metric_column

SETS = 3  # out-of-distribution sets in the verdict; the table of metrics has all
NO_NUMBERS = "No label is known, so errors cannot be measured; predictions with labels would add them."
NO_LABELS = (
    "No label is known, so accuracy, calibration and error detection cannot be measured; predictions with "
    "labels would add them."
)


@dataclass(frozen=True)
class Verdict:
    """What one set of predictions comes to.

    Attributes:
        title: of the run.
        sentences: in the order in which they should be read.
        metrics: of the bags, by the names of ``bootstrap_intervals``.
        intervals: of them.
        decisions: the metrics of the decisions; empty without any.
    """

    title: str
    sentences: list[str]
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    decisions: Mapping[str, Metric] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return sentences and numbers as JSON values; an undefined metric is null with its reason."""
        ends = {name: {"low": one.low, "high": one.high} for name, one in self.intervals.items()}
        metrics = {name: {**asdict(one), **ends.get(name, {})} for name, one in self.metrics.items()}
        decisions = {name: asdict(one) for name, one in self.decisions.items()}
        return {"title": self.title, "sentences": self.sentences, "metrics": metrics, "decisions": decisions}


def shared_sentences(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the sentences that hold for every one of several verdicts, to be said once.

    The first sentence of a verdict is its answer, which each says itself.
    """
    if len(verdicts) < 2:
        return []
    return [text for text in verdicts[0].sentences[1:] if all(text in one.sentences[1:] for one in verdicts)]


def judge_run(run: Run, level: RunLevel, outcome: DecisionEvaluation | None = None) -> Verdict:
    """Return what the predictions of bags come to, from the predictions alone.

    Args:
        run: the predictions.
        level: the metrics of their bags.
        outcome: the evaluation of the decisions of the bags; None without decisions.
    """
    table, evaluation = run.predictions.bags, level.evaluation
    classes = _class_words(run.predictions.provenance.classes, table.distribution.num_classes)
    decisions = table.decisions if _decides_bags(run) else None
    if not evaluation.labeled:
        sentences = [
            _predicted(table, decisions, classes) if table.has_classes else _predicted_numbers(table),
            *_trained_on(table),
            *_detection(level),
            *_calibration(run),
            NO_LABELS if table.has_classes else NO_NUMBERS,
        ]
    elif not table.has_classes:
        sentences = [
            *_own_metrics(level),
            *_trained_on(table),
            *_detection(level),
            *_calibration(run),
            *(_flagged(table, decisions, outcome) if decisions is not None and outcome is not None else []),
        ]
    else:
        calibrated = outcome.metrics["ece"].value if outcome else None
        sentences = [
            *_accuracy(level, are_calibrated=calibrated is not None),
            *_own_metrics(level),
            *_chance_level(level, outcome),
            *_trained_on(table),
            *_missed_classes(evaluation, classes),
            *_detection(level),
            *_calibration(run),
            *_calibrated(evaluation, calibrated),
            *(_decisions(table, decisions, outcome) if decisions is not None and outcome is not None else []),
        ]
    return Verdict(run.title, sentences, level.values, level.intervals, outcome.metrics if outcome else {})


def _percent(value: float, interval: Interval | None) -> str:
    if interval is None or interval.low is None or interval.high is None:
        return f"{100 * value:.1f}\u00a0%"
    return f"{100 * value:.1f}\u00a0% ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


def _accuracy(level: RunLevel, *, are_calibrated: bool) -> list[str]:
    """Return the accuracy, and how far the probabilities are from it; there may be calibrated ones beside them."""
    accuracy, mean = (level.values[name].value or 0.0 for name in ("accuracy", "mean_confidence"))
    of = plural(level.evaluation.labeled, "labeled bag")
    sentences = [f"Accuracy {_percent(accuracy, level.intervals.get('accuracy'))} on {of}."]
    interval = level.intervals.get("overconfidence")
    if interval is not None and interval.excludes_zero:
        low, high = sorted((abs(interval.low or 0.0), abs(interval.high or 0.0)))
        side = "high" if mean > accuracy else "low"
        which = "Probabilities before calibration" if are_calibrated else "Probabilities"
        sentences.append(
            f"{which} are too {side} by {100 * abs(mean - accuracy):.1f} points "
            f"({100 * low:.1f} to {100 * high:.1f}): mean confidence is {100 * mean:.1f}\u00a0%."
        )
    return sentences


def _chance_level(level: RunLevel, outcome: DecisionEvaluation | None) -> list[str]:
    """Return in which respect the model is no better than chance, or than the class shares of these bags."""
    auroc, interval = level.values["auroc"].value, level.intervals.get("auroc")
    calibrated = outcome.metrics["nll"].value if outcome else None
    nll = level.values["nll"].value if calibrated is None else calibrated
    counts = np.sum(level.evaluation.confusion, 1)
    if auroc is None or nll is None or counts.max() == counts.sum():
        return []
    shares = counts[counts > 0] / counts.sum()
    of_shares = float(-np.sum(shares * np.log(shares)))
    said = []
    if interval is not None and interval.low is not None and interval.low <= 0.5:
        shown = f"AUROC {_percent(auroc, interval)}, where chance is 50\u00a0%"
        said.append(f"These bags do not show that the model is better than chance: {shown}.")
    if nll >= of_shares:
        which = "Probabilities" if calibrated is None else "Calibrated probabilities"
        numbers = f"NLL {nll:.3f}, that of the shares {of_shares:.3f}"
        said.append(f"{which} are no better than the class shares of these bags: {numbers}.")
    return said


def _own_metrics(level: RunLevel) -> list[str]:
    """Return the metrics of the target that say the most, and those that are no better than chance."""
    target = level.table.target
    if target is None:
        return []
    said, chance = [], []
    for name in target.headline:
        value, interval, named = level.values[name].value, level.intervals.get(name), target.own_metrics[name]
        if value is None:
            continue
        column = metric_column(name, {})
        text = f"{named.title} {column.show(value)}"
        if interval is not None and interval.low is not None and interval.high is not None:
            text += f" ({column.show(interval.low)} to {column.show(interval.high)})"
            if named.chance is not None and interval.low <= named.chance:
                chance.append(f"{named.title} is {named.chance:g} by chance")
        said.append(text)
    if not said:
        return []
    of = plural(level.evaluation.labeled, "labeled bag")
    sentences = [f"{', '.join(said)} on {of}."]
    if chance:
        sentences.append(f"These bags do not show that the model is better than chance: {', '.join(chance)}.")
    return sentences


def _flagged(table: PredictionTable, decisions: Decisions, outcome: DecisionEvaluation) -> list[str]:
    """Return how many bags are flagged, and of how many what was stated of the number holds."""
    flagged = int(decisions.flagged.sum())
    said = f"Of {plural(len(table), 'bag')}, {flagged:,} {is_or_are(flagged)} flagged as out of distribution"
    words = {
        "coverage": "of the prediction sets contain the label",
        "bound_coverage": "have no event before their bound",
    }
    shares = {text: outcome.metrics[name].value for name, text in words.items() if name in outcome.metrics}
    held = [f"; {_percent(share, None)} {text}" for text, share in shares.items() if share is not None]
    return [f"{said}{''.join(held)}."]


def _predicted_numbers(table: PredictionTable) -> str:
    """Return the range of what is predicted first."""
    name, values = next(iter(table.predicted_values().items()))
    low, middle, high = np.quantile(values, (0, 0.5, 1))
    return f"Predicted {name} of {plural(len(table), 'bag')}: {low:.4g} to {high:.4g}, median {middle:.4g}."


def _trained_on(table: PredictionTable) -> list[str]:
    """Return how many bags the model was trained on: it is right more often on them than on new ones."""
    count = int(table.trained_on.sum())
    return (
        [
            f"The model was trained on {count:,} of these {plural(len(table), 'bag')}, or on others of their "
            "patients: on new bags expect less. Report on bags that took no part in training."
        ]
        if count
        else []
    )


def _missed_classes(level: LevelEvaluation, classes: Sequence[str]) -> list[str]:
    """Return of which classes no labeled bag is predicted correctly, as of a rare one that is never predicted."""
    missed = [
        f"{classes[number]} (0 of {sum(predicted):,})"
        for number, predicted in enumerate(level.confusion)
        if any(predicted) and not predicted[number]
    ]
    return [f"No bag of {first_few(missed)} is predicted correctly."] if missed else []


def _class_words(classes: Sequence[str], count: int) -> list[str]:
    """Return the names of classes as they are called within a sentence."""
    words = names_or_numbers(classes, count)
    return [f"class {word}" if word.isdecimal() else word for word in words]


def _detection(level: RunLevel) -> list[str]:
    table, found = level.table, level.evaluation.ood
    sentences, names = [], [name for name, one in found.items() if one.auroc.value is not None]
    for name in names[:SETS]:
        keys = {detection_score(table): f"detection {name}", level.evaluation.ood_measure: f"ood {name}"}
        said = [
            f"{_percent(value, level.intervals.get(key))} by {_called(measure)}"
            for measure, key in keys.items()
            if (value := level.values[key].value) is not None
        ]
        count = plural(int((table.ood_sets == name).sum()), "bag")
        sentences.append(f"OOD detection ({name}, {count}): AUROC {', '.join(said)}.")
    if more := len(names[SETS:]):
        sets = plural(more, "more out-of-distribution set")
        sentences.append(f"{sets} {is_or_are(more)} in the table of metrics.")
    return sentences


def _called(measure: str) -> str:
    name = measure.replace("_", " ")
    return f"distance ({name})" if distance_of(measure, [measure]) else name


def _calibration(run: Run) -> list[str]:
    if run.rules is not None:
        used = run.rules.bags_used
        said = f"Calibrated on {used}" if used else "Calibrated"
        said += "." if _decides_bags(run) else ": no rule defers bags or calls them out of distribution."
        return list(filter(None, (said, run.rules.warning)))
    if run.predictions.bags.decisions is not None:
        return []
    bags = run.predictions.bags
    needed, rules = needed_by_default(), "set which bags to defer and which to flag as out of distribution"
    if not bags.has_classes:
        needed, rules = needed_by_default(bags.target), "state what holds of a label with a stated chance"
    patients = count_patients(bags.patients)
    of = "" if patients is None or patients == len(bags) else " of as many patients"
    return [
        f"Not calibrated: with {needed} labeled bags{of} that the model was not trained on, miue calibrate can "
        f"{rules}."
    ]


def _calibrated(level: LevelEvaluation, error: float | None) -> list[str]:
    """Return the calibration error of the calibrated probabilities beside that of the others; nothing for None."""
    before = level.metrics["ece"].value
    if error is None or before is None:
        return []
    first, then = (f"{100 * value:.1f}\u00a0%" for value in (before, error))
    return [f"Expected calibration error: {first} before and {then} after calibration."]


def _decides_bags(run: Run) -> bool:
    """Return whether bags have decisions that a rule of the calibration made, as far as it is known."""
    ruled = run.rules is None or run.rules.deferral is not None or run.rules.false_alarms is not None
    return run.predictions.bags.decisions is not None and ruled


def _predicted(table: PredictionTable, decisions: Decisions | None, classes: Sequence[str]) -> str:
    """Return how many bags are predicted, or by a calibration accepted, as each class."""
    bags = plural(len(table), "bag")
    accepted = np.ones(len(table), bool) if decisions is None else decisions.accepted
    counts = np.bincount(table.predicted[accepted], minlength=len(classes)).tolist()
    by_class = ", ".join(f"{count:,} {name}" for name, count in zip(classes, counts, strict=True) if count)
    if decisions is None:
        return f"Predicted classes of {bags}: {by_class}."
    flagged, deferred = int(decisions.flagged.sum()), int(decisions.deferred.sum())
    rest = f"{deferred:,} deferred to a person and {int(accepted.sum()):,} accepted"
    rest += f" ({by_class})" if by_class else ""
    empty = _accepted_without_class(decisions)
    return f"Of {bags}, {flagged:,} {is_or_are(flagged)} flagged as out of distribution, {rest}.{empty}"


def _decisions(table: PredictionTable, decisions: Decisions, outcome: DecisionEvaluation) -> list[str]:
    deferred, flagged = int(decisions.deferred.sum()), int(decisions.flagged.sum())
    of, empty = plural(len(table), "bag"), _accepted_without_class(decisions)
    said = f"Of {of}, {deferred:,} {is_or_are(deferred)} deferred and {flagged:,} flagged as out of distribution"
    risk, low, high = (outcome.metrics[key].value for key in RISK)
    if risk is None:
        return [f"{said}.{empty}"]
    judged = table.judged & decisions.accepted
    wrong = int(np.sum(table.predicted[judged] != table.labels.values[judged]))
    accepted = f"of {plural(int(judged.sum()), 'accepted bag')} with a label"
    share = _percent(risk, Interval(low, high, 0))
    return [f"{said}; {accepted}, {wrong:,} {is_or_are(wrong)} incorrect: {share}.{empty}"]


def _accepted_without_class(decisions: Decisions) -> str:
    """Return how many accepted bags have an empty prediction set, after a space; nothing where none has."""
    count = int((decisions.accepted & decisions.empty_sets).sum())
    if not count:
        return ""
    have, them = ("has", "it") if count == 1 else ("have", "them")
    return f" {count:,} of the accepted {have} an empty prediction set: look at {them}, too."


def guarantees(rules: Calibration) -> list[str]:
    """Return what a calibration promises, a sentence for each of its rules."""
    parts = {title: getattr(rules, name) for name, title in PARTS.items() if name != "scaling"}
    texts = [f"{title}: {part.promise}" for title, part in parts.items() if part is not None]
    return [*texts, *([f"but {rules.made_from.caveat}"] if rules.made_from.caveat else [])]


def describe_negative_classes(runs: Sequence[Run], class_names: Sequence[str]) -> list[str]:
    """Return what "negative" means where there are more than two classes, of each run if they differ."""
    numbers = {run.title: applied_negative_class(run.predictions.provenance) for run in runs}
    said = {title: describe_negative_class(class_names, number) for title, number in numbers.items()}
    if len(set(numbers.values())) == 1:
        return next(iter(said.values()))
    return [f"{title}: {sentence}" for title, sentences in said.items() for sentence in sentences]
