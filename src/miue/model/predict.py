"""Running a method over bags of any size: batches of whole bags, features encoded in chunks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from miue.bags import (
    READ_AHEAD,
    BagBatch,
    BagDataset,
    PackedBatches,
    Segments,
    image_statistics,
    ordered_batches,
    read_ahead,
)
from miue.common.devices import evaluated_on, put, torch_device
from miue.common.errors import DataError, MiueError, lacking, noting_when
from miue.common.returned import class_name
from miue.common.seeds import derive_seed
from miue.common.tasks import Shard
from miue.common.tensors import own_torch_state
from miue.common.text import bar
from miue.distributions import PredictiveDistribution
from miue.methods import BatchPrediction, Method, check_distribution, wrong_return
from miue.model.encoding import draws_of_each, encoded_blocks
from miue.networks import encoder_precision, say_if_slow
from miue.predictions import PredictionTable
from miue.scores import InstanceViews

BATCH_INSTANCES = 4096  # instances of whole bags that are scored together


@runtime_checkable
class Scorer(Protocol):
    """Further scores, made of the first network's features and logits, and of image statistics."""

    @property
    def reads_statistics(self) -> bool:
        """Whether image statistics are needed."""

    def of_instances(self, views: InstanceViews) -> dict[str, Float[Tensor, "N"]]:
        """Return named scores of instances, each from what is known of it alone."""

    def of_bags(self, scores: dict[str, Tensor], segments: Segments) -> dict[str, Float[Tensor, "B"]]:
        """Return named scores of bags from those of all their instances."""


OnBad = Callable[[str, MiueError], None]
"""Called with the id of a bag that cannot be read, and the reason."""


class NoReadableBag(DataError):
    """None of the bags to predict can be read."""

    def __init__(self, item: str, why: str = "") -> None:
        super().__init__(
            item=item,
            wanted="at least one bag that can be read",
            got=f"none ({why})" if why else "none",
            fix="'miue inspect BAGS --read' lists what is wrong with each",
        )


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
    on_bad: OnBad | None = None,
    shard: Shard | None = None,
) -> Iterator[tuple[PredictionTable, PredictionTable]]:
    """Yield the predictions of ``method`` for some bags after another, and for all their instances.

    Args:
        method: used in evaluation mode, whatever mode it is in; its mode is restored at the end.
        bags: labels are carried along where known, and not used.
        estimator: what instances are predicted from; None for the method's first.
        seed: of the draws, where the method draws.
        progress: show a bar with the time left.
        device: "auto" for an accelerator where there is one, "cpu", "gpu", or torch's name of one.
        precision: of the encoder; "bf16-mixed" is faster where the device has it.
        scores: makes further scores of bags and instances.
        on_bad: called with each bag that cannot be read, which is left out; if None, the first is an error.
        shard: the part of the batches to predict, each as if all were predicted; None for all.

    Raises:
        ConfigError: an instance estimator that the method or its network does not have, or a device that is not
            there.
        DataError: no bag, or none that can be read.
        NoReadableBag: none in the shard, or none at all.
    """
    if not len(bags):
        raise lacking("the bags", "at least one", "choose bags to predict")
    chosen = estimator or method.estimators[0]
    method.check_estimator(chosen)
    target = torch_device(device)
    if progress:
        say_if_slow(precision, target)
    some, reasons = False, []

    def leave_out(name: str, error: MiueError) -> None:
        assert on_bad is not None
        reasons.append(f"{name}: {error}")
        on_bad(name, error)

    skip = None if on_bad is None else leave_out
    with evaluated_on(target, method), encoder_precision(method, precision):
        for part in _run(method, bags, chosen, seed, target, progress, scores, skip, shard):
            some = True
            chosen_bags = bags.subset(part.positions)
            yield _bag_table(chosen_bags, part), _instance_table(chosen_bags, part)
    if not some:
        raise NoReadableBag("the bags to predict", next(iter(reasons), ""))


def batches_of(bags: BagDataset) -> PackedBatches:
    """Return the batches that are predicted one after another, of whole bags; a shard is some of them."""
    return ordered_batches(bags, BATCH_INSTANCES)


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
    shard: Shard | None,
) -> Iterator[_Part]:
    batches = batches_of(bags)
    read = partial(_read, bags, on_bad, scores is not None and scores.reads_statistics)
    groups = batches.groups if shard is None else shard.share(batches.groups)
    with bar("bags", shown=progress) as shown:
        task = shown.add_task("predicting", total=sum(map(len, groups)))
        ahead = 0 if batches.in_memory else READ_AHEAD
        for group, (kept, batch) in zip(groups, read_ahead(read, groups, ahead), strict=True):
            shown.advance(task, len(group))
            if batch is not None:
                names = [bags.ids[position] for position in kept]
                with noting_when(partial(_which_bags, names, batch)):
                    part = _Part(kept, *_predict_batch(method, names, batch.to(device), estimator, seed, scores))
                yield part


def _which_bags(names: Sequence[str], batch: BagBatch) -> str:
    others = f" to {names[-1]!r}" if len(names) > 1 else ""
    return f"in prediction, for {batch.segments.in_words()}, {names[0]!r}{others}"


