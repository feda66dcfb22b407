"""Several labels at once, of which a bag may have all, some or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float64, Int8, Int64

from miue.common.errors import DataError
from miue.targets.base import MetricName, Probabilities, Target
from miue.targets.weighted import Weighted

BETWEEN, UNKNOWN = ";", "?"
NONE = "none"
"""The set without a label."""
FEWEST_IN_STRATUM = 10


class MultiLabel(Target):
    """A set of labels: the class of a bag says of each label whether it has it, or that this is not known.

    Each label has a binary model of its own (binary relevance), which learns from the bags whose label is known.

    Reference: Zhang & Zhou 2014, "A Review on Multi-Label Learning Algorithms", Section 3.1.

    Attributes:
        labels: their names.
        sets: of each class, for each label 1 where bags have it, 0 where they do not, −1 where that is not known.
    """

    kind: Literal["multi-label"] = "multi-label"
    labels: tuple[str, ...]
    sets: tuple[tuple[Literal[-1, 0, 1], ...], ...]
    class_metrics: ClassVar[tuple[str, ...]] = ()
    own_metrics: ClassVar[Mapping[str, MetricName]] = {}

    @classmethod
    def of(
        cls, labels: Sequence[str], states: Int8[np.ndarray, "n K"]
    ) -> tuple[MultiLabel, Int64[np.ndarray, "n"]]:
        """Return the target of some labels, and the class of each bag, −1 where no label is known.

        The set without labels and that of each label alone are classes in any case.

        Args:
            labels: their names.
            states: of each bag and label 1, 0 or −1 as in ``sets``.

        Raises:
            DataError: no name, one twice, or one that cannot be told from names of several labels.
        """
        if not labels or len(set(labels)) < len(labels) or any(map(_is_ambiguous, labels)):
            wanted = f"different names without {BETWEEN!r}, that do not end in {UNKNOWN!r}"
            got, fix = ", ".join(map(repr, labels)) or "none", "rename these columns or labels"
            raise DataError(item="the labels", wanted=wanted, got=got, fix=fix)
        alone = np.eye(len(labels), dtype=np.int8)
        known = states[(states >= 0).any(1)]
        every = {*map(tuple, known.tolist()), *map(tuple, alone.tolist()), (0,) * len(labels)}
        ordered = sorted(every, key=lambda one: (-1 in one, one.count(1), [-state for state in one]))
        number = {one: position for position, one in enumerate(ordered)}
        classes = np.array([number.get(one, -1) for one in map(tuple, states.tolist())], np.int64)
        return cls(labels=tuple(labels), sets=tuple(ordered)), classes

    @property
    def class_names(self) -> tuple[str, ...]:
        """The labels of each set, "A;B"; a label that is not known has a question mark, "A;B?"."""
        named = (
            [f"{name}{UNKNOWN * (state < 0)}" for name, state in zip(self.labels, one, strict=True) if state]
            for one in self.sets
        )
        return tuple(BETWEEN.join(names) or NONE for names in named)

    def parts(self) -> Mapping[str, Int64[np.ndarray, "C"]]:
        """Return of each label whether bags of each class have it: 1, 0, or −1 where that is not known."""
        return dict(zip(self.labels, np.array(self.sets, np.int64).T, strict=True))

    def strata(
        self, classes: Int64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> tuple[Int64[np.ndarray, "n"], tuple[str, ...]]:
        """Return the rarest label of each bag, so that splits keep the shares of rare labels.

        Labels that are the rarest of fewer than ten bags are taken together with bags without any.
        """
        has = np.array(self.sets)[classes] == 1
        counts = has.sum(0)
        rarest = np.where(has.any(1), np.where(has, counts, len(classes) + 1).argmin(1), -1)
        kept = [k for k in counts.argsort() if (rarest == k).sum() >= FEWEST_IN_STRATUM]
        number = {k: position for position, k in enumerate(kept, 1)}
        found = np.array([number.get(k, 0) for k in rarest.tolist()], np.int64)
        names = (NONE, *(self.labels[k] for k in kept))
        return (found, names) if not len(found) or (found == 0).any() else (found - 1, names[1:])

    def columns(
        self, probabilities: Probabilities, concentration: Float64[np.ndarray, "n"] | None
    ) -> dict[str, Float64[np.ndarray, "n"]]:
        """Return nothing: each label is predicted by a model of its own."""
        return {}

    def metrics(
        self, probabilities: Probabilities, values: Float64[np.ndarray, "n"], observed: Bool[np.ndarray, "n"]
    ) -> dict[str, Weighted]:
        """Return nothing, likewise."""
        return {}


def _is_ambiguous(label: str) -> bool:
    return not label or label == NONE or BETWEEN in label or label.endswith(UNKNOWN)
