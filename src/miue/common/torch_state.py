"""What computes here is not changed by what a program has set in PyTorch, nor by its other threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import RLock

import torch

_CPU = torch.device("cpu")
_alone = RLock()


def _begin_anew() -> None:
    """Let a process that was forked compute, whatever other threads did in that moment."""
    global _alone
    _alone = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@contextmanager
def own_torch_state(*, trains: bool = False) -> Iterator[None]:
    """Compute as if nothing had been set in PyTorch, and restore what was.

    Weights and bags are float32 and begin on the CPU, whatever the default dtype and device are; there is no
    autocast but that of ``encoder_precision``. Generator and modes of layers belong to the process: of several
    threads that train, build or predict, one does at a time, so that each computes what it would alone.

    Args:
        trains: gradients are needed, also within ``torch.no_grad()`` and ``torch.inference_mode()``.

    >>> torch.set_default_dtype(torch.float64)
    >>> with own_torch_state():
    ...     torch.zeros(1).dtype
    torch.float32
    >>> torch.set_default_dtype(torch.float32)
    """
    with _alone, ExitStack() as stack:
        if torch.get_default_device() != _CPU:
            stack.enter_context(_CPU)
        if (dtype := torch.get_default_dtype()) is not torch.float32:
            stack.callback(torch.set_default_dtype, dtype)
            torch.set_default_dtype(torch.float32)
        for device in {"cpu", *([kind.type] if (kind := torch.accelerator.current_accelerator()) else [])}:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if trains:
            if torch.is_inference_mode_enabled():
                stack.enter_context(torch.inference_mode(False))
            if not torch.is_grad_enabled():
                stack.enter_context(torch.enable_grad())
        yield
