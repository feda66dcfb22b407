"""Checkpoints of Lightning as safetensors, without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.plugins.io import CheckpointIO

from miue.common.errors import ConfigError
from miue.common.files import remove
from miue.common.nested import damaged_checkpoint, encode_nested, read_nested, write_nested

PARTS = ("epoch", "state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks")
"""What Lightning reads of a checkpoint."""


class SafetensorsCheckpointIO(CheckpointIO):
    """Write and read Lightning's nested checkpoint as one safetensors file."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write ``checkpoint`` to ``path`` atomically.

        Raises:
            ConfigError: a callback's state cannot be written without pickle.
        """
        try:
            write_nested(Path(path), checkpoint)
        except TypeError as error:
            raise ConfigError(
                item=_unwritable(checkpoint),
                wanted="dicts, lists, numbers, strings and tensors to store in a checkpoint",
                got=str(error),
                fix="let the callback keep such a state, or none",
            ) from error

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Return the checkpoint at ``path``.

        Raises:
            StorageError: the file is missing, damaged, or holds something else.
        """
        content = read_nested(Path(path))
        if not isinstance(content, dict) or not set(PARTS) <= set(content):
            raise damaged_checkpoint(Path(path), f"one without {', '.join(PARTS)}")
        return content

    def remove_checkpoint(self, path: Any) -> None:
        """Delete the file."""
        remove(Path(path))


def _unwritable(checkpoint: dict[str, Any]) -> str:
    """Return the name of the callback whose state cannot be written, or of the part that one has added."""
    callbacks = {f"callback {name!r}": state for name, state in checkpoint["callbacks"].items()}
    added = {f"part {name!r} that a callback adds": part for name, part in checkpoint.items()}
    for name, part in {**callbacks, **added}.items():
        try:
            encode_nested(part)
        except TypeError:
            return name
    return "the checkpoint"


def epochs_in(path: Path) -> int:
    """Return how many epochs a run had finished when Lightning's checkpoint at ``path`` was written.

    Raises:
        StorageError: the file is missing or damaged.
    """
    return int(read_nested(path)["epoch"]) + 1
