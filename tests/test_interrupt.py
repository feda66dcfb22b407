"""Ctrl-C says in one line what was kept and how to go on, under --quiet as well."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run
from fast import slow_but
from lightning.pytorch.callbacks import Callback
from made_bags import separable_bags

import miue
from miue.cli import main
from miue.cli.interrupt import Interrupted, kept_bags, kept_epochs, last_states
from miue.common.interrupts import RAISED, all_interrupts_heard
from miue.common.nested import write_nested
from miue.io.store import write_store
from miue.model.write_predictions import write_predictions

INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "signal.signal(signal.SIGHUP, signal.SIG_DFL); from miue.cli import main; main()"
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
def test_a_training_says_how_many_epochs_are_kept_and_goes_on(
    by: signal.Signals, store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    said = interrupted(out / "checkpoints" / "last.safetensors", "train", store, "--out", out, *SLOW, by=by)
    goes_on = "the same command with --resume goes on"
    kept = re.fullmatch(
        rf"miue: interrupted: ([\d,]+) finished epochs? (?:is|are) kept in {out}; {goes_on}\n", said
    )
    assert kept is not None, said
    epochs = int(kept[1].replace(",", ""))
    assert epochs >= 1
    assert not (out / "config.json").exists()
    more = ["--set", f"max_epochs={epochs + 1}", "--set", "stop_patience=5000", "--quiet"]
    assert f"Trained for {epochs + 1} epochs" in run("train", store, "--out", out, "--resume", *more)


@pytest.mark.parametrize(
    ("count", "said"), [(1, "1 finished epoch is kept in"), (2, "2 finished epochs are kept in")]
)
def test_one_epoch_that_is_kept_is_one(count: int, said: str, tmp_path: Path) -> None:
    write_nested(tmp_path / "last.safetensors", {"epoch": count - 1})
    assert kept_epochs(tmp_path).startswith(said)
    (tmp_path / ".store.packing").mkdir()
    (tmp_path / ".store.packing" / "checksums.csv").write_text("a,0\n" * count)
    bags = said.replace("finished epoch", "packed bag").removesuffix(" in")
    assert kept_bags(tmp_path / "store").startswith(bags)


def test_epochs_of_a_run_that_is_to_be_replaced_are_not_counted(tmp_path: Path) -> None:
    """Nor goes a training on with --resume beside the --overwrite that it was started with."""
    write_nested(tmp_path / "last.safetensors", {"epoch": 6})
    replaced = last_states(tmp_path)
    assert kept_epochs(tmp_path, replaced) == "no epoch was finished; give the same command again"
    write_nested(tmp_path / "last.safetensors", {"epoch": 1})
    goes_on = "the same command with --resume instead of --overwrite goes on"
    assert kept_epochs(tmp_path, replaced) == f"2 finished epochs are kept in {tmp_path}; {goes_on}"


def test_a_training_that_replaces_another_and_is_interrupted_says_how_to_go_on(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = ["train", str(store), "--out", str(tmp_path / "run"), "--set", "max_epochs=2", "--quiet"]
    run(*training)
    monkeypatch.setattr("miue.training.train.open_run", interrupt)
    with pytest.raises(Interrupted, match="^no epoch was finished; give the same command again$"):
        run(*training, "--overwrite")
    monkeypatch.undo()
    monkeypatch.setattr("miue.training.train.write_model", interrupt)
    with pytest.raises(Interrupted, match="2 finished epochs are .* with --resume instead of --overwrite"):
        run(*training, "--overwrite")


def interrupt(*arguments: object, **options: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("command", "said_last"),
    [
        pytest.param(["report"], "cli.report.show_result", marks=pytest.mark.long),
        (["evaluate"], "common.text.ResultTable.show"),
        (["worklist"], "common.text.ResultTable.show"),
        (["export", "geojson"], "cli.export.show_result"),
        (["data", "pack"], "cli.pack.show_result"),
        (["data", "split"], "cli.pack.show_result"),
        pytest.param(["data", "make", "digits-bags"], "cli.make.show_result", marks=pytest.mark.long),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_an_interrupt_once_the_output_is_written_says_that_it_is_whole(
    command: list[str],
    said_last: str,
    saved_slides: Path,
    store: Path,
    tmp_path: Path,
    small_plotly: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same command, which was advised, would be refused: the output is there."""
    given = {"data": store, **dict.fromkeys(["report", "evaluate", "worklist", "export"], saved_slides)}
    of = [given[command[0]]] if "make" not in command else []
    out = tmp_path / ("out.csv" if command[-1] in ("split", "worklist") else "out")
    whole = f"^{re.escape(str(out))} is written, and whole; the same command is not needed again$"
    for more in ([], ["--overwrite"]):
        with monkeypatch.context() as patched:
            patched.setattr(f"miue.{said_last}", interrupt)
            with pytest.raises(Interrupted, match=whole):
                run(*command, *of, "--out", out, *more)
    with monkeypatch.context() as patched:
        patched.setattr("miue.common.files._sync", interrupt)
        before = (
            "nothing half-written was left; give the same command again|0 packed bags .*; the same command goes on"
        )
        with pytest.raises(Interrupted, match=f"^({before})$"):
            run(*command, *of, "--out", out, "--overwrite")


