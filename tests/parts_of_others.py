"""Parts as someone outside of miue writes them: imported by path, or passed as classes and modules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import torch
from torch import Tensor, nn

from miue.bags import BagBatch, Segments, segment_mean
from miue.methods import DeepEnsemble, Softmax
from miue.networks import MILNetwork, Projection, Scores
from miue.networks.encoders import Encoder
from miue.scores import Mahalanobis


class Pooling(Enum):
    """How ``Layers`` pools."""

    MEAN = "mean"
    MAXIMUM = "maximum"


class PlainMean(nn.Module):
    """A plain module: one bag in, its logits out."""

    def __init__(self, in_features: int, num_classes: int, hidden: int = 6) -> None:
        super().__init__()
        self.hidden = hidden
        self.layers = nn.Sequential(nn.Linear(in_features, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))

    def forward(self, bag: Tensor) -> Tensor:
        return self.layers(bag).mean(0)


class EmbedsBags(PlainMean):
    """A plain module whose logits are one linear layer of the bag's embedding."""

    embeds_bags = True

    def forward(self, bag: Tensor) -> Tensor:
        return self.layers[2](self.layers[:2](bag).mean(0))


class Transformer(PlainMean):
    """A plain module with an operation that torch.vmap repeats for each bag."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__(in_features, num_classes)
        self.block = nn.TransformerEncoderLayer(in_features, 1, 8, batch_first=True)

    def forward(self, bag: Tensor) -> Tensor:
        return super().forward(self.block(bag[None])[0])


class PooledSoftmax(Softmax):
    """A method with a member of an enum and a tuple among its options."""

    def __init__(
        self, network: MILNetwork, *, pooling: Pooling = Pooling.MEAN, levels: tuple[float, ...] = ()
    ) -> None:
        super().__init__(network)
        assert isinstance(pooling, Pooling) and isinstance(levels, tuple)


class Named(PlainMean):
    """A plain module with an option that is a text."""

    def __init__(self, in_features: int, num_classes: int, stain: str = "he") -> None:
        super().__init__(in_features, num_classes)
        self.stain = stain


class Layers(nn.Module):
    """A plain module whose options are a tuple, a list of texts, a member of an enum and a number or None."""

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        widths: tuple[int, ...] = (5,),
        stains: list[str] = ["h", "e"],  # noqa: B006  # as others write it
        pooling: Pooling = Pooling.MEAN,
        limit: float | None = None,
    ) -> None:
        super().__init__()
        assert isinstance(widths, tuple) and isinstance(stains, list) and isinstance(pooling, Pooling)
        self.widths, self.stains, self.pooling, self.limit = widths, stains, pooling, limit
        layers: list[nn.Module] = []
        for width in widths:
            layers += [nn.Linear(in_features, width), nn.ReLU()]
            in_features = width
        self.layers = nn.Sequential(*layers, nn.Linear(in_features, num_classes))

    def forward(self, bag: Tensor) -> Tensor:
        logits = self.layers(bag)
        return logits.mean(0) if self.pooling is Pooling.MEAN else logits.amax(0)


@dataclass(frozen=True)
class Size:
    """What only Python can say."""

    side: int = 3


class Sized(PlainMean):
    """A plain module with options that are a number or None, without its annotation, an object and a class."""

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        depth: int = None,  # type: ignore[assignment]  # noqa: RUF013  # as others write it
        size: Size = Size(),
        layer: type[nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__(in_features, num_classes, size.side)
        self.depth, self.layer = depth, layer()


class LazyMean(nn.Module):
    """A plain module that takes its width from the first bag it is given."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(num_classes))

    def forward(self, bag: Tensor) -> Tensor:
        return self.layers(bag).mean(0)


class LooksAtValues(PlainMean):
    """A plain module whose way depends on its values, which torch.vmap does not allow."""

    def forward(self, bag: Tensor) -> Tensor:
        return super().forward(bag) if float(bag.sum()) > 0 else super().forward(2 * bag)


class ScaledMean(MILNetwork):
    """A network in the manner of miue's own, with a parameter of its own and weights drawn by its constructor."""

    def __init__(self, encoder: Encoder, num_classes: int, scale: float = 1.0) -> None:
        super().__init__(encoder, num_classes)
        self.scale = scale
        self.weight = nn.Parameter(torch.randn(encoder.out_features, num_classes))
        self.head = nn.Linear(num_classes, num_classes)
        nn.init.orthogonal_(self.head.weight)

    def project(self, features: Tensor) -> Projection:
        return (self.head(self.scale * features @ self.weight),)

    def score(self, projection: Projection, segments: Segments) -> Scores:
        return Scores(segment_mean(projection[0], segments), None)


class OwnRule(ScaledMean):
    """A network with a rule for its initial weights."""

    def reset_parameters(self, generator: torch.Generator) -> None:
        self.weight.fill_(0.25)
        self.head.weight.normal_(generator=generator)


class Buggy(ScaledMean):
    def __init__(self, encoder: Encoder, num_classes: int, depth: int = 1) -> None:
        super().__init__(encoder, num_classes)
        len(depth)  # type: ignore[arg-type]


class NotAModule:
    def __init__(self, in_features: int, num_classes: int) -> None:
        pass


def small_network(in_features: int, num_classes: int, *, hidden: int = 5) -> nn.Module:
    """A factory."""
    return PlainMean(in_features, num_classes, hidden)


class Scaling(Encoder):
    def __init__(self, instance_shape: tuple[int, ...], factor: float = 2.0) -> None:
        super().__init__()
        (self.out_features,) = instance_shape
        self.factor = factor

    def forward(self, instances: Tensor) -> Tensor:
        return self.factor * instances


class Smoothed(Softmax):
    """A method with a loss of its own."""

    def __init__(self, network: MILNetwork, *, smoothing: float = 0.1) -> None:
        super().__init__(network)
        self.smoothing = smoothing

    def loss(self, batch: BagBatch, epoch: int) -> Tensor:
        logits = self.bag_scores(batch).logits
        return nn.functional.cross_entropy(logits, batch.labels, label_smoothing=self.smoothing)


class CountsBags(Softmax):
    """A method that counts the training bags after training, and draws a number."""

    counted: Tensor
    drawn: Tensor

    def __init__(self, network: MILNetwork) -> None:
        super().__init__(network)
        self.register_buffer("counted", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("drawn", torch.zeros(1))

    def fit_after_training(self, batches: Iterable[BagBatch]) -> None:
        assert not self.training
        for _ in range(2):
            for batch in batches:
                self.counted += torch.bincount(batch.labels, minlength=2)
        self.drawn.copy_(torch.rand(1))


class CountingEnsemble(DeepEnsemble):
    """An ensemble of them."""

    def __init__(self, network: MILNetwork, *, size: int = 3) -> None:
        super().__init__(network, size=size)
        self.ensemble = nn.ModuleList(CountsBags(member.network) for member in self.members())


class Grows(CountsBags):
    """A method whose buffer changes its shape, so that it could not be loaded."""

    def fit_after_training(self, batches: Iterable[BagBatch]) -> None:
        self.counted = torch.zeros(3)


class Farness(Mahalanobis):
    name: ClassVar[str] = "farness"


class FailsInUse(PlainMean):
    """A plain module that can be built, and raises an error when it is called."""

    def forward(self, bag: Tensor) -> Tensor:
        raise KeyError("stain")
