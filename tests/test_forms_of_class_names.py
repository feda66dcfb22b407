"""A class is the same however letters with marks are written: as one sign, or as a letter and a mark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import made_files
import numpy as np
import pytest
import torch
from commands import run
from made_bags import separable_bags, train_one_epoch

import miue
from miue.bags import Coords, Labels, OodFlags
from miue.calibration import InstanceGoal
from miue.distributions import Categorical
from miue.io import read_store, write_store
from miue.pathology.export.patches import class_number
from miue.predictions import Predictions, PredictionTable, Provenance, read_predictions

NAMES = ("Grün hell", "Ärmel blau", "gelb")
APART = tuple(normalize("NFD", name) for name in NAMES)
ROWS = "a,gelb,0.1,0.2,0.7\nb,{green},0.8,0.1,0.1\nc,gelb,0.2,0.7,0.1\n"


def predicted() -> Predictions:
    ids, labels = np.array(["a", "b"], object), [0, 1]

    def table(count: int, instance: np.ndarray | None = None) -> PredictionTable:
        return PredictionTable(
            distribution=Categorical(torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]).double()),
            bag_ids=ids,
            labels=Labels.of(labels),
            is_ood=OodFlags.unknown(count),
            ood_sets=np.full(count, "", object),
            instance=instance,
            coords=None if instance is None else Coords.of(np.array([[0, 0], [256, 0]])),
        )

    return Predictions(table(2), table(2, np.zeros(2, np.int64)), Provenance(classes=NAMES))


@pytest.mark.parametrize(("names", "labels"), [(APART, NAMES), (NAMES, APART), ((), NAMES[:2] + APART)])
def test_labels_of_lists_are_the_classes_of_either_form(names: tuple[str, ...], labels: tuple[str, ...]) -> None:
    arrays = [np.zeros((2, 3), np.float32)] * len(labels)
    bags = miue.BagDataset.from_arrays(arrays, list(labels), class_names=names)
    assert bags.class_names == NAMES if names else set(bags.class_names) == set(NAMES)
    assert [bags.class_names[label] for label in bags.labels.values] == [
        normalize("NFC", label) for label in labels
    ]


def test_class_names_that_are_one_in_another_form_are_refused() -> None:
    with pytest.raises(miue.MiueError, match="a different text for each class"):
        miue.BagDataset.from_arrays([np.zeros((2, 3))] * 2, [0, 1], class_names=[NAMES[0], APART[0]])


@pytest.mark.parametrize("of_model", [NAMES[:2], APART[:2]])
def test_bags_are_predicted_whose_classes_are_in_another_form(of_model: tuple[str, ...]) -> None:
    bags = separable_bags()
    model = train_one_epoch(replace(bags, class_names=of_model))
    for names in (NAMES[:2], APART[:2]):
        found = model.predict(replace(bags, class_names=names)).bags.labels
        assert found.values.tolist() == bags.labels.values.tolist()
        swapped = model.predict(replace(bags, class_names=names[::-1])).bags.labels
        assert swapped.values.tolist() == (1 - bags.labels.values).tolist()


@pytest.mark.parametrize("header", [NAMES, APART])
@pytest.mark.parametrize("prefix", ["p_", ""])
@pytest.mark.parametrize("named", [NAMES[::-1], APART[::-1]])
def test_columns_of_a_table_are_of_classes_in_either_form(
    header: tuple[str, ...], prefix: str, named: tuple[str, ...], tmp_path: Path
) -> None:
    columns = ",".join(prefix + name for name in header)
    for green in (NAMES[0], APART[0]):
        (tmp_path / "t.csv").write_text(f"slide_id,label,{columns}\n" + ROWS.format(green=green), "utf-8")
        predictions = read_predictions(tmp_path / "t.csv", classes=named)
        assert predictions.provenance.classes == NAMES[::-1]
        assert predictions.bags.labels.values.tolist() == [0, 2, 0]
        assert predictions.bags.probabilities[1].tolist() == pytest.approx([0.1, 0.1, 0.8])


def test_commands_take_names_of_classes_in_either_form(tmp_path: Path) -> None:
    predicted().save(tmp_path / "p")
    for names in (NAMES, APART):
        assert "100.00" in run("evaluate", tmp_path / "p", "--classes", ",".join(names))
        out = tmp_path / f"out-{len(names[0])}"
        run("export", "geojson", tmp_path / "p", "--out", out, "--class", names[1], "--patch-size", 256, "--quiet")
        written = [json.loads(file.read_text("utf-8"))["features"] for file in sorted(out.glob("*.geojson"))]
        assert [one["properties"]["classification"]["name"] for file in written for one in file] == [NAMES[1]]
    write_store(tmp_path / "store", replace(separable_bags(), class_names=NAMES[:2]))
    for names in (NAMES, APART):
        packed = tmp_path / f"packed-{len(names[0])}"
        run("data", "pack", tmp_path / "store", "--out", packed, "--classes", ",".join(names[:2]), "--quiet")
        assert read_store(packed).class_names == NAMES[:2]
    _, labels = made_files.slides(tmp_path, patients=12)
    labels.write_text(
        labels.read_text().replace(",normal", f",{NAMES[0]}").replace(",tumor", f",{APART[1]}"), "utf-8"
    )
    words = ["data", "pack", tmp_path / "features_uni_v1", "--labels", labels, "--quiet"]
    for names in (NAMES, APART):
        packed = tmp_path / f"slides-{len(names[0])}"
        run(*words, "--out", packed, "--classes", ",".join(names[1::-1]))
        assert read_store(packed).class_names == NAMES[1::-1]


@pytest.mark.parametrize("name", [NAMES[1], APART[1]])
def test_one_class_is_found_by_its_name_in_either_form(name: str) -> None:
    for names in (NAMES, APART):
        assert class_number(list(names), name) == 1
        assert InstanceGoal("detection", 0.1, negative_class=name).find_negative_class(names) == 1
