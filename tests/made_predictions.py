"""Made predictions of bags and instances, and a headless browser to open pages in."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from miue.bags import Coords, Labels, OodFlags, Slides
from miue.distributions import Categorical, Dirichlet
from miue.predictions import Predictions, PredictionTable, Provenance, TrainingRecord

NASTY = "</script><script>document.title='taken'</script><b>&amp;\"'"


def made_predictions(
    bags: int = 30,
    per_bag: int = 5,
    *,
    classes: int = 2,
    seed: int = 0,
    provenance: Provenance | None = None,
    name: str = "bag",
    ood_set: str = "cats",
) -> Predictions:
    """Predictions of which a third of the bags are out of distribution; labels do not depend on ``seed``."""
    random, truth = np.random.default_rng(seed), np.random.default_rng(99)
    names = np.array([f"{name} {number:04d}" for number in range(bags)], object)
    is_ood = np.arange(bags) % 3 == 2
    sets = np.where(is_ood, ood_set, "").astype(object)
    labels = Labels(truth.integers(classes, size=bags), ~is_ood)
    of_bag = np.repeat(np.arange(bags), per_bag)
    within = np.tile(np.arange(per_bag), bags)
    of_instances = Labels(labels.values[of_bag] * (within == 0), labels.known[of_bag])

    def alpha(labels: Labels, is_ood: np.ndarray) -> torch.Tensor:
        strength = random.gamma(2, 4, size=(len(labels), classes)) * 0.3
        strength[np.arange(len(labels)), labels.values] += np.where(is_ood, 0.5, random.gamma(1, 3, len(labels)))
        return torch.from_numpy(strength + 1)

    return Predictions(
        PredictionTable(Dirichlet(alpha(labels, is_ood)), names, labels, OodFlags.of(is_ood), sets),
        PredictionTable(
            Dirichlet(alpha(of_instances, is_ood[of_bag])),
            names[of_bag],
            of_instances,
            OodFlags.of(is_ood[of_bag]),
            sets[of_bag],
            within,
        ),
        provenance or made_provenance(network="attention", method="mirel", seed=42),
    )


def made_provenance(*, seed: int | None = None, epochs: int = 1, **known: Any) -> Provenance:
    """What made predictions, trained with ``seed`` where there is one."""
    if seed is not None:
        known["training"] = TrainingRecord(
            seed=seed,
            training_bags=9,
            validation_bags=3,
            epochs=epochs,
            best_epoch=1,
            criterion=0.5,
            settings={"max_epochs": 9},
        )
    return Provenance(**known)


def unlabeled(predictions: Predictions) -> Predictions:
    """The same without any label."""

    def bare(table: PredictionTable) -> PredictionTable:
        return replace(table, labels=Labels.unknown(len(table)))

    assert predictions.instances is not None
    return replace(predictions, bags=bare(predictions.bags), instances=bare(predictions.instances))


def without_evidence(predictions: Predictions) -> Predictions:
    """The same probabilities without a distribution over them, as a softmax gives."""

    def point(table: PredictionTable) -> PredictionTable:
        return replace(table, distribution=Categorical(table.distribution.probabilities))

    assert predictions.instances is not None
    return replace(predictions, bags=point(predictions.bags), instances=point(predictions.instances))


def on_a_slide(predictions: Predictions) -> Predictions:
    """The same with the instances of each bag in rows of four, 256 pixels apart."""
    table = predictions.instances
    assert table is not None
    assert table.instance is not None
    coords = np.stack([table.instance % 4, table.instance // 4], 1) * 256
    return replace(predictions, instances=replace(table, coords=Coords.of(coords)))


def of_two_slides(predictions: Predictions) -> Predictions:
    """The same with the first eight instances of each bag on one slide and the others on another."""
    table = predictions.instances
    assert table is not None and table.instance is not None
    names = [
        f"{'left' if place < 8 else 'right'} of {bag}"
        for bag, place in zip(table.bag_ids, table.instance, strict=True)
    ]
    return replace(predictions, instances=replace(table, slides=Slides.of(names)))


def chromium() -> str | None:
    """Return where a Chromium or Chrome is installed."""
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome", "chrome"))
    return next((path for path in found if path), None)
