"""Training images that are rotated and mirrored at random."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_bags import separable_bags

import miue
from miue.bags import BagBatch, BagDataset, Segments, augmented, rotate_flip
from miue.common.errors import ConfigError
from miue.networks.encoders import CompactCNN
from miue.sklearn import MILUncertaintyClassifier

DTYPES = (torch.uint8, torch.float32, torch.float16)


def positions(image: np.ndarray) -> list[np.ndarray]:
    every = [np.rot90(side, turn) for side in (image, np.fliplr(image)) for turn in range(4)]
    return [position for position in every if position.shape == image.shape]


def distinct(*shape: int) -> torch.Tensor:
    return torch.arange(int(np.prod(shape))).reshape(shape).remainder(251)


@given(st.integers(0, 40), st.integers(2, 5), st.integers(2, 5), st.integers(1, 3), st.sampled_from(DTYPES))
def test_each_image_is_one_of_its_own_positions(
    count: int, height: int, width: int, channels: int, dtype: torch.dtype
) -> None:
    images = distinct(count, height, width, channels).to(dtype)
    turned = rotate_flip(images)
    assert turned.dtype == dtype
    for image, result in zip(images.numpy(), turned.numpy(), strict=True):
        assert any(np.array_equal(result, position) for position in positions(image))


@pytest.mark.parametrize(("width", "count"), [(3, 8), (4, 4)])
def test_all_positions_are_equally_frequent(width: int, count: int) -> None:
    image = distinct(1, 3, width, 1)
    torch.manual_seed(0)
    found = Counter(result.tobytes() for result in rotate_flip(image.expand(4000, -1, -1, -1)).numpy())
    assert found.keys() == {position.tobytes() for position in positions(image[0].numpy())}
    assert len(found) == count
    assert max(abs(times - 4000 / count) for times in found.values()) < 4.5 * np.sqrt(4000 / count)


def test_images_are_drawn_one_by_one_and_anew() -> None:
    images = distinct(1, 5, 5, 1).expand(200, -1, -1, -1)
    torch.manual_seed(0)
    first, second = rotate_flip(images), rotate_flip(images)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(rotate_flip(images), first)


def test_none_is_the_same_batch_and_draws_nothing() -> None:
    batch = BagBatch(distinct(4, 3, 3, 1), Segments.of(4), torch.zeros(1).long(), torch.ones(1).bool())
    before = torch.get_rng_state()
    assert augmented(batch, "none") is batch
    assert torch.equal(torch.get_rng_state(), before)


def bar_bags(count: int, sides: int, seed: int) -> BagDataset:
    """Bags of noise, of which every second one has an image with a bright bar at one of the first ``sides``."""
    random = np.random.default_rng(seed)
    bags = random.integers(0, 60, (count, 6, 12, 12, 1), dtype=np.uint8)
    for bag in bags[1::2]:
        bag[0, :, :2] = 255
        bag[0] = np.rot90(bag[0], int(random.integers(sides)))
    return BagDataset.from_arrays(list(bags), [number % 2 for number in range(count)])


@pytest.mark.slow
def test_bars_that_were_never_seen_on_another_side_are_found() -> None:
    settings = {"max_epochs": 12, "learning_rate": 5e-3, "bags_per_update": 2, "seed": 1}
    found = {}
    for augmentation in ("none", "rotate-flip"):
        chosen = {**settings, "augmentation": augmentation}
        model = miue.train(
            bar_bags(40, 1, 0), method="softmax", settings={**chosen, "device": "cpu"}, progress=False
        )
        predictions = model.predict(bar_bags(60, 4, 1), device="cpu")
        found[augmentation] = miue.evaluate(predictions).bags.metrics["accuracy"].value
    assert found["none"] is not None and found["none"] < 0.8
    assert found["rotate-flip"] is not None and found["rotate-flip"] > 0.95


def test_only_training_is_augmented(monkeypatch: pytest.MonkeyPatch) -> None:
    bags, forward = bar_bags(12, 1, 0), CompactCNN.forward
    given_images = {image.tobytes() for image in np.asarray(bags.instances)}
    unknown = {True: 0, False: 0}

    def watched(encoder: CompactCNN, images: torch.Tensor) -> torch.Tensor:
        of_bytes = (images * 255).round().byte().numpy()
        unknown[encoder.training] += sum(image.tobytes() not in given_images for image in of_bytes)
        return forward(encoder, images)

    monkeypatch.setattr(CompactCNN, "forward", watched)
    settings = {"max_epochs": 1, "augmentation": "rotate-flip"}
    miue.train(bags, settings={**settings, "device": "cpu"}, progress=False).predict(bags, device="cpu")
    assert unknown[True] > 0
    assert unknown[False] == 0


def test_features_are_refused() -> None:
    with pytest.raises(ConfigError, match=re.escape("augmentation=rotate-flip")) as caught:
        miue.train(separable_bags(8), settings={"augmentation": "rotate-flip"}, progress=False)
    assert "shape (" in str(caught.value)
    with pytest.raises(ConfigError, match="augmentation"):
        MILUncertaintyClassifier(augmentation="turns").fit([np.ones((2, 8, 8))] * 8, [0, 1] * 4)
