"""The method under training, and its data, as Lightning sees them."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from jaxtyping import Float, Float64
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from miue.bags import BagBatch, BagDataset, PackedBatches, augmented, ordered_batches, shuffled_batches
from miue.common.devices import average_gradients, sum_over_processes, take_from_first
from miue.common.errors import ConfigError, DataError, ModelError, noting_when
from miue.common.seeds import derive_seed
from miue.common.tensors import in_double
from miue.methods import Method, check_log_probabilities, check_loss
from miue.settings import TrainingConfig
from miue.training.first_look import FIX_OF_LOSS, bags_to_look_at, look_at_network

VALIDATION_INSTANCES = 1024  # instances per validation batch


class EpochSums:
    """What one epoch adds up, and the values made of it when it ends.

    Args:
        class_weights: what a validation bag of each class counts.
    """

    def __init__(self, class_weights: Float64[np.ndarray, "C"]) -> None:
        self.class_weights = torch.from_numpy(class_weights)
        self.loss = self.nll = self.errors = self.bags = 0.0
        self.updates = 0

    def add_update(self, loss: float, share: float = 1.0) -> None:
        """Add the loss of one update, of which this process has a share."""
        self.loss += share * loss
        self.updates += 1

    def add_validation(self, log_probabilities: Float[Tensor, "B C"], batch: BagBatch) -> None:
        """Add NLL of labeled bags, and errors; an interval of numbers that is not the label's is no error."""
        wrong = (log_probabilities.argmax(1) != batch.labels) & (batch.observed is None)
        weights = self.class_weights[batch.labels.cpu()]
        self.nll -= float((weights * in_double(batch.log_likelihood(log_probabilities)).cpu()).sum())
        self.errors += float(weights[wrong.cpu()].sum())
        self.bags += float(weights.sum())

    def values(self, epoch: int, fix: str) -> dict[str, float]:
        """Return training loss, validation NLL and error, and the criterion, the sum of the last two.

        They are the same in all processes of the training.

        Args:
            epoch: which just ended.
            fix: what to do where the loss is not finite.

        Raises:
            DataError: the loss of ``epoch`` is not finite.
        """
        loss, nlls, errors, bags = sum_over_processes([self.loss, self.nll, self.errors, self.bags])
        nll, error, train_loss = nlls / bags, errors / bags, loss / self.updates
        if not (abs(nll) < float("inf") and abs(train_loss) < float("inf")):
            raise DataError(
                item=f"epoch {epoch}",
                wanted="a finite loss",
                got=f"training loss {train_loss}, validation NLL {nll}",
                fix=fix,
            )
        losses = {"train_loss": train_loss, "validation_nll": nll, "validation_error": error}
        return {**losses, "criterion": nll + error}


def optimizer_and_schedule(method: nn.Module, config: TrainingConfig) -> tuple[Adam, ReduceLROnPlateau]:
    """Return Adam with weight decay on weights only, and the schedule of its learning rate."""
    named = list(method.named_parameters())
    decayed = [p for name, p in named if p.dim() > 1 and name.endswith("weight")]
    others = [p for name, p in named if p.dim() <= 1 or not name.endswith("weight")]
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others}]
    optimizer = Adam(groups, lr=config.learning_rate, fused=True)
    optimizer.register_load_state_dict_post_hook(_lay_out_like_parameters)
    return optimizer, ReduceLROnPlateau(optimizer, factor=config.lr_factor, patience=config.lr_patience)


