"""Adding a part makes no other test fail: the tests that read the registries run with a new part of every kind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
FILES = (
    *("test_networks.py", "test_methods.py", "test_readers.py", "test_distances.py", "test_distance_scores.py"),
    *("test_validation_quantiles.py", "test_registry.py"),
)
OF_MEASURES = (
    "test_dirichlet.py::test_a_categorical_has_entropy_but_no_model_uncertainty",
    "test_parts.py::test_evaluation_sorts_once_for_each_uncertainty_and_never_reads_all_columns_at_once",
    "test_predictions.py::test_the_columns_are_those_promised",
    "test_predictions.py::test_measures_of_another_tool_that_probabilities_do_not_hold_are_taken",
)
CHOSEN = "new or test_distances or (survive and softmax)"


@pytest.mark.slow
def test_a_new_part_of_every_kind_passes_the_tests_of_all_parts() -> None:
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "with_new_parts",
        "-p",
        "no:cacheprovider",
        "-rp",
        "-k",
        CHOSEN,
    ]
    done = subprocess.run(
        [*command, *FILES], cwd=TESTS, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]
    for name in ("new-network", "new-method", "new-distance", ".newbag"):
        assert re.search(rf"^PASSED .*\[.*{re.escape(name)}.*\]", done.stdout, re.M), name


@pytest.mark.slow
def test_a_new_measure_passes_the_tests_of_all_measures() -> None:
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "-p", "with_new_parts", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        [*command, *OF_MEASURES], cwd=TESTS, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]
