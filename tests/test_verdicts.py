"""Verdicts are labels: the last one of each bag, and none of a bag of which nobody could tell the class."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_predictions import made_predictions, unlabeled
from typer.testing import CliRunner

import miue
from miue.cli.app import app
from miue.common.errors import MiueError
from miue.io import read_label_table
from miue.predictions import Predictions
from miue.view import VerdictFile

CLASSES = ("normal", "tumor")


def predictions_and_verdicts(folder: Path, bags: int = 120) -> Predictions:
    """Write predictions without labels and verdicts on most, and return the predictions of these with labels."""
    made = made_predictions(bags)
    made = made.of_bags(made.bags.bag_ids[made.bags.labels.known].astype(str).tolist())
    made = replace(made, provenance=made.provenance.model_copy(update={"classes": CLASSES}))
    truth = made.bags.labels
    unlabeled(made).save(folder / "predictions")
    file = VerdictFile(folder / "verdicts.csv", "Ada")
    first = str(made.bags.bag_ids[0])
    file.append(first, CLASSES[1 - truth.values[0]], "a slip")
    names = made.bags.bag_ids.astype(str).tolist()
    for name, label in zip(names[:-1], truth.values, strict=False):
        file.append(name, CLASSES[label], "")
    file.append(names[1], "", "")  # taken back
    file.append(names[2], "cannot tell", "")
    return made.of_bags([names[0], *names[3:-1]])


def run(*words: object) -> Any:
    result = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_last_verdict_of_a_bag_is_its_label(tmp_path: Path) -> None:
    file = VerdictFile(tmp_path / "v.csv", "Ada")
    for bag, label in (("a", "tumor"), ("b", "tumor"), ("a", "normal"), ("c", "cannot tell"), ("b", "")):
        file.append(bag, label, "a, note")
    table = read_label_table(tmp_path / "v.csv")
    assert dict(zip(table.ids, table.labels, strict=True)) == {"a": "normal"}


def test_another_table_still_has_each_bag_once(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("bag_id,label,note\na,x,\na,y,\n")
    with pytest.raises(MiueError, match="one row"):
        read_label_table(tmp_path / "labels.csv")


def test_calibrate_and_evaluate_read_verdicts(tmp_path: Path) -> None:
    labeled = predictions_and_verdicts(tmp_path)
    given = (tmp_path / "predictions", "--labels", tmp_path / "verdicts.csv", "--json")
    calibrated = run("calibrate", *given, "--out", tmp_path / "c.json", "--without", "ood")
    expected = miue.calibrate(labeled, false_alarms=None)
    for part in ("scaling", "deferral", "prediction_sets"):
        assert calibrated[part] == expected.model_dump(mode="json")[part]
    evaluated = run("evaluate", *given)
    assert evaluated["bags"] == json.loads(json.dumps(miue.evaluate(labeled).to_json()["bags"]))


def test_train_reads_verdicts(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(6):
        (tmp_path / "features").mkdir(exist_ok=True)
        np.save(tmp_path / "features" / f"s{number}.npy", random.normal(size=(4, 3)).astype(np.float32))
    file = VerdictFile(tmp_path / "verdicts.csv", "Ada")
    for number in range(5):
        file.append(f"s{number}", "cannot tell" if number == 4 else CLASSES[number % 2], "")
    loaded = miue.load_bags(tmp_path / "features", labels=tmp_path / "verdicts.csv")
    bags = loaded.bags
    assert bags.class_names == CLASSES
    assert bags.labels.known.all()
    assert bags.labels.values.tolist() == [0, 1, 0, 1]
    assert [one.bag for one in loaded.left_out] == ["s4", "s5"]


def test_labels_of_other_bags_are_refused(tmp_path: Path) -> None:
    predictions_and_verdicts(tmp_path, 6)
    (tmp_path / "others.csv").write_text("bag_id,label\nx,tumor\ny,normal\n")
    result = CliRunner().invoke(
        app, ["evaluate", str(tmp_path / "predictions"), "--labels", str(tmp_path / "others.csv")]
    )
    assert isinstance(result.exception, MiueError)
    assert result.exception.wanted == "labels of these bags"
