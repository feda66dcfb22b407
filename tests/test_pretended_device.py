"""Every network and method on an accelerator, without one: ``pretended_device`` says how."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fast import slow_but
from torch.utils import backend_registration

from miue.networks import NETWORKS

needs_python_backend = pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch takes no device that is written in Python",
)


OURS = sorted(name for name in NETWORKS if not name.startswith("torchmil-"))
SOME = ["attention"]


@pytest.mark.long
@needs_python_backend
@pytest.mark.parametrize(
    "networks", slow_but([SOME, [*OURS, "torchmil-abmil"], []], [SOME]), ids=["some", "ours", "all"]
)
def test_networks_and_methods_compute_the_same_on_a_device(networks: list[str]) -> None:
    """Like one of CUDA, and like an Apple GPU, which has no float64; slow: with all networks."""
    program = Path(__file__).with_name("pretended_device.py")
    done = subprocess.run([sys.executable, program, *networks], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "compute the same" in done.stdout
