"""Trackers hold what log.csv holds, are loaded only when asked for, and say what they lack."""

from __future__ import annotations

import csv
import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.loggers.logger import DummyLogger
from made_bags import train_with
from typer.testing import CliRunner

import miue
from miue.bags import BagDataset
from miue.cli import app
from miue.common.errors import ConfigError
from miue.io import make_folds, write_store
from miue.model.recipe import Recipe
from miue.selection import cross_validate
from miue.settings import RunSettings, TrainingConfig
from miue.training.checkpoints import BestWeights, epochs_in
from miue.training.job import Job
from miue.training.run import Run
from miue.training.trackers import TRACKERS, opened_loggers
from miue.training.train import train_seeds

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the trackers' own code
COLUMNS = ("train_loss", "validation_nll", "validation_error", "criterion", "learning_rate")
ENSEMBLE: dict[str, Any] = {"method": "deep-ensemble", "options": {"method.size": 2, "network.hidden": 7}}


def train(bags: BagDataset, out: Path, *, epochs: int = 3, **more: Any) -> miue.Model:
    settings = {"max_epochs": epochs, "learning_rate": 1e-2}
    return train_with(bags, out=out, settings={**settings, "device": "cpu"}, progress=False, **more)


def logged(folder: Path) -> dict[str, list[tuple[int, float]]]:
    with (folder / "log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    return {name: [(int(row["epoch"]), float(row[name])) for row in rows] for name in COLUMNS}


def tensorboard_values(folder: Path) -> dict[str, list[tuple[int, float]]]:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in COLUMNS}


def assert_same(
    found: Mapping[str, list[tuple[int, float]]], wanted: Mapping[str, list[tuple[int, float]]]
) -> None:
    assert set(found) == set(COLUMNS)
    for name, points in wanted.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points], name
        values = [value for _, value in points]
        assert [value for _, value in found[name]] == pytest.approx(values, rel=1e-6, abs=1e-9), name


def test_tensorboard_holds_what_the_log_holds(tmp_path: Path, bags: BagDataset) -> None:
    train(bags, tmp_path / "run", trackers=["tensorboard"])
    assert_same(tensorboard_values(tmp_path / "run"), logged(tmp_path / "run"))
    assert "name: attention" in (tmp_path / "run" / "tensorboard" / "hparams.yaml").read_text()


def test_a_tracked_training_learns_what_an_untracked_one_learns(tmp_path: Path, bags: BagDataset) -> None:
    tracked = train(bags, tmp_path / "tracked", trackers=["tensorboard"])
    assert tracked.weights_sha256 == train(bags, tmp_path / "plain").weights_sha256
    assert not (tmp_path / "plain" / "tensorboard").exists()


def test_each_member_of_an_ensemble_is_tracked(tmp_path: Path, bags: BagDataset) -> None:
    train(bags, tmp_path / "run", trackers=["tensorboard"], **ENSEMBLE)
    for member in ("0", "1"):
        folder = tmp_path / "run" / "members" / member
        assert_same(tensorboard_values(folder), logged(folder))
    first, second = (logged(tmp_path / "run" / "members" / member) for member in ("0", "1"))
    assert first != second


