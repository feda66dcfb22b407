"""Predictions as a command takes them: a folder, or tables of any tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from miue.common.errors import ConfigError

if TYPE_CHECKING:
    from miue.predictions.folder import Predictions


def read_given(command: str, folder: Path | None, bags: Path | None, instances: Path | None) -> Predictions:
    """Return the predictions in ``folder``, or those of the tables.

    Raises:
        ConfigError: both or neither, or instances without bags.
        StorageError, DataError: predictions that cannot be read.
    """
    from miue.predictions.folder import read_predictions, read_tables

    if folder is not None and bags is None and instances is None:
        return read_predictions(folder)
    if folder is None and bags is not None:
        return read_tables(bags, instances)
    raise ConfigError(
        item=command,
        wanted="a folder of predictions, or --bags FILE with or without --instances FILE",
        got="both or neither",
        fix="give one of the two",
    )
