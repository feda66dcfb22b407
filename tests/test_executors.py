"""Cross-validations, ensembles and seeds give the same files wherever their tasks run."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import parts_of_others as others
import pytest
from commands import run
from fast import slow_but
from lightning.pytorch.callbacks import Callback
from made_bags import separable_bags, train_with

import miue
from miue.bags import BagDataset, concatenate, fingerprint
from miue.common.errors import ConfigError, StorageError
from miue.common.tasks import LOCAL, Executor, Shard
from miue.io import describe_bags, find_bags_again, make_folds
from miue.model.recipe import Recipe
from miue.selection import Summaries, cross_validate
from miue.settings import RunSettings
from miue.training.job import Job, handed_over, read_job
from miue.training.run import Run

QUICK = Recipe(options={"encoder.width": 4}, settings={"max_epochs": 2}, distances=())
ENSEMBLE: dict[str, Any] = {"method": "deep-ensemble", "options": {"method.size": 3, "network.hidden": 5}}
TWO = Executor("processes", 2)
RUN = Run(None, RunSettings(jobs=2))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file in a folder and beside it, by its name."""
    files = [path for path in folder.parent.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder.parent)): path.read_bytes() for path in files}


def same(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    if is_dataclass(first):
        return all(same(getattr(first, each.name), getattr(second, each.name)) for each in fields(first))
    return type(first) is type(second) and bool(first == second)


def written(out: Path, executor: Executor = LOCAL, **more: Any) -> dict[str, bytes]:
    """What a small cross-validation writes."""
    bags, settings = separable_bags(24), {"executor": executor.kind, "jobs": executor.jobs}
    cross_validate(
        bags,
        make_folds(bags, 2),
        [1, 2],
        out,
        QUICK,
        settings=settings,
        progress=False,
        **more,
    )
    return contents(out)


def ensemble(out: Path, executor: Executor = LOCAL, **more: Any) -> dict[str, bytes]:
    """What a small ensemble writes."""
    settings = {"max_epochs": 3, **more.pop("settings", {})}
    arguments = {**ENSEMBLE, "settings": settings, "out": out, "executor": executor, "progress": False, **more}
    train_with(separable_bags(), **arguments)
    return contents(out)


def in_memory(folder: Path) -> BagDataset:
    return separable_bags(12)


def stored(folder: Path) -> BagDataset:
    bags = separable_bags(12)
    coords = [np.arange(2 * size).reshape(-1, 2) for size in bags.sizes]
    arrays = [np.asarray(bags.batch([row]).instances) for row in range(12)]
    known = BagDataset.from_arrays(
        arrays, ["a", "b", None] * 4, coords=coords, patients=[f"p{row}" for row in range(12)]
    )
    miue.write_store(folder / "store", known)
    return miue.read_store(folder / "store").subset([3, 1, 8])


def in_files(folder: Path) -> BagDataset:
    bags = separable_bags(12)
    (folder / "files").mkdir()
    for row in range(12):
        np.save(folder / "files" / f"{row}.npy", np.asarray(bags.batch([row]).instances))
    return miue.load_bags(folder / "files").bags.subset([2, 5])


def chained(folder: Path) -> BagDataset:
    second = separable_bags(6, seed=1)
    return concatenate([stored(folder), replace(second, ids=tuple(f"other {name}" for name in second.ids))])


def linked(folder: Path) -> BagDataset:
    """Bags in files that are links, each to a file without an ending, as downloads of the Hub are."""
    in_files(folder)
    (folder / "blobs").mkdir()
    for number, file in enumerate(sorted((folder / "files").iterdir())):
        file.symlink_to(file.rename(folder / "blobs" / str(number)))
    return miue.load_bags(folder / "files").bags


@pytest.mark.parametrize("make", [in_memory, stored, in_files, chained, linked])
def test_another_process_gets_the_same_bags(make: Any, tmp_path: Path) -> None:
    bags = make(tmp_path)
    again = find_bags_again(describe_bags(bags, tmp_path / "copy.npy"))
    for each in fields(bags):
        if each.name != "instances":
            assert same(getattr(bags, each.name), getattr(again, each.name)), each.name
    for row in range(len(bags)):
        assert again.batch([row]).instances.equal(bags.batch([row]).instances)
    assert fingerprint(again) == fingerprint(bags)
    assert (tmp_path / "copy.npy").exists() == (make in (in_memory, chained))


def test_bags_whose_file_is_gone_are_named(tmp_path: Path) -> None:
    content = describe_bags(in_files(tmp_path), tmp_path / "copy.npy")
    (tmp_path / "files" / "11.npy").unlink()
    with pytest.raises(
        StorageError, match=r"11.npy': expected the file of instances .*, got no such file on .*;.*same paths"
    ):
        find_bags_again(content)


def test_a_worker_that_outlives_a_command_reads_the_job_of_the_next(tmp_path: Path) -> None:
    bags, read = separable_bags(6), []
    for epochs in (1, 2):
        own = replace(bags, instances=np.asarray(bags.instances) * epochs)
        recipe = replace(QUICK, settings={"max_epochs": epochs})
        with handed_over(Job(recipe, own), tmp_path / "run", RUN) as path:
            read.append(read_job(path)[0])
    assert [job.recipe.settings["max_epochs"] for job in read] == [1, 2]
    assert np.array_equal(2 * np.asarray(read[0].bags.instances), np.asarray(read[1].bags.instances))
    assert not list(tmp_path.iterdir())


def test_a_worker_that_does_not_see_the_folder_of_the_output_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        StorageError, match="expected the file that the command wrote .*same files at the same paths"
    ):
        read_job(str(tmp_path / ".run.job"))


