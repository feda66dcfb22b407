"""What is killed at any moment, again and again, ends in the files of what was never killed, byte for byte."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kills import KINDS


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_trainings_that_are_killed_end_as_those_that_are_not(kind: str) -> None:
    if kind == "torchmil" and importlib.util.find_spec("torchmil") is None:
        pytest.skip("needs torchmil")
    command = [sys.executable, str(Path(__file__).with_name("kills.py")), kind, "5", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["different"] == []
    assert found["kills"] == 5
    assert found["resumed_to_the_end"] >= 1
    assert found["files"] >= 8
