"""From a trained model and labeled bags that were held out to a calibration."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from miue.bags import BagDataset, check_dataset
from miue.calibration import (
    Calibration,
    CalibrationBags,
    Goals,
    calibrate,
    check_bags,
    check_names,
    refuse_positive_instances,
)
from miue.common.values import checked
from miue.model.model import Model
from miue.predictions import Predictions


@checked()
def calibrate_model(
    model: Model,
    bags: BagDataset,
    goals: Goals = Goals(),  # noqa: B008  (frozen)
    *,
    like: Predictions | None = None,
    estimator: str | None = None,
    bags_of_patient: str = "one",
    seed: int = 0,
    made_from: CalibrationBags = CalibrationBags(),  # noqa: B008
    progress: bool = False,
    device: str = "auto",
) -> Calibration:
    """Return a calibration, after a check, before all bags are predicted, that these bags are enough for it.

    Args:
        model: decisions of an older calibration are not applied.
        bags: labeled, in distribution, and not trained on.
        goals: what is asked.
        like: predictions of new bags of another mix, as for ``miue.calibrate``; None for bags like ``bags``.
        estimator: what instances are predicted from, as for ``Model.predict``.
        bags_of_patient: "one", drawn at random, counts where patients are known; or "all".
        seed: of these draws.
        made_from: which bags these are.
        progress: show a bar with the time left.
        device: "auto", "cpu", "gpu".

    Raises:
        ConfigError: nothing to calibrate, or an uncertainty that the model does not have.
        DataError: bags that cannot be used, such as those of a class that the model does not know, or too few for
            what is asked: every part that lacks bags is named.
        ModelError: instances of another shape than the model was trained on; ``like`` of other weights.
    """
    check_dataset(bags)
    model = replace(model, calibration=None)
    names = model.contract.class_names
    bags, goals = model.contract.labeled(bags), goals.for_target(model.contract.target)
    if goals.instances is not None:
        instances = goals.instances.with_negative_class_of(model.provenance(), names)
        goals = replace(goals, instances=instances)
    checked = goals if like is None else goals.keep_weighted()[0]
    of_bags = (bags.ids, bags.labels, bags.is_ood, bags.patients)
    check_bags(*of_bags, checked, class_names=names, bags_of_patient=bags_of_patient, seed=seed)
    if checked.instances is not None and checked.instances.of_negatives:
        _check_instance_labels(bags, checked.instances.find_negative_class(names))
    first = model.predict(bags.subset([0]), estimator=estimator, device=device)
    check_names(first, checked)
    stream = model.stream(bags, estimator=estimator, progress=progress, device=device)
    in_parts = TemporaryDirectory(prefix="miue-") if checked.instances is not None else nullcontext()
    with in_parts as folder:  # instances are written and read part by part
        return calibrate(
            stream.collect_bags() if folder is None else stream.save(Path(folder) / "predictions"),
            like=like,
            made_from=made_from,
            settings={"bags_of_patient": bags_of_patient, "seed": seed},
            **vars(goals),
        )


def _check_instance_labels(bags: BagDataset, negative_class: int) -> None:
    """Raise where labels of instances contradict that bags of the negative class have negative instances only."""
    is_negative = bags.labels.known & (bags.labels.values == negative_class) & ~bags.is_ood.out_of_distribution
    negative = bags.subset(np.flatnonzero(is_negative))
    labels = negative.own_instance_labels
    refuse_positive_instances(
        negative.ids, negative.bag_of_instance, labels.known & (labels.values != negative_class)
    )
