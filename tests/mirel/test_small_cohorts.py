"""Small cohorts: what their table says of stored predictions, and that another file is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from miue.bags import Labels, OodFlags
from miue.common.errors import ConfigError, DataError
from miue.distributions import Categorical
from miue.predictions import PredictionTable
from papers.mirel.small_cohorts import SETS, page, read_set, regrets, table
from papers.mirel.stored_bags import write_bags

RESULTS = Path(__file__).parents[2] / "results"
LABELS = np.array([0, 1] * 20)


def stored(path: Path, certainty: float) -> None:
    """Write predictions that give so much to each label."""
    p = np.where(np.arange(2) == LABELS[:, None], certainty, 1 - certainty)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bags(
        path,
        PredictionTable(
            Categorical(torch.from_numpy(p)),
            np.array([f"bag {i}" for i in range(40)]),
            Labels.of(LABELS.tolist()),
            OodFlags.unknown(40),
            np.array([""] * 40),
        ),
    )


def test_a_table_has_the_least_nll_first_and_the_difference_to_the_better_baseline(tmp_path: Path) -> None:
    folder = tmp_path / "small_cohorts" / "musk1"
    for name, certainty in (("pooled-logistic-1", 0.6), ("pooled-forest-1", 0.7), ("a-1", 0.8), ("b-1", 0.65)):
        stored(folder / f"{name}.parquet", certainty)
    rows = table("musk1", tmp_path).rows
    assert [row[0] for row in rows] == ["a", "pooled-forest", "mixture", "b", "pooled-logistic"]
    assert rows[2][2].startswith(f"{-np.log(np.mean([0.6, 0.7, 0.8, 0.65])):.3f}")
    gain = np.log(0.7) - np.log(0.8)
    assert rows[0][2] == f"**{-np.log(0.8):.3f} ({gain:+.3f} [{gain:+.3f}, {gain:+.3f}])**"
    assert "**" not in rows[3][2] and rows[1][2] == f"{-np.log(0.7):.3f}"
    assert page(tmp_path).count("## ") == 2


def test_regret_is_beside_the_best_single_candidate_of_each_set(tmp_path: Path) -> None:
    for name, of_a, of_b in (("musk1", 0.8, 0.6), ("elephant", 0.6, 0.7)):
        for candidate, certainty in (("a", of_a), ("b", of_b)):
            stored(tmp_path / "small_cohorts" / name / f"{candidate}-1.parquet", certainty)
    rows = {row[0]: row[1:] for row in regrets(["musk1", "elephant"], tmp_path).rows}
    assert list(rows) == ["mixture", "a", "b"]
    assert rows["a"] == (f"{np.log(0.7 / 0.6):+.3f}", "+0.000", f"{np.log(0.7 / 0.6):+.3f}")
    assert rows["b"] == (f"{np.log(0.8 / 0.6):+.3f}", f"{np.log(0.8 / 0.6):+.3f}", "+0.000")
    assert rows["mixture"][1] == f"{np.log(0.8 / 0.7):+.3f}"


def test_another_file_and_a_set_that_is_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "musk1.csv").write_text("1,1,0.5\n")
    with pytest.raises(DataError, match="SHA-256"):
        read_set("musk1", tmp_path)
    with pytest.raises(ConfigError, match="musk1"):
        read_set("musk", tmp_path)
    assert all(len(digest) == 64 for digest in SETS.values())


def test_the_page_is_what_its_files_say() -> None:
    assert (RESULTS / "small_cohorts.md").read_text("utf-8").strip() == page(RESULTS).strip()
