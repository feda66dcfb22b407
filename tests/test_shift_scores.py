"""Scores of looks, typicality, density and logits, and their combination, against other libraries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run
from scipy.ndimage import convolve
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

import miue
from miue.bags import BagDataset, Segments, count_statistics, image_statistics
from miue.common.errors import DataError
from miue.datasets.digits import digits_bags
from miue.model.feature_scores import DistanceScores
from miue.scores import (
    ClassDensity,
    Combined,
    Energy,
    ImageStatistics,
    InstanceViews,
    NearestNeighbors,
    Typicality,
    VirtualLogit,
    bag_distances,
)
from miue.scores.whitening import fit_whitening, floors_of, typical_rounding

SETTINGS = {"max_epochs": 2, "seed": 1}
GENERATOR = torch.Generator().manual_seed(1)


def images_of(count: int, side: int = 11, channels: int = 3, seed: int = 0) -> np.ndarray:
    """Smooth random images whose channels are correlated."""
    random = np.random.default_rng(seed)
    grey = random.normal(0, 40, (count, side, side, 1)) + random.normal(0, 15, (count, side, side, channels))
    smooth = np.stack([convolve(image, np.ones((3, 3, 1)) / 9, mode="nearest") for image in grey])
    return np.clip(np.round(128 + smooth), 0, 255).astype(np.uint8)


def expected_statistics(image: np.ndarray) -> list[float]:
    """The same numbers by SciPy's convolutions in float64."""
    channels = [image[..., c].astype(float) for c in range(image.shape[2])]
    laplacian = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]])
    numbers = [np.log((convolve(x, laplacian, mode="nearest") ** 2).mean() + 1 / 12) for x in channels]
    smooth = channels
    for dilation in (1, 2, 4):
        line = np.zeros(2 * dilation + 1)
        line[[0, dilation, -1]] = 0.25, 0.5, 0.25
        smoother = [convolve(x, np.outer(line, line), mode="nearest") for x in smooth]
        bands = [x - y for x, y in zip(smooth, smoother, strict=True)]
        energies = [(band**2).mean() + 1 / 12 for band in bands]
        numbers += np.log(energies).tolist()
        for a in range(len(bands)):
            for b in range(a + 1, len(bands)):
                numbers.append(np.arctanh((bands[a] * bands[b]).mean() / np.sqrt(energies[a] * energies[b])))
        smooth = smoother
    densities = [-np.log(np.maximum(x, 1) / 255) for x in channels]
    numbers += [density.mean() for density in densities]
    return numbers + [np.log(density.var() + 1 / 12 / 255**2) / 2 for density in densities]


