"""Running a method over bags of any size: batches of whole bags, features encoded in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from miue.bags import BagBatch, BagDataset
from miue.methods import BatchPrediction, Method
from miue.predictions import Predictions, PredictionTable
from miue.training.batches import ordered_batches

BATCH_INSTANCES = 4096  # instances of whole bags that are scored together
CHUNK_IMAGES = 128  # images encoded at once: their activations stay in a CPU's cache
CHUNK_FEATURES = 8192  # feature vectors encoded at once


def predict(
    method: Method,
    bags: BagDataset,
    *,
    progress: bool = False,
    device: str = "auto",
    about: Mapping[str, Any] | None = None,
) -> Predictions:
    """Return the predictions of ``method`` for every bag and instance.

    Args:
        method: used in evaluation mode, whatever mode it is in; its mode is restored.
        bags: labels are carried along where known, and not used.
        progress: show a bar with the time left.
        device: "auto" for an accelerator where there is one, or a device name.
        about: what made the predictions.
    """
    target = torch.device(_accelerator() if device == "auto" else device)
    was_training, was_on = method.training, next(method.parameters()).device
    method.eval().to(target)
    try:
        parts = list(_run(method, bags, target, progress))
    finally:
        method.train(was_training).to(was_on)
    bag_parameters = torch.cat([part.bags for part in parts])
    instance_parameters = torch.cat([part.instances for part in parts])
    return Predictions(
        _bag_table(method, bags, bag_parameters),
        _instance_table(method, bags, instance_parameters),
        dict(about or {}),
    )


def encode_in_chunks(method: Method, instances: Shaped[Tensor, "N *shape"]) -> Float[Tensor, "N D"]:
    """Return the features of all instances, a cache-sized chunk at a time."""
    size = CHUNK_FEATURES if instances.dim() == 2 else CHUNK_IMAGES
    if instances.device.type != "cpu":
        size *= 64
    return torch.cat([method.encode(chunk) for chunk in instances.split(size)])


def _run(method: Method, bags: BagDataset, device: torch.device, progress: bool) -> Iterator[BatchPrediction]:
    batches: Iterable[BagBatch] = ordered_batches(bags, BATCH_INSTANCES)
    with _bar(progress) as bar, torch.inference_mode():
        task = bar.add_task("predicting", total=len(bags))
        for batch in batches:
            moved = batch.to(device)
            output = method.predict(encode_in_chunks(method, moved.instances), moved.segments)
            attention = None if output.attention is None else output.attention.cpu()
            yield BatchPrediction(output.bags.cpu(), output.instances.cpu(), attention)
            bar.advance(task, moved.segments.num_bags)


def _bar(shown: bool) -> Progress:
    return Progress(
        TextColumn("[bold]{task.description}[/]"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("bags, time left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not shown,
    )


def _accelerator() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _bag_table(method: Method, bags: BagDataset, parameters: Tensor) -> PredictionTable:
    return PredictionTable(
        distribution=method.distribution(parameters),
        bag_ids=np.array(bags.ids, object),
        labels=bags.labels,
        is_ood=bags.is_ood,
        ood_sets=np.array(bags.ood_sets, object),
    )


def _instance_table(method: Method, bags: BagDataset, parameters: Tensor) -> PredictionTable:
    positions = bags.positions
    is_ood = bags.instance_is_ood[positions]
    sets = np.repeat(np.array(bags.ood_sets, object), bags.sizes)
    return PredictionTable(
        distribution=method.distribution(parameters),
        bag_ids=np.repeat(np.array(bags.ids, object), bags.sizes),
        labels=bags.instance_labels[positions],
        is_ood=is_ood,
        ood_sets=np.where(is_ood, sets, ""),
        instance=positions - np.repeat(bags.starts, bags.sizes),
        coords=None if bags.coords is None else bags.coords[positions],
    )
