"""No encoder: the instances are the features."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from miue.common.errors import ModelError
from miue.networks.encoders.base import Encoder


class Identity(Encoder):
    """h = x: no encoder, for networks that take features directly.

    Args:
        instance_shape: (number of input features D,).

    >>> Identity((7,)).out_features
    7
    """

    def __init__(self, instance_shape: tuple[int, ...]) -> None:
        super().__init__()
        if len(instance_shape) != 1:
            raise ModelError(
                item="encoder Identity",
                wanted="instances that are feature vectors",
                got=f"instances of shape {tuple(instance_shape)}",
                fix="choose an image encoder such as 'lenet' or 'compact'",
            )
        self.out_features = instance_shape[0]

    def forward(self, instances: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Return the instances."""
        return instances
