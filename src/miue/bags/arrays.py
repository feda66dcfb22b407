"""The instances of bags as arrays: what one bag may be, and how those of several are kept together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from miue.common.errors import DataError, first_repeated, lacking


@runtime_checkable
class InstanceArray(Protocol):
    """What all instances of a dataset are read from, a span at a time: an array, or files behind one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(M, D) or (M, H, W, channels)."""

    @property
    def dtype(self) -> np.dtype:
        """Of the instances."""

    def __len__(self) -> int: ...

    def __getitem__(self, span: Any) -> Any: ...

    def __array__(self, dtype: Any = None) -> np.ndarray: ...


class ChainedInstances:
    """The instances of several arrays, one after another, each left where it is.

    Args:
        parts: arrays or files of instances of one shape.
    """

    def __init__(self, parts: Sequence[InstanceArray]) -> None:
        self.parts = tuple(parts)
        self.ends = np.array([len(part) for part in parts], np.int64).cumsum()
        self.shape = (int(self.ends[-1]), *parts[0].shape[1:])
        self.dtype = np.result_type(*(part.dtype for part in parts))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, span: Any) -> np.ndarray:
        """Return the instances of a slice of consecutive ones, (n, *shape)."""
        if not isinstance(span, slice) or span.step not in (None, 1):
            raise TypeError("chained instances are read by slices of consecutive ones")
        start, stop, _ = span.indices(len(self))
        begins = self.ends - [len(part) for part in self.parts]
        spans = [
            np.asarray(part[max(start - begin, 0) : min(stop, end) - begin]).astype(self.dtype, copy=False)
            for part, begin, end in zip(self.parts, begins.tolist(), self.ends.tolist(), strict=True)
            if start < end and begin < stop
        ]
        if not spans:
            return np.zeros((0, *self.shape[1:]), self.dtype)
        return spans[0] if len(spans) == 1 else np.concatenate(spans)

    def __array__(self, dtype: Any = None) -> np.ndarray:
        """Read everything."""
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)


def chain(parts: Sequence[InstanceArray]) -> InstanceArray:
    """Return all instances of ``parts`` as one array: copied where all are in memory, else read when asked for."""
    if len(parts) == 1:
        return parts[0]
    if all(type(part) is np.ndarray for part in parts):
        return np.concatenate([np.asarray(part) for part in parts])
    return ChainedInstances(parts)


def bag_array(bag: Any, name: str) -> np.ndarray:
    """Return the instances of a bag as an array (n, D) or (n, H, W, channels): bytes, half or single precision.

    Raises:
        DataError: what is no array of numbers.
    """
    if np.ma.is_masked(bag):
        raise _not_numbers(name, f"a masked array, {np.ma.count_masked(bag)} of whose values are masked")
    try:
        array = _dense(bag)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _not_numbers(name, str(error).split("\n")[0]) from error
    if array.dtype.kind not in "fiub":
        what = f"{array.dtype} of shape {array.shape}"
        raise _not_numbers(name, what if array.shape else f"a value of type {type(bag).__name__}")
    if array.dtype != np.uint8 and array.dtype != np.float16:
        with np.errstate(over="ignore"):  # infinity, which is refused
            array = array.astype(np.float32, copy=False)
    return array[..., None] if array.ndim == 3 else array


def _dense(bag: Any) -> np.ndarray:
    """Return an array, a tensor or a sparse matrix as an array."""
    if isinstance(bag, Tensor):
        bag = bag.detach().to_dense().cpu()
        array: np.ndarray = (bag.float() if bag.dtype == torch.bfloat16 else bag).numpy()
        return array
    return np.asarray(bag.toarray() if hasattr(bag, "toarray") else bag)


def _not_numbers(name: str, got: str) -> DataError:
    return DataError(
        item=f"bag {name!r}",
        wanted="an array (n, D) of features or (n, H, W[, channels]) of images",
        got=got,
        fix="give all rows of a bag the same number of features, each a number",
    )


def check_bags(arrays: list[np.ndarray], ids: tuple[str, ...]) -> None:
    """Raise unless the arrays can be the bags of one dataset, under names that are unique.

    Raises:
        DataError: no bags, a repeated name, bags of different width, bytes beside other numbers, or a bag that
            cannot be used.
    """
    if not arrays:
        raise lacking("the list of bags", "at least one bag", "pass some bags")
    if (twice := first_repeated(ids)) is not None:
        raise DataError(
            item=f"bag {twice!r}", wanted="a unique id", got="the same id twice", fix="rename one of the two"
        )
    for name, array in zip(ids, arrays, strict=True):
        check_bag(name, array, arrays[0].shape[1:])
        if (array.dtype == np.uint8) != (arrays[0].dtype == np.uint8):
            raise DataError(
                item=f"bag {name!r}",
                wanted=f"{arrays[0].dtype} as in the bags before it",
                got=str(array.dtype),
                fix="give all images as bytes from 0 to 255, or all as numbers on one scale",
            )


def check_bag(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise unless ``array`` is a usable bag whose instances have the given shape.

    Raises:
        DataError: not (n, D) or (n, H, W, channels), empty, another shape, or a value that is not finite.
    """
    if array.ndim not in (2, 4):
        raise DataError(
            item=f"bag {name!r}",
            wanted="an array (n, D) of features or (n, H, W[, channels]) of images",
            got=f"shape {array.shape}",
            fix="reshape it, one row per instance; pass a single bag as a list of one, [bag]",
        )
    if not len(array):
        raise lacking(f"bag {name!r}", "at least one instance", "drop it or give it instances")
    if not all(shape):
        raise DataError(
            item=f"bag {name!r}",
            wanted="features of at least one number",
            got=f"shape {array.shape}",
            fix="check how the features are computed",
        )
    if array.shape[1:] != shape:
        raise DataError(
            item=f"bag {name!r}",
            wanted=f"instances of shape {shape} as in the bags before it",
            got=str(array.shape[1:]),
            fix="use one feature extractor for all bags",
        )
    if array.dtype != np.uint8:
        finite = np.isfinite(array).reshape(len(array), -1).all(1)
        if not finite.all():
            rows = np.flatnonzero(~finite)
            raise DataError(
                item=f"bag {name!r}, row {rows[0]}",
                wanted="finite features",
                got=f"NaN or infinity in {len(rows)} of {len(array)} rows",
                fix="extract these features again, or drop the rows",
            )
