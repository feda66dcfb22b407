"""``miue cross-validate``: folds times seeds in one command; ``miue compare``: several of these compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.cli.bags import open_bags, say_left_out
from miue.cli.flags import MANY, separate, takes_settings, value_of
from miue.cli.options import AsJson, Bags, ContinuedOut, Overwrite, Quiet
from miue.cli.outputs import keeps_inputs, locks_out
from miue.common.errors import ConfigError, one_of_two
from miue.common.outputs import refuse_existing
from miue.common.text import OUTPUT, RUNNING, TRAINING, ResultTable, escape_markdown, plural, say, say_json

if TYPE_CHECKING:
    from miue.io.splits import Splits
    from miue.selection import Compared
    from miue.settings import LoadSettings, TrainSettings

CSV, MARKDOWN = ".csv", ("", ".md", ".markdown", ".txt")
NUMBERS = ("name", "level", "metric", "runs", "mean", "std", "low", "high", "difference", "p")


@takes_settings(
    load="miue.settings:LoadSettings",
    settings="miue.settings:TrainSettings",
    without=("fold", "seed", "devices", "nodes"),
)
def cross_validate(
    bags: Bags,
    out: ContinuedOut,
    load: LoadSettings,
    settings: TrainSettings,
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
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="K/N|slurm",
            help="Compute only the K-th of N parts of the runs, from 1; slurm: the part of this job of a Slurm "
            "array.",
            rich_help_panel=RUNNING,
        ),
    ] = None,
    split_seed: Annotated[
        int, typer.Option(min=0, help="Random seed of the folds.", rich_help_panel=TRAINING)
    ] = 42,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train and test on every fold with every seed.

    Prints mean ± standard deviation and a 95 % interval of every metric. Folds keep patients together and classes
    balanced, unless --splits or the label table specifies the folds. Each fold has validation bags for early
    stopping (none with --validation-fraction 0); its test bags select nothing. --out gets every run with its
    predictions, runs.csv, summary.csv and splits.csv; after a kill, the same command continues. Several labels
    have the same folds and a folder each, and the means over labels are printed, too.

    Example: miue cross-validate features --labels labels.csv --folds 5 --seeds 42,17 --out cv
    """
    from miue.common.tasks import parse_shard
    from miue.io import make_folds
    from miue.model import Recipe
    from miue.selection import cross_validate as run
    from miue.selection import cross_validate_labels
    from miue.training import say_method

    part = None if shard is None else parse_shard(shard)
    numbers: list[int] = list(map(value_of, seeds or ["42"]))  # type: ignore[arg-type]
    opened = open_bags(bags, load, progress=not quiet, check_values=True)
    say_left_out(opened)
    given = _given_folds(load, opened.folds, folds)
    if given is not None and load.skip_bad:
        given, _ = given.without_absent(opened.bags)
    splits = given or make_folds(opened.bags, folds or 5, validation=settings.validation_share, seed=split_seed)
    several = opened.bags.by_label()
    validate: Any = cross_validate_labels if several else run
    recipe = Recipe.of(settings, opened.bags)
    say_method(recipe, settings)
    found = validate(opened.bags, splits, numbers, out, recipe, settings=settings, shard=part, progress=not quiet)
    if not found:
        runs = len(splits) * len(numbers) * max(1, len(several))
        done = f"{len(_finished(out, numbers)):,} of {runs:,} runs"
        say(f"Shard {part} is done. {done} are in {out}; the last shard to end writes the tables.")
        return
    _say_other_seeds(out, numbers)
    if as_json:
        of_labels = (
            {label: [asdict(one) for one in summary] for label, summary in found.items()} if several else {}
        )
        said = {"labels": of_labels} if several else {"summary": [asdict(one) for one in found]}
        say_json({"folds": len(splits), "seeds": numbers, **said, "out": str(out)})
        return
    table = found.tables()[0] if several else found.as_table()
    table.show(f"{plural(len(splits), 'fold')} × {plural(len(numbers), 'seed')}")
    say(f"Written to {out}: summary.csv, runs.csv, splits.csv, and each run with its predictions.")


def _finished(out: Path, seeds: Sequence[int] | None = None) -> list[int]:
    """Return the seed of each finished run, of all seeds or of these."""
    runs = (path for within in ("", "*/") for path in out.glob(f"{within}fold_*/seed_*/metrics.json"))
    names = [path.parent.name.removeprefix("seed_") for path in runs]
    return [int(name) for name in names if name.isdecimal() and (seeds is None or int(name) in seeds)]


