"""scikit-learn estimators of numbers and times of bags."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score

from miue import MILSurvivalEstimator, MILUncertaintyRegressor
from miue.common.errors import DataError

QUICK = {"max_epochs": 2}


def made(count: int = 60) -> tuple[list[np.ndarray], np.ndarray]:
    generator = np.random.default_rng(0)
    bags = [generator.normal(size=(3, 4)).astype(np.float32) for _ in range(count)]
    return bags, np.array([bag[:, 0].max() for bag in bags], float)


def test_a_number_is_predicted_for_each_bag_and_scored_by_r2() -> None:
    bags, y = made()
    model = MILUncertaintyRegressor(settings=QUICK, random_state=0).fit(bags, y)
    columns = model.predict_columns(bags)
    assert {"value", "std", "low", "high"} <= columns.keys()
    assert ((columns["low"] <= columns["value"]) & (columns["value"] <= columns["high"])).all()
    assert model.score(bags, y) == pytest.approx(r2_score(y, model.predict(bags)))
    rows, ids = np.concatenate(bags), np.repeat(np.arange(60), 3)
    of_rows = clone(model).fit(rows, np.repeat(y, 3), bag_ids=ids)
    np.testing.assert_allclose(of_rows.predict(rows, bag_ids=ids), model.predict(bags), rtol=1e-6)
    assert of_rows.score(rows, np.repeat(y, 3), bag_ids=ids) == pytest.approx(model.score(bags, y), rel=1e-6)


@pytest.mark.long
def test_searches_and_scorers_of_scikit_learn_take_it() -> None:
    bags, y = made()
    model = MILUncertaintyRegressor(settings=QUICK, random_state=0)
    found = cross_val_score(model, bags, y, cv=3, scoring="neg_mean_absolute_error", error_score="raise")
    assert np.isfinite(found).all()
    search = GridSearchCV(model, {"settings__learning_rate": [1e-4, 1e-2]}, cv=2, error_score="raise").fit(bags, y)
    assert search.best_params_["settings__learning_rate"] in (1e-4, 1e-2)
    assert search.best_estimator_.settings["max_epochs"] == 2


def test_times_are_two_columns_or_a_structured_array() -> None:
    bags, y = made()
    times, events = np.exp(-y), np.arange(60) % 3 > 0
    model = MILSurvivalEstimator(settings=QUICK, random_state=0).fit(bags, np.stack([times, events], 1))
    structured = np.array(list(zip(events, times, strict=True)), [("event", bool), ("time", float)])
    again = clone(model).fit(bags, structured)
    np.testing.assert_allclose(again.predict(bags), model.predict(bags))
    assert 0 <= model.score(bags, structured) <= 1
    some = model.score(bags[::2], structured[::2])
    assert model.score(bags, structured, np.arange(60) % 2 == 0) == pytest.approx(some)
    assert np.isnan(model.score(bags, np.stack([times, np.zeros(60)], 1)))


@pytest.mark.parametrize(
    ("estimator", "y", "wanted"),
    [
        (MILUncertaintyRegressor(), ["a"] * 60, "numbers"),
        (MILUncertaintyRegressor(), [np.nan] * 60, "finite"),
        (MILUncertaintyRegressor(), [1.0, 2.0], "one for each of 60 bags"),
        (MILSurvivalEstimator(), [1.0] * 60, "two columns"),
        (MILSurvivalEstimator(), [[1.0, 2.0]] * 60, "two columns"),
    ],
)
def test_labels_that_are_none_are_named(estimator: Any, y: Any, wanted: str) -> None:
    with pytest.raises(DataError, match=wanted):
        estimator.fit(made()[0], y)
    assert not hasattr(estimator, "model_")
