"""The method under training, and its data, as Lightning sees them."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from miue.bags import BagBatch, BagDataset
from miue.config import TrainingConfig
from miue.errors import DataError
from miue.methods import Method
from miue.seeds import seed_of
from miue.training.batches import PackedBatches, ordered_batches, shuffled_batches

VALIDATION_INSTANCES = 1024  # instances per validation batch


class TrainingModule(pl.LightningModule):
    """One update per batch of bags; the criterion is validation NLL + error rate.

    The learning-rate schedule is stepped here, before the epoch's checkpoint is written, so that a
    checkpoint holds the state from which the next epoch starts.

    Args:
        method: what is trained.
        config: how.
    """

    def __init__(self, method: Method, config: TrainingConfig) -> None:
        super().__init__()
        self.method = method
        self.config = config
        self.schedule: ReduceLROnPlateau | None = None
        self._schedule_state: dict[str, Any] | None = None
        self._sums = {"loss": 0.0, "updates": 0.0, "nll": 0.0, "errors": 0.0, "bags": 0.0}

    def configure_optimizers(self) -> Optimizer:
        """Return Adam with weight decay on weights only."""
        named = list(self.method.named_parameters())
        decayed = [p for name, p in named if p.dim() > 1 and name.endswith("weight")]
        others = [p for name, p in named if p.dim() <= 1 or not name.endswith("weight")]
        groups: list[dict[str, Any]] = [
            {"params": decayed, "weight_decay": self.config.weight_decay},
            {"params": others},
        ]
        optimizer = Adam(groups, lr=self.config.learning_rate, fused=True)
        self.schedule = ReduceLROnPlateau(
            optimizer, mode="min", factor=self.config.lr_factor, patience=self.config.lr_patience
        )
        if self._schedule_state is not None:
            self.schedule.load_state_dict(self._schedule_state)
        return optimizer

    def on_train_epoch_start(self) -> None:
        """Seed dropout from seed and epoch, so that an epoch is the same however training got there."""
        torch.manual_seed(seed_of(self.config.seed, self.current_epoch))
        self._sums = dict.fromkeys(self._sums, 0.0)

    def training_step(self, batch: BagBatch, batch_idx: int) -> Tensor:
        """Return the loss of one update."""
        loss = self.method.loss(batch, self.current_epoch + 1)
        self._sums["loss"] += float(loss.detach())
        self._sums["updates"] += 1
        return loss

    def validation_step(self, batch: BagBatch, batch_idx: int) -> None:
        """Add up NLL and errors of labelled bags."""
        log_probabilities = self.method.bag_log_probabilities(batch)
        picked = log_probabilities.gather(1, batch.labels.unsqueeze(1)).squeeze(1)
        self._sums["nll"] -= float(picked.double().sum())
        self._sums["errors"] += float((log_probabilities.argmax(1) != batch.labels).sum())
        self._sums["bags"] += len(batch.labels)

    def on_validation_epoch_end(self) -> None:
        """Log the criterion that early stopping and the schedule watch."""
        nll, error = (self._sums[key] / self._sums["bags"] for key in ("nll", "errors"))
        train_loss = self._sums["loss"] / self._sums["updates"]
        if not (abs(nll) < float("inf") and abs(train_loss) < float("inf")):
            raise DataError(
                item=f"epoch {self.current_epoch + 1}",
                wanted="a finite loss",
                got=f"training loss {train_loss}, validation NLL {nll}",
                fix="lower the learning rate, or scale the features",
            )
        values = {"train_loss": train_loss, "validation_nll": nll, "validation_error": error}
        self.log_dict({**values, "criterion": nll + error}, batch_size=1)

    def on_train_epoch_end(self) -> None:
        """Step the learning-rate schedule; Lightning writes the checkpoint after this."""
        assert self.schedule is not None
        self.schedule.step(float(self.trainer.callback_metrics["criterion"]))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the schedule to the checkpoint."""
        assert self.schedule is not None
        checkpoint["schedule"] = self.schedule.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the schedule from the checkpoint."""
        self._schedule_state = checkpoint["schedule"]
        if self.schedule is not None:
            self.schedule.load_state_dict(checkpoint["schedule"])


class TrainingData(pl.LightningDataModule):
    """Training bags in an order that depends on seed and epoch alone, and validation bags.

    Args:
        train: labelled bags.
        validation: labelled bags.
        config: bags per update and seed.
    """

    def __init__(self, train: BagDataset, validation: BagDataset, config: TrainingConfig) -> None:
        super().__init__()
        self.train_bags, self.validation_bags, self.config = train, validation, config

    def train_dataloader(self) -> PackedBatches:
        """Return the batches of the epoch that begins."""
        assert self.trainer is not None
        return shuffled_batches(
            self.train_bags,
            self.config.bags_per_update,
            seed=self.config.seed,
            epoch=self.trainer.current_epoch,
        )

    def val_dataloader(self) -> PackedBatches:
        """Return the validation bags in order."""
        return ordered_batches(self.validation_bags, VALIDATION_INSTANCES)

    def transfer_batch_to_device(self, batch: BagBatch, device: torch.device, dataloader_idx: int) -> BagBatch:
        """Move a packed batch."""
        return batch.to(device)
