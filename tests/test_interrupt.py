"""Ctrl-C says in one line what was kept and how to go on, under --quiet as well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import run
from fast import slow_but
from lightning.pytorch.callbacks import Callback
from made_bags import separable_bags

import miue
from miue.bags import BagBatch
from miue.cli import main
from miue.common.processes import RAISED, interrupts_raised
from miue.io import write_store
from miue.training.learner import Learner

INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "signal.signal(signal.SIGHUP, signal.SIG_DFL); from miue.cli import main; "
    "from miue.training import checkpoints; checkpoints.SECONDS = 0; main()"
)
SLOW = ["--set", "max_epochs=5000", "--set", "stop_patience=5000", "--quiet"]


def interrupted(until: Path, *arguments: object, by: signal.Signals = signal.SIGINT) -> str:
    """Interrupt a command once ``until`` is there, and written unless it is a lock, and return what it says."""
    command = [sys.executable, "-c", INTERRUPTIBLE, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        while not any(file.stat().st_size or file.suffix == ".lock" for file in until.parent.glob(until.name)):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(by)
        try:
            output, said = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail("the interrupt was not heard")
    assert process.returncode == 128 + by
    assert output == ""
    return said


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", separable_bags())
    return tmp_path / "store"


@pytest.mark.long
@pytest.mark.parametrize("by", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_training_that_is_interrupted_goes_on_with_resume(
    by: signal.Signals, store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    said = interrupted(out / "checkpoints" / "last.safetensors", "train", store, "--out", out, *SLOW, by=by)
    assert said.startswith("miue: interrupted: ") and said.endswith("; the same command with --resume continues\n")
    assert not (out / "config.json").exists()
    epochs = len((out / "log.csv").read_text().splitlines()) - 1
    assert epochs >= 1
    more = ["--max-epochs", epochs + 1, "--stop-patience", "5000", "--quiet"]
    assert f"Trained for {epochs + 1} epochs" in run("train", store, "--out", out, "--resume", *more)


@pytest.mark.long
@pytest.mark.parametrize("by", slow_but([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], [signal.SIGTERM]))
def test_any_other_command_is_given_again(by: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "store"
    said = interrupted(tmp_path / ".store.lock", "data", "make", "digits-bags", "--out", out, by=by)
    assert said.startswith("miue: interrupted: ") and said.endswith("; give the same command again\n")
    assert not list(tmp_path.iterdir())


INTERRUPTS_ITSELF = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import typer
from miue.cli import run_commands
from miue.cli.flags import Commands

app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)

@app.command()
def first():
    pass

@app.command()
def third():
    import atexit
    atexit.register(os.kill, os.getpid(), signal.SIGINT)

import sys
sys.argv = ["program", *sys.argv[1:]]
run_commands(app, "program")
"""


@pytest.mark.parametrize(("handler", "status"), [("default_int_handler", -signal.SIGINT), ("SIG_IGN", 0)])
def test_an_interrupt_after_a_command_has_ended_brings_no_traceback(handler: str, status: int) -> None:
    """A shell lets the commands that it starts in the background ignore interrupts."""
    program = INTERRUPTS_ITSELF.replace("default_int_handler", handler)
    called = [sys.executable, "-c", program, "third"]
    ended = subprocess.run(called, capture_output=True, text=True, timeout=50, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "", "")


class Destroyed:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("step", ["loss", "validate"])
def test_an_interrupt_is_heard_after_the_batch_in_which_it_comes(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python drops what is raised within a destructor."""
    taken, take = [], getattr(Learner, step)

    def take_and_interrupt(learner: Learner, batch: BagBatch) -> object:
        taken.append(batch)
        Destroyed()
        return take(learner, batch)

    monkeypatch.setattr(Learner, step, take_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        miue.train(separable_bags(), out=tmp_path / "run", progress=False)
    assert len(taken) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("kind", ["training", "validation"])
def test_an_interrupt_of_a_training_on_lightning_is_heard_wherever_it_comes(kind: str, tmp_path: Path) -> None:
    heard: list[str] = []

    class InterruptWithin(Callback):
        def on_train_batch_start(self, *arguments: object) -> None:
            self.interrupt("training")

        def on_validation_batch_start(self, *arguments: object) -> None:
            self.interrupt("validation")

        def interrupt(self, where: str) -> None:
            heard.append(where)
            if where == kind:
                Destroyed()

    with pytest.raises(KeyboardInterrupt):
        miue.train(
            separable_bags(), out=tmp_path / "run", settings={"callbacks": [InterruptWithin()]}, progress=False
        )
    assert heard.count(kind) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """``nohup`` ignores SIGHUP for the commands that it starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts_raised():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_command_leaves_the_handlers_of_its_process_as_they_were(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [*map(signal.getsignal, RAISED)]
    monkeypatch.setattr(sys, "argv", ["miue", "--version"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert capsys.readouterr().out.startswith("miue ")
    assert [*map(signal.getsignal, RAISED)] == before


def test_an_interrupt_after_the_last_batch_is_heard() -> None:
    class InterruptAtTheEnd(Callback):
        def on_train_end(self, *arguments: object) -> None:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        miue.train(
            separable_bags(), settings={"max_epochs": 1, "callbacks": [InterruptAtTheEnd()]}, progress=False
        )


def test_a_second_interrupt_is_raised_at_once() -> None:
    class InterruptTwice(Callback):
        def on_train_batch_start(self, *arguments: object) -> None:
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        miue.train(separable_bags(), settings={"callbacks": [InterruptTwice()]}, progress=False)


def test_a_handler_of_the_caller_stays_in_place() -> None:
    calls: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    try:

        class InterruptOnce(Callback):
            def on_train_start(self, *arguments: object) -> None:
                signal.raise_signal(signal.SIGINT)

        miue.train(separable_bags(), settings={"max_epochs": 1, "callbacks": [InterruptOnce()]}, progress=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert calls == [signal.SIGINT]