@pytest.mark.usefixtures("every_epoch")
def test_a_resumed_training_tracks_each_epoch_once(
    tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: dict[str, Any] = {"trackers": ["tensorboard"], **ENSEMBLE}
    save = BestWeights.save

    def stop_after_two(self: BestWeights, *given: Any) -> None:
        save(self, *given)
        if self.best.parent.parent.name == "0" and epochs_in(self.last) == 2:
            raise RuntimeError("the machine went down")

    monkeypatch.setattr(BestWeights, "save", stop_after_two)
    with pytest.raises(RuntimeError, match="went down"):
        train(bags, tmp_path / "run", epochs=4, **how)
    monkeypatch.setattr(BestWeights, "save", save)
    train(bags, tmp_path / "run", epochs=4, if_exists="resume", **how)
    folder = tmp_path / "run" / "members" / "0"
    assert [step for step, _ in tensorboard_values(folder)["criterion"]] == [1, 2, 3, 4]
    assert_same(tensorboard_values(folder), logged(folder))


def test_folds_and_seeds_are_tracked_each_in_its_folder_and_named_from_that_of_the_command(
    tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    tensorboard = TRACKERS["tensorboard"]

    def open_and_note(run: Run, *more: Any) -> Logger:
        names.append(run.name)
        return tensorboard(run, *more)

    monkeypatch.setitem(cast(dict[str, Any], TRACKERS), "tensorboard", open_and_note)
    recipe = Recipe("mean", "softmax", settings={"max_epochs": 2})
    settings = RunSettings(trackers=("tensorboard",), device="cpu")
    cross_validate(bags, make_folds(bags, 2), [7], tmp_path / "cv", recipe, settings=settings, progress=False)
    assert names == ["cv/fold_0/seed_7/run", "cv/fold_1/seed_7/run"]
    for name in names:
        assert_same(tensorboard_values(tmp_path / name), logged(tmp_path / name))
    names.clear()
    train_seeds(Job(recipe, bags), [3, 5], Run(tmp_path / "seeds", settings, progress=False))
    assert names == ["seeds/seed_3", "seeds/seed_5"]


def test_a_cross_validation_with_an_unknown_tracker_is_refused_before_it_begins(
    tmp_path: Path, bags: BagDataset
) -> None:
    with pytest.raises(ConfigError, match="did you mean 'tensorboard'"):
        cross_validate(bags, make_folds(bags, 2), [7], tmp_path / "cv", settings={"trackers": ["tensorbord"]})
    assert not (tmp_path / "cv").exists()


def test_a_run_that_is_resumed_with_one_of_its_trackers_keeps_the_ids_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None]] = []

    def opens(name: str) -> Callable[[Run, int, str | None], Logger]:
        def note(run: Run, first_epoch: int, run_id: str | None) -> Logger:
            asked.append((name, run_id))
            return DummyLogger()

        return note

    for name in ("mlflow", "wandb"):
        monkeypatch.setitem(cast(dict[str, Any], TRACKERS), name, opens(name))
    (tmp_path / "trackers.json").write_text('{"mlflow": "first", "wandb": "second"}')
    settings = TrainingConfig(max_epochs=9, bags_per_update=1, lr_patience=3, stop_patience=5)
    for names in (("wandb",), ("mlflow", "wandb")):
        with opened_loggers(Run(tmp_path, RunSettings.of(trackers=names)), settings, 3):
            pass
    assert asked[1] == ("mlflow", "first")


