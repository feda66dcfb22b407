"""Predictions as parts: read as they were written, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_parts import assert_same, ragged, stored
from made_predictions import made_predictions, on_a_slide, without_evidence
from made_reports import reported
from pyarrow import parquet

import miue
from miue.common import tables
from miue.common.errors import ConfigError
from miue.distributions import Dirichlet
from miue.evaluation import evaluate
from miue.evaluation.bootstrap import resampled_metrics
from miue.pathology.export.patches import patches_by_slide
from miue.predictions import (
    Predictions,
    PredictionTable,
    StoredInstances,
    read_predictions,
    stored_instances,
)
from miue.predictions import (
    parts as written_parts,
)
from miue.report.levels import Resampling, evaluate_levels
from miue.report.report import no_track
from miue.report.runs import Run


@pytest.mark.parametrize("kind", ["dirichlet", "categorical", "draws"])
def test_stored_predictions_evaluate_to_the_numbers_of_those_in_memory(
    kind: str, tmp_path: Path, short_parts: None
) -> None:
    predictions = ragged([3, 1, 19, 2, 2, 5, 30], kind)
    predictions.save(tmp_path / "p")
    assert evaluate(read_predictions(tmp_path / "p")).to_json() == evaluate(predictions).to_json()


@pytest.mark.long
@settings(max_examples=8)
@given(
    sizes=st.lists(st.one_of(st.just(1), st.integers(1, 9), st.just(40)), min_size=1, max_size=9),
    kind=st.sampled_from(["dirichlet", "categorical", "draws"]),
    seed=st.integers(0, 99),
)
def test_bags_of_any_size_are_read_as_they_were_written(
    sizes: list[int], kind: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written_parts, "PART_ROWS", 7)
        patch.setattr(written_parts, "GROUP_ROWS", 3)
        predictions = ragged(sizes, kind, seed)
        wanted = predictions.instances
        assert wanted is not None
        instances = stored(predictions, tmp_path_factory.mktemp("ragged") / "p")
        assert len(instances) == len(wanted)
        assert_same(instances, wanted)
        assert instances.bag_sizes() == wanted.bag_sizes()
        for (name, found), (also, expected) in zip(instances.by_bag(), wanted.by_bag(), strict=True):
            assert name == also
            assert_same(found, expected)
        chosen = [str(name) for name in predictions.bags.bag_ids[::2]]
        assert_same(instances.of_bags(chosen), wanted.of_bags(chosen))
        assert all(len(part) <= 7 or len(part.bag_sizes()) == 1 for part in instances.parts())


def test_a_part_is_filled_with_whole_bags_and_a_larger_bag_is_alone(tmp_path: Path, short_parts: None) -> None:
    for sizes, of_parts in (([3, 4, 3, 4], [7, 7]), ([20, 3, 4, 9, 1], [20, 7, 9, 1])):
        instances = stored(ragged(sizes), tmp_path / str(len(sizes)))
        assert [len(part) for part in instances.parts()] == of_parts


def test_stored_instances_take_a_score_of_ones_own(tmp_path: Path, short_parts: None) -> None:
    predictions = ragged([3, 9, 2])
    scored = stored(predictions, tmp_path / "p").with_score("own", np.arange(14))
    scored = stored(replace(predictions, instances=scored), tmp_path / "p")
    assert scored.uncertainty("own").tolist() == list(range(14))


def test_no_bag_has_an_empty_table_of_stored_instances(tmp_path: Path) -> None:
    predictions = ragged([3, 2])
    none = stored(predictions, tmp_path / "p").of_bags([])
    assert none.uncertainty_names == predictions.bags.uncertainty_names
    assert_same(none, none.subset(np.arange(0)))
    assert len(none.to_arrow()) == 0 and "0 instances, 3 classes" in str(none)


@pytest.mark.parametrize("table_format", ["parquet", "csv"])
@pytest.mark.parametrize("read", [True, False])
def test_an_empty_table_of_instances_is_saved_as_none(table_format: str, read: bool, tmp_path: Path) -> None:
    predictions = ragged([3, 2])
    given = stored(predictions, tmp_path / "p") if read else predictions.instances
    assert given is not None
    replace(predictions, instances=given.of_bags([])).save(tmp_path / "q", table_format=table_format)
    assert read_predictions(tmp_path / "q").instances is None


@pytest.mark.parametrize("read", [True, False])
def test_an_unknown_uncertainty_is_refused_with_the_nearest_name(read: bool, tmp_path: Path) -> None:
    predictions = ragged([3], "categorical")
    instances = stored(predictions, tmp_path / "p") if read else predictions.instances
    assert instances is not None
    with pytest.raises(ConfigError, match="uncertainty 'entropi'.*did you mean 'entropy'"):
        instances.uncertainty("entropi")
    with pytest.raises(ConfigError, match="uncertainty 'vacuity': expected one of"):  # of a Dirichlet alone
        instances.uncertainty("vacuity")


def test_the_order_of_small_evidence_is_kept(tmp_path: Path) -> None:
    predictions = ragged([4])
    alpha = 1 + torch.tensor([[1e-12, 0], [2e-12, 0], [3e-12, 0], [1e9 + 0.125, 0]], dtype=torch.float64)
    labels = miue.bags.known.Labels.unknown(4)
    table = replace(predictions.instances, distribution=Dirichlet(alpha), labels=labels)  # type: ignore[type-var]
    bags = replace(predictions.bags, distribution=Dirichlet(alpha[:1]), labels=labels[:1])
    found = stored(Predictions(bags, table), tmp_path / "p").distribution
    assert isinstance(found, Dirichlet)
    assert torch.equal(found.alpha, alpha)


def test_what_a_network_computes_in_float32_is_stored_so(tmp_path: Path) -> None:
    predictions = ragged([2000, 3000])
    predictions.save(tmp_path / "p")
    (path,) = (tmp_path / "p" / "instances").iterdir()
    schema = parquet.read_schema(path)
    assert {schema.field(name).type for name in ("alpha_0", "alpha_2", "score_knn")} == {pa.float32()}
    assert "p_0" not in schema.names and "vacuity" not in schema.names


def test_columns_of_which_nothing_is_known_are_left_out(tmp_path: Path) -> None:
    predictions = ragged([5])
    assert predictions.instances is not None
    bare = replace(predictions.instances, **miue.bags.columns.ItemColumns.unknown(5).columns())
    instances = stored(replace(predictions, instances=bare), tmp_path / "p")
    (path,) = (tmp_path / "p" / "instances").iterdir()
    assert {"label", "is_ood", "ood_set", "x"}.isdisjoint(parquet.read_schema(path).names)
    assert_same(instances, bare)


def test_the_rows_of_one_bag_are_read_without_those_of_others(
    tmp_path: Path, short_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances = stored(ragged([2, 2, 2, 30, 3, 1]), tmp_path / "p")
    asked: list[tuple[str, int, int]] = []
    read = tables.read_parquet_rows

    def noted(path: Path, start: int, end: int, wanted: Callable[[str], bool]) -> object:
        asked.append((path.name, start, end))
        return read(path, start, end, wanted)

    monkeypatch.setattr(stored_instances, "read_parquet_rows", noted)
    assert len(list(instances.of_bags(["001"]).by_bag())) == 1
    assert asked == [("part-00000.parquet", 2, 4)]


def test_positions_and_names_of_instances_are_kept(tmp_path: Path) -> None:
    predictions = on_a_slide(made_predictions(4, 6))
    instances = stored(predictions, tmp_path / "p")
    assert predictions.instances is not None and predictions.instances.coords is not None
    assert instances.coords is not None
    assert np.array_equal(instances.coords.values, predictions.instances.coords.values)


def test_instances_in_another_order_are_stored_bag_after_bag(tmp_path: Path) -> None:
    predictions = ragged([3, 4, 2])
    assert predictions.instances is not None
    mixed = predictions.instances.subset(np.array([5, 0, 8, 1, 3, 7, 2, 4, 6]))
    instances = stored(replace(predictions, instances=mixed), tmp_path / "p")
    assert instances.bag_ids.tolist() == predictions.instances.bag_ids.tolist()
    assert instances.instance is not None
    assert instances.instance.tolist() == [0, 1, 2, 2, 0, 1, 3, 1, 0]


def test_bags_in_another_order_have_their_own_instances(tmp_path: Path) -> None:
    predictions = ragged([3, 4, 2])
    order = ["002", "000", "001"]
    found, wanted = (one.in_order(order) for one in (stored(predictions, tmp_path / "p"), predictions.instances))  # type: ignore[union-attr]
    assert_same(PredictionTable.concatenate(list(found.parts())), wanted)
    bags = predictions.bags.subset(np.array([2, 0, 1]))
    again = stored(Predictions(bags, stored(predictions, tmp_path / "p")), tmp_path / "again")
    assert_same(PredictionTable.concatenate(list(again.parts())), wanted)


def test_a_part_is_a_table_for_any_tool(tmp_path: Path) -> None:
    predictions = ragged([3, 4])
    predictions.save(tmp_path / "p")
    (part,) = (tmp_path / "p" / "instances").iterdir()
    whole = read_predictions(tmp_path / "p" / "bags.csv", part)
    assert whole.instances is not None and predictions.instances is not None
    assert_same(whole.instances, predictions.instances)


def test_csv_is_written_where_asked_and_an_unknown_format_is_named(tmp_path: Path) -> None:
    predictions = without_evidence(made_predictions(4, 6))
    predictions.save(tmp_path / "csv", table_format="csv")
    assert sorted(path.name for path in (tmp_path / "csv").iterdir()) == [
        "bags.csv",
        "instances.csv",
        "predictions.json",
    ]
    with pytest.raises(ConfigError, match="format of tables 'exel'"):
        predictions.save(tmp_path / "other", table_format="exel")


@pytest.fixture
def never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all columns of all instances at once is a failure."""

    def refuse(instances: StoredInstances) -> None:
        raise AssertionError("all instances are read at once")

    monkeypatch.setattr(StoredInstances, "_whole", property(refuse))


