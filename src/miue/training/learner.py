"""What an epoch of training does: its batches, updates and validation, and the values that it ends with."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from miue.bags import BagBatch, BagDataset, PackedBatches, augmented, ordered_batches, shuffled_batches
from miue.common.devices import sum_over_processes
from miue.common.errors import ConfigError, DataError, ModelError, noting_when
from miue.common.seeds import derive_seed
from miue.common.tensors import in_double
from miue.methods import Method, check_log_probabilities, check_loss
from miue.settings import TrainingConfig
from miue.training.checkpoints import KEY, BestWeights
from miue.training.first_look import FIX_OF_LOSS, bags_to_look_at, look_at_network
from miue.training.watchers import Watcher

VALIDATION_INSTANCES = 1024  # instances per validation batch
PREFIX = "method."  # of the names of weights in a checkpoint


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


class LeanAdam(Adam):
    """Adam without the import of ``torch._dynamo``, which takes as long as that of torch.

    torch imports it at the first call of these, to leave them out of what it compiles; nothing is compiled here.
    """

    add_param_group = inspect.unwrap(Adam.add_param_group)
    zero_grad = inspect.unwrap(Adam.zero_grad)
    state_dict = inspect.unwrap(Adam.state_dict)
    load_state_dict = inspect.unwrap(Adam.load_state_dict)
    step = torch.no_grad()(inspect.unwrap(Adam.step))


def optimizer_and_schedule(method: nn.Module, config: TrainingConfig) -> tuple[Adam, ReduceLROnPlateau]:
    """Return Adam with weight decay on weights only, and the schedule of its learning rate."""
    named = list(method.named_parameters())
    decayed = [p for name, p in named if p.dim() > 1 and name.endswith("weight")]
    others = [p for name, p in named if p.dim() <= 1 or not name.endswith("weight")]
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others}]
    optimizer = LeanAdam(groups, lr=config.learning_rate, fused=True)
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


class TrainingData:
    """Training bags in an order that depends on seed and epoch alone, and validation bags.

    Args:
        train: labeled bags.
        validation: labeled bags.
        config: bags per update and seed.
        processes: how many train together, each on a share of the bags of updates and validation.
        rank: which of them this is.

    Raises:
        ConfigError: too many processes for each to have a bag of every update, and one to validate on.
    """

    def __init__(
        self,
        train: BagDataset,
        validation: BagDataset,
        config: TrainingConfig,
        *,
        processes: int = 1,
        rank: int = 0,
    ) -> None:
        self.train_bags, self.validation_bags, self.config = train, validation, config
        self.processes, self.rank = processes, rank
        for bags, what in ((self.bags_of_update, "bags of an update"), (len(validation), "validation bags")):
            if processes > bags:
                raise ConfigError(
                    item=f"a training by {processes} processes",
                    wanted=f"at most as many as {what}, {bags}",
                    got=str(processes),
                    fix="pass fewer --devices or --nodes, or --set bags_per_update=N",
                )

    @property
    def bags_of_update(self) -> int:
        """Bags that share one update, over all processes."""
        return min(self.config.bags_per_update, len(self.train_bags))

    def updates(self, epoch: int) -> PackedBatches:
        """Return the batches of an epoch, counted from 0."""
        return shuffled_batches(
            self.train_bags,
            self.config.bags_per_update,
            seed=self.config.seed,
            epoch=epoch,
            class_balanced=self.config.class_balanced,
            instances_per_bag=self.config.instances_per_bag,
            rank=self.rank,
            processes=self.processes,
        )

    def validation(self) -> PackedBatches:
        """Return the validation bags in order."""
        bags = self.validation_bags
        if self.processes > 1:
            bags = bags.subset(np.arange(self.rank, len(bags), self.processes))
        return ordered_batches(bags, VALIDATION_INSTANCES)


class Learner:
    """A method that learns: one update per batch of bags; the criterion is validation NLL + error rate.

    Args:
        method: what is trained.
        data: on what.
        best: keeps the weights of the best epoch.
        watchers: told of every epoch.
        state: of the epoch that a resumed run goes on from.

    Raises:
        ModelError: the weights of ``state`` are not those of the method, since the code of a part has changed.
    """

    def __init__(
        self,
        method: Method,
        data: TrainingData,
        best: BestWeights,
        watchers: Sequence[Watcher] = (),
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.method, self.data, self.config = method, data, data.config
        self.best, self.watchers, self.state = best, watchers, state
        self.epoch = 0 if state is None else state["epoch"] + 1  # epochs that have ended
        self.max_epochs = max(self.config.max_epochs, self.epoch)
        self.class_weights = validation_weights(data.validation_bags, data.config)
        self._fix = FIX_OF_LOSS
        if state is not None:
            self._check_weights(state["state_dict"])

    @property
    def has_ended(self) -> bool:
        """Whether the criterion has stopped improving, or the last epoch has ended."""
        return self.best.stopped or self.epoch >= self.max_epochs

    def begin(self, device: torch.device) -> Adam:
        """Return the optimizer of a method that is on its device, once a network of others was looked at."""
        bags = self.data.train_bags
        self._fix = look_at_network(self.method, lambda: bags.batch(bags_to_look_at(bags.sizes)).to(device))
        self.optimizer, self.schedule = optimizer_and_schedule(self.method, self.config)
        if self.state is not None:
            self.schedule.load_state_dict(self.state["schedule"])
        for watcher in self.watchers:
            watcher.begin(self.epoch, self.max_epochs)
        return self.optimizer

    def begin_on(self, device: torch.device) -> Adam:
        """Bring the method to a device, with the state that a resumed run goes on from; return the optimizer."""
        self.method.to(device)
        optimizer = self.begin(device)
        if self.state is not None:
            weights = self.state["state_dict"]
            self.method.load_state_dict({name.removeprefix(PREFIX): value for name, value in weights.items()})
            optimizer.load_state_dict(self.state["optimizer_states"][0])
        return optimizer

    def to_state(self) -> dict[str, Any]:
        """Return what a resumed run goes on from."""
        return {
            "epoch": self.epoch - 1,
            "state_dict": {f"{PREFIX}{name}": value for name, value in self.method.state_dict().items()},
            "optimizer_states": [self.optimizer.state_dict()],
            "lr_schedulers": [],
            "callbacks": {KEY: self.best.state_dict()},
            "schedule": self.schedule.state_dict(),
        }

    def begin_epoch(self) -> None:
        """Seed dropout and augmentation, so that an epoch is the same however training got there."""
        rank = (self.data.rank,) if self.data.processes > 1 else ()
        torch.manual_seed(derive_seed(self.config.seed, self.epoch, *rank))
        self.sums = EpochSums(self.class_weights)

    def loss(self, batch: BagBatch) -> Float[Tensor, ""]:
        """Return the loss of one update.

        Of several processes each has some bags of the update, and gradients are averaged over processes. A loss is
        the mean over bags, so that this process's counts as its share of the bags, times the number of processes.
        """
        epoch, processes = self.epoch + 1, self.data.processes
        with noting_when(lambda: f"in training epoch {epoch}, for {batch.segments.in_words()}"):
            seen = augmented(batch, self.config.augmentation)
            loss = check_loss(self.method, self.method.loss(seen, epoch))
        share = batch.segments.num_bags / self.data.bags_of_update if processes > 1 else 1.0
        self.sums.add_update(float(loss.detach()), share)
        return loss * (share * processes) if processes > 1 else loss

    def validate(self, batch: BagBatch) -> None:
        """Add up NLL and errors of labeled bags."""
        method, bags = self.method, batch.segments.num_bags
        with noting_when(lambda: f"in validation, for {batch.segments.in_words()}"):
            found = check_log_probabilities(method, method.network, method.bag_log_probabilities(batch), bags)
        self.sums.add_validation(found, batch)

    def end_epoch(self) -> dict[str, float]:
        """Step the learning-rate schedule, keep the best weights, and return the values of the epoch and its rate.

        Raises:
            DataError: a loss that is not finite.
        """
        self.epoch += 1
        values = self.sums.values(self.epoch, self._fix)
        values = {name: float(np.float32(value)) for name, value in values.items()}  # as Lightning logs them
        values["learning_rate"] = self.optimizer.param_groups[0]["lr"]
        self.schedule.step(values["criterion"])
        self.best.add(self.epoch, values["criterion"], self.method)
        for watcher in self.watchers:
            watcher.end_epoch(self.epoch, values)
        return values

    def _check_weights(self, weights: Mapping[str, Tensor]) -> None:
        now = {name: tuple(weight.shape) for name, weight in self.method.state_dict().items()}
        then = {name.removeprefix(PREFIX): tuple(weight.shape) for name, weight in weights.items()}
        for name in sorted(now.keys() | then.keys()):
            if now.get(name) != then.get(name):
                raise ModelError(
                    item=f"weight {name!r} of the training to resume",
                    wanted=f"the shape {then.get(name)}, with which it was started",
                    got=f"{now.get(name)}: the code of a part has changed",
                    fix="resume it with the code it was started with, or start anew with --overwrite",
                )
