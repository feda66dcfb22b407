"""Which cases of a test the fast suite runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(cases: Iterable[Any], fast: Collection[Any]) -> list[Any]:
    """Return the cases for ``parametrize``; all but the fast ones are marked slow."""
    unfit = [case for case in cases if case not in fast]
    return [*fast, *(pytest.param(*_values(case), marks=pytest.mark.slow) for case in unfit)]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
