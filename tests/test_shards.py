"""Shards of a prediction and of a cross-validation, as the jobs of a Slurm array compute them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import fail, run
from fast import slow_but
from made_bags import separable_bags
from test_executors import contents
from test_unwritable import full_disk

import miue
from miue.bags import BagDataset, Coords, Labels, OodFlags
from miue.common.errors import ConfigError, StorageError
from miue.model.shards import merge_predictions

COUNT = 3
WORDS = ["--quiet", "--part", "all"]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("miue.model.predict.BATCH_INSTANCES", 23)


def patients_of(bags: BagDataset) -> BagDataset:
    arrays = [np.asarray(bags.batch([row]).instances) for row in range(len(bags))]
    names = [f"p{row // 3}" for row in range(len(bags))]
    return BagDataset.from_arrays(arrays, bags.labels.values, patients=names, ids=bags.ids)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of MC dropout, and bags of patients with several."""
    folder = tmp_path_factory.mktemp("trained")
    settings = {"max_epochs": 2}
    miue.train(separable_bags(), method="mc-dropout", settings=settings, out=folder / "run", progress=False)
    miue.write_store(folder / "store", patients_of(separable_bags(60, seed=4)))
    return folder


def slurm(monkeypatch: pytest.MonkeyPatch, number: int, count: int = COUNT) -> None:
    """The environment of a job in ``sbatch --array=1-COUNT``."""
    values = {"ID": number, "MIN": 1, "MAX": count, "COUNT": count}
    for name, value in values.items():
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))


def predict(trained: Path, out: Path, *more: object) -> str:
    return run("predict", trained / "run", trained / "store", "--out", out, *WORDS, *more)


