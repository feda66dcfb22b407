"""What the pages of results show is what the commands that they name print from the files beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev

import pytest
from typer.testing import CliRunner

from papers.mirel import published_tables
from papers.mirel.cli import app
from papers.mirel.results import Result, metric_of, read_results

RESULTS = Path(__file__).resolve().parents[2] / "results"


def printed(*command: str) -> str:
    result = CliRunner().invoke(app, [*command, "--results", str(RESULTS)])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", published_tables())
def test_a_table_of_the_paper_is_what_its_files_say(name: str) -> None:
    assert (RESULTS / "tables" / f"{name}.md").read_text("utf-8") == printed("table", name, "--older")


@pytest.mark.parametrize(
    ("folder", "command"), [pytest.param("nuclei", (), marks=pytest.mark.slow), ("mitoses", ("--seeds", "42"))]
)
def test_the_page_of_other_data_is_what_its_files_say(folder: str, command: tuple[str, ...]) -> None:
    assert (RESULTS / folder / "README.md").read_text("utf-8") == printed(folder, "table", "--older", *command)


def test_ue_with_the_combined_distance_is_what_its_files_say() -> None:
    assert (RESULTS / "tables/ue.md").read_text("utf-8") == printed("ue", "--older")


def test_what_temperatures_change_is_what_its_file_says() -> None:
    assert (RESULTS / "temperatures.md").read_text("utf-8") == printed("temperatures")


def test_numbers_in_the_text_on_mnist_are_those_of_the_files() -> None:
    page = (RESULTS / "README.md").read_text("utf-8")
    known = {pair for runs, estimator in _presets("mnist") for pair in _means_and_deviations(runs, estimator)}
    shown = re.findall(r"(?<!paper )(?<!reaches )\b(\d+\.\d ± \d+\.\d)", page)
    assert len(shown) > 5 and set(shown) - known == set()
    differences = re.findall(r"[+−]\d+\.\d \[[+−]\d+\.\d, [+−]\d+\.\d\]", page)
    table = (RESULTS / "tables/table-mnist.md").read_text("utf-8")
    assert differences and [one for one in differences if one.replace("−", "-") not in table] == []


def _presets(data: str) -> Iterator[tuple[list[list[Result]], str]]:
    """Yield the runs of each preset with each of its estimators."""
    for preset in sorted((RESULTS / data).iterdir()):
        runs = [run for path in preset.glob("*.csv") if (run := read_results(path))]
        yield from ((runs, estimator) for estimator in sorted({one.estimator for one in runs[0]}))


def _means_and_deviations(runs: list[list[Result]], estimator: str) -> Iterator[str]:
    """Yield mean ± standard deviation of accuracy, Conf. and both OOD over seeds, in %, as text."""
    for level in ("bag", "instance"):
        for task in ("accuracy", "conf", "ood fmnist", "ood kmnist*"):
            values = [100 * (metric_of(run, estimator, level, task).value or 0) for run in runs]
            yield f"{mean(values):.1f} ± {stdev(values):.1f}"
