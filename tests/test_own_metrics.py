"""Metrics that a user brings: what their functions are given, and where their values appear."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_bags import separable_bags
from made_parts import ragged, stored
from made_predictions import made_predictions
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from miue.common.errors import ConfigError, StorageError
from miue.evaluation import METRICS, Metric, check_own_metrics, evaluate, is_built_in, own_metrics
from miue.evaluation.class_metrics import NOT_FINITE, NamedMetric
from miue.evaluation.metrics import NO_LABEL, Judged, Owners, WeightedMetric, mean_over_items
from miue.io import make_folds
from miue.model.hub import _listed_metrics
from miue.model.recipe import Recipe
from miue.predictions import Predictions, PredictionTable, read_predictions
from miue.report.levels import Resampling
from miue.report.report import write_report
from miue.selection import compare, cross_validate
from miue.selection.summaries import FoldShares, Value, is_share, summarize


def f1(table: PredictionTable) -> float:
    return float(f1_score(table.labels.values, table.predicted, average="macro"))


def matthews(table: PredictionTable) -> float:
    return float(matthews_corrcoef(table.labels.values, table.predicted))


@pytest.mark.parametrize("kind", ["dirichlet", "categorical", "draws"])
@pytest.mark.parametrize("in_parts", [False, True])
def test_every_level_has_its_value_of_labeled_items_in_distribution(
    kind: str, in_parts: bool, tmp_path: Path
) -> None:
    predictions = ragged([3, 1, 40, 7, 12, 1, 5], kind)
    if in_parts:
        predictions = Predictions(predictions.bags, stored(predictions, tmp_path / "parts"))
    found = evaluate(predictions, metrics={"f1": f1, "mcc": matthews})
    assert predictions.instances is not None
    for level, table in (("bags", predictions.bags), ("instances", predictions.instances)):
        rows = np.flatnonzero(table.labels.known & ~table.is_ood.out_of_distribution)
        assert 0 < len(rows) < len(table)
        labels, predicted = table.labels.values[rows], table.predicted[rows]
        metrics = found.levels()[level].metrics
        assert metrics["f1"].value == pytest.approx(f1_score(labels, predicted, average="macro"))
        assert metrics["mcc"].value == pytest.approx(matthews_corrcoef(labels, predicted))
    without = evaluate(predictions)
    assert {name: found.bags.metrics[name] for name in without.bags.metrics} == without.bags.metrics


def test_patients_and_groups_have_them_too() -> None:
    predictions = made_predictions(bags=60)
    pairs = np.array([f"p{row // 2}" for row in range(60)], object)
    predictions = Predictions(replace(predictions.bags, patients=pairs), None)
    groups = {name: ("Cork", "Leeds")[row % 2] for row, name in enumerate(predictions.bags.bag_ids)}
    found = evaluate(predictions, groups=groups, metrics={"f1": f1})
    patients = predictions.by_patient()
    assert patients is not None and found.patients is not None and found.groups is not None
    assert found.patients.metrics["f1"] == own_metrics({"f1": f1}, patients)["f1"]
    for name, group in found.groups.items():
        bags = predictions.bags.subset(
            np.array([groups[bag] == name for bag in predictions.bags.bag_ids]).nonzero()[0]
        )
        assert group.bags.metrics["f1"] == own_metrics({"f1": f1}, bags)["f1"]
    frame = found.groups_to_frame()
    assert set(frame.loc[frame["metric"] == "f1", "group"]) == {"Cork", "Leeds"}


def test_they_stand_in_the_table_the_frame_and_the_json() -> None:
    predictions = made_predictions(bags=40)
    found = evaluate(predictions, metrics={"items": len, "undefined": lambda _: float("nan")})
    count = found.bags.labeled
    table = next(found.tables())
    [row] = [row for row in table.rows if row[0] == "items"]
    assert row[1] == f"{count}.0000"
    assert "Not in %: items, undefined." in table.notes
    assert f"No value of undefined: {NOT_FINITE}" in table.notes
    frame = found.to_frame()
    assert frame.query("level == 'bags' and metric == 'items'")["value"].tolist() == [count]
    metrics = found.to_json()["bags"]["metrics"]
    assert metrics["items"] == count and metrics["undefined"] == {"value": None, "reason": NOT_FINITE}


def test_without_any_label_the_function_is_not_called() -> None:
    predictions = made_predictions(bags=10)
    bags = predictions.bags.subset(np.flatnonzero(~predictions.bags.judged)[:3])
    assert own_metrics({"x": lambda _: 1 / 0}, bags) == {"x": Metric.undefined(NO_LABEL)}


@pytest.mark.parametrize("one", [1, True, np.float32(1), np.array(1), torch.tensor(1.0)])
def test_numbers_of_every_library_are_taken(one: Any) -> None:
    assert own_metrics({"x": lambda _: one}, made_predictions(bags=10).bags)["x"] == Metric(1.0)


@pytest.mark.parametrize("value", [None, "0.5", np.ones(2), torch.ones(1), 1j])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="metric 'x': expected a number from its function, got a value of type"):
        evaluate(made_predictions(bags=10), metrics={"x": lambda _: value})


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ([f1], "metrics: expected functions by their names, got a value of type list"),
        ({"": f1}, "a metric's name: expected a text"),
        ({1: f1}, "a metric's name: .*, got a value of type int"),
        ({"f1": 0.5}, "metric 'f1': expected a function of a table, got a value of type float"),
        ({"accuracy": f1}, "a metric's name: .*'accuracy'"),
        ({"recall_tumor": f1}, "a metric's name: .*'recall_tumor'"),
    ],
)
def test_metrics_that_are_none_are_refused(metrics: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_own_metrics(metrics)


def test_evaluation_and_comparison_refuse_the_name_of_a_metric_of_miue() -> None:
    with pytest.raises(ConfigError, match="a metric's name: .*'nll'"):
        evaluate(made_predictions(bags=10), metrics={"nll": f1})
    with pytest.raises(ConfigError, match="a metric's name: .*'nll'"):
        compare(["a"], metrics={"nll": f1})


def test_an_error_of_the_function_names_the_metric() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        evaluate(made_predictions(bags=10), metrics={"mine": lambda _: 1 / 0})
    assert caught.value.__notes__ == ["in metric 'mine'; where it is undefined, return NaN"]


def test_the_names_of_all_metrics_of_miue_are_known() -> None:
    found = evaluate(made_predictions(bags=60, classes=3))
    assert all(is_built_in(name) for _, name, _ in found.metrics())


def test_a_metric_is_added_to_miue_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def error(judged: Judged, owners: Owners) -> WeightedMetric:
        return mean_over_items(1.0 - judged.correct, owners)

    added = NamedMetric("Err.", "error", "share of errors", "what it says", "lower", "in errors", error)
    monkeypatch.setitem(METRICS, "error", added)
    predictions = made_predictions(bags=60)
    found = evaluate(predictions)
    accuracy = found.bags.metrics["accuracy"].value
    assert accuracy is not None
    wrong = 1 - accuracy
    assert found.bags.metrics["error"].value == found.to_json()["bags"]["metrics"]["error"] == pytest.approx(wrong)
    assert re.search(rf"^\W*Err\.\W+{wrong:.4f}", repr(found), re.MULTILINE)
    assert "Err. in errors" in repr(found)
    write_report(tmp_path / "r.html", [("a", predictions)], resampling=Resampling(20))
    page = (tmp_path / "r.html").read_text()
    assert "error ↓" in page and "what it says" in page
    assert _listed_metrics(found.to_json()["bags"])["error"] == pytest.approx(wrong)
    assert is_built_in("error") and not is_share("error")


def test_the_interval_of_a_metric_of_a_user_has_no_bounds() -> None:
    values = [
        Value(fold, 1, "bags", name, value)
        for name in ("own", "nll", "accuracy")
        for fold, value in ((0, 0.0), (1, 1.0))
    ]
    half = stats.t.ppf(0.975, 1) * np.sqrt((1 / 2 + 0.5) * 0.5)
    found = {one.metric: (one.low, one.high) for one in summarize(values, FoldShares(0.5, 0.5))}
    assert found["own"] == pytest.approx((0.5 - half, 0.5 + half))
    assert found["nll"] == pytest.approx((0, 0.5 + half))
    assert found["accuracy"] == (0, 1)


@pytest.mark.long
def test_cross_validations_are_compared_by_them(tmp_path: Path) -> None:
    bags = separable_bags(24)
    quick = Recipe(options={"encoder.width": 4}, settings={"max_epochs": 1}, distances=())
    for name in ("a", "b"):
        recipe = (
            quick
            if name == "a"
            else Recipe(method="softmax", options=quick.options, settings=quick.settings, distances=())
        )
        cross_validate(bags, make_folds(bags, 2), [1, 2], tmp_path / name, recipe, progress=False)
    folders = [tmp_path / "a", tmp_path / "b"]
    plain, own = compare(folders), compare(folders, metrics={"f1": f1, "size": lambda table: 100 + len(table)})
    for one, other, folder in zip(plain, own, folders, strict=True):
        assert {
            key: value for key, value in other.summaries.items() if key[1] not in ("f1", "size")
        } == one.summaries
        runs = [read_predictions(path / "predictions") for path in sorted(folder.glob("fold_*/seed_*"))]
        summary = other.summaries["bags", "f1"]
        assert summary.runs == 4 and summary.mean == pytest.approx(np.mean([f1(run.bags) for run in runs]))
    assert own[1].differences["bags", "f1"].mean == pytest.approx(
        own[1].summaries["bags", "f1"].mean - own[0].summaries["bags", "f1"].mean
    )
    table = own.as_table()
    assert table.heading[-2:] == ("f1", "size") and plain.as_table().heading == table.heading[:-2]
    assert table.rows[0][-1] == "112.000 ± 0.000"
    listed = (tmp_path / "a" / "runs.csv").read_text()
    stored = "".join(f"{fold},{seed},bags,size,7\n" for fold in (0, 1) for seed in (1, 2))
    (tmp_path / "a" / "runs.csv").write_text(listed + stored)  # of another function of that name
    assert (
        compare(folders, metrics={"size": lambda table: 100 + len(table)})[0].summaries["bags", "size"].mean == 112
    )
    of_runs = {  # a value of its own in each run
        (fold, seed): read_predictions(tmp_path / f"a/fold_{fold}/seed_{seed}/predictions").bags
        for fold in (0, 1)
        for seed in (1, 2)
    }
    of_train = make_folds(bags, 2).assign(bags, 0).splits.count("train")
    firsts = {key: float(bags.probabilities[0, 1]) for key, bags in of_runs.items()}
    first = compare(folders, metrics={"first": lambda table: float(table.probabilities[0, 1])})[0]
    means = [np.mean([firsts[fold, seed] for seed in (1, 2)]) for fold in (0, 1)]
    half = stats.t.ppf(0.975, 1) * np.sqrt(1 / 2 + 12 / of_train) * np.std(means, ddof=1)
    assert first.summaries["bags", "first"].high == pytest.approx(np.mean(means) + half)
    (tmp_path / "b" / "fold_1" / "seed_2" / "predictions" / "bags.csv").unlink()
    assert compare(folders)
    with pytest.raises(StorageError, match="bags.csv': expected a file that predictions.json lists"):
        compare(folders, metrics={"f1": f1})
