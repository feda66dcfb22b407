"""``miue check vanishing``: does a run's uncertainty vanish with more training bags?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from miue.cli.interrupt import saying_what_is_kept
from miue.cli.option_groups import takes_options
from miue.cli.options import (
    MANY,
    OUTPUT,
    TRAINING,
    Address,
    AsJson,
    Device,
    ExecutorKind,
    Jobs,
    Quiet,
    Run,
    Trust,
    make_executor,
    parse_seeds,
    separate,
)
from miue.cli.sources import Bags, Source, check_order, label_as_trained, open_bags, say_left_out
from miue.common.text import say, say_json


@takes_options
def check_vanishing(
    run: Run,
    bags: Bags,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Folder to write; finished refits in it are not repeated.",
            rich_help_panel=OUTPUT,
        ),
    ],
    source: Source,
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N",
            help=f"Random seed of the refits, averaged over; by default that of RUN. {MANY}",
            callback=separate,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    executor: ExecutorKind = None,
    jobs: Jobs = None,
    address: Address = None,
    trust: Trust = False,
    quiet: Quiet = False,
    device: Device = "auto",
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
    from miue.model.folder import read_config
    from miue.selection import check_vanishing as check

    check_order(run, bags)
    where = make_executor(executor, jobs, address)
    numbers = parse_seeds(seeds or [])
    contract = read_config(run).contract
    classes, columns = contract.class_names, contract.feature_names
    opened = open_bags(bags, source, progress=not quiet, model_classes=classes, model_features=columns)
    say_left_out(opened)
    with saying_what_is_kept(lambda: f"finished refits are kept in {out}; the same command goes on"):
        found = check(
            run,
            label_as_trained(opened.bags, source, run, classes),
            out,
            seeds=numbers,
            executor=where,
            device=device,
            progress=not quiet,
            trust=trust,
        )
        if as_json:
            say_json(found.to_json())
            return
        found.tables()[0].show()
        say(f"Written to {out}: vanishing.csv, and each refit with its predictions.")
