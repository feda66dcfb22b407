"""Bags that a model learned from are neither predicted nor calibrated on unseen, whatever their names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import fail, run
from made_bags import separable_bags
from sealed_files import seal_again

import miue
from miue.bags import BagDataset, Labels
from miue.io import read_splits
from miue.model.training_bags import parts_of_run

TRAIN = ["--quiet", "--set", "max_epochs=1", "--set", "encoder.width=4", "--distance", "none"]
EASY = ["--max-error", "0.9", "--confidence", "0.5", "--coverage", "0.6", "--without", "ood", "--quiet"]


def named(ending: str, count: int = 60) -> BagDataset:
    return replace(separable_bags(count), ids=tuple(f"slide_{number}{ending}" for number in range(count)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of bags that are named like files, and a run that a fifth of them stopped."""
    place = tmp_path_factory.mktemp("held_out")
    miue.write_store(place / "store", named(".svs"))
    run("train", place / "store", "--splits", "none", "--out", place / "run", *TRAIN)
    return place


def of_run(folder: Path, *wanted: str) -> list[int]:
    parts = read_splits(folder / "run" / "splits.csv").folds[0]
    return [row for row, name in enumerate(named(".svs").ids) if parts[name] in wanted]


def bags_of(*names: str) -> BagDataset:
    return BagDataset.from_arrays([np.ones((1, 2))] * len(names), ids=names)


def predicted(out: Path) -> set[str]:
    return set(miue.read_predictions(out).bags.bag_ids)


@pytest.mark.parametrize("ending", [".svs", ""])
def test_bags_named_like_files_are_known_again(ending: str, folder: Path, tmp_path: Path) -> None:
    more = replace(named(ending, 70), labels=Labels.unknown(70))
    miue.write_store(tmp_path / "more", more)
    said = run("predict", folder / "run", tmp_path / "more", "--out", tmp_path / "p", "--quiet")
    assert predicted(tmp_path / "p") == {f"slide_{number}{ending}" for number in range(60, 70)}
    assert "left out: 60 bags that the model learned from" in said


def test_a_bag_that_differs_from_a_learned_one_in_the_ending_is_another_where_the_run_lists_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "splits.csv").write_text(
        "bag_id,patient,label,fold_0,content,instances\na.png,,,train,,\na.jpg,,,,,\nb.png,,,validation,,\n"
    )
    names = ["a.png", "a.jpg", "a", "b.jpg", "c.png"]
    assert list(parts_of_run(tmp_path, bags_of(*names)).parts) == ["train", "", "train", "validation", ""]


@pytest.mark.parametrize("wanted", ["train", "validation"])
def test_calibration_sees_bags_named_like_files(wanted: str, folder: Path, tmp_path: Path) -> None:
    miue.write_store(tmp_path / "store", named(".svs").subset(of_run(folder, wanted)[1:]))
    out = tmp_path / "calibration.json"
    command = ["calibrate", folder / "run", tmp_path / "store", *EASY, "--out", out]
    if wanted == "train":
        assert "bags that the model was trained on" in fail(*command)
        return
    run(*command)
    made_from = json.loads(out.read_text())["calibration"]["made_from"]
    assert made_from["split"] == "held out by training" and made_from["caveat"]


def test_without_a_test_split_what_was_learned_from_is_left_out(folder: Path, tmp_path: Path) -> None:
    parts = ["train" if row in of_run(folder, "train") else "validation" for row in range(60)]
    miue.write_store(tmp_path / "all", replace(named(".svs"), splits=tuple(parts)))
    printed = fail(
        "predict",
        folder / "run",
        tmp_path / "all",
        "--out",
        tmp_path / "p",
    )
    assert "60 bags, all of which it was trained or validated on, or on their patients; pass --part all" in printed
    miue.write_store(tmp_path / "more", replace(named(".svs", 63), splits=(*parts, "", "", "calibration")))
    run("predict", folder / "run", tmp_path / "more", "--out", tmp_path / "p", "--quiet")
    assert predicted(tmp_path / "p") == {f"slide_{number}.svs" for number in (60, 61, 62)}


