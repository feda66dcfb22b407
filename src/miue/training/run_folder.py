"""The folder of a run: taken, resumed or cleared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from miue.common.errors import ConfigError, StorageError
from miue.common.files import make_folder, read_json, remove, remove_temporaries, write_json
from miue.common.folder_kinds import MODEL, UNFINISHED_RUN, FolderKind
from miue.common.outputs import refuse_taken
from miue.common.text import warn_user
from miue.model import MODEL_FILES, Model
from miue.training.checkpoints import LAST, epochs_in

IfExists = Literal["refuse", "resume", "overwrite"]

MAY_CHANGE = ("training.max_epochs", "distances")
"""What a resumed run may have in another way: how long it is trained, and what is fitted after that."""
FILES = (*MODEL_FILES, "log.csv", "run.json", "splits.csv", "trackers.json")
RUN = FolderKind(
    "a run",
    (*MODEL.shown_by, *UNFINISHED_RUN.shown_by),
    otherwise=", pass --resume to continue a run that is there, or pass --overwrite to replace it (in Python "
    "if_exists='resume' or if_exists='overwrite')",
)
MEMBERS, MEMBER = "members", "member.json"
"""Folder of an ensemble's members, and the file that each has once it is trained."""
FOLDERS = ("checkpoints", MEMBERS, "tensorboard", "mlflow", "wandb")


def open_run(folder: Path, if_exists: IfExists, description: dict[str, Any]) -> None:
    """Make the run's folder, or check that the one to resume is the same run; the caller holds its lock.

    A run without a finished epoch is begun anew. One that is to be trained for another number of epochs at most,
    or to have other distances, goes on from its checkpoints once these were found to be whole; its model stays
    until ``write_model`` replaces it.

    Args:
        folder: of the run.
        if_exists: what to do with what is there.
        description: all that must be the same for a run to be resumed, but for ``MAY_CHANGE``.

    Raises:
        ConfigError: the run to resume is another.
        StorageError: the folder is taken, cannot be written, or has no whole checkpoint to go on from.
    """
    path = folder / "run.json"
    _remove_left(folder)
    if _is_unbegun(folder):
        clear_run(folder)
    elif if_exists == "resume" and path.exists():
        if changed_to_resume(folder, description):
            _check_checkpoints(folder)
            for file in folder.glob(f"{MEMBERS}/*/{MEMBER}"):
                remove(file)
            if not (folder / "config.json").exists():
                write_json(path, description)
        return
    refuse_taken(folder, RUN, overwrite=if_exists == "overwrite")
    if folder.exists() and if_exists == "overwrite":
        clear_run(folder)
    make_folder(folder)
    write_json(path, description)


def is_finished(folder: Path, description: Mapping[str, Any]) -> bool:
    """Return whether ``folder`` holds the model of this run, and not one of fewer epochs or other distances."""
    return (folder / "config.json").exists() and not changed_to_resume(folder, description)


def write_model(model: Model, folder: Path, description: Mapping[str, Any]) -> None:
    """Write the model of a run that has ended, in place of one of fewer epochs or other distances.

    ``config.json`` goes first and comes last, so that what is left by a kill is no model. Where the folder was
    removed during training, the next checkpoint made it again, without ``run.json``.

    Raises:
        StorageError: something cannot be written.
    """
    is_replaced = (folder / "config.json").exists()
    if is_replaced:
        had_calibration = (folder / "calibration.json").exists()
        for name in MODEL_FILES:
            remove(folder / name)
        if had_calibration:
            warn_user(
                f"the calibration in {str(folder)!r} was of the model before and is removed: calibrate again",
            )
    if is_replaced or not (folder / "run.json").exists():
        write_json(folder / "run.json", description)
    model.write_into(folder)


