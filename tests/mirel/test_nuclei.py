"""Nuclei-bags and their cross-validation: patients are bags, no bag is on two sides, and runs go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fast import slow_but
from test_cifar10_bags import write_strips
from typer.testing import CliRunner

from miue.bags import BagDataset, Labels, OodFlags
from miue.common.errors import ConfigError, StorageError
from miue.datasets.image_shifts import shifted_copies
from miue.distributions import Categorical
from miue.io import read_store, read_store_summary
from miue.pathology.stain_shifts import ALL_SHIFTS, StainShift
from miue.predictions import PredictionTable
from papers.mirel.cli import app
from papers.mirel.folds import missing, write_test_bags
from papers.mirel.nuclei import experiment as nuclei
from papers.mirel.nuclei.bags import ARCHIVE, nuclei_bags
from papers.mirel.nuclei.experiment import FOLDS, METHOD_SETUPS, Fold, all_folds, evaluate_fold, fold_of
from papers.mirel.nuclei.shift_detection import (
    ShiftDetection,
    detections_path,
    parts_of,
    read_detections,
    write_detections,
)
from papers.mirel.nuclei.shifts import NUCLEI_SHIFTS
from papers.mirel.nuclei.table import DISTANCES, nuclei_page
from papers.mirel.results import Result, metric_of, read_results, write_results

PATIENTS = np.repeat([11, 5, 7], [3, 4, 2])


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Nine nuclei of three patients, in no order, one of them cancerous."""
    images = np.random.default_rng(0).integers(0, 256, (9, 27, 27, 3), dtype=np.uint8)
    write_strips(tmp_path / "strips.npz", 4, images=(images, np.zeros(9)))
    cancerous = np.zeros(9, np.uint8)
    cancerous[4] = 1
    with np.load(tmp_path / "strips.npz") as strips:
        arrays = {name: strips[name] for name in ("images_webp", "images_webp_offsets")}
    np.savez(tmp_path / ARCHIVE, patient_id=PATIENTS.astype(np.int16), is_cancerous=cancerous, **arrays)
    np.save(tmp_path / "images.npy", images)
    return tmp_path


SHOWN_SCORES = [(level, score) for level, scores in DISTANCES.items() for score in scores]


def made_bags(count: int = 40) -> BagDataset:
    """Small bags whose positive ones hold bright nuclei."""
    random = np.random.default_rng(1)
    bags, truth = [], []
    for i in range(count):
        labels = random.integers(0, 2, 3) * (i % 2)
        labels[0] = i % 2
        bags.append(np.clip(random.normal(90 + 90 * labels[:, None, None, None], 9, (3, 27, 27, 3)), 0, 255))
        truth.append(labels)
    images = [bag.astype(np.uint8) for bag in bags]
    ids = [f"p{i}" for i in range(count)]
    return BagDataset.from_arrays(images, [i % 2 for i in range(count)], ids=ids, instance_labels=truth)


def test_patients_are_bags_with_the_truth_of_every_nucleus(source: Path) -> None:
    bags = nuclei_bags(source)
    assert bags.ids == ("5", "7", "11")
    assert bags.sizes.tolist() == [4, 2, 3]
    assert bags.labels.values.tolist() == [1, 0, 0]
    images = np.load(source / "images.npy")
    order = np.concatenate([np.flatnonzero(np.equal(PATIENTS, patient)) for patient in (5, 7, 11)])
    assert np.array_equal(bags.instances, images[order])
    assert bags.instance_labels.values.tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0]
    assert bags.instance_labels.known.all()


def test_absent_or_damaged_nuclei_are_named(source: Path, tmp_path: Path) -> None:
    with np.load(source / ARCHIVE) as arrays:
        content = dict(arrays)
    for name, change in (
        ("is_cancerous", content["is_cancerous"] + 1),
        ("patient_id", content["patient_id"][:-1]),
    ):
        np.savez(source / ARCHIVE, **{**content, name: change})
        with pytest.raises(StorageError, match="whole, readable file"):
            nuclei_bags(source)
    (source / ARCHIVE).unlink()
    with pytest.raises(StorageError, match=ARCHIVE):
        nuclei_bags(source)


