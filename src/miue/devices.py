"""Which device a computation runs on."""

from __future__ import annotations

import torch

from miue.errors import ConfigError, unknown_name

DEVICES = ("auto", "cpu", "gpu")


def torch_device(name: str) -> torch.device:
    """Return the device that a name stands for.

    Args:
        name: "auto" for an accelerator where there is one, "cpu", "gpu", or torch's own such as "cuda:1".

    Raises:
        ConfigError: no such device, or none that is there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device("cuda" if name == "gpu" else name)
    except RuntimeError as error:
        raise unknown_name("device", name, DEVICES) from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            item=f"device {name!r}",
            wanted="an accelerator",
            got=f"{torch.cuda.device_count()} of them",
            fix="choose the device 'cpu', or 'auto'",
        )
    return device
