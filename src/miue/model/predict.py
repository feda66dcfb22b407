"""Running a method over bags of any size: batches of whole bags, features encoded in chunks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from miue.bags.batches import READ_AHEAD, ordered_batches, read_ahead
from miue.bags.dataset import BagDataset
from miue.bags.segments import BagBatch, Segments
from miue.common.devices import torch_device
from miue.common.errors import MiueError, lacking
from miue.common.progress import bar
from miue.common.seeds import derive_seed
from miue.distributions import Draws, PredictiveDistribution
from miue.methods import BatchPrediction, Method
from miue.networks.precision import encoder_precision
from miue.predictions.folder import Predictions
from miue.predictions.provenance import UNKNOWN, Provenance
from miue.predictions.table import PredictionTable

BATCH_INSTANCES = 4096  # instances of whole bags that are scored together
CHUNK_IMAGES = 128  # images encoded at once: their activations stay in a CPU's cache
CHUNK_FEATURES = 8192  # feature vectors encoded at once
BLOCK_INSTANCES = 65_536  # instances whose features are held at once; of a larger bag only what is pooled is kept


@runtime_checkable
class Scorer(Protocol):
    """Further scores, made of the first network's features."""

    def of_instances(self, features: Float[Tensor, "N D"]) -> dict[str, Float[Tensor, "N"]]:
        """Return named scores of instances, each from its own features."""

    def of_bags(self, scores: dict[str, Tensor], segments: Segments) -> dict[str, Float[Tensor, "B"]]:
        """Return named scores of bags from those of all their instances."""


OnBad = Callable[[str, MiueError], None]
"""Called with the id of a bag that cannot be read, and the reason."""


def predict(
    method: Method,
    bags: BagDataset,
    *,
    estimator: str | None = None,
    seed: int = 0,
    progress: bool = False,
    device: str = "auto",
    precision: str = "float32",
    scores: Scorer | None = None,
    provenance: Provenance = UNKNOWN,
    on_bad: OnBad | None = None,
) -> Predictions:
    """Return the predictions of ``method`` for every bag and instance.

    Args:
        method: used in evaluation mode, whatever mode it is in; its mode is restored.
        bags: labels are carried along where known, and not used.
        estimator: what instances are predicted from; None for the method's first.
        seed: of the draws, where the method draws.
        progress: show a bar with the time left.
        device: "auto" for an accelerator where there is one, "cpu", "gpu", or torch's name of one.
        precision: of the encoder; "bf16-mixed" is faster where the device has it.
        scores: makes further scores of bags and instances.
        provenance: what makes the predictions.
        on_bad: called with each bag that cannot be read, which is left out; if None, the first is an error.

    Raises:
        ConfigError: an instance estimator that the method or its network does not have, or a device that is not
            there.
        DataError: no bag, or none that can be read.
    """
    if not len(bags):
        raise lacking("the bags", "at least one", "choose bags to predict")
    chosen = estimator or method.estimators[0]
    method.check_estimator(chosen)
    target = torch_device(device)
    was_training, was_on = method.training, next(method.parameters()).device
    method.eval().to(target)
    try:
        with encoder_precision(method, precision):
            parts = list(_run(method, bags, chosen, seed, target, progress, scores, on_bad))
    finally:
        method.train(was_training).to(was_on)
    if on_bad is not None:
        bags = bags.subset(np.concatenate([part.positions for part in parts]) if parts else [])
    if not parts:
        raise lacking("the bags", "at least one that can be read", "see the list above")
    return Predictions(
        _bag_table(bags, _concatenated([part.bags for part in parts]), _joined([p.bag_scores for p in parts])),
        _instance_table(
            bags, _concatenated([part.instances for part in parts]), _joined([p.instance_scores for p in parts])
        ),
        provenance.model_copy(update={"estimator": chosen}),
    )


def encode_in_chunks(method: Method, instances: Shaped[Tensor, "N *shape"]) -> Float[Tensor, "N D"]:
    """Return the features of all instances, a cache-sized chunk at a time."""
    size = CHUNK_FEATURES if instances.dim() == 2 else CHUNK_IMAGES
    if instances.device.type != "cpu":
        size *= 64
    return torch.cat([method.encode(chunk) for chunk in instances.split(size)])


class _Part(NamedTuple):
    """Predictions and further scores of one batch, and which bags it holds."""

    positions: np.ndarray
    bags: PredictiveDistribution
    instances: PredictiveDistribution
    bag_scores: dict[str, Tensor]
    instance_scores: dict[str, Tensor]


