"""``miue inspect`` of bags beside their labels: what training would read, and what it would leave out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import run

from miue.cli.inspection import MOST_LINES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty bags of a feature folder; the last has none but NaN."""
    features = tmp_path / "features"
    features.mkdir()
    for number in range(40):
        values = np.full((3, 4), np.nan if number == 39 else 1.0, np.float32)
        np.save(features / f"s{number:02d}.npy", values)
    return features


def label_table(folder: Path, names: list[str], column: str = "label") -> Path:
    rows = [f"{name},{'pos' if number % 2 else 'neg'},p{number // 2}" for number, name in enumerate(names)]
    path = folder.parent / "labels.csv"
    path.write_text("\n".join([f"slide_id,{column},case_id", *rows]) + "\n")
    return path


def test_labels_beside_bags_tell_classes_patients_and_what_is_not_listed(folder: Path) -> None:
    labels = label_table(folder, [f"s{number:02d}" for number in range(10)])
    found = json.loads(run("inspect", folder, "--labels", labels, "--json", "--quiet"))
    assert (found["bags"], found["patients"]) == (10, 5)
    (split,) = found["split"]
    assert (split["class neg"], split["class pos"], split["unlabelled"]) == (5, 5, 0)
    assert found["labels"].startswith("column 'label'")
    assert found["files that the label table does not list"] == [f"s{number:02d}" for number in range(10, 40)]
    assert "bags that cannot be used" not in found


@pytest.mark.parametrize(
    ("rows", "said"),
    [([], "not known"), (["s00,1,neg"], "known of 1"), ([f"s0{n // 3},{n % 3},neg" for n in range(6)], "known")],
)
def test_instance_labels_of_a_part_are_counted(folder: Path, rows: list[str], said: str) -> None:
    labels = label_table(folder, ["s00", "s01"])
    table = folder.parent / "instances.csv"
    table.write_text("\n".join(["slide_id,instance,instance_label", *(rows or ["s00,0,"])]) + "\n")
    words = ("--labels", labels, "--instance-labels", table, "--json", "--quiet")
    assert json.loads(run("inspect", folder, *words))["instance labels"] == said


def test_long_lists_are_cut_with_their_number(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    labels = label_table(folder, ["s00", "s01"])
    shown = run("inspect", folder, "--labels", labels, "--quiet")
    assert "does not list (38)" in shown
    assert f"and {38 - MOST_LINES} more; --json lists all" in shown
    assert "s39" not in shown


def test_bags_that_training_would_refuse_are_listed_with_the_reason(folder: Path) -> None:
    labels = label_table(folder, [*(f"s{number:02d}" for number in range(40)), "elsewhere"])
    by_name = json.loads(run("inspect", folder, "--labels", labels, "--json", "--quiet"))
    (missing,) = by_name["bags that cannot be used"]
    assert missing.startswith("elsewhere: ")
    read = json.loads(run("inspect", folder, "--labels", labels, "--json", "--quiet", "--read"))
    assert sorted(one.split(":")[0] for one in read["bags that cannot be used"]) == ["elsewhere", "s39"]
    assert read["bags"] == 39


def test_columns_of_the_label_table_are_named(folder: Path) -> None:
    labels = label_table(folder, ["s00", "s01"], column="Group")
    found = json.loads(run("inspect", folder, "--labels", labels, "--label-column", "Group", "--json", "--quiet"))
    assert found["labels"].startswith("column 'Group'")


def test_a_doubt_about_the_negative_class_is_a_note(tmp_path: Path) -> None:
    rows = "".join(f"s{bag},{('Tumor', 'normal')[bag % 2]},{bag}\n" for bag in range(8))
    (tmp_path / "cells.csv").write_text(f"bag_id,label,area\n{rows}")
    notes = json.loads(run("inspect", tmp_path / "cells.csv", "--json"))["notes"]
    doubt = "the negative class is 'Tumor', the first; if it is 'normal', name that first: --classes normal,Tumor"
    assert doubt in notes
    named = json.loads(run("inspect", tmp_path / "cells.csv", "--json", "--classes", "normal,Tumor"))
    assert doubt not in named.get("notes", [])
