"""Remainders of the gamma, digamma and trigamma functions for large arguments.

Each is a special function minus its leading terms. The closed forms of the Dirichlet distribution are sums in
which these leading terms, of size α log α, cancel; written with remainders, they add no large numbers. Below
``SERIES_FROM`` the remainder is computed from the function, above it from the asymptotic series, whose first
omitted term is below 1e-16 there.

Reference: Abramowitz & Stegun 6.1.41, 6.3.18, 6.4.12.
"""

from __future__ import annotations

from math import log, pi

import torch
from jaxtyping import Float
from torch import Tensor

SERIES_FROM = 16.0
_HALF_LOG_TWO_PI = log(2 * pi) / 2
# B_2k / (2k (2k − 1)), B_2k / 2k and B_2k for k = 1 … 6
_LGAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)


def lgamma_remainder(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """log Γ(x) − [(x − ½) log x − x + ½ log 2π], for x > 0; about 1/12x."""
    small, large = x.clamp(max=SERIES_FROM), x.clamp(min=SERIES_FROM)
    direct = torch.lgamma(small) - ((small - 0.5) * small.log() - small + _HALF_LOG_TWO_PI)
    return torch.where(x < SERIES_FROM, direct, _series(_LGAMMA, large.reciprocal()) / large)


def digamma_remainder(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """log x − 1/2x − ψ(x), for x > 0; about 1/12x²."""
    direct = x.log() - 0.5 / x - torch.digamma(x)
    return torch.where(x < SERIES_FROM, direct, _digamma_tail(x.clamp(min=SERIES_FROM)))


def digamma_gap(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """ψ(x + 1) − log x, for x > 0; about −log x near zero, where 1/x would cancel, and 1/2x for large x."""
    direct = torch.digamma(x + 1) - x.log()
    return torch.where(x < SERIES_FROM, direct, 0.5 / x - _digamma_tail(x.clamp(min=SERIES_FROM)))


def trigamma(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """ψ′(x) for x > 0, as the Hurwitz zeta function ζ(2, x).

    ``torch.polygamma(1, x)`` is off by up to 5e-10 in float64; this is accurate to the last digits.
    """
    return torch.special.zeta(torch.full_like(x, 2.0), x)


def inverse_trigamma_remainder(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """1/ψ′(x) − x + ½, for x > 0; about 1/12x."""
    small, large = x.clamp(max=SERIES_FROM), x.clamp(min=SERIES_FROM)
    direct = trigamma(small).reciprocal() - small + 0.5
    tail, excess = _trigamma_series(large)
    return torch.where(x < SERIES_FROM, direct, (excess / 2 - tail) / (1 + excess))


def trigamma_excess(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """x ψ′(x) − 1, for x > 0; about 1/2x."""
    small, large = x.clamp(max=SERIES_FROM), x.clamp(min=SERIES_FROM)
    return torch.where(x < SERIES_FROM, small * trigamma(small) - 1, _trigamma_series(large)[1])


def _trigamma_series(x: Float[Tensor, "*n"]) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
    """x² (ψ′ − 1/x − 1/2x²), about 1/6x, and x ψ′ − 1, from ``SERIES_FROM``."""
    inverse = x.reciprocal()
    tail = _series(_TRIGAMMA, inverse) * inverse
    return tail, (0.5 + tail) * inverse


def _digamma_tail(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """log x − 1/2x − ψ(x), from ``SERIES_FROM``."""
    return _series(_DIGAMMA, x.reciprocal()) / x**2


def _series(coefficients: tuple[float, ...], inverse: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """c₀ + c₁ u + c₂ u² + … with u = 1/x²."""
    u = inverse**2
    total = torch.full_like(u, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * u + coefficient
    return total
