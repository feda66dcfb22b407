"""A first look at a network of others, before training: mistakes that raise no error and spoil the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from miue.bags import BagBatch, Segments
from miue.common.devices import evaluating
from miue.common.errors import MiueError, ModelError
from miue.common.returned import class_name, is_of_others
from miue.common.text import plural, warn_user
from miue.methods import ATTENTION, EmbeddingMethod, Method

BAGS = 4
TOLERANCE = 0.01  # of the largest value: kernels may sum in another order, also in bfloat16
FIX_OF_LOSS = "lower the learning rate, or scale the features"


def bags_to_look_at(sizes: Int64[np.ndarray, "B"]) -> Int64[np.ndarray, "b"]:
    """Return the positions of the smallest bag and of some that follow it in size.

    >>> bags_to_look_at(np.array([9, 1, 5, 1, 2, 7])).tolist()
    [1, 3, 4, 2]
    """
    return np.argsort(sizes, kind="stable")[:BAGS]


def look_at_network(method: Method, read: Callable[[], BagBatch]) -> str:
    """Check what a network or encoder of others makes of some bags; return what to do if a loss is not finite.

    What it raises itself is left to the training, which says for which bags. Weights, buffers and generators stay
    as they were.

    Args:
        method: a method that is not trained yet, on the device of the bags.
        read: returns a few bags.

    Raises:
        ModelError: features or logits that depend on other bags of the batch, logits on no parameter, or no
            finite logits for a bag of one.
    """
    network = method.network
    if not (is_of_others(network) or is_of_others(network.encoder)):
        return FIX_OF_LOSS
    fix = f"{FIX_OF_LOSS}; in a part of your own, gradients of sqrt, norm, std and log are not finite at 0"
    try:
        with _as_it_was(method):
            batch = read()
            first = _compute(method, batch)
            if not isinstance(method, EmbeddingMethod):  # whose network may pass on what has no parameters
                _check_gradient(method, first[1])
            with torch.no_grad():
                again = _compute(method, batch)
                single = [_compute(method, one) for one in _one_by_one(batch)]
                if set(method.estimators) != {ATTENTION}:
                    _check_instance(method, *again)
    except MiueError:
        raise
    except Exception:  # training raises it again, if it does there, too
        return fix
    alone = [torch.cat(parts) for parts in zip(*single, strict=True)]
    encoder = getattr(network.encoder, "module", network.encoder)
    names = (f"encoder {class_name(encoder)!r}", f"network {class_name(network)!r}")
    for values, repeated, of_one, name in zip(first, again, alone, names, strict=True):
        values = values.detach()
        if not _same(values, repeated):
            warn_user(
                f"{name} returns something else each time for the same bags, although it is in evaluation mode: "
                "its predictions cannot be repeated. Draw random numbers, and change buffers or attributes, only "
                "where self.training is true; to average draws, write a method"
            )
            break
        if not _same(values, of_one):
            raise _of_other_bags(name, network, values, of_one)
    logits = first[1].detach()
    if method.score_width == network.num_classes and (kind := _normalized(logits)):
        warn_user(
            f"{names[1]} returns {kind}, not logits: leave out the softmax at its end, since "
            f"{type(method).__name__} makes probabilities or evidence of logits itself"
        )
    return _not_finite(names[1], logits, batch.segments) or fix


def _compute(method: Method, batch: BagBatch) -> tuple[Float[Tensor, "n D"], Float[Tensor, "b C"]]:
    """Return features and logits."""
    features, _, scores = method.scores(batch)
    return features, scores.logits


def _of_other_bags(
    name: str, network: nn.Module, values: Float[Tensor, "n k"], alone: Float[Tensor, "n k"]
) -> ModelError:
    """Return the error for a network or encoder that makes something else of a bag in a batch than alone."""
    worst = int((values - alone).nan_to_num().abs().amax(1).argmax())
    fix = "pool over each bag by segments in score(); miue.bags.segments has functions for it"
    if hasattr(network, "adapted") or name.startswith("encoder"):
        fix = (
            "compute it from what it is given alone; change buffers or attributes only where self.training is true"
        )
    return ModelError(
        item=name,
        wanted="the same for a bag alone as in a batch with others",
        got=f"{alone[worst][:3].tolist()} alone, {values[worst][:3].tolist()} with others",
        fix=fix,
    )


@contextmanager
def _as_it_was(method: nn.Module) -> Iterator[None]:
    """Evaluate with gradients, and restore modes, buffers and generators."""
    buffers = [
        (store, name, value, torch.empty(0) if value is None else value.clone())
        for store in (module._buffers for module in method.modules())
        for name, value in store.items()
    ]
    devices = {parameter.device for parameter in method.parameters()} if torch.cuda.is_available() else ()
    cuda = [device for device in devices if device.type == "cuda"]
    with torch.random.fork_rng(cuda), torch.enable_grad(), evaluating(method):
        try:
            yield
        finally:
            with torch.no_grad():
                for store, name, value, copy in buffers:
                    store[name] = value
                    if value is not None:
                        value.copy_(copy)


def _one_by_one(batch: BagBatch) -> Iterator[BagBatch]:
    sizes = batch.segments.lengths.tolist()
    for row, instances in enumerate(batch.instances.split(sizes)):
        segments = Segments.of(sizes[row]).to(instances.device)
        one = slice(row, row + 1)
        observed = None if batch.observed is None else batch.observed[one]
        yield BagBatch(instances, segments, batch.labels[one], batch.labeled[one], observed=observed)


def _check_gradient(method: Method, logits: Float[Tensor, "b C"]) -> None:
    """Raise where the network has parameters to train, but not by its logits; warn where all are frozen."""
    network = method.network
    if logits.requires_grad:
        return
    if trained := _count_trained(network):
        raise ModelError(
            item=f"network {class_name(network)!r}",
            wanted=f"logits with a gradient, which trains its {plural(trained, 'parameter')}",
            got="logits that depend on none of them",
            fix="leave out torch.no_grad(), .detach(), .item() and NumPy on the way to the logits",
        )
    if others := _count_trained(method):
        warn_user(
            f"network {class_name(network)!r}: no parameter is trained, as none has requires_grad=True: its "
            f"logits of bags stay as they are, and training changes {plural(others, 'parameter')} of "
            f"{type(method).__name__} alone; leave at least the last layer to train"
        )


def _check_instance(method: Method, features: Float[Tensor, "n D"], logits: Float[Tensor, "b C"]) -> None:
    """Raise where the network has logits of bags, but none of the first instance as a bag of one."""
    cause = None
    try:
        of_instance = method.instance_logits(features[:1])
        if of_instance.isfinite().all() or not logits.isfinite().all():
            return
        got = str(of_instance[0].tolist())
    except MiueError:
        raise
    except Exception as error:
        cause, got = error, f"{type(error).__name__}: {error}"
    raise ModelError(
        item=f"network {class_name(method.network)!r}",
        wanted="finite logits for a bag of one, as each instance is predicted",
        got=got,
        fix="handle a bag of one instance, of which std, for example, is NaN",
    ) from cause


def _count_trained(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def _same(some: Float[Tensor, "b C"], others: Float[Tensor, "b C"]) -> bool:
    largest = float(some.nan_to_num().abs().max())
    return torch.allclose(some, others, rtol=0, atol=TOLERANCE * largest, equal_nan=True)


def _normalized(logits: Float[Tensor, "b C"]) -> str:
    """Return what the rows are where all are probabilities or their logarithms, "" where they are not."""
    if len(logits) < 2 or logits.shape[1] < 2:
        return ""
    if bool((logits >= 0).all()) and bool(((logits.sum(1) - 1).abs() < 1e-4).all()):
        return "probabilities, which sum to 1"
    if bool((logits.logsumexp(1).abs() < 1e-4).all()):
        return "logarithms of probabilities, which sum to 1"
    return ""


def _not_finite(name: str, logits: Float[Tensor, "b C"], segments: Segments) -> str:
    """Return for which bag the logits are not finite before any training, "" if there is none."""
    bad: Bool[Tensor, " b"] = ~logits.isfinite().all(1)
    if not bad.any():
        return ""
    row = int(bad.int().argmax())
    return (
        f"correct {name}, which returns {logits[row].tolist()} before any training for a "
        f"bag of {plural(int(segments.lengths[row]), 'instance')}"
    )
