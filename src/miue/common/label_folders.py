"""Folders of several labels: models, predictions or cross-validations, one for each label."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from miue.common.errors import ConfigError, MiueError, not_readable
from miue.common.files import make_folder, write_json
from miue.common.folder_kinds import LABELS, kind_of
from miue.common.outputs import refuse_taken
from miue.common.records import read_sealed, sealed

FILE = LABELS.shown_by[0]
FORMAT, VERSION = "miue-labels", 1
NAME = re.compile(r"\w[\w-]*")
LONGEST = 60  # characters of the name of a folder


class _Listed(BaseModel):
    """What labels.json says: the folder of each label."""

    model_config = ConfigDict(frozen=True)

    labels: dict[str, str]

    @field_validator("labels")
    @classmethod
    def _within(cls, labels: dict[str, str]) -> dict[str, str]:
        if not all(map(NAME.fullmatch, labels.values())):
            raise ValueError("names of folders that are none")
        return labels


def label_folders(folder: Path) -> dict[str, Path]:
    """Return the folder of each label by its name; nothing where ``folder`` is not of several labels.

    Raises:
        StorageError: a list that was changed or damaged.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    again, what = "make the folder again", "list of labels"
    content = read_sealed(path, what=what, format_name=FORMAT, version=VERSION, again=again)
    try:
        listed = _Listed.model_validate(content)
    except ValidationError as error:
        raise not_readable(f"{what} {str(path)!r}", "the folder of each label", error, again) from error
    return {label: folder / name for label, name in listed.labels.items()}


def open_label_folders(folder: Path, labels: Iterable[str], *, overwrite: bool, resume: bool) -> dict[str, Path]:
    """Make a folder of several labels, or take one of the same labels, and return the folder of each.

    Args:
        folder: whose lock the caller holds.
        labels: their names.
        overwrite: whether a folder of several labels may be replaced; the caller replaces what is in it.
        resume: whether one of the same labels is gone on with.

    Raises:
        StorageError: it is taken.
        ConfigError: the one to go on with has other labels.
    """
    folders = {label: folder / name for label, name in _names(labels).items()}
    if resume and kind_of(folder) is LABELS:
        if (there := label_folders(folder)) != folders:
            wanted, got = (", ".join(map(repr, names)) for names in (there, folders))
            fix = "name the same labels, or choose another folder"
            raise ConfigError(item=f"{str(folder)!r}", wanted=f"its labels {wanted}", got=got, fix=fix)
        return folders
    refuse_taken(folder, LABELS, overwrite=overwrite)
    make_folder(folder)
    names = {label: path.name for label, path in folders.items()}
    write_json(folder / FILE, sealed({"format": FORMAT, "version": VERSION, "labels": names}))
    return folders


@contextmanager
def of_label(name: str) -> Iterator[None]:
    """Name a label in an error of the block, unless its name is empty."""
    try:
        yield
    except MiueError as error:
        if not name:
            raise
        raise error.replaced(item=f"label {name!r}: {error.item}") from error


def _names(labels: Iterable[str]) -> dict[str, str]:
    """Return the name of a folder for each label: the label where it can be one, each once whatever its case.

    >>> _names(["HER2", "her2", "../ER", "?"])
    {'HER2': 'HER2', 'her2': 'her2_1', '../ER': 'ER', '?': 'label'}
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for number, label in enumerate(labels):
        plain = re.sub(r"[^\w-]+", "_", label)[:LONGEST].strip("_-") or "label"
        names[label] = plain if plain.casefold() not in taken else f"{plain}_{number}"
        taken.add(names[label].casefold())
    return names