def test_test_bags_that_this_run_learned_from_are_left_out_or_refused(folder: Path, tmp_path: Path) -> None:
    bags = named(".svs", 70)
    miue.write_store(tmp_path / "store", replace(bags, splits=("train",) * 50 + ("test",) * 20))
    predict = ["predict", folder / "run", tmp_path / "store", "--quiet", "--out", tmp_path / "p"]
    assert "left out: 10 bags that the model learned from" in run(*predict)
    assert predicted(tmp_path / "p") == set(bags.ids[60:])
    printed = fail(*predict, "--overwrite", "--part", "test")
    assert (
        "part 'test': expected bags of patients that the model did not learn from, got 20 bags, 10 of which"
        in printed
    )
    run(*predict, "--overwrite", "--part", "all")
    assert len(predicted(tmp_path / "p")) == 70


def test_validation_bags_that_were_given_apart_are_known_again(tmp_path: Path) -> None:
    apart = replace(separable_bags(20, seed=1), ids=tuple(f"v{row}" for row in range(20)))
    settings = {"max_epochs": 1}
    miue.train(
        named(""), validation=apart, settings={**settings, "distances": ()}, progress=False, out=tmp_path / "run"
    )
    assert list(parts_of_run(tmp_path / "run", apart).parts) == ["validation"] * 20
    assert list(parts_of_run(tmp_path / "run", named("")).parts) == ["train"] * 60


