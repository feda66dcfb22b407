"""Train a method on labelled bags until its validation criterion stops improving."""

from __future__ import annotations

import logging
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, EarlyStopping

from miue.bags.dataset import BagDataset
from miue.common.devices import lightning_device
from miue.common.errors import DataError
from miue.methods import Method
from miue.model.config import TrainingConfig
from miue.training.callbacks import MIN_DELTA, BestWeights, EpochLog, EpochProgress, EpochRecord
from miue.training.checkpoint import SafetensorsCheckpointIO, epochs_in
from miue.training.module import TrainingData, TrainingModule
from miue.training.trackers import TrackedEpochs, Tracking


@dataclass(frozen=True)
class TrainingSummary:
    """How a training went.

    Attributes:
        epochs: epochs trained, those before a resume included.
        best_epoch: the epoch whose weights were kept.
        best_criterion: its validation NLL + error rate.
        seconds: time of this process alone.
    """

    epochs: int
    best_epoch: int
    best_criterion: float
    seconds: float


@dataclass(frozen=True)
class Run:
    """Where and how a training runs, which does not change what it learns.

    Attributes:
        folder: where checkpoints and log go; None writes nothing.
        resume: continue from the folder's last checkpoint, if there is one.
        progress: show a bar with the time left.
        accelerator: name of a device, as ``torch_device`` takes it.
        tracking: trackers that are told of each epoch; they need a folder.
    """

    folder: Path | None = None
    resume: bool = False
    progress: bool = True
    accelerator: str = "auto"
    tracking: Tracking = field(default_factory=Tracking)

    def records(self, config: TrainingConfig) -> list[EpochRecord]:
        """Return what is written down of each epoch; nothing without a folder."""
        if self.folder is None:
            return []
        log = EpochLog(self.folder / "log.csv")
        return [log, TrackedEpochs(self.tracking, self.folder, config)] if self.tracking.names else [log]


def fit(
    method: Method, train: BagDataset, validation: BagDataset, config: TrainingConfig, run: Run
) -> TrainingSummary:
    """Train ``method`` in place and leave it with the weights of its best epoch.

    Args:
        method: what is trained.
        train: labelled bags of at least two classes.
        validation: labelled bags.
        config: how it learns.
        run: where and how it runs.

    Raises:
        DataError: a bag without a label, only one class, or a loss that is not finite.
        KeyboardInterrupt: the user stopped it; the last checkpoint is whole.
    """
    check_labels(train, "training", classes_wanted=2)
    check_labels(validation, "validation", classes_wanted=1)
    best = BestWeights(run.folder / "checkpoints" if run.folder is not None else None)
    stopping = EarlyStopping("criterion", min_delta=MIN_DELTA, patience=config.stop_patience)
    callbacks: list[Callback] = [stopping, best, *run.records(config)]
    if run.progress:
        callbacks.append(EpochProgress(best))
    started = time.perf_counter()
    checkpoint = best.last if run.resume and run.folder is not None and best.last.exists() else None
    trained = epochs_in(checkpoint) if checkpoint is not None else 0
    with quiet_lightning():
        trainer = pl.Trainer(
            **lightning_device(run.accelerator),
            max_epochs=max(config.max_epochs, trained),
            callbacks=callbacks,
            plugins=[SafetensorsCheckpointIO()],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            reload_dataloaders_every_n_epochs=1,
        )
        module = TrainingModule(method, config)
        try:
            trainer.fit(module, TrainingData(train, validation, config), ckpt_path=checkpoint)
        except SystemExit as stop:  # Lightning's answer to an interrupt, after which it ignores further ones
            signal.signal(signal.SIGINT, signal.default_int_handler)
            raise KeyboardInterrupt from stop
    best.restore(method)
    method.eval()
    return TrainingSummary(
        trainer.current_epoch, best.best_epoch, best.best_criterion, time.perf_counter() - started
    )


def check_labels(bags: BagDataset, what: str, *, classes_wanted: int) -> None:
    """Raise unless every bag is labelled, in distribution, and enough classes are there."""
    missing = [name for name, known in zip(bags.ids, bags.labels.known, strict=True) if not known]
    if missing:
        raise DataError(
            item=f"bag {missing[0]!r} of the {what} set",
            wanted="a label for every bag",
            got=f"none for {len(missing)} of {len(bags)} bags",
            fix="give a table of labels with --labels, or leave these bags out",
        )
    foreign = [name for name, is_out in zip(bags.ids, bags.is_ood.out_of_distribution, strict=True) if is_out]
    if foreign:
        raise DataError(
            item=f"bag {foreign[0]!r} of the {what} set",
            wanted="bags in distribution",
            got=f"{len(foreign)} of {len(bags)} bags marked as out of distribution",
            fix="leave them out of training; foreign bags are for testing",
        )
    classes = sorted(set(bags.labels.values.tolist()))
    if len(classes) < classes_wanted:
        raise DataError(
            item=f"the {what} set of {len(bags)} bags",
            wanted=f"bags of at least {classes_wanted} classes",
            got=f"class {classes} only",
            fix="add bags of another class, or check the label column",
        )


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's banners and its advice about data loaders, which are not torch's here."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning.*")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
