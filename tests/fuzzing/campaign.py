"""Cases given to a process that is watched: one that hangs is ended and named, and the next case goes on."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzzing.kinds import KINDS

COMPUTING_LIMIT = 60.0  # seconds of computing that a reading may take, with the processes that it starts
WAITING_LIMIT = 600.0  # seconds in which it must end, however busy the machine is
STARTING = 300.0  # seconds in which everything is imported and written
MEMORY_LIMIT = 600 << 20  # bytes a case may take
FAULTS = ("traceback", "violated", "unclear", "hang", "killed", "memory", "broken")


@dataclass(frozen=True)
class Finding:
    """How one reading of one damaged thing ended.

    Attributes:
        kind: what was damaged.
        number: of the case; the same number is the same damage.
        reading: who read it.
        target: the file.
        damage: how it was damaged.
        end: "accepted", "refused", or one of ``FAULTS``.
        says: the message, or what is wrong.
        seconds: it took.
        memory: it took, in bytes.
    """

    kind: str
    number: int
    reading: str
    target: str
    damage: str
    end: str
    says: str
    seconds: float
    memory: int

    @property
    def is_fault(self) -> bool:
        """Whether it should not have ended so."""
        return self.end in FAULTS


class Campaign:
    """A watched process and the whole things that it damages.

    Args:
        folder: where the process writes these when it starts for the first time.
        computing: seconds of computing that a reading may take.
        waiting: seconds in which it must end.
    """

    def __init__(self, folder: Path, computing: float = COMPUTING_LIMIT, waiting: float = WAITING_LIMIT) -> None:
        self.base, self.work = folder / "whole", folder / "case"
        self.computing, self.waiting = computing, waiting
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def run(self, cases: Iterable[tuple[str, int]]) -> Iterator[Finding]:
        """Yield every reading of every case, given as kind and number."""
        for kind, number in cases:
            yield from self._run(kind, number)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with self._process as process:
                process.kill()
            self._process = None

    def _run(self, kind: str, number: int) -> Iterator[Finding]:
        process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(json.dumps([kind, number]).encode() + b"\n")
        process.stdin.flush()
        begun = {"reading": "none", "target": "", "damage": "", "seconds": 0.0, "memory": 0}
        while True:
            answer = self._answer(self.computing, self.waiting)
            if answer is None:
                how = "hang" if process.poll() is None else "killed"
                code = process.poll()
                self.close()
                yield _finding(kind, number, {**begun, "end": how, "says": f"status {code}"})
                return
            if "results" in answer:
                return
            if "begun" in answer:
                begun = answer["begun"]
                continue
            yield _finding(kind, number, answer["partial"])

    def _start(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-W", "ignore", "-m", "fuzzing.worker", str(self.base), str(self.work)]
        paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
        self._unread = b""
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        if self._answer(STARTING, STARTING) is None:
            self.close()
            raise RuntimeError("the process that reads damaged files did not start")
        return self._process

    def _answer(self, computing: float, waiting: float) -> dict[str, Any] | None:
        """Return the next line, None where none comes in time or the process has ended."""
        assert self._process is not None and self._process.stdout is not None
        out, pid = self._process.stdout.fileno(), self._process.pid
        begun, before = time.monotonic(), computing_time(pid)
        while b"\n" not in self._unread:
            if not select.select([out], [], [], 0.5)[0]:
                if time.monotonic() - begun > waiting or computing_time(pid) - before > computing:
                    return None
                continue
            part = os.read(out, 1 << 16)
            if not part:
                self._process.wait()
                return None
            self._unread += part
        line, self._unread = self._unread.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer


def computing_time(pid: int) -> float:
    """Return the seconds that a process, and those that it has started, have computed."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended; its time is counted with its parent's
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(computing_time, map(int, children)))


def cases_of(names: Iterable[str], total: int, seed: int = 0) -> list[tuple[str, int]]:
    """Return these kinds' share, by their weights, of ``total`` cases of all kinds, or a few more."""
    chosen = [kind for kind in KINDS if kind.name in set(names)]
    weights = sum(kind.weight for kind in KINDS)
    return [
        (kind.name, 1_000_000 * seed + number)
        for kind in chosen
        for number in range(-(-total * kind.weight // weights))
    ]


def _finding(kind: str, number: int, one: dict[str, Any]) -> Finding:
    end, says = one["end"], one["says"]
    if one["memory"] > MEMORY_LIMIT and end in ("accepted", "refused"):
        end, says = "memory", f"{one['memory'] >> 20} MB were taken; {one['end']}: {says}"
    return Finding(
        kind, number, one["reading"], one["target"], one["damage"], end, says, one["seconds"], one["memory"]
    )
