"""Tables with one row per instance, and tables of instance labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made_files
import numpy as np
import pytest
from commands import run

import miue
from miue.bags import BagDataset
from miue.cli.inspection import describe
from miue.common.errors import ConfigError, DataError, MiueError, StorageError
from miue.io import load_bags, with_instance_labels
from miue.io.layouts.long_table import read_long_table
from miue.settings import LoadSettings


@pytest.fixture
def slides(tmp_path: Path) -> tuple[Path, Path]:
    return made_files.slides(tmp_path / "job")


LONG = """bag_id,f1,f2,label,instance_label,patient,x,y
b,1,2,pos,pos,p,0,0
0a,3,4,neg,,p2,0,512
b,5,6,pos,neg,p,512,0
0a,7,8,neg,neg,p2,512,512
"""


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "tsv.gz", "parquet"])
def test_long_tables_are_read(tmp_path: Path, kind: str) -> None:
    import gzip

    path = tmp_path / f"t.{kind}"
    if kind == "parquet":
        from io import BytesIO

        from pyarrow import csv, parquet

        parquet.write_table(csv.read_csv(BytesIO(LONG.encode())), path)
    else:
        text = LONG.replace(",", "\t") if "tsv" in kind else LONG
        path.write_bytes(gzip.compress(text.encode()) if kind.endswith("gz") else text.encode())
    bags = load_bags(path).bags
    assert bags.ids == ("b", "0a") and bags.patients == ("p", "p2")
    assert np.array_equal(np.asarray(bags.instances), np.array([[1, 2], [5, 6], [3, 4], [7, 8]], np.float32))
    assert bags.labels.values.tolist() == [1, 0] and bags.class_names == ("neg", "pos")
    assert bags.instance_labels.values.tolist() == [1, 0, 0, 0]
    assert bags.instance_labels.known.tolist() == [True, True, False, True]
    assert bags.coords is not None and bags.coords.values.tolist() == [[0, 0], [512, 0], [0, 512], [512, 512]]
    run("data", "pack", path, "--out", tmp_path / "store", "--quiet")
    assert np.array_equal(np.asarray(miue.read_store(tmp_path / "store").instances), np.asarray(bags.instances))
    assert "long table" in run("inspect", path)


def test_spaces_around_a_text_of_a_long_table_are_no_part_of_it(tmp_path: Path) -> None:
    """A bag whose name ends in a space in some rows would be two bags, and such a label a class of its own."""
    path = tmp_path / "t.csv"
    path.write_text("bag_id,label,patient,f1\na,pos ,p,1\nb,neg,q,2\na ,pos,p ,3\n c,pos,r,4\n")
    bags = load_bags(path).bags
    assert (bags.ids, bags.class_names, bags.patients) == (("a", "b", "c"), ("neg", "pos"), ("p", "q", "r"))
    assert np.asarray(bags.instances).ravel().tolist() == [1, 3, 2, 4]


@pytest.mark.parametrize("patient", ["Patient", "patient_id", "Case_ID"])
def test_columns_of_a_long_table_are_found_in_any_case(patient: str, tmp_path: Path) -> None:
    rows = [f"b{n},{n % 2},p{n // 2},{'Train' if n < 6 else 'test'},{n},{n + 1}" for n in range(8)]
    (tmp_path / "t.csv").write_text("\n".join([f"Bag_ID,Label,{patient},Split,F0,f1", *rows]) + "\n")
    bags = load_bags(tmp_path / "t.csv").bags
    assert bags.instance_shape == (2,) and bags.labels.values.tolist() == [0, 1] * 4
    assert bags.patients == tuple(f"p{n // 2}" for n in range(8))
    assert bags.splits == ("train",) * 6 + ("test",) * 2
    one = read_long_table(tmp_path / "t.csv", features=["f0"])
    assert np.asarray(one.instances).tolist() == [[n] for n in range(8)]


@pytest.mark.parametrize("label", ["target", "Class", "diagnosis"])
def test_a_label_of_another_name_is_never_a_feature_of_a_long_table(label: str, tmp_path: Path) -> None:
    """A column of numbers that gives the class away would be learned from, as in a label table it is the label."""
    path = tmp_path / "t.csv"
    path.write_text(LONG.replace(",label,", f",{label},").replace("pos", "1").replace("neg", "0"))
    loaded = load_bags(path)
    assert loaded.bags.instance_shape == (2,) and loaded.bags.labels.values.tolist() == [1, 0]
    assert f"labels: column {label!r}" in loaded.labels


def test_the_columns_of_labels_and_patients_are_said_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(LONG.replace("label,", "Label,", 1).replace("patient", "case_id"))
    assert load_bags(path).labels == "labels: column 'Label' (neg 1, pos 1; negative class: neg), patients: " + (
        "column 'case_id' (2)"
    )


@pytest.mark.parametrize("cells", [("0", "2", "1", ""), ("normal", "tumor", "stroma", "NA")])
@pytest.mark.parametrize("as_folder", [False, True], ids=["one table", "a table for each bag"])
def test_instances_are_of_the_classes_of_a_label_table_beside_them(
    cells: tuple[str, ...], as_folder: bool, tmp_path: Path
) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("bag_id,label\na,tumor\nb,stroma\nc,normal\n")
    rows = [f"{bag},{value},{cell}\n" for bag, value, cell in zip("aabc", range(4), cells, strict=True)]
    path = tmp_path / "bags"
    if as_folder:
        path.mkdir()
        for bag in "abc":
            there = [row.removeprefix(f"{bag},") for row in rows if row.startswith(bag)]
            (path / f"{bag}.csv").write_text("f,instance_label\n" + "".join(there))
    else:
        path = path.with_suffix(".csv")
        path.write_text("bag_id,f,instance_label\n" + "".join(rows))
    bags = load_bags(path, labels=labels, classes=["normal", "stroma", "tumor"] if as_folder else ()).bags
    assert bags.class_names == ("normal", "stroma", "tumor")
    assert list(bags.labels) == [2, 1, 0] and list(bags.instance_labels) == [0, 2, 1, None]


def test_a_table_of_instance_labels_may_say_more_of_instances(tmp_path: Path) -> None:
    bags = BagDataset.from_arrays([np.ones((2, 1)), np.ones((1, 1))], [0, 1], ids=["a", "b"])
    path = tmp_path / "t.csv"
    path.write_text("bag_id,instance,instance_label,class,split\na,0,0,stroma,x\na,1,1,tumor,y\n")
    labeled = with_instance_labels(bags, path)
    assert labeled.instance_labels.values.tolist()[:2] == [0, 1]


@pytest.mark.parametrize("numbers", ["Unnamed: 0", "index", "__index_level_0__"])
def test_row_numbers_in_a_long_table_are_no_feature(numbers: str, tmp_path: Path) -> None:
    head, *rows = LONG.splitlines()
    lines = [f"{numbers},{head}", *(f"{row},{text}" for row, text in enumerate(rows, start=100))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    assert np.asarray(load_bags(tmp_path / "t.csv").bags.instances)[:, 0].tolist() == [1, 5, 3, 7]


def test_a_number_too_large_is_called_so_wherever_rows_of_its_bag_are(tmp_path: Path) -> None:
    rows = ["a,1", "b,1e39", "c,1", "a,1", "b,1", "c,1"]
    (tmp_path / "t.csv").write_text("\n".join(["bag_id,area", *rows]) + "\n")
    with pytest.raises(DataError, match=r"in 1 of 2 rows \(line 3, column 'area', which is infinite or beyond"):
        load_bags(tmp_path / "t.csv")


def test_bags_without_positions_keep_those_of_others_in_a_long_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(LONG.replace("p2,0,512", "p2,,").replace("p2,512,512", "p2,,"))
    bags = load_bags(tmp_path / "t.csv").bags
    assert bags.coords is not None and bags.coords.known.tolist() == [True, True, False, False]
    assert bags.coords.values[:2].tolist() == [[0, 0], [512, 0]] and bags.without_coords == ("0a",)


def test_foreign_bags_of_a_long_table_are_foreign_and_no_feature(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("bag_id,IS_OOD,ood_set,f\na,1,scanner,1\na,1,scanner,2\nb,0,,3\nc,yes,,4\n")
    bags = load_bags(tmp_path / "t.csv").bags
    assert bags.instance_shape == (1,)
    assert bags.is_ood.values.tolist() == [True, False, True] and bags.ood_sets == ("scanner", "", "ood")
    assert bags.instance_is_ood.values.tolist() == [True, True, False, True]


def test_bags_of_unknown_patients_in_a_long_table_are_patients_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("bag_id,patient,f\na,p,1\nb,,2\nc,NA,3\nd,p,4\n")
    assert load_bags(tmp_path / "t.csv").bags.patients == ("p", "b", "c", "p")
    (tmp_path / "t.csv").write_text("bag_id,patient,f\na,,1\nb,,2\n")
    assert load_bags(tmp_path / "t.csv").bags.patients is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("patient", "Label"), "expected one column 'label', got 'label' and 'Label'"),
        (("f2", "f1"), "expected one column 'f1', got 2; keep one of them"),
        (("patient", "is_ood"), "line 2, column 'is_ood': expected true, false, or empty where unknown, got 'p'"),
        (("pos,neg,p,", "neg,neg,p,"), "line 4, column 'label': expected 'pos', as in the other rows of this bag"),
        (("5,6", "5,"), r"b: no finite number in 1 of 2 rows \(line 4, column 'f2'\)"),
        (("5,6", "5,six"), "column 'f2': expected numbers, got 'six'"),
        (("0a,7", ",7"), "line 5: expected a bag_id, got nothing"),
        (
            ("bag_id", "bag"),
            r"a column 'bag_id' and columns of features, .* \(id_column=NAME",
        ),
        (
            ("pos,pos", "pos,positive"),
            "line 2, column 'instance_label': expected one of neg, pos, a class index .* got 'positive'",
        ),
        (("p,512,0", "p,,0"), "line 4, columns 'x' and 'y': expected two numbers of pixels, .* got none and 0"),
    ],
)
def test_long_tables_that_cannot_be_used_are_named(tmp_path: Path, changes: tuple[str, str], message: str) -> None:
    (tmp_path / "t.csv").write_text(LONG.replace(*changes, 1))
    with pytest.raises(MiueError, match=message):
        load_bags(tmp_path / "t.csv")


def test_a_row_of_a_large_file_that_is_read_in_parts_is_named_by_its_line_in_the_file(tmp_path: Path) -> None:
    lines = [f"{'ab'[row >= 60_000]},{row}.25,{row}.125" for row in range(70_000)]
    lines[65_000] = "b,,1"
    (tmp_path / "t.csv").write_text("bag_id,f1,f2\n" + "\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"b: no finite number in 1 of 10,?000 rows \(line 65002, column 'f1'\)"):
        load_bags(tmp_path / "t.csv")


def test_columns_of_other_names_are_inspected_and_loaded_by_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(LONG.replace("bag_id", "Sample").replace("label", "Group", 1))
    named = {"bag_id": "Sample", "label": "Group"}
    loaded = load_bags(tmp_path / "t.csv", columns=named).bags
    assert loaded.class_names == ("neg", "pos")
    text = run("inspect", tmp_path / "t.csv", "--id-column", "Sample", "--label-column", "Group", "--json")
    assert json.loads(text)["bags"] == len(loaded)
    with pytest.raises(ConfigError, match="columns: expected bags that take names of columns, got a folder"):
        describe(made_files.slides(tmp_path / "job")[0], LoadSettings(id_column="Sample"))


def test_a_specified_column_that_is_missing_or_a_meaning_that_there_is_not_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(LONG)
    how = r"name one that it has \(patient_column=NAME\)"
    with pytest.raises(DataError, match=f"expected a column 'owner'.*{how}"):
        load_bags(tmp_path / "t.csv", columns={"patient": "owner"})
    with pytest.raises(ConfigError, match="meaning of a column 'pateint'.*did you mean 'patient'"):
        load_bags(tmp_path / "t.csv", columns={"pateint": "patient"})


def test_rows_of_a_table_are_read_in_parts_and_sorted_by_bag(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values, bag = random.normal(size=(20_000, 3)).astype(np.float32), random.integers(0, 50, 20_000)
    rows = [f"b{b},{','.join(map(repr, map(float, row)))}" for b, row in zip(bag, values, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["bag_id,f0,f1,f2", *rows]) + "\n")
    table = read_long_table(tmp_path / "t.csv")
    order = list(dict.fromkeys(f"b{b}" for b in bag))
    assert list(table.ids) == order
    expected = np.concatenate([values[bag == int(name[1:])] for name in order])
    assert np.array_equal(np.asarray(table.instances), expected)


def test_instance_labels_come_from_a_table_of_their_own(slides: tuple[Path, Path], tmp_path: Path) -> None:
    folder, labels = slides
    (tmp_path / "patches.csv").write_text(
        "bag_id,instance,instance_label\n0000,0,tumor\n0000,2,normal\n9999,0,tumor\n"
    )
    bags = load_bags(folder, labels=labels, instance_labels=tmp_path / "patches.csv").bags
    first = slice(int(bags.starts[0]), int(bags.starts[0] + bags.sizes[0]))
    assert bags.ids[0] == "0000"
    assert bags.instance_labels.values[first][[0, 2]].tolist() == [1, 0]
    assert bags.instance_labels.known[first].tolist() == [True, False, True]
    assert bags.instance_labels.known.sum() == 2
    classes = ("normal", "tumor")  # of a model, where the bags have no labels themselves
    without = load_bags(folder, instance_labels=tmp_path / "patches.csv", classes=classes).bags
    assert without.instance_labels.values[first][[0, 2]].tolist() == [1, 0]
    assert not without.labels.known.any()
    with pytest.raises(DataError, match="use their numbers, or name the classes"):
        load_bags(folder, instance_labels=tmp_path / "patches.csv")
    (tmp_path / "patches.csv").write_text("bag_id,instance,instance_label\n0000,3,tumor\n")
    with pytest.raises(DataError, match="bag '0000' of .*: expected instances from 0 to 2, got 3"):
        load_bags(folder, labels=labels, instance_labels=tmp_path / "patches.csv")


def test_a_column_of_bags_that_is_named_is_that_of_the_table_of_instance_labels_too(tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_text("sample,CD3\n007,1\n7,2\n007,3\n")
    (tmp_path / "labels.csv").write_text("sample,label\n007,ill\n7,healthy\n")
    of_cells = tmp_path / "cell_labels.csv"
    of_cells.write_text("sample,instance,instance_label\n007,1,ill\n7,0,healthy\n007,0,healthy\n")
    named: dict[str, Any] = {"columns": {"bag_id": "sample"}, "classes": ("healthy", "ill")}
    for labels in (tmp_path / "labels.csv", None):
        bags = load_bags(tmp_path / "cells.csv", labels=labels, instance_labels=of_cells, **named).bags
        assert bags.ids == ("007", "7") and bags.instance_labels.known.all()
        assert bags.instance_labels.values[bags.positions].tolist() == [0, 1, 0]
    of_cells.write_text(of_cells.read_text().replace("sample", "slide_id"))  # found by its name, as before
    bags = load_bags(tmp_path / "cells.csv", labels=labels, instance_labels=of_cells, **named).bags
    assert bags.instance_labels.values[bags.positions].tolist() == [0, 1, 0]


def two_bags() -> BagDataset:
    known: list[list[int | None]] = [[1, None, 0], [1]]
    return BagDataset.from_arrays([np.ones((3, 2)), np.ones((1, 2))], ids=["a", "b"], instance_labels=known)


def test_a_cell_that_tells_no_instance_label_leaves_the_one_that_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = (
        "bag_id,Instance,Instance_Label\na.svs,0,\nz,0,tumor\na.svs,2,1\na.svs,1,0\nz,7,1\n"  # z: of another class
    )
    (tmp_path / "i.csv").write_text(rows)
    found = with_instance_labels(two_bags(), tmp_path / "i.csv").instance_labels
    assert found.values.tolist() == [1, 0, 1, 1] and found.known.all()
    assert "labels nothing with 2 rows of 1 bag not there, such as 'z'" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "bag_id,instance,instance_label\nA,0,1\nB,0,1\n",
            "expected instances of the bags, such as 'a', got .* 'A'",
        ),
        ("bag_id,instance,instance_lable\na,0,1\n", "expected a column instance_label, got none"),
        ("bag_id,instance,instance_label\na,0.6,1\n", "instances from 0 to 2, got 0.6"),
        ("bag_id,instance,instance_label\na,-1,1\n", "instances from 0 to 2, got -1"),
        (
            "bag_id,instance,instance_label\na,0,1\na,2,1\na,2,\n",
            "instance 2, bag 'a' .*: expected one row, got 2",
        ),
        (
            "bag_id,instance,instance_label\na,0,²\n",
            "line 2, column 'instance_label': expected a class index .* got '²'",
        ),
    ],
)
def test_instance_labels_that_would_be_lost_are_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "i.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        with_instance_labels(two_bags(), tmp_path / "i.csv")


COORDS = ([[0, 0], [256, 0], [0, 256]], [[0, 0]])


def located_bags(coords: tuple[list[list[int]], ...] | None = COORDS) -> BagDataset:
    arrays = None if coords is None else [np.array(own) for own in coords]
    return BagDataset.from_arrays([np.ones((3, 2)), np.ones((1, 2))], ids=["a", "b"], coords=arrays)


def test_instance_labels_are_joined_by_position_where_the_table_has_no_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = (
        "slide_id,x,y,instance_label\na.svs,0,256,1\nb,0,0,0\na.svs,256.0,0,\na.svs,512,0,1\na.svs,,,1\nz,0,0,1\n"
    )
    (tmp_path / "i.csv").write_text(rows)
    labels = with_instance_labels(located_bags(), tmp_path / "i.csv").instance_labels
    assert labels.known.tolist() == [False, False, True, True]
    assert labels.values[labels.known].tolist() == [1, 0]
    assert "no instance is at 2 of 5 positions, such as (512, 0) in bag 'a'" in caplog.text
    assert "labels nothing with 1 row of 1 bag not there, such as 'z'" in caplog.text


@pytest.mark.parametrize("rows", [[1, 0], [1], [0]])
def test_instance_labels_are_joined_by_position_in_bags_of_another_order_or_choice(
    rows: list[int], tmp_path: Path
) -> None:
    (tmp_path / "i.csv").write_text("bag_id,x,y,instance_label\nb,0,0,1\na,0,256,1\na,0,0,0\n")
    bags = located_bags().subset(rows)
    of_all = with_instance_labels(bags, tmp_path / "i.csv").instance_labels
    expected = {"a": {0: 0, 2: 1}, "b": {3: 1}}
    known = {row: number for name in bags.ids for row, number in expected[name].items()}
    assert dict(zip(np.flatnonzero(of_all.known).tolist(), of_all.values[of_all.known], strict=True)) == known


def test_an_instance_that_is_labeled_twice_is_named_in_bags_of_another_order(tmp_path: Path) -> None:
    (tmp_path / "i.csv").write_text("bag_id,instance,instance_label\na,1,1\nb,0,1\nb,0,0\n")
    with pytest.raises(DataError, match="instance 0, bag 'b' .*: expected one row, got 2"):
        with_instance_labels(located_bags().subset([1, 0]), tmp_path / "i.csv")


def test_a_number_of_the_instance_goes_before_its_position(tmp_path: Path) -> None:
    (tmp_path / "i.csv").write_text("bag_id,instance,x,y,instance_label\na,1,0,0,1\n")
    assert with_instance_labels(located_bags(), tmp_path / "i.csv").instance_labels.known.tolist() == [
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("bags", "text", "message"),
    [
        (located_bags(None), "a,0,0,1\n", "a column instance, since the bags have no positions, got x and y"),
        (
            located_bags(),
            "a,1,1,1\nb,5,0,1\n",
            r"expected positions of instances, such as \(0, 0\), got none of them; \(1, 1\) in bag 'a'",
        ),
        (located_bags(([[0, 0], [0, 0], [9, 9]], [[0, 0]])), "a,0,0,1\n", r"got 2 instances at \(0, 0\)"),
        (located_bags(), "a,0,256,1\na,0,256,1\n", "instance 2, bag 'a' .*: expected one row, got 2"),
        (located_bags(), "a,,,1\n", "expected positions of instances"),
        (located_bags(), "a,0,,1\n", "line 2, columns 'x' and 'y'"),
    ],
)
def test_positions_that_name_no_instance_are_errors(
    bags: BagDataset, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "i.csv").write_text("bag_id,x,y,instance_label\n" + text)
    with pytest.raises(DataError, match=message):
        with_instance_labels(bags, tmp_path / "i.csv")


def test_columns_that_number_rows_are_named_and_inspect_lists_the_features(tmp_path: Path) -> None:
    header = "slide_id,label,{},f1,grid,video,fold_change"
    for name in ("tile_id", "row_index", "fold_0", "patch idx", "ID_2"):
        (tmp_path / "t.csv").write_text(f"{header.format(name)}\na,1,1,2,3,4,5\nb,0,1,2,3,4,6\n")
        found = read_long_table(tmp_path / "t.csv")
        assert found.notes[0] == f"taken for features: '{name}'; if they only number rows, choose the features"
        assert describe(tmp_path / "t.csv")["features"] == [name, "f1", "grid", "video", "fold_change"]
    assert "choose the features" in run("data", "pack", tmp_path / "t.csv", "--out", tmp_path / "s")
    assert "tile_id" not in run("inspect", tmp_path / "t.csv") and "f1, grid, video" in run(
        "inspect", tmp_path / "t.csv"
    )
    (tmp_path / "t.csv").write_text(LONG)
    assert read_long_table(tmp_path / "t.csv").notes == ()


@pytest.mark.parametrize("header", ["video,instance", "bag_id,clip", "bag_id,x"])
def test_a_table_of_instance_labels_without_bag_or_instance_is_told_its_columns(
    header: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(f"{header},instance_label\na,0,1\n")
    bags = BagDataset.from_arrays([np.ones((2, 3))], [1], ids=["a"])
    message = f"expected columns bag_id, instance_label, and instance .* or x and y, got columns {header},"
    with pytest.raises(DataError, match=message.replace(",", ", ?")):
        with_instance_labels(bags, tmp_path / "t.csv")


def test_a_column_of_lists_is_named(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = {"bag_id": ["a", "b"], "embedding": [[1.0, 2.0], [3.0, 4.0]]}
    for number, kind in enumerate((pa.list_(pa.float32()), pa.list_(pa.float32(), 2))):
        path = tmp_path / f"{number}.parquet"
        parquet.write_table(pa.table(table, pa.schema([("bag_id", pa.string()), ("embedding", kind)])), path)
        said = r"column 'embedding': expected numbers, got .*list<"
        with pytest.raises(StorageError, match=said):
            load_bags(path)