@pytest.fixture(scope="module")
def kept_for_calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without splits, and a run that learned from splits with bags for calibration and for tests."""
    place = tmp_path_factory.mktemp("kept_for_calibration")
    bags = replace(named("", 80), patients=tuple(f"p{row // 2}" for row in range(80)))
    parts = ("train",) * 30 + ("validation",) * 10 + ("calibration",) * 20 + ("test",) * 20
    miue.write_store(place / "learned", replace(bags, splits=parts))
    miue.write_store(place / "all", bags)
    run("train", place / "learned", "--out", place / "run", *TRAIN)
    return place


def test_the_calibration_bags_of_the_run_are_calibrated_on_and_not_predicted(
    kept_for_calibration: Path, tmp_path: Path
) -> None:
    place = kept_for_calibration
    run("calibrate", place / "run", place / "all", *EASY, "--out", tmp_path / "c.json", "--bags-of-patient", "all")
    made_from = json.loads((tmp_path / "c.json").read_text())["calibration"]["made_from"]
    assert (made_from["split"], made_from["bags"], made_from["caveat"].count("epoch")) == (
        "calibration of the run",
        20,
        0,
    )
    said = run("predict", place / "run", place / "all", "--out", tmp_path / "p", "--quiet")
    assert predicted(tmp_path / "p") == {f"slide_{number}" for number in range(60, 80)}
    assert "left out: 20 bags that the run keeps for calibration; --part calibration" in said
    run("predict", place / "run", place / "all", "--out", tmp_path / "c", "--quiet", "--part", "calibration")
    assert predicted(tmp_path / "c") == {f"slide_{number}" for number in range(40, 60)}


def test_another_slide_of_a_patient_that_was_learned_from_is_left_out_without_labels_too(tmp_path: Path) -> None:
    bags = replace(named("", 60), patients=tuple(f"p{row // 2}" for row in range(60)))
    rows = np.array([row for row in range(60) if row not in (0, 58)])
    miue.write_store(
        tmp_path / "learned", replace(bags.subset(rows), splits=("train",) * 39 + ("validation",) * 19)
    )
    run("train", tmp_path / "learned", "--out", tmp_path / "run", *TRAIN)
    listed = (tmp_path / "run" / "splits.csv").read_text()
    added = "slide_0,p0,,,,\nslide_58,p99,,,,\n"
    (tmp_path / "run" / "splits.csv").write_text(listed + added)
    seal_again(tmp_path / "run" / "config.json")
    miue.write_store(tmp_path / "more", replace(bags, labels=Labels.unknown(60), patients=None))
    run("predict", tmp_path / "run", tmp_path / "more", "--out", tmp_path / "p", "--quiet")
    assert predicted(tmp_path / "p") == {"slide_58"}


def test_the_patient_of_a_bag_that_the_run_does_not_list_is_unknown(tmp_path: Path) -> None:
    """It was called as its bag, so that no monitor said that patients are missing."""
    bags = replace(named("", 40), patients=tuple(f"p{row // 2}" for row in range(40)))
    splits = ("train",) * 20 + ("validation",) * 10 + ("test",) * 10
    miue.write_store(tmp_path / "learned", replace(bags, splits=splits))
    run("train", tmp_path / "learned", "--out", tmp_path / "run", *TRAIN)
    more = named("", 43)
    miue.write_store(tmp_path / "more", replace(more, labels=Labels.unknown(43)))
    run("predict", tmp_path / "run", tmp_path / "more", "--out", tmp_path / "p", "--quiet")
    table = miue.read_predictions(tmp_path / "p").bags
    assert table.patients is not None
    stated = [f"p{row // 2}" for row in range(30, 40)]
    assert table.bag_ids.tolist() == [f"slide_{row}" for row in range(30, 43)]
    assert [patient or "" for patient in table.patients] == [*stated, "", "", ""]


def test_bags_of_the_names_of_others_are_told_by_their_numbers_of_instances(tmp_path: Path) -> None:
    bags = named("")
    splits = ("train",) * 36 + ("validation",) * 12 + ("test",) * 12
    miue.write_store(tmp_path / "learned", replace(bags, splits=splits))
    run("train", tmp_path / "learned", "--out", tmp_path / "run", *TRAIN)
    shape = bags.instance_shape
    others = [np.ones((int(size) + (row % 3 > 0), *shape), np.float32) for row, size in enumerate(bags.sizes)]
    miue.write_store(tmp_path / "others", BagDataset.from_arrays(others, ids=bags.ids))
    said = run("predict", tmp_path / "run", tmp_path / "others", "--out", tmp_path / "p", "--quiet")
    assert "left out: 48 bags that the model learned from, or from their patients; 32 of them with another" in said
    assert "rename bags that are others, or pass --part all" in said
    assert "none of 8 bags with another number of instances than in training" in said
    known = miue.read_predictions(tmp_path / "p").bags
    assert known.labels.known.tolist() == [row % 3 == 0 for row in range(48, 60)]
    kept = bags.labels.values[48:60][known.labels.known]
    assert known.labels.values[known.labels.known].tolist() == kept.tolist()


def test_bags_named_like_a_learned_patient_are_perhaps_of_that_patient(tmp_path: Path) -> None:
    (tmp_path / "splits.csv").write_text(
        "bag_id,patient,label,fold_0,content,instances\n"
        "P1-a,P1,,train,,\nP1-2-a,P1-2,,validation,,\nP3-a,P3,,test,,\nP4,P4,,train,,\n"
    )
    names = ["P1-a", "P1-b.h5", "P1-2-b", "P10-a", "P3-b", "P4-b", "other"]
    parts = parts_of_run(tmp_path, bags_of(*names))
    assert parts.perhaps_of_their_patients("train", "validation") == {"P1-b.h5": "P1", "P1-2-b": "P1-2"}
    assert parts.perhaps_of_their_patients("train") == {"P1-b.h5": "P1", "P1-2-b": "P1"}
    stated = replace(bags_of(*names), patients=("P1", "P9", "P9", "P9", "P9", "P9", "P9"))
    assert not parts_of_run(tmp_path, stated).perhaps_of_their_patients("train", "validation")


def test_predict_and_calibrate_say_which_bags_are_perhaps_of_learned_patients(tmp_path: Path) -> None:
    names = tuple(f"p{row // 2}-{row % 2}" for row in range(60))
    bags = replace(named("", 60), ids=names, patients=tuple(name.partition("-")[0] for name in names))
    splits = ("train",) * 40 + ("validation",) * 20
    miue.write_store(tmp_path / "learned", replace(bags, splits=splits))
    run("train", tmp_path / "learned", "--out", tmp_path / "run", *TRAIN)
    scanned = tuple(f"p{row}-new" for row in range(60))
    miue.write_store(tmp_path / "new", replace(bags, ids=scanned, patients=None))
    predict = ["predict", tmp_path / "run", tmp_path / "new", "--quiet", "--out", tmp_path / "p"]
    calibrate = ["calibrate", tmp_path / "run", tmp_path / "new", *EASY, "--out", tmp_path / "c.json"]
    for command in (predict, calibrate):
        said = run(*command)
        assert (
            "note: 30 bags may be of patients that the model learned from, by name alone: 'p0-new' of 'p0',"
            in said
        )
        assert "state patients in the table of --labels" in said
    rows = [f"{name},{name.partition('-')[0]}x,{row % 2}" for row, name in enumerate(scanned)]
    (tmp_path / "labels.csv").write_text("\n".join(["slide_id,case_id,label", *rows, ""]))
    miue.write_store(tmp_path / "bare", replace(bags, ids=scanned, patients=None, labels=Labels.unknown(60)))
    command = ["predict", tmp_path / "run", tmp_path / "bare", "--labels", tmp_path / "labels.csv", "--quiet"]
    assert "may be of patients" not in run(*command, "--out", tmp_path / "stated")
