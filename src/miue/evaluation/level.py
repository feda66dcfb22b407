"""One level, bags, instances or patients: its items, its metrics, and what their intervals are resampled from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from jaxtyping import Bool, Float64, Int16, Int64

from miue.bags import Outcomes
from miue.calibration import PREFERRED_MEASURES, PREFERRED_SCORES
from miue.distributions import Dirichlet
from miue.evaluation.class_metrics import METRICS, mean_confidence, overconfidence, recall
from miue.evaluation.metrics import (
    NEITHER_KNOWN,
    NO_LABEL,
    NONE_KNOWN_IN,
    NONE_KNOWN_OUT,
    RECALL,
    Judged,
    Metric,
    Owners,
    Separation,
    WeightedMetric,
)
from miue.evaluation.ranking import Ranking, class_auroc, ranked_auroc, ranked_risk_coverage
from miue.predictions import PredictionTable
from miue.targets import Weighted

CORRECTNESS = ("correct", "misclassified")
DISTRIBUTION = ("in-distribution", "out-of-distribution")
NONE = np.empty(0)
UNDEFINED = "labels that are all alike, or of which none can be compared"
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


def default_measures(table: PredictionTable) -> tuple[str, str]:
    """Return the measures behind Conf. and OOD that the paper uses for this kind of distribution."""
    if isinstance(table.head.distribution, Dirichlet):
        return "inverse_max_alpha", "vacuity"
    return "least_confidence", "least_confidence"


def error_measure(table: PredictionTable) -> str:
    """Return the measure that ``calibrate`` defers bags by unless another is chosen, of bags or of instances."""
    return next(name for name in PREFERRED_MEASURES if name in table.uncertainty_names)


def detection_score(table: PredictionTable) -> str:
    """Return the score by which ``calibrate`` calls bags out of distribution unless another is chosen.

    Of instances it is the one that corresponds: "knn" to the bags' "knn_mean".
    """
    known = table.uncertainty_names
    names = (name for preferred in PREFERRED_SCORES for name in (preferred, preferred.removesuffix("_mean")))
    return next(name for name in names if name in known)


@dataclass(frozen=True)
class Separations:
    """How well one measure or score separates items.

    Attributes:
        confidence: correct from misclassified ones.
        ood: items known to be in distribution from each out-of-distribution set.
    """

    confidence: Separation
    ood: Mapping[str, Separation]


@dataclass(frozen=True)
class LevelEvaluation:
    """Evaluation of one level, bags or instances.

    Attributes:
        count: items.
        labeled: items with a label that are not known to be out of distribution; the class metrics are of these.
        in_distribution: items known to be in distribution; ``ood`` is of these and of the next.
        out_of_distribution: items known to be out of distribution; of the others it is unknown.
        metrics: accuracy, auroc, balanced_accuracy (mean of ``recall_by_class``), ece, brier, nll, aurc, and ue,
            the mean AUROC of ``confidence`` and all ``ood``; after these, those of the target and of the user.
            Where labels are numbers, of the first those that have a meaning.
        recall_by_class: share of each class's items that are predicted as it: of the positive class the
            sensitivity, of the negative class the specificity.
        confusion: labeled items of each class (row) by predicted class (column).
        confidence_measure: the uncertainty behind ``confidence`` and ``aurc``.
        confidence: how well it separates correct from misclassified items (the paper's Conf.).
        ood_measure: the uncertainty behind ``ood``.
        ood: how well it separates items known to be in distribution from each out-of-distribution set.
        by_measure: the same for every measure and extra score.
    """

    count: int
    labeled: int
    in_distribution: int
    out_of_distribution: int
    metrics: Mapping[str, Metric]
    recall_by_class: Mapping[str, Metric]
    confusion: tuple[tuple[int, ...], ...]
    confidence_measure: str
    confidence: Separation
    ood_measure: str
    ood: Mapping[str, Separation]
    by_measure: Mapping[str, Separations]

    @property
    def is_numeric(self) -> bool:
        """Whether labels are numbers, so that no prediction is right or wrong."""
        return "accuracy" not in self.metrics

    def with_metrics(self, metrics: Mapping[str, Metric]) -> LevelEvaluation:
        """Return it with these metrics added."""
        return replace(self, metrics={**self.metrics, **metrics})

    def named_metrics(self, classes: Sequence[str]) -> Iterator[tuple[str, Metric]]:
        """Yield name and value of every metric; Conf. and OOD by the measures that the paper uses.

        Args:
            classes: names in order.
        """
        yield from self.metrics.items()
        if self.is_numeric:
            return
        recalls = zip(classes, self.recall_by_class.values(), strict=True)
        yield from ((f"recall_{name}", metric) for name, metric in recalls)
        yield "confidence_auroc", self.confidence.auroc
        yield from ((f"ood_{name}_auroc", separation.auroc) for name, separation in self.ood.items())


def evaluate_level(
    table: PredictionTable,
    items: Items | None = None,
    visit: Visit | None = None,
    unlabeled: str = NO_LABEL,
    classes: Sequence[str] = (),
    step: Callable[[], object] = lambda: None,
) -> LevelEvaluation:
    """Return the metrics of one table, of which one uncertainty of all items is held at a time.

    Where no item has a label or is known to be out of distribution, uncertainties are read for ``visit`` alone.

    Args:
        table: predictions of bags or of instances.
        items: what is known of them, where that was already read.
        visit: called with the name of each uncertainty, the ranking by it, and that of the judged items among
            them, for what else is computed from these.
        unlabeled: why there are no metrics of classes, where no item has a label.
        classes: names in order, for the reasons of undefined metrics; empty where they are not known.
        step: called after each uncertainty.
    """
    items = items or Items.of(table)
    confidence_measure, ood_measure = default_measures(table)
    correct, one = items.correct, Owners.one(len(table))
    class_metrics = _class_metrics(table, items, Owners.one(len(items.labels)), classes)
    undefined = None if items.is_in.any() else Separation.undefined(NONE_KNOWN_IN)
    is_read = bool(len(items.labels) or items.ood_sets or visit is not None)
    by_measure: dict[str, Separations] = {}
    for measure in table.uncertainty_names:
        ranking = Ranking.of(table.uncertainty(measure) if is_read else NONE)
        judged = ranking.among(items.judged)
        if measure == confidence_measure:
            class_metrics["aurc"] = ranked_risk_coverage(judged, correct, one)
        by_measure[measure] = Separations(
            judged.separation(correct, names=CORRECTNESS) if len(judged) else Separation.undefined(unlabeled),
            {
                name: undefined or ranking.among(items.compared(name)).separation(items.is_in, names=DISTRIBUTION)
                for name in items.ood_sets
            },
        )
        if visit is not None:
            visit(measure, ranking, judged)
        step()
    confidence, detection = by_measure[confidence_measure].confidence, by_measure[ood_measure].ood
    of_classes = {
        name: metric.plain if len(items.labels) else Metric.undefined(unlabeled)
        for name, metric in class_metrics.items()
    }
    recall_by_class = {str(number): of_classes.pop(f"{RECALL}{number}") for number in range(len(items.confusion))}
    own = _target_metrics(table, items, Owners.one(len(items.labels)))
    of_classes["ue"] = (
        Metric.mean_of([confidence.auroc, *(one.auroc for one in detection.values())])
        if detection
        else Metric.undefined(NONE_KNOWN_OUT if items.is_in.any() else NEITHER_KNOWN)
    )
    return LevelEvaluation(
        len(table),
        len(items.labels),
        int(items.is_in.sum()),
        int(items.is_out.sum()),
        {name: of_classes[name] for name in _of_classes(table)}
        | {name: metric.plain for name, metric in own.items()},
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
        self._of_classes = _of_classes(table)
        self._of_target = _target_metrics(table, items, of_judged)

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
        """Return those of ``METRICS`` but "ue", which others make up, mean_confidence, overconfidence, and others.

        These are "recall NUMBER" of each class, and of what was added confidence and "ood SET" by the paper's
        measures, "errors" by ``error_measure`` and "detection SET" by ``detection_score``; last, those of the
        target. Where labels are numbers, those that have no meaning are left out.
        """
        named = [name for name in self._of_classes if name != "ue"]
        recalls = [name for name in self._metrics if name.startswith(RECALL)]
        further = ["mean_confidence", "overconfidence", "confidence", *recalls, "errors"]
        sets = [f"{prefix} {name}" for name in self._items.ood_sets for prefix in ("ood", "detection")]
        shown = [*named, *(further if "accuracy" in named else ()), *sets]
        return {name: self._metrics[name] for name in shown} | self._of_target


def _of_classes(table: PredictionTable) -> list[str]:
    """Return those of ``METRICS`` that have a meaning for the labels."""
    target = table.head.target
    return [name for name in METRICS if target is None or name in target.class_metrics]


def _target_metrics(table: PredictionTable, items: Items, owners: Owners) -> dict[str, WeightedMetric]:
    """Return the own metrics of the target of judged items, which belong to these owners."""
    target, outcomes = table.head.target, table.head.outcomes
    if target is None or not len(items.labels):
        return {}
    known = Outcomes.of(items.labels) if outcomes is None else outcomes[items.judged]
    probabilities = np.concatenate([one.probabilities.numpy() for one in table.distributions()])[items.judged]
    found = {}
    for name, of_items in target.metrics(probabilities, known.values, known.observed).items():
        metric = WeightedMetric(partial(_of_owners, of_items, owners), owners.count)
        found[name] = replace(metric, reason="" if np.isfinite(metric.plain.value or 0) else UNDEFINED)
    return found


def _of_owners(of_items: Weighted, owners: Owners, weights: Int64[np.ndarray, "draws owners"]) -> np.ndarray:
    return of_items(weights[:, owners.index].astype(np.float64))


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
        "auroc": class_auroc(probabilities, items.labels, len(classes), owners, names),
        "balanced_accuracy": WeightedMetric.mean_of(list(recalls.values())),
        **recalls,
        **{name: one.of(items.results, owners) for name, one in METRICS.items() if one.of is not None},
    }
