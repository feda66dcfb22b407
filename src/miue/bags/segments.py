"""Ragged batches: which instance of a flat tensor belongs to which bag, and reductions over bags.

Dimension key of the whole library: B bags, N instances (all bags of a batch together), C classes,
D features, K attention columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor
from torch.nn.functional import nll_loss

from miue.common.errors import DataError
from miue.common.text import plural

LARGE = 512  # mean bag size from which one sum or matrix product per bag beats scattered addition on a CPU
LONG = 4096  # rows up to which a running sum in float32 (scattered addition, a matrix product) keeps four digits


class Segments:
    """Sizes of the bags that lie one after another in a flat tensor of N instances.

    Args:
        sizes: instances per bag, each at least one.
        lengths: the same in main memory, so that no device is waited for; None reads them.

    Raises:
        DataError: a bag is empty.

    >>> segments = Segments(torch.tensor([2, 1]))
    >>> segments.index.tolist(), segments.offsets.tolist()
    ([0, 0, 1], [0, 2, 3])
    """

    def __init__(self, sizes: Int64[Tensor, "B"], lengths: Int64[np.ndarray, "B"] | None = None) -> None:
        self.sizes = sizes
        self.lengths = sizes.cpu().numpy() if lengths is None else lengths
        if len(self.lengths) and self.lengths.min() < 1:
            raise DataError(
                item=f"bag number {self.lengths.argmin()} of the batch",
                wanted="at least one instance",
                got=str(self.lengths.min()),
                fix="drop empty bags before batching",
            )

    @classmethod
    def of(cls, *sizes: int) -> Segments:
        """Return segments of the given sizes."""
        return cls(torch.tensor(sizes, dtype=torch.int64))

    @classmethod
    def ones(cls, count: int, device: torch.device) -> Segments:
        """Return that many bags of one instance each."""
        return cls(torch.ones(count, dtype=torch.int64, device=device), np.ones(count, np.int64))

    @property
    def num_bags(self) -> int:
        """B."""
        return len(self.sizes)

    @cached_property
    def num_instances(self) -> int:
        """N."""
        return int(self.lengths.sum())

    @cached_property
    def are_singletons(self) -> bool:
        """Whether every bag holds one instance, so that every reduction over bags is the identity."""
        return self.num_instances == self.num_bags

    @cached_property
    def are_large(self) -> bool:
        """Whether bags are summed one after another: faster, and in pairs, so that rounding does not pile up.

        Scattered addition in float32 takes the mean of a million times 0.1 for 0.101.
        """
        return self.num_instances >= LARGE * self.num_bags or (
            self.num_instances > LONG and bool(self.lengths.max() > LONG)
        )

    @cached_property
    def offsets(self) -> Int64[Tensor, "starts"]:
        """Where each bag starts in the flat tensor; the last entry is N."""
        return torch.cat([self.sizes.new_zeros(1), self.sizes.cumsum(0)])

    @cached_property
    def index(self) -> Int64[Tensor, "N"]:
        """The bag of each instance."""
        bags = torch.arange(self.num_bags, device=self.sizes.device)
        return torch.repeat_interleave(bags, self.sizes, output_size=self.num_instances)

    def singletons(self) -> Segments:
        """Return every instance as a bag of its own: an instance is a bag of one."""
        return Segments.ones(self.num_instances, self.sizes.device)

    def in_words(self) -> str:
        """Return how many bags of which sizes these are, for messages.

        >>> Segments.of(2, 1, 7).in_words()
        '3 bags of 1 to 7 instances'
        """
        bags, fewest, most = plural(self.num_bags, "bag"), int(self.lengths.min()), int(self.lengths.max())
        return f"{bags} of {plural(most, 'instance') if fewest == most else f'{fewest:,} to {most:,} instances'}"

    def split(self, values: Shaped[Tensor, "N *shape"]) -> tuple[Tensor, ...]:
        """Return the values of each bag, (n, *shape), as views."""
        parts: tuple[Tensor, ...] = values.split(self.lengths.tolist())
        return parts

    def to(self, device: torch.device | str) -> Segments:
        """Return the same segments on ``device``."""
        sizes = self.sizes.to(device)
        return self if sizes is self.sizes else Segments(sizes, self.lengths)

    def __repr__(self) -> str:
        return f"Segments({self.lengths.tolist()})"


def per_instance(values: Shaped[Tensor, "B *D"], segments: Segments) -> Shaped[Tensor, "N *D"]:
    """Repeat each bag's value for each of its instances: (B, …) → (N, …)."""
    if segments.are_singletons:
        return values
    if segments.are_large:  # whose gradient is a sum over each bag, not scattered addition
        pairs = zip(values, segments.lengths.tolist(), strict=True)
        return torch.cat([value.expand(size, *value.shape) for value, size in pairs])
    return values.index_select(0, segments.index)


def segment_sum(values: Float[Tensor, "N *D"], segments: Segments) -> Float[Tensor, "B *D"]:
    """Sum over each bag.

    >>> segment_sum(torch.tensor([1.0, 2.0, 5.0]), Segments.of(2, 1)).tolist()
    [3.0, 5.0]
    """
    if segments.are_singletons:
        return values
    if segments.are_large:
        return torch.stack([part.sum(0) for part in segments.split(values)])
    zeros = values.new_zeros((segments.num_bags, *values.shape[1:]))
    return zeros.index_add(0, segments.index, values)


def segment_mean(values: Float[Tensor, "N *D"], segments: Segments) -> Float[Tensor, "B *D"]:
    """Mean over each bag."""
    sizes = segments.sizes.reshape(-1, *[1] * (values.dim() - 1))
    return segment_sum(values, segments) / sizes


