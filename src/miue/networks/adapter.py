"""Plain PyTorch modules as networks and encoders."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from miue.bags import Segments
from miue.common.errors import ModelError
from miue.common.returned import class_name, describe_returned
from miue.networks.base import MILNetwork, Projection, Scores
from miue.networks.encoders import Encoder
from miue.networks.encoders.base import check_features

ONES_AT_ONCE = 4096


class BagModuleNetwork(MILNetwork):
    """A module that maps the features of one bag (n, D) to logits (C,), as a network; T scores bags of one.

    Bags of one are scored together where ``torch.vmap`` supports the module, else one after another.

    Args:
        encoder: of instances; f in the equations.
        num_classes: number of classes C.
        module: maps (n, D) to (C,).

    >>> from miue.networks.encoders import Identity
    >>> class Sum(nn.Module):
    ...     def forward(self, bag: Tensor) -> Tensor:
    ...         return bag.sum(0)
    >>> network = BagModuleNetwork(Identity((2,)), 2, Sum())
    >>> network.score((torch.ones(3, 2),), Segments.of(1, 2)).logits.tolist()
    [[1.0, 1.0], [2.0, 2.0]]
    """

    def __init__(self, encoder: Encoder, num_classes: int, module: nn.Module) -> None:
        super().__init__(encoder, num_classes)
        if any(map(is_lazy, module.parameters())):
            with torch.no_grad():
                module(torch.zeros(2, encoder.out_features))
        self.module = module
        self.embeds_bags = bool(getattr(module, "embeds_bags", False))
        self._vectorizes = True
        self._tried: set[bool] = set()  # whether in training

    @property
    def adapted(self) -> nn.Module:
        """The module, whose class messages name."""
        return self.module

    def project(self, features: Float[Tensor, "N D"]) -> Projection:
        """Return the features unchanged: the module takes whole bags."""
        return (features,)

    def score(self, projection: Projection, segments: Segments) -> Scores:
        """Return the logits of each bag; there is no attention."""
        (features,) = projection
        if segments.are_singletons and len(features) > 1 and self._vectorizes:
            logits = self._score_together(features)
            if logits is not None:
                return Scores(self._checked(logits, (len(features),)), None)
        sizes = [1] * len(features) if segments.are_singletons else segments.lengths.tolist()
        return Scores(torch.stack([self._checked(self.module(bag)) for bag in features.split(sizes)]), None)

    def _score_together(self, features: Float[Tensor, "N D"]) -> object:
        """Return the logits of bags of one from one call; where that fails, None, with all as it was before.

        Else a training that is resumed, in which it is tried anew, would count and draw once more.
        """
        is_new = self.training not in self._tried
        self._tried.add(self.training)
        buffers = list(self.module.buffers()) if is_new else []
        values, versions = [buffer.clone() for buffer in buffers], [buffer._version for buffer in buffers]
        states = [(torch.set_rng_state, torch.get_rng_state())] if is_new else []
        if is_new and features.is_cuda:
            cuda = partial(torch.cuda.set_rng_state, device=features.device)
            states.append((cuda, torch.cuda.get_rng_state(features.device)))
        try:
            vectorized = torch.vmap(self.module, randomness="different", chunk_size=ONES_AT_ONCE)
            with _keeping_attributes(self.module), warnings.catch_warnings():
                # an operation that is repeated for each bag is as slow as without
                warnings.filterwarnings("ignore", "There is a performance drop")
                logits: object = vectorized(features.unsqueeze(1))
            if versions == [buffer._version for buffer in buffers]:
                return logits
        except (RuntimeError, ValueError):
            pass  # it branches on values, say, or updates running statistics
        self._vectorizes = False
        with torch.no_grad():
            for buffer, value in zip(buffers, values, strict=True):
                buffer.copy_(value)
        for restore, state in states:
            restore(state)
        return None

    def _checked(self, logits: object, bags: tuple[int, ...] = ()) -> Tensor:
        """Return what the module returned for one bag, or for several at once, where it has the right shape."""
        if isinstance(logits, Tensor) and tuple(logits.shape) == (*bags, self.score_width):
            return logits
        raise ModelError(
            item=f"network {class_name(self)!r}",
            wanted=f"logits of shape ({self.score_width},) for one bag with features of shape (n, D)",
            got=describe_returned(logits, len(bags)),
            fix=f"return one score per class (for this method {self.score_width} scores), without a batch axis",
        )


@contextmanager
def _keeping_attributes(module: nn.Module) -> Iterator[None]:
    """Put back what a module assigns to itself, such as its last attention or a running mean.

    Within ``torch.vmap`` these are tensors that nothing outside of it can use.
    """
    stores = [store for part in module.modules() for store in (part.__dict__, part._buffers)]
    before = [dict(store) for store in stores]
    try:
        yield
    finally:
        for store, values in zip(stores, before, strict=True):
            store.clear()
            store.update(values)


class ModuleEncoder(Encoder):
    """A module that maps instances (n, *shape) to features (n, D), as an encoder.

    Args:
        instance_shape: shape of one instance.
        module: maps (n, *shape) to (n, D); images are channels last.

    >>> ModuleEncoder((3,), nn.Linear(3, 5)).out_features
    5
    """

    def __init__(self, instance_shape: tuple[int, ...], module: nn.Module) -> None:
        super().__init__()
        self.module = module
        was_training = module.training
        like = next(module.parameters(), torch.empty(0))
        with torch.no_grad():
            features = module.eval()(torch.zeros(2, *instance_shape, device=like.device))
        module.train(was_training)
        self.out_features = check_features(module, features, 2).shape[1]

    def forward(self, instances: Float[Tensor, "N *shape"]) -> Tensor:
        """Return what the module returns, which the network checks."""
        features: Tensor = self.module(instances)
        return features
