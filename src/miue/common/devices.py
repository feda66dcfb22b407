"""Devices, threads, and the processes of one training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn import Parameter

from miue.common.errors import ConfigError, unknown_name
from miue.common.tensors import own_torch_state

DEVICES = ("auto", "cpu", "gpu")
KINDS = ("cpu", "cuda", "mps")


def torch_device(name: str) -> torch.device:
    """Return the device of a name.

    Args:
        name: "auto" for a CUDA device where there is one, else the CPU; "cpu"; "gpu" for whichever accelerator
            there is; or torch's own such as "cuda", "cuda:1" or "mps".

    Raises:
        ConfigError: no such device, or none that is there.
    """
    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if name == "auto":
        return torch.device("cuda" if there["cuda"] else "cpu")
    try:
        device = torch.device("mps" if name == "gpu" and there["mps"] else "cuda" if name == "gpu" else name)
    except RuntimeError as error:
        raise unknown_name("device", name, DEVICES) from error
    if device.type not in KINDS:
        raise unknown_name("device", name, DEVICES)
    if (device.index or 0) >= there[device.type]:
        raise ConfigError(
            item=f"device {name!r}",
            wanted="an accelerator",
            got=f"{there[device.type]} of them",
            fix="choose the device 'cpu', or 'auto'",
        )
    return device


@contextmanager
def evaluated_on(device: torch.device, module: nn.Module) -> Iterator[None]:
    """Have a module on a device, in evaluation mode, within the block, and bring it back to where it was.

    Args:
        device: of the block.
        module: with at least one parameter or buffer; all of it is on one device.
    """
    with own_torch_state():
        was_training, was_on = module.training, next(chain(module.parameters(), module.buffers())).device
        put(module, device, training=False)
    try:
        yield
    finally:
        if was_training or was_on != device:
            with own_torch_state():
                put(module, was_on, training=was_training)


def put(module: nn.Module, device: torch.device, *, training: bool) -> None:
    """Bring a module to a device and into a mode; where it is already, that takes no time.

    Args:
        module: with at least one parameter or buffer; all of it is on one device.
        device: where it is to be.
        training: the mode of all its parts.
    """
    if any(part.training is not training for part in module.modules()):
        module.train(training)
    if next(chain(module.parameters(), module.buffers())).device != device:
        module.to(device)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Have a module in evaluation mode within the block; each part of it gets back the mode that it was in."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for part, training in modes:
            part.training = training


def has_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for bfloat16; true where this is not known."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = getattr(torch.cpu, "get_capabilities", dict)  # which older versions of torch do not have
    found: Mapping[str, Any] = capabilities() if device.type == "cpu" else {}
    return found.get("architecture") != "x86_64" or any(found.get(name) for name in ("avx512_bf16", "amx_bf16"))


def lightning_device(name: str, devices: int = 1, nodes: int = 1) -> dict[str, Any]:
    """Return the arguments by which Lightning's trainer uses the device ``torch_device`` returns, or several.

    Args:
        name: of the device.
        devices: how many of this kind on each machine; on a CPU, the number of processes.
        nodes: machines.

    Raises:
        ConfigError: no such device, fewer than ``devices`` of them, or one by its number where several are wanted.

    >>> lightning_device("cpu")
    {'accelerator': 'cpu', 'devices': 1}
    """
    device = torch_device(name)
    if devices * nodes == 1:
        return {"accelerator": device.type, "devices": 1 if device.index is None else [device.index]}
    there = {"cpu": devices, "cuda": torch.cuda.device_count(), "mps": 1}[device.type]
    if devices > there or device.index is not None:
        raise ConfigError(
            item=f"{devices} devices on each machine",
            wanted=f"at most {there}, which this machine has, and a device named without a number",
            got=f"device {name!r}",
            fix=f"pass --devices {there}, or --device cpu for processes without an accelerator",
        )
    return {"accelerator": device.type, "devices": devices, "num_nodes": nodes}


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


Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield the result of each item, in order; each is computed by one of as many threads as PyTorch uses here.

    A result does not depend on how many threads there are. There are no gradients.

    Raises:
        Exception: what ``work`` raises, of the first item for which it does.

    >>> list(in_threads(lambda rows: rows.sum().item(), torch.arange(6.0).split(2)))
    [1.0, 5.0, 9.0]
    """
    threads = torch.get_num_threads()

    def on_one_thread(item: Item) -> Result:
        torch.set_num_threads(1)
        with torch.no_grad():
            return work(item)

    try:
        if threads == 1 or len(items) < 2:
            yield from map(on_one_thread, items)
            return
        with ThreadPoolExecutor(min(threads, len(items)), "computing") as pool:
            yield from pool.map(on_one_thread, items)
    finally:
        torch.set_num_threads(threads)  # of this thread, and of those that begin later
