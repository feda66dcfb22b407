"""The instances of bags as arrays: what one bag may be, and how those of several are kept together."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from miue.bags.frames import frame_columns, read_columns
from miue.common.errors import DataError, first_repeated, lacking
from miue.common.numbers import in_single
from miue.common.values import is_tensor

BYTES_AT_ONCE = 1 << 27
"""Of the instances that are held where all are read."""


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


class PartedInstances(ABC):
    """All instances of several parts, one after another; those asked for are read when they are.

    Args:
        sizes: instances of each part.
        instance_shape: of every instance.
        dtype: that they are returned in.
    """

    def __init__(
        self, sizes: Sequence[int] | np.ndarray, instance_shape: tuple[int, ...], dtype: np.dtype
    ) -> None:
        self.ends = np.asarray(sizes, np.int64).cumsum()
        self.shape = (int(self.ends[-1]) if len(self.ends) else 0, *instance_shape)
        self.dtype = np.dtype(dtype)

    @property
    def bytes_per_instance(self) -> int:
        """Bytes that an instance takes in memory."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @abstractmethod
    def read_span(self, part: int, start: int, stop: int) -> np.ndarray:
        """Return the instances of a part from ``start`` up to ``stop``."""

    def read_positions(self, part: int, positions: np.ndarray) -> np.ndarray:
        """Return the instances of a part at some positions."""
        first = int(positions.min())
        return self.read_span(part, first, int(positions.max()) + 1)[positions - first]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return the instances of a slice of consecutive ones, or those at an array of positions, (n, *shape).

        Raises:
            TypeError: another index.
            IndexError: a position that there is not.
        """
        if isinstance(index, slice) and index.step in (None, 1):
            return self._span(*index.indices(len(self))[:2])
        positions = np.asarray(index)
        if isinstance(index, slice) or positions.ndim != 1 or positions.dtype.kind not in "iu":
            raise TypeError("instances in parts are read by slices of consecutive ones, or by positions")
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(self):
            raise IndexError(f"a position that is none of the {len(self):,} instances")
        found = np.zeros((len(positions), *self.shape[1:]), self.dtype)
        parts = np.searchsorted(self.ends, positions, side="right")
        for part in np.unique(parts).tolist():
            chosen = np.flatnonzero(parts == part)
            found[chosen] = self.read_positions(part, positions[chosen] - self._begin(part))
        return found

    def _begin(self, part: int) -> int:
        return int(self.ends[part - 1]) if part else 0

    def _span(self, start: int, stop: int) -> np.ndarray:
        spans = [np.zeros((0, *self.shape[1:]), self.dtype)]
        part = int(np.searchsorted(self.ends, start, side="right"))
        while start < stop:
            begin, end = self._begin(part), min(stop, int(self.ends[part]))
            spans.append(self.read_span(part, start - begin, end - begin).astype(self.dtype, copy=False))
            start, part = end, part + 1
        return spans[1] if len(spans) == 2 else np.concatenate(spans)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read everything.

        Raises:
            ValueError: an array without a copy is asked for, as NumPy has it.
        """
        if copy is False:
            raise ValueError("instances that are read from several arrays or files cannot be one array uncopied")
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)


class ChainedInstances(PartedInstances):
    """The instances of several arrays, one after another, each left where it is.

    Args:
        parts: arrays or files of instances of one shape.
    """

    def __init__(self, parts: Sequence[InstanceArray]) -> None:
        self.parts = tuple(parts)
        dtype = np.result_type(*(part.dtype for part in parts))
        super().__init__([len(part) for part in parts], tuple(parts[0].shape[1:]), dtype)

    def read_span(self, part: int, start: int, stop: int) -> np.ndarray:
        """Return the instances of an array from ``start`` up to ``stop``."""
        return np.asarray(self.parts[part][start:stop])

    def read_positions(self, part: int, positions: np.ndarray) -> np.ndarray:
        """Return the instances of an array at some positions, and read no others."""
        return np.asarray(self.parts[part][positions])


class RearrangedInstances(PartedInstances):
    """Spans of one array of instances in another order, each left where it is.

    Args:
        array: of all instances.
        starts: the first instance of each span.
        sizes: instances of each span.
    """

    def __init__(self, array: InstanceArray, starts: np.ndarray, sizes: np.ndarray) -> None:
        super().__init__(sizes, tuple(array.shape[1:]), array.dtype)
        self.array, self.starts, self.sizes = array, starts, sizes

    def read_span(self, part: int, start: int, stop: int) -> np.ndarray:
        """Return the instances of a span from ``start`` up to ``stop``."""
        return np.asarray(self.array[int(self.starts[part]) + start : int(self.starts[part]) + stop])


class JoinedInstances(PartedInstances):
    """Vectors of several arrays side by side, each left where it is: row i has the numbers of row i of each.

    Args:
        parts: of as many instances each.
    """

    def __init__(self, parts: Sequence[InstanceArray]) -> None:
        width = sum(part.shape[1] for part in parts)
        super().__init__([len(parts[0])], (width,), np.result_type(*(part.dtype for part in parts)))
        self.parts = parts

    def read_span(self, part: int, start: int, stop: int) -> np.ndarray:
        """Return the instances from ``start`` up to ``stop``."""
        return np.concatenate([np.asarray(each[start:stop]) for each in self.parts], axis=1)

    def read_positions(self, part: int, positions: np.ndarray) -> np.ndarray:
        """Return the instances at some positions."""
        return np.concatenate([np.asarray(each[positions]) for each in self.parts], axis=1)


