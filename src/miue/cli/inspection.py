"""What a folder holds, for a person or a program."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool

from miue.bags import BagDataset, describe_copies
from miue.bags.classes import doubt_about_negative_class, names_or_numbers
from miue.cli.bags import open_bags
from miue.common.errors import StorageError, first_few
from miue.common.files import read_json
from miue.common.folder_kinds import LABELS
from miue.common.label_folders import label_folders
from miue.common.tables import read_text_columns
from miue.common.text import ResultTable, plural, tracked
from miue.io import FilesLayout, LoadedBags, StoreLayout, describe_bag_files, find_layout
from miue.settings import LoadSettings

if TYPE_CHECKING:
    from miue.model import DataContract
    from miue.model.config import Component
    from miue.model.folder import RunConfig

MOST_ROWS = 40
"""Bags without a problem that a table of bag files shows."""


MOST_LINES = 20
"""Texts of one kind that are shown, one below the other."""

UNUSABLE, UNLISTED, NOTES = "bags that cannot be used", "files that the label table does not list", "notes"
FEATURES, SHAPE = "features", "instance shape"
LINES = (UNUSABLE, UNLISTED, NOTES)


def describe(
    path: Path,
    load: LoadSettings | None = None,
    *,
    read: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Return what is at ``path``, as JSON values; with labels or splits of bags, what training would read.

    Every file that a store, a model or predictions list is compared with its SHA-256.

    Args:
        path: a store, run, predictions, a folder of bag files, or a long table.
        load: labels and splits of bags, names of columns, and what else the options say of them.
        read: read every feature: find those that are not finite.
        progress: show a bar.

    Raises:
        StorageError: none of these, or a file that was changed or belongs to another folder.
        ConfigError: an option that fits only another kind of bags.
        DataError: labels or splits that do not fit the bags.
    """
    load = load or LoadSettings()
    if load.has_labels:
        return _describe_joined(path, load, read=read, progress=progress)
    if several := label_folders(path):
        every = [{"name": label, **describe(folder)} for label, folder in several.items()]
        return {"kind": LABELS.name, "path": str(path), "label": every}
    if (path / "run.json").exists() or (path / "config.json").exists():
        return _describe_run(path)
    if (path / "predictions.json").exists() or ((path / "bags.csv").exists() and not StoreLayout.matches(path)):
        return _describe_predictions(path, progress)
    layout = find_layout(path, load, progress=progress)
    if isinstance(layout, FilesLayout):
        return describe_bag_files(layout, read=read)
    return (
        _describe_store(path, read, progress) if StoreLayout.matches(path) else _describe_table(path, load, read)
    )


def description_table(description: dict[str, Any]) -> ResultTable:
    """Return a description as rows of name and value; a list of records becomes one row each."""
    rows = []
    for key, value in description.items():
        if key in ("kind", "path"):
            continue
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for record in value:
                name, *rest = record.values()
                facts = ", ".join(f"{k} {_show(v)}" for k, v in list(record.items())[1:])
                rows.append((f"{key} {name}", facts if rest else ""))
        elif key == SHAPE:
            rows.append((key, " × ".join(map(str, value))))
        elif key == FEATURES:
            rows.append((key, first_few(value, MOST_LINES)))
        elif key in LINES:
            more = len(value) - MOST_LINES
            rest = [f"and {more:,} more; --json lists all"] if more > 0 else []
            rows.append((f"{key} ({len(value):,})", "\n".join([*value[:MOST_LINES], *rest])))
        elif isinstance(value, dict):
            rows.append((key, ", ".join(f"{k} {_show(v)}" for k, v in value.items())))
        else:
            rows.append((key, _show(value)))
    return ResultTable(("", ""), rows, is_prose=True)


