"""``miue cross-validate``: folds times seeds in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.interrupt import kept_on_interrupt, kept_runs
from miue.cli.options import Device, Encoder, Method, Network, make_recipe, validation_share
from miue.cli.sources import BAGS_HELP, Source, open_bags, say_left_out, takes_bags
from miue.common.errors import ConfigError
from miue.common.terminal import say, show_table

if TYPE_CHECKING:
    from miue.io.splits.splits import Splits


@takes_bags
def cross_validate(
    bags: Annotated[Path, typer.Argument(help=BAGS_HELP)],
    out: Annotated[Path, typer.Option(help="Folder to write; what it holds of the same work is not run again.")],
    source: Source,
    folds: Annotated[
        int | None,
        typer.Option(min=2, help="Folds to draw; else those of --splits or the label table, else 5."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds of each fold, with commas.")] = "42",
    network: Network = "attention",
    method: Method = "mirel",
    encoder: Encoder = "auto",
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As for train; may be repeated.")
    ] = None,
    distance: Annotated[list[str] | None, typer.Option(help="As for train; may be repeated.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, in processes of their own.")] = 1,
    split_seed: Annotated[int, typer.Option(min=0, help="Of the folds that are drawn.")] = 42,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    device: Device = "auto",
) -> None:
    """Train and test on every fold with every seed; print mean ± standard deviation and a 95 % interval.

    Folds keep patients together and classes alike, unless --splits or the label table gives them. Each fold has
    validation bags that training stops by, or none with --set validation_fraction=0; its test bags select nothing.
    The folder gets every run with its predictions, runs.csv, summary.csv and splits.csv; after a kill, the same
    command goes on.
    Example: miue cross-validate features --labels labels.csv --folds 5 --seeds 42,17 --out cv
    """
    from miue.io.splits.draw import make_folds
    from miue.selection.cross_validation import cross_validate as run

    recipe = make_recipe(network, method, encoder, setting, distance, {})
    numbers = _seeds(seeds)
    opened = open_bags(bags, source, progress=not quiet, check_values=True)
    say_left_out(opened)
    splits = _given_folds(source, opened.folds, folds) or make_folds(
        opened.bags, folds or 5, validation=validation_share(recipe), seed=split_seed
    )
    with kept_on_interrupt(lambda: kept_runs(out, len(splits) * len(numbers))):
        found = run(opened.bags, splits, numbers, out, recipe, jobs=jobs, device=device, progress=not quiet)
    show_table(found.as_table().as_rich(f"{len(splits)} folds × {len(numbers)} seeds"))
    say(f"Written to {out}: summary.csv, runs.csv, splits.csv, and each run with its predictions.")


def _given_folds(source: Source, of_table: Splits | None, wanted: int | None) -> Splits | None:
    """Return the folds of --splits, else those of the label table where none are to be drawn."""
    from miue.io.splits.files import read_splits

    if source.splits is not None and wanted is not None and source.splits != "none":
        raise ConfigError(
            item="--folds",
            wanted="folds to draw, or --splits that tells them",
            got="both",
            fix="give one of the two",
        )
    if source.splits == "none" or wanted is not None:
        return None
    if source.splits is not None:
        return read_splits(Path(source.splits))
    return of_table if of_table is not None and len(of_table) > 1 else None


def _seeds(text: str) -> list[int]:
    from miue.common.errors import ConfigError

    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdigit() for word in words) or len(set(words)) < len(words):
        raise ConfigError(
            item=f"--seeds {text!r}",
            wanted="different whole numbers",
            got=repr(text),
            fix="write --seeds 42,17,26",
        )
    return [int(word) for word in words]
