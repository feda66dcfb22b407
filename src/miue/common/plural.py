"""Counts in sentences."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "bag"), plural(2000, "positive bag"), plural(3, "patch"), plural(2, "class"), plural(20, "epoch")
    ('1 bag', '2,000 positive bags', '3 patches', '2 classes', '20 epochs')
    """
    ending = "" if count == 1 else "es" if noun.endswith(("s", "tch", "x")) else "s"
    return f"{count:,} {noun}{ending}"


def is_or_are(count: int) -> str:
    """Return the verb of a count: "1 is", "2 are".

    >>> [f"{count} {is_or_are(count)}" for count in range(3)]
    ['0 are', '1 is', '2 are']
    """
    return "is" if count == 1 else "are"
