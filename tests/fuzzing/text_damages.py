"""Damages to JSON, tables and annotations: what they say is changed, not only how it is written."""

from __future__ import annotations

import copy
import csv
import gzip
import io
import json
from typing import Any

from fuzzing.byte_damages import Damage, Damaged, Generator

HOSTILE = (
    "",
    " ",
    "nan",
    "inf",
    "-1",
    "-0.5",
    "1e400",
    "9" * 5000,
    "99999999999999999999",
    "0x10",
    "1,5",
    "é",
    "[/x]",
    "[bold]",
    "\x1b[31mred",
    "=1+1",
    "null",
    "true",
    "a\nb",
    '"',
    "../../escape",
    "\u202e",
    "a\0b",
    "\u2067a\u2069",
    "a\u200b",
    "e\u0301",
    "\uff11",
    "2020-01-01",
    "1e3",
    "1_000",
    "-9223372036854775809",
    "x" * 100_000,
)
"""Cells and texts that one reader or another may stumble over."""
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    float("nan"),
    float("inf"),
    2**70,
    10**4000,
    [],
    {},
    [1],
    [0.5, "a"],
    {"a": 1},
    -(2**63) - 1,
    1e-320,
    0.1,
    [[[[]]]],
    *HOSTILE,
)


def in_utf16(content: bytes, random: Generator) -> Damaged:
    return Damaged(content.decode("utf-8", "replace").encode("utf-16"), "same")


def in_latin1(content: bytes, random: Generator) -> Damaged:
    place = int(random.integers(0, len(content) + 1))
    return Damaged(content[:place] + "é".encode("latin-1") + content[place:])


def with_byte_order_mark(content: bytes, random: Generator) -> Damaged:
    return Damaged(b"\xef\xbb\xbf" + content, "same")


def with_nul(content: bytes, random: Generator) -> Damaged:
    place = int(random.integers(0, len(content) + 1))
    return Damaged(content[:place] + b"\0" + content[place:])


# JSON


def deep_json(content: bytes, random: Generator) -> Damaged:
    return Damaged(b"[" * 20_000 + b"]" * 20_000, "refuse")


def deep_value(content: bytes, random: Generator) -> Damaged:
    return Damaged(_replaced(content, random, lambda _: "DEEP").replace(b'"DEEP"', b"[" * 3000 + b"]" * 3000))


def replace_value(content: bytes, random: Generator) -> Damaged:
    return Damaged(_replaced(content, random, lambda _: VALUES[int(random.integers(0, len(VALUES)))]))


def change_number(content: bytes, random: Generator) -> Damaged:
    factors = (-1, 0, 2, 1000, 10**9, 0.5)

    def changed(value: Any) -> Any:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return value * factors[int(random.integers(0, len(factors)))] + int(random.integers(0, 2)) if number else 7

    return Damaged(_replaced(content, random, changed))


def remove_key(content: bytes, random: Generator) -> Damaged:
    return Damaged(_edited(content, random, lambda parent, key: parent.pop(key)))


def rename_key(content: bytes, random: Generator) -> Damaged:
    def rename(parent: Any, key: Any) -> None:
        if isinstance(parent, dict):
            parent[f"{key}x"] = parent.pop(key)
        else:
            parent.insert(key, copy.deepcopy(parent[key]))

    return Damaged(_edited(content, random, rename))


def repeat_key(content: bytes, random: Generator) -> Damaged:
    """Write a key of the outermost object twice, the second time with another value."""
    try:
        tree = json.loads(content)
    except ValueError:
        tree = None
    if not isinstance(tree, dict) or not tree:
        return Damaged(content)
    key = list(tree)[int(random.integers(0, len(tree)))]
    value = VALUES[int(random.integers(0, 12))]
    again = json.dumps({key: value})[1:-1].encode()
    body = content.strip()
    return Damaged(body[:-1] + b", " + again + b"}")


def swap_values(content: bytes, random: Generator) -> Damaged:
    """Give two entries of one container each other's values."""

    def swap(parent: Any, key: Any) -> None:
        others = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        other = others[int(random.integers(0, len(others)))]
        parent[key], parent[other] = parent[other], parent[key]

    return Damaged(_edited(content, random, swap))


def repeat_entry(content: bytes, random: Generator) -> Damaged:
    """Write an entry of a list twice, or put one entry of an object in place of another."""

    def again(parent: Any, key: Any) -> None:
        if isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        else:
            parent[key] = copy.deepcopy(parent[next(iter(parent))])

    return Damaged(_edited(content, random, again))


