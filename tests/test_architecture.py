"""The layers: an import goes downwards only; what is heavy is imported where it is used."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "miue"

LAYERS = [
    {"errors", "files", "locks", "seeds", "progress", "devices"},
    {"coords", "segments", "bags", "grouping", "tables", "slides", "readers"},
    {"encoders", "networks"},
    {"evidence", "distributions", "measures", "distances", "decisions"},
    {
        "methods",
        "config",
        "training",
        "prediction_table",
        "predictions",
        "prediction",
        "patients",
        "calibration",
        "model",
        "distance_scores",
        "validation_quantiles",
    },
    {"data"},
    {"evaluation"},
    {"report", "export", "hub"},
    {
        "api",
        "estimator",
        "cross_validation",
        "comparison",
        "plan",
        "run_folder",
        "demo",
        "experiments",
        "inspection",
        "cli",
        "__init__",
        "__main__",
    },
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
NO_NETWORKS = (
    "evaluation",
    "report",
    "export",
    "predictions",
    "calibration",
    "decisions",
    "measures",
    "distributions",
)


def imports() -> list[tuple[Path, str, str]]:
    """(file, its part, the part it imports) of every import within the package."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            modules = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [a.name for a in node.names] if node.module == "miue" else []
                modules = [f"miue.{name}" for name in names] or [node.module]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            found += [(path, part, m.split(".")[1]) for m in modules if m.startswith("miue.")]
    return found


def test_every_part_has_a_layer() -> None:
    parts = {
        p.name.removesuffix(".py")
        for p in SOURCE.iterdir()
        if not p.name.startswith("__py") and p.name != "py.typed"
    }
    assert parts == set(LEVEL)


def test_an_import_goes_downwards_only() -> None:
    upward = [f"{p.relative_to(SOURCE)} imports {to}" for p, part, to in imports() if LEVEL[to] > LEVEL[part]]
    assert len(imports()) > 100
    assert upward == []


def test_evaluation_and_report_never_see_a_network() -> None:
    reach = {part: {to for _, source, to in imports() if source == part} for part in LEVEL}
    for start in NO_NETWORKS:
        seen, todo = set(), [start]
        while todo:
            part = todo.pop()
            if part not in seen:
                seen.add(part)
                todo.extend(reach[part])
        assert not seen & {"networks", "encoders", "methods", "training", "model"}, start


def test_nothing_unpickles() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert "import pickle" not in text
        loads = re.findall(r"torch\.load\(.*\)", text)
        assert len(loads) == text.count("torch.load(") and all("weights_only=True" in load for load in loads)
        assert "allow_pickle=True" not in text


@pytest.mark.parametrize("name", ["BagDataset", "Model", "Segments", "evaluate", "train"])
def test_public_names_are_documented(name: str) -> None:
    import miue

    assert name in miue.__all__
    assert getattr(miue, name).__doc__
