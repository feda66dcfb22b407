"""``miue check mil``: does a network with its method respect the MIL assumption?"""

from __future__ import annotations

from typing import Annotated

import typer

from miue.cli.options import (
    MANY,
    RUNNING,
    TRAINING,
    AsJson,
    Device,
    Encoder,
    Method,
    Network,
    Quiet,
    Settings,
    make_recipe,
    parse_seeds,
    separate,
)
from miue.common.text import say_json


def check_mil(
    network: Network = "attention",
    method: Method = "mirel",
    encoder: Encoder = "auto",
    test: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Test: single-concept, multi-concept or false-frequency; by default all. {MANY}",
            callback=separate,
        ),
    ] = None,
    train_bags: Annotated[
        int, typer.Option(min=8, help="Bags of each training.", rich_help_panel=TRAINING)
    ] = 1200,
    test_bags: Annotated[int, typer.Option(min=20, help="Bags of each test set.", rich_help_panel=RUNNING)] = 1000,
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N",
            help=f"Random seed of bags and training; 42 by default. {MANY}",
            callback=separate,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    setting: Settings = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            help="Trainings at a time, in processes that share the cores equally.",
            rich_help_panel=RUNNING,
        ),
    ] = 1,
    quiet: Quiet = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Test whether a network respects the MIL assumption.

    A bag is positive because of an instance that it contains, never because of one that it lacks. The network is
    trained on generated bags in which an easy rule that violates this assumption is right, and tested on bags in
    which the rule is wrong: single-concept and multi-concept (a poison instance marks negative bags in training,
    but is in positive bags of the test), false-frequency (many instances of one concept do not make a bag
    positive). A test is passed if positive bags still rank higher (AUC above 0.5). Nothing is written. After the
    first epoch it states how long the trainings take at most; with --jobs they run side by side.

    Example: miue check mil --network one-sided-attention --method softmax
    """
    from miue.selection import MIL_TESTS
    from miue.selection import check_mil as check

    recipe = make_recipe(network, method, encoder, setting, ["none"], {})
    result = check(
        network,
        method,
        encoder,
        tests=test or tuple(MIL_TESTS),
        train_bags=train_bags,
        test_bags=test_bags,
        seeds=parse_seeds(seeds or ["42"]),
        options=recipe.options,
        settings=recipe.settings,
        jobs=jobs,
        progress=not quiet,
        device=device,
    )
    if as_json:
        say_json(result.to_json())
    else:
        for table in result.tables():
            table.show()
