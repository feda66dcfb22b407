"""The scikit-learn classifier: its conventions, both forms of bags, and the same numbers as ``miue.train``."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn
from made_bags import separable_bags
from scipy.sparse import csr_matrix
from scipy.special import softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer, roc_auc_score
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import _num_samples

import miue
from miue.bags import BagDataset, GroupedRows
from miue.common.errors import ConfigError, DataError, ModelError
from miue.settings import TrainingConfig
from miue.sklearn.classifier import MILUncertaintyClassifier
from miue.training.job import Job
from miue.training.train import train_job

QUICK = {"max_epochs": 3, "learning_rate": 1e-2}
SMALL = {"encoder.width": 16, "network.hidden": 8, "method.residual_hidden": 8}
OF_ANY_NETWORK = {"encoder.width": 16, "method.residual_hidden": 8}


def classifier(**more: Any) -> MILUncertaintyClassifier:
    return MILUncertaintyClassifier(**{**QUICK, "options": SMALL, "random_state": 3, **more})


def arrays_of(bags: BagDataset) -> list[np.ndarray]:
    return [bags.batch([i]).instances.numpy() for i in range(len(bags))]


@pytest.fixture(scope="module")
def arrays() -> list[np.ndarray]:
    return arrays_of(separable_bags())


@pytest.fixture(scope="module")
def labels() -> np.ndarray:
    return separable_bags().labels.values


@pytest.fixture(scope="module")
def fitted(arrays: list[np.ndarray], labels: np.ndarray) -> MILUncertaintyClassifier:
    return classifier(max_epochs=20).fit(arrays, labels)


class RowsAsBags(MILUncertaintyClassifier):
    """Each row a bag of one, as the checks of scikit-learn have no bags."""

    def fit(self, X: Any, y: Any) -> RowsAsBags:  # type: ignore[override]
        super().fit(X, y, bag_ids=np.arange(_num_samples(X)))
        return self

    def _predictions(self, X: Any, bag_ids: Any) -> miue.Predictions:
        return super()._predictions(X, np.arange(_num_samples(X)))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")  # array API, off by default
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # a check casts infinity itself
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")  # y as a column
def test_every_check_of_scikit_learn_passes_with_rows_as_bags() -> None:
    rows = RowsAsBags(max_epochs=1, learning_rate=2e-2, options=SMALL, distances=(), random_state=0)
    results = check_estimator(rows, on_fail=None)
    failed = [f"{r['check_name']}: {r['exception']}" for r in results if r["status"] == "failed"]
    skipped = [r["check_name"] for r in results if r["status"] == "skipped"]
    assert failed == []
    assert set(skipped) <= {"check_array_api_input"}  # by the versions of scikit-learn and scipy
    assert len(results) > 50


@pytest.mark.long
def test_fit_is_train(fitted: MILUncertaintyClassifier, arrays: list[np.ndarray], labels: np.ndarray) -> None:
    settings = {**QUICK, "max_epochs": 20, "seed": 3}
    model = miue.train(arrays, labels, settings={**settings, "options": SMALL}, progress=False)
    predictions = model.predict(arrays)
    assert np.array_equal(fitted.predict_proba(arrays), predictions.bags.probabilities)
    assert fitted.n_features_in_ == 5
    assert fitted.n_iter_ == model.training.epochs
    uncertainty = fitted.predict_uncertainty(arrays)
    assert np.array_equal(uncertainty["vacuity"], predictions.bags.uncertainties()["vacuity"])
    assert np.array_equal(uncertainty["score_knn_mean"], predictions.bags.uncertainties()["knn_mean"])
    assert {"entropy", "expected_entropy", "mutual_information", "differential_entropy"} < set(uncertainty)
    columns = set(predictions.bags.to_arrow().column_names)
    assert set(uncertainty) <= columns


def test_instances_come_bag_by_bag(fitted: MILUncertaintyClassifier, arrays: list[np.ndarray]) -> None:
    found = fitted.predict_instances(arrays)
    table = fitted.model_.predict(arrays).instances
    assert table is not None
    assert [len(one.predicted) for one in found] == [len(bag) for bag in arrays]
    assert np.array_equal(np.concatenate([one.probabilities for one in found]), table.probabilities)
    assert np.array_equal(np.concatenate([one.predicted for one in found]), table.predicted)
    vacuity = np.concatenate([one.uncertainties["vacuity"] for one in found])
    assert np.array_equal(vacuity, table.uncertainties()["vacuity"])
    assert set(found[0].uncertainties) <= set(table.to_arrow().column_names)


def test_one_array_with_bag_ids_is_the_list_of_bags(arrays: list[np.ndarray], labels: np.ndarray) -> None:
    ids = np.repeat([f"slide {i}" for i in range(40)], [len(bag) for bag in arrays])
    rows, row_labels = np.concatenate(arrays), np.repeat(labels, [len(bag) for bag in arrays])
    order = np.random.default_rng(1).permutation(len(ids))
    mixed = GroupedRows.of(ids[order])
    bags = [rows[order][ids[order] == name] for name in mixed.names]
    of_bags = labels[[int(name.split()[1]) for name in mixed.names]]
    together = classifier().fit(rows[order], row_labels[order], bag_ids=ids[order])
    apart = classifier().fit(bags, of_bags)
    expected = apart.predict_proba(bags)
    assert np.array_equal(together.predict_proba(rows[order], bag_ids=ids[order]), expected)
    assert together.score(rows[order], row_labels[order], bag_ids=ids[order]) == apart.score(bags, of_bags)
    assert together.model_.predict(bags).bags.probabilities.shape == (40, 2)
    by_name = together.predict_instances(rows[order], bag_ids=ids[order])
    assert np.array_equal(by_name[2].probabilities, apart.predict_instances(bags)[2].probabilities)


def test_text_labels_are_sorted_and_the_negative_class_is_named(
    arrays: list[np.ndarray], labels: np.ndarray
) -> None:
    names = np.array(["healthy", "cancer"])[labels]
    plain = classifier().fit(arrays, labels)
    named = classifier(negative_class="healthy").fit(arrays, names)
    assert named.classes_.tolist() == ["cancer", "healthy"]
    assert named.model_.contract.class_names == ("healthy", "cancer")
    assert np.array_equal(named.predict_proba(arrays)[:, ::-1], plain.predict_proba(arrays))
    assert np.array_equal(named.predict(arrays) == "cancer", plain.predict(arrays) == 1)
    instances, expected = named.predict_instances(arrays), plain.predict_instances(arrays)
    assert np.array_equal(instances[3].probabilities[:, ::-1], expected[3].probabilities)
    before = named.predict_proba(arrays)
    named.set_params(negative_class="cancer")  # for the next fit
    assert np.array_equal(named.predict_proba(arrays), before)
    with pytest.raises(ConfigError, match="one of 'cancer', 'healthy', got 'normal'"):
        classifier(negative_class="normal").fit(arrays, names)


@pytest.mark.parametrize(("dtype", "names"), [("Int64", ("1", "2")), ("boolean", ("False", "True"))])
def test_nullable_labels_of_pandas_keep_their_type(
    arrays: list[np.ndarray], labels: np.ndarray, dtype: str, names: tuple[str, ...]
) -> None:
    column = pd.Series(labels if dtype == "boolean" else labels + 1).astype(dtype)
    classifier = MILUncertaintyClassifier(max_epochs=1, random_state=0, distances=()).fit(arrays, column)
    assert classifier.model_.contract.class_names == names and classifier.classes_.dtype.kind in "bi"
    assert set(classifier.predict(arrays)) <= set(column) and classifier.score(arrays, column) >= 0


@pytest.mark.long
@pytest.mark.parametrize("negative", ["high", "low", "none"])
def test_three_classes_are_learned_whichever_is_the_negative_one(arrays: list[np.ndarray], negative: str) -> None:
    names = np.array(["low", "high", "none"])[np.arange(40) % 3]
    shifted = [bag + 6 * (i % 3) for i, bag in enumerate(arrays)]
    found = classifier(negative_class=negative, max_epochs=20).fit(shifted, names)
    assert found.classes_.tolist() == ["high", "low", "none"]
    order = found.model_.contract.class_names
    assert order[0] == negative
    assert found.score(shifted, names) > 0.9
    assert np.mean(found.predict(shifted) == names) == found.score(shifted, names)
    columns = [order.index(name) for name in found.classes_]
    predictions = found.model_.predict(shifted)
    assert np.array_equal(found.predict_proba(shifted), predictions.bags.probabilities[:, columns])
    assert predictions.instances is not None
    of_instances = np.concatenate([one.predicted for one in found.predict_instances(shifted)])
    assert np.array_equal(of_instances, np.array(order)[predictions.instances.predicted])
    assert len(set(of_instances)) > 1


@pytest.mark.long
def test_a_grid_search_over_networks_and_learning_rates(arrays: list[np.ndarray], labels: np.ndarray) -> None:
    grid = {"network": ["mean", "attention"], "learning_rate": [1e-9, 1e-2]}
    found = classifier(max_epochs=6, options=OF_ANY_NETWORK, distances=())
    search = GridSearchCV(found, grid, cv=2).fit(arrays, labels)
    assert search.best_params_["learning_rate"] == 1e-2
    assert search.best_estimator_.max_epochs == 6
    assert len(set(search.cv_results_["mean_test_score"])) > 1
    nested = clone(classifier()).set_params(**{"options__network.hidden": 11})
    assert nested.get_params()["options__network.hidden"] == 11
    assert nested.fit(arrays, labels).model_.config.network.options == {"hidden": 11}
    assert SMALL["network.hidden"] == 8


@pytest.mark.long
def test_rows_are_routed_through_a_pipeline_and_a_search(arrays: list[np.ndarray], labels: np.ndarray) -> None:
    sizes = [len(bag) for bag in arrays]
    rows = pd.DataFrame(np.concatenate(arrays) * 1000, columns=list("abcde"))
    ids, row_labels = np.repeat(np.arange(40), sizes), np.repeat(labels, sizes)
    with sklearn.config_context(enable_metadata_routing=True):
        of_bags = classifier(options=OF_ANY_NETWORK, distances=())
        pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), of_bags)
        grid = {"miluncertaintyclassifier__network": ["mean", "max"]}
        search = GridSearchCV(pipeline, grid, cv=GroupKFold(2), error_score="raise")
        search.fit(rows, row_labels, bag_ids=ids, groups=ids)
        found = search.best_estimator_.predict_proba(rows, bag_ids=ids)
        score = search.score(rows, row_labels, bag_ids=ids)
    assert found.shape == (40, 2)
    assert score == np.mean((found[:, 1] > 0.5) == labels)
    assert search.best_estimator_[-1].feature_names_in_.tolist() == list("abcde")


def test_cross_validated_predictions_of_lists(arrays: list[np.ndarray], labels: np.ndarray) -> None:
    found = cross_val_predict(classifier(), arrays, labels, cv=2, method="predict_proba")
    assert found.shape == (40, 2)
    np.testing.assert_allclose(found.sum(1), 1)


@pytest.mark.parametrize("classes", [2, 3])
def test_logarithms_and_decisions_are_those_of_the_probabilities(
    arrays: list[np.ndarray], labels: np.ndarray, classes: int
) -> None:
    names = np.array(["healthy", "ill"])[labels] if classes == 2 else np.resize(["a", "b", "c"], len(arrays))
    found = classifier(distances=()).fit(arrays, names)
    probabilities, decisions = found.predict_proba(arrays), found.decision_function(arrays)
    np.testing.assert_allclose(np.exp(found.predict_log_proba(arrays)), probabilities)
    logits = np.stack([np.zeros(len(arrays)), decisions], 1) if classes == 2 else decisions
    np.testing.assert_allclose(softmax(logits, 1), probabilities)
    assert np.array_equal(found.classes_[logits.argmax(1)], found.predict(arrays))
    scorer = "roc_auc" if classes == 2 else "roc_auc_ovr"
    by_hand = roc_auc_score(names, probabilities[:, 1] if classes == 2 else probabilities, multi_class="ovr")
    assert get_scorer(scorer)(found, arrays, names) == pytest.approx(by_hand)


def test_decisions_are_finite_where_a_probability_is_zero(
    fitted: MILUncertaintyClassifier, arrays: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    certain = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    monkeypatch.setattr(MILUncertaintyClassifier, "predict_proba", lambda *_, **__: certain)
    assert np.isinf(fitted.predict_log_proba(arrays)).sum() == 2
    decisions = fitted.decision_function(arrays)
    assert decisions[1] == 0 and decisions[2] == -decisions[0] == pytest.approx(708.4, abs=0.1)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
def test_calibrators_and_thresholds_of_scikit_learn_take_the_classifier(
    fitted: MILUncertaintyClassifier, arrays: list[np.ndarray], labels: np.ndarray, method: str
) -> None:
    calibrated = CalibratedClassifierCV(FrozenEstimator(fitted), method=method).fit(arrays, labels)
    np.testing.assert_allclose(calibrated.predict_proba(arrays).sum(1), 1)
    chosen = FixedThresholdClassifier(FrozenEstimator(fitted), threshold=0.0).fit(arrays, labels)
    assert chosen.predict(arrays).all()  # every bag is of class 1 above a probability of 0


def test_numbers_that_scikit_learn_gives_for_text_labels_are_explained(
    arrays: list[np.ndarray], labels: np.ndarray
) -> None:
    text = np.array(["ill", "healthy"])[1 - labels]
    named = classifier(negative_class="healthy", distances=())
    with pytest.raises(ConfigError, match="number in sorted order"):
        cross_val_predict(named, arrays, text, cv=2, method="predict_proba")
    numbered = clone(named).set_params(negative_class=0)
    assert cross_val_predict(numbered, arrays, text, cv=2, method="predict_proba").shape == (len(arrays), 2)
    with pytest.raises(ConfigError, match="numbers, 0 for that class, which CalibratedClassifierCV"):
        CalibratedClassifierCV(named, method="temperature", cv=2).fit(arrays, text)
    found = CalibratedClassifierCV(classifier(distances=()), method="temperature", cv=2).fit(arrays, labels)
    assert found.predict_proba(arrays).shape == (len(arrays), 2)


def test_the_fitted_model_is_saved_and_predicts_as_before(
    fitted: MILUncertaintyClassifier, arrays: list[np.ndarray], tmp_path: Path
) -> None:
    fitted.model_.save(tmp_path / "model")
    loaded = miue.Model.load(tmp_path / "model").predict(arrays)
    assert np.array_equal(loaded.bags.probabilities, fitted.predict_proba(arrays))


def test_fit_holds_out_groups(arrays: list[np.ndarray], labels: np.ndarray) -> None:
    patients = np.repeat(np.arange(5), 8)
    found = classifier().fit(arrays, labels, groups=patients)
    assert found.model_.training.training_bags % 8 == 0
    sizes = [len(bag) for bag in arrays]
    rows = classifier().fit(
        np.concatenate(arrays),
        np.repeat(labels, sizes),
        bag_ids=np.repeat(np.arange(40), sizes),
        groups=np.repeat(patients, sizes),
    )
    assert np.array_equal(
        rows.predict_proba(np.concatenate(arrays), bag_ids=np.repeat(np.arange(40), sizes)),
        found.predict_proba(arrays),
    )


@pytest.mark.long
def test_the_seed_follows_the_conventions_of_scikit_learn(arrays: list[np.ndarray], labels: np.ndarray) -> None:
    def fit(random_state: Any) -> np.ndarray:
        return classifier(random_state=random_state).fit(arrays, labels).predict_proba(arrays)

    assert np.array_equal(fit(5), fit(np.int64(5)))
    assert np.array_equal(fit(np.random.RandomState(5)), fit(np.random.RandomState(5)))
    state = np.random.RandomState(5)
    assert not np.array_equal(fit(state), fit(state))


def test_every_field_of_the_training_config_is_a_parameter_with_its_default(
    arrays: list[np.ndarray], labels: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {
        name: None if field.is_required() else field.default
        for name, field in TrainingConfig.model_fields.items()
        if name != "seed"
    }
    parameters = MILUncertaintyClassifier().get_params()
    assert {name: parameters[name] for name in fields} == fields
    assert not {"seed", "settings"} & set(parameters)
    changed: dict[str, Any] = {
        name: value / 2 if isinstance(value, float) else 7 for name, value in fields.items()
    }
    changed |= {"precision": "bf16-mixed", "class_balanced": True, "augmentation": "rotate-flip"}
    changed |= {"temperature_scaling": False, "instances_per_bag": 1}  # which some bags have more of
    found = clone(MILUncertaintyClassifier().set_params(**changed))
    assert {name: found.get_params()[name] for name in fields} == changed
    seen: dict[str, Any] = {}

    def kept(job: Job, *others: Any) -> miue.Model:
        seen.update(job.recipe.settings)
        return train_job(job, *others)

    monkeypatch.setattr("miue.sklearn.estimator.train_job", kept)
    found.set_params(max_epochs=np.int64(1), lr_factor=np.float32(0.25), options=SMALL, random_state=7)
    found.fit([np.tile(array[:, :, None], (1, 1, 5)) for array in arrays], labels)  # images, to be augmented
    assert seen == {**changed, "max_epochs": 1, "lr_factor": 0.25, "seed": 7}
    with pytest.raises(ConfigError, match="lr_factor: expected less than 1"):
        classifier(lr_factor=2.0).fit(arrays, labels)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None}, "y: expected the class of each bag, got None; pass the labels"),
        ({"X": None}, "X: expected a sequence of bags.* got a value of type NoneType; pass bag_ids"),
        ({"X": Path("features")}, "got a value of type PosixPath"),
        ({"X": "features"}, "got a value of type str; pass bag_ids"),
        ({"X": np.array(3.0)}, "got a value of type ndarray"),
        ({"X": BagDataset.from_arrays([np.ones((2, 5))])}, "BagDataset; miue.train and Model.predict take"),
        ({"X": np.ones((6, 5)), "y": [0, 1] * 3}, "instances without bag_ids; pass bag_ids"),
        ({"X": {"a": np.ones((6, 5))}, "y": [0]}, "got a value of type dict"),
        ({"X": csr_matrix(np.ones((6, 5))), "y": [0, 1] * 3}, "got a value of type csr_matrix; pass bag_ids"),
        ({"X": np.ones((6, 5)).view(np.matrix), "y": [0, 1] * 3}, "got a value of type matrix; pass bag_ids"),
        ({"bag_ids": [0, 0, 1, 1, 2]}, "expected 5 rows, as many as bag_ids, got 6"),
        ({"bag_ids": [0, 0, 1, 1, None, 2]}, "row 4 of bag_ids: expected the id of a bag"),
        ({"bag_ids": [[0], [0], [1], [1], [2], [2]]}, "one id for each row"),
        ({"y": [0, 0, 1, 1, 0, 1]}, "y, bag '2', row 5: expected 0 as in the bag's first row, got 1"),
        ({"y": [0, 0, 1, 1, None, 0]}, "y, entry 4: expected a class label"),
        ({"y": [1] * 6}, "two classes or more, got 1 class"),
        (
            {"X": [np.ones((2, 5))] * 4, "y": [0, 1, 0]},
            "y: expected one for each of 4 bags, got 3; give as many as there are",
        ),
        ({"X": [], "y": []}, "two classes or more, got no bags"),
        ({"groups": [0, 0, 1, 2, 2, 2]}, "groups, bag '1', row 3"),
    ],
)
def test_bags_that_cannot_be_used_are_named(change: dict[str, Any], message: str) -> None:
    given = {"X": np.ones((6, 5)), "y": [0, 0, 1, 1, 0, 0], "bag_ids": [0, 0, 1, 1, 2, 2], "groups": None}
    if "X" in change:
        given["bag_ids"] = None
    with pytest.raises(DataError, match=message):
        classifier().fit(**{**given, **change})


@pytest.mark.long
def test_the_classifier_warns_where_the_first_class_is_hardly_the_negative_one(
    arrays: list[np.ndarray], labels: np.ndarray
) -> None:
    names = np.array(["cancer", "healthy"])[labels]
    message = "the negative class, .*, is 'cancer', .*; if it is 'healthy', pass negative_class='healthy'"
    with pytest.warns(UserWarning, match=message):
        classifier().fit(arrays, names)
    for parameters in ({"negative_class": "healthy"}, {"negative_class": "cancer"}):
        assert classifier(**parameters).fit(arrays, names).classes_.tolist() == ["cancer", "healthy"]
    classifier(options={**SMALL, "method.background": None}).fit(arrays, names)
    classifier().fit(arrays, np.array(["healthy", "ill"])[labels])


@pytest.mark.parametrize("columns", [True, False], ids=["data frame", "groupby"])
def test_decimals_are_numbers_and_groups_are_named(
    columns: bool, arrays: list[np.ndarray], labels: np.ndarray
) -> None:
    sizes = [len(bag) for bag in arrays]
    frame = pd.DataFrame(np.concatenate(arrays)[:, :2].round(3)).add_prefix("f")
    bags = np.repeat(np.arange(len(sizes)), sizes)
    if columns:
        decimals = pa.table({name: [Decimal(str(value)) for value in frame[name]] for name in frame})
        found = classifier().fit(decimals, np.repeat(labels, sizes), bag_ids=bags)
        expected = (
            classifier().fit(frame, np.repeat(labels, sizes), bag_ids=bags).predict_proba(frame, bag_ids=bags)
        )
        assert np.allclose(found.predict_proba(decimals, bag_ids=bags), expected)
    else:
        with pytest.raises(DataError, match="a value of type DataFrameGroupBy; pass bag_ids"):
            classifier().fit(frame.groupby(bags), labels)


def test_bags_that_are_data_frames_have_the_columns_of_training(
    arrays: list[np.ndarray], labels: np.ndarray
) -> None:
    frames = [pd.DataFrame(bag).add_prefix("f") for bag in arrays]
    found = classifier().fit(frames, labels)
    assert found.feature_names_in_.tolist() == [f"f{column}" for column in range(5)]
    assert np.array_equal(found.predict_proba(frames[:3]), found.predict_proba(arrays[:3]))
    with pytest.raises(ModelError, match="another order: 'f4' where 'f0' is expected"):
        found.predict([bag[bag.columns[::-1]] for bag in frames])
    with pytest.raises(DataError, match="bag 'bag_1': expected the columns of the bags before it"):
        classifier().fit([bag[bag.columns[:: 1 - 2 * (i % 2)]] for i, bag in enumerate(frames)], labels)


@pytest.mark.parametrize("kind", [pd.DataFrame, pa.Table.from_pandas])
def test_rows_of_any_kind_of_data_frame_have_the_columns_of_training(
    kind: Any, arrays: list[np.ndarray], labels: np.ndarray
) -> None:
    sizes = [len(bag) for bag in arrays]
    frame = pd.DataFrame(np.concatenate(arrays)).add_prefix("f")
    ids = np.repeat(np.arange(len(arrays)), sizes)
    found = classifier().fit(kind(frame), np.repeat(labels, sizes), bag_ids=ids)
    assert found.feature_names_in_.tolist() == [f"f{column}" for column in range(5)]
    assert np.array_equal(found.predict_proba(kind(frame), bag_ids=ids), found.predict_proba(arrays))
    with pytest.raises(ValueError, match="same order as they were in fit"):
        found.predict_proba(kind(frame[frame.columns[::-1]]), bag_ids=ids)


def test_a_saved_model_of_rows_knows_their_columns_and_refuses_another_order(
    arrays: list[np.ndarray], labels: np.ndarray, tmp_path: Path
) -> None:
    sizes = [len(bag) for bag in arrays]
    frame = pd.DataFrame(np.concatenate(arrays)).add_prefix("f")
    ids = np.repeat(np.arange(len(arrays)), sizes)
    classifier().fit(frame, np.repeat(labels, sizes), bag_ids=ids).model_.save(tmp_path / "model")
    loaded = miue.Model.load(tmp_path / "model")
    assert loaded.contract.feature_names == tuple(frame.columns)
    reordered = BagDataset.from_tensors(frame[frame.columns[::-1]], bag_ids=ids)
    with pytest.raises(ModelError, match="another order: 'f4' where 'f0' is expected"):
        loaded.predict(reordered)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1", "many", "2"], "column 'g': expected numbers, got could not convert string to float: 'many'"),
        (pd.Categorical(["low", "high", "low"]), "column 'g': expected numbers, got could not convert"),
        (pd.to_datetime(["2020-01-01"] * 3), "column 'g': expected numbers, got dates"),
        (pd.to_timedelta([1, 2, 3]), "column 'g': expected numbers, got durations"),
        ([1, 2, 3j], "column 'g': expected numbers, got complex numbers"),
        ([1, np.nan, 2], "bag 'a', row 1: expected finite features, got NaN or infinity in 1 of 2 rows"),
        (pd.array([1, None, 2], "Int64"), "bag 'a', row 1: expected finite features, got NaN or infinity"),
    ],
)
def test_what_is_no_number_in_a_data_frame_is_named(values: Any, message: str) -> None:
    frame, ids = pd.DataFrame({"f": [1.0, 2.0, 3.0], "g": values}), ["a", "a", "b"]
    with pytest.raises(DataError, match=message):
        classifier().fit(frame, [0, 0, 1], bag_ids=ids)
    with pytest.raises(DataError, match=message):
        BagDataset.from_arrays([frame[:2], frame[2:]], ids=["a", "b"])
    with pytest.raises(DataError, match=message):
        BagDataset.from_frame(frame.assign(bag=ids), bag="bag", features=["f", "g"])


def test_nullable_numbers_of_data_frames_are_numbers() -> None:
    frame = pd.DataFrame({"f": pd.array([1, 2], "Int64"), "g": [0.5, 1.5], "h": [True, False]})
    assert np.asarray(BagDataset.from_arrays([frame]).instances).tolist() == [[1, 0.5, 1], [2, 1.5, 0]]


@pytest.mark.parametrize("unknown", [None, np.nan, pd.NA])
def test_a_bag_whose_group_is_unknown_has_one_of_its_own(
    unknown: Any, arrays: list[np.ndarray], labels: np.ndarray
) -> None:
    sizes, groups = [len(bag) for bag in arrays], [unknown] * 20 + [f"p{bag // 2}" for bag in range(20, 40)]
    found = classifier().fit(arrays, labels, groups=groups)
    of_their_own = [f"own {bag}" if bag < 20 else group for bag, group in enumerate(groups)]
    like = classifier().fit(arrays, labels, groups=of_their_own)
    assert found.model_.training.training_bags == like.model_.training.training_bags
    rows = classifier().fit(
        np.concatenate(arrays),
        np.repeat(labels, sizes),
        bag_ids=np.repeat(np.arange(40), sizes),
        groups=[group for group, size in zip(groups, sizes, strict=True) for _ in range(size)],
    )
    assert rows.model_.training.training_bags == found.model_.training.training_bags


def test_too_few_groups_are_refused(arrays: list[np.ndarray], labels: np.ndarray) -> None:
    with pytest.raises(
        DataError,
        match=r"class 0 of the training set: expected at least 2 patients.*\(validation_fraction=0\)",
    ):
        classifier().fit(arrays, labels, groups=np.zeros(40))
    with pytest.raises(DataError, match="groups: expected one for each of 40 bags"):
        classifier().fit(arrays, labels, groups=np.zeros(39))


def test_a_fit_that_fails_leaves_the_earlier_model(arrays: list[np.ndarray]) -> None:
    found = classifier().fit(arrays, np.resize(["a", "b", "c"], len(arrays)))
    before = found.predict_proba(arrays)
    with pytest.raises(ConfigError, match="network 'unheard'"):
        found.set_params(network="unheard").fit([bag[:, :3] for bag in arrays], np.resize([0, 1], len(arrays)))
    assert found.classes_.tolist() == ["a", "b", "c"]
    assert np.array_equal(found.predict_proba(arrays), before)
    with pytest.raises(NotFittedError):
        fails = classifier(network="unheard")
        with pytest.raises(ConfigError):
            fails.fit(arrays, np.resize([0, 1], len(arrays)))
        fails.predict(arrays)


def test_rows_of_a_fit_that_fails_leave_the_earlier_columns(arrays: list[np.ndarray], labels: np.ndarray) -> None:
    names, sizes = np.arange(len(arrays)), [len(bag) for bag in arrays]
    rows, of_rows = pd.DataFrame(np.concatenate(arrays)).add_prefix("f"), np.repeat(names, sizes)
    found = classifier().fit(rows, np.repeat(labels, sizes), bag_ids=of_rows)
    with pytest.raises(DataError, match="two classes or more"):
        found.fit(rows[["f0"]], np.zeros(len(rows)), bag_ids=of_rows)
    assert (found.n_features_in_, found.feature_names_in_.tolist()) == (5, list(rows.columns))
    assert len(found.predict(rows, bag_ids=of_rows)) == len(arrays)


@pytest.mark.parametrize("options", ["network.hidden", [("network.hidden", 8)], 3])
def test_options_that_are_no_mapping_are_refused(
    options: Any, arrays: list[np.ndarray], labels: np.ndarray
) -> None:
    with pytest.raises(ConfigError, match="options: expected a valid dictionary"):
        classifier(options=options).fit(arrays, labels)