@pytest.mark.parametrize(("channels", "count"), [(1, 6), (3, 27)])
def test_image_statistics_equal_those_of_scipys_convolutions(channels: int, count: int) -> None:
    images = images_of(5, side=13, channels=channels)
    images[:, :3, :2] = 0  # black, whose density is that of 1
    statistics = image_statistics(torch.from_numpy(images))
    assert statistics.shape == (5, count)
    assert count_statistics(channels) == count
    np.testing.assert_allclose(statistics, [expected_statistics(image) for image in images], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("value", [0, 255])
@pytest.mark.parametrize("shape", [(1, 1, 3), (7, 5, 1)])
def test_images_of_one_color_and_of_one_pixel_have_finite_statistics(value: int, shape: tuple[int, ...]) -> None:
    images = torch.full((2, *shape), value, dtype=torch.uint8)
    assert image_statistics(images).isfinite().all()


def test_statistics_rise_for_blurred_as_for_sharpened_images_and_not_for_turned_ones() -> None:
    training, new = (torch.from_numpy(images_of(61, seed=seed)) for seed in (0, 1))
    score = ImageStatistics.fit(image_statistics(training), None, generator=GENERATOR)
    blurred = torch.from_numpy(convolve(new.numpy(), np.ones((1, 3, 3, 1)) / 9, mode="nearest"))
    sharp = torch.from_numpy(np.random.default_rng(2).integers(0, 255, new.shape, np.uint8))
    usual = score.score(image_statistics(new))
    for changed in (blurred, sharp):
        assert score.score(image_statistics(changed)).min() > usual.max()
    torch.testing.assert_close(score.score(image_statistics(new.rot90(1, (1, 2)))), usual, rtol=1e-2, atol=1e-2)


def test_grey_images_stored_in_three_equal_channels_are_told_from_colored_ones() -> None:
    grey = torch.from_numpy(images_of(61, channels=1)).repeat(1, 1, 1, 3)
    score = ImageStatistics.fit(image_statistics(grey), None, generator=GENERATOR)
    within = score.score(image_statistics(grey))
    assert within.max() < 100 < score.score(image_statistics(torch.from_numpy(images_of(7, seed=3)))).min()


@pytest.mark.parametrize("apart", [1.0, 0.01])
def test_the_distance_of_statistics_is_that_of_sklearns_shrunk_covariance_of_standardized_columns(
    apart: float,
) -> None:
    rows = torch.randn(2_011, 5, dtype=torch.float64) @ torch.randn(5, 5, dtype=torch.float64) + 3
    rows[:, 4] = apart * rows[:, 4] + rows[:, 3]  # 0.01: columns that are nearly the same
    standardized = ((rows - rows.mean(0)) / rows.std(0, correction=0)).numpy()
    expected = np.sqrt(LedoitWolf(assume_centered=True).fit(standardized).mahalanobis(standardized))
    score = ImageStatistics.fit(rows, None, generator=GENERATOR)
    np.testing.assert_allclose(score.score(rows), expected, rtol=1e-9)


def test_what_does_not_vary_but_by_rounding_makes_no_distance() -> None:
    """Columns that are equal leave a direction without variance, and one of them a column without any."""
    rows = torch.tensor([[1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64).repeat(50, 1)  # nothing to shrink
    mean, whitening = fit_whitening(rows)
    torch.testing.assert_close(
        torch.linalg.vector_norm((rows - mean) @ whitening, dim=1), torch.ones(100).double()
    )
    rounding = torch.tensor([[1e-7, -1e-7]], dtype=torch.float64)
    assert torch.linalg.vector_norm(rounding @ whitening) < 1e-3
    random = torch.Generator().manual_seed(0)
    usual, noise = torch.randn(2, 500, dtype=torch.float64, generator=random)
    mean, whitening = fit_whitening(torch.stack([usual, 1e-6 * noise - 20], 1))  # float32 rounds −20 to 2e-6
    assert torch.linalg.vector_norm(torch.tensor([[0.0, 1e-5]]).double() @ whitening) < 0.1


def test_typicality_of_new_instances_is_about_that_of_four_standard_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    training, new = torch.randn(600, 6, generator=generator), torch.randn(2000, 6, generator=generator)
    score = miue.scores.DISTANCES["typicality"].fit(training, None, generator=generator)
    assert 3.2 < float(score.score(new).square().mean()) < 4.5  # its points are not among those it is fitted to


@pytest.mark.parametrize("varying", [7, 2])
def test_typicality_is_the_mahalanobis_distance_of_the_logs_of_four_numbers(varying: int) -> None:
    """By scikit-learn, of features with components of very different variances."""
    random, seed = np.random.default_rng(4), 5
    training, new = (random.normal(size=(count, 7)) * 3.0 ** -np.arange(7) + 0.5 for count in (400, 50))
    training[:, varying:] = new[:, varying:] = 0.5  # of two directions, fewer than half of seven
    score = Typicality.fit(torch.from_numpy(training), None, generator=torch.Generator().manual_seed(seed))
    order = torch.randperm(400, generator=torch.Generator().manual_seed(seed)).numpy()
    stored, others = training[order[:200]], training[order[200:]]
    components = PCA(min(3, varying)).fit(training)

    def numbers(rows: np.ndarray) -> np.ndarray:
        inside = components.transform(rows)
        return np.stack(
            [
                np.sort(cdist(rows, stored), 1)[:, :10].mean(1),
                np.linalg.norm(rows - components.inverse_transform(inside), axis=1),
                np.linalg.norm(inside / inside_deviation, axis=1),
                np.linalg.norm(rows, axis=1),
            ],
            1,
        )

    inside_deviation = components.transform(training).std(0)
    floors = np.array([0, 1e-5 * np.sqrt((others**2).sum(1).mean()), 0, 0])
    usual = np.log(np.maximum(numbers(others), floors))
    standardize = StandardScaler().fit(usual)
    shrunk = LedoitWolf(assume_centered=True).fit(standardize.transform(usual))
    asked = standardize.transform(np.maximum(np.log(np.maximum(numbers(new), floors)), usual.min(0)))
    np.testing.assert_allclose(score.score(torch.from_numpy(new)), np.sqrt(shrunk.mahalanobis(asked)), rtol=1e-6)


def test_points_are_those_of_the_neighbors_up_to_rounding_alone() -> None:
    features = 1e3 * torch.randn(23, 5, generator=torch.Generator().manual_seed(2))
    typicality, neighbors = (
        score.fit(features, None, generator=torch.Generator().manual_seed(1))
        for score in (Typicality, NearestNeighbors)
    )
    assert isinstance(typicality, Typicality) and isinstance(neighbors, NearestNeighbors)
    assert typicality.points_are_first_of(neighbors)
    points = neighbors.points.clone()
    for error, same in ((1e-14, True), (1e-9, False)):
        neighbors.points = points * (1 + error)
        assert typicality.points_are_first_of(neighbors) is same
    neighbors.points = points[: len(typicality.points) - 1]
    assert not typicality.points_are_first_of(neighbors)
    neighbors.points = points + 1e-3
    assert not typicality.points_are_first_of(neighbors)
    neighbors.points = points
    for name in ("mean", "components"):
        fitted = neighbors.get_buffer(name)
        setattr(neighbors, name, fitted + 1e-3)
        assert not typicality.points_are_first_of(neighbors)
        setattr(neighbors, name, fitted)
    assert typicality.points_are_first_of(neighbors)


def test_typicality_sees_features_that_are_nearer_than_usual_where_the_neighbors_do_not() -> None:
    training, new = (torch.randn(400, 17, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    near = 0.3 * new
    scores = {
        name: miue.scores.DISTANCES[name].fit(training, None, generator=GENERATOR)
        for name in ("knn", "typicality")
    }

    def auroc(name: str) -> float:
        values = torch.cat([scores[name].score(new), scores[name].score(near)])
        return float(roc_auc_score([0] * len(new) + [1] * len(near), values))

    assert auroc("knn") < 0.1
    assert auroc("typicality") > 0.95


@pytest.mark.parametrize("width", [1, 2, 3, 130])
def test_typicality_of_any_width_and_of_repeated_instances_is_finite(width: int) -> None:
    training = torch.randn(23, width).repeat(3, 1)
    score = Typicality.fit(training, None, generator=GENERATOR)
    assert score.score(torch.cat([training, torch.zeros(1, width), 100 + training[:1]])).isfinite().all()


def test_typicality_takes_at_least_four_instances() -> None:
    assert Typicality.fit(torch.randn(4, 3), None, generator=GENERATOR).score(torch.randn(7, 3)).isfinite().all()
    with pytest.raises(DataError, match="got 3;"):
        Typicality.fit(torch.randn(3, 3), None, generator=GENERATOR)


def test_typicality_does_not_see_rounding_between_copies_of_long_features() -> None:
    rows = torch.randn(600, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[:200] = 0.4
    copies = [
        (rows + 5000) * (1 + 2e-7 * torch.randn(600, 20, generator=torch.Generator().manual_seed(seed)))
        for seed in (1, 2)
    ]
    score = Typicality.fit(copies[0], None, generator=GENERATOR)
    torch.testing.assert_close(score.score(copies[1])[:200], score.score(copies[0])[:200], rtol=0, atol=5e-3)


def test_what_is_less_than_a_ten_thousandth_of_the_usual_score_counts_as_rounding() -> None:
    scores = torch.rand(61, 2, dtype=torch.float64) + torch.tensor([0.0, 5.0])
    scores[7] = torch.tensor([1e-9, 0.3])
    limits = 1e-4 * np.sqrt((scores.numpy() ** 2).mean(0))
    np.testing.assert_allclose(typical_rounding(scores), limits)
    np.testing.assert_allclose(floors_of(scores), [limits[0], 0.3])


@pytest.mark.parametrize("offset", [0.0, 50.0])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_rounding_of_instances_that_are_there_often_is_not_seen(share: float, offset: float) -> None:
    """As of empty patches, whose features differ in the last digits with the batch they were computed in."""

    def features(seed: int) -> torch.Tensor:
        random = torch.Generator().manual_seed(seed)
        rows = torch.randn(600, 20, generator=random)
        rows[torch.rand(600, generator=random) < share] = 0.4
        return rows + offset

    def rounded(rows: torch.Tensor, seed: int) -> torch.Tensor:
        noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed))
        return rows * (1 + 2e-7 * noise)

    typicality = Typicality.fit(rounded(features(0), 1), None, generator=GENERATOR)
    knn = NearestNeighbors.fit(rounded(features(0), 1), None, generator=GENERATOR)

    def both(rows: torch.Tensor) -> torch.Tensor:
        return torch.stack([typicality.score(rows), knn.score(rows)], 1)

    combined, segments = (
        Combined.fit_bags(both(rounded(features(2), 3)), Segments.of(*[20] * 30)),
        Segments.of(600),
    )
    first, second = both(rounded(features(4), 5)), both(rounded(features(4), 6))
    torch.testing.assert_close(second[:, 0], first[:, 0], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(combined.score(second), combined.score(first), rtol=1e-3, atol=2e-3)
    for kind, values in combined.score_bags(first, segments).items():
        torch.testing.assert_close(combined.score_bags(second, segments)[kind], values, rtol=1e-3, atol=2e-3)


@pytest.mark.long
def test_a_bag_of_repeated_instances_has_the_same_scores_beside_other_bags() -> None:
    random = np.random.default_rng(0)

    def bags(count: int) -> BagDataset:
        arrays = [
            random.normal(size=(random.integers(5, 30), 32)).astype(np.float32) + (i % 2) for i in range(count)
        ]
        for array in arrays:
            array[random.random(len(array)) < 0.3] = 0.5
        return BagDataset.from_arrays(arrays, np.arange(count) % 2)

    model = miue.train(bags(60), settings={**SETTINGS, "learning_rate": 1e-3, "device": "cpu"}, progress=False)
    new = bags(40)
    together, alone = model.predict(new), [model.predict(new.subset([row])) for row in range(40)]
    assert {"typicality_mean", "combined_mean", "combined_high"} <= set(together.bags.scores)
    for name, values in together.bags.scores.items():
        own = [float(one.bags.scores[name][0]) for one in alone]
        np.testing.assert_allclose(own, values, rtol=2e-3, atol=2e-3, err_msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_of_features_of_length_one_is_no_variance_of_their_norm(dtype: torch.dtype) -> None:
    rows = torch.nn.functional.normalize(torch.from_numpy(np.random.default_rng(0).normal(size=(300, 7))), dim=1)
    score = Typicality.fit(rows.to(dtype), None, generator=GENERATOR)
    usual = score.score(rows.to(dtype))
    longer = score.score((1.0001 * rows).to(dtype))  # what another normalization or a half precision changes
    np.testing.assert_allclose(longer, usual, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("count", [12, 33, 60])
def test_typicality_of_fewer_instances_than_components_is_not_measured_in_rounding(count: int) -> None:
    """Whitened by their own covariance, they are all equally far from their mean, but for rounding."""
    random = torch.Generator().manual_seed(3)
    training, new = torch.randn(count, 130, generator=random), torch.randn(50, 130, generator=random)
    score = Typicality.fit(training, None, generator=torch.Generator().manual_seed(1))
    assert score.score(new).max() < 100


def test_the_class_density_is_that_of_scipys_mixture() -> None:
    labels = torch.arange(211) % 3
    mix = torch.randn(5, 5, dtype=torch.float64)  # correlated: uncorrelated features are shrunk to a diagonal
    training = torch.randn(211, 5, dtype=torch.float64) @ mix + 2 * labels.unsqueeze(1)
    unseen = torch.randn(31, 5, dtype=torch.float64) @ mix
    logs = []
    for label in range(3):
        rows = training[labels == label].numpy()
        covariance = LedoitWolf().fit(rows).covariance_
        logs.append(multivariate_normal(rows.mean(0), covariance).logpdf(unseen) + np.log(len(rows) / 211))
    score = ClassDensity.fit(training, labels, generator=GENERATOR)
    np.testing.assert_allclose(score.score(unseen), -logsumexp(logs, axis=0), rtol=1e-9)
    with pytest.raises(DataError, match="'ddu': expected the label"):
        ClassDensity.fit(training, None, generator=GENERATOR)


@pytest.mark.parametrize("offset", [3, -3])
def test_vim_adds_the_scaled_residual_to_the_energy(offset: int) -> None:
    features, logits = torch.randn(211, 17, dtype=torch.float64), torch.randn(211, 2, dtype=torch.float64) + offset
    energy, largest = -logsumexp(logits.numpy(), axis=1), logits.numpy().max(1)
    views = InstanceViews(features, None, lambda: logits)
    rows, two = views.read(VirtualLogit.reads), views.read(Energy.reads)
    pca = PCA(8, svd_solver="full").fit(features.numpy())
    residual = np.linalg.norm(features.numpy() - pca.inverse_transform(pca.transform(features.numpy())), axis=1)
    expected = abs(largest.mean()) / residual.mean() * residual + energy
    np.testing.assert_allclose(VirtualLogit.fit(rows, None, generator=GENERATOR).score(rows), expected, rtol=1e-9)
    np.testing.assert_allclose(Energy.fit(two, None, generator=GENERATOR).score(two), energy)
    for kind, single in ((VirtualLogit, rows.float()), (Energy, two.float())):
        of_single, of_double = (kind.fit(given, None, generator=GENERATOR) for given in (single, single.double()))
        for name, fitted in of_double.state_dict().items():
            assert fitted.dtype == torch.float64
            torch.testing.assert_close(of_single.get_buffer(name), fitted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vim_of_features_without_residual_is_the_energy(dtype: torch.dtype, scale: float) -> None:
    random = np.random.default_rng(0)
    encoded = scale * random.normal(size=(60, 3)) @ random.normal(size=(3, 11))  # three of at most five components
    rows = torch.from_numpy(np.hstack([encoded, random.normal(size=(60, 2))])).to(dtype)
    score = VirtualLogit.fit(rows, None, generator=GENERATOR)
    np.testing.assert_array_equal(score.score(rows), rows[:, -2].double())
    moved = rows + 0.1
    np.testing.assert_array_equal(score.score(moved), moved[:, -2].double())


def test_vim_keeps_a_residual_that_is_small_and_no_rounding() -> None:
    random = np.random.default_rng(0)
    encoded = random.normal(size=(60, 3)) @ random.normal(size=(3, 11)) + 1e-5 * random.normal(size=(60, 11))
    rows = torch.from_numpy(np.hstack([encoded, random.normal(size=(60, 2))]))
    score = VirtualLogit.fit(rows, None, generator=GENERATOR).score(rows) - rows[:, -2]
    assert float(score.mean()) == pytest.approx(abs(float(rows[:, -1].mean())))


def test_the_combination_is_standardized_at_each_level_and_counts_what_is_higher_than_usual_alone() -> None:
    sizes = [1, 7, 31, 2, 1, 13]
    scores, segments = torch.rand(55, 2, dtype=torch.float64) + 0.1, Segments.of(*sizes)
    score = Combined.fit_bags(scores, segments)
    z = (scores.log() - scores.log().mean(0)) / scores.log().std(0, correction=0)
    torch.testing.assert_close(score.score(scores), z.clamp(min=0).square().sum(1).sqrt())
    for kind, values in score.score_bags(scores, segments).items():
        logs = torch.stack([bag_distances(column, segments)[kind] for column in scores.T], 1).log()
        z = (logs - logs.mean(0)) / logs.std(0, correction=0)
        torch.testing.assert_close(values, z.clamp(min=0).square().sum(1).sqrt())
    assert not score.score(torch.full((3, 2), 1e-9, dtype=torch.float64)).any()
    single = scores.float()
    of_single, of_double = (Combined.fit(given, None, generator=GENERATOR) for given in (single, single.double()))
    for name, fitted in of_double.state_dict().items():
        torch.testing.assert_close(of_single.get_buffer(name), fitted, rtol=1e-12, atol=1e-12)
    alone = Combined.fit(scores, None, generator=GENERATOR)  # each instance as a bag
    torch.testing.assert_close(alone.score(scores), score.score(scores))
    assert isinstance(alone, Combined)
    for values in alone.score_bags(scores, Segments.of(*[1] * 55)).values():
        torch.testing.assert_close(values, score.score(scores))


def test_the_combination_takes_zero_as_the_smallest_score_of_its_level() -> None:
    scores, segments = torch.rand(55, 2, dtype=torch.float64) + 0.1, Segments.of(1, 7, 31, 2, 1, 13)
    scores[:8] = scores[9:39] = 0.0  # two bags of zeros; the third has one instance that is not, and a small mean
    score = Combined.fit_bags(scores, segments)
    new = 3 * torch.rand(55, 2, dtype=torch.float64)
    for kind, values in score.score_bags(new, segments).items():
        usual, asked = (
            np.stack([bag_distances(column, segments)[kind].numpy() for column in rows.T], 1)
            for rows in (scores, new)
        )
        logs = np.log(np.where(usual > 0, usual, [column[column > 0].min() for column in usual.T]))
        z = (np.log(asked) - logs.mean(0)) / logs.std(0)
        np.testing.assert_allclose(values, np.linalg.norm(np.maximum(z, 0), axis=1))


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_a_combination_fitted_to_ties_or_to_one_bag_is_finite(value: float) -> None:
    score = Combined.fit_bags(torch.full((3, 2), value, dtype=torch.float64), Segments.of(3))
    new = torch.tensor([[0.0, 0.0], [5.0, 1.0]], dtype=torch.float64)
    assert score.score(new).isfinite().all()
    assert all(values.isfinite().all() for values in score.score_bags(new, Segments.of(2)).values())


def test_a_model_of_images_carries_every_score_and_predicts_the_same_after_saving(tmp_path: Path) -> None:
    bags = digits_bags(splits=["train", "validation"], sizes={"train": 10, "validation": 4})
    model = miue.train(
        bags.split("train"),
        validation=bags.split("validation"),
        encoder="compact",
        settings={**SETTINGS, "distances": ("combined", "typicality", "vim", "energy", "ddu"), "device": "cpu"},
        progress=False,
    )
    assert list(model.distances) == ["knn", "statistics", "typicality", "vim", "energy", "ddu", "combined"]
    model.save(tmp_path / "model")
    first, second = (m.predict(bags) for m in (model, miue.Model.load(tmp_path / "model")))
    assert {name.rsplit("_", 1)[0] for name in first.bags.scores} == set(model.distances)
    for name, values in first.bags.scores.items():
        np.testing.assert_allclose(second.bags.scores[name], values, rtol=1e-6, atol=1e-9)
        assert np.isfinite(values).all()


def test_features_without_images_are_combined_from_typicality_and_refused_statistics(bags: BagDataset) -> None:
    model = miue.train(bags, settings={**SETTINGS, "distances": ("combined",), "device": "cpu"}, progress=False)
    assert list(model.distances) == ["knn", "typicality", "combined"]
    assert np.isfinite(model.predict(bags).bags.scores["combined_mean"]).all()
    with pytest.raises(DataError, match="'statistics': expected images of bytes, or features with the statistics"):
        miue.train(bags, settings={**SETTINGS, "distances": ("statistics",), "device": "cpu"}, progress=False)
    images = [np.random.default_rng(i).random((2, 8, 8), np.float32) for i in range(8)]
    with pytest.raises(DataError, match=r"got float32 of shape .*; give the images as bytes \(uint8\), or train"):
        miue.train(
            images,
            [0, 1] * 4,
            settings={**SETTINGS, "distances": ("statistics",), "device": "cpu"},
            progress=False,
        )


@pytest.mark.parametrize("seeds", [[], ["--seeds", "1,2"]])
def test_a_distance_of_statistics_that_are_not_there_is_refused_before_anything_is_trained(
    seeds: list[str], bags: BagDataset, tmp_path: Path
) -> None:
    miue.write_store(tmp_path / "store", bags)
    words = ["train", tmp_path / "store", "--out", tmp_path / "run", "--quiet", "--set", "max_epochs=1"]
    said = run(*words, "--distance", "knn,statistics", *seeds, code=2)
    assert "distance 'statistics': expected images of bytes" in said
    assert not (tmp_path / "run").exists()


def test_neighbors_are_searched_once_for_typicality_and_knn_with_the_digits_of_two_searches(
    bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = miue.train(bags, settings={**SETTINGS, "distances": ("combined",), "device": "cpu"}, progress=False)
    features = torch.randn(1100, model.distances["knn"].width, generator=torch.Generator().manual_seed(5))
    views = InstanceViews(features, None, lambda: torch.zeros(1100, 2))
    apart = {name: model.distances[name].score(features) for name in ("knn", "typicality")}
    searches: list[tuple[int, ...]] = []
    search = NearestNeighbors.search

    def counted(self: NearestNeighbors, rows: torch.Tensor, counts: tuple[int, ...]) -> list[torch.Tensor]:
        searches.append(tuple(counts))
        return search(self, rows, counts)

    monkeypatch.setattr(NearestNeighbors, "search", counted)
    scores = DistanceScores(model.distances).of_instances(views)
    assert len(searches) == 3  # chunks of 512 instances
    assert list(scores) == ["knn", "typicality", "combined"]
    for name, values in apart.items():
        torch.testing.assert_close(scores[name], values, rtol=1e-12, atol=0)
    other = Typicality.fit(features, None, generator=torch.Generator().manual_seed(6))
    searches.clear()
    mixed = DistanceScores({"knn": model.distances["knn"], "typicality": other}).of_instances(views)
    assert len(searches) == 6  # fitted to other instances: each searches for itself
    assert torch.equal(mixed["typicality"], other.score(features))
    assert torch.equal(mixed["knn"], apart["knn"])
