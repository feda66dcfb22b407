"""Bags from files: found, labeled, split and checked, whether they are a store, a folder or a long table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from miue.bags.column_names import BAG
from miue.common.errors import ConfigError
from miue.common.tables import read_header
from miue.common.values import checked
from miue.io.checks import check_coords, check_values
from miue.io.find import find_bags, named_id_column
from miue.io.labels.describe import describe_patients_alike
from miue.io.labels.instance_labels import warn_of_other_classes, with_instance_labels
from miue.io.labels.join import label_bags, with_patients_of_barcodes
from miue.io.labels.label_arrays import read_bag_labels, with_instance_labels_of_arrays
from miue.io.labels.label_table import LabelTable, read_label_table
from miue.io.loaded import LoadedBags, ReadOptions
from miue.io.splits.assign import assign_splits, draw_split
from miue.io.splits.splits import Splits
from miue.settings import LoadSettings

Read = TypeVar("Read", LabelTable, Splits)
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
        skip_bad: leave out what cannot be used; ``left_out`` of the result lists it.
        progress: show a bar.
        settings: all else, ``LoadSettings`` or its fields by name, such as {"fold": 2}.

    Raises:
        DataError, StorageError, ConfigError: bags, labels or splits that cannot be used.
    """
    direct: dict[str, Any] = {"instance_labels": instance_labels, "columns": columns, "skip_bad": skip_bad or None}
    direct |= {"classes": classes or None, "features": features or None}
    given = LoadSettings.of(settings, **direct)
    source = _path_or_read(labels, given.labels)
    if given.slide_table is not None:
        _check_slide_table(source)
    columns, classes = given.named_columns, given.classes
    options = ReadOptions(
        given.microns_per_pixel, given.instance_shape, given.skip_bad, progress, given.feature_key
    )
    if isinstance(source, Path) and source.is_dir():
        source = read_bag_labels(source)
    of_bags = named_id_column(Path(path), columns) if isinstance(source, Path) else columns
    found = find_bags(Path(path), of_bags, classes, options, given.features)
    if isinstance(source, Path):
        of_labels = dict(columns)
        if of_bags and columns[BAG] not in read_header(source):
            del of_labels[BAG]  # it names the column of the bags alone
        source = read_label_table(source, of_labels, slide_table=given.slide_table, bag_names=found.ids)
    labeled = label_bags(found, source, classes)
    if given.patients == "barcodes":
        labeled = with_patients_of_barcodes(labeled)
    if alike := describe_patients_alike(labeled.bags):
        labeled = replace(labeled, notes=(*labeled.notes, alike))
    chosen = _path_or_read(splits, given.splits)
    of_file = None if chosen == NO_SPLITS else chosen
    loaded = assign_splits(labeled, of_file, given.fold, skip_bad=given.skip_bad)
    if given.coords_for:
        loaded = check_coords(loaded, found.path, given.coords_for, skip_bad=given.skip_bad)
    if given.instance_labels is not None:
        loaded = _with_instance_labels(loaded, given.instance_labels, given)
    if given.check_values:
        loaded = check_values(loaded, str(path), skip_bad=given.skip_bad, progress=progress)
    if given.validation_share is not None and chosen is None:
        loaded = draw_split(loaded, given.validation_share)
    return loaded


def _path_or_read(direct: Path | str | Read | None, of_settings: Path | None) -> Path | Read | None:
    """Return a path, or what was read of one, that is passed directly, else that of the settings."""
    given = of_settings if direct is None else direct
    return Path(given) if isinstance(given, str) else given


def _with_instance_labels(loaded: LoadedBags, table: Path, given: LoadSettings) -> LoadedBags:
    """Return bags with labels of their instances, of a table or a folder of arrays."""
    # bags without labels do not know their classes, which their instances may be named after
    named = loaded.bags if loaded.bags.class_names else replace(loaded.bags, class_names=given.classes)
    if table.is_dir():
        bags = with_instance_labels_of_arrays(named, table)
    else:
        bags = with_instance_labels(named, table, named_id_column(table, given.named_columns))
    warn_of_other_classes(bags, str(table))
    return replace(loaded, bags=bags)


def _check_slide_table(labels: Path | LabelTable | None) -> None:
    """Raise unless labels are a table that a second one, of slides, can be joined to.

    Raises:
        ConfigError: they are not.
    """
    is_folder = isinstance(labels, Path) and labels.is_dir()
    if isinstance(labels, Path) and not is_folder:
        return
    raise ConfigError(
        item="slide_table",
        wanted="a label table (labels=TABLE) beside it",
        got="a folder of arrays" if is_folder else "none",
        fix="pass the label table, or leave that of the slides out",
    )