def _predict_batch(
    method: Method, names: Sequence[str], batch: BagBatch, estimator: str, seed: int, scores: Scorer | None
) -> tuple[PredictiveDistribution, PredictiveDistribution, dict[str, Tensor], dict[str, Tensor]]:
    """Return predictions and scores of bags and instances; the state of the random numbers is left as it was."""
    device, first = batch.instances.device, method.members()[0]
    draws, scored = [], _FeatureScores(scores, first, batch)
    generators = [device] if device.type == "cuda" else []
    with own_torch_state(), torch.inference_mode(), torch.random.fork_rng(devices=generators):
        put(method, device, training=False)  # another thread that predicts with it may have put it back
        if any(member.draws_at_random for member in method.members()):
            draws = draws_of_each(method, names, batch, estimator, seed)
        else:
            for member in method.passes(derive_seed(seed)):
                follow = member is first and not scored.complete and not member.encodes_at_random
                blocks = encoded_blocks(member.encode, batch.instances)
                followed = scored.following(blocks) if follow else blocks
                draws.append(member.predict(followed, batch.segments, estimator).cpu())
        if not scored.complete:
            deque(scored.following(encoded_blocks(first.encode, batch.instances)), maxlen=0)
        predicted = draws[0] if len(draws) == 1 else _combine(method, draws)
        return *predicted, *scored.of_bags_and_instances(batch.segments)


class _FeatureScores:
    """Scores of one batch, made as its features go by."""

    def __init__(self, scorer: Scorer | None, method: Method, batch: BagBatch) -> None:
        self.scorer = scorer
        self.method, self.batch = method, batch
        self.complete = scorer is None
        self._parts: list[dict[str, Tensor]] = []

    def following(self, blocks: Iterator[Tensor]) -> Iterator[Tensor]:
        """Yield the blocks, and score each."""
        assert self.scorer is not None
        end = 0
        for features in blocks:
            start, end = end, end + len(features)
            statistics = statistics_of(self.batch, slice(start, end)) if self.scorer.reads_statistics else None
            self._parts.append(self.scorer.of_instances(views_of(self.method, features, statistics)))
            yield features
        self.complete = True

    def of_bags_and_instances(self, segments: Segments) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        if self.scorer is None:
            return {}, {}
        scores = {name: torch.cat([part[name] for part in self._parts]) for name in self._parts[0]}
        device = next(iter(scores.values())).device if scores else segments.sizes.device
        return self.scorer.of_bags(scores, segments.to(device)), scores


def views_of(
    method: Method, features: Float[Tensor, "N D"], statistics: Float[Tensor, "N S"] | None
) -> InstanceViews:
    """Return what scores read of some instances."""
    own = features[:, : method.network.encoder.own_features]
    return InstanceViews(own, statistics, lambda: method.instance_logits(features))


def statistics_of(batch: BagBatch, rows: slice | Tensor) -> Float[Tensor, "n S"] | None:
    """Return the image statistics of some instances: as stored, else computed; None of mere features."""
    if batch.statistics is not None:
        return batch.statistics[rows]
    instances = batch.instances
    return image_statistics(instances[rows]) if instances.dim() == 4 and instances.dtype == torch.uint8 else None


def _read(
    bags: BagDataset, on_bad: OnBad | None, statistics: bool, group: np.ndarray
) -> tuple[np.ndarray, BagBatch | None]:
    """Return the bags of a group packed, without those that cannot be read where ``on_bad`` takes them."""
    try:
        return group, bags.batch(group, statistics=statistics)
    except MiueError as error:
        if on_bad is None:
            raise
        if len(group) == 1:
            on_bad(bags.ids[group[0]], error)
            return group[:0], None
    parts = [_read(bags, on_bad, statistics, group[i : i + 1]) for i in range(len(group))]
    kept = np.concatenate([positions for positions, _ in parts])
    return kept, bags.batch(kept, statistics=statistics) if len(kept) else None


def _combine(method: Method, draws: list[BatchPrediction]) -> BatchPrediction:
    if not draws:
        raise wrong_return(f"method {class_name(method)!r}", "at least one method to run from passes()", "none")
    network = method.members()[0].network
    bags, instances = (
        check_distribution(method, network, partial(method.combine, each), len(each[0]), each[0].num_classes)
        for each in zip(*draws, strict=True)
    )
    return BatchPrediction(bags, instances)


def _arrays(scores: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: values.cpu().double().numpy() for name, values in scores.items()}


def _bag_table(bags: BagDataset, part: _Part) -> PredictionTable:
    return PredictionTable(
        distribution=part.bags,
        bag_ids=np.array(bags.ids, object),
        scores=_arrays(part.bag_scores),
        target=bags.target,
        **bags.columns.columns(),
    )


def _instance_table(bags: BagDataset, part: _Part) -> PredictionTable:
    return PredictionTable(
        distribution=part.instances,
        bag_ids=np.repeat(np.array(bags.ids, object), bags.sizes),
        instance=bags.positions - np.repeat(bags.starts, bags.sizes),
        scores=_arrays(part.instance_scores),
        target=bags.target,
        **bags.instance_columns.columns(),
    )
