"""Damages to files of arrays that keep them well-formed: headers that lie, members that are not what they were."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzzing.byte_damages import Damage, Damaged, Generator
from fuzzing.text_damages import JSON

HUGE = 200 << 20


# NumPy


def _npy_header(content: bytes, header: str) -> bytes:
    """Return the array with another header; its numbers stay."""
    length = struct.unpack("<H", content[8:10])[0]
    room = 64 * ((10 + len(header) + 64) // 64) - 10
    return content[:8] + struct.pack("<H", room) + header.ljust(room - 1).encode() + b"\n" + content[10 + length :]


def npy_other_rows(content: bytes, random: Generator) -> Damaged:
    array = np.load(io.BytesIO(content))
    if not array.ndim:
        return Damaged(content)
    rows = len(array) + int(random.choice([-len(array), -1, -2, 1, 7, 10**6, 10**15]))
    shape = (max(0, rows), *array.shape[1:])
    return Damaged(_npy_header(content, _head(array.dtype.str, shape)), "refuse")


def npy_other_width(content: bytes, random: Generator) -> Damaged:
    array = np.load(io.BytesIO(content))
    wide = [(*array.shape, 0), array.shape[::-1], (array.size,), (), (1,) * 40, (-1, *array.shape[1:]), (2**62, 4)]
    shape = wide[int(random.integers(0, len(wide)))]
    same_size = int(np.prod(shape, dtype=object)) == array.size
    return Damaged(_npy_header(content, _head(array.dtype.str, shape)), "any" if same_size else "refuse")


def npy_other_type(content: bytes, random: Generator) -> Damaged:
    array = np.load(io.BytesIO(content))
    kind = str(random.choice(["<f8", ">f4", "<i4", "|O", "|S4", "<c8", "<U1", "|V4", "<M8[s]", "zzz", "<f4,<f4"]))
    as_large = kind == "<f8" and array.itemsize == 8  # as coords may be
    expected = "any" if as_large or kind in (">f4", "<i4", "|S4", "<U1", "|V4") else "refuse"
    return Damaged(_npy_header(content, _head(kind, array.shape)), expected)


def npy_odd_header(content: bytes, random: Generator) -> Damaged:
    headers = (
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': 7, 'shape': (1, 1)}",
        "__import__('os').system('true')",
        "(" * 500,
        "[" * 20_000,
        "{'descr': [('a', '<f4', (10**9,))], 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1e3, 2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 2)}",
        "9" * 6000,
    )
    return Damaged(_npy_header(content, headers[int(random.integers(0, len(headers)))]), "refuse")


def npy_values(content: bytes, random: Generator) -> Damaged:
    """Put numbers in place of some that no such array has: not finite, enormous, negative, equal."""
    array = np.load(io.BytesIO(content))
    if array.dtype.kind not in "fiu" or not array.size:
        return Damaged(content)
    flat, out = array.reshape(-1).copy(), io.BytesIO()
    odd = [np.nan, np.inf, -np.inf, 3e38, -1.0, 0.0, 2.0**53, -(2.0**31)]
    known = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
    places = random.integers(0, len(flat), int(random.integers(1, 4)))
    if known is None:
        flat[places] = odd[int(random.integers(0, len(odd)))]
    else:
        flat[places] = int(random.choice([known.min, known.max, 0, 1]))
    np.save(out, flat.reshape(array.shape))
    return Damaged(out.getvalue())


def npy_fewer_rows(content: bytes, random: Generator) -> Damaged:
    """A whole array of fewer rows, or of more, than before."""
    array, out = np.load(io.BytesIO(content)), io.BytesIO()
    if not array.ndim:
        return Damaged(content)
    changed = [array[:-1], np.concatenate([array, array[:1]]), array[:0], array[::-1], array[:, None], array.T]
    np.save(out, changed[int(random.integers(0, len(changed)))])
    return Damaged(out.getvalue())


def npy_another_type(content: bytes, random: Generator) -> Damaged:
    """A whole array of the same values in another type."""
    array, out = np.load(io.BytesIO(content)), io.BytesIO()
    kind = str(random.choice(["f2", "f8", "i1", "u8", "?", "c16", "U5", "M8[D]", ">i8", "S3"]))
    try:
        with np.errstate(all="ignore"):
            np.save(out, array.astype(kind))
    except (ValueError, TypeError):
        return Damaged(content)
    return Damaged(out.getvalue())


def _head(kind: str, shape: tuple[int, ...]) -> str:
    return str({"descr": kind, "fortran_order": False, "shape": shape})


NPY: tuple[Damage, ...] = (
    npy_other_rows,
    npy_other_rows,
    npy_other_width,
    npy_other_type,
    npy_odd_header,
    npy_values,
    npy_values,
    npy_fewer_rows,
    npy_fewer_rows,
    npy_another_type,
)


# Archives of members: .npz and .pt


def _members(content: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(one.filename, archive.read(one)) for one in archive.infolist()]


def _archive(members: list[tuple[str, bytes]], how: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, how)
    return out.getvalue()


def compress_members(content: bytes, random: Generator) -> Damaged:
    hows = (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    return Damaged(_archive(_members(content), hows[int(random.integers(0, 3))]), "same")


def drop_member(content: bytes, random: Generator) -> Damaged:
    members = _members(content)
    members.pop(int(random.integers(0, len(members))))
    return Damaged(_archive(members))


def empty_member(content: bytes, random: Generator) -> Damaged:
    members = _members(content)
    place = int(random.integers(0, len(members)))
    members[place] = (members[place][0], b"")
    return Damaged(_archive(members))


def repeat_member(content: bytes, random: Generator) -> Damaged:
    import warnings

    members = _members(content)
    with warnings.catch_warnings(action="ignore"):
        return Damaged(_archive([*members, members[int(random.integers(0, len(members)))]]))


def swap_members(content: bytes, random: Generator) -> Damaged:
    members = _members(content)
    names = [members[place][0] for place in random.permutation(len(members))]
    return Damaged(_archive([(name, body) for name, (_, body) in zip(names, members, strict=True)]))


def bomb_member(content: bytes, random: Generator) -> Damaged:
    members = _members(content)
    place = int(random.integers(0, len(members)))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number, (name, body) in enumerate(members):
            archive.writestr(name, body if number != place else body + bytes(HUGE))
    return Damaged(out.getvalue(), "same")


def extra_bomb(content: bytes, random: Generator) -> Damaged:
    members, folder = _members(content), _members(content)[0][0].split("/")[0]
    name = str(random.choice(["byteorder", ".data/serialization_id", "version", "coords.npy", "other"]))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for one, body in members:
            if not one.endswith(name):
                archive.writestr(one, body)
        archive.writestr(name if name.endswith(".npy") else f"{folder}/{name}", bytes(HUGE))
    return Damaged(out.getvalue(), "any")


def damage_member(content: bytes, random: Generator) -> Damaged:
    """Flip a bit of a member and store it with a checksum that fits."""
    members = _members(content)
    place = int(random.integers(0, len(members)))
    body = bytearray(members[place][1] or b"\0")
    body[int(random.integers(0, min(200, len(body))))] ^= 1 << int(random.integers(0, 8))
    members[place] = (members[place][0], bytes(body))
    return Damaged(_archive(members), "any")


def npz_member_header(content: bytes, random: Generator) -> Damaged:
    members = _members(content)
    arrays = [place for place, (name, body) in enumerate(members) if body[:6] == b"\x93NUMPY"]
    place = arrays[int(random.integers(0, len(arrays)))]
    try:
        inner = NPY[int(random.integers(0, len(NPY)))](members[place][1], random)
    except (ValueError, IndexError):  # of texts, for which some of these make no sense
        return Damaged(content)
    members[place] = (members[place][0], inner.content or b"")
    return Damaged(_archive(members), inner.expect)


ARCHIVE: tuple[Damage, ...] = (
    compress_members,
    drop_member,
    empty_member,
    repeat_member,
    swap_members,
    bomb_member,
    extra_bomb,
    damage_member,
    damage_member,
)
NPZ: tuple[Damage, ...] = (*ARCHIVE, npz_member_header, npz_member_header, npz_member_header)


# Safetensors


def _split_header(content: bytes) -> tuple[dict[str, Any], bytes]:
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def _with_header(header: bytes, body: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + body


def tensor_header(content: bytes, random: Generator) -> Damaged:
    """Damage the JSON of the header as any JSON; lengths fit again."""
    header, body = _split_header(content)
    inner = JSON[int(random.integers(0, len(JSON)))](json.dumps(header).encode(), random)
    return Damaged(_with_header(inner.content or b"", body), "any")


def tensor_header_length(content: bytes, random: Generator) -> Damaged:
    lengths = (0, 1, 7, 2**31, 2**40, 2**63, len(content), len(content) * 2)
    return Damaged(struct.pack("<Q", lengths[int(random.integers(0, len(lengths)))]) + content[8:], "refuse")


def tensor_shape(content: bytes, random: Generator) -> Damaged:
    header, body = _split_header(content)
    names = [name for name in header if name != "__metadata__" and header[name]["shape"]]
    shape = header[names[int(random.integers(0, len(names)))]]["shape"]
    shape[int(random.integers(0, len(shape)))] += int(random.choice([-1, 1, 2**40]))
    return Damaged(_with_header(json.dumps(header).encode(), body), "refuse")


def tensor_name(content: bytes, random: Generator) -> Damaged:
    header, body = _split_header(content)
    names = [name for name in header if name != "__metadata__"]
    name = names[int(random.integers(0, len(names)))]
    return Damaged(
        _with_header(json.dumps({("x" if k == name else k): v for k, v in header.items()}).encode(), body)
    )


def tensor_values(content: bytes, random: Generator) -> Damaged:
    """Put values that are not finite, or enormous, in place of some numbers."""
    header, body = _split_header(content)
    value = np.array([float(random.choice([np.nan, np.inf, 3e38]))], np.float32).tobytes()
    place = 4 * int(random.integers(0, max(1, len(body) // 4)))
    return Damaged(_with_header(json.dumps(header).encode(), body[:place] + value + body[place + 4 :]), "shape")


def tensor_metadata(content: bytes, random: Generator) -> Damaged:
    """Damage the JSON that is kept as text within the header, where there is one."""
    header, body = _split_header(content)
    metadata = header.get("__metadata__", {})
    if "structure" not in metadata:
        return Damaged(_with_header(json.dumps({**header, "__metadata__": {"a": "[/x]"}}).encode(), body), "same")
    inner = JSON[int(random.integers(2, len(JSON)))](metadata["structure"].encode(), random)
    metadata["structure"] = (inner.content or b"").decode("utf-8", "replace")
    return Damaged(_with_header(json.dumps(header).encode(), body), "any")


SAFETENSORS: tuple[Damage, ...] = (
    tensor_header,
    tensor_header,
    tensor_header_length,
    tensor_shape,
    tensor_name,
    tensor_values,
    tensor_values,
    tensor_metadata,
    tensor_metadata,
    tensor_metadata,
)


# Parquet


def parquet_table(edit: Callable[[Any, Generator], Any]) -> Damage:
    def damaged(content: bytes, random: Generator) -> Damaged:
        import pyarrow as pa
        from pyarrow import parquet

        out = io.BytesIO()
        parquet.write_table(edit(parquet.read_table(pa.BufferReader(content)), random), out)
        return Damaged(out.getvalue())

    damaged.__name__ = f"parquet_{edit.__name__}"
    return damaged


def drop_column(table: Any, random: Generator) -> Any:
    return table.remove_column(int(random.integers(0, table.num_columns)))


def null_column(table: Any, random: Generator) -> Any:
    import pyarrow as pa

    place = int(random.integers(0, table.num_columns))
    return table.set_column(place, table.column_names[place], pa.nulls(table.num_rows))


def nested_column(table: Any, random: Generator) -> Any:
    import pyarrow as pa

    place = int(random.integers(0, table.num_columns))
    column = pa.array([[{"a": 1}]] * table.num_rows)
    return table.set_column(place, table.column_names[place], column)


def odd_column(table: Any, random: Generator) -> Any:
    import pyarrow as pa

    place = int(random.integers(0, table.num_columns))
    columns = [
        pa.array([b"\xff\xfe"] * table.num_rows),
        pa.array([2**63 - 1] * table.num_rows),
        pa.array(np.array(["2020-01-01"] * table.num_rows, "datetime64[s]")),
        pa.array(["a"] * table.num_rows).dictionary_encode(),
        pa.array([True] * table.num_rows),
        pa.array(["1.5"] * table.num_rows),
    ]
    return table.set_column(place, table.column_names[place], columns[int(random.integers(0, len(columns)))])


def no_rows(table: Any, random: Generator) -> Any:
    return table.slice(0, 0)


def other_row_count(table: Any, random: Generator) -> Any:
    import pyarrow as pa

    row = int(random.integers(0, table.num_rows))
    whole = [table.slice(0, row), table.slice(row + 1)]
    return pa.concat_tables(whole if random.integers(2) else [table, table.slice(row, 1)])


def other_order(table: Any, random: Generator) -> Any:
    return table.take(random.permutation(table.num_rows))


def odd_cell(table: Any, random: Generator) -> Any:
    """Give one cell a value of its type that it should not have."""
    import pyarrow as pa

    place, row = int(random.integers(0, table.num_columns)), int(random.integers(0, table.num_rows))
    column = table.column(place)
    odd: list[Any]
    if pa.types.is_floating(column.type):
        odd = [None, float("nan"), float("inf"), -1.0, 1e300 if column.type == pa.float64() else 3e38, 0.0]
    elif pa.types.is_integer(column.type):
        odd = [None, -1, 2**31 - 1, 0, 1]
    elif pa.types.is_boolean(column.type):
        odd = [None, True, False]
    else:
        odd = [None, "", "a\0b", "\u202e", " ", "=1+1", "x" * 100_000, column[0].as_py()]
    cells = column.to_pylist()
    cells[row] = odd[int(random.integers(0, len(odd)))]
    return table.set_column(place, table.field(place), pa.array(cells, column.type))


def another_type(table: Any, random: Generator) -> Any:
    """Give a column another type, with the same values where it can have them."""
    import pyarrow as pa

    place = int(random.integers(0, table.num_columns))
    types = [pa.string(), pa.large_string(), pa.float16(), pa.float32(), pa.float64(), pa.int64(), pa.uint8(),
             pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(38, 5), pa.binary()]  # fmt: skip
    kind = types[int(random.integers(0, len(types)))]
    try:
        column = table.column(place).cast(kind, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return table
    return table.set_column(place, table.column_names[place], column)


def repeated_name(table: Any, random: Generator) -> Any:
    names = table.column_names
    names[int(random.integers(0, len(names)))] = names[int(random.integers(0, len(names)))]
    return table.rename_columns(names)


PARQUET: tuple[Damage, ...] = tuple(
    map(
        parquet_table,
        (
            drop_column,
            null_column,
            nested_column,
            odd_column,
            no_rows,
            repeated_name,
            other_row_count,
            other_order,
            odd_cell,
            odd_cell,
            odd_cell,
            another_type,
            another_type,
        ),
    )
)