@pytest.fixture(scope="module")
def predicted(trained: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("miue.model.predict.BATCH_INSTANCES", 23)
        for number in range(1, COUNT + 1):
            predict(trained, trained / "shards" / str(number), "--shard", f"{number}/{COUNT}")
    return trained / "shards"


@pytest.fixture
def shards(predicted: Path, tmp_path: Path) -> list[Path]:
    """The three shards of one prediction."""
    shutil.copytree(predicted, tmp_path / "shards")
    return [tmp_path / "shards" / str(number) for number in range(1, COUNT + 1)]


@pytest.mark.long
@pytest.mark.parametrize("calibrated", slow_but([False, True], [True]))
def test_the_jobs_of_a_slurm_array_merged_are_the_bytes_of_one_command(
    calibrated: bool, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    shutil.copytree(trained, home)
    if calibrated:
        miue.write_store(home / "known", separable_bags(50, seed=9))
        run(
            "calibrate",
            home / "run",
            home / "known",
            "--bags-of-patient",
            "all",
            "--max-error",
            "0.4",
            "--instances",
            "detection",
            "--quiet",
            "--part",
            "all",
        )
    predict(home, tmp_path / "a" / "predictions")
    for number in (2, 3, 1):
        slurm(monkeypatch, number)
        predict(home, tmp_path / "b" / "shards" / str(number), "--shard", "slurm")
    folders = sorted((tmp_path / "b" / "shards").iterdir(), reverse=True)
    said = run("merge", *folders, "--out", tmp_path / "b" / "predictions", "--quiet")
    assert said.startswith("3 shards with 60 bags and ")
    shutil.rmtree(tmp_path / "b" / "shards")
    assert contents(tmp_path / "b" / "predictions") == contents(tmp_path / "a" / "predictions")
    decided = miue.read_predictions(tmp_path / "b" / "predictions").bags.decisions
    assert (decided is not None) == calibrated


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 9])
def test_small_bags_may_have_more_shards_than_batches(
    count: int, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # all bags are one batch
    predict(trained, tmp_path / "a" / "predictions")
    folders = [tmp_path / "shards" / str(number) for number in range(1, count + 1)]
    said = [predict(trained, folder, "--shard", f"{n}/{count}") for n, folder in enumerate(folders, 1)]
    assert [line.startswith("no bag is predicted in this shard") for line in said] == [True] * (count - 1) + [
        False
    ]
    run("merge", *reversed(folders), "--out", tmp_path / "b" / "predictions", "--quiet")
    assert contents(tmp_path / "b" / "predictions") == contents(tmp_path / "a" / "predictions")
    assert "got a shard without bags; merge it with the other shards" in fail("evaluate", folders[0])
    (folders[0] / "empty_shard.json").write_text("{}")
    assert "got a shard without bags; merge it with the other shards" in fail("evaluate", folders[0])


def test_a_shard_without_bags_is_passed_over_by_the_monitor_unless_it_is_all_there_is(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # all bags are one batch: the first shard has none
    shutil.copytree(trained, tmp_path / "home")
    bags = separable_bags(50, seed=9)
    miue.write_store(tmp_path / "known", replace(bags, ids=tuple(f"known-{name}" for name in bags.ids)))
    run_folder = tmp_path / "home" / "run"
    run("calibrate", run_folder, tmp_path / "known", "--without", "deferral", "--part", "all", "--quiet")
    shards = [tmp_path / "shards" / str(number) for number in (1, 2)]
    for number, folder in enumerate(shards, 1):
        predict(tmp_path / "home", folder, "--shard", f"{number}/2")
    words = ("monitor", run_folder, "--out", tmp_path / "monitor")
    assert "got a shard without bags" in fail(*words, shards[0])
    said = " ".join(run(*words, *shards).split())
    assert f"Note: {str(shards[0])!r} is a shard without bags, which adds nothing" in said
    assert "in 1 batch" in said
    assert "in 1 batch" in " ".join(run(*words, shards[0]).split())


def test_bags_of_the_training_in_some_of_the_shards_are_marked_as_in_one_command(
    trained: Path, tmp_path: Path
) -> None:
    others = patients_of(separable_bags(60, seed=4))
    arrays = [np.asarray(bags.batch([row]).instances) for bags in (others, separable_bags()) for row in range(20)]
    miue.write_store(tmp_path / "store", BagDataset.from_arrays(arrays))
    words = ["predict", trained / "run", tmp_path / "store", "--part", "all", "--quiet"]
    run(*words, "--out", tmp_path / "a" / "predictions")
    folders = [tmp_path / "shards" / str(number) for number in (1, 2)]
    for number, folder in enumerate(folders, 1):
        run(*words, "--out", folder, "--shard", f"{number}/2")
    run("merge", *folders, "--out", tmp_path / "b" / "predictions", "--quiet")
    assert contents(tmp_path / "b" / "predictions") == contents(tmp_path / "a" / "predictions")
    parts = miue.read_predictions(tmp_path / "b" / "predictions").bags.training_parts
    assert parts is not None and not any(parts[:20]) and any(parts[20:])


def test_a_shard_holds_its_part_of_the_bags(trained: Path, shards: list[Path]) -> None:
    ids = [name for folder in shards for name in miue.read_predictions(folder).bags.bag_ids]
    assert ids == list(miue.read_store(trained / "store").ids)


@pytest.mark.long
def test_the_jobs_of_a_slurm_array_cross_validate_into_one_folder(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ["--set", "max_epochs=1", "--method", "softmax", "--distance", "none", "--quiet", "--folds", "3"]
    words = ["cross-validate", trained / "store", *settings, "--out"]
    run(*words, tmp_path / "a" / "cv")
    said = []
    for number in (3, 1, 2):
        slurm(monkeypatch, number)
        said.append(run(*words, tmp_path / "b" / "cv", "--shard", "slurm"))
    assert said[0].startswith("Shard 3/3 is done. 1 of 3 runs")
    assert "summary.csv" in said[2]
    assert contents(tmp_path / "b" / "cv") == contents(tmp_path / "a" / "cv")


@pytest.mark.long
def test_the_slurm_scripts_of_the_documentation_run(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "howto" / "cluster.md").read_text()
    predicting, merging, validating = re.findall(r"^```bash\n(.*?)^```", page, re.M | re.S)
    shutil.copytree(trained / "run", tmp_path / "run")
    bags = miue.read_store(trained / "store")
    miue.write_store(
        tmp_path / "features", replace(bags, labels=Labels.unknown(len(bags)), splits=("",) * len(bags))
    )
    names = np.where(bags.labels.values, "tumor", "normal")
    rows = [f"{name},{label}" for name, label in zip(bags.ids, names, strict=True)]
    (tmp_path / "labels.csv").write_text("\n".join(["bag_id,label", *rows]))
    monkeypatch.chdir(tmp_path)

    def submit(script: str) -> None:
        (command,) = [line for line in script.splitlines() if line.startswith("miue ")]
        run(*shlex.split(os.path.expandvars(command))[1:])

    assert all("#SBATCH --array=1-3\n" in script for script in (predicting, validating))
    for number in (1, 2, 3):
        slurm(monkeypatch, number)
        submit(predicting)
        submit(validating)
    submit(merging.replace("shards/*", " ".join(f"shards/{number}" for number in (1, 2, 3))))
    assert len(miue.read_predictions("predictions").bags) == 60
    assert (tmp_path / "cv" / "summary.csv").exists()


@pytest.mark.parametrize("words", [["evaluate"], ["worklist", "--out", "NEW"], ["report", "--out", "NEW"]])
def test_what_is_made_of_one_shard_says_that_it_is_of_a_part(
    words: list[str], shards: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / ("new.html" if words[0] == "report" else "new.csv")
    said = run(words[0], shards[1], *(out if word == "NEW" else word for word in words[1:]))
    note = f"Note: '{shards[1]}' holds shard 2/3 alone, and not the bags of the others; 'miue merge' joins them"
    assert said.count(note) == 1


def test_a_shard_that_is_missing_is_named(shards: list[Path], tmp_path: Path) -> None:
    with pytest.raises(StorageError) as refused:
        merge_predictions([shards[2], shards[0]], tmp_path / "out")
    assert (refused.value.item, refused.value.got) == ("shard 2/3", "2; missing: 2")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("folders", [[], "shard-1"])
def test_no_shard_or_one_path_in_place_of_several_is_refused(folders: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folders: expected the folders of all shards.*pass a list of them"):
        merge_predictions(folders, tmp_path / "out")


def test_a_shard_that_is_there_twice_is_named(shards: list[Path], tmp_path: Path) -> None:
    shutil.copytree(shards[0], tmp_path / "copy")
    with pytest.raises(StorageError, match=r"copy': expected each shard once, got shard 1/3, which is '.*/1' too"):
        merge_predictions([*shards, tmp_path / "copy"], tmp_path / "out")


def part_of(shard: Path) -> Path:
    return next((shard / "instances").iterdir())


def remove(shards: list[Path]) -> None:
    part_of(shards[1]).unlink()


def take_from_another_shard(shards: list[Path]) -> None:
    shutil.copy(part_of(shards[0]), part_of(shards[1]))


def damage(shards: list[Path]) -> None:
    content = bytearray(part_of(shards[1]).read_bytes())
    content[len(content) // 2] ^= 1
    part_of(shards[1]).write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (remove, "none"),
        (take_from_another_shard, "another"),
        (damage, "another"),
    ],
)
def test_a_part_that_is_not_that_of_its_shard_is_named_and_nothing_is_merged(
    change: Callable[[list[Path]], None], said: str, shards: list[Path], tmp_path: Path
) -> None:
    change(shards)
    with pytest.raises(
        StorageError, match=rf"shards/2/instances/part-00000.parquet': expected .*, got .*({said})"
    ):
        merge_predictions(shards, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["shards"]


def test_a_shard_that_has_lost_its_table_of_bags_says_so(shards: list[Path], tmp_path: Path) -> None:
    (shards[1] / "bags.csv").unlink()
    with pytest.raises(StorageError, match=r"shards/2/bags.csv': expected a file .* lists, got none; put back"):
        merge_predictions(shards, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["shards"]


def test_a_disk_that_fills_while_shards_are_merged_is_named_and_leaves_nothing(
    shards: list[Path], tmp_path: Path
) -> None:
    with full_disk(2000), pytest.raises(StorageError, match="File too large; free space"):
        merge_predictions(shards, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["shards"]


def test_shards_of_different_counts_are_refused(trained: Path, shards: list[Path], tmp_path: Path) -> None:
    predict(trained, tmp_path / "other", "--shard", "2/4")
    with pytest.raises(StorageError, match="other': .* got one of another prediction: another number of shards"):
        merge_predictions([shards[0], tmp_path / "other", shards[2]], tmp_path / "out")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--seed", "5"], "one of another prediction: another bags, labels, patients"),
        (
            ["--precision", "bf16-mixed"],
            "one of another prediction: another bags, labels, patients",
        ),
        (["--estimator", "attention"], "one of another prediction: another estimator"),
    ],
)
def test_a_shard_of_another_prediction_is_refused(
    more: list[str], said: str, trained: Path, shards: list[Path], tmp_path: Path
) -> None:
    predict(trained, tmp_path / "other", "--shard", "2/3", *more)
    with pytest.raises(StorageError, match=f"other': expected a shard of the .*, got {said}"):
        merge_predictions([shards[0], tmp_path / "other", shards[2]], tmp_path / "out")


def other_patients(bags: BagDataset) -> BagDataset:
    return replace(bags, patients=tuple(f"q{row // 2}" for row in range(len(bags))))


def without_a_negative_label(bags: BagDataset) -> BagDataset:
    known = bags.labels.known.copy()
    known[np.flatnonzero(bags.labels.values == 0)[-1]] = False
    return replace(bags, labels=Labels(bags.labels.values, known))


def moved(bags: BagDataset) -> BagDataset:
    return replace(bags, coords=Coords.of(np.arange(2 * len(bags.instances)).reshape(-1, 2)))


def out_of_distribution(bags: BagDataset) -> BagDataset:
    return replace(bags, is_ood=OodFlags.of(np.arange(len(bags)) == 3))


@pytest.mark.parametrize("change", [other_patients, without_a_negative_label, moved, out_of_distribution])
def test_a_shard_in_which_something_else_is_known_of_the_bags_is_refused(
    change: Callable[[BagDataset], BagDataset], trained: Path, shards: list[Path], tmp_path: Path
) -> None:
    shutil.copytree(trained / "run", tmp_path / "run")
    miue.write_store(tmp_path / "store", change(miue.read_store(trained / "store")))
    predict(tmp_path, tmp_path / "other", "--shard", "2/3")
    with pytest.raises(StorageError, match="got one of another prediction: another bags, labels, patients"):
        merge_predictions([shards[0], tmp_path / "other", shards[2]], tmp_path / "out")


def test_shards_of_copies_of_the_bags_are_merged(trained: Path, shards: list[Path], tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "copy")
    predict(tmp_path / "copy", tmp_path / "other", "--shard", "2/3")
    merged = merge_predictions([shards[0], tmp_path / "other", shards[2]], tmp_path / "out")
    assert len(merged.bags) == 60


@pytest.mark.parametrize("table_format", slow_but(["parquet", "csv"], ["csv"]))
def test_shards_in_csv_merged_are_the_bytes_of_one_command_in_their_format_unless_another_is_asked_for(
    table_format: str, trained: Path, tmp_path: Path
) -> None:
    predict(trained, tmp_path / "a" / "predictions", "--format", table_format)
    folders = [tmp_path / "shards" / str(number) for number in range(1, COUNT + 1)]
    for number, folder in enumerate(folders, 1):
        predict(trained, folder, "--shard", f"{number}/{COUNT}", "--format", "csv")
    out = tmp_path / "b" / "predictions"
    asked = [] if table_format == "csv" else ["--format", table_format]  # without it, that of the shards
    run("merge", *folders, "--out", out, *asked, "--quiet")
    assert contents(out) == contents(tmp_path / "a" / "predictions")


def test_a_shard_of_another_model_is_refused(trained: Path, shards: list[Path], tmp_path: Path) -> None:
    settings = {"max_epochs": 1, "seed": 3}
    miue.train(separable_bags(), method="mc-dropout", settings=settings, out=tmp_path / "run", progress=False)
    shutil.copytree(trained / "store", tmp_path / "store")
    predict(tmp_path, tmp_path / "other", "--shard", "2/3")
    with pytest.raises(StorageError, match="got one of another prediction: another model"):
        merge_predictions([shards[0], tmp_path / "other", shards[2]], tmp_path / "out")


def test_whole_predictions_are_no_shard(trained: Path, shards: list[Path], tmp_path: Path) -> None:
    predict(trained, tmp_path / "whole")
    with pytest.raises(StorageError, match="whole': expected a shard of a prediction, got whole predictions"):
        merge_predictions([shards[0], tmp_path / "whole"], tmp_path / "out")


@pytest.mark.long
def test_a_calibration_that_changed_is_named(trained: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(trained, home)
    miue.write_store(home / "known", separable_bags(50, seed=9))
    calibrate: list[Any] = [
        "calibrate",
        home / "run",
        home / "known",
        "--quiet",
        "--part",
        "all",
        "--max-error",
        "0.4",
    ]
    run(*calibrate)
    for number in (1, 2):
        predict(home, tmp_path / str(number), "--shard", f"{number}/2")
    run(*calibrate, "--coverage", "0.8", "--overwrite")
    with pytest.raises(
        StorageError, match="calibration.json': expected the calibration .*, got one that was made since"
    ):
        merge_predictions([tmp_path / "1", tmp_path / "2"], tmp_path / "out")
    (home / "run" / "calibration.json").unlink()
    with pytest.raises(StorageError, match="calibration.json': expected an existing file, got no such file"):
        merge_predictions([tmp_path / "1", tmp_path / "2"], tmp_path / "out")
