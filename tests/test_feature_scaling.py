"""Features of any scale: what is learned of them before training, and what does not depend on their units."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_bags import separable_bags, train_one_epoch
from torch import nn

import miue
from miue.bags import BagDataset
from miue.common.errors import ConfigError
from miue.io import make_folds
from miue.networks.encoders import MLP, Encoder


def of_four_kinds() -> torch.Tensor:
    """1,000 instances of features of two units, one that is constant, and one that varies by rounding."""
    random = np.random.default_rng(0)
    values = random.normal(size=(1000, 4)) * [1, 50, 0, 1e-9] + [1e4, 7, 3, 0.3]
    instances = torch.from_numpy(values.astype(np.float32))
    instances[::2, 3] = torch.nextafter(instances[::2, 3], torch.tensor(1.0))
    return instances


class Lightest(Encoder):
    """An encoder of images that remembers the lightest value that it learned from, and that it was given later."""

    learned: torch.Tensor

    def __init__(self, instance_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.out_features = 3
        self.layer = nn.Linear(instance_shape[-1], 3)
        self.register_buffer("learned", torch.zeros(()))
        self.given = 0.0

    def learn_inputs(self, batches: Iterable[torch.Tensor]) -> None:
        self.learned.copy_(torch.stack([batch.amax() for batch in batches]).amax())

    def forward(self, instances: torch.Tensor) -> torch.Tensor:
        self.given = max(self.given, float(instances.amax()))
        return self.layer(instances.mean((1, 2)))


@pytest.mark.long
def test_an_encoder_learns_from_images_as_it_is_given_them() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 4, 4, 3)).astype(np.uint8)
    bags, labels = np.split(pixels, 12), [0, 1] * 6
    model = train_one_epoch(BagDataset.of(list(bags), labels), encoder=Lightest, network="mean", distances=[])
    encoder = model.method.members()[0].network.encoder
    assert isinstance(encoder, Lightest)
    assert float(encoder.learned) == encoder.given == 1


def in_units(bags: BagDataset, factor: float | np.ndarray, offset: float | np.ndarray) -> BagDataset:
    """Return the same bags with features in other units."""
    return replace(bags, instances=(np.asarray(bags.instances) * factor + offset).astype(np.float32))


@pytest.mark.parametrize("scaling", ["common", "each"])
def test_features_are_scaled_by_the_training_instances(scaling: str) -> None:
    instances = of_four_kinds()
    encoder = MLP((4,), width=4, scaling=scaling)
    encoder.learn_inputs(instances.split(77))
    np.testing.assert_allclose(encoder.mean, instances.double().mean(0), rtol=1e-6)
    deviation = instances.double().std(0, correction=0)
    assert deviation[3] > 0
    expected = [*deviation[:2], 1, 1] if scaling == "each" else [deviation[:2].square().sum().div(4).sqrt()] * 4
    np.testing.assert_allclose(encoder.deviation, expected, rtol=1e-5)
    plain = MLP((4,), width=4, scaling="as-is")
    plain.load_state_dict({k: v for k, v in encoder.state_dict().items() if k.startswith("layers")})
    assert torch.allclose(encoder(instances), plain((instances - encoder.mean) / encoder.deviation))


@pytest.mark.parametrize("scaling", ["common", "each"])
def test_features_that_do_not_vary_are_only_moved(scaling: str) -> None:
    encoder = MLP((3,), width=4, scaling=scaling)
    encoder.learn_inputs([torch.full((5, 3), 7.0)])
    assert encoder.mean.tolist() == [7, 7, 7] and encoder.deviation.tolist() == [1, 1, 1]


def test_a_scaling_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="as-is"):
        MLP((3,), scaling="both")
    with pytest.raises(ConfigError, match="as-is"):
        train_one_epoch(separable_bags(24), options={"encoder.scaling": "both"})


@pytest.mark.long
@pytest.mark.parametrize("method", ["softmax", "mirel", "sngp", "laplace"])
@pytest.mark.parametrize(("factor", "offset"), [(2.0**-7, 0.0), (2.0**9, 100.0)])
def test_predictions_do_not_depend_on_the_unit_of_all_features(method: str, factor: float, offset: float) -> None:
    bags = separable_bags(24)
    expected = train_one_epoch(bags, method=method, distances=()).predict(bags)
    moved = in_units(bags, factor, offset)
    found = train_one_epoch(moved, method=method, distances=()).predict(moved)
    np.testing.assert_allclose(found.bags.probabilities, expected.bags.probabilities, atol=1e-4)
    assert found.instances and expected.instances
    np.testing.assert_allclose(found.instances.probabilities, expected.instances.probabilities, atol=1e-4)


def test_predictions_need_not_depend_on_the_unit_of_any_feature() -> None:
    bags = separable_bags(24)
    factors = 2.0 ** np.arange(bags.instances.shape[1])
    settings = {"options": {"encoder.scaling": "each"}, "distances": ()}
    expected = train_one_epoch(bags, **settings).predict(bags)
    moved = in_units(bags, factors, factors)
    found = train_one_epoch(moved, **settings).predict(moved)
    np.testing.assert_allclose(found.bags.probabilities, expected.bags.probabilities, atol=1e-4)
    by_one_number = train_one_epoch(moved, distances=()).predict(moved)
    assert np.abs(by_one_number.bags.probabilities - expected.bags.probabilities).max() > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("method", ["softmax", "mirel"])
def test_small_features_are_learned_from_as_well(method: str) -> None:
    bags = in_units(separable_bags(60), 0.002, 0.5)
    settings = {"max_epochs": 6, "learning_rate": 3e-3}  # right of all, and of half without the scaling
    model = train_one_epoch(bags, method=method, distances=(), settings=settings)
    right = model.predict(bags).bags.probabilities.argmax(1) == bags.labels.values
    assert right.mean() > 0.9
    as_is = train_one_epoch(
        bags, method=method, distances=(), settings=settings, options={"encoder.scaling": "as-is"}
    )
    assert (as_is.predict(bags).bags.probabilities.argmax(1) == bags.labels.values).mean() < 0.9


@pytest.mark.parametrize("scaling", ["common", "each"])
def test_the_scale_is_that_of_the_training_bags_alone_and_saved(scaling: str, tmp_path: Path) -> None:
    bags = make_folds(separable_bags(24), 2).assign(separable_bags(24))
    options = {"encoder.width": 4, "encoder.scaling": scaling}
    model = train_one_epoch(bags, options=options, out=tmp_path / "run", distances=())
    training = bags.split("train")
    rows = np.asarray(training.instances)[training.positions]
    encoder = model.method.members()[0].network.encoder
    assert isinstance(encoder, MLP)
    np.testing.assert_allclose(encoder.mean, rows.mean(0), rtol=1e-4, atol=1e-6)
    deviation = rows.std(0) if scaling == "each" else np.full(rows.shape[1], np.sqrt(rows.var(0).mean()))
    np.testing.assert_allclose(encoder.deviation, deviation, rtol=1e-4)
    loaded = miue.Model.load(tmp_path / "run").predict(bags.split("test")).bags.probabilities
    np.testing.assert_allclose(loaded, model.predict(bags.split("test")).bags.probabilities)


@pytest.mark.parametrize(("large", "scaling", "warned"), [(1e6, "common", True), (1e6, "each", False)])
def test_features_that_those_of_a_large_unit_hide_are_warned_of(large: float, scaling: str, warned: bool) -> None:
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(100, 5)) * [1, 1, large, 0, 30]).float()
    encoder = MLP((5,), width=3, scaling=scaling)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        encoder.learn_inputs([values])
    found = [str(one.message) for one in shown if "encoder.scaling=each" in str(one.message)]
    assert len(found) == warned
    assert all(text.startswith("3 of 4 features vary") for text in found)


def test_a_few_features_that_hardly_vary_are_not_warned_of() -> None:
    values = torch.from_numpy(
        np.random.default_rng(0).normal(size=(100, 8)) * [1e-5, 1, 2, 3, 4, 5, 6, 300]
    ).float()
    MLP((8,), width=3).learn_inputs([values])
