"""The process in which damaged files are read: it takes one case a line, and answers each with one line.

The first answer says that it is ready. A case that never answers, or takes too much memory, is ended by whoever
watches this process (``campaign``).
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
import traceback
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.commands_run import Case, Refused, Unclear
from fuzzing.faulty_readings import FAULTY
from fuzzing.kinds import KINDS, Kind, damages_of
from fuzzing.readings import Reading
from fuzzing.whole_things import build

ROOM = 3 << 30  # bytes of address space beyond those taken at the start
SHORT = 400


def targets(base: Path, kind: Kind) -> list[str]:
    """Return the files of a kind that can be damaged."""
    root = base / kind.root
    found = [path for pattern in kind.targets for path in sorted(root.glob(pattern)) if path.is_file()]
    return [str(path.relative_to(root)) for path in found]


def make_case(base: Path, work: Path, kind: Kind, number: int) -> tuple[Case, str]:
    """Copy the whole thing, damage one of its files; the same number gives the same damage."""
    random = np.random.default_rng([zlib.crc32(kind.name.encode()), number])
    names = targets(base, kind)
    target = names[number % len(names)]
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(base / kind.root, work)
    (work / kind.root).touch()
    whole = (work / target).read_bytes()
    choices = kind.damages or damages_of(target, whole)
    damage = choices[int(random.integers(0, len(choices)))]
    if random.integers(40) == 0:
        damage = another_file(base, target)
    damaged = damage(whole, random)
    expect = damaged.expect if damaged.content != whole else "any"
    if damaged.content is None:
        (work / target).unlink()
    else:
        (work / target).write_bytes(damaged.content)
    return Case(base, work, target, whole, damaged.content, expect), damage.__name__


def another_file(base: Path, target: str) -> Callable[..., Any]:
    """Return the damage that puts a file of another kind in place of one."""
    from fuzzing.byte_damages import Damaged

    def another_kind(content: bytes, random: np.random.Generator) -> Damaged:
        names = sorted(path for path in base.rglob("*.*") if path.is_file() and path.suffix != Path(target).suffix)
        return Damaged(names[int(random.integers(0, len(names)))].read_bytes())

    return another_kind


def read(case: Case, reading: Reading, whole: Any) -> dict[str, Any]:
    """Return how a reading ended: refused, accepted, violated or a traceback."""
    from miue.common.errors import MiueError

    try:
        with warnings.catch_warnings(action="ignore"):
            seen = reading.read(case)
            wrong = reading.check(case, seen, whole)
    except (Refused, MiueError) as error:
        if isinstance(error, MiueError) and not all((error.item, error.wanted, error.got, error.fix)):
            return {"end": "unclear", "says": f"a part of the message is empty: {error}"[:SHORT]}
        return {"end": "refused", "says": str(error)[:SHORT]}
    except Unclear as error:
        return {"end": "unclear", "says": str(error)[:SHORT]}
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/miue/" in f.filename]
        place = " < ".join(f"{f.filename.split('/miue/')[-1]}:{f.lineno}" for f in reversed(frames[-3:]))
        return {"end": "traceback", "says": f"{type(error).__name__}: {str(error)[:SHORT]} at {place}"}
    return {"end": "violated", "says": wrong[:SHORT]} if wrong else {"end": "accepted", "says": ""}


def whole_reading(base: Path, work: Path, kind: Kind, reading: Reading, target: str) -> Any:
    """Return what a reading sees of the whole thing."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(base / kind.root, work)
    (work / kind.root).touch()
    content = (work / target).read_bytes()
    case = Case(base, work, target, content, content, "any")
    with warnings.catch_warnings(action="ignore"):
        seen = reading.read(case)
        wrong = reading.check(case, seen, seen)
    assert not wrong, f"{kind.name}, {reading.name}, of the whole thing: {wrong}"
    return seen


def memory() -> int:
    """Return the most memory that was taken since ``forget_memory``, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    return 0


def forget_memory() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def main() -> None:
    """Answer cases until there are no more."""
    base, work = Path(sys.argv[1]), Path(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.environ["NO_COLOR"] = "1"

    if not base.exists():
        build(base)
    address_space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (address_space + ROOM, resource.RLIM_INFINITY))
    kinds, known = {kind.name: kind for kind in (*KINDS, *FAULTY)}, dict[tuple[str, str, str], Any]()
    print(json.dumps({"ready": os.getpid()}), file=answers, flush=True)
    for line in sys.stdin:
        name, number = json.loads(line)
        kind = kinds[name]
        turns = [one for place, one in enumerate(kind.readings) if (number // 7 + place) % one.every == 0]
        names = targets(base, kind)
        target = names[number % len(names)]
        results = []
        for one in turns:
            answer = {"reading": one.name, "target": target, "damage": "", "seconds": 0.0, "memory": 0}
            try:
                key = (name, one.name, target)
                if key not in known:
                    known[key] = whole_reading(base, work, kind, one, target)
                case, damage = make_case(base, work, kind, number)
            except Exception:
                answer |= {"end": "broken", "says": traceback.format_exc()[-SHORT:]}
            else:
                print(json.dumps({"begun": answer | {"damage": damage}}), file=answers, flush=True)
                forget_memory()
                before, begun = memory(), time.monotonic()
                answer |= {"damage": damage, **read(case, one, known[key])}
                answer |= {"seconds": round(time.monotonic() - begun, 2), "memory": memory() - before}
            results.append(answer)
            print(json.dumps({"partial": answer}), file=answers, flush=True)
        print(json.dumps({"kind": name, "number": number, "results": results}), file=answers, flush=True)


if __name__ == "__main__":
    main()