def _lay_out_like_parameters(optimizer: Optimizer) -> None:
    """Give loaded moments the memory format of their parameters.

    Fused Adam walks parameter, gradient and moments as flat memory, so that all must lie in the same order.
    Checkpoints are contiguous, and weights of convolutions are channels last.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            for name, value in state.items():
                if torch.is_tensor(value) and value.shape == parameter.shape:
                    same = torch.empty_like(parameter, dtype=value.dtype, memory_format=torch.preserve_format)
                    state[name] = same.copy_(value)


def validation_weights(bags: BagDataset, config: TrainingConfig) -> Float64[np.ndarray, "C"]:
    """Return what a validation bag of each class counts: 1, or as much as makes all classes count the same.

    A class without validation bags counts nothing.
    """
    counts = bags.labels.counts(bags.num_classes)
    if not config.class_balanced:
        return np.ones(len(counts))
    return np.divide(counts.sum() / np.count_nonzero(counts), counts, where=counts > 0, out=np.zeros(len(counts)))


def constant_criterion(bags: BagDataset, config: TrainingConfig) -> float | None:
    """Return entropy and error rate of the class shares, as the criterion counts them.

    None with one class, or where labels are numbers.
    """
    if bags.outcomes is not None:
        return None
    counts = bags.labels.counts(bags.num_classes) * validation_weights(bags, config)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum() + 1 - shares.max()) if len(shares) > 1 else None


class AveragingStrategy(DDPStrategy):
    """Several processes whose gradients the module averages itself, once for each update.

    torch's own wrapper waits for a gradient of every parameter from every process, and a process has none for the
    attention if all its bags hold one instance.
    """

    def configure_ddp(self) -> None:
        """Leave the module as it is; all processes made it from the same seed."""


class TrainingModule(pl.LightningModule):
    """One update per batch of bags; the criterion is validation NLL + error rate.

    The learning-rate schedule is stepped here, before the epoch's checkpoint is written, so that a
    checkpoint holds the state from which the next epoch starts.

    Args:
        method: what is trained.
        config: how.
        bags_of_update: bags that share one update, over all processes.
        class_weights: what a validation bag of each class counts.
    """

    def __init__(
        self,
        method: Method,
        config: TrainingConfig,
        bags_of_update: int,
        class_weights: Float64[np.ndarray, "C"],
    ) -> None:
        super().__init__()
        self.bags_of_update, self.class_weights = bags_of_update, class_weights
        self.method = method
        self.config = config
        self.schedule: ReduceLROnPlateau | None = None
        self._schedule_state: dict[str, Any] | None = None
        self._sums = EpochSums(class_weights)
        self._fix = FIX_OF_LOSS

    def on_fit_start(self) -> None:
        """Look at a network of others before it is trained."""
        bags: BagDataset = self.trainer.datamodule.train_bags  # type: ignore[attr-defined]
        self._fix = look_at_network(self.method, lambda: bags.batch(bags_to_look_at(bags.sizes)).to(self.device))

    def configure_optimizers(self) -> Optimizer:
        """Return Adam, and keep its schedule."""
        optimizer, self.schedule = optimizer_and_schedule(self.method, self.config)
        if self._schedule_state is not None:
            self.schedule.load_state_dict(self._schedule_state)
        return optimizer

    def on_train_epoch_start(self) -> None:
        """Seed dropout and augmentation, so that an epoch is the same however training got there."""
        rank = (self.global_rank,) if self.trainer.world_size > 1 else ()
        torch.manual_seed(derive_seed(self.config.seed, self.current_epoch, *rank))
        self._sums = EpochSums(self.class_weights)

    def training_step(self, batch: BagBatch, batch_idx: int) -> Tensor:
        """Return the loss of one update.

        Of several processes each has some bags of the update, and gradients are averaged over processes. A loss is
        the mean over bags, so that this process's counts as its share of the bags, times the number of processes.
        """
        epoch = self.current_epoch + 1
        with noting_when(lambda: f"in training epoch {epoch}, for {batch.segments.in_words()}"):
            seen = augmented(batch, self.config.augmentation)
            loss = check_loss(self.method, self.method.loss(seen, epoch))
        processes = self.trainer.world_size
        share = batch.segments.num_bags / self.bags_of_update if processes > 1 else 1.0
        self._sums.add_update(float(loss.detach()), share)
        return loss * (share * processes) if processes > 1 else loss

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Let all processes make the same update."""
        average_gradients(self.parameters())

    def on_validation_epoch_start(self) -> None:
        """Let all processes validate the network that the first one writes, with its running statistics."""
        take_from_first(self.buffers())

    def validation_step(self, batch: BagBatch, batch_idx: int) -> None:
        """Add up NLL and errors of labeled bags."""
        method, bags = self.method, batch.segments.num_bags
        with noting_when(lambda: f"in validation, for {batch.segments.in_words()}"):
            found = check_log_probabilities(method, method.network, method.bag_log_probabilities(batch), bags)
        self._sums.add_validation(found, batch)

    def on_validation_epoch_end(self) -> None:
        """Log the values of the epoch under its number; early stopping and the schedule watch the criterion."""
        epoch, rate = self.current_epoch + 1, self.trainer.optimizers[0].param_groups[0]["lr"]
        values = {**self._sums.values(epoch, self._fix), "learning_rate": rate, "step": float(epoch)}
        self.log_dict(values, batch_size=1)

    def on_train_epoch_end(self) -> None:
        """Step the learning-rate schedule; Lightning writes the checkpoint after this."""
        assert self.schedule is not None
        self.schedule.step(float(self.trainer.callback_metrics["criterion"]))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the schedule to the checkpoint."""
        assert self.schedule is not None
        checkpoint["schedule"] = self.schedule.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the schedule from the checkpoint, whose weights are those of this method.

        Raises:
            ModelError: they are not, since the code of a part of others has changed.
        """
        now = {name: tuple(weight.shape) for name, weight in self.state_dict().items()}
        then = {name: tuple(weight.shape) for name, weight in checkpoint["state_dict"].items()}
        for name in sorted(now.keys() | then.keys()):
            if now.get(name) != then.get(name):
                raise ModelError(
                    item=f"weight {name.removeprefix('method.')!r} of the training to resume",
                    wanted=f"the shape {then.get(name)}, with which it was started",
                    got=f"{now.get(name)}: the code of a part has changed",
                    fix="resume it with the code it was started with, or start anew with --overwrite",
                )
        self._schedule_state = checkpoint["schedule"]
        if self.schedule is not None:
            self.schedule.load_state_dict(checkpoint["schedule"])


