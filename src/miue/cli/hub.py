"""``miue hub``: model cards, and models to and from the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from miue.cli.options import Trust
from miue.common.terminal import say

hub_app = typer.Typer(
    help="Write a model card; push a model to the Hugging Face Hub, or pull one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Run = Annotated[Path, typer.Argument(help="Folder of a trained model.")]
Repository = Annotated[str, typer.Argument(help="OWNER/NAME on the Hub.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


@hub_app.command("card")
def hub_card(
    run: Run,
    evaluation: Annotated[
        Path | None, typer.Option(help="JSON that miue evaluate --out wrote, of predictions of this model.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Name of the model; else that of the folder.")] = None,
    licence: Annotated[
        str | None, typer.Option("--license", help="Identifier such as apache-2.0; without it none is stated.")
    ] = None,
    overwrite: Overwrite = False,
    trust: Trust = False,
) -> None:
    """Write RUN/README.md: what the model is and takes, its training, what was measured, and its limits.

    The folder then is what the Hub calls a model repository: config.json, model.safetensors and the card.
    Needs no network. Metrics are taken only from an evaluation of this model's own predictions.
    """
    from miue.hub import write_card

    path = write_card(run, evaluation=evaluation, title=title, licence=licence, overwrite=overwrite, trust=trust)
    say(f"Card written: {path}. Read it before you share it.")
    if licence is None:
        say("It states no license; add one with --license, or by hand.")


@hub_app.command("push")
def hub_push(
    run: Run,
    repository: Repository,
    public: Annotated[bool, typer.Option("--public", help="Make a new repository public, not private.")] = False,
    trust: Trust = False,
) -> None:
    """Upload a model with its card: config, weights, distances and calibration; no checkpoints, no logs."""
    from miue.hub import push

    say(f"Uploaded: {push(run, repository, private=not public, trust=trust)}")


@hub_app.command("pull")
def hub_pull(
    repository: Repository,
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit; a commit always gives the same model.")
    ] = None,
    overwrite: Overwrite = False,
    trust: Trust = False,
) -> None:
    """Download a model and see that it loads: tensors and JSON alone.

    Nothing of it is run. Code that it names by import path is run with --trust, from packages installed here.
    """
    from miue.hub import pull

    model = pull(repository, out, revision=revision, overwrite=overwrite, trust=trust)
    say(f"{model.config.method.name} on {model.config.network.name}, weights {model.weights_sha256}: {out}")
