"""Presets: one readable file per network, method and dataset of the paper."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from miue.common.errors import ConfigError, unknown_name
from miue.model.config import Option
from miue.scores import DISTANCES


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
    distances: tuple[str, ...] = tuple(DISTANCES)
    trained_as: str = ""


def preset_names() -> list[str]:
    """Return the names of all presets, such as "mnist/abmil-mirel"."""
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.toml')}"
        for folder in _root().iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    )


def preset(name: str) -> Preset:
    """Return the preset of that name.

    Raises:
        ConfigError: there is none, or it has a key that does not exist.
    """
    if name not in preset_names():
        raise unknown_name("preset", name, preset_names())
    return parse_preset(name, _text_of(name))


def parse_preset(name: str, text: str) -> Preset:
    """Return the preset that ``text`` writes.

    Raises:
        ConfigError: it is not TOML, lacks a key, or has one that does not exist.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            item=f"preset {name!r}", wanted="TOML", got=str(error), fix="correct the line"
        ) from error
    if trained_as := content.get("trained_as"):
        if trained_as not in preset_names():
            raise unknown_name(f"preset that {name!r} is trained as,", str(trained_as), preset_names())
        content = {**tomllib.loads(_text_of(trained_as)), "bags": {}, **content}
    for key in content:
        if key not in Preset.model_fields:
            raise unknown_name(f"key in preset {name!r}", key, Preset.model_fields)
    try:
        return Preset(**content)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            item=f"preset {name!r}, key {'.'.join(map(str, first['loc']))!r}",
            wanted="a value it can take",
            got=first["msg"],
            fix="correct the preset",
        ) from error


def _text_of(name: str) -> str:
    folder, file = name.split("/")
    return (_root() / folder / f"{file}.toml").read_text("utf-8")


def _root() -> Traversable:
    return files("papers.mirel") / "presets"
