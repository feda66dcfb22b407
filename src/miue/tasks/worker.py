"""A worker process: tasks as lines of JSON on its input, their outcomes on its output.

Started by ``miue.tasks.processes`` as ``python -P -m miue.tasks.worker``. When its input ends, so does it, even
within a task: the process that wanted the answer has ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue

from miue.tasks.task import answer

INTERRUPTED = 130


def main() -> None:
    """Run tasks until the input ends, or until an interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started it may have ignored it
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a task prints is no answer
    requests: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    try:
        while True:
            outcome = answer(json.loads(requests.get()))
            with suppress(BrokenPipeError):
                answers.write(json.dumps(outcome).encode() + b"\n")
                answers.flush()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)


def _read(requests: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
