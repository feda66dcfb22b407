"""``python -m papers.mirel``: the experiments of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from miue.cli import run_commands
from miue.cli.flags import Command, Commands, takes_settings
from miue.common.errors import unknown_name
from miue.common.text import ResultTable, literal, say
from papers.mirel.mitoses.cli import mitoses_app
from papers.mirel.nuclei.cli import nuclei_app
from papers.mirel.options import (
    ALL_SEEDS,
    DATA,
    RESULTS,
    Older,
    Results,
    Seeds,
    Source,
    TablePath,
    Work,
    parse_seeds,
    print_markdown,
)

if TYPE_CHECKING:
    from miue.common.settings import DeviceSettings
    from miue.common.tasks.executor import ComputeSettings

app = typer.Typer(
    name="papers.mirel",
    cls=Commands,
    help="Run the experiments of the paper and compare the results with the published numbers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(nuclei_app, name="nuclei")
app.add_typer(mitoses_app, name="mitoses")

WORK = Path("paper-work")


def main() -> None:
    """Run the command line of the paper."""
    run_commands(app, "papers.mirel")


@app.command("list")
def list_tables(results: Results = RESULTS, seeds: Seeds = ALL_SEEDS) -> None:
    """Show every table, its presets, and how many of its runs are done."""
    from papers.mirel import published_tables
    from papers.mirel.paths import Paths
    from papers.mirel.runner import missing

    paths, chosen_seeds = Paths(Path(), Path(), results), parse_seeds(seeds)
    rows = []
    for table in published_tables().values():
        total = len(table.presets) * len(chosen_seeds)
        done = total - len(missing(table.presets, chosen_seeds, paths))
        rows.append((table.name, table.title, str(len(table.presets)), f"{done} of {total}"))
    ResultTable(("table", "shows", "presets", "runs done"), rows, is_prose=True).show()


@app.command("run", cls=Command)
@takes_settings(compute="miue.common.tasks.executor:ComputeSettings")
def run(
    name: Annotated[str, typer.Argument(help="A table, or a preset such as mnist/abmil-mirel.")],
    source: Source = DATA,
    work: Work = WORK,
    results: Results = RESULTS,
    seeds: Seeds = ALL_SEEDS,
    *,
    compute: ComputeSettings,
) -> None:
    """Train and evaluate what a table still lacks; may be killed and started again."""
    from papers.mirel import preset, preset_names, published_table
    from papers.mirel.paths import Paths
    from papers.mirel.runner import missing, run_all

    paths, chosen_seeds = Paths(source, work, results), parse_seeds(seeds)
    names = [name] if name in preset_names() else published_table(name).presets
    for preset_name in names:
        preset(preset_name)
    tasks = missing(names, chosen_seeds, paths)
    say(f"{len(tasks)} runs to do, {len(names) * len(chosen_seeds) - len(tasks)} done before")
    run_all(tasks, paths, compute.to_executor(), device=compute.device, progress=True)


@app.command("figure", cls=Command)
@takes_settings(compute="miue.common.settings:DeviceSettings")
def figure(
    name: Annotated[str, typer.Argument(help="A figure, list for their names, or all.")],
    source: Source = DATA,
    work: Work = WORK,
    results: Results = RESULTS,
    seeds: Seeds = ALL_SEEDS,
    *,
    compute: DeviceSettings,
) -> None:
    """Draw a figure and write its numbers, RESULTS/figures/NAME.png and .csv; what is not trained yet is trained.

    Scores are kept in the work folder, so a figure that was interrupted goes on where it was.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from papers.mirel.figures import FIGURES, paper_figure
    from papers.mirel.paths import Paths

    if name == "list":
        shows = [(figure_name, listed.shows) for figure_name, listed in FIGURES.items()]
        ResultTable(("figure", "shows"), shows, is_prose=True).show()
        return
    figures = {figure_name: paper_figure(figure_name) for figure_name in (FIGURES if name == "all" else [name])}
    paths = Paths(source, work, results)
    columns = (TextColumn("drawing {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        bar_of_figures = bar.add_task(name, total=len(figures))
        for figure_name, chosen in figures.items():
            bar.update(bar_of_figures, description=figure_name)
            chosen.draw(parse_seeds(seeds), paths, compute.device).write(results / "figures", figure_name)
            bar.advance(bar_of_figures)
            bar.console.print(literal(f"{results / 'figures' / figure_name}.png"))


@app.command("distances")
def distances(
    names: Annotated[list[str], typer.Argument(help="Trained presets, such as mnist/abmil-mirel.")],
    source: Source = DATA,
    work: Work = WORK,
    results: Results = RESULTS,
    seeds: Seeds = ALL_SEEDS,
) -> None:
    """Rank every score on validation bags against shifted copies of them, as the default distance was chosen."""
    from papers.mirel.distance_choice import distance_choice, ranking, write_choice
    from papers.mirel.paths import Paths

    rows = distance_choice(names, parse_seeds(seeds), Paths(source, work, results))
    write_choice(results / "distance_choice.csv", rows)
    for level in ("bag", "instance"):
        scores = [(score, f"{100 * value:.2f}") for score, value in ranking(rows, level)]
        ResultTable((f"score, {level} level", "mean AUROC over shifts, presets and seeds, %"), scores).show()


@app.command("routing")
def routing(
    names: Annotated[list[str], typer.Argument(help="Trained presets with MIREL, such as mnist/dsmil-mirel.")],
    source: Source = DATA,
    work: Work = WORK,
    results: Results = RESULTS,
    seeds: Seeds = ALL_SEEDS,
) -> None:
    """Compare gradient routings on validation bags, as the default of each network was chosen.

    What was measured before is kept: presets may be measured together or in turn.
    """
    from papers.mirel.paths import Paths
    from papers.mirel.routing_choice import choice_tables, measure_routings

    out = results / "routing" / "validation.csv"
    rows = measure_routings(names, parse_seeds(seeds), Paths(source, work, results), out)
    for table in choice_tables(rows):
        table.show()


@app.command("temperatures")
def temperatures(
    names: Annotated[
        list[str] | None, typer.Argument(help="Trained presets of MNIST-bags, such as mnist/abmil-mirel.")
    ] = None,
    source: Source = DATA,
    work: Work = WORK,
    results: Results = RESULTS,
    seeds: Seeds = ALL_SEEDS,
    out: TablePath = None,
) -> None:
    """Measure on test bags what the temperature of the validation bags changes.

    What was measured before is kept and shown.
    """
    from miue.cli.cross_validate import markdown
    from papers.mirel.paths import Paths
    from papers.mirel.temperature_scaling import measure_temperatures, table

    paths = Paths(source, work, results)
    rows = measure_temperatures(names or [], parse_seeds(seeds), paths, results / "temperatures.csv")
    print_markdown(markdown(table(rows)), out)


@app.command("small-cohorts")
def small_cohorts(
    source: Annotated[Path, typer.Option(help="Folder of the CSV tables of the Python package mil 1.0.5.")],
    sets: Annotated[list[str] | None, typer.Argument(help="Names of sets; by default all.")] = None,
    work: Work = WORK,
    results: Results = RESULTS,
    draws: Annotated[int, typer.Option(min=0, help="How often folds are drawn; 0: only print the tables.")] = 1,
    out: TablePath = None,
) -> None:
    """Compare pooled baselines and networks on small cohorts, out-of-fold predictions together."""
    from papers.mirel.small_cohorts import SETS, measure, page

    for name in sets or SETS:
        measure(name, source, work, results, draws, "cpu")
    print_markdown(page(results), out)


@app.command("error-measures")
def error_measures(
    names: Annotated[list[str], typer.Argument(help="Trained presets with MIREL, such as mnist/abmil-mirel.")],
    source: Source = DATA,
    work: Work = WORK,
    results: Results = RESULTS,
    seeds: Seeds = ALL_SEEDS,
) -> None:
    """Compare on validation bags how well each measure detects errors.

    What was measured before is kept: presets may be measured together or in turn.
    """
    from papers.mirel.error_measure_choice import choice_tables, measure_errors
    from papers.mirel.paths import Paths

    rows = measure_errors(names, parse_seeds(seeds), Paths(source, work, results), results / "error_measures.csv")
    for predicted, table in choice_tables(rows):
        say(f"Conf. in %, {predicted}")
        table.show()


@app.command("decisions")
def decisions(
    names: Annotated[list[str], typer.Argument(help="Trained presets of MNIST-bags, such as mnist/abmil-mirel.")],
    source: Source = DATA,
    work: Work = WORK,
    results: Results = RESULTS,
    seeds: Seeds = ALL_SEEDS,
) -> None:
    """Calibrate trained presets at the defaults and evaluate their decisions on test bags.

    Writes RESULTS/decisions/PRESET.csv.
    """
    from miue.common.tables import write_rows
    from papers.mirel.decision_outcomes import COLUMNS, outcomes, summaries
    from papers.mirel.paths import Paths

    for name in names:
        rows = [row for seed in parse_seeds(seeds) for row in outcomes(name, seed, Paths(source, work, results))]
        write_rows(results / "decisions" / f"{name.replace('/', '-')}.csv", COLUMNS, rows)
        heading = ("preset", "calibrated on", "metric", "% (mean ± std over seeds)", "highest")
        ResultTable(heading, list(summaries(rows)), is_prose=True).show()


@app.command("choose")
def choose(
    name: Annotated[str, typer.Argument(help="The choice; `list` shows all.")],
    data: Annotated[
        list[str] | None, typer.Argument(help="Data to train on; all of the choice where none is named.")
    ] = None,
    source: Source = DATA,
    results: Results = RESULTS,
    seeds: Seeds = "42,17,26",
) -> None:
    """Compare values of an option on validation bags, as its default was chosen.

    What was trained before is kept: data may be named together or in turn.

    Example: python -m papers.mirel choose scaling musk1 digits
    """
    from papers.mirel.option_choice import choice_table, measure_choice
    from papers.mirel.option_choices import CHOICES

    if name == "list":
        listed = []
        for title, choice in CHOICES.items():
            values = ", ".join(map(str, (choice.before, *choice.others)))
            listed.append((title, choice.option, values, choice.network, ", ".join(choice.data)))
        ResultTable(("choice", "option", "values", "network", "data"), listed, is_prose=True).show()
        return
    if name not in CHOICES:
        raise unknown_name("choice", name, CHOICES)
    choice, folder = CHOICES[name], results / name.replace("-", "_")
    rows = measure_choice(choice, data or list(choice.data), parse_seeds(seeds), source, folder / "validation.csv")
    table, chosen = choice_table(choice, rows)
    table.show()
    say(f"By the rule in {folder / 'README.md'}: {choice.option}={chosen}")


@app.command("ue")
def ue(results: Results = RESULTS, older: Older = False, out: TablePath = None) -> None:
    """Print UE of MNIST-bags by network, OOD detected by `combined`, from the results that are there."""
    from papers.mirel.ue_table import ue_table

    print_markdown(ue_table(results, older=older), out)


@app.command("shift-scores")
def shift_scores(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Trained presets, nuclei/mirel (models of folds), or nuclei (image statistics alone)."
        ),
    ],
    source: Source = DATA,
    work: Work = WORK,
    results: Results = RESULTS,
    seeds: Seeds = ALL_SEEDS,
    folds: Annotated[str, typer.Option(help="Folds of nuclei/mirel, trained where they are not.")] = "0,1,2,3",
) -> None:
    """Evaluate every score on out-of-distribution test bags and on shifted copies of nuclei."""
    from miue.common.tables import write_rows
    from papers.mirel.nuclei.bags import nuclei_bags
    from papers.mirel.paths import Paths
    from papers.mirel.shift_scores import COLUMNS, looks_of_nuclei, scores_of_digits, scores_of_nuclei

    paths, chosen = Paths(source, work, results), [int(fold) for fold in folds.split(",")]
    for name in names:
        rows = []
        for seed in parse_seeds(seeds):
            if name == "nuclei":
                rows += looks_of_nuclei(seed, nuclei_bags(source))
            elif name == "nuclei/mirel":
                rows += scores_of_nuclei(seed, chosen, paths, nuclei_bags(source))
            else:
                rows += scores_of_digits(name, seed, paths)
            write_rows(results / "shift" / f"{name.replace('/', '-')}.csv", COLUMNS, rows)


