"""Training by several processes: the weights of one, one set of files, and clear errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run
from lightning.pytorch.callbacks import Callback
from made_bags import separable_bags
from safetensors.numpy import load_file

import miue
from miue.common.devices import training_rank
from miue.common.errors import ConfigError

OPTIONS = ("--encoder", "mlp", "--set", "encoder.width=16", "--set", "bags_per_update=7", "--device", "cpu")
PROCESSES = [sys.executable, "-m", "miue", "train"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bags") / "store"
    miue.write_store(path, separable_bags(60))
    return path


def train(store: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*PROCESSES, str(store), "--out", str(out), *OPTIONS, *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)


def assert_same_predictions(one: Path, two: Path, store: Path) -> None:
    bags = miue.read_store(store)
    predicted, by_other = (miue.Model.load(run).predict(bags).bags.probabilities for run in (one, two))
    np.testing.assert_allclose(predicted, by_other, atol=2e-4)


def assert_same_weights(one: Path, two: Path) -> None:
    """Compare all weights but the last bias of the attention.

    Attention sums to one, so that this bias has no gradient but rounding, of which Adam makes whole steps.
    """
    first, second = (load_file(run / "model.safetensors") for run in (one, two))
    assert first.keys() == second.keys()
    for name in first.keys() - {"network.attention.2.bias"}:
        np.testing.assert_allclose(second[name], first[name], rtol=2e-3, atol=1e-4, err_msg=name)


@pytest.mark.long
def test_two_processes_end_at_the_weights_of_one_and_print_once(store: Path, tmp_path: Path) -> None:
    epochs = ("--set", "max_epochs=2", "--set", "bags_per_update=2")  # some process has only a bag of one instance
    run("train", store, "--out", tmp_path / "one", *OPTIONS, *epochs)
    by_two = train(store, tmp_path / "two", *epochs, "--devices", "2", "--json")
    assert by_two.returncode == 0, by_two.stderr
    assert json.loads(by_two.stdout)["epochs"] == 2
    assert "Warning" not in by_two.stderr
    assert_same_weights(tmp_path / "one", tmp_path / "two")
    assert_same_predictions(tmp_path / "one", tmp_path / "two", store)
    files = [
        sorted(str(f.relative_to(run)) for f in run.rglob("*")) for run in (tmp_path / "one", tmp_path / "two")
    ]
    assert files[0] == files[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "method"),
    [
        ("mean", "softmax"),
        ("max", "mirel"),
        ("dsmil", "mirel"),
        ("gated-attention", "i-edl"),
        ("attention", "deep-ensemble"),
        ("torchmil-abmil", "softmax"),
    ],
)
def test_every_kind_of_network_and_method_ends_at_the_weights_of_one_process(
    network: str, method: str, store: Path, tmp_path: Path
) -> None:
    options = ["--network", network, "--method", method, "--set", "max_epochs=2"]
    for name, processes in (("one", "1"), ("three", "3")):
        result = train(store, tmp_path / name, *options, "--devices", processes)
        assert result.returncode == 0, result.stderr
    assert_same_predictions(tmp_path / "one", tmp_path / "three", store)


@pytest.mark.slow
def test_a_training_by_two_processes_that_is_killed_resumes_to_the_same_weights(
    store: Path, tmp_path: Path
) -> None:
    options = ("--set", "max_epochs=12", "--devices", "2")
    assert train(store, tmp_path / "whole", *options).returncode == 0
    command = [*PROCESSES, str(store), "--out", str(tmp_path / "killed"), *OPTIONS, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        while not (tmp_path / "killed" / "log.csv").exists():
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.3)
        os.killpg(process.pid, signal.SIGKILL)
    assert not (tmp_path / "killed" / "config.json").exists()
    assert train(store, tmp_path / "killed", *options, "--resume").returncode == 0
    for name in ("model.safetensors", "log.csv"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_an_interrupt_ends_both_processes_and_leaves_a_run_to_resume(store: Path, tmp_path: Path) -> None:
    options = ("--set", "max_epochs=500", "--set", "stop_patience=500", "--devices", "2")
    command = [*PROCESSES, str(store), "--out", str(tmp_path / "run"), *OPTIONS, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True
    ) as process:
        while not (tmp_path / "run" / "log.csv").exists():
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        error = process.communicate(timeout=60)[1]
    assert process.returncode == 130, error
    assert error.count(" kept in ") == 1, error
    assert "Traceback" not in error


@pytest.mark.slow
def test_processes_that_torchrun_starts_train_together(store: Path, tmp_path: Path) -> None:
    assert train(store, tmp_path / "one", "--set", "max_epochs=2").returncode == 0
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--standalone",
        "-m",
        "miue",
    ]
    options = [*OPTIONS, "--set", "max_epochs=2", "--devices", "2"]
    command = [*torchrun, "train", str(store), "--out", str(tmp_path / "two"), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    assert_same_predictions(tmp_path / "one", tmp_path / "two", store)


@pytest.mark.parametrize(
    ("settings", "devices", "message"),
    [({"bags_per_update": 3}, 4, "at most as many as bags of an update, 3"), ({}, 0, "devices")],
)
def test_more_processes_than_bags_are_refused(settings: dict[str, int], devices: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        miue.train(separable_bags(40), settings={**settings, "devices": devices, "device": "cpu"}, progress=False)


@pytest.mark.parametrize("option", ["--devices", "--nodes"])
def test_several_devices_for_each_of_several_seeds_are_refused(option: str, store: Path, tmp_path: Path) -> None:
    words = ["train", store, "--out", tmp_path / "out", *OPTIONS, "--quiet", "--seeds", "1,2", option, "2"]
    said = run(*words, code=2)
    assert "several devices for each training, and several seeds" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("device", "devices"), [("cuda", 2), ("gpu", 2)])
def test_accelerators_that_are_not_there_are_named(device: str, devices: int) -> None:
    with pytest.raises(ConfigError, match="accelerator"):
        miue.train(separable_bags(40), settings={"devices": devices, "device": device}, progress=False)


def test_the_rank_is_read_only_where_several_processes_train(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_STEP_ID": "0"}.items():
        monkeypatch.setenv(name, value)
    assert training_rank(1) == 0
    assert training_rank(8) == 3
    assert training_rank(2) == 0  # one of eight trainings of two processes each
    monkeypatch.setenv("RANK", "5")
    assert training_rank(8) == 5


@pytest.mark.long
@pytest.mark.parametrize(
    "step",
    [
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"},
        {
            "SLURM_JOB_ID": "7",
            "SLURM_NTASKS": "4",
            "SLURM_PROCID": "3",
            "SLURM_LOCALID": "3",
            "SLURM_STEP_ID": "0",
        },
    ],
    ids=["batch script", "one of several tasks"],
)
def test_a_training_in_a_job_of_slurm_is_as_anywhere(
    step: dict[str, str], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning takes a job for one training of all its tasks, and sends it again on a signal."""
    settings = {"max_epochs": 2}
    bags = miue.read_store(store)
    miue.train(bags, settings={**settings, "device": "cpu"}, progress=False, out=tmp_path / "alone")
    for name, value in {"SLURM_JOB_NAME": "miue", "SLURM_NODELIST": "n1", **step}.items():
        monkeypatch.setenv(name, value)
    before = signal.getsignal(signal.SIGUSR1)
    seen = []

    class Looks(Callback):
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            seen.append(signal.getsignal(signal.SIGUSR1))

    miue.train(
        bags,
        settings={**settings, "device": "cpu", "callbacks": [Looks()]},
        progress=False,
        out=tmp_path / "slurm",
    )
    assert seen == [before, before]
    names = {path.name for path in (tmp_path / "alone").rglob("*")}
    assert {path.name for path in (tmp_path / "slurm").rglob("*")} == names
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("alone", "slurm")]
    assert weights[0] == weights[1]
