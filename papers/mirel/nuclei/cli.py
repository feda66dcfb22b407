"""``miue nuclei``: cross-validation on real histology with the truth of every instance."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from miue.cli.options import Device
from miue.common.terminal import say
from papers.mirel.cli import seeds_of

nuclei_app = typer.Typer(
    help="Cross-validate on nuclei-bags: real histology, the truth of every instance, and shifts.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Source = Annotated[Path, typer.Option(help="Folder with crchisto_nuclei27.npz.")]
Results = Annotated[Path, typer.Option(help="Folder for results, nuclei/METHOD/SEED-FOLD.csv in it.")]
Seeds = Annotated[str, typer.Option(help="Seeds separated by commas, one repetition each.")]
ALL_SEEDS = "42,17,26,50,82"


@nuclei_app.command("run")
def nuclei_run(
    source: Source = Path("../shared/data"),
    results: Results = Path("results"),
    seeds: Seeds = ALL_SEEDS,
    method: Annotated[list[str] | None, typer.Option(help="Only these methods; may be repeated.")] = None,
    device: Device = "auto",
) -> None:
    """Train and evaluate the folds that have no results yet; may be killed and started again.

    Ten folds a repetition; validation bags come from the other folds, and test bags select nothing. To use
    several cores, start it several times with different methods or seeds.

    Example: miue nuclei run --source data --method mirel --method deterministic
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from papers.mirel.nuclei.bags import nuclei_bags
    from papers.mirel.nuclei.experiment import CONTENDERS, missing, run_task, tasks_of

    tasks = tasks_of(method or list(CONTENDERS), seeds_of(seeds))
    left = missing(tasks, results)
    say(f"{len(left)} folds to do, {len(tasks) - len(left)} done before")
    if not left:
        return
    bags = nuclei_bags(source)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("time left"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        shown = bar.add_task("nuclei", total=len(left))
        for task in left:
            bar.update(shown, description=f"{task.method}, seed {task.seed}, fold {task.fold}")
            if missing([task], results):  # not done by another process meanwhile
                run_task(task, bags, results, device)
            bar.advance(shown)


@nuclei_app.command("noticed")
def nuclei_noticed(
    source: Source = Path("../shared/data"),
    results: Results = Path("results"),
    seeds: Seeds = ALL_SEEDS,
    method: Annotated[list[str] | None, typer.Option(help="These methods; may be repeated. Else mirel.")] = None,
    device: Device = "auto",
) -> None:
    """Train and calibrate a model for each seed, and see whether it notices blurred and stained test bags.

    Writes nuclei/noticed-shifts/METHOD-SEED.csv into the results; what is there is not done again.

    Example: miue nuclei noticed --source data --method mirel --seeds 42,17
    """
    from miue.common.progress import tracked
    from papers.mirel.nuclei.bags import nuclei_bags
    from papers.mirel.nuclei.shift_detection import noticed_file, noticed_shifts, write_noticed

    runs = [(name, seed) for name in method or ["mirel"] for seed in seeds_of(seeds)]
    left = [(name, seed) for name, seed in runs if not noticed_file(results, name, seed).exists()]
    say(f"{len(left)} runs to do, {len(runs) - len(left)} done before")
    if not left:
        return
    bags = nuclei_bags(source)
    for name, seed in tracked(left, "runs", shown=True):
        write_noticed(noticed_file(results, name, seed), noticed_shifts(bags, name, seed, device))


@nuclei_app.command("table")
def nuclei_table(
    results: Results = Path("results"),
    seeds: Seeds = ALL_SEEDS,
    out: Annotated[Path | None, typer.Option(help="Also write the Markdown to this file.")] = None,
) -> None:
    """Print mean ± standard deviation over repetitions, beside published numbers, as Markdown."""
    from miue.common.files import atomic_file
    from papers.mirel.nuclei.table import nuclei_page

    text = nuclei_page(results, seeds_of(seeds))
    if out is not None:
        with atomic_file(out) as temporary:
            temporary.write_text(text, "utf-8")
    sys.stdout.write(text)


def make_nuclei_bags(source: Path, ood: list[str], split: list[str] | None) -> Any:
    """Return nuclei-bags, which have neither foreign sources nor splits.

    Raises:
        ConfigError: one of the two was asked for.
    """
    from miue.common.errors import ConfigError
    from papers.mirel.nuclei.bags import nuclei_bags

    if ood or split:
        raise ConfigError(
            item="nuclei-bags",
            wanted="no --ood and no --split: 98 bags that are to be cross-validated",
            got="--ood" if ood else "--split",
            fix="leave it out; miue nuclei run makes folds and shifted copies",
        )
    return nuclei_bags(source)
