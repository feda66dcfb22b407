"""Text from data on a terminal: shown as it is, never obeyed, in every command that shows any."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import fail, run
from made_predictions import made_predictions

from miue.bags import BagDataset, Coords
from miue.common.errors import DataError
from miue.common.text import ResultTable, visible
from miue.io import write_store
from miue.predictions import Predictions, Provenance

HOSTILE = ("[/x]", "[low]", "[red]a[/red]", ":smile:", "\\[b]", "\x1b[31mred", "\x9b2J", "\x07", "‮abc")
HARMLESS = ("naïve", "腫瘍", "a_b*c", "family 👨‍👩‍👧", "می‌خواهم")


@pytest.mark.parametrize("text", HOSTILE + HARMLESS)
def test_a_table_shows_every_text_as_it_is_and_passes_no_control_character_on(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ResultTable((f"head {text}",), ((f"cell {text}",),), (f"note {text}",)).show(f"title {text}")
    shown = capsys.readouterr().out
    for part in ("head", "title", "cell", "note"):
        assert f"{part} {visible(text)}" in shown
    if visible(text) != text:
        assert text not in shown


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("120", 80), (None, 80)])
def test_the_notes_of_a_narrow_table_has_lines_of_full_length(
    columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    words = " ".join(["distribution"] * 20)
    ResultTable(("metric",), (("accuracy",),), (words,)).show()
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if "distribution" in line]
    assert " ".join(lines) == words
    assert max(map(len, lines)) == width // 13 * 13 - 1


def test_the_notes_of_a_wide_table_is_as_wide(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    ResultTable(("x" * 200,), (("y",),), ("a " * 100,)).show()
    assert "a " * 99 + "a" in capsys.readouterr().out


def test_control_characters_become_escapes_and_letters_of_all_languages_stay() -> None:
    assert visible("a\x1b[31m\x7f\x9b\r‮\u2028\ud800") == r"a\x1b[31m\x7f\x9b\r\u202e\u2028\ud800"
    assert [visible(text) for text in HARMLESS] == list(HARMLESS)
    assert visible("a\nb\tc", keep="\n") == "a\nb\\tc"


def test_an_error_is_one_line_whatever_the_data_are_called(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("bag_id,f,label\n\x1b[31m\nb,1,x\n")
    said = fail("inspect", tmp_path / "t.csv")
    assert "\x1b" not in said and said.count("\n") == 1
    error = DataError(item="bag 'a\x1b[2J\nmiue: error: b'", wanted="x", got="y", fix="z")
    assert str(error) == r"bag 'a\x1b[2J\nmiue: error: b': expected x, got y; z"


@pytest.fixture
def hostile(tmp_path: Path) -> dict[str, Path]:
    """A long table, a store and predictions whose bags, classes and patients are called like markup."""
    names = ("[/x]", "\x1b[31m[low]")
    lines = [f"{bag},{k},{names[k % 2]},[/p{k}]" for k, bag in enumerate(HOSTILE)]
    (tmp_path / "t.csv").write_text("\n".join(["bag_id,f,label,patient", *lines]) + "\n", encoding="utf-8")
    made = made_predictions(len(HOSTILE), 3, ood_set=HOSTILE[0])
    ids = dict(zip(made.bags.bag_ids, HOSTILE, strict=True))
    called = [
        replace(table, bag_ids=np.array([ids[name] for name in table.bag_ids], object), decisions=None)
        for table in (made.bags, made.instances)
        if table is not None
    ]
    Predictions(called[0], called[1], Provenance(classes=names, network="[/x]\x1b[31m")).save(tmp_path / "pred")
    bags = BagDataset.from_arrays(
        [np.ones((2, 3), np.float32)] * len(HOSTILE),
        [k % 2 for k in range(len(HOSTILE))],
        ids=HOSTILE,
        class_names=names,
    )
    write_store(tmp_path / "store", bags, made_by={"source": "[/x]\x1b[31m"})
    return {"table": tmp_path / "t.csv", "store": tmp_path / "store", "predictions": tmp_path / "pred"}


@pytest.mark.parametrize("kind", ["table", "store"])
def test_inspect_shows_names_like_markup(kind: str, hostile: dict[str, Path]) -> None:
    shown = "".join(run("inspect", hostile[kind]).split())
    assert "\x1b" not in shown
    assert "class[/x]" in shown and r"class\x1b[31m[low]" in shown
    assert json.loads(run("inspect", hostile[kind], "--json"))["bags"] == len(HOSTILE)


def test_commands_on_predictions_show_names_like_markup(
    hostile: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = run("inspect", hostile["predictions"]) + run("evaluate", hostile["predictions"])
    assert "[/x]" in shown and "\x1b" not in shown
    assert run("inspect", hostile["predictions"], "--json")
    shown = run("worklist", hostile["predictions"], "--out", tmp_path / "w.csv")
    assert "\x1b" not in shown and "[low]" in shown and "[red]a[/red]" in shown and ":smile:" in shown
    assert (tmp_path / "w.json").exists()


def test_bags_left_out_are_listed_as_they_are_called(tmp_path: Path) -> None:
    lines = [
        f"{bag},{value},{label}"
        for bag, value, label in zip(HOSTILE, ("nan", *range(8)), "xyxyxyxyx", strict=True)
    ]
    (tmp_path / "t.csv").write_text(
        "\n".join(["bag_id,f,label", *lines, "\x1b[31m[/y],nan,x"]) + "\n", encoding="utf-8"
    )
    shown = run("inspect", tmp_path / "t.csv")
    assert "\x1b" not in shown and "[/x]: no finite number" in " ".join(shown.split())
    said = run("data", "pack", tmp_path / "t.csv", "--out", tmp_path / "s", "--skip-bad", "--quiet")
    assert "\x1b" not in said and r"left out: \x1b[31m[/y]: no finite number" in said


def test_a_name_that_is_too_long_for_the_terminal_is_folded_and_not_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    ResultTable(("slide", "reason"), (("S" * 60, "R" * 60),)).show()
    shown = capsys.readouterr().out
    assert shown.count("S") == 60 and shown.count("R") == 60


@pytest.mark.long
def test_names_like_formulas_are_drawn_as_they_are(tmp_path: Path) -> None:
    made = made_predictions(4, 4, name="$\\x$", ood_set="$\\x$")
    assert made.instances is not None
    coords = Coords.of(np.array([[256 * (row % 4), 0] for row in range(16)]))
    placed = Predictions(made.bags, replace(made.instances, coords=coords), Provenance(classes=("$\\y$", "$\\z$")))
    placed.save(tmp_path / "pred")
    run("export", "heatmap", tmp_path / "pred", "--out", tmp_path / "maps", "--quiet")
    assert len(list((tmp_path / "maps").glob("*.png"))) == 4
    run("report", tmp_path / "pred", "--out", tmp_path / "r.html", "--quiet")


@pytest.mark.parametrize("closed", ["0", "1", "2", "012"])
def test_a_closed_stream_takes_nothing_from_the_others(closed: str, tmp_path: Path) -> None:
    child = "import os; [os.fstat(number) for number in range(3)]"
    program = f"""
import os, subprocess, sys
for number in {closed!r}: os.close(int(number))
sys.stdin, sys.stdout, sys.stderr = (None if str(n) in {closed!r} else s for n, s in
                                     enumerate((sys.stdin, sys.stdout, sys.stderr)))
sys.argv = ["miue", "inspect"]
import typer
from miue.cli import run_commands
from miue.cli.flags import Commands
from miue.common.errors import DataError

app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)  # quicker than a command that loads torch

@app.callback()
def miue():
    pass

@app.command()
def inspect():
    raise DataError(item="a bag", wanted="x", got="y", fix="z")

try:
    run_commands(app, "miue")
except SystemExit as end:
    status = subprocess.run([sys.executable, "-c", {child!r}]).returncode
    open({str(tmp_path / "ended")!r}, "w").write(f"{{end.code}} {{status}}")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100
    )
    assert (tmp_path / "ended").read_text() == "2 0"
    assert not ended.stdout
    assert ("miue: error" in ended.stderr) == ("2" not in closed)
