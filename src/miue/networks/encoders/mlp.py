"""The encoder of bags whose instances are feature vectors already."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from miue.common.errors import ModelError
from miue.common.option_types import Rate, Width
from miue.networks.encoders.base import Encoder


class MLP(Encoder):
    """Two linear layers, each with ReLU.

    Reference: Liu & Ji 2024, Appendix "Implementation and Network Training" (CAMELYON16, synthetic).

    Args:
        instance_shape: (number of input features,).
        width: number of features D.
        dropout: dropout rate after each linear layer.
        standardise: bring each input feature to mean 0 and standard deviation 1 over the training instances.
    """

    centre: Tensor
    spread: Tensor

    def __init__(
        self,
        instance_shape: tuple[int, ...],
        *,
        width: Width = 512,
        dropout: Rate = 0.0,
        standardise: bool = False,
    ) -> None:
        super().__init__()
        if len(instance_shape) != 1:
            raise ModelError(
                item="encoder MLP",
                wanted="instances that are feature vectors",
                got=f"instances of shape {tuple(instance_shape)}",
                fix="choose an image encoder such as 'lenet' or 'compact'",
            )
        self.layers = nn.Sequential(
            nn.Linear(instance_shape[0], width),
            nn.Dropout(dropout),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.Dropout(dropout),
            nn.ReLU(),
        )
        self.out_features = width
        self.standardise = standardise
        if standardise:
            self.register_buffer("centre", torch.zeros(instance_shape[0]))
            self.register_buffer("spread", torch.ones(instance_shape[0]))

    def learn_inputs(self, batches: Iterable[Tensor]) -> None:
        """Learn mean and standard deviation of each feature, where inputs are standardised.

        Batches are merged by the sums of squares about their means, so that nothing cancels.
        """
        if not self.standardise:
            return
        count, mean, squares = 0, torch.zeros(len(self.centre)).double(), torch.zeros(len(self.centre)).double()
        for batch in batches:
            rows = batch.double()
            total, difference = count + len(rows), rows.mean(0) - mean
            squares += (rows - rows.mean(0)).square().sum(0) + difference.square() * (count * len(rows) / total)
            mean, count = mean + difference * (len(rows) / total), total
        deviation = (squares / max(1, count)).sqrt()
        self.centre.copy_(mean)
        self.spread.copy_(torch.where(deviation > 0, deviation, 1.0))

    def forward(self, instances: Float[Tensor, "N inputs"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance."""
        given = (instances - self.centre) / self.spread if self.standardise else instances
        features: Tensor = self.layers(given)
        return features
