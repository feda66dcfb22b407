"""The worklist: what needs a human first, and why."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import fail, run
from made_bags import separable_bags
from made_reports import reported
from made_slides import alpha_of
from made_slides import prediction_table as table

import miue
import miue.calibration
from miue.calibration import Calibration, decide, worklist, write_worklist
from miue.calibration.deferral import Deferral, DeferralGoal, refuse_all
from miue.calibration.false_alarms import FalseAlarms
from miue.calibration.prediction_sets import PredictionSets
from miue.calibration.reasons import BETWEEN, DEFERRED, EMPTY, FAR, FEW, FLAGGED, UNSURE
from miue.common.errors import ConfigError
from miue.common.text import escape_formula
from miue.distributions import Categorical, Dirichlet
from miue.distributions.measures import MEASURES
from miue.predictions import OUT_OF_DISTRIBUTION, Decisions, Predictions, Provenance, ValidationQuantiles
from miue.settings import Limits


def worrying() -> Predictions:
    """Twelve slides: ten that are fine, one far from training data, one that the model is unsure of."""
    alpha = torch.tensor([[40.0, 1.0]] * 10 + [[1.0, 40.0], [1.5, 1.0]], dtype=torch.float64)
    distance = np.array([1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.1, 0.9, 1.0, 1.02, 9.0, 1.0])
    ids = [f"s{i}" for i in range(12)]
    bags = table(Dirichlet(alpha), ids, knn_mean=distance)
    counts = [60] * 11 + [3]
    patches = [name for name, count in zip(ids, counts, strict=True) for _ in range(count)]
    return Predictions(bags, table(alpha_of(len(patches)), patches))


GIVEN = Limits(min_probability=0.8, max_epistemic=0.05, max_distance=2.0, min_patches=50)


def validated(predictions: Predictions, **values: np.ndarray) -> Predictions:
    """The same, made by a model whose validation bags have these uncertainties and sizes."""
    count = len(values["sizes"])
    p = np.stack([1 - values["least_confidence"], values["least_confidence"]], 1)
    bags = table(Categorical(torch.from_numpy(p)), [f"v{i}" for i in range(count)], knn_mean=values["knn_mean"])
    usual = ValidationQuantiles.of(bags, values["sizes"])
    return replace(predictions, provenance=predictions.provenance.model_copy(update={"validation": usual}))


def test_a_worklist_puts_first_what_needs_a_human_and_says_why() -> None:
    made_list = worklist(worrying(), GIVEN)
    first, second, *others = made_list.rows
    assert (first["slide"], second["slide"]) == ("s10", "s11")
    assert first["reason"].startswith(FAR)
    assert [part.split(" (")[0] for part in second["reason"].split("; ")] == [UNSURE, BETWEEN, FEW]
    assert {row["look"] for row in others} == {"routine"}
    assert {row["reason"] for row in others} == {""}
    assert set(made_list.judged) == {FAR, UNSURE, BETWEEN, FEW}
    assert [row["order"] for row in made_list.rows] == list(range(1, 13))


def test_a_worklist_names_the_patients_where_they_are_known(tmp_path: Path) -> None:
    given = worrying()
    assert "patient" not in worklist(given).rows[0]
    patients = np.array(["=P1", "P2", ""] + ["P3"] * 7 + ["=P1", "P2"], object)  # of s0 … s11
    with_patients = replace(given, bags=replace(given.bags, patients=patients))
    made_list = worklist(with_patients, GIVEN)
    assert {row["slide"]: row["patient"] for row in made_list.rows} == dict(
        zip(given.bags.bag_ids.tolist(), patients.tolist(), strict=True)
    )
    write_worklist(tmp_path / "list.csv", made_list)
    with (tmp_path / "list.csv").open(newline="") as file:
        first = next(csv.DictReader(file))
    assert (first["slide"], first["patient"]) == ("s10", "'=P1")  # no formula of a spreadsheet


def test_the_printed_worklist_names_patients_only_where_one_has_several_slides(tmp_path: Path) -> None:
    given = worrying()
    several = np.array([f"P{i // 2}" for i in range(12)], object)
    for name, patients, named in (("one", np.array(given.bags.bag_ids, object), False), ("more", several, True)):
        replace(given, bags=replace(given.bags, patients=patients)).save(tmp_path / name)
        said = run("worklist", tmp_path / name, "--out", tmp_path / f"{name}.csv")
        assert ("patient" in said.split("order:")[0]) == named
        assert "patient" in (tmp_path / f"{name}.csv").read_text("utf-8").splitlines()[0]


def test_the_first_cases_of_a_report_name_their_patients(tmp_path: Path) -> None:
    given = worrying()
    assert "patient <P>" not in reported(tmp_path, given)[0].text
    patients = np.array(["P1"] * 10 + ["<P>", ""], object)
    (tmp_path / "report.html").unlink()
    page, _ = reported(tmp_path, replace(given, bags=replace(given.bags, patients=patients)))
    assert "s10 patient <P>" in page.text


def test_the_most_urgent_of_a_slides_reasons_says_where_it_stands() -> None:
    given = worrying()
    patches = [f"s{i}" for i, count in enumerate([60] * 10 + [3, 60]) for _ in range(count)]
    rows = worklist(replace(given, instances=table(alpha_of(len(patches)), patches)), GIVEN).rows
    reasons = [[part.split(" (")[0] for part in row["reason"].split("; ")] for row in rows[:2]]
    assert [row["slide"] for row in rows[:2]] == ["s10", "s11"]
    assert reasons == [[FAR, FEW], [UNSURE, BETWEEN]]


def test_the_limits_of_a_worklist_are_those_given() -> None:
    rows = worklist(
        worrying(), Limits(min_probability=0.0, max_epistemic=9.0, max_distance=10.0, min_patches=0)
    ).rows
    assert {row["look"] for row in rows} == {"routine"}
    rows = worklist(worrying(), Limits(max_distance=0.5)).rows
    assert sum(FAR in row["reason"] for row in rows) == 12
    for name, value in {"min_probability": 1.5, "min_patches": -1, "quantile": 0.3}.items():
        with pytest.raises(ConfigError) as said:
            worklist(worrying(), {name: value})
        assert (said.value.item, said.value.got) == (name, repr(value))


def test_a_reason_shows_as_many_digits_as_a_value_needs_to_differ_from_its_limit() -> None:
    given = replace(worrying(), bags=worrying().bags.with_score("knn_mean", np.linspace(9, 9.0011, 12)))
    reasons = [row["reason"] for row in worklist(given, Limits(max_distance=9.0005)).rows if FAR in row["reason"]]
    assert "9.0011 > 9.0005" in reasons[0] and all("9.00 >" not in reason for reason in reasons)


@pytest.mark.parametrize(("bags", "enough"), [(1, False), (3, False), (18, False), (19, True)])
def test_limits_of_too_few_validation_bags_for_the_quantile_are_said_to_be_extremes(
    bags: int, enough: bool
) -> None:
    """A bag like n others exceeds all of them with chance 1 / (n + 1), of three in one of four cases."""
    values = np.arange(1, bags + 1) / 100
    judged = worklist(
        validated(worrying(), least_confidence=values, knn_mean=values, sizes=np.arange(bags) + 20)
    ).judged
    for reason, share in ((FAR, "0.95"), (BETWEEN, "0.95"), (FEW, "0.05")):
        source = f"the {share} quantile of the {bags} validation bags"
        extreme = f"the most extreme of {bags} validation bag{'s' * (bags > 1)}, too few for the {share} quantile"
        assert judged[reason].endswith(source if enough else extreme)
    assert judged[FAR].startswith(f"knn_mean above {values.max():.4g}, ")


def test_limits_that_are_not_given_are_quantiles_of_the_validation_bags() -> None:
    """i / 100 is the quantile i / 100 of the values 1 / 100 to 99 / 100."""
    steps = np.arange(1, 100) / 100
    given = validated(worrying(), least_confidence=steps / 2, knn_mean=10 * steps, sizes=np.arange(1, 100))
    made_list = worklist(given)
    assert set(made_list.judged) == {FAR, BETWEEN, FEW}
    assert made_list.judged[FAR] == "knn_mean above 9.5, the 0.95 quantile of the 99 validation bags"
    assert made_list.judged[BETWEEN].startswith(
        "the predicted class has a probability below 0.525, the 0.95 quantile"
    )
    assert made_list.judged[FEW] == "fewer than 5 instances, the 0.05 quantile of the 99 validation bags"
    assert [row["slide"] for row in made_list.rows if row["look"] == "first"] == ["s11"]
    wider = worklist(given, Limits(quantile=0.9, min_patches=2))
    assert wider.judged[FAR].startswith("knn_mean above 9, the 0.9 quantile")
    assert wider.judged[FEW] == "fewer than 2 instances, as given"
    lower = validated(worrying(), least_confidence=steps / 2, knn_mean=2 * steps, sizes=np.arange(1, 100))
    assert [row["slide"] for row in worklist(lower).rows if FAR in row["reason"]] == ["s10"]
    assert "mutual_information" in worrying().bags.uncertainties()
    assert "do not say what the model was validated on" in made_list.not_judged[UNSURE]


def test_slides_of_the_same_reasons_are_ordered_by_how_far_out_of_distribution_they_are() -> None:
    p = torch.tensor([[0.3, 0.7], [0.5, 0.5], [0.05, 0.95], [0.2, 0.8], [0.4, 0.6]], dtype=torch.float64)
    rows = worklist(Predictions(table(Categorical(p), list("abcde")), None)).rows
    assert [row["slide"] for row in rows] == list("beadc")
    distance = np.array([3.0, 1.0, 4.0, 5.0, 2.0])
    far = worklist(
        Predictions(table(Categorical(p), list("abcde"), knn_mean=distance), None), Limits(max_distance=2.5)
    )
    assert [row["slide"] for row in far.rows] == list("dcaeb")
    assert far.order == "within a reason the highest knn_mean first"
    alike = worklist(Predictions(table(Categorical(p), list("abcde"), knn_mean=np.ones(5)), None))
    assert [row["slide"] for row in alike.rows] == list("beadc")  # then by entropy
    every = worklist(
        Predictions(table(Categorical(p), list("abcde"), knn_mean=distance), None), Limits(min_probability=1.0)
    )
    assert [row["slide"] for row in every.rows] == list("dcaeb")  # the entropies would say b first


def test_a_distance_is_one_of_the_registry_or_has_both_mean_and_high_quantile() -> None:
    p = torch.tensor([[0.3, 0.7], [0.5, 0.5]], dtype=torch.float64)

    def made(**scores: np.ndarray) -> tuple[str | None, str]:
        found = worklist(Predictions(table(Categorical(p), ["a", "b"], **scores), None), Limits(max_distance=0.5))
        return found.judged.get(FAR), found.order

    values = np.array([1.0, 0.0])
    assert made(grade_mean=values) == (None, "within a reason the highest least_confidence first")
    own, order = made(median_mean=values, median_high=values, grade_high=values)
    assert own == "median_mean above 0.5, as given" and "median_mean" in order
    assert made(grade_mean=values, mahalanobis_mean=values)[0] == "mahalanobis_mean above 0.5, as given"


def test_a_worklist_says_what_it_cannot_judge() -> None:
    p = torch.tensor([[0.4, 0.6], [0.99, 0.01]], dtype=torch.float64)
    given = Predictions(table(Categorical(p), ["a", "b"]), None)
    made_list = worklist(given)
    assert set(made_list.not_judged) == {FLAGGED, DEFERRED, EMPTY, UNSURE, FAR, FEW, BETWEEN}
    assert [row["slide"] for row in made_list.rows] == ["a", "b"]
    assert {row["look"] for row in made_list.rows} == {"routine"}
    assert made_list.rows[0]["patches"] is None
    assert BETWEEN in worklist(given, GIVEN).judged


def test_a_warning_says_where_over_30_percent_are_first() -> None:
    assert worklist(worrying(), GIVEN).warning == ""
    most = worklist(worrying(), Limits(max_distance=0.99))
    assert most.warning.startswith("9 of 12 bags (75%) are first")
    assert "validation bags" in most.warning
    names = np.array(["0"] * 7 + ["deferred"] * 5, object)
    flooded = replace(worrying(), bags=replace(worrying().bags, decisions=Decisions(names, names)))
    assert "5 of 12 bags (42%) are first" in worklist(flooded).warning
    assert "calibration bags" in worklist(flooded).warning
    ten = flooded.bags.subset(np.arange(10))  # three of them are deferred, no more than 30 %
    assert worklist(replace(flooded, bags=ten, instances=None)).warning == ""
    deferral = Deferral(
        measure="entropy", threshold=0.1, max_error=0.1, confidence=0.9, bags=90, accepted=80, errors=0
    )
    rules = Calibration(class_names=("0", "1"), deferral=deferral).model_dump(mode="json")
    by_deferral = replace(flooded, provenance=Provenance(calibration=rules))
    assert set(worklist(by_deferral).judged) == {DEFERRED}
    assert "calibration bags" in worklist(by_deferral).warning


def decided() -> Predictions:
    """The twelve slides after a calibration deferred the third and called the fifth out of distribution."""
    given = worrying()
    names = np.array(["0", "0", "deferred", "0", "out of distribution", *["0"] * 7], object)
    reasons = np.array([f"{name}, for a reason" for name in names], object)
    return replace(given, bags=replace(given.bags, decisions=Decisions(names, reasons)))


def test_the_decisions_of_a_calibration_alone_say_what_is_first() -> None:
    made_list = worklist(decided())
    assert [row["slide"] for row in made_list.rows[:3]] == ["s4", "s2", "s10"]
    assert made_list.rows[0]["reason"] == f"{FLAGGED} (out of distribution, for a reason)"
    assert made_list.rows[1]["reason"] == f"{DEFERRED} (deferred, for a reason)"
    assert [row["decision"] for row in made_list.rows[:3]] == ["out of distribution", "deferred", "0"]
    assert [row["look"] for row in made_list.rows] == ["first"] * 2 + ["routine"] * 10
    assert set(made_list.judged) == {FLAGGED, DEFERRED}
    assert "decision" not in worklist(worrying()).rows[0]
    usual = np.zeros(99)  # of which every slide would stand out
    flooded = validated(decided(), least_confidence=usual, knn_mean=usual, sizes=np.full(99, 1000))
    assert worklist(flooded).rows == made_list.rows
    with pytest.raises(ConfigError) as refused:
        worklist(decided(), Limits(min_patches=3))
    assert (refused.value.item, refused.value.got) == ("the worklist's limits", "min_patches=3")


def test_a_calibration_that_accepts_no_bag_is_explained_once_and_orders_bags_by_uncertainty(
    tmp_path: Path,
) -> None:
    deferral = refuse_all("least_confidence", DeferralGoal(), 70, "25 of 70 are wrong")
    refused = decide(worrying(), Calibration(class_names=("0", "1"), deferral=deferral))
    made_list = worklist(refused)
    assert {row["reason"] for row in made_list.rows} == {f"{DEFERRED} (no bag is accepted)"}
    least = [row["least_confidence"] for row in made_list.rows]
    assert least == sorted(least, reverse=True) and made_list.rows[0]["slide"] == "s11"
    assert made_list.order == "within a reason the highest least_confidence first"
    assert made_list.advice == ""
    for words in ("No bag is accepted: 25 of 70 are wrong.", "--method pooled-logistic", "larger error"):
        assert words in made_list.warning
    page, written = reported(tmp_path, refused)
    assert page.text.count("No bag is accepted") == 1 and made_list.warning in written.verdicts[0].sentences
    assert "12 of 12 bags, the most uncertain first" in page.text
    assert page.text.count("no bag is accepted") == 8  # the cases that are shown


def test_a_calibration_of_probabilities_alone_leaves_it_to_the_limits_what_is_first() -> None:
    rules = Calibration(class_names=("a", "b"))
    given = replace(decided(), provenance=Provenance(calibration=rules.model_dump(mode="json")))
    given = replace(
        given, bags=replace(given.bags, decisions=Decisions(np.array(["0"] * 12), np.array([""] * 12)))
    )
    made_list = worklist(given, GIVEN)
    assert [row["slide"] for row in made_list.rows if row["look"] == "first"] == ["s10", "s11"]
    alarms = FalseAlarms(score="entropy", threshold=0.5, rate=0.05, confidence=None, bags=100, rank=96)
    flagging = rules.model_copy(update={"false_alarms": alarms}).model_dump(mode="json")
    called = np.array([OUT_OF_DISTRIBUTION, *["0"] * 11], object)
    bags = replace(given.bags, decisions=Decisions(called, np.array([""] * 12)))
    alone = Predictions(bags, given.instances, Provenance(calibration=flagging))
    assert worklist(alone).not_judged == dict.fromkeys((DEFERRED, EMPTY), "the calibration has no such rule")
    assert [row["slide"] for row in worklist(alone).rows if row["look"] == "first"] == ["s0"]
    assert worklist(alone).order == "within a reason the highest entropy first"


def with_sets(given: Predictions, empty: list[int], **rules: Any) -> Predictions:
    """The predictions with prediction sets, of which the named rows are empty, by a calibration with ``rules``."""
    decisions = given.bags.decisions
    assert decisions is not None
    sets = np.eye(2, dtype=bool)[given.bags.predicted]
    sets[empty] = False
    made_by = Calibration(class_names=("0", "1"), **rules).model_dump(mode="json")
    bags = replace(given.bags, decisions=replace(decisions, prediction_sets=sets))
    return replace(given, bags=bags, provenance=Provenance(calibration=made_by))


SETS = PredictionSets(score="lac", error=0.1, per_class=False, thresholds=(0.2, 0.2), bags=(99, 99))
ALARMS = FalseAlarms(score="entropy", threshold=0.5, rate=0.05, confidence=None, bags=100, rank=96)


def test_a_slide_with_an_empty_prediction_set_is_first_also_where_it_is_accepted() -> None:
    made_list = worklist(with_sets(decided(), [2, 11], prediction_sets=SETS, false_alarms=ALARMS))
    assert [row["slide"] for row in made_list.rows if row["look"] == "first"] == ["s4", "s2", "s11"]
    kinds = [[part.split(" (")[0] for part in row["reason"].split("; ")] for row in made_list.rows[:3]]
    assert kinds == [[FLAGGED], [DEFERRED, EMPTY], [EMPTY]]
    assert made_list.rows[2]["decision"] == "0"  # its class, which the guarantee of the accepted bags counts
    assert made_list.rows[2]["reason"] == f"{EMPTY} (no class is probable enough, the highest has 0.60)"
    assert made_list.judged[EMPTY] == "no class is probable enough for the calibrated sets (coverage 0.9)"
    assert worklist(decided()).not_judged == {EMPTY: "the calibration has no such rule"}
    assert worklist(worrying()).not_judged[EMPTY] == "the model is not calibrated"


def test_empty_sets_are_first_also_where_a_calibration_has_no_other_rule() -> None:
    names = np.array(["0"] * 12, object)
    plain = replace(worrying(), bags=replace(worrying().bags, decisions=Decisions(names, names)))
    made_list = worklist(with_sets(plain, [3], prediction_sets=SETS), Limits(max_distance=2.0))
    assert [row["slide"] for row in made_list.rows if row["look"] == "first"] == ["s10", "s3"]


def test_a_worklist_never_puts_more_first_than_the_calibration_does(tmp_path: Path) -> None:
    bags = separable_bags(160, seed=5)
    splits = np.repeat(["train", "validation", "test"], [60, 60, 40]).tolist()
    bags = replace(bags, splits=tuple(splits))
    model = miue.train(bags, settings={"max_epochs": 3, "learning_rate": 1e-3}, progress=False)
    held = model.predict(bags.split("validation"))
    goals: dict[str, Any] = {"deferral": miue.calibration.DeferralGoal(0.4), "prediction_sets": None}
    made = miue.calibrate(held, scaling=False, class_names=model.contract.class_names, **goals)
    decided_bags = replace(model, calibration=made).predict(bags.split("test"))
    assert decided_bags.bags.decisions is not None
    first = sum(row["look"] == "first" for row in worklist(decided_bags).rows)
    assert first == int((~decided_bags.bags.decisions.accepted).sum()) < 12
    uncalibrated = worklist(model.predict(bags.split("test")))
    assert set(uncalibrated.judged) == {FAR, UNSURE, BETWEEN, FEW}
    assert all("of the 60 validation bags" in limit for limit in uncalibrated.judged.values())
    assert uncalibrated.warning == ""


def test_the_worklist_command_writes_the_rows_and_the_limits(tmp_path: Path) -> None:
    worrying().save(tmp_path / "p")
    limits = ("--min-patches", 5, "--min-probability", 0.8, "--max-epistemic", 0.05)
    said = run("worklist", tmp_path / "p", "--out", tmp_path / "list.csv", *limits)
    assert "2 of 12 bags" in said
    assert "slide" not in said and "patch" not in said  # a bag may be a video, and its instances clips
    with (tmp_path / "list.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["slide"] for row in rows[:2]] == ["s10", "s11"]
    assert "few instances (3 < 5)" in rows[1]["reason"]
    written = json.loads((tmp_path / "list.json").read_text())
    assert written["judged"][FEW] == "fewer than 5 instances, as given"
    assert written["columns"]["entropy"] == MEASURES["entropy"].describes
    assert set(written["columns"]) <= set(rows[0])
    assert "warning" not in written
    many = run("worklist", tmp_path / "p", "--out", tmp_path / "all.csv", "--max-distance", 0.5)
    assert "Warning: 12 of 12 bags (100%) are first" in many
    assert json.loads((tmp_path / "all.json").read_text())["warning"].startswith("12 of 12 bags")
    assert "--overwrite" in fail("worklist", tmp_path / "p", "--out", tmp_path / "list.csv")


def test_a_worklist_and_its_limits_replace_nothing_else(tmp_path: Path) -> None:
    worrying().save(tmp_path / "p")
    words = ("worklist", tmp_path / "p", "--overwrite", "--out")
    assert "got the name of the limits; name it list.csv" in fail(*words, tmp_path / "list.json")
    (tmp_path / "evaluation.json").write_text('{"accuracy": 0.9}')
    assert "expected a new file, or the limits of an earlier worklist" in fail(*words, tmp_path / "evaluation.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evaluation.json", "p"]
    assert (tmp_path / "evaluation.json").read_text() == '{"accuracy": 0.9}'
    for _ in range(2):
        run(*words, tmp_path / "list.csv")


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "\n=", " =", "\uff1d", "a;=", "a\n@"])
def test_no_cell_of_a_worklist_is_a_formula(begin: str, tmp_path: Path) -> None:
    made = worrying()
    names = {name: f"{begin}cmd({name})" for name in made.bags.bag_ids}
    tables = [
        replace(table, bag_ids=np.array([names[name] for name in table.bag_ids], object))
        for table in (made.bags, made.instances)
        if table is not None
    ]
    hostile = Predictions(tables[0], tables[1], Provenance(classes=(f"{begin}no", f"{begin}yes")))
    write_worklist(tmp_path / "list.csv", worklist(hostile))
    with (tmp_path / "list.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    for row in rows:
        for cell in row.values():
            for part in re.split(r"[;\t\r\n]", cell):
                assert part.strip()[:1] not in tuple("=+-@\uff1d") or not part.strip(), cell
            assert cell[:1] not in ("\t", "\r", "\n")
    assert {row["predicted"].replace("'", "") for row in rows} <= {f"{begin}no", f"{begin}yes"}
    assert [escape_formula(text) for text in ("s1", "a-b", "1 = 1; b", "")] == ["s1", "a-b", "1 = 1; b", ""]


def test_a_class_that_is_called_by_a_number_has_one_name_in_a_worklist() -> None:
    grades = replace(decided(), provenance=Provenance(classes=("2", "10")))
    names = np.array(["10", "10", "deferred", *["2"] * 9], object)
    decisions = Decisions(names, np.array(["why"] * 12, object))
    rows = worklist(replace(grades, bags=replace(grades.bags, decisions=decisions))).rows
    assert {row["predicted"] for row in rows} == {"2", "10"}
    unnamed = worklist(replace(grades, provenance=Provenance())).rows
    assert {row["predicted"] for row in unnamed} == {"0", "1"}  # as a calibration of such a table names them


def test_numbers_of_a_worklist_are_written_as_numbers_where_its_texts_are_quoted(tmp_path: Path) -> None:
    made = worklist(decided())
    assert any("," in row["reason"] for row in made.rows)
    write_worklist(tmp_path / "list.csv", made)
    with (tmp_path / "list.csv").open(newline="") as file:
        names = next(file).strip().split(",")
        first = next(csv.reader(file, quoting=csv.QUOTE_NONNUMERIC))  # what is not quoted is read as a number
    for name in ("probability", "entropy", "knn_mean"):
        assert first[names.index(name)] == pytest.approx(made.rows[0][name], rel=1e-5), name


def looking_or_meaning_unlike(decisions: Decisions | None = None) -> Predictions:
    """Twelve slides, of which s00 looks unlike the validation bags, s02 means unlike them, and s01 does both."""
    count, steps = 12, np.arange(1, 100) / 100
    of_slides = {name: np.full(count, 0.5) for name in ("combined_mean", "statistics_mean", "knn_mean")}
    of_slides["combined_mean"][:3] = of_slides["statistics_mean"][:2] = of_slides["knn_mean"][1:3] = 5.0
    p = torch.full((count, 2), 0.5, dtype=torch.float64)
    usual = table(
        Categorical(p[:1].repeat(99, 1)), [f"v{i}" for i in range(99)], **dict.fromkeys(of_slides, steps)
    )
    provenance = Provenance(validation=ValidationQuantiles.of(usual, np.arange(1, 100)))
    bags = table(Categorical(p), [f"s{i:02}" for i in range(count)], **of_slides)
    return Predictions(replace(bags, decisions=decisions), None, provenance)


def test_a_slide_that_is_far_says_whether_it_looks_or_means_unlike() -> None:
    reasons = {row["slide"]: row["reason"] for row in worklist(looking_or_meaning_unlike()).rows}
    for slide, words in {
        "s00": "unusual appearance)",
        "s01": "unusual appearance, unusual features)",
        "s02": "unusual features)",
    }.items():
        assert f"(combined_mean 5 > 0.95, {words}" in reasons[slide]
    assert FAR not in reasons["s03"]


def test_a_slide_that_a_calibration_calls_out_of_distribution_says_whether_it_looks_or_means_unlike() -> None:
    names = np.array([OUT_OF_DISTRIBUTION] * 4 + ["1"] * 8, object)
    decisions = Decisions(names, np.array(["combined_mean above 0.4"] * 12, object))
    reasons = {row["slide"]: row["reason"] for row in worklist(looking_or_meaning_unlike(decisions)).rows}
    for slide, side in {
        "s00": ", unusual appearance",
        "s01": ", unusual appearance, unusual features",
        "s02": ", unusual features",
        "s03": "",
    }.items():
        assert reasons[slide] == f"{FLAGGED} (combined_mean above 0.4{side})"
    assert reasons["s04"] == ""
    unknown = replace(looking_or_meaning_unlike(decisions), provenance=Provenance())
    assert worklist(unknown).rows[0]["reason"] == f"{FLAGGED} (combined_mean above 0.4)"
