"""Inputs from reports of this field, which scripts beside this checkout make, and what is said of them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from commands import run

import miue
from miue.predictions import read_predictions

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"
ONE_EPOCH = "--quiet --set max_epochs=1"
RULES = "--coverage 0.95 --without deferral --without ood"
CUT_OFF = "features of the 2,560 patches that "

STEPS: list[tuple[str, str, int, str]] = [
    ("clam_interrupted", "inspect D/h5_files --json", 0, CUT_OFF),
    ("clam_interrupted", "train D --labels D/labels.csv --out OUT/run --quiet", 2, CUT_OFF),
    ("clam_interrupted", "data pack D --labels D/labels.csv --out OUT/store --quiet", 2, CUT_OFF),
    ("clam_interrupted", "predict OUT/model D --out OUT/predictions --quiet", 2, CUT_OFF),
    ("tcga_no_patient", "data split D/f --labels D/l.csv --out OUT/s.csv", 0, "60 bags of 30 patients"),
    ("tcga_no_patient", "train D/f --labels D/l.csv --splits D/leak_0.csv --out OUT/run", 2, "in one split"),
    ("tcga_no_patient", "data split D/f --labels D/l.csv --patients none --out OUT/t.csv", 0, "60 bags:"),
    ("headerless", "inspect D/bench.csv", 2, "expected a header line"),
    ("headerless", "inspect D/bench_ok.csv", 2, "expected a header line"),
    ("headerless", f"train D/named.csv --out OUT/run {ONE_EPOCH}", 0, ""),
    ("headerless", "predict OUT/run D/new --out OUT/predictions", 2, "expected a header line"),
    (
        "dsmil_layout",
        "inspect D/datasets/Camelyon16 --labels D/datasets/Camelyon16/Camelyon16.csv --json",
        0,
        "24",
    ),
    ("qupath_names", "data patch-labels D/names/f --annotations D/names/a --out OUT/a.csv", 0, "4 of 100 patches"),
    (
        "qupath_names",
        "data patch-labels D/roi/f --annotations D/roi/a --out OUT/b.csv",
        0,
        "4 of 100 patches of 1 slide are tumor; left out: 1 outline without a class",
    ),
    ("aps_ties", f"calibrate D/cal.csv --prediction-set aps {RULES} --out OUT/aps.json", 0, "aps"),
    ("aps_ties", "decide D/test.csv --calibration OUT/aps.json --out OUT/decided", 0, "80 bags"),
    ("continuous_label", "train D/f --labels D/reg.csv --out OUT/run", 2, "predict numbers with"),
    ("continuous_label", "train D/f --labels D/age.csv --out OUT/run", 2, "predict numbers with"),
    ("duplicates", f"train D/f --labels D/l.csv --out OUT/run {ONE_EPOCH}", 0, ""),
]
"""Script, command, its exit status, and what it says; D is the script's folder, OUT another."""


def make(script: str, folder: Path, *arguments: str) -> list[str]:
    """Return the command that runs a script."""
    if not CASES.is_dir():
        pytest.skip("needs ../shared/cases")
    return [sys.executable, str(CASES / f"{script}.py"), str(folder), *arguments]


@pytest.mark.long
@pytest.mark.parametrize("script", dict.fromkeys(name for name, *_ in STEPS))
def test_what_a_script_makes_is_read_or_named(script: str, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    subprocess.run(make(script, data), check=True)
    if script == "clam_interrupted":
        bags, labels = [np.full((2, 16), float(i % 2)) for i in range(8)], [0, 1] * 4
        miue.train(bags, labels, settings={"max_epochs": 1, "distances": ()}, progress=False).save(out / "model")
    for _, command, code, said in (step for step in STEPS if step[0] == script):
        words = [word.replace("OUT", str(out)).replace("D/", f"{data}/") for word in command.split()]
        with pytest.warns(UserWarning, match="same instances") if script == "duplicates" else nullcontext():
            assert said in run(*[data if word == "D" else word for word in words], code=code)
    if script == "aps_ties":
        decisions = read_predictions(out / "decided").bags.decisions
        assert decisions is not None and decisions.prediction_sets is not None
        assert decisions.prediction_sets.sum(1).mean() < 2


@pytest.mark.long
def test_a_file_that_is_still_written_is_named(tmp_path: Path) -> None:
    writer = subprocess.Popen(make("h5_still_written", tmp_path, "60"))
    try:
        said = ""
        while writer.poll() is None and "locked for writing" not in said:
            said = run("inspect", tmp_path, "--json") if (tmp_path / "s2.h5").exists() else ""
        assert said.count("locked for writing") == 1
    finally:
        writer.kill()
        writer.wait()
