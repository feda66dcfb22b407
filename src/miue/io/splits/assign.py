"""The splits of loaded bags: those specified, else their own, else drawn by patient and class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from miue.bags.names import hints_at, match_names
from miue.common.errors import ConfigError, DataError, first_few
from miue.common.text import plural
from miue.io.loaded import LeftOut, LoadedBags
from miue.io.splits.draw import make_split
from miue.io.splits.files import read_splits
from miue.io.splits.splits import Splits


def assign_splits(
    loaded: LoadedBags, splits: Path | str | Splits | None, fold: int = 0, *, skip_bad: bool = False
) -> LoadedBags:
    """Return the bags with the splits specified, else their own.

    Args:
        loaded: the bags, and the folds of their table.
        splits: a file of splits, or splits; None for those of the bags.
        fold: which of the folds.
        skip_bad: leave out names of the splits that no bag has, such as a bag that cannot be used; ``left_out`` of
            the result lists them.

    Raises:
        StorageError, DataError: splits that cannot be read, or not be those of these bags.
        ConfigError: a fold without splits.
    """
    chosen = read_splits(Path(splits)) if isinstance(splits, Path | str) else splits or loaded.folds
    if chosen is None and fold:
        raise ConfigError(
            item=f"fold {fold}",
            wanted="splits with several folds beside it",
            got="none",
            fix="pass the splits (--splits FILE, in Python splits=FILE), or leave the fold out",
        )
    if chosen is None:
        return loaded
    if skip_bad:
        loaded, chosen = _without_absent(loaded, chosen)
    bags = chosen.assign(loaded.bags, fold)
    notes = [*loaded.notes]
    if outside := [name for name, split in zip(bags.ids, bags.splits, strict=True) if not split]:
        notes.append(f"{plural(len(outside), 'bag')} in no split of {chosen.source!r}: {first_few(outside)}")
    of_bags = zip(bags.ids, bags.splits, loaded.bags.splits, strict=True)
    moved = [f"{name} ({own}, now {split or 'in none'})" for name, split, own in of_bags if own not in ("", split)]
    if splits is None and moved:
        had = f"{plural(len(moved), 'bag')} had another, as by a folder's name"
        notes.append(f"splits are those of {chosen.source!r}; {had}: {first_few(moved)}")
    return replace(loaded, bags=bags, notes=tuple(notes))


def draw_split(loaded: LoadedBags, validation_share: float) -> LoadedBags:
    """Return the bags with a split drawn by patient and class, where they have labels and no split.

    Args:
        loaded: the bags that are used: others have no share in what is drawn.
        validation_share: share of the bags outside the test split to validate on.
    """
    bags = loaded.bags
    if any(bags.splits) or not bags.labels.known.any():
        return loaded
    try:
        drawn = make_split(bags, validation=validation_share)
    except DataError as error:
        return replace(loaded, drawn=f"no split was drawn ({error})")
    said = f"split by {'patient and class' if bags.patients else 'class'} with seed 42"
    return replace(loaded, bags=drawn.assign(bags), drawn=said)


def _without_absent(loaded: LoadedBags, splits: Splits) -> tuple[LoadedBags, Splits]:
    """Return splits without the names that no bag has, which are listed as left out unless they were before."""
    kept, absent = splits.without_absent(loaded.bags)
    names = loaded.bags.patient_groups if splits.of_patients else loaded.bags.ids
    reason = f"listed in {splits.source!r}, but the data have no such {'patient' if splits.of_patients else 'bag'}"
    known = match_names(absent, [entry.bag for entry in loaded.left_out], splits.source)
    new = tuple(
        LeftOut(name, f"{reason}{hint}")
        for name, hint, row in zip(absent, hints_at(absent, names), known, strict=True)
        if row is None
    )
    return replace(loaded, left_out=(*loaded.left_out, *new)), kept
