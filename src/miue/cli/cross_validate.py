"""``miue cross-validate``: folds times seeds in one command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.interrupt import finished_runs, finished_seeds, kept_runs, saying_what_is_kept
from miue.cli.option_groups import takes_options
from miue.cli.options import (
    MANY,
    OUTPUT,
    TRAINING,
    Address,
    AsJson,
    Device,
    Distances,
    Encoder,
    ExecutorKind,
    Jobs,
    Method,
    Network,
    Quiet,
    Settings,
    ShardText,
    Trackers,
    make_executor,
    make_recipe,
    parse_seeds,
    separate,
    validation_share,
)
from miue.cli.sources import Bags, Source, open_bags, say_left_out
from miue.common.errors import ConfigError
from miue.common.text import plural, say, say_json

if TYPE_CHECKING:
    from miue.io.splits.splits import Splits


@takes_options(without=("fold",))
def cross_validate(
    bags: Bags,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Folder to write; finished runs in it are not repeated.",
            rich_help_panel=OUTPUT,
        ),
    ],
    source: Source,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="How many folds to draw; by default those of --splits or the label table, else 5.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N",
            help=f"Random seed of each fold's training; by default 42. {MANY}",
            callback=separate,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    network: Network = "attention",
    method: Method = "mirel",
    encoder: Encoder = "auto",
    setting: Settings = None,
    distance: Distances = None,
    tracker: Trackers = None,
    executor: ExecutorKind = None,
    jobs: Jobs = None,
    address: Address = None,
    shard: ShardText = None,
    split_seed: Annotated[
        int, typer.Option(min=0, help="Random seed of the folds.", rich_help_panel=TRAINING)
    ] = 42,
    quiet: Quiet = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train and test on every fold with every seed.

    Prints mean ± standard deviation and a 95 % interval of every metric. Folds keep patients together and classes
    balanced, unless --splits or the label table specifies the folds. Each fold has validation bags for early
    stopping (none with --set validation_fraction=0); its test bags select nothing. --out gets every run with its
    predictions, runs.csv, summary.csv and splits.csv; after a kill, the same command continues.

    Example: miue cross-validate features --labels labels.csv --folds 5 --seeds 42,17 --out cv
    """
    from miue.common.tasks import parse_shard
    from miue.io.splits.draw import make_folds
    from miue.selection import cross_validate as run

    where = make_executor(executor, jobs, address)
    part = None if shard is None else parse_shard(shard)
    recipe = make_recipe(network, method, encoder, setting, distance, {})
    numbers = parse_seeds(seeds or ["42"])
    opened = open_bags(bags, source, progress=not quiet, check_values=True)
    say_left_out(opened)
    given = _given_folds(source, opened.folds, folds)
    if given is not None and source.skip_bad:
        given, _ = given.without_absent(opened.bags)
    splits = given or make_folds(opened.bags, folds or 5, validation=validation_share(recipe), seed=split_seed)
    with saying_what_is_kept(lambda: kept_runs(out, len(splits), numbers)):
        found = run(
            opened.bags,
            splits,
            numbers,
            out,
            recipe,
            executor=where,
            shard=part,
            trackers=tracker or (),
            device=device,
            progress=not quiet,
        )
        if not found:
            done = finished_runs(out, len(splits), numbers)
            say(f"Shard {part} is done. {done} are in {out}; the last shard to end writes the tables.")
            return
        _say_other_seeds(out, numbers)
        if as_json:
            say_json(
                {
                    "folds": len(splits),
                    "seeds": numbers,
                    "summary": [asdict(one) for one in found],
                    "out": str(out),
                }
            )
            return
        found.as_table().show(f"{plural(len(splits), 'fold')} × {plural(len(numbers), 'seed')}")
        say(f"Written to {out}: summary.csv, runs.csv, splits.csv, and each run with its predictions.")


def _say_other_seeds(out: Path, seeds: Sequence[int]) -> None:
    """Say which finished runs of the folder are of seeds that the tables do not count."""
    others = sorted(set(finished_seeds(out)) - set(seeds))
    if others:
        every = ",".join(map(str, [*others, *seeds]))
        left_out = f"runs of {plural(len(others), 'other seed')} in {out} are not counted"
        say(f"Note: {left_out}; with them: --seeds {every}", err=True)


def _given_folds(source: Source, of_table: Splits | None, wanted: int | None) -> Splits | None:
    """Return the folds of --splits, else those of the label table where none are to be drawn."""
    from miue.io.splits.files import read_splits

    if source.splits is not None and wanted is not None and source.splits != "none":
        raise ConfigError(
            item="--folds",
            wanted="a number of folds to draw, or --splits that lists them",
            got="both",
            fix="leave one out",
        )
    if source.splits == "none" or wanted is not None:
        return None
    if source.splits is not None:
        return read_splits(Path(source.splits))
    return of_table if of_table is not None and len(of_table) > 1 else None
