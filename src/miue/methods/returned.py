"""What a network and a method return, checked: those of other packages may return anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import Float, Shaped
from torch import Tensor

from miue.bags.segments import Segments, segment_sum
from miue.common.double_precision import in_double
from miue.common.errors import DataError, ModelError
from miue.common.returned import class_name, describe_returned
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
    got = "" if isinstance(projection, tuple | list) else describe_returned(projection)
    for part in () if got else projection:  # type: ignore[attr-defined]  # a tuple or a list
        if not isinstance(part, Tensor) or part.shape[:1] != (instances,):
            got = f"{describe_returned(part)} in it"
    if got:
        wanted = f"a tuple of tensors, each with a row for each of {instances} instances, from project()"
        raise _wrong("network", network, wanted, got)
    return tuple(projection)  # type: ignore[arg-type]


def check_scores(
    network: object, scores: object, bags: int, instances: int, width: int, *, has_attention: bool
) -> Scores:
    """Return what the function ``score`` of a network returned.

    Args:
        network: for the message.
        scores: what was returned.
        bags: B.
        instances: N.
        width: of the logits.
        has_attention: whether the network says that it returns attention.

    Raises:
        ModelError: no ``Scores`` with so many logits for each bag, or no weights of instances where it says so.
    """
    got = ""
    if not isinstance(scores, Scores):
        got = describe_returned(scores)
    elif not _are_scores(scores.logits, bags) or scores.logits.shape[1] != width:
        got = f"logits: {describe_returned(scores.logits)}"
    elif has_attention and not _are_scores(scores.attention, instances):
        got = f"attention: {describe_returned(scores.attention)}"
    if got:
        attention = f" and attention of shape ({instances}, K)" if has_attention else ""
        wanted = (
            f"Scores with logits of shape ({bags}, {width}){attention} for {bags} bags of {instances} instances"
        )
        raise _wrong("network", network, wanted, got)
    assert isinstance(scores, Scores)
    return scores


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
    off = (sums - 1).abs().amax(1)
    if bool((off <= TOLERANCE).all()) and bool((attention >= 0).all()):
        return attention
    worst = int(off.argmax())
    got = f"a sum of {sums[worst][(sums[worst] - 1).abs().argmax()]:.4g}, least weight {attention.min():.4g}"
    raise _wrong("network", network, "attention of at least 0 that sums to 1 over each bag", got)


def check_distribution(method: object, distribution: object, count: int, classes: int) -> PredictiveDistribution:
    """Return what the function ``distribution`` or ``combine`` of a method returned.

    Raises:
        ModelError: no distribution over the classes for each of ``count`` items, or one of another kind than those
            that tables of predictions hold.
    """
    got, fix = describe_returned(distribution), FIX
    if type(distribution) in KINDS:
        assert isinstance(distribution, PredictiveDistribution)
        shape = tuple(distribution.probabilities.shape)
        if shape == (count, classes):
            return distribution
        got = f"one of shape {shape}"
    elif isinstance(distribution, PredictiveDistribution):
        fix = (
            "return Draws(probabilities, expected_entropy) of it, which is all that is kept of other distributions"
        )
    kinds = f"a Categorical, Draws or Dirichlet of {count} items and {classes} classes"
    raise _wrong("method", method, f"{kinds} from distribution() or combine()", got, fix)


@contextmanager
def naming_method(method: object, network: object) -> Iterator[None]:
    """Name the method and the network where what they make is no distribution, such as logits or NaN.

    Raises:
        ModelError: it is none.
    """
    try:
        yield
    except DataError as error:
        raise ModelError(
            item=f"method {class_name(method)!r} with network {class_name(network)!r}",
            wanted=f"a distribution of {error.wanted}, from distribution() or combine()",
            got=f"{error.got} in {error.item}",
            fix=FIX,
        ) from error


def no_pass(method: object) -> ModelError:
    """Return the error for a method whose function ``passes`` yielded nothing to predict with."""
    return _wrong("method", method, "at least one method to run from passes()", "none")


def check_loss(method: object, loss: object) -> Shaped[Tensor, "*one"]:
    """Return what the function ``loss`` of a method returned.

    Raises:
        ModelError: no tensor of one number that depends on the weights.
    """
    if isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad:
        return loss
    is_one = isinstance(loss, Tensor) and loss.numel() == 1
    got = "a tensor without a gradient" if is_one else describe_returned(loss)
    trained = not is_one or any(parameter.requires_grad for parameter in method.parameters())  # type: ignore[attr-defined]
    fix = FIX if trained else "train a parameter: network, encoder and method have none with requires_grad=True"
    raise _wrong("method", method, "a tensor of one number, with a gradient, from loss()", got, fix)


def check_log_probabilities(
    method: object, network: MILNetwork, log_probabilities: object, bags: int
) -> Float[Tensor, "B C"]:
    """Return the log of the expected class probabilities that a method returned; NaN is left to the loss.

    Args:
        method: for the message.
        network: whose logits it takes.
        log_probabilities: what was returned.
        bags: B.

    Raises:
        ModelError: not one for each bag and class, or of probabilities that do not sum to one.
    """
    got, classes = "", network.num_classes
    if not isinstance(log_probabilities, Tensor) or tuple(log_probabilities.shape) != (bags, classes):
        got = describe_returned(log_probabilities)
    elif ((total := in_double(log_probabilities).exp().sum(1)) - 1).abs().gt(TOLERANCE).any():
        got = f"probabilities that sum to {float(total[(total - 1).abs().argmax()]):.4g}"
    if got:
        raise ModelError(
            item=f"method {type(method).__name__!r} with network {class_name(network)!r}",
            wanted=f"logs of probabilities that sum to 1, of shape ({bags}, {classes}), from log_probabilities()",
            got=got,
            fix=FIX,
        )
    assert isinstance(log_probabilities, Tensor)
    return log_probabilities


def _wrong(kind: str, part: object, wanted: str, got: str, fix: str = FIX) -> ModelError:
    """Return the error for a network or method that returned something else than wanted."""
    return ModelError(item=f"{kind} {class_name(part)!r}", wanted=wanted, got=got, fix=fix)
