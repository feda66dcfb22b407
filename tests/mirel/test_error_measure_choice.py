"""Which measure detects errors: the rule, and that what it is given is Conf. of every measure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import miue
from miue.bags import BagDataset
from miue.predictions import ERROR_PROBABILITY
from papers.mirel import error_measure_choice as choice
from papers.mirel import trained as presets
from papers.mirel.measured import Row
from papers.mirel.paths import Paths


def row(network: str, seed: int, measure: str, conf: float, predicted: str = "bags") -> Row:
    return {
        "preset": network,
        "seed": str(seed),
        "network": network,
        "predicted": predicted,
        "measure": measure,
        "conf": str(conf),
    }


def test_networks_count_alike_however_many_seeds_they_have() -> None:
    rows = [row("max", 1, "entropy", 0.8), row("max", 1, "vacuity", 0.7)]
    rows += [row("mean", seed, "entropy", 0.6) for seed in (1, 2, 3)]
    rows += [row("mean", seed, "vacuity", 0.65) for seed in (1, 2, 3)]
    assert choice.chosen_measures(rows) == {"bags": "entropy"}  # 0.7 and 0.675; over all rows 0.65 and 0.6625
    assert choice.means(rows)["bags"]["vacuity"] == pytest.approx({"max": 0.7, "mean": 0.65})


def test_bags_and_both_estimates_of_instances_are_chosen_for_apart(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row("max", 1, "entropy", 0.8), row("max", 1, "vacuity", 0.7)]
    rows += [row("max", 1, "entropy", 0.5, "residual"), row("max", 1, "vacuity", 0.9, "residual")]
    assert choice.chosen_measures(rows) == {"bags": "entropy", "residual": "vacuity"}
    tables = dict(choice.choice_tables(rows))
    assert list(tables) == ["bags", "residual"]


@pytest.mark.long
def test_conf_is_that_of_the_predictions_and_written_once(
    bags: BagDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, others = bags.subset(range(20)), bags.subset(range(20, 40))
    model = miue.train(trained, settings={"max_epochs": 1, "distances": (), "device": "cpu"}, progress=False)
    loads: list[Path] = []

    def load(path: Path) -> miue.Model:
        loads.append(path)
        return model

    held_out = replace(trained, splits=("validation",) * 20)
    monkeypatch.setattr(choice, "selection_bags", lambda _: others)
    monkeypatch.setattr(presets, "store_of", lambda *_: held_out)
    monkeypatch.setattr(presets, "Model", SimpleNamespace(load=load))
    paths = Paths(tmp_path, tmp_path / "work", tmp_path)
    rows = choice.measure_errors(["mnist/abmil-mirel"], [42], paths, tmp_path / "out.csv")
    assert rows == choice.measure_errors(["mnist/abmil-mirel"], [42], paths, tmp_path / "out.csv")
    assert loads == [tmp_path / "work" / "runs" / "mnist" / "abmil-mirel" / "42"]
    assert {one["predicted"] for one in rows} <= {"bags", "residual", "bag-of-one"}
    predicted = model.with_validation(held_out).predict(others).bags
    assert ERROR_PROBABILITY in predicted.scores
    right = predicted.predicted == predicted.labels.values
    for one in rows:
        if one["predicted"] == "bags":
            unsure = predicted.uncertainties()[one["measure"]]
            assert float(one["conf"]) == pytest.approx(roc_auc_score(~right, unsure), abs=1e-5)
    assert {one["measure"] for one in rows if one["predicted"] == "bags"} == set(predicted.uncertainty_names)
    assert 0 < np.mean(right) < 1
