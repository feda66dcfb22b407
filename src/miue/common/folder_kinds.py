"""The kinds of folders that miue writes, each known by a file that it has."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

OR_OVERWRITE = ", or pass --overwrite to replace it (in Python overwrite=True)"


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder.

    Attributes:
        name: what one is called in messages, "a bag store".
        shown_by: files of which every folder of this kind has at least one, and no other folder has.
        parts: folders directly in it that belong to it although they are of another kind.
        files: patterns of its further files, without which it could not be read or continued.
        otherwise: what to do, other than to choose another folder, where one that holds files is to be written.
    """

    name: str
    shown_by: tuple[str, ...]
    parts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    otherwise: str = OR_OVERWRITE

    def matches(self, folder: Path) -> bool:
        """Return whether ``folder`` is one of this kind."""
        return any((folder / name).is_file() for name in self.shown_by)

    def has(self, name: str) -> bool:
        """Return whether a file directly in a folder of this kind, by its name, belongs to it."""
        return any(fnmatchcase(name, pattern) for pattern in (*self.shown_by, *self.files))


OF_A_RUN = (
    "*.safetensors",
    "config.json",
    "run.json",
    "validation.json",
    "error_model.json",
    "splits.csv",
    "log.csv",
)

EMPTY_SHARD = "empty_shard.json"
"""In place of the predictions of a shard without bags."""

STORE = FolderKind("a bag store", ("store.json",), files=("*.npy", "bags.csv"))
MODEL = FolderKind("a trained model", ("config.json",), files=OF_A_RUN)
UNFINISHED_RUN = FolderKind("a run whose training has not finished", ("run.json",), files=OF_A_RUN)
PREDICTIONS = FolderKind(
    "predictions", ("predictions.json", EMPTY_SHARD), files=("bags.csv", "instances.csv*", "patients.csv")
)
CROSS_VALIDATION = FolderKind(
    "a cross-validation",
    ("cross_validation.json",),
    files=("runs.csv", "summary.csv", "splits.csv"),
    otherwise="",
)
CHOICE = FolderKind("a choice", ("choice.json",), files=("choice.csv",), otherwise="")
EXPORT = FolderKind("an export", ("export.json",))
DEMO = FolderKind("a demo", ("evaluations/mirel.json",), parts=("store",))
CALIBRATION = FolderKind("a calibration", ("calibration.json",))
LABELS = FolderKind(
    "a folder of several labels",
    ("labels.json",),
    files=("splits.csv", "runs.csv", "summary.csv"),
)

KINDS = (STORE, MODEL, UNFINISHED_RUN, PREDICTIONS, CROSS_VALIDATION, CHOICE, EXPORT, DEMO, CALIBRATION, LABELS)
"""All kinds; of several that match the first is meant, as a model of miue has a run.json and a calibration too."""
KEPT = (STORE, MODEL, UNFINISHED_RUN, PREDICTIONS, CROSS_VALIDATION, CHOICE, LABELS)
"""Kinds that are not replaced with a folder around them, since they are dear or cannot be made again."""


def kind_of(folder: Path) -> FolderKind | None:
    """Return the kind of a folder, None where it is of none."""
    return next((kind for kind in KINDS if kind.matches(folder)), None)
