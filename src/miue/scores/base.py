"""The base class of distances to the training features, what they read, and the distances of bags."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from miue.bags import Segments, segment_mean
from miue.common.devices import in_threads
from miue.common.errors import ConfigError, DataError, ModelError
from miue.common.returned import describe_returned
from miue.common.tensors import in_double

HIGH = 0.95
FIX = "correct what it computes, or train without it"
CHUNK = 512  # instances per step
ON_DEVICES = 64  # times as many on an accelerator, where a step of few instances takes as long as one of many


class FeatureDistance(nn.Module, ABC):
    """The distance of an instance's features h to those of the training instances.

    It is fitted without gradients: ``fit`` computes float64 buffers, which ``state_dict()`` returns and
    ``from_state`` restores. A subclass defines ``name`` and ``state_names``, the first of which is a tensor of
    width D, and overrides ``_fitted_state`` and ``_distances``. One that is computed from something else than h
    sets ``reads``: "statistics" of images (D = S), "logits" (energy and largest logit), "features and logits"
    (side by side, D + 2), or "scores" (of two other distances, D = 2). One that computes in many small steps sets
    ``is_threaded``: on a CPU, chunks are then computed side by side, each by one thread.

    Args:
        state: the tensors named by ``state_names``.
    """

    name: ClassVar[str]
    reads: ClassVar[str] = "features"
    is_threaded: ClassVar[bool] = False
    state_names: ClassVar[tuple[str, ...]]

    def __init__(self, **state: Tensor) -> None:
        super().__init__()
        if missing := [name for name in self.state_names if name not in state]:
            item, wanted = f"distance {type(self).__name__}", f"its fitted state, {', '.join(self.state_names)}"
            fix = f"pass the class itself, distances=[{type(self).__name__}], which training fits"
            raise ConfigError(item=item, wanted=wanted, got=f"none for {', '.join(missing)}", fix=fix)
        for name in self.state_names:
            # contiguous as safetensors requires, and aligned: products of other addresses may be rounded otherwise
            self.register_buffer(name, state[name].clone(memory_format=torch.contiguous_format))

    @classmethod
    @torch.no_grad()
    def fit(
        cls, features: Float[Tensor, "M D"], bag_labels: Int64[Tensor, "M"] | None, *, generator: torch.Generator
    ) -> FeatureDistance:
        """Return the distance fitted to the training instances, without instance labels.

        Args:
            features: h of the training instances, at least two that differ.
            bag_labels: the bag label of each instance, used only by the class-conditional distance.
            generator: source of randomness for distances that subsample.

        Raises:
            DataError: fewer than two instances, all instances equal, or a feature that is not finite.
            ModelError: a distance of another package that computes other tensors than it names.
        """
        if len(features) < 2:
            fix = "fit the distance on more bags"
            raise DataError(
                item="training features", wanted="2 instances or more", got=str(len(features)), fix=fix
            )
        for _ in finite_chunks(features):
            pass
        if torch.equal(features.amin(0), features.amax(0)):
            got = f"the same features for all {len(features)}"
            raise DataError(
                item="training features", wanted="instances that differ", got=got, fix="check the encoder"
            )
        state, width = cls._fitted_state(features, bag_labels, generator), features.shape[1]
        found = state if isinstance(state, Mapping) else {}
        parts: list[Any] = [found.get(name) for name in cls.state_names]
        if all(isinstance(part, Tensor) for part in parts) and parts[0].shape[-1:] == (width,):
            return cls(**state)
        raise ModelError(
            item=f"distance {cls.name!r}",
            wanted=f"the tensors {', '.join(cls.state_names)} from _fitted_state, the first with rows of {width}",
            got=", ".join(f"{name} ({describe_returned(part)})" for name, part in found.items()) or "none",
            fix=FIX,
        )

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> FeatureDistance:
        """Return the distance with this ``state_dict()``.

        Raises:
            ModelError: the tensors are not those of this distance.
        """
        if set(state) != set(cls.state_names):
            wanted, got = (", ".join(sorted(names)) or "none" for names in (cls.state_names, state))
            fix = "save the model again"
            raise ModelError(item=f"saved distance {cls.name!r}", wanted=f"the tensors {wanted}", got=got, fix=fix)
        return cls(**state)

    @torch.no_grad()
    def score(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
        """Return each instance's distance in float64, where ``in_double`` takes the features.

        Higher is more uncertain.

        Raises:
            DataError: the features are not finite, or their width differs from that of the training features.
            ModelError: a distance of another package that is no finite number for each instance.
        """
        return self._by_chunk(features, lambda rows: self._checked(self._distances(rows), len(rows)))

    def _by_chunk(
        self, features: Float[Tensor, "N D"], compute: Callable[[Float[Tensor, "n D"]], Float[Tensor, "... n"]]
    ) -> Float[Tensor, "... N"]:
        """Return what is computed from each chunk, side by side on the features' device.

        Args:
            features: of instances.
            compute: takes float64 features on the device of the distance.

        Raises:
            DataError: the features are not finite, or their width differs from that of the training features.
        """
        self.check_width(features)
        device = self.get_buffer(self.state_names[0]).device
        size = per_step(CHUNK, device)

        def of_chunk(start: int) -> Tensor:
            rows = finite_chunk(features, start, "features to score", size)
            return compute(rows.to(device)).to(rows.device)

        starts = range(0, len(features), size) or range(1)
        each = in_threads if self.is_threaded and device.type == "cpu" else map
        return torch.cat(list(each(of_chunk, starts)), -1)

    def _checked(self, distances: Tensor, count: int) -> Tensor:
        """Return the distances that ``_distances`` computed, if there is a finite one for each instance."""
        is_one_each = tuple(distances.shape) == (count,)
        if is_one_each and distances.isfinite().all():
            return distances
        got = f"{distances[~distances.isfinite()][0]:g}" if is_one_each else f"shape {tuple(distances.shape)}"
        wanted = f"a finite number for each of {count} instances, shape ({count},)"
        raise ModelError(item=f"distance {self.name!r}", wanted=wanted, got=got, fix=FIX)

    def check_width(self, features: Float[Tensor, "N D"]) -> None:
        """Raise unless the features are as wide as the training features.

        Raises:
            DataError: they are not.
        """
        if features.shape[1] != self.width:
            wanted, got = f"{self.width} columns, as in the training features", str(features.shape[1])
            fix = "encode them with the encoder the distance was fitted with"
            raise DataError(item="features to score", wanted=wanted, got=got, fix=fix)

    @property
    def width(self) -> int:
        """D."""
        return self.get_buffer(self.state_names[0]).shape[-1]

    @classmethod
    @abstractmethod
    def _fitted_state(
        cls, features: Float[Tensor, "M D"], bag_labels: Int64[Tensor, "M"] | None, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Return the tensors named by ``state_names``, in float64."""

    @abstractmethod
    def _distances(self, rows: Float[Tensor, "n D"]) -> Float[Tensor, "n"]:
        """Return the distances of one chunk of instances in float64."""


