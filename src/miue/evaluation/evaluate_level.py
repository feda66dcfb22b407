"""The metrics of one level, bags or instances, and what their intervals are resampled from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64

from miue.evaluation.class_metrics import METRICS, mean_confidence, overconfidence, recall
from miue.evaluation.default_measures import default_measures, detection_score, error_measure
from miue.evaluation.items import Items
from miue.evaluation.level import LevelEvaluation, Separations
from miue.evaluation.metrics import (
    NEITHER_KNOWN,
    NO_LABEL,
    NONE_KNOWN_IN,
    NONE_KNOWN_OUT,
    RECALL,
    Metric,
    Owners,
    Separation,
    WeightedMetric,
)
from miue.evaluation.ranking import Ranking, class_auroc, ranked_auroc, ranked_risk_coverage
from miue.predictions.table import PredictionTable

CORRECTNESS = ("correct", "misclassified")
DISTRIBUTION = ("in-distribution", "out-of-distribution")
NONE = np.empty(0)
Visit = Callable[[str, Ranking, Ranking], None]


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
        {name: of_classes[name] for name in METRICS},
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
        """Return those of ``METRICS`` but "ue", which others make up, mean_confidence, overconfidence, and others.

        These are "recall NUMBER" of each class, and of what was added confidence and "ood SET" by the paper's
        measures, "errors" by ``error_measure`` and "detection SET" by ``detection_score``.
        """
        named = [name for name in METRICS if name != "ue"]
        further = ["mean_confidence", "overconfidence", "confidence"]
        order = ["ood", "detection"]
        sets = [f"{prefix} {name}" for name in self._items.ood_sets for prefix in order]
        recalls = [name for name in self._metrics if name.startswith(RECALL)]
        return {name: self._metrics[name] for name in [*named, *further, *recalls, "errors", *sets]}


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