def test_a_store_of_nuclei_is_made_by_command(source: Path, tmp_path: Path) -> None:
    words = ("nuclei", "make", "--source", source, "--out", tmp_path / "store")
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert "3 bags with 9 instances written to" in result.output
    assert read_store(tmp_path / "store").class_names == ("no tumour epithelium", "tumour epithelium")
    made_by = read_store_summary(tmp_path / "store").made_by
    assert made_by["name"] == "nuclei-bags"
    assert made_by["command"].startswith("python -m papers.mirel")
    assert isinstance(run(*words).exception, StorageError)
    assert run(*words, "--overwrite").exit_code == 0


def test_stored_shift_detections_keep_their_columns(tmp_path: Path) -> None:
    detection = ShiftDetection("blur-light", 0.125, True, "vacuity knn_mean")
    write_detections(tmp_path / "42.csv", [detection])
    assert (tmp_path / "42.csv").read_text().splitlines() == [
        "shift,flagged_share,detected,differing",
        "blur-light,0.1250,True,vacuity knn_mean",
    ]
    assert read_detections(tmp_path / "42.csv") == [detection]


def test_the_real_nuclei_are_98_bags(shared_data: Path) -> None:
    if not (shared_data / ARCHIVE).exists():
        pytest.skip(f"needs {ARCHIVE} in ../shared/data")
    bags = nuclei_bags(shared_data)
    assert (len(bags), int(bags.labels.values.sum()), len(bags.positions)) == (98, 51, 20280)
    assert int(bags.instance_labels.values.sum()) == 7069


def test_every_bag_is_tested_once_and_never_trained_on_meanwhile() -> None:
    bags = made_bags(98)
    tested: list[str] = []
    for fold in range(FOLDS):
        parts = fold_of(bags, 42, fold)
        names = [set(part.ids) for part in parts]
        assert sum(map(len, names)) == len(set.union(*names)) == 98
        assert all(0.4 <= part.labels.values.mean() <= 0.6 for part in parts)
        tested += parts[2].ids
        assert fold_of(bags, 42, fold)[1].ids == parts[1].ids
    assert sorted(tested) == sorted(bags.ids)
    assert fold_of(bags, 17, 0)[2].ids != fold_of(bags, 42, 0)[2].ids


def test_shifted_copies_keep_the_truth() -> None:
    bags = made_bags(4).subset([3, 0])
    shifted = shifted_copies(bags, seed=0, shifts={"hed-strong": StainShift("hed", "strong")})
    assert shifted.ids == ("p3", "p0", "p3_hed-strong", "p0_hed-strong")
    assert shifted.is_ood.values.tolist() == [False, False, True, True]
    assert shifted.labels.values.tolist() == [1, 0, 1, 0]
    assert shifted.instance_labels.values.tolist() == bags.instance_labels.values[bags.positions].tolist() * 2
    assert shifted.instance_labels.known.all()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nuclei, "SETTINGS", {"max_epochs": 12, "learning_rate": 1e-3, "bags_per_update": 2})
    monkeypatch.setitem(nuclei.PATIENT, "max_epochs", 12)
    monkeypatch.setattr(nuclei, "OPTIONS", {"encoder.width": 64, "network.hidden": 16})
    monkeypatch.setattr(nuclei, "VALIDATION_BAGS", 6)
    monkeypatch.setitem(
        nuclei.METHOD_SETUPS, "deep-ensemble", nuclei.MethodSetup("deep ensemble", {"method.size": 2})
    )


