"""What the pages of results show is what the commands that they name print from the files beside them."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import mean, stdev

import pytest
from typer.testing import CliRunner

from papers.mirel import published_tables
from papers.mirel.cli import app
from papers.mirel.results import metric_of, read_results

RESULTS = Path(__file__).resolve().parents[2] / "results"


def printed(*command: str) -> str:
    result = CliRunner().invoke(app, [*command, "--results", str(RESULTS)])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", published_tables())
def test_a_table_of_the_paper_is_what_its_files_say(name: str) -> None:
    assert (RESULTS / "tables" / f"{name}.md").read_text("utf-8") == printed("table", name)


@pytest.mark.parametrize(
    ("folder", "command"), [pytest.param("nuclei", (), marks=pytest.mark.slow), ("mitoses", ("--seeds", "42"))]
)
def test_the_page_of_other_data_is_what_its_files_say(folder: str, command: tuple[str, ...]) -> None:
    assert (RESULTS / folder / "README.md").read_text("utf-8") == printed(folder, "table", *command)


@pytest.mark.parametrize("command", [("ue",), ("seeds", "mnist/abmil-mirel")], ids=" ".join)
def test_the_page_of_results_shows_what_its_files_say(command: tuple[str, ...]) -> None:
    page = (RESULTS / "README.md").read_text("utf-8").splitlines()
    rows = [line for line in printed(*command).splitlines() if line.startswith("|")]
    assert len(rows) > 10 and [row for row in rows if row not in page] == []


@pytest.mark.parametrize(
    ("folder", "sets", "section", "columns", "rows"),
    [
        ("cifar10", ("svhn", "dtd"), "CIFAR10-bags", 5, 41),
        ("mnist", ("fmnist", "kmnist"), "Methods beyond the paper", 8, 10),
    ],
)
def test_rows_written_by_hand_are_means_of_the_files(
    folder: str, sets: tuple[str, str], section: str, columns: int, rows: int
) -> None:
    found = _means_and_deviations(folder, sets)
    possible = [row for rows_of_level in zip(*found, strict=True) for row in rows_of_level]
    if columns == 8:  # four of bags, four of instances
        possible = [bags[:8] + instances[:8] for bags, instances in zip(*found, strict=True)]
    page = (RESULTS / "README.md").read_text("utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in page.splitlines() if line.startswith("|") and "±" in line]
    shown = {
        line: [float(number) for number in re.findall(r"(?:\| |± )(-?\d+\.\d)", _ours(line))] for line in lines
    }
    assert len(shown) == rows and {len(numbers) for numbers in shown.values()} == {2 * columns}
    wrong = [
        line
        for line, numbers in shown.items()
        if not any(all(abs(a - b) < 0.0501 for a, b in zip(numbers, row, strict=True)) for row in possible)
    ]
    assert wrong == []


def _ours(line: str) -> str:
    """Return a row without what a cell says of the paper, after a semicolon."""
    return re.sub(r";[^|]*", " ", line)


def _means_and_deviations(folder: str, sets: tuple[str, str]) -> tuple[list[list[float]], list[list[float]]]:
    """Return mean, deviation, mean, … of accuracy, Conf., both OOD and UE over seeds, of bags and of instances.

    Each has one row for every preset and estimator.
    """
    found: tuple[list[list[float]], list[list[float]]] = ([], [])
    for preset in sorted((RESULTS / folder).iterdir()):
        runs = [run for path in preset.glob("*.csv") if (run := read_results(path))]
        for estimator in sorted({one.estimator for one in runs[0]}):
            for rows, level in zip(found, ("bag", "instance"), strict=True):
                tasks = ("accuracy", "conf", *(f"ood {name}*" for name in sets))
                seeds = [
                    [100 * (metric_of(run, estimator, level, task).value or 0) for task in tasks] for run in runs
                ]
                seeds = [[*values, mean(values[1:])] for values in seeds]
                rows.append([f(column) for column in zip(*seeds, strict=True) for f in (mean, stdev)])
    return found
