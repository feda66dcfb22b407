"""Which initial weights of DSMIL are the default: the rule, and that a run goes on where it was."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from miue.common.errors import ConfigError
from papers.mirel import initial_weights_choice
from papers.mirel.initial_weights_choice import (
    COLUMNS,
    OTHER,
    PUBLISHED,
    Row,
    choice_table,
    measure_initial_weights,
)

TWICE = ("deterministic", "mirel")


def rows_of(differences: Mapping[str, tuple[float, ...]]) -> list[Row]:
    """Return rows of two methods in which the other initial weights differ so from the published ones."""
    rows = []
    for data, by_seed in differences.items():
        for method in TWICE:
            for seed, difference in enumerate(by_seed):
                for weights, value in ((PUBLISHED, 0.5), (OTHER, 0.5 + difference)):
                    row = (data, method, weights, str(seed), "10", f"{value:.5f}", "1.18000")
                    rows.append(dict(zip(COLUMNS, row, strict=True)))
    return rows


@pytest.mark.parametrize(
    ("differences", "chosen"),
    [
        ({"a": (-0.1, -0.2), "b": (-0.1, -0.1), "c": (0.1, -0.05)}, OTHER),
        ({"a": (-0.1, -0.2), "b": (-0.1, -0.1), "c": (0.1, 0.11)}, PUBLISHED),  # worse by far more than its error
        ({"a": (-0.1, -0.2), "b": (0.1, -0.05), "c": (0.1, -0.05)}, PUBLISHED),  # lower in a third alone
    ],
)
def test_other_weights_become_the_default_where_most_gain_and_none_loses(
    differences: Mapping[str, tuple[float, float]], chosen: str
) -> None:
    assert choice_table(rows_of(differences))[1] == chosen


@pytest.mark.filterwarnings("error")
def test_one_seed_shows_no_difference_and_counts_for_no_side() -> None:
    table, chosen = choice_table(rows_of({"a": (-0.1, -0.2), "b": (-0.1, -0.1), "c": (-0.1,)}))
    last = [str(list(column.cells)[-1]) for column in table.columns]
    assert last == ["c", "mirel", "1", "", "", "too few seeds yet", "1.180"] and chosen == OTHER


def test_what_was_trained_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "validation.csv"
    settings = {"max_epochs": 1, "bags_per_update": 64}
    monkeypatch.setitem(
        initial_weights_choice.DATA,
        "vectors",
        initial_weights_choice.Data(initial_weights_choice.DATA["vectors"].bags, settings=settings),
    )
    rows = measure_initial_weights(["vectors"], [3], tmp_path, out)
    assert [(row["method"], row["initial_weights"]) for row in rows] == [
        (method, weights) for method in TWICE for weights in (PUBLISHED, OTHER)
    ]
    assert len({row["criterion"] for row in rows}) == 4
    written = out.read_text("utf-8").replace(rows[0]["criterion"], "7.00000")
    out.write_text(written, "utf-8")
    assert measure_initial_weights(["vectors"], [3], tmp_path, out)[0]["criterion"] == "7.00000"
    with pytest.raises(ConfigError, match="vectors"):
        measure_initial_weights(["vector"], [3], tmp_path, out)
