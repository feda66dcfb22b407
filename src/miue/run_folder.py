"""The folder of a run: taken, resumed or cleared."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

from miue.errors import ConfigError
from miue.files import read_json, refuse_existing, write_json

IfExists = Literal["refuse", "resume", "overwrite"]


def open_run(folder: Path, if_exists: IfExists, description: dict[str, Any]) -> None:
    """Make the run's folder, or check that the one to resume is the same run."""
    path = folder / "run.json"
    if if_exists == "resume" and path.exists():
        before = read_json(path, what="run")
        changed = [key for key in description if before.get(key) != description[key]]
        if changed:
            raise ConfigError(
                item=f"run {str(folder)!r}",
                wanted=f"the same {changed[0]} as when it was started",
                got=f"{description[changed[0]]} instead of {before.get(changed[0])}",
                fix="resume with the options it was started with, or start anew with --overwrite",
            )
        return
    refuse_existing(folder, overwrite=if_exists == "overwrite")
    if folder.exists() and if_exists == "overwrite":
        _clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, description)


def _clear(folder: Path) -> None:
    """Remove the files of a run, and nothing else that may lie beside them."""
    files = (
        "config.json",
        "model.safetensors",
        "distances.safetensors",
        "calibration.json",
        "validation.json",
        "log.csv",
        "run.json",
        "splits.csv",
        "trackers.json",
    )
    for name in files:
        (folder / name).unlink(missing_ok=True)
    for name in ("checkpoints", "members", "together", "tensorboard", "mlflow", "wandb"):
        shutil.rmtree(folder / name, ignore_errors=True)
