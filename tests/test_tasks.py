"""Tasks: what is done is skipped, what fails is named, what dies is tried again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from miue.common.errors import ConfigError, DataError, MiueError, StorageError
from miue.common.tasks import LOCAL, Executor, Shard, Task, WorkerError, parse_shard, run_tasks
from miue.common.tasks.on_ray import _outcome
from miue.common.tasks.task import answer, read_answer

TWO = Executor("processes", 2)
BOTH = pytest.mark.parametrize("executor", [LOCAL, TWO], ids=["local", "processes"])


def task(out: Path, function: str = "square", **arguments: Any) -> Task:
    if function == "square":
        arguments = {"number": 3, **arguments}
    return Task(out.stem, f"worked_tasks:{function}", {"out": str(out), **arguments}, out)


def run(tasks: list[Task], executor: Executor = TWO) -> list[Any]:
    return run_tasks(tasks, executor, doing="working", unit="tasks")


@BOTH
def test_each_task_writes_its_part_and_its_value_is_returned_in_order(executor: Executor, tmp_path: Path) -> None:
    tasks = [task(tmp_path / f"{number}.json", number=number) for number in range(5)]
    assert run(tasks, executor) == [0, 1, 4, 9, 16]
    assert [json.loads(each.part.read_text())["square"] for each in tasks] == [0, 1, 4, 9, 16]


@BOTH
def test_a_part_that_is_there_is_not_written_again(executor: Executor, tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text("done")
    assert run([task(tmp_path / "0.json"), task(tmp_path / "1.json")], executor) == [None, 9]
    assert (tmp_path / "0.json").read_text() == "done"


@BOTH
def test_an_error_of_miue_arrives_as_it_was_raised(executor: Executor, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="bag 'a': expected instances, got none; drop it"):
        run([task(tmp_path / "0", "refuse")], executor)


@BOTH
def test_after_an_error_what_runs_is_finished_and_nothing_is_started(executor: Executor, tmp_path: Path) -> None:
    later = [task(tmp_path / f"{number}.json") for number in range(4)]
    files = {"begun": str(tmp_path / "begun"), "file": str(tmp_path / "bad.seen")}
    with pytest.raises(DataError):
        run([task(tmp_path / "bad", "refuse"), task(tmp_path / "slow", "wait_for", **files), *later], executor)
    assert (tmp_path / "slow").exists() == (executor == TWO)
    assert sum(each.part.exists() for each in later) <= 1


@BOTH
def test_where_errors_are_collected_the_rest_goes_on(executor: Executor, tmp_path: Path) -> None:
    errors: list[tuple[str, MiueError]] = []
    tasks = [task(tmp_path / "bad", "refuse"), task(tmp_path / "0.json")]
    values = run_tasks(
        tasks, executor, doing="", unit="", on_error=lambda each, error: errors.append((each.name, error))
    )
    assert values == [None, 9]
    assert [(name, error.item) for name, error in errors] == [("bad", "bag 'a'")]


@BOTH
def test_parts_that_are_removed_while_others_are_written_are_an_error(executor: Executor, tmp_path: Path) -> None:
    """Those that come after make the folder again; the rest seemed to be there."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "0.json").touch()
    tasks = [task(folder / "0.json"), task(folder / "1.json"), task(folder / "2", "remove_folder_of")]
    with pytest.raises(StorageError, match="0.json': expected what .* got none: 2 of 3 outputs removed meanwhile"):
        run(tasks, Executor(executor.kind, executor.jobs and 1))
    (folder / "2").unlink()
    assert run(tasks[:2], executor) == [9, 9]


def test_an_error_that_is_not_of_miue_is_shown_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(
        WorkerError, match=r"0 failed in a worker:\n(?s:.*)worked_tasks.py(?s:.*)ZeroDivisionError: a bug"
    ):
        run([task(tmp_path / "0", "fail")])
    with pytest.raises(ZeroDivisionError):
        run([task(tmp_path / "0", "fail")], LOCAL)


def test_a_worker_that_dies_is_started_again_and_the_others_go_on(tmp_path: Path) -> None:
    tasks = [task(tmp_path / "dies.json", "die_once"), *(task(tmp_path / f"{n}.json") for n in range(3))]
    run(tasks)
    assert all(each.part.exists() for each in tasks)


def test_a_task_whose_worker_dies_each_time_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        MiueError, match="bad: expected a worker that lives .*, got 3 that died, the last by signal SIGKILL"
    ):
        run([task(tmp_path / "bad", "die"), task(tmp_path / "0.json")])
    assert (tmp_path / "0.json").exists()


def test_the_cores_are_shared_among_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    run([task(tmp_path / "0.json"), task(tmp_path / "1.json")])
    assert json.loads((tmp_path / "1.json").read_text())["threads"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    run([task(tmp_path / "2.json")])
    assert json.loads((tmp_path / "2.json").read_text())["threads"] == "3"


DRIVER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from miue.common.tasks import Executor, Task, run_tasks
out = Path(sys.argv[1])
arguments = {"out": str(out / "part"), "begun": str(out / "begun"), "file": str(out / "go")}
task = Task("slow", "worked_tasks:wait_for", arguments, out / "part")
try:
    run_tasks([task], Executor("processes", 1), doing="", unit="")
except KeyboardInterrupt:
    print("interrupted")
"""


def driven(out: Path) -> subprocess.Popen[str]:
    """A process that runs one task, when that has begun."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(out)], stdout=subprocess.PIPE, text=True, env=environment
    )
    while not (out / "begun").exists():
        assert process.poll() is None
        time.sleep(0.01)
    return process


