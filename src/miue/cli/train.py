"""``miue train``: bags become a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.bags import open_bags, say_left_out
from miue.cli.flags import MANY, separate, takes_settings, value_of
from miue.cli.options import AsJson, Bags, Out, Overwrite, Quiet
from miue.cli.outputs import keeps_inputs
from miue.common.errors import one_of_two
from miue.common.text import RUNNING, TRAINING, ResultTable, plural, say, say_json, show_result

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from miue.predictions import TrainingRecord
    from miue.settings import LoadSettings, TrainSettings
    from miue.training.run_folder import IfExists

NEARLY = 1  # epochs from the last one, at which a best epoch shows that training was not over


@takes_settings(load="miue.settings:LoadSettings", settings="miue.settings:TrainSettings")
@keeps_inputs
def train(
    bags: Bags,
    out: Out,
    load: LoadSettings,
    settings: TrainSettings,
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N",
            help=f"Train once with each of these random seeds, into --out/seed_N. {MANY}",
            callback=separate,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was interrupted.", rich_help_panel=RUNNING)
    ] = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on labeled bags.

    The folder --out becomes the model: a network with an uncertainty method. Training uses the train and
    validation parts of the bags. If there are none, a folder or table is split by patient and class; of a store, a
    fifth of the bags is held out for validation (--validation-fraction changes this share, 0 holds none out).
    splits.csv in --out lists the part of each bag.

    The numbers of epochs and of epochs without improvement until training stops follow from the numbers of bags
    and instances, unless options give them. They are shown before training starts, and the longest time it can
    take after the first epoch.

    Every epoch is checkpointed. With the same options, --resume continues to the same weights. A larger
    --max-epochs trains on, to the weights of a training of that length; a smaller one ends training. Another
    --distance is fitted without training again. With --executor or --jobs, several seeds and the members of an
    ensemble are trained in parallel.

    Example: miue train features_uni_v2 --labels labels.csv --out run
    """
    from miue.common.devices import torch_device
    from miue.model import Recipe
    from miue.training import Job, Run, question_negative_class, say_method, train_job, train_labels, train_seeds

    if resume and overwrite:
        raise one_of_two("--resume with --overwrite")
    torch_device(settings.device)
    run = Run(out, settings)
    run = replace(run, progress=run.is_first and not quiet)
    in_files = not (bags / "store.json").exists()
    share = settings.validation_share if in_files else None
    opened = open_bags(bags, load, progress=run.progress, validation_share=share, check_values=in_files)
    if run.is_first:
        say_left_out(opened)
    if run.is_first and opened.note:
        say(opened.note, err=as_json)
    recipe = Recipe.of(settings, opened.bags)
    if run.is_first:
        say_method(recipe, settings)
    if run.is_first and quiet:
        question_negative_class(opened.bags, recipe)
    if_exists: IfExists = "resume" if resume else "overwrite" if overwrite else "refuse"
    job = Job(recipe, opened.bags)
    if seeds and opened.bags.by_label():
        raise one_of_two("--seeds with several labels", fix="train once with each seed")
    if seeds:
        records = train_seeds(job, list(map(value_of, seeds)), run, if_exists=if_exists)  # type: ignore[arg-type]
        if run.is_first:
            _show_several("seed", {f"seed_{one.seed}": one for one in records}, out, as_json)
        return
    if opened.bags.by_label():
        _show_several("label", train_labels(job, run, if_exists=if_exists), out, as_json)
        return
    record = train_job(job, run, if_exists=if_exists).training
    if not run.is_first:
        return
    best = record.best_epoch
    of = "validation" if record.validation_bags else "training"
    if isinstance(best, int):
        trained = f"Trained for {plural(record.epochs, 'epoch')}; best epoch {best} ("
    else:
        epochs = plural(record.epochs, "epoch")
        trained = (
            f"Trained {len(best)} networks for {epochs} in all; best epochs {', '.join(map(str, best))} (mean "
        )
    sentence = f"{trained}{of} {record.criterion_name} {record.criterion:.4f}). Model: {out}"
    show_result({**record.model_dump(mode="json"), "out": str(out)}, sentence, as_json)
    for note in _notes(record):
        say(f"Note: {note}.", err=True)


def _show_several(what: str, records: Mapping[str, TrainingRecord], out: Path, as_json: bool) -> None:
    """Write how the training of each seed or label went."""
    every = {name: one.model_dump(mode="json") for name, one in records.items()}
    if as_json:
        say_json({"runs": [{what: name, **one} for name, one in every.items()], "out": str(out)})
        return
    rows = [(name, str(one.epochs), str(one.best_epoch), f"{one.criterion:.4f}") for name, one in records.items()]
    ResultTable((what, "epochs", "best epoch", next(iter(records.values())).criterion_name), rows).show()
    say(f"Models: {out}")
    for name, record in records.items():
        for note in _notes(record):
            say(f"Note: {name}: {note}.", err=True)


def _notes(record: TrainingRecord) -> Iterator[str]:
    """Yield what is to be said of a model beside how good it is."""
    best, most = record.best_epoch, record.settings["max_epochs"]
    if isinstance(best, int) and record.epochs == most and best >= most - NEARLY:
        yield f"epoch {best} of {most} is the best so far; raise max_epochs and --resume"
    yield from filter(None, (record.warning, *record.left_out))
