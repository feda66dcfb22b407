"""Predictions as parts: written while they are computed, read one at a time, and refused where they are others."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_bags import separable_bags
from made_predictions import made_predictions, on_a_slide, without_evidence
from made_reports import reported
from pyarrow import parquet
from test_unwritable import full_disk

import miue
from miue.bags.dataset import BagDataset
from miue.calibration import Goals, InstanceGoal
from miue.common import tables
from miue.common.errors import ConfigError, DataError, MiueError, StorageError
from miue.common.files import file_sha256
from miue.distributions import Categorical, Dirichlet, Draws
from miue.evaluation import evaluate
from miue.evaluation.bootstrap import resampled_metrics
from miue.io.splits.draw import make_folds
from miue.model.calibrate import calibrate_model
from miue.model.recipe import Recipe
from miue.pathology.export.patches import patches_by_slide
from miue.predictions import part_writer, stored_instances
from miue.predictions.folder import Predictions, read_predictions, read_tables
from miue.predictions.stored_instances import StoredInstances
from miue.predictions.stream import PredictionStream
from miue.predictions.table import PredictionTable
from miue.report.levels import Resampling, evaluate_levels
from miue.report.report import no_track
from miue.report.runs import Run
from miue.selection.cross_validation import cross_validate


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of at most seven rows in groups of three, or one larger bag."""
    monkeypatch.setattr(part_writer, "PART_ROWS", 7)
    monkeypatch.setattr(part_writer, "GROUP_ROWS", 3)


def ragged(sizes: list[int], kind: str = "dirichlet", seed: int = 0) -> Predictions:
    """Predictions of bags of these sizes, in float32 as a network makes them."""
    random = np.random.default_rng(seed)
    classes, total = 3, sum(sizes)
    names = np.array([f"{number:03d}" for number in range(len(sizes))], object)

    def table(count: int, bag_ids: np.ndarray, instance: np.ndarray | None) -> PredictionTable:
        logits = torch.from_numpy(random.normal(size=(count, classes)).astype(np.float32) * 8)
        draws = [Categorical.of_logits(logits + number) for number in torch.arange(0.0, 3.0)]
        distributions = {
            "dirichlet": Dirichlet(logits.exp() + 1),
            "categorical": Categorical.of_logits(logits),
            "draws": Draws.of([*draws, Categorical.of_logits(-logits)]),
        }
        out = random.random(count) < 0.4
        return PredictionTable(
            distribution=distributions[kind],
            bag_ids=bag_ids,
            labels=miue.bags.labels.Labels(random.integers(classes, size=count), random.random(count) < 0.8),
            is_ood=miue.bags.ood_flags.OodFlags(out, out | (random.random(count) < 0.7)),
            ood_sets=np.where(out, random.choice(["cats", "dogs"], count), "").astype(object),
            instance=instance,
            scores={"knn": random.gamma(2, 1, count).astype(np.float32).astype(np.float64)},
        )

    within = np.concatenate([np.arange(size) for size in sizes])
    return Predictions(
        table(len(sizes), names, None), table(total, np.repeat(names, sizes), within.astype(np.int64))
    )


def stored(predictions: Predictions, path: Path) -> StoredInstances:
    """Write and read again."""
    predictions.save(path, overwrite=True)
    instances = read_predictions(path).instances
    assert isinstance(instances, StoredInstances)
    return instances


def assert_same(found: PredictionTable, wanted: PredictionTable) -> None:
    assert type(found.distribution) is type(wanted.distribution)
    assert found.bag_ids.tolist() == wanted.bag_ids.tolist()
    assert found.ood_sets.tolist() == wanted.ood_sets.tolist()
    for ours, theirs in ((found.labels, wanted.labels), (found.is_ood, wanted.is_ood)):
        assert np.array_equal(ours.known, theirs.known)
        assert np.array_equal(ours.values[ours.known], theirs.values[theirs.known])
    assert found.instance is not None and wanted.instance is not None
    assert np.array_equal(found.instance, wanted.instance)
    assert list(found.uncertainties()) == list(wanted.uncertainties())
    for name, values in wanted.uncertainties().items():
        assert np.array_equal(found.uncertainty(name), values), name


@pytest.mark.parametrize("kind", ["dirichlet", "categorical", "draws"])
def test_stored_predictions_evaluate_to_the_numbers_of_those_in_memory(
    kind: str, tmp_path: Path, short_parts: None
) -> None:
    predictions = ragged([3, 1, 19, 2, 2, 5, 30], kind)
    predictions.save(tmp_path / "p")
    assert evaluate(read_predictions(tmp_path / "p")).to_json() == evaluate(predictions).to_json()


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
        patch.setattr(part_writer, "PART_ROWS", 7)
        patch.setattr(part_writer, "GROUP_ROWS", 3)
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


