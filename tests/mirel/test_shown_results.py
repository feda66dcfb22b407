"""What the pages of results show is what the commands that they name print from the files beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from papers.mirel import published_tables
from papers.mirel.cli import app

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
