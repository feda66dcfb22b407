"""Distances to the training features against scipy and scikit-learn, and their bags against a loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from scipy.spatial.distance import cdist
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors as Neighbours
from torch import Tensor

import miue.scores.base as base
import miue.scores.nearest_neighbors as nearest_neighbors
from miue.bags import Segments
from miue.common.errors import DataError, ModelError
from miue.scores import (
    DISTANCES,
    ClassConditionalMahalanobis,
    ClassDensity,
    FeatureDistance,
    Mahalanobis,
    NearestNeighbors,
    Reconstruction,
    Typicality,
    bag_distances,
)

LABELS = torch.tensor([0, 2, 5])  # bag labels need not be consecutive
OF_FEATURES = {name: kind for name, kind in DISTANCES.items() if kind.reads == "features"}
every_distance = pytest.mark.parametrize("distance", OF_FEATURES.values(), ids=OF_FEATURES)


def features_of(count: int, width: int, *, seed: int = 0, offset: float = 0.0) -> Tensor:
    """Correlated features of different scale per direction, in float64."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(width, width, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    return torch.randn(count, width, generator=generator, dtype=torch.float64) @ mix + offset


def labels_of(count: int) -> Tensor:
    return LABELS[torch.arange(count) % len(LABELS)]


def fitted(distance: type[FeatureDistance], training: Tensor, seed: int = 1) -> FeatureDistance:
    generator = torch.Generator().manual_seed(seed)
    return distance.fit(training, labels_of(len(training)), generator=generator)


def assert_equals(scores: Tensor, expected: np.ndarray) -> None:
    torch.testing.assert_close(scores, torch.from_numpy(expected), rtol=1e-9, atol=1e-9)


def test_the_nearest_neighbors_are_those_of_sklearn_in_sklearns_components() -> None:
    training, unseen = features_of(211, 97), features_of(31, 97, seed=7)
    pca = PCA(64, svd_solver="full").fit(training)
    neighbours = Neighbours(n_neighbors=10).fit(pca.transform(training))
    expected = neighbours.kneighbors(pca.transform(unseen))[0].mean(1)
    assert_equals(fitted(NearestNeighbors, training).score(unseen), expected)


@pytest.mark.parametrize("count", [2, 3, 7, 11, 61])
def test_narrow_features_keep_their_distances_and_few_neighbours_are_all_averaged(count: int) -> None:
    training = features_of(count, 5)
    expected = np.sort(cdist(training, training), axis=1)[:, :10].mean(1)
    assert_equals(fitted(NearestNeighbors, training).score(training), expected)


def test_an_instance_equal_to_the_stored_ones_is_at_distance_zero() -> None:
    instances = 1e3 * features_of(7, 5)
    score = fitted(NearestNeighbors, instances.repeat(11, 1))
    assert float(score.score(instances).max()) < 1e-10
    points = score.get_buffer("points")
    lengths = points.square().sum(1)
    naive = (lengths.unsqueeze(1) + lengths - 2 * points @ points.T).clamp(min=0).sqrt()
    assert float(naive.sort(1).values[:, :10].mean(1).max()) > 1e-6  # the naive form fails


def groups_of(count: int, apart: float, wide: float, seed: int = 0) -> Tensor:
    """Features in groups, as float32."""
    random = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(5, 32)) * apart
    return torch.from_numpy(
        centers[random.integers(5, size=count)] + wide * random.normal(size=(count, 32))
    ).float()


NEAREST = {
    "usual": (groups_of(1500, 0, 1), groups_of(70, 0, 1, seed=7)),
    "groups": (groups_of(1500, 100, 0.1), groups_of(70, 100, 0.1, seed=7)),
    "narrow groups": (groups_of(1500, 100, 0.01), groups_of(70, 100, 0.01, seed=7)),
    "very narrow groups": (groups_of(1500, 1000, 1e-3).double(), groups_of(70, 1000, 1e-3, seed=7).double()),
    "narrower than float32": (
        groups_of(1500, 100, 0).double() + 1e-7 * groups_of(1500, 0, 1).double(),
        groups_of(70, 100, 0, seed=7).double() + 1e-7 * groups_of(70, 0, 1, seed=7).double(),
    ),
    "huge": (groups_of(1500, 0, 1e20), groups_of(70, 0, 1e20, seed=7)),
    "huge and few": (groups_of(33, 0, 1e20), groups_of(70, 0, 1e20, seed=7)),
    "few": (groups_of(12, 100, 0.01), groups_of(70, 100, 0.01, seed=7)),
    "huge and usual": (
        torch.cat([groups_of(1500, 0, 1), groups_of(20, 0, 1e20)]),
        torch.cat([groups_of(35, 0, 1, seed=7), groups_of(35, 0, 1e20, seed=7)]),
    ),
    "tiny": (groups_of(1500, 0, 1e-22), groups_of(70, 0, 1e-22, seed=7)),
    "far away": (groups_of(1500, 0, 1), groups_of(70, 0, 1, seed=7) + 1e7),
    "duplicates": (groups_of(50, 100, 1).repeat(30, 1), torch.cat([groups_of(50, 100, 1), groups_of(20, 100, 1)])),
    "near duplicates": (groups_of(50, 100, 1).repeat(30, 1), groups_of(70, 100, 1, seed=7)),
}


