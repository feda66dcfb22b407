"""What Python sees: real types for editors, a version, and paths as text or ``Path``."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pytest
from made_predictions import made_predictions

import miue
import miue.io

SOURCE = Path(miue.__file__).parent
REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"


def imported_for_types(package: Path = SOURCE) -> dict[str, str]:
    """Name and module of every import that type checkers alone see."""
    tree = ast.parse((package / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert all(alias.asname == alias.name for node in imports for alias in node.names)  # re-exported
    return {alias.name: node.module or "" for node in imports for alias in node.names}


@pytest.mark.parametrize("kind", ["bags", "labels", "coords", "predictions", "table"])
def test_objects_of_arrays_are_the_same_only_as_themselves(kind: str) -> None:
    """Compared by their arrays, ``in``, ``index`` and use as a key would raise."""

    def make() -> object:
        arrays = [np.ones((2, 3))] * 2
        bags = miue.BagDataset.from_arrays(arrays, [0, 1], coords=[np.zeros((2, 2))] * 2)
        predictions = made_predictions(3)
        made = {"labels": bags.labels, "coords": bags.coords, "predictions": predictions}
        return {**made, "bags": bags, "table": predictions.bags}[kind]

    one, other = make(), make()
    assert one != other
    assert one not in [other]
    assert [other, one].index(one) == 1
    assert {one: "a", other: "b"}[one] == "a"


def test_what_a_type_checker_sees_is_what_is_there_at_run_time() -> None:
    assert imported_for_types() == miue._PUBLIC
    assert imported_for_types(SOURCE / "io") == miue.io._FACE


@pytest.mark.slow
def test_mypy_knows_the_public_functions_and_classes(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    script = tmp_path / "script.py"
    names = ("train", "Model", "read_predictions", "__version__")
    script.write_text("import miue\n" + "".join(f"reveal_type(miue.{name})\n" for name in names))
    cache = str(tmp_path / "cache")
    options = ["--cache-dir", cache, "--follow-imports=silent", "--ignore-missing-imports"]
    printed, errors, _ = api.run([*options, str(script)])
    revealed = re.findall(r'Revealed type is "(.*)"', printed)
    assert len(revealed) == len(names), printed + errors
    assert "BagDataset" in revealed[0] and revealed[0].endswith("-> miue.model.model.Model")
    assert revealed[1].endswith("-> miue.model.model.Model")
    assert revealed[2].endswith("-> miue.predictions.folder.Predictions")
    assert revealed[3].endswith("str")


def test_importing_the_package_loads_no_pytorch() -> None:
    code = (
        "import sys, miue; assert miue.__version__; sys.exit('torch' in sys.modules or 'lightning' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_version_is_that_of_the_package() -> None:
    project = (SOURCE.parents[1] / "pyproject.toml").read_text()
    assert f'version = "{miue.__version__}"' in project


def public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every function and public method that is exported or in the reference, but for trainings and tasks."""
    found: dict[str, Any] = {f"miue.{name}": getattr(miue, name) for name in miue.__all__}
    for page in sorted(REFERENCE.glob("*.md")):
        for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M):
            module, _, last = name.rpartition(".")
            if not module.startswith(("miue.training", "miue.common.tasks")):
                found[name] = getattr(importlib.import_module(module), last)
    for name, thing in found.items():
        if inspect.isclass(thing):
            for method, of_class in inspect.getmembers(thing, callable):
                ours = getattr(of_class, "__module__", None) or ""
                if (method == "__init__" or not method.startswith("_")) and ours.startswith("miue"):
                    yield f"{name}.{method}", of_class
        elif inspect.isroutine(thing):
            yield name, thing


def test_a_path_is_text_or_path_in_every_public_function() -> None:
    taking_paths, paths_alone = [], []
    for name, function in public_callables():
        for parameter in inspect.signature(function).parameters.values():
            annotation = str(parameter.annotation)
            if re.search(r"\bPath\b", annotation):
                taking_paths.append(name)
                if "str" not in annotation and "PathLike" not in annotation:
                    paths_alone.append(f"{name}({parameter.name}: {annotation})")
    assert len(set(taking_paths)) > 10
    assert paths_alone == []


def test_folders_named_as_text_are_written_and_read(tmp_path: Path, bags: miue.BagDataset) -> None:
    store, run, predictions, file = (str(tmp_path / name) for name in ("store", "run", "predictions", "c.json"))
    miue.write_store(store, bags)
    settings = {"max_epochs": 1}
    read = assert_type(miue.read_store(store), miue.BagDataset)
    model = miue.train(read, out=run, settings={**settings, "distances": ()}, progress=False)
    assert_type(model, miue.Model)
    model.save(str(tmp_path / "model"))
    assert miue.Model.load(run).weights_sha256 == miue.Model.load(str(tmp_path / "model")).weights_sha256
    model.predict(bags).save(predictions)
    assert len(assert_type(miue.read_predictions(predictions), miue.Predictions).bags) == len(bags)
    calibration = miue.Calibration(class_names=("0", "1"))
    calibration.save(file)
    assert miue.Calibration.load(file) == calibration