@pytest.mark.long
def test_an_interrupt_of_what_is_written_piece_by_piece_says_what_is_there(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, predictions, out = tmp_path / "run", tmp_path / "predictions", tmp_path / "monitor"
    training = ["train", store, "--out", model, "--set", "max_epochs=1", "--quiet"]
    with monkeypatch.context() as patched:
        patched.setattr("miue.cli.train.show_result", interrupt)
        with pytest.raises(Interrupted, match=f"1 finished epoch is kept in {model}; .* --resume goes on"):
            run(*training)
    run(*training, "--resume")
    predicting = ["predict", model, store, "--out", predictions, "--part", "all", "--quiet"]
    with monkeypatch.context() as patched:
        patched.setattr("miue.model.write_predictions.write_predictions", interrupt_after(write_predictions))
        with pytest.raises(Interrupted, match=f"^the predictions are kept in {predictions}$"):
            run(*predicting)
    rules = ["--without", "deferral", "--without", "sets", "--false-alarms", "0.2"]
    run("calibrate", model, store, *rules, "--quiet")
    monitoring = ["monitor", model, predictions, "--out", out]
    for where in ("calibration.monitoring.folder._course_columns", "common.text.ResultTable.show"):
        with monkeypatch.context() as patched:
            patched.setattr(f"miue.{where}", interrupt)
            with pytest.raises(Interrupted, match="is whole; the same command adds what it lacks$"):
                run(*monitoring)
    run(*monitoring)
    checking = ["check", "vanishing", model, store, "--out", tmp_path / "vanishing", "--quiet"]
    monkeypatch.setattr("miue.selection.check_vanishing", interrupt)
    with pytest.raises(Interrupted, match="^finished refits are kept in .*; the same command goes on$"):
        run(*checking)


def interrupt_after(work: Callable[..., object]) -> Callable[..., None]:
    """Return ``work`` that is interrupted once it has ended."""

    def wrapped(*arguments: object, **options: object) -> None:
        work(*arguments, **options)
        raise KeyboardInterrupt

    return wrapped


@pytest.mark.slow
def test_a_cross_validation_says_how_many_runs_are_kept(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "cv"
    last = out / "fold_0" / "seed_42" / "run" / "checkpoints" / "last.safetensors"
    said = interrupted(last, "cross-validate", store, "--folds", "2", "--out", out, *SLOW)
    wanted = f"0 of 2 runs and the epochs of those under way are kept in {out}; the same command goes on"
    assert said == f"miue: interrupted: {wanted}\n"


@pytest.mark.long
@pytest.mark.parametrize("by", slow_but([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], [signal.SIGTERM]))
def test_any_other_command_says_that_nothing_half_written_was_left(by: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "store"
    said = interrupted(tmp_path / ".store.lock", "data", "make", "digits-bags", "--out", out, by=by)
    assert said == "miue: interrupted: nothing half-written was left; give the same command again\n"
    assert not list(tmp_path.iterdir())


INTERRUPTS_ITSELF = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
import typer
from miue.cli import run_commands
from miue.cli.help import Commands

class Interrupted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)

@app.command()
def first():
    del_me = Interrupted()
    del del_me
    print("goes on")
    time.sleep(60)

@app.command()
def second():
    import swallows_interrupts
    print("imported whole" if swallows_interrupts.is_whole else "imported in part")
    time.sleep(60)

@app.command()
def third():
    import atexit
    atexit.register(os.kill, os.getpid(), signal.SIGINT)

import sys
sys.argv = ["program", *sys.argv[1:]]
run_commands(app, "program")
"""


SWALLOWS_INTERRUPTS = """
import os, signal

try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass
    is_whole = True
except KeyboardInterrupt:
    is_whole = False
"""


@pytest.mark.parametrize(("command", "goes_on"), [("first", "goes on"), ("second", "imported whole")])
def test_an_interrupt_within_a_destructor_or_an_import_comes_after_it(
    command: str, goes_on: str, tmp_path: Path
) -> None:
    (tmp_path / "swallows_interrupts.py").write_text(SWALLOWS_INTERRUPTS)
    called = [sys.executable, "-c", INTERRUPTS_ITSELF, command]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    ended = subprocess.run(called, capture_output=True, text=True, timeout=50, check=False, env=environment)
    assert ended.stdout == f"{goes_on}\n"
    assert ended.returncode == 130
    assert "interrupted: nothing half-written was left" in ended.stderr


@pytest.mark.parametrize(("handler", "status"), [("default_int_handler", -signal.SIGINT), ("SIG_IGN", 0)])
def test_an_interrupt_after_a_command_has_ended_brings_no_traceback(handler: str, status: int) -> None:
    """A shell lets the commands that it starts in the background ignore interrupts."""
    program = INTERRUPTS_ITSELF.replace("default_int_handler", handler)
    called = [sys.executable, "-c", program, "third"]
    ended = subprocess.run(called, capture_output=True, text=True, timeout=50, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "", "")


@pytest.mark.parametrize("kind", ["training", "validation"])
def test_an_interrupt_of_a_training_is_heard_wherever_it_comes(kind: str, tmp_path: Path) -> None:
    """Python drops what is raised within a destructor; the training ends after the batch all the same."""
    heard: list[str] = []

    class Destroyed:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

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
        miue.train(separable_bags(), out=tmp_path / "run", callbacks=[InterruptWithin()], progress=False)
    assert heard.count(kind) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """``nohup`` ignores SIGHUP for the commands that it starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with all_interrupts_heard():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_command_leaves_the_handlers_of_its_process_as_they_were(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = *map(signal.getsignal, RAISED), sys.unraisablehook
    monkeypatch.setattr(sys, "argv", ["miue", "--version"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert capsys.readouterr().out.startswith("miue ")
    assert (*map(signal.getsignal, RAISED), sys.unraisablehook) == before


def test_an_interrupt_after_the_last_batch_is_heard() -> None:
    class InterruptAtTheEnd(Callback):
        def on_train_end(self, *arguments: object) -> None:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        miue.train(separable_bags(), callbacks=[InterruptAtTheEnd()], settings={"max_epochs": 1}, progress=False)


def test_a_second_interrupt_is_raised_at_once() -> None:
    class InterruptTwice(Callback):
        def on_train_batch_start(self, *arguments: object) -> None:
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        miue.train(separable_bags(), callbacks=[InterruptTwice()], progress=False)


def test_a_handler_of_the_caller_stays_in_place() -> None:
    calls: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    try:

        class InterruptOnce(Callback):
            def on_train_start(self, *arguments: object) -> None:
                signal.raise_signal(signal.SIGINT)

        miue.train(separable_bags(), callbacks=[InterruptOnce()], settings={"max_epochs": 1}, progress=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert calls == [signal.SIGINT]