def changed_to_resume(folder: Path, description: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return what of ``MAY_CHANGE`` differs between the run in ``folder`` and the one that is to resume it.

    Args:
        folder: of the run; one without a finished epoch, or none, is begun anew and may be any.
        description: of the run that is to resume it.

    Raises:
        ConfigError: anything else differs.
        StorageError: a damaged ``run.json``.
    """
    path = folder / "run.json"
    if not path.exists() or _is_unbegun(folder):
        return []
    changed = changes(read_json(path, what="run"), description)
    if others := [change for change in changed if change[0] not in MAY_CHANGE]:
        raise changed_setting(f"run {str(folder)!r}", others, "start anew with --overwrite")
    return changed


def _check_checkpoints(folder: Path) -> None:
    """Raise unless a run that is to have another number of epochs or distances can go on from where it is."""
    ended = [folder] if (folder / "config.json").exists() and not (folder / MEMBERS).is_dir() else []
    ended += [path.parent for path in sorted(folder.glob(f"{MEMBERS}/*/{MEMBER}"))]
    for training in ended:
        if not (training / "checkpoints" / LAST).exists():
            raise StorageError(
                item=f"run {str(training)!r}",
                wanted="its checkpoints, from which it goes on with another number of epochs or other distances",
                got="none; the model is as it was",
                fix="start anew with --overwrite",
            )
    for path in sorted(folder.rglob(LAST)):
        epochs_in(path)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return each setting that differs, by its path in nested descriptions, as it was and as it is.

    >>> changes({"training": {"seed": 1, "max_epochs": 5}}, {"training": {"seed": 2, "max_epochs": 5}})
    [('training.seed', 1, 2)]
    """
    return list(_changes(before, now, ""))


def changed_setting(item: str, changed: list[tuple[str, Any, Any]], instead: str) -> ConfigError:
    """Return the error that names the settings that differ; options first, as other bags may follow from them."""
    options = [change for change in changed if change[0] not in ("training_bags", "validation_bags")] or changed
    name, *values = options[0]
    before, now = ("nothing" if value is None else repr(value) for value in values)
    more = f" (also different: {', '.join(_as_given(name) for name, *_ in options[1:])})" if options[1:] else ""
    return ConfigError(
        item=item,
        wanted=f"the same {_as_given(name)} as when it was started, {before}",
        got=f"{now}{more}",
        fix=f"go on with what it was started with, or {instead}",
    )


def _as_given(name: str) -> str:
    """Return a setting's name as it is given: "learning_rate", "encoder.width", "network"."""
    for part in ("recipe.", "settings.", "training.", "model.", "options."):
        name = name.removeprefix(part)
    return name.removesuffix(".name").replace(".options.", ".")


def _changes(before: Any, now: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*now, *before)):
            yield from _changes(before.get(key), now.get(key), f"{name}.{key}" if name else str(key))
    elif before != now:
        yield name, before, now


def _is_unbegun(folder: Path) -> bool:
    """Return whether ``folder`` holds a run without a finished epoch, and nothing else."""
    if any(folder.rglob(LAST)) or not (folder / "run.json").is_file() or (folder / "config.json").exists():
        return False
    return all(file.name in (*FILES, *FOLDERS, ".lock") for file in folder.iterdir())


def _remove_left(folder: Path) -> None:
    """Remove temporary files of a process that was killed."""
    members = sorted((folder / MEMBERS).glob("*"))
    trainings = (folder, *members)
    remove_temporaries(*trainings, *(training / "checkpoints" for training in trainings))


def clear_run(folder: Path) -> None:
    """Remove the files of a run, and nothing else that may lie beside them.

    ``config.json`` goes first, so that what is left by a kill is no model, and ``run.json`` last, so that it is
    still known for a run, which the same command clears again.

    Raises:
        StorageError: something cannot be removed.
    """
    last = folder / "run.json"
    if (folder / "config.json").exists() and not last.exists():  # a model that was saved, not trained, there
        write_json(last, {})
    for name in FILES:
        if name != last.name:
            remove(folder / name)
    for name in FOLDERS:
        remove(folder / name)
    remove(last)
