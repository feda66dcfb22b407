"""Scorers and splitters of scikit-learn over bags, where X is one array of instances with bag_ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.metrics import make_scorer, recall_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from miue import MILUncertaintyClassifier, MILUncertaintyRegressor
from miue.common.errors import DataError
from miue.sklearn import BagScorer, BagSplitter

SCORERS = ("balanced_accuracy", "roc_auc", "neg_log_loss")
PATIENTS = np.arange(24) // 2


@pytest.fixture(autouse=True)
def _routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture(scope="module")
def bags() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.normal(size=(size, 4)).astype(np.float32) for size in generator.integers(2, 6, 24)]


@pytest.fixture(scope="module")
def labels(bags: list[np.ndarray]) -> np.ndarray:
    highest = np.array([bag[:, 0].max() for bag in bags])
    return np.where(highest > np.median(highest), "yes", "no")


@pytest.fixture(scope="module")
def rows(bags: list[np.ndarray]) -> dict[str, Any]:
    sizes = [len(bag) for bag in bags]
    return {
        "X": np.concatenate(bags),
        "bag": np.repeat([f"b{number}" for number in range(24)], sizes),
        "sizes": sizes,
    }


def classifier() -> MILUncertaintyClassifier:
    settings: dict[str, Any] = {"max_epochs": 2, "learning_rate": 1e-2, "distances": (), "random_state": 0}
    return MILUncertaintyClassifier(method="softmax", validation_fraction=0.0, **settings)


@pytest.mark.parametrize("scoring", SCORERS)
def test_scores_of_rows_with_bag_ids_are_those_of_lists_of_bags(
    bags: list[np.ndarray], labels: np.ndarray, rows: dict[str, Any], scoring: str
) -> None:
    cv = StratifiedKFold(3)
    wanted = cross_val_score(classifier(), bags, labels, scoring=scoring, cv=cv, error_score="raise")
    found = cross_val_score(
        classifier(),
        rows["X"],
        np.repeat(labels, rows["sizes"]),
        scoring=BagScorer(scoring),
        cv=BagSplitter(cv),
        params={"bag_ids": rows["bag"]},
        error_score="raise",
    )
    assert len(set(wanted)) > 1
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_search_scores_pipelines_by_several_scorers(labels: np.ndarray, rows: dict[str, Any]) -> None:
    scoring = {name: BagScorer(name) for name in SCORERS}
    scoring["recall"] = BagScorer(make_scorer(recall_score, pos_label="yes"))
    pipeline = make_pipeline(StandardScaler(), classifier())
    grid = {"miluncertaintyclassifier__network": ["mean", "max"]}
    search = GridSearchCV(pipeline, grid, scoring=scoring, cv=BagSplitter(2), refit="roc_auc", error_score="raise")
    search.fit(rows["X"], np.repeat(labels, rows["sizes"]), bag_ids=rows["bag"])
    for name in scoring:
        assert np.isfinite(search.cv_results_[f"mean_test_{name}"]).all()
    assert search.best_estimator_.predict(rows["X"], bag_ids=rows["bag"]).shape == (24,)


@pytest.mark.parametrize(
    "cv",
    [
        KFold(3),
        StratifiedKFold(3),
        GroupKFold(3),
        ShuffleSplit(2),
        LeaveOneOut(),
        RepeatedStratifiedKFold(n_splits=2),
    ],
)
def test_a_splitter_sees_bags_and_keeps_their_rows_together(
    labels: np.ndarray, rows: dict[str, Any], cv: Any
) -> None:
    y, patients = (np.repeat(values, rows["sizes"]) for values in (labels, PATIENTS))
    cv = (
        cv
        if not hasattr(cv, "random_state")
        else type(cv)(n_splits=2, random_state=0, **({"shuffle": True} if hasattr(cv, "shuffle") else {}))
    )
    wanted = list(cv.split(np.zeros(24), labels, PATIENTS if isinstance(cv, GroupKFold) else None))
    splitter = BagSplitter(cv)
    found = list(splitter.split(rows["X"], y, patients, bag_ids=rows["bag"]))
    assert len(found) == len(wanted) == splitter.get_n_splits(rows["X"], y, patients, bag_ids=rows["bag"])
    for parts, of_bags in zip(found, wanted, strict=True):
        for part, chosen in zip(parts, of_bags, strict=True):
            assert sorted(set(rows["bag"][part])) == sorted(f"b{number}" for number in chosen)


def test_weights_are_of_bags_and_patients_stay_together(labels: np.ndarray, rows: dict[str, Any]) -> None:
    y, fitted = (
        np.repeat(labels, rows["sizes"]),
        classifier().fit(rows["X"], np.repeat(labels, rows["sizes"]), bag_ids=rows["bag"]),
    )
    predicted = fitted.predict(rows["X"], bag_ids=rows["bag"])
    weights = np.where(predicted == labels, 1.0, 3.0)
    assert 0 < (predicted == labels).mean() < 1
    found = BagScorer("accuracy")(
        fitted, rows["X"], y, bag_ids=rows["bag"], sample_weight=np.repeat(weights, rows["sizes"])
    )
    assert found == pytest.approx(np.average(predicted == labels, weights=weights))
    params = {"bag_ids": rows["bag"], "groups": np.repeat(PATIENTS, rows["sizes"])}
    cv, scoring = BagSplitter(GroupKFold(3)), BagScorer("accuracy")
    kept = cross_validate(classifier(), rows["X"], y, cv=cv, scoring=scoring, params=params, return_indices=True)
    for train, test in zip(kept["indices"]["train"], kept["indices"]["test"], strict=True):
        assert not {*params["groups"][train]} & {*params["groups"][test]}


def test_numbers_are_scored_by_bag(bags: list[np.ndarray], rows: dict[str, Any]) -> None:
    values = np.array([bag[:, 0].max() for bag in bags])
    settings = {"max_epochs": 2, "validation_fraction": 0.0}
    regressor = MILUncertaintyRegressor(settings=settings, distances=(), random_state=0)
    wanted = cross_val_score(regressor, bags, values, cv=3, scoring="neg_mean_absolute_error", error_score="raise")
    y, scoring = np.repeat(values, rows["sizes"]), BagScorer("neg_mean_absolute_error")
    params = {"bag_ids": rows["bag"]}
    found = cross_val_score(regressor, rows["X"], y, cv=BagSplitter(KFold(3)), scoring=scoring, params=params)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_labels_that_differ_within_a_bag_are_named(labels: np.ndarray, rows: dict[str, Any]) -> None:
    y = np.repeat(labels, rows["sizes"])
    y[0] = "no" if y[0] == "yes" else "yes"
    with pytest.raises(DataError, match="'b0'"):
        list(BagSplitter(2).split(rows["X"], y, bag_ids=rows["bag"]))
