"""``miue report``: predictions as one HTML file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from miue.cli.given_predictions import read_given
from miue.cli.group_options import GroupOptions
from miue.cli.option_groups import takes_options
from miue.cli.options import OUTPUT, RUNNING, AsJson, ClassNames, Instances, OverwriteFile, Quiet
from miue.cli.outputs import keeps_inputs, locks_out
from miue.cli.sources import Source, open_bags, say_left_out
from miue.common.errors import ConfigError
from miue.common.outputs import refuse_existing
from miue.common.text import say, show_result

if TYPE_CHECKING:
    from miue.io.loaded import LoadedBags

OF_STORE = ("mpp", "feature_key", "features")
"""Options that say how the bags of --store are read."""
OF_TABLES = ("id_column", *OF_STORE)
"""The same, with what also says how the table of --groups is read."""


@keeps_inputs
@takes_options(without=tuple(one.name for one in fields(Source) if one.name not in OF_TABLES))
@locks_out
def report(
    predictions: Annotated[
        list[Path],
        typer.Argument(
            metavar="PREDICTIONS",
            help="One or more folders of predictions or bag tables of any tool (CSV, Parquet).",
        ),
    ],
    source: Source,
    groups: GroupOptions,
    out: Annotated[Path, typer.Option(metavar="FILE", help="HTML file to write.", rich_help_panel=OUTPUT)] = Path(
        "report.html"
    ),
    instances: Instances = None,
    classes: ClassNames = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Name of a method, once for each of PREDICTIONS in order; those of one name are its seeds.",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="BAGS",
            help="The bags that were predicted (store, folder of feature files, or long table), for pictures and "
            "positions of their instances.",
        ),
    ] = None,
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="Heading of the page.", rich_help_panel=OUTPUT)
    ] = "Predictions and how sure they are",
    max_mb: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Largest size of the file, in MB; fewer instances are shown if needed.",
            rich_help_panel=OUTPUT,
        ),
    ] = 20.0,
    resamples: Annotated[
        int,
        typer.Option(min=10, help="Bootstrap resamples of bags behind the intervals.", rich_help_panel=RUNNING),
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the resamples.", rich_help_panel=RUNNING)] = 0,
    overwrite: OverwriteFile = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Write an HTML report that opens offline.

    The report begins with a verdict and the bags to look at first. It shows metrics with intervals, reliability,
    the gain from deferring the least certain bags, how well out-of-distribution data is detected, and a table in
    which every bag can be opened. Several PREDICTIONS are compared on the same bags, with paired intervals for
    every two methods; those of one method with different seeds are also shown as mean and standard deviation.
    With --groups and --group-column, each hospital, say, is also shown by itself. docs/report.md explains each
    figure.

    Example: miue report predictions theirs.csv --out report.html
    """
    from miue.report.levels import Resampling
    from miue.report.report import write_report

    if instances is not None and len(predictions) > 1:
        raise ConfigError(
            item="--instances",
            wanted="one bag table that it belongs to",
            got=f"{len(predictions)} predictions",
            fix="report the table alone, or compare the bags without --instances",
        )
    refuse_existing(out, overwrite=overwrite)
    groups.check()
    read_by = OF_TABLES if groups.groups is None else OF_STORE
    if store is None and (said := [one for one in read_by if getattr(source, one)]):
        raise ConfigError(
            item=f"--{said[0].replace('_', '-')}",
            wanted="--store beside it",
            got="none",
            fix="pass the bags as --store",
        )
    shown = None if store is None else _open_store(store, source, progress=not quiet, groups=groups)
    if shown is not None:
        say_left_out(shown)
    with _Bars(quiet) as track:
        step, found = track("reading", len(predictions)), []
        for path in predictions:
            found.append((str(path), read_given(path, instances, classes)))
            step(1)
        written = write_report(
            out,
            found,
            names=name or [],
            store=None if shown is None else shown.bags,
            groups=groups.read([one.bags for _, one in found], source.id_column),
            title=title,
            max_mb=max_mb,
            resampling=Resampling(resamples, seed),
            track=track,
        )
    if not as_json:
        for note in written.notes:
            say(f"note: {note}")
    facts = {"bytes": written.bytes, "notes": written.notes, "out": str(out)}
    show_result(
        {"verdicts": [one.to_json() for one in written.verdicts], **facts},
        f"{out}: {written.bytes / 1e6:.1f} MB, opens in any browser without a network",
        as_json,
    )


def _open_store(store: Path, source: Source, *, progress: bool, groups: GroupOptions) -> LoadedBags:
    """Return the bags of --store; beside --groups, --id-column is theirs only where they need it, too."""
    from miue.bags.column_names import BAG
    from miue.io.find import named_id_column

    id_column = source.id_column
    if groups.groups is not None and id_column is not None:
        id_column = named_id_column(store, {BAG: id_column}).get(BAG)
    return open_bags(store, replace(source, skip_bad=True, id_column=id_column), progress=progress)


class _Bars:
    """A bar with the time left for each thing that takes long."""

    def __init__(self, quiet: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("time left"), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), disable=quiet)

    def __enter__(self) -> Callable[[str, int], Callable[[int], None]]:
        self._progress.start()
        return self._track

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def _track(self, what: str, total: int) -> Callable[[int], None]:
        task = self._progress.add_task(what, total=total)
        return lambda done: self._progress.advance(task, done)
