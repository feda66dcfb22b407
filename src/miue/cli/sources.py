"""Bags as a command takes them: a store, a folder of bag files with a label table, or a long table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.cli.options import LABELS, MANY_NAMES, RUNNING, ClassNames, separate_names
from miue.common.errors import ConfigError, first_few
from miue.common.text import plural, say

if TYPE_CHECKING:
    from miue.bags.dataset import BagDataset
    from miue.io.loaded import LoadedBags
    from miue.model.model import Model

BAGS_HELP = (
    "Bag store, folder of feature files (CLAM, TRIDENT, STAMP, lazyslide, arrays) or of images (a folder for each "
    "bag), long table (CSV, Parquet) or folder of tables, each named after its bag."
)
Bags = Annotated[Path, typer.Argument(metavar="BAGS", help=BAGS_HELP)]


def _option(metavar: str, help_text: str, **limits: Any) -> Any:
    return typer.Option(metavar=metavar, help=help_text, rich_help_panel=LABELS, **limits)


@dataclass(frozen=True)
class Source:
    """What the options of a command say of the bags."""

    labels: Annotated[
        Path | None,
        _option(
            "FILE",
            "Label table of the bags (CLAM, Patho-Bench, MIREL, STAMP), or folder of <bag>.npy (torchmil); ids "
            "are text.",
        ),
    ] = None
    label_column: Annotated[str | None, _option("NAME", "Column of the label, if not recognized.")] = None
    id_column: Annotated[str | None, _option("NAME", "Column of the bag's name, if not recognized.")] = None
    patient_column: Annotated[
        str | None, _option("NAME", "Column of the patient (case_id, patient_id, PATIENT), if not recognized.")
    ] = None
    patients: Annotated[
        str,
        _option(
            "barcodes|none", "Patients where no column states them: TCGA barcodes that names begin with, or none."
        ),
    ] = "barcodes"
    slide_table: Annotated[
        Path | None, _option("FILE", "STAMP's table of PATIENT and FILENAME, if --labels has one row per patient.")
    ] = None
    classes: ClassNames = None
    splits: Annotated[
        str | None,
        _option("FILE|none", "Splits (CLAM splits_k.csv, Patho-Bench, MIREL .npz, 'miue data split'), or none."),
    ] = None
    fold: Annotated[int, _option("N", "Number of the fold of --splits to use, from 0.", min=0)] = 0
    instance_labels: Annotated[
        Path | None,
        _option(
            "FILE",
            "Table bag_id, instance_label, and instance (from 0) or x, y (level-0 pixels), or folder of "
            "<bag>.npy; for evaluation only.",
        ),
    ] = None
    mpp: Annotated[
        float | None, _option("NUMBER", "µm per level-0 pixel, for files with coords in µm (STAMP).")
    ] = None
    feature_key: Annotated[
        str,
        _option("NAME", "Table of features to read from lazyslide stores that have several, such as uni_tiles."),
    ] = ""
    features: Annotated[
        list[str] | None,
        _option(
            "NAME",
            "Feature columns of a table of instances, names or patterns such as 'f_*'; by default those that the "
            f"model was trained on or, without one, all without a special meaning. {MANY_NAMES}",
            callback=separate_names,
        ),
    ] = None
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Leave out bags that cannot be used; list them.", rich_help_panel=RUNNING),
    ] = False

    @property
    def columns(self) -> dict[str, str]:
        """The columns that were named, by what they mean."""
        named = {"bag_id": self.id_column, "label": self.label_column, "patient": self.patient_column}
        return {meaning: name for meaning, name in named.items() if name is not None}

    @property
    def joins(self) -> bool:
        """Whether labels, splits or classes are said beside the bags."""
        said = (self.labels, self.slide_table, self.splits, self.instance_labels, self.classes)
        return any(one is not None for one in said)


def check_order(run: Path, bags: Path) -> None:
    """Raise where a command that takes a run and then bags is passed them in the other order.

    Raises:
        ConfigError: they are swapped.
    """
    if (bags / "config.json").exists() and not (run / "config.json").exists():
        raise ConfigError(
            item="the arguments", wanted="RUN, then BAGS", got=f"BAGS, then RUN ({str(bags)!r})", fix="swap them"
        )


def refuse_other_classes(item: str, own: Sequence[str], named: Sequence[str]) -> None:
    """Raise where --classes names other classes, or another order, than what is read has of its own.

    Raises:
        ConfigError: it does.
    """
    from miue.bags.cells import one_form
    from miue.bags.classes import quoted_order

    if list(map(one_form, own)) != list(named):
        raise ConfigError(
            item=quoted_order(named),
            wanted=f"the classes that {item} has, in their order: {quoted_order(own)}",
            got="others",
            fix="leave --classes out; classes are named where files or tables are read first",
        )


def open_bags(
    path: Path,
    source: Source,
    *,
    progress: bool,
    validation_share: float | None = None,
    check_values: bool = False,
    instance_shape: tuple[int, ...] | None = None,
    coords_for: str = "",
    model_classes: tuple[str, ...] = (),
    model_features: tuple[str, ...] = (),
) -> LoadedBags:
    """Return the bags at ``path`` and what was left out.

    Args:
        path: store, folder or table.
        source: what the options say of them.
        progress: show a bar.
        validation_share: draw a split by patient and class with this share to validate on, where there is none,
            unless "none" is asked for; None draws none.
        check_values: read all features of files once, to detect what is not finite, before a split is drawn.
        instance_shape: that a model takes; else that of most files of a folder.
        coords_for: the option that needs coords, so that bags without them cannot be used; "" for none.
        model_classes: those of a model, where none are named.
        model_features: the columns that a model was trained on, which are read of a table that has them all, where
            none are named.

    Raises:
        ConfigError: an option that does not fit what is at ``path``.
        DataError, StorageError: bags that cannot be used.
    """
    from miue.io.checks import check_values as check
    from miue.io.find import features_of_model
    from miue.io.load import load_bags
    from miue.io.splits.assign import draw_split
    from miue.io.store.store import read_store_summary

    if source.classes and (path / "store.json").exists():
        refuse_other_classes(f"bag store {str(path)!r}", read_store_summary(path).class_names, source.classes)
    loaded = load_bags(
        path,
        labels=source.labels,
        splits=None if source.splits == "none" else source.splits,
        instance_labels=source.instance_labels,
        fold=source.fold,
        classes=source.classes or model_classes,
        columns=source.columns,
        slide_table=source.slide_table,
        microns_per_pixel=source.mpp,
        feature_key=source.feature_key,
        features=source.features or features_of_model(path, model_features),
        instance_shape=instance_shape,
        coords_for=coords_for,
        patients=source.patients,  # type: ignore[arg-type]  # load_bags checks it
        skip_bad=source.skip_bad,
        progress=progress,
    )
    if check_values:
        loaded = check(loaded, str(path), skip_bad=source.skip_bad, progress=progress)
    return (
        loaded if validation_share is None or source.splits is not None else draw_split(loaded, validation_share)
    )


def open_bags_for(model: Model, path: Path, source: Source, *, progress: bool, coords_for: str = "") -> BagDataset:
    """Return bags of the classes and instances that a model takes, and say what was left out.

    Raises:
        ConfigError, DataError, StorageError: as ``open_bags``.
    """
    from miue.bags.cells import one_form

    contract = model.contract
    same = set(source.classes or ()) == set(map(one_form, contract.class_names))
    if same and not (path / "store.json").exists():
        source = replace(source, classes=list(contract.class_names))  # whose first is the negative one, as is said
    opened = open_bags(
        path,
        source,
        progress=progress,
        model_classes=contract.class_names,
        model_features=contract.feature_names,
        instance_shape=contract.instance_shape,
        coords_for=coords_for,
    )
    say_left_out(opened)
    return opened.bags


def label_as_trained(bags: BagDataset, source: Source, run: Path, classes: tuple[str, ...]) -> BagDataset:
    """Return bags that come without labels with those that the training listed for them, and say so.

    Raises:
        StorageError, DataError: a list that cannot be read.
    """
    labeled, said = as_trained(bags, source, run, classes)
    if said:
        say(said, err=True)
    return labeled


def as_trained(bags: BagDataset, source: Source, run: Path, classes: tuple[str, ...]) -> tuple[BagDataset, str]:
    """Return bags that come without labels with labels and patients as the training listed them, and a sentence.

    Raises:
        StorageError, DataError: a list that cannot be read.
    """
    from miue.io.labels.run_labels import with_labels_of_run

    if source.labels is not None or bags.labels.known.any():
        return bags, ""
    return with_labels_of_run(bags, run / "splits.csv", classes)


def say_left_out(opened: LoadedBags) -> None:
    """Write where the labels come from, what to know of the files, and what was left out, to standard error."""
    if opened.labels:
        say(opened.labels, err=True)
    for note in opened.notes:
        say(f"note: {note}", err=True)
    for one in opened.left_out:
        if one.is_bad:
            say(f"left out: {one.bag}: {one.reason}", err=True)
    unlisted = [one.bag for one in opened.left_out if not one.is_bad]
    if unlisted:
        what = f"{plural(len(unlisted), 'file')} that the label table does not list"
        say(f"left out: {what}: {first_few(unlisted)}", err=True)
