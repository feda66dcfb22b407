"""Bags as commands take them: opened, labeled, and those to predict or to calibrate on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from miue.cli.flags import flag_of, with_flags
from miue.common.errors import ConfigError, DataError, first_few
from miue.common.text import plural, say

if TYPE_CHECKING:
    from miue.bags import BagDataset
    from miue.calibration import CalibrationBags
    from miue.io import LoadedBags
    from miue.model import DataContract, PartsOfRun
    from miue.settings import LoadSettings

HELD_OUT = "held out by training"


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

    if [*map(one_form, own)] != [*map(one_form, named)]:
        raise ConfigError(
            item=quoted_order(named),
            wanted=f"the classes that {item} has, in their order: {quoted_order(own)}",
            got="others",
            fix="leave --classes out; classes are named where files or tables are read first",
        )


def open_bags(path: Path, load: LoadSettings, *, progress: bool, **more: Any) -> LoadedBags:
    """Return the bags at ``path`` and what was left out.

    Args:
        path: store, folder or table.
        load: what the options say of them.
        progress: show a bar.
        more: further fields of ``load``.

    Raises:
        ConfigError: an option that does not fit what is at ``path``.
        DataError, StorageError: bags that cannot be used.
    """
    from miue.bags.cells import one_form
    from miue.io import load_bags, read_store_summary

    if load.classes and (path / "store.json").exists():
        refuse_other_classes(f"bag store {str(path)!r}", read_store_summary(path).class_names, load.classes)
    classes = tuple(map(one_form, load.classes))  # as tables are read
    return load_bags(path, progress=progress, settings={**load.given(), "classes": classes, **more})


def open_bags_of(
    contract: DataContract,
    path: Path,
    load: LoadSettings,
    *,
    progress: bool,
    labels: tuple[str, ...] = (),
    **more: Any,
) -> LoadedBags:
    """Return bags of the classes and columns that a model was trained on, and of patients as it was, if not said.

    Where models are of several labels, bags have those instead of classes.

    Raises:
        ConfigError, DataError, StorageError: as ``open_bags``.
    """
    from miue.bags.cells import one_form
    from miue.io import features_of_model

    names = labels or contract.class_names
    if labels and load.labels is not None:
        more["task"] = "multi-label"
    classes = tuple(map(one_form, load.classes)) or names
    if set(classes) == set(map(one_form, names)) and not (path / "store.json").exists():
        classes = names  # whose first is the negative one, as is said
    features = load.features or features_of_model(path, contract.feature_names)
    if contract.covariates:
        more["covariates"] = tuple(one.name for one in contract.covariates)
    if contract.encoders:
        more["instance_shape"] = None  # of all encoders together
    if contract.bag_per and load.bag_per is None:
        said = f"one bag per {contract.bag_per}, as the model was trained; --bag-per slide takes each slide as one"
        say(f"note: {said}", err=True)
        more["bag_per"] = contract.bag_per
    return open_bags(path, load, progress=progress, features=features, classes=classes, **more)


def label_as_trained(bags: BagDataset, load: LoadSettings, run: Path, classes: tuple[str, ...]) -> BagDataset:
    """Return bags that come without labels with those that the training listed for them, and say so.

    Raises:
        StorageError, DataError: a list that cannot be read.
    """
    labeled, said = as_trained(bags, load, run, classes)
    if said:
        say(said, err=True)
    return labeled


def as_trained(
    bags: BagDataset, load: LoadSettings, run: Path, classes: tuple[str, ...]
) -> tuple[BagDataset, str]:
    """Return bags that come without labels with labels and patients as the training listed them, and a sentence.

    Raises:
        StorageError, DataError: a list that cannot be read.
    """
    from miue.io import with_labels_of_run

    if load.labels is not None or bags.labels.known.any():
        return bags, ""
    return with_labels_of_run(bags, run / "splits.csv", classes)


def say_left_out(opened: LoadedBags) -> None:
    """Write where the labels come from, what to know of the files, and what was left out, to standard error."""
    from miue.settings import LoadSettings

    if opened.labels:
        say(opened.labels, err=True)
    flags = {name: flag_of(name) for name in LoadSettings.model_fields}
    for note in opened.notes:
        say(f"note: {with_flags(note, flags)}", err=True)
    for one in opened.left_out:
        if one.is_bad:
            say(f"left out: {one.bag}: {one.reason}", err=True)
    unlisted = [one.bag for one in opened.left_out if not one.is_bad]
    if unlisted:
        what = f"{plural(len(unlisted), 'file')} that the label table does not list"
        say(f"left out: {what}: {first_few(unlisted)}", err=True)


def calibration_bags(run: Path, bags: BagDataset, split: str | None) -> tuple[BagDataset, CalibrationBags]:
    """Return the bags to calibrate on, and which these are.

    Bags without splits are in the split in which the run lists them. Without ``split``: the split calibration,
    else validation; where the bags have no splits, those that the run lists as calibration, else as validation;
    where it lists none of them, all.

    Raises:
        DataError: bags or patients that the model was trained on, or no bags that are known not to be.
    """
    from miue.bags import fingerprint
    from miue.calibration import STOPPED_EARLY, CalibrationBags
    from miue.common.files import read_json
    from miue.model import parts_of_run

    known = parts_of_run(run, bags)
    if split is not None and not any(bags.splits) and split in known.parts:
        bags = replace(bags, splits=known.parts)
    held_out = known.within("validation")
    marks = read_json(run / "run.json", what="run") if (run / "run.json").exists() else {}
    chosen, name = _chosen(
        bags, split, {"calibration of the run": known.within("calibration"), HELD_OUT: held_out}
    )
    mark = fingerprint(chosen)
    seen = len(known.or_of_their_patients("train") & set(chosen.ids))
    if name == "train" or seen or mark == marks.get("training_bags"):
        raise DataError(
            item=f"split {name!r}",
            wanted="bags that took no part in training",
            got=f"{plural(seen or len(chosen), 'bag')} that the model was trained on, or others of their patients",
            fix="keep patients for calibration in a part of their own, and pass --part",
        )
    say_of_unknown_patients(known, chosen)
    validated = mark == marks.get("validation_bags") or held_out & set(chosen.ids)
    return chosen, CalibrationBags(split=name, fingerprint=mark, caveat=STOPPED_EARLY if validated else "")


def say_of_unknown_patients(of_run: PartsOfRun, chosen: BagDataset) -> None:
    """Say which of these bags may be of patients that the model learned from, by their names alone."""
    begun = of_run.perhaps_of_their_patients("train", "validation")
    if named := {name: begun[name] for name in chosen.ids if name in begun}:
        pairs = first_few(f"{name!r} of {patient!r}" for name, patient in named.items())
        say(
            f"note: {plural(len(named), 'bag')} may be of patients that the model learned from, by name alone: "
            f"{pairs}; if so, they are no test of the model: state patients in the table of --labels to be sure",
            err=True,
        )


def _chosen(bags: BagDataset, split: str | None, listed: Mapping[str, set[str]]) -> tuple[BagDataset, str]:
    """Return the bags, and their name; ``listed`` has those that the run lists, by the name to give them."""
    if split == "all":
        return bags, "all bags"
    for name in ("calibration", "validation") if split is None else ():
        if name in bags.splits:
            return bags.split(name), name
    if split is not None or any(bags.splits):
        return bags.split(split or "calibration"), split or "calibration"
    for part, names in listed.items():
        if names:
            return bags.subset([row for row, name in enumerate(bags.ids) if name in names]), part
    return bags, "all bags"
