"""What is known of the items of a level, and what their labels say of those that are judged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int16, Int64

from miue.evaluation.metrics import Judged
from miue.predictions.table import PredictionTable


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
