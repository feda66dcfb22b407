"""Bags whose instances have scores, of patients with several bags, for the promises on flagged instances."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from made_predictions import made_predictions, on_a_slide, unlabeled

from miue.bags import Labels, OodFlags
from miue.calibration import InstanceGoal, calibrate, decide
from miue.distributions import Categorical
from miue.predictions import Predictions, PredictionTable


def scored_bags(
    scores: list[list[float]],
    labels: list[int],
    *,
    positives: list[list[int] | None] | None = None,
    patients: list[str] | None = None,
) -> Predictions:
    """Bags of instances with these probabilities of class 1; ``positives`` labels instances, None of a bag."""
    sizes = [len(bag) for bag in scores]
    ids = np.array([f"bag {row}" for row in range(len(scores))], object)
    p = np.concatenate([np.array(bag, float) for bag in scores])
    of_instances = Labels.unknown(len(p))
    if positives is not None:
        known = np.repeat([one is not None for one in positives], sizes)
        values = np.concatenate(
            [one if one is not None else [0] * n for one, n in zip(positives, sizes, strict=True)]
        )
        of_instances = Labels(values.astype(np.int64), known)
    of_bag = np.array(labels, float)

    def table(p: np.ndarray, ids: np.ndarray, of: Labels, instance: np.ndarray | None) -> PredictionTable:
        count = len(p)
        return PredictionTable(
            distribution=Categorical(torch.from_numpy(np.stack([1 - p, p], 1))),
            bag_ids=ids,
            labels=of,
            is_ood=OodFlags.unknown(count),
            ood_sets=np.full(count, "", object),
            instance=instance,
            patients=None if patients is None or instance is not None else np.array(patients, object),
        )

    within = np.concatenate([np.arange(n) for n in sizes])
    return Predictions(
        table(of_bag, ids, Labels(np.array(labels, np.int64), np.ones(len(labels), bool)), None),
        table(p, np.repeat(ids, sizes), of_instances, within),
    )


def flagged_slides(bags: int = 30, per_bag: int = 8) -> Predictions:
    """Decided predictions of slides, of which some patches are flagged."""
    given = on_a_slide(made_predictions(bags, per_bag))
    inside = np.flatnonzero(given.bags.judged & (given.bags.labels.values == 0))
    bare = replace(given, bags=given.bags.subset(inside), instances=unlabeled(given).instances)
    goal = InstanceGoal("no-false-flag", 0.4)
    made = calibrate(bare, instances=goal, scaling=False, deferral=None, prediction_sets=None, false_alarms=None)
    return decide(given, made)


@dataclass(frozen=True)
class FlagWorld:
    """Patients with bags of 1 to 12 instances; a patient shifts the scores of all of its bags.

    Attributes:
        rounded: digits that scores are rounded to, None for no ties.
        bags_of_patient: at most.
    """

    rounded: int | None = None
    bags_of_patient: int = 1

    def sample(self, random: np.random.Generator, patients: int, label: int) -> Predictions:
        """Return bags of one class; those of a patient are alike, and a patient with more bags scores higher."""
        scores, positives, names = [], [], []
        for patient in range(patients):
            bags = int(random.integers(1, self.bags_of_patient + 1))
            shift = random.normal() + 0.3 * bags
            for _ in range(bags):
                size = int(random.integers(1, 13))
                positive = (random.random(size) < 0.4).astype(int) * label
                positive[0] |= label
                logit = shift + random.normal(size=size) + 2 * positive - 3
                p = 1 / (1 + np.exp(-logit))
                scores.append((p if self.rounded is None else p.round(self.rounded)).tolist())
                positives.append(positive.tolist())
                names.append(f"patient {patient}")
        several = names if self.bags_of_patient > 1 else None
        return scored_bags(scores, [label] * len(scores), positives=positives, patients=several)


def mean_loss(
    predictions: Predictions, flagged: np.ndarray, guarantee: str, *, allowed: int = 0, cap: int = 10
) -> float:
    """Mean over patients of the mean loss of their bags; the instances of a bag are in adjacent rows."""
    table, patients = predictions.instances, predictions.bags.patients
    assert table is not None
    starts = np.flatnonzero(np.append(True, table.bag_ids[1:] != table.bag_ids[:-1]))
    positive = table.labels.values == 1
    flags, found, there = (
        np.add.reduceat(one.astype(int), starts) for one in (flagged, flagged & positive, positive)
    )
    loss = {
        "no-false-flag": flags > allowed,
        "false-positives": np.minimum(flags, cap),
        "detection": flags == 0,
        "recall": 1 - found / np.maximum(there, 1),
    }[guarantee].astype(float)
    names = predictions.bags.bag_ids if patients is None else patients
    unit = np.unique(names.astype(str), return_inverse=True)[1]
    return float((np.bincount(unit, loss) / np.bincount(unit)).mean())
