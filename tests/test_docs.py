"""What the documentation says runs, and what its reference names exists."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import miue
import miue.evidence
from miue.calibration import monitoring, needed_by_default
from miue.cli import app
from miue.cli.worklist import worklist_table
from miue.datasets import gaussian

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = ("tutorial", "data", "slides", "howto/python", "howto/other_tools", "howto/own_network")
REFERENCE = sorted((DOCS / "reference").glob("*.md"))


def resolved(name: str) -> Any:
    """Return what a dotted name stands for."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def named(path: Path) -> list[str]:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=path.name))
    return re.findall(r"^::: (\S+)$", hooks().on_page_markdown(path.read_text(), page), re.M)


def hooks() -> Any:
    """Return what the documentation is built with."""
    return script("hooks")


def script(name: str) -> Any:
    """Return a script of the documentation as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_state_how_many_bags_a_calibration_needs() -> None:
    needed = needed_by_default()
    assert f"at least {needed} labeled bags" in (DOCS / "limits.md").read_text()
    assert f"{needed} by default" in (DOCS / "decisions.md").read_text()


def test_the_walkthrough_shows_the_columns_of_the_worklist() -> None:
    header = next(line for line in (DOCS / "slides.md").read_text().splitlines() if line.startswith("┃"))
    assert [name.strip() for name in header.strip("┃").split("┃")] == list(worklist_table([]).heading)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("page", PAGES)
def test_commands_and_code_of_a_page_run_in_their_order(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_epochs: None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for part in gaussian.SIZES:
        monkeypatch.setitem(gaussian.SIZES, part, 50)  # pages that use these bags do not say how many there are
    blocks = re.findall(r"```(sh|python)(?: title=\"(\S+)\")?\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.S)
    assert {language for language, _, _ in blocks} == {"sh", "python"}
    scope: dict[str, object] = {}
    for language, title, block in blocks:
        if title:
            Path(title).write_text(block)
            continue
        if language == "python":
            exec(compile(block, f"{page}.md", "exec"), scope)
            continue
        for line in block.strip().splitlines():
            name, *command = shlex.split(line)
            assert name == "miue"
            result = CliRunner().invoke(app, command)
            assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception}"


@pytest.mark.parametrize("page", REFERENCE, ids=lambda path: path.stem)
def test_every_name_of_the_reference_exists_and_is_documented(page: Path) -> None:
    names = named(page)
    assert names
    for name in names:
        found = resolved(name)
        assert isinstance(found, Mapping | list | tuple) or found.__doc__, name


def test_every_public_name_is_in_the_reference() -> None:
    listed = [resolved(name) for page in REFERENCE for name in named(page)]
    listed += [
        miue.METHODS,
        miue.NETWORKS,
        miue.ENCODERS,
        miue.DISTANCES,
        miue.evidence.ACTIVATIONS,
    ]  # by their entries
    missing = [name for name in miue.__all__ if not any(getattr(miue, name) is one for one in listed)]
    assert missing == []


def test_what_a_page_calls_by_its_whole_name_is_in_the_reference() -> None:
    listed = [resolved(name) for page in REFERENCE for name in named(page)]
    called = {
        name
        for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]
        for name in re.findall(r"`(miue(?:\.[a-z_]+)+\.\w+)\(", page.read_text())
    }
    assert {"miue.calibration.monitoring.monitor", "miue.calibration.estimate_mix"} & called
    assert [name for name in sorted(called) if not any(resolved(name) is one for one in listed)] == []


def test_what_can_be_imported_to_monitor_is_in_the_reference() -> None:
    listed = [resolved(name) for page in REFERENCE for name in named(page)]
    assert [name for name in monitoring.__all__ if getattr(monitoring, name) not in listed] == []


def test_every_module_of_a_method_network_encoder_or_distance_is_in_the_reference() -> None:
    listed = [resolved(name) for page in REFERENCE for name in named(page)]
    for registry in (miue.METHODS, miue.NETWORKS, miue.ENCODERS, miue.DISTANCES):
        assert [name for name, one in registry.items() if one not in listed] == []


def test_functions_named_beside_equations_exist() -> None:
    links = re.findall(r"\[`([\w.]+)`\]\[(miue\.[\w.]+)\]", (DOCS / "method.md").read_text())
    assert len(links) > 20
    for word, target in links:
        found, (*_, last) = resolved(target), word.split(".")
        assert last in (target.rsplit(".", 1)[1], getattr(found, "__name__", "")) or hasattr(found, last), word


def test_the_tables_of_all_parts_are_what_the_registries_say(monkeypatch: pytest.MonkeyPatch) -> None:
    generate = script("generate")
    page = generate.choosing_page()
    assert (DOCS / "choosing.md").read_text() == page and "smoothed" not in page
    monkeypatch.setitem(miue.METHODS._own, "smoothed", "parts_of_others:Smoothed")
    assert "| `smoothed` | A method with a loss of its own. | `smoothing=0.1` | bag-of-one, attention |" in (
        generate.choosing_page()
    )


def test_the_page_of_commands_describes_each_option_and_a_shared_one_once() -> None:
    page = script("generate").commands_page()
    assert page == (DOCS / "cli.md").read_text()
    assert page.count("- `--labels PATH`: ") == 1 and page.count("- `--like PREDICTIONS`: ") == 1
    train = page.split("## miue train\n")[1].split("\n## ")[0]
    [shared] = re.findall(r"^- Shared: (.*)$", train, re.M)
    assert "- `--seeds" in train and {"`--labels`", "`--network`"} <= set(shared.split(", "))
