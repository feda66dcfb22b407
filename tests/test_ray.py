"""Tasks on a Ray cluster of three nodes on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_bags import separable_bags
from made_slides import predictions_of_two_slides
from test_executors import contents, ensemble, written

import miue
from miue.bags import BagDataset
from miue.common.errors import ConfigError, DataError, StorageError
from miue.common.tasks import Executor, Task, run_tasks
from miue.model.shards import PredictionRequest, write_predictions, write_predictions_side_by_side
from miue.pathology.export.folders import export_side_by_side

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'miue[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.filterwarnings("default")]


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Three nodes with a core each."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    whole = Cluster(initialize_head=True, head_node_args=node)
    for _ in range(2):
        whole.add_node(num_cpus=1, object_store_memory=80 << 20)
    whole.wait_for_nodes()
    yield whole
    ray.shutdown()
    whole.shutdown()


def on(cluster: Any) -> Executor:
    return Executor("ray", None, cluster.address)


def task(out: Path, function: str, **arguments: Any) -> Task:
    return Task(out.stem, f"worked_tasks:{function}", {"out": str(out), **arguments}, out)


def test_a_cluster_writes_the_same_bytes_as_one_process(cluster: Any, tmp_path: Path) -> None:
    assert written(tmp_path / "a" / "cv", on(cluster)) == written(tmp_path / "b" / "cv")
    assert ensemble(tmp_path / "c" / "run", on(cluster)) == ensemble(tmp_path / "d" / "run")


def test_a_cluster_predicts_and_exports_the_same_bytes_as_one_process(cluster: Any, tmp_path: Path) -> None:
    miue.train(separable_bags(), settings={"max_epochs": 1}, out=tmp_path / "run", progress=False)
    bags = BagDataset.from_arrays([np.ones((5000, 5), np.float32) * row for row in range(4)])
    request = PredictionRequest(str(tmp_path / "run"), "bags", "all bags")
    write_predictions_side_by_side(bags, request, tmp_path / "a" / "predictions", on(cluster))
    write_predictions(miue.Model.load(tmp_path / "run"), bags, request, tmp_path / "b" / "predictions")
    assert contents(tmp_path / "a" / "predictions") == contents(tmp_path / "b" / "predictions")
    predictions_of_two_slides().save(tmp_path / "slides")
    slides = miue.read_predictions(tmp_path / "slides")
    export_side_by_side(slides, tmp_path / "slides", tmp_path / "a" / "overlays", "geojson", on(cluster))
    miue.export(slides, tmp_path / "b" / "overlays", "geojson")
    assert {"overlays/007.geojson", "overlays/b.geojson"} <= set(contents(tmp_path / "a" / "overlays"))
    assert contents(tmp_path / "a" / "overlays") == contents(tmp_path / "b" / "overlays")


@contextmanager
def a_node_killed_once(cluster: Any, folder: Path, pattern: str) -> Iterator[None]:
    """Kill a node as soon as ``folder`` holds a file like ``pattern``, in which {node} is that node."""
    victim = next(iter(cluster.worker_nodes))

    def kill() -> None:
        while not list(folder.rglob(pattern.format(node=victim.node_id))):
            time.sleep(0.02)
        cluster.remove_node(victim, allow_graceful=False)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    yield
    thread.join(60)
    assert len(cluster.worker_nodes) == 1


def test_a_node_that_is_killed_loses_no_part(cluster: Any, tmp_path: Path) -> None:
    tasks = [task(tmp_path / f"{number}.json", "node", seconds=3.0) for number in range(6)]
    with a_node_killed_once(cluster, tmp_path, "*.{node}.begun"):
        nodes = run_tasks(tasks, on(cluster), doing="", unit="")
    assert all(each.part.exists() for each in tasks)
    assert len(list(tmp_path.glob("*.begun"))) > len(tasks)
    assert len(set(nodes)) == 2


def test_an_ensemble_loses_nothing_to_a_node_that_is_killed(cluster: Any, tmp_path: Path) -> None:
    long: dict[str, Any] = {"options": {"method.size": 4}, "settings": {"max_epochs": 60, "stop_patience": 60}}
    with a_node_killed_once(cluster, tmp_path, "last.safetensors"):
        on_nodes = ensemble(tmp_path / "a" / "run", on(cluster), **long)
    assert on_nodes == ensemble(tmp_path / "b" / "run", **long)


def test_a_prediction_loses_nothing_to_a_node_that_is_killed(cluster: Any, tmp_path: Path) -> None:
    miue.train(separable_bags(), settings={"max_epochs": 1}, out=tmp_path / "run", progress=False)
    bags = BagDataset.from_arrays([np.full((5000, 5), row, np.float32) for row in range(60)])
    request = PredictionRequest(str(tmp_path / "run"), "bags", "all bags")
    with a_node_killed_once(cluster, tmp_path / "a", "*.parquet"):
        write_predictions_side_by_side(bags, request, tmp_path / "a" / "predictions", on(cluster))
    write_predictions(miue.Model.load(tmp_path / "run"), bags, request, tmp_path / "b" / "predictions")
    assert contents(tmp_path / "a" / "predictions") == contents(tmp_path / "b" / "predictions")


def test_an_error_of_a_task_arrives_as_it_was_raised(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="bag 'a': expected instances, got none; drop it"):
        run_tasks([task(tmp_path / "bad", "refuse")], on(cluster), doing="", unit="")


def test_a_part_that_only_another_machine_sees_is_named(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("miue.common.tasks.on_ray.SECONDS_TO_APPEAR", 0.0)
    with pytest.raises(StorageError, match=r"a.h5': expected the output of a task .* no such file on .*same"):
        run_tasks([task(tmp_path / "a.h5", "write_elsewhere")], on(cluster), doing="", unit="")


def test_what_ray_announces_is_no_part_of_a_result(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_tasks([task(tmp_path / "0", "announce", message="lost")], on(cluster), doing="", unit="")
    said = capsys.readouterr()
    assert "lost" in said.err
    assert not said.out


DRIVER = """
import sys
from pathlib import Path
from miue.common.tasks import Executor, Task, run_tasks
out, address = Path(sys.argv[1]), sys.argv[2]
parts = [out / f"{number}.json" for number in range(6)]
tasks = [Task(part.stem, "worked_tasks:node", {"out": str(part), "seconds": 2.0}, part) for part in parts]
run_tasks(tasks, Executor("ray", None, address), doing="", unit="")
"""


def test_a_driver_that_is_killed_and_started_again_finishes_what_is_missing(cluster: Any, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", DRIVER, str(tmp_path), cluster.address]
    with subprocess.Popen(command, env=environment) as process:
        while not list(tmp_path.glob("?.json")):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("?.json")}
    assert kept and len(kept) < 6
    subprocess.run(command, env=environment, check=True, timeout=300)
    assert len(list(tmp_path.glob("?.json"))) == 6
    assert all(path.stat().st_mtime_ns == before for path, before in kept.items())


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nothing"])
def test_an_address_without_a_cluster_is_named(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"Ray cluster at '{address}': expected a cluster that runs"):
        run_tasks([task(tmp_path / "0", "square", number=1)], Executor("ray", None, address), doing="", unit="")
