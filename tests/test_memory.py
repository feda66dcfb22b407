"""Memory that does not suffice is said, of which bags it was, and no file is blamed for it."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import fail
from made_bags import separable_bags

import miue
from miue.common.errors import DataError, memory_shortage
from miue.common.tasks import Task
from miue.common.tasks.task import answer
from miue.io import write_store
from miue.io.formats import refusing
from miue.methods import Method
from miue.model import encoding

SAID = {
    "Unable to allocate 410. MiB": MemoryError("Unable to allocate 410. MiB for an array"),
    "MemoryError": MemoryError(),
    "Cannot allocate memory": OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    "you tried to allocate 9": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"),
    "bad_alloc": RuntimeError("std::bad_alloc"),
}
OF_ACCELERATORS = {
    "CUDA out of memory": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee more"),
    "MPS backend": RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"),
    "CUBLAS": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
}


@pytest.mark.parametrize("words", [*SAID, *OF_ACCELERATORS])
def test_it_is_known_however_it_is_worded(words: str) -> None:
    error = {**SAID, **OF_ACCELERATORS}[words]
    short = memory_shortage(error)
    assert short is not None and words in short.got and "\n" not in str(short)
    assert ("--device cpu" in short.fix) == (words in OF_ACCELERATORS)
    try:
        raise ValueError("of a library") from error
    except ValueError as later:
        assert memory_shortage(later) is not None


@pytest.mark.parametrize("error", [ValueError("out of memory"), OSError(errno.ENOENT, "gone"), RuntimeError("no")])
def test_other_errors_are_none_of_memory(error: Exception) -> None:
    assert memory_shortage(error) is None


def test_a_command_says_of_which_bags_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_store(tmp_path / "bags", separable_bags(24))
    model = miue.train(separable_bags(24), settings={"max_epochs": 1, "device": "cpu"}, progress=False)
    model.save(tmp_path / "model")

    def none_left(*_: object, **__: object) -> None:
        raise SAID["you tried to allocate 9"]

    monkeypatch.setattr(Method, "encode", none_left)
    arguments = ("predict", tmp_path / "model", tmp_path / "bags", "--part", "all", "--device", "cpu")
    said = fail(*arguments, "--out", tmp_path / "out").splitlines()[-1]
    assert said.startswith("miue: error: memory in prediction, for 24 bags of ")
    assert not (tmp_path / "out").exists()


def test_reading_says_of_which_bags_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 1 GiB")

    bags = separable_bags(3)
    monkeypatch.setattr(np, "concatenate", none_left)
    with pytest.raises(MemoryError) as error:
        bags.batch([1, 2])
    short = memory_shortage(error.value)
    assert short is not None and "in reading 2 bags of " in short.item and "'bag_1' first" in short.item


def test_a_worker_says_it_too(tmp_path: Path) -> None:
    task = Task("a task", "test_memory:needs_much", {}, tmp_path / "part")
    said = answer(task.to_json())
    assert "memory" in str(said["error"]) and "traceback" not in said


def needs_much() -> None:
    """A task for which memory does not suffice."""
    raise MemoryError("Unable to allocate 1 GiB")


def test_no_file_is_blamed_for_it_but_one_that_claims_too_much(tmp_path: Path) -> None:
    (tmp_path / "slide.npy").write_bytes(b"1")
    with pytest.raises(MemoryError) as error, refusing(tmp_path / "slide.npy", "an array", MemoryError, OSError):
        raise MemoryError("Unable to allocate 1 GiB")
    assert "slide.npy" in "".join(error.value.__notes__)
    with pytest.raises(DataError, match="slide.npy"), refusing(tmp_path / "slide.npy", "an array", RuntimeError):
        raise RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4398046511104 bytes."
        )


@pytest.mark.slow
def test_skip_bad_leaves_out_no_bag_for_which_memory_did_not_suffice(tmp_path: Path) -> None:
    folder = tmp_path / "features"
    folder.mkdir()
    for number in range(4):
        np.save(folder / f"{number}.npy", np.random.default_rng(number).random((60_000, 256), np.float32))
    (tmp_path / "labels.csv").write_text("bag_id,label\n0,0\n1,1\n2,0\n3,1\n")
    command = f"data pack {folder} --labels {tmp_path / 'labels.csv'} --skip-bad --out {tmp_path / 'store'}"
    limits = [1_200, 1_400, 1_600, 1_800, 2_000, 4_000]
    for limit in limits:

        def limited(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_AS, (limit << 20, limit << 20))

        done = subprocess.run(
            [sys.executable, "-m", "miue", *command.split()], preexec_fn=limited, capture_output=True, text=True
        )
        if done.returncode == 0:
            break
        assert "left out" not in done.stdout and "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    assert len(miue.read_store(tmp_path / "store")) == 4


def test_a_device_encodes_few_large_images_at_once() -> None:
    """At 224 × 224 × 3, 111: AlexNet's first convolution makes 2 GB of them."""
    for shape, most in (((3, 224, 224), 111), ((1, 28, 28), 8192), ((4096, 4096), 1), ((512,), 262_144)):
        images = torch.empty(3, *shape, device="meta")
        assert encoding.chunk_size(images) == most