def _say_other_seeds(out: Path, seeds: Sequence[int]) -> None:
    """Say which finished runs of the folder are of seeds that the tables do not count."""
    others = sorted(set(_finished(out)) - set(seeds))
    if others:
        every = ",".join(map(str, [*others, *seeds]))
        left_out = f"runs of {plural(len(others), 'other seed')} in {out} are not counted"
        say(f"Note: {left_out}; with them: --seeds {every}", err=True)


def _given_folds(load: LoadSettings, of_table: Splits | None, wanted: int | None) -> Splits | None:
    """Return the folds of --splits, else those of the label table where none are to be drawn."""
    from miue.io import NO_SPLITS, read_splits

    if load.splits == NO_SPLITS or (wanted is not None and load.splits is None):
        return None
    if wanted is not None:
        raise one_of_two("--folds with --splits, which lists the folds")
    if isinstance(load.splits, Path):
        return read_splits(load.splits)
    return of_table if of_table is not None and len(of_table) > 1 else None


@keeps_inputs
@locks_out
def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER", help="Folders of 'miue cross-validate'; the first is the base."),
    ],
    level: Annotated[str, typer.Option(metavar="bags|instances|patients", help="Level to compare.")] = "bags",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Metric to show, in this order; by default the most common, in --json and a .csv all. {MANY}",
            callback=separate,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the table as Markdown (.md), or its numbers (.csv), a row for each metric.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compare cross-validations, with p-values.

    Shows mean ± standard deviation, and the difference from the first folder. If each fold tests the same bags,
    the difference has a p-value (corrected resampled t-test, two-sided; with many comparisons, some are small by
    chance). Networks, methods, features and training bags may differ.

    Example: miue compare cv-attention cv-max cv-dsmil --metric accuracy --metric auroc --out table.md
    """
    from miue.common.files import atomic_file
    from miue.common.tables import write_rows
    from miue.selection import compare as compare_folders

    if out is not None:
        _check_kind(out)
        refuse_existing(out, overwrite=overwrite)
    found = compare_folders(folders)
    table = found.as_table(level, metric)
    if out is not None and out.suffix.lower() == CSV:
        write_rows(out, NUMBERS, [row for one in found for row in _rows_of(one, level, metric)])
    elif out is not None:
        with atomic_file(out) as temporary:
            temporary.write_text(markdown(table), "utf-8")
    if as_json:
        say_json([_to_json(one, level, metric) for one in found])
    else:
        table.show()


def _check_kind(out: Path) -> None:
    """Raise unless a file is named as one of a kind that is written.

    Raises:
        ConfigError: another one, such as .tex.
    """
    if out.suffix.lower() not in (CSV, *MARKDOWN):
        raise ConfigError(
            item=f"--out {str(out)!r}",
            wanted="a file of Markdown (.md) or of numbers (.csv)",
            got=f"the ending {out.suffix!r}",
            fix="name one of these; for LaTeX: miue.compare(folders).to_frame().to_latex() in Python",
        )


def _rows_of(one: Compared, level: str, metrics: list[str] | None) -> list[list[Any]]:
    """Return the metrics of a cross-validation as numbers, in the order in which they are asked for."""
    numbers = one.numbers()
    keys = [(level, name) for name in metrics] if metrics else [key for key in numbers if key[0] == level]
    return [[numbers[key][column] for column in NUMBERS] for key in keys if key in numbers]


def _to_json(one: Compared, level: str, metrics: list[str] | None) -> dict[str, Any]:
    """Return the metrics of a cross-validation as numbers, each with its difference to the first."""
    values = {
        name: {
            **asdict(summary),
            "difference": asdict(one.differences[at, name]) if (at, name) in one.differences else None,
        }
        for (at, name), summary in one.summaries.items()
        if at == level and (not metrics or name in metrics)
    }
    return {"name": one.name, "same_tests": one.same_tests, "metrics": values}


def markdown(table: ResultTable) -> str:
    """Return a table as Markdown with its notes."""
    first, *others = (f"| {' | '.join(map(escape_markdown, row))} |" for row in (table.heading, *table.rows))
    rule = "| --- |" + " ---: |" * (len(table.heading) - 1)
    return "\n".join([first, rule, *others, "", *map(escape_markdown, table.notes), ""])
