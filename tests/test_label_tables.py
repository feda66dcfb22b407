"""Label tables of CLAM, Patho-Bench, MIREL and STAMP."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import made_files
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from miue.bags import BagDataset
from miue.bags.names import strip_endings
from miue.common.errors import ConfigError, DataError, MiueError, StorageError
from miue.common.tables import read_text_columns
from miue.io import LabelTable, LoadedBags, load_bags, read_label_table, write_store


def table(tmp_path: Path, text: str, name: str = "labels.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_table_of_clam(tmp_path: Path) -> None:
    found = read_label_table(
        table(tmp_path, "case_id,slide_id,label\n007,0070,tumor\n007,0071,normal\n08,080,normal\n")
    )
    assert found.ids == ("0070", "0071", "080")
    assert found.patients == ("007", "007", "08")
    assert found.labels == ("tumor", "normal", "normal")
    assert found.class_names() == ("normal", "tumor")


def test_a_table_of_patho_bench_has_its_task_and_folds(tmp_path: Path) -> None:
    text = "case_id\tslide_id\tidh_status\tfold_0\tfold_1\na\ta1\t1\ttrain\ttest\nb\tb1\t0\ttest\ttrain\n"
    found = read_label_table(table(tmp_path, text, "k=all.tsv"))
    assert found.labels == ("1", "0")
    assert found.folds == {0: ("train", "test"), 1: ("test", "train")}
    swapped = table(tmp_path, text.replace("fold_0", "fold_10").replace("fold_1\n", "fold_2\n"), "k=all.tsv")
    assert list(read_label_table(swapped).folds) == [2, 10]


def test_a_table_of_mirel(tmp_path: Path) -> None:
    found = read_label_table(table(tmp_path, "patient_id,pathology_id,label\n1,1_a,0\n1,1_b,1\n"))
    assert (found.ids, found.patients, found.labels) == (("1_a", "1_b"), ("1", "1"), ("0", "1"))


def test_the_two_tables_of_stamp(tmp_path: Path) -> None:
    clinical = table(tmp_path, "PATIENT,isMSIH\n01,MSIH\n02,nonMSIH\n", "clini.csv")
    slides = table(tmp_path, "PATIENT,FILENAME\n01,01_a.h5\n01,01_b.h5\n02,02_a.h5\n03,03_a.h5\n", "slide.csv")
    found = read_label_table(clinical, slide_table=slides)
    assert found.ids == ("01_a.h5", "01_b.h5", "02_a.h5")
    assert found.patients == ("01", "01", "02") and found.labels == ("MSIH", "MSIH", "nonMSIH")


def test_a_patient_without_slides_is_named(tmp_path: Path) -> None:
    clinical = table(tmp_path, "PATIENT,label\n01,a\n02,b\n", "clini.csv")
    with pytest.raises(DataError, match="patient '02' of .*: expected a slide in .*, got none, for 1 patient"):
        read_label_table(clinical, slide_table=table(tmp_path, "PATIENT,FILENAME\n01,01_a\n", "slide.csv"))


def test_a_table_of_patients_alone_asks_for_the_table_of_slides(tmp_path: Path) -> None:
    for name in ("a01", "b01", "a02"):
        (tmp_path / f"{name}.csv").write_text("f\n1\n")
    for heading, column in (("PATIENT,ISUP", "PATIENT"), ("case_id,label", "case_id")):
        clinical = table(tmp_path, f"{heading}\n01,low\n02,high\n", "clinical.tsv")
        expected = rf"'a01', got only patients \(column '{column}'\), such as '01'; .*slide_table"
        with pytest.raises(DataError, match=expected):
            load_bags(tmp_path, labels=clinical, skip_bad=True)
    of_bags = table(tmp_path, "PATIENT,ISUP\na01,low\na02,high\n", "clinical.tsv")
    bags = load_bags(tmp_path, labels=of_bags).bags
    assert bags.ids == ("a01", "a02") and bags.patients is None


@pytest.mark.parametrize("mark", ["_", "-", ".", " "])
def test_a_table_of_patients_labels_bags_whose_names_begin_with_theirs(tmp_path: Path, mark: str) -> None:
    for name in (f"1{mark}b", f"1{mark}a", f"10{mark}a", "7"):
        (tmp_path / f"{name}.csv").write_text("f\n1\n")
    clinical = table(tmp_path, "PATIENT,ISUP,split\n10,low,train\n1,high,train\n", "clinical.tsv")
    loaded = load_bags(tmp_path, labels=clinical)
    assert loaded.bags.ids == (f"10{mark}a", f"1{mark}a", f"1{mark}b")
    assert loaded.bags.patients == ("10", "1", "1")
    assert loaded.bags.splits == ("train", "train", "train")
    assert [loaded.bags.class_names[label] for label in loaded.bags.labels.values] == ["low", "high", "high"]
    assert [(one.bag, one.is_bad) for one in loaded.left_out] == [("7", False)]
    said = (
        f"lists patients; 3 bags whose names begin with one of them are taken for theirs, such as '10{mark}a' for"
    )
    assert any(said in note for note in loaded.notes)
    lacking = table(tmp_path, "PATIENT,ISUP\n10,low\n1,high\n3,low\n", "clinical.tsv")
    with pytest.raises(DataError, match=r"1 that cannot \(3: listed in .*, but .* has no such bag\)"):
        load_bags(tmp_path, labels=lacking)


def test_a_bag_whose_name_begins_with_two_patients_is_named(tmp_path: Path) -> None:
    for name in ("P1-2-a", "P1-3-a"):
        (tmp_path / f"{name}.csv").write_text("f\n1\n")
    clinical = table(tmp_path, "PATIENT,ISUP\nP1,low\nP1-2,high\n", "clinical.tsv")
    with pytest.raises(DataError, match=r"such as 'P1', and 'P1-2-a' begins with 'P1' and 'P1-2'; .*slide_table"):
        load_bags(tmp_path, labels=clinical)


@pytest.mark.parametrize("folder", ["/data/a/", "..\\\\slides\\\\"])
def test_paths_of_slides_are_known_by_their_last_part(tmp_path: Path, folder: str) -> None:
    for name in ("1", "01", "b.x", "c"):
        np.save(tmp_path / f"{name}.npy", np.ones((2, 3), np.float32))
    rows = "".join(f"{folder}{name}.svs,{label}\n" for name, label in (("01", "u"), ("1", "v"), ("b.x", "u")))
    bags = load_bags(tmp_path, labels=table(tmp_path, f"slide_id,label\n{rows}c,v\n")).bags
    assert dict(zip(bags.ids, bags.labels.values.tolist(), strict=True)) == {"01": 0, "1": 1, "b.x": 0, "c": 1}
    assert bags.patients is None


def test_two_paths_with_one_last_part_are_reported(tmp_path: Path) -> None:
    for name in ("s", "t"):
        np.save(tmp_path / f"{name}.npy", np.ones((2, 3), np.float32))
    labels = table(tmp_path, "slide_id,label\na/s.svs,u\nb/s.svs,v\nt,v\n")
    with pytest.raises(DataError, match="one name of this bag, got .a/s.svs. and .b/s.svs."):
        load_bags(tmp_path, labels=labels)
    listed = table(tmp_path, "slide_id,label\na/s.svs,u\ns,v\nt,u\n")
    bags = load_bags(tmp_path, labels=listed, skip_bad=True).bags
    assert dict(zip(bags.ids, bags.labels.values.tolist(), strict=True)) == {"s": 1, "t": 0}


SLIDES_OF_TCGA = [f"TCGA-3C-AAL{n}-01Z-00-DX{n}.F6E9A5DF-D8CD-45CF-B460-C8B9690B954{n}" for n in range(4)]


@pytest.mark.parametrize("columns", ["slide_id", "case_id", "slide_id.svs"])
def test_slides_of_tcga_are_known_by_their_barcodes(tmp_path: Path, columns: str) -> None:
    for name in SLIDES_OF_TCGA:
        np.save(tmp_path / f"{name}.npy", np.ones((2, 3), np.float32))
    names = {
        "slide_id": [name.split(".")[0] for name in SLIDES_OF_TCGA],
        "case_id": [name[:12] for name in SLIDES_OF_TCGA],
        "slide_id.svs": [f"{name.split('.')[0]}.SVS" for name in SLIDES_OF_TCGA],
    }
    rows = "".join(f"{name},{'ab'[row % 2]}\n" for row, name in enumerate(names[columns]))
    bags = load_bags(tmp_path, labels=table(tmp_path, f"{columns.partition('.')[0]},label\n{rows}")).bags
    assert bags.ids == tuple(SLIDES_OF_TCGA) and bags.labels.values.tolist() == [0, 1, 0, 1]
    assert bags.patients == tuple(names["case_id"])


def test_spaces_around_a_patient_of_either_table_are_no_part_of_the_name(tmp_path: Path) -> None:
    clinical = table(tmp_path, "PATIENT,label\n01 ,a\n02,b\n", "clini.csv")
    slides = table(tmp_path, "PATIENT,FILENAME\n01,01_a\n02,02_a\n02 ,02_b\n", "slide.csv")
    found = read_label_table(clinical, slide_table=slides)
    assert (found.ids, found.patients, found.labels) == (
        ("01_a", "02_a", "02_b"),
        ("01", "02", "02"),
        ("a", "b", "b"),
    )


def test_a_patient_twice_in_the_clinical_table_is_named(tmp_path: Path) -> None:
    clinical = table(tmp_path, "PATIENT,label\n01,a\n01,b\n", "clini.csv")
    with pytest.raises(DataError, match="patient '01' of .*: expected one row per patient"):
        read_label_table(clinical, slide_table=table(tmp_path, "PATIENT,FILENAME\n01,01_a\n", "slide.csv"))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_are_found_and_everything_is_text(tmp_path: Path, separator: str) -> None:
    rows = [["slide_id", "label"], ["000123", "1"], ["1e5", "0"], ["12.0", "0"]]
    path = table(tmp_path, "\n".join(separator.join(row) for row in rows) + "\n")
    assert read_label_table(path).ids == ("000123", "1e5", "12.0")


def test_endings_of_files_are_left_off_however_many(tmp_path: Path) -> None:
    found = read_label_table(table(tmp_path, "slide_id,label\na.svs,x\nb.1.h5,y\n"))
    assert found.ids == ("a.svs", "b.1.h5")
    assert [strip_endings(name) for name in (*found.ids, "c.svs.h5")] == ["a", "b.1", "c"]
    assert strip_endings("TCGA-3C-AALI-01Z.F6E9A5DF") == "TCGA-3C-AALI-01Z.F6E9A5DF"


def test_videos_are_named_with_or_without_their_endings(tmp_path: Path) -> None:
    found = read_label_table(table(tmp_path, "video,label\nAbuse028_x264.mp4,anomaly\nb.AVI,normal\nc,normal\n"))
    assert [strip_endings(name) for name in found.ids] == ["Abuse028_x264", "b", "c"]


@pytest.mark.parametrize("text", ["", "NA", "nan"])
def test_a_bag_of_an_unknown_patient_is_one_of_its_own(tmp_path: Path, text: str) -> None:
    found = read_label_table(table(tmp_path, f"slide_id,patient,label\na,p,x\nb,{text},y\nc,{text},y\n"))
    assert found.patients == ("p", "b", "c")


def test_empty_columns_at_the_end_are_none_and_a_column_twice_is_named(tmp_path: Path) -> None:
    assert read_label_table(table(tmp_path, "slide_id,label,,\na,x,,\nb,y,,\n")).labels == ("x", "y")
    for name in ("label", ""):
        path = table(tmp_path, f"slide_id,{name},{name},grade\na,1,1,x\nb,2,2,y\n")
        with pytest.raises(DataError, match=f"columns of different names, got 2 columns '{name}'"):
            read_label_table(path)
    with pytest.raises(DataError, match="got 2 columns ''; .* if that is a title, delete it"):
        read_label_table(table(tmp_path, "Cohort of 2024,,\nslide_id,label,patient\na,x,p\nb,y,q\n"))


def test_columns_are_found_in_any_case_and_two_that_differ_in_case_are_named(tmp_path: Path) -> None:
    found = read_label_table(table(tmp_path, "Slide_ID,LABEL,Split\na,x,train\nb,y,test\n"))
    assert found.labels == ("x", "y") and found.folds == {0: ("train", "test")}
    with pytest.raises(DataError, match="expected one column 'label', got 'label' and 'Label'"):
        read_label_table(table(tmp_path, "slide_id,label,Label\na,x,y\n"))


def named(*ids: str) -> BagDataset:
    return BagDataset.from_arrays([np.ones((2, 2))] * len(ids), ids=ids)


@pytest.mark.parametrize("names", [("a.svs", "b.svs"), ("a.svs.h5", "b.svs.h5"), ("a", "b"), ("a.h5", "b.svs")])
def test_names_with_several_endings_are_joined(names: tuple[str, str], tmp_path: Path) -> None:
    for name in ("a.svs", "b.svs"):
        made_files.trident(tmp_path / "features", name, made_files.features_of(3))
    labels = table(tmp_path, f"slide_id,label,fold_0,fold_1\n{names[0]},x,train,\n{names[1]},y,train,train\n")
    bags = load_bags(tmp_path / "features", labels=labels).bags
    assert bags.ids == ("a.svs", "b.svs") and bags.labels.values.tolist() == [0, 1]


def test_a_bag_is_not_lost_to_one_that_differs_in_the_ending_alone(tmp_path: Path) -> None:
    write_store(tmp_path / "store", named("a.png", "a.jpg", "b.png"))

    def labeled(text: str, **options: Any) -> LoadedBags:
        return load_bags(tmp_path / "store", labels=table(tmp_path, text), **options)

    with pytest.raises(DataError, match=r"'a' of .*: expected the name of one bag, got 'a.png' and 'a.jpg'"):
        labeled("id,label\na,x\nb,y\n")
    joined = labeled("id,label\na.jpg,x\nb,y\na.png,y\n")
    assert joined.bags.ids == ("a.jpg", "b.png", "a.png") and not joined.left_out
    assert joined.bags.labels.values.tolist() == [0, 1, 1]
    with pytest.raises(DataError, match=r"'b.png' of .*: expected one name of this bag, got 'b.h5' and 'b.svs'"):
        labeled("id,label\nb.h5,x\nb.svs,y\n")
    write_store(tmp_path / "store", named("a.png", "b"), overwrite=True)
    one = labeled("id,label\na.png,x\na.jpg,y\nb,y\n", skip_bad=True)
    assert one.bags.ids == ("a.png", "b") and [name.bag for name in one.left_out] == ["a.jpg"]


def test_a_name_is_matched_whichever_form_its_letters_have(tmp_path: Path) -> None:
    """File systems and programs write "ü" as one character or as two."""
    composed, apart = "b\u00fc", "bu\u0308"
    assert composed != apart
    for of_bag, of_table in ((composed, apart), (apart, composed)):
        labels = read_label_table(table(tmp_path, f"slide_id,label\n{of_table}.svs,x\nc,y\n"))
        made_files.trident(tmp_path / "f", of_bag, np.ones((2, 3), np.float32))
        made_files.trident(tmp_path / "f", "c", np.ones((2, 3), np.float32))
        opened = load_bags(tmp_path / "f", labels=labels)
        assert opened.bags.ids == (of_bag, "c") and opened.bags.labels.values.tolist() == [0, 1]
        shutil.rmtree(tmp_path / "f")
    with pytest.raises(DataError, match="expected one row, got 2"):
        read_label_table(table(tmp_path, f"slide_id,label\n{apart},x\n{composed},y\n"))


@pytest.mark.parametrize(
    "header", ["Slide ID,Case ID,Diagnosis", "slide-id,case-id,label", "SLIDE  ID,Patient ID,Class"]
)
def test_spaces_and_hyphens_in_a_heading_are_as_underscores(tmp_path: Path, header: str) -> None:
    read = read_label_table(table(tmp_path, f"{header}\na,p,x\nb,q,y\n"))
    assert (read.ids, read.patients, read.labels) == (("a", "b"), ("p", "q"), ("x", "y"))


def test_names_are_one_whichever_form_their_letters_have(tmp_path: Path) -> None:
    composed, decomposed = "M\u00fcller", "Mu\u0308ller"
    for name in "abcd":
        made_files.trident(tmp_path / "f", name, np.ones((2, 3), np.float32))
    rows = [f"a,{composed},{composed}", f"b,{decomposed},{decomposed}", f"c,{composed},y", "d,,y"]
    labels = table(tmp_path, "\n".join(["slide_id,case_id,label", *rows, ""]))
    bags = load_bags(tmp_path / "f", labels=labels).bags
    assert bags.patients == (composed, composed, composed, "d")
    assert (bags.class_names, bags.labels.values.tolist()) == ((composed, "y"), [0, 0, 1, 1])
    of_model = load_bags(tmp_path / "f", labels=labels, classes=[decomposed, "y"]).bags
    assert (of_model.class_names, of_model.labels.values.tolist()) == ((decomposed, "y"), [0, 0, 1, 1])


@pytest.mark.parametrize("text", ["", "NA", "nan", "null", "n/a", "#N/A", "<NA>", "-nan"])
def test_a_missing_label_is_an_unknown_one(tmp_path: Path, text: str) -> None:
    found = read_label_table(table(tmp_path, f"slide_id,label\na,x\nb,{text}\nc,y\n"))
    assert found.class_names() == ("x", "y")


@pytest.mark.parametrize("text", ["None", "unknown"])
def test_a_label_that_may_be_missing_or_a_class_is_asked_for(tmp_path: Path, text: str) -> None:
    found = read_label_table(table(tmp_path, f"slide_id,label\na,x\nb,{text}\nc,y\n"))
    assert found.class_names(("x", "y")) == ("x", "y")
    with pytest.raises(DataError, match="a class, or an empty cell where the label is unknown"):
        found.class_names()


def test_columns_may_be_given(tmp_path: Path) -> None:
    path = table(tmp_path, "name,grade,stage,who\na,low,1,p\nb,high,2,p\n")
    found = read_label_table(path, {"bag_id": "name", "label": "grade", "patient": "who"})
    assert (found.ids, found.labels, found.patients) == (("a", "b"), ("low", "high"), ("p", "p"))
    with pytest.raises(ConfigError, match="label column 'grad'.* did you mean 'grade'"):
        read_label_table(path, {"bag_id": "name", "label": "grad"})
    with pytest.raises(ConfigError, match="meaning of a column 'pateint'.*did you mean 'patient'"):
        read_label_table(path, {"bag_id": "name", "label": "grade", "pateint": "who"})


def test_what_cannot_be_told_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a column for the label, .* got columns grade, stage; pass label_column"):
        read_label_table(table(tmp_path, "slide_id,grade,stage\na,1,2\n"))
    with pytest.raises(DataError, match=r"got columns slide_id, case_id; pass .* without a label its cells are e"):
        read_label_table(table(tmp_path, "slide_id,case_id\na,p\n"))
    with pytest.raises(DataError, match=r"a column for the id, such as slide_id"):
        read_label_table(table(tmp_path, "name,label\na,1\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slide_id,label\na,x\na,y\n", "bag 'a' of .*, column 'slide_id': expected one row, got 2; keep"),
        ("slide_id,label\na,x\na.svs,y\n", "bag 'a' of .*: expected one row, got 2; keep"),
        ("slide_id,label,split\na,x,train\nb,y,dev\n", r"line 3, split 'dev'"),
        ("slide_id,label\na,x\n,y\n", r"line 3: expected the name of a bag, got nothing"),
        ("slide_id,label\n", "expected at least one row"),
    ],
)
def test_rows_that_cannot_be_used_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_label_table(table(tmp_path, text))


def test_classes_have_the_order_given_and_none_is_lost() -> None:
    given = LabelTable("t", ("a", "b", "c"), ("10", "9", ""), ("a", "b", "c"), {})
    assert given.class_names() == ("9", "10")
    assert given.class_names(["10", "9", "8"]) == ("10", "9", "8")
    with pytest.raises(DataError, match="label '10' of 't': expected one of the classes given: 9"):
        given.class_names(["9"])
    with pytest.raises(ConfigError, match="expected each class once, got 9, 9, 10"):
        given.class_names(["9", "9", "10"])
    with pytest.raises(DataError, match="at least two classes, got x"):
        LabelTable("t", ("a",), ("x",), ("a",), {}).class_names()


@pytest.mark.parametrize(
    ("column", "classes"),
    [
        (pa.array([0, 1, 1]), ("0.0", "1.0")),
        (pa.array([0.0, 1.0, 1.0]), ("0", "1")),
        (pa.array([False, True, True]), ("False", "True")),
        (pa.array(["TRUE", "FALSE", "FALSE"]), ("true", "false")),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_labels_that_write_the_classes_otherwise_are_of_these_classes(
    column: pa.Array, classes: tuple[str, ...], packed: bool, tmp_path: Path
) -> None:
    """Numbers with missing ones among them get a point, and each tool writes truth values in its own way."""
    names = ["a", "b", "c"]
    if packed:
        of_instances = {"bag_id": names, "feature_0": [1.0, 2.0, 3.0], "label": column}
        parquet.write_table(pa.table(of_instances), tmp_path / "bags.parquet")
        bags = load_bags(tmp_path / "bags.parquet", classes=classes).bags
    else:
        for name in names:
            np.save(tmp_path / f"{name}.npy", np.ones((2, 3), np.float32))
        parquet.write_table(pa.table({"bag_id": names, "label": column}), tmp_path / "labels.parquet")
        bags = load_bags(tmp_path, labels=tmp_path / "labels.parquet", classes=classes).bags
    assert bags.class_names == classes
    assert bags.labels.values.tolist() == [0, 1, 1]


def test_an_unreadable_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file"):
        read_text_columns(tmp_path / "none.csv")
    with pytest.raises(StorageError, match="a readable table"):
        read_text_columns(table(tmp_path, "a,b\n1,2,3\n"))


def test_a_label_table_is_joined_to_a_table_of_instances_and_to_a_store(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("bag_id,f\n007,1\nb,2\n007,3\nc,4\n")
    (tmp_path / "labels.csv").write_text("bag_id,patient,label\nb,p,yes\n007.svs,q,no\n")
    labels: dict[str, Any] = {"labels": tmp_path / "labels.csv", "classes": ["no", "yes"]}
    opened = load_bags(tmp_path / "rows.csv", **labels)
    assert opened.bags.ids == ("b", "007")
    assert opened.bags.labels.values.tolist() == [1, 0]
    assert opened.bags.patients == ("p", "q")
    assert opened.bags.batch([1]).instances.tolist() == [[1], [3]]
    assert [(one.bag, one.is_bad) for one in opened.left_out] == [("c", False)]
    write_store(tmp_path / "store", load_bags(tmp_path / "rows.csv").bags)
    stored = load_bags(tmp_path / "store", **labels).bags
    assert (stored.ids, stored.labels.values.tolist()) == (("b", "007"), [1, 0])
    write_store(tmp_path / "labeled", stored)
    with pytest.raises(ConfigError, match="labeled', which has labels of its own"):
        load_bags(tmp_path / "labeled", **labels)
    (tmp_path / "labels.csv").write_text("bag_id,label\nb,yes\n7,no\nd,no\n")
    with pytest.raises(DataError, match=r"2 that cannot \(7: listed in .* has no such bag; d: "):
        load_bags(tmp_path / "rows.csv", **labels)
    left = load_bags(tmp_path / "rows.csv", **labels, skip_bad=True)
    assert (left.bags.ids, [one.bag for one in left.left_out if one.is_bad]) == (("b",), ["7", "d"])


@pytest.mark.parametrize(
    ("of_bags", "of_labels"), [("sample", "sample"), ("sample", "slide"), ("bag_id", "sample")]
)
@pytest.mark.parametrize("is_folder", [False, True])
def test_a_named_column_of_ids_is_that_of_each_table_that_has_it(
    of_bags: str, of_labels: str, is_folder: bool, tmp_path: Path
) -> None:
    rows = tmp_path / "rows" / "1.csv" if is_folder else tmp_path / "rows.csv"
    rows.parent.mkdir(exist_ok=True)
    rows.write_text(f"{of_bags},f\na,1\nb,2\na,3\n")
    labels = table(tmp_path, f"{of_labels},case,grade\nb,p,yes\na,q,no\n")
    columns = {"bag_id": "sample", "label": "grade"}
    loaded = load_bags(tmp_path / "rows" if is_folder else rows, labels=labels, columns=columns)
    assert (loaded.bags.ids, loaded.bags.patients) == (("b", "a"), ("p", "q"))
    assert loaded.bags.batch([1]).instances.tolist() == [[1], [3]]
    with pytest.raises(MiueError, match="id column 'donor': expected one of|expected a column 'bag_id'"):
        load_bags(rows, labels=labels, columns={**columns, "bag_id": "donor"})


def test_any_fold_of_a_label_table_leaves_out_bags_that_are_not_there(tmp_path: Path) -> None:
    write_store(tmp_path / "store", named("a", "b"))
    rows = "id,label,fold_0,fold_1\na,x,train,train\nb,y,train,train\nc,y,test,train\n"
    for fold in (0, 1):
        opened = load_bags(
            tmp_path / "store", labels=table(tmp_path, rows), settings={"fold": fold}, skip_bad=True
        )
        assert opened.bags.splits == ("train", "train") and [one.bag for one in opened.left_out] == ["c"]


def test_a_separator_within_quotes_separates_nothing(tmp_path: Path) -> None:
    assert read_label_table(table(tmp_path, '"slide_id";"label";"a,b,c,d"\na;x;1\nb;y;2\n')).labels == ("x", "y")


def test_slides_of_tcga_have_the_patients_of_their_barcodes_unless_a_column_states_them(tmp_path: Path) -> None:
    names = ["TCGA-3C-AALI-01Z-00-DX1", "TCGA-3C-AALI-01Z-00-DX2", "tcga-3c-aalj-01Z-00-DX1", "other"]
    for name in names:
        made_files.trident(tmp_path / "f", name, np.ones((2, 3), np.float32))
    rows = [f"{name},{number % 2},own{number // 3}" for number, name in enumerate(names)]
    labels = table(tmp_path, "\n".join(["slide_id,label,case_id", *rows]))
    assert load_bags(tmp_path / "f", labels=labels).bags.patients == ("own0", "own0", "own0", "own1")
    table(tmp_path, "\n".join(["slide_id,label", *(row.rpartition(",")[0] for row in rows)]))
    loaded = load_bags(tmp_path / "f", labels=labels)
    assert loaded.bags.patients == ("TCGA-3C-AALI", "TCGA-3C-AALI", "TCGA-3C-AALJ", "other")
    assert any("2 TCGA barcodes that the names of 3 bags begin with" in note for note in loaded.notes)
    assert set(load_bags(tmp_path / "f").bags.patients or ()) == set(loaded.bags.patients)
    assert load_bags(tmp_path / "f", labels=labels, settings={"patients": "none"}).bags.patients is None


def test_a_column_of_splits_is_no_label_and_those_of_folds_come_before_it(tmp_path: Path) -> None:
    path = tmp_path / "labels.tsv"
    path.write_text("slide_id\tKRAS\tsplit\na\t1\ttrain\nb\t0\ttest\n")
    found = read_label_table(path)
    assert (found.columns["label"], found.labels) == ("KRAS", ("1", "0"))
    assert found.folds == {0: ("train", "test")}
    path.write_text("slide_id\tKRAS\tsplit\tfold_0\na\t1\ttrain\ttest\nb\t0\ttest\ttrain\n")
    assert read_label_table(path).folds == {0: ("test", "train")}


@pytest.mark.parametrize("column", ["case_submitter_id", "bcr_patient_barcode"])
def test_a_clinical_table_of_tcga_names_its_patients(tmp_path: Path, column: str) -> None:
    for name in SLIDES_OF_TCGA:
        made_files.trident(tmp_path / "f", name, np.ones((2, 3), np.float32))
    rows = [f"{name[:12]},{'ab'[number % 2]}" for number, name in enumerate(SLIDES_OF_TCGA)]
    opened = load_bags(tmp_path / "f", labels=table(tmp_path, "\n".join([f"{column},Diagnosis", *rows])))
    assert opened.bags.labels.values.tolist() == [0, 1, 0, 1]
    assert opened.bags.patients is not None
    assert list(opened.bags.patients) == [name[:12] for name in SLIDES_OF_TCGA]


@pytest.mark.parametrize("word", ["'--", "--", "Not Reported", "[Not Available]", "[Not Applicable]", "[Unknown]"])
def test_what_stands_for_nothing_in_clinical_tables_is_no_class(word: str, tmp_path: Path) -> None:
    read = read_label_table(table(tmp_path, f"case_submitter_id,slide_id,label\n{word},a,x\np,b,y\np,c,{word}\n"))
    assert read.class_names() == ("x", "y") and read.patients == ("a", "p", "p")


def test_of_a_table_of_the_gdc_the_barcode_is_the_patient_and_not_the_uuid_beside_it(tmp_path: Path) -> None:
    for name in SLIDES_OF_TCGA:
        made_files.trident(tmp_path / "f", name, np.ones((2, 3), np.float32))
    rows = [f"{number}d95bafc8-f2a4,{name[:12]},{'ab'[number % 2]}" for number, name in enumerate(SLIDES_OF_TCGA)]
    given = table(tmp_path, "\n".join(["case_id,case_submitter_id,label", *rows]))
    opened = load_bags(tmp_path / "f", labels=given)
    assert opened.bags.labels.values.tolist() == [0, 1, 0, 1]
    assert opened.bags.patients is not None
    assert list(opened.bags.patients) == [name[:12] for name in SLIDES_OF_TCGA]
    chosen = read_label_table(given, columns={"patient": "case_id"})
    assert chosen.patients[0] == "0d95bafc8-f2a4"


@pytest.mark.parametrize("kind", [pa.decimal128(12, 2), pa.decimal128(30, 12), pa.decimal256(60, 9), pa.float64()])
def test_whole_decimals_of_parquet_are_written_without_a_point(kind: pa.DataType, tmp_path: Path) -> None:
    cells = [Decimal(0), Decimal(1), Decimal("2.5"), Decimal(1200), None]
    column = pa.array(cells, pa.decimal128(12, 2)).cast(kind)
    names = [f"b{number}" for number in range(len(cells))]
    parquet.write_table(pa.table({"bag_id": names, "label": column}), tmp_path / "labels.parquet")
    table = read_label_table(tmp_path / "labels.parquet")
    assert table.labels == ("0", "1", "2.5", "1200", "")
