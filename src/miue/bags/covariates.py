"""Covariates of bags, such as age and sex: how their cells become numbers that a network reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float32, Float64
from pydantic import BaseModel, ConfigDict, Field

from miue.bags.cells import is_missing, is_number, known_text, name_of, sorted_names
from miue.bags.dataset import BagDataset
from miue.common.errors import DataError, first_few, missing_column
from miue.common.text import plural

FEWEST_TO_LEAK = 10
"""Known bags from which a value for each class is hardly chance."""

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Covariate(BaseModel):
    """How a column of the label table becomes numbers, as the training bags have it.

    A number is standardized, and 0 where it is unknown. A category has a column for each of its levels, all of
    which are 0 for another level. Where training bags lack a value, a last column says that it is unknown.

    Attributes:
        name: of the column.
        levels: of a category; none of a number.
        has_unknown: whether training bags lack it.
        mean, deviation: of the numbers of the training bags.
        low, high: the range of these.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    levels: tuple[str, ...] = ()
    has_unknown: bool = False
    mean: Finite = 0.0
    deviation: Annotated[Finite, Field(gt=0)] = 1.0
    low: Finite = 0.0
    high: Finite = 0.0

    @classmethod
    def fit(cls, name: str, cells: Mapping[str, str]) -> Covariate:
        """Return how the cells of training bags become numbers: a number where most are numbers, else a category.

        Raises:
            DataError: a cell that is no number among numbers, or about as many levels as bags.

        >>> age = Covariate.fit("age", {"s1": "60", "s2": "40", "s3": ""})
        >>> age.encode({"s4": "70", "s5": ""}).tolist()
        [[2.0, 0.0], [0.0, 1.0]]
        """
        known = [cell for cell in cells.values() if cell]
        has_unknown = len(known) < len(cells)
        if sum(map(is_number, known)) * 2 > len(known):
            numbers = _numbers(name, {bag: cell for bag, cell in cells.items() if cell})
            spread, low, high = float(numbers.std()) or 1.0, float(numbers.min()), float(numbers.max())
            mean = float(numbers.mean())
            return cls(name=name, has_unknown=has_unknown, mean=mean, deviation=spread, low=low, high=high)
        levels = tuple(sorted_names(known))
        if not levels or len(levels) * 2 > max(len(known), 4):
            raise DataError(
                item=f"covariate {name!r}",
                wanted="numbers, or a category of which most levels have several training bags",
                got=f"{plural(len(levels), 'level')} in {plural(len(known), 'bag')} ({first_few(levels)})",
                fix="leave it out, or join its levels",
            )
        return cls(name=name, levels=levels, has_unknown=has_unknown)

    @property
    def in_words(self) -> str:
        """Its name, and the levels or the range that training bags have."""
        return f"{self.name} ({', '.join(self.levels) if self.levels else f'{self.low:g} to {self.high:g}'})"

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return (len(self.levels) or 1) + self.has_unknown

    def encode(self, cells: Mapping[str, str]) -> Float32[np.ndarray, "B K"]:
        """Return the numbers of some bags, from the text of each, "" where it is unknown.

        Raises:
            DataError: a cell of a number that holds something else.
        """
        is_unknown = np.array([not cell for cell in cells.values()], bool)[:, None]
        if self.levels:
            values = np.array([[cell == level for level in self.levels] for cell in cells.values()], np.float32)
        else:
            numbers = _numbers(self.name, cells)[:, None]
            values = np.where(is_unknown, 0, (numbers - self.mean) / self.deviation)
        columns = [values.reshape(len(cells), -1), *([is_unknown] if self.has_unknown else [])]
        return np.concatenate(columns, 1).astype(np.float32)

    def unusual(self, cells: Mapping[str, str]) -> str:
        """Return which bags have a value unlike those of training, "" for none.

        That is another level, a number beyond the range by more than a standard deviation, or an unknown value
        where no training bag lacks it.

        Raises:
            DataError: as ``encode`` does.
        """
        if self.levels:
            is_other = np.array([cell not in ("", *self.levels) for cell in cells.values()], bool)
        else:
            numbers = _numbers(self.name, cells)
            is_other = (numbers < self.low - self.deviation) | (numbers > self.high + self.deviation)
        others = [
            f"{bag}: {cell or 'unknown'}"
            for (bag, cell), other in zip(cells.items(), is_other, strict=True)
            if other or (not cell and not self.has_unknown)
        ]
        return f"{plural(len(others), 'bag')} ({first_few(others)})" if others else ""


