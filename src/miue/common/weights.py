"""Tensors as they are stored: a module's weights by name, their checksum, and safetensors files of them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from miue.common.files import atomic_file, open_file


def copy_weights(module: torch.nn.Module) -> dict[str, Tensor]:
    """Return a copy of the weights of ``module`` as they are stored."""
    return {name: value.detach().cpu().contiguous().clone() for name, value in module.state_dict().items()}


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write named tensors to the safetensors file ``path``, atomically.

    safetensors' own ``save_file`` goes through a temporary file that a kill leaves, makes it readable for its
    owner alone, and only the text of its error shows that the disk is full.

    Raises:
        StorageError: the disk is full or the folder cannot be written.
    """
    content = save(tensors, metadata)
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the named tensors in the safetensors file ``path``.

    Raises:
        StorageError: missing, or no file that may be read.
        SafetensorError: a damaged file.
    """
    open_file(path).close()
    return load_file(path)


def digest(tensors: dict[str, Tensor], text: str = "") -> str:
    """Return the SHA-256 of named tensors, of any type and shape, and a text."""
    checksum = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        checksum.update(f"\0{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        checksum.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return checksum.hexdigest()
