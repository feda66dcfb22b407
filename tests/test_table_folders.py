"""Folders of tables of instances: one table for each bag, or tables with a column that names bags."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from commands import run
from pyarrow import csv, parquet

import miue
from miue.cli.inspection import UNUSABLE, describe
from miue.common.errors import ConfigError, DataError, MiueError, StorageError
from miue.io import load_bags

COLUMNS = ["0", "1", "2"]


def write_table(path: Path, values: np.ndarray, columns: list[str] = COLUMNS) -> None:
    """Write a table in the format that its name says."""
    separator = "\t" if path.suffix == ".tsv" else ","
    lines = [columns, *([f"{value:g}" for value in row] for row in values)]
    text = "".join(separator.join(line) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
        return
    path.write_text(text)
    if path.suffix == ".parquet":
        parquet.write_table(csv.read_csv(path), path)


def values_of(number: int) -> np.ndarray:
    """Features of a bag of one to five instances."""
    size = 1 + 2 * number % 5
    return np.arange(3 * size).reshape(size, 3) + 100 * number + 50 * (number % 2)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "parquet", "CSV"])
def test_each_table_of_a_folder_is_a_bag_with_its_name(ending: str, tmp_path: Path) -> None:
    for number in range(4):
        write_table(tmp_path / "features" / f"00{number}.{ending}", values_of(number))
    labels = tmp_path / "labels.csv"
    labels.write_text(f"slide_id,label\n003.{ending},pos\n000,neg\n001,pos\n002,neg\n")
    assert load_bags(tmp_path / "features").bags.ids == ("000", "001", "002", "003")
    bags = load_bags(tmp_path / "features", labels=labels).bags
    assert bags.ids == ("003", "000", "001", "002")  # in the order of the labels
    assert bags.labels.values.tolist() == [1, 0, 1, 0]
    assert bags.feature_names == ("0", "1", "2")
    for bag, number in enumerate((3, 0, 1, 2)):
        np.testing.assert_array_equal(bags.batch([bag]).instances.numpy(), values_of(number))


def test_columns_are_read_by_name_and_positions_and_labels_of_instances_with_them(tmp_path: Path) -> None:
    write_table(tmp_path / "a.csv", np.array([[1, 2, 0, 256, 1]]), ["f1", "f2", "x", "y", "instance_label"])
    write_table(tmp_path / "b.csv", np.array([[4, 512, 0, 0, 3]]), ["f2", "x", "y", "instance_label", "f1"])
    bags = load_bags(tmp_path, classes=["0", "1"]).bags
    np.testing.assert_array_equal(np.asarray(bags.instances), [[1, 2], [3, 4]])
    assert bags.coords is not None
    assert bags.coords.values.tolist() == [[0, 256], [512, 0]]
    assert bags.instance_labels.values.tolist() == [1, 0]
    only = load_bags(tmp_path, features=["f2"]).bags
    np.testing.assert_array_equal(np.asarray(only.instances), [[2], [4]])


def test_tables_in_folders_of_classes_are_read_and_a_table_of_labels_beside_them_is_not(
    tmp_path: Path,
) -> None:
    for number in range(4):
        write_table(tmp_path / ("normal", "tumor")[number % 2] / f"s{number}.csv", values_of(number))
    loaded = load_bags(tmp_path)
    assert loaded.bags.ids == ("s0", "s2", "s1", "s3")
    assert loaded.notes == ("bags of 2 folders were read: normal (2), tumor (2)",)
    (tmp_path / "normal" / "labels.csv").write_text("slide_id,label,age\ns0,0,50\ns2,0,60\n")
    loaded = load_bags(tmp_path)
    assert loaded.bags.ids == ("s0", "s2", "s1", "s3")
    assert "not read: 1 (labels.csv)" in loaded.notes
    assert any("labels.csv" in note for note in describe(tmp_path)["notes"])
    write_table(tmp_path / "tumor" / "s0.csv", values_of(0))
    with pytest.raises(DataError, match="with the same bag 's0'"):
        load_bags(tmp_path)


@pytest.mark.parametrize("names_bags", [False, True])
def test_tables_in_folders_of_splits_name_the_splits_of_their_bags(names_bags: bool, tmp_path: Path) -> None:
    """They were read as one folder without a word, and a split was drawn, so that test bags were trained on."""
    for number in range(4):
        path = tmp_path / ("Train", "test")[number % 2] / f"s{number}.csv"
        write_table(path, values_of(number), ["bag_id" if names_bags else "0", "1", "2"])
    loaded = load_bags(tmp_path)
    if names_bags:
        assert set(loaded.bags.splits) == {"train", "test"}
    else:
        splits = dict(zip(loaded.bags.ids, loaded.bags.splits, strict=True))
        assert splits == {"s0": "train", "s1": "test", "s2": "train", "s3": "test"}
    assert loaded.notes[0] == "bags of 2 folders, which name their splits, were read: Train (2), test (2)"
    assert load_bags(tmp_path / "test").bags.sizes.sum() == sum(len(values_of(number)) for number in (1, 3))
    (tmp_path / "Train").rename(tmp_path / "site_a")
    with pytest.raises(DataError, match="of which not each is named like one split"):
        load_bags(tmp_path)
    (tmp_path / "test").rename(tmp_path / "site_b")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "labels.csv").write_text("slide_id,label\ns0,0\n")
    loaded = load_bags(tmp_path)
    assert "bags of 2 folders were read: site_a (2), site_b (2)" in loaded.notes
    assert not any(loaded.bags.splits)


def test_a_bag_has_rows_in_one_folder_of_splits(tmp_path: Path) -> None:
    for folder, text in (("train", "a,pos,1\nb,neg,2\n"), ("val", "c,pos,3\n"), ("test", "d,neg,4\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "part.csv").write_text(f"slide_id,label,f\n{text}")
    bags = load_bags(tmp_path).bags
    found = dict(zip(bags.ids, bags.splits, strict=True))
    assert found == {"a": "train", "b": "train", "c": "validation", "d": "test"}
    (tmp_path / "test" / "part.csv").write_text("slide_id,label,f\na,pos,4\n")
    with pytest.raises(DataError, match=r"line . of '.*/part.csv', column 'split': expected"):
        load_bags(tmp_path)
    for path in tmp_path.glob("*/part.csv"):
        path.write_text(f"slide_id,label,split,f\n{path.parent.name},pos,train,4\n")
    with pytest.raises(DataError, match="expected names of folders.* or a column, got both"):
        load_bags(tmp_path)


def test_a_column_that_names_bags_comes_before_the_names_of_tables(tmp_path: Path) -> None:
    (tmp_path / "part_0.csv").write_text("slide_id,label,f\na,pos,1\nb,neg,2\n")
    (tmp_path / "part_1.csv").write_text("f,slide_id,label\n3,b,neg\n4,c,pos\n")
    bags = load_bags(tmp_path).bags
    assert bags.ids == ("a", "b", "c")
    np.testing.assert_array_equal(np.asarray(bags.instances).ravel(), [1, 2, 3, 4])
    assert bags.labels.values.tolist() == [1, 0, 1]
    (tmp_path / "part_1.csv").write_text("f,slide_id,label\n3,b,neg\n4,b,pos\n")
    with pytest.raises(DataError, match=r"line 3 of 'part_1.csv', column 'label': expected 'neg'"):
        load_bags(tmp_path)


def test_a_row_of_tables_of_one_name_in_several_folders_is_named_with_its_folder(tmp_path: Path) -> None:
    for folder, text in (("site_a", "a,pos,1\na,pos,2\n"), ("site_b", "b,neg,3\nb,pos,4\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "part.csv").write_text(f"slide_id,label,f\n{text}")
    with pytest.raises(DataError, match=r"line 3 of 'site_b/part.csv', column 'label': expected 'neg'"):
        load_bags(tmp_path)


def test_bags_without_a_row_or_with_a_cell_that_is_no_number_are_named(tmp_path: Path) -> None:
    for number in range(3):
        write_table(tmp_path / f"s{number}.csv", values_of(number))
    write_table(tmp_path / "s3.csv", np.zeros((0, 3)))
    write_table(tmp_path / "s4.csv", np.array([[1, 2, 3], [4, np.nan, 6]]))
    with pytest.raises(DataError, match="2 .*s3"):
        load_bags(tmp_path)
    loaded = load_bags(tmp_path, skip_bad=True)
    assert loaded.bags.ids == ("s0", "s1", "s2")
    assert {one.bag: one.reason for one in loaded.left_out} == {
        "s3": "no row in 's3.csv'",
        "s4": "no finite number in 1 of 2 rows (line 3 of 's4.csv', column '1')",
    }


def test_tables_with_other_columns_are_refused(tmp_path: Path) -> None:
    for number in range(2):
        write_table(tmp_path / f"s{number}.csv", values_of(number))
    write_table(tmp_path / "s2.csv", values_of(2), ["0", "1", "other"])
    with pytest.raises(
        DataError, match=r"s2\.csv': expected the columns of 's0\.csv', got no '2' and also 'other'"
    ):
        load_bags(tmp_path)


def test_folders_of_miue_and_folders_without_features_are_no_folders_of_tables(tmp_path: Path) -> None:
    for number in range(4):
        write_table(tmp_path / "features" / f"s{number}.csv", values_of(number))
    bags = miue.BagDataset.from_arrays([values_of(number) for number in range(8)], [0, 1] * 4)
    model = miue.train(bags, settings={"max_epochs": 1, "device": "cpu"}, out=tmp_path / "run", progress=False)
    model.predict(bags).save(tmp_path / "predictions", table_format="csv")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "labels.csv").write_text("slide_id,label\ns0,0\n")
    for folder in ("run", "predictions", "labels"):
        with pytest.raises(MiueError, match="expected bags: a bag store or"):
            load_bags(tmp_path / folder)
    with pytest.raises(ConfigError, match="microns_per_pixel: expected bags that take a pixel width"):
        load_bags(tmp_path / "features", settings={"microns_per_pixel": 0.5})


def test_the_commands_take_a_folder_of_tables(tmp_path: Path) -> None:
    for number in range(16):
        write_table(tmp_path / "features" / f"s{number}.csv", values_of(number))
    labels = tmp_path / "labels.csv"
    labels.write_text("slide_id,label\n" + "".join(f"s{number},{number % 2}\n" for number in range(16)))
    run("train", tmp_path / "features", "--labels", labels, "--out", tmp_path / "run", "--set", "max_epochs=1")
    for number in range(2):
        swapped = values_of(number)[:, ::-1]
        write_table(tmp_path / "new" / f"new_{number}.csv", swapped, COLUMNS[::-1])
    run("predict", tmp_path / "run", tmp_path / "new", "--out", tmp_path / "predictions")
    found = miue.read_predictions(tmp_path / "predictions").bags
    expected = miue.Model.load(tmp_path / "run").predict([values_of(number) for number in range(2)]).bags
    np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=1e-6)
    run("data", "pack", tmp_path / "features", "--labels", labels, "--out", tmp_path / "store")
    assert miue.read_store(tmp_path / "store").ids == tuple(f"s{number}" for number in range(16))


def bad_bags(folder: Path) -> dict[str, str]:
    """Why bags of a folder were left out, by their names."""
    return {one.bag: one.reason for one in load_bags(folder, skip_bad=True).left_out}


def test_tables_that_cannot_be_used_are_listed_together_and_skipped(tmp_path: Path) -> None:
    for number in range(9):
        write_table(tmp_path / f"s{number}.csv", values_of(number))
    (tmp_path / "s0.csv").write_bytes(b"")
    (tmp_path / "s1.csv").write_text("0,1,2\n1,2,many\n")
    (tmp_path / "s2.csv").write_text("0,1,2\n1,2\n")
    write_table(tmp_path / "s3.csv", values_of(3), ["0", "1", "other"])
    (tmp_path / "s4.csv").unlink()
    (tmp_path / "s4.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "s5.csv").unlink()
    (tmp_path / "s5.csv").symlink_to(tmp_path / "nowhere.csv")
    write_table(tmp_path / "s8.parquet", values_of(8))
    with pytest.raises(DataError, match=r"got 7 that cannot \(s0: "):
        load_bags(tmp_path)
    reasons = bad_bags(tmp_path)
    said = {
        "s0": "s0.csv': expected a header line",
        "s1": "s1.csv', column '2': expected numbers, got 'many'",
        "s2": "s2.csv': .*Expected 3 columns, got 2",
        "s3": "s3.csv': expected the columns of 's1.csv', got no '2' and also 'other'",
        "s4": "s4.parquet': expected a readable table",
        "s5": "s5.csv': expected an existing file",
        "s8": "expected one table of bag 's8', got s8.csv and s8.parquet",
    }
    assert set(reasons) == set(said)
    for name, pattern in said.items():
        assert re.search(pattern, reasons[name]), reasons[name]
    bags = load_bags(tmp_path, skip_bad=True).bags
    assert bags.ids == ("s6", "s7")
    for bag, number in enumerate((6, 7)):
        np.testing.assert_array_equal(bags.batch([bag]).instances.numpy(), values_of(number))
    assert len(describe(tmp_path)[UNUSABLE]) == 7


def test_a_table_damaged_after_its_first_rows_is_a_bad_bag(tmp_path: Path) -> None:
    write_table(tmp_path / "a.csv", values_of(2))
    long = "0,1,2\n" + "1,2,3\n" * 200_000  # more than one part of a CSV
    (tmp_path / "b.csv").write_text(long + "4,5,six\n")
    write_table(tmp_path / "c.csv", values_of(1))
    loaded = load_bags(tmp_path, skip_bad=True)
    assert loaded.bags.ids == ("a", "c")
    np.testing.assert_array_equal(loaded.bags.batch([1]).instances.numpy(), values_of(1))
    assert "'six'" in loaded.left_out[0].reason


def test_a_bad_bag_is_named_once_and_only_where_the_labels_list_it(tmp_path: Path) -> None:
    for number in range(5):
        write_table(tmp_path / "features" / f"s{number}.csv", values_of(number))
    write_table(tmp_path / "features" / "s1.csv", np.zeros((0, 3)))
    labels = tmp_path / "labels.csv"
    labels.write_text("slide_id,label\ns0,a\ns2,b\n")
    assert load_bags(tmp_path / "features", labels=labels).bags.ids == ("s0", "s2")
    labels.write_text("slide_id,label\ns0,a\ns1,b\ns2,b\n")
    loaded = load_bags(tmp_path / "features", labels=labels, skip_bad=True)
    assert [(one.bag, one.reason) for one in loaded.left_out if one.is_bad] == [("s1", "no row in 's1.csv'")]
    with pytest.raises(DataError, match=r"got 1 that cannot \(s1: no row in 's1.csv'\)"):
        load_bags(tmp_path / "features", labels=labels)


def test_a_table_that_names_bags_and_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "part_0.csv").write_text("slide_id,f\na,1\nb,2\n")
    (tmp_path / "part_1.csv").write_text("slide_id,f\nc,one\n")
    for skip_bad in (False, True):
        with pytest.raises(StorageError, match=r"part_1.csv', column 'f': expected numbers, got 'one'"):
            load_bags(tmp_path, skip_bad=skip_bad)
    (tmp_path / "part_1.csv").write_bytes(b"")
    with pytest.raises(StorageError, match=r"part_1.csv': expected a header line"):
        load_bags(tmp_path, skip_bad=True)


def test_tables_without_a_header_line_are_refused_not_passed_over(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"s{number}.csv").write_text(f"{number}.5,{number}.25\n{number},2\n")
    with pytest.raises(DataError, match=r"s0.csv': expected a header line .*, got numbers \(0.5, 0.25\)"):
        load_bags(tmp_path)


def test_the_table_of_features_is_found_beside_one_of_labels_whatever_their_names(tmp_path: Path) -> None:
    write_table(tmp_path / "slide.csv", values_of(2))
    (tmp_path / "labels.csv").write_text("slide_id,label\nslide,a\n")
    assert load_bags(tmp_path).bags.ids == ("slide",)


def test_a_folder_of_tables_without_any_column_of_features_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name\n1\n")
    with pytest.raises(DataError, match="columns of features"):
        load_bags(tmp_path, columns={"bag_id": "name"})


def test_columns_that_number_rows_may_be_in_some_tables_alone(tmp_path: Path) -> None:
    write_table(tmp_path / "a.csv", np.array([[1, 2], [3, 4]]), ["f0", "f1"])
    write_table(tmp_path / "b.csv", np.array([[0, 5, 6]]), ["Unnamed: 0", "f0", "f1"])
    np.testing.assert_array_equal(np.asarray(load_bags(tmp_path).bags.instances), [[1, 2], [3, 4], [5, 6]])


def test_tables_in_folders_below_that_are_not_read_are_named(tmp_path: Path) -> None:
    for number in range(2):
        write_table(tmp_path / f"s{number}.csv", values_of(number))
        write_table(tmp_path / "tumor" / f"t{number}.csv", values_of(number))
    loaded = load_bags(tmp_path)
    assert loaded.bags.ids == ("s0", "s1")
    assert any("tumor" in note and "not read" in note for note in loaded.notes)


def test_tables_about_bag_files_are_beside_them(tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", np.zeros((3, 2)))
    (tmp_path / "clinical.csv").write_text("slide_id,label,age\ns,a,50\n")
    (tmp_path / "process_list.csv").write_text("slide_id,seg_level,use_padding\ns,1,1\n")
    assert load_bags(tmp_path).bags.ids == ("s",)