def per_step(instances: int, device: torch.device) -> int:
    """Return how many instances a device takes at a step, of which a CPU takes ``instances``."""
    return instances if device.type == "cpu" else instances * ON_DEVICES


def finite_chunks(features: Float[Tensor, "N D"]) -> Iterator[tuple[int, Float[Tensor, "n D"]]]:
    """Yield the position and float64 features of ``CHUNK`` training instances at a time.

    Raises:
        DataError: a feature is not finite.
    """
    for start in range(0, len(features), CHUNK):
        yield start, finite_chunk(features, start, "training features", CHUNK)


def finite_chunk(features: Float[Tensor, "N D"], start: int, item: str, size: int) -> Float[Tensor, "n D"]:
    """Return the float64 features of at most ``size`` instances from ``start`` on.

    Raises:
        DataError: a feature is not finite.
    """
    rows = in_double(features[start : start + size])
    if not rows.sum().isfinite() and not (finite := rows.isfinite().all(1)).all():
        first = start + int(finite.logical_not().int().argmax())
        item, fix = f"{item}, instance {first}", "check its input, or train with a smaller learning rate"
        raise DataError(item=item, wanted="finite numbers", got="NaN or infinity", fix=fix)
    return rows


@dataclass(frozen=True)
class InstanceViews:
    """Some instances as scores read them.

    Attributes:
        features: h of the first network.
        statistics: of the images, None where there are none.
        logits: returns T.
    """

    features: Float[Tensor, "N D"]
    statistics: Float[Tensor, "N S"] | None
    logits: Callable[[], Float[Tensor, "N C"]]

    def read(self, what: str) -> Float[Tensor, "N W"]:
        """Return the rows that a score with this value of ``reads`` takes; of logits, energy and the largest."""
        if what == "statistics":
            assert self.statistics is not None
            return self.statistics
        if what == "features":
            return self.features
        logits = self.logits()
        of_logits = torch.stack([-logits.logsumexp(1), logits.amax(1)], 1)
        return of_logits if what == "logits" else torch.cat([self.features, of_logits], 1)


def bag_distances(instance_scores: Float[Tensor, "N"], segments: Segments) -> dict[str, Float[Tensor, "B"]]:
    """Return the "mean" of each bag's instance scores and "high", their 0.95 quantile.

    high = s_⌊p⌋ + (p − ⌊p⌋)(s_⌈p⌉ − s_⌊p⌋), p = 0.95 (n − 1), with the n scores s in ascending order.

    >>> scores = bag_distances(torch.tensor([0.0, 20.0, 7.0]), Segments.of(2, 1))
    >>> scores["mean"].tolist(), scores["high"].tolist()
    ([10.0, 7.0], [19.0, 7.0])
    """
    return {"mean": segment_mean(instance_scores, segments), "high": _quantile(instance_scores, segments)}


def _quantile(values: Float[Tensor, "N"], segments: Segments) -> Float[Tensor, "B"]:
    """Return the ``HIGH`` quantile of each bag, interpolated linearly."""
    if segments.are_singletons:
        return values
    ascending = values.argsort()
    within_bags = ascending[segments.index[ascending].argsort(stable=True)]
    position = HIGH * (segments.sizes - 1).double()
    below, above = (
        values[within_bags[segments.offsets[:-1] + p.long()]] for p in (position.floor(), position.ceil())
    )
    return torch.lerp(below, above, position.frac().to(values.dtype))
