"""Encoders of feature vectors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from miue.common.errors import ModelError, unknown_name
from miue.common.text import warn_user
from miue.common.values import Rate, Width
from miue.networks.encoders.base import Encoder, split_at_dropout

Scaling = Literal["as-is", "common", "each"]
HIDDEN = 0.001  # of the common deviation: a feature that varies less is next to a constant
MANY = 0.25  # of the features that vary


class MLP(Encoder):
    """Two linear layers, each with ReLU.

    Reference: Liu & Ji 2024, Appendix D.3 (CAMELYON16) and H.2 (synthetic bags).

    Args:
        instance_shape: (number of input features,).
        width: number of features D.
        dropout: dropout rate after each linear layer.
        scaling: of the input features, by the training instances. "as-is" leaves them. "common" takes from each
            its mean and divides all by one number, the root of their mean variance, so that they become about 1
            and a feature that hardly varies still does. "each" divides every feature by its own standard
            deviation, for columns of different units, unless it varies by no more than rounding to float32.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        instance_shape: tuple[int, ...],
        *,
        width: Width = 512,
        dropout: Rate = 0.0,
        scaling: str = "common",
    ) -> None:
        super().__init__()
        inputs = check_vectors(self, instance_shape)
        if scaling not in get_args(Scaling):
            raise unknown_name("scaling", scaling, get_args(Scaling))
        self.layers = nn.Sequential(
            nn.Linear(inputs, width),
            nn.Dropout(dropout),
            nn.ReLU(inplace=True),
            nn.Linear(width, width),
            nn.Dropout(dropout),
            nn.ReLU(inplace=True),
        )
        self.out_features = width
        self.scaling = scaling
        if scaling != "as-is":
            self.register_buffer("mean", torch.zeros(inputs))
            self.register_buffer("deviation", torch.ones(inputs))

    @property
    def also_try(self) -> str:
        """Each feature by its own deviation, where one that varies little may matter."""
        return "encoder.scaling=each" if self.scaling == "common" else ""

    def learn_inputs(self, batches: Iterable[Tensor]) -> None:
        """Learn mean and standard deviation of each feature, unless features are taken as they are.

        Batches are merged by their sums of squared deviations from the mean, which avoids cancellation.
        """
        if self.scaling == "as-is":
            return
        count, (mean, squares, largest) = 0, torch.zeros(3, len(self.mean), dtype=torch.float64)
        for batch in batches:
            rows = batch.double()
            total, difference = count + len(rows), rows.mean(0) - mean
            squares += (rows - rows.mean(0)).square().sum(0) + difference.square() * (count * len(rows) / total)
            mean, count = mean + difference * (len(rows) / total), total
            largest = torch.maximum(largest, rows.abs().amax(0))
        deviation = (squares / max(1, count)).sqrt()
        deviation[deviation <= torch.finfo(torch.float32).eps * largest] = 0  # rounding
        if self.scaling == "common":
            common = deviation.square().mean().sqrt()
            _warn_of_hidden_features(deviation, common)
            deviation[:] = common
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))

    def forward(self, instances: Float[Tensor, "N inputs"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance."""
        features: Tensor = self.layers(self._scaled(instances))
        return features

    def until_dropout(self, instances: Float[Tensor, "N inputs"]) -> Shaped[Tensor, "N D"]:
        """Return what the first linear layer makes of each instance."""
        first, _ = split_at_dropout(self.layers)
        values: Tensor = first(self._scaled(instances))
        return values

    def from_dropout(self, values: Shaped[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance from what ``until_dropout`` returned."""
        _, last = split_at_dropout(self.layers)
        features: Tensor = last(values)
        return features

    def _scaled(self, instances: Float[Tensor, "N inputs"]) -> Float[Tensor, "N inputs"]:
        return instances if self.scaling == "as-is" else (instances - self.mean).div_(self.deviation)


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


class Columns(Encoder):
    """An encoder of some of the features alone, such as those of one of several patch encoders.

    Args:
        encoder: of vectors of that width.
        start: the first of its features.
        stop: the one after the last.
    """

    def __init__(self, encoder: Encoder, start: int, stop: int) -> None:
        super().__init__()
        self.encoder, self.columns = encoder, slice(start, stop)
        self.out_features = encoder.out_features

    @property
    def also_try(self) -> str:
        """That of the encoder."""
        return self.encoder.also_try

    def learn_inputs(self, batches: Iterable[Tensor]) -> None:
        """Learn statistics of these features."""
        self.encoder.learn_inputs(batch[:, self.columns] for batch in batches)

    def forward(self, instances: Float[Tensor, "N inputs"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance."""
        features: Tensor = self.encoder(instances[:, self.columns])
        return features

    def until_dropout(self, instances: Float[Tensor, "N inputs"]) -> Shaped[Tensor, "N *inner"]:
        """Return what the encoder computes before its first dropout layer."""
        return self.encoder.until_dropout(instances[:, self.columns])

    def from_dropout(self, values: Shaped[Tensor, "N *inner"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance from what ``until_dropout`` returned."""
        return self.encoder.from_dropout(values)


class WithCovariates(Encoder):
    """An encoder of all but the last numbers of an instance, which are covariates of its bag: h = (f(x), A c).

    They are the same in all instances of a bag, and pooling returns them as they are. Where the head is linear,
    S is the logits of the pooled f(x) plus a linear term of c, and T of an instance has the term of its bag.

    Args:
        encoder: f.
        covariates: how many numbers c are.
        width: of A c, as wide as f(x) by default, so that both learn about as fast; 0 for c itself.
    """

    def __init__(self, encoder: Encoder, covariates: int, width: int | None = None) -> None:
        super().__init__()
        self.encoder, self.covariates = encoder, covariates
        width = encoder.out_features if width is None else width
        self.embedding = nn.Linear(covariates, width, bias=False) if width else nn.Identity()
        self.out_features = encoder.out_features + (width or covariates)

    @property
    def own_features(self) -> int:
        """The width of f(x)."""
        return self.encoder.own_features

    @property
    def also_try(self) -> str:
        """That of the encoder."""
        return self.encoder.also_try

    def learn_inputs(self, batches: Iterable[Tensor]) -> None:
        """Learn statistics of the features; covariates are standardized already."""
        self.encoder.learn_inputs(batch[:, : -self.covariates] for batch in batches)

    def forward(self, instances: Float[Tensor, "N inputs"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance, and the covariates of its bag."""
        features, covariates = instances[:, : -self.covariates], instances[:, -self.covariates :]
        return torch.cat([self.encoder(features), self.embedding(covariates)], 1)

    def until_dropout(self, instances: Float[Tensor, "N inputs"]) -> Shaped[Tensor, "N inner"]:
        """Return what the encoder computes before its first dropout layer, and the covariates."""
        features, covariates = instances[:, : -self.covariates], instances[:, -self.covariates :]
        return torch.cat([self.encoder.until_dropout(features), covariates], 1)

    def from_dropout(self, values: Shaped[Tensor, "N inner"]) -> Float[Tensor, "N D"]:
        """Return the features of each instance from what ``until_dropout`` returned."""
        values, covariates = values[:, : -self.covariates], values[:, -self.covariates :]
        return torch.cat([self.encoder.from_dropout(values), self.embedding(covariates)], 1)


def check_vectors(encoder: Encoder, instance_shape: tuple[int, ...]) -> int:
    """Return the number of input features of an encoder of feature vectors.

    Raises:
        ModelError: instances of another shape.
    """
    if len(instance_shape) == 1:
        return instance_shape[0]
    item, got = f"encoder {type(encoder).__name__}", f"instances of shape {tuple(instance_shape)}"
    raise ModelError(
        item=item, wanted="feature vectors", got=got, fix="choose an encoder of images, such as 'lenet'"
    )


def _warn_of_hidden_features(deviation: Float[Tensor, "inputs"], common: Float[Tensor, ""]) -> None:
    """Warn where the few features of a large unit hide many of the others."""
    varies = int((deviation > 0).sum())
    hidden = int(((deviation > 0) & (deviation < HIDDEN * common)).sum())
    if hidden > MANY * varies:
        warn_user(
            f"{hidden:,} of {varies:,} features vary so little beside the others (less than {HIDDEN:g} of the "
            "deviation that all are divided by) that hardly anything is learned from them; if features have "
            "different units, set encoder.scaling=each"
        )
