"""The encoder of bags whose instances are feature vectors already."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from miue.encoders.base import Encoder
from miue.errors import ModelError


class MLP(Encoder):
    """Two linear layers, each with ReLU.

    Reference: Liu & Ji 2024, Appendix "Implementation and Network Training" (CAMELYON16, synthetic).

    Args:
        instance_shape: (number of input features,).
        width: number of features D.
        dropout: dropout rate after each linear layer.
    """

    def __init__(self, instance_shape: tuple[int, ...], *, width: int = 512, dropout: float = 0.0) -> None:
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

    def forward(self, instances: Float[Tensor, "N inputs"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance."""
        features: Tensor = self.layers(instances)
        return features
