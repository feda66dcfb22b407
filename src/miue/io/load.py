"""Bags from files: found, labeled, split and checked, whether they are a store, a folder or a long table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from miue.bags.column_names import BAG
from miue.common.errors import ConfigError
from miue.common.tables import read_header
from miue.common.values import checked
from miue.io.checks import check_coords
from miue.io.find import find_bags, named_id_column
from miue.io.labels.describe import describe_patients_alike
from miue.io.labels.instance_labels import warn_of_other_classes, with_instance_labels
from miue.io.labels.join import label_bags, with_patients_of_barcodes
from miue.io.labels.label_arrays import read_bag_labels, with_instance_labels_of_arrays
from miue.io.labels.label_table import LabelTable, read_label_table
from miue.io.loaded import LoadedBags, ReadOptions
from miue.io.splits.assign import assign_splits, draw_split
from miue.io.splits.splits import Splits


@checked()
def load_bags(
    path: Path | str,
    *,
    labels: Path | str | LabelTable | None = None,
    splits: Path | str | Splits | None = None,
    instance_labels: Path | str | None = None,
    fold: int = 0,
    classes: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    slide_table: Path | str | None = None,
    microns_per_pixel: float | None = None,
    feature_key: str = "",
    features: Sequence[str] = (),
    instance_shape: tuple[int, ...] | None = None,
    validation_share: float | None = None,
    coords_for: str = "",
    patients: Literal["barcodes", "none"] = "barcodes",
    skip_bad: bool = False,
    progress: bool = False,
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
        fold: which of the splits.
        classes: order of the classes; the first is the negative one. Sorted if not specified.
        columns: names of columns of the label table, or of the long table, by what they mean: bag_id, label,
            patient; of a long table also what else it has, such as x and y. Others are found by their names.
            With both tables they are those of the label table; bag_id also of a long table and a table of
            instances' labels without such a column.
        slide_table: STAMP's table PATIENT, FILENAME, where ``labels`` has one row per patient.
        microns_per_pixel: of level 0, for files whose coords are in µm.
        feature_key: which table of features of lazyslide's stores is read, where they have several: "uni_tiles".
        features: columns of a long table to learn from, by their names or patterns of names (``f_*``), in this
            order; all without a meaning of their own if not specified. For a model that was trained on a table:
            ``model.contract.feature_names``.
        instance_shape: that a model takes; None for that of most files of a folder.
        validation_share: draw a split by patient and class with this share to validate on, where the bags have
            labels and no split; None draws none.
        coords_for: what needs coords, so that bags without them are refused, where ``skip_bad`` does not let some
            of them pass; "" for nothing.
        patients: where no patient is stated, those of TCGA barcodes that names of bags begin with, or none.
        skip_bad: leave out what cannot be used; ``left_out`` of the result lists it.
        progress: show a bar.

    Raises:
        DataError, StorageError, ConfigError: bags, labels or splits that cannot be used.
    """
    if slide_table is not None:
        _check_slide_table(labels)
    options = ReadOptions(microns_per_pixel, instance_shape, skip_bad, progress, feature_key)
    if isinstance(labels, Path | str) and Path(labels).is_dir():
        labels = read_bag_labels(Path(labels))
    columns = columns or {}
    of_bags = named_id_column(Path(path), columns) if isinstance(labels, Path | str) else columns
    found = find_bags(Path(path), of_bags, classes, options, features)
    if isinstance(labels, Path | str):
        of_labels = dict(columns)
        if of_bags and columns[BAG] not in read_header(Path(labels)):
            del of_labels[BAG]  # it names the column of the bags alone
        labels = read_label_table(Path(labels), of_labels, slide_table=slide_table, bag_names=found.ids)
    labeled = label_bags(found, labels, classes)
    if patients == "barcodes":
        labeled = with_patients_of_barcodes(labeled)
    if alike := describe_patients_alike(labeled.bags):
        labeled = replace(labeled, notes=(*labeled.notes, alike))
    assigned = assign_splits(labeled, splits, fold, skip_bad=skip_bad)
    if validation_share is not None:
        assigned = draw_split(assigned, validation_share)
    loaded = check_coords(assigned, found.path, coords_for, skip_bad=skip_bad) if coords_for else assigned
    if instance_labels is None:
        return loaded
    # bags without labels do not know their classes, which their instances may be named after
    named = loaded.bags if loaded.bags.class_names else replace(loaded.bags, class_names=tuple(classes))
    table = Path(instance_labels)
    if table.is_dir():
        bags = with_instance_labels_of_arrays(named, table)
    else:
        bags = with_instance_labels(named, table, named_id_column(table, columns))
    warn_of_other_classes(bags, str(instance_labels))
    return replace(loaded, bags=bags)


def _check_slide_table(labels: Path | str | LabelTable | None) -> None:
    """Raise unless labels are a table that a second one, of slides, can be joined to.

    Raises:
        ConfigError: they are not.
    """
    is_folder = isinstance(labels, Path | str) and Path(labels).is_dir()
    if isinstance(labels, Path | str) and not is_folder:
        return
    raise ConfigError(
        item="--slide-table (in Python slide_table)",
        wanted="a label table (--labels, in Python labels) beside it",
        got="a folder of arrays" if is_folder else "none",
        fix="pass the label table, or leave that of the slides out",
    )
