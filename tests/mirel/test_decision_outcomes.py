"""What decisions of trained presets come to: the numbers are those of the library's own commands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import miue
from miue.bags import BagDataset, OodFlags
from miue.model.feature_scores import fit_distances
from papers.mirel import decision_outcomes, trained
from papers.mirel.decision_outcomes import HALF, VALIDATION, outcomes, summaries
from papers.mirel.paths import Paths


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BagDataset:
    """Bags of all parts, half of the test bags out of distribution, and a model trained without a distance."""
    random = np.random.default_rng(3)
    arrays = [random.normal(size=(3 + number % 3, 5)) + 2 * (number % 2) for number in range(260)]
    arrays += [random.normal(size=(4, 5)) + 30 for _ in range(20)]
    bags = BagDataset.from_arrays(
        arrays,
        [number % 2 for number in range(260)] + [None] * 20,
    )
    parts = ("train",) * 40 + ("validation",) * 100 + ("test",) * 140
    is_ood = OodFlags.of(np.arange(280) >= 260)
    bags = replace(bags, splits=parts, ood_sets=("",) * 260 + ("far",) * 20, is_ood=is_ood)
    run = tmp_path / "runs" / "made" / "7"
    miue.train(bags, settings={"max_epochs": 3, "distances": (), "device": "cpu"}, out=run, progress=False)
    monkeypatch.setattr(trained, "preset", lambda name: SimpleNamespace(data="", bags=None))
    monkeypatch.setattr(trained, "store_of", lambda *_: bags)
    monkeypatch.setattr(decision_outcomes, "HALVES", 2)
    return bags


@pytest.mark.long
def test_outcomes_are_those_of_a_model_with_the_default_distance(experiment: BagDataset, tmp_path: Path) -> None:
    rows = outcomes("made", 7, Paths(tmp_path, tmp_path, tmp_path))
    found = {(row[2], row[3], row[4]): float(row[5]) for row in rows}
    bags = {part: experiment.split(part) for part in ("train", "validation")}
    plain = miue.Model.load(tmp_path / "runs" / "made" / "7")
    fitted = fit_distances(plain.method, bags["train"], ["combined"], seed=7, held_out=bags["validation"])
    model = replace(plain, distances=fitted)
    calibration = miue.calibrate(model.predict(experiment.split("validation")))
    assert calibration.false_alarms is not None
    assert calibration.false_alarms.score == "combined_mean"
    evaluated = miue.evaluate(miue.decide(model.predict(experiment.split("test")), calibration))
    decisions = evaluated.decisions
    assert decisions is not None
    for metric in ("accepted", "deferred", "false_alarms", "coverage"):
        assert found[VALIDATION, "0", metric] == pytest.approx(decisions.metrics[metric].value, abs=1e-5)
    assert found[VALIDATION, "0", "called OOD far"] == decisions.found["far"].value == 1
    assert {draw for on, draw, _ in found if on == HALF} == {"0", "1"}


def test_draws_are_averaged_within_a_seed_first() -> None:
    values = [("1", "0", 0.1), ("1", "1", 0.3), ("2", "0", 0.6)]
    rows = [("p", seed, HALF, draw, "accepted", str(value)) for seed, draw, value in values]
    assert list(summaries(rows)) == [("p", HALF, "accepted", "40.00 ± 28.28", "60.00")]
