"""Train a method on labeled bags until its validation criterion stops improving."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from miue.bags import BagBatch, BagDataset, PackedBatches, ordered_batches
from miue.bags.segments import as_float
from miue.common.devices import evaluated_on, evaluating, torch_device
from miue.common.errors import ConfigError, noting_when
from miue.common.tensors import write_nested
from miue.common.text import tracked
from miue.methods import Method
from miue.model import BATCH_INSTANCES
from miue.networks import Columns, encoder_precision, seeded
from miue.settings import TrainingConfig
from miue.training.checkpoints import KEY, BestWeights, read_state
from miue.training.learner import EpochSums, Learner, TrainingData, validation_weights
from miue.training.run import Run
from miue.training.sets import check_labels
from miue.training.watchers import (
    EpochLog,
    EpochProgress,
    ReportsShare,
    StopAfterBatch,
    Watcher,
    interrupts_after_batches,
)


@dataclass(frozen=True)
class TrainingSummary:
    """How a training went.

    Attributes:
        epochs: epochs trained, those before a resume included.
        best_epoch: the epoch whose weights were kept.
        best_criterion: its validation NLL + error rate.
    """

    epochs: int
    best_epoch: int
    best_criterion: float


def learn_inputs(method: Method, bags: BagDataset, *, progress: bool) -> None:
    """Fit encoders to their inputs; instances are read once for all members that read the same features."""
    batches = ordered_batches(bags, BATCH_INSTANCES)
    shown = progress and not batches.in_memory
    first_of: dict[str, torch.nn.Module] = {}
    for encoder in (member.network.encoder for member in method.members()):
        columns = str([part.columns for part in encoder.modules() if isinstance(part, Columns)])
        if columns in first_of:
            encoder.load_state_dict(dict(first_of[columns].named_buffers()), strict=False)
            continue
        first_of[columns] = encoder
        read = tracked(batches, "measuring feature scales", shown=shown, total=len(batches), unit="batches")
        with noting_when(lambda: "in measuring feature scales"):
            encoder.learn_inputs(as_float(batch.instances) for batch in read)


def fit(
    method: Method, train: BagDataset, validation: BagDataset, config: TrainingConfig, run: Run
) -> TrainingSummary:
    """Train ``method`` in place and leave it with the weights of its best epoch.

    Args:
        method: what is trained.
        train: labeled bags of at least two classes.
        validation: labeled bags.
        config: how it learns.
        run: where and how it runs.

    Raises:
        DataError: a bag without a label, only one class, or a loss that is not finite.
        KeyboardInterrupt: the user stopped it; the last checkpoint is whole.
    """
    check_labels(train, "training", classes_wanted=2)
    check_labels(validation, "validation", classes_wanted=1)
    if method.is_fitted_at_once:
        return _fit_at_once(method, train, validation, config, run)
    data = TrainingData(train, validation, config, processes=run.processes)
    folder = None if run.folder is None else run.folder / "checkpoints"
    best = BestWeights(folder, config.stop_patience, is_first=run.is_first)
    state = read_state(best.last) if run.resume and folder is not None and best.last.exists() else None
    learner = Learner(method, data, best, _watchers(run, best), state)
    if state is not None:
        best.load_state_dict(state["callbacks"][KEY])
    with (
        encoder_precision(method, config.precision),
        torch.random.fork_rng(devices=[]),  # every epoch seeds torch's own generator
        interrupts_after_batches() as stop,
    ):
        try:
            if run.on_lightning:
                from miue.training.on_lightning import train_on_lightning

                train_on_lightning(learner, stop, run)
            else:
                _train_here(learner, stop, torch_device(run.settings.device))
        finally:
            for watcher in learner.watchers:
                watcher.end()
    best.restore(method)
    method.eval()
    return TrainingSummary(learner.epoch, best.best_epoch, best.best_criterion)


def _watchers(run: Run, best: BestWeights) -> list[Watcher]:
    watchers: list[Watcher] = [ReportsShare()]
    if run.folder is not None and run.is_first:
        watchers.append(EpochLog(run.folder / "log.csv"))
    if run.progress and run.is_first:
        watchers.append(EpochProgress(best))
    return watchers


def _train_here(learner: Learner, stop: StopAfterBatch, device: torch.device) -> None:
    """Train in this process, and write the state to resume from."""
    try:
        optimizer = learner.begin_on(device)
        while not learner.has_ended:
            learner.begin_epoch()
            for batch in learner.data.updates(learner.epoch):
                loss = learner.loss(batch.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                stop.check()
            with torch.inference_mode(), evaluating(learner.method):
                for batch in learner.data.validation():
                    learner.validate(batch.to(device))
                    stop.check()
            learner.end_epoch()
            if learner.has_ended or learner.best.is_due:
                learner.best.save(lambda path: write_nested(path, learner.to_state()))
    finally:
        learner.method.cpu()


def _fit_at_once(
    method: Method, train: BagDataset, validation: BagDataset, config: TrainingConfig, run: Run
) -> TrainingSummary:
    """Fit a method that has no epochs, and return its criterion."""
    fit_to_bags(method, train, config.seed, run.settings.device)
    sums = EpochSums(validation_weights(validation, config))
    with torch.no_grad(), evaluated_on(torch_device("cpu"), method):
        for batch in ordered_batches(validation, BATCH_INSTANCES):
            sums.add_validation(method.bag_log_probabilities(batch), batch)
    sums.add_update(0.0)
    criterion = sums.values(0, "check the features")["criterion"]
    return TrainingSummary(0, 0, criterion)


def read_fitted(method: Method, folder: Path, epochs: int) -> TrainingSummary:
    """Give ``method`` the weights of the best epoch of a training that has ended.

    Args:
        method: as it was trained.
        folder: of the training.
        epochs: how many it took.

    Raises:
        StorageError: a checkpoint that is missing or damaged.
    """
    best = BestWeights(folder / "checkpoints", patience=0)
    best.load_state_dict(read_state(best.last)["callbacks"][KEY])
    best.restore(method)
    method.eval()
    return TrainingSummary(epochs, best.best_epoch, best.best_criterion)


def act_after_training(method: Method, bags: BagDataset, seed: int, device: str = "auto") -> None:
    """Call ``fit_after_training`` of each member, in evaluation mode, with the training bags.

    Args:
        method: trained; changed in place, and left on the device that it is on.
        bags: training bags with labels.
        seed: of what is drawn from torch's own generator.
        device: where it is done: "auto", "cpu", "gpu", or torch's name of one.

    Raises:
        ConfigError: a tensor of the method has another name or shape afterwards, so that it could not be loaded,
            or the device is not there.
    """
    for member in method.members():
        if not member.is_fitted_at_once:
            fit_to_bags(member, bags, seed, device)


def fit_to_bags(member: Method, bags: BagDataset, seed: int, device: str) -> None:
    """Call ``fit_after_training`` of one member, as ``act_after_training`` does.

    Raises:
        ConfigError: as there.
    """
    there = torch_device(device)
    batches = _OnDevice(ordered_batches(bags, BATCH_INSTANCES), there)
    before = {name: value.shape for name, value in member.state_dict().items()}
    with seeded(seed), evaluated_on(there, member):
        member.fit_after_training(batches)
    after = {name: value.shape for name, value in member.state_dict().items()}
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            raise ConfigError(
                item=f"tensor {name!r} of method {type(member).__name__!r}",
                wanted=f"shape {_shape(before.get(name))} after training, as its constructor made it",
                got=_shape(after.get(name)),
                fix="register it as a buffer of its final shape in the constructor",
            )


class _OnDevice:
    """Batches that are brought to a device as they are read; they can be iterated over more than once."""

    def __init__(self, batches: PackedBatches, device: torch.device) -> None:
        self.batches, self.device = batches, device

    def __iter__(self) -> Iterator[BagBatch]:
        return (batch.to(self.device) for batch in self.batches)


def _shape(shape: tuple[int, ...] | None) -> str:
    return "no tensor" if shape is None else str(tuple(shape))
