"""Evaluate predictions as the paper does, and as the field does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int16, Int64

from miue.bags.cells import known_text
from miue.calibration import Calibration, applied_calibration
from miue.calibration.deferral import PREFERRED_MEASURES
from miue.calibration.false_alarms import PREFERRED_SCORES
from miue.common.arguments import checked
from miue.common.errors import ConfigError
from miue.common.progress import bar
from miue.distributions import Dirichlet
from miue.evaluation.decisions import evaluate_decisions, share_interval
from miue.evaluation.evaluation import Evaluation
from miue.evaluation.flags import evaluate_flags
from miue.evaluation.froc import evaluate_froc
from miue.evaluation.groups import NO_GROUP, GroupEvaluation
from miue.evaluation.level import LevelEvaluation, Separations
from miue.evaluation.metrics import (
    NEITHER_KNOWN,
    NO_INSTANCE_LABEL,
    NO_LABEL,
    NONE_KNOWN_IN,
    NONE_KNOWN_OUT,
    RECALL,
    SEVERAL_CLASSES,
    Judged,
    Metric,
    Owners,
    Separation,
    WeightedMetric,
    accuracy,
    brier_score,
    expected_calibration_error,
    mean_confidence,
    negative_log_likelihood,
    overconfidence,
    recall,
)
from miue.evaluation.ranking import Ranking, class_auroc, ranked_auroc, ranked_risk_coverage
from miue.predictions.folder import Predictions, check_predictions
from miue.predictions.table import PredictionTable
from miue.predictions.training_parts import refuse_training_bags

CORRECTNESS = ("correct", "misclassified")
DISTRIBUTION = ("in-distribution", "out-of-distribution")
INTERVALS = (
    *("accuracy", "auroc", "balanced_accuracy", "ece", "brier", "nll", "aurc"),
    *("mean_confidence", "overconfidence", "confidence"),
)


@checked()
def evaluate(
    predictions: Predictions,
    *,
    allow_training_bags: bool = False,
    groups: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Evaluation:
    """Return the metrics of ``predictions`` at both levels.

    Conf. is the AUROC of the confidence for "prediction correct" over labeled items that are not known to be
    out of distribution; OOD is the AUROC for "known to be in distribution" against each out-of-distribution set;
    UE is the mean of these. An item of which neither is known counts for no OOD.
    A Dirichlet's confidence is max alpha for Conf. and the total evidence α0 for OOD; any other distribution's
    is its max probability. Instances of all bags are pooled.

    Reference: Liu & Ji 2024, Section 6.1, "Evaluation".

    Args:
        predictions: of bags and, perhaps, of instances.
        allow_training_bags: evaluate although the model was trained on some of these bags, which says nothing of
            new ones.
        groups: group of each bag by its name, such as its hospital, a text or number: bags are also evaluated
            by group. Those that it does not name, or whose group is "", None or NaN, are the group "no group".
        progress: show a bar with the time left.

    Raises:
        ConfigError: no predictions, or groups that name none of the bags.
        DataError: the model was trained on some of these bags, or on others of their patients.
    """
    check_predictions(predictions)
    fix = "evaluate bags of other patients, or pass allow_training_bags=True (--allow-training-bags)"
    refuse_training_bags(predictions.bags, "evaluate", fix, allowed=allow_training_bags)
    instances, decisions = predictions.instances, predictions.bags.decisions
    patients = predictions.by_patient()
    rules, names = applied_calibration(predictions.provenance), predictions.provenance.classes
    measures = sum(len(table.uncertainty_names) for table in (predictions.bags, instances, patients) if table)
    with bar("uncertainties", shown=progress, kept=False) as shown:
        task = shown.add_task("evaluate", total=measures)

        def level(table: PredictionTable, unlabelled: str = NO_LABEL) -> LevelEvaluation:
            return evaluate_level(table, None, lambda *_: shown.advance(task), unlabelled, names)

        of_bags = level(predictions.bags)
        of_instances = level(instances, NO_INSTANCE_LABEL) if instances else None
        return Evaluation(
            of_bags,
            of_instances,
            evaluate_decisions(predictions.bags, decisions, rules) if decisions else None,
            level(patients, SEVERAL_CLASSES if of_bags.labelled else NO_LABEL) if patients else None,
            predictions.provenance,
            evaluate_froc(predictions) if of_instances and of_instances.labelled else None,
            evaluate_flags(predictions),
            None if groups is None else evaluate_groups(predictions.bags, groups, rules, names),
        )


def evaluate_groups(
    table: PredictionTable, groups: Mapping[str, Any], rules: Calibration | None, classes: Sequence[str] = ()
) -> dict[str, GroupEvaluation]:
    """Return the evaluation of each group, in the order of their names, bags without a group last.

    Args:
        table: predictions of bags.
        groups: of each bag by its name, as ``evaluate`` takes them.
        rules: of the decisions of the bags, where known.
        classes: names in order, for the reasons of undefined metrics; empty where they are not known.

    Raises:
        ConfigError: groups that name none of the bags.
    """
    of_bags = np.array([_group_name(groups.get(name)) for name in table.bag_ids], object)
    names = sorted(set(of_bags) - {NO_GROUP})
    if not names:
        some = f", but one of {next(iter(groups))!r}" if groups else ""
        raise ConfigError(
            item="the groups",
            wanted=f"the group of each bag by its name, such as {table.bag_ids[0]!r}",
            got=f"a group of none of these bags{some}",
            fix="check the names of the bags",
        )
    found = {}
    for name in (*names, *({NO_GROUP} & set(of_bags))):
        bags = table.subset(np.flatnonzero(of_bags == name))
        level, labels = evaluate_level(bags, classes=classes), bags.labels.values
        low, high = _share_of_correct(bags, bags.judged, level.metrics["accuracy"])
        of_classes = {
            number: _share_of_correct(bags, bags.judged & (labels == int(number)), recall)
            for number, recall in level.recall_by_class.items()
        }
        found[name] = GroupEvaluation(
            level,
            low,
            high,
            {number: ends[0] for number, ends in of_classes.items()},
            {number: ends[1] for number, ends in of_classes.items()},
            evaluate_decisions(bags, bags.decisions, rules) if bags.decisions else None,
        )
    return found


def _group_name(group: object) -> str:
    """Return what a group is called."""
    return (known_text(str(group)) if group is not None else "") or NO_GROUP


def _share_of_correct(table: PredictionTable, bags: Bool[np.ndarray, "n"], share: Metric) -> tuple[Metric, Metric]:
    """Return both ends of the exact 95 % interval of the share of these bags that are predicted right.

    Args:
        table: predictions of bags.
        bags: which of them.
        share: the value, or why there is none.
    """
    if share.value is None:
        return share, share
    return share_interval(table, (table.predicted == table.labels.values)[bags], bags)


Visit = Callable[[str, Ranking, Ranking], None]


@dataclass(frozen=True)
class Items:
    """What is known of the n items of a level, and what their labels say of the m that are judged.

    Attributes:
        judged: the items whose class can be judged.
        is_in: those known to be in distribution.
        is_out: those known to be out of distribution.
        ood_set: number of each item's set among ``ood_sets``, −1 for none.
        ood_sets: names of the out-of-distribution sets, in order.
        labels: of the judged items.
        results: of the judged items.
        confusion: judged items of each class (row) by predicted class (column).
    """

    judged: Bool[np.ndarray, "n"]
    is_in: Bool[np.ndarray, "n"]
    is_out: Bool[np.ndarray, "n"]
    ood_set: Int16[np.ndarray, "n"]
    ood_sets: tuple[str, ...]
    labels: Int64[np.ndarray, "m"]
    results: Judged
    confusion: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, table: PredictionTable) -> Items:
        """Return what is known of a table, which is read part by part."""
        judged, is_in, is_out, sets, labels, results = [], [], [], [], [], []
        classes = table.head.distribution.num_classes
        pairs = np.zeros(classes**2, np.int64)
        names: dict[str, int] = {}
        for part in table.known_parts():
            inside = part.judged
            judged.append(inside)
            is_in.append(part.is_ood.in_distribution)
            is_out.append(part.is_ood.out_of_distribution)
            sets.append(np.full(len(part), -1, np.int16))
            for name in {str(name) for name in set(part.ood_sets) if name}:
                sets[-1][part.ood_sets == name] = names.setdefault(name, len(names))
            labels.append(part.labels.values[inside])
            probabilities = part.probabilities[inside]
            results.append(Judged.of(probabilities, labels[-1]))
            pairs += np.bincount(labels[-1] * classes + probabilities.argmax(1), minlength=len(pairs))
        order = sorted(names)
        number = np.array([*(order.index(name) for name in names), -1], np.int16)
        return cls(
            judged=np.concatenate(judged),
            is_in=np.concatenate(is_in),
            is_out=np.concatenate(is_out),
            ood_set=number[np.concatenate(sets)],
            ood_sets=tuple(order),
            labels=np.concatenate(labels),
            results=Judged.concatenate(results),
            confusion=tuple(map(tuple, pairs.reshape(classes, classes).tolist())),
        )

    @cached_property
    def correct(self) -> Bool[np.ndarray, "n"]:
        """The items that are judged and whose most probable class is their label."""
        correct = np.zeros(len(self.judged), bool)
        correct[self.judged] = self.results.correct
        return correct

    def compared(self, name: str) -> Bool[np.ndarray, "n"]:
        """Return the items known to be in distribution and those of an out-of-distribution set."""
        return self.is_in | (self.is_out & self.of_set(name))

    def of_set(self, name: str) -> Bool[np.ndarray, "n"]:
        """Return the items of an out-of-distribution set."""
        return self.ood_set == self.ood_sets.index(name)


def evaluate_level(
    table: PredictionTable,
    items: Items | None = None,
    visit: Visit | None = None,
    unlabelled: str = NO_LABEL,
    classes: Sequence[str] = (),
) -> LevelEvaluation:
    """Return the metrics of one table, of which one uncertainty of all items is held at a time.

    Args:
        table: predictions of bags or of instances.
        items: what is known of them, where that was already read.
        visit: called with the name of each uncertainty, the ranking by it, and that of the judged items among
            them, for what else is computed from these.
        unlabelled: why there are no metrics of classes, where no item has a label.
        classes: names in order, for the reasons of undefined metrics; empty where they are not known.
    """
    items = items or Items.of(table)
    confidence_measure, ood_measure = default_measures(table)
    correct, one = items.correct, Owners.one(len(table))
    class_metrics = _class_metrics(table, items, Owners.one(len(items.labels)), classes)
    undefined = None if items.is_in.any() else Separation.undefined(NONE_KNOWN_IN)
    by_measure: dict[str, Separations] = {}
    for measure in table.uncertainty_names:
        ranking = Ranking.of(table.uncertainty(measure))
        judged = ranking.among(items.judged)
        if measure == confidence_measure:
            class_metrics["aurc"] = ranked_risk_coverage(judged, correct, one)
        by_measure[measure] = Separations(
            judged.separation(correct, names=CORRECTNESS) if len(judged) else Separation.undefined(unlabelled),
            {
                name: undefined or ranking.among(items.compared(name)).separation(items.is_in, names=DISTRIBUTION)
                for name in items.ood_sets
            },
        )
        if visit is not None:
            visit(measure, ranking, judged)
    confidence, detection = by_measure[confidence_measure].confidence, by_measure[ood_measure].ood
    of_classes = {
        name: metric.plain if len(items.labels) else Metric.undefined(unlabelled)
        for name, metric in class_metrics.items()
    }
    recall_by_class = {str(number): of_classes.pop(f"{RECALL}{number}") for number in range(len(items.confusion))}
    metrics = {
        **of_classes,
        "ue": Metric.mean_of([confidence.auroc, *(one.auroc for one in detection.values())])
        if detection
        else Metric.undefined(NONE_KNOWN_OUT if items.is_in.any() else NEITHER_KNOWN),
    }
    return LevelEvaluation(
        len(table),
        len(items.labels),
        int(items.is_in.sum()),
        int(items.is_out.sum()),
        metrics,
        recall_by_class,
        items.confusion,
        confidence_measure,
        confidence,
        ood_measure,
        detection,
        by_measure,
    )


class ResampledLevel:
    """The metrics of a table that an interval is computed for, as functions of the weights of the items' owners.

    Args:
        table: predictions of bags or of instances.
        items: what is known of them.
        owners: what the items are weighted by.
    """

    def __init__(self, table: PredictionTable, items: Items, owners: Owners) -> None:
        self._items, self._owners = items, owners
        self._confidence, self._ood = default_measures(table)
        self._errors, self._detection = error_measure(table), detection_score(table)
        of_judged = owners[items.judged]
        self._metrics = _class_metrics(table, items, of_judged)
        self._metrics["mean_confidence"] = mean_confidence(items.results, of_judged)
        self._metrics["overconfidence"] = overconfidence(items.results, of_judged)

    @property
    def measures(self) -> set[str]:
        """The uncertainties that ``add`` needs the ranking of."""
        of_ood = (self._ood, self._detection) if self._items.ood_sets else ()
        return {self._confidence, self._errors, *of_ood}

    def add(self, measure: str, ranking: Ranking, judged: Ranking) -> None:
        """Add the metrics that rest on an uncertainty, if any; ``judged`` is the ranking of the judged items."""
        if measure == self._confidence:
            self._metrics["aurc"] = ranked_risk_coverage(judged, self._items.correct, self._owners)
            self._metrics["confidence"] = ranked_auroc(judged, self._items.correct, self._owners)
        if measure == self._errors:
            self._metrics["errors"] = ranked_auroc(judged, self._items.correct, self._owners)
        for prefix in ("ood",) * (measure == self._ood) + ("detection",) * (measure == self._detection):
            for name in self._items.ood_sets:
                compared = ranking.among(self._items.compared(name))
                self._metrics[f"{prefix} {name}"] = ranked_auroc(compared, self._items.is_in, self._owners)

    def metrics(self) -> dict[str, WeightedMetric]:
        """Return accuracy, auroc, balanced_accuracy, ece, brier, nll, mean_confidence, overconfidence, others.

        These are "recall NUMBER" of each class, and of what was added aurc, confidence and "ood SET" by the
        paper's measures, "errors" by ``error_measure`` and "detection SET" by ``detection_score``.
        """
        order = ["ood", "detection"]
        sets = [f"{prefix} {name}" for name in self._items.ood_sets for prefix in order]
        recalls = [name for name in self._metrics if name.startswith(RECALL)]
        return {name: self._metrics[name] for name in [*INTERVALS, *recalls, "errors", *sets]}


def default_metrics(table: PredictionTable, owners: Owners) -> dict[str, WeightedMetric]:
    """Return the metrics that an interval is computed for, as ``ResampledLevel.metrics`` does."""
    items = Items.of(table)
    level = ResampledLevel(table, items, owners)
    for measure in level.measures:
        ranking = Ranking.of(table.uncertainty(measure))
        level.add(measure, ranking, ranking.among(items.judged))
    return level.metrics()


def _class_metrics(
    table: PredictionTable, items: Items, owners: Owners, names: Sequence[str] = ()
) -> dict[str, WeightedMetric]:
    """Return the metrics of the judged items, which belong to these owners, that rest on no uncertainty."""

    def probabilities(number: int) -> Float64[np.ndarray, "m"]:
        return np.concatenate([one.probabilities[:, number].numpy() for one in table.distributions()])[
            items.judged
        ]

    classes = range(table.head.distribution.num_classes)
    recalls = {
        f"{RECALL}{number}": recall(items.results, items.labels, number, owners, names) for number in classes
    }
    return {
        "accuracy": accuracy(items.results, owners),
        "auroc": class_auroc(probabilities, items.labels, len(classes), owners, names),
        "balanced_accuracy": WeightedMetric.mean_of(list(recalls.values())),
        **recalls,
        "ece": expected_calibration_error(items.results, owners),
        "brier": brier_score(items.results, owners),
        "nll": negative_log_likelihood(items.results, owners),
    }


def default_measures(table: PredictionTable) -> tuple[str, str]:
    """Return the measures behind Conf. and OOD that the paper uses for this kind of distribution."""
    if isinstance(table.head.distribution, Dirichlet):
        return "inverse_max_alpha", "vacuity"
    return "least_confidence", "least_confidence"


def error_measure(table: PredictionTable) -> str:
    """Return the measure that ``calibrate`` defers bags by unless another is chosen, of bags or of instances."""
    return next(name for name in PREFERRED_MEASURES if name in table.uncertainty_names)


def detection_score(table: PredictionTable) -> str:
    """Return the score that ``calibrate`` flags bags by unless another is chosen: the distance where there is one.

    The instances' distance "knn" corresponds to the bags' "knn_mean".
    """
    known = table.uncertainty_names
    names = (name for preferred in PREFERRED_SCORES for name in (preferred, preferred.removesuffix("_mean")))
    return next(name for name in names if name in known)
