"""Settings that are not specified follow from the size of the data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from commands import run
from hypothesis import given
from hypothesis import strategies as st
from made_bags import separable_bags

import miue
from miue.model.recipe import MOST_INSTANCES, Recipe, settings_by_size
from miue.selection import cross_validate
from miue.settings import TrainingConfig
from miue.training.job import Job

BRIEF = {"max_epochs": 2, "stop_patience": 2}


@given(bags=st.integers(1, 100_000), size=st.integers(1, 100_000))
def test_settings_are_valid_and_bounded_for_data_of_any_size(bags: int, size: int) -> None:
    config = TrainingConfig.model_validate(settings_by_size(bags, bags * size))
    assert 10 <= config.stop_patience <= 50
    assert config.lr_patience == config.stop_patience // 2
    assert 50 <= config.max_epochs <= 500
    assert config.max_epochs * bags * size <= max(MOST_INSTANCES, 50 * bags * size)


def test_more_bags_never_mean_more_epochs_or_more_patience() -> None:
    by_size = [settings_by_size(bags, 10 * bags) for bags in (2, 20, 100, 500, 2000, 50_000, 1_000_000)]
    for name in ("max_epochs", "stop_patience"):
        values = [settings[name] for settings in by_size]
        assert values == sorted(values, reverse=True)
        assert len(set(values)) > 2


def test_what_is_specified_replaces_what_follows_from_the_size() -> None:
    bags = separable_bags(40)
    by_size = Recipe().training_config(bags)
    specified = Recipe(settings={"stop_patience": 3}).training_config(bags)
    assert specified == by_size.model_copy(update={"stop_patience": 3})


@pytest.mark.long
def test_shell_python_estimator_and_cross_validation_share_the_rule_and_record_it(tmp_path: Path) -> None:
    bags = separable_bags(40)
    expected = Job(Recipe(settings=BRIEF), bags).training_config.model_dump(exclude={"seed"})
    assert expected["lr_patience"] == 25
    miue.write_store(tmp_path / "store", bags)
    brief = [word for name, value in BRIEF.items() for word in ("--set", f"{name}={value}")]
    run("train", tmp_path / "store", "--out", tmp_path / "shell", *brief, "--distance", "none", "--quiet")
    assert miue.Model.load(tmp_path / "shell").training.settings == expected
    recorded = json.loads((tmp_path / "shell" / "run.json").read_text())["training"]
    assert recorded == {**expected, "seed": 42}

    arrays = [bags.instances[start : start + size] for start, size in zip(bags.starts, bags.sizes, strict=True)]
    trained = miue.train(arrays, bags.labels.values, settings={**BRIEF, "distances": ()}, progress=False)
    assert trained.training.settings == expected
    estimator = miue.MILUncertaintyClassifier(**BRIEF, distances=(), random_state=0).fit(
        arrays, bags.labels.values
    )
    assert estimator.model_.training.settings == expected

    recipe = Recipe(settings=BRIEF, distances=())
    cross_validate(bags, miue.make_folds(bags, 2), [1], tmp_path / "cv", recipe, progress=False)
    run_json = json.loads((tmp_path / "cv" / "fold_0" / "seed_1" / "run" / "run.json").read_text())
    assert run_json["training"] == {**expected, "seed": 1}


def test_a_training_says_beforehand_how_long_it_is_and_after_an_epoch_how_much_time_it_takes(
    capfd: pytest.CaptureFixture[str],
) -> None:
    miue.train(separable_bags(40), settings={"max_epochs": 3, "distances": ()})
    said = capfd.readouterr().err
    before = "32 bags, 146 instances: at most 3 epochs (4 updates each), fewer if 50 bring no improvement"
    assert before in said
    assert re.search(r"0:00:\d\d an epoch, at most 0:00:\d\d in all", said)
    assert said.index(before) < said.index("an epoch, at most")
    miue.train(separable_bags(40), settings={"max_epochs": 3, "distances": ()}, progress=False)
    assert "bags" not in capfd.readouterr().err


def test_a_resumed_training_uses_the_settings_that_it_was_started_with(tmp_path: Path) -> None:
    bags = separable_bags(40)
    first = miue.train(bags, settings={**BRIEF, "distances": ()}, out=tmp_path / "run", progress=False)
    with pytest.raises(miue.MiueError, match="the same"):
        fewer = bags.subset(np.arange(30))
        miue.train(
            fewer, settings={**BRIEF, "distances": ()}, out=tmp_path / "run", if_exists="resume", progress=False
        )
    longer = {**BRIEF, "max_epochs": 4}
    again = miue.train(
        bags, settings={**longer, "distances": ()}, out=tmp_path / "run", if_exists="resume", progress=False
    )
    assert again.training.settings == {**first.training.settings, "max_epochs": 4}
    assert again.training.epochs == 4
