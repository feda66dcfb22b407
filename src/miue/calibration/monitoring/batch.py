"""Bags that came together, with what is watched of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float64, Int64

from miue.calibration.calibration import Calibration
from miue.calibration.class_mix import CLASS_MIX, mix_values, predicted_classes
from miue.calibration.compared import compared_uncertainty
from miue.common.errors import ConfigError, unknown_name
from miue.predictions import PredictionTable


@dataclass(frozen=True)
class Batch:
    """Bags that came together, in their order.

    Attributes:
        name: such as a day, a folder or a shard.
        ids: of the bags.
        patients: of the bags, "" where unknown.
        values: what is watched of the bags, by name: uncertainties, and probabilities for the class mix.
        predicted: the most probable class of the bags.
        trained: further bags, left out since the model was trained on them or on others of their patients.
    """

    name: str
    ids: tuple[str, ...]
    patients: tuple[str, ...]
    values: dict[str, Float64[np.ndarray, "n"]]
    predicted: Int64[np.ndarray, "n"]
    trained: int = 0

    made_by: ClassVar[str] = "make each of them: Batch.of(name, predictions.bags, calibration)"

    @classmethod
    def of(
        cls, name: str, table: PredictionTable, calibration: Calibration, scores: Sequence[str] | None = None
    ) -> Batch:
        """Return the bags of a table of predictions, but for those trained on, with what is watched of them.

        Args:
            name: of the batch.
            table: of its bags, in their order.
            calibration: to which they will be compared.
            scores: what to watch, as for ``monitor``.

        Raises:
            ConfigError: something to watch that the calibration does not have.
            DataError: an uncertainty that the table does not have, or that is not a number.
        """
        scores = watched_scores(calibration, scores)
        is_trained = table.trained_on
        trained, table = int(is_trained.sum()), table.subset(np.flatnonzero(~is_trained))
        mix = mix_values(table, calibration.class_names)
        of, watched = f"predictions {name!r}", {}
        for score in scores:
            watched[score] = mix[score] if score in mix else compared_uncertainty(table, score, of)
        ids = tuple(map(str, table.bag_ids))
        patients = ("",) * len(ids) if table.patients is None else tuple(p or "" for p in table.patients)
        return cls(name, ids, patients, watched, predicted_classes(table), trained)


def watched_scores(calibration: Calibration, scores: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return what to watch: uncertainties and the class mix, all that the calibration keeps or those named.

    Of more than two classes, "class_mix" is a column for each.

    Raises:
        ConfigError: something that the calibration does not have, or a calibration without values.
    """
    if not calibration.usual:
        wanted, fix = "the uncertainties of its bags", "calibrate again"
        raise ConfigError(item="the calibration", wanted=wanted, got="none", fix=fix)
    mix = () if calibration.class_mix is None else tuple(calibration.class_mix.probabilities)
    known = (*calibration.usual, *([CLASS_MIX] if mix else []))
    for score in scores or ():
        if score not in (*known, *mix):
            raise unknown_name("uncertainty", score, known)
    named = scores or known
    return tuple(dict.fromkeys(one for score in named for one in (mix if score == CLASS_MIX else (score,))))


def reference_values(calibration: Calibration, score: str) -> tuple[float, ...]:
    """Return the sorted values of calibration bags that something watched is compared with."""
    if score in calibration.usual:
        return calibration.usual[score]
    assert calibration.class_mix is not None
    return calibration.class_mix.probabilities[score]
