"""Which of several processes of one training this is."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import distributed

RANK_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
"""Set by torchrun, by Lightning for the processes that it starts, and by srun, in the order of precedence."""


def training_rank(processes: int) -> int:
    """Return the number of this process among ``processes`` of one training, 0 for the first or the only one.

    >>> training_rank(1)
    0
    """
    if processes == 1:
        return 0
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return next((int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ), 0)


def sum_over_processes(values: Sequence[float]) -> list[float]:
    """Return the sum of each value over all processes of this training; the values themselves where it is one."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return list(values)
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    total = torch.tensor(values, dtype=torch.float64, device=device)
    distributed.all_reduce(total)
    result: list[float] = total.tolist()
    return result