@pytest.mark.long
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("method", slow_but(["one-sided-attention-mirel"], ["mirel", "deep-ensemble"]))
def test_a_fold_is_learned_and_its_results_are_whole(method: str, tmp_path: Path) -> None:
    fold = Fold(method, 42, 3)
    results = evaluate_fold(fold, made_bags(), tmp_path, device="cpu")
    assert read_results(fold.path(tmp_path)) is not None
    estimator, other = METHOD_SETUPS[method].estimators
    assert (metric_of(results, estimator, "bag", "auroc").value or 0) > 0.9
    assert (metric_of(results, estimator, "instance", "auroc").value or 0) > 0.9
    assert metric_of(results, other, "bag", "auroc").reason == "not run"  # bags are the same, and written once
    for shift in ALL_SHIFTS:
        for level, score in (*SHOWN_SCORES, ("bag", "default")):
            assert metric_of(results, estimator, level, f"ood {shift}", score).value is not None


@pytest.mark.usefixtures("quick")
def test_what_is_done_is_not_done_again(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nuclei, "FOLDS", 2)
    done: list[Fold] = []

    def evaluated(fold: Fold, bags: BagDataset, results: Path, device: str) -> None:
        done.append(fold)
        write_results(fold.path(results), *fold.run, 2, [])

    monkeypatch.setattr(nuclei, "evaluate_fold", evaluated)
    first = Fold("mirel", 42, 0).path(tmp_path)
    write_results(first, "nuclei/mirel/fold-0", 42, 2, [Result("residual", "bag", "auroc", "default", 0.5)])
    words = ("nuclei", "run", "--source", source, "--results", tmp_path, "--seeds", "42,17", "--method", "mirel")
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert "3 folds to do, 1 done before" in result.output
    assert done == [Fold("mirel", 42, 1), Fold("mirel", 17, 0), Fold("mirel", 17, 1)]
    first.write_text("\n".join(first.read_text().splitlines()[:-1]))  # cut off
    assert missing(all_folds(["mirel"], [42]), tmp_path)[0] == Fold("mirel", 42, 0)
    assert isinstance(run(*words[:-1], "mirell").exception, ConfigError)


def test_the_table_is_mean_over_folds_then_mean_and_deviation_over_whole_repetitions(tmp_path: Path) -> None:
    areas = {42: np.linspace(0.5, 0.95, FOLDS), 17: np.linspace(0.6, 0.69, FOLDS)}
    for seed, values in areas.items():
        for fold, value in enumerate(values):
            accuracy = None if fold == 0 else 0.9
            rows = [Result("bag-of-one", "bag", "auroc", "default", float(value))]
            rows.append(Result("bag-of-one", "bag", "accuracy", "default", accuracy))
            rows.append(Result("bag-of-one", "bag", "ood hed-strong", "knn_mean", 0.75))
            write_results(Fold("i-edl", seed, fold).path(tmp_path), f"nuclei/i-edl/fold-{fold}", seed, 2, rows)
    for fold in range(FOLDS - 1):  # not a whole repetition
        rows = [Result("bag-of-one", "bag", "auroc", "default", 0.0)]
        write_results(Fold("i-edl", 26, fold).path(tmp_path), f"nuclei/i-edl/fold-{fold}", 26, 2, rows)
    page = run("nuclei", "table", "--results", tmp_path, "--out", tmp_path / "page.md").output
    assert page == (tmp_path / "page.md").read_text() == nuclei_page(tmp_path, [42, 17, 26, 50, 82])
    (row,) = [line for line in page.splitlines() if line.startswith("| I-EDL | 2 |")]
    means = [values.mean() for values in areas.values()]
    assert f"| {np.mean(means):.3f} ± {np.std(means, ddof=1):.3f} |" in row
    assert "| 0.900 ± 0.000 |" in row  # a fold without a value is left out of the mean
    (shift,) = [line for line in page.splitlines() if line.startswith("| I-EDL | knn_mean | 2 |")]
    assert shift.count("—") == 5
    assert shift.endswith("0.750 ± 0.000 |")
    assert "| MIREL | 0 | — | — |" in page
    assert page.count("| MIREL |") == 1
    assert "; I-EDL 10 10 9 0 0;" in page


