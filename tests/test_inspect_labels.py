"""``miue inspect`` of bags beside their labels: what training would read, and what it would leave out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import fail, run

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
    assert (split["class neg"], split["class pos"], split["unlabeled"]) == (5, 5, 0)
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


WRITTEN_IN_PART = {"s00": 2, "s01": 5, "s02": 5}
"""Rows of three bags of five that hold something."""


@pytest.mark.parametrize("kind", ["folder with labels", "images with labels", "table", "tables", "store"])
def test_rows_of_zeros_are_counted_in_bags_of_every_kind(kind: str, tmp_path: Path) -> None:
    shape = (5, 2, 2, 3) if kind.startswith("images") else (5, 7)
    path, words = tmp_path / "bags", ["--json", "--quiet"]
    path.mkdir()
    rows = ["bag_id,label," + ",".join(f"f{i}" for i in range(7))]
    for name, written in WRITTEN_IN_PART.items():
        values = np.zeros(shape, np.float32)
        values[:written, ..., 1] = 1 + np.arange(written).reshape(-1, *[1] * (len(shape) - 2))
        np.save(path / f"{name}.npy", values)
        rows += [f"{name},{name[-1]},{','.join(map(str, row))}" for row in values.reshape(5, -1)]
    if kind == "table":
        path = tmp_path / "table.csv"
        path.write_text("\n".join(rows) + "\n")
    elif kind == "tables":
        path = tmp_path / "tables"
        path.mkdir()
        for name in WRITTEN_IN_PART:
            own = [row.split(",", 2)[2] for row in rows if row.startswith((name, "bag_id"))]
            (path / f"{name}.csv").write_text("\n".join(own) + "\n")
    elif kind == "store":
        run("data", "pack", path, "--out", tmp_path / "store", "--quiet")
        path = tmp_path / "store"
    if kind not in ("table", "store"):
        words += ["--labels", str(label_table(path, list(WRITTEN_IN_PART)))]
    said = "3 of 15 rows are exactly zero in every feature, in 1 bag: s00 (3 of 5)"
    assert said not in json.loads(run("inspect", path, *words)).get("notes", [])
    assert said in json.loads(run("inspect", path, *words, "--read"))["notes"]


@pytest.mark.parametrize("kind", ["labels", "store"])
def test_bags_with_the_same_instances_under_two_names_are_found_as_values_are_read(
    tmp_path: Path, kind: str
) -> None:
    random = np.random.default_rng(0)
    path = tmp_path / "bags"
    path.mkdir()
    values = [random.normal(size=(5, 3)).astype(np.float32) for _ in range(4)]
    for name, bag in zip("abcdx", [*values, values[1]], strict=True):
        np.save(path / f"{name}.npy", bag)
    words = ["--json", "--quiet"]
    if kind == "store":
        run("data", "pack", path, "--out", tmp_path / "store", "--quiet")
        path = tmp_path / "store"
    else:
        words += ["--labels", str(label_table(path, list("abcdx")))]
    said = "bags hold the same instances as others: 'b' = 'x'"
    assert said not in str(json.loads(run("inspect", path, *words)))
    (note,) = json.loads(run("inspect", path, *words, "--read"))["notes"]
    assert note.startswith(said) and note.endswith("keep one of them, or give them one patient")
    assert ("with different labels" in note) == (kind == "labels")


def test_a_store_in_which_values_were_changed_names_their_bag_as_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "bags").mkdir()
    for name in "ab":
        np.save(tmp_path / "bags" / f"{name}.npy", np.ones((5, 7), np.float32))
    run("data", "pack", tmp_path / "bags", "--out", tmp_path / "store", "--quiet")
    values = np.load(tmp_path / "store" / "instances.npy")
    values[3, 1] = np.nan
    np.save(tmp_path / "store" / "instances.npy", values)
    said = fail("inspect", tmp_path / "store", "--quiet", "--read")
    assert "bag 'a'" in said and "the file was changed" in said


def test_of_bags_of_which_none_can_be_used_the_reasons_are_said(tmp_path: Path) -> None:
    folder = tmp_path / "bags"
    folder.mkdir()
    for name in ("s00", "s01"):
        np.save(folder / f"{name}.npy", np.full((3, 4), np.nan, np.float32))
    said = fail("inspect", folder, "--labels", label_table(folder, ["s00", "s01"]), "--quiet", "--read")
    assert "s00" in said and "finite" in said


@pytest.mark.parametrize("command", ["train", "cross-validate"])
def test_where_no_bag_can_be_used_commands_say_why(command: str, folder: Path, tmp_path: Path) -> None:
    for number in range(39):
        (folder / f"s{number:02d}.npy").unlink()
    words = ("--labels", label_table(folder, ["s39"]), "--skip-bad", "--out", tmp_path / "out", "--quiet")
    said = fail(command, folder, *words, "--classes", "neg,pos")
    assert "expected at least one bag, got none of 1 (s39: " in said and "finite" in said


def test_bags_without_a_patient_or_a_label_are_counted(folder: Path) -> None:
    rows = ["s00,neg,p0", "s01,pos,p0", "s02,neg,", "s03,,", "s04,pos,p1"]
    labels = folder.parent / "labels.csv"
    labels.write_text("\n".join(["slide_id,label,case_id", *rows]) + "\n")
    found = json.loads(run("inspect", folder, "--labels", labels, "--json", "--quiet"))
    assert found["split"][0]["unlabeled"] == 1
    assert found["labels"] == (
        "column 'label' (neg 2, pos 2, without label 1; negative class: neg), patients: column 'case_id' "
        "(4; 1 with bags of different classes)"
    )
    labels.write_text("slide_id,label,case_id\ns00,neg,p0\ns01,neg,p0\ns02,pos,p1\ns03,,p1\n")
    assert json.loads(run("inspect", folder, "--labels", labels, "--json", "--quiet"))["labels"].endswith("(2)")
    labels.write_text("slide_id,label,case_id\ns00,neg,s00\ns01,pos,s01\n")
    assert json.loads(run("inspect", folder, "--labels", labels, "--json", "--quiet"))["labels"].endswith("(2)")


def test_the_line_of_labels_stays_one_line_whatever_classes_are_called(folder: Path) -> None:
    labels = label_table(folder, [f"s{number:02d}" for number in range(39)])
    labels.write_text(labels.read_text().replace("pos", '"po\ns\tx"'))
    said = run("inspect", str(folder), "--labels", str(labels))
    assert "po\\ns\\tx 19" in " ".join(said.split()) and "po\n" not in said
