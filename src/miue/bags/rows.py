"""Rows that belong to bags, and values of which there is one for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int8, Int64, Shaped

from miue.bags.cells import is_missing, name_of
from miue.common.errors import DataError
from miue.common.values import is_tensor, several

STATES = {**dict.fromkeys(("1", "1.0", "true", "yes"), 1), **dict.fromkeys(("0", "0.0", "false", "no"), 0)}
"""Whether a bag has a label, by the text of the value in lower case."""


@dataclass(frozen=True)
class GroupedRows:
    """Which rows of a table of instances form which bag; bags in order of first appearance.

    Attributes:
        names: id of each of B bags, as text.
        bag: the bag of each of M rows.
    """

    names: tuple[str, ...]
    bag: Int64[np.ndarray, "M"]

    @classmethod
    def of(cls, bag_ids: Any) -> GroupedRows:
        """Return the bags that ``bag_ids``, one for each row, make of the rows.

        Raises:
            DataError: not one id per row, or an id that is missing.

        >>> rows = GroupedRows.of(["b", "a", "b"])
        >>> rows.names, rows.bag.tolist()
        (('b', 'a'), [0, 1, 0])
        """
        ids = np.asarray(plain_values(bag_ids, "bag_ids", "row"), object)
        if ids.ndim != 1:
            raise row_count("bag_ids", "an array with one id for each row", f"shape {ids.shape}")
        if missing := [row for row, value in enumerate(ids) if is_missing(value)]:
            raise DataError(
                item=f"row {missing[0]} of bag_ids",
                wanted="the id of a bag",
                got=repr(ids[missing[0]]) + (f", as in {len(missing):,} rows" if len(missing) > 1 else ""),
                fix="say which bag the row is of, or leave it out",
            )
        number: dict[str, int] = {}
        bag = [number.setdefault(name_of(value), len(number)) for value in ids]
        return cls(tuple(number), np.array(bag, np.int64))

    def places(self, place_of: Mapping[str, int]) -> Int64[np.ndarray, "M"]:
        """Return for each row the place of its bag, such as its row in a table of bags.

        Args:
            place_of: by the name of each bag.

        >>> GroupedRows.of(["b", "a", "b"]).places({"a": 0, "b": 5}).tolist()
        [5, 0, 5]
        """
        return np.array([place_of[name] for name in self.names], np.int64)[self.bag]

    def split(self, rows: Shaped[np.ndarray, "M *shape"]) -> list[np.ndarray]:
        """Return the rows of each bag, in their order.

        Raises:
            DataError: another number of rows.
        """
        self._check(len(rows), "X")
        order = self.bag.argsort(kind="stable")
        return np.split(rows[order], np.bincount(self.bag).cumsum()[:-1])

    def one_of_each(self, values: Shaped[np.ndarray, "rows *K"], what: str) -> Shaped[np.ndarray, "B *K"]:
        """Return the value of each bag, which all of its rows share.

        Raises:
            DataError: another number of values, or a bag whose rows differ.
        """
        self._check(len(values), what)
        _, first = np.unique(self.bag, return_index=True)
        differ = np.flatnonzero((values != values[first][self.bag]).reshape(len(values), -1).any(1))
        if len(differ):
            row = int(differ[0])
            name, expected = self.names[self.bag[row]], values[first[self.bag[row]]]
            raise DataError(
                item=f"{what}, bag {name!r}, row {row}",
                wanted=f"{expected} as in the bag's first row",
                got=str(values[row]),
                fix="give all rows of a bag the same value",
            )
        of_bags: np.ndarray = values[first]
        return of_bags

    def _check(self, count: int, what: str) -> None:
        if count != len(self.bag):
            raise row_count(what, f"{len(self.bag)} rows, as many as bag_ids", str(count))


def row_count(item: str, wanted: str, got: str) -> DataError:
    """Return the error for values that are not one for each row or bag."""
    return DataError(item=item, wanted=wanted, got=got, fix="give as many as there are, in their order")


def plain_values(values: Any, what: str = "labels", of_each: str = "bag") -> list[Any]:
    """Return plain values of a list, an array, a tensor, a column of a data frame, a generator or ``Labels``.

    Raises:
        DataError: what has no order or several columns, a single value, such as a text, or bytes that are no text.

    >>> plain_values(np.array([b"a", b"b"])), plain_values(value for value in (1, 2))
    (['a', 'b'], [1, 2])
    """
    if is_tensor(values):
        import torch

        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    listed = several(values)
    shape = tuple(getattr(values, "shape", ())) if listed is None or isinstance(values, np.ndarray) else ()
    if listed is None or len(shape) > 1:
        raise DataError(
            item=f"the {what}",
            wanted=f"one for each {of_each}, in their order",
            got=f"shape {shape}" if shape else f"a value of type {type(values).__name__}",
            fix="pass a list, an array (n,), or one column of a data frame",
        )
    plain = values.tolist() if hasattr(values, "tolist") else listed
    plain = [value.item() if isinstance(value, np.generic) or is_tensor(value) else value for value in plain]
    try:
        return [value.decode() if isinstance(value, bytes) else value for value in plain]
    except UnicodeDecodeError as error:
        raise DataError(
            item=f"the {what}",
            wanted="text in UTF-8",
            got=repr(error.object),
            fix="decode them: value.decode('latin-1'), say",
        ) from error


def read_states(values: Any, bags: int, labels: int) -> Int8[np.ndarray, "B K"]:
    """Return of each bag and label 1 or 0, −1 where the value is missing.

    Raises:
        DataError: another shape, or another value.

    >>> read_states([[1, None], [0.0, True]], 2, 2).tolist()
    [[1, -1], [0, 1]]
    """
    cells = np.asarray(values, object)
    if cells.shape != (bags, labels):
        wanted, fix = f"{bags:,} bags with {labels} labels each", "pass one row for each bag, None where unknown"
        raise DataError(item="the labels", wanted=wanted, got=f"shape {cells.shape}", fix=fix)
    states = np.array(
        [-1 if is_missing(one) else STATES.get(str(one).lower(), -2) for one in cells.ravel()], np.int8
    )
    wrong = np.flatnonzero(states == -2)
    if len(wrong):
        row, column = divmod(int(wrong[0]), labels)
        item, got = f"label {column} of bag {row}", repr(cells[row, column])
        raise DataError(item=item, wanted="1, 0, or None where unknown", got=got, fix="state it as one of these")
    return states.reshape(bags, labels)
