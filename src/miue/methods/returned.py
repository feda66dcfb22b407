"""What a network and a method return, checked: those of other packages may return anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor

from miue.bags import Segments, segment_sum
from miue.common.errors import DataError, ModelError
from miue.common.returned import class_name, describe_returned
from miue.common.tensors import in_double
from miue.distributions import Categorical, Dirichlet, Draws, PredictiveDistribution
from miue.networks import MILNetwork, Projection, Scores

TOLERANCE = 1e-3  # of the sum of probabilities, as of a ``Categorical``
KINDS = (Categorical, Draws, Dirichlet)  # no classes derived from them: what is read back is one of these
FIX = "correct what it returns; docs/howto/own_network.md has examples"


def check_projection(network: object, projection: object, instances: int) -> Projection:
    """Return what the function ``project`` of a network returned.

    Raises:
        ModelError: no tensors in a tuple, or one without a row for each of so many instances.
    """
    parts: list[Any] = list(projection) if isinstance(projection, tuple | list) else [projection]
    wrong = [part for part in parts if not isinstance(part, Tensor) or part.shape[:1] != (instances,)]
    if isinstance(projection, tuple | list) and not wrong:
        return tuple(parts)
    wanted = f"a tuple of tensors, each with a row for each of {instances} instances, from project()"
    raise wrong_return(f"network {class_name(network)!r}", wanted, describe_returned((wrong or parts)[0]))


def check_scores(
    network: object, scores: object, bags: int, instances: int, width: int, *, has_attention: bool
) -> Scores:
    """Return what the function ``score`` of a network returned, if it has the shapes that it should.

    Raises:
        ModelError: no ``Scores`` with so many logits for each bag, or no weights of instances where it says so.
    """
    if not isinstance(scores, Scores):
        got = describe_returned(scores)
    elif not _are_scores(scores.logits, bags) or scores.logits.shape[1] != width:
        got = f"logits: {describe_returned(scores.logits)}"
    elif has_attention and not _are_scores(scores.attention, instances):
        got = f"attention: {describe_returned(scores.attention)}"
    else:
        return scores
    attention = f" and attention of shape ({instances}, K)" if has_attention else ""
    wanted = f"Scores with logits of shape ({bags}, {width}){attention} for {bags} bags of {instances} instances"
    raise wrong_return(f"network {class_name(network)!r}", wanted, got)


def _are_scores(values: object, rows: int) -> bool:
    """Return whether these are so many rows of numbers that may have a gradient."""
    return isinstance(values, Tensor) and values.is_floating_point() and values.dim() == 2 and len(values) == rows


def check_attention(network: object, attention: Float[Tensor, "N K"], segments: Segments) -> Float[Tensor, "N K"]:
    """Return the attention of a network, where it is one: weights of at least 0 that sum to 1 over each bag.

    Raises:
        ModelError: another one, or NaN.
    """
    precise = in_double(attention)  # on the CPU, where the device has no float64
    sums = segment_sum(precise, segments.to(precise.device))
    if bool(((sums - 1).abs() <= TOLERANCE).all() & (attention >= 0).all()):  # one answer of a device to wait for
        return attention
    got = f"sums from {sums.min():.4g} to {sums.max():.4g}, least weight {attention.min():.4g}"
    wanted = "attention of at least 0 that sums to 1 over each bag"
    raise wrong_return(f"network {class_name(network)!r}", wanted, got)


def check_distribution(
    method: object, network: object, make: Callable[[], object], count: int, classes: int
) -> PredictiveDistribution:
    """Return what the function ``distribution`` or ``combine`` of a method returns.

    Args:
        method: for the message.
        network: likewise.
        make: calls the function.
        count: of items.
        classes: C.

    Raises:
        ModelError: no distribution over the classes for each item, such as logits or NaN, or one of another kind
            than those that tables of predictions hold.
    """
    item, fix = f"method {class_name(method)!r} with network {class_name(network)!r}", FIX
    wanted = f"a Categorical, Draws or Dirichlet of {count} items and {classes} classes"
    try:
        distribution = make()
    except DataError as error:
        raise wrong_return(item, f"{wanted}, of {error.wanted}", f"{error.got} in {error.item}") from error
    if not isinstance(distribution, PredictiveDistribution) or type(distribution) not in KINDS:
        if isinstance(distribution, PredictiveDistribution):
            fix = "return Draws(probabilities, expected_entropy) of it, which is what tables keep of others"
        raise wrong_return(item, wanted, describe_returned(distribution), fix)
    if (shape := tuple(distribution.probabilities.shape)) != (count, classes):
        raise wrong_return(item, wanted, f"one of shape {shape}", fix)
    return distribution


def check_loss(method: object, loss: object) -> Shaped[Tensor, "*one"]:
    """Return what the function ``loss`` of a method returned.

    Raises:
        ModelError: no tensor of one number that depends on the weights.
    """
    if isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad:
        return loss
    is_one = isinstance(loss, Tensor) and loss.numel() == 1
    got = "a tensor without a gradient" if is_one else describe_returned(loss)
    raise wrong_return(
        f"method {class_name(method)!r}", "a tensor of one number, with a gradient, from loss()", got
    )


def check_log_probabilities(
    method: object, network: MILNetwork, log_probabilities: object, bags: int
) -> Float[Tensor, "B C"]:
    """Return the log of the expected class probabilities that a method returned; NaN is left to the loss.

    Raises:
        ModelError: not one for each bag and class, or of probabilities that do not sum to one.
    """
    classes = network.num_classes
    if not isinstance(log_probabilities, Tensor) or tuple(log_probabilities.shape) != (bags, classes):
        got = describe_returned(log_probabilities)
    elif ((total := in_double(log_probabilities).exp().sum(1)) - 1).abs().gt(TOLERANCE).any():
        got = f"probabilities that sum to {float(total[(total - 1).abs().argmax()]):.4g}"
    else:
        return log_probabilities
    wanted = f"logs of probabilities that sum to 1, of shape ({bags}, {classes}), from log_probabilities()"
    raise wrong_return(f"method {class_name(method)!r} with network {class_name(network)!r}", wanted, got)


def wrong_return(item: str, wanted: str, got: str, fix: str = FIX) -> ModelError:
    """Return the error for a network or method that returned something else than wanted."""
    return ModelError(item=item, wanted=wanted, got=got, fix=fix)
