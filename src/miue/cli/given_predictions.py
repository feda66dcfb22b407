"""Predictions as a command takes them: a folder, or tables of any tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from miue.cli.sources import refuse_other_classes
from miue.common.errors import one_of_two
from miue.common.text import say

if TYPE_CHECKING:
    from miue.predictions.folder import Predictions


def read_given(path: Path, instances: Path | None = None, classes: Sequence[str] | None = None) -> Predictions:
    """Return the predictions in a folder or in tables, and say how the columns of a table were read.

    Raises:
        ConfigError: a folder beside a table of instances, or --classes that do not name its classes.
        StorageError, DataError: predictions that cannot be read.
    """
    from miue.bags.classes import check_names_given
    from miue.predictions.any_table import read_any_tables
    from miue.predictions.folder import read_predictions

    if path.exists() and not path.is_dir():
        predictions, recognized = read_any_tables(path, instances, classes or ())
        if recognized:
            say(f"note: {recognized}", err=True)
        return predictions
    if instances is not None:
        raise one_of_two(
            "a folder of predictions with --instances", fix="pass the bag table instead of the folder"
        )
    predictions = read_predictions(path)
    shard = predictions.provenance.shard
    if shard is not None:
        alone = f"{str(path)!r} holds shard {shard.number}/{shard.count} alone, and not the bags of the others"
        say(f"Note: {alone}; 'miue merge' joins them", err=True)
    own = predictions.provenance.classes
    if classes and own:
        refuse_other_classes(f"{str(path)!r}", own, classes)
    if classes and not own:
        check_names_given(classes, predictions.bags.distribution.num_classes, repr(str(path)))
        named = predictions.provenance.model_copy(update={"classes": tuple(classes)})
        return replace(predictions, provenance=named)
    return predictions