def bag_file_table(bags: list[dict[str, Any]]) -> ResultTable:
    """Return what bag files hold, and what to know of them below.

    A bag is a row, those with a problem last; of more than ``MOST_ROWS`` without one, the first are shown. A note
    of several bags is shown once, with their number.
    """
    rows = []
    well = [bag for bag in bags if not bag["problems"]]
    shown, hidden = well[:MOST_ROWS], well[MOST_ROWS:]
    said = []
    counts = Counter(text for bag in bags for text in bag["notes"])
    for bag in [*shown, *(bag for bag in bags if bag["problems"])]:
        cells = (
            bag["bag"],
            bag["format"],
            f"{bag['instances']:,}",
            " × ".join(map(str, bag["shape"])),
            bag["dtype"],
            "no" if bag["coords"] == "none" else "yes",
            "" if bag["patch size"] is None else str(bag["patch size"]),
            "no" if bag["problems"] else "yes",
        )
        rows.append(cells)
        own = [text for text in bag["notes"] if counts[text] == 1]
        said += [f"{bag['bag']}: {text}" for text in (*bag["problems"], *own)]
    said += [f"{text} ({count:,} of {len(bags):,} bags)" for text, count in counts.items() if count > 1]
    if hidden:
        noted = sum(any(counts[text] == 1 for text in bag["notes"]) for bag in hidden)
        notes = f", {noted:,} of them with a note of its own" if noted else ""
        said.append(f"{plural(len(hidden), 'further bag')} without a problem{notes}; --json lists all.")
    if any(bag["coords"] != "none" or bag["patch size"] is not None for bag in bags):
        said.insert(0, "Coords and patch (side of a patch) are in level-0 pixels.")
    heading = ("bag", "format", "N", "D", "dtype", "coords", "patch", "ok")
    return ResultTable(heading, rows, tuple(said), is_prose=True)


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}".removesuffix(".0") if 1000 <= abs(value) < 1e12 else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_show, value))
    if isinstance(value, dict):
        facts = ", ".join(f"{name} {_show(one)}" for name, one in value.items() if one != "")
        return f"({facts})" if facts else "none"
    return "none" if value is None else str(value)


def _describe_table(path: Path, load: LoadSettings, read: bool) -> dict[str, Any]:
    opened = open_bags(path, load, skip_bad=True, progress=False)
    return _facts_of_loaded(
        "long table", path, _with_values_read(path, opened, progress=False) if read else opened
    )


def _describe_joined(path: Path, load: LoadSettings, *, read: bool, progress: bool) -> dict[str, Any]:
    """Return what a command would read of bags with these labels and splits."""
    opened = open_bags(path, load, skip_bad=True, progress=progress)
    opened = _with_values_read(path, opened, progress=progress) if read else opened
    return _facts_of_loaded("bags with labels", path, opened)


def _with_values_read(path: Path, loaded: LoadedBags, *, progress: bool) -> LoadedBags:
    """Return the usable bags, with a note of rows that are zero in every feature, and one of copies of bags.

    Rows are zero as if they were never written; copies may come to be in two parts.
    """
    from miue.io import read_values

    loaded, zeros = read_values(loaded, str(path), skip_bad=True, progress=progress)
    of_bags = [
        f"{name} ({rows:,} of {size:,})"
        for name, rows, size in zip(loaded.bags.ids, zeros, loaded.bags.sizes, strict=True)
        if rows
    ]
    notes = []
    if of_bags:
        where = f"{plural(len(of_bags), 'bag')}: {first_few(of_bags)}"
        notes.append(
            f"{sum(zeros):,} of {loaded.bags.sizes.sum():,} rows are exactly zero in every feature, in {where}"
        )
    parts = [dict(zip(loaded.bags.ids, loaded.bags.splits, strict=True))] if any(loaded.bags.splits) else []
    if copies := describe_copies([loaded.bags], parts):
        notes.append(copies)
    return replace(loaded, notes=(*loaded.notes, *notes))


