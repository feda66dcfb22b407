"""Decisions: made by a calibration, written, read back, judged."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from commands import run
from made_bags import separable_bags

import miue
from miue.bags import BagDataset
from miue.calibration import (
    Calibration,
    DeferralGoal,
    FalseAlarmGoal,
    PredictionSetGoal,
    applied_calibration,
    calibrate,
    decide,
    worklist,
)
from miue.calibration.deferral import Deferral
from miue.calibration.false_alarms import FalseAlarms
from miue.calibration.prediction_sets import PredictionSets
from miue.calibration.scaling import Scaling
from miue.common.errors import DataError, ModelError, StorageError
from miue.common.records import sealed
from miue.evaluation import DecisionEvaluation, evaluate, evaluate_decisions
from miue.predictions import Predictions, Provenance, read_predictions


def by_hand(**changes: object) -> Calibration:
    """A calibration whose decisions can be told by looking."""
    parts = {
        "class_names": ("benign", "tumour"),
        "deferral": Deferral(
            measure="least_confidence",
            threshold=0.2,
            max_error=0.05,
            confidence=0.9,
            bags=90,
            accepted=80,
            errors=0,
        ),
        "prediction_sets": PredictionSets(
            score="lac", error=0.1, per_class=False, thresholds=(0.6, 0.6), bags=(90, 90)
        ),
        "false_alarms": FalseAlarms(score="far", threshold=2.0, rate=0.05, confidence=None, bags=90, rank=87),
        "scaling": Scaling(kind="temperature", temperature=2.0, nll_before=1.0, nll_after=0.5),
    }
    return Calibration(**{**parts, **changes})  # type: ignore[arg-type]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Five bags of another tool: accepted, wrongly accepted, deferred, and two far ones, one of them OOD."""
    rows = [
        "bag_id,label,is_ood,ood_set,p_0,p_1,score_far",
        "007,0,false,,0.9,0.1,1.0",
        "008,0,false,,0.1,0.9,1.0",
        "009,1,false,,0.45,0.55,1.0",
        "010,1,false,,0.05,0.95,2.5",
        "011,,true,fax,0.05,0.95,9.0",
    ]
    path = tmp_path / "bags.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_each_bag_is_decided_in_order_of_distribution_then_certainty(table: Path) -> None:
    bags = decide(read_predictions(table), by_hand()).bags
    decisions = bags.decisions
    assert decisions is not None
    assert decisions.decision.tolist() == [
        "benign",
        "tumour",
        "deferred",
        "out of distribution",
        "out of distribution",
    ]
    assert decisions.reason[0].startswith(
        "least_confidence 0.1 is at most 0.2: at most 5 % of the accepted bags are wrong"
    )
    assert decisions.reason[2].startswith("least_confidence 0.45 is above 0.2")
    assert decisions.reason[4] == "far 9 is above 2, a threshold that at most 5 % of in-distribution bags exceed"
    assert decisions.prediction_sets is not None
    assert decisions.prediction_sets.tolist()[:3] == [[True, False], [False, True], [True, True]]
    assert decisions.calibrated is not None
    odds = decisions.calibrated.probabilities[0, 0] / decisions.calibrated.probabilities[0, 1]
    assert odds.item() == pytest.approx(3.0)  # the root of 0.9 / 0.1
    accept_all = by_hand(deferral=by_hand().deferral.model_copy(update={"threshold": None}))  # type: ignore[union-attr]
    accepted = decide(read_predictions(table), accept_all).bags.decisions
    assert accepted is not None
    assert accepted.accepted.tolist() == [True, True, True, False, False]


def test_decisions_that_pandas_has_read_and_written_are_the_same(table: Path, tmp_path: Path) -> None:
    decided = decide(
        read_predictions(table),
        by_hand(
            prediction_sets=PredictionSets(
                score="lac", error=0.1, per_class=False, thresholds=(0.2, 0.2), bags=(90, 90)
            )
        ),
    )
    decided.save(tmp_path / "decided")
    again = tmp_path / "again.csv"
    pd.read_csv(tmp_path / "decided" / "bags.csv", dtype={"bag_id": str}).to_csv(again, index=False)
    assert ",1.0," in again.read_text()
    before, after = decided.bags.decisions, read_predictions(again).bags.decisions
    assert before is not None and after is not None
    assert before.prediction_sets is not None and before.prediction_sets.sum(1).tolist() == [1, 1, 0, 1, 1]
    np.testing.assert_array_equal(after.prediction_sets, before.prediction_sets)
    assert after.decision.tolist() == before.decision.tolist()
    assert after.reason.tolist() == before.reason.tolist()


