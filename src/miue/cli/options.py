"""Options that several commands share, and options given as KEY=VALUE."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.common.errors import ConfigError
from miue.common.parts import DISTANCES, ENCODERS, METHODS, NETWORKS

if TYPE_CHECKING:
    from miue.model.recipe import Recipe

Out = Annotated[Path, typer.Option(help="Folder to write.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what --out holds.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Device = Annotated[str, typer.Option(help="auto, cpu, gpu, or a name that torch has, such as cuda:1 or mps.")]
Network = Annotated[
    str,
    typer.Option(
        help=f"{NETWORKS.help()}, where torchmil-… need the extra 'torchmil'; or a class of your own as its "
        "import path, package.module:Class."
    ),
]
Method = Annotated[str, typer.Option(help=f"{METHODS.help()}, or the import path of a class of your own.")]
Encoder = Annotated[str, typer.Option(help=f"auto, {ENCODERS.help()}, or the import path of a class of your own.")]
Distances = Annotated[
    list[str] | None,
    typer.Option(
        "--distance",
        help="Scores of how far an instance is from the training instances, fitted after training: "
        f"{DISTANCES.help()} (knn is the default), or none; may be repeated.",
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run the code of others that the model names by import path, from the packages installed here.",
    ),
]
Value = bool | int | float | str | None


def make_recipe(
    network: str,
    method: str,
    encoder: str,
    words: Sequence[str] | None,
    distances: Sequence[str] | None,
    settings: dict[str, Any],
) -> Recipe:
    """Return what the options of a command describe.

    Args:
        network: by name, like method and encoder.
        method: of uncertainty.
        encoder: of instances.
        words: of --set: options of parts (keys with a dot) and training settings (the others).
        distances: of --distance.
        settings: which --set adds to.

    Raises:
        ConfigError: a word without "=".
    """
    from miue.model.recipe import DEFAULT_DISTANCES, Recipe

    options: dict[str, Value] = {}
    settings = dict(settings)
    for word in words or ():
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise ConfigError(
                item=f"--set {word!r}", wanted="KEY=VALUE", got="no '='", fix="write --set max_epochs=50, say"
            )
        (options if "." in key else settings)[key.strip()] = value_of(text.strip())
    chosen = () if distances == ["none"] else tuple(distances or DEFAULT_DISTANCES)
    return Recipe(network, method, encoder, options, chosen, settings)


def validation_share(recipe: Recipe) -> float:
    """Return the share of bags to validate on in splits that are drawn: as set, else the default one.

    Raises:
        ConfigError: a setting that does not exist or cannot be so.
    """
    from miue.io.splits.draw import VALIDATION_SHARE

    share = recipe.training_config.validation_fraction
    return share if "validation_fraction" in recipe.settings else VALIDATION_SHARE


def value_of(text: str) -> Value:
    """Return the number, truth value or None that ``text`` writes, else the text.

    >>> value_of("3"), value_of("1e-4"), value_of("true"), value_of("none"), value_of("exp")
    (3, 0.0001, True, None, 'exp')
    """
    words: dict[str, Value] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
