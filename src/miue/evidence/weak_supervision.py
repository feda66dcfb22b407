"""Supervision of an instance estimator by bag labels alone.

A background bag contains only background instances, so the label of each is known. Of any other bag it is only
known that at least one instance is of the bag's class; there are three strategies for it.

Reference: Liu & Ji 2024, Eq. 10 and Appendix A.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from miue.bags import Segments, per_instance, segment_logsumexp, segment_sum
from miue.evidence.losses import expected_probability


class Supervision(NamedTuple):
    """Items with targets, formed from a batch's instances; a bag's loss is Σ weight · loss over its items.

    Attributes:
        log_evidence: of each item.
        target: class of each item.
        weight: of each item; the weights of a bag sum to one.
        bag: position of each item's bag in the batch.
    """

    log_evidence: Float[Tensor, "n C"]
    target: Int64[Tensor, "n"]
    weight: Float[Tensor, "n"]
    bag: Int64[Tensor, "n"]


Strategy = Callable[[Tensor, Tensor, Tensor, Segments], Supervision]
"""(log-evidence (N, C), weights w̄ (N,), target (B,), segments) → items with targets."""


def every_instance(
    log_evidence: Float[Tensor, "N C"], weights: Float[Tensor, "N"], target: Int64[Tensor, "B"], segments: Segments
) -> Supervision:
    """L1: every instance inherits the bag's label, with equal weights."""
    equal = per_instance(segments.sizes.to(log_evidence.dtype).reciprocal(), segments)
    return Supervision(log_evidence, per_instance(target, segments), equal, segments.index)


def weighted_loss(
    log_evidence: Float[Tensor, "N C"], weights: Float[Tensor, "N"], target: Int64[Tensor, "B"], segments: Segments
) -> Supervision:
    """L2: every instance inherits the bag's label, weighted by w̄."""
    return Supervision(log_evidence, per_instance(target, segments), weights, segments.index)


def weighted_evidence(
    log_evidence: Float[Tensor, "N C"], weights: Float[Tensor, "N"], target: Int64[Tensor, "B"], segments: Segments
) -> Supervision:
    """L_ins+: the bag's label supervises the weighted sum of its instances' evidence, Σ w̄_k e_k."""
    gathered = segment_logsumexp(weights.log().unsqueeze(1) + log_evidence, segments)
    bags = torch.arange(segments.num_bags, device=gathered.device)
    return Supervision(gathered, target, torch.ones_like(gathered[:, 0]), bags)


STRATEGIES: dict[str, Strategy] = {
    "weighted-evidence": weighted_evidence,
    "weighted-loss": weighted_loss,
    "every-instance": every_instance,
}


def instance_weights(
    log_evidence: Float[Tensor, "N C"], target: Int64[Tensor, "B"], segments: Segments
) -> Float[Tensor, "N"]:
    """w̄_k: expected probability of the bag's class under T, normalized over the bag, without gradient.

    Args:
        log_evidence: of T.
        target: class of each bag.
        segments: which instance belongs to which bag.
    """
    probability = expected_probability(log_evidence.detach())
    weights = probability.gather(1, per_instance(target, segments).unsqueeze(1)).squeeze(1)
    return weights / per_instance(segment_sum(weights, segments), segments)


def supervise(
    log_evidence: Float[Tensor, "N C"],
    weights: Float[Tensor, "N"],
    target: Int64[Tensor, "B"],
    segments: Segments,
    strategy: Strategy,
    background: int | None,
) -> Supervision:
    """Return every instance of background bags with its label, and the items of ``strategy`` for other bags.

    Args:
        log_evidence: of R.
        weights: w̄, which sum to one over each bag.
        target: class of each bag.
        segments: which instance belongs to which bag.
        strategy: supervision of bags that contain at least one instance of their class.
        background: the class whose bags contain only background instances; None if there is none.
    """
    weak = strategy(log_evidence, weights, target, segments)
    if background is None:
        return weak
    known = every_instance(log_evidence, weights, target, segments)
    is_background = target == background
    parts = [_only(known, is_background[known.bag]), _only(weak, ~is_background[weak.bag])]
    return Supervision(*(torch.cat(fields) for fields in zip(*parts, strict=True)))


def _only(items: Supervision, chosen: Bool[Tensor, "n"]) -> Supervision:
    return Supervision(*(field[chosen] for field in items))
