"""Saved models, and prediction from them."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fast import slow_but
from made_bags import FITTING, separable_bags, train_with
from sealed_files import seal_again

import miue
from miue.bags import BagDataset, Labels
from miue.calibration import Goals
from miue.common.errors import ConfigError, DataError, ModelError, StorageError
from miue.model import encoding
from miue.model import predict as prediction
from miue.model.calibrate import calibrate_model
from miue.predictions import UNKNOWN

ONE_EPOCH = {"max_epochs": 1}


def train(bags: BagDataset, **more: Any) -> miue.Model:
    return train_with(bags, settings={**ONE_EPOCH, "device": "cpu"}, progress=False, **more)


FAST = [pair for pair in FITTING if pair[0] == "mirel" or pair[1] == "attention"]


@pytest.mark.long
@pytest.mark.parametrize(("method", "network"), slow_but(FITTING, FAST))
def test_a_saved_model_predicts_as_before(network: str, method: str, tmp_path: Path, bags: BagDataset) -> None:
    options = {"encoder.width": 17, **({"method.size": 3} if method == "deep-ensemble" else {})}
    model = train(bags, network=network, method=method, options=options)
    model.save(tmp_path / "model")
    files = sorted(p.name for p in (tmp_path / "model").iterdir())
    kept = ["config.json", "distances.safetensors", "model.safetensors", "splits.csv", "validation.json"]
    assert files == kept
    ours, theirs = model.predict(bags), miue.Model.load(tmp_path / "model").predict(bags)
    assert np.array_equal(ours.bags.probabilities, theirs.bags.probabilities)
    assert ours.instances is not None
    assert theirs.instances is not None
    assert np.array_equal(ours.instances.probabilities, theirs.instances.probabilities)


def test_a_second_prediction_repeats_nothing_that_the_first_has_found(
    tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(bags, out=tmp_path / "run")
    model = miue.Model.load(tmp_path / "run")
    model.predict(bags.subset([0]))
    for repeated in (
        "miue.model.training_bags.normalize",  # of each training bag
        "miue.model.feature_scores.DistanceScores.__init__",
        "miue.model.model.version",  # which is read from a file
        "torch.nn.Module._apply",  # as to() calls it for each part
        "torch.nn.Module.train",
    ):
        monkeypatch.setattr(repeated, lambda *_, **__: pytest.fail("repeated"))
    assert len(model.predict(bags.subset([1])).bags) == 1


def test_prediction_needs_no_labels_and_leaves_dropout_off(bags: BagDataset) -> None:
    model = train(bags, options={"encoder.dropout": 0.5})
    arrays = [bags.batch([i]).instances.numpy() for i in range(len(bags))]
    model.method.train()
    first, second = model.predict(arrays), model.predict(arrays)
    assert np.array_equal(first.bags.probabilities, second.bags.probabilities)
    assert model.method.training, "the mode is restored"
    assert not first.bags.labels.known.any()


@pytest.mark.long
def test_chunks_and_batches_do_not_change_the_prediction(
    bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = train(bags, network="dsmil")
    whole = model.predict(bags)
    monkeypatch.setattr(prediction, "BATCH_INSTANCES", 5)
    monkeypatch.setattr(encoding, "CHUNK_FEATURES", 2)
    chunked = model.predict(bags)
    for ours, theirs in ((whole.bags, chunked.bags), (whole.instances, chunked.instances)):
        assert ours is not None and theirs is not None
        np.testing.assert_allclose(ours.probabilities, theirs.probabilities, rtol=1e-5, atol=1e-7)


@pytest.mark.long
def test_a_bag_of_one_and_a_bag_of_one_hundred_thousand(bags: BagDataset) -> None:
    model = train(bags)
    random = np.random.default_rng(0)
    predictions = model.predict([random.normal(size=(1, 5)), random.normal(size=(100_000, 5))])
    assert predictions.instances is not None
    assert len(predictions.instances) == 100_001
    assert np.isfinite(predictions.bags.probabilities).all()
    first = predictions.instances.probabilities[0]
    assert first.sum() == pytest.approx(1)


def test_images_are_taken_with_or_without_a_channel_axis() -> None:
    random = np.random.default_rng(0)
    bags = [random.integers(0, 256, (n, 8, 8), dtype=np.uint8) for n in (2, 3, 1, 4)]
    model = miue.train(bags, [0, 1, 0, 1], settings={**ONE_EPOCH, "device": "cpu"}, progress=False)
    assert model.config.encoder.name == "compact"
    with_axis = model.predict([bag[..., None] for bag in bags])
    assert np.array_equal(model.predict(bags).bags.probabilities, with_axis.bags.probabilities)


def test_more_than_two_classes_with_named_classes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arrays = [random.normal(size=(3, 5)) + 3 * (i % 3) for i in range(30)]
    bags = BagDataset.from_arrays(arrays, [i % 3 for i in range(30)], class_names=["normal", "low", "high"])
    model = train(bags)
    model.save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["contract"]["class_names"] == ["normal", "low", "high"]
    assert model.predict(bags).bags.probabilities.shape == (30, 3)


def test_another_feature_width_is_refused_in_one_sentence(bags: BagDataset) -> None:
    with pytest.raises(ModelError) as error:
        train(bags).predict([np.ones((2, 7))])
    assert str(error.value) == (
        "the bags: expected feature width 5, which the model was trained on, got 7; "
        "extract these features with the encoder that the model was trained on"
    )


def test_another_image_shape_is_refused() -> None:
    bags = [np.zeros((2, 8, 8), np.uint8)] * 4
    model = miue.train(bags, [0, 1, 0, 1], settings={**ONE_EPOCH, "device": "cpu"}, progress=False)
    with pytest.raises(
        ModelError, match="expected image shape 8 × 8 × 1, .* got 8 × 8 × 3; give the images the size"
    ):
        model.predict([np.zeros((1, 8, 8, 3), np.uint8)])
    with pytest.raises(
        ModelError, match="got 7; the model takes images, not features: pass the images themselves"
    ):
        model.predict([np.zeros((1, 7))])


@pytest.mark.long
def test_folders_that_hold_no_usable_model_say_why(tmp_path: Path, bags: BagDataset) -> None:
    with pytest.raises(StorageError, match="a folder without it; train one with"):
        miue.Model.load(tmp_path)
    for seed in (1, 2):
        train(bags).save(tmp_path / "runs" / f"seed_{seed}")
    with pytest.raises(StorageError, match="a folder without it; choose one of the models in it: seed_1, seed_2"):
        miue.Model.load(tmp_path / "runs")
    folder = tmp_path / "model"
    train(bags).save(folder)
    for change, error, message in (
        (lambda c: c["model"]["network"].update(name="dsmil"), ModelError, "weights that config.json describes"),
        (lambda c: c["model"]["network"].update(name="atention"), ConfigError, "did you mean 'attention'"),
        (
            lambda c: c["contract"].update(shape=c["contract"].pop("instance_shape")),
            StorageError,
            "that miue writes",
        ),
        (
            lambda c: c["model"]["encoder"].update(options={"width": 10**9}),  # for which no memory is taken
            ModelError,
            r"config.json describes, got .*1000000000",
        ),
    ):
        shutil.copytree(folder, tmp_path / "changed", dirs_exist_ok=True)
        seal_again(tmp_path / "changed" / "config.json", change)
        with pytest.raises(error, match=message):
            miue.Model.load(tmp_path / "changed")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"network": "atention"}, "network 'atention': .* did you mean 'attention'"),
        ({"method": "mirrel"}, "did you mean 'mirel'"),
        ({"encoder": "lennet"}, "did you mean 'lenet'"),
        ({"encoder": "lenet"}, "encoder LeNet: expected images"),
        ({"options": {"network.hiden": 3}}, "did you mean 'network.hidden'"),
        ({"options": {"hidden": 3}}, "option 'hidden'"),
        (
            {"options": {"network.hidden": "many"}},
            "option 'network.hidden': expected a valid integer, got 'many'",
        ),
        (
            {"options": {"network.hidden": None}},
            "'network.hidden': expected a valid integer, got None",
        ),
        ({"options": {"network.hidden": True}}, "'network.hidden': expected a valid integer"),
        ({"options": {"method.red": 5}}, "option 'method.red': expected a valid boolean, got 5"),
        ({"options": {"method.activation": 3}}, "option 'method.activation': expected a valid string"),
        (
            {"options": {"encoder.dropout": 1.5}},
            "option 'encoder.dropout': expected less than 1",
        ),
        ({"options": {"encoder.dropout": 1.0}}, "option 'encoder.dropout': expected less than 1"),  # all drops out
        ({"options": {"encoder.dropout": 1}}, "option 'encoder.dropout': expected less than 1"),
        ({"method": "mc-dropout", "options": {"encoder.dropout": 1.0}}, "'encoder.dropout': expected less than 1"),
        ({"network": "mean", "options": {"network.hidden": 3}}, "expected no options: network 'mean' has none"),
        ({"options": {"method.routing": "sideways"}}, "gradient routing 'sideways'"),
    ],
)
def test_a_choice_that_does_not_exist_is_answered(
    choice: dict[str, object], message: str, bags: BagDataset
) -> None:
    with pytest.raises((ConfigError, ModelError), match=message):
        train(bags, **choice)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_epoch": 3}, "did you mean 'max_epochs'"),
        ({"learning_rate": -1}, "^learning_rate: "),
        ({"max_epochs": "many"}, "^max_epochs: "),
    ],
)
def test_a_setting_that_does_not_exist_is_answered(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        miue.train(separable_bags(), settings=settings, progress=False)


def test_an_option_of_the_wrong_size_is_answered(bags: BagDataset) -> None:
    with pytest.raises(ConfigError, match="expected greater than or equal to 1, got -3"):
        train(bags, options={"network.hidden": -3})


def test_the_trained_model_is_on_the_cpu_and_in_evaluation_mode(bags: BagDataset) -> None:
    method = train(bags).method
    assert not method.training
    assert all(p.device == torch.device("cpu") for p in method.parameters())


def calibrated(model: miue.Model, bags: BagDataset) -> miue.Model:
    made = miue.calibrate(
        model.predict(bags), deferral=None, false_alarms=None, settings={"allow_training_bags": True}
    )
    return replace(model, calibration=made)


def test_a_model_is_calibrated_as_its_predictions_are_after_a_check_that_the_bags_are_enough(
    bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = calibrated(train(bags), bags)
    held_out = separable_bags(60, seed=1)
    held_out = replace(held_out, ids=tuple(f"new {name}" for name in held_out.ids))
    uncalibrated = replace(model, calibration=None)
    made = calibrate_model(model, held_out, Goals(deferral=None))
    assert made == miue.calibrate(uncalibrated.predict(held_out), deferral=None)
    monkeypatch.setattr(miue.Model, "predict", None)
    with pytest.raises(DataError, match="at least 268 labeled bags for the deferral"):
        calibrate_model(model, held_out, Goals(deferral=miue.DeferralGoal(0.01)))
    wrong = held_out.instance_labels.values.copy()
    wrong[held_out.starts[[1, 3]]] = 1
    contradicted = replace(held_out, instance_labels=Labels(wrong, held_out.instance_labels.known))
    flags = Goals(False, None, None, None, miue.InstanceGoal("no-false-flag", 0.1))
    with pytest.raises(DataError, match="bag 'new bag_1' of the negative class.* 2 such instances of 2 bags"):
        calibrate_model(model, contradicted, flags)


def test_the_digest_of_the_weights_is_that_of_their_file(tmp_path: Path, bags: BagDataset) -> None:
    model = train(bags)
    model.save(tmp_path / "model")
    digest = hashlib.sha256((tmp_path / "model" / "model.safetensors").read_bytes()).hexdigest()
    assert model.weights_sha256 == digest
    assert miue.Model.load(tmp_path / "model").weights_sha256 == digest
    assert model.predict(bags).provenance.weights_sha256 == digest


@pytest.mark.long
def test_a_calibration_is_of_its_weights_alone(tmp_path: Path, bags: BagDataset) -> None:
    first, second = (
        miue.train(bags, settings={**ONE_EPOCH, "seed": seed, "device": "cpu"}, progress=False) for seed in (1, 2)
    )
    calibrated(first, bags).save(tmp_path / "first")
    decided = miue.Model.load(tmp_path / "first").predict(bags)
    assert decided.bags.decisions is not None

    second.save(tmp_path / "second")
    miue.Calibration.load(tmp_path / "first").save(tmp_path / "second" / "calibration.json")
    mixed = miue.Model.load(tmp_path / "second")
    with pytest.raises(ModelError, match="weights that are calibrated.*calibrate again"):
        mixed.predict(bags)
    with pytest.raises(ModelError, match=second.weights_sha256):
        miue.decide(second.predict(bags), miue.Calibration.load(tmp_path / "first"))
    assert replace(mixed, calibration=None).predict(bags).bags.decisions is None


def test_predictions_of_another_tool_are_decided_on_without_weights(bags: BagDataset) -> None:
    model = calibrated(train(bags), bags)
    assert model.calibration is not None
    table = replace(model.predict(bags), provenance=UNKNOWN)
    assert miue.decide(table, model.calibration).bags.decisions is not None


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"network.hidden": 0}, "greater than or equal to 1"),
        ({"encoder.width": 0}, "greater than or equal to 1"),
        ({"method.background": 7}, "expected a class from 0 to 1"),
        ({"method.fisher_coefficient": -1.0}, "expected a number from 0"),
        ({"method.annealing_epochs": 0}, "expected at least 1"),
    ],
)
def test_an_option_out_of_range_is_answered(option: dict[str, Any], said: str, bags: BagDataset) -> None:
    with pytest.raises(ConfigError, match=said):
        train(bags, options=option)


def test_the_accelerator_has_one_name_and_is_not_made_up(bags: BagDataset) -> None:
    model = train(bags)
    if not torch.cuda.is_available():
        for name in ("gpu", "cuda", "cuda:1"):
            with pytest.raises(ConfigError, match="expected an accelerator"):
                model.predict(bags, device=name)
    with pytest.raises(ConfigError, match="device 'tpu'"):
        model.predict(bags, device="tpu")


def test_labels_are_matched_to_the_classes_of_the_model_by_name() -> None:
    bags = replace(separable_bags(), class_names=("normal", "tumour"))
    model = train(bags)
    wanted = model.predict(bags)
    turned = replace(
        bags,
        class_names=("tumour", "other", "normal"),
        labels=Labels(np.where(bags.labels.values == 1, 0, 2), bags.labels.known),
        instance_labels=Labels(np.where(bags.instance_labels.values == 1, 0, 2), bags.instance_labels.known),
    )
    found = model.predict(turned)
    for ours, theirs in ((found.bags, wanted.bags), (found.instances, wanted.instances)):
        assert ours is not None and theirs is not None
        assert np.array_equal(ours.labels.values, theirs.labels.values)
    without = model.predict(replace(bags, class_names=()))
    assert np.array_equal(without.bags.labels.values, wanted.bags.labels.values)
    with pytest.raises(DataError, match="class 'tumor' of the bags: expected one of the classes normal, tumour"):
        model.predict(replace(bags, class_names=("normal", "tumor")))
    three = replace(bags, class_names=(), labels=Labels(bags.labels.values + 1, bags.labels.known))
    with pytest.raises(DataError, match="class '2' of the bags"):
        model.predict(three)
    unlabeled = replace(bags, class_names=("a", "b"), labels=Labels.unknown(len(bags)))
    foreign = replace(unlabeled, instance_labels=Labels.unknown(len(bags.instances)))
    assert not model.predict(foreign).bags.labels.known.any()


def test_labels_beside_arrays_are_kept_for_evaluation_and_refused_beside_a_dataset(bags: BagDataset) -> None:
    model = miue.train(bags, settings={"max_epochs": 1}, progress=False)
    arrays = [np.asarray(bags.batch([row]).instances) for row in range(4)]
    given = model.predict(arrays, [0, 1, None, 1]).bags.labels
    assert given.values[given.known].tolist() == [0, 1, 1] and given.known.tolist() == [True, True, False, True]
    with pytest.raises(ConfigError, match="expected None beside a dataset, which has its own"):
        model.predict(bags, [0] * len(bags))
