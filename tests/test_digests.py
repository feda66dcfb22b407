"""Files that belong together prove it: what is changed, missing or of another folder is named where it is read."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import fail, run

import miue
from miue.common.errors import MiueError, StorageError
from miue.common.records import read_sealed, sealed

SIZES = np.random.default_rng(0).integers(2, 8, 60)
LOADED = (
    "run/model.safetensors",
    "run/distances.safetensors",
    "run/error_model.json",
    "run/validation.json",
    "run/calibration.json",
    "run/splits.csv",
    "predictions/bags.csv",
    "predictions/instances/part-00000.parquet",
    "store/instances.npy",
    "store/instance_labels.npy",
    "store/checksums.csv",
)


def make(place: Path, seed: int) -> Path:
    """Write a store, a calibrated run and predictions; those of another seed have files of the same shapes."""
    random = np.random.default_rng(seed)
    arrays, labels = [random.normal(size=(size, 5)).astype(np.float32) for size in SIZES], np.arange(60) % 2
    for array in arrays[1::2]:
        array[0] += 4
    parts = [[int(row == seed) for row in range(size)] for size in SIZES]
    bags = miue.BagDataset.from_arrays(arrays, labels, instance_labels=parts, ids=[f"b{n:02}" for n in range(60)])
    miue.write_store(place / "store", bags)
    settings = {"max_epochs": 8, "seed": seed}
    model = miue.train(bags, settings={**settings, "device": "cpu"}, out=place / "run", progress=False)
    predictions = model.predict(bags)
    made = miue.calibrate(predictions, deferral=None, settings={"allow_training_bags": True})
    made.save(place / "run" / "calibration.json")
    miue.decide(predictions, made).save(place / "predictions")
    return place


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("both")
    return make(place / "ours", 0), make(place / "theirs", 1)


@pytest.fixture
def ours(both: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(both[0], tmp_path / "ours"))


def read(folder: Path) -> object:
    """Read all that a folder holds, as the commands do that take it."""
    if folder.name == "run":
        return miue.Model.load(folder)
    if folder.name == "store":
        return miue.read_store(folder)
    predictions = miue.read_predictions(folder)
    assert predictions.instances is not None
    return predictions.instances.probabilities


@pytest.mark.parametrize("name", LOADED)
def test_a_file_of_another_folder_or_a_missing_one_is_named_at_load_and_by_inspect(
    name: str, both: tuple[Path, Path], ours: Path
) -> None:
    folder, file = ours / Path(name).parts[0], ours / name
    read(folder)
    run("inspect", folder)
    for damage in (lambda: shutil.copy(both[1] / name, file), file.unlink):
        damage()
        with pytest.raises(MiueError, match=file.name):
            read(folder)
        assert file.name in fail("inspect", folder)


def test_a_file_that_the_main_one_does_not_list_is_named(both: tuple[Path, Path], ours: Path) -> None:
    """Such as the calibration of another run, or its distances beside a model without any."""
    shutil.copy(ours / "store/instance_labels.npy", ours / "store/instance_is_ood.npy")
    with pytest.raises(StorageError, match=r"instance_is_ood.npy'.*got one that it does not list; remove it"):
        miue.read_store(ours / "store")


def test_inspect_reads_all_instances_of_a_store(ours: Path) -> None:
    file = ours / "store" / "instances.npy"
    rows = np.load(file)
    rows[SIZES[0]] += 1  # the first of the second bag
    np.save(file, rows)
    miue.read_store(ours / "store")
    assert "bag 'b01'" in fail("inspect", ours / "store")


def test_a_pipe_in_place_of_instances_is_refused_and_not_waited_for(ours: Path) -> None:
    file = ours / "store" / "instances.npy"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(StorageError, match=r"instances.npy': expected a file, got a pipe"):
        miue.read_store(ours / "store")


Rows = list[dict[str, str]]


def rewrite(path: Path, change: Callable[[Rows], Rows]) -> Rows:
    """Save a table as a spreadsheet does, quoted, with the columns in reverse, after its rows were changed."""
    with path.open(newline="") as file:
        rows = change(list(csv.DictReader(file)))
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, list(rows[0])[::-1], quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)
    return rows


def by_label(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["label"], row["bag_id"][::-1]))


def test_a_store_whose_rows_are_sorted_or_dropped_predicts_the_same_bytes(ours: Path, tmp_path: Path) -> None:
    def predict(name: str) -> dict[str, bytes]:
        run("predict", ours / "run", ours / "store", "--part", "all", "--format", "csv", "--out", tmp_path / name)
        return {file: (tmp_path / name / file).read_bytes() for file in ("bags.csv", "instances.csv")}

    whole = predict("whole")
    rewrite(ours / "store" / "bags.csv", lambda rows: [{**row, "note": "seen"} for row in by_label(rows)])
    assert predict("sorted") == whole
    kept = rewrite(ours / "store" / "bags.csv", lambda rows: rows[::3])
    ids = {row["bag_id"].encode() for row in kept} | {b"bag_id"}
    for name, content in predict("filtered").items():
        lines = [line for line in whole[name].splitlines() if line.split(b",")[0].strip(b'"') in ids]
        assert content.splitlines() == lines


@pytest.mark.parametrize("column", ["bag_id", "start", "size"])
def test_a_store_whose_bags_exchange_their_rows_is_refused(column: str, ours: Path) -> None:
    def exchange(rows: Rows) -> Rows:
        other = next(row for row in rows if row["size"] != rows[0]["size"])
        rows[0][column], other[column] = other[column], rows[0][column]
        return rows

    rewrite(ours / "store" / "bags.csv", exchange)
    with pytest.raises(StorageError, match="bag 'b.*' of .*expected bag_id, start and size as checksums.csv"):
        miue.read_store(ours / "store")


def edited(rows: Rows) -> Rows:
    """Correct labels and patients, add a column, and sort."""
    own = {"patient": "p", "is_ood": "", "note": "seen twice"}
    return by_label([{**row, "label": str(1 - int(row["label"])), **own} for row in rows])


def test_labels_and_patients_of_predictions_are_corrected_in_a_spreadsheet(ours: Path) -> None:
    before = miue.read_predictions(ours / "predictions").bags
    rewrite(ours / "predictions" / "bags.csv", edited)
    after = miue.read_predictions(ours / "predictions").bags
    row = {name: number for number, name in enumerate(before.bag_ids)}
    assert set(after.patients.tolist()) == {"p"}  # type: ignore[union-attr]
    for name, label, p in zip(after.bag_ids, after.labels, after.probabilities, strict=True):
        assert label == 1 - before.labels.values[row[name]] and np.array_equal(p, before.probabilities[row[name]])


@pytest.mark.parametrize("column", ["alpha_0", "p_1", "predicted", "entropy", "score_knn_mean", "decision"])
def test_other_columns_of_predictions_are_refused_once_changed(column: str, ours: Path) -> None:
    def change(rows: Rows) -> Rows:
        first, second = rows[0], next(row for row in rows if row[column] != rows[0][column])
        first[column], second[column] = second[column], first[column]
        return rows

    rewrite(ours / "predictions" / "bags.csv", change)
    with pytest.raises(StorageError, match="bags.csv': expected a file that predictions.json lists, got another"):
        miue.read_predictions(ours / "predictions")


def test_a_run_of_which_the_calibration_is_damaged_or_not_listed_is_calibrated_again(ours: Path) -> None:
    """As after a kill between the two files that are written."""
    few = ("--without", "deferral,ood", "--coverage", "0.5")
    words = ("calibrate", ours / "run", ours / "store", *few, "--quiet")
    for damage in (
        (ours / "run/calibration.json").unlink,
        lambda: (ours / "run/calibration.json").write_text("{"),
    ):
        damage()
        assert "calibrate again" in fail("predict", ours / "run", ours / "store", "--out", ours / "p")
        run(*words)
        assert miue.Model.load(ours / "run").calibration is not None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            {"version": 1},
            "expected format 'f' version 2, got version 1; another version of miue wrote it: make it",
        ),
        ({"version": 3}, "got version 3; another version of miue wrote it: make it"),
        ({"version": True}, "got version True"),
        ({"version": None}, "got version None"),
        ({"format": "g"}, "expected format 'f' version 2, got format 'g'; choose another"),
        (
            {"value": 8},
            "expected content with the SHA-256 that it states, got .* changed.*; put back .*, or make it",
        ),
    ],
)
def test_json_of_another_version_or_program_and_what_was_changed_in_it_are_refused(
    content: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path, whole = tmp_path / "one.json", sealed({"format": "f", "version": 2, "value": 7, "by": {9: 1, 10: 2}})
    path.write_text(json.dumps(dict(reversed(whole.items()))))
    given: dict[str, Any] = {"what": "one", "format_name": "f", "version": 2, "again": "make it again"}
    assert read_sealed(path, **given)["value"] == 7
    path.write_text(json.dumps({**whole, **content}))
    with pytest.raises(StorageError, match=said):
        read_sealed(path, **given)


@pytest.mark.parametrize("name", ["run/config.json", "store/store.json", "predictions/predictions.json"])
def test_a_folder_of_another_version_is_refused_in_one_sentence(name: str, ours: Path) -> None:
    content = json.loads((ours / name).read_text())
    (ours / name).write_text(json.dumps({"format": content["format"], "version": content["version"] - 1}))
    with pytest.raises(StorageError, match="another version of miue wrote it: (train|make|predict).* again"):
        read((ours / name).parent)
