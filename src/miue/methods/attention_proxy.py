"""The attention a_k as a proxy for the probability of the positive class."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from miue.bags.segments import Segments, per_instance, segment_max
from miue.common.double_precision import in_double
from miue.distributions import Categorical

ROUNDING = 2**-16  # relative difference that float32 scores up to 64 give the attention of equal instances


def attention_proxy(
    attention: Float[Tensor, "N K"], logits: Float[Tensor, "B _"], segments: Segments
) -> Categorical:
    """Return a_k, min–max normalized over its bag, as the probability of class 1.

    With one column of attention per class (DSMIL), the column of the bag's predicted class is used. In a
    bag of one instance, or of instances with equal attention up to rounding, the proxy is uninformative: the
    probability is ½. Matrix products round equal rows differently, which normalization would make 0 and 1 of.

    Reference: Liu & Ji 2024, Section 2.1, and the published code.

    Args:
        attention: weight of each instance in its bag.
        logits: of the bags, two; beside one column of attention not read, and embeddings with some methods.
        segments: which instance belongs to which bag.
    """
    if attention.shape[1] > 1:
        attention = attention.gather(1, per_instance(logits.argmax(1), segments).unsqueeze(1))
    weight = in_double(attention.squeeze(1))
    segments = segments.to(weight.device)
    highest = per_instance(segment_max(weight, segments), segments)
    lowest = -per_instance(segment_max(-weight, segments), segments)
    spread = highest - lowest
    varies = spread > ROUNDING * highest
    positive = torch.where(varies, (weight - lowest) / torch.where(varies, spread, 1.0), 0.5)
    return Categorical(torch.stack([1 - positive, positive], 1))
