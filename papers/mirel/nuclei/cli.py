"""``python -m papers.mirel nuclei``: cross-validation on real histology with the truth of every instance."""

from __future__ import annotations

import shlex
import sys
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
    from miue.common.settings import DeviceSettings
    from miue.common.tasks.executor import ComputeSettings

nuclei_app = typer.Typer(
    help="Cross-validate on nuclei-bags: real histology, the truth of every instance, and shifts.",
    no_args_is_help=True,
)


@nuclei_app.command("make")
@locks_out
def nuclei_make(out: Out, source: Source = DATA, overwrite: Overwrite = False) -> None:
    """Make a bag store of nuclei-bags, 98 patients, from crchisto_nuclei27.npz.

    The store has no splits, as so few bags are best cross-validated: nuclei run draws folds of its own.
    """
    from miue.io import write_store
    from papers.mirel.nuclei.bags import nuclei_bags

    refuse_existing(out, STORE, overwrite=overwrite)
    bags = nuclei_bags(source)
    command = shlex.join(["python", "-m", "papers.mirel", *sys.argv[1:]])
    write_store(out, bags, made_by={"command": command, "name": "nuclei-bags"}, overwrite=overwrite)
    say(f"{len(bags):,} bags with {len(bags.positions):,} instances written to {out}")


@nuclei_app.command("run", cls=Command)
@takes_settings(compute="miue.common.tasks.executor:ComputeSettings")
def nuclei_run(
    source: Source = DATA,
    results: Results = RESULTS,
    seeds: Seeds = ALL_SEEDS,
    method: Annotated[list[str] | None, typer.Option(help="Only these methods; may be repeated.")] = None,
    *,
    compute: ComputeSettings,
) -> None:
    """Train and evaluate the folds that have no results yet; may be killed and started again.

    Ten folds a repetition; validation bags come from the other folds, and test bags select nothing.

    Example: python -m papers.mirel nuclei run --source data --method mirel --method deterministic --jobs 2
    """
    from papers.mirel.folds import run_missing
    from papers.mirel.nuclei.experiment import METHOD_SETUPS, all_folds

    folds = all_folds(method or list(METHOD_SETUPS), parse_seeds(seeds))
    run_missing(folds, source, results, compute.device, compute.to_executor())


@nuclei_app.command("detect-shifts", cls=Command)
@takes_settings(compute="miue.common.settings:DeviceSettings")
def nuclei_detect_shifts(
    source: Source = DATA,
    results: Results = RESULTS,
    seeds: Seeds = ALL_SEEDS,
    method: Annotated[list[str] | None, typer.Option(help="These methods; may be repeated. Else mirel.")] = None,
    *,
    compute: DeviceSettings,
) -> None:
    """Train and calibrate a model for each seed, and see whether it detects blurred and stained test bags.

    Writes nuclei/detected-shifts/METHOD-SEED.csv into the results; what is there is not done again.

    Example: python -m papers.mirel nuclei detect-shifts --source data --method mirel --seeds 42,17
    """
    from miue.common.text import tracked
    from papers.mirel.nuclei import shift_detection
    from papers.mirel.nuclei.bags import nuclei_bags

    runs = {
        (name, seed): shift_detection.detections_path(results, name, seed)
        for name in method or ["mirel"]
        for seed in parse_seeds(seeds)
    }
    left = [run for run, path in runs.items() if not path.exists()]
    say(f"{len(left)} runs to do, {len(runs) - len(left)} done before")
    if not left:
        return
    bags = nuclei_bags(source)
    for name, seed in tracked(left, "runs", shown=True):
        detections = shift_detection.detect_shifts(bags, name, seed, compute.device)
        shift_detection.write_detections(runs[name, seed], detections)


@nuclei_app.command("table")
def nuclei_table(
    results: Results = RESULTS, seeds: Seeds = ALL_SEEDS, older: Older = False, out: TablePath = None
) -> None:
    """Print mean ± standard deviation over repetitions, beside published numbers, as Markdown."""
    from papers.mirel.nuclei.table import nuclei_page

    print_markdown(nuclei_page(results, parse_seeds(seeds), older=older), out)
