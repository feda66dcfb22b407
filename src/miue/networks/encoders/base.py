"""The base classes of encoders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from miue.common.errors import ModelError
from miue.common.returned import describe_returned


class Encoder(nn.Module, ABC):
    """Map each instance to features: (N, *shape) → (N, D); images are (N, H, W, channels), bytes scaled to [0, 1].

    Attributes:
        out_features: D.
    """

    out_features: int

    def __init_subclass__(cls) -> None:
        """Let a class with a ``forward`` of its own not inherit the parts of another's."""
        super().__init_subclass__()
        if "forward" in vars(cls):
            for part in ("until_dropout", "from_dropout"):
                if part not in vars(cls):
                    setattr(cls, part, getattr(Encoder, part))

    def learn_inputs(self, batches: Iterable[Tensor]) -> None:
        """Learn statistics of the inputs from all training instances, once before training; no-op by default.

        Results belong in buffers, which all members of an ensemble get.

        Args:
            batches: instances as ``forward`` takes them, to be iterated over once.
        """

    @property
    def own_features(self) -> int:
        """How many of the first features are of the instance alone, and not of its bag."""
        return self.out_features

    @property
    def also_try(self) -> str:
        """An option with another value for a training that learned hardly anything, "" for none."""
        return ""

    @abstractmethod
    def forward(self, instances: Float[Tensor, "N *shape"]) -> Float[Tensor, "N D"]:
        """Return the features h of each instance."""

    def until_dropout(self, instances: Float[Tensor, "N *shape"]) -> Shaped[Tensor, "N *inner"]:
        """Return what comes before the first dropout layer, of each instance alone; by default the instances.

        The draws of MC dropout share it: it is computed once.
        """
        return instances

    def from_dropout(self, values: Shaped[Tensor, "N *inner"]) -> Float[Tensor, "N D"]:
        """Return the features h of each instance from what ``until_dropout`` returned."""
        features: Tensor = self(values)
        return features


def split_at_dropout(layers: nn.Sequential) -> tuple[nn.Sequential, nn.Sequential]:
    """Return the layers before the first dropout layer, none where there is none, and all others."""
    each = list(layers)
    place = next((place for place, layer in enumerate(each) if isinstance(layer, _DropoutNd)), 0)
    return nn.Sequential(*each[:place]), nn.Sequential(*each[place:])


def check_features(encoder: nn.Module, features: object, count: int, width: int | None = None) -> Tensor:
    """Return what an encoder returned for ``count`` instances; that of another package may return anything.

    Raises:
        ModelError: no tensor of one vector per instance, of ``width`` numbers where that is known.
    """
    if (
        isinstance(features, Tensor)
        and features.is_floating_point()
        and features.dim() == 2
        and features.shape == (count, width or features.shape[1])
    ):
        return features
    wanted = f"features of shape ({count}, {width or 'D'})"
    item, got = f"encoder {type(encoder).__name__!r}", describe_returned(features)
    raise ModelError(
        item=item, wanted=wanted, got=got, fix="return one vector of out_features numbers per instance"
    )
