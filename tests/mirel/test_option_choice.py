"""Which value of an option is its default: the rule, and that a run goes on where it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from miue.common.errors import ConfigError
from papers.mirel.measured import Row
from papers.mirel.option_choice import Data, choice_table, measure_choice
from papers.mirel.option_choices import CHOICES, INITIAL_WEIGHTS, SCALING

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED, OTHER = INITIAL_WEIGHTS.before, INITIAL_WEIGHTS.others[0]
TWICE = ("deterministic", "mirel")


def rows_of(differences: Mapping[str, tuple[float, ...]]) -> list[Row]:
    """Return rows of two methods in which the other initial weights differ so from the published ones."""
    rows: list[Row] = []
    for data, by_seed in differences.items():
        for method in TWICE:
            for seed, difference in enumerate(by_seed):
                for weights, value in ((PUBLISHED, 0.5), (OTHER, 0.5 + difference)):
                    row = (data, method, str(weights), str(seed), "10", f"{value:.5f}", "1.18000")
                    rows.append(dict(zip(INITIAL_WEIGHTS.columns, row, strict=True)))
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
    assert choice_table(INITIAL_WEIGHTS, rows_of(differences))[1] == chosen


@pytest.mark.filterwarnings("error")
def test_one_seed_shows_no_difference_and_counts_for_no_side() -> None:
    table, chosen = choice_table(INITIAL_WEIGHTS, rows_of({"a": (-0.1, -0.2), "b": (-0.1, -0.1), "c": (-0.1,)}))
    assert list(table.rows[-1]) == ["c", "mirel", "1", "", "", "too few seeds yet", "1.180"] and chosen == OTHER


def test_of_several_values_that_may_replace_the_one_before_the_lowest_is_chosen() -> None:
    def rows(common: float, each: float) -> list[Row]:
        return [
            dict(zip(SCALING.columns, ("a", method, value, str(seed), "10", str(criterion), "1.18"), strict=True))
            for method in TWICE
            for seed in range(3)
            for value, criterion in (("as-is", 0.5), ("common", 0.5 + common), ("each", 0.5 + each))
        ]

    assert choice_table(SCALING, rows(-0.1, -0.2))[1] == "each"
    assert choice_table(SCALING, rows(-0.2, -0.1))[1] == "common"
    assert choice_table(SCALING, rows(-0.1, 0.1))[1] == "common"
    assert choice_table(SCALING, rows(0.1, 0.1))[1] == "as-is"


def test_what_is_higher_by_less_than_is_tolerated_does_not_count() -> None:
    three = {"a": (-0.1, -0.1), "b": (-0.1, -0.1), "c": (0.019, 0.019)}
    assert choice_table(INITIAL_WEIGHTS, rows_of(three))[1] == PUBLISHED
    assert choice_table(replace(INITIAL_WEIGHTS, tolerance=0.02), rows_of(three))[1] == OTHER


@pytest.mark.long
def test_what_was_trained_is_not_trained_again(tmp_path: Path) -> None:
    out = tmp_path / "validation.csv"
    vectors = Data(INITIAL_WEIGHTS.data["vectors"].bags, settings={"max_epochs": 1, "bags_per_update": 64})
    choice = replace(INITIAL_WEIGHTS, data={"vectors": vectors})
    rows = measure_choice(choice, ["vectors"], [3], tmp_path, out)
    assert [(row["method"], row["initial_weights"]) for row in rows] == [
        (method, weights) for method in TWICE for weights in (PUBLISHED, OTHER)
    ]
    assert len({row["criterion"] for row in rows}) == 4
    written = out.read_text("utf-8").replace(rows[0]["criterion"], "7.00000")
    out.write_text(written, "utf-8")
    assert measure_choice(choice, ["vectors"], [3], tmp_path, out)[0]["criterion"] == "7.00000"
    with pytest.raises(ConfigError, match="vectors"):
        measure_choice(choice, ["vector"], [3], tmp_path, out)


@pytest.mark.long
@pytest.mark.parametrize("name", ["gaussian", "digits"])
def test_features_are_scaled_in_every_way(name: str, tmp_path: Path) -> None:
    data = replace(SCALING.data[name], settings={"max_epochs": 1, "bags_per_update": 64})
    rows = measure_choice(replace(SCALING, data={name: data}), [name], [3], tmp_path, tmp_path / "v.csv")
    assert [row["scaling"] for row in rows] == ["as-is", "common", "each"] * 2
    assert len({row["criterion"] for row in rows}) == 6


def test_the_rule_of_each_choice_is_written_beside_its_results() -> None:
    for name, choice in CHOICES.items():
        text = (ROOT / "results" / name.replace("-", "_") / "README.md").read_text("utf-8")
        assert f"`{choice.option}" in text, name


@pytest.mark.long
@pytest.mark.parametrize("name", ["length-scale", "divergence", "evidence-prior"])
def test_a_choice_trains_the_methods_that_have_the_option(name: str, tmp_path: Path) -> None:
    choice = CHOICES[name]
    vectors = Data(INITIAL_WEIGHTS.data["vectors"].bags, settings={"max_epochs": 2, "bags_per_update": 64})
    rows = measure_choice(
        replace(choice, data={"vectors": vectors}), ["vectors"], [3], tmp_path, tmp_path / "v.csv"
    )
    assert {row["method"] for row in rows} == set(choice.methods)
    assert sorted(row[choice.column] for row in rows) == sorted(map(str, (choice.before, *choice.others)))
    assert len({row["criterion"] for row in rows}) == len(rows)
