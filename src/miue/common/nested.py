"""Nested dicts, lists, numbers and tensors as one safetensors file, all but the tensors as JSON; no pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from miue.common.errors import StorageError
from miue.common.files import open_file
from miue.common.weights import digest, write_tensors


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
