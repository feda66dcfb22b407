"""Options that several commands share, and options given as KEY=VALUE."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.common.errors import ConfigError
from miue.common.parts import DISTANCES, ENCODERS, METHODS, NETWORKS

if TYPE_CHECKING:
    from miue.common.tasks import Executor
    from miue.common.values import Option, Scalar
    from miue.model.recipe import Recipe

LABELS, MODEL, TRAINING, RULES, OUTPUT, RUNNING = (
    "Labels and splits",
    "Model",
    "Training",
    "Rules",
    "Output",
    "Running",
)
"""Headings of the options."""

MANY = "Repeat it, or separate values by commas."
MANY_NAMES = f"{MANY} Repeated names may hold commas."


def separate(values: list[str] | None) -> list[str] | None:
    """Return the names of an option that is repeated or that holds several between commas.

    >>> separate(["a, b", "c"])
    ['a', 'b', 'c']
    """
    return [word.strip() for value in values for word in value.split(",") if word.strip()] if values else None


def separate_names(values: list[str] | None) -> list[str] | None:
    """Return the names of a repeated option as they are, and those of one between commas.

    >>> separate_names(["normal", "Adenocarcinoma, NOS"]), separate_names(["normal, tumor"])
    (['normal', 'Adenocarcinoma, NOS'], ['normal', 'tumor'])
    """
    if values is not None and len(values) > 1:
        return [name.strip() for name in values]
    return separate(values)


def separate_classes(values: list[str] | None) -> list[str] | None:
    """Return the names of classes of an option, with letters with marks in one form, as tables are read.

    >>> separate_classes(["gru\\u0308n, blau"]) == ["gr\\u00fcn", "blau"]
    True
    """
    from miue.bags.cells import one_form

    return list(map(one_form, names)) if (names := separate_names(values)) else names


Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write.", rich_help_panel=OUTPUT)]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", help="Replace an earlier output of this command at --out.", rich_help_panel=OUTPUT
    ),
]
OverwriteFile = Annotated[
    bool, typer.Option("--overwrite", help="Replace the file that --out names.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=RUNNING)]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON instead of text.", rich_help_panel=OUTPUT)
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad", help="Go on after a slide that fails; list it at the end.", rich_help_panel=RUNNING
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="auto|cpu|gpu|NAME",
        help="Device to compute on; NAME as in torch: cuda:1.",
        rich_help_panel=RUNNING,
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="float32|bf16-mixed",
        help="Precision of the encoder; bf16-mixed is faster where the device has it.",
        rich_help_panel=RUNNING,
    ),
]
Network = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"Network: {NETWORKS.help()} (torchmil-… need the extra 'torchmil'), or the import path "
        "package.module:Class of your own.",
        rich_help_panel=MODEL,
    ),
]
Method = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"Uncertainty method: {METHODS.help()}, or the import path of your own.",
        rich_help_panel=MODEL,
    ),
]
Encoder = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"Encoder of instances: auto, {ENCODERS.help()}, or the import path of your own.",
        rich_help_panel=MODEL,
    ),
]
Distances = Annotated[
    list[str] | None,
    typer.Option(
        "--distance",
        metavar="NAME",
        help="Distance of an instance to the training instances, fitted after training: "
        f"{DISTANCES.help()} (combined is the default), or none. {MANY}",
        callback=separate,
        rich_help_panel=MODEL,
    ),
]
Trackers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="tensorboard|mlflow|wandb",
        help="Experiment tracker to log each epoch to, which needs miue[tensorboard] and so on. It writes "
        f"into --out; nothing is sent unless MLFLOW_TRACKING_URI or WANDB_MODE says so. {MANY}",
        callback=separate,
        rich_help_panel=TRAINING,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other option, such as learning_rate=2e-4, max_epochs=50, class_balanced=true, "
        "network.hidden=128 or method.routing=through-estimator. Repeat it.",
        rich_help_panel=TRAINING,
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run third-party code that the model names by import path, from packages installed here.",
        rich_help_panel=RUNNING,
    ),
]
ExecutorKind = Annotated[
    str | None,
    typer.Option(
        "--executor",
        metavar="local|processes|ray",
        help="Where to compute: here, in processes of this machine (default with --jobs), or on a Ray cluster.",
        rich_help_panel=RUNNING,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tasks at a time, which share the cores equally; by default one on each core.",
        rich_help_panel=RUNNING,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Ray cluster; by default that of this machine.", rich_help_panel=RUNNING
    ),
]
ShardText = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="K/N|slurm",
        help="Compute only the K-th of N parts, from 1, of whole batches of bags or whole runs; slurm: the part "
        "of this job of a Slurm array.",
        rich_help_panel=RUNNING,
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a trained model.")]
GivenPredictions = Annotated[
    Path,
    typer.Argument(
        metavar="PREDICTIONS", help="Folder of predictions, or a bag table of any tool (CSV, Parquet)."
    ),
]
Instances = Annotated[
    Path | None,
    typer.Option(
        "--instances", metavar="FILE", help="Instance table of any tool, where PREDICTIONS is a bag table."
    ),
]
ClassNames = Annotated[
    list[str] | None,
    typer.Option(
        "--classes",
        metavar="NAME",
        help=f"Classes in order; the first is the negative one. {MANY_NAMES}",
        callback=separate_classes,
        rich_help_panel=LABELS,
    ),
]

LIST_ENTRY = re.compile(r"""\s*("[^"]*"|'[^']*'|[^,]*)\s*(?:,|$)""")
"""An entry of a list, in quotes if a comma is in it, and what ends it."""


def parse_seeds(words: Sequence[str]) -> list[int]:
    """Return the numbers of --seeds.

    Raises:
        ConfigError: no whole numbers, or one of them twice.
    """
    if not all(word.isdecimal() for word in words) or len(set(words)) < len(words):
        raise ConfigError(
            item="--seeds",
            wanted="different whole numbers",
            got=", ".join(words),
            fix="write --seeds 42,17,26",
        )
    return [int(word) for word in words]


def make_executor(kind: str | None, jobs: int | None, address: str | None) -> Executor:
    """Return the executor that --executor, --jobs and --address describe.

    Raises:
        ConfigError: no such executor, or an option that it does not take.
    """
    from miue.common.tasks import Executor

    if kind is None:
        kind = "ray" if address else "processes" if (jobs or 1) > 1 else "local"
    return Executor(kind, jobs, address or "auto")


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

    options: dict[str, Option] = {}
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

    share = recipe.validation_fraction
    return share if "validation_fraction" in recipe.settings else VALIDATION_SHARE


def value_of(text: str) -> Option:
    """Return the number, truth value, None or list of these that ``text`` writes, else the text, less its quotes.

    >>> value_of("3"), value_of("1e-4"), value_of("true"), value_of("null"), value_of("exp"), value_of('"5"')
    (3, 0.0001, True, None, 'exp', '5')
    >>> value_of("[64, 32]"), value_of("['H, E', KI67]")
    ([64, 32], ['H, E', 'KI67'])
    """
    if text[:1] == "[" and text[-1:] == "]":
        return [_scalar_of(entry.strip()) for entry in LIST_ENTRY.findall(text[1:-1].strip())[:-1]]
    return _scalar_of(text)


def _scalar_of(text: str) -> Scalar:
    words: dict[str, Scalar] = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
