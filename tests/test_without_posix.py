"""Commands run where Python lacks what only POSIX systems have, as on Windows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from made_bags import separable_bags

from miue.io import write_store

WITHOUT = """
import os, signal, sys
for name in ("SIGHUP", "SIGPROF", "SIGALRM", "setitimer", "ITIMER_PROF"):
    delattr(signal, name)
for name in ("sysconf", "fork", "getuid", "geteuid", "O_NOFOLLOW", "O_DIRECTORY", "statvfs", "memfd_create"):
    delattr(os, name)
for name in ("resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
from miue.cli import main
main()
"""


@pytest.mark.slow
def test_training_prediction_and_hdf5_need_nothing_of_posix_alone(tmp_path: Path) -> None:
    bags = separable_bags()
    write_store(tmp_path / "store", bags)
    (tmp_path / "h5").mkdir()
    for bag, name in enumerate(bags.ids[:3]):
        with h5py.File(tmp_path / "h5" / f"new-{name}.h5", "w") as file:
            file["features"] = bags.batch([bag]).instances.numpy()
    few = ("--set", "max_epochs=2", "--quiet")
    for command in (
        ("train", "store", "--out", "run", *few),
        ("inspect", "h5"),
        ("predict", "run", "h5", "--out", "of-files"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT, *command],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "of-files" / "bags.csv").read_text("utf-8").count("\n") == 4
