"""Bags from files: found, labeled, split and checked, whether they are a store, a folder or a long table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from miue.common.errors import DataError, MiueError, first_few
from miue.common.text import tracked
from miue.common.values import checked
from miue.io.label_bags import label_bags
from miue.io.label_table import LabelTable
from miue.io.layouts import find_layout
from miue.io.loaded import LeftOut, LoadedBags, refuse_or_skip
from miue.io.split_files import assign_splits
from miue.io.splits import Splits, make_split
from miue.settings import LoadSettings

NO_SPLITS = Path("none")
"""In place of splits: those of the bags count, and none are drawn."""


@checked()
def load_bags(
    path: Path | str,
    *,
    labels: Path | str | LabelTable | None = None,
    splits: Path | str | Splits | None = None,
    instance_labels: Path | str | None = None,
    classes: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    bag_per: str | None = None,
    skip_bad: bool = False,
    progress: bool = False,
    settings: LoadSettings | Mapping[str, Any] | None = None,
) -> LoadedBags:
    """Return the bags at ``path``: a store, a folder of feature files, or a table with one row per instance.

    Args:
        path: a store; files of CLAM, TRIDENT, STAMP, lazyslide or arrays; a long table (CSV, Parquet); or a folder
            of tables, each of the bag that it is named after or with a column that names bags.
        labels: label table of bags that do not have labels of their own, or a folder with an array ``<bag>.npy``
            of one number for each (torchmil).
        splits: splits of CLAM, Patho-Bench, MIREL or ``miue data split``; those of the bags or the label table if
            None.
        instance_labels: table of instances' labels, or such a folder, for evaluation alone.
        classes: order of the classes; the first is the negative one. Sorted if not specified.
        columns: names of columns of the label table, or of the long table, by what they mean: bag_id, label,
            patient; of a long table also what else it has, such as x and y. Others are found by their names.
            With both tables they are those of the label table; bag_id also of a long table and a table of
            instances' labels without such a column.
        features: columns of a long table to learn from, by their names or patterns of names (``f_*``), in this
            order; all without a meaning of their own if not specified. For a model that was trained on a table:
            ``model.contract.feature_names``.
        bag_per: what a bag is of: "patient", whose slides then are one bag, another column of the label table, or
            "slide".
        skip_bad: leave out what cannot be used; ``left_out`` of the result lists it.
        progress: show a bar.
        settings: all else, ``LoadSettings`` or its fields by name, such as {"fold": 2}.

    Raises:
        DataError, StorageError, ConfigError: bags, labels or splits that cannot be used.
    """
    direct = {"labels": labels, "splits": splits, "instance_labels": instance_labels, "columns": columns}
    lists = {"classes": classes or None, "features": features or None, "skip_bad": skip_bad or None}
    given = LoadSettings.of(settings, **direct, **lists, bag_per=bag_per)
    found = find_layout(Path(path), given, progress=progress)
    labeled = label_bags(found, given)
    chosen = None if given.splits == NO_SPLITS else given.splits
    assert chosen is None or isinstance(chosen, Path | Splits)
    split = assign_splits(labeled, chosen, given.fold, skip_bad=given.skip_bad)
    return check_bags(split, given, str(path), progress=progress)


def check_bags(loaded: LoadedBags, given: LoadSettings, where: str, *, progress: bool) -> LoadedBags:
    """Return the bags that can be used, with a split drawn of them where one is wanted and there is none.

    Args:
        loaded: the bags.
        given: what is to be checked.
        where: they come from, for messages.
        progress: show a bar.

    Raises:
        DataError: bags without coords where these are needed, or features that are not finite or cannot be read.
    """
    bags, bare = loaded.bags, loaded.bags.without_coords
    if given.coords_for and bare and not (given.skip_bad and len(bare) < len(bags)):
        raise DataError(
            item=repr(where),
            wanted=f"coords, which {given.coords_for} needs",
            got="; ".join([f"{len(bare):,} of {len(bags):,} bags without ({first_few(bare)})", *loaded.notes]),
            fix=f"extract them with the features, or leave out {given.coords_for}",
        )
    if given.check_values and not isinstance(bags.instances, np.ndarray):
        loaded, _ = read_values(loaded, where, skip_bad=given.skip_bad, progress=progress)
    if given.validation_share is None or given.splits is not None:
        return loaded
    return draw_split(loaded, given.validation_share)


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


def read_values(loaded: LoadedBags, where: str, *, skip_bad: bool, progress: bool) -> tuple[LoadedBags, list[int]]:
    """Return the bags after all features were read once, and how many rows of each are zero in every feature.

    Args:
        loaded: the bags.
        where: they come from, for messages.
        skip_bad: leave out those that cannot be used.
        progress: show a bar.

    Raises:
        DataError: features that are not finite, or cannot be read; with ``skip_bad``, of all bags.
    """
    kept, zeros, bad = [], [], []
    for bag, name in enumerate(tracked(loaded.bags.ids, "checking", shown=progress)):
        try:
            rows = loaded.bags.batch([bag]).instances.flatten(1)
        except MiueError as error:
            if not skip_bad:
                raise
            bad.append(LeftOut(name, str(error)))
            continue
        kept.append(bag)
        zeros.append(int((~rows.any(1)).sum()))
    if bad:
        refuse_or_skip(where, len(kept), bad, skip_bad=skip_bad)
        loaded = replace(loaded, bags=loaded.bags.subset(kept), left_out=(*loaded.left_out, *bad))
    return loaded, zeros
