"""What a method does after training, with its weights as they will be saved."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from miue.bags.batches import PackedBatches, ordered_batches
from miue.bags.dataset import BagDataset
from miue.bags.segments import BagBatch
from miue.common.devices import evaluated_on, torch_device
from miue.common.errors import ConfigError
from miue.methods import Method
from miue.model.predict import BATCH_INSTANCES
from miue.networks import seeded


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
    there = torch_device(device)
    batches = _OnDevice(ordered_batches(bags, BATCH_INSTANCES), there)
    for member in method.members():
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
