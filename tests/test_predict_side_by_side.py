"""Predictions by other processes are those of one, byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import run
from made_bags import separable_bags
from sealed_files import seal_again
from test_executors import contents
from test_shards import patients_of

import miue
from miue.bags import BagDataset
from miue.common.tasks import LOCAL, Shard, Task
from miue.io import load_bags
from miue.model import shards as module
from miue.model.predict import BATCH_INSTANCES, NoReadableBag
from miue.model.shards import PredictionRequest, describe_shard, write_predictions, write_predictions_side_by_side

BAD = 3  # the second of the files, in batches of its own


def large_bags() -> BagDataset:
    """Four bags of patients, each as large as a batch."""
    random = np.random.default_rng(3)
    arrays = [random.standard_normal((BATCH_INSTANCES - row, 5)).astype(np.float32) for row in range(4)]
    return BagDataset.from_arrays(arrays, [0, 1, 0, 1], patients=["p", "p", "q", "r"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated run of a method that draws, with flags of instances, and stores of large and of small bags."""
    folder = tmp_path_factory.mktemp("trained")
    settings = {"max_epochs": 2}
    miue.train(separable_bags(), method="mc-dropout", settings=settings, out=folder / "run", progress=False)
    miue.write_store(folder / "known", separable_bags(50, seed=9))
    words = ["--max-error", "0.4", "--quiet", "--part", "all", "--instances", "no-false-flag"]
    run("calibrate", folder / "run", folder / "known", "--bags-of-patient", "all", *words)
    miue.write_store(folder / "large", large_bags())
    miue.write_store(folder / "small", patients_of(separable_bags(60, seed=4)))
    return folder


def request_of(trained: Path, **more: object) -> PredictionRequest:
    return replace(PredictionRequest(str(trained / "run"), "bags", "all bags"), **more)  # type: ignore[arg-type]


def opened(trained: Path) -> tuple[miue.Model, BagDataset]:
    return miue.Model.load(trained / "run"), miue.read_store(trained / "small")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("miue.model.predict.BATCH_INSTANCES", 23)


@pytest.mark.long
def test_two_processes_write_the_bytes_of_one(trained: Path, tmp_path: Path) -> None:
    words = ["--part", "all", "--quiet"]
    run("predict", trained / "run", trained / "large", "--out", tmp_path / "a" / "predictions", *words)
    said = run(
        "predict",
        trained / "run",
        trained / "large",
        "--out",
        tmp_path / "b" / "predictions",
        "--jobs",
        "2",
        *words,
    )
    assert said.startswith("4 bags with 16,378 instances predicted")
    assert contents(tmp_path / "b" / "predictions") == contents(tmp_path / "a" / "predictions")
    assert miue.read_predictions(tmp_path / "b" / "predictions").bags.decisions is not None
    assert [path.name for path in (tmp_path / "b").iterdir() if path.is_dir()] == ["predictions"]


@pytest.mark.long
@pytest.mark.usefixtures("small_batches")
def test_tables_in_csv_are_those_of_one_process(trained: Path, tmp_path: Path) -> None:
    model, bags = opened(trained)
    write_predictions(model, bags, request_of(trained), tmp_path / "a" / "p", table_format="csv")
    write_predictions_side_by_side(bags, request_of(trained), tmp_path / "b" / "p", LOCAL, table_format="csv")
    written = contents(tmp_path / "b" / "p")
    assert written == contents(tmp_path / "a" / "p") and any(name.endswith("instances.csv") for name in written)


