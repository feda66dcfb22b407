"""What an evaluation gives of one level: bags, instances or patients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from miue.evaluation.metrics import Metric, Separation


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
            the mean AUROC of ``confidence`` and all ``ood``; after these, those of the user.
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

    def with_metrics(self, metrics: Mapping[str, Metric]) -> LevelEvaluation:
        """Return it with these metrics added."""
        return replace(self, metrics={**self.metrics, **metrics})

    def named_metrics(self, classes: Sequence[str]) -> Iterator[tuple[str, Metric]]:
        """Yield name and value of every metric; Conf. and OOD by the measures that the paper uses.

        Args:
            classes: names in order.
        """
        yield from self.metrics.items()
        recalls = zip(classes, self.recall_by_class.values(), strict=True)
        yield from ((f"recall_{name}", metric) for name, metric in recalls)
        yield "confidence_auroc", self.confidence.auroc
        yield from ((f"ood_{name}_auroc", separation.auroc) for name, separation in self.ood.items())


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