@pytest.mark.parametrize("case", NEAREST)
def test_no_nearest_neighbor_is_hidden_by_rounding(case: str) -> None:
    training, unseen = NEAREST[case]
    score = fitted(NearestNeighbors, training)
    assert isinstance(score, NearestNeighbors)
    projected = (unseen.double() - score.mean) @ score.components
    gaps = cdist(projected, score.points)
    expected = np.sort(gaps, 1)[:, :10].mean(1)
    smallest = 1e-14 * gaps.max()  # as far as projections are exact
    np.testing.assert_allclose(score.score(unseen), expected, rtol=1e-6, atol=smallest)
    for count in (1, 5, 12, 20, len(score.points)):
        (among,) = score.search(unseen[:9].double(), (min(count, len(score.points)),))
        np.testing.assert_allclose(among, np.sort(gaps[:9, :count], 1)[:, :10].mean(1), rtol=1e-6, atol=smallest)


def test_nearest_neighbors_are_found_where_products_are_rounded_to_half_the_digits() -> None:
    training, unseen = NEAREST["usual"]
    score = fitted(NearestNeighbors, training)
    expected = score.score(unseen)
    asked = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        torch.testing.assert_close(score.score(unseen), expected, rtol=1e-6, atol=0)
    finally:
        torch.set_float32_matmul_precision(asked)


def test_at_most_the_bound_is_stored_and_each_point_is_a_training_instance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nearest_neighbors, "STORED", 53)
    training = features_of(211, 5)
    score = fitted(NearestNeighbors, training)
    assert isinstance(score, NearestNeighbors)
    assert score.points.shape == (53, 5)
    gaps = torch.cdist(score.points, (training - score.mean) @ score.components).sort(1).values
    assert gaps[:, 0].max() < 1e-6 < gaps[:, 1].min()
    assert len(torch.unique(score.points, dim=0)) == 53


def test_no_more_than_the_bound_instances_are_stored() -> None:
    assert len(fitted(NearestNeighbors, torch.randn(4_099, 2)).get_buffer("points")) == 4_096
    assert len(fitted(Typicality, torch.randn(2_050, 2)).get_buffer("points")) == 1_024


def test_the_seed_alone_decides_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_neighbors, "STORED", 53)
    training = features_of(211, 5)
    for distance in OF_FEATURES.values():
        first, second = fitted(distance, training).state_dict(), fitted(distance, training).state_dict()
        assert all(torch.equal(first[name], second[name]) for name in distance.state_names)
    one, other = fitted(NearestNeighbors, training), fitted(NearestNeighbors, training, seed=2)
    assert not torch.equal(one.get_buffer("points"), other.get_buffer("points"))


@pytest.mark.parametrize("count", [13, 211])
def test_mahalanobis_is_that_of_sklearns_shrunk_covariance(count: int) -> None:
    training, unseen = features_of(count, 17, offset=3.0), features_of(31, 17, seed=7)
    expected = np.sqrt(LedoitWolf().fit(training.numpy()).mahalanobis(unseen.numpy()))
    assert_equals(fitted(Mahalanobis, training).score(unseen), expected)


def test_the_class_conditional_distance_is_to_the_nearest_class_in_one_shared_covariance() -> None:
    labels = labels_of(211)
    training = features_of(211, 17) + 5 * labels.unsqueeze(1)
    unseen = features_of(31, 17, seed=7) + 5 * labels_of(31).unsqueeze(1)
    means = np.stack([training[labels == label].mean(0).numpy() for label in LABELS])
    centred = training.numpy() - means[np.searchsorted(LABELS.numpy(), labels.numpy())]
    precision = np.linalg.inv(LedoitWolf(assume_centered=True).fit(centred).covariance_)
    expected = cdist(unseen, means, "mahalanobis", VI=precision)
    assert set(expected.argmin(1)) == {0, 1, 2}
    assert_equals(fitted(ClassConditionalMahalanobis, training).score(unseen), expected.min(1))