@pytest.mark.long
@pytest.mark.usefixtures("small_batches")
def test_what_is_done_when_the_driver_is_killed_is_not_predicted_again(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, bags = opened(trained)
    whole, _ = write_predictions(model, bags, request_of(trained), tmp_path / "whole" / "p")
    predicted: list[int] = []
    shard_task = module.shard_task

    def until_killed(count: int) -> Callable[..., None]:
        def counted(folder: str, request: dict[str, object], shard: dict[str, int]) -> None:
            if len(predicted) == count:
                raise KeyboardInterrupt
            predicted.append(shard["number"])
            shard_task(folder, request, shard)

        return counted

    monkeypatch.setattr(module, "shard_task", until_killed(3))
    with pytest.raises(KeyboardInterrupt):
        write_predictions_side_by_side(bags, request_of(trained), tmp_path / "out" / "p", LOCAL)
    assert not (tmp_path / "out" / "p").exists()
    monkeypatch.setattr(module, "shard_task", until_killed(-1))
    write_predictions_side_by_side(bags, request_of(trained), tmp_path / "out" / "p", LOCAL)
    assert len(predicted) == len(set(predicted)) > 4
    assert contents(tmp_path / "out" / "p") == contents(tmp_path / "whole" / "p") and whole is not None


def killed_after_the_first(tasks: list[Task], *_: object, **__: object) -> None:
    """Run the first task alone, as if killed then."""
    tasks[0].run()
    raise KeyboardInterrupt


@pytest.mark.long
@pytest.mark.usefixtures("small_batches")
def test_shards_of_another_prediction_that_was_killed_are_not_used(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, bags = opened(trained)

    with monkeypatch.context() as patched:
        patched.setattr(module, "run_tasks", killed_after_the_first)
        with pytest.raises(KeyboardInterrupt):
            write_predictions_side_by_side(bags, request_of(trained, seed=5), tmp_path / "out" / "p", LOCAL)
    write_predictions_side_by_side(bags, request_of(trained), tmp_path / "out" / "p", LOCAL)
    write_predictions(model, bags, request_of(trained), tmp_path / "whole" / "p")
    assert contents(tmp_path / "out" / "p") == contents(tmp_path / "whole" / "p")


@pytest.mark.long
@pytest.mark.usefixtures("small_batches")
def test_shards_of_a_model_whose_distances_changed_meanwhile_are_not_used(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights are the same."""
    shutil.copytree(trained / "run", tmp_path / "run")
    (tmp_path / "run" / "calibration.json").unlink()
    seal_again(tmp_path / "run" / "config.json", lambda content: content["files"].pop("calibration.json"))
    bags, request = miue.read_store(trained / "small"), request_of(trained, run=str(tmp_path / "run"))

    with monkeypatch.context() as patched:
        patched.setattr(module, "run_tasks", killed_after_the_first)
        with pytest.raises(KeyboardInterrupt):
            write_predictions_side_by_side(bags, request, tmp_path / "out" / "p", LOCAL)
    model = miue.train(
        separable_bags(),
        method="mc-dropout",
        settings={"max_epochs": 2, "distances": ("knn",)},
        out=tmp_path / "run",
        if_exists="resume",
        progress=False,
    )
    write_predictions_side_by_side(bags, request, tmp_path / "out" / "p", LOCAL)
    write_predictions(model, bags, request, tmp_path / "whole" / "p")
    assert contents(tmp_path / "out" / "p") == contents(tmp_path / "whole" / "p")


@pytest.mark.long
@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("changed", ["an instance", "a patient"])
def test_shards_of_bags_that_changed_meanwhile_are_not_used(trained: Path, tmp_path: Path, changed: str) -> None:
    model, bags = opened(trained)
    rows = np.array(bags.instances)
    others = rows.copy()
    others[int(bags.starts[1]) + 1] += 1  # neither the first of its bag, nor of the bags
    of_patients = [tuple(f"{name}{number // 2}" for number in range(len(bags))) for name in "ab"]
    before = replace(bags, instances=rows, patients=of_patients[0])
    after = (
        replace(before, instances=others) if changed == "an instance" else replace(before, patients=of_patients[1])
    )

    def run_tasks(tasks: list[Task], *_: object, **__: object) -> None:
        for task in tasks:
            task.run()
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "run_tasks", killed_after_the_first)
        with pytest.raises(KeyboardInterrupt):
            write_predictions_side_by_side(before, request_of(trained), tmp_path / "out" / "p", LOCAL)
    write_predictions_side_by_side(after, request_of(trained), tmp_path / "out" / "p", LOCAL)
    write_predictions(model, after, request_of(trained), tmp_path / "whole" / "p")
    assert contents(tmp_path / "out" / "p") == contents(tmp_path / "whole" / "p")


@pytest.fixture
def damaged_files(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BagDataset:
    """Bags in files, each a batch, one of which became unreadable after it was opened."""
    folder = tmp_path / "files"
    folder.mkdir()
    bags = miue.read_store(trained / "small")
    for row in range(6):
        np.save(folder / f"{row}.npy", np.asarray(bags.batch([row]).instances))
    loaded = load_bags(folder).bags
    (folder / f"{BAD}.npy").write_bytes(b"no array")
    monkeypatch.setattr("miue.model.predict.BATCH_INSTANCES", 1)
    return loaded


@pytest.mark.long
def test_a_shard_without_a_bag_that_can_be_read_is_left_out_like_the_bag(
    trained: Path, damaged_files: BagDataset, tmp_path: Path
) -> None:
    request = request_of(trained, skip_bad=True)
    model = miue.Model.load(trained / "run")
    _, left_out = write_predictions(model, damaged_files, request, tmp_path / "whole" / "p")
    _, side_by_side = write_predictions_side_by_side(damaged_files, request, tmp_path / "out" / "p", LOCAL)
    assert contents(tmp_path / "out" / "p") == contents(tmp_path / "whole" / "p")
    assert left_out == side_by_side and len(left_out) == 1 and left_out[0].startswith(f"{BAD}: ")
    assert len(miue.read_predictions(tmp_path / "out" / "p").bags) == 5


def test_the_shard_of_a_job_whose_bags_cannot_be_read_is_merged(
    trained: Path, damaged_files: BagDataset, tmp_path: Path
) -> None:
    request = request_of(trained, skip_bad=True)
    model = miue.Model.load(trained / "run")
    folders = []
    for number in range(1, 7):
        shard = describe_shard(Shard(number, 6), damaged_files, 0, "float32", trained / "run")
        folders.append(tmp_path / str(number))
        written, _ = write_predictions(model, damaged_files, request, folders[-1], shard=shard)
        assert (written is None) == (number == BAD + 1)
    said = run("merge", *folders, "--out", tmp_path / "out" / "p", "--quiet")
    assert said.startswith("6 shards with 5 bags")
    said = run("merge", folders[BAD], "--out", tmp_path / "other", "--quiet", code=1)
    assert "expected all of the 6 shards, got 1" in said


def test_bags_none_of_which_can_be_read_are_an_error(
    trained: Path, damaged_files: BagDataset, tmp_path: Path
) -> None:
    request = request_of(trained, skip_bad=True)
    one = damaged_files.subset([BAD])
    with pytest.raises(NoReadableBag, match="expected at least one"):
        write_predictions_side_by_side(one, request, tmp_path / "out" / "p", LOCAL)
    with pytest.raises(
        NoReadableBag, match=rf"got none \({one.ids[0]}: .*whole .npy.*; 'miue inspect BAGS --read'"
    ):
        write_predictions(miue.Model.load(trained / "run"), one, request, tmp_path / "out" / "p")
    assert not (tmp_path / "out" / "p").exists()


def test_a_shard_is_not_predicted_by_an_executor(trained: Path, tmp_path: Path) -> None:
    words = ["--part", "all", "--quiet", "--shard", "1/2", "--jobs", "2"]
    said = run("predict", trained / "run", trained / "large", "--out", tmp_path / "p", *words, code=1)
    assert "--shard with --executor: expected one of the two" in said
    assert not (tmp_path / "p").exists()
