"""The answer on the first screen: how good the predictions are and what may be relied on, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from miue.bags.classes import names_or_numbers
from miue.calibration import applied_calibration
from miue.calibration.needs import needed_by_default
from miue.calibration.patients import count_patients
from miue.common.errors import first_few
from miue.common.text import is_or_are, plural
from miue.evaluation.class_metrics import mean_confidence
from miue.evaluation.decisions import DecisionEvaluation
from miue.evaluation.default_measures import detection_score, error_measure
from miue.evaluation.intervals import Interval
from miue.evaluation.items import Items
from miue.evaluation.level import LevelEvaluation
from miue.evaluation.metrics import Metric
from miue.predictions.decisions import Decisions
from miue.predictions.distance_names import distance_of
from miue.predictions.table import PredictionTable
from miue.predictions.training_parts import training_rows
from miue.report.metrics_table import metric_values
from miue.report.runs import Run

SETS = 3  # out-of-distribution sets in the verdict; the table of metrics has all


NO_LABELS = (
    "No label is known, so accuracy, calibration and error detection cannot be measured; labels (miue predict "
    "--labels TABLE) would add them."
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


def judge_run(
    run: Run, level: LevelEvaluation, intervals: Mapping[str, Interval], outcome: DecisionEvaluation | None = None
) -> Verdict:
    """Return what the predictions of bags come to, from the predictions alone.

    Args:
        run: the predictions.
        level: the evaluation of their bags.
        intervals: of the metrics of the bags, by name; empty for none.
        outcome: the evaluation of the decisions of the bags; None without decisions.
    """
    table = run.predictions.bags
    if not level.labeled:
        first = _predicted(table, run.predictions.provenance.classes, decided=_decides_bags(run))
        sentences = [
            first,
            *_trained_on(table),
            *_detection(table, level, intervals),
            *_calibration(run),
            NO_LABELS,
        ]
    else:
        calibrated = outcome.metrics["ece"].value if outcome else None
        sentences = [
            *_accuracy(table, level, intervals, are_calibrated=calibrated is not None),
            *_trained_on(table),
            *_missed_classes(level, run.predictions.provenance.classes),
            *_detection(table, level, intervals),
            *_calibration(run),
            *_calibrated(level, calibrated),
            *(_decisions(table, outcome) if _decides_bags(run) else []),
        ]
    metrics = metric_values(level, {}, error_measure(table), detection_score(table))
    return Verdict(run.title, sentences, metrics, intervals, outcome.metrics if outcome else {})


def _percent(value: float, interval: Interval | None) -> str:
    if interval is None or interval.low is None or interval.high is None:
        return f"{100 * value:.1f}\u00a0%"
    return f"{100 * value:.1f}\u00a0% ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


def _accuracy(
    table: PredictionTable, level: LevelEvaluation, intervals: Mapping[str, Interval], *, are_calibrated: bool
) -> list[str]:
    """Return the accuracy, and how far the probabilities are from it; there may be calibrated ones beside them."""
    accuracy = level.metrics["accuracy"].value
    assert accuracy is not None
    of = plural(level.labeled, "labeled bag")
    sentences = [f"Accuracy {_percent(accuracy, intervals.get('accuracy'))} on {of}."]
    interval = intervals.get("overconfidence")
    if interval is not None and interval.excludes_zero:
        assert interval.low is not None and interval.high is not None
        mean = mean_confidence(Items.of(table).results).plain.value
        assert mean is not None
        low, high = sorted((abs(interval.low), abs(interval.high)))
        side = "high" if mean > accuracy else "low"
        which = "Probabilities before calibration" if are_calibrated else "Probabilities"
        sentences.append(
            f"{which} are too {side} by {100 * abs(mean - accuracy):.1f} points "
            f"({100 * low:.1f} to {100 * high:.1f}): mean confidence is {100 * mean:.1f}\u00a0%."
        )
    return sentences


def _trained_on(table: PredictionTable) -> list[str]:
    """Return how many bags the model was trained on: it is right more often on them than on new ones."""
    count = len(training_rows(table))
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
    names = _class_words(classes, len(level.confusion))
    missed = [
        f"{names[number]} (0 of {sum(predicted):,})"
        for number, predicted in enumerate(level.confusion)
        if any(predicted) and not predicted[number]
    ]
    return [f"No bag of {first_few(missed)} is predicted correctly."] if missed else []


def _class_words(classes: Sequence[str], count: int) -> list[str]:
    """Return the names of classes as they are called within a sentence."""
    words = names_or_numbers(classes, count)
    return [f"class {word}" if word.isdecimal() else word for word in words]


def _detection(table: PredictionTable, level: LevelEvaluation, intervals: Mapping[str, Interval]) -> list[str]:
    score, own, sentences = detection_score(table), level.ood_measure, []
    names = [name for name, one in level.ood.items() if one.auroc.value is not None]
    for name in names[:SETS]:
        by = {measure: level.by_measure[measure].ood[name].auroc.value for measure in (score, own)}
        keys = {score: f"detection {name}", own: f"ood {name}"}
        said = [f"{_percent(v, intervals.get(keys[m]))} by {_called(m)}" for m, v in by.items() if v is not None]
        count = int((table.ood_sets == name).sum())
        sentences.append(f"OOD detection ({name}, {plural(count, 'bag')}): AUROC {', '.join(said)}.")
    if len(names) > SETS:
        more = len(names) - SETS
        sets = plural(more, "more out-of-distribution set")
        sentences.append(f"{sets} {is_or_are(more)} in the table of metrics.")
    return sentences


def _called(measure: str) -> str:
    name = measure.replace("_", " ")
    return f"distance ({name})" if distance_of(measure, [measure]) else name


def _calibration(run: Run) -> list[str]:
    calibration = applied_calibration(run.predictions.provenance)
    if calibration is not None:
        used = calibration.bags_used
        said = f"Calibrated on {used}" if used else "Calibrated"
        return [said + ("." if _decides_bags(run) else ": no rule defers bags or calls them out of distribution.")]
    if run.predictions.bags.decisions is not None:
        return []
    bags, needed = run.predictions.bags, needed_by_default()
    patients = count_patients(bags.patients)
    of = "" if patients is None or patients == len(bags) else " of as many patients"
    return [
        f"Not calibrated: with {needed} labeled bags{of} that the model was not trained on, miue calibrate can "
        "set which bags to defer and which to flag as out of distribution."
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
    calibration = applied_calibration(run.predictions.provenance)
    ruled = calibration is None or calibration.deferral is not None or calibration.false_alarms is not None
    return run.predictions.bags.decisions is not None and ruled


def _predicted(table: PredictionTable, classes: Sequence[str], *, decided: bool) -> str:
    """Return how many bags are predicted, or by a calibration accepted, as each class."""
    decisions, bags = table.decisions if decided else None, plural(len(table), "bag")
    names = _class_words(classes, table.distribution.num_classes)
    accepted = np.ones(len(table), bool) if decisions is None else decisions.accepted
    counts = np.bincount(table.predicted[accepted], minlength=len(names)).tolist()
    by_class = ", ".join(f"{count:,} {name}" for name, count in zip(names, counts, strict=True) if count)
    if decisions is None:
        return f"Predicted classes of {bags}: {by_class}."
    flagged, deferred = int(decisions.flagged.sum()), int(decisions.deferred.sum())
    rest = f"{deferred:,} deferred to a person and {int(accepted.sum()):,} accepted"
    rest += f" ({by_class})" if by_class else ""
    empty = _accepted_without_class(decisions)
    return f"Of {bags}, {flagged:,} {is_or_are(flagged)} flagged as out of distribution, {rest}.{empty}"


def _decisions(table: PredictionTable, outcome: DecisionEvaluation | None) -> list[str]:
    decisions = table.decisions
    if decisions is None or outcome is None:
        return []
    deferred, flagged = int(decisions.deferred.sum()), int(decisions.flagged.sum())
    of = plural(len(table), "bag")
    sentence = (
        f"Of {of}, {deferred:,} {is_or_are(deferred)} deferred and {flagged:,} flagged as out of distribution"
    )
    error, low, high = (
        outcome.metrics[key].value for key in ("selective_risk", "selective_risk_low", "selective_risk_high")
    )
    empty = _accepted_without_class(decisions)
    if error is None or low is None or high is None:
        return [f"{sentence}.{empty}"]
    judged = table.judged & decisions.accepted
    wrong = int(np.sum(table.predicted[judged] != table.labels.values[judged]))
    exact = _percent(error, Interval(low, high, 0))
    accepted = f"of {plural(int(judged.sum()), 'accepted bag')} with a label"
    return [f"{sentence}; {accepted}, {wrong:,} {is_or_are(wrong)} incorrect: {exact}.{empty}"]


def _accepted_without_class(decisions: Decisions) -> str:
    """Return how many accepted bags have an empty prediction set, after a space; nothing where none has."""
    count = int((decisions.accepted & decisions.empty_sets).sum())
    if not count:
        return ""
    have, them = ("has", "it") if count == 1 else ("have", "them")
    return f" {count:,} of the accepted {have} an empty prediction set: look at {them}, too."
