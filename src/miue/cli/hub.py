"""``miue hub``: model cards, and models to and from the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from miue.cli.flags import Command
from miue.cli.options import AsJson, Out, Overwrite, Run
from miue.cli.outputs import keeps_inputs
from miue.common.text import RUNNING, say, show_result

hub_app = typer.Typer(help="Share models on the Hugging Face Hub.", no_args_is_help=True)

Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run third-party code that the model names by import path, from packages installed here.",
        rich_help_panel=RUNNING,
    ),
]
Repository = Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Repository on the Hub.")]


@hub_app.command("card", cls=Command)
def hub_card(
    run: Run,
    evaluation: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON that miue evaluate --out wrote, of predictions of this model."),
    ] = None,
    title: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the model; by default that of the folder.")
    ] = None,
    license: Annotated[
        str | None,
        typer.Option("--license", metavar="NAME", help="License such as apache-2.0; by default none is stated."),
    ] = None,
    overwrite: Overwrite = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Write a model card.

    The card, RUN/README.md, describes the model, its input, its training, what was measured, and its limits. With
    it, the folder is what the Hub calls a model repository: config.json, model.safetensors and the card. No
    internet connection is needed. Metrics are taken only from an evaluation of this model's own predictions.
    """
    from miue.model.hub import write_card

    path = write_card(run, evaluation=evaluation, title=title, license=license, overwrite=overwrite, trust=trust)
    show_result({"card": str(path)}, f"Card written: {path}. Read it before you share it.", as_json)
    if license is None and not as_json:
        say("It states no license; add one with --license, or by hand.")


@hub_app.command("push", cls=Command)
def hub_push(
    run: Run,
    repository: Repository,
    public: Annotated[bool, typer.Option("--public", help="Make a new repository public, not private.")] = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Upload a model with its card.

    Uploads config, weights, distances and calibration; no checkpoints, no logs.
    """
    from miue.model.hub import push

    url = push(run, repository, private=not public, trust=trust)
    show_result({"url": str(url)}, f"Uploaded: {url}", as_json)


@hub_app.command("pull", cls=Command)
@keeps_inputs
def hub_pull(
    repository: Repository,
    out: Out,
    revision: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Branch, tag or commit; a commit always gives the same model."),
    ] = None,
    overwrite: Overwrite = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Download a model and check that it loads.

    Only tensors and JSON are downloaded; no downloaded code is run. Code that the model names by import path is
    run only with --trust, from packages installed here.
    """
    from miue.model.hub import pull

    model = pull(repository, out, revision=revision, overwrite=overwrite, trust=trust)
    names = {"method": model.config.method.name, "network": model.config.network.name}
    facts = {**names, "weights_sha256": model.weights_sha256, "out": str(out)}
    sentence = f"{names['method']} on {names['network']}, weights {model.weights_sha256}: {out}"
    show_result(facts, sentence, as_json)
