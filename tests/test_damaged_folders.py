"""Runs, stores and predictions of which a file is damaged: named by inspect, by loading and by resuming."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import fail, run
from made_bags import separable_bags, train_with
from safetensors.numpy import load_file, save_file
from sealed_files import seal_again

import miue
from miue.common.errors import MiueError, ModelError, StorageError
from miue.io import write_store
from miue.training.watchers import EpochLog

SETTINGS = {"max_epochs": 2}


def train(out: Path, **more: Any) -> miue.Model:
    return train_with(separable_bags(24), settings={**SETTINGS, "device": "cpu"}, out=out, progress=False, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run, its predictions, and a store."""
    place = tmp_path_factory.mktemp("whole")
    model = train(place / "run")
    model.predict(separable_bags(24)).save(place / "predictions")
    write_store(place / "store", separable_bags(24), made_by={"kind": "made"})
    return place


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


DEEP = "[" * 20_000


def changed(path: Path, change: dict[str, Any]) -> None:
    """Replace parts of a JSON file by their dotted names, and seal it again; None removes one."""

    def replace_parts(content: dict[str, Any]) -> None:
        for name, value in change.items():
            *outer, last = name.split(".")
            part = content
            for key in outer:
                part = part[key]
            if value is None:
                del part[last]
            else:
                part[last] = value

    seal_again(path, replace_parts)


@pytest.mark.parametrize(
    "change",
    [
        {"model": None},
        {"contract": None},
        {"model.network": None},
        {"model.network.name": None},
        {"model.network": []},
        {"model.method.options": "none"},
        {"contract.class_names": 3},
        {"contract.instance_shape": "wide"},
        {"contract.instance_shape": [10**30]},
        {"contract.instance_shape": []},
        {"contract.class_names": []},
        {"training": [1]},
        {"training.epochs": "many"},
        {"distances": [1]},
        {"distances": "knn"},
        {"distances": ["no such"]},
        {"version": True},
        {"version": -1},
    ],
)
def test_a_config_without_a_part_or_with_another_is_named_by_loading_and_inspect(
    change: dict[str, Any], folder: Path
) -> None:
    changed(folder / "run" / "config.json", change)
    with pytest.raises(MiueError):
        miue.Model.load(folder / "run")
    if next(iter(change)) != "distances" or not isinstance(change["distances"], list) or 1 in change["distances"]:
        assert fail("inspect", folder / "run").startswith("miue: error: ")


@pytest.mark.parametrize("name", ["config.json", "run.json", "model.safetensors", "log.csv", "calibration.json"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", DEEP.encode(), b"x" * 200])
def test_inspect_names_a_damaged_file_of_a_run(name: str, content: bytes, folder: Path) -> None:
    if name == "run.json":
        (folder / "run" / "config.json").unlink()
    (folder / "run" / name).write_bytes(content)
    assert name in fail("inspect", folder / "run")


def test_inspect_names_weights_of_another_shape(folder: Path) -> None:
    path = folder / "run" / "model.safetensors"
    weights = load_file(path)
    name = sorted(weights)[0]
    save_file({**weights, name: np.zeros((1, 1), np.float32)}, path)
    seal_again(folder / "run" / "config.json")
    assert f"{name} of shape (1, 1) instead of" in fail("inspect", folder / "run")


@pytest.mark.parametrize("text", ["epoch\n", "epoch,train_loss\n1,much\n", "epoch;\xe9\n1;2\n"])
def test_inspect_names_a_log_that_is_none(text: str, folder: Path) -> None:
    (folder / "run" / "log.csv").write_bytes(text.encode("latin-1"))
    assert "log.csv" in fail("inspect", folder / "run")


def test_inspect_names_a_damaged_checkpoint_of_a_run_that_has_not_ended(folder: Path) -> None:
    (folder / "run" / "config.json").unlink()
    assert "unfinished run" in run("inspect", folder / "run")
    last = folder / "run" / "checkpoints" / "last.safetensors"
    last.write_bytes(last.read_bytes()[:-100])
    assert "last.safetensors" in fail("inspect", folder / "run")


@pytest.mark.parametrize(
    ("file", "key"), [("run/config.json", "contract.class_names"), ("store/store.json", "class_names")]
)
def test_two_classes_of_one_name_are_named(file: str, key: str, folder: Path) -> None:
    """Bags of both were counted as those of one class."""
    changed(folder / file, {key: ["tumor", "tumor"]})
    said = fail("inspect", (folder / file).parent)
    assert "'tumor' twice" in said and Path(file).name in said


def halfway(run: Path) -> Path:
    """Make a run look as if it had been killed before its model was written."""
    (run / "config.json").unlink()
    return run / "checkpoints"


@pytest.mark.parametrize("name", ["best.safetensors", "last.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "text", "other"])
def test_a_damaged_checkpoint_is_named_at_resume_before_anything_is_trained(
    name: str, damage: str, folder: Path
) -> None:
    path = halfway(folder / "run") / name
    content = path.read_bytes()
    if damage == "missing":
        if name == "last.safetensors":
            pytest.skip("a run without it begins anew")
        path.unlink()
    elif damage == "other":
        save_file({"weight": np.zeros(3, np.float32)}, path)
    else:
        path.write_bytes({"empty": b"", "cut": content[:-64], "text": b"no tensors" * 50}[damage])
    log = (folder / "run" / "log.csv").read_bytes()
    with pytest.raises((StorageError, ModelError), match=name):
        train(folder / "run", if_exists="resume")
    assert (folder / "run" / "log.csv").read_bytes() == log


@pytest.mark.parametrize("text", ["epoch,other\n1,2\n", "\xe9,epoch\n1,2\n"])
def test_a_damaged_log_is_named_at_resume(text: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(StorageError, match="log.csv"):
        EpochLog(tmp_path / "log.csv").begin(1, 2)


def test_a_checkpoint_with_metadata_of_another_kind_is_named(folder: Path) -> None:
    path = halfway(folder / "run") / "last.safetensors"
    for structure in (
        DEEP,
        "7" * 5000,
        '{"dict": 3}',
        '{"a": 1, "b": 2}',
        '{"tensor": []}',
        "[1]",
        '{"dict": []}',
    ):
        save_file({"t0": np.zeros(3, np.float32)}, path, metadata={"structure": structure})
        with pytest.raises(MiueError, match="last.safetensors"):
            train(folder / "run", if_exists="resume")


@pytest.mark.parametrize("name", ["model.safetensors", "distances.safetensors"])
def test_a_pipe_in_place_of_weights_is_refused_and_not_waited_for(name: str, folder: Path) -> None:
    path = folder / "run" / name
    path.unlink()
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)  # else a reader that opens it would wait for ever
    try:
        with pytest.raises(StorageError, match=f"{name}': expected a file, got a pipe, a socket or a device"):
            miue.Model.load(folder / "run")
    finally:
        os.close(writer)
