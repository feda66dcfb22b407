"""``python -m papers.mirel mitoses``: three scanners, each in turn the one that is trained on."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.flags import Command, takes_settings
from miue.cli.options import Out, Overwrite
from miue.cli.outputs import locks_out
from miue.common.folder_kinds import STORE
from miue.common.outputs import refuse_existing
from miue.common.text import say
from papers.mirel.options import (
    ALL_SEEDS,
    DATA,
    RESULTS,
    Older,
    Results,
    Seeds,
    Source,
    TablePath,
    parse_seeds,
    print_markdown,
)

if TYPE_CHECKING:
    from miue.common.tasks.executor import ComputeSettings

mitoses_app = typer.Typer(
    help="Train on slides of one scanner and test on those of two others: mitoses of breast cancer.",
    no_args_is_help=True,
)
Form = Annotated[list[str] | None, typer.Option(help="Bags: slides or pooled; may be repeated. Else both.")]
OnlyMethods = Annotated[list[str] | None, typer.Option(help="Only these methods; may be repeated.")]


@mitoses_app.command("make")
@locks_out
def mitoses_make(out: Out, source: Source = DATA, overwrite: Overwrite = False) -> None:
    """Make a bag store of 135 slides from mitoses64.npz; the id of a bag begins with its scanner."""
    from miue.io import write_store
    from papers.mirel.mitoses.bags import scanned_slides

    refuse_existing(out, STORE, overwrite=overwrite)
    slides = scanned_slides(source)
    ids = tuple(f"{scanner}/{name}" for scanner, name in zip(slides.scanners, slides.bags.ids, strict=True))
    command = shlex.join(["python", "-m", "papers.mirel", *sys.argv[1:]])
    made_by = {"command": command, "name": "mitoses-bags"}
    write_store(out, replace(slides.bags, ids=ids), made_by=made_by, overwrite=overwrite)
    say(f"{len(ids):,} bags with {len(slides.bags.positions):,} instances written to {out}")


@mitoses_app.command("run", cls=Command)
@takes_settings(compute="miue.common.tasks.executor:ComputeSettings")
def mitoses_run(
    source: Source = DATA,
    results: Results = RESULTS,
    seeds: Seeds = ALL_SEEDS,
    form: Form = None,
    method: OnlyMethods = None,
    *,
    compute: ComputeSettings,
) -> None:
    """Train and evaluate the folds that have no results yet; may be killed and started again.

    Example: python -m papers.mirel mitoses run --source data --method mirel --form pooled --seeds 42
    """
    from papers.mirel.folds import run_missing
    from papers.mirel.mitoses.experiment import FORMS, all_folds
    from papers.mirel.nuclei.experiment import METHOD_SETUPS

    folds = all_folds(form or FORMS, method or list(METHOD_SETUPS), parse_seeds(seeds))
    run_missing(folds, source, results, compute.device, compute.to_executor())


@mitoses_app.command("table")
def mitoses_table(
    results: Results = RESULTS, seeds: Seeds = ALL_SEEDS, older: Older = False, out: TablePath = None
) -> None:
    """Print errors and warnings on each scanner by method as Markdown."""
    from papers.mirel.mitoses.table import mitoses_page

    print_markdown(mitoses_page(results, parse_seeds(seeds), older=older), out)