def _facts_of_loaded(kind: str, path: Path, loaded: LoadedBags) -> dict[str, Any]:
    said = {
        "labels": loaded.labels.removeprefix("labels: "),
        UNUSABLE: [f"{one.bag}: {one.reason}" for one in loaded.left_out if one.is_bad],
        UNLISTED: [one.bag for one in loaded.left_out if not one.is_bad],
        NOTES: [*loaded.notes, *filter(None, [doubt_about_negative_class(loaded.bags.class_names)])],
    }
    facts = {"kind": kind, "path": str(path), **_facts_of(loaded.bags), "split": _splits_of(loaded.bags)}
    return {**facts, **{name: texts for name, texts in said.items() if texts}}


def _describe_store(path: Path, read: bool, progress: bool) -> dict[str, Any]:
    from miue.io import read_store, read_store_summary, verify

    summary, bags = read_store_summary(path), read_store(path)
    verify(path, progress=progress)
    description = {
        "kind": "bag store",
        "path": str(path),
        "dtype": summary.dtype,
        **_facts_of(bags),
        "split": _splits_of(bags),
        "made by": summary.made_by,
    }
    if read:
        found = _with_values_read(path, LoadedBags(bags), progress=progress)
        texts = {UNUSABLE: [f"{one.bag}: {one.reason}" for one in found.left_out], NOTES: list(found.notes)}
        description |= {name: lines for name, lines in texts.items() if lines}
    return description


def _facts_of(bags: BagDataset) -> dict[str, Any]:
    facts: dict[str, Any] = {
        SHAPE: list(bags.instance_shape),
        "bags": len(bags),
        "instances": int(bags.sizes.sum()),
        "bag sizes": {
            "min": int(bags.sizes.min()),
            "median": float(np.median(bags.sizes)),
            "max": int(bags.sizes.max()),
        },
        "instance labels": _how_many_known(bags.instance_labels.known),
    }
    if bags.feature_names:
        facts[FEATURES] = list(bags.feature_names)
    facts |= _made_from(bags)
    if bags.covariates:
        facts["covariates"] = list(bags.covariates)
    if bags.patients is not None:
        facts["patients"] = len(set(bags.patients))
    return facts


def _how_many_known(known: Bool[np.ndarray, "M"]) -> str:
    count = int(known.sum())
    return "known" if count == len(known) else f"known of {count:,}" if count else "not known"


