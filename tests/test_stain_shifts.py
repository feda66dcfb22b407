"""Blur and stain variation: what stays, what changes by how much, and that a strength is what it says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from skimage.color import hed_from_rgb, rgb_from_hed

from miue.bags import BagDataset
from miue.common.errors import ConfigError
from miue.datasets.image_shifts import shifted_copies
from miue.pathology.stain_shifts import (
    ALL_SHIFTS,
    PARAMETERS,
    STRENGTHS,
    StainShift,
    blurred,
    stain_varied,
    stains_changed,
)


def stained(count: int = 5, side: int = 13, seed: int = 0) -> np.ndarray:
    """Images made of haematoxylin and eosin, none of it so dense that a byte cannot hold it."""
    random = np.random.default_rng(seed)
    stains = random.uniform(0.05, 0.7, (count, side, side, 3)) * (1, 1, 0.2)
    return np.round(255 * np.exp(-(stains @ rgb_from_hed))).astype(np.uint8)


def stains_of(images: np.ndarray) -> np.ndarray:
    return np.asarray(-np.log(np.maximum(images, 1) / 255.0) @ hed_from_rgb)


def test_blur_is_a_gaussian_of_that_many_pixels() -> None:
    images = stained()
    for sigma in PARAMETERS["blur"][1]:
        by_hand = [gaussian_filter(image.astype(float), (sigma, sigma, 0), mode="nearest") for image in images]
        assert np.abs(blurred(images, sigma).astype(int) - np.round(by_hand)).max() <= 1
    flat = np.full((2, 9, 9, 3), 77, np.uint8)
    assert np.array_equal(blurred(flat, 2.0), flat)  # no dark rim
    before = images.copy()
    blurred(images, 2.0)
    assert np.array_equal(images, before)


def test_each_stain_of_an_image_is_scaled_and_raised_by_one_draw_within_the_range() -> None:
    images, span = stained(40, 17), 0.1
    before, after = stains_of(images), stains_of(stain_varied(images, span, np.random.default_rng(3)))
    found = np.array(
        [[np.polyfit(before[i, ..., s].ravel(), after[i, ..., s].ravel(), 1) for s in range(2)] for i in range(40)]
    )
    scale, offset = found[..., 0] - 1, found[..., 1]
    for drawn in (scale, offset):
        assert np.abs(drawn).max() < span * 1.25  # bytes are rounded
        assert np.abs(drawn).max() > span * 0.8
        assert np.abs(drawn.mean()) < span * 0.25
        assert np.abs(np.corrcoef(drawn.T)[0, 1]) < 0.5  # each stain by itself
    residual = after[..., :2] - (before[..., :2] * found[:, None, None, :, 0] + found[:, None, None, :, 1])
    assert np.abs(residual).max() < 0.15
    assert abs(np.corrcoef(scale.ravel(), offset.ravel())[0, 1]) < 0.4


def test_a_stain_is_scaled_by_the_first_number_and_raised_by_the_second() -> None:
    images = stained()
    none, without, doubled = np.zeros((1, 2, 3)), np.zeros((1, 2, 3)), np.zeros((1, 2, 3))
    without[:, 0], doubled[:, 0, 0] = -1, 1
    assert np.abs(stains_changed(images, none).astype(int) - images).max() <= 1
    assert (stains_changed(images, without) == 255).all()  # glass
    stains = stains_of(images) * (2, 1, 1)
    assert np.abs(stains_changed(images, doubled) - 255 * np.exp(-(stains @ rgb_from_hed))).max() < 1.5


def test_a_variation_of_no_size_changes_nothing_and_a_seed_says_all() -> None:
    images = stained(7)
    images[0] = 255
    assert np.abs(stain_varied(images, 0.0, np.random.default_rng(0)).astype(int) - images).max() <= 1
    shift = StainShift("hed", "strong")
    one, two, other = (shift(images, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_what_is_drawn_does_not_depend_on_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    images, shift = stained(6), StainShift("hed", "light")
    whole = shift(images, np.random.default_rng(5))
    random = np.random.default_rng(5)
    parts = [shift(part, random) for part in (images[:1], images[1:4], images[4:])]
    assert np.array_equal(whole, np.concatenate(parts))
    monkeypatch.setattr("miue.pathology.stain_shifts._PIXELS_AT_ONCE", 1)
    assert np.array_equal(whole, shift(images, np.random.default_rng(5)))


def test_strengths_grow_and_black_and_white_stay_bytes() -> None:
    images = np.concatenate(
        [stained(30), np.zeros((1, 13, 13, 3), np.uint8), np.full((1, 13, 13, 3), 255, np.uint8)]
    )
    for kind in ("blur", "hed"):
        changed = [StainShift(kind, s)(images, np.random.default_rng(0)).astype(float) for s in STRENGTHS]
        sizes = [np.abs(after - images).mean() for after in changed]
        assert 1 < sizes[0] < sizes[1] < sizes[2]
        if kind == "hed":
            assert sizes[1] / sizes[0] == pytest.approx(0.05 / 0.02, rel=0.2)
            assert sizes[2] / sizes[1] == pytest.approx(0.2 / 0.05, rel=0.2)
    assert PARAMETERS["hed"][1][1:] == (0.05, 0.2)  # HED-light and HED-strong
    assert list(ALL_SHIFTS) == [f"{kind}-{strength}" for kind in ("blur", "hed") for strength in STRENGTHS]
    assert ALL_SHIFTS["blur-strong"].parameters == {"sigma_px": 2.0}


def fitted(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Slope and offset of haematoxylin and eosin in each image: (m, 2 stains, 2)."""
    stains = zip(stains_of(before), stains_of(after), strict=True)
    return np.array([[np.polyfit(b[..., s].ravel(), a[..., s].ravel(), 1) for s in range(2)] for b, a in stains])


