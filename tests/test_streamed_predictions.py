"""Predictions that are written while they are computed, and what holds no more than some of them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from made_bags import separable_bags
from made_parts import assert_same, ragged
from made_predictions import made_predictions
from test_unwritable import full_disk

import miue
from miue.bags import BagDataset
from miue.calibration import Goals, InstanceGoal
from miue.common.errors import ConfigError, DataError, StorageError
from miue.io import make_folds
from miue.model.calibrate import calibrate_model
from miue.model.recipe import Recipe
from miue.predictions import PredictionStream, PredictionTable
from miue.predictions import folder as of_predictions
from miue.predictions import parts as written_parts
from miue.selection import cross_validate


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


@pytest.mark.long
def test_no_more_rows_are_held_for_more_bags(tmp_path: Path, short_parts: None) -> None:
    gc.collect()
    others = [one for one in gc.get_objects() if type(one) is PredictionTable]  # of tests that ran before
    known = {id(one) for one in others}
    held: list[int] = []

    def count(number: int) -> None:
        if number % 20:  # collecting takes its time where many tests ran before
            return
        gc.collect()
        found = [one for one in gc.get_objects() if type(one) is PredictionTable and id(one) not in known]
        held.append(sum(len(table) for table in found if table.instance is not None))

    streamed([3] * 60, count).save(tmp_path / "p")
    assert max(held) <= 3 * 7 + 3  # one part gathered, one written and its concatenation, one batch
    assert len(list((tmp_path / "p" / "instances").iterdir())) == 30


@pytest.mark.parametrize("save", [True, False])
def test_tables_of_single_bags_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: bool) -> None:
    """Their small arrays kept the memory between them from being used again: 60 kB for each slide."""
    monkeypatch.setattr(of_predictions, "TABLES_JOINED", 4)
    made: list[weakref.ref[PredictionTable]] = []
    alive: list[int] = []
    sizes = [1 + number % 3 for number in range(30)]
    one_by_one = streamed(sizes)
    batches = one_by_one.batches

    def watched() -> Iterator[tuple[PredictionTable, PredictionTable]]:
        for of_bags, of_instances in batches:
            made.append(weakref.ref(of_bags))
            yield of_bags, of_instances
            del of_bags, of_instances
            alive.append(sum(table() is not None for table in made))

    one_by_one.batches = watched()
    taken = one_by_one.save(tmp_path / "p") if save else one_by_one.collect_bags()
    assert len(alive) == 30 and max(alive) <= 2 * 4 + 1  # those joined last, those gathered, and the batch
    wanted = streamed(sizes).collect().bags
    assert taken.bags.bag_ids.tolist() == wanted.bag_ids.tolist()
    assert np.array_equal(taken.bags.probabilities, wanted.probabilities)


def test_a_stream_that_breaks_off_leaves_nothing(tmp_path: Path, short_parts: None) -> None:
    def fail(number: int) -> None:
        if number == 9:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        streamed([3] * 20, fail).save(tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def test_a_stream_with_a_bag_twice_leaves_nothing(tmp_path: Path) -> None:
    twice = replace(streamed([]), batches=chain(streamed([3, 1]).batches, streamed([3]).batches))
    with pytest.raises(DataError, match="bag '000': expected a unique id"):
        twice.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_while_parts_are_written_is_named_and_leaves_nothing(
    tmp_path: Path, short_parts: None
) -> None:
    with full_disk(1000), pytest.raises(StorageError, match="File too large; free space"):
        streamed([3] * 20).save(tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("again", ["collect", "collect_bags", "save", "csv"])
def test_a_stream_is_taken_once(again: str, tmp_path: Path) -> None:
    """It ended in an IndexError, or a ValueError of 'not enough values to unpack'."""
    stream = streamed([3, 1])
    stream.save(tmp_path / "p")
    take: dict[str, Callable[[], object]] = {
        "collect": stream.collect,
        "collect_bags": stream.collect_bags,
        "save": lambda: stream.save(tmp_path / "q"),
        "csv": lambda: stream.save(tmp_path / "q", table_format="csv"),
    }
    with pytest.raises(ConfigError, match="not taken yet, got one that was collected or saved.*read_predictions"):
        take[again]()
    assert not (tmp_path / "q").exists()


def test_a_stream_that_could_not_be_saved_is_not_saved_without_its_first_bags(
    tmp_path: Path, short_parts: None
) -> None:
    stream = streamed([3] * 20)
    with full_disk(1000), pytest.raises(StorageError, match="File too large"):
        stream.save(tmp_path / "p")
    with pytest.raises(ConfigError, match="or began to be"):
        stream.save(tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def test_a_stream_whose_folder_is_taken_can_be_saved_elsewhere(tmp_path: Path) -> None:
    stream = streamed([3, 1])
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "other").touch()
    with pytest.raises(StorageError, match="files"):
        stream.save(tmp_path / "p")
    assert len(stream.save(tmp_path / "q").bags) == 2


def test_a_model_predicts_into_a_folder_what_it_predicts_in_memory(
    bags: BagDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("miue.model.predict.BATCH_INSTANCES", 20)
    monkeypatch.setattr(written_parts, "PART_ROWS", 50)
    model = miue.train(bags, settings={"max_epochs": 1, "device": "cpu"}, progress=False)
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
    monkeypatch.setattr(written_parts, "PART_ROWS", 20)
    model = miue.train(bags, settings={"max_epochs": 1, "device": "cpu"}, progress=False)
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
    whole = miue.train(bags, settings={"max_epochs": 1, "device": "cpu"}, progress=False)
    assert whole.error_model is not None
    gathered.clear()
    monkeypatch.setattr("miue.model.predict.BATCH_INSTANCES", 20)
    model = miue.train(bags, settings={"max_epochs": 1, "device": "cpu"}, progress=False)
    assert not gathered
    assert model.error_model is not None and model.validation is not None and whole.validation is not None
    assert model.error_model.by_both.center == pytest.approx(whole.error_model.by_both.center, rel=1e-4)
    assert model.validation.bags == whole.validation.bags == 30


@pytest.mark.long
def test_a_fold_is_tested_with_its_instances_in_parts(
    tmp_path: Path, gathered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("miue.model.predict.BATCH_INSTANCES", 20)
    monkeypatch.setattr(written_parts, "PART_ROWS", 50)
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
    model = miue.train(bags, method="mc-dropout", settings={"max_epochs": 1, "device": "cpu"}, progress=False)
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    for _ in model.stream(bags).batches:
        assert not torch.is_inference_mode_enabled()
        break
    assert torch.equal(torch.rand(1), wanted)


def test_bags_in_another_order_keep_the_order_of_their_instances() -> None:
    made = made_predictions(bags=3, per_bag=40).instances
    assert made is not None
    mixed = made.subset(np.arange(len(made)).reshape(3, 40).T.ravel())
    names = sorted(set(made.bag_ids.tolist()), reverse=True)
    ordered = mixed.in_order(names)
    assert ordered.bag_ids.tolist() == [name for name in names for _ in range(40)]
    assert ordered.instance is not None and ordered.instance.tolist() == [*range(40)] * 3
