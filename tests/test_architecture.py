"""The packages and who may import whom; what is heavy is imported where it is used."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "miue"

MAY_IMPORT: dict[str, set[str]] = {
    "common": set(),
    "settings": {"common"},
    "targets": {"common"},
    "bags": {"common", "targets"},
    "distributions": {"common"},
    "networks": {"common", "bags"},
    "scores": {"common", "bags"},
    "evidence": {"common", "bags", "distributions"},
    "methods": {"common", "bags", "distributions", "networks", "evidence"},
    "predictions": {"common", "targets", "bags", "distributions"},
    "calibration": {"common", "settings", "targets", "bags", "distributions", "predictions"},
    "evaluation": {"common", "targets", "bags", "distributions", "predictions", "calibration"},
    "io": {"common", "settings", "targets", "bags"},
    "datasets": {"common", "bags", "io"},
    "model": {
        "common",
        "settings",
        "targets",
        "bags",
        "distributions",
        "networks",
        "scores",
        "methods",
        "predictions",
        "calibration",
        "evaluation",
        "io",
    },
    "training": {"common", "settings", "bags", "networks", "methods", "scores", "predictions", "model", "io"},
    "selection": {
        "common",
        "settings",
        "bags",
        "distributions",
        "io",
        "predictions",
        "evaluation",
        "model",
        "training",
    },
    "sklearn": {"common", "settings", "targets", "bags", "predictions", "model", "training"},
    "pathology": {"common", "bags", "distributions", "predictions", "calibration", "io"},
    "report": {"common", "bags", "distributions", "predictions", "calibration", "evaluation"},
    "view": {"common", "settings", "targets", "bags", "predictions", "calibration", "io", "pathology"},
}
"""Each package and those that it may import, in the order of docs/architecture.md; cli may import all of them."""

LIGHT = ("distributions", "predictions", "calibration", "evaluation", "report")
"""What works on tables of predictions, and never sees a network or a trainer."""


BUDGET = {
    "common": (4_260, 26),
    "settings": (845, 7),
    "targets": (1_125, 10),
    "bags": (4_705, 21),
    "distributions": (765, 9),
    "networks": (1_755, 14),
    "scores": (1_125, 9),
    "evidence": (335, 5),
    "methods": (2_270, 16),
    "predictions": (3_220, 14),
    "calibration": (4_740, 24),
    "evaluation": (3_035, 13),
    "io": (6_935, 39),
    "datasets": (1_035, 9),
    "model": (3_910, 16),
    "training": (3_085, 14),
    "selection": (1_900, 9),
    "sklearn": (910, 6),
    "pathology": (3_330, 17),
    "report": (4_080, 12),
    "cli": (4_415, 28),
    "view": (1_880, 6),
}
"""Most lines of code, scripts and templates, and most Python files of each package. Lower a number where a package
gets smaller; where an ability makes one larger, raise it in the same commit."""

ROOMS, FLOORS, PERMISSIONS, DEEP_IMPORTS = 26, 12, 116, 151
"""Most packages; packages one above the other; permissions to import; and names that a package takes from within
another in place of its face."""


@cache
def imports() -> list[tuple[Path, str, str]]:
    """(file, its package, the package that it imports) of every import within miue."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            modules = []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = (
                    [f"miue.{alias.name}" for alias in node.names] if node.module == "miue" else [node.module]
                )
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            found += [(path, package, name.split(".")[1]) for name in modules if name.startswith("miue.")]
            assert not any(name.split(".")[0] == "papers" for name in modules), path
    return found


def test_every_package_is_known() -> None:
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert packages == {*MAY_IMPORT, "cli"}
    assert len(list(SOURCE.glob("[a-z_]*"))) <= 26  # 25, and __pycache__


def test_the_page_lists_every_package_in_this_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert re.findall(r"^  (\w+)/ ", page, re.M) == [*MAY_IMPORT, "cli"]


def test_a_package_imports_only_what_it_may() -> None:
    assert len(imports()) > 300
    wrong = [
        f"{path.relative_to(SOURCE)} imports {to}"
        for path, package, to in imports()
        if package in MAY_IMPORT and to != package and to not in MAY_IMPORT[package]
    ]
    assert wrong == []


