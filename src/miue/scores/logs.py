"""Logs of scores that may be zero."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def floors_of(scores: Float[Tensor, "M K"]) -> Float[Tensor, "K"]:
    """Return the smallest positive value of each column, 1 where there is none.

    >>> floors_of(torch.tensor([[0.0, 0.0], [3.0, 0.0], [2.0, 0.0]])).tolist()
    [2.0, 1.0]
    """
    smallest = torch.where(scores > 0, scores, torch.inf).amin(0)
    return torch.where(smallest.isinf(), torch.ones_like(smallest), smallest)


def logs(scores: Float[Tensor, "n K"], floors: Float[Tensor, "K"]) -> Float[Tensor, "n K"]:
    """Return the log of each score, of smaller ones that of the column's floor."""
    return torch.maximum(scores, floors).log()
