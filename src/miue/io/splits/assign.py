"""The splits of loaded bags: those specified, else their own, else drawn by patient and class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from miue.common.errors import ConfigError, DataError
from miue.io.loaded import LoadedBags
from miue.io.splits.draw import make_split
from miue.io.splits.files import read_splits
from miue.io.splits.splits import Splits


def assign_splits(
    loaded: LoadedBags, splits: Path | str | Splits | None, fold: int = 0, validation_share: float | None = None
) -> LoadedBags:
    """Return the bags with the splits specified, else their own, else such as are drawn by patient and class.

    Args:
        loaded: the bags, and the folds of their table.
        splits: a file of splits, or splits; None for those of the bags.
        fold: which of the folds.
        validation_share: to draw, where the bags have labels and no split; None draws none.

    Raises:
        StorageError, DataError: splits that cannot be read, or not be those of these bags.
        ConfigError: a fold without splits.
    """
    chosen = read_splits(Path(splits)) if isinstance(splits, Path | str) else splits or loaded.folds
    bags, drawn = loaded.bags, loaded.drawn
    if chosen is None and validation_share is not None and not any(bags.splits) and bags.labels.known.any():
        try:
            chosen = make_split(bags, validation=validation_share)
        except DataError as error:
            return replace(loaded, drawn=f"no split was drawn ({error})")
        drawn, fold = f"split by {'patient and class' if bags.patients else 'class'} with seed 42", 0
    if chosen is None and fold:
        raise ConfigError(
            item=f"fold {fold}",
            wanted="splits with several folds beside it",
            got="none",
            fix="pass the splits (--splits FILE), or leave the fold out",
        )
    return loaded if chosen is None else replace(loaded, bags=chosen.assign(bags, fold), drawn=drawn)
