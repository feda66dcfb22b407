"""All slides of a patient as one bag: from folder to predictions, decisions and exports of each slide."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from commands import fail, run
from made_bags import train_one_epoch
from made_files import features_of, trident

import miue
from miue import BagDataset, Predictions
from miue.bags import Slides, concatenate, merge_bags
from miue.bags.arrays import RearrangedInstances
from miue.common.errors import ConfigError, DataError
from miue.io import (
    FileInstances,
    describe_bags,
    find_bags_again,
    keep_in_memory,
    read_store,
    state_of_bags,
    write_store,
)

SLIDES_OF = {0: 3, 1: 1, 2: 2}
FAST = ("--set", "max_epochs=2", "--method", "softmax", "--device", "cpu")


def cohort(root: Path, patients: int = 12, name: str = "{patient}-s{slide}") -> tuple[Path, Path]:
    """Up to three slides per patient, of which one has the positive instance; patients take turns in the table."""
    folder, rows = root / "features", []
    for patient in range(patients):
        for slide in range(SLIDES_OF[patient % 3]):
            one = name.format(patient=f"P{patient:02d}", slide=slide)
            positive = patient % 2 == 0 and slide == 0
            size = 3 + (patient * 5 + slide) % 7
            trident(folder, one, features_of(size, seed=10 * patient + slide, positive=positive))
            label, site = ("tumor" if patient % 2 == 0 else "normal"), f"b{patient:02d}{slide // 2}"
            rows.append((slide, f"P{patient:02d}", one, label, site))
    lines = ["case_id,slide_id,label,block", *(",".join(row[1:]) for row in sorted(rows))]
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder, root / "labels.csv"


def edited(labels: Path, before: str, after: str) -> Path:
    text = labels.read_text()
    assert text.count(before) == 1
    labels.write_text(text.replace(before, after))
    return labels


def without_patients(labels: Path) -> Path:
    rows = [f"{row['slide_id']},{row['label']}" for row in table(labels)]
    labels.write_text("\n".join(["slide_id,label", *rows]) + "\n")
    return labels


def concatenated(slides: BagDataset, of_patient: dict[str, list[str]]) -> list[np.ndarray]:
    row = {name: number for number, name in enumerate(slides.ids)}
    return [
        np.concatenate([slides.batch([row[one]]).instances.numpy() for one in sorted(of_patient[patient])])
        for patient in of_patient
    ]


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def owners(labels: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in table(labels):
        found.setdefault(row["case_id"], []).append(row["slide_id"])
    return found


@pytest.mark.parametrize("place", ["files", "store", "memory"])
def test_predictions_of_a_patient_are_those_of_the_concatenated_slides(tmp_path: Path, place: str) -> None:
    folder, labels = cohort(tmp_path)
    slides, of_patient = miue.load_bags(folder, labels=labels).bags, owners(labels)
    if place == "files":
        patients = miue.load_bags(folder, labels=labels, bag_per="patient").bags
    else:
        write_store(tmp_path / "store", slides)
        loaded = miue.load_bags(tmp_path / "store", bag_per="patient").bags
        patients = loaded if place == "store" else concatenate([loaded])
        assert isinstance(patients.instances, RearrangedInstances)
    if place == "memory":
        arrays = [slides.batch([row]).instances.numpy() for row in range(len(slides))]
        known = {"ids": slides.ids, "patients": slides.patients, "class_names": slides.class_names}
        patients = merge_bags(BagDataset.from_arrays(arrays, list(slides.labels), **known))  # type: ignore[arg-type]
        assert type(patients.instances) is np.ndarray
    assert patients.ids == tuple(of_patient) and patients.bag_per == "patient"
    names = [patients.class_names[label] for label in patients.labels]
    plain = BagDataset.from_arrays(concatenated(slides, of_patient), names, ids=patients.ids)
    model = train_one_epoch(plain, method="mirel", network="gated-attention")
    with pytest.warns(UserWarning, match="one bag for each patient"):
        merged = model.predict(patients)
    expected = model.predict(plain)
    for level in ("bags", "instances"):
        ours, theirs = getattr(merged, level), getattr(expected, level)
        assert np.array_equal(ours.bag_ids, theirs.bag_ids)
        assert np.array_equal(ours.distribution.alpha, theirs.distribution.alpha)
        for name, values in theirs.uncertainties().items():
            assert np.array_equal(ours.uncertainty(name), values)
    assert merged.instances is not None and merged.instances.slides is not None
    of_slides = merged.instances.slides_of_bags()
    sizes = dict(zip(slides.ids, slides.sizes.tolist(), strict=True))
    assert of_slides == {
        patient: {one: sizes[one] for one in sorted(names)} for patient, names in of_patient.items()
    }


def test_instances_stay_in_their_files_and_go_to_other_processes_as_they_are(tmp_path: Path) -> None:
    folder, labels = cohort(tmp_path)
    bags = miue.load_bags(folder, labels=labels, bag_per="patient").bags
    assert isinstance(bags.instances, RearrangedInstances)
    again = find_bags_again(describe_bags(bags, tmp_path / "copy.npy"))
    assert not (tmp_path / "copy.npy").exists() and state_of_bags(again) == state_of_bags(bags)
    assert keep_in_memory(bags.instances, 0.5) == len(bags.instances) * 6 * 4
    assert isinstance(bags.instances.array, FileInstances) and bags.instances.array.memory_share == 0.5
    assert again.slides is not None and bags.slides is not None
    assert again.slides.texts.tolist() == bags.slides.texts.tolist()
    both = range(len(bags))
    assert np.array_equal(again.batch(both).instances, bags.batch(both).instances)
    other = miue.load_bags(folder, labels=labels).bags
    assert state_of_bags(bags) != state_of_bags(other)


def test_a_packed_store_holds_patients_and_knows_the_slide_of_each_instance(tmp_path: Path) -> None:
    folder, labels = cohort(tmp_path)
    run("data", "pack", folder, "--labels", labels, "--bag-per", "patient", "--out", tmp_path / "store")
    bags, stored = miue.load_bags(folder, labels=labels, bag_per="patient").bags, read_store(tmp_path / "store")
    assert (stored.ids, stored.bag_per) == (bags.ids, "patient")
    assert bags.slides is not None and stored.slides is not None
    assert stored.slides.texts.tolist() == bags.slides.texts.tolist()
    assert np.array_equal(np.asarray(stored.instances), np.asarray(bags.instances))
    assert miue.load_bags(tmp_path / "store", bag_per="patient").bags.ids == bags.ids
    with pytest.raises(ConfigError) as error:
        miue.load_bags(tmp_path / "store", bag_per="slide")
    assert (error.value.item, error.value.got) == ("bag_per", "'slide'")
    some = stored.subset([3])
    write_store(tmp_path / "one", some)
    assert read_store(tmp_path / "one").slides.names == ("P03-s0", "P03-s1", "P03-s2")  # type: ignore[union-attr]


def test_what_is_known_of_slides_is_known_of_their_patient() -> None:
    slides = BagDataset.from_arrays(
        [np.full((size, 2), size, np.float32) for size in (1, 2, 3)],
        ["no", None, "yes"],
        ids=["c", "a", "b"],
        is_ood=[None, False, True],
        patients=["p", "p", "q"],
        instance_labels=[[0], [1, 0], [1, 1, 0]],
        coords=[np.arange(2 * size).reshape(size, 2) for size in (1, 2, 3)],
    )
    bags = merge_bags(slides)
    assert (bags.ids, bags.patients) == (("p", "q"), None)
    assert (list(bags.labels), list(bags.is_ood), bags.ood_sets[1]) == ([0, 1], [False, True], "ood")
    assert bags.batch([0]).instances.tolist() == [[2, 2], [2, 2], [1, 1]]  # a, then c
    assert list(bags.instance_labels) == [1, 0, 0, 1, 1, 0]
    assert list(bags.instance_is_ood) == [False, False, None, True, True, True]
    assert bags.coords is not None and bags.coords.values.tolist()[:3] == [[0, 1], [2, 3], [0, 1]]
    both = concatenate([bags, merge_bags(BagDataset.from_arrays([np.ones((1, 2))], ids=["z"]), ["r"])])
    assert both.bag_per == "patient" and both.slides is not None
    assert both.slides.texts.tolist() == ["a", "a", "c", "b", "b", "b", "z"]
    assert Slides.concatenate([both.slides, Slides.unknown(1)]).texts[-1] == ""


def bad_label(root: Path, labels: Path) -> Any:
    return edited(labels, "P03,P03-s1,normal", "P03,P03-s1,tumor"), ("P03-s0", "normal", "P03-s1", "tumor")


def no_patient(root: Path, labels: Path) -> Any:
    return edited(labels, "P03,P03-s1,", ",P03-s1,"), ("P03-s1", "no patient")


def other_width(root: Path, labels: Path) -> Any:
    trident(root / "features", "P03-s1", features_of(3, width=5))
    return labels, ("P03-s1", "(5,)", "(6,)")


@pytest.mark.parametrize("damage", [bad_label, no_patient, other_width])
def test_slides_that_cannot_be_one_bag_are_named_or_left_out(tmp_path: Path, damage: Any) -> None:
    folder, labels = cohort(tmp_path)
    labels, said = damage(tmp_path, labels)
    with pytest.raises(DataError) as error:
        miue.load_bags(folder, labels=labels, bag_per="patient")
    assert all(word in error.value.got for word in said)
    loaded = miue.load_bags(folder, labels=labels, bag_per="patient", skip_bad=True)
    assert all(word in " ".join((loaded.left_out[0].bag, loaded.left_out[0].reason)) for word in said)
    assert ("P03" in loaded.bags.ids) == (damage is not bad_label)


def test_a_column_that_is_not_there_and_bags_without_patients_are_refused(tmp_path: Path) -> None:
    folder, labels = cohort(tmp_path)
    with pytest.raises(ConfigError) as error:
        miue.load_bags(folder, labels=labels, bag_per="blok")
    assert "'blok'" in error.value.item and "'block'" in str(error.value)
    without_patients(labels)
    with pytest.raises(DataError) as missing:
        miue.load_bags(folder, labels=labels, bag_per="patient")
    assert "patient_column=NAME" in missing.value.fix
    assert "--patient-column" in fail("train", folder, "--labels", labels, "--bag-per", "patient", "--out", "run")


@pytest.mark.parametrize("with_slides", [False, True])
def test_tables_of_patients_make_their_bags(tmp_path: Path, with_slides: bool) -> None:
    folder, labels = cohort(tmp_path)
    expected, rows = miue.load_bags(folder, labels=labels, bag_per="patient").bags, table(labels)
    of_patients = dict.fromkeys(f"{row['case_id']},{row['label']}" for row in rows)
    labels.write_text("\n".join(["PATIENT,label", *of_patients]) + "\n")
    slides = tmp_path / "slides.csv"
    slides.write_text(
        "\n".join(["PATIENT,FILENAME", *(f"{row['case_id']},{row['slide_id']}" for row in rows)]) + "\n"
    )
    more = {"slide_table": slides} if with_slides else {}
    bags = miue.load_bags(folder, labels=labels, bag_per="patient", settings=more).bags
    assert set(bags.ids) == set(expected.ids)
    row = {name: number for number, name in enumerate(bags.ids)}
    assert bags.labels.values[[row[name] for name in expected.ids]].tolist() == expected.labels.values.tolist()
    assert bags.sizes[[row[name] for name in expected.ids]].tolist() == expected.sizes.tolist()


def test_a_table_of_instances_states_patients_of_its_own(tmp_path: Path) -> None:
    lines = [f"s{slide},p{slide // 2},{slide // 2 % 2},{slide}.5,{row}" for slide in range(8) for row in range(3)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["bag_id,patient,label,f_0,f_1", *lines]) + "\n")
    bags = miue.load_bags(path, bag_per="patient").bags
    assert bags.ids == ("p0", "p1", "p2", "p3") and bags.sizes.tolist() == [6] * 4
    path.write_text(path.read_text().replace("s5,p2,", "s5,,"))
    with pytest.raises(DataError) as error:
        miue.load_bags(path, bag_per="patient")
    assert "s5: no patient is stated" in error.value.got
    with pytest.raises(ConfigError):
        miue.load_bags(path, bag_per="block")


def test_tcga_barcodes_state_patients_and_that_is_said_once(tmp_path: Path) -> None:
    folder, labels = cohort(tmp_path, name="TCGA-AA-{patient}0-01Z-{slide}")
    without_patients(labels)
    loaded = miue.load_bags(folder, labels=labels, bag_per="patient")
    assert loaded.bags.ids[:2] == ("TCGA-AA-P000", "TCGA-AA-P010") and len(loaded.bags) == 12
    assert sum("TCGA" in note for note in loaded.notes) == 1
    with pytest.raises(DataError):
        miue.load_bags(folder, labels=labels, bag_per="patient", settings={"patients": "none"})


def test_any_column_makes_bags_and_patients_stay_together(tmp_path: Path) -> None:
    folder, labels = cohort(tmp_path, patients=30)
    bags = miue.load_bags(folder, labels=labels, bag_per="block").bags
    assert len(bags) == 40 and bags.bag_per == "block" and bags.patients is not None
    assert dict(zip(bags.ids, bags.patients, strict=True))["b061"] == "P06"
    for fold in range(3):
        assigned = miue.make_folds(bags, 3).assign(bags, fold)
        parts: dict[str, set[str]] = {}
        for patient, part in zip(bags.patients, assigned.splits, strict=True):
            parts.setdefault(patient, set()).add(part)
        assert all(len(one) == 1 for one in parts.values())


def test_splits_of_slides_are_those_of_their_patients_and_leakage_is_refused(tmp_path: Path) -> None:
    folder, labels = cohort(tmp_path)
    rows = table(labels)
    part = {row["slide_id"]: ("train", "val", "test")[int(row["case_id"][1:]) // 2 % 3] for row in rows}
    splits = tmp_path / "splits.csv"

    def write() -> Path:
        splits.write_text("slide_id,fold_0\n" + "".join(f"{name},{of}\n" for name, of in part.items()))
        return splits

    loaded = miue.load_bags(folder, labels=labels, bag_per="patient", splits=write())
    of_bags = dict(zip(loaded.bags.ids, loaded.bags.splits, strict=True))
    assert (of_bags["P03"], of_bags["P05"], of_bags["P00"]) == ("validation", "test", "train")
    part["P03-s1"] = "train"
    with pytest.raises(DataError) as error:
        miue.load_bags(folder, labels=labels, bag_per="patient", splits=write())
    assert "'P03'" in error.value.item and error.value.got == "train and validation"


@pytest.mark.long
def test_no_patient_of_a_cross_validation_is_trained_and_tested_on(tmp_path: Path) -> None:
    folder, labels = cohort(tmp_path, patients=18)
    out = tmp_path / "cv"
    words = ("--labels", labels, "--bag-per", "patient", "--folds", 2, "--out", out, "--quiet", *FAST)
    run("cross-validate", folder, *words)
    assert {row["bag_id"] for row in table(out / "splits.csv")} == {f"P{number:02d}" for number in range(18)}
    tables = sorted(out.glob("fold_*/seed_*/predictions/bags.csv"))
    tested = [row["bag_id"] for path in tables for row in table(path)]
    assert sorted(tested) == sorted(set(tested)) == [f"P{number:02d}" for number in range(18)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Features, labels and a run with one bag for each of 42 patients."""
    root = tmp_path_factory.mktemp("trained")
    folder, labels = cohort(root, patients=42)
    run("train", folder, "--labels", labels, "--bag-per", "patient", "--out", root / "run", "--quiet", *FAST)
    return folder, labels, root / "run"


