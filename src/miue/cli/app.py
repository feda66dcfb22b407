"""The commands, one function each."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from miue.cli.calibrate import calibrate, decide
from miue.cli.compare import compare
from miue.cli.cross_validate import cross_validate
from miue.cli.export import check_exports, export_app, export_beside
from miue.cli.hub import hub_app
from miue.cli.nuclei import nuclei_app
from miue.cli.options import Encoder, Method, Network, parse_settings
from miue.cli.pack import data_pack, data_split
from miue.cli.paper import paper_app
from miue.cli.patch_labels import data_patch_labels
from miue.cli.report import report
from miue.cli.shift import data_shift
from miue.cli.sources import BAGS_HELP, Source, open_bags, say_left_out, takes_bags
from miue.cli.tile import data_tile
from miue.errors import ConfigError, unknown_name

app = typer.Typer(
    name="miue",
    help="Learn from bags with bag labels alone, and know how sure each prediction is.",
    epilog="Start with: miue demo. Or: miue data make digits-bags --out store; miue train store --out run; "
    "miue predict run store --out predictions; miue evaluate predictions.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(
    help="Make and pack bag stores; cut slides into patches; draw splits.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
data_app.command("tile")(data_tile)
data_app.command("pack")(data_pack)
data_app.command("split")(data_split)
data_app.command("shift")(data_shift)
data_app.command("patch-labels")(data_patch_labels)
app.add_typer(data_app, name="data")
app.add_typer(paper_app, name="paper")
app.add_typer(nuclei_app, name="nuclei")
app.add_typer(export_app, name="export")
app.add_typer(hub_app, name="hub")

Out = Annotated[Path, typer.Option(help="Folder to write.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what --out holds.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Device = Annotated[str, typer.Option(help="auto, cpu or gpu.")]

SOURCES = ("digits-bags", "mnist-bags", "cifar10-bags", "gaussian-bags", "musk1-bags", "musk2-bags", "nuclei-bags")
NEED_FILES = {
    "mnist-bags": "mnist.npz or MNIST's idx files",
    "cifar10-bags": "cifar10.npz or CIFAR-10's binary files",
    "musk1-bags": "musk.npz",
    "musk2-bags": "musk.npz",
    "nuclei-bags": "crchisto_nuclei27.npz",
}


@app.command()
def demo(out: Out = Path("demo"), overwrite: Overwrite = False, quiet: Quiet = False) -> None:
    """Train MIREL on bags of handwritten digits, without any download, and show what it knows and does not.

    Writes a folder with the bag store, the model, predictions of bags and instances, metrics, figures and an
    HTML report.
    """
    from miue.demo import run_demo
    from miue.evaluation.table import evaluation_table

    evaluation = run_demo(out, overwrite=overwrite, progress=not quiet)
    Console().print(evaluation_table(evaluation))
    typer.echo(f"Written to {out}/: store, run, predictions, evaluation.json, figures, report.html.")
    typer.echo(f"Open {out / 'report.html'} in a browser to look into it.")


@data_app.command("make")
def data_make(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(SOURCES)}.")],
    out: Out,
    source: Annotated[
        Path | None,
        typer.Option(help="Folder with the data's files (all but digits-bags and gaussian-bags)."),
    ] = None,
    ood: Annotated[
        list[str] | None,
        typer.Option(
            help="Foreign images of OOD test bags: fmnist, kmnist (mnist-bags); svhn, dtd (cifar10-bags)."
        ),
    ] = None,
    ood_ratio: Annotated[float, typer.Option(min=0, max=1, help="Foreign share of each OOD bag.")] = 1.0,
    split: Annotated[list[str] | None, typer.Option(help="Only these splits: train, validation, test.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Make a bag store: digits-bags and gaussian-bags without files, the others from --source."""
    from miue.data.store import write_store
    from miue.files import refuse_existing

    refuse_existing(out, overwrite=overwrite)
    bags = _make_bags(name, source, ood or [], ood_ratio, split)
    command = shlex.join(["miue", *sys.argv[1:]])
    write_store(out, bags, made_by={"command": command, "name": name}, overwrite=overwrite)
    typer.echo(f"{len(bags):,} bags with {len(bags.positions):,} instances written to {out}")