def _numbers(name: str, cells: Mapping[str, str]) -> Float64[np.ndarray, "B"]:
    """Return the numbers in the cells of bags, NaN where one is unknown."""
    for bag, cell in cells.items():
        if cell and not (is_number(cell) and np.isfinite(float(cell))):
            item, wanted = (
                f"covariate {name!r} of bag {bag!r}",
                "a number without a unit, or nothing where unknown",
            )
            raise DataError(
                item=item, wanted=wanted, got=repr(cell), fix="correct the cell, or leave the covariate out"
            )
    return np.array([float(cell) if cell else np.nan for cell in cells.values()], np.float64)


def with_covariates(bags: BagDataset, values: Mapping[str, Collection[Any]]) -> BagDataset:
    """Return bags with covariates: numbers or words by the name of each, one for each bag, None where unknown.

    Raises:
        DataError: not one value for each bag.

    >>> bags = BagDataset.from_arrays([np.ones((2, 3)), np.zeros((1, 3))], [0, 1])
    >>> with_covariates(bags, {"age": [61, None]}).covariates
    {'age': ('61', '')}
    """
    texts = {
        name: tuple("" if is_missing(value) else known_text(name_of(value)) for value in of_bags)
        for name, of_bags in values.items()
    }
    for name, cells in texts.items():
        if len(cells) != len(bags):
            wanted, got = f"{len(bags):,} values, one for each bag", f"{len(cells):,}"
            raise DataError(item=f"covariate {name!r}", wanted=wanted, got=got, fix="pass None where unknown")
    return replace(bags, covariates=texts, encoded_covariates=None)


def encode_covariates(bags: BagDataset, covariates: Sequence[Covariate]) -> BagDataset:
    """Return bags whose batches have the numbers of covariates after the features of each instance.

    Raises:
        DataError: bags without one of the covariates, images, or a cell that is no number.
    """
    if not covariates:
        return replace(bags, encoded_covariates=None)
    names = [one.name for one in covariates]
    if any(name not in bags.covariates for name in names):
        wanted, fix = (
            f"the covariates {', '.join(names)}",
            "load the bags with these covariates=NAMES and a table of them",
        )
        raise missing_column("the bags", wanted, bags.covariates, fix)
    if len(bags.instance_shape) != 1:
        wanted, got = "feature vectors beside covariates", f"images of shape {bags.instance_shape}"
        raise DataError(item="the bags", wanted=wanted, got=got, fix="extract features first")
    encoded = np.concatenate([one.encode(bags.covariate(one.name)) for one in covariates], 1)
    return replace(bags, encoded_covariates=encoded)


def leaking_covariates(bags: BagDataset) -> list[str]:
    """Return the covariates each of whose values is of bags of one class alone, or that are the label itself."""
    return [name for name, cells in bags.covariates.items() if _leaks(bags, list(map(known_text, cells)))]


def _leaks(bags: BagDataset, cells: Sequence[str]) -> bool:
    known = np.array([bool(cell) for cell in cells]) & bags.labels.known
    values = [cell for cell, is_known in zip(cells, known, strict=True) if is_known]
    labels = bags.labels.values[known]
    if len(values) < FEWEST_TO_LEAK or len(set(labels.tolist())) < 2:
        return False
    if not all(map(is_number, values)):
        return len(set(values)) * 2 <= len(values) and len(set(zip(values, labels, strict=True))) == len(
            set(values)
        )
    numbers = np.array(values, np.float64)
    if bags.outcomes is not None:
        outcomes = bags.outcomes.values[known]
        return bool(numbers.std() and outcomes.std() and abs(np.corrcoef(numbers, outcomes)[0, 1]) > 1 - 1e-6)
    spans = sorted((numbers[labels == label].min(), numbers[labels == label].max()) for label in np.unique(labels))
    return all(before[1] < after[0] for before, after in pairwise(spans))