@pytest.mark.slow
def test_a_cross_validation_in_two_processes_writes_the_same_bytes(tmp_path: Path) -> None:
    assert written(tmp_path / "a" / "cv", TWO) == written(tmp_path / "b" / "cv")


@pytest.mark.long
def test_the_last_shard_of_a_cross_validation_writes_what_one_command_writes(tmp_path: Path) -> None:
    whole, out = written(tmp_path / "a" / "cv"), tmp_path / "b" / "cv"
    for number in (2, 3, 1):
        assert ("cv/summary.csv" in written(out, shard=Shard(number, 3))) == (number == 1)
    assert contents(out) == whole


def test_a_shard_with_runs_missing_summarises_nothing(tmp_path: Path) -> None:
    bags = separable_bags(24)
    splits = make_folds(bags, 2)
    found = cross_validate(bags, splits, [1], tmp_path / "cv", QUICK, shard=Shard(1, 2), progress=False)
    assert found == Summaries()
    assert not (tmp_path / "cv" / "runs.csv").exists()
    whole = cross_validate(bags, splits, [1], tmp_path / "cv", QUICK, progress=False)
    assert {one.runs for one in whole} == {2}


@pytest.mark.slow
def test_an_ensemble_in_two_processes_writes_the_same_bytes(tmp_path: Path) -> None:
    options = {"method.size": 3, "encoder.scaling": "each"}
    more: dict[str, Any] = {"options": options, "encoder": "mlp", "trainer_options": {"gradient_clip_val": 0.5}}
    assert ensemble(tmp_path / "a" / "run", TWO, **more) == ensemble(tmp_path / "b" / "run", **more)


@pytest.mark.slow
def test_an_ensemble_in_processes_may_be_trained_on(tmp_path: Path) -> None:
    ensemble(tmp_path / "a" / "run", TWO)
    more: dict[str, Any] = {"settings": {"max_epochs": 5}, "if_exists": "resume"}
    assert ensemble(tmp_path / "a" / "run", TWO, **more) == ensemble(tmp_path / "b" / "run", **more)


@pytest.mark.long
def test_a_member_that_is_trained_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ensemble(tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    monkeypatch.setattr("miue.training.train.fit", lambda *_: pytest.fail("trained again"))
    assert ensemble(tmp_path / "run", if_exists="resume") == whole


class Silent(Callback):
    """Does nothing."""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"method": "softmax", "options": {}}, "got one network"),
        ({"out": None}, r"got no folder \(out\)"),
        ({"callbacks": [Silent()]}, "got callbacks or a logger"),
    ],
)
def test_a_training_that_other_processes_cannot_do_is_refused(
    arguments: dict[str, Any], said: str, tmp_path: Path
) -> None:
    call = {**ENSEMBLE, "out": tmp_path / "run", "executor": TWO, "progress": False, **arguments}
    with pytest.raises(ConfigError, match=f"executor 'processes': expected an ensemble, .*{said}"):
        train_with(separable_bags(), **call)