def _made_from(what: BagDataset | DataContract) -> dict[str, Any]:
    """Return what made the features of bags, or made those that a model needs, as far as it is known."""
    facts = {
        "encoder of the features": what.extractor,
        "joined encoders": [f"{name} ({width:,})" for name, width in what.encoders.items()],
        "patch scales": list(what.patch_scales),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _splits_of(bags: BagDataset) -> list[dict[str, Any]]:
    splits = []
    for split in dict.fromkeys(bags.splits):
        part = bags.subset([i for i, name in enumerate(bags.splits) if name == split])
        not_out = ~part.is_ood.out_of_distribution
        inside = part.labels.known & not_out
        names = names_or_numbers(bags.class_names, bags.num_classes)
        counts = np.bincount(part.labels.values[inside], minlength=len(names))
        record: dict[str, Any] = {
            "split": split or "(none)",
            "bags": len(part),
            "instances": int(part.sizes.sum()),
        }
        if bags.outcomes is None:
            record.update({f"class {name}": int(n) for name, n in zip(names, counts, strict=True)})
        record["unlabeled"] = int((~part.labels.known & not_out).sum())
        record["known in distribution"] = int(part.is_ood.in_distribution.sum())
        for name in sorted(set(part.ood_sets) - {""}):
            record[f"OOD {name}"] = part.ood_sets.count(name)
        splits.append(record)
    return splits


def _count_parameters(path: Path, saved: RunConfig) -> int | str:
    """Return the numbers that training set, or why they are not counted: third-party code is not run for that."""
    from miue.model.folder import read_shapes

    if third_party := saved.model.of_others:
        return f"not counted, as parts are not of miue: {', '.join(third_party)}"
    return int(sum(np.prod(shape) for shape in read_shapes(path, saved).values()))


def _describe_run(path: Path) -> dict[str, Any]:
    from miue.calibration import PARTS, Calibration
    from miue.model import SavedConfig, check_companions, read_config
    from miue.model.folder import RunConfig, check_config

    finished = (path / "config.json").exists()
    if finished:
        saved: RunConfig = read_config(path)
    else:
        item, fix = f"run {str(path / 'run.json')!r}", "start the run again with --overwrite"
        saved = check_config(RunConfig, read_json(path / "run.json", what="run"), item, fix)
    description: dict[str, Any] = {
        "kind": "trained model" if finished else "unfinished run (continue it with 'miue train … --resume')",
        "path": str(path),
        "network": _component(saved.model.network),
        "method": _component(saved.model.method),
        "encoder": _component(saved.model.encoder),
        SHAPE: list(saved.contract.instance_shape),
        "classes": list(saved.contract.class_names),
        **({} if saved.contract.target is None else {"task": saved.contract.target.kind}),
        **({"bag per": saved.contract.bag_per} if saved.contract.bag_per else {}),
        **_made_from(saved.contract),
    }
    if covariates := saved.contract.covariates:
        description["covariates"] = [one.in_words for one in covariates]
    if isinstance(saved, SavedConfig):
        check_companions(path, saved)
        description["training"] = saved.training.model_dump(mode="json", exclude_defaults=True)
        description["parameters"] = _count_parameters(path, saved)
    if (path / "calibration.json").exists():
        parts = Calibration.load(path).model_dump(mode="json")
        description["calibration"] = {name: _facts(part) for name, part in parts.items() if name in PARTS}
        if parts["covariate_shift"] is not None:
            description["calibration"]["covariate_shift"] = _facts(parts["covariate_shift"])
    if (path / "log.csv").exists():
        description |= _logged(path / "log.csv")
    if (path / "checkpoints" / "last.safetensors").exists():
        from miue.common.tensors import read_nested

        read_nested(path / "checkpoints" / "last.safetensors")  # damage is named before a resume meets it
    return description


def _logged(path: Path) -> dict[str, Any]:
    columns = read_text_columns(path)
    try:
        last = {name: float(values[-1]) for name, values in columns.items()}
    except ValueError as error:
        raise StorageError(
            item=f"log {str(path)!r}",
            wanted="numbers, one row for each epoch",
            got=str(error),
            fix="put back the file that the training wrote, or remove it",
        ) from error
    return {"epochs trained": len(next(iter(columns.values()))), "last epoch": last}


def _facts(part: dict[str, Any] | None) -> str:
    if part is None:
        return "left out"
    return " ".join(f"{key}={_show(value)}" for key, value in part.items() if value != "")


def _component(component: Component) -> str:
    options = ", ".join(f"{key}={value}" for key, value in component.options.items())
    return component.name + (f" ({options})" if options else "")


def _describe_predictions(path: Path, progress: bool) -> dict[str, Any]:
    from miue.predictions import count_known, read_predictions

    predictions = read_predictions(path)
    both = {"bags": predictions.bags, "instances": predictions.instances}
    tables = {name: table for name, table in both.items() if table is not None}
    facts = ("count", "labeled", "known in distribution", "known out of distribution")
    levels: dict[str, dict[str, Any]] = {
        name: {"level": name, **dict(zip(facts, count_known(table), strict=True))}
        for name, table in tables.items()
    }
    measures = [(name, table, k) for name, table in tables.items() for k in table.uncertainty_names]
    for name, table, k in tracked(measures, "read", shown=progress, unit="uncertainties", kept=False):
        levels[name][f"median {k}"] = float(np.median(table.uncertainty(k)))
    return {
        "kind": "predictions",
        "path": str(path),
        "distribution": type(predictions.bags.distribution).__name__,
        "classes": predictions.bags.distribution.num_classes,
        "made by": {name: one for name, one in predictions.provenance.facts().items() if name != "validation"},
        "level": list(levels.values()),
    }
