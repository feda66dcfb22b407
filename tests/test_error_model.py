"""The error probability of bags: against scikit-learn, for ragged bags, with every method, kept, or refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_bags import separable_bags, train_with
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import miue
from miue.bags import BagDataset, Labels, OodFlags
from miue.calibration import Goals
from miue.common.errors import ConfigError, DataError, StorageError
from miue.common.records import sealed
from miue.distributions import Categorical
from miue.methods import METHODS
from miue.model.calibrate import calibrate_model
from miue.predictions import ERROR_MODEL as FILE
from miue.predictions import ERROR_PROBABILITY, ErrorInputs, ErrorModel, PredictionTable
from miue.predictions.error_model import Regression


def table(probabilities: np.ndarray, bag: np.ndarray, labels: np.ndarray) -> PredictionTable:
    count = len(probabilities)
    return PredictionTable(
        distribution=Categorical(torch.from_numpy(probabilities)),
        bag_ids=np.array([f"bag {number}" for number in bag], object),
        labels=Labels(labels.astype(np.int64), np.ones(count, bool)),
        is_ood=OodFlags.all_in(count),
        ood_sets=np.full(count, "", object),
    )


def made(
    sizes: list[int], classes: int = 2, seed: int = 0, said_by_instances: float = 3.0
) -> tuple[PredictionTable, PredictionTable]:
    """Bags of which some network has an idea, and whose highest instance has another."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(len(sizes)) % classes)
    logits = random.normal(size=(len(sizes), classes))
    logits[np.arange(len(sizes)), labels] += 1.5
    bag = np.repeat(np.arange(len(sizes)), sizes)
    of_instances = random.normal(size=(len(bag), classes))
    of_instances[:, 0] += 1
    first = np.append(0, np.cumsum(sizes)[:-1])
    of_instances[first, labels] += said_by_instances
    shares = [np.exp(one) / np.exp(one).sum(1, keepdims=True) for one in (logits, of_instances)]
    return table(shares[0], np.arange(len(sizes)), labels), table(shares[1], bag, labels[bag])


def fitted_to(bags: PredictionTable, instances: PredictionTable, estimator: str | None = None) -> ErrorModel:
    return ErrorModel.fit(bags, ErrorInputs.of(bags, instances), estimator)


def errors_of(errors: ErrorModel, bags: PredictionTable, instances: PredictionTable) -> np.ndarray:
    return errors.add_to(bags, instances)[0].scores[ERROR_PROBABILITY]


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_it_is_the_mean_of_two_logistic_regressions_of_scikit_learn(classes: int) -> None:
    random = np.random.default_rng(1)
    bags, instances = made(random.integers(1, 9, 90).tolist(), classes)
    of_bag, of_instances = [], []
    for number, name in enumerate(bags.bag_ids):
        p, own = bags.probabilities[number], instances.probabilities[instances.bag_ids == name]
        of_bag.append([np.log(p[c] / p[0]) for c in range(1, classes)])
        of_instances.append([max(np.log(q[c] / q[0]) for q in own) for c in range(1, classes)])
    wanted = np.zeros(90)
    for inputs in (np.array(of_bag), np.hstack([of_bag, of_instances])):
        theirs = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(inputs, bags.labels.values)
        wanted += (1 - theirs.predict_proba(inputs)[np.arange(90), bags.predicted]) / 2
    errors = fitted_to(bags, instances, "bag-of-one")
    np.testing.assert_allclose(errors_of(errors, bags, instances), wanted, atol=1e-6)
    shapes = [len(one.center) for one in (errors.by_bag, errors.by_both)]
    assert (errors.estimator, errors.bags, shapes) == ("bag-of-one", 90, [classes - 1, 2 * (classes - 1)])


def test_it_finds_errors_that_only_the_instances_tell() -> None:
    bags, instances = made([5] * 400)
    new, of_new = made([5] * 400, seed=1)
    errors = errors_of(fitted_to(bags, instances), new, of_new)
    wrong = new.predicted != new.labels.values
    by_bag = roc_auc_score(wrong, new.uncertainty("least_confidence"))
    assert roc_auc_score(wrong, errors) > by_bag + 0.05
    assert errors.mean() == pytest.approx(wrong.mean(), abs=0.05)


@pytest.mark.long
@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(0, 99))
def test_a_bag_is_judged_by_itself_alone(sizes: list[int], seed: int) -> None:
    errors = fitted_to(*made([3] * 40))
    bags, instances = made(sizes, seed=seed)
    together, of_instances = (each.scores[ERROR_PROBABILITY] for each in errors.add_to(bags, instances))
    assert together.shape == (len(sizes),)
    assert of_instances.shape == (sum(sizes),)
    for values in (together, of_instances):
        assert ((values >= 0) & (values <= 1)).all()
    for number in range(len(sizes)):
        rows = np.flatnonzero(instances.bag_ids == f"bag {number}")
        alone = errors.add_to(bags.subset(np.array([number])), instances.subset(rows))
        assert alone[0].scores[ERROR_PROBABILITY].tolist() == [together[number]]
        assert alone[1].scores[ERROR_PROBABILITY].tolist() == of_instances[rows].tolist()