def workers_at(out: Path) -> list[str]:
    """Command lines that name a folder, which are those of no process once its workers have ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(path.readlink()).startswith(str(out)):
                found.append(str(path))
        except OSError:
            continue
    return found


def test_an_interrupt_ends_the_workers(tmp_path: Path) -> None:
    with driven(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0] == "interrupted\n"
    assert workers_at(tmp_path) == []
    assert not (tmp_path / "part").exists()


@pytest.mark.long
def test_the_workers_of_a_killed_driver_end_and_another_goes_on(tmp_path: Path) -> None:
    with driven(tmp_path) as process:
        assert workers_at(tmp_path)
        process.kill()
        process.communicate(timeout=60)
    (tmp_path / "begun").unlink()
    with driven(tmp_path) as process:
        (tmp_path / "go").touch()
        process.communicate(timeout=60)
    assert process.returncode == 0 and (tmp_path / "part").exists()
    assert workers_at(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "item", "got"),
    [
        (("cluster",), "executor 'cluster'", "'cluster'"),
        (("local", 2), "executor 'local'", "2 jobs"),
        (("processes", 0), "jobs", "0"),
        (("processes", 2, "head:6379"), "address", "executor 'processes'"),
    ],
)
def test_an_executor_that_cannot_be_is_refused(arguments: tuple[Any, ...], item: str, got: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Executor(*arguments)
    assert (raised.value.item, raised.value.got) == (item, got)


def test_shards_are_disjoint_and_whole() -> None:
    for count in (1, 3, 7, 20):
        shares = [Shard(number, count).share(range(13)) for number in range(1, count + 1)]
        assert [item for share in shares for item in share] == list(range(13))
        sizes = list(map(len, shares))
        assert max(sizes) - min(sizes) <= 1


ARRAY = {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "64"}


def test_a_shard_is_a_number_or_that_of_a_slurm_array() -> None:
    assert parse_shard("3/64") == Shard(3, 64)
    assert parse_shard("slurm", {**ARRAY, "SLURM_ARRAY_TASK_COUNT": "64"}) == Shard(3, 64)
    from_zero = {"SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_MAX": "63", "SLURM_ARRAY_TASK_COUNT": "64"}
    for job, shard in (("0", Shard(1, 64)), ("63", Shard(64, 64))):
        assert parse_shard("slurm", {**from_zero, "SLURM_ARRAY_TASK_ID": job}) == shard


@pytest.mark.parametrize(
    ("text", "environment", "item", "got"),
    [
        ("3", {}, "shard", "'3'"),
        ("0/4", {}, "shard 0/4", "0"),
        ("5/4", {}, "shard 5/4", "5"),
        ("slurm", {}, "shard 'slurm'", "no SLURM_ARRAY_TASK_ID"),
        ("slurm", {**ARRAY, "SLURM_ARRAY_TASK_COUNT": "2"}, "shard 'slurm'", "2 jobs from 1 to 64"),
    ],
)
def test_a_shard_that_cannot_be_is_refused(text: str, environment: dict[str, str], item: str, got: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_shard(text, environment)
    assert (raised.value.item, raised.value.got) == (item, got)


def test_without_the_package_ray_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ConfigError, match=r"executor 'ray': expected the package ray, .*; pip install 'miue\[ray\]'"
    ):
        run([task(tmp_path / "0")], Executor("ray"))


def test_a_worker_of_another_version_is_named(tmp_path: Path) -> None:
    each = task(tmp_path / "0")
    outcome = read_answer(each, answer(each.to_json(), "9.9"))
    assert isinstance(outcome.error, ConfigError) and outcome.error.wanted == "miue 9.9"
    assert not each.part.exists()


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("...\nModuleNotFoundError: No module named 'miue'\n", "ModuleNotFoundError: No module named 'miue'"),
        ("The node died.", "4 that died, the last by The node died."),
    ],
)
def test_what_ray_cannot_run_is_named(text: str, got: str, tmp_path: Path) -> None:
    class RayError(Exception):
        """As Ray's own."""

    ray = SimpleNamespace(exceptions=SimpleNamespace(RayError=RayError), get=Mock(side_effect=RayError(text)))
    error = _outcome(ray, None, task(tmp_path / "0")).error
    assert isinstance(error, MiueError) and error.got == got


def test_a_part_that_is_not_seen_where_it_was_asked_for_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("miue.common.tasks.on_ray.SECONDS_TO_APPEAR", 0.0)
    ray = SimpleNamespace(exceptions=SimpleNamespace(RayError=RuntimeError), get=Mock(return_value={"value": 3}))
    error = _outcome(ray, None, task(tmp_path / "0")).error
    assert isinstance(error, StorageError)
    assert re.search(r"0': expected the output of a task .* no such file on .*same files at the same", str(error))
    (tmp_path / "0").touch()
    assert _outcome(ray, None, task(tmp_path / "0")).value == 3
