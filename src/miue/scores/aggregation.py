"""Aggregation of instance distances to bag distances."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from miue.bags.segments import Segments, segment_mean

HIGH = 0.95


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
