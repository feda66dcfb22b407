"""What a part of another package returned, as a phrase of an error message."""

from __future__ import annotations

from torch import Tensor


def class_name(part: object) -> str:
    """Return the name of a part's class, of a plain module that was adapted that of its own class."""
    return type(getattr(part, "adapted", part)).__name__


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
