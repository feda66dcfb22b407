"""Errors within code of others: in a command its own traceback and a sentence, in Python the error as it is."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr
from pathlib import Path

import parts_of_others as others
import pytest
from made_bags import train_one_epoch

import miue
from miue.bags.dataset import BagDataset
from miue.cli import main
from miue.common import third_party
from miue.common.tasks import Task
from miue.common.tasks.task import answer
from miue.model.part import find_part

WORDS = "--network parts_of_others:FailsInUse --method softmax --set max_epochs=1 --quiet"


@pytest.fixture(autouse=True)
def _of_this_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(third_party, "PACKAGES", set())


def test_a_command_shows_the_traceback_of_that_code_alone_and_a_sentence(
    bags: BagDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    miue.write_store(tmp_path / "store", bags)
    words = ["miue", "train", str(tmp_path / "store"), "--out", str(tmp_path / "run"), *WORDS.split()]
    monkeypatch.setattr(sys, "argv", words)
    said = io.StringIO()
    with redirect_stderr(said), pytest.raises(SystemExit) as stop:
        main()
    lines = said.getvalue().splitlines()
    assert stop.value.code == 1
    assert lines[-1].startswith("miue: error: parts_of_others:FailsInUse.forward: expected no error in this code")
    assert "got KeyError: 'stain'; in training epoch 1, for " in lines[-1]
    frames = [line for line in lines if line.startswith('  File "')]
    assert len(frames) == 1 and "parts_of_others.py" in frames[0]


def test_an_error_in_prediction_names_the_bags(bags: BagDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = train_one_epoch(bags, network=others.PlainMean, distances=[])
    monkeypatch.setattr(others.PlainMean, "forward", others.FailsInUse.forward)
    with pytest.raises(KeyError, match="stain") as raised:
        model.predict(bags.subset([3, 1, 4]))
    sizes = bags.batch([3, 1, 4]).segments.in_words()
    assert sizes.startswith("3 bags of ")
    assert raised.value.__notes__ == [f"in prediction, for {sizes}, {bags.ids[3]!r} to {bags.ids[4]!r}"]


def test_a_worker_answers_with_the_same(tmp_path: Path) -> None:
    task = Task("one", "parts_of_others:fail", {}, tmp_path / "part")
    assert answer(task.to_json())["traceback"].count("  File") > 1
    third_party.count_as_third_party("parts_of_others.x")
    said = answer(task.to_json())["traceback"]
    assert said.count("  File") == 1 and "\nparts_of_others:fail: expected no error" in said


def test_a_class_of_miue_that_is_passed_in_a_wrong_place_makes_miue_no_code_of_others() -> None:
    find_part("network", miue.METHODS["softmax"])
    assert "miue" not in third_party.PACKAGES
