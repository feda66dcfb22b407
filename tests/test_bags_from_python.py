"""Bags from what other libraries hold: tensors, rows, data frames, AnnData; labels as text or numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from made_bags import separable_bags
from scipy import sparse
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score

import miue
from miue.bags import BagDataset, Coords, Labels, OodFlags
from miue.cli.inspection import describe
from miue.common.errors import ConfigError, DataError, MiueError
from miue.io import load_bags, read_store, write_store
from miue.sklearn import MILUncertaintyClassifier

ROWS = np.arange(10.0).reshape(5, 2)
BAGS = ["b", "a", "b", "c", "a"]
LABELS = ["tumor", "normal", "tumor", None, "normal"]
PATIENTS = ["p", "q", "p", None, "q"]


@dataclass
class FakeAnnData:
    """What ``from_anndata`` reads of an AnnData object."""

    X: Any
    obs: pd.DataFrame
    obsm: dict[str, Any] = field(default_factory=dict)
    layers: dict[str, Any] = field(default_factory=dict)


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "slide": BAGS,
            "kind": LABELS,
            "case": PATIENTS,
            "f0": ROWS[:, 0],
            "f1": ROWS[:, 1],
            "note": list("vwxyz"),
        }
    )


def anndata(matrix: Any) -> FakeAnnData:
    obs = frame()[["slide", "kind", "case"]].astype("category")
    layers = {"counts": sparse.csr_matrix(ROWS)}
    return FakeAnnData(matrix, obs, {"X_pca": ROWS[:, :1], "spatial": ROWS * 100}, layers)


def check(bags: BagDataset) -> None:
    """Raise unless these are the bags of the rows above."""
    assert bags.ids == ("b", "a", "c") and bags.sizes.tolist() == [2, 2, 1]
    assert bags.class_names == ("normal", "tumor")
    assert bags.labels.values.tolist() == [1, 0, 0] and bags.labels.known.tolist() == [True, True, False]
    assert bags.patients == ("p", "q", "")
    assert bags.batch([0, 1, 2]).instances[:, 0].tolist() == [0, 4, 2, 8, 6]


def test_a_data_frame_of_rows_becomes_bags() -> None:
    check(BagDataset.from_frame(frame(), bag="slide", label="kind", patient="case"))
    columns = {name: column.to_numpy() for name, column in frame().items()}
    check(BagDataset.from_frame(columns, bag="slide", label="kind", patient="case", features=["f0", "f1"]))
    located = BagDataset.from_frame(frame(), bag="slide", features=["f0"], coords=("f0", "f1"))
    assert located.instance_shape == (1,) and located.coords is not None
    assert located.coords.values.tolist() == [[0, 1], [4, 5], [2, 3], [8, 9], [6, 7]]


class OpenMatrix:
    """A sparse matrix in a file that is open, as AnnData has it where it is read with ``backed="r"``."""

    def to_memory(self) -> Any:
        return sparse.csr_matrix(ROWS)


@pytest.mark.parametrize(
    "matrix",
    [ROWS, sparse.csr_matrix(ROWS), sparse.csc_array(ROWS), OpenMatrix()],
    ids=["dense", "csr", "csc", "in a file"],
)
def test_an_anndata_object_becomes_bags(matrix: Any) -> None:
    check(BagDataset.from_anndata(anndata(matrix), bag="slide", label="kind", patient="case"))


def test_features_of_an_anndata_object_come_from_a_layer_or_an_embedding() -> None:
    check(BagDataset.from_anndata(anndata(None), bag="slide", label="kind", patient="case", layer="counts"))
    bags = BagDataset.from_anndata(anndata(None), bag="slide", obsm="X_pca", spatial="spatial")
    assert bags.instance_shape == (1,) and bags.coords is not None
    assert bags.coords.values[0].tolist() == [0, 100]


def test_an_embedding_of_anndata_that_is_a_data_frame_names_its_features() -> None:
    data = anndata(None)
    frame = pd.DataFrame(ROWS, columns=["PC1", "PC2"], index=[f"cell {row}" for row in range(len(ROWS))])
    data.obsm["factors"] = frame
    bags = BagDataset.from_anndata(data, bag="slide", label="kind", patient="case", obsm="factors")
    check(bags)
    assert bags.feature_names == ("PC1", "PC2")
    data.obsm["factors"] = frame.assign(PC2="high")
    with pytest.raises(DataError, match=r"obsm\['factors'\], column 'PC2': expected numbers"):
        BagDataset.from_anndata(data, bag="slide", obsm="factors")


def test_files_of_anndata_are_refused_with_how_to_read_them(tmp_path: Path) -> None:
    (tmp_path / "cells.h5ad").write_bytes(b"")
    how = r"read it in Python, miue.BagDataset.from_anndata\(anndata.read_h5ad"
    for path in (tmp_path, tmp_path / "cells.h5ad"):
        with pytest.raises(MiueError, match=how):
            miue.load_bags(path)
        with pytest.raises(MiueError, match=how):
            describe(path, read=False, progress=False)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor], ids=["array", "tensor"])
def test_lists_and_rows_become_the_same_bags(kind: Any) -> None:
    check(BagDataset.from_tensors(kind(ROWS), LABELS, bag_ids=BAGS, patients=PATIENTS))
    listed = [kind(ROWS[[0, 2]]), kind(ROWS[[1, 4]]), kind(ROWS[[3]])]
    bags = BagDataset.from_tensors(listed, ["tumor", "normal", None], patients=["p", "q", None])
    assert (bags.labels.values.tolist(), bags.patients) == ([1, 0, 0], ("p", "q", ""))
    assert torch.equal(bags.batch([0, 1, 2]).instances, torch.tensor(ROWS[[0, 2, 1, 4, 3]]).float())


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1] * 6,
        torch.tensor([0, 1] * 6),
        np.array([0.0, 1.0] * 6),
        list(torch.tensor([0, 1] * 6)),
        ["benign", "malignant"] * 6,
        np.array(["benign", "malignant"] * 6),
        pd.Series(["benign", "malignant"] * 6, dtype="category"),
    ],
    ids=["list", "tensor", "floats", "tensors", "texts", "array of texts", "categories"],
)
def test_training_and_evaluation_take_labels_of_every_kind(labels: Any) -> None:
    arrays = [np.full((2, 2), float(i % 2)) for i in range(12)]
    model = miue.train(arrays, labels, settings={"max_epochs": 1, "distances": ()}, progress=False)
    named = isinstance(labels[0], str)
    assert model.contract.class_names == (("benign", "malignant") if named else ("0", "1"))
    predictions = model.predict(arrays, labels)
    assert predictions.bags.labels.values.tolist() == [0, 1] * 6
    assert model.predict(arrays[:1], labels[1:2]).bags.labels.values.tolist() == [1]  # one class alone


@pytest.mark.parametrize(
    ("labels", "names"),
    [(["10", "9", "9"], ("9", "10")), (["b", "10", "9"], ("10", "9", "b"))],
    ids=["numbers", "words"],
)
def test_classes_are_sorted_as_those_of_a_table_are(
    labels: list[str], names: tuple[str, ...], tmp_path: Path
) -> None:
    """The first is the negative class."""
    arrays = [np.ones((1, 2))] * 3
    assert BagDataset.from_arrays(arrays, labels).class_names == names
    rows = "".join(f"{bag},{label},1,1\n" for bag, label in enumerate(labels))
    (tmp_path / "t.csv").write_text(f"bag_id,label,f0,f1\n{rows}")
    assert load_bags(tmp_path / "t.csv").bags.class_names == names


def test_a_model_takes_labels_by_the_names_of_its_classes_whatever_these_are() -> None:
    """Names that are asked about without ``class_names`` are known ones of a model."""
    arrays = [np.full((2, 2), float(i % 3)) for i in range(18)]
    names = ("none", "A", "a")
    bags = BagDataset.from_arrays(arrays, [names[i % 3] for i in range(18)], class_names=names)
    model = miue.train(bags, settings={"max_epochs": 1, "distances": ()}, progress=False)
    assert model.predict(arrays[:4], ["none", "A", None, "a"]).bags.labels.values.tolist() == [0, 1, 0, 2]


def test_some_of_the_bags_have_the_classes_of_a_model_whatever_instances_of_the_others_are() -> None:
    """The labels of instances are those of all bags, of which these are some."""
    arrays, instances = [np.ones((2, 2))] * 3, [[0, 0], [0, 1], [2, 2]]
    bags = BagDataset.from_arrays(arrays, [0, 1, 2], instance_labels=instances)
    few = bags.subset([1, 0])
    assert few.with_classes(("no", "low", "high")).instance_columns.labels.values.tolist() == [0, 1, 0, 0]
    assert few.with_classes(("no", "low")).instance_columns.labels.known.all()
    with pytest.raises(DataError, match="class '2' of the bags: expected one of the classes no, low"):
        bags.subset([1, 2]).with_classes(("no", "low"))
    instances_alone = BagDataset.from_arrays(arrays, [0, 1, 0], instance_labels=instances)
    with pytest.raises(DataError, match="class '2' of the bags: expected one of the classes no, low"):
        instances_alone.with_classes(("no", "low"))


def short() -> list[Any]:
    return [np.ones((2, 2)), np.ones((1, 2))]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BagDataset.from_frame(frame(), bag="slid"), "did you mean 'slide'"),
        (lambda: BagDataset.from_frame(frame(), bag="slide", features=["f9"]), "expected one of"),
        (lambda: BagDataset.from_frame(frame()[["slide", "note"]], bag="slide"), "expected columns of features"),
        (
            lambda: BagDataset.from_frame(frame(), bag="slide", features=["note"]),
            "column 'note': expected numbers",
        ),
        (
            lambda: BagDataset.from_frame(frame(), bag="slide", label="note"),
            "labels, bag 'b', row 2: expected v as in",
        ),
        (lambda: BagDataset.from_frame(7, bag="slide"), "expected a data frame"),
        (lambda: BagDataset.from_anndata(frame(), bag="slide"), "expected an AnnData object"),
        (lambda: BagDataset.from_anndata(anndata(ROWS), bag="donor"), "expected one of case, kind, slide"),
        (lambda: BagDataset.from_anndata(anndata(ROWS), bag="slide", layer="raw"), "expected one of counts"),
        (lambda: BagDataset.from_anndata(anndata(None), bag="slide"), "expected features in X"),
        (
            lambda: BagDataset.from_anndata(anndata(ROWS), bag="slide", layer="counts", obsm="X_pca"),
            "one of the two",
        ),
        (lambda: BagDataset.from_tensors(ROWS, LABELS[:3], bag_ids=BAGS), "expected 5 rows, as many as bag_ids"),
        (
            lambda: BagDataset.from_tensors([np.array([[1.0], [2.0]], object)]),
            "bag 'bag_0': expected an array",
        ),
        (lambda: BagDataset.from_tensors([np.array([["x", "y"]])]), "bag 'bag_0': expected an array"),
        (lambda: BagDataset.from_arrays([np.ones((3, 0))]), "bag 'bag_0': expected features of at least one"),
        (lambda: BagDataset.from_arrays(short(), ["a", 1]), "names of classes alone, or numbers alone"),
        (lambda: BagDataset.from_arrays(short(), ["a", "b"], class_names=["a", "c"]), "expected one of a, c"),
        (lambda: BagDataset.from_arrays(short(), ["a", "A"]), "more than case.* got 'A' .* and 'a'"),
        (lambda: BagDataset.from_arrays(short(), ["a", "a "]), "more than case, spaces"),
        (lambda: BagDataset.from_arrays(short(), ["1", "1.0"]), "how a number is written"),
        (lambda: BagDataset.from_arrays(short(), ["a", "nan"]), "label 1: expected the name of a class, or None"),
        (
            lambda: BagDataset.from_arrays(short(), [1, 0], instance_labels=[["ill", "well"], ["well"]]),
            "the instance labels: expected class indices",
        ),
        (
            lambda: BagDataset.from_arrays(
                short(), [1, 0], instance_labels=[[0, 2], [0]], class_names=["healthy", "ill"]
            ),
            "the class names: expected at least 3, one for each class, got 2",
        ),
        (
            lambda: BagDataset.from_arrays([frame()[["f0", "f1"]], frame()[["f1", "f0"]]]),
            "bag 'bag_1': expected the columns of the bags before it, in their order, got another order",
        ),
        (lambda: BagDataset.from_arrays(short(), [0, 2**70]), "label 1: expected a class index"),
        (lambda: BagDataset.from_arrays(short(), np.eye(2)), "the labels: expected one for each bag"),
        (lambda: BagDataset.from_arrays(short(), coords=[np.ones((2, 2))]), "the coords: expected an array"),
        (
            lambda: BagDataset.from_frame(frame().set_index("slide"), bag="slide"),
            r"bag column 'slide': expected one of ",
        ),
        (
            lambda: BagDataset.from_frame(
                {"slide": BAGS, "pair": np.ones((5, 2))}, bag="slide", features=["pair"]
            ),
            r"column 'pair': expected one number in each row, got shape \(5, 2\)",
        ),
        (
            lambda: BagDataset.from_frame({"slide": BAGS, "pair": [[1, 2]] * 5}, bag="slide", features=["pair"]),
            r"column 'pair': expected one number in each row, got shape \(5, 2\)",
        ),
        (
            lambda: BagDataset.from_frame(
                pd.DataFrame({"slide": BAGS, "pair": [np.ones(2)] * 5}), bag="slide", features=["pair"]
            ),
            "column 'pair': expected one number in each row, got several in a row",
        ),
        (
            lambda: BagDataset.from_arrays([pd.concat([nullable(), nullable()], axis=1)] * 2),
            r"bag 'bag_0', column 'f': expected one number in each row, got shape \(2, 2\)",
        ),
    ],
)
def test_what_cannot_become_bags_is_refused_in_four_parts(make: Any, message: str) -> None:
    with pytest.raises(MiueError, match=message):
        make()


def nullable() -> pd.DataFrame:
    return pd.DataFrame({"f": pd.array([1, 2], "Int64")})


def test_columns_of_pairs_are_no_features_and_those_of_decimals_are(caplog: pytest.LogCaptureFixture) -> None:
    columns = {"slide": BAGS, "pair": np.ones((5, 2)), "empty": [None] * 5, "cost": list(map(Decimal, range(5)))}
    bags = BagDataset.from_frame(columns, bag="slide")
    assert bags.feature_names == ("cost",) and np.asarray(bags.instances)[:, 0].tolist() == [0, 2, 1, 4, 3]
    assert "not taken for features: 'pair', 'empty'" in caplog.text
    for missing in (None, pd.NA):
        with pytest.raises(DataError, match="row 1: expected finite features, got NaN"):
            BagDataset.from_frame(columns | {"cost": [Decimal(0), Decimal(1), missing, 3, 4]}, bag="slide")


def test_rows_without_the_id_of_a_bag_are_counted() -> None:
    message = "row 1 of bag_ids: expected the id of a bag, got None, as in 2 rows; say which bag the row is of"
    with pytest.raises(DataError, match=message):
        BagDataset.from_tensors(ROWS, bag_ids=["b", None, "a", "a", None])


def test_ids_of_numbers_among_text_are_text() -> None:
    bags = BagDataset.from_tensors(ROWS, [0, 1, 0, 1, 1], bag_ids=[12, "A3", 12, "A3", "A3"])
    assert bags.ids == ("12", "A3")


def test_a_subset_is_of_positions_or_of_a_mask_and_of_nothing_else() -> None:
    bags = separable_bags(10)
    mask = np.arange(10) >= 8
    for chosen in (mask, mask.tolist(), [8, 9], np.array([8, 9], np.uint8)):
        assert bags.subset(chosen).ids == bags.ids[8:]
    assert bags.subset([]).ids == ()
    for wrong in (mask[:5], np.array([8.0, 9.0])):
        with pytest.raises(DataError, match="whole numbers, or a mask of 10 bags"):
            bags.subset(wrong)


def test_labels_beside_a_dataset_are_refused() -> None:
    with pytest.raises(ConfigError, match="None beside a dataset"):
        miue.train(separable_bags(10), [0, 1] * 5)


def test_patients_are_the_same_in_memory_and_in_files(tmp_path: Path) -> None:
    patients = ["p1 ", "unknown", "NA", None, "p2", "p1"]
    arrays = [np.ones((2, 3), np.float32)] * len(patients)
    bags = BagDataset.from_arrays(arrays, [0, 1, 0, 1, 0, 1], patients=patients)
    assert bags.patients == ("p1", "", "", "", "p2", "p1")
    write_store(tmp_path / "store", bags)
    assert read_store(tmp_path / "store").patient_groups == bags.patient_groups


def test_ids_and_labels_of_any_column_are_read_by_their_values() -> None:
    named = BagDataset.from_tensors(ROWS, bag_ids=np.array([b"b", b"a", b"b", b"b", b"a"]))
    assert named.ids == ("b", "a") and named.sizes.tolist() == [3, 2]
    table = pa.table({"slide": ["b", "a", "b"], "label": ["no", "yes", "no"], "feature": [1.0, 2.0, 3.0]})
    bags = BagDataset.from_frame(table, bag="slide", label="label")
    assert bags.ids == ("b", "a") and bags.labels.values.tolist() == [0, 1]
    dates = pd.Series(pd.to_datetime(["2026-01-01", None]))
    assert BagDataset.from_arrays([np.ones((1, 2))] * 2, patients=dates).patients == ("2026-01-01 00:00:00", "")
    with pytest.raises(DataError, match="row 1 of bag_ids: expected the id of a bag, got NaT"):
        BagDataset.from_tensors(np.ones((2, 2)), bag_ids=dates)


def test_columns_of_several_lengths_and_numbers_beyond_single_precision_are_named() -> None:
    with pytest.raises(DataError, match="column 'g': expected 2 rows, as column 'f' has, got 1"):
        BagDataset.from_frame({"bag": ["a", "b"], "f": [1.0, 2.0], "g": [1.0]}, bag="bag")
    with pytest.raises(DataError, match=r"column .f.: expected features that float32 can hold.*1e\+300"):
        BagDataset.from_frame({"bag": ["a", "b"], "f": [1e300, 2.0]}, bag="bag")


@pytest.mark.parametrize("dtype", ["string", "Int64"])
def test_a_missing_id_or_label_of_pandas_is_named(dtype: str) -> None:
    values = pd.array(["a", None, "b"] if dtype == "string" else [1, None, 0], dtype=dtype)
    frame = pd.DataFrame({"slide": values, "label": [1, 1, 0], "feature": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match="row 1 of bag_ids: expected the id of a bag"):
        BagDataset.from_frame(frame, bag="slide", label="label")
    with pytest.raises(DataError, match="row 1 of bag_ids: expected the id of a bag"):
        MILUncertaintyClassifier().fit(np.ones((3, 2)), [0, 0, 1], bag_ids=pd.Series(values))
    with pytest.raises(DataError, match="y, entry 1: expected a class label"):
        MILUncertaintyClassifier().fit([np.ones((2, 2))] * 3, pd.Series(values))


def test_a_data_frame_has_the_features_that_its_table_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = pd.DataFrame({"bag_id": ["a", "a", "b", "c"], "f1": [1.0, 2.0, 3.0, 4.0], "f2": [1, 0, 2, 1]})
    rows["diagnosis"] = rows["bag_id"].map({"a": "no", "b": "yes", "c": "no"})
    rows = rows.assign(label=[0, 0, 1, 0], instance_label=[0, 0, 1, 0], fold=0, x=[0, 1, 0, 0], y=0)
    rows.to_csv(tmp_path / "t.csv")
    read = pd.read_csv(tmp_path / "t.csv")
    assert "Unnamed: 0" in read
    bags = BagDataset.from_frame(read, bag="bag_id", label="diagnosis")
    assert bags.feature_names == load_bags(tmp_path / "t.csv").bags.feature_names == ("f1", "f2")
    assert "not taken for features: 'Unnamed: 0', 'label', 'instance_label', 'fold', 'x'" in caplog.text
    assert "if some are, positions as coords=('x', 'y')" in caplog.text
    chosen = BagDataset.from_frame(read, bag="bag_id", features=["f1", "x"])
    assert chosen.feature_names == ("f1", "x")


def test_a_column_of_a_data_frame_that_is_no_feature_since_it_is_text_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = pd.DataFrame({"slide": ["a", "b"], "count": [3, 4], "area": ["1,5", "2,5"], "kind": [0, 1]})
    bags = BagDataset.from_frame(rows, bag="slide", label="kind")
    assert bags.feature_names == ("count",)
    assert (
        "data frame: not taken for features: 'area'; pass all features as features=[…] if some are" in caplog.text
    )
    caplog.clear()
    BagDataset.from_frame(rows, bag="slide", label="kind", features=["count"])
    assert not caplog.text


@pytest.mark.parametrize("what", ["patients", "labels"])
def test_bytes_in_another_encoding_are_refused(what: str) -> None:
    columns: dict[str, Any] = {"labels": [0, 1], what: ["M\u00fcller".encode("latin-1"), b"b"]}
    with pytest.raises(DataError, match=f"the {what}: expected text in UTF-8, got b'M.xfcller'"):
        BagDataset.from_arrays([np.ones((1, 2))] * 2, **columns)


@pytest.mark.parametrize("flag", [2, -1, 0.5, float("nan"), "true", np.int64(3)])
def test_what_is_no_truth_value_is_no_flag(flag: Any) -> None:
    with pytest.raises(DataError, match="is_ood 1: expected True, False, or None where unknown, got"):
        OodFlags.of(np.array([None, flag, True], object))
    assert OodFlags.of(np.array([None, 0, 1.0, True], object)).values.tolist() == [False, False, True, True]


def test_numpy_takes_labels_and_flags_that_are_all_known() -> None:
    bags = BagDataset.from_arrays([np.ones((2, 3))] * 4, [0, 1, 0, 1])
    assert roc_auc_score(bags.labels, [0.1, 0.9, 0.2, 0.8]) == 1.0
    assert np.array(bags.labels, np.float32).dtype == np.float32
    assert np.asarray(OodFlags.of([True, False])).tolist() == [True, False]
    changed = np.array(bags.labels)
    changed[:] = 7
    assert bags.labels.values.max() == 1


def test_labels_of_bags_are_taken_as_those_of_others_are() -> None:
    labels = Labels.of([0, None, 1])
    again = BagDataset.from_arrays([np.ones((1, 2))] * 3, labels)
    assert again.labels.values.tolist() == [0, 0, 1] and again.labels.known.tolist() == [True, False, True]
    bags = [np.full((2, 3), float(number)) for number in range(12)]
    known = Labels.of([0, 1] * 6)
    classifier = miue.MILUncertaintyClassifier(method="softmax", distances=(), max_epochs=1, validation_fraction=0)
    assert len(cross_val_score(classifier, bags, known, cv=2, error_score="raise")) == 2
    trained = miue.train(bags, known, settings={"max_epochs": 1, "distances": ()}, progress=False)
    assert trained.training is not None and trained.training.training_bags == 10


def test_flags_of_bags_are_taken_as_those_of_others_are() -> None:
    flags = OodFlags.of([True, None, False])
    again = BagDataset.from_arrays([np.ones((1, 2))] * 3, is_ood=flags)
    assert list(again.is_ood) == list(flags) == [True, None, False]
    assert again.instance_is_ood.known.tolist() == [True, False, True]
    assert True in flags and None not in flags[::2] and flags.shape == (3,)


def test_positions_that_are_all_known_are_an_array() -> None:
    coords = Coords.of(np.array([[0, 256], [512, 0]]))
    assert np.asarray(coords).tolist() == list(coords) == [[0, 256], [512, 0]]
    with pytest.raises(DataError, match="position 2: expected a known position"):
        np.asarray(Coords.concatenate([coords, Coords.unknown(1)]))


def test_numpy_does_not_take_labels_of_which_one_is_unknown() -> None:
    with pytest.raises(DataError, match=r"label 1: .* unknown .* \.values where \.known"):
        np.asarray(Labels.of([0, None, 1]))
    with pytest.raises(DataError, match="is_ood 0: "):
        np.asarray(OodFlags.unknown(2))