def wrap_in_list(content: bytes, random: Generator) -> Damaged:
    return Damaged(b"[" + content + b"]")


def long_number(content: bytes, random: Generator) -> Damaged:
    return Damaged(_replaced(content, random, lambda _: "LONG").replace(b'"LONG"', b"9" * 5000))


def _edited(content: bytes, random: Generator, edit: Any) -> bytes:
    """Return JSON after ``edit`` was called with one of its containers and a key of it."""
    try:
        tree = json.loads(content)
    except ValueError:
        return content
    places = list(_places(tree))
    if places:
        edit(*places[int(random.integers(0, len(places)))])
    return json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _replaced(content: bytes, random: Generator, value: Any) -> bytes:
    return _edited(content, random, lambda parent, key: parent.__setitem__(key, value(parent[key])))


def _places(tree: Any) -> Any:
    """Yield each container with each of its keys; of a list the first and the last."""
    if isinstance(tree, dict):
        keys: Any = list(tree)
    elif isinstance(tree, list):
        keys = sorted({0, len(tree) - 1}) if tree else []
    else:
        return
    for key in keys:
        yield tree, key
        yield from _places(tree[key])


JSON: tuple[Damage, ...] = (
    in_utf16,
    in_latin1,
    with_byte_order_mark,
    deep_json,
    deep_value,
    replace_value,
    replace_value,
    replace_value,
    change_number,
    remove_key,
    remove_key,
    rename_key,
    repeat_key,
    swap_values,
    repeat_entry,
    wrap_in_list,
    long_number,
)


# Tables


def _table(content: bytes) -> tuple[list[list[str]], str]:
    text = content.decode("utf-8", "replace")
    mark = max(",\t;", key=text.split("\n")[0].count)
    return list(csv.reader(io.StringIO(text), delimiter=mark)), mark


def _text(rows: list[list[str]], mark: str) -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=mark, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", "surrogatepass")


def drop_column(content: bytes, random: Generator) -> Damaged:
    rows, mark = _table(content)
    place = int(random.integers(0, len(rows[0])))
    return Damaged(_text([row[:place] + row[place + 1 :] for row in rows], mark))


def rename_column(content: bytes, random: Generator) -> Damaged:
    rows, mark = _table(content)
    rows[0][int(random.integers(0, len(rows[0])))] = str(random.choice(["renamed", "", "[/x]", "label", "bag_id"]))
    return Damaged(_text(rows, mark))


def repeat_column(content: bytes, random: Generator) -> Damaged:
    rows, mark = _table(content)
    place = int(random.integers(0, len(rows[0])))
    return Damaged(_text([[*row, row[place] if place < len(row) else ""] for row in rows], mark))


def drop_row(content: bytes, random: Generator) -> Damaged:
    rows, mark = _table(content)
    rows.pop(int(random.integers(1, len(rows))))
    return Damaged(_text(rows, mark))


def repeat_row(content: bytes, random: Generator) -> Damaged:
    rows, mark = _table(content)
    rows.append(list(rows[int(random.integers(1, len(rows)))]))
    return Damaged(_text(rows, mark))


def shorten_row(content: bytes, random: Generator) -> Damaged:
    rows, mark = _table(content)
    rows[int(random.integers(1, len(rows)))].pop()
    return Damaged(_text(rows, mark))


def lengthen_row(content: bytes, random: Generator) -> Damaged:
    rows, mark = _table(content)
    row = rows[int(random.integers(1, len(rows)))]
    row.append(row[int(random.integers(0, len(row)))] if row and random.integers(2) else "")
    return Damaged(_text(rows, mark))


def swap_cells(content: bytes, random: Generator) -> Damaged:
    """Give two rows each other's value of a column."""
    return _taken_over(content, random, mutual=True)


def copy_cell(content: bytes, random: Generator) -> Damaged:
    """Give a row the value that another has in a column: two of one name, say."""
    return _taken_over(content, random, mutual=False)


def _taken_over(content: bytes, random: Generator, *, mutual: bool) -> Damaged:
    """Give a row the value that another has in a column, and if ``mutual`` that one the value of the first."""
    rows, mark = _table(content)
    first, second = (rows[int(random.integers(1, len(rows)))] for _ in range(2))
    place = int(random.integers(0, len(rows[0])))
    if place < min(len(first), len(second)):
        other = first[place] if mutual else second[place]
        first[place], second[place] = second[place], other
    return Damaged(_text(rows, mark))


