"""Presets that were trained, with the bags that they learned from, for what is measured of them afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from miue.bags import BagDataset
from miue.model import DistanceLike, Model, fit_distances
from papers.mirel.paths import Paths
from papers.mirel.preset import preset
from papers.mirel.stores import store_of


@dataclass(frozen=True)
class Trained:
    """A preset that was trained with one seed.

    Attributes:
        seed: of the training, and of the draw of instances that distances are fitted to.
        model: as it was saved.
        bags: all of the preset's, with their parts.
    """

    seed: int
    model: Model
    bags: BagDataset

    def with_distances(self, names: Sequence[DistanceLike]) -> Model:
        """Return the model with distances that are fitted to its training bags, as ``miue train`` fits them."""
        return with_distances(
            self.model, names, self.bags.split("train"), seed=self.seed, held_out=self.bags.split("validation")
        )


def load_trained(name: str, seed: int, paths: Paths) -> Trained:
    """Return a preset that was trained with a seed.

    Raises:
        ConfigError: no such preset.
        StorageError: it has not been trained with this seed.
    """
    chosen = preset(name)
    return Trained(seed, Model.load(paths.run(name, seed)), store_of(chosen.data, paths, chosen.bags))


def with_distances(
    model: Model,
    names: Sequence[DistanceLike],
    training: BagDataset,
    *,
    seed: int,
    held_out: BagDataset | None = None,
    device: str = "auto",
) -> Model:
    """Return a model with these distances, fitted to its training bags, in place of its own.

    Args:
        model: trained.
        names: of the distances, or what else ``fit_distances`` takes.
        training: the bags that it was trained on.
        seed: of the draw of instances.
        held_out: bags that "combined" is standardized by; the training bags if None.
        device: where instances are encoded.
    """
    fitted = fit_distances(model.method, training, names, seed=seed, held_out=held_out, device=device)
    return replace(model, distances=fitted)
