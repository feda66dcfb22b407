"""A model meets bags of another day: other labels, other tables, other widths, slides of patients it knows."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import made_files
import numpy as np
import pandas as pd
import pytest
from commands import run
from made_bags import train_with
from made_images import bright_bags
from torch import nn

import miue
from miue.common import text
from miue.common.errors import DataError, ModelError
from miue.io import load_bags

QUICK = ["--quiet", "--distance", "none", "--set", "max_epochs=2", "--set", "encoder.width=8"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Slides of twenty patients, of which the first of each was listed when ``run`` was trained."""
    place = tmp_path_factory.mktemp("new")
    folder, labels = made_files.slides(place / "job")
    folder.rename(place / "features")
    (place / "labels.csv").write_text(labels.read_text())
    rows = rows_of(place / "labels.csv")
    first = {row["case_id"]: row for row in reversed(rows)}
    write(place / "first.csv", list(first.values()))
    run("train", place / "features", "--labels", place / "first.csv", "--out", place / "run", *QUICK)
    return place


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def to_store(place: Path) -> list[str]:
    return ["--out", str(place / "store"), "--quiet"]


def predicted(place: Path, out: Path, *options: str | Path) -> miue.Predictions:
    run("predict", place / "run", place / "features", "--out", out, "--quiet", *options)
    return miue.read_predictions(out)


def test_labels_are_numbered_as_the_model_numbers_its_classes(place: Path, tmp_path: Path) -> None:
    plain = ("--part", "all", "--labels", place / "labels.csv")
    wanted = predicted(place, tmp_path / "a", *plain).bags
    of = dict(zip(wanted.bag_ids, wanted.labels.values.tolist(), strict=True))
    positives = [row for row in rows_of(place / "labels.csv") if row["label"] == "tumor"]
    write(tmp_path / "positives.csv", positives)
    only = predicted(place, tmp_path / "b", "--part", "all", "--labels", tmp_path / "positives.csv").bags
    assert len(only) == len(positives) and set(only.labels.values) == {1}
    assert all(of[bag] == 1 for bag in only.bag_ids)
    renamed = [{**row, "label": row["label"].replace("tumor", "TUMOUR")} for row in rows_of(place / "labels.csv")]
    write(tmp_path / "renamed.csv", renamed)
    command = ["predict", place / "run", place / "features", "--labels", tmp_path / "renamed.csv"]
    said = run(*command, "--part", "all", "--out", tmp_path / "c", "--quiet", code=1)
    assert "'TUMOUR'" in said and "normal, tumor" in said
    run(
        "data",
        "pack",
        place / "features",
        "--labels",
        place / "labels.csv",
        "--classes",
        "tumor,normal",
        *to_store(tmp_path),
    )
    run("predict", place / "run", tmp_path / "store", "--part", "all", "--out", tmp_path / "d", "--quiet")
    turned = miue.read_predictions(tmp_path / "d").bags
    assert dict(zip(turned.bag_ids, turned.labels.values.tolist(), strict=True)) == of


def test_other_slides_of_patients_it_learned_from_are_no_unseen_ones(place: Path, tmp_path: Path) -> None:
    patient_of = {row["slide_id"]: row["case_id"] for row in rows_of(place / "labels.csv")}
    parts = rows_of(place / "run" / "splits.csv")
    learned = {row["patient"] for row in parts if row["fold_0"] in ("train", "validation")}
    assert learned & {patient_of[bag] for bag in set(patient_of) - {row["bag_id"] for row in parts}}
    found = predicted(place, tmp_path / "p", "--labels", place / "labels.csv").bags
    assert len(found) and not learned & {patient_of[bag] for bag in found.bag_ids}
    others = [row for row in rows_of(place / "labels.csv") if row["slide_id"] not in {r["bag_id"] for r in parts}]
    write(tmp_path / "others.csv", others)
    easy = ["--max-error", "0.9", "--confidence", "0.5", "--without", "ood", "--without", "sets", "--quiet"]
    given = ["--labels", tmp_path / "others.csv", "--part", "all"]
    assert "others of their patients" in run("calibrate", place / "run", place / "features", *given, *easy, code=1)
    split: list[str | Path] = [
        "--labels",
        place / "first.csv",
        "--splits",
        place / "run" / "splits.csv",
        "--part",
    ]
    assert len(predicted(place, tmp_path / "v", *split, "validation").bags)


