"""Shards: equal parts of a piece of work, one for each job of a cluster that knows nothing but numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from miue.common.errors import ConfigError
from miue.common.text import plural
from miue.common.values import check_fields

Item = TypeVar("Item")
SLURM = "slurm"
MOST_SHARDS = 64  # for local workers: they end together, and what all shards share is read seldom


@dataclass(frozen=True)
class Shard:
    """One of several equal parts of a piece of work.

    Attributes:
        number: which, from 1.
        count: how many there are.

    Raises:
        ConfigError: no such number.
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        check_fields(self)
        if not 1 <= self.number <= self.count:
            raise ConfigError(
                item=f"shard {self}",
                wanted="a number from 1 to the number of shards",
                got=str(self.number),
                fix="number shards from 1, as in 'sbatch --array=1-64' with --shard slurm",
            )

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items of this shard, consecutive ones; shards differ by one item at most.

        >>> [list(Shard(number, 3).share("abcde")) for number in (1, 2, 3)]
        [['a'], ['b', 'c'], ['d', 'e']]
        """
        ends = [len(items) * number // self.count for number in (self.number - 1, self.number)]
        return items[ends[0] : ends[1]]


ALL = Shard(1, 1)
"""The only shard: the whole piece of work."""


def parse_shard(text: str, environment: Mapping[str, str] = os.environ) -> Shard:
    """Return the shard that an option names.

    Args:
        text: "3/64", or "slurm" for the job of a Slurm array, whose jobs are numbered from 1 or 0 without gaps.
        environment: of the process.

    Raises:
        ConfigError: neither, no such shard, no array, or one that is numbered otherwise.

    >>> parse_shard("3/64")
    Shard(number=3, count=64)
    """
    if text == SLURM:
        return _slurm_shard(environment)
    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if match is None:
        raise ConfigError(
            item="--shard",
            wanted="NUMBER/COUNT such as 3/64, or slurm",
            got=repr(text),
            fix="write --shard 3/64, or --shard slurm in a job of a Slurm array",
        )
    return Shard(int(match[1]), int(match[2]))


def _slurm_shard(environment: Mapping[str, str]) -> Shard:
    """Return the shard of this job; a part of an array that runs again does not say how many there were."""
    names = [f"SLURM_ARRAY_TASK_{name}" for name in ("ID", "MIN", "MAX", "COUNT")]
    texts = [environment.get(name, "") for name in names]
    if not all(text.isdecimal() for text in texts):
        missing = next(name for name, text in zip(names, texts, strict=True) if not text.isdecimal())
        raise ConfigError(
            item="--shard slurm",
            wanted="a job of a Slurm array",
            got=f"{missing} is {environment.get(missing)!r}" if missing in environment else f"no {missing}",
            fix="submit the script with sbatch --array=1-64, or write --shard 3/64",
        )
    number, first, last, count = map(int, texts)
    if first > 1 or last - first + 1 != count:
        raise ConfigError(
            item="--shard slurm",
            wanted="an array that is numbered from 1 or 0 without gaps, such as --array=1-64",
            got=f"{plural(count, 'job')} from {first} to {last}",
            fix=f"submit it with --array=1-{count}; where a part of an array runs again, write "
            "--shard ${SLURM_ARRAY_TASK_ID}/64 with the number of all shards, counted from 1",
        )
    return Shard(number - first + 1, count)
