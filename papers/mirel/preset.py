"""Presets: what is trained and evaluated for the paper, one table per data set.

``presets/mnist.toml`` holds the presets "mnist/<name>": what they share, and under ``[presets]`` a row for each.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from miue.common.errors import ConfigError, unknown_name
from miue.common.values import Option
from miue.model import Recipe
from papers.mirel.versions import version_of

PRESETS = "presets"  # the key of a table's rows
MERGED = ("options", "settings", "bags")  # a row adds to these; it replaces what else its table shares


class Preset(BaseModel):
    """What is trained, on which bags, and from what its instances are predicted.

    Attributes:
        title: what it is.
        data: the bags that it is evaluated on and, unless ``trained_as`` is given, trained on.
        encoder: by name, like network and method.
        network: of bags.
        method: of uncertainty.
        estimators: what instances are predicted from, one evaluation each.
        options: of network, encoder and method.
        settings: of training, where they are not the defaults.
        bags: arguments of the source of bags, such as the seed of a split.
        distances: to the training instances, evaluated as further scores.
        trained_as: another preset, whose trained models are evaluated on other bags; all that is not given here
            is as there.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    data: str
    encoder: str
    network: str
    method: str
    estimators: tuple[str, ...]
    options: dict[str, Option] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    bags: dict[str, Option] = Field(default_factory=dict)
    distances: tuple[str, ...] = ("knn", "mahalanobis", "class-mahalanobis", "reconstruction")
    trained_as: str = ""

    @property
    def recipe(self) -> Recipe:
        """What is trained; distances are fitted where the trained model is evaluated, and no temperature is."""
        settings = {"temperature_scaling": False, **self.settings}
        return Recipe(self.network, self.method, self.encoder, self.options, (), settings)

    @property
    def version(self) -> int:
        """Version of the numbers that the code as it is comes to."""
        return version_of(self.method, self.options)


def preset_names() -> list[str]:
    """Return the names of all presets, such as "mnist/abmil-mirel"."""
    return sorted(_all_contents())


def preset(name: str) -> Preset:
    """Return the preset of that name.

    Raises:
        ConfigError: there is none, or it lacks a key or has one that does not exist.
    """
    contents = _all_contents()
    if name not in contents:
        raise unknown_name("preset", name, contents)
    return build_preset(name, contents)


def read_preset_table(data: str, text: str) -> dict[str, dict[str, Any]]:
    """Return the content of each preset of a table, what the table shares included.

    Args:
        data: name of the table, which its presets' names begin with.
        text: TOML; the rows are under ``[presets]``.

    Raises:
        ConfigError: it is not TOML, has no rows, or has a key that does not exist.
    """
    item = f"presets {data!r}"
    try:
        shared = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(item=item, wanted="TOML", got=str(error), fix="correct the line") from error
    rows = shared.pop(PRESETS, None)
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        raise ConfigError(
            item=item,
            wanted=f"a table [{PRESETS}] with a row {{ title = …, … }} for each preset",
            got="none" if rows is None else repr(rows),
            fix="correct the file",
        )
    _check_keys(item, shared)
    for key in MERGED:
        if not isinstance(shared.get(key, {}), dict):
            got = repr(shared[key])
            raise ConfigError(item=f"{item}, key {key!r}", wanted="a table", got=got, fix="correct the file")
    contents = {}
    for name, row in rows.items():
        _check_keys(f"preset {f'{data}/{name}'!r}", row)
        merged = {key: {**shared.get(key, {}), **row[key]} for key in MERGED if isinstance(row.get(key), dict)}
        contents[f"{data}/{name}"] = {**shared, **row, **merged}
    return contents


def build_preset(name: str, contents: Mapping[str, Mapping[str, Any]]) -> Preset:
    """Return a preset; one that is trained as another takes from it what it does not give itself, but for bags.

    Args:
        name: of the preset.
        contents: of all presets, by name.

    Raises:
        ConfigError: it lacks a key, or has a value that the key cannot take.
    """
    content = contents[name]
    if trained_as := content.get("trained_as"):
        if trained_as not in contents:
            raise unknown_name(f"preset that {name!r} is trained as,", str(trained_as), contents)
        content = {**contents[trained_as], "bags": {}, **content}
    try:
        return Preset.model_validate(dict(content))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            item=f"preset {name!r}, key {'.'.join(map(str, first['loc']))!r}",
            wanted="a value it can take",
            got=first["msg"],
            fix="correct the preset",
        ) from error


@cache
def _all_contents() -> dict[str, dict[str, Any]]:
    contents: dict[str, dict[str, Any]] = {}
    for file in (files("papers.mirel") / "presets").iterdir():
        if file.name.endswith(".toml"):
            contents |= read_preset_table(file.name.removesuffix(".toml"), file.read_text("utf-8"))
    return contents


def _check_keys(item: str, content: Mapping[str, Any]) -> None:
    for key in content:
        if key not in Preset.model_fields:
            raise unknown_name(f"key in {item}", key, Preset.model_fields)