def test_from_folder_to_decisions_of_patients_and_exports_of_slides(
    trained: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    folder, labels, model = trained
    said = run("predict", model, folder, "--labels", labels, "--part", "all", "--out", tmp_path / "p", "--quiet")
    assert "one bag per patient, as the model was trained" in " ".join(said.split())
    predictions = miue.read_predictions(tmp_path / "p")
    assert set(predictions.bags.bag_ids) == {f"P{number:02d}" for number in range(42)}
    held = json.loads((tmp_path / "p" / "predictions.json").read_text())["provenance"]
    assert held["bag_per"] == "patient"

    run("export", "arrays", tmp_path / "p", "--out", tmp_path / "all", "--quiet")
    assert len(list((tmp_path / "all").glob("*.h5"))) == 84
    (tmp_path / "ids.txt").write_text("P06-s1\n")
    run("export", "arrays", tmp_path / "p", "--ids", tmp_path / "ids.txt", "--out", tmp_path / "one", "--quiet")
    with h5py.File(tmp_path / "one" / "P06-s1.h5") as file, h5py.File(folder / "P06-s1.h5") as features:
        assert np.array_equal(file["coords"][:], features["coords"][:])
        probabilities = file["probabilities"][:]
    of_patient = predictions.instances.of_bags(["P06"])  # type: ignore[union-attr]
    assert of_patient.slides is not None
    mine = of_patient.slides.texts == "P06-s1"
    assert np.allclose(probabilities, of_patient.probabilities[mine])

    run("worklist", tmp_path / "p", "--out", tmp_path / "worklist.csv")
    rows = table(tmp_path / "worklist.csv")
    assert len(rows) == 42 and {row["patient"]: row["slides"] for row in rows}["P06"] == "3"
    assert "slide" not in rows[0]


def test_a_calibration_counts_patients(trained: tuple[Path, Path, Path], tmp_path: Path) -> None:
    folder, labels, model = trained
    without = ("--without", "deferral", "--without", "ood")
    words = ("--labels", labels, "--part", "test", "--coverage", "0.8", *without)
    run("calibrate", model, folder, *words, "--out", tmp_path / "c.json")
    made_from = json.loads((tmp_path / "c.json").read_text())["calibration"]["made_from"]
    assert (made_from["bags"], made_from["patients"]) == (9, None)


@pytest.mark.long
def test_slides_are_predicted_one_by_one_only_where_that_is_asked_for(
    trained: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    folder, labels, model = trained
    words = ("--labels", labels, "--part", "all", "--bag-per", "slide", "--out", tmp_path / "p", "--quiet")
    with pytest.warns(UserWarning, match="one bag for each patient"):
        run("predict", model, folder, *words)
    assert len(miue.read_predictions(tmp_path / "p").bags) == 84
    with pytest.raises(DataError) as error:
        run("predict", model, folder, "--part", "all", "--out", tmp_path / "q")
    assert "--patient-column" in error.value.fix


@pytest.mark.parametrize("table_format", ["parquet", "csv"])
def test_the_slides_of_instances_are_read_back(tmp_path: Path, table_format: str) -> None:
    folder, labels = cohort(tmp_path)
    bags = miue.load_bags(folder, labels=labels, bag_per="patient").bags
    predictions = train_one_epoch(bags).predict(bags)
    predictions.save(tmp_path / "p", table_format=table_format)
    read = miue.read_predictions(tmp_path / "p")
    for one in (predictions, read):
        assert one.instances is not None and one.instances.slides_of_bags()["P02"] == {"P02-s0": 6, "P02-s1": 7}
    slides = read.per_slide()
    assert isinstance(slides, Predictions) and slides.instances is not None
    assert slides.instances.bag_sizes()["P02-s1"] == 7
    assert len(slides.bags) == 24
    whole = predictions.per_slide().instances
    assert whole is not None
    for name, part in slides.instances.by_bag():
        assert np.allclose(part.probabilities, whole.of_bags([name]).probabilities)
    assert slides.per_slide() is slides
