"""The names of features, as the columns of tables and data frames have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from miue.common.errors import DataError, first_few


def frame_columns(bag: Any) -> tuple[str, ...]:
    """Return the names of the columns of a data frame; none of an array, or where some are no texts.

    >>> frame_columns([[1.0, 2.0]])
    ()
    """
    names = getattr(bag, "column_names", getattr(bag, "columns", ()))  # a table of Arrow, or a data frame
    if callable(names) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(map(str, names))


def common_feature_names(names: Sequence[tuple[str, ...]], ids: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the features of all bags; none where some bag has none.

    Args:
        names: of each bag.
        ids: of the bags, for messages.

    Raises:
        DataError: a bag whose features have other names, or another order.
    """
    first, *others = names or [()]
    if not all(names):
        return ()
    for name, own in zip(ids[1:], others, strict=True):
        if own != first:
            raise DataError(
                item=f"bag {name!r}",
                wanted="the columns of the bags before it, in their order",
                got=describe_difference(first, own),
                fix="choose the same columns of all bags",
            )
    return first


def check_feature_order(names: Sequence[str], expected: Sequence[str], item: str) -> None:
    """Raise where features are in another order than those before them; nothing where names are not known.

    Raises:
        DataError: the same names in another order.
    """
    if is_reordered(names, expected):
        raise DataError(
            item=item,
            wanted="features in the order of the others",
            got=describe_difference(expected, names),
            fix="put the columns into one order",
        )


def is_reordered(names: Sequence[str], expected: Sequence[str]) -> bool:
    """Return whether these are the names that are expected, in another order.

    >>> is_reordered(["b", "a"], ["a", "b"]), is_reordered(["a", "c"], ["a", "b"]), is_reordered([], ["a"])
    (True, False, False)
    """
    return tuple(names) != tuple(expected) and sorted(names) == sorted(expected)


def describe_difference(expected: Sequence[str], names: Sequence[str]) -> str:
    """Return what is different of the names of features.

    >>> describe_difference(["a", "b"], ["b", "a"]), describe_difference(["a", "b"], ["a", "b", "c"])
    ("another order: 'b' where 'a' is expected", "'c' unexpected")
    >>> describe_difference(["a", "b"], ["a", "c"])
    "'b' missing, 'c' unexpected"
    """
    if is_reordered(names, expected):
        own, other = next(pair for pair in zip(names, expected, strict=True) if pair[0] != pair[1])
        return f"another order: {own!r} where {other!r} is expected"
    ours, theirs = set(expected), set(names)
    lacking = [name for name in expected if name not in theirs]
    extra = [name for name in names if name not in ours]
    parts = [
        f"{first_few(map(repr, found))} {what}"
        for found, what in ((lacking, "missing"), (extra, "unexpected"))
        if found
    ]
    return ", ".join(parts)