def test_an_input_that_is_the_same_for_every_bag_says_nothing() -> None:
    """As the highest log-odds are where every bag has an instance of probability 1."""
    random, labels = np.random.default_rng(0), np.arange(40) % 2
    inputs = random.normal(labels, 1)[:, None]
    for constant in (0.0, 20.72326583694641, -1 / 3):
        both = np.hstack([inputs, np.full((40, 1), constant)])
        without, with_it = Regression.fit(inputs, labels), Regression.fit(both, labels)
        assert with_it.probabilities(both) == pytest.approx(without.probabilities(inputs), abs=1e-6)


def test_probabilities_of_zero_and_one_are_finite() -> None:
    errors = fitted_to(*made([3] * 40))
    sure = np.array([[1.0, 0.0], [0.0, 1.0]])
    labels = np.array([0, 1])
    certain = table(sure, np.arange(2), labels)
    for each in errors.add_to(certain, certain):
        assert np.isfinite(each.scores[ERROR_PROBABILITY]).all()


def test_bags_without_label_or_out_of_distribution_are_not_fitted_to_and_few_of_a_class_are_refused() -> None:
    bags, instances = made([3] * 40)
    known = np.arange(40) < 30
    out = np.arange(40) % 10 == 0
    some = replace(bags, labels=Labels(bags.labels.values, known), is_ood=OodFlags.of(out))
    fitted = fitted_to(some, instances)
    rows = np.flatnonzero(known & ~out)
    of_rows = instances.subset(np.flatnonzero(np.isin(instances.bag_ids, bags.bag_ids[rows])))
    alone = fitted_to(bags.subset(rows), of_rows)
    assert fitted == alone
    assert fitted.bags == len(rows) == 27
    few = np.flatnonzero((bags.labels.values == 0) | (np.cumsum(bags.labels.values) <= 4))
    with pytest.raises(
        DataError, match="at least 5 labeled validation bags of each class, got 20 of class 0, 4 of"
    ):
        fitted_to(
            bags.subset(few), instances.subset(np.flatnonzero(np.isin(instances.bag_ids, bags.bag_ids[few])))
        )


def test_it_is_kept_and_a_damaged_file_is_refused(tmp_path: Path) -> None:
    errors = fitted_to(*made([3] * 60, classes=3), "residual")
    errors.save(tmp_path / FILE)
    assert ErrorModel.load(tmp_path / FILE) == errors
    content = json.loads((tmp_path / FILE).read_text())
    for part, change in (
        ("by_both", {"weights": content["error_model"]["by_both"]["weights"][:2]}),
        ("by_both", {"scale": [0.0] * 4}),
        ("by_bag", {"center": [1.0]}),
        ("by_bag", {"intercepts": [0.0, "x", 1.0]}),
        ("by_bag", content["error_model"]["by_both"]),
        ("by_bag", {"more": 1}),
        ("of_instances", {"curves": content["error_model"]["of_instances"]["curves"][:1]}),
        ("of_instances", {"negative_class": 3}),
        ("of_instances", {"curves": [{"share": 1.0, "slope": 1.0, "offset": 0.0}] * 2}),
        ("of_instances", {"curves": [{"share": 0.5, "slope": -1.0, "offset": 0.0}] * 2}),
    ):
        of_part = {**content["error_model"][part], **change}
        refuse(tmp_path, {**content, "error_model": {**content["error_model"], part: of_part}})
    refuse(tmp_path, {**content, "error_model": {**content["error_model"], "bags": 0}})


def refuse(folder: Path, content: dict[str, Any]) -> None:
    (folder / "damaged.json").write_text(json.dumps(sealed(content)))
    with pytest.raises(
        StorageError, match=r"error model .*damaged\.json.* the parts that miue writes.*; train again"
    ):
        ErrorModel.load(folder / "damaged.json")


@pytest.fixture(scope="module")
def bags() -> BagDataset:
    made_bags = separable_bags(60, seed=2)
    return replace(made_bags, splits=("train",) * 24 + ("validation",) * 16 + ("test",) * 20)


def train(bags: BagDataset, **more: Any) -> miue.Model:
    return train_with(bags, distances=(), device="cpu", progress=False, **{"settings": {"max_epochs": 1}, **more})


@pytest.mark.long
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_has_one_of_its_validation_bags(method: str, bags: BagDataset, tmp_path: Path) -> None:
    options = {"method.size": 2} if method == "deep-ensemble" else {}
    model = train(bags, method=method, options=options, out=tmp_path / "run")
    held, test = bags.split("validation"), bags.split("test")
    untempered = model.training.model_copy(update={"temperature": None})
    bare = replace(model, error_model=None, training=untempered).predict(held)
    assert bare.instances is not None
    assert model.error_model == fitted_to(bare.bags, bare.instances, model.method.estimators[0])
    predicted = model.predict(test)
    values = predicted.bags.scores[ERROR_PROBABILITY]
    loaded = miue.Model.load(tmp_path / "run")
    assert loaded.error_model == model.error_model
    np.testing.assert_array_equal(loaded.predict(test).bags.scores[ERROR_PROBABILITY], values)
    predicted.save(tmp_path / "p")
    read = miue.read_predictions(tmp_path / "p").bags.uncertainty(ERROR_PROBABILITY)
    np.testing.assert_array_equal(read.astype(np.float32), values.astype(np.float32))


