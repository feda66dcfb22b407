"""Versions of a method's numbers, which results are stamped with."""

from __future__ import annotations

from collections.abc import Mapping

from miue.common.values import Option

FIRST = 1
VERSIONS = {
    "daedl": 2,
    "i-edl": 2,
    "mirel": 2,
}
"""Raised in every commit that changes what a method's trainings come to by more than rounding.

A method that is not here has its first version. 2: the gradient of the KL term keeps its digits in float32.
"""


def version_of(method: str, options: Mapping[str, Option]) -> int:
    """Return the version of a method's numbers, of an ensemble that of its members where that is newer.

    >>> version_of("deterministic", {}), version_of("deep-ensemble", {"method.member": "mirel"})
    (1, 2)
    """
    return max(VERSIONS.get(str(name), FIRST) for name in (method, options.get("method.member")))
