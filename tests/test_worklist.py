"""The worklist: what needs a human first, and why."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_slides import alpha_of, export
from made_slides import prediction_table as table

from miue.decisions import Decisions
from miue.distributions import Categorical, Dirichlet
from miue.errors import ConfigError, StorageError
from miue.escapes import escape_formula
from miue.export.worklist import BETWEEN, FAR, FEW, FOREIGN, REFERRED, UNSURE, Limits, worklist, write_worklist
from miue.predictions import Predictions


def worrying() -> Predictions:
    """Twelve slides: ten that are fine, one far from training data, one that the model is unsure of."""
    alpha = torch.tensor([[40.0, 1.0]] * 10 + [[1.0, 40.0], [1.5, 1.0]], dtype=torch.float64)
    distance = np.array([1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.1, 0.9, 1.0, 1.02, 9.0, 1.0])
    ids = [f"s{i}" for i in range(12)]
    bags = table(Dirichlet(alpha), ids, knn_mean=distance)
    counts = [60] * 11 + [3]
    patches = [name for name, count in zip(ids, counts, strict=True) for _ in range(count)]
    return Predictions(bags, table(alpha_of(len(patches)), patches))


def test_a_worklist_puts_first_what_needs_a_human_and_says_why() -> None:
    made_list = worklist(worrying())
    first, second, *others = made_list.rows
    assert (first["slide"], second["slide"]) == ("s10", "s11")
    assert first["reason"].startswith(FAR)
    assert [part.split(" (")[0] for part in second["reason"].split("; ")] == [UNSURE, BETWEEN, FEW]
    assert {row["look"] for row in others} == {"routine"}
    assert {row["reason"] for row in others} == {""}
    assert set(made_list.judged) == {FAR, UNSURE, BETWEEN, FEW}
    assert [row["order"] for row in made_list.rows] == list(range(1, 13))


def test_the_limits_of_a_worklist_are_those_given() -> None:
    rows = worklist(worrying(), Limits(probability=0.0, model=9.0, distance=10.0, patches=0)).rows
    assert {row["look"] for row in rows} == {"routine"}
    rows = worklist(worrying(), Limits(distance=0.5)).rows
    assert sum(FAR in row["reason"] for row in rows) == 12
    with pytest.raises(ConfigError, match="limits"):
        Limits(probability=1.5)


def test_slides_of_the_same_reasons_are_ordered_by_entropy() -> None:
    p = torch.tensor([[0.3, 0.7], [0.5, 0.5], [0.05, 0.95], [0.2, 0.8], [0.4, 0.6]], dtype=torch.float64)
    rows = worklist(Predictions(table(Categorical(p), list("abcde")), None)).rows
    assert [row["slide"] for row in rows] == list("beadc")


def test_a_worklist_says_what_it_cannot_judge() -> None:
    p = torch.tensor([[0.4, 0.6], [0.99, 0.01]], dtype=torch.float64)
    made_list = worklist(Predictions(table(Categorical(p), ["a", "b"]), None))
    assert set(made_list.not_judged) == {FOREIGN, REFERRED, UNSURE, FAR, FEW}
    assert [row["slide"] for row in made_list.rows] == ["a", "b"]
    assert made_list.rows[0]["patches"] is None


def decided() -> Predictions:
    """The twelve slides after a calibration referred the third and called the fifth out of distribution."""
    given = worrying()
    names = np.array(["0", "0", "refer", "0", "out of distribution", *["0"] * 7], object)
    reasons = np.array([f"{name}, for a reason" for name in names], object)
    return replace(given, bags=replace(given.bags, decisions=Decisions(names, reasons)))


def test_what_a_calibration_refers_or_calls_out_is_not_routine() -> None:
    made_list = worklist(decided())
    assert [row["slide"] for row in made_list.rows[:4]] == ["s4", "s10", "s2", "s11"]
    assert made_list.rows[0]["reason"] == f"{FOREIGN} (out of distribution, for a reason)"
    assert made_list.rows[2]["reason"] == f"{REFERRED} (refer, for a reason)"
    assert [row["decision"] for row in made_list.rows[:4]] == ["out of distribution", "0", "refer", "0"]
    assert {row["look"] for row in made_list.rows[:4]} == {"first"}
    assert {row["look"] for row in made_list.rows[4:]} == {"routine"}
    assert "decision" not in worklist(worrying()).rows[0]


def test_the_worklist_command_writes_the_rows_and_the_limits(tmp_path: Path) -> None:
    worrying().save(tmp_path / "p")
    result = export("worklist", tmp_path / "p", "--out", tmp_path / "list.csv", "--patches", 5)
    assert result.exit_code == 0, result.output
    assert "2 of 12 slides" in result.output
    with (tmp_path / "list.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["slide"] for row in rows[:2]] == ["s10", "s11"]
    assert "few patches (3 < 5)" in rows[1]["reason"]
    assert json.loads((tmp_path / "list.json").read_text())["judged"][FEW] == "fewer than 5 patches"
    again = export("worklist", tmp_path / "p", "--out", tmp_path / "list.csv")
    assert isinstance(again.exception, StorageError)


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "\n=", " =", "\uff1d", "a;=", "a\n@"])
def test_no_cell_of_a_worklist_is_a_formula(begin: str, tmp_path: Path) -> None:
    made = worrying()
    names = {name: f"{begin}cmd({name})" for name in made.bags.bag_ids}
    tables = [
        replace(table, bag_ids=np.array([names[name] for name in table.bag_ids], object))
        for table in (made.bags, made.instances)
        if table is not None
    ]
    hostile = Predictions(tables[0], tables[1], {"classes": [f"{begin}no", f"{begin}yes"]})
    write_worklist(tmp_path / "list.csv", worklist(hostile))
    with (tmp_path / "list.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    for row in rows:
        for cell in row.values():
            for part in re.split(r"[;\t\r\n]", cell):
                assert part.strip()[:1] not in tuple("=+-@\uff1d") or not part.strip(), cell
            assert cell[:1] not in ("\t", "\r", "\n")
    assert {row["predicted"].replace("'", "") for row in rows} <= {f"{begin}no", f"{begin}yes"}


def test_numbers_and_plain_names_of_a_worklist_stay_as_they_are(tmp_path: Path) -> None:
    assert [escape_formula(text) for text in ("s1", "a-b", "1 = 1; b", "")] == ["s1", "a-b", "1 = 1; b", ""]