def test_an_instance_close_to_the_mean_of_a_distant_class_keeps_its_small_distance() -> None:
    labels = labels_of(211)
    score = fitted(ClassConditionalMahalanobis, features_of(211, 17) + 1e3 * labels.unsqueeze(1))
    means, factor = score.get_buffer("means"), score.get_buffer("factor")
    steps = 1e-5 * features_of(3, 17, seed=7)
    expected = torch.linalg.vector_norm(torch.linalg.solve_triangular(factor, steps.T, upper=False), dim=0)
    torch.testing.assert_close(score.score(means + steps), expected, rtol=1e-4, atol=0)
    near, centres = (torch.linalg.solve_triangular(factor, h.T, upper=False).T for h in (means + steps, means))
    naive = torch.cdist(near, centres, compute_mode="use_mm_for_euclid_dist").amin(1)
    assert float((naive / expected - 1).abs().max()) > 0.01


def test_with_one_bag_label_the_class_conditional_distance_is_the_plain_one(generator: torch.Generator) -> None:
    training, unseen = features_of(61, 5), features_of(31, 5, seed=7)
    labels = torch.full((61,), 3)
    conditional = ClassConditionalMahalanobis.fit(training, labels, generator=generator)
    plain = Mahalanobis.fit(training, None, generator=generator)
    torch.testing.assert_close(conditional.score(unseen), plain.score(unseen))


@pytest.mark.parametrize(("width", "components"), [(151, 64), (128, 64), (11, 5), (1, 0)])
def test_the_reconstruction_error_is_the_residual_of_sklearns_components(width: int, components: int) -> None:
    training, unseen = features_of(211, width, offset=3.0), features_of(31, width, seed=7)
    pca = PCA(components, svd_solver="full").fit(training)
    residual = unseen.numpy() - pca.mean_
    if components:
        residual = unseen.numpy() - pca.inverse_transform(pca.transform(unseen))
    expected = np.linalg.norm(residual, axis=1)
    assert_equals(fitted(Reconstruction, training).score(unseen), expected)


def test_directions_in_which_training_features_do_not_vary_are_no_components() -> None:
    varying = features_of(61, 3) * torch.tensor([1.0, 1.0, 1e-5])  # little, but more than rounding
    training = torch.cat([varying, torch.full((61, 8), 0.1, dtype=torch.float64)], 1)
    moved = training.clone()
    moved[:, 7] += 2.0
    score = fitted(Reconstruction, training)
    assert score.get_buffer("components").shape == (11, 3)
    torch.testing.assert_close(score.score(moved), torch.full((61,), 2.0, dtype=torch.float64))


@every_distance
def test_a_far_instance_scores_higher_than_a_near_one(distance: type[FeatureDistance]) -> None:
    training = torch.randn(211, 7)
    near, far = torch.randn(31, 7), torch.randn(31, 7) + 20
    score = fitted(distance, training)
    assert score.score(near).max() < score.score(far).min()


