"""Embeddings of whole slides, a vector each: from a folder or a table to predictions of slides and of patients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import run
from made_bags import train_one_epoch
from made_files import features_of

import miue

FAST = ("--set", "max_epochs=2", "--method", "softmax", "--device", "cpu", "--quiet")
WIDTH = 5


def embeddings(root: Path, slides: int = 60) -> tuple[Path, Path]:
    """Two slides of each patient."""
    folder, lines = root / "slide_features_titan", ["slide_id,patient,label"]
    folder.mkdir(parents=True)
    for slide in range(slides):
        positive = slide // 2 % 2 == 0
        np.save(folder / f"s{slide:02d}.npy", features_of(1, WIDTH, seed=slide, positive=positive)[0])
        lines.append(f"s{slide:02d},p{slide // 2:02d},{'tumor' if positive else 'normal'}")
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder, root / "labels.csv"


def test_vectors_go_from_folder_to_predictions(tmp_path: Path) -> None:
    folder, labels = embeddings(tmp_path)
    said = run("train", folder, "--labels", labels, "--out", tmp_path / "run", *FAST)
    assert " ".join(said.split()).count("a bag of one instance (60 of 60 bags)") == 1
    words = ("--labels", labels, "--part", "test", "--out", tmp_path / "p", "--quiet")
    run("predict", tmp_path / "run", folder, *words)
    predictions = miue.read_predictions(tmp_path / "p")
    assert predictions.instances is not None
    assert len(predictions.bags) == len(predictions.instances) > 9
    assert "AUROC" in run("evaluate", tmp_path / "p")


def test_the_vectors_of_a_patient_are_one_bag(tmp_path: Path) -> None:
    folder, labels = embeddings(tmp_path, slides=8)
    bags = miue.load_bags(folder, labels=labels, bag_per="patient").bags
    assert bags.ids == ("p00", "p01", "p02", "p03") and bags.sizes.tolist() == [2] * 4
    assert np.array_equal(bags.batch([0]).instances, np.stack([np.load(folder / f"s0{one}.npy") for one in "01"]))
    assert len(train_one_epoch(bags).predict(bags).bags) == 4


@pytest.mark.parametrize("rows", [1, 2])
def test_a_row_of_a_table_is_a_bag_of_one_and_that_is_said(tmp_path: Path, rows: int) -> None:
    lines = [f"s{bag},{bag % 2},{bag}.5,{row}" for bag in range(4) for row in range(rows)]
    (tmp_path / "t.csv").write_text("\n".join(["bag_id,label,f_0,f_1", *lines]) + "\n")
    loaded = miue.load_bags(tmp_path / "t.csv")
    assert loaded.bags.sizes.tolist() == [rows] * 4
    assert sum("one instance" in note for note in loaded.notes) == (rows == 1)
