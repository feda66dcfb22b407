"""The encoder of feature vectors."""

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

    Reference: Liu & Ji 2024, Appendix D.3 (CAMELYON16) and H.2 (synthetic bags).

    Args:
        instance_shape: (number of input features,).
        width: number of features D.
        dropout: dropout rate after each linear layer.
        standardize: scale each input feature to mean 0 and standard deviation 1 over the training instances.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        instance_shape: tuple[int, ...],
        *,
        width: Width = 512,
        dropout: Rate = 0.0,
        standardize: bool = False,
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
            nn.ReLU(inplace=True),
            nn.Linear(width, width),
            nn.Dropout(dropout),
            nn.ReLU(inplace=True),
        )
        self.out_features = width
        self.standardize = standardize
        if standardize:
            self.register_buffer("mean", torch.zeros(instance_shape[0]))
            self.register_buffer("deviation", torch.ones(instance_shape[0]))

    def learn_inputs(self, batches: Iterable[Tensor]) -> None:
        """Learn mean and standard deviation of each feature if inputs are standardized.

        Batches are merged by their sums of squared deviations from the mean, which avoids cancellation.
        """
        if not self.standardize:
            return
        count, mean, squares = 0, torch.zeros(len(self.mean)).double(), torch.zeros(len(self.mean)).double()
        for batch in batches:
            rows = batch.double()
            total, difference = count + len(rows), rows.mean(0) - mean
            squares += (rows - rows.mean(0)).square().sum(0) + difference.square() * (count * len(rows) / total)
            mean, count = mean + difference * (len(rows) / total), total
        deviation = (squares / max(1, count)).sqrt()
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))

    def forward(self, instances: Float[Tensor, "N inputs"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance."""
        inputs = (instances - self.mean) / self.deviation if self.standardize else instances
        features: Tensor = self.layers(inputs)
        return features