def test_the_order_of_small_evidence_is_kept(tmp_path: Path) -> None:
    predictions = ragged([4])
    alpha = 1 + torch.tensor([[1e-12, 0], [2e-12, 0], [3e-12, 0], [1e9 + 0.125, 0]], dtype=torch.float64)
    labels = miue.bags.labels.Labels.unknown(4)
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


def test_a_part_is_a_table_for_any_tool(tmp_path: Path) -> None:
    predictions = ragged([3, 4])
    predictions.save(tmp_path / "p")
    (part,) = (tmp_path / "p" / "instances").iterdir()
    whole = read_tables(tmp_path / "p" / "bags.csv", part)
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


def streamed(sizes: list[int], after: Callable[[int], None] = lambda number: None) -> PredictionStream:
    """Predictions of bags, made one bag at a time when they are taken."""

    def batches() -> Iterator[tuple[PredictionTable, PredictionTable]]:
        for number, size in enumerate(sizes):
            one = ragged([size], seed=number)
            name = np.array([f"{number:03d}"], object)
            assert one.instances is not None
            yield replace(one.bags, bag_ids=name), replace(one.instances, bag_ids=np.repeat(name, size))
            del one
            after(number)

    return PredictionStream(batches(), miue.predictions.provenance.UNKNOWN, lambda predictions: predictions)


def test_a_stream_writes_what_it_collects(tmp_path: Path, short_parts: None) -> None:
    sizes = [3, 1, 5, 20, 2, 2]
    collected = streamed(sizes).collect()
    written = streamed(sizes).save(tmp_path / "streamed")
    collected.save(tmp_path / "whole")
    assert written.instances is not None and collected.instances is not None
    assert_same(written.instances, collected.instances)
    for path in (tmp_path / "whole").rglob("*"):
        assert (
            path.is_dir()
            or path.read_bytes() == (tmp_path / "streamed" / path.relative_to(tmp_path / "whole")).read_bytes()
        )


def test_no_more_rows_are_held_for_more_bags(tmp_path: Path, short_parts: None) -> None:
    gc.collect()
    others = [one for one in gc.get_objects() if type(one) is PredictionTable]  # of tests that ran before
    known = {id(one) for one in others}
    held: list[int] = []

    def count(number: int) -> None:
        if number % 7:  # collecting takes its time where many tests ran before
            return
        gc.collect()
        found = [one for one in gc.get_objects() if type(one) is PredictionTable and id(one) not in known]
        held.append(sum(len(table) for table in found if table.instance is not None))

    streamed([3] * 60, count).save(tmp_path / "p")
    assert max(held) <= 3 * 7 + 3  # one part gathered, one written and its concatenation, one batch
    assert len(list((tmp_path / "p" / "instances").iterdir())) == 30