def test_every_permission_is_used() -> None:
    used = {(package, to) for _, package, to in imports()}
    unused = [
        (package, to) for package, allowed in MAY_IMPORT.items() for to in allowed if (package, to) not in used
    ]
    assert unused == []


def test_every_dependency_is_on_the_page_and_its_bound_where_one_is_stated() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    groups = [*project["project"]["optional-dependencies"].values(), *project["dependency-groups"].values()]
    listed = [*project["project"]["dependencies"], *(one for group in groups for one in group)]
    matches = [re.match(r"([\w-]+)>=([\w.]+)", one) for one in listed if isinstance(one, str)]
    bounds = {match[1].lower(): match[2] for match in matches if match}
    assert len(bounds) > 40
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8").lower()
    reasons, reviewed = page.split("## dependencies, and why")[1].split("## lower bounds, and why")
    assert [name for name in bounds if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", reasons)] == []
    stated = re.findall(r"^\| ([\w-]+) ≥ ([\d.]+)", reasons, re.M)
    stated += re.findall(r"^\| ([\w-]+) \| ([\d.]+) \|", reviewed, re.M)
    assert len(stated) > 15
    assert [(name, bound) for name, bound in stated if bounds[name] != bound] == []


@pytest.mark.parametrize("package", BUDGET)
def test_a_package_keeps_its_budget(package: str) -> None:
    files = [path for path in (SOURCE / package).rglob("*") if path.suffix in (".py", ".js", ".j2")]
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in files)
    most_lines, most_files = BUDGET[package]
    assert lines <= most_lines
    assert sum(path.suffix == ".py" for path in files) <= most_files


def test_the_house_has_few_rooms_floors_and_doors() -> None:
    floor: dict[str, int] = {}
    for package, below in MAY_IMPORT.items():
        floor[package] = 1 + max((floor[one] for one in below), default=0)
    assert len(MAY_IMPORT) + 1 <= ROOMS
    assert max(floor.values()) + 1 <= FLOORS  # cli stands on all
    assert sum(map(len, MAY_IMPORT.values())) <= PERMISSIONS


def test_packages_import_from_the_faces_of_others() -> None:
    deep = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.count(".") > 1:
                _, package, *_ = node.module.split(".")
                if node.module.startswith("miue.") and package not in (
                    path.relative_to(SOURCE).parts[0],
                    "common",
                ):
                    deep |= {(node.module, alias.name) for alias in node.names}
    assert len(deep) <= DEEP_IMPORTS


def test_a_package_may_import_only_those_above_it() -> None:
    order = list(MAY_IMPORT)
    assert [(one, to) for one in order for to in MAY_IMPORT[one] if to not in order[: order.index(one)]] == []


@pytest.mark.parametrize("start", LIGHT)
def test_what_reads_tables_never_sees_a_network(start: str) -> None:
    seen: set[str] = set()
    todo = [start]
    while todo:
        package = todo.pop()
        if package not in seen:
            seen.add(package)
            todo.extend(MAY_IMPORT[package])
    assert not seen & {"networks", "methods", "training", "model", "io"}


def test_nothing_unpickles() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert "import pickle" not in text
        loads = re.findall(r"torch\.load\(.*\)", text)
        assert len(loads) == text.count("torch.load(") and all("weights_only=True" in load for load in loads)
        assert "allow_pickle=True" not in text


@pytest.mark.long
def test_text_reaches_a_terminal_through_one_module() -> None:
    """rich would read markup in it, and typer and print would pass on what a terminal obeys."""
    allowed = {"text.py": {"rich.table", "rich.text", "print"}, "__init__.py": {"print"}}
    for path in SOURCE.rglob("*.py"):
        used = {name for name in ("rich.table", "rich.text", "rich.markup") if name in path.read_text()}
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                used |= {called} & {"typer.echo", "typer.secho", "click.echo", "print", "rich.print"}
                if called.lower().endswith("console.print") or called == "Console().print":
                    assert all(ast.unparse(one).startswith("literal(") for one in node.args) or (
                        path.name == "text.py"
                    ), path
        assert used <= allowed.get(path.name, set()), path


@pytest.mark.parametrize("name", ["BagDataset", "Model", "Segments", "evaluate", "train"])
def test_public_names_are_documented(name: str) -> None:
    import miue

    assert name in miue.__all__
    assert getattr(miue, name).__doc__