class TrainingData(pl.LightningDataModule):
    """Training bags in an order that depends on seed and epoch alone, and validation bags.

    Args:
        train: labeled bags.
        validation: labeled bags.
        config: bags per update and seed.
    """

    def __init__(self, train: BagDataset, validation: BagDataset, config: TrainingConfig) -> None:
        super().__init__()
        self.train_bags, self.validation_bags, self.config = train, validation, config

    @property
    def bags_of_update(self) -> int:
        """Bags that share one update, over all processes."""
        return min(self.config.bags_per_update, len(self.train_bags))

    def check_processes(self, processes: int) -> None:
        """Raise unless each process has a bag of every update, and one to validate on.

        Raises:
            ConfigError: too many processes.
        """
        for bags, what in (
            (self.bags_of_update, "bags of an update"),
            (len(self.validation_bags), "validation bags"),
        ):
            if processes > bags:
                raise ConfigError(
                    item=f"a training by {processes} processes",
                    wanted=f"at most as many as {what}, {bags}",
                    got=str(processes),
                    fix="pass fewer --devices or --nodes, or --set bags_per_update=N",
                )

    def train_dataloader(self) -> PackedBatches:
        """Return the batches of the epoch that begins, or the share of this process."""
        assert self.trainer is not None
        return shuffled_batches(
            self.train_bags,
            self.config.bags_per_update,
            seed=self.config.seed,
            epoch=self.trainer.current_epoch,
            class_balanced=self.config.class_balanced,
            instances_per_bag=self.config.instances_per_bag,
            rank=self.trainer.global_rank,
            processes=self.trainer.world_size,
        )

    def val_dataloader(self) -> PackedBatches:
        """Return the validation bags in order, or the share of this process."""
        assert self.trainer is not None
        bags, processes = self.validation_bags, self.trainer.world_size
        if processes > 1:
            bags = bags.subset(np.arange(self.trainer.global_rank, len(bags), processes))
        return ordered_batches(bags, VALIDATION_INSTANCES)

    def transfer_batch_to_device(self, batch: BagBatch, device: torch.device, dataloader_idx: int) -> BagBatch:
        """Move a packed batch."""
        return batch.to(device)
