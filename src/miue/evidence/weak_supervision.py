"""Teaching an instance estimator with bag labels alone: what a bag's label says of its instances.

A background bag holds only background instances, so each of them has a known label. In any other bag
only one instance is known to be of the bag's class; three strategies say what to make of that.

Reference: Liu & Ji 2024, Eq. eq-loss-ins and Appendix apx-der-insloss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from miue.bags.segments import Segments, per_instance, segment_logsumexp, segment_sum
from miue.evidence.losses import expected_probability


class Supervision(NamedTuple):
    """Items that have a target, made of a batch's instances; a bag's loss is Σ weight · loss of its items.

    Attributes:
        log_evidence: of each item.
        target: class of each item.
        weight: of each item; a bag's sum to one.
        bag: position of each item's bag in the batch.
    """

    log_evidence: Float[Tensor, "n C"]
    target: Int64[Tensor, "n"]
    weight: Float[Tensor, "n"]
    bag: Int64[Tensor, "n"]


Strategy = Callable[[Tensor, Tensor, Tensor, Segments], Supervision]
"""(log-evidence (N, C), weights w̄ (N,), target (B,), segments) → items with targets."""


def every_instance(
    log_evidence: Float[Tensor, "N C"],
    weights: Float[Tensor, "N"],
    target: Int64[Tensor, "B"],
    segments: Segments,
) -> Supervision:
    """L1: every instance inherits the bag's label, all alike."""
    even = segments.sizes.to(log_evidence.dtype).reciprocal()
    inherited = per_instance(target, segments)
    return Supervision(log_evidence, inherited, per_instance(even, segments), segments.index)


def weighted_loss(
    log_evidence: Float[Tensor, "N C"],
    weights: Float[Tensor, "N"],
    target: Int64[Tensor, "B"],
    segments: Segments,
) -> Supervision:
    """L2: every instance inherits the bag's label, weighted by w̄."""
    return Supervision(log_evidence, per_instance(target, segments), weights, segments.index)


def weighted_evidence(
    log_evidence: Float[Tensor, "N C"],
    weights: Float[Tensor, "N"],
    target: Int64[Tensor, "B"],
    segments: Segments,
) -> Supervision:
    """L_ins+: the bag's label is asked of the weighted sum of its instances' evidence, Σ w̄_k e_k."""
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
    """w̄_k: expected probability of the bag's own class under T, normalised over the bag; no gradient.

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
    """Return every instance of background bags with its label, and what ``strategy`` makes of the others.

    Args:
        log_evidence: of R.
        weights: w̄, each bag's summing to one.
        target: class of each bag.
        segments: which instance belongs to which bag.
        strategy: what to make of bags that hold an instance of their class somewhere.
        background: the class whose bags hold nothing else; None where there is no such class.
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
