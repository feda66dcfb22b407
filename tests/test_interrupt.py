"""Ctrl-C says in one line what was kept and how to go on, under --quiet as well."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from commands import run
from made_bags import separable_bags

from miue.io.store import write_store

INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from miue.cli import main; main()"
)
SLOW = ["--set", "max_epochs=5000", "--set", "stop_patience=5000", "--quiet"]


def interrupted(until: Path, *arguments: object) -> str:
    """Interrupt a command once ``until`` is there, and return what it says."""
    command = [sys.executable, "-c", INTERRUPTIBLE, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        while not list(until.parent.glob(until.name)):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        for _ in range(5):  # Python drops an interrupt that comes within a destructor; a person presses again
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                output, said = process.communicate(timeout=20)
                break
        else:
            process.kill()
            pytest.fail("five interrupts were not heard")
    assert process.returncode == 130
    assert output == ""
    return said


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", separable_bags())
    return tmp_path / "store"


def test_a_training_says_how_many_epochs_are_kept_and_goes_on(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    said = interrupted(out / "checkpoints" / "last.safetensors", "train", store, "--out", out, *SLOW)
    goes_on = "the same command with --resume goes on"
    kept = re.fullmatch(rf"miue: interrupted: ([\d,]+) finished epochs are kept in {out}; {goes_on}\n", said)
    assert kept is not None, said
    epochs = int(kept[1].replace(",", ""))
    assert epochs >= 1
    assert not (out / "config.json").exists()
    more = ["--set", f"max_epochs={epochs + 1}", "--set", "stop_patience=5000", "--quiet"]
    assert f"Trained for {epochs + 1} epochs" in run("train", store, "--out", out, "--resume", *more)


def test_a_cross_validation_says_how_many_runs_are_kept(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "cv"
    last = out / "fold_0" / "seed_42" / "run" / "checkpoints" / "last.safetensors"
    said = interrupted(last, "cross-validate", store, "--folds", "2", "--out", out, *SLOW)
    wanted = f"0 of 2 runs and the epochs of those under way are kept in {out}; the same command goes on"
    assert said == f"miue: interrupted: {wanted}\n"


def test_any_other_command_says_that_nothing_half_written_was_left(tmp_path: Path) -> None:
    said = interrupted(tmp_path / ".store.lock", "data", "make", "digits-bags", "--out", tmp_path / "store")
    assert said == "miue: interrupted: nothing half-written was left; give the same command again\n"
    assert not list(tmp_path.iterdir())