def _make_bags(name: str, source: Path | None, ood: list[str], ratio: float, split: list[str] | None) -> Any:
    splits = split or ["train", "validation", "test"]
    for one in splits:
        if one not in ("train", "validation", "test"):
            raise unknown_name("split", one, ("train", "validation", "test"))
    if name not in SOURCES:
        raise unknown_name("bags", name, SOURCES)
    if name in NEED_FILES:
        if source is None:
            raise ConfigError(
                item=name,
                wanted=f"the folder with {NEED_FILES[name]}",
                got="no --source",
                fix="pass --source FOLDER",
            )
        if name.startswith("musk"):
            from miue.data.musk_bags import musk_bags

            return musk_bags(source, int(name[4]))
        if name == "nuclei-bags":
            from miue.cli.nuclei import make_nuclei_bags

            return make_nuclei_bags(source, ood, split)
        if name == "mnist-bags":
            from miue.data.mnist_bags import mnist_bags

            return mnist_bags(source, splits=splits, ood=ood, ood_ratio=ratio)
        from miue.data.cifar10_bags import cifar10_bags

        return cifar10_bags(source, splits=splits, ood=ood, ood_ratio=ratio)
    if ood or source is not None:
        raise ConfigError(
            item=name,
            wanted="no --source and no --ood: it makes its own",
            got="--ood" if ood else "--source",
            fix="leave it out",
        )
    if name == "digits-bags":
        from miue.data.digits_bags import digits_bags

        return digits_bags(splits=splits, ood_ratio=ratio)
    from miue.data.gaussian_bags import gaussian_bags

    return gaussian_bags(splits=splits, ood_ratio=ratio)