def row_spans(shape: tuple[int, ...], dtype: np.dtype) -> Iterator[slice]:
    """Yield the rows of an array a slice at a time, of at most ``BYTES_AT_ONCE`` or of one row.

    >>> [(span.start, span.stop) for span in row_spans((5, 1 << 26), np.dtype(np.uint8))]
    [(0, 2), (2, 4), (4, 5)]
    """
    rows = max(1, BYTES_AT_ONCE // max(1, math.prod(shape[1:]) * dtype.itemsize))
    for start in range(0, shape[0], rows):
        yield slice(start, min(start + rows, shape[0]))


def chain(parts: Sequence[InstanceArray]) -> InstanceArray:
    """Return all instances of ``parts`` as one array: copied where all are in memory, else read when asked for."""
    if len(parts) == 1:
        return parts[0]
    if all(type(part) is np.ndarray for part in parts):
        return np.concatenate([np.asarray(part) for part in parts])
    return ChainedInstances(parts)


def side_by_side(parts: Sequence[InstanceArray]) -> InstanceArray:
    """Return the vectors of ``parts`` joined row by row, copied where all are in memory."""
    joined = JoinedInstances(parts)
    return joined[:] if all(type(part) is np.ndarray for part in parts) else joined


def rearranged(array: InstanceArray, starts: np.ndarray, sizes: np.ndarray) -> InstanceArray:
    """Return spans of ``array`` one after another: copied where it is in memory, else read when asked for."""
    if type(array) is np.ndarray:
        return np.concatenate([array[start : start + size] for start, size in zip(starts, sizes, strict=True)])
    return RearrangedInstances(array, starts, sizes)


def bag_array(bag: Any, name: str) -> np.ndarray:
    """Return the instances of a bag as an array (n, D) or (n, H, W, channels): bytes, half or single precision.

    Raises:
        DataError: what is no array of numbers.
    """
    check_unmasked(bag, f"bag {name!r}")
    try:
        array = _dense(bag)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _not_numbers(name, str(error).split("\n")[0]) from error
    if array.dtype.kind not in "fiub" and (columns := frame_columns(bag)):  # nullable numbers, for instance
        array = read_columns(bag, columns, np.float32, f"bag {name!r}")
    if array.dtype.kind not in "fiub":
        what = f"{array.dtype} of shape {array.shape}"
        raise _not_numbers(name, what if array.shape else f"a value of type {type(bag).__name__}")
    if array.dtype != np.uint8 and array.dtype != np.float16:
        array = in_single(array, f"bag {name!r}")
    return array[..., None] if array.ndim == 3 else array


def check_unmasked(values: Any, item: str) -> None:
    """Raise where values are masked: the number below a mask is none of the data.

    Raises:
        DataError: a masked array.
    """
    if np.ma.is_masked(values):
        raise DataError(
            item=item,
            wanted="a number for every value",
            got=f"a masked array, {np.ma.count_masked(values)} of whose values are masked",
            fix="leave these rows out, or fill in a number with its function filled()",
        )


def _dense(bag: Any) -> np.ndarray:
    """Return an array, a tensor or a sparse matrix as an array."""
    if is_tensor(bag):
        import torch

        bag = bag.detach().to_dense().cpu()
        array: np.ndarray = (bag.float() if bag.dtype == torch.bfloat16 else bag).numpy()
        return array
    return np.asarray(bag.toarray() if hasattr(bag, "toarray") else bag)


def _not_numbers(name: str, got: str) -> DataError:
    return DataError(
        item=f"bag {name!r}",
        wanted="an array (n, D) of features or (n, H, W[, channels]) of images",
        got=got,
        fix="give all rows of a bag the same number of features, each a real number",
    )


def check_bags(arrays: list[np.ndarray], ids: tuple[str, ...]) -> None:
    """Raise unless the arrays can be the bags of one dataset, under names that are unique.

    Raises:
        DataError: no bags, a repeated name, bags of different width, bytes beside other numbers, or a bag that
            cannot be used.
    """
    if not arrays:
        raise lacking("the list of bags", "at least one bag", "pass some bags")
    check_ids(ids)
    for name, array in zip(ids, arrays, strict=True):
        check_bag(name, array, arrays[0].shape[1:])
        if (array.dtype == np.uint8) != (arrays[0].dtype == np.uint8):
            raise DataError(
                item=f"bag {name!r}",
                wanted=f"{arrays[0].dtype} as in the bags before it",
                got=str(array.dtype),
                fix="give all images as bytes from 0 to 255, or all as numbers on one scale",
            )


def check_ids(ids: Iterable[str]) -> None:
    """Raise unless each bag has an id of its own, without which files of them could not be read back.

    Raises:
        DataError: two bags of one id.
    """
    if (twice := first_repeated(ids)) is not None:
        fix = "rename one of the two, or leave it out"
        raise DataError(item=f"bag {twice!r}", wanted="a unique id", got="the same id twice", fix=fix)


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
                got=f"NaN or infinity in {len(rows):,} of {len(array):,} rows",
                fix="extract these features again, or drop the rows",
            )
