"""Shapes written in signatures are checked for each new combination of types and shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import jaxtyping
import numpy as np
import pytest
import torch
from beartype import beartype
from jaxtyping import Float32, TypeCheckError
from shape_checks import jaxtyped
from torch import Tensor

F = TypeVar("F")


def checked(function: F) -> F:
    decorated: F = jaxtyped(function, typechecker=beartype)
    return decorated


@checked
def double(values: Float32[Tensor, "n D"], times: int = 2, *, length: int | None = None) -> Float32[Tensor, "n D"]:
    return (values * times)[:length]


@checked
@dataclass
class Pair:
    first: Float32[Tensor, "n"]
    second: Float32[Tensor, "n"]


class Both:
    """Functions that are reached through a class."""

    def __init__(self, values: Tensor) -> None:
        self._values = values

    def _get(self) -> Float32[Tensor, "n"]:
        return self._values

    values = checked(property(_get))

    @checked
    @classmethod
    def of(cls, values: Float32[Tensor, "n"]) -> Both:
        return cls(values)

    @checked
    @staticmethod
    def first(values: list[Float32[Tensor, "n"]]) -> Float32[Tensor, "n"]:
        return values[0]


def test_a_shape_that_comes_after_right_ones_is_checked() -> None:
    for size in (3, 5, 3):
        assert double(torch.ones(size, 2)).shape == (size, 2)
    anything: list[Any] = [torch.ones(3), torch.ones(3, 2, dtype=torch.float64), np.ones((3, 2), np.float32)]
    for wrong in anything:
        with pytest.raises(TypeCheckError, match="parameters of .*double"):
            double(wrong)
    with pytest.raises(TypeCheckError, match="parameters of .*double"):
        double(torch.ones(3, 2), 2.5)  # type: ignore[arg-type]


def test_a_result_that_comes_after_right_ones_is_checked() -> None:
    assert double(torch.ones(7, 2), length=7).shape == (7, 2)
    for _ in range(2):
        with pytest.raises(TypeCheckError, match="return value of .*double"):
            double(torch.ones(7, 2), length=5)


def test_a_wrong_shape_is_refused_each_time() -> None:
    for _ in range(3):
        with pytest.raises(TypeCheckError):
            double(torch.ones(11))


def test_records_properties_and_functions_of_a_class_are_checked() -> None:
    ones = torch.ones(3)
    assert Pair(ones, ones).second is Both.of(ones).values is Both.first([ones])
    with pytest.raises(TypeCheckError):
        Pair(ones, torch.ones(2))
    with pytest.raises(TypeCheckError):
        Both.of(torch.ones(3, 2))
    with pytest.raises(TypeCheckError):
        _ = Both(torch.ones(3, 2)).values
    with pytest.raises(TypeCheckError):
        Both.first([torch.ones(3, 2)])


def test_a_function_within_a_call_is_checked_with_what_that_call_gave_it() -> None:
    def add(number: int) -> Tensor:
        @checked
        def added(values: Float32[Tensor, "n"]) -> Float32[Tensor, "n"]:
            return values + number

        assert added(torch.ones(1, dtype=torch.float32)) == 1 + number
        with pytest.raises(TypeCheckError):
            added(torch.ones(1, 1))
        return added(torch.ones(2))

    assert add(1).tolist() == [2, 2]
    assert add(2).tolist() == [3, 3]


def test_what_was_not_checked_does_not_count_as_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    double(torch.ones(2, 2, 2))
    monkeypatch.undo()
    with pytest.raises(TypeCheckError):
        double(torch.ones(2, 2, 2))
