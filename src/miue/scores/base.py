"""What every distance to the training features is: fitted on features alone, kept as tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from miue.common.errors import DataError, ModelError

CHUNK = 512  # instances worked on at a time: with 10,000 stored points, 40 MB of distances


class FeatureDistance(nn.Module, ABC):
    """How far an instance's features h lie from those of the training instances.

    It learns nothing by gradient: what ``fit`` finds lies in float64 buffers, which ``state_dict()``
    gives and ``from_state`` takes back. A new score says its ``name`` and its ``state_names``,
    the first a tensor of width D, and overrides ``_fitted_state`` and ``_distances``.

    Args:
        state: the tensors named by ``state_names``.
    """

    name: ClassVar[str]
    state_names: ClassVar[tuple[str, ...]]

    def __init__(self, **state: Tensor) -> None:
        super().__init__()
        for name in self.state_names:
            self.register_buffer(name, state[name].contiguous())  # as safetensors wants them

    @classmethod
    @torch.no_grad()
    def fit(
        cls,
        features: Float[Tensor, "M D"],
        bag_labels: Int64[Tensor, "M"] | None,
        *,
        generator: torch.Generator,
    ) -> FeatureDistance:
        """Return the score fitted to the training instances; no instance labels are needed.

        Args:
            features: h of the training instances, at least two that differ.
            bag_labels: label of the bag each instance came from; only the class-conditional score reads it.
            generator: source of the random choices of the scores that make any.

        Raises:
            DataError: fewer than two instances, none that differ, or a feature that is not finite.
        """
        if len(features) < 2:
            raise DataError(
                item="training features",
                wanted="at least 2 instances",
                got=str(len(features)),
                fix="fit the distance on more bags",
            )
        for _ in finite_chunks(features, "training features"):
            pass
        if torch.equal(features.amin(0), features.amax(0)):
            raise DataError(
                item="training features",
                wanted="instances that differ",
                got=f"the same features for all {len(features)}",
                fix="look at the encoder: it gives every instance the same features",
            )
        return cls(**cls._fitted_state(features, bag_labels, generator))

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> FeatureDistance:
        """Return the score that had this ``state_dict()``.

        Raises:
            ModelError: the tensors are not the ones this score keeps.
        """
        if set(state) != set(cls.state_names):
            raise ModelError(
                item=f"saved distance {cls.name!r}",
                wanted=f"the tensors {', '.join(sorted(cls.state_names))}",
                got=", ".join(sorted(state)) or "none",
                fix="save the model again, or load it with the version of miue that wrote it",
            )
        return cls(**state)

    @torch.no_grad()
    def score(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
        """Return each instance's distance, in float64 on the features' device: farther is more uncertain.

        Raises:
            DataError: the features have another width than the training features, or are not finite.
        """
        if features.shape[1] != self.width:
            raise DataError(
                item="features to score",
                wanted=f"{self.width} columns, as the training features had",
                got=str(features.shape[1]),
                fix="encode them with the encoder the distance was fitted with",
            )
        device = self.get_buffer(self.state_names[0]).device
        scores = features.new_empty(len(features), dtype=torch.float64)
        for start, rows in finite_chunks(features, "features to score"):
            scores[start : start + len(rows)] = self._distances(rows.to(device))
        return scores

    @property
    def width(self) -> int:
        """D."""
        return self.get_buffer(self.state_names[0]).shape[-1]

    @classmethod
    @abstractmethod
    def _fitted_state(
        cls,
        features: Float[Tensor, "M D"],
        bag_labels: Int64[Tensor, "M"] | None,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        """Return the tensors named by ``state_names``, in float64."""

    @abstractmethod
    def _distances(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        """Return the distances of one chunk of instances, which is in float64."""


def finite_chunks(features: Float[Tensor, "N D"], item: str) -> Iterator[tuple[int, Float[Tensor, "n D"]]]:
    """Yield the position and float64 features of ``CHUNK`` instances at a time.

    Raises:
        DataError: a feature is not finite.
    """
    for start in range(0, len(features), CHUNK):
        rows = features[start : start + CHUNK].double()
        finite = rows.isfinite().all(1)
        if not finite.all():
            first = start + int(finite.logical_not().int().argmax())
            raise DataError(
                item=f"{item}, instance {first}",
                wanted="finite numbers",
                got="NaN or infinity",
                fix="look at that instance's input, or train with a smaller learning rate",
            )
        yield start, rows
