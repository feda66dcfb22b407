"""The Dirichlet distribution with the mean and the variance of several predictions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from miue.distributions.base import PredictiveDistribution, sum_classes
from miue.distributions.dirichlet import Dirichlet

MOST_EVIDENCE = 1e6  # α0 where all predictions agree, whose limit is infinite
LEAST_EVIDENCE = 1e-2  # α0 where they disagree as far as they can, whose limit is zero
LEAST_ALPHA = 1e-6


def to_dirichlet(draws: Sequence[PredictiveDistribution]) -> Dirichlet:
    """Return the Dirichlet distribution that matches mean and variance of draws or of an ensemble's members.

    α = α0 m with α0 = mean_c [m_c (1 − m_c) / v_c − 1], m and v the mean and variance of the class probabilities;
    v adds the variance within each member where members are Dirichlet distributions. Members that are ``Draws``
    themselves have none that is known, so that their own epistemic uncertainty is not counted. Where all agree,
    α0 is ``MOST_EVIDENCE``; where they disagree as far as they can, ``LEAST_EVIDENCE``. Mean probabilities are
    kept, within 1e-4 for two classes, so that evidence and vacuity of an ensemble can be compared with those of an
    evidential method. Of three classes or more, one that all members find very rare counts as much as the others,
    and can make α0 large where they disagree on these.

    Reference: Minka 2000, "Estimating a Dirichlet distribution", Section 1 (moments); the mean over classes
    follows Shen et al. 2024.

    Args:
        draws: predictions of the same items, at least one.

    >>> from miue.distributions import Categorical
    >>> first, second = Categorical(torch.tensor([[0.5, 0.5]])), Categorical(torch.tensor([[0.7, 0.3]]))
    >>> [round(alpha, 3) for alpha in to_dirichlet([first, second]).alpha[0].tolist()]
    [13.8, 9.2]
    """
    probabilities = torch.stack([draw.probabilities for draw in draws])
    mean = probabilities.mean(0)
    variance = ((probabilities - mean) ** 2).mean(0)
    for draw in draws:
        if isinstance(draw, Dirichlet):
            p = draw.probabilities
            variance = variance + p * (1 - p) / (draw.alpha0 + 1).unsqueeze(-1) / len(draws)
    varies = variance > mean * (1 - mean) / (MOST_EVIDENCE + 1)
    of_class = torch.where(varies, mean * (1 - mean) / torch.where(varies, variance, 1.0) - 1, 0.0)
    count = varies.sum(-1)
    alpha0 = torch.where(count > 0, sum_classes(of_class) / count.clamp(min=1), MOST_EVIDENCE)
    return Dirichlet((mean * alpha0.clamp(min=LEAST_EVIDENCE).unsqueeze(-1)).clamp(min=LEAST_ALPHA))