@app.command()
@takes_bags
def train(
    bags: Annotated[Path, typer.Argument(help=BAGS_HELP)],
    out: Out,
    source: Source,
    network: Network = "attention",
    method: Method = "mirel",
    encoder: Encoder = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of initial weights, bag order and dropout.")] = 42,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any other option, such as learning_rate=2e-4, "
            "max_epochs=50, network.hidden=128, method.routing=through-estimator; may be repeated.",
        ),
    ] = None,
    distance: Annotated[
        list[str] | None,
        typer.Option(
            help="Scores of how far an instance lies from the training instances, fitted after training: knn "
            "(the default), mahalanobis, class-mahalanobis, reconstruction, or none; may be repeated."
        ),
    ] = None,
    members: Annotated[
        str, typer.Option(help="Train the networks of an ensemble together, in-turn, or auto, as is faster.")
    ] = "auto",
    tracker: Annotated[
        list[str] | None,
        typer.Option(
            help="Also tell tensorboard, mlflow or wandb of each epoch, which needs miue[tensorboard] and so on. "
            "They write into --out; nothing is sent unless MLFLOW_TRACKING_URI or WANDB_MODE says so; may be "
            "repeated."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was interrupted.")] = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    device: Device = "auto",
) -> None:
    """Train a network with an uncertainty method; the run's folder becomes the model.

    Uses the train and validation splits of the bags. Without any, a folder or a table is split by patient and
    class, and of a store a fifth is held out to validate on; the run's splits.csv says which bag was what.
    Every epoch is checkpointed; --resume continues to the same weights.
    Example: miue train features_uni_v2 --labels labels.csv --out run
    """
    from miue.api import DEFAULT_DISTANCES
    from miue.api import train as train_model

    options, settings = parse_settings(setting or [], {"seed": seed})
    if resume and overwrite:
        raise ConfigError(
            item="--resume with --overwrite", wanted="one of the two", got="both", fix="leave one out"
        )
    in_files = not (bags / "store.json").exists()
    opened = open_bags(bags, source, progress=not quiet, default_split=in_files, check_values=in_files)
    say_left_out(opened)
    if opened.note:
        typer.echo(opened.note)
    model = train_model(
        opened.bags,
        network=network,
        method=method,
        encoder=encoder,
        options=options,
        distances=[] if distance == ["none"] else distance or DEFAULT_DISTANCES,
        settings=settings,
        out=out,
        if_exists="resume" if resume else "overwrite" if overwrite else "refuse",
        progress=not quiet,
        device=device,
        members=members,
        trackers=tracker or [],
    )
    about = model.about
    typer.echo(
        f"Trained for {about['epochs']} epochs; best epoch {about['best_epoch']} "
        f"(validation NLL + error {about['criterion']:.4f}). Model: {out}"
    )


@app.command()
@takes_bags
def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a trained model.")],
    bags: Annotated[Path, typer.Argument(help=BAGS_HELP + " Labels are not needed.")],
    out: Out,
    source: Source,
    split: Annotated[
        str | None,
        typer.Option(help="Split to predict, or all; else test where there is one, else what was not trained on."),
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(help="What instances are predicted from: residual, bag-of-one or attention."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws, where the method draws.")] = 0,
    export: Annotated[
        list[str] | None,
        typer.Option(
            help="Also write, as 'miue export' does, into OUT: arrays, geojson or heatmap; may be repeated."
        ),
    ] = None,
    slides: Annotated[
        Path | None, typer.Option(help="Folder of slides: under heatmaps, and to subtract bounds from overlays.")
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    device: Device = "auto",
) -> None:
    """Predict bags and instances with their uncertainty, as plain tables.

    Patients with several bags get a table of their own. Bags that the model learned from are left out where
    the run tells which these are, unless --split all is given.
    Example: miue predict run new_features --out predictions --export geojson --export heatmap
    """
    from miue.files import refuse_existing
    from miue.model import Model

    refuse_existing(out, overwrite=overwrite)
    check_exports(export or [])
    model = Model.load(run)
    opened = open_bags(bags, source, progress=not quiet)
    say_left_out(opened)
    chosen = _bags_to_predict(opened.bags, split, run / "splits.csv")
    failed: list[str] = []
    predictions = model.predict(
        chosen,
        estimator=estimator,
        seed=seed,
        progress=not quiet,
        device="cuda" if device == "gpu" else device,
        on_bad=(lambda name, error: failed.append(f"{name}: {error}")) if source.skip_bad else None,
    )
    for one in failed:
        typer.echo(f"left out: {one}", err=True)
    about = {"bags": str(bags), "split": " ".join(sorted(set(chosen.splits))).strip() or "all bags"}
    predictions = replace(predictions, about={**predictions.about, **about})
    predictions.save(out, overwrite=overwrite)
    instances = 0 if predictions.instances is None else len(predictions.instances)
    typer.echo(f"{len(predictions.bags):,} bags with {instances:,} instances predicted: {out}")
    export_beside(predictions, out, export or [], slides, skip_bad=source.skip_bad, progress=not quiet)


def _bags_to_predict(bags: Any, split: str | None, of_run: Path) -> Any:
    """Return the bags of the split asked for, or the test bags, or those that the model did not learn from."""
    if split == "all":
        return bags
    if split is not None or "test" in bags.splits:
        return bags.split(split or "test")
    from miue.data.splits import read_splits

    if any(bags.splits) or not of_run.exists():
        return bags
    learned = {name for name, part in read_splits(of_run).folds[0].items() if part in ("train", "validation")}
    unseen = [row for row, name in enumerate(bags.ids) if name not in learned]
    if not unseen:
        raise ConfigError(
            item="the bags to predict",
            wanted="bags that the model did not learn from",
            got=f"{len(bags)} bags, all of which it was trained or validated on",
            fix="pass --split all to predict them all the same",
        )
    if len(unseen) < len(bags):
        typer.echo(f"left out: {len(bags) - len(unseen):,} bags that the model learned from", err=True)
    return bags.subset(unseen)


@app.command()
def evaluate(
    predictions: Annotated[Path | None, typer.Argument(help="Folder of predictions.")] = None,
    bags: Annotated[Path | None, typer.Option(help="Bag table of any tool, instead of a folder.")] = None,
    instances: Annotated[Path | None, typer.Option(help="Instance table that goes with --bags.")] = None,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="Also write the JSON to this file.")] = None,
) -> None:
    """Evaluate predictions: accuracy, Conf., OOD, UE, AUPR, FPR95, ECE, Brier, NLL, AURC, at both levels.

    Tables of other tools need bag_id and alpha_0, alpha_1, … or p_0, p_1, …; label, is_ood, ood_set,
    instance and measure columns are used where they are there.
    """
    from miue.evaluation import evaluate as evaluate_predictions
    from miue.evaluation.table import decision_table, evaluation_table
    from miue.files import write_json
    from miue.predictions import read_predictions, read_tables

    if (predictions is None) == (bags is None) or (instances is not None and bags is None):
        raise ConfigError(
            item="miue evaluate",
            wanted="a folder of predictions, or --bags FILE with or without --instances FILE",
            got="both or neither",
            fix="give one of the two",
        )
    if predictions is not None:
        given = read_predictions(predictions)
    else:
        assert bags is not None
        given = read_tables(bags, instances)
    evaluation = evaluate_predictions(given)
    if out is not None:
        write_json(out, evaluation.to_json())
    if as_json:
        typer.echo(json.dumps(evaluation.to_json(), indent=2))
        return
    Console().print(evaluation_table(evaluation))
    if evaluation.decisions is not None:
        Console().print(decision_table(evaluation.decisions))


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="Folder of feature files, store, run, predictions, or long table.")],
    as_json: AsJson = False,
    read: Annotated[
        bool, typer.Option("--read", help="Read every feature: find NaN and infinity, verify a packed store.")
    ] = False,
    mpp: Annotated[float | None, typer.Option(help="µm per level-0 pixel, for coords in µm (STAMP).")] = None,
    quiet: Quiet = False,
) -> None:
    """Show what a folder holds; of feature files each bag: format, N, D, type, coords, patch size, problems.

    Example: miue inspect features_uni_v2 --read
    """
    from miue.inspection import describe, description_table

    description = describe(path, microns_per_pixel=mpp, read=read, progress=not quiet)
    if as_json:
        typer.echo(json.dumps(description, indent=2))
        return
    bags = description.pop("bag", None)
    if bags is not None:
        from miue.inspection import bag_file_table

        Console().print(bag_file_table(bags))
    Console().print(description_table(description))


app.command("cross-validate")(cross_validate)
app.command("compare")(compare)
app.command()(calibrate)
app.command()(decide)
app.command()(report)
