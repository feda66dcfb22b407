"""``miue paper``: the experiments of the paper."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from miue.common.terminal import TextTable, literal, say, show_table

paper_app = typer.Typer(
    help="Run the experiments of the paper and set ours beside the published numbers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Source = Annotated[Path, typer.Option(help="Folder with the files of the data.")]
Work = Annotated[Path, typer.Option(help="Folder for stores and trained models.")]
Results = Annotated[Path, typer.Option(help="Folder for results, one tidy CSV per preset and seed.")]
Seeds = Annotated[str, typer.Option(help="Seeds, separated by commas.")]
ALL_SEEDS = "42,17,26,50,82"


@paper_app.command("list")
def paper_list(results: Results = Path("results"), seeds: Seeds = ALL_SEEDS) -> None:
    """Show every table, its presets, and how many of its runs are done."""

    from papers.mirel import published_tables
    from papers.mirel.runner import Places, missing

    places, chosen = Places(Path(), Path(), results), seeds_of(seeds)
    shown = TextTable("table", "shows", "presets", "runs done")
    for table in published_tables().values():
        total = len(table.presets) * len(chosen)
        done = total - len(missing(table.presets, chosen, places))
        shown.add_row(table.name, table.title, str(len(table.presets)), f"{done} of {total}")
    show_table(shown)


@paper_app.command("run")
def paper_run(
    name: Annotated[str, typer.Argument(help="A table, or a preset such as mnist/abmil-mirel.")],
    source: Source = Path("../shared/data"),
    work: Work = Path("paper-work"),
    results: Results = Path("results"),
    seeds: Seeds = ALL_SEEDS,
    jobs: Annotated[int, typer.Option(min=1, help="Processes side by side.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
) -> None:
    """Train and evaluate what a table still lacks; may be killed and started again."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from papers.mirel import preset, preset_names, published_table
    from papers.mirel.runner import Places, make_bags, missing, run_all

    places = Places(source, work, results)
    names = [name] if name in preset_names() else published_table(name).presets
    for one in names:
        preset(one)
    tasks = missing(names, seeds_of(seeds), places)
    say(f"{len(tasks)} runs to do, {len(names) * len(seeds_of(seeds)) - len(tasks)} done before")
    make_bags([one for one, _ in tasks], places, progress=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("time left"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=len(tasks))
        for done, seed in run_all(tasks, places, jobs=jobs, device=device):
            bar.console.print(literal(f"{done}, seed {seed}: done"))
            bar.advance(task)


@paper_app.command("distances")
def paper_distances(
    names: Annotated[list[str], typer.Argument(help="Trained presets, such as mnist/abmil-mirel.")],
    source: Source = Path("../shared/data"),
    work: Work = Path("paper-work"),
    results: Results = Path("results"),
    seeds: Seeds = ALL_SEEDS,
) -> None:
    """Rank every score on validation bags against shifted copies of them, as the default distance was chosen."""

    from papers.mirel.distance_choice import distance_choice, ranking, write_choice
    from papers.mirel.runner import Places

    rows = distance_choice(names, seeds_of(seeds), Places(source, work, results))
    write_choice(results / "distance_choice.csv", rows)
    for level in ("bag", "instance"):
        shown = TextTable(f"score, {level} level", "mean AUROC over shifts, presets and seeds, %")
        for score, value in ranking(rows, level):
            shown.add_row(score, f"{100 * value:.2f}")
        show_table(shown)


@paper_app.command("table")
def paper_table(
    name: Annotated[str, typer.Argument(help="A table.")],
    results: Results = Path("results"),
    seeds: Seeds = ALL_SEEDS,
    out: Annotated[Path | None, typer.Option(help="Also write the Markdown to this file.")] = None,
) -> None:
    """Print a table as Markdown: ours, the paper's, and the difference in standard deviations."""
    from miue.common.files import atomic_file
    from papers.mirel import published_table
    from papers.mirel.runner import Places
    from papers.mirel.tables import markdown_table

    text = markdown_table(published_table(name), Places(Path(), Path(), results), seeds_of(seeds))
    if out is not None:
        with atomic_file(out) as temporary:
            temporary.write_text(text, "utf-8")
    sys.stdout.write(text)


@paper_app.command("figure")
def paper_figure(
    name: Annotated[str, typer.Argument(help="A figure, list for their names, or all.")],
    source: Source = Path("../shared/data"),
    work: Work = Path("paper-work"),
    results: Results = Path("results"),
    seeds: Seeds = ALL_SEEDS,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
) -> None:
    """Draw a figure and write its numbers, RESULTS/figures/NAME.png and .csv; what is not trained yet is trained.

    Scores are kept in the work folder, so a figure that was interrupted goes on where it was.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from papers.mirel.figures import FIGURES
    from papers.mirel.figures import paper_figure as figure_of
    from papers.mirel.runner import Places

    if name == "list":
        shown = TextTable("figure", "shows")
        for one, figure in FIGURES.items():
            shown.add_row(one, figure.shows)
        show_table(shown)
        return
    chosen = {one: figure_of(one) for one in (FIGURES if name == "all" else [name])}
    places = Places(source, work, results)
    columns = (TextColumn("drawing {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=len(chosen))
        for one, figure in chosen.items():
            bar.update(task, description=one)
            figure.draw(seeds_of(seeds), places, device).write(results / "figures", one)
            bar.advance(task)
            bar.console.print(literal(f"{results / 'figures' / one}.png"))


@paper_app.command("seeds")
def paper_seeds(
    name: Annotated[str, typer.Argument(help="A preset, such as mnist/abmil-mirel.")],
    results: Results = Path("results"),
    seeds: Seeds = ALL_SEEDS,
) -> None:
    """Print every seed of one preset as Markdown."""
    from papers.mirel.runner import Places
    from papers.mirel.tables import markdown_seeds

    sys.stdout.write(markdown_seeds(name, Places(Path(), Path(), results), seeds_of(seeds)))


def seeds_of(text: str) -> list[int]:
    """Return the seeds that ``text`` lists.

    Raises:
        ConfigError: a seed is not a whole number.
    """
    from miue.common.errors import ConfigError

    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            item="--seeds", wanted="whole numbers separated by commas", got=repr(text), fix="write 42,17, say"
        ) from error