def shuffle_rows(content: bytes, random: Generator) -> Damaged:
    rows, mark = _table(content)
    return Damaged(_text([rows[0], *(rows[1 + place] for place in random.permutation(len(rows) - 1))], mark))


def replace_cell(content: bytes, random: Generator) -> Damaged:
    rows, mark = _table(content)
    row = rows[int(random.integers(1, len(rows)))]
    row[int(random.integers(0, len(row)))] = HOSTILE[int(random.integers(0, len(HOSTILE)))]
    return Damaged(_text(rows, mark))


def replace_column(content: bytes, random: Generator) -> Damaged:
    rows, mark = _table(content)
    place, value = int(random.integers(0, len(rows[0]))), HOSTILE[int(random.integers(0, len(HOSTILE) - 1))]
    return Damaged(_text([rows[0], *([*row[:place], value, *row[place + 1 :]] for row in rows[1:])], mark))


def header_alone(content: bytes, random: Generator) -> Damaged:
    return Damaged(content.split(b"\n")[0] + b"\n")


def without_header(content: bytes, random: Generator) -> Damaged:
    return Damaged(content.split(b"\n", 1)[-1])


def open_quote(content: bytes, random: Generator) -> Damaged:
    place = int(random.integers(0, len(content) + 1))
    return Damaged(content[:place] + b'"' + content[place:])


def another_separator(content: bytes, random: Generator) -> Damaged:
    rows, _ = _table(content)
    return Damaged(_text(rows, str(random.choice([";", "\t", "|"]))))


def other_line_ends(content: bytes, random: Generator) -> Damaged:
    return Damaged(content.replace(b"\n", bytes(random.choice([b"\r\n", b"\r"]))))


TABLE: tuple[Damage, ...] = (
    in_utf16,
    in_latin1,
    with_byte_order_mark,
    with_nul,
    drop_column,
    drop_column,
    rename_column,
    repeat_column,
    drop_row,
    repeat_row,
    shorten_row,
    lengthen_row,
    lengthen_row,
    swap_cells,
    copy_cell,
    copy_cell,
    shuffle_rows,
    replace_cell,
    replace_cell,
    replace_cell,
    replace_cell,
    replace_cell,
    replace_column,
    replace_column,
    header_alone,
    without_header,
    open_quote,
    another_separator,
    other_line_ends,
)


def gzipped(damage: Damage) -> Damage:
    """Return the same damage to what a gzipped file holds."""

    def damaged(content: bytes, random: Generator) -> Damaged:
        inner = damage(gzip.decompress(content), random)
        whole = None if inner.content is None else gzip.compress(inner.content, 1)
        return Damaged(whole, inner.expect)

    damaged.__name__ = f"gzipped_{damage.__name__}"
    return damaged


def gzip_bomb(content: bytes, random: Generator) -> Damaged:
    return Damaged(gzip.compress(gzip.decompress(content) + b"\0" * (300 << 20), 1))


# Annotations in XML


def entities(content: bytes, random: Generator) -> Damaged:
    levels = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
    bomb = f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY l0 "lol">{levels}]><a>&l9;</a>'
    return Damaged(bomb.encode(), "refuse")


def replace_attribute(content: bytes, random: Generator) -> Damaged:
    quotes = [place for place, byte in enumerate(content) if byte == ord('"')]
    start = 2 * int(random.integers(0, len(quotes) // 2))
    value = str(random.choice(["", "nan", "inf", "1e308", "-1e308", "abc", "9" * 400, "[/x]"])).encode()
    return Damaged(content[: quotes[start] + 1] + value + content[quotes[start + 1] :])


def remove_element(content: bytes, random: Generator) -> Damaged:
    lines = content.replace(b"><", b">\n<").split(b"\n")
    lines.pop(int(random.integers(0, len(lines))))
    return Damaged(b"\n".join(lines))


def deep_xml(content: bytes, random: Generator) -> Damaged:
    return Damaged(b"<a>" * 50_000 + b"</a>" * 50_000, "refuse")


XML: tuple[Damage, ...] = (
    in_utf16,
    in_latin1,
    entities,
    deep_xml,
    replace_attribute,
    replace_attribute,
    replace_attribute,
    remove_element,
    remove_element,
)