def test_a_stream_that_breaks_off_leaves_nothing(tmp_path: Path, short_parts: None) -> None:
    def fail(number: int) -> None:
        if number == 9:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        streamed([3] * 20, fail).save(tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_while_parts_are_written_is_named_and_leaves_nothing(
    tmp_path: Path, short_parts: None
) -> None:
    with full_disk(1000), pytest.raises(StorageError, match="File too large; free space"):
        streamed([3] * 20).save(tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def test_a_model_predicts_into_a_folder_what_it_predicts_in_memory(
    bags: BagDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("miue.model.predict.BATCH_INSTANCES", 20)
    monkeypatch.setattr(part_writer, "PART_ROWS", 50)
    model = miue.train(bags, settings={"max_epochs": 1}, progress=False, device="cpu")
    written, collected = model.stream(bags).save(tmp_path / "p"), model.predict(bags)
    assert written.instances is not None and collected.instances is not None
    assert_same(written.instances, collected.instances)
    assert written.provenance == collected.provenance
    assert (tmp_path / "p" / "instances" / "part-00003.parquet").exists()


@pytest.mark.parametrize("flags", [None, InstanceGoal("no-false-flag", 0.2), InstanceGoal("detection", 0.2)])
def test_a_calibration_of_bags_holds_few_instances_and_is_that_of_all_predictions(
    flags: InstanceGoal | None, bags: BagDataset, gathered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("miue.model.predict.BATCH_INSTANCES", 20)
    monkeypatch.setattr(part_writer, "PART_ROWS", 20)
    model = miue.train(bags, settings={"max_epochs": 1}, progress=False, device="cpu")
    held_out = separable_bags(60, seed=1)
    held_out = replace(held_out, ids=tuple(f"new {name}" for name in held_out.ids))
    wanted = miue.calibrate(model.predict(held_out), deferral=None, instances=flags)
    total = int(held_out.sizes.sum())
    assert total in gathered
    gathered.clear()
    assert calibrate_model(model, held_out, Goals(deferral=None, instances=flags)) == wanted
    assert max(gathered, default=0) < total / 10


def test_training_holds_no_predictions_of_all_validation_instances(
    gathered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = replace(separable_bags(60), splits=("train",) * 30 + ("validation",) * 30)
    whole = miue.train(bags, settings={"max_epochs": 1}, progress=False, device="cpu")
    assert whole.error_model is not None
    gathered.clear()
    monkeypatch.setattr("miue.model.predict.BATCH_INSTANCES", 20)
    model = miue.train(bags, settings={"max_epochs": 1}, progress=False, device="cpu")
    assert not gathered
    assert model.error_model is not None and model.validation is not None and whole.validation is not None
    assert model.error_model.by_both.center == pytest.approx(whole.error_model.by_both.center, rel=1e-4)
    assert model.validation.bags == whole.validation.bags == 30


def test_a_fold_is_tested_with_its_instances_in_parts(
    tmp_path: Path, gathered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("miue.model.predict.BATCH_INSTANCES", 20)
    monkeypatch.setattr(part_writer, "PART_ROWS", 50)
    bags = separable_bags(60)
    splits = make_folds(bags, 2)
    quick = Recipe(options={"encoder.width": 4}, settings={"max_epochs": 1}, distances=())
    cross_validate(bags, splits, [1], tmp_path / "cv", quick, progress=False)
    for fold in range(2):
        assert int(splits.assign(bags, fold).split("test").sizes.sum()) not in gathered


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many instances each concatenation of tables held."""
    numbers: list[int] = []
    concatenate = PredictionTable.concatenate

    def count(tables: Sequence[PredictionTable]) -> PredictionTable:
        if tables[0].instance is not None:
            numbers.append(sum(map(len, tables)))
        return concatenate(tables)

    monkeypatch.setattr(PredictionTable, "concatenate", staticmethod(count))
    return numbers


def test_predicting_leaves_the_random_numbers_and_the_modes_of_torch_as_they_were(bags: BagDataset) -> None:
    model = miue.train(bags, method="mc-dropout", settings={"max_epochs": 1}, progress=False, device="cpu")
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    for _ in model.stream(bags).batches:
        assert not torch.is_inference_mode_enabled()
        break
    assert torch.equal(torch.rand(1), wanted)


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
    assert sizes.count(62) == len(predictions.instances.uncertainty_names) == 8


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
    monkeypatch.setattr("miue.report.details.PART_ROWS", 7)
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
    (level,) = (evaluate_levels([Run("a", "", "p", back)], Resampling(20), no_track)[one] for one in ["instances"])
    assert back.instances is not None and sorted(names) == sorted(back.instances.uncertainty_names)
    (summary,) = level.summaries
    assert summary is not None and list(summary["coverage"]) == list(summary["distributions"]) == names


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


def missing(folder: Path) -> None:
    (folder / "part-00001.parquet").unlink()


def truncated(folder: Path) -> None:
    path = folder / "part-00001.parquet"
    path.write_bytes(path.read_bytes()[:-9])


def copied(folder: Path) -> None:
    shutil.copy(folder / "part-00000.parquet", folder / "part-00003.parquet")


def exchanged(folder: Path) -> None:
    """Bags of equal content but their names make files of one size."""
    shutil.copy(folder / "part-00000.parquet", folder / "part-00001.parquet")


def of_another_run(folder: Path) -> None:
    ragged([5, 5, 5], seed=1).save(folder.parent.parent / "other")
    shutil.copy(folder.parent.parent / "other" / "instances" / "part-00001.parquet", folder)


def changed(folder: Path) -> None:
    path = folder / "part-00001.parquet"
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (missing, r"part '.*part-00001.parquet': expected the file of .* and 5 rows .*, got no such file"),
        (truncated, r"part '.*part-00001.parquet': .* bytes: it is truncated, or another file; put back"),
        (copied, r"part '.*part-00003.parquet': .* got a file that it does not list; remove the file"),
        (exchanged, r"part '.*part-00001.parquet': .* got a copy of 'part-00000.parquet'|bytes: it is"),
        (of_another_run, r"part '.*part-00001.parquet': .* of another run|or another file"),
        (changed, r"part '.*part-00001.parquet': .* got other bytes: it is damaged, or of another run; put back"),
    ],
)
def test_a_part_that_is_not_the_one_that_was_written_is_named(
    damage: Callable[[Path], None], said: str, tmp_path: Path, short_parts: None
) -> None:
    ragged([5, 5, 5]).save(tmp_path / "p")
    damage(tmp_path / "p" / "instances")
    with pytest.raises(StorageError, match=said):
        for part in read_predictions(tmp_path / "p").instances.parts():  # type: ignore[union-attr]
            assert len(part)


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((path / "predictions.json").read_text())
    change(content)
    (path / "predictions.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.pop("parts"), "expected a list of parts in predictions.json"),
        (lambda c: c["parts"].append(c["parts"][0]), "got a part that it lists twice"),
        (lambda c: c["parts"][0].update(file="../bags.csv"), "a list of parts in predictions.json, .* pattern"),
        (
            lambda c: c["parts"][0]["bags"].update({"000": 4}),
            "expected instances 15, as predictions.json says, got 14",
        ),
        (lambda c: c["parts"][0]["bags"].update({"000": 0}), "a bag without rows"),
        (lambda c: c["parts"][1].update(bags={"000": 5}), "bag '000': expected each bag in one part"),
        (
            lambda c: c["parts"][1].update(bags={"unknown": 5}),
            "bag 'unknown': expected a bag that the table of bags",
        ),
    ],
)
def test_a_list_of_parts_that_does_not_fit_is_named(
    change: Callable[[dict[str, Any]], object], said: str, tmp_path: Path, short_parts: None
) -> None:
    ragged([5, 5, 5]).save(tmp_path / "p")
    edited(tmp_path / "p", change)
    with pytest.raises(MiueError, match=said):
        read_predictions(tmp_path / "p")


def relisted(path: Path, table: pa.Table) -> None:
    """Put a table in the place of the only part, and list it as if miue had written it."""
    (file,) = (path / "instances").iterdir()
    parquet.write_table(table, file)
    digest = file_sha256(file)
    edited(path, lambda c: c["parts"][0].update(bytes=file.stat().st_size, sha256=digest))


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("alpha_0", [1.0, -1.0, 2.0], "row .*line 3 of alpha|line 3 of alpha"),
        ("alpha_0", ["a", "b", "c"], "expected a readable table"),
        ("alpha_0", [[1.0], [1.0], [1.0]], "expected a readable table"),
        ("label", [0, 1, 7], "expected a class index from 0 to 2"),
        ("instance", [0, None, 2], "column 'instance': expected a finite number"),
        ("score_knn", [0.5, float("nan"), 2.0], "column 'score_knn': expected a finite number"),
        ("x", [0.0, 1e300, 2.0], "at most 2.53 from 0"),
    ],
)
def test_values_that_no_prediction_has_are_named(
    column: str, values: list[Any], said: str, tmp_path: Path
) -> None:
    ragged([3]).save(tmp_path / "p")
    (file,) = (tmp_path / "p" / "instances").iterdir()
    table = parquet.read_table(file)
    kept = table.drop_columns([column]) if column in table.column_names else table
    kept = kept.append_column("y", pa.array([1.0] * 3)) if column == "x" else kept
    relisted(tmp_path / "p", kept.append_column(column, pa.array(values)))
    with pytest.raises(MiueError, match=said):
        len(read_predictions(tmp_path / "p").instances.bag_ids)  # type: ignore[union-attr]


def test_a_part_with_fewer_rows_than_listed_is_named(tmp_path: Path) -> None:
    ragged([3, 4]).save(tmp_path / "p")
    (file,) = (tmp_path / "p" / "instances").iterdir()
    relisted(tmp_path / "p", parquet.read_table(file).slice(0, 6))
    with pytest.raises(StorageError, match="part-00000.parquet.*expected 7 rows, got 6"):
        len(read_predictions(tmp_path / "p").instances.bag_ids)  # type: ignore[union-attr]


def test_a_folder_without_its_parts_is_named(tmp_path: Path) -> None:
    ragged([3, 4]).save(tmp_path / "p")
    shutil.rmtree(tmp_path / "p" / "instances")
    with pytest.raises(DataError, match="expected a table of 7 instances, as predictions.json says, got none"):
        read_predictions(tmp_path / "p")
