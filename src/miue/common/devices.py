"""Which device a computation runs on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import nn

from miue.common.errors import ConfigError, unknown_name
from miue.common.torch_state import own_torch_state

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
        module.eval().to(device)
    try:
        yield
    finally:
        with own_torch_state():
            module.train(was_training).to(was_on)


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
