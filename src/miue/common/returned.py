"""What a part of another package returned, as a phrase of an error message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from miue.common.errors import ModelError


def class_name(part: object) -> str:
    """Return the name of a part's class, of a plain module that was adapted that of its own class."""
    return type(getattr(part, "adapted", part)).__name__


def is_of_others(part: object) -> bool:
    """Return whether the class of a network or encoder is not of miue, or it adapts a module that is not."""
    inner = getattr(part, "adapted", getattr(part, "module", part))
    return type(inner).__module__.partition(".")[0] not in ("miue", "torch", "torchmil")


@contextmanager
def refusing_changes(kind: str, part: object, tensors: Sequence[Tensor]) -> Iterator[None]:
    """Raise where a part changes in place what it is given, which others are given after it.

    Those may be the bags themselves in memory. In inference mode torch counts no changes; what is used there was
    trained, where it does.

    Raises:
        ModelError: it does.
    """
    counted = [tensor for tensor in tensors if not tensor.is_inference()]
    before = [tensor._version for tensor in counted]
    yield
    if [tensor._version for tensor in counted] != before:
        raise ModelError(
            item=f"{kind} {class_name(part)!r}",
            wanted="what it is given to stay as it is, since others get it, too",
            got="numbers changed in place, as by x -= y, x[0] = y or x.relu_()",
            fix="compute a new tensor (x = x - y), or change a copy (x = x.clone())",
        )


def describe_returned(value: object, batch_axes: int = 0) -> str:
    """Return what something is, with the shape of a tensor less its first ``batch_axes``.

    >>> describe_returned((1, 2))
    'a tuple of 2'
    """
    if isinstance(value, Tensor):
        kind = "" if value.is_floating_point() else f" of {str(value.dtype).removeprefix('torch.')}"
        return f"a tensor{kind} of shape {tuple(value.shape[batch_axes:])}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a value of type {type(value).__name__}"