@app.command("near-ood")
def near_ood(results: Results = RESULTS, out: TablePath = None) -> None:
    """Print how well bags of which a part is of another source are detected, from the results that are there."""
    from miue.cli.cross_validate import markdown
    from papers.mirel.measured import read_measured
    from papers.mirel.shift_scores import near_table

    rows = [row for path in sorted((results / "shift").glob("mnist-*.csv")) for row in read_measured(path)]
    print_markdown(markdown(near_table(rows)), out)


@app.command("instance-guarantees")
def instance_guarantees(
    source: Source = DATA, work: Work = WORK, results: Results = RESULTS, seeds: Seeds = "17"
) -> None:
    """Measure flags of instances against their promise, on MNIST-bags with trained presets and on nuclei-bags.

    Presets of MNIST-bags that were trained are predicted as they are; models of nuclei-bags are trained first.
    """
    from papers.mirel.instance_guarantees import NUCLEI, predict_mnist, predict_nuclei, write_measured

    predictions = work / "flags"
    predictions.mkdir(parents=True, exist_ok=True)
    if (work / "stores" / "mnist-bags").is_dir():
        predict_mnist(work / "stores" / "mnist-bags", work / "runs" / "mnist", predictions)
    for seed in parse_seeds(seeds):
        for network, method in NUCLEI:
            predict_nuclei(source, predictions, network, method, seed)
    write_measured(predictions, results / "instance_guarantees" / "measured.csv")


@app.command("table")
def table(
    name: Annotated[str, typer.Argument(help="A table.")],
    results: Results = RESULTS,
    seeds: Seeds = ALL_SEEDS,
    older: Older = False,
    out: TablePath = None,
) -> None:
    """Print a table as Markdown: ours with both kinds of error, the paper's, and differences."""
    from papers.mirel import published_table
    from papers.mirel.paths import Paths
    from papers.mirel.tables import markdown_table

    paths = Paths(Path(), Path(), results)
    print_markdown(markdown_table(published_table(name), paths, parse_seeds(seeds), older=older), out)


@app.command("seeds")
def every_seed(
    name: Annotated[str, typer.Argument(help="A preset, such as mnist/abmil-mirel.")],
    results: Results = RESULTS,
    seeds: Seeds = ALL_SEEDS,
) -> None:
    """Print every seed of one preset as Markdown."""
    from papers.mirel.paths import Paths
    from papers.mirel.tables import markdown_seeds

    print_markdown(markdown_seeds(name, Paths(Path(), Path(), results), parse_seeds(seeds)), None)