@every_distance
@pytest.mark.parametrize("chunk", [1, 7, 31, 1000])
def test_the_size_of_the_chunks_changes_no_score(
    distance: type[FeatureDistance], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, unseen = features_of(211, 17), features_of(31, 17, seed=7)
    expected = fitted(distance, training).score(unseen)
    monkeypatch.setattr(base, "CHUNK", chunk)
    torch.testing.assert_close(fitted(distance, training).score(unseen), expected)


@every_distance
def test_the_number_of_threads_changes_no_score(
    distance: type[FeatureDistance], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "CHUNK", 7)
    score, unseen = fitted(distance, features_of(211, 17)), features_of(101, 17, seed=7)
    expected, before = score.score(unseen), torch.get_num_threads()
    torch.set_num_threads(before + 2)
    try:
        # threads that share a product may round it otherwise; those of a search each have products of their own
        rtol = 0 if score.is_threaded else 1e-13
        torch.testing.assert_close(score.score(unseen), expected, rtol=rtol, atol=0)
        assert torch.get_num_threads() == before + 2
    finally:
        torch.set_num_threads(before)


@every_distance
def test_a_saved_distance_scores_the_same(distance: type[FeatureDistance], tmp_path: Path) -> None:
    training, unseen = features_of(61, 17), features_of(31, 17, seed=7)
    score = fitted(distance, training)
    save_file(score.state_dict(), tmp_path / "distance.safetensors")
    restored = distance.from_state(load_file(tmp_path / "distance.safetensors"))
    assert torch.equal(restored.score(unseen), score.score(unseen))


@every_distance
def test_the_state_of_something_else_is_refused(distance: type[FeatureDistance]) -> None:
    with pytest.raises(ModelError, match=f"saved distance '{distance.name}'.*got weight"):
        distance.from_state({"weight": torch.zeros(2)})


@pytest.mark.parametrize("distance", [kind for kind in OF_FEATURES.values() if kind is not Typicality])
def test_features_far_from_the_origin_lose_no_digits(distance: type[FeatureDistance]) -> None:
    count = (
        96 if distance in (ClassConditionalMahalanobis, ClassDensity) else 64
    )  # so that all means are without rounding
    training, unseen = features_of(count, 17).mul(1024).round(), features_of(31, 17, seed=7).mul(1024).round()
    shifted = fitted(distance, training + 2**40).score(unseen + 2**40)
    torch.testing.assert_close(shifted, fitted(distance, training).score(unseen), rtol=1e-12, atol=0)


@every_distance
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_features_of_any_precision_give_finite_float64_without_gradient(
    distance: type[FeatureDistance], dtype: torch.dtype
) -> None:
    training = (1000 * torch.randn(61, 7)).to(dtype).requires_grad_()
    score = fitted(distance, training)
    scores = score.score(training)
    assert scores.dtype == torch.float64
    assert scores.isfinite().all()
    assert not scores.requires_grad
    assert list(score.parameters()) == []
    torch.testing.assert_close(scores, fitted(distance, training.double()).score(training.double()))


@every_distance
def test_no_instances_have_no_scores(distance: type[FeatureDistance]) -> None:
    assert fitted(distance, features_of(61, 7)).score(torch.zeros(0, 7)).shape == (0,)


@every_distance
def test_features_of_another_width_are_refused(distance: type[FeatureDistance]) -> None:
    with pytest.raises(DataError, match="expected 7 columns.*got 5"):
        fitted(distance, features_of(61, 7)).score(torch.zeros(3, 5))


@every_distance
def test_a_single_training_instance_is_refused(distance: type[FeatureDistance]) -> None:
    with pytest.raises(DataError, match="got 1;"):
        fitted(distance, torch.zeros(1, 5))


@every_distance
def test_training_instances_that_are_all_the_same_are_refused(distance: type[FeatureDistance]) -> None:
    with pytest.raises(DataError, match="the same features for all 13"):
        fitted(distance, torch.full((13, 5), 0.1))


@every_distance
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_feature_that_is_not_finite_is_named(
    distance: type[FeatureDistance], value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "CHUNK", 7)
    good = features_of(61, 5)
    bad = good.clone()
    bad[17, 3] = value
    with pytest.raises(DataError, match="training features, instance 17: expected finite"):
        fitted(distance, bad)
    with pytest.raises(DataError, match="features to score, instance 17: expected finite"):
        fitted(distance, good).score(bad)


def test_only_the_class_conditional_distance_needs_bag_labels(generator: torch.Generator) -> None:
    training = features_of(61, 5)
    for distance in (NearestNeighbors, Mahalanobis, Reconstruction):
        assert distance.fit(training, None, generator=generator).score(training).isfinite().all()
    with pytest.raises(DataError, match="'class-mahalanobis': expected the label"):
        ClassConditionalMahalanobis.fit(training, None, generator=generator)


@pytest.mark.parametrize("distance", [Mahalanobis, ClassConditionalMahalanobis])
def test_too_few_instances_for_a_covariance_are_refused(distance: type[FeatureDistance]) -> None:
    training = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 4.0]])
    with pytest.raises(DataError, match="variance in all 3 directions, got 2 instances with variance in"):
        fitted(distance, training)
    if distance is Mahalanobis:
        with pytest.raises(DataError, match="variance in all 2 directions, got 2 instances with variance in 1;"):
            fitted(distance, training[:, :2])


def test_a_class_of_one_instance_has_no_density_and_is_named(
    generator: torch.Generator, recwarn: pytest.WarningsRecorder
) -> None:
    training, labels = features_of(9, 4), torch.tensor([0] * 8 + [1])
    wanted = "training features of class 1: expected variance in all 4 directions, got 1 instance"
    with pytest.raises(DataError, match=wanted):
        ClassDensity.fit(training, labels, generator=generator)
    assert not recwarn.list


ragged_sizes = st.one_of(
    st.lists(st.integers(1, 47), min_size=1, max_size=7),
    st.lists(st.just(1), min_size=1, max_size=7),
    st.tuples(st.just(1), st.integers(500, 700), st.just(2)).map(list),
)


@given(sizes=ragged_sizes, ties=st.booleans())
def test_the_distances_of_bags_equal_a_loop_over_bags(sizes: list[int], ties: bool) -> None:
    values = torch.randn(sum(sizes), dtype=torch.float64)
    scores = values.round() if ties else values
    result = bag_distances(scores, Segments.of(*sizes))
    parts = scores.split(sizes)
    torch.testing.assert_close(result["mean"], torch.stack([part.mean() for part in parts]))
    torch.testing.assert_close(result["high"], torch.stack([part.quantile(0.95) for part in parts]))


def test_the_distances_of_bags_keep_the_precision_of_the_instances() -> None:
    result = bag_distances(torch.rand(61), Segments.of(1, 60))
    assert {name: values.dtype for name, values in result.items()} == dict.fromkeys(
        ("mean", "high"), torch.float32
    )