def test_a_shift_drawn_per_slide_changes_all_its_patches_alike_and_another_slide_otherwise() -> None:
    images, random = stained(12, 17), np.random.default_rng(3)
    shift = StainShift("hed", "strong", drawn_per="slide")
    of_slide = shift.of_slide(random)
    batches = np.concatenate([of_slide(images[:5]), of_slide(images[5:])])
    assert np.array_equal(batches, shift(images, np.random.default_rng(3)))
    one = fitted(images, batches)
    assert one.std(0).max() < 0.02  # bytes are rounded
    per_patch = fitted(images, StainShift("hed", "strong")(images, np.random.default_rng(3)))
    assert per_patch.std(0).min() > 0.05
    assert one[0] == pytest.approx(per_patch[0], abs=0.03)  # the same first draw
    slides = np.array([fitted(images[:1], shift.of_slide(random)(images[:1]))[0] for _ in range(60)])
    for stain in range(2):
        for of, drawn in enumerate((slides[:, stain, 0] - 1, slides[:, stain, 1])):
            assert 0.8 * 0.2 < np.abs(drawn).max() < 1.3 * 0.2, (stain, of)


def test_the_mean_over_a_slide_moves_by_draws_per_slide_and_hardly_by_draws_per_patch() -> None:
    images = stained(100)
    moved = {}
    for drawn_per in ("patch", "slide"):
        shift = StainShift("hed", "strong", drawn_per)
        shifted = [shift(images, np.random.default_rng(seed)).astype(float) for seed in range(20)]
        moved[drawn_per] = np.std([one.mean() for one in shifted])
    assert moved["slide"] > 4 * moved["patch"]


def test_of_a_bag_of_images_a_shift_drawn_per_slide_draws_once() -> None:
    images = stained(8, 17)
    bags = BagDataset.from_arrays([images[:3], images[3:]], [0, 1])
    shifted = shifted_copies(bags, seed=0, shifts={"slides": StainShift("hed", "strong", "slide")})
    after = [shifted.batch([bag]).instances.numpy() for bag in (2, 3)]
    changes = [fitted(before, one) for before, one in zip((images[:3], images[3:]), after, strict=True)]
    assert max(change.std(0).max() for change in changes) < 0.02
    assert np.abs(changes[0].mean(0) - changes[1].mean(0)).max() > 0.05


def test_unknown_shifts_are_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'slide'"):
        StainShift("hed", "strong", "slid")
    with pytest.raises(ConfigError, match="nothing is drawn"):
        StainShift("blur", "strong", "slide")
    with pytest.raises(ConfigError, match="strength 'stron': .* did you mean 'strong'"):
        StainShift("hed", "stron")
    with pytest.raises(ConfigError, match="shift 'nois'"):
        StainShift("nois", "strong")


def test_jpeg_and_noise_change_pixels_more_the_stronger_they_are_and_are_repeatable() -> None:
    images = stained(4, 32)
    for kind in ("jpeg", "noise"):
        changed = [StainShift(kind, strength)(images, np.random.default_rng(0)) for strength in STRENGTHS]
        errors = [np.abs(one.astype(int) - images).mean() for one in changed]
        assert 0 < errors[0] < errors[1] < errors[2]
        assert all(one.dtype == np.uint8 for one in changed)
        again = StainShift(kind, "strong")(images, np.random.default_rng(0))
        assert np.array_equal(again, changed[2])
        with pytest.raises(ConfigError, match=f"the shift '{kind}'"):
            StainShift(kind, "strong", "slide")


def test_noise_has_the_stated_deviation_and_is_independent_between_pixels() -> None:
    images = np.full((2, 64, 64, 3), 128, np.uint8)
    gaps = StainShift("noise", "strong")(images, np.random.default_rng(0)).astype(float) - 128
    assert gaps.std() == pytest.approx(16, rel=0.03)
    assert abs(np.corrcoef(gaps[..., 0].ravel(), gaps[..., 1].ravel())[0, 1]) < 0.05
