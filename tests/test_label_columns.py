"""Labels of bags or instances that are taken for features are said, of tables and data frames."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from commands import run

import miue
from miue.bags.dataset import BagDataset
from miue.bags.label_columns import label_columns
from miue.bags.labels import Labels


def rows_of_bags(count: int = 12, num_classes: int = 2) -> dict[str, list[object]]:
    """Return a table of bags of three instances, the last of them of the bag's class, with codes of both."""
    generator = np.random.default_rng(5)
    table: dict[str, list[object]] = {name: [] for name in ("visit", "grade", "area", "cell", "benign", "code")}
    for bag in range(count):
        label = bag % num_classes
        for instance in range(3):
            of_instance = label if instance == 2 else 0
            table["visit"].append(f"v{bag:02d}")
            table["grade"].append("abc"[label])
            table["area"].append(round(float(generator.normal(10)), 4))
            table["cell"].append(of_instance)
            table["benign"].append(2 - of_instance)
            table["code"].append((7, 3, 5)[label])
    return table


def write(table: dict[str, list[object]], path: Path) -> Path:
    """Write a table as CSV."""
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("num_classes", [2, 3])
def test_labels_among_the_columns_of_a_table_are_said(tmp_path: Path, num_classes: int) -> None:
    path = write(rows_of_bags(num_classes=num_classes), tmp_path / "cells.csv")
    options = ("--id-column", "visit", "--label-column", "grade")
    shown = run("inspect", path, *options)
    said = "telling the class of every labeled bag by one number for each class: 'cell', 'benign', 'code';"
    assert said in " ".join(shown.replace("│", " ").split())
    assert "telling" not in run("inspect", path, *options, "--features", "area")
    notes = miue.load_bags(path, columns={"bag_id": "visit", "label": "grade"}).notes
    assert "choose the features (--features NAME, in Python features=[NAME])" in notes[0]
    chosen = miue.load_bags(path, columns={"bag_id": "visit", "label": "grade"}, features=["cell"])
    assert not any("telling" in note for note in chosen.notes)


def test_labels_among_the_columns_of_a_data_frame_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    frame = rows_of_bags()
    with caplog.at_level(logging.WARNING):
        BagDataset.from_frame(frame, bag="visit", label="grade")
    assert "'cell', 'benign', 'code'" in caplog.text
    assert "features=[…]" in caplog.text
    caplog.clear()
    BagDataset.from_frame(frame, bag="visit", label="grade", features=["area", "cell"])
    BagDataset.from_frame({name: frame[name] for name in ("visit", "grade", "area")}, bag="visit", label="grade")
    BagDataset.from_frame({name: frame[name] for name in ("visit", "area", "cell")}, bag="visit")
    assert not caplog.text


def test_a_feature_that_differs_within_a_class_or_agrees_by_chance_is_none() -> None:
    bags = [np.array([[0.0, label, label]]) for label in [0, 1] * 6]
    labels = Labels.of([0, 1] * 6)
    assert label_columns(bags, labels, ["constant", "a", "b"]) == ["a", "b"]
    bags[3][0, 2] = 1.5
    assert label_columns(bags, labels, ["constant", "a", "b"]) == ["a"]
    few = Labels.of([0, 1] * 4 + [None] * 4)
    assert label_columns(bags, few, ["constant", "a", "b"]) == []
    unlabeled = Labels.of([0, 1, 0, None] + [0, 1] * 4)
    assert label_columns(bags, unlabeled, ["constant", "a", "b"]) == ["a", "b"]
    assert label_columns(bags, Labels.of([1] * 12), ["constant", "a", "b"]) == []
