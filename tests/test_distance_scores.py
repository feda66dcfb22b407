"""Distances carried by models: fitted after training, saved, predicted, evaluated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_bags import separable_bags

import miue
from miue.bags import BagDataset
from miue.common.errors import ConfigError, DataError, StorageError
from miue.datasets.digits import digits_bags
from miue.datasets.image_shifts import SHIFTS, shifted_copies
from miue.model import feature_scores as distance_scores
from miue.model import predict as prediction
from miue.predictions import read_predictions
from miue.scores import DISTANCES

SETTINGS = {"max_epochs": 2, "seed": 1}
WITHOUT_IMAGES = tuple(name for name, kind in DISTANCES.items() if kind.reads != "statistics")


def train(bags: BagDataset, method: str = "mirel", distances: tuple[str, ...] = WITHOUT_IMAGES) -> miue.Model:
    options = {"method.size": 2} if method == "deep-ensemble" else {}
    return miue.train(
        bags,
        method=method,
        settings={**SETTINGS, "distances": distances, "options": options, "device": "cpu"},
        progress=False,
    )


@pytest.mark.long
@pytest.mark.parametrize("method", ["mirel", "softmax", "deep-ensemble", "mc-dropout", "bayes-mil"])
def test_any_method_carries_distances_that_survive_saving(method: str, bags: BagDataset, tmp_path: Path) -> None:
    model = train(bags, method)
    first = model.predict(bags)
    model.save(tmp_path / "model")
    second = miue.Model.load(tmp_path / "model").predict(bags)
    assert first.instances is not None
    assert second.instances is not None
    assert set(first.instances.scores) == set(WITHOUT_IMAGES)
    assert set(first.bags.scores) == {f"{name}_{kind}" for name in WITHOUT_IMAGES for kind in ("mean", "high")}
    for ours, theirs in ((first.bags, second.bags), (first.instances, second.instances)):
        for name, values in ours.scores.items():
            np.testing.assert_allclose(theirs.scores[name], values, rtol=1e-10)


@pytest.mark.parametrize("method", ["softmax", "mc-dropout"])
def test_distances_are_taken_from_features_without_dropout(method: str, bags: BagDataset) -> None:
    model = train(bags, method, ("knn",))
    instances = bags.batch(np.arange(len(bags))).instances
    with torch.no_grad():
        expected = model.distances["knn"].score(model.method.eval().encode(instances)).numpy()
    found = model.predict(bags).instances
    assert found is not None
    np.testing.assert_allclose(found.scores["knn"], expected, rtol=1e-4, atol=1e-5)


def test_instances_unlike_the_training_data_lie_far(bags: BagDataset) -> None:
    model = train(bags, distances=("knn",))
    far = [np.full((3, 5), 40.0, np.float32), np.full((2, 5), -40.0, np.float32)]
    near, away = model.predict(bags), model.predict(far)
    assert away.bags.scores["knn_mean"].min() > near.bags.scores["knn_mean"].max()


def test_scores_are_columns_of_the_tables_and_are_evaluated(bags: BagDataset, tmp_path: Path) -> None:
    predictions = train(bags, distances=("knn",)).predict(bags)
    predictions.save(tmp_path / "out")
    header = (tmp_path / "out" / "bags.csv").read_text().splitlines()[0].replace('"', "")
    assert header.endswith("score_knn_mean,score_knn_high")
    back = read_predictions(tmp_path / "out")
    np.testing.assert_allclose(back.bags.scores["knn_mean"], predictions.bags.scores["knn_mean"], rtol=1e-6)
    assert "knn_high" in miue.evaluate(back, allow_training_bags=True).bags.by_measure


def test_the_instances_fitted_on_are_bounded_and_depend_on_the_seed_alone(
    bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = train(bags, distances=()).method
    monkeypatch.setattr(distance_scores, "FITTED_ON", 17)
    monkeypatch.setattr(distance_scores, "BATCH_INSTANCES", 9)
    first, again, other = (
        distance_scores.fit_distances(method, bags, ["knn"], seed=seed)["knn"].get_buffer("points")
        for seed in (1, 1, 2)
    )
    assert len(first) == 17
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.long
def test_batches_do_not_change_the_scores(bags: BagDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = train(bags)
    whole = model.predict(bags)
    monkeypatch.setattr(prediction, "BATCH_INSTANCES", 5)
    parts = model.predict(bags)
    for name, values in whole.bags.scores.items():
        np.testing.assert_allclose(parts.bags.scores[name], values, rtol=1e-4, atol=1e-4)


def test_a_distance_that_does_not_exist_or_cannot_be_read_is_answered(bags: BagDataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'knn'"):
        train(bags, distances=("knnn",))
    folder = tmp_path / "model"
    train(bags, distances=("knn",)).save(folder)
    (folder / "distances.safetensors").unlink()
    with pytest.raises(StorageError, match="a file that config.json lists"):
        miue.Model.load(folder)


def test_features_that_are_all_the_same_stop_a_run_only_if_a_distance_was_asked_for() -> None:
    same = [np.ones((2, 3))] * 8
    labels = [0, 1] * 4
    model = miue.train(same, labels, settings={**SETTINGS, "device": "cpu"}, progress=False)
    assert "instances that differ" in model.training.without_distances
    assert not model.distances
    with pytest.raises(DataError, match="instances that differ"):
        miue.train(
            same, labels, settings={**SETTINGS, "distances": ("mahalanobis",), "device": "cpu"}, progress=False
        )


def test_shifted_copies_keep_bags_and_mark_their_shift() -> None:
    bags = digits_bags(splits=["validation"], sizes={"validation": 6})
    shifted = shifted_copies(bags, seed=0)
    assert [shifted.ood_sets.count(name) for name in ("", *SHIFTS)] == [6, 6, 6, 6]
    original = bags.instances[bags.positions]
    copies = {
        name: shifted.subset([i for i, s in enumerate(shifted.ood_sets) if s == name]) for name in ("", *SHIFTS)
    }
    assert np.array_equal(copies[""].instances[copies[""].positions], original)
    turned = copies["rotation"].instances[copies["rotation"].positions]
    for before, after in zip(original, turned, strict=True):
        assert any(np.array_equal(np.rot90(before, k, axes=(0, 1)), after) for k in (1, -1))
    for name in ("noise", "blend"):
        assert not np.array_equal(copies[name].instances[copies[name].positions], original)
    assert shifted.patients is None
    of_patients = replace(bags, patients=("a", "a", "b", "c", "c", "c"))
    assert shifted_copies(of_patients, seed=0).patients == ("a", "a", "b", "c", "c", "c") * 4
    again = shifted_copies(bags, seed=0)
    assert np.array_equal(shifted.instances, again.instances)
    with pytest.raises(DataError, match="uint8 images"):
        shifted_copies(separable_bags(), seed=0)


@pytest.mark.long
def test_combined_is_standardized_by_all_held_out_bags_however_large_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    arrays = [random.normal(3.0 * (row >= 12), 1, (200, 4)).astype(np.float32) for row in range(24)]
    bags = BagDataset.from_arrays(arrays, [int(row >= 12) for row in range(24)])  # one class after the other
    model = miue.train(bags, settings={"max_epochs": 1, "distances": (), "device": "cpu"}, progress=False)

    def centers() -> dict[str, torch.Tensor]:
        fitted = distance_scores.fit_distances(model.method, bags, ["combined"], seed=0, held_out=bags)
        return dict(fitted["combined"].state_dict())

    whole = centers()
    monkeypatch.setattr("miue.model.feature_scores.FITTED_ON", 1200)
    fewer = centers()
    for name, value in whole.items():
        spread = value.abs().max().item()
        torch.testing.assert_close(fewer[name], value, atol=0.35 * spread, rtol=0.35)