def segment_max(values: Float[Tensor, "N *D"], segments: Segments) -> Float[Tensor, "B *D"]:
    """Maximum over each bag; the gradient goes to the first instance that attains it."""
    if segments.are_singletons:
        return values
    return values.gather(0, segment_argmax(values, segments))


def segment_argmax(values: Float[Tensor, "N *D"], segments: Segments) -> Int64[Tensor, "B *D"]:
    """Return the flat position of each bag's (first) maximum, per column."""
    values = values.detach()
    if segments.are_large:  # without a position for each value
        pairs = zip(segments.split(values), segments.offsets[:-1], strict=True)
        return torch.stack([part.argmax(0) + start for part, start in pairs])
    index = segments.index.reshape(-1, *[1] * (values.dim() - 1)).expand_as(values)
    shape = (segments.num_bags, *values.shape[1:])
    highest = values.new_full(shape, -torch.inf).scatter_reduce(0, index, values, "amax")
    position = torch.arange(len(values), device=values.device).reshape(-1, *[1] * (values.dim() - 1))
    candidates = torch.where(values == highest.gather(0, index), position, len(values) - 1)
    return candidates.new_full(shape, len(values) - 1).scatter_reduce(0, index, candidates, "amin")


def segment_logsumexp(values: Float[Tensor, "N *D"], segments: Segments) -> Float[Tensor, "B *D"]:
    """log Σ exp over each bag, shifted by the bag's maximum so that nothing overflows."""
    if segments.are_singletons:
        return values
    highest = segment_max(values.detach(), segments)
    shifted = (values - per_instance(highest, segments)).exp()
    return segment_sum(shifted, segments).log() + highest


def segment_softmax(values: Float[Tensor, "N *D"], segments: Segments) -> Float[Tensor, "N *D"]:
    """Softmax over the instances of each bag, per column.

    >>> segment_softmax(torch.tensor([0.0, 0.0, 7.0]), Segments.of(2, 1)).tolist()
    [0.5, 0.5, 1.0]
    """
    if segments.are_singletons:
        return torch.ones_like(values)
    highest = segment_max(values.detach(), segments)
    shifted = (values - per_instance(highest, segments)).exp()
    return shifted / per_instance(segment_sum(shifted, segments), segments)


def segment_weighted_sum(
    values: Float[Tensor, "N D"], weights: Float[Tensor, "N K"], segments: Segments
) -> Float[Tensor, "B K D"]:
    """Σ over each bag of weight × value, for each of K columns of weights."""
    if segments.are_large:
        pairs = zip(segments.split(weights), segments.split(values), strict=True)
        return torch.stack([_product(weight, value) for weight, value in pairs])
    return segment_sum(weights.unsqueeze(2) * values.unsqueeze(1), segments)


def segment_products(
    values: Float[Tensor, "N D"], keys: Float[Tensor, "B K D"], segments: Segments
) -> Float[Tensor, "N K"]:
    """Products of each instance with the K keys of its bag."""
    if segments.are_large:  # without a copy of the keys for each instance
        pairs = zip(segments.split(values), keys, strict=True)
        return torch.cat([part @ key.T for value, key in pairs for part in value.split(LONG)])
    return torch.einsum("nd,nkd->nk", values, per_instance(keys, segments))


def _product(weights: Float[Tensor, "n K"], values: Float[Tensor, "n D"]) -> Float[Tensor, "K D"]:
    """Return the transposed weights times the values, ``LONG`` rows at a time."""
    pairs = zip(weights.split(LONG), values.split(LONG), strict=True)
    return torch.stack([weight.T @ value for weight, value in pairs]).sum(0)


@dataclass(frozen=True, eq=False)
class BagBatch:
    """Some bags packed into one flat tensor, with their labels where these are known.

    Attributes:
        instances: features (N, D) or images (N, H, W, channels); uint8 images keep their bytes.
        segments: which instance belongs to which bag.
        labels: class of each bag; zero where ``labeled`` is false.
        labeled: whether a bag's label is known.
        statistics: of the images that features were made of; None where unknown, or not read.
        observed: false where the label is the first of the classes that are possible; None where none is.
    """

    instances: Shaped[Tensor, "N *shape"]
    segments: Segments
    labels: Int64[Tensor, "B"]
    labeled: Bool[Tensor, "B"]
    statistics: Float[Tensor, "N S"] | None = None
    observed: Bool[Tensor, "B"] | None = None

    def log_likelihood(self, log_probabilities: Float[Tensor, "B C"]) -> Float[Tensor, "B"]:
        """Return the log probability of each bag's label, where it is a lower bound that of it and all later ones.

        Args:
            log_probabilities: of the classes.
        """
        of_label = -nll_loss(log_probabilities, self.labels, reduction="none")
        if self.observed is None:
            return of_label
        later = log_probabilities.flip(1).logcumsumexp(1).flip(1)
        return torch.where(self.observed, of_label, -nll_loss(later, self.labels, reduction="none"))

    def to(self, device: torch.device | str) -> BagBatch:
        """Return the same batch on ``device``."""
        return BagBatch(
            self.instances.to(device),
            self.segments.to(device),
            self.labels.to(device),
            self.labeled.to(device),
            None if self.statistics is None else self.statistics.to(device),
            None if self.observed is None else self.observed.to(device),
        )


def as_float(instances: Shaped[Tensor, "N *shape"]) -> Float[Tensor, "N *shape"]:
    """Return instances as a network takes them: float32, uint8 images (N, H, W, channels) scaled to [0, 1]."""
    if instances.dtype == torch.uint8 and instances.dim() == 4:
        return instances.to(torch.float32).div_(255)
    return instances if instances.dtype in (torch.float32, torch.float64) else instances.to(torch.float32)