def test_a_bag_at_a_threshold_is_on_the_side_that_the_calibration_counted_it(table: Path) -> None:
    given = read_predictions(table)
    exactly = float(np.float32(given.bags.uncertainties()["least_confidence"][2]))
    rule = by_hand().deferral.model_copy(update={"threshold": exactly})  # type: ignore[union-attr]
    far = by_hand().false_alarms.model_copy(update={"threshold": 2.5})  # type: ignore[union-attr]
    decisions = decide(given, by_hand(deferral=rule, false_alarms=far)).bags.decisions
    assert decisions is not None
    assert decisions.decision.tolist()[2:] == ["tumour", "deferred", "out of distribution"]
    assert decisions.reason[3].startswith(
        "far equals the out-of-distribution threshold 2.5: the error among the accepted"
    )
    alone = decide(given, by_hand(deferral=None, false_alarms=far)).bags.decisions
    assert alone is not None
    assert alone.decision.tolist()[3:] == ["tumour", "out of distribution"]


@pytest.mark.parametrize("accept_all", [True, False])
def test_a_bag_at_the_distribution_threshold_is_deferred_whatever_the_deferral_threshold(
    table: Path, accept_all: bool
) -> None:
    rule = by_hand().deferral.model_copy(update={"threshold": None if accept_all else 0.5})  # type: ignore[union-attr]
    at = by_hand().false_alarms.model_copy(update={"threshold": 1.0})  # type: ignore[union-attr]
    decisions = decide(read_predictions(table), by_hand(deferral=rule, false_alarms=at)).bags.decisions
    assert decisions is not None
    assert decisions.decision.tolist() == ["deferred"] * 3 + ["out of distribution"] * 2


def test_where_the_calibration_refused_every_threshold_every_bag_is_deferred(table: Path) -> None:
    rule = by_hand().deferral.model_copy(update={"threshold": None, "refused": "too many errors"})  # type: ignore[union-attr]
    decisions = decide(read_predictions(table), by_hand(deferral=rule)).bags.decisions
    assert decisions is not None
    assert decisions.decision.tolist() == ["deferred"] * 3 + ["out of distribution"] * 2
    assert decisions.reason[:3].tolist() == ["no bag is accepted"] * 3


def test_a_score_that_equals_a_threshold_is_on_the_same_side_after_its_table_was_written(tmp_path: Path) -> None:
    """0.6 in float32 is above 0.6: the votes of all bags at the threshold would count as beyond it."""
    votes = np.repeat([0.2, 0.4, 0.6], [20, 20, 20])
    lines = [f"b{i},0,0.1,{v}" for i, v in enumerate(votes)]
    (tmp_path / "bags.csv").write_text("\n".join(["bag_id,label,p_1,score_votes", *lines]) + "\n")
    given = read_predictions(tmp_path / "bags.csv")
    made = calibrate(given, scaling=False, deferral=None, false_alarms=FalseAlarmGoal(0.05, "votes"))
    first = decide(given, made)
    first.save(tmp_path / "out")
    again = decide(read_predictions(tmp_path / "out"), made)
    assert first.bags.decisions is not None
    assert again.bags.decisions is not None
    assert not first.bags.decisions.flagged.any()
    assert again.bags.decisions.decision.tolist() == first.bags.decisions.decision.tolist()
    assert again.provenance.dataset_shift is not None
    assert again.provenance.dataset_shift.higher == {}


