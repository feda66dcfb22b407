"""Bars with the time left, of what takes long with many instances."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import run
from made_predictions import made_predictions

import miue
from miue.cli.inspection import describe
from miue.predictions import Predictions
from miue.settings import LoadSettings


@pytest.mark.parametrize("what", ["evaluate", "inspect"])
def test_a_bar_counts_the_uncertainties_and_is_gone_at_the_end(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    predictions = made_predictions()
    predictions.save(tmp_path / "p")
    assert predictions.instances is not None
    count = len(predictions.bags.uncertainty_names) + len(predictions.instances.uncertainty_names)
    tasks: dict[str, Callable[[bool], object]] = {
        "evaluate": lambda shown: miue.evaluate(predictions, progress=shown),
        "inspect": lambda shown: describe(tmp_path / "p", LoadSettings(), progress=shown),
    }
    tasks[what](True)
    assert not capsys.readouterr().err, "that is no terminal"
    monkeypatch.setenv("FORCE_COLOR", "1")
    tasks[what](False)
    assert not capsys.readouterr().err
    tasks[what](True)
    shown = capsys.readouterr()
    assert f"{count}/{count}" in shown.err and "uncertainties, time left" in shown.err and not shown.out
    assert shown.err.endswith("\x1b[2K")


def test_predictions_count_the_instances_that_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    predictions = made_predictions()
    assert predictions.instances is not None
    monkeypatch.setenv("FORCE_COLOR", "1")
    predictions.save(tmp_path / "silent")
    assert not capsys.readouterr().err
    predictions.save(tmp_path / "shown", progress=True)
    shown, count = capsys.readouterr(), len(predictions.instances)
    assert f"{count}/{count}" in shown.err and "instances, time left" in shown.err and not shown.out
    inside = predictions.bags.subset(np.flatnonzero(predictions.bags.judged))
    miue.calibrate(Predictions(inside, None), deferral=None).save(tmp_path / "rules.json")
    options = ("--calibration", tmp_path / "rules.json", "--out", tmp_path / "decided")
    for quiet in ([], ["--quiet", "--overwrite"]):
        said = run("decide", tmp_path / "shown", *options, *quiet)
        assert (f"{count}/{count}" in said) == (not quiet)
