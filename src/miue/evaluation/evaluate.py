"""Evaluate predictions as the paper does, and as the field does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from miue.bags.cells import known_text
from miue.calibration import Calibration, applied_calibration
from miue.common.errors import ConfigError, first_few
from miue.common.text import bar
from miue.common.values import checked
from miue.evaluation.class_metrics import OwnMetric, check_own_metrics, own_metrics
from miue.evaluation.decisions import GroupEvaluation, evaluate_decisions, share_interval
from miue.evaluation.evaluation import NO_GROUP, Evaluation
from miue.evaluation.instances import evaluate_flags, evaluate_froc
from miue.evaluation.level import LevelEvaluation, evaluate_level
from miue.evaluation.metrics import NO_INSTANCE_LABEL, NO_LABEL, SEVERAL_CLASSES, Metric
from miue.predictions import Predictions, PredictionTable


@checked(leave=("metrics",))
def evaluate(
    predictions: Predictions,
    *,
    allow_training_bags: bool = False,
    groups: Mapping[str, Any] | None = None,
    metrics: Mapping[str, OwnMetric] | None = None,
    progress: bool = False,
) -> Evaluation:
    """Return the metrics of ``predictions`` at both levels.

    Conf. is the AUROC of the confidence for "prediction correct" over labeled items that are not known to be
    out of distribution; OOD is the AUROC for "known to be in distribution" against each out-of-distribution set;
    UE is the mean of these. An item of which neither is known counts for no OOD.
    A Dirichlet's confidence is max alpha for Conf. and the total evidence α0 for OOD; any other distribution's
    is its max probability. Instances of all bags are pooled.

    Reference: Liu & Ji 2024, Section 6.1, "Evaluation".

    Args:
        predictions: of bags and, perhaps, of instances.
        allow_training_bags: evaluate although the model was trained on some of these bags, which says nothing of
            new ones.
        groups: group of each bag by its name, such as its hospital, a text or number: bags are also evaluated
            by group. Those that it does not name, or whose group is "", None or NaN, are the group "no group".
        metrics: functions by their names, computed beside the metrics of miue, at every level: each is given the
            table of the items that have a label and are not known to be out of distribution, and returns a number,
            NaN where the metric is undefined.
        progress: show a bar with the time left.

    Raises:
        ConfigError: no predictions, groups that name none of the bags, or metrics that are no functions, have the
            name of one of miue, or return something else than a number.
        DataError: the model was trained on some of these bags, or on others of their patients.
    """
    own = metrics or {}
    check_own_metrics(own)
    if not allow_training_bags:
        fix = "evaluate bags of other patients, or allow training bags"
        predictions.bags.refuse_training_bags("evaluate", fix)
    tables, decisions = predictions.levels(), predictions.bags.decisions
    rules, names = applied_calibration(predictions.provenance), predictions.provenance.classes
    measures = sum(len(table.uncertainty_names) for table in tables.values() if table)
    with bar("uncertainties", shown=progress, kept=False) as shown:
        task = shown.add_task("evaluate", total=measures)

        def level(table: PredictionTable, unlabeled: str) -> LevelEvaluation:
            found = evaluate_level(table, unlabeled=unlabeled, classes=names, step=lambda: shown.advance(task))
            return found.with_metrics(own_metrics(own, table, unlabeled))

        of_bags = level(predictions.bags, NO_LABEL)
        of_instances = level(instances, NO_INSTANCE_LABEL) if (instances := tables.get("instances")) else None
        no_patient = SEVERAL_CLASSES if of_bags.labeled else NO_LABEL
        return Evaluation(
            of_bags,
            of_instances,
            evaluate_decisions(predictions.bags, decisions, rules) if decisions else None,
            level(patients, no_patient) if (patients := tables.get("patients")) else None,
            predictions.provenance,
            evaluate_froc(predictions) if of_instances and of_instances.labeled else None,
            evaluate_flags(predictions),
            None if groups is None else evaluate_groups(predictions.bags, groups, rules, names, own),
        )


def evaluate_groups(
    table: PredictionTable,
    groups: Mapping[str, Any],
    rules: Calibration | None,
    classes: Sequence[str] = (),
    metrics: Mapping[str, OwnMetric] | None = None,
) -> dict[str, GroupEvaluation]:
    """Return the evaluation of each group, in the order of their names, bags without a group last.

    Args:
        table: predictions of bags.
        groups: of each bag by its name, as ``evaluate`` takes them.
        rules: of the decisions of the bags, where known.
        classes: names in order, for the reasons of undefined metrics; empty where they are not known.
        metrics: of a user, as ``evaluate`` takes them.

    Raises:
        ConfigError: groups that name none of the bags.
    """
    stated = ["" if groups.get(name) is None else known_text(str(groups[name])) for name in table.bag_ids]
    of_bags = np.array([group or NO_GROUP for group in stated], object)
    names = sorted(set(of_bags) - {NO_GROUP})
    if not names:
        wanted, got = (
            f"the group of each bag, such as {table.bag_ids[0]!r}",
            f"that of {first_few(groups) or 'none'}",
        )
        raise ConfigError(item="the groups", wanted=wanted, got=got, fix="check the names of the bags")
    found = {}
    for name in (*names, *({NO_GROUP} & set(of_bags))):
        bags = table.subset(np.flatnonzero(of_bags == name))
        level = evaluate_level(bags, classes=classes).with_metrics(own_metrics(metrics or {}, bags))
        labels = bags.labels.values
        accuracy = Metric.undefined("labels are numbers") if level.is_numeric else level.metrics["accuracy"]
        low, high = _share_of_correct(bags, bags.judged, accuracy)
        of_classes = {
            number: _share_of_correct(bags, bags.judged & (labels == int(number)), recall)
            for number, recall in level.recall_by_class.items()
        }
        found[name] = GroupEvaluation(
            level,
            low,
            high,
            {number: ends[0] for number, ends in of_classes.items()},
            {number: ends[1] for number, ends in of_classes.items()},
            evaluate_decisions(bags, bags.decisions, rules) if bags.decisions else None,
        )
    return found


def _share_of_correct(table: PredictionTable, bags: Bool[np.ndarray, "n"], share: Metric) -> tuple[Metric, Metric]:
    """Return both ends of the exact 95 % interval of the share of these bags that are predicted right.

    Args:
        table: predictions of bags.
        bags: which of them.
        share: the value, or why there is none.
    """
    if share.value is None:
        return share, share
    return share_interval(table, (table.predicted == table.labels.values)[bags], bags)