def test_decisions_are_read_back_as_they_were_and_judged_the_same(table: Path, tmp_path: Path) -> None:
    decided = decide(read_predictions(table), by_hand())
    decided.save(tmp_path / "out")
    back = read_predictions(tmp_path / "out")
    ours, theirs = back.bags.decisions, decided.bags.decisions
    assert ours is not None
    assert theirs is not None
    assert ours.decision.tolist() == theirs.decision.tolist()
    assert ours.reason.tolist() == theirs.reason.tolist()
    assert np.array_equal(ours.prediction_sets, theirs.prediction_sets)  # type: ignore[arg-type]
    assert torch.equal(ours.calibrated.probabilities, theirs.calibrated.probabilities)  # type: ignore[union-attr]
    assert evaluate(back).to_json() == evaluate(decided).to_json()
    with (tmp_path / "out" / "bags.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["prediction_set"] for row in rows] == ["0", "1", "0 1", "1", "1"]
    assert list(rows[0])[-5:] == ["decision", "reason", "prediction_set", "calibrated_p_0", "calibrated_p_1"]


def test_the_interval_of_the_selective_risk_is_wider_where_patients_have_several_bags(table: Path) -> None:
    decided = decide(read_predictions(table), by_hand()).bags
    assert decided.decisions is not None
    widths = []
    for patients in (None, np.array(["p"] * len(decided), object)):
        metrics = evaluate_decisions(replace(decided, patients=patients), decided.decisions).metrics
        widths.append((metrics["selective_risk_high"].value or 0) - (metrics["selective_risk_low"].value or 0))
    assert widths[0] < widths[1] < 1


def test_what_the_calibration_has_no_rule_for_has_no_outcome(table: Path) -> None:
    def outcome(**left_out: None) -> DecisionEvaluation:
        found = evaluate(decide(read_predictions(table), by_hand().model_copy(update=left_out))).decisions
        assert found is not None
        return found

    for left_out, undefined in (
        ({}, set()),
        ({"deferral": None}, {"deferred"}),
        ({"false_alarms": None}, {"flagged", "false_alarms"}),
        (
            {"deferral": None, "false_alarms": None},
            {"deferred", "flagged", "false_alarms", "accepted"}
            | {"selective_risk", "selective_risk_low", "selective_risk_high"},
        ),
    ):
        found = outcome(**left_out)
        without = {name for name, metric in found.metrics.items() if "has no rule" in metric.reason}
        assert without == undefined
        assert all((metric.value is None) == ("false_alarms" in left_out) for metric in found.found.values())
        assert all((metric.value is None) == (len(left_out) == 2) for metric in found.not_accepted.values())


def test_decisions_come_out_as_counted_by_hand(table: Path) -> None:
    evaluation = evaluate(decide(read_predictions(table), by_hand()))
    found = evaluation.to_json()["decisions"]
    metrics = found["metrics"]
    assert (metrics["accepted"], metrics["deferred"], metrics["flagged"]) == (0.5, 0.25, 0.25)
    assert metrics["selective_risk"] == 0.5
    assert metrics["selective_risk_low"] < 0.02
    assert metrics["selective_risk_high"] > 0.98
    assert metrics["coverage"] == 0.75
    assert metrics["set_size"] == 1.25
    assert (metrics["empty_sets"], metrics["single_sets"]) == (0.0, 0.75)
    assert found["coverage_by_class"] == {"0": 0.5, "1": 1.0}
    assert found["found"] == {"fax": 1.0}
    assert found["not_accepted"] == {"fax": 1.0}
    assert evaluate(read_predictions(table)).to_json()["decisions"] is None


def test_accepted_bags_without_a_label_or_out_of_distribution_count_for_no_error(table: Path) -> None:
    more = ["012,,false,,0.9,0.1,1.0", "013,,false,,0.1,0.9,1.0", "014,1,true,fax,0.9,0.1,1.0"]
    before = evaluate(decide(read_predictions(table), by_hand())).decisions
    table.write_text(table.read_text() + "\n".join(more) + "\n")
    after = evaluate(decide(read_predictions(table), by_hand())).decisions
    assert before is not None and after is not None
    assert after.metrics["accepted"].value == 4 / 6
    for name in ("selective_risk", "selective_risk_low", "selective_risk_high", "coverage", "nll"):
        assert after.metrics[name] == before.metrics[name], name
    assert after.coverage_by_class == before.coverage_by_class
    assert after.not_accepted["fax"].value == 0.5


def test_a_bag_of_unknown_distribution_is_called_out_of_it_but_no_false_alarm(table: Path) -> None:
    more = ["012,0,false,,0.9,0.1,9.0", "013,0,,,0.9,0.1,9.0", "014,0,,,0.9,0.1,9.0"]
    table.write_text(table.read_text() + "\n".join(more) + "\n")
    found = evaluate(decide(read_predictions(table), by_hand())).decisions
    assert found is not None
    assert found.metrics["flagged"].value == (1 + 3) / (4 + 3)
    assert found.metrics["false_alarms"].value == (1 + 1) / (4 + 1)


def test_an_accepted_bag_with_an_empty_set_is_said_wherever_decisions_are(table: Path, tmp_path: Path) -> None:
    strict = PredictionSets(score="lac", error=0.1, per_class=False, thresholds=(0.07, 0.07), bags=(90, 90))
    rules = by_hand(prediction_sets=strict)
    rules.save(tmp_path / "rules.json")
    words = ("decide", table, "--calibration", tmp_path / "rules.json")
    said = " ".join(run(*words, "--out", tmp_path / "decided").split())
    assert "2 accepted, 1 deferred, 2 called out of distribution; 3 prediction sets are empty" in said
    counts = run(*words, "--out", tmp_path / "again", "--json")
    assert json.loads(counts[counts.index("{") :])["empty_sets"] == 3
    assert "also where it is accepted" in " ".join(run("evaluate", tmp_path / "decided").split())
    decided = read_predictions(tmp_path / "decided")
    assert decided.bags.decisions is not None
    assert decided.bags.decisions.empty_sets.tolist() == [True, True, True, False, False]
    looked = [row["slide"] for row in worklist(decided).rows if row["look"] == "first"]
    assert looked == ["011", "010", "009", "007", "008"]
    page = tmp_path / "report.html"
    run("report", tmp_path / "decided", "--out", page)
    assert "2 of the accepted have an empty prediction set: look at them, too." in page.read_text("utf-8")


def test_calibrated_probabilities_are_judged_beside_the_labels(table: Path) -> None:
    metrics = evaluate(decide(read_predictions(table), by_hand())).to_json()["decisions"]["metrics"]
    odds = np.sqrt([9, 1 / 9, 55 / 45, 19])  # of the label, at temperature 2
    p = odds / (1 + odds)
    assert metrics["nll"] == pytest.approx(-np.log(p).mean())
    assert metrics["brier"] == pytest.approx((2 * (1 - p) ** 2).mean())
    confidence = np.maximum(p, 1 - p)
    assert metrics["ece"] == pytest.approx(
        (abs(2 * confidence[0] - 1) + 1 - confidence[2] + 1 - confidence[3]) / 4
    )


def test_parts_that_were_left_out_make_no_column_and_undefined_metrics(table: Path, tmp_path: Path) -> None:
    bare = by_hand(scaling=None, prediction_sets=None, false_alarms=None, deferral=None)
    decided = decide(read_predictions(table), bare)
    decided.save(tmp_path / "out")
    header = (tmp_path / "out" / "bags.csv").read_text().splitlines()[0]
    assert header.endswith("decision,reason")
    metrics = evaluate(read_predictions(tmp_path / "out")).to_json()["decisions"]["metrics"]
    no_rule = "the calibration has no rule that accepts bags or not"
    assert metrics["accepted"] == {"value": None, "reason": no_rule}
    assert metrics["coverage"] == {"value": None, "reason": "no prediction sets were asked for"}
    assert metrics["nll"] == {"value": None, "reason": "no scaling was fitted"}


def test_a_calibration_is_saved_readably_and_read_back(tmp_path: Path) -> None:
    by_hand().save(tmp_path / "calibration.json")
    assert Calibration.load(tmp_path) == Calibration.load(tmp_path / "calibration.json") == by_hand()
    content = json.loads((tmp_path / "calibration.json").read_text())
    assert content["format"] == "miue-calibration"
    assert content["calibration"]["deferral"]["threshold"] == 0.2


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("version",), 6, "got version 6"),
        (("calibration", "deferral", "threshold"), "high", r"deferral\.threshold"),
        (("calibration", "scaling", "temperature"), -1.0, r"scaling\.temperature"),
        (("calibration", "class_mix"), {"confusion": [[3, -1], [0, 2]]}, r"class_mix\.confusion"),
        (("calibration", "class_names"), ["no", "no"], "the class 'no' twice"),
        (("calibration", "extra"), 1, "extra"),
    ],
)
def test_a_calibration_that_is_no_calibration_of_this_version_is_refused(
    place: tuple[str, ...], value: object, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    by_hand().save(path)
    content = json.loads(path.read_text())
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path.write_text(json.dumps(sealed(content)))
    with pytest.raises(StorageError, match=message):
        Calibration.load(path)


def test_predictions_that_do_not_fit_a_calibration_are_refused(table: Path) -> None:
    given = read_predictions(table)
    with pytest.raises(DataError, match="2 classes"):
        decide(given, by_hand(class_names=("a", "b", "c")))
    with pytest.raises(DataError, match="got 2 classes; "):
        decide(given, by_hand(class_names=("0", "1", "2")))
    with pytest.raises(DataError, match="calibrated: 0, 1, got 1, 0"):
        decide(Predictions(given.bags, None, Provenance(classes=("1", "0"))), by_hand(class_names=("0", "1")))
    with pytest.raises(DataError, match="expected the classes that were calibrated: benign, tumour, got tumour"):
        decide(Predictions(given.bags, None, Provenance(classes=("tumour", "benign"))), by_hand())
    with pytest.raises(DataError, match="'knn_mean'"):
        far = by_hand().false_alarms.model_copy(update={"score": "knn_mean"})  # type: ignore[union-attr]
        decide(given, by_hand(false_alarms=far))
    unknown = replace(given.bags, scores={"far": np.array([1, np.nan, 1, np.nan, 9])})
    with pytest.raises(DataError, match=r"far of bag '008'.*NaN \(2 such bags\)"):
        decide(replace(given, bags=unknown), by_hand())


def test_predictions_of_other_weights_than_the_calibrated_ones_are_refused_and_unknown_ones_let_pass(
    table: Path,
) -> None:
    given = read_predictions(table)
    for calibrated, predicted in (("a", "a"), ("a", None), (None, "a"), (None, None)):
        same = replace(given, provenance=Provenance(weights_sha256=predicted))
        assert decide(same, by_hand(weights_sha256=calibrated)).bags.decisions is not None
    other = replace(given, provenance=Provenance(weights_sha256="b"))
    with pytest.raises(
        ModelError, match=r"SHA-256 a\), got .*SHA-256 b\); predict with the calibrated model, or calibrate again"
    ):
        decide(other, by_hand(weights_sha256="a"))


def test_a_bag_that_is_deferred_anyway_keeps_its_reason_at_the_distribution_threshold(table: Path) -> None:
    at = by_hand().false_alarms.model_copy(update={"threshold": 1.0})  # type: ignore[union-attr]
    decisions = decide(read_predictions(table), by_hand(false_alarms=at)).bags.decisions
    assert decisions is not None
    assert decisions.reason[2].startswith("least_confidence 0.45 is above 0.2")


def test_classes_without_names_are_those_of_the_same_number(table: Path) -> None:
    given, numbered = read_predictions(table), by_hand(class_names=("0", "1"))
    named = Predictions(given.bags, None, Provenance(classes=("benign", "tumour")))
    bare = Predictions(given.bags, None, Provenance(classes=("0", "1")))
    for predictions, calibration in ((named, numbered), (bare, by_hand()), (given, by_hand())):
        decisions = decide(predictions, calibration).bags.decisions
        assert decisions is not None
        assert decisions.decision.tolist()[:2] == ["benign", "tumour"]
    unnamed = decide(given, numbered).bags.decisions
    assert unnamed is not None
    assert unnamed.decision.tolist()[:2] == ["0", "1"]


def test_a_prediction_set_that_is_none_is_named(table: Path) -> None:
    lines = table.read_text().splitlines()
    table.write_text(
        "\n".join([lines[0] + ",decision,prediction_set", *(line + ",deferred,0 2" for line in lines[1:])])
    )
    with pytest.raises(DataError, match="line 2, column 'prediction_set'.*'0 2'"):
        read_predictions(table)


# With a model


@pytest.fixture(scope="module")
def calibrated() -> tuple[miue.Model, BagDataset]:
    bags = separable_bags(200, seed=3)
    model = miue.train(bags.subset(range(100)), settings={"max_epochs": 3, "device": "cpu"}, progress=False)
    held = model.predict(bags.subset(range(100, 200)), device="cpu")
    made = calibrate(
        held,
        deferral=DeferralGoal(0.3),
        prediction_sets=PredictionSetGoal(0.2),
        false_alarms=FalseAlarmGoal(0.2),
        class_names=model.contract.class_names,
    )
    return replace(model, calibration=made), bags


def test_a_saved_model_decides_as_before_and_its_calibrated_dirichlet_keeps_three_uncertainties(
    calibrated: tuple[miue.Model, BagDataset], tmp_path: Path
) -> None:
    model, bags = calibrated
    model.save(tmp_path / "model")
    back = miue.Model.load(tmp_path / "model")
    assert back.calibration == model.calibration
    ours, theirs = back.predict(bags, device="cpu"), model.predict(bags, device="cpu")
    assert ours.bags.to_arrow().equals(theirs.bags.to_arrow())
    decisions = ours.bags.decisions
    assert decisions is not None
    assert isinstance(decisions.calibrated, miue.Dirichlet)
    assert (decisions.calibrated.mutual_information() > 0).all()
    assert (rules := applied_calibration(ours.provenance)) and rules.false_alarms
    assert rules.false_alarms.score == "combined_mean"
    assert replace(model, calibration=None).predict(bags, device="cpu").bags.decisions is None


def test_decisions_do_not_depend_on_whether_the_predictions_went_through_a_file(
    calibrated: tuple[miue.Model, BagDataset], tmp_path: Path
) -> None:
    model, bags = calibrated
    assert model.calibration is not None
    bare = replace(model, calibration=None).predict(bags, device="cpu")
    bare.save(tmp_path / "out")
    direct, read = decide(bare, model.calibration), decide(read_predictions(tmp_path / "out"), model.calibration)
    assert direct.bags.to_arrow().equals(read.bags.to_arrow())
    assert len(set(direct.bags.decisions.decision)) > 1  # type: ignore[union-attr]