def test_evaluation_sorts_once_for_each_uncertainty_and_never_reads_all_columns_at_once(
    tmp_path: Path, short_parts: None, never_whole: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictions = ragged([3, 1, 19, 2, 2, 5, 30])
    predictions.save(tmp_path / "p")
    sizes: list[int] = []
    sort = np.argsort

    def counted(values: np.ndarray, **more: Any) -> np.ndarray:
        sizes.append(len(values))
        return sort(values, **more)

    monkeypatch.setattr(np, "argsort", counted)
    assert predictions.instances is not None
    evaluation = evaluate(read_predictions(tmp_path / "p"))
    assert evaluation.instances is not None and len(evaluation.instances.ood) == 2
    assert sizes.count(62) == len(predictions.instances.uncertainty_names) > 1


def test_stored_instances_are_resampled_and_counted_part_by_part(
    tmp_path: Path, short_parts: None, never_whole: None
) -> None:
    predictions = ragged([3, 1, 19, 2, 2, 5, 30])
    predictions.save(tmp_path / "p")
    back = read_predictions(tmp_path / "p")
    assert str(back) == str(predictions)
    assert str(back.instances).startswith(str(predictions.instances)[:300])
    assert back.instances is not None and predictions.instances is not None
    found, wanted = (
        resampled_metrics(one, {"001": "a", "002": "a"}, resamples=5, seed=0)
        for one in (back.instances, predictions.instances)
    )
    for name, values in wanted.items():
        assert np.array_equal(found[name], values, equal_nan=True), name


@pytest.mark.long
def test_a_report_of_stored_instances_reads_some_bags_after_another(
    tmp_path: Path, short_parts: None, monkeypatch: pytest.MonkeyPatch, small_plotly: None
) -> None:
    predictions = ragged([3, 1, 19, 2, 2, 5, 30], seed=3)
    predictions.save(tmp_path / "p")
    whole = StoredInstances._whole.func  # type: ignore[attr-defined]

    def checked(instances: StoredInstances) -> PredictionTable:
        assert len(instances) <= 7 + 30  # of 62: some bags, or one larger one
        table: PredictionTable = whole(instances)
        return table

    monkeypatch.setattr(StoredInstances, "_whole", property(checked))
    monkeypatch.setattr("miue.report.instances.PART_ROWS", 7)
    shown, written = reported(tmp_path, read_predictions(tmp_path / "p"))
    monkeypatch.undo()
    from_memory, notes = reported(tmp_path, predictions)
    assert shown.data == from_memory.data
    assert written.notes == notes.notes


def test_a_report_reads_each_uncertainty_once_for_metrics_intervals_and_figures(
    tmp_path: Path, short_parts: None, never_whole: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictions = ragged([3, 1, 19, 2, 2, 5, 30])
    predictions.save(tmp_path / "p")
    names: list[str] = []
    read = StoredInstances.uncertainty

    def noted(instances: StoredInstances, name: str) -> np.ndarray:
        names.append(name)
        return read(instances, name)

    monkeypatch.setattr(StoredInstances, "uncertainty", noted)
    back = read_predictions(tmp_path / "p")
    level: Any
    (level,) = (
        evaluate_levels([Run("a", "", "p", back)], ("0", "1", "2"), Resampling(20), no_track)[one]
        for one in ["instances"]
    )
    assert back.instances is not None and sorted(names) == sorted(back.instances.uncertainty_names)
    (summary,) = [one and one.summary for one in level.of_runs]
    assert summary is not None and list(summary["coverage"]) == list(summary["distributions"]) == names


@pytest.mark.long
@pytest.mark.parametrize("kind", ["arrays", "geojson", "heatmap"])
def test_slides_are_exported_one_after_the_other(
    kind: str, tmp_path: Path, short_parts: None, never_whole: None, two_slides: Predictions
) -> None:
    """As from memory, and in the order of the bags, whatever the order of the parts."""
    two_slides.save(tmp_path / "p")
    lines = (tmp_path / "p" / "bags.csv").read_text().splitlines()
    (tmp_path / "p" / "bags.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    back = read_predictions(tmp_path / "p")
    assert miue.export(back, tmp_path / "a", kind) == miue.export(two_slides, tmp_path / "b", kind)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes() or kind == "arrays"
    assert back.instances is not None
    assert [slide.slide for slide in patches_by_slide(back)] == back.bags.bag_ids.tolist()


def test_a_part_is_checked_once_whatever_is_chosen_of_its_bags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances = stored(ragged([3, 1, 5, 2]), tmp_path / "p")
    checked: list[str] = []
    monkeypatch.setattr(stored_instances, "check_part", lambda path, part: checked.append(part.file))
    for name in ("000", "002", "003"):
        assert len(list(instances.of_bags([name]).by_bag())) == 1
    assert len(list(instances.in_order(["003", "002", "001", "000"]).flagged_by(lambda table: table).parts())) == 1
    assert checked == ["part-00000.parquet"]
