"""Prediction tables: written, read back, and read from other tools."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from made_predictions import made_predictions, made_provenance
from made_promises import predictions_of
from sealed_files import seal_again

import miue
from miue.bags import BagDataset
from miue.calibration import worklist
from miue.common.errors import DataError, MiueError, StorageError
from miue.distributions import Categorical, Dirichlet, Draws
from miue.distributions.measures import MEASURES, applicable_measures
from miue.evaluation import evaluate
from miue.predictions import Predictions, read_predictions
from miue.predictions.read import read_table


@pytest.fixture
def predictions(bags: BagDataset) -> Predictions:
    return miue.train(bags, settings={"max_epochs": 2, "device": "cpu"}, progress=False).predict(bags)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_saved_predictions_are_read_back_as_they_were(predictions: Predictions, tmp_path: Path) -> None:
    predictions.save(tmp_path / "out")
    back = read_predictions(tmp_path / "out")
    assert back.instances is not None
    assert predictions.instances is not None
    for ours, theirs in ((back.bags, predictions.bags), (back.instances, predictions.instances)):
        assert isinstance(ours.distribution, Dirichlet)
        assert isinstance(theirs.distribution, Dirichlet)
        assert torch.equal(ours.distribution.alpha, theirs.distribution.alpha)
        assert np.array_equal(ours.bag_ids, theirs.bag_ids)
        assert np.array_equal(ours.labels.values, theirs.labels.values)
    assert np.array_equal(back.instances.instance, predictions.instances.instance)  # type: ignore[arg-type]
    kept, evaluated = (evaluate(one, allow_training_bags=True) for one in (back, predictions))
    assert kept.to_json() == evaluated.to_json()


@pytest.mark.parametrize("table_format", ["csv", "parquet"])
def test_the_expected_entropy_of_draws_is_read_back_to_its_last_digit(table_format: str, tmp_path: Path) -> None:
    p = torch.tensor([[0.3, 0.7], [0.1, 0.9]], dtype=torch.float64)
    draws = Draws(p, torch.tensor([0.5, 0.1 + 1e-12], dtype=torch.float64))
    given = predictions_of(draws, np.array([1, 0])).bags
    instances = replace(given, instance=np.zeros(2, np.int64))
    Predictions(given, instances).save(tmp_path / "out", table_format=table_format)
    back = read_predictions(tmp_path / "out")
    for table in (back.bags, back.instances):
        assert table is not None and isinstance(table.distribution, Draws)
        assert torch.equal(table.distribution.expected_entropy(), draws.expected_entropy())


def test_nothing_is_written_of_no_bag(predictions: Predictions, bags: BagDataset, tmp_path: Path) -> None:
    """What was written could not be read: a table without rows is taken for a damaged one."""
    none = np.array([], np.int64)
    empty = replace(predictions, bags=predictions.bags.subset(none), instances=None)
    for write_it in (
        lambda: empty.save(tmp_path / "out"),
        lambda: worklist(empty),
        lambda: miue.write_store(tmp_path / "out", bags.subset(none)),
    ):
        with pytest.raises(DataError, match="expected at least one bag, got none"):
            write_it()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_of_a_bag_that_is_there_twice(
    predictions: Predictions, bags: BagDataset, tmp_path: Path
) -> None:
    """As draws with replacement have it: what was written could not be read."""
    rows = np.array([0, 1, 0])
    twice = replace(predictions, bags=predictions.bags.subset(rows), instances=None)
    for write_it in (
        lambda: twice.save(tmp_path / "out"),
        lambda: miue.write_store(tmp_path / "out", bags.subset(rows)),
    ):
        with pytest.raises(DataError, match="expected a unique id, got the same id twice"):
            write_it()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("table_format", ["csv", "parquet"])
@pytest.mark.parametrize("classes", [("1", "0"), ("1", "2"), ("2", "1"), ("0", "1"), ("0.0", "-1"), ("no", "0")])
def test_classes_that_are_called_by_other_numbers_keep_their_labels(
    classes: tuple[str, ...], table_format: Literal["csv", "parquet"], tmp_path: Path
) -> None:
    provenance = made_provenance(network="attention", method="mirel", seed=42).model_copy(
        update={"classes": classes}
    )
    predictions = made_predictions(provenance=provenance)
    predictions.save(tmp_path / "out", table_format=table_format)
    back = read_predictions(tmp_path / "out")
    assert back.provenance == predictions.provenance
    assert predictions.instances is not None and back.instances is not None
    for ours, theirs in ((back.bags, predictions.bags), (back.instances, predictions.instances)):
        known = theirs.labels.known
        assert np.array_equal(ours.labels.known, known)
        assert np.array_equal(ours.labels.values[known], theirs.labels.values[known])


@pytest.mark.parametrize(
    ("classes", "labels", "read"),
    [
        (("1", "2"), ["1", "2", "2.0"], [0, 1, 1]),
        (("1", "0"), ["1", "0", "0.0"], [0, 1, 1]),
        (("1", "2"), ["1", "0", "2"], None),
        (("0", "1"), ["0", "1.0", "1"], [0, 1, 1]),
        (("no", "yes"), ["no", "1", "YES"], None),
        (("no", "yes"), ["no", "1", "0"], [0, 1, 0]),
    ],
)
def test_a_number_that_is_the_name_of_a_class_is_no_other_class(
    classes: tuple[str, ...], labels: list[str], read: list[int] | None, tmp_path: Path
) -> None:
    rows = [f"bag_{row},{label},0.3,0.7" for row, label in enumerate(labels)]
    table = write(tmp_path / "t.csv", "\n".join(["bag_id,label,p_0,p_1", *rows]))
    if read is not None:
        assert read_table(table, classes).labels.values.tolist() == read
        return
    with pytest.raises(DataError, match=f"one of {', '.join(classes)}, "):
        read_table(table, classes)


@pytest.mark.parametrize(
    "values_of",
    [list, np.array, torch.tensor, lambda values: iter(values)],
    ids=["list", "array", "tensor", "iterator"],
)
def test_a_score_of_ones_own_is_saved(values_of: Any, tmp_path: Path) -> None:
    predictions = made_predictions()
    values = [float(row % 7) for row in range(len(predictions.bags))]
    scored = replace(predictions, bags=predictions.bags.with_score("own", values_of(values)))
    assert set(scored.bags.scores) == {*predictions.bags.scores, "own"}
    scored.save(tmp_path / "p")
    assert read_predictions(tmp_path / "p").bags.uncertainty("own").tolist() == values


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("own", [0.5], "score 'own': expected [0-9]+ finite numbers, one for each item, got 1"),
        ("own", np.nan, "values of score 'own': expected one for each item"),
        (
            "entropy",
            0.5,
            "the name of the score: expected a text that is not the name of a measure, got 'entropy'",
        ),
        ("", 0.5, "the name of the score: expected a text"),
        ("own", [np.nan], "score 'own': .* got nan at item 0"),
        ("own", ["high"], "score 'own': .* got 'high' at item 0"),
    ],
)
def test_a_score_that_is_no_finite_number_of_each_item_is_refused(name: str, values: Any, message: str) -> None:
    with pytest.raises(MiueError, match=message):
        made_predictions().bags.with_score(name, values)


def test_the_columns_are_those_promised(predictions: Predictions, tmp_path: Path) -> None:
    predictions.save(tmp_path / "out", table_format="csv")
    with (tmp_path / "out" / "bags.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = ("knn", "typicality", "combined")
    scores = ",".join(f"score_{name}_{kind}" for name in names for kind in ("mean", "high"))
    expected = "bag_id,training_part,label,is_ood,ood_set,alpha_0,alpha_1,p_0,p_1,predicted,"
    assert ",".join(rows[0]) == expected + ",".join(MEASURES) + "," + scores
    of_dirichlets = "least_confidence,entropy,expected_entropy,mutual_information,differential_entropy,vacuity"
    assert set(of_dirichlets.split(",")) <= set(MEASURES)
    first = rows[0]
    assert first["bag_id"] == "bag_0"
    total = float(first["alpha_0"]) + float(first["alpha_1"])
    assert float(first["vacuity"]) == pytest.approx(2 / total, rel=1e-6)
    assert float(first["p_1"]) == pytest.approx(float(first["alpha_1"]) / total, rel=1e-6)
    with (tmp_path / "out" / "instances.csv").open(newline="") as file:
        assert next(csv.reader(file))[:2] == ["bag_id", "instance"]


@pytest.mark.long
def test_a_column_of_training_parts_is_there_where_a_bag_has_one() -> None:
    bags = made_predictions(2, 2).bags
    new, trained = (
        replace(bags, training_parts=np.array([part] * len(bags), object)).to_arrow() for part in ("", "train")
    )
    assert "training_part" not in new.column_names
    assert set(trained.column("training_part").to_pylist()) == {"train"}


@pytest.mark.long
def test_many_instances_are_compressed(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    bags = BagDataset.from_arrays([random.normal(size=(21_000, 3)), random.normal(size=(5, 3))], [0, 1])
    model = miue.train(
        [np.ones((2, 3)), np.zeros((2, 3))] * 4, [0, 1] * 4, settings={"max_epochs": 1}, progress=False
    )
    model.predict(bags).save(tmp_path / "out", table_format="csv")
    with gzip.open(tmp_path / "out" / "instances.csv.gz", "rt") as file:
        assert sum(1 for _ in file) == 21_006
    back = read_predictions(tmp_path / "out")
    assert back.instances is not None
    assert len(back.instances) == 21_005


def test_a_table_becomes_a_data_frame(predictions: Predictions) -> None:
    frame = predictions.bags.to_frame()
    assert frame["vacuity"].between(0, 1).all()
    assert len(frame) == 40


def test_a_table_of_another_tool_with_probabilities_alone(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "t.csv", "bag_id,p_0,p_1\n007,0.25,0.75\n1e5,0.5,0.5\n"))
    assert table.bag_ids.tolist() == ["007", "1e5"]
    assert isinstance(table.distribution, Categorical)
    assert not table.labels.known.any()
    assert not table.is_ood.known.any()
    assert table.uncertainties()["least_confidence"].tolist() == [0.25, 0.5]


def test_the_probability_of_class_one_is_enough_for_two_classes(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "t.csv", "bag_id,label,p_1\na,1,0.9\nb,,0.2\n"))
    assert table.probabilities[:, 0].tolist() == pytest.approx([0.1, 0.8])
    assert table.labels.known.tolist() == [True, False]


def test_the_second_class_alone_gives_the_numbers_of_both(tmp_path: Path) -> None:
    hundredths = range(101)
    both = [f"b{i},{(100 - i) / 100},{i / 100}" for i in hundredths]
    written = read_table(write(tmp_path / "both.csv", "\n".join(["bag_id,p_0,p_1", *both])))
    alone = [f"b{i},{i / 100}" for i in hundredths] + ["tiny,0.9999999999999999"]
    read = read_table(write(tmp_path / "alone.csv", "\n".join(["bag_id,p_1", *alone])))
    assert np.array_equal(read.probabilities[:101], written.probabilities)
    confidence = read.probabilities[:101].max(1)
    assert np.array_equal(confidence, confidence[::-1])  # 0.07 and 0.93 are equally certain
    assert read.probabilities[101, 0] > 0


def test_measures_of_another_tool_that_probabilities_do_not_hold_are_taken(tmp_path: Path) -> None:
    text = (
        "bag_id,is_ood,p_0,p_1,mutual_information,score_distance,notes\na,0,0.5,0.5,0.1,3,x\nb,1,0.4,0.6,0.3,9,y\n"
    )
    table = read_table(write(tmp_path / "t.csv", text))
    assert table.scores["mutual_information"].tolist() == [0.1, 0.3]
    assert table.scores["distance"].tolist() == [3, 9]
    assert table.ood_sets.tolist() == ["", "ood"]
    computed = applicable_measures(Categorical(torch.tensor([[0.5, 0.5]])))
    assert set(table.uncertainties()) == {*computed, "mutual_information", "distance"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,p_0,p_1\na,0.5,0.5\n", "a column 'bag_id'"),
        ("bag_id,prob\na,0.5\n", "columns alpha_0, alpha_1"),
        ("bag_id,p_0\na,0.5\n", "expected a column p_1 beside p_0"),
        ("bag_id,p_0,p_1\n", "at least one row"),
        ("bag_id,p_0,p_1\na,0.5,0.6\n", "line 2 of the class probabilities"),
        ("bag_id,p_0,p_1\na,0.5,x\n", "column 'p_1': expected numbers"),
        ("bag_id,p_0,p_1\na,0.5,\n", "line 2, column 'p_1': expected a finite number"),
        ("bag_id,p_0,p_1\na,0.5,0.5\n ,0.5,0.5\n", "line 3, column 'bag_id': expected the name of a bag"),
        ("bag_id,alpha_0,alpha_1\na,0,3\n", "line 2 of alpha"),
        ("bag_id,p_0,p_1,label\na,0.5,0.5,0\nb,0.5,0.5,2\n", "line 3, column 'label': expected a class index"),
        ("bag_id,instance,p_1\na,0,1\na,0.5,1\n", "line 3, column 'instance': expected a whole number .* got 0.5"),
        (
            "bag_id,p_1,patch_size\na,1,-3\n",
            "line 2, column 'patch_size': expected a whole number from 0 on, got -3",
        ),
        (
            "bag_id,p_1,decision,calibrated_p_0,calibrated_p_1\na,1,1,,1\n",
            "line 2, column 'calibrated_p_0': expected a finite number",
        ),
        ("bag_id,p_0,p_1,label\na,0.5,0.5,tumour\n", "got 'tumour'"),
        (
            "bag_id,p_1,training_part\na,1,\nb,1,train\nc,1,trian\n",
            "line 4, column 'training_part': expected train or validation, or nothing, got 'trian'",
        ),
        ("bag_id,p_0,p_1,is_ood\na,0.5,0.5,maybe\n", "column 'is_ood': expected true, false, or empty"),
        ("bag_id,p_0,p_1\na,0.5,0.5,7\n", "a readable table .* Expected 3 columns, got 4"),
        (
            "bag_id,instance,p_1,x,y\na,0,1,8,9\na,1,1,8,\n",
            "line 3, columns 'x' and 'y': .* got 8 and none;",
        ),
        ("bag_id,instance,p_1,x,y\na,0,1,inf,9\na,1,1,8,\n", "line 2, .*'y': .* got inf and 9; correct 2 rows"),
    ],
)
def test_a_table_that_cannot_be_used_says_what_and_where(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises((DataError, StorageError), match=message):
        read_table(write(tmp_path / "t.csv", text))


def test_positions_of_some_instances_may_be_unknown(tmp_path: Path) -> None:
    text = "bag_id,instance,p_1,x,y\na,0,1,8,9\nb,0,1,,\na,1,0,1e3,-2\n"
    coords = read_table(write(tmp_path / "t.csv", text)).coords
    assert coords is not None and coords.known.tolist() == [True, False, True]
    assert coords.values[coords.known].tolist() == [[8, 9], [1000, -2]]
    assert read_table(write(tmp_path / "t.csv", "bag_id,instance,p_1,x,y\na,0,1,,\n")).coords is None


def test_an_instance_of_a_bag_that_is_not_listed_is_named(tmp_path: Path) -> None:
    bags = write(tmp_path / "bags.csv", "bag_id,p_1\na,0.9\nb,0.2\n")
    instances = write(tmp_path / "instances.csv", "bag_id,instance,p_1\na,0,0.9\nc,0,0.9\n")
    with pytest.raises(DataError, match="bag 'c': expected a bag that .* lists"):
        read_predictions(bags, instances)
    twice = write(tmp_path / "twice.csv", "bag_id,p_1\na,0.9\na,0.2\n")
    with pytest.raises(DataError, match="bag 'a': expected a unique id"):
        read_predictions(twice)


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        (
            "bag_id,instance,p_0,p_1,p_2\na,0,0.1,0.8,0.1\nb,0,0.2,0.7,0.1\na,1,0.5,0.5,0\na,0,0.1,0.8,0.1\n",
            "bag 'a', instance 0: expected one row per instance, .* drop 1 repeated row$",
        ),
        ("bag_id,instance,p_0,p_1\na,0,0.1,0.9\n", "expected 3 classes, as the table of bags has, got 2"),
    ],
)
def test_instances_twice_or_of_other_classes_than_their_bags_are_refused(
    instances: str, message: str, tmp_path: Path
) -> None:
    bags = write(tmp_path / "bags.csv", "bag_id,p_0,p_1,p_2\na,0.1,0.8,0.1\nb,0.2,0.3,0.5\n")
    with pytest.raises(DataError, match=message):
        read_predictions(bags, write(tmp_path / "instances.csv", instances))


def test_predictions_that_are_not_there_or_too_new(tmp_path: Path, predictions: Predictions) -> None:
    with pytest.raises(StorageError, match="no such file"):
        read_table(tmp_path / "absent.csv")
    with pytest.raises(StorageError, match="a folder without it"):
        read_predictions(tmp_path)
    predictions.save(tmp_path / "out")
    seal_again(tmp_path / "out" / "predictions.json", lambda content: content.update(version=9))
    with pytest.raises(StorageError, match="another version of miue wrote it: predict again"):
        read_predictions(tmp_path / "out")


def drop_column(path: Path, name: str) -> None:
    rows = [line.replace('"', "").split(",") for line in path.read_text().splitlines()]
    place = rows[0].index(name)
    path.write_text("\n".join(",".join([*row[:place], *row[place + 1 :]]) for row in rows) + "\n")


@pytest.mark.parametrize("table", ["bags.csv", "instances.csv"])
@pytest.mark.parametrize("rows", [-1, 1])
def test_tables_with_other_rows_than_were_written_are_refused(
    table: str, rows: int, predictions: Predictions, tmp_path: Path
) -> None:
    predictions.save(tmp_path / "p", table_format="csv")
    lines = (tmp_path / "p" / table).read_text().splitlines()
    more = [lines[-1].replace(",", "x,", 1)] if table == "bags.csv" else [lines[-1]]
    (tmp_path / "p" / table).write_text("\n".join(lines[:-1] if rows < 0 else lines + more) + "\n")
    with pytest.raises(StorageError, match=f"{table}': expected a file that predictions.json lists, got another"):
        read_predictions(tmp_path / "p")


def test_a_table_of_instances_that_is_missing_or_there_twice_is_named(
    predictions: Predictions, tmp_path: Path
) -> None:
    predictions.save(tmp_path / "p", table_format="csv")
    (tmp_path / "p" / "instances.csv.gz").write_bytes(
        gzip.compress((tmp_path / "p" / "instances.csv").read_bytes())
    )
    with pytest.raises(StorageError, match=r"instances.csv.gz': .* got one that it does not list; remove it"):
        read_predictions(tmp_path / "p")
    for name in ("instances.csv", "instances.csv.gz"):
        (tmp_path / "p" / name).unlink()
    with pytest.raises(StorageError, match=r"instances.csv': expected a file .* got none; put back"):
        read_predictions(tmp_path / "p")


@pytest.mark.parametrize("table", ["bags", "instances"])
def test_a_table_that_lost_a_column_is_named_and_one_that_gained_a_score_is_read(
    table: str, predictions: Predictions, tmp_path: Path
) -> None:
    changed = getattr(predictions, table).with_score("own", np.arange(len(getattr(predictions, table))) / 7)
    replace(predictions, **{table: changed}).save(tmp_path / "p", table_format="csv")
    assert "own" in getattr(read_predictions(tmp_path / "p"), table).scores
    file = tmp_path / "p" / f"{table}.csv"
    heading, *rows = file.read_text().splitlines()
    file.write_text("\n".join([f"{heading},score_more", *(f"{row},0.5" for row in rows)]) + "\n")
    assert "more" in getattr(read_predictions(tmp_path / "p"), table).scores
    whole = file.read_text()
    for column in ("alpha_0", "p_1", "predicted", "score_own"):
        file.write_text(whole)
        drop_column(file, column)
        with pytest.raises(DataError, match=f"{table}.csv': expected the column '{column}'"):
            read_predictions(tmp_path / "p")


def test_the_last_class_of_three_that_was_removed_is_named(tmp_path: Path) -> None:
    for columns in ("alpha_0,alpha_1,p_0,p_1,p_2", "alpha_0,alpha_1,alpha_2,p_0,p_1", "p_0,p_2", "alpha_0", "p_0"):
        path = write(tmp_path / "t.csv", f"bag_id,{columns}\na{',0.5' * (columns.count(',') + 1)}\n")
        with pytest.raises(DataError, match=r"t.csv': expected a column (alpha|p)_\d beside"):
            read_table(path)


CLASSES: list[dict[str, object]] = [{"provenance": {"classes": known}} for known in (3, "ab", ["a", 1], {"a": 1})]

RECORDS: list[dict[str, object]] = [
    {"provenance": damaged} for damaged in (None, [1], {"about": 1}, {"training": {"epochs": 3}}, {"notes": 1})
]


@pytest.mark.parametrize(
    "change",
    [*CLASSES, *RECORDS],
)
def test_what_predictions_json_says_of_the_model_is_checked(
    change: dict[str, object], predictions: Predictions, tmp_path: Path
) -> None:
    predictions.save(tmp_path / "p")
    seal_again(tmp_path / "p" / "predictions.json", lambda content: content.update(change))
    with pytest.raises((DataError, StorageError), match="predictions.json"):
        read_predictions(tmp_path / "p")


def test_predictions_in_latin_1_are_refused_with_their_line_and_in_utf_16_are_read(tmp_path: Path) -> None:
    text = "bag_id;p_1\nä;0.5\nb;0.25\n"
    (tmp_path / "t.csv").write_bytes(text.encode("utf-16"))
    assert read_table(tmp_path / "t.csv").bag_ids.tolist() == ["ä", "b"]
    for damaged, line in ((text, 2), (text.replace("ä", "a").replace("0.25", "0é25"), 3)):
        (tmp_path / "t.csv").write_bytes(damaged.encode("latin-1"))
        with pytest.raises(StorageError, match=f"t.csv', line {line}: expected text in UTF-8"):
            read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("side", [1, 256])
@pytest.mark.parametrize("truth", ["", "target"])
def test_the_place_of_an_instance_of_another_tool_is_not_its_label(side: int, truth: str, tmp_path: Path) -> None:
    bags = write(tmp_path / "bags.csv", "slide_id,p_0,p_1,y\na,0.4,0.6,1\nb,0.9,0.1,0\n")
    heading = f"slide_id,instance,x,y,p_0,p_1{',' + truth if truth else ''}"
    rows = [
        f"{bag},{i},{side * i},{side * (i % 2)},0.5,0.5{',0' if truth else ''}" for bag in "ab" for i in range(4)
    ]
    instances = write(tmp_path / "instances.csv", "\n".join([heading, *rows]))
    read = read_predictions(bags, instances)
    said = read.columns_read
    assert said.startswith("bags.csv: bag_id = 'slide_id', label = 'y'; instances.csv: bag_id = 'slide_id'")
    assert ("label = 'target'" in said) == bool(truth)
    assert read.bags.labels.values.tolist() == [1, 0]
    assert read.instances is not None and read.instances.coords is not None
    assert read.instances.coords.values[:, 1].tolist() == [0, side, 0, side] * 2
    assert read.instances.labels.known.all() if truth else not read.instances.labels.known.any()


def test_headings_of_a_spreadsheet_are_recognized(tmp_path: Path) -> None:
    rows = "a,P-1,0,0.9,0.1\nb,P-2,1,0.2,0.8\n"
    read = read_predictions(write(tmp_path / "t.csv", f"Slide ID,Patient ID,True Label,p_0,p_1\n{rows}"))
    said = read.columns_read
    assert "bag_id = 'Slide ID', label = 'True Label', patient = 'Patient ID'" in said
    assert read.bags.labels.values.tolist() == [0, 1] and read.bags.patients is not None
    assert read.bags.patients.tolist() == ["P-1", "P-2"]


def test_instances_are_out_of_distribution_as_their_bags_unless_their_table_says_of_any(tmp_path: Path) -> None:
    bags = write(
        tmp_path / "bags.csv",
        "bag_id,label,is_ood,ood_set,p_1\na,0,false,,0.1\nb,1,true,fmnist,0.9\nc,1,,,0.9\n",
    )
    rows = [("c", 0), ("a", 0), ("b", 0), ("b", 1)]

    def read(*flags: str) -> Predictions:
        header = "bag_id,instance,label,p_1" + (",is_ood" if flags else "")
        cells = [f"{bag},{number},0,0.2" for bag, number in rows]
        lines = [f"{row},{flag}" for row, flag in zip(cells, flags, strict=True)] if flags else cells
        return read_predictions(bags, write(tmp_path / "instances.csv", "\n".join([header, *lines]) + "\n"))

    for table in (read().instances, read("", "", "", "").instances):
        assert table is not None
        assert list(table.is_ood) == [None, False, True, True]
        assert table.ood_sets.tolist() == ["", "", "fmnist", "fmnist"]
        assert table.judged.tolist() == [True, True, False, False]
    said = read("", "", "false", "true").instances
    assert said is not None and list(said.is_ood) == [None, None, False, True]
