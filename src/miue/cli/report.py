"""``miue report``: predictions as one HTML file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.bags import open_bags, say_left_out
from miue.cli.flags import takes_settings
from miue.cli.options import AsJson, OutFile, Overwrite, Quiet
from miue.cli.outputs import keeps_inputs, locks_out
from miue.cli.predictions import groups_of, read_given
from miue.common.errors import ConfigError
from miue.common.outputs import refuse_existing
from miue.common.text import say, show_result

if TYPE_CHECKING:
    from miue.io import LoadedBags
    from miue.settings import GroupSettings, LoadSettings, ReportSettings, TableSettings


@takes_settings(
    table="miue.settings:TableSettings",
    load="miue.settings:LoadSettings",
    groups="miue.settings:GroupSettings",
    settings="miue.settings:ReportSettings",
    without=(
        *("labels", "label_column", "patient_column", "patients", "slide_table", "splits", "fold"),
        *("instance_labels", "skip_bad"),
    ),
)
@keeps_inputs
@locks_out
def report(
    predictions: Annotated[
        list[Path],
        typer.Argument(
            metavar="PREDICTIONS",
            help="One or more folders of predictions or bag tables of any tool (CSV, Parquet).",
        ),
    ],
    table: TableSettings,
    load: LoadSettings,
    groups: GroupSettings,
    settings: ReportSettings,
    out: OutFile = Path("report.html"),
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="BAGS",
            help="The bags that were predicted (store, folder of feature files, or long table), for pictures and "
            "positions of their instances.",
        ),
    ] = None,
    overwrite: Overwrite = False,
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

    if table.instances is not None and len(predictions) > 1:
        raise ConfigError(
            item="--instances",
            wanted="one bag table that it belongs to",
            got=f"{len(predictions)} predictions",
            fix="report the table alone, or compare the bags without --instances",
        )
    refuse_existing(out, overwrite=overwrite)
    (groups if groups.groups else groups.model_copy(update={"id_column": None})).check()
    of_store = load.given().keys() - {"classes", *(["id_column"] if groups.groups else [])}
    if store is None and of_store:
        item = next(iter(of_store))
        raise ConfigError(item=item, wanted="--store beside it", got="none", fix="pass the bags as --store")
    shown = None if store is None else _open_store(store, load, groups, progress=not quiet)
    if shown is not None:
        say_left_out(shown)
    with _Bars(quiet) as track:
        step, found = track("reading", len(predictions)), []
        for path in predictions:
            found.append((str(path), read_given(path, table.instances, table.classes)))
            step(1)
        written = write_report(
            out,
            found,
            names=settings.names,
            store=None if shown is None else shown.bags,
            groups=groups_of([one.bags for _, one in found], groups),
            title=settings.title,
            view=settings.view,
            max_mb=settings.max_mb,
            resampling=Resampling(settings.resamples, settings.seed),
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


def _open_store(store: Path, load: LoadSettings, groups: GroupSettings, *, progress: bool) -> LoadedBags:
    """Return the bags of --store; beside --groups, --id-column is theirs only where they need it, too."""
    from miue.bags.columns import BAG
    from miue.io import named_id_column

    id_column = load.id_column
    if groups.groups is not None and id_column is not None:
        id_column = named_id_column(store, {BAG: id_column}).get(BAG)
    load = load.model_copy(update={"classes": ()})
    return open_bags(store, load, progress=progress, skip_bad=True, id_column=id_column)


class _Bars:
    """A bar with the time left for each thing that takes long."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console
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
