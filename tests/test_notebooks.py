"""Every notebook runs from its first cell to its last, and is stored without outputs."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def read_cells(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return cells


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_run_in_their_order(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_epochs: None
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    shown = 0
    for cell in read_cells(path):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, path.name, "exec"), scope)
        if last is not None:  # what a notebook shows below the cell
            assert isinstance(last, ast.Expr)
            value = eval(compile(ast.Expression(last.value), path.name, "eval"), scope)
            shown += value is not None and bool(repr(value))
            rich = hasattr(value, "_repr_png_") or hasattr(value, "_repr_html_")
            assert rich or not repr(value).startswith("<"), f"a notebook shows {value!r} as this text"
    assert shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs_and_its_links_lead_somewhere(path: Path) -> None:
    cells = read_cells(path)
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
    text = "\n".join("".join(cell["source"]) for cell in cells)
    targets = [part.split(")")[0] for part in text.split("](")[1:]]
    assert targets and all((path.parent / target).exists() for target in targets)


def test_every_notebook_is_listed_in_the_documentation() -> None:
    page = (ROOT / "docs" / "index.md").read_text()
    assert len(NOTEBOOKS) == 4 and all(f"notebooks/{path.name}" in page for path in NOTEBOOKS)
