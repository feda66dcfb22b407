"""Logs of scores that may be zero."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

ROUNDING = 1e-4
"""Values below this share of a column's root mean square may be rounding, such as the distance of an instance that
is there twice: its log would be noise."""


def floors_of(scores: Float[Tensor, "M K"], rounding: Float[Tensor, "K"] | None = None) -> Float[Tensor, "K"]:
    """Return the smallest value of each column that is no rounding, 1 where all are zero.

    Args:
        scores: at least 0.
        rounding: of each column, below which values say nothing; by default a share of its root mean square.

    >>> floors_of(torch.tensor([[0.0, 0.0], [3.0, 0.0], [2.0, 0.0]])).tolist()
    [2.0, 1.0]
    >>> floors_of(torch.tensor([[1e-9, 1e-9], [1.0, 1e-9]]), torch.tensor([0.5, 0.5])).tolist()
    [0.5, 0.5]
    """
    smallest = torch.where(scores > 0, scores, torch.inf).amin(0)
    smallest = torch.where(smallest.isinf(), torch.zeros_like(smallest), smallest)
    floors = torch.maximum(smallest, typical_rounding(scores) if rounding is None else rounding)
    return torch.where(floors > 0, floors, torch.ones_like(floors))


def typical_rounding(scores: Float[Tensor, "M K"]) -> Float[Tensor, "K"]:
    """Return ``ROUNDING`` times the root mean square of each column."""
    return ROUNDING * scores.square().mean(0).sqrt()


def logs(scores: Float[Tensor, "n K"], floors: Float[Tensor, "K"]) -> Float[Tensor, "n K"]:
    """Return the log of each score, of smaller ones that of the column's floor."""
    return torch.maximum(scores, floors).log()