def test_confidence_and_calibration_of_bags_are_of_all_folds_together(tmp_path: Path) -> None:
    for number in range(FOLDS):  # in each fold no bag is wrong but in the first two, where the least sure one is
        fold = Fold("deterministic", 42, number)
        of_fold = [Result("bag-of-one", "bag", "ece", "default", 0.5)]
        write_results(fold.path(tmp_path), *fold.run, 1, of_fold)
        sure, label = np.array([0.6, 0.9]), np.array([0 if number < 2 else 1, 1])
        table = PredictionTable(
            Categorical(torch.tensor(np.stack([1 - sure, sure], 1))),
            np.array([f"{number}-{bag}" for bag in range(2)], object),
            Labels.of(label),
            OodFlags.all_in(2),
            np.full(2, "", object),
        )
        write_test_bags(fold, table, tmp_path)
    page = nuclei_page(tmp_path, [42])
    (row,) = [line for line in page.splitlines() if line.startswith("| softmax | 1 |")]
    conf, ece, aurc = (cell.strip() for cell in row.split("|")[6:9])
    assert conf == f"{1 - 0.5 * 8 / 18:.3f}"  # the two wrong ones against 18, of which 8 are as unsure
    assert ece == f"{0.5 * (0.8 - 0.6) + 0.5 * (1 - 0.9):.3f}"
    assert 0 < float(aurc) < 0.1
    assert "| softmax, at most 80 epochs | 0 | — | — | — | — | — | — |" in page


@pytest.mark.long
@pytest.mark.usefixtures("quick")
def test_shifts_are_detected_by_a_model_that_is_calibrated_on_bags_of_its_own(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = made_bags(98)
    parts = parts_of(bags, 42)
    assert {name: len(part) for name, part in parts.items()} == {
        "test": 30,
        "calibration": 20,
        "validation": 10,
        "train": 38,
    }
    assert len({name for part in parts.values() for name in part.ids}) == 98
    monkeypatch.setattr(nuclei, "SETTINGS", {"max_epochs": 2})
    monkeypatch.setattr("papers.mirel.nuclei.bags.nuclei_bags", lambda _: bags)
    words = ("nuclei", "detect-shifts", "--source", source, "--results", tmp_path, "--seeds", "42")
    result = run(*words)
    assert "1 runs to do, 0 done before" in result.output, result.exception
    detections = read_detections(detections_path(tmp_path, "mirel", 42))
    assert [d.shift for d in detections] == ["none", *NUCLEI_SHIFTS]
    assert not detections[0].detected
    assert all(bool(d.differing) == d.detected and 0 <= d.flagged_share <= 1 for d in detections)
    assert "0 runs to do, 1 done before" in run(*words).output
    assert isinstance(run(*words, "--method", "mirell").exception, ConfigError)


def test_the_table_counts_the_runs_in_which_a_shift_was_detected(tmp_path: Path) -> None:
    for seed, share in ((42, 0.1), (17, 0.3)):
        rows = [ShiftDetection(shift, share, seed == 42, "vacuity") for shift in ("none", *NUCLEI_SHIFTS)]
        write_detections(detections_path(tmp_path, "mirel", seed), rows)
        assert read_detections(detections_path(tmp_path, "mirel", seed)) == rows
    page = nuclei_page(tmp_path, [42, 17, 26])
    assert "| | MIREL, 2 runs |" in page.splitlines()
    lines = [line for line in page.splitlines() if line.endswith(" | 0.200; 1 |")]
    assert [line.split(" | ")[0] for line in lines] == [f"| {shift}" for shift in ("none", *NUCLEI_SHIFTS)]
    assert "Shifts detected" not in nuclei_page(tmp_path / "none", [42])