@pytest.mark.long
def test_a_training_goes_on_without_a_tracker_that_fails(
    tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_metrics = TensorBoardLogger.log_metrics

    def fail_from_epoch_two(self: TensorBoardLogger, metrics: Any, step: int | None = None) -> None:
        if step is not None and step > 1:
            raise ConnectionError("the server is gone")
        log_metrics(self, metrics, step)

    monkeypatch.setattr(TensorBoardLogger, "log_metrics", fail_from_epoch_two)
    with pytest.warns(
        UserWarning, match=r"'tensorboard' failed \(ConnectionError: the server is gone\)"
    ) as warned:
        tracked = train(bags, tmp_path / "run", trackers=["tensorboard"])
    assert len(warned) == 1
    assert [epoch for epoch, _ in logged(tmp_path / "run")["criterion"]] == [1, 2, 3]
    assert [step for step, _ in tensorboard_values(tmp_path / "run")["criterion"]] == [1]
    assert tracked.weights_sha256 == train(bags, tmp_path / "plain").weights_sha256


def test_mlflow_holds_what_the_log_holds(tmp_path: Path, bags: BagDataset) -> None:
    client = pytest.importorskip("mlflow").MlflowClient
    train(bags, tmp_path / "run", trackers=["mlflow"], **ENSEMBLE)
    store = client(f"sqlite:///{tmp_path / 'run' / 'mlflow' / 'mlflow.db'}")
    runs = store.search_runs([store.get_experiment_by_name("miue").experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["run/members/0", "run/members/1"]
    for run in runs:
        assert run.info.status == "FINISHED"
        assert run.data.params["model/network/name"] == "attention"
        history = {name: store.get_metric_history(run.info.run_id, name) for name in COLUMNS}
        found = {name: [(point.step, point.value) for point in points] for name, points in history.items()}
        assert_same(found, logged(tmp_path / run.info.run_name))


@pytest.mark.long
def test_each_training_of_a_process_has_its_own_mlflow_store(
    tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pytest.importorskip("mlflow").MlflowClient
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in ("first", "second"):
        train(bags, tmp_path / name, epochs=1, trackers=["mlflow"])
        assert "MLFLOW_TRACKING_URI" not in os.environ
        store = client(f"sqlite:///{tmp_path / name / 'mlflow' / 'mlflow.db'}")
        runs = store.search_runs([store.get_experiment_by_name("miue").experiment_id])
        assert [run.info.run_name for run in runs] == [name]


def test_the_address_of_mlflow_is_taken_from_the_user_and_not_from_the_training_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    class Mlflow:
        def __init__(self, name: str, *, tracking_uri: str, **options: Any) -> None:
            self.address = tracking_uri

        @property
        def experiment(self) -> None:
            opened.append(self.address)
            os.environ["MLFLOW_TRACKING_URI"] = self.address  # as mlflow.set_tracking_uri does

    monkeypatch.setattr("lightning.pytorch.loggers.MLFlowLogger", Mlflow)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    homes = [tmp_path / "seed_1", tmp_path / "seed_2"]
    for home in homes:
        TRACKERS["mlflow"](Run(home), 1, None)
    assert opened == [f"sqlite:///{home / 'mlflow' / 'mlflow.db'}" for home in homes]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server")
    TRACKERS["mlflow"](Run(homes[0]), 1, None)
    assert opened[2] == os.environ["MLFLOW_TRACKING_URI"] == "http://server"


def test_a_tracker_that_cannot_be_opened_is_named(
    tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise ConnectionError("no server answers")

    monkeypatch.setattr("lightning.pytorch.loggers.TensorBoardLogger", refuse)
    with pytest.raises(
        ConfigError,
        match=r"tracker 'tensorboard': expected to open its run, got ConnectionError: no server answers; .*leave",
    ):
        train(bags, tmp_path / "run", trackers=["tensorboard"])


def test_wandb_writes_offline_files_for_each_member(tmp_path: Path, bags: BagDataset) -> None:
    pytest.importorskip("wandb")
    train(bags, tmp_path / "run", trackers=["wandb"], **ENSEMBLE)
    files = list((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert all(b"validation_nll" in file.read_bytes() for file in files)


def test_a_tracker_that_is_not_installed_names_its_extra(
    tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wandb" else find(name))
    with pytest.raises(ConfigError, match=r"pip install 'miue\[wandb\]'"):
        train(bags, tmp_path / "run", trackers=["wandb"])
    assert not (tmp_path / "run").exists()


def test_unknown_trackers_and_tracking_without_a_folder_are_refused(tmp_path: Path, bags: BagDataset) -> None:
    with pytest.raises(ConfigError, match="did you mean 'tensorboard'"):
        train(bags, tmp_path / "run", trackers=["tensorbord"])
    with pytest.raises(ConfigError, match="out=FOLDER"):
        miue.train(bags, settings={"trackers": ["tensorboard"]}, progress=False)


def test_the_command_tracks_and_overwriting_begins_anew(tmp_path: Path, bags: BagDataset) -> None:
    write_store(tmp_path / "store", bags, made_by={"name": "test"})
    out = tmp_path / "run"
    command = ["train", str(tmp_path / "store"), "--out", str(out), "--tracker", "tensorboard", "--quiet"]
    for epochs in ("3", "2"):
        result = CliRunner().invoke(app, [*command, "--overwrite", "--set", f"max_epochs={epochs}"])
        assert result.exit_code == 0, result.output
    assert [step for step, _ in tensorboard_values(out)["criterion"]] == [1, 2]
    assert_same(tensorboard_values(out), logged(out))
