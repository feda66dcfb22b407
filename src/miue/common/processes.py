"""Which of several processes of one training this is, and what they share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, distributed
from torch.nn import Parameter

RANK_VARIABLES = ("RANK", "LOCAL_RANK")
"""Set by torchrun and by Lightning for the processes that it starts, in the order of precedence."""


def training_rank(processes: int) -> int:
    """Return the number of this process among ``processes`` of one training, 0 for the first or the only one.

    >>> training_rank(1)
    0
    """
    if processes == 1:
        return 0
    if _several_processes():
        return distributed.get_rank()
    names = [*RANK_VARIABLES, *(["SLURM_PROCID"] if is_training_of_slurm(processes) else [])]
    return next((int(os.environ[name]) for name in names if name in os.environ), 0)


def is_training_of_slurm(processes: int) -> bool:
    """Return whether srun started as many tasks as a training has processes, of which this is one."""
    tasks = os.environ.get("SLURM_NTASKS")
    return processes > 1 and tasks == str(processes) and "SLURM_STEP_ID" in os.environ


def sum_over_processes(values: Sequence[float]) -> list[float]:
    """Return the sum of each value over all processes of this training; the values themselves where it is one."""
    if not _several_processes():
        return list(values)
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    total = torch.tensor(values, dtype=torch.float64, device=device)
    distributed.all_reduce(total)
    result: list[float] = total.tolist()
    return result


def average_gradients(parameters: Iterable[Parameter]) -> None:
    """Replace each gradient by its mean over all processes of this training.

    A parameter without a gradient here counts as zero, and gets one if another process has one. The attention has
    none where all bags of a process hold one instance.
    """
    if not _several_processes():
        return
    trained = [p for p in parameters if p.requires_grad]
    has_gradient = torch.tensor([float(p.grad is not None) for p in trained], device=trained[0].device)
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
    total = torch.cat([has_gradient, *(gradient.reshape(-1) for gradient in gradients)])
    distributed.all_reduce(total)
    had, *means = total.div_(distributed.get_world_size()).split([len(trained), *(p.numel() for p in trained)])
    for anywhere, parameter, gradient, mean in zip(had.tolist(), trained, gradients, means, strict=True):
        if anywhere:
            parameter.grad = gradient.copy_(mean.reshape(gradient.shape))


def take_from_first(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by that of the first process of this training."""
    if _several_processes():
        for tensor in tensors:
            distributed.broadcast(tensor, src=0)


def _several_processes() -> bool:
    return distributed.is_available() and distributed.is_initialized()
