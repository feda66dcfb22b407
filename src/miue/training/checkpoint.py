"""Checkpoints as safetensors: tensors as tensors, all else as JSON, no pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lightning.pytorch.plugins.io import CheckpointIO
from safetensors import SafetensorError, safe_open
from torch import Tensor

from miue.common.errors import StorageError
from miue.common.weights import digest, write_tensors

PARTS = ("epoch", "state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks")
"""What Lightning reads of a checkpoint."""


class SafetensorsCheckpointIO(CheckpointIO):
    """Write and read Lightning's nested checkpoint as one safetensors file.

    Tensors are stored under numbered names; the nest around them is JSON in the file's metadata, with
    tuples, keys that are not strings and non-finite numbers marked so that they come back as they were.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write ``checkpoint`` to ``path`` atomically."""
        write_nested(Path(path), checkpoint)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Return the checkpoint at ``path``.

        Raises:
            StorageError: the file is missing, damaged, or holds something else.
        """
        content = read_nested(Path(path))
        if not isinstance(content, dict) or not set(PARTS) <= set(content):
            raise _damaged(Path(path), f"one without {', '.join(PARTS)}")
        return content

    def remove_checkpoint(self, path: Any) -> None:
        """Delete the file."""
        Path(path).unlink(missing_ok=True)


def write_nested(path: Path, content: Any) -> None:
    """Write nested dicts, lists, tuples, numbers, strings and tensors to ``path``, atomically."""
    tensors: dict[str, Tensor] = {}
    structure = json.dumps(_encode(content, tensors))
    # one key of metadata: safetensors writes several in any order
    write_tensors(path, tensors, {"structure": f"{digest(tensors, structure)} {structure}"})


def read_nested(path: Path) -> Any:
    """Return what ``write_nested`` wrote.

    Raises:
        StorageError: the file is missing, or not byte for byte what was written.
    """
    try:
        with safe_open(path, "pt") as file:
            sha256, _, structure = (file.metadata() or {})["structure"].partition(" ")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if sha256 != digest(tensors, structure):
            raise ValueError("another content than its checksum says")
        return _decode(json.loads(structure), tensors)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, got: str) -> StorageError:
    return StorageError(
        item=f"checkpoint {str(path)!r}",
        wanted="a checkpoint written by miue",
        got=got,
        fix="start the run again without --resume",
    )


def epochs_in(path: Path) -> int:
    """Return how many epochs a run had finished when Lightning's checkpoint at ``path`` was written.

    Raises:
        StorageError: the file is missing or damaged.
    """
    return int(read_nested(path)["epoch"]) + 1


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