def _run(
    method: Method,
    bags: BagDataset,
    estimator: str,
    seed: int,
    device: torch.device,
    progress: bool,
    scores: Scorer | None,
    on_bad: OnBad | None,
) -> Iterator[_Part]:
    batches = ordered_batches(bags, BATCH_INSTANCES)
    read = partial(_read, bags, on_bad)
    devices = [device] if device.type == "cuda" else []
    first = method.members()[0]
    with bar("bags", shown=progress) as shown, torch.inference_mode(), torch.random.fork_rng(devices=devices):
        task = shown.add_task("predicting", total=len(bags))
        ahead = 0 if batches.in_memory else READ_AHEAD
        for number, (kept, batch) in enumerate(read_ahead(read, batches.groups, ahead)):
            shown.advance(task, len(batches.groups[number]))
            if batch is None:
                continue
            moved = batch.to(device)
            draws, scored = [], _FeatureScores(scores)
            for member in method.passes(derive_seed(seed, number)):
                follow = member is first and not scored.complete and not member.encodes_at_random
                blocks = _blocks(member, moved.instances)
                blocks = scored.following(blocks) if follow else blocks
                output = member.predict(blocks, moved.segments, estimator)
                draws.append(BatchPrediction(output.bags.cpu(), output.instances.cpu()))
            if not scored.complete:
                deque(scored.following(_blocks(first, moved.instances)), maxlen=0)
            predicted = draws[0] if len(draws) == 1 else _mean(draws)
            yield _Part(kept, *predicted, *scored.of_bags_and_instances(moved.segments))


def _blocks(method: Method, instances: Shaped[Tensor, "N *shape"]) -> Iterator[Float[Tensor, "n D"]]:
    """Yield the features of all instances, a block at a time."""
    for block in instances.split(BLOCK_INSTANCES):
        yield encode_in_chunks(method, block)


class _FeatureScores:
    """Scores of one batch, made as its features go by."""

    def __init__(self, scorer: Scorer | None) -> None:
        self.scorer = scorer
        self.complete = scorer is None
        self._parts: list[dict[str, Tensor]] = []

    def following(self, blocks: Iterator[Tensor]) -> Iterator[Tensor]:
        """Yield the blocks, and score each."""
        assert self.scorer is not None
        for features in blocks:
            self._parts.append(self.scorer.of_instances(features))
            yield features
        self.complete = True

    def of_bags_and_instances(self, segments: Segments) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        if self.scorer is None:
            return {}, {}
        scores = {name: torch.cat([part[name] for part in self._parts]) for name in self._parts[0]}
        return self.scorer.of_bags(scores, segments), scores


def _read(bags: BagDataset, on_bad: OnBad | None, group: np.ndarray) -> tuple[np.ndarray, BagBatch | None]:
    """Return the bags of a group packed, without those that cannot be read where ``on_bad`` takes them."""
    try:
        return group, bags.batch(group)
    except MiueError as error:
        if on_bad is None:
            raise
        if len(group) == 1:
            on_bad(bags.ids[group[0]], error)
            return group[:0], None
    parts = [_read(bags, on_bad, group[i : i + 1]) for i in range(len(group))]
    kept = np.concatenate([positions for positions, _ in parts])
    return kept, bags.batch(kept) if len(kept) else None


def _mean(draws: list[BatchPrediction]) -> BatchPrediction:
    return BatchPrediction(Draws.of([draw.bags for draw in draws]), Draws.of([draw.instances for draw in draws]))


def _joined(parts: list[dict[str, Tensor]]) -> dict[str, np.ndarray]:
    return {name: torch.cat([part[name].cpu() for part in parts]).double().numpy() for name in parts[0]}


def _concatenated(parts: list[PredictiveDistribution]) -> PredictiveDistribution:
    return type(parts[0]).concatenate(parts)


def _bag_table(
    bags: BagDataset, distribution: PredictiveDistribution, scores: dict[str, np.ndarray]
) -> PredictionTable:
    return PredictionTable(
        distribution=distribution, bag_ids=np.array(bags.ids, object), scores=scores, **bags.columns.columns()
    )


def _instance_table(
    bags: BagDataset, distribution: PredictiveDistribution, scores: dict[str, np.ndarray]
) -> PredictionTable:
    return PredictionTable(
        distribution=distribution,
        bag_ids=np.repeat(np.array(bags.ids, object), bags.sizes),
        instance=bags.positions - np.repeat(bags.starts, bags.sizes),
        scores=scores,
        **bags.instance_columns.columns(),
    )
