"""Members trained together: their parameters stacked, one vectorised program for all of them.

Each member has its own initial weights, batch order, optimiser, schedule and early stop, and ends where
it would have ended by itself, to float tolerance. Batches of different members hold bags of different
sizes; each is filled up to the largest with one more bag, whose loss is left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.dropout import _DropoutNd

from miue.bags.batches import PackedBatches, ordered_batches, shuffled_batches
from miue.bags.dataset import BagBatch, BagDataset
from miue.bags.segments import MATMUL_FROM, Segments
from miue.common.devices import torch_device
from miue.common.errors import ConfigError
from miue.common.files import make_folder
from miue.methods import Method
from miue.model.config import TrainingConfig
from miue.training.callbacks import BestWeights, EpochRecord, epoch_bar
from miue.training.checkpoint import read_nested, write_nested
from miue.training.fit import Run, TrainingSummary, check_labels
from miue.training.module import VALIDATION_INSTANCES, EpochSums, optimizer_and_schedule

PARAMETERS_AT_MOST = 100_000  # of a member, up to which a CPU is faster with members together


def can_train_together(members: Sequence[Method], bags: BagDataset) -> bool:
    """Return whether members can be trained together and end where they would have ended alone.

    A member that draws (dropout, Bayes-MIL) would draw other numbers, statistics of a batch would see the
    filling, bags above some hundred instances are pooled by a product per bag, and a network that pads bags
    reads their sizes.
    """
    layers = list(members[0].modules())
    draws = members[0].learns_at_random or any(isinstance(la, _DropoutNd) and la.p > 0 for la in layers)
    small = int(bags.sizes.max()) < MATMUL_FROM and not members[0].network.reads_sizes
    return len(members) > 1 and small and not draws and not list(members[0].buffers())


def is_faster_together(members: Sequence[Method], bags: BagDataset, device: torch.device) -> bool:
    """Return whether members together are expected to beat one after another, from measurements.

    On a CPU, small networks on feature vectors leave the time to the overhead of each operation, which
    members together share; large ones and images keep it busy by themselves (`make bench`).
    """
    small = len(bags.instance_shape) == 1 and members[0].num_parameters <= PARAMETERS_AT_MOST
    return device.type != "cpu" or small


def fit_together(
    members: Sequence[Method],
    train: BagDataset,
    validation: BagDataset,
    configs: Sequence[TrainingConfig],
    runs: Sequence[Run],
    folder: Path | None = None,
) -> list[TrainingSummary]:
    """Train ``members`` in place, in one program, and leave each with the weights of its best epoch.

    Args:
        members: methods of the same kind and shape, differing in weights.
        train: labelled bags of at least two classes.
        validation: labelled bags.
        configs: how each member learns; they differ in the seed alone.
        runs: where each member's best weights and log go, and how it runs.
        folder: for the state to resume from; None writes none.

    Raises:
        ConfigError: members that cannot be trained together, or settings that differ.
        DataError: a bag without a label, only one class, or a loss that is not finite.
    """
    check_labels(train, "training", classes_wanted=2)
    check_labels(validation, "validation", classes_wanted=1)
    _check(members, train, configs)
    started = time.perf_counter()
    device = torch_device(runs[0].accelerator)
    started_with = zip(members, configs, runs, strict=True)
    states = [_Member.start(method, config, run, device) for method, config, run in started_with]
    last = None if folder is None else folder / "last.safetensors"
    if runs[0].resume and last is not None and last.exists():
        _resume(states, last)
    config = configs[0]
    with epoch_bar(shown=runs[0].progress) as bar, _recording(states):
        first = max(state.epochs for state in states)
        task = bar.add_task("training", total=config.max_epochs, completed=first, note="starting")
        for epoch in range(first, config.max_epochs):
            active = [state for state in states if not state.best.stopped]
            if not active:
                break
            _train_epoch(active, train, epoch, device)
            _validate(active, validation, device)
            for state in active:
                state.end_epoch(epoch + 1)
            if last is not None:
                write_nested(last, {state.config.seed: state.state_dict() for state in states})
            bar.update(task, completed=epoch + 1, note=f"{len(active)} of {len(states)} members learn on")
    for state in states:
        state.best.restore(state.method)
        state.method.cpu().eval()
    seconds = (time.perf_counter() - started) / len(states)
    return [TrainingSummary(s.epochs, s.best.best_epoch, s.best.best_criterion, seconds) for s in states]


@contextmanager
def _recording(states: Sequence[_Member]) -> Iterator[None]:
    """Open the records of all members, and end them however the training ends."""
    whole = False
    try:
        for state in states:
            for record in state.records:
                record.keep_until(state.epochs)
        yield
        whole = True
    finally:
        for state in states:
            for record in state.records:
                record.close(whole=whole)


@dataclass
class _Member:
    """A member under training with all that is its own."""

    method: Method
    config: TrainingConfig
    optimizer: Any
    schedule: Any
    best: BestWeights
    records: list[EpochRecord]
    sums: EpochSums
    epochs: int = 0

    @classmethod
    def start(cls, method: Method, config: TrainingConfig, run: Run, device: torch.device) -> _Member:
        """Return the member before its first epoch."""
        optimizer, schedule = optimizer_and_schedule(method.to(device), config)
        best = BestWeights(None if run.folder is None else run.folder / "checkpoints")
        if run.folder is not None:
            make_folder(run.folder / "checkpoints")
        return cls(method, config, optimizer, schedule, best, run.records(config), EpochSums())

    def end_epoch(self, epoch: int) -> None:
        """Step the schedule, keep the weights if they are the best, and see whether to stop."""
        values = self.sums.values(epoch)
        self.sums = EpochSums()
        self.epochs = epoch
        for record in self.records:
            record.add(epoch, values, self.optimizer.param_groups[0]["lr"])
        self.schedule.step(values["criterion"])
        self.best.consider(self.method, values["criterion"], epoch)
        self.best.stopped = epoch - self.best.best_epoch >= self.config.stop_patience

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which the next epoch starts."""
        parts = {"optimizer": self.optimizer, "schedule": self.schedule, "best": self.best, "method": self.method}
        return {"epochs": self.epochs, **{name: dict(part.state_dict()) for name, part in parts.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        self.epochs = state["epochs"]
        for name in ("optimizer", "schedule", "best", "method"):
            getattr(self, name).load_state_dict(state[name])


class _Loss(nn.Module):
    """The loss of a batch whose last bag is filling, as a function of parameters and tensors."""

    def __init__(self, method: Method, epoch: int) -> None:
        super().__init__()
        self.method, self.epoch = method, epoch

    def forward(
        self,
        instances: Shaped[Tensor, "N *shape"],
        sizes: Int64[Tensor, "B"],
        index: Int64[Tensor, "N"],
        labels: Int64[Tensor, "B"],
    ) -> Float[Tensor, ""]:
        batch = BagBatch(instances, Segments.indexed(sizes, index), labels, torch.ones_like(labels).bool())
        return self.method.bag_losses(batch, self.epoch)[:-1].mean()


class _LogProbabilities(nn.Module):
    """The log-probabilities of a batch as a function of parameters."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, batch: BagBatch) -> Float[Tensor, "B C"]:
        return self.method.bag_log_probabilities(batch)


def _train_epoch(active: list[_Member], bags: BagDataset, epoch: int, device: torch.device) -> None:
    for state in active:
        state.method.train()
    loss_of = _Loss(active[0].method, epoch + 1)
    per_update = active[0].config.bags_per_update
    orders: list[PackedBatches] = [
        shuffled_batches(bags, per_update, seed=state.config.seed, epoch=epoch) for state in active
    ]
    for batches in zip(*orders, strict=True):
        filled = _filled(batches, device)
        losses = vmap(lambda weights, *given: functional_call(loss_of, weights, given))(_stacked(active), *filled)
        for state in active:
            state.optimizer.zero_grad()
        losses.sum().backward()
        for state, loss in zip(active, losses.detach().tolist(), strict=True):
            state.optimizer.step()
            state.sums.add_update(loss)


@torch.no_grad()
def _validate(active: list[_Member], bags: BagDataset, device: torch.device) -> None:
    for state in active:
        state.method.eval()
    template, weights = _LogProbabilities(active[0].method), _stacked(active)
    for batch in ordered_batches(bags, VALIDATION_INSTANCES):
        moved = batch.to(device)
        moved.segments.index, moved.segments.are_singletons  # noqa: B018  # read before vectorising
        of_all = vmap(lambda given, batch=moved: functional_call(template, given, (batch,)))(weights)
        for state, log_probabilities in zip(active, of_all, strict=True):
            state.sums.add_validation(log_probabilities, moved.labels)


def _stacked(active: list[_Member]) -> dict[str, Tensor]:
    """Return the members' parameters, stacked; gradients flow back to each member's own."""
    named = [dict(state.method.named_parameters()) for state in active]
    return {f"method.{name}": torch.stack([each[name] for each in named]) for name in named[0]}


def _filled(batches: Sequence[BagBatch], device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return instances, sizes, bag of each instance and labels, stacked; the last bag of each is filling."""
    total = 1 + max(batch.segments.num_instances for batch in batches)
    parts = []
    for batch in batches:
        missing = total - batch.segments.num_instances
        instances = torch.cat([batch.instances, batch.instances[:1].expand(missing, *batch.instances.shape[1:])])
        sizes = torch.cat([batch.segments.sizes, torch.tensor([missing])])
        index = torch.cat([batch.segments.index, torch.full((missing,), batch.segments.num_bags)])
        parts.append((instances, sizes, index, torch.cat([batch.labels, batch.labels[:1]])))
    instances, sizes, index, labels = (torch.stack(tensors).to(device) for tensors in zip(*parts, strict=True))
    return instances, sizes, index, labels


def _check(members: Sequence[Method], train: BagDataset, configs: Sequence[TrainingConfig]) -> None:
    if not can_train_together(members, train):
        raise ConfigError(
            item=f"{len(members)} members with method {type(members[0]).__name__}",
            wanted=f"several that draw nothing while they learn, and bags below {MATMUL_FROM} instances",
            got=f"bags of up to {train.sizes.max()} instances",
            fix="train them one after another",
        )
    if len({config.model_copy(update={"seed": 0}).model_dump_json() for config in configs}) > 1:
        raise ConfigError(
            item="members trained together",
            wanted="settings that differ in the seed alone",
            got="others",
            fix="train them one after another",
        )


def _resume(states: list[_Member], path: Path) -> None:
    """Take over the state of each member; some that were saved may be models by now, and are not trained again."""
    saved = read_nested(path)
    if all(state.config.seed in saved for state in states):
        for state in states:
            state.load_state_dict(saved[state.config.seed])
