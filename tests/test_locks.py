"""One process at a time writes an output, and what a killed one left is removed by the next."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import made_files
import pytest
from commands import fail, run
from made_bags import separable_bags

import miue
from miue.common import files, locks
from miue.common.errors import StorageError
from miue.common.files import atomic_file, atomic_folder
from miue.common.folder_kinds import PREDICTIONS
from miue.common.locks import holder, locked
from miue.common.tasks import Task, run_tasks
from miue.io.splits.draw import make_folds
from miue.io.store.pack import pack
from miue.model.recipe import Recipe
from miue.selection.cross_validation import cross_validate

HOLD = """
import sys, time
from pathlib import Path
from miue.common.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""
WRITE = """
import sys
from pathlib import Path
from miue.common.files import atomic_file
with atomic_file(Path(sys.argv[1])) as temporary:
    temporary.write_text("of another process")
    print("held", flush=True)
    sys.stdin.readline()
"""
QUICK = {"max_epochs": 1}


@pytest.fixture
def hold() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Lock an output in another process, or write it, which is killed in the end."""
    started = []

    def start(output: Path, program: str = HOLD) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, str(output)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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
    return miue.train(bags, settings=QUICK, progress=False, device="cpu").predict(bags)


WRITERS: dict[str, Callable[[Path], object]] = {
    "train": lambda out: miue.train(separable_bags(), settings=QUICK, out=out, progress=False, device="cpu"),
    "cross_validate": lambda out: cross_validate(
        separable_bags(), make_folds(separable_bags(), 2), [1], out, Recipe(settings=QUICK), progress=False
    ),
    "pack": lambda out: pack(separable_bags(), out),
    "write_store": lambda out: miue.write_store(out, separable_bags()),
    "predictions": lambda out: predictions().save(out),
}


@pytest.mark.parametrize("what", WRITERS)
def test_who_writes_an_output_is_told_to_a_second_process(
    what: str, tmp_path: Path, hold: Callable[..., subprocess.Popen[str]]
) -> None:
    out = tmp_path / "7"
    process = hold(out)
    with pytest.raises(
        StorageError, match=f"no other process that writes it, got process {process.pid} on .*since"
    ):
        WRITERS[what](out)
    assert not out.exists()
    process.kill()
    process.wait()
    WRITERS[what](out)
    assert out.exists()
    assert not list(tmp_path.rglob("*.lock"))


def test_the_commands_refuse_at_once(tmp_path: Path, hold: Callable[..., subprocess.Popen[str]]) -> None:
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
    assert f"process {os.getpid()}" in str(refused[0])
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
        assert json.loads((out / ".lock").read_text())["process"] == os.getpid()
        miue.train(separable_bags(), settings=QUICK, out=out, progress=False, device="cpu")
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


@pytest.mark.parametrize(
    ("module", "command"),
    [
        (None, ["miue", "train", "my bags"]),
        ("papers.mirel.__main__", ["python", "-m", "papers.mirel", "train", "my bags"]),
    ],
)
def test_the_command_that_holds_an_output_is_shown_as_it_was_typed(
    module: str | None, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = None if module is None else ModuleSpec(module, None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(
        sys, "argv", ["/bin/miue" if module is None else "/lib/mirel/__main__.py", "train", "my bags"]
    )
    with locked(tmp_path / "out"):
        assert holder(tmp_path / ".out.lock").endswith(f": {shlex.join(command)}")


def test_a_process_that_was_killed_holds_nothing(
    tmp_path: Path, hold: Callable[..., subprocess.Popen[str]]
) -> None:
    process = hold(tmp_path / "out")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / ".out.lock").exists()
    with locked(tmp_path / "out"):
        pass
    assert not list(tmp_path.iterdir())


def test_the_lock_of_a_part_whose_writer_was_killed_once_it_was_there_is_removed(
    tmp_path: Path, hold: Callable[..., subprocess.Popen[str]]
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
        miue.train(bags, settings=QUICK, out=out, if_exists="resume", progress=False, device="cpu", **ensemble)

    train()
    if not finished:
        (out / "config.json").unlink()
    left = [
        out / ".config.json.0123abcd.tmp",
        out / "members" / "1" / ".log.csv.0123abcd.tmp",
        out / "members" / "1" / ".log.csv.0123abcd.tmp.lock",
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


def test_the_next_file_of_a_name_removes_what_a_killed_one_left(
    tmp_path: Path, hold: Callable[..., subprocess.Popen[str]]
) -> None:
    process = hold(tmp_path / "a", WRITE)
    process.kill()
    process.wait()
    assert [path.read_text() for path in tmp_path.glob(".a.*.tmp")] == ["of another process"]
    with pytest.raises(RuntimeError), atomic_file(tmp_path / "a"):
        raise RuntimeError
    assert not list(tmp_path.iterdir())


def test_beside_what_a_killed_one_left_a_file_that_is_written_just_now_stays(tmp_path: Path) -> None:
    left = [tmp_path / f".a.0123abcd.tmp{ending}" for ending in ("", ".lock")]
    with atomic_file(tmp_path / "a") as first:
        first.write_text("1")
        for path in left:
            path.touch()
        with atomic_file(tmp_path / "a") as second:
            second.write_text("2")
        assert not any(path.exists() for path in left)
    assert (tmp_path / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_another_process_writes_is_not_removed(
    tmp_path: Path, hold: Callable[..., subprocess.Popen[str]]
) -> None:
    process = hold(tmp_path / "a", WRITE)
    with atomic_file(tmp_path / "a") as temporary:
        temporary.write_text("mine")
    assert (tmp_path / "a").read_text() == "mine"
    process.communicate("\n")
    assert process.returncode == 0
    assert (tmp_path / "a").read_text() == "of another process"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_leaves_the_temporaries_of_other_names_and_of_a_folder(tmp_path: Path) -> None:
    names = [".a.csv", ".csv", ".b", ".ab", "a", ".a.0123abcd", ".a.0123abcd.tmp"]
    for name in names:
        for ending in (".0123abcd.tmp", ".0123abcd.tmp.lock"):
            (tmp_path / f"{name}{ending}").touch()
    (tmp_path / ".a.0123abcd.tmp").mkdir()
    before = sorted(tmp_path.iterdir())
    with atomic_file(tmp_path / "a") as temporary:
        temporary.touch()
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "a"])


def test_what_came_after_its_lock_was_seen_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer may have found the lock held by who looks for what killed ones left."""
    late, lock = tmp_path / ".a.0123abcd.tmp", tmp_path / ".a.0123abcd.tmp.lock"
    for path in (late, lock):
        path.touch()
    with monkeypatch.context() as patch:
        patch.setattr(files, "temporaries", lambda *_: [lock])
        with atomic_file(tmp_path / "a") as temporary:
            temporary.touch()
    assert sorted(tmp_path.iterdir()) == [late, tmp_path / "a"]


def test_without_locks_a_file_is_written_and_nothing_is_taken_for_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(locks, "lock_descriptor", refuse)
    with atomic_file(tmp_path / "a") as first, atomic_file(tmp_path / "a") as second:
        first.write_text("1")
        with atomic_file(tmp_path / "a") as third:
            third.write_text("3")
        second.write_text("2")
    assert (tmp_path / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_that_cannot_be_listed_takes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        with atomic_file(tmp_path / "a") as temporary:
            temporary.touch()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_files_in_a_folder_that_is_written_are_not_locked_one_by_one(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "out", PREDICTIONS) as folder, atomic_file(folder / "of" / "a") as temporary:
        temporary.touch()
        assert list((folder / "of").iterdir()) == [temporary]
    with atomic_file(tmp_path / "a") as temporary:
        temporary.touch()
        assert len(list(tmp_path.glob(".a.*.lock"))) == 1
