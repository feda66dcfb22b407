"""Which classes a table of predictions of another tool has, and which are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import run
from made_predictions import made_predictions

from miue.calibration import calibrate, decide
from miue.common.errors import ConfigError, DataError
from miue.predictions import Predictions, read_predictions

ROWS = """slide_id,label,prob_normal,prob_benign,prob_tumor,pages
a,normal,0.7,0.2,0.1,3
b,tumor,0.1,0.1,0.8,4
c,benign,0.1,0.6,0.3,5
"""


@pytest.fixture(params=["prob_", "p_", ""])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(ROWS.replace("prob_", request.param))
    return tmp_path / "t.csv"


def test_probabilities_without_those_of_a_class_are_refused(table: Path) -> None:
    with pytest.raises(DataError, match="sum to 1"):
        read_predictions(table, classes=["normal", "benign"])


def test_a_class_without_a_column_is_named(table: Path) -> None:
    with pytest.raises((ConfigError, DataError), match=r"'normal', 'benign'.*'other'"):
        read_predictions(table, classes=["normal", "benign", "other"])


@pytest.mark.parametrize("columns", ["prob_normal,prob_tumor", "p_0,p_1", "normal,tumor"])
def test_one_class_alone_is_refused(columns: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"slide_id,label,{columns}\na,tumor,0.2,0.8\nb,normal,0.4,0.6\n")
    with pytest.raises(ConfigError, match="got 1 name"):
        read_predictions(tmp_path / "t.csv", classes=["tumor"])


def test_all_classes_may_be_named_in_any_order(table: Path) -> None:
    predictions = read_predictions(table, classes=["tumor", "normal", "benign"])
    assert predictions.bags.probabilities[1].tolist() == pytest.approx([0.8, 0.1, 0.1])
    assert predictions.bags.labels.values.tolist() == [1, 0, 2]
    assert "100.00" in run("evaluate", table, "--classes", "tumor,normal,benign")


def test_values_that_are_no_probabilities_are_said_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("slide_id,label,prob_a,prob_b\n1,a,0.5,0.6\n")
    with pytest.raises(DataError, match="values of at least 0 that sum to 1.*pass probabilities, not logits"):
        read_predictions(tmp_path / "t.csv", classes=["a", "b"])


def test_probabilities_sum_to_one_within_the_rounding_of_their_digits(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("slide_id,p_0,p_1,p_2\na,0.33,0.33,0.33\nb,0.5,0.25,0.25\nc,0.67,0.17,0.17\n")
    probabilities = read_predictions(table).bags.probabilities
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_allclose(probabilities[0], 1 / 3)
    np.testing.assert_allclose(probabilities[1], [0.5, 0.25, 0.25])
    for cells in ("0.33,0.33,0.32", "0.330,0.331,0.330"):
        table.write_text(f"slide_id,p_0,p_1,p_2\na,{cells}\n")
        with pytest.raises(DataError, match="sum to 1"):
            read_predictions(table)


NUMBERS = """slide_id,label,p_10,p_2,p_1
a,2,0.2,0.7,0.1
b,10,0.8,0.1,0.1
c,1,0.1,0.3,0.6
"""


@pytest.mark.parametrize("prefix", ["p_", "prob_", ""])
@pytest.mark.parametrize("classes", [["1", "2", "10"], ["10", "1", "2"]])
def test_classes_that_are_called_by_numbers_are_found_by_their_names(
    prefix: str, classes: list[str], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(NUMBERS.replace("p_", prefix))
    predictions = read_predictions(tmp_path / "t.csv", classes=classes)
    of = dict(zip(classes, predictions.bags.probabilities[0].tolist(), strict=True))
    assert of == pytest.approx({"1": 0.1, "2": 0.7, "10": 0.2})
    assert [classes[label] for label in predictions.bags.labels.values] == ["2", "10", "1"]
    shown = run("evaluate", tmp_path / "t.csv", "--classes", ",".join(classes))
    assert "Recall of 10" in shown and "100.00" in shown


def test_the_order_of_two_numbers_is_that_of_labels_and_of_probabilities(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("slide_id,label,prob_0,prob_1,p_value\na,1,0.2,0.8,0.1\nb,0,0.9,0.1,0.1\n")
    predictions = read_predictions(tmp_path / "t.csv", classes=["1", "0"])
    assert predictions.bags.labels.values.tolist() == predictions.bags.predicted.tolist() == [0, 1]


@pytest.mark.parametrize("prefix", ["p_", "prob_"])
def test_classes_that_are_numbered_otherwise_are_asked_for(prefix: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(NUMBERS.replace("p_", prefix))
    with pytest.raises(DataError, match="a column p_0 beside p_1, .*pass classes=NAMES"):
        read_predictions(tmp_path / "t.csv")


def test_columns_that_are_not_read_are_listed(tmp_path: Path) -> None:
    bags, instances = tmp_path / "bags.csv", tmp_path / "instances.csv"
    bags.write_text("bag_id,label,p_0,p_1,entropy,score_mine,uncertainty,age\na,0,0.9,0.1,0.3,1,2,60\n")
    instances.write_text("bag_id,instance,p_0,p_1,frame\na,0,0.9,0.1,7\n")
    advice = "(an uncertainty of your own is a column score_NAME, higher where less certain)"
    said = read_predictions(bags, instances).columns_read
    assert said == f"bags.csv: not read: 'uncertainty', 'age' {advice}; instances.csv: not read: 'frame' {advice}"


def test_every_column_of_tables_of_ours_is_known(two_slides: Predictions, tmp_path: Path) -> None:
    predictions = made_predictions(bags=90)
    known = predictions.bags.subset(np.flatnonzero(predictions.bags.labels.known))
    decided = decide(predictions, calibrate(Predictions(known, None, predictions.provenance)))
    for number, predictions in enumerate((two_slides, decided)):
        folder = tmp_path / str(number)
        predictions.save(folder, table_format="csv")
        assert read_predictions(folder / "bags.csv", folder / "instances.csv").columns_read == ""


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("score\na,0,0.5\nb,1,2.5", "line 3 of the class probabilities: .*pass probabilities, not logits"),
        ("score\na,0,0.5\nb,1,", "line 3, column 'score': expected a finite number"),
        ("p_0,p_1\na,0,20,80", "line 2 of the class probabilities: .*pass .* percentages or"),
        ("logit_0,logit_1\na,0,-3,2", "turn logits into probabilities first"),
        ("score\na,5,0.5", "line 2, column 'y_true': expected a class index"),
    ],
)
def test_scores_that_are_no_probabilities_are_refused_by_the_name_of_their_column(
    rows: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(f"video,y_true,{rows}\n")
    with pytest.raises(DataError, match=message):
        read_predictions(tmp_path / "t.csv")


def test_the_classes_that_predictions_have_may_be_named_again_in_their_order_alone(tmp_path: Path) -> None:
    table, folder = tmp_path / "bags.csv", tmp_path / "predictions"
    table.write_text("bag_id,p_0,p_1\na,0.2,0.8\n")
    read_predictions(table, classes=["no", "yes"]).save(folder)
    assert read_predictions(folder, classes=["no", "yes"]).provenance.classes == ("no", "yes")
    with pytest.raises(ConfigError, match="in their order"):
        read_predictions(folder, classes=["yes", "no"])
