"""Damages to bytes, whatever they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Generator = np.random.Generator


@dataclass(frozen=True)
class Damaged:
    """A file's new content, and what may be expected of whoever reads it.

    Attributes:
        content: of the file; None where it was removed.
        expect: "any" reading that is consistent with the file, "shape" (that of the whole file), "same" content as
            the whole file, "flag" (a note or a refusal), or "refuse". A refusal is always right.
    """

    content: bytes | None
    expect: str = "any"


Damage = Callable[[bytes, Generator], Damaged]
HEADER = 600


def flip_bit(content: bytes, random: Generator) -> Damaged:
    return Damaged(_flipped(content, random, len(content), 1), "shape")


def flip_eight_bits(content: bytes, random: Generator) -> Damaged:
    return Damaged(_flipped(content, random, len(content), 8), "shape")


def flip_bit_in_header(content: bytes, random: Generator) -> Damaged:
    return Damaged(_flipped(content, random, HEADER, 1), "shape")


def flip_bits_in_header(content: bytes, random: Generator) -> Damaged:
    return Damaged(_flipped(content, random, HEADER, 4), "shape")


def flip_bit_near_end(content: bytes, random: Generator) -> Damaged:
    start = max(0, len(content) - HEADER)
    return Damaged(content[:start] + _flipped(content[start:], random, HEADER, 1), "shape")


def truncate(content: bytes, random: Generator) -> Damaged:
    return Damaged(content[: int(random.integers(0, max(1, len(content))))], "same")


def truncate_by_a_few(content: bytes, random: Generator) -> Damaged:
    return Damaged(content[: -int(random.integers(1, 40))], "same")


def empty(content: bytes, random: Generator) -> Damaged:
    return Damaged(b"", "refuse")


def insert(content: bytes, random: Generator) -> Damaged:
    place, added = int(random.integers(0, len(content) + 1)), random.bytes(int(random.integers(1, 80)))
    return Damaged(content[:place] + added + content[place:], "same")


def insert_near_start(content: bytes, random: Generator) -> Damaged:
    place, added = int(random.integers(0, min(HEADER, len(content)) + 1)), random.bytes(int(random.integers(1, 9)))
    return Damaged(content[:place] + added + content[place:], "same")


def append(content: bytes, random: Generator) -> Damaged:
    return Damaged(content + random.bytes(int(random.integers(1, 200))), "same")


def duplicate(content: bytes, random: Generator) -> Damaged:
    start, stop = sorted(random.integers(0, len(content) + 1, 2).tolist())
    return Damaged(content[:stop] + content[start:stop] + content[stop:], "same" if stop > start else "shape")


def twice(content: bytes, random: Generator) -> Damaged:
    return Damaged(content + content, "same")


def remove_part(content: bytes, random: Generator) -> Damaged:
    start = int(random.integers(0, max(1, len(content))))
    return Damaged(content[:start] + content[start + int(random.integers(1, 200)) :], "same")


def zero_range(content: bytes, random: Generator) -> Damaged:
    return Damaged(_range(content, random, b"\0"), "shape")


def fill_range(content: bytes, random: Generator) -> Damaged:
    return Damaged(_range(content, random, b"\xff"), "shape")


def zero_page(content: bytes, random: Generator) -> Damaged:
    """Zero what a disk writes at once, as a crash of the machine leaves it."""
    page = 512 * int(random.integers(0, len(content) // 512 + 1))
    return Damaged((content[:page] + bytes(512) + content[page + 512 :])[: len(content)], "shape")


def random_bytes(content: bytes, random: Generator) -> Damaged:
    return Damaged(random.bytes(len(content)), "refuse")


def shuffle_blocks(content: bytes, random: Generator) -> Damaged:
    size = max(1, len(content) // 8)
    blocks = [content[start : start + size] for start in range(0, len(content), size)]
    return Damaged(b"".join(blocks[place] for place in random.permutation(len(blocks))), "shape")


def text_instead(content: bytes, random: Generator) -> Damaged:
    return Damaged(b"<!DOCTYPE html><html><body>404 Not Found</body></html>\n", "refuse")


def remove(content: bytes, random: Generator) -> Damaged:
    return Damaged(None)


BYTES: tuple[Damage, ...] = (
    flip_bit,
    flip_eight_bits,
    flip_bit_in_header,
    flip_bits_in_header,
    flip_bit_near_end,
    truncate,
    truncate_by_a_few,
    empty,
    insert,
    insert_near_start,
    append,
    duplicate,
    twice,
    remove_part,
    zero_range,
    fill_range,
    zero_page,
    random_bytes,
    shuffle_blocks,
    text_instead,
    remove,
)


def _flipped(content: bytes, random: Generator, within: int, count: int) -> bytes:
    changed = bytearray(content)
    for _ in range(count if content else 0):
        changed[int(random.integers(0, min(within, len(content))))] ^= 1 << int(random.integers(0, 8))
    return bytes(changed)


def _range(content: bytes, random: Generator, value: bytes) -> bytes:
    start = int(random.integers(0, max(1, len(content))))
    stop = min(len(content), start + int(random.integers(1, 400)))
    return content[:start] + value * (stop - start) + content[stop:]
