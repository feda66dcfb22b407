"""Tensors: files of them, double precision, eigenvectors, and what a program has set in PyTorch."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from miue.common.errors import StorageError
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


def write_nested(path: Path, content: Any) -> None:
    """Write nested dicts, lists, tuples, numbers, strings and tensors to ``path``, atomically.

    Tensors are stored under numbered names; the nest around them is JSON in the file's metadata, with
    tuples, keys that are not strings and non-finite numbers marked so that they come back as they were.

    Raises:
        TypeError: a value of another kind.
    """
    structure, tensors = encode_nested(content)
    # one key of metadata: safetensors writes several in any order
    write_tensors(path, tensors, {"structure": f"{digest(tensors, structure)} {structure}"})


def read_nested(path: Path) -> Any:
    """Return what ``write_nested`` wrote.

    Raises:
        StorageError: the file is missing, or not byte for byte what was written.
    """
    open_file(path, f"checkpoint {str(path)!r}").close()
    try:
        with safe_open(path, "pt") as file:
            sha256, _, structure = (file.metadata() or {})["structure"].partition(" ")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if sha256 != digest(tensors, structure):
            raise ValueError("another content than its checksum says")
        return _decode(json.loads(structure), tensors)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise damaged_checkpoint(path, str(error)) from error


def damaged_checkpoint(path: Path, got: str) -> StorageError:
    """Return the error that names a checkpoint, what it holds instead, and what to do."""
    return StorageError(
        item=f"checkpoint {str(path)!r}",
        wanted="a checkpoint written by miue",
        got=got,
        fix="start the run anew with --overwrite",
    )


def encode_nested(content: Any) -> tuple[str, dict[str, Tensor]]:
    """Return the nest as JSON, and its tensors by the names that stand for them there.

    Raises:
        TypeError: a value that ``write_nested`` cannot write.
    """
    tensors: dict[str, Tensor] = {}
    return json.dumps(_encode(content, tensors)), tensors


def _encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = f"t{len(tensors)}"
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[_encode(k, tensors), _encode(v, tensors)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_encode(item, tensors) for item in value]}
    if isinstance(value, list):
        return {"list": [_encode(item, tensors) for item in value]}
    if isinstance(value, float) and not abs(value) < float("inf"):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"cannot store a {type(value).__name__} in a checkpoint")


def _decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {_decode(k, tensors): _decode(v, tensors) for k, v in content}
    if kind == "float":
        return float(content)
    items = [_decode(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items


WITHOUT_DOUBLE = {"mps"}  # Apple GPUs


def has_double(device: torch.device) -> bool:
    """Return whether a device computes in float64."""
    return device.type not in WITHOUT_DOUBLE


def in_double(values: Shaped[Tensor, "*shape"]) -> Shaped[Tensor, "*shape"]:
    """Return values in float64, in main memory where their device computes nothing in it.

    >>> in_double(torch.tensor([0.5])).dtype
    torch.float64
    """
    return (values if has_double(values.device) else values.cpu()).double()


def symmetric_eigen(
    matrices: Float[Tensor, "*batch D D"],
) -> tuple[Float[Tensor, "*batch D"], Float[Tensor, "*batch D D"]]:
    """Return the eigenvalues, ascending, and the orthonormal eigenvectors, as columns, of symmetric matrices.

    PyTorch calls LAPACK's divide and conquer, which does not converge on some matrices of many rows that are zero,
    such as the covariance of features most of which a ReLU switched off. QR iteration does, and takes longer.

    Raises:
        torch.linalg.LinAlgError: the algorithm fails on a matrix that is not finite.

    >>> symmetric_eigen(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))[0].tolist()
    [1.0, 2.0]
    """
    try:
        values, vectors = torch.linalg.eigh(matrices)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        if not matrices.isfinite().all():
            raise
        from scipy.linalg import eigh

        each = [eigh(one, driver="ev") for one in matrices.reshape(-1, *matrices.shape[-2:]).cpu().numpy()]
        values, vectors = (torch.from_numpy(np.stack(parts)).to(matrices) for parts in zip(*each, strict=True))
        values, vectors = values.reshape(matrices.shape[:-1]), vectors.reshape(matrices.shape)
    return values, vectors


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
