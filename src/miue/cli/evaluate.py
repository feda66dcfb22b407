"""``miue evaluate``: metrics of saved predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.flags import takes_settings
from miue.cli.options import AsJson, GivenPredictions, Overwrite, Quiet
from miue.cli.outputs import keeps_inputs, locks_out
from miue.cli.predictions import groups_of, labeled_by, read_given
from miue.common.errors import ConfigError
from miue.common.outputs import refuse_existing
from miue.common.text import LABELS, OUTPUT, say_json

if TYPE_CHECKING:
    from miue.settings import GroupSettings, TableSettings


@takes_settings(table="miue.settings:TableSettings", groups="miue.settings:GroupSettings")
@keeps_inputs
@locks_out
def evaluate(
    predictions: GivenPredictions,
    table: TableSettings,
    groups: GroupSettings,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Table of labels, or verdicts of 'miue view'.", rich_help_panel=LABELS),
    ] = None,
    allow_training_bags: Annotated[
        bool,
        typer.Option(
            "--allow-training-bags",
            help="Also evaluate bags that the model was trained on, which says nothing about new ones.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the JSON to this file.", rich_help_panel=OUTPUT)
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compute accuracy, calibration and OOD metrics.

    Prints accuracy, error detection (Conf.), OOD detection, UE, AUPR, FPR95, AUROC, sensitivity and specificity
    (with more than two classes the recall of each), ECE, Brier score, NLL and AURC of bags and instances; the
    JSON has the confusion matrix, too. With instance labels, also prints FROC: the sensitivity at 1/4 to 8 false
    positives per negative bag. If the predictions have no labels, add them with --labels FILE. Of several labels,
    prints a row for each, and their means.

    A table of another tool needs a column of ids (bag_id, slide_id, slide, image_id, id) and either probabilities
    (p_0, p_1, …; prob_0, …; p_tumor, … by class; one column p, probability or Y_prob for two classes) or alpha_0,
    alpha_1, …; label (or Y, y_true, target), is_ood, ood_set and measures are used if present. OOD metrics need
    is_ood: true, false, or empty if unknown.

    With --groups and --group-column, also prints these metrics for the bags of each hospital, say, with the exact
    interval of the accuracy and what the decisions came to: what holds on average over bags can fail in one group.

    Bags that the model was trained on, and other bags of their patients, are refused without
    --allow-training-bags.

    Example: miue evaluate theirs.csv
    """
    from miue.common.files import write_json
    from miue.common.label_folders import label_folders
    from miue.evaluation import Evaluation, LabelEvaluations
    from miue.evaluation import evaluate as evaluate_predictions

    if out is not None:
        refuse_existing(out, overwrite=overwrite)
    groups.check()

    def evaluated(path: Path) -> Evaluation:
        given = labeled_by(read_given(path, table.instances, table.classes), labels, {})
        by_bag = groups_of([given.bags], groups)
        return evaluate_predictions(
            given, allow_training_bags=allow_training_bags, groups=by_bag, progress=not quiet
        )

    folders = label_folders(predictions)
    if folders and labels is not None:
        fix = "predict the bags again with these labels"
        raise ConfigError(item="labels", wanted="predictions of one label", got=f"of {len(folders)}", fix=fix)
    several = {label: evaluated(folder) for label, folder in folders.items()}
    evaluation = LabelEvaluations(several) if several else evaluated(predictions)
    if out is not None:
        write_json(out, evaluation.to_json())
    if as_json:
        say_json(evaluation.to_json())
        return
    of_levels, *others = evaluation.tables()
    of_levels.show("Evaluation")
    for other in others:
        other.show()
