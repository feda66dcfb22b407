"""No encoder: the instances are the features."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from miue.networks.encoders.base import Encoder, check_vectors


class Identity(Encoder):
    """h = x: no encoder, for networks that take features directly.

    Args:
        instance_shape: (number of input features D,).

    >>> Identity((7,)).out_features
    7
    """

    def __init__(self, instance_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.out_features = check_vectors(self, instance_shape)

    def forward(self, instances: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Return the instances."""
        return instances
