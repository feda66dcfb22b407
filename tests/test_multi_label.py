"""Several labels of a bag: read, learned, predicted and evaluated, each as a binary label by itself."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from commands import fail, run
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score

import miue
from miue.bags import BagDataset, merge_bags
from miue.common.errors import ConfigError, DataError, StorageError
from miue.common.label_folders import label_folders, open_label_folders
from miue.evaluation import LabelEvaluations
from miue.io import make_folds
from miue.model import Recipe
from miue.sklearn import MILMultiLabelClassifier, MILUncertaintyClassifier
from miue.training import Job, Run, train_job, train_labels

LABELS = ("ER", "HER2", "PR")
SETTINGS: dict[str, Any] = {"max_epochs": 2, "device": "cpu"}


def made(count: int = 60, missing: float = 0.2, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Return bags of features and three labels of each: the k-th is what its highest k-th feature says, or NaN."""
    generator = np.random.default_rng(seed)
    bags = [generator.normal(size=(size, 5)).astype(np.float32) for size in generator.integers(3, 7, count)]
    values = (generator.random((count, 3)) < (0.5, 0.35, 0.25)).astype(float)
    for bag, row in zip(bags, values, strict=True):
        bag[0, :3] += 4 * row
    values[generator.random(values.shape) < missing] = np.nan
    return bags, values


def dataset(**given: Any) -> BagDataset:
    bags, values = made(**given)
    return BagDataset.from_arrays(bags).with_label_sets(values, LABELS)