def test_few_validation_bags_leave_it_out_and_the_record_says_why(bags: BagDataset) -> None:
    few = train(replace(bags, splits=("train",) * 36 + ("validation",) * 4 + ("test",) * 20))
    assert few.error_model is None
    assert "at least 5 labeled validation bags of each class" in few.training.without_error_model
    none = train(replace(bags, splits=("",) * len(bags)), settings={"max_epochs": 1, "validation_fraction": 0})
    assert none.error_model is None and "hold some out" in none.training.without_error_model
    predicted = few.predict(bags.split("test"))
    assert ERROR_PROBABILITY not in predicted.bags.scores
    fitted = miue.calibrate(predicted, deferral=miue.DeferralGoal(0.5, 0.5), false_alarms=None)
    assert fitted.deferral is not None
    assert fitted.deferral.measure == "least_confidence"
    with pytest.raises(ConfigError, match="uncertainty 'error_probability': expected one of"):
        miue.calibrate(predicted, deferral=miue.DeferralGoal(0.5, 0.5, ERROR_PROBABILITY), false_alarms=None)
    flags = Goals(False, None, None, None, miue.InstanceGoal("detection", 0.2, "posterior_probability"))
    with pytest.raises(ConfigError, match="score of instances 'posterior_probability': expected one of"):
        calibrate_model(few, bags.split("test"), flags)


def test_calibrate_defers_by_it_and_then_refuses_instances_of_another_estimator(bags: BagDataset) -> None:
    model, test = train(bags), bags.split("test")
    goals = Goals(deferral=miue.DeferralGoal(0.5, 0.5), false_alarms=None)
    by_it = miue.DeferralGoal(0.5, 0.5, ERROR_PROBABILITY)
    fitted = calibrate_model(model, test, goals)
    assert fitted.deferral is not None
    assert fitted.deferral.measure == ERROR_PROBABILITY
    other = model.predict(test, estimator="bag-of-one")
    assert ERROR_PROBABILITY not in other.bags.scores
    with pytest.raises(ConfigError, match="uncertainty 'error_probability': expected one of"):
        calibrate_model(model, test, replace(goals, deferral=by_it), estimator="bag-of-one")
    decided = replace(model, calibration=fitted)
    assert decided.predict(test).bags.decisions is not None
    with pytest.raises(DataError, match="'residual', which error_probability reads.* got 'bag-of-one'"):
        decided.predict(test, estimator="bag-of-one")
    by_confidence = Goals(deferral=miue.DeferralGoal(0.5, 0.5, "least_confidence"), false_alarms=None)
    free = replace(model, calibration=calibrate_model(model, test, by_confidence))
    assert free.predict(test, estimator="bag-of-one").bags.decisions is not None


def test_of_validation_bags_it_knows_the_labels_so_that_they_are_not_deferred_by_it(bags: BagDataset) -> None:
    model, held = train(bags), bags.split("validation")
    goals = Goals(deferral=miue.DeferralGoal(0.5, 0.5), false_alarms=None)
    fitted = calibrate_model(model, held, goals)
    assert fitted.deferral is not None
    assert fitted.deferral.measure == "least_confidence"
    assert "error_probability" not in fitted.made_from.caveat
    asked = Goals(deferral=miue.DeferralGoal(0.5, 0.5, ERROR_PROBABILITY), false_alarms=None)
    by_name = calibrate_model(model, held, asked)
    assert by_name.deferral is not None
    assert by_name.deferral.measure == ERROR_PROBABILITY
    assert "error_probability was fitted to the labels of these bags" in by_name.made_from.caveat


@pytest.mark.parametrize("rows", [[0, 0, 1], [0, 1, 1], [0, 1, 0]])
def test_a_bag_that_is_drawn_twice_is_judged_twice(rows: list[int], bags: BagDataset) -> None:
    model = train(bags)
    test = bags.split("test").subset(rows)
    for level, each in (("bags", rows), ("instances", np.repeat(rows, test.sizes))):
        twice = getattr(model.predict(test), level)
        once = getattr(model.predict(bags.split("test").subset([0, 1])), level)
        wanted = {(b, i): v for b, i, v in zip(once.bag_ids, positions(once), values_of(once), strict=True)}
        found = zip(twice.bag_ids, positions(twice), values_of(twice), strict=True)
        assert len(twice) == len(each)
        np.testing.assert_allclose(
            [v for *_, v in found], [wanted[b, i] for b, i in zip(twice.bag_ids, positions(twice), strict=True)]
        )


def positions(table: PredictionTable) -> list[int]:
    return [0] * len(table) if table.instance is None else table.instance.tolist()


def values_of(table: PredictionTable) -> np.ndarray:
    return table.scores[ERROR_PROBABILITY]