@pytest.mark.long
def test_seeds_are_runs_of_their_own_and_a_resume_trains_what_is_missing(tmp_path: Path) -> None:
    miue.write_store(tmp_path / "store", separable_bags(20))
    settings = "--set max_epochs=2 --set encoder.width=4 --distance none --method softmax --quiet"
    words = settings.split()
    seeds = ["train", tmp_path / "store", "--seeds", "1,2", *words, "--out", tmp_path / "runs"]
    output = run(*seeds)
    run("train", tmp_path / "store", "--seed", "2", *words, "--out", tmp_path / "single" / "seed_2")
    names = ("model.safetensors", "config.json", "run.json", "splits.csv", "log.csv")
    for name in names:
        single = tmp_path / "single" / "seed_2" / name
        assert (tmp_path / "runs" / "seed_2" / name).read_bytes() == single.read_bytes()
    assert "seed_1" in output and "seed_2" in output
    assert "a new or empty folder" in run(*seeds, code=2)
    kept = (tmp_path / "runs" / "seed_1" / "model.safetensors").stat().st_mtime_ns
    (tmp_path / "runs" / "seed_2" / "config.json").unlink()
    run(*seeds, "--resume")
    assert (tmp_path / "runs" / "seed_1" / "model.safetensors").stat().st_mtime_ns == kept
    assert (tmp_path / "runs" / "seed_2" / "config.json").exists()
    run(*seeds, "--overwrite")
    assert (tmp_path / "runs" / "seed_1" / "model.safetensors").stat().st_mtime_ns != kept
    twice = ["train", tmp_path / "store", "--seeds", "1,1", *words, "--out", tmp_path / "twice"]
    assert "the seeds: expected different numbers" in run(*twice, code=2)
    alone = ["train", tmp_path / "store", *words, "--out", tmp_path / "one", "--jobs", "2"]
    assert "train several seeds" in run(*alone, code=2)
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("executor", slow_but(["local", "processes"], ["local"]))
def test_a_resume_of_seeds_with_other_options_is_refused_and_with_more_epochs_trains_on(
    executor: str, tmp_path: Path
) -> None:
    miue.write_store(tmp_path / "store", separable_bags(20))
    words = ["--set", "encoder.width=4", "--distance", "none", "--method", "softmax", "--quiet"]
    train = ["train", tmp_path / "store", *words]
    seeds = [*train, "--seeds", "1,2", "--out", tmp_path / "runs"]
    run(*seeds, "--set", "max_epochs=1")  # here, as each process that is started loads the trainer, for seconds
    seeds += ["--executor", executor]
    before = (tmp_path / "runs" / "seed_1" / "config.json").read_bytes()
    said = run(*seeds, "--set", "max_epochs=1", "--set", "learning_rate=0.5", "--resume", code=2)
    assert "seed_1': expected the same learning_rate as when it was started" in said
    assert (tmp_path / "runs" / "seed_1" / "config.json").read_bytes() == before
    run(*seeds, "--set", "max_epochs=2", "--resume")
    run(*train, "--set", "max_epochs=2", "--seed", "2", "--out", tmp_path / "single")
    for name in ("model.safetensors", "config.json", "run.json", "log.csv"):
        assert (tmp_path / "runs" / "seed_2" / name).read_bytes() == (tmp_path / "single" / name).read_bytes()


def test_a_module_that_is_built_cannot_be_handed_over(tmp_path: Path) -> None:
    job = Job(Recipe(network=others.PlainMean(5, 2), method="softmax"), separable_bags())
    with pytest.raises(ConfigError, match="which is built already"), handed_over(job, tmp_path / "run", RUN):
        pass


def test_a_part_of_another_package_is_built_by_the_other_process(tmp_path: Path) -> None:
    recipe = Recipe(network=others.PlainMean, method="softmax", settings={"max_epochs": 1}, distances=())
    assert Recipe(**recipe.to_json()).model_config((5,)) == recipe.model_config((5,))
