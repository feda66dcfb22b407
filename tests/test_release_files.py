"""The files around the code say the same: version, dependencies, addresses, Python versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def read_yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_every_file_names_the_version_of_the_package() -> None:
    version = PROJECT["project"]["version"]
    assert read_yaml("CITATION.cff")["version"] == version
    assert read_yaml("packaging/conda/recipe.yaml")["context"]["version"] == version
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## ([^\s,]+)", changes, re.MULTILINE)[0] == version


def test_the_conda_recipe_asks_for_what_the_wheel_asks_for() -> None:
    wanted = set()
    for requirement in PROJECT["project"]["dependencies"]:
        name, bounds = re.fullmatch(r"([a-z0-9-]+)(.*)", requirement).groups()  # type: ignore[union-attr]
        wanted.add(f"{CONDA_NAMES.get(name, name)} {bounds}")
    recipe = read_yaml("packaging/conda/recipe.yaml")["requirements"]["run"]
    assert {entry for entry in recipe if not entry.startswith("python ")} == wanted


def test_every_file_names_one_repository() -> None:
    urls = PROJECT["project"]["urls"]
    assert read_yaml("CITATION.cff")["repository-code"] == urls["Source"]
    about = read_yaml("packaging/conda/recipe.yaml")["about"]
    assert (about["repository"], about["documentation"]) == (urls["Source"], urls["Documentation"])
    assert all(url.startswith(urls["Source"]) for name, url in urls.items() if name != "Documentation")


def test_continuous_integration_runs_the_python_versions_that_are_declared() -> None:
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    jobs = read_yaml(".github/workflows/ci.yml")["jobs"]
    first = next(step["with"]["python-version"] for step in jobs["checks"]["steps"] if "with" in step)
    assert [first, *jobs["other-pythons"]["strategy"]["matrix"]["python-version"]] == declared
    assert {"run": ".ci/run"} in jobs["checks"]["steps"]
    assert PROJECT["project"]["requires-python"] == f">={declared[0]}"


@pytest.mark.parametrize("form", ["bug.yml", "feature.yml"])
def test_issue_forms_ask_questions_that_have_a_label(form: str) -> None:
    body = read_yaml(f".github/ISSUE_TEMPLATE/{form}")["body"]
    assert len({field["id"] for field in body}) == len(body) >= 3
    assert all(field["attributes"]["label"] and field["type"] in ("textarea", "input") for field in body)


def test_development_tools_are_no_extras_of_the_package() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert not set(extras) & set(PROJECT["dependency-groups"])
    assert set(extras) == {"pandas", "torchmil", "ray", "slides", "tensorboard", "mlflow", "wandb", "hub", "zarr"}
