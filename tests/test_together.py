"""Members trained together end where each would have ended by itself."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_bags import RAGGED_NETWORKS, separable_bags
from made_images import bright_bags

import miue
from miue.bags.dataset import BagDataset, Labels
from miue.common.errors import ConfigError
from miue.methods import Method
from miue.model.config import DataContract, TrainingConfig, build_method, model_config, training_config
from miue.training import train as api
from miue.training.fit import Run, TrainingSummary, fit
from miue.training.together import can_train_together, fit_together, is_faster_together

SEEDS = (3, 5, 11)
QUIET = Run(progress=False, accelerator="cpu")
ALL_QUIET = [QUIET] * len(SEEDS)


def methods_of(
    bags: BagDataset, network: str, method: str, **options: bool | int | float | str | None
) -> list[Method]:
    contract = DataContract(instance_shape=bags.instance_shape, class_names=("0", "1"))
    config = model_config(
        network=network, method=method, encoder="auto", instance_shape=bags.instance_shape, options=options
    )
    return [build_method(config, contract, seed).double() for seed in SEEDS]


def double_bags(count: int, seed: int = 0) -> BagDataset:
    bags = separable_bags(count, seed=seed)
    return replace(bags, instances=np.asarray(bags.instances, np.float64))


def configs(**settings: float) -> list[TrainingConfig]:
    return [training_config({"seed": seed, **settings}) for seed in SEEDS]


def assert_same(alone: list[Method], together: list[Method], tolerance: float) -> None:
    for one, other in zip(alone, together, strict=True):
        for (name, mine), theirs in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
            if name.endswith("attention.2.bias"):
                continue  # a softmax ignores what is added to every score: only rounding moves this bias
            how = partial("{}: {}".format, name)
            torch.testing.assert_close(theirs, mine, rtol=tolerance, atol=tolerance, msg=how)


@pytest.mark.parametrize(
    ("network", "method", "options"),
    [
        *((network, "mirel", {}) for network in RAGGED_NETWORKS),
        ("attention", "softmax", {}),
        ("max", "softmax", {}),
        ("dsmil", "mirel", {"method.strategy": "weighted-loss", "method.routing": "through-estimator"}),
        ("gated-attention", "i-edl", {"method.fisher_coefficient": 0.1}),
    ],
)
def test_members_end_where_each_ends_alone(network: str, method: str, options: dict[str, float]) -> None:
    bags, validation = double_bags(43), double_bags(20, seed=2)
    settings = {"max_epochs": 5, "learning_rate": 3e-3, "lr_patience": 1, "stop_patience": 2}
    alone, together = (methods_of(bags, network, method, **options) for _ in range(2))
    expected = [fit(m, bags, validation, c, QUIET) for m, c in zip(alone, configs(**settings), strict=True)]
    found = fit_together(together, bags, validation, configs(**settings), ALL_QUIET)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.epochs, ours.best_epoch) == (theirs.epochs, theirs.best_epoch)
        assert ours.best_criterion == pytest.approx(theirs.best_criterion, rel=1e-8)
    assert_same(alone, together, 1e-8)


def test_members_stop_at_epochs_of_their_own() -> None:
    bags, validation = double_bags(43), double_bags(20, seed=2)
    summaries = fit_together(
        methods_of(bags, "mean", "softmax"),
        bags,
        validation,
        configs(max_epochs=60, learning_rate=1e-2, stop_patience=2),
        ALL_QUIET,
    )
    assert len({summary.epochs for summary in summaries}) > 1


def test_images_are_convolved_together_to_float_tolerance() -> None:
    bags = bright_bags()
    alone, together = ([method.float() for method in methods_of(bags, "attention", "mirel")] for _ in range(2))
    for method, config in zip(alone, configs(max_epochs=3), strict=True):
        fit(method, bags, bags, config, QUIET)
    fit_together(together, bags, bags, configs(max_epochs=3), ALL_QUIET)
    assert_same(alone, together, 1e-4)


def test_a_run_that_is_resumed_ends_as_one_that_was_not(tmp_path: Path) -> None:
    bags, validation = double_bags(43), double_bags(20, seed=2)

    def train(folder: Path, epochs: int, *, resume: bool) -> list[Method]:
        methods = methods_of(bags, "attention", "mirel")
        runs = [Run(folder / str(s), resume=resume, progress=False, accelerator="cpu") for s in SEEDS]
        fit_together(methods, bags, validation, configs(max_epochs=epochs, learning_rate=1e-3), runs, folder)
        return methods

    whole = train(tmp_path / "whole", 6, resume=False)
    train(tmp_path / "parts", 4, resume=False)
    resumed = train(tmp_path / "parts", 6, resume=True)
    assert_same(whole, resumed, 0.0)
    logs = [(tmp_path / name / "5" / "log.csv").read_text() for name in ("whole", "parts")]
    assert logs[0] == logs[1]
    assert logs[0].count("\n") == 7


def test_the_learning_rate_of_each_member_falls_as_it_does_alone(tmp_path: Path) -> None:
    bags = separable_bags(43)
    wrong = separable_bags(20, seed=2)
    wrong = replace(wrong, labels=Labels(1 - wrong.labels.values, wrong.labels.known))  # so that it never improves
    how = configs(max_epochs=5, learning_rate=1e-2, lr_patience=0)
    for member, config in zip(methods_of(bags, "attention", "softmax"), how, strict=True):
        run = Run(tmp_path / "alone" / str(config.seed), progress=False, accelerator="cpu")
        fit(member.float(), bags, wrong, config, run)
    runs = [Run(tmp_path / "together" / str(seed), progress=False, accelerator="cpu") for seed in SEEDS]
    members = [member.float() for member in methods_of(bags, "attention", "softmax")]
    fit_together(members, bags, wrong, how, runs)
    for seed in SEEDS:
        alone, together = (rates(tmp_path / way / str(seed) / "log.csv") for way in ("alone", "together"))
        assert alone == together
        assert alone[-1] < alone[0]


def rates(log: Path) -> list[str]:
    with log.open(newline="") as file:
        return [row["learning_rate"] for row in csv.DictReader(file)]


def test_members_that_draw_are_not_trained_together() -> None:
    bags = separable_bags()
    assert can_train_together(methods_of(bags, "attention", "mirel"), bags)
    for method, options in (("bayes-mil", {}), ("mc-dropout", {}), ("mirel", {"encoder.dropout": 0.1})):
        members = methods_of(bags, "attention", method, **options)
        assert not can_train_together(members, bags)
        with pytest.raises(ConfigError, match="one after another"):
            fit_together(members, bags, bags, configs(max_epochs=1), ALL_QUIET)


@pytest.mark.parametrize(
    ("bags", "width", "faster"), [("vectors", 32, True), ("vectors", 512, False), ("images", 32, False)]
)
def test_small_networks_on_vectors_are_trained_together_on_a_cpu(bags: str, width: int, faster: bool) -> None:
    given = separable_bags() if bags == "vectors" else bright_bags()
    members = methods_of(given, "attention", "mirel", **{"encoder.width": width})
    assert is_faster_together(members, given, torch.device("cpu")) == faster
    assert is_faster_together(members, given, torch.device("cuda"))


def test_settings_that_differ_are_refused() -> None:
    bags = separable_bags()
    different = [TrainingConfig(seed=s, max_epochs=s) for s in SEEDS]
    with pytest.raises(ConfigError, match="differ in the seed alone"):
        fit_together(methods_of(bags, "mean", "mirel"), bags, bags, different, ALL_QUIET)


WAYS = ("together", "in-turn")


def test_an_ensemble_is_the_same_whichever_way_its_members_are_trained(tmp_path: Path) -> None:
    bags = separable_bags(40)
    models = {
        way: miue.train(
            bags,
            network="mean",
            method="deep-ensemble",
            options={"method.size": 3},
            settings={"max_epochs": 3},
            out=tmp_path / way,
            progress=False,
            device="cpu",
            members=way,
        )
        for way in WAYS
    }
    together, in_turn = (models[way].predict(bags).bags.probabilities for way in WAYS)
    np.testing.assert_allclose(together, in_turn, rtol=1e-5)
    files = [{p.relative_to(tmp_path / way) for p in (tmp_path / way).glob("**/log.csv")} for way in WAYS]
    assert files[0] == files[1]
    assert len(files[0]) == 3
    assert (tmp_path / "together" / "together").exists()  # for a resume with more epochs


def test_an_ensemble_begun_in_turn_is_resumed_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bags = separable_bags(40)
    how = {
        "method": "deep-ensemble",
        "options": {"method.size": 3},
        "settings": {"max_epochs": 2},
        "progress": False,
    }
    really_fit = fit

    def killed_at_the_second(*arguments: Any) -> TrainingSummary:
        if (tmp_path / "members" / "0" / "checkpoints").exists():
            raise KeyboardInterrupt
        return really_fit(*arguments)

    def never(*arguments: Any) -> list[TrainingSummary]:
        raise AssertionError("trained together what was begun in turn")

    monkeypatch.setattr(api, "fit", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        miue.train(bags, out=tmp_path, members="in-turn", **how)
    monkeypatch.setattr(api, "fit", really_fit)
    monkeypatch.setattr(api, "fit_together", never)
    miue.train(bags, out=tmp_path, if_exists="resume", **how)
    assert (tmp_path / "config.json").exists()


def test_an_ensemble_killed_in_its_first_epoch_together_is_resumed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = separable_bags(40)
    how: dict[str, Any] = {
        "method": "deep-ensemble",
        "options": {"method.size": 3},
        "settings": {"max_epochs": 2},
        "progress": False,
        "members": "together",
    }

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("miue.training.together.write_nested", killed)
        with pytest.raises(KeyboardInterrupt):
            miue.train(bags, out=tmp_path / "killed", **how)
    resumed = miue.train(bags, out=tmp_path / "killed", if_exists="resume", **how)
    assert_same([miue.train(bags, **how).method], [resumed.method], 0.0)


def test_seeds_trained_together_are_runs_of_their_own(tmp_path: Path) -> None:
    bags = separable_bags(40)
    how: dict[str, Any] = {"progress": False, "device": "cpu", "validation": separable_bags(20, seed=1)}
    settings = {"max_epochs": 3}
    first, second = miue.train_seeds(bags, [3, 5], out=tmp_path, members="together", settings=settings, **how)
    alone = miue.train(bags, settings={**settings, "seed": 5}, **how)
    assert_same([alone.method], [second.method], 1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "5"]
    assert_same([second.method], [miue.Model.load(tmp_path / "5").method], 0.0)
    more = miue.train_seeds(bags, [3, 5, 7], out=tmp_path, if_exists="resume", settings=settings, **how)
    assert_same([first.method, second.method], [model.method for model in more[:2]], 0.0)
    assert (tmp_path / "7" / "config.json").exists()


def test_seeds_that_hold_out_other_bags_are_trained_alone() -> None:
    bags, settings = separable_bags(40), {"max_epochs": 2}
    models = miue.train_seeds(bags, [3, 5], members="together", settings=settings, progress=False)
    alone = miue.train(bags, settings={**settings, "seed": 5}, progress=False)
    assert_same([alone.method], [models[1].method], 0.0)


def test_an_unknown_way_to_train_members_is_named() -> None:
    with pytest.raises(ConfigError, match="together"):
        miue.train(separable_bags(), method="deep-ensemble", members="togther", progress=False)
