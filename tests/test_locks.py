"""One process at a time writes an output, and what a killed one left is removed by the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import made_files
import pytest
from commands import fail, run
from made_bags import separable_bags, train_with

import miue
from miue.common.errors import StorageError
from miue.common.files import atomic_file, atomic_folder
from miue.common.folder_kinds import PREDICTIONS
from miue.common.outputs import locked
from miue.common.tasks import Task, run_tasks
from miue.io import make_folds, pack
from miue.model.recipe import Recipe
from miue.selection import cross_validate

HOLD = """
import sys, time
from pathlib import Path
from miue.common.outputs import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""
QUICK = {"max_epochs": 1}


@pytest.fixture
def hold() -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Lock an output in another process, which is killed in the end."""
    started = []

    def start(output: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, str(output)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def predictions() -> miue.Predictions:
    bags = separable_bags(12)
    return miue.train(bags, settings={**QUICK, "device": "cpu"}, progress=False).predict(bags)


WRITERS: dict[str, Callable[[Path], object]] = {
    "train": lambda out: miue.train(
        separable_bags(), settings={**QUICK, "device": "cpu"}, out=out, progress=False
    ),
    "cross_validate": lambda out: cross_validate(
        separable_bags(), make_folds(separable_bags(), 2), [1], out, Recipe(settings=QUICK), progress=False
    ),
    "pack": lambda out: pack(separable_bags(), out),
    "write_store": lambda out: miue.write_store(out, separable_bags()),
    "predictions": lambda out: predictions().save(out),
}


@pytest.mark.parametrize("what", WRITERS)
def test_an_output_that_another_process_writes_is_refused(
    what: str, tmp_path: Path, hold: Callable[[Path], subprocess.Popen[str]]
) -> None:
    out = tmp_path / "7"
    process = hold(out)
    with pytest.raises(StorageError, match=r"no other process that writes it, got one that holds '.*/\.7\.lock'"):
        WRITERS[what](out)
    assert not out.exists()
    process.kill()
    process.wait()
    WRITERS[what](out)
    assert out.exists()
    assert not list(tmp_path.rglob("*.lock"))


def test_the_commands_refuse_at_once(tmp_path: Path, hold: Callable[[Path], subprocess.Popen[str]]) -> None:
    hold(tmp_path / "out")
    for command in (
        ["data", "make", "digits-bags"],
        ["predict", tmp_path / "no-model", tmp_path / "no-bags"],
    ):
        assert "no other process that writes it" in fail(*command, "--out", tmp_path / "out")
    folder, labels = made_files.slides(tmp_path / "job")
    packing = ["data", "pack", folder, "--labels", labels, "--quiet", "--out"]
    assert "no other process that writes it" in fail(*packing, tmp_path / "out")
    run(*packing, tmp_path / "store")


def test_a_thread_waits_for_no_other_but_locks_again_what_it_holds(tmp_path: Path) -> None:
    refused: list[BaseException] = []

    def lock() -> None:
        try:
            with locked(tmp_path / "out"):
                pass
        except StorageError as error:
            refused.append(error)

    with locked(tmp_path / "out"), locked(tmp_path / "out"), locked(tmp_path / "other"):
        thread = threading.Thread(target=lock)
        thread.start()
        thread.join()
    assert len(refused) == 1
    lock()
    assert len(refused) == 1


def test_an_output_whose_folder_cannot_be_written_is_locked_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "mounted"
    out.mkdir()
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path and may(path, mode))
    with locked(out):
        assert (out / ".lock").is_file()
        miue.train(separable_bags(), settings={**QUICK, "device": "cpu"}, out=out, progress=False)
    assert not (out / ".lock").exists()


def test_a_failure_leaves_no_empty_folder_that_it_made_and_every_folder_that_was_there(tmp_path: Path) -> None:
    out = tmp_path / "there" / "new" / "out"
    (tmp_path / "there").mkdir()
    with pytest.raises(ValueError), locked(out):
        out.mkdir()
        raise ValueError
    assert list((tmp_path / "there").iterdir()) == []

    out.mkdir(parents=True)  # empty, and the user's
    with pytest.raises(ValueError), locked(out):
        raise ValueError
    assert out.is_dir()

    with locked(tmp_path / "other" / "out"):
        (tmp_path / "other" / "out").mkdir()
        (tmp_path / "other" / "out" / "part").touch()
    assert (tmp_path / "other" / "out" / "part").is_file()


@pytest.mark.parametrize(
    "command",
    [
        ["data", "tile", "no.svs"],
        ["data", "tile", "no.svs", "--jobs", "2"],
        ["data", "shift", "no.svs", "--kind", "blur", "--strength", "light"],
        ["predict", "no", "no"],
        ["merge", "no"],
    ],
)
def test_a_command_that_fails_at_once_leaves_no_folder(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fail(*command, "--out", "new/out")
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_was_killed_holds_nothing(
    tmp_path: Path, hold: Callable[[Path], subprocess.Popen[str]]
) -> None:
    process = hold(tmp_path / "out")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / ".out.lock").exists()
    with locked(tmp_path / "out"):
        pass
    assert not list(tmp_path.iterdir())


def test_the_lock_of_a_part_whose_writer_was_killed_once_it_was_there_is_removed(
    tmp_path: Path, hold: Callable[[Path], subprocess.Popen[str]]
) -> None:
    """The part is not written again, so that nothing else would remove it."""
    part, held = tmp_path / "part.json", tmp_path / "held.json"
    for path in (part, held):
        path.touch()
    process = hold(part)
    process.kill()
    process.wait()
    hold(held)
    assert {path.name for path in tmp_path.glob(".*.lock")} == {".part.json.lock", ".held.json.lock"}
    tasks = [Task(path.name, "none:none", {}, path) for path in (part, held)]
    assert run_tasks(tasks, doing="waiting", unit="parts") == [None, None]
    assert [path.name for path in tmp_path.glob(".*.lock")] == [".held.json.lock"]


@pytest.mark.parametrize("finished", [True, False])
def test_a_resume_removes_what_a_kill_left_half_written_and_nothing_else(finished: bool, tmp_path: Path) -> None:
    out = tmp_path / "run"
    ensemble: dict[str, Any] = {"method": "deep-ensemble", "options": {"method.size": 2}}

    def train() -> None:
        bags = separable_bags()
        train_with(
            bags, settings={**QUICK, "device": "cpu"}, out=out, if_exists="resume", progress=False, **ensemble
        )

    train()
    if not finished:
        (out / "config.json").unlink()
    left = [
        out / ".config.json.0123abcd.tmp",
        out / "members" / "1" / ".log.csv.0123abcd.tmp",
        out / "members" / "0" / "checkpoints" / ".last.safetensors.0123abcd.tmp",
    ]
    kept = [out / ".notes.tmp", out / "mine.0123abcd.tmp", tmp_path / ".other.0123abcd.tmp"]
    for path in (*left, *kept):
        path.write_text("half")
    train()
    assert not [path for path in left if path.exists()]
    assert [path for path in kept if path.exists()] == kept


def test_the_next_folder_of_a_name_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    half, other = tmp_path / ".out.0123abcd.tmp", tmp_path / ".other.0123abcd.tmp"
    for folder in (half, other):
        folder.mkdir()
        (folder / "bags.csv").write_text("half")
    with atomic_folder(tmp_path / "out", PREDICTIONS) as folder:
        (folder / "bags.csv").write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, "out"]


def test_a_folder_that_was_being_replaced_when_its_writer_was_killed_comes_back(tmp_path: Path) -> None:
    aside = tmp_path / ".out.old"
    aside.mkdir()
    (aside / "bags.csv").write_text("old")
    with pytest.raises(StorageError, match="--overwrite"), atomic_folder(tmp_path / "out", PREDICTIONS):
        pass
    assert (tmp_path / "out" / "bags.csv").read_text() == "old"
    assert not aside.exists()


def test_two_writers_of_one_file_leave_each_other_s_temporaries(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "a") as first, atomic_file(tmp_path / "a") as second:
        second.write_text("2")
        first.write_text("1")
    assert (tmp_path / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".out.lock").symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(StorageError, match="Too many levels of symbolic links.*; choose another"),
        locked(tmp_path / "out"),
    ):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_who_holds_an_output_removes_what_a_killed_process_left_of_it_alone(tmp_path: Path) -> None:
    names = [".a.csv", ".csv", ".b", ".ab", "a", ".a.0123abcd"]
    others = {tmp_path / f"{name}.0123abcd.tmp" for name in names}
    for path in (*others, tmp_path / ".a.0123abcd.tmp"):
        path.touch()
    with locked(tmp_path / "a"):
        assert set(tmp_path.iterdir()) == {*others, tmp_path / ".a.lock"}
        with atomic_file(tmp_path / "a") as temporary, locked(tmp_path / "a"):
            temporary.touch()
    assert set(tmp_path.iterdir()) == {*others, tmp_path / "a"}
