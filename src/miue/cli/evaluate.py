"""``miue evaluate``: metrics of saved predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from miue.cli.given import read_given
from miue.cli.options import AsJson
from miue.common.terminal import say_json, show_table


def evaluate(
    predictions: Annotated[Path | None, typer.Argument(help="Folder of predictions.")] = None,
    bags: Annotated[Path | None, typer.Option(help="Bag table of any tool, instead of a folder.")] = None,
    instances: Annotated[Path | None, typer.Option(help="Instance table that goes with --bags.")] = None,
    allow_training_bags: Annotated[
        bool,
        typer.Option(
            "--allow-training-bags",
            help="Evaluate bags that the model was trained on as well, which says nothing of new ones.",
        ),
    ] = False,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="Also write the JSON to this file.")] = None,
) -> None:
    """Evaluate predictions: accuracy, Conf., OOD, UE, AUPR, FPR95, ECE, Brier, NLL, AURC, at both levels.

    Tables of other tools need bag_id and alpha_0, alpha_1, … or p_0, p_1, …; label, is_ood, ood_set,
    instance and measure columns are used where they are there. OOD needs is_ood: true, false, or empty where
    unknown. Labels of a folder come with 'miue predict --labels TABLE'.

    Bags that the model was trained on, and others of their patients, are refused without --allow-training-bags.
    """
    from miue.common.files import write_json
    from miue.evaluation import evaluate as evaluate_predictions
    from miue.evaluation.evaluation import decision_table, evaluation_table

    given = read_given("miue evaluate", predictions, bags, instances)
    evaluation = evaluate_predictions(given, allow_training_bags=allow_training_bags)
    if out is not None:
        write_json(out, evaluation.to_json())
    if as_json:
        say_json(evaluation.to_json())
        return
    show_table(evaluation_table(evaluation).as_rich("Evaluation"))
    if evaluation.decisions is not None:
        show_table(decision_table(evaluation.decisions).as_rich())