def written(folder: Path, values: np.ndarray | None = None, **columns: list[Any]) -> list[str | Path]:
    """Write features and a table of labels, a column for each, and return how a command reads them."""
    bags, labels = made()
    (folder / "features").mkdir()
    for number, bag in enumerate(bags):
        np.save(folder / "features" / f"s{number}.npy", bag)
    given = {name: ["" if cell != cell else int(cell) for cell in labels[:, k]] for k, name in enumerate(LABELS)}
    rows = columns or given
    with (folder / "labels.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["slide_id", *rows])
        table.writerows([f"s{n}", *cells] for n, cells in enumerate(zip(*rows.values(), strict=False)))
    return [folder / "features", "--labels", folder / "labels.csv", "--task", "multi-label"]


def test_each_label_is_a_binary_label_of_its_own_that_is_unknown_where_it_is_missing() -> None:
    _, values = made()
    bags = dataset()
    assert list(bags.by_label()) == list(LABELS)
    for k, (name, one) in enumerate(bags.by_label().items()):
        assert one.class_names == ("no", "yes") and one.target is None
        found = np.array([np.nan if label is None else label for label in one.labels])
        np.testing.assert_array_equal(found, values[:, k], name)
    assert not bags.of_label("Ki67").labels.known.any()
    assert bags.tables()[0].heading[2:5] == LABELS
    assert bags.tables()[0].rows[0][2:5] == tuple(str(int(n)) for n in np.nansum(values, 0))
    np.testing.assert_array_equal(bags.labels.known, ~np.isnan(values).all(1))


def test_splits_keep_the_shares_of_labels_and_a_label_with_few_bags_does_not_hinder_them() -> None:
    bags = dataset(count=300, missing=0.0)
    folds = make_folds(bags, 3, validation=0.2, seed=0)
    for fold in range(3):
        parts = [folds.assign(bags, fold).split(part) for part in ("train", "validation", "test")]
        shares = [[one.labels.values.mean() for one in part.by_label().values()] for part in parts]
        assert np.ptp(shares, axis=0).max() < 0.12
    values = made(count=40, missing=0.0)[1]
    values[:, 2] = np.arange(40) == 7
    few = BagDataset.from_arrays(made(count=40)[0]).with_label_sets(values, LABELS)
    assert set(make_folds(few, 3, validation=0.2, seed=0).assign(few, 0).splits) == {"train", "validation", "test"}


def test_a_store_and_bags_of_patients_keep_the_labels(tmp_path: Path) -> None:
    bags = dataset()
    miue.write_store(tmp_path / "store", bags)
    read = miue.load_bags(tmp_path / "store").bags
    assert read.target == bags.target and list(read.labels) == list(bags.labels)
    twice = bags.subset(np.repeat(np.arange(10), 1))
    merged = merge_bags(twice, [f"p{number}" for number in range(10)])
    assert list(merged.labels) == list(twice.labels)
    with pytest.raises(DataError, match="agree"):
        merge_bags(twice, ["p"] * 10)


@pytest.mark.long
@pytest.mark.parametrize("method", ["mirel", "softmax"])
def test_models_of_labels_are_those_of_separate_binary_runs(tmp_path: Path, method: str) -> None:
    bags = dataset()
    recipe = Recipe(method=method, settings={"max_epochs": 3, "validation_fraction": 0.0}, distances=())
    records = train_labels(Job(recipe, bags), Run(tmp_path / "run", progress=False))
    assert list(records) == list(LABELS)
    for name, folder in label_folders(tmp_path / "run").items():
        of_label = bags.of_label(name)
        alone = train_job(Job(recipe, of_label.subset(np.flatnonzero(of_label.labels.known))), Run(progress=False))
        model = miue.Model.load(folder)
        assert model.weights_sha256 == alone.weights_sha256
        found = model.predict(of_label)
        for level in ("bags", "instances"):
            p, q = getattr(found, level).probabilities, getattr(alone.predict(of_label), level).probabilities
            np.testing.assert_array_equal(p, q)


def test_a_bag_whose_label_is_missing_changes_nothing_of_the_model_of_that_label(tmp_path: Path) -> None:
    bags, values = made()
    without = np.isnan(values[:, 0])
    assert without.any()
    others = [10 * bag if missing else bag for bag, missing in zip(bags, without, strict=True)]
    recipe = Recipe(method="softmax", settings={"max_epochs": 2, "validation_fraction": 0.0}, distances=())
    weights = []
    for number, arrays in enumerate((bags, others)):
        job = Job(recipe, BagDataset.from_arrays(arrays).with_label_sets(values, LABELS)).of_label("ER")
        weights.append(train_job(job, Run(tmp_path / str(number), progress=False)).weights_sha256)
    assert weights[0] == weights[1]


@pytest.mark.long
def test_labels_learn_from_one_split_and_a_run_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    job = Job(Recipe(method="softmax", settings={"max_epochs": 2}, distances=()), dataset())
    train_labels(job, Run(tmp_path / "run", progress=False))
    folders = label_folders(tmp_path / "run")
    parts: dict[str, set[str]] = {}
    for folder in (tmp_path / "run", *folders.values()):
        with (folder / "splits.csv").open() as file:
            for row in csv.DictReader(file):
                parts.setdefault(row["bag_id"], set()).add(row["fold_0"])
    assert all(len(found) == 1 for found in parts.values()) and len(parts) == 60
    whole = {name: (folder / "model.safetensors").read_bytes() for name, folder in folders.items()}
    (folders["HER2"] / "config.json").unlink()
    with pytest.raises(StorageError, match="already holds files"):
        train_labels(job, Run(tmp_path / "run", progress=False))
    train_labels(job, Run(tmp_path / "run", progress=False), if_exists="resume")
    assert whole == {name: (folder / "model.safetensors").read_bytes() for name, folder in folders.items()}
    two = Job(job.recipe, BagDataset.from_arrays(made()[0]).with_label_sets(made()[1][:, :2], LABELS[:2]))
    with pytest.raises(ConfigError, match="same labels"):
        train_labels(two, Run(tmp_path / "run", progress=False), if_exists="resume")
    train_labels(two, Run(tmp_path / "run", progress=False), if_exists="overwrite")
    assert list(label_folders(tmp_path / "run")) == ["ER", "HER2"]


def test_means_are_over_labels_and_undefined_where_one_is() -> None:
    _, values = made(missing=0.0)
    generator = np.random.default_rng(1)
    p = np.clip(values * 0.4 + generator.uniform(0, 0.6, values.shape), 0.01, 0.99)

    def evaluated(labels: np.ndarray) -> LabelEvaluations:
        bags = BagDataset.from_arrays(made()[0]).with_label_sets(labels, LABELS).by_label()
        tables = {
            name: miue.Predictions(
                miue.predictions.PredictionTable(
                    miue.Categorical(torch.from_numpy(np.stack([1 - p[:, k], p[:, k]], 1))),
                    np.array(one.ids, object),
                    one.labels,
                    one.is_ood,
                    np.full(60, "", object),
                ),
                None,
            )
            for k, (name, one) in enumerate(bags.items())
        }
        return LabelEvaluations({name: miue.evaluate(one) for name, one in tables.items()})

    found = evaluated(values)
    assert found.means()["bags"]["auroc"].value == pytest.approx(roc_auc_score(values, p, average="macro"))
    assert found.means()["bags"]["accuracy"].value == pytest.approx(((p > 0.5) == values).mean())
    assert found.to_json()["mean"]["bags"]["auroc"] == found.means()["bags"]["auroc"].value
    frame = found.to_frame()
    assert set(frame["label"]) == {*LABELS, "mean"}
    one_value = values.copy()
    one_value[:, 1] = 0
    mean = evaluated(one_value).means()["bags"]["auroc"]
    assert mean.value is None and "HER2" in mean.reason


@pytest.mark.long
@pytest.mark.parametrize("kind", ["columns", "cells"])
def test_several_labels_run_from_folder_to_evaluation(tmp_path: Path, kind: str) -> None:
    given: list[Any] = [*written(tmp_path), "--classes", ",".join(LABELS)]
    if kind == "cells":
        values = np.nan_to_num(made()[1])
        cells = [";".join(n for n, has in zip(LABELS, row, strict=True) if has) or "none" for row in values]
        cells[3] = ""
        (tmp_path / "cells").mkdir()
        given = written(tmp_path / "cells", label=cells)
    run("train", *given, "--out", tmp_path / "run", "--set", "max_epochs=3", "--distance", "none", "--quiet")
    run("predict", tmp_path / "run", given[0], "--out", tmp_path / "out", "--quiet")
    found = json.loads(run("evaluate", tmp_path / "out", "--json"))
    assert list(found["labels"]) == list(LABELS)
    of_labels = [one["bags"]["metrics"]["nll"] for one in found["labels"].values()]
    assert found["mean"]["bags"]["nll"] == pytest.approx(np.mean(of_labels))
    again = [*given[:3], "--out", tmp_path / "again", "--part", "all", "--quiet"]
    run("predict", tmp_path / "run", *again)
    bags = json.loads(run("evaluate", tmp_path / "again", "--json", "--allow-training-bags"))["labels"]["ER"][
        "bags"
    ]
    assert bags["labeled"] == (59 if kind == "cells" else int((~np.isnan(made()[1][:, 0])).sum()))
    groups = ["slide_id,site", *(f"s{number},{'west' if number % 2 else 'east'}" for number in range(60))]
    (tmp_path / "groups.csv").write_text("\n".join(groups))
    by_group = ["--groups", tmp_path / "groups.csv", "--group-column", "site"]
    shown = run("evaluate", tmp_path / "again", "--allow-training-bags", *by_group)
    assert all(text in shown for text in ("mean", "HER2: group", "west"))
    assert "HER2" in fail("report", tmp_path / "out", "--out", tmp_path / "r.html")  # names those in it
    shown = json.loads(run("inspect", tmp_path / "run", "--json"))["label"]
    assert [one["name"] for one in shown] == list(LABELS) and shown[0]["kind"] == "trained model"


@pytest.mark.parametrize(
    ("columns", "named", "wanted"),
    [
        ({"label": ["ER,PR", "none", "PR"]}, [], "'ER,PR'"),
        ({"label": ["ER|PR", "none", "PR"]}, [], "'ER|PR'"),
        ({"label": ["ER", "none", "PR"]}, ["--classes", "ER,HER2"], "'PR'"),
        ({"label": ["", "", ""]}, [], "none"),
        ({"ER": [1, 0, 1], "PR": [1, "maybe", 0]}, ["--classes", "ER,PR"], "'maybe'"),
        ({"ER": [1, 0, 1], "PR": [1, 0, 0]}, ["--classes", "ER,Ki67"], "'Ki67'"),
        ({"ER": [1, 0, 1], "PR": [0, 0, 0]}, ["--classes", "ER,PR"], "label 'PR'"),
        ({"ER": [1, 0, 1], "PR": [1, 1, ""]}, ["--classes", "ER,PR"], "label 'PR'"),
        ({"ER": [1, 0, 1], "PR": ["", "", ""]}, ["--classes", "ER,PR"], "label 'PR'"),
        ({"label": ["ER", "ER;PR", "ER"]}, [], "label 'ER'"),
    ],
)
def test_labels_that_cannot_be_learned_are_named(
    tmp_path: Path, columns: dict[str, list[Any]], named: list[str], wanted: str
) -> None:
    rows = {name: (cells * 20) for name, cells in columns.items()}
    assert wanted in fail("train", *written(tmp_path, None, **rows), *named, "--out", tmp_path / "run", "--quiet")
    assert not (tmp_path / "run").exists()


def test_several_labels_in_a_cell_ask_for_the_task(tmp_path: Path) -> None:
    given = written(tmp_path, label=["ER", "PR", "ER;PR"] * 20)
    assert "--task" in fail("train", *given[:3], "--out", tmp_path / "run", "--quiet")
    named = miue.load_bags(given[0], labels=given[2], classes=("ER", "PR", "ER;PR")).bags
    assert named.num_classes == 3


def test_names_of_labels_cannot_lead_out_of_their_folder_or_into_each_other(tmp_path: Path) -> None:
    names = ["../../x", "her2", "HER2", "a/b", "?!"]
    folders = open_label_folders(tmp_path / "out", names, overwrite=False, resume=False)
    assert len({folder.name.lower() for folder in folders.values()}) == 5
    assert all(folder.resolve().parent == (tmp_path / "out").resolve() for folder in folders.values())
    listed = tmp_path / "out" / "labels.json"
    listed.write_text(listed.read_text().replace('"her2": "her2"', '"her2": "../her2"'))
    with pytest.raises(StorageError, match="changed"):
        label_folders(tmp_path / "out")


def test_label_sets_are_checked() -> None:
    bags = BagDataset.from_arrays(made(3)[0])
    for values, names in (
        ([[1, 0]] * 2, ("a", "b")),
        ([[1, 2]] * 3, ("a", "b")),
        ([[1, 0]] * 3, ("a", "a")),
        ([[1, 0]] * 3, ("a;b", "c")),
        ([[1, 0]] * 3, ("none", "c")),
    ):
        with pytest.raises(DataError):
            bags.with_label_sets(values, names)
    with pytest.raises(DataError, match="one label each"):
        miue.train(dataset(), progress=False, settings=SETTINGS)


@pytest.mark.long
def test_each_label_is_calibrated_and_decided_by_itself(tmp_path: Path) -> None:
    given = [*written(tmp_path), "--classes", ",".join(LABELS)]
    run("data", "split", *given, "--calibration", "0.4", "--out", tmp_path / "splits.csv")
    split = ["--splits", tmp_path / "splits.csv"]
    run("train", *given, *split, "--out", tmp_path / "run", "--set", "max_epochs=3", "--quiet")
    rules = ["--without", "deferral,ood", "--coverage", "0.5", "--quiet"]
    assert "Calibration HER2" in run("calibrate", tmp_path / "run", *given[:3], *split, *rules)
    run("predict", tmp_path / "run", *given[:3], *split, "--out", tmp_path / "out", "--quiet")
    goals: dict[str, Any] = {
        "prediction_sets": miue.PredictionSetGoal(0.5),
        "deferral": None,
        "false_alarms": None,
    }
    read = {"task": "multi-label", "splits": tmp_path / "splits.csv"}
    bags = miue.load_bags(given[0], labels=given[2], classes=LABELS, settings=read).bags
    for name, folder in label_folders(tmp_path / "run").items():
        made, of_label = miue.Calibration.load(folder), bags.of_label(name).split("calibration")
        known = of_label.subset(np.flatnonzero(of_label.labels.known))
        alone = miue.calibrate(miue.Model.load(folder, calibrated=False).predict(known), **goals)
        assert made.prediction_sets == alone.prediction_sets and made.deferral is None
        decided = miue.read_predictions(tmp_path / "out" / folder.name).bags.decisions
        assert decided is not None and decided.prediction_sets is not None
    assert "label in set" in run("evaluate", tmp_path / "out")
    error = fail("calibrate", tmp_path / "run", *given[:3], "--out", tmp_path / "c.json")
    assert "several labels" in error


@pytest.mark.long
def test_labels_are_cross_validated_on_the_same_folds_and_averaged_in_each(tmp_path: Path) -> None:
    given = [*written(tmp_path), "--classes", ",".join(LABELS), "--set", "max_epochs=1", "--method", "softmax"]
    command = ["cross-validate", *given, "--folds", "2", "--distance", "none", "--out", tmp_path / "cv", "--quiet"]
    assert "ER" in run(*command)
    values, tested = [], []
    for folder in label_folders(tmp_path / "cv").values():
        with (folder / "runs.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if (row["metric"], row["level"]) == ("nll", "bags")]
        values.append([float(row["value"]) for row in rows])
        with (folder / "splits.csv").open() as file:
            tested.append({row["bag_id"]: row["fold_0"] for row in csv.DictReader(file)})
    with (tmp_path / "cv" / "runs.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["metric"], row["level"]) == ("nll", "bags")]
    assert [float(row["value"]) for row in rows] == pytest.approx(np.mean(values, 0))
    with (tmp_path / "cv" / "summary.csv").open() as file:
        (mean,) = (row for row in csv.DictReader(file) if (row["metric"], row["level"]) == ("nll", "bags"))
    assert float(mean["mean"]) == pytest.approx(np.mean(values))
    assert float(mean["std"]) == pytest.approx(np.mean(values, 0).std(ddof=1))
    assert all(tested[0][bag] == part for bag, part in tested[1].items() if bag in tested[0])
    assert "mean" in run(*command)  # what is finished is not repeated


def estimator() -> MILMultiLabelClassifier:
    given: dict[str, Any] = {"max_epochs": 3, "learning_rate": 1e-2, "distances": (), "random_state": 0}
    return MILMultiLabelClassifier(MILUncertaintyClassifier(method="softmax", validation_fraction=0.0, **given))


@pytest.mark.long
def test_the_estimator_of_labels_is_one_for_each_on_the_bags_where_it_is_known() -> None:
    bags, values = made()
    found = estimator().fit(bags, pd.DataFrame(values, columns=LABELS))
    probabilities, uncertainties = found.predict_proba(bags), found.predict_uncertainty(bags)
    assert found.labels_ == LABELS and [one.tolist() for one in found.classes_] == [[0, 1]] * 3
    for k in range(3):
        known = np.flatnonzero(~np.isnan(values[:, k]))
        alone = clone(estimator().estimator).fit([bags[row] for row in known], values[known, k].astype(int))
        np.testing.assert_array_equal(probabilities[k], alone.predict_proba(bags))
        assert uncertainties[k].keys() == alone.predict_uncertainty(bags).keys()
    predicted = found.predict(bags)
    np.testing.assert_array_equal(predicted, np.stack([one[:, 1] > 0.5 for one in probabilities], 1))
    right = (predicted == values) | np.isnan(values)
    assert found.score(bags, values) == pytest.approx(right.all(1).mean()) and right.all(1).mean() > 0
    sizes = [len(bag) for bag in bags]
    rows, ids = np.concatenate(bags), np.repeat(np.arange(60), sizes)
    together = estimator().fit(rows, np.repeat(values, sizes, axis=0), bag_ids=ids)
    np.testing.assert_array_equal(together.predict_proba(rows, bag_ids=ids), probabilities)
    assert together.score(rows, np.repeat(values, sizes, axis=0), bag_ids=ids) == found.score(bags, values)


@pytest.mark.long
@pytest.mark.parametrize("scoring", [None, "roc_auc", "f1_macro"])
def test_the_estimator_of_labels_is_scored_as_scikit_learn_does(scoring: str | None) -> None:
    bags, values = made(missing=0.0)
    found = cross_val_score(estimator(), bags, values.astype(int), cv=2, scoring=scoring, error_score="raise")
    assert len(found) == 2 and np.isfinite(found).all()
    if scoring is None:
        accuracy = cross_val_score(estimator(), bags, values.astype(int), cv=2, scoring="accuracy")
        np.testing.assert_array_equal(found, accuracy)
    grid = {"estimator__network": ["mean", "max"]}
    search = GridSearchCV(estimator(), grid, cv=2, scoring=scoring, error_score="raise").fit(
        bags, values.astype(int)
    )
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_the_estimator_names_a_label_that_cannot_be_learned() -> None:
    bags, values = made(20)
    values[:, 1] = 0
    with pytest.raises(DataError, match="HER2"):
        estimator().fit(bags, pd.DataFrame(values, columns=LABELS))
    values[0, 0] = 2
    with pytest.raises(DataError, match="1, 0, or None"):
        estimator().fit(bags, values)
    with pytest.raises(DataError):
        estimator().fit(bags, values[:, 0])