def test_bags_of_other_parts_than_test_are_counted_where_none_is_asked_for(place: Path, tmp_path: Path) -> None:
    for number in range(7):
        folder = tmp_path / "theirs" / ("train" if number < 5 else "test")
        made_files.trident(folder, f"their{number}", made_files.features_of(5, seed=number))
    words = ("predict", place / "run", tmp_path / "theirs", "--out", tmp_path / "p")
    assert "part test: 2 of 7 bags; --part names another, or all" in run(*words)
    assert "of 7 bags" not in run(*words, "--part", "all", "--overwrite")
    assert len(miue.read_predictions(tmp_path / "p").bags) == 7


def test_a_file_of_another_width_is_no_reason_to_leave_out_the_right_ones(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "features"
    for number in range(3):
        made_files.trident(folder, f"wide{number}", made_files.features_of(4, width=9))
    made_files.trident(folder, "right", made_files.features_of(4))
    command = ["predict", place / "run", folder, "--out", tmp_path / "p", "--quiet"]
    assert "wide0" in run(*command, code=1)
    run(*command, "--skip-bad")
    assert miue.read_predictions(tmp_path / "p").bags.bag_ids.tolist() == ["right"]


def long_table(path: Path, change: Callable[[int, list[str]], list[str]] = lambda _, row: row) -> Path:
    random = np.random.default_rng(0)
    lines = [",".join(["", "slide", "outcome", "case", "f0", "f1"])]
    for number in range(60):
        bag = number // 3
        values = random.normal(bag % 2, 0.5, 2)
        row = [str(number), f"s{bag}", "pn"[bag % 2], str(100 + bag // 2), *(f"{value:.3f}" for value in values)]
        lines.append(",".join(change(number, row)))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_columns_of_a_long_table_are_those_that_are_named(tmp_path: Path) -> None:
    path = long_table(tmp_path / "t.csv")
    named = ["--id-column", "slide", "--label-column", "outcome", "--patient-column", "case"]
    run("train", path, *named, "--out", tmp_path / "run", *QUICK)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["contract"] == {
        "instance_shape": [2],
        "target": None,
        "class_names": ["n", "p"],
        "extractor": "",
        "patch_scales": [],
        "pixels": "",
        "feature_names": ["f0", "f1"],
        "bag_per": "",
        "encoders": {},
        "covariates": [],
    }
    parts = rows_of(tmp_path / "run" / "splits.csv")
    of_patient: dict[str, set[str]] = {}
    for row in parts:
        of_patient.setdefault(row["patient"], set()).add(row["fold_0"])
    assert len(of_patient) == 10 and all(len(part) == 1 for part in of_patient.values())
    wrong = ["--id-column", "slide", "--patient-column", "nonsense", "--out", tmp_path / "no", *QUICK]
    assert "a column 'nonsense'" in run("train", path, *wrong, code=1)
    run("data", "pack", path, *named, *to_store(tmp_path))
    without = ["--patient-column", "case", "--out", tmp_path / "no", *QUICK]
    assert "columns: expected bags that take names of columns, got a bag store" in run(
        "train", tmp_path / "store", *without, code=1
    )


def test_cells_may_be_separated_by_semicolons(tmp_path: Path) -> None:
    path = long_table(tmp_path / "t.csv")
    (tmp_path / "s.csv").write_text(path.read_text().replace(",", ";"))
    named = ["--id-column", "slide", "--label-column", "outcome"]
    for name in ("t", "s"):
        run("data", "pack", tmp_path / f"{name}.csv", *named, *to_store(tmp_path / name))
    found = [np.asarray(miue.read_store(tmp_path / name / "store").instances) for name in ("t", "s")]
    assert np.array_equal(found[0], found[1])


def test_a_bag_of_a_long_table_that_is_not_finite_is_named_and_left_out_where_asked(tmp_path: Path) -> None:
    path = long_table(tmp_path / "t.csv", lambda n, row: [*row[:5], "nan"] if n in (4, 5) else row)
    named = ["--id-column", "slide", "--label-column", "outcome"]
    said = run("data", "pack", path, *named, *to_store(tmp_path), code=1)
    assert "s1: no finite number in 2 of 3 rows (line 6, column 'f1')" in said
    run("data", "pack", path, *named, *to_store(tmp_path), "--skip-bad")
    stored = miue.read_store(tmp_path / "store")
    assert len(stored) == 19 and "s1" not in stored.ids


@pytest.mark.long
def test_cross_validation_takes_the_folds_of_the_label_table(place: Path, tmp_path: Path) -> None:
    rows = rows_of(place / "labels.csv")
    patients = sorted({row["case_id"] for row in rows})
    for row in rows:
        place_of = patients.index(row["case_id"])
        for fold in range(3):
            part = ("test", "val", "train", "train")[(place_of // 2 + fold) % 4]
            row[f"fold_{fold}"] = part
    write(tmp_path / "folds.csv", rows)
    command = ["cross-validate", place / "features", "--labels", tmp_path / "folds.csv", *QUICK]
    assert "3 folds × 1 seed" in run(*command, "--out", tmp_path / "cv")
    assert "2 folds × 1 seed" in run(*command, "--out", tmp_path / "drawn", "--folds", "2")
    both = ["--splits", tmp_path / "folds.csv", "--folds", "2", "--out", tmp_path / "no"]
    assert "--folds with --splits, which lists the folds: expected one of the two" in run(*command, *both, code=1)


def test_a_folder_without_labels_takes_those_of_the_run_and_says_so(place: Path, tmp_path: Path) -> None:
    told = predicted(place, tmp_path / "told", "--labels", place / "first.csv").bags
    said = run("predict", place / "run", place / "features", "--out", tmp_path / "bare", "--quiet")
    bare = miue.read_predictions(tmp_path / "bare").bags
    listed = np.isin(bare.bag_ids.astype(str), [row["bag_id"] for row in rows_of(place / "run" / "splits.csv")])
    assert listed.any() and bare.labels.known.tolist() == listed.tolist()
    label_of = dict(zip(told.bag_ids, told.labels.values, strict=True))
    patient_of = {row["slide_id"]: row["case_id"] for row in rows_of(place / "first.csv")}
    assert bare.patients is not None
    for row in np.flatnonzero(listed):
        assert bare.labels.values[row] == label_of[bare.bag_ids[row]]
        assert bare.patients[row] == patient_of[bare.bag_ids[row]]
    counts = [int((bare.labels.values[listed] == c).sum()) for c in (0, 1)]
    assert f"run/splits.csv' (normal {counts[0]}, tumor {counts[1]}" in said
    assert "pass labels for others" in said
    assert miue.evaluate(miue.read_predictions(tmp_path / "bare")).bags.metrics["accuracy"].value is not None


def test_new_bags_that_the_run_does_not_list_stay_without_labels_and_that_is_said(
    place: Path, tmp_path: Path
) -> None:
    for number in range(2):
        made_files.trident(tmp_path / "new", f"new{number}", made_files.features_of(4))
    said = run("predict", place / "run", tmp_path / "new", "--out", tmp_path / "p", "--quiet")
    assert "lists none for these bags; pass labels to evaluate" in said
    assert not miue.read_predictions(tmp_path / "p").bags.labels.known.any()
    assert "predict with labels" in run("evaluate", tmp_path / "p")
    run("report", tmp_path / "p", "--out", tmp_path / "r.html", "--quiet", "--resamples", "10")
    assert "predict with labels" in (tmp_path / "r.html").read_text("utf-8")
    replace(miue.Model.load(place / "run"), training_bags=None).save(tmp_path / "shared")
    said = run("predict", tmp_path / "shared", tmp_path / "new", "--out", tmp_path / "q", "--quiet")
    assert "is not there; pass labels to evaluate" in said


@pytest.mark.long
def test_columns_that_were_guessed_are_stated_in_one_line(place: Path, tmp_path: Path) -> None:
    names = {"slide_id": "slide", "case_id": "case", "label": "diagnosis"}
    rows = [{new: row[old] for old, new in names.items()} for row in rows_of(place / "first.csv")]
    write(tmp_path / "labels.csv", rows)
    normal = sum(row["diagnosis"] == "normal" for row in rows)
    line = (
        f"labels: column 'diagnosis' (normal {normal}, tumor {len(rows) - normal}; negative class: normal), "
        f"patients: column 'case' ({len(rows)})"
    )
    given = [place / "features", "--labels", tmp_path / "labels.csv"]
    assert line in run("train", *given, "--out", tmp_path / "run", *QUICK)
    predict = ["predict", place / "run", *given, "--quiet", "--part", "all"]
    assert line in run(*predict, "--out", tmp_path / "p")
    assert line in run(*predict, "--out", tmp_path / "turned", "--classes", "tumor,normal")  # that of the model
    turned = line.replace(f"normal {normal}, tumor {len(rows) - normal}; negative class: normal", "")
    said = run("data", "pack", *given, "--classes", "tumor,normal", *to_store(tmp_path))
    assert f"(tumor {len(rows) - normal}, normal {normal}; negative class: tumor)" in said and turned not in said


def test_columns_of_a_table_of_instances_are_stated_too(tmp_path: Path) -> None:
    table = long_table(tmp_path / "t.csv")
    named = ["--id-column", "slide", "--label-column", "outcome", "--patient-column", "case"]
    said = run("data", "pack", table, *named, *to_store(tmp_path))
    assert "labels: column 'outcome' (" in said and "patients: column 'case' (" in said


@pytest.mark.long
def test_bags_that_the_training_lists_without_a_label_are_not_said_to_be_unlisted(
    place: Path, tmp_path: Path
) -> None:
    rows = rows_of(place / "first.csv")
    write(
        tmp_path / "labels.csv",
        [{**row, "label": row["label"] if number else ""} for number, row in enumerate(rows)],
    )
    given = [place / "features", "--labels", tmp_path / "labels.csv"]
    said = run("data", "split", *given, "--out", tmp_path / "splits.csv", "--quiet")
    assert "; without a label and in no part 1)" in said
    run("train", *given, "--out", tmp_path / "run", *QUICK)
    more = len(rows_of(place / "labels.csv")) - len(rows)
    predict = ["predict", tmp_path / "run", place / "features", "--part", "all", "--quiet"]
    assert f", none for {more} bags that it does not list)" in run(*predict, "--out", tmp_path / "p")


@pytest.mark.long
@pytest.mark.parametrize("form", ["table", "store", "frame", "frames", "anndata"])
def test_columns_in_another_order_are_refused(form: str, tmp_path: Path) -> None:
    """The same columns in another order have the same width, and a model would predict nonsense of them."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 3)), columns=["area", "size", "grey"])
    table.insert(0, "bag_id", np.repeat([f"s{number:02}" for number in range(20)], 3))
    table["label"] = np.repeat(["n", "p"] * 10, 3)

    def bags(names: list[str], columns: list[str]) -> miue.BagDataset:
        frame = table[["bag_id", *names, "label"]].set_axis(["bag_id", *columns, "label"], axis=1)
        if form in ("table", "store"):
            frame.to_csv(tmp_path / "t.csv", index=False)
            loaded = load_bags(tmp_path / "t.csv").bags
            if form == "table":
                return loaded
            miue.write_store(tmp_path / "-".join(columns), loaded, overwrite=True)
            return miue.read_store(tmp_path / "-".join(columns))
        if form == "frame":
            return miue.BagDataset.from_frame(frame, bag="bag_id", label="label")
        if form == "frames":
            listed = [rows[columns] for _, rows in frame.groupby("bag_id")]
            return miue.BagDataset.from_arrays(listed, ["n", "p"] * 10)
        data = SimpleNamespace(
            X=frame[columns].to_numpy(), obs=frame, obsm={}, layers={}, var_names=pd.Index(columns)
        )
        return miue.BagDataset.from_anndata(data, bag="bag_id", label="label")

    names = ["area", "size", "grey"]
    miue.train(
        bags(names, names), settings={"max_epochs": 1, "device": "cpu"}, progress=False, out=tmp_path / "run"
    )
    model = miue.Model.load(tmp_path / "run")
    new = replace(bags(names, names), ids=tuple(f"new {number}" for number in range(20)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(new)
        model.predict(replace(new, feature_names=()))
    swapped = bags(names[::-1], names[::-1])
    with pytest.raises(ModelError, match="another order: 'grey' where 'area' is expected; put the columns into"):
        model.predict(swapped)
    with pytest.warns(UserWarning, match=r"other names .*\('grey' missing, 'gray' unexpected\)"):
        model.predict(bags(names, ["area", "size", "gray"]))
    with pytest.raises(ModelError, match=r"feature width 3, .* got 2 \('grey' missing\)"):
        model.predict(bags(names[:2], names[:2]))
    with pytest.raises(DataError, match="the bags of s00, .*another order|the bags of bag_0, .*another order"):
        miue.concatenate([new, swapped])
    with pytest.raises(DataError, match="the validation bags: expected features in the order of the others"):
        miue.train(new, validation=swapped, settings={"max_epochs": 1}, progress=False)


@pytest.mark.long
@pytest.mark.parametrize("through_store", [False, True])
def test_features_of_another_extractor_are_warned_of(tmp_path: Path, through_store: bool) -> None:
    """Two extractors may give features of one width, on which a model predicts as if nothing were."""
    for folder, encoder in (("uni", "uni_v1"), ("same", "UNI_v1"), ("clam", "resnet50")):
        for number in range(20):
            features = made_files.features_of(5, seed=number, positive=number % 2 == 1)
            made_files.trident(tmp_path / folder, f"{number:02}", features, encoder=encoder)
    labels = tmp_path / "labels.csv"
    labels.write_text("slide_id,label\n" + "".join(f"{number:02},{number % 2}\n" for number in range(20)))
    given = {folder: load_bags(tmp_path / folder, labels=labels).bags for folder in ("uni", "same", "clam")}
    if through_store:
        for folder, bags in given.items():
            miue.write_store(tmp_path / f"{folder}-store", bags)
            given[folder] = miue.read_store(tmp_path / f"{folder}-store")
    miue.train(given["uni"], settings={"max_epochs": 1, "device": "cpu"}, progress=False, out=tmp_path / "run")
    model = miue.Model.load(tmp_path / "run")
    assert model.contract.extractor == "uni_v1"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(given["same"])
        model.predict(replace(given["clam"], extractor=""))
    with pytest.warns(UserWarning, match="features of 'uni_v1', these bags have features of 'resnet50'"):
        model.predict(given["clam"].subset([1, 3]))


def test_images_of_another_scale_are_refused_or_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network takes bytes as numbers from 0 to 1, and numbers as they are."""
    checks = {"shape_checks", "jaxtyping", "beartype"}  # of the tests
    monkeypatch.setattr(text, "PASSED_OVER", text.PASSED_OVER | checks)
    of_bytes = bright_bags()
    pixels = np.asarray(of_bytes.instances, np.float32)
    of_255, of_1 = replace(of_bytes, instances=pixels), replace(of_bytes, instances=pixels / 255)
    settings = {"max_epochs": 1, "device": "cpu", "distances": ()}
    miue.train(of_bytes, out=tmp_path / "bytes", progress=False, settings=settings)
    model = miue.Model.load(tmp_path / "bytes")
    assert model.contract.pixels == "bytes"
    with pytest.raises(ModelError, match=r"bag 'bag_0': expected bytes .* got numbers from 0 to 119"):
        model.predict(of_255)
    same = model.predict(of_1).bags.probabilities
    np.testing.assert_allclose(same, model.predict(of_bytes).bags.probabilities, rtol=1e-5)
    with pytest.warns(UserWarning, match="images of numbers up to") as of_training:
        of_numbers = miue.train(of_255, progress=False, settings=settings)
    assert of_numbers.contract.pixels == "numbers"
    with pytest.warns(UserWarning, match="trained on images of numbers, these are of bytes") as of_prediction:
        of_numbers.predict(of_bytes)
    where = [warning.filename for warning in (*of_training, *of_prediction)]
    assert where == [__file__, __file__], "a warning points to the line of the user's program"


@pytest.mark.parametrize(("scale", "shown"), [(1, r"2\d\d"), (257, r"5\d,\d{3}")])
def test_a_training_on_images_far_beyond_1_is_warned_of(scale: int, shown: str) -> None:
    """As of 16-bit images, or bytes that were made floats: encoders of miue take numbers as they are."""
    bags = bright_bags()
    pixels = np.asarray(bags.instances, np.float32)
    more: dict[str, Any] = {"settings": {"max_epochs": 1}, "progress": False, "distances": ()}
    with pytest.warns(UserWarning, match=rf"numbers up to {shown} .* about 0 to 1: pass bytes"):
        train_with(replace(bags, instances=pixels * scale), **more)
    standardized = (pixels - pixels.mean()) / pixels.std()
    for instances in (pixels / 255, standardized):
        train_with(replace(bags, instances=instances), **more)  # without a warning


@pytest.mark.long
def test_the_numbers_of_features_and_of_images_for_own_encoders_are_free(recwarn: pytest.WarningsRecorder) -> None:
    bags = bright_bags()
    pixels = np.asarray(bags.instances, np.float32)
    more: dict[str, Any] = {"settings": {"max_epochs": 1}, "progress": False, "distances": ()}
    own = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(36), nn.Linear(36, 4))
    of_images = train_with(replace(bags, instances=pixels), encoder=own, **more)
    of_features = train_with(replace(bags, instances=pixels.reshape(len(pixels), -1)), **more)
    assert (of_images.contract.instance_shape, of_features.contract.instance_shape) == ((6, 6, 1), (36,))
    assert [str(warning.message) for warning in recwarn if "images of numbers" in str(warning.message)] == []
