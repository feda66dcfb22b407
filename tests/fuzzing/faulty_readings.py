"""Readings that end as none should, to see that the watch over the process notices each."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from fuzzing.commands_run import Case, Unclear
from fuzzing.kinds import Kind
from fuzzing.readings import Reading


def hang(case: Case) -> None:
    while not case.is_whole:
        time.sleep(0.1)


def die(case: Case) -> None:
    if not case.is_whole:
        os.abort()


def take_memory(case: Case) -> int:
    return 0 if case.is_whole else int(np.ones(100 << 20).sum())


def raise_another_error(case: Case) -> None:
    if not case.is_whole:
        raise KeyError("features")


def mumble(case: Case) -> None:
    if not case.is_whole:
        raise Unclear("an error without its four parts")


def accept_anything(case: Case) -> None:
    pass


def nothing(case: Case, seen: Any, whole: Any) -> str:
    return ""


def says_no(case: Case, seen: Any, whole: Any) -> str:
    return "" if case.is_whole else "known sizes are violated"


ENDS = {
    "hang": Reading(hang, nothing),
    "killed": Reading(die, nothing),
    "memory": Reading(take_memory, nothing),
    "traceback": Reading(raise_another_error, nothing),
    "unclear": Reading(mumble, nothing),
    "violated": Reading(accept_anything, says_no),
}
"""How the watch must say that each ended."""

FAULTY = tuple(Kind(f"faulty: {end}", "npy", ("bags/d1.npy",), (reading,)) for end, reading in ENDS.items())
