"""Bags as a command takes them: a store, a folder of bag files with a label table, or a long table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from miue.common.errors import first_few
from miue.common.terminal import say

if TYPE_CHECKING:
    from miue.io.loaded import LoadedBags

BAGS_HELP = "Bag store, folder of feature files (CLAM, TRIDENT, STAMP, arrays), or long table (CSV, Parquet)."


@dataclass(frozen=True)
class Source:
    """What is told of the bags beside where they lie."""

    labels: Annotated[
        Path | None,
        typer.Option(help="Label table of the bags (CLAM, Patho-Bench, MIREL, STAMP); ids are text."),
    ] = None
    label_column: Annotated[str | None, typer.Option(help="Column of the label; found by name.")] = None
    id_column: Annotated[str | None, typer.Option(help="Column of the bag's name; found by name.")] = None
    patient_column: Annotated[
        str | None, typer.Option(help="Column of the patient (case_id, patient_id, PATIENT); found by name.")
    ] = None
    slide_table: Annotated[
        Path | None, typer.Option(help="STAMP's table PATIENT, FILENAME, where --labels has one row per patient.")
    ] = None
    classes: Annotated[
        str | None, typer.Option(help="Classes in order, with commas; the first is the negative one.")
    ] = None
    splits: Annotated[
        str | None,
        typer.Option(help="Splits (CLAM splits_k.csv, Patho-Bench, MIREL .npz, 'miue data split'), or none."),
    ] = None
    fold: Annotated[int, typer.Option(min=0, help="Which fold of the splits.")] = 0
    instance_labels: Annotated[
        Path | None, typer.Option(help="Table bag_id, instance, instance_label, for evaluation alone.")
    ] = None
    mpp: Annotated[
        float | None, typer.Option(help="µm per level-0 pixel, for files whose coords are in µm (STAMP).")
    ] = None
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Go on without bags that cannot be used, and list them.")
    ] = False

    def of_model(self, classes: tuple[str, ...]) -> Source:
        """Return what is told, with the classes of a model where none are given."""
        named = self.classes is not None or any("," in name for name in classes)
        return self if named else replace(self, classes=",".join(classes))


def takes_bags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that has a parameter ``source`` the options of ``Source`` in its place."""
    hints = get_type_hints(Source, include_extras=True)
    options = [
        inspect.Parameter(
            one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name]
        )
        for one in fields(Source)
    ]
    own = inspect.signature(command, eval_str=True)

    @wraps(command)
    def wrapped(**given: Any) -> None:
        told = {one.name: given.pop(one.name) for one in fields(Source)}
        command(**given, source=Source(**told))

    kept = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.parameters.values() if p.name != "source"]
    wrapped.__signature__ = own.replace(parameters=[*kept, *options])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in [*kept, *options]}
    return wrapped


def open_bags(
    path: Path,
    source: Source,
    *,
    progress: bool,
    validation_share: float | None = None,
    check_values: bool = False,
    instance_shape: tuple[int, ...] | None = None,
    coords_for: str = "",
) -> LoadedBags:
    """Return the bags at ``path`` and what was left out.

    Args:
        path: store, folder or table.
        source: what is told of them.
        progress: show a bar.
        check_values: read all features that lie in files once, to find what is not finite.
        validation_share: draw a split by patient and class with this share to validate on, where none is told,
            unless "none" is asked for; None draws none.
        instance_shape: that a model takes; else that of most files of a folder.
        coords_for: the option that needs coords, so that bags without them cannot be used; "" for none.

    Raises:
        ConfigError: an option that does not fit what lies at ``path``.
        DataError, StorageError: bags that cannot be used.
    """
    from miue.io.checks import check_values as check
    from miue.io.load import load_bags

    columns = {"bag_id": source.id_column, "label": source.label_column, "patient": source.patient_column}
    loaded = load_bags(
        path,
        labels=source.labels,
        splits=None if source.splits == "none" else source.splits,
        instance_labels=source.instance_labels,
        fold=source.fold,
        classes=[name.strip() for name in source.classes.split(",")] if source.classes else (),
        columns={name: column for name, column in columns.items() if column is not None},
        slide_table=source.slide_table,
        microns_per_pixel=source.mpp,
        instance_shape=instance_shape,
        validation_share=validation_share if source.splits is None else None,
        coords_for=coords_for,
        skip_bad=source.skip_bad,
        progress=progress,
    )
    return check(loaded, skip_bad=source.skip_bad, progress=progress) if check_values else loaded


def say_left_out(opened: LoadedBags) -> None:
    """Write what told the labels, what to know of the files, and what was left out and why, to standard error."""
    if opened.labels:
        say(opened.labels, err=True)
    for note in opened.notes:
        say(f"note: {note}", err=True)
    for one in opened.left_out:
        if one.is_bad:
            say(f"left out: {one.bag}: {one.reason}", err=True)
    unlisted = [one.bag for one in opened.left_out if not one.is_bad]
    if unlisted:
        what = f"{len(unlisted):,} files that the label table does not list"
        say(f"left out: {what}: {first_few(unlisted)}", err=True)
