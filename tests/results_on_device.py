"""What a network with a method computes on a device, to be compared with another device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from miue.bags import BagDataset
from miue.common.errors import ConfigError
from miue.model import predict as prediction
from miue.model.build import build_method
from miue.model.contract import DataContract
from miue.model.feature_scores import DistanceScores, fit_distances
from miue.model.recipe import Recipe
from miue.scores import DISTANCES
from miue.training.fit import act_after_training


def results(bags: BagDataset, encoder: str, network: str, method: str, device: str) -> Iterator[tuple[str, Any]]:
    """Yield the loss, the gradients, the predictions and the distances of a method that is on a device."""
    shape = bags.instances.shape[1:]
    config = Recipe(network=network, method=method, encoder=encoder, options={"encoder.width": 8}).model_config(
        shape
    )
    made = build_method(
        config, DataContract(instance_shape=shape, class_names=("0", "1", "2")[: bags.num_classes]), 1
    )
    batch = bags.batch(np.arange(len(bags))).to(device)
    made.to(device)
    for member in made.members():
        member.train()
        torch.manual_seed(0)
        loss = member.loss(batch, 3)
        loss.backward()
        yield "loss", float(loss.detach())
        for name, parameter in member.named_parameters():
            if parameter.grad is not None:
                yield f"gradient of {name}", parameter.grad.cpu().numpy()
        member.zero_grad()
        yield "log-probabilities", member.eval().bag_log_probabilities(batch).detach().cpu().numpy()
    act_after_training(made.to("cpu"), bags, 0, device)
    for estimator in made.estimators:
        try:
            made.check_estimator(estimator)
        except ConfigError:
            continue
        for tables in prediction.predict(made, bags, device=device, estimator=estimator):
            for table in tables:
                yield estimator, table.distribution.probabilities.numpy()
                yield estimator, table.distribution.mutual_information().numpy()
    named = [name for name in DISTANCES if name != "statistics"]
    fitted = fit_distances(made.to("cpu"), bags, named, seed=0, device=device)
    for tables in prediction.predict(made, bags, device=device, scores=DistanceScores(fitted)):
        for table in tables:
            yield from table.scores.items()
