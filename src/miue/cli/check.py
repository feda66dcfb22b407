"""``miue check``: what a network with its method learns, tested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.bags import check_order, label_as_trained, open_bags_of, say_left_out
from miue.cli.flags import MANY, Command, separate, takes_settings, value_of
from miue.cli.options import AsJson, Bags, ContinuedOut, Quiet, Run
from miue.common.text import RUNNING, TRAINING, say, say_json

if TYPE_CHECKING:
    from miue.settings import LoadSettings, RefitSettings, TrainSettings

OWN_DEFAULTS = ("max_epochs", "learning_rate", "bags_per_update", "lr_patience", "stop_patience")
"""Settings whose defaults are not those of training, so that no flag states them; ``--set`` changes them."""

OF_RUNS = ("initial", "distances", "trackers", "devices", "nodes", "memory_share", "validation_fraction")
"""What trainings on bags that are drawn do not take."""

check_app = typer.Typer(help="Run diagnostics on a network and method.", no_args_is_help=True)


@check_app.command("mil", cls=Command)
@takes_settings(
    settings="miue.settings:TrainSettings",
    without=("seed", *OF_RUNS, *OWN_DEFAULTS),
)
def check_mil(
    settings: TrainSettings,
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
    quiet: Quiet = False,
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

    result = check(
        tests=test or tuple(MIL_TESTS),
        train_bags=train_bags,
        test_bags=test_bags,
        seeds=list(map(value_of, seeds or ["42"])),  # type: ignore[arg-type]
        progress=not quiet,
        settings=settings,
    )
    if as_json:
        say_json(result.to_json())
    else:
        for table in result.tables():
            table.show()


@check_app.command("vanishing", cls=Command)
@takes_settings(load="miue.settings:LoadSettings", settings="miue.settings:RefitSettings")
def check_vanishing(
    run: Run,
    bags: Bags,
    out: ContinuedOut,
    load: LoadSettings,
    settings: RefitSettings,
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N",
            help=f"Random seed of the refits, averaged over; by default that of RUN. {MANY}",
            callback=separate,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Refit a run with fewer bags; see which uncertainties fall.

    Trains a model with the settings of RUN on n/8, n/4, n/2 and all n of its training bags (nested subsets with
    the same class shares, patients kept together) and predicts the same test bags with each. Prints the slope of
    every measure over log2 n with a 95 % interval over bags, and a sentence about it: epistemic uncertainty should
    fall with more data. BAGS must contain the bags of the run and others to test on. --out gets vanishing.csv and
    the refits; after a kill, the same command continues.

    Example: miue check vanishing run store --out vanishing --jobs 2
    """
    from miue.model import read_config
    from miue.selection import check_vanishing as check

    check_order(run, bags)
    contract = read_config(run).contract
    opened = open_bags_of(contract, bags, load, progress=not quiet)
    say_left_out(opened)
    found = check(
        run,
        label_as_trained(opened.bags, load, run, contract.class_names),
        out,
        seeds=list(map(value_of, seeds or [])),  # type: ignore[arg-type]
        settings=settings,
        progress=not quiet,
    )
    if as_json:
        say_json(found.to_json())
        return
    found.tables()[0].show()
    say(f"Written to {out}: vanishing.csv, and each refit with its predictions.")
