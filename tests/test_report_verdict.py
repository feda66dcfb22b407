"""The verdict of a report: its numbers are those of the evaluation, and it is silent where nothing can be said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_predictions import made_predictions, unlabeled
from made_promises import exact_interval
from made_reports import reported

from miue.bags import Labels, OodFlags
from miue.calibration import calibrate, decide, grouped_error_interval, needed_by_default
from miue.common.errors import DataError
from miue.distributions import Categorical
from miue.evaluation import Interval, evaluate, evaluate_decisions
from miue.evaluation.bootstrap import owners_of_items
from miue.evaluation.level import Items, default_measures, evaluate_level
from miue.evaluation.ranking import Ranking
from miue.predictions import Predictions, PredictionTable, Provenance
from miue.report.differences import SAME, Difference, compare_methods, compare_with_baselines, list_methods
from miue.report.levels import Resampling, evaluate_levels
from miue.report.report import no_track
from miue.report.runs import compare, named_runs
from miue.report.summaries import LevelSummary
from miue.report.tables import Table, metric_column
from miue.report.verdict import Verdict, judge_run, shared_sentences

pytestmark = pytest.mark.usefixtures("small_plotly")


def judged(*predictions: Predictions) -> tuple[list[str], list[str]]:
    """Sentences of the verdict on the first predictions, and on differences."""
    runs = compare(named_runs([(f"place_{n}", one) for n, one in enumerate(predictions)])).shared
    bags = evaluate_levels(runs, ("0", "1"), Resampling(200), no_track)["bags"]
    table, level = runs[0].predictions.bags, bags.of_runs[0]
    outcome = evaluate_decisions(table, table.decisions, runs[0].rules) if table.decisions else None
    assert level is not None
    return judge_run(runs[0], level, outcome).sentences, compare_methods(bags.differences)


def certain(confidence: float, correct: int, bags: int = 100, method: str = "m") -> Predictions:
    """Bags of one confidence, so many of them predicted correctly."""
    p = torch.tensor([confidence, 1 - confidence], dtype=torch.float64).repeat(bags, 1)
    p[correct:] = p[correct:].flip(1)
    labels = Labels(np.zeros(bags, np.int64), np.ones(bags, bool))
    ids, none = np.array([f"b{n}" for n in range(bags)], object), np.full(bags, "", object)
    table = PredictionTable(Categorical(p), ids, labels, OodFlags.unknown(bags), none)
    return Predictions(table, None, Provenance(method=method))


def test_the_verdict_names_the_side_and_the_size_of_a_wrong_confidence() -> None:
    low, _ = judged(certain(0.7, 95))
    assert low[0].startswith("Accuracy 95.0\u00a0% (")
    assert low[1].startswith("Probabilities are too low by 25.0 points (")
    high, _ = judged(certain(0.99, 80))
    assert high[1].startswith("Probabilities are too high by 19.0 points (")
    assert not any("Probabilities" in text for text in judged(certain(0.9, 91))[0])  # which may be right


def test_the_verdict_says_what_calibration_made_of_a_wrong_confidence() -> None:
    rules = calibrate(certain(0.7, 95), deferral=None)
    decided = decide(certain(0.7, 94), rules)
    assert decided.bags.decisions is not None and decided.bags.decisions.calibrated is not None
    error = abs(0.94 - float(decided.bags.decisions.calibrated.probabilities[0].max()))
    assert error < 0.02
    sentences, _ = judged(decided)
    assert sentences[1].startswith("Probabilities before calibration are too low by 24.0 points (")
    after = f"Expected calibration error: 24.0\u00a0% before and {100 * error:.1f}\u00a0% after calibration."
    assert sentences[sentences.index("Calibrated on 100 bags.") + 1] == after
    without = calibrate(certain(0.7, 95), deferral=None, scaling=False)
    uncalibrated = " ".join(judged(decide(certain(0.7, 94), without))[0])
    assert "Probabilities are too low by 24.0 points (" in uncalibrated and "after calibration" not in uncalibrated


def separated(shift: float, scale: float = 1.0) -> Predictions:
    """Bags of two classes, whose log-odds are shifted by the class and scaled."""
    labels = np.arange(100) % 4 == 0
    odds = torch.from_numpy(scale * (np.random.default_rng(0).normal(size=100) + shift * labels - 1.1))
    given = certain(0.9, 100)
    p = torch.stack([torch.sigmoid(-odds), torch.sigmoid(odds)], 1)
    known = Labels(labels.astype(np.int64), np.ones(100, bool))
    return replace(given, bags=replace(given.bags, distribution=Categorical(p), labels=known))


def test_the_verdict_says_that_a_model_is_no_better_than_chance_or_than_the_class_shares() -> None:
    shares = -0.25 * np.log(0.25) - 0.75 * np.log(0.75)
    for shift, scale, chance, worse in ((0, 1, 1, 1), (4, 0.5, 0, 0), (4, 20, 0, 1), (1.5, 1, 0, 0)):
        given = separated(shift, scale)
        metrics, said = evaluate(given).bags.metrics, judged(given)[0]
        auroc, nll = metrics["auroc"].value, metrics["nll"].value
        assert auroc is not None and nll is not None
        text = f"These bags do not show that the model is better than chance: AUROC {100 * auroc:.1f}\u00a0% ("
        assert sum(one.startswith(text) for one in said) == chance
        text = f"Probabilities are no better than the class shares of these bags: NLL {nll:.3f}, that of the "
        assert sum(one == f"{text}shares {shares:.3f}." for one in said) == worse == (nll >= shares)
    decided = decide(separated(4, 20), calibrate(separated(4, 20), deferral=None))
    assert not any("no better" in one for one in judged(decided)[0])  # once they are scaled
    one_class = judged(certain(0.9, 95))[0]
    assert not any("chance" in one or "class shares" in one for one in one_class)


def test_a_class_of_which_no_bag_is_predicted_correctly_is_named() -> None:
    labels = np.arange(100) < 3  # a rare class, that is never predicted
    predictions = certain(0.9, 100)
    rare = replace(predictions.bags, labels=Labels(labels.astype(np.int64), np.ones(100, bool)))
    said = "No bag of {} (0 of 3) is predicted correctly."
    assert said.format("class 1") in judged(replace(predictions, bags=rare))[0]
    named = Predictions(rare, None, Provenance(method="m", classes=("healthy", "AML")))
    assert said.format("AML") in judged(named)[0]
    assert not any("No bag of" in text for text in judged(predictions)[0])


def test_ood_detection_is_by_the_distance_and_by_the_methods_own_measure() -> None:
    predictions = made_predictions(90)
    far = np.where(predictions.bags.is_ood.values, 2.0, 0.1)
    sentences, _ = judged(replace(predictions, bags=replace(predictions.bags, scores={"knn_mean": far})))
    own = evaluate(predictions).bags.ood["cats"].auroc.value
    assert own is not None and own < 1
    text = next(one for one in sentences if one.startswith("OOD detection (cats, 30 bags)"))
    assert "AUROC 100.0\u00a0% (94.9 to 100.0) by distance (knn mean)" in text
    assert f"{100 * own:.1f}\u00a0% (" in text and text.endswith("by vacuity.")


def test_as_many_bags_as_the_verdict_asks_for_are_enough_to_calibrate() -> None:
    needed = needed_by_default()
    assert f"with {needed} labeled bags" in " ".join(judged(certain(0.9, 91))[0])
    calibrate(certain(0.9, needed, needed))
    with pytest.raises(DataError, match=f"at least {needed} labeled bags"):
        calibrate(certain(0.9, needed - 1, needed - 1))


def test_the_verdict_asks_for_bags_of_as_many_patients_where_patients_have_several() -> None:
    alone, several = ([f"P{bag // count}" for bag in range(100)] for count in (1, 2))
    for patients, of in ((alone, ""), (several, " of as many patients")):
        given = certain(0.9, 91)
        text = " ".join(judged(replace(given, bags=replace(given.bags, patients=np.array(patients, object))))[0])
        assert f"with {needed_by_default()} labeled bags{of} that the model was not trained on" in text


def test_a_calibration_without_a_rule_for_bags_is_said_to_be_one() -> None:
    rules = calibrate(certain(0.9, 100), deferral=None, false_alarms=None)
    sentences, _ = judged(decide(certain(0.9, 95), rules))
    assert "Calibrated on 100 bags: no rule defers bags or calls them out of distribution." in sentences
    assert not any(sentence.startswith("Of 100 bags") for sentence in sentences)
    alarms = calibrate(certain(0.9, 100), deferral=None)  # a rule that calls bags out of distribution is one
    sentences, _ = judged(decide(certain(0.9, 95), alarms))
    assert "Calibrated on 100 bags." in sentences
    assert any(sentence.startswith("Of 100 bags, 0 are deferred and 0 flagged") for sentence in sentences)


@pytest.mark.parametrize(
    ("sets", "more"),
    [(3, []), (4, ["1 more out-of-distribution set is"]), (5, ["2 more out-of-distribution sets are"])],
)
def test_the_verdict_says_how_many_sets_it_leaves_to_the_table(sets: int, more: list[str]) -> None:
    predictions = made_predictions(90)
    out = predictions.bags.is_ood.values
    names = np.where(out, np.array([f"set {row // 3 % sets}" for row in range(90)], object), "")
    sentences, _ = judged(replace(predictions, bags=replace(predictions.bags, ood_sets=names)))
    assert sum(sentence.startswith("OOD detection (set ") for sentence in sentences) == 3
    assert [s.removesuffix(" in the table of metrics.") for s in sentences if " more out-of-" in s] == more


def test_decisions_are_counted_with_the_exact_interval_of_the_error_among_the_accepted() -> None:
    predictions = certain(0.9, 95)
    rules = calibrate(certain(0.9, 100), false_alarms=None)
    decided = decide(predictions, rules)
    sentences, _ = judged(decided)
    assert sentences[-3].startswith("Calibrated on 100 bags")
    assert sentences[-2] == "Expected calibration error: 5.0\u00a0% before and 4.0\u00a0% after calibration."
    low, high = exact_interval(5, 100)
    ends = f"({100 * low:.1f} to {100 * high:.1f})"
    assert sentences[-1].startswith("Of 100 bags, 0 are deferred and 0 flagged")
    assert sentences[-1].endswith(f"of 100 accepted bags with a label, 5 are incorrect: 5.0\u00a0% {ends}.")
    sentences, _ = judged(decide(certain(0.9, 99), rules))
    assert "of 100 accepted bags with a label, 1 is incorrect" in sentences[-1]


def test_methods_are_compared_by_paired_differences() -> None:
    _, differences = judged(certain(0.9, 80), certain(0.9, 90, method="other"))
    assert differences[0].startswith("other compared with m: accuracy +10.0 points (")
    _, differences = judged(certain(0.9, 90), certain(0.9, 90, method="other"))
    assert differences == ["other compared with m: no difference can be shown."]


def test_each_verdict_says_its_answer_itself_and_only_what_follows_is_said_once() -> None:
    """Two methods that are right on as many bags have the same answer, which must not end in the small print."""
    first, second = (judged(certain(0.9, 90, method=name))[0] for name in ("m", "other"))
    assert first[0] == second[0] and first[0].startswith("Accuracy 90.0")
    verdicts = [Verdict("m", first), Verdict("other", second)]
    assert shared_sentences(verdicts) == first[1:]


def differing(*correct: int) -> tuple[list[Difference], list[Table]]:
    """Differences between methods "m0", "m1", … of 0.9 confidence and so many of 100 bags correct."""
    made = [certain(0.9, count, method=f"m{number}") for number, count in enumerate(correct)]
    runs = compare(named_runs([(f"place_{number}", one) for number, one in enumerate(made)])).shared
    bags = evaluate_levels(runs, ("0", "1"), Resampling(200), no_track)["bags"]
    return bags.differences, bags.pairs


@pytest.mark.parametrize("methods", [2, 3, 6])
def test_every_two_methods_are_compared_on_the_same_bags(methods: int) -> None:
    counts = [90, 60, 89, 95, 70, 91][:methods]
    differences, tables = differing(*counts)
    assert len(differences) == methods * (methods - 1) / 2
    for one in differences:
        later, earlier = int(one.method[1]), int(one.reference[1])
        assert later > earlier
        assert one.values["accuracy"][0] == pytest.approx((counts[later] - counts[earlier]) / 100)
        assert one.values["accuracy"][1].excludes_zero == (abs(counts[later] - counts[earlier]) >= 4)
    assert bool(tables) == (methods > 2)
    for table in tables:
        names = [column.heading for column in table.columns]
        assert names == list_methods(differences) == [f"m{number}" for number in range(methods)]
        same = [[cell == SAME for cell in cells] for _, cells, _ in table.rows]
        assert same == np.eye(methods, dtype=bool).tolist()
    if tables:
        accuracy = next(table for table in tables if table.caption[0].startswith("accuracy"))
        above, below = accuracy.rows[1][1][0], accuracy.rows[0][1][1]
        assert (above.text, above.word, below.text, below.word) == ("−30.0", "worse", "+30.0", "better")
        low, high = above.below.split(" to ")
        assert below.below == f"{high} to {low}".replace("−", "+")


def test_the_verdict_names_the_best_of_several_methods_and_what_it_is_better_than() -> None:
    differences, _ = differing(90, 60, 89)
    said = compare_methods(differences)[0]
    assert said.startswith("Accuracy: m0 is best, and better than m1; 1 other pair differs.")
    said = compare_methods(differing(95, 60, 70, 75, 80)[0])[0]
    assert said.startswith("Accuracy: m0 is best, and better than m1, m2, m3 and m4; ")
    assert compare_methods(differing(90, 90, 90)[0])[-1].startswith("No two methods can be shown to differ in acc")


@pytest.mark.parametrize("counts", [(90, 90, 60), (90, 60, 90), (60, 90, 90)])
def test_methods_of_the_same_best_value_are_best_together_in_whatever_order_they_are(
    counts: tuple[int, ...],
) -> None:
    said = compare_methods(differing(*counts)[0])
    first, second = (f"m{number}" for number, count in enumerate(counts) if count == 90)
    together = f"{first} and {second} are best, with the same value, and better than m{counts.index(60)}."
    assert said[0] == f"Accuracy: {together}"
    assert f"NLL: {together}" in said  # where less is better
    said = compare_methods(differing(*counts, 90, 89)[0])
    assert said[0].endswith(f"and better than m{counts.index(60)}; 1 other pair differs.")


def test_the_mean_confidence_is_beside_its_difference_from_the_accuracy(tmp_path: Path) -> None:
    shown, _ = reported(tmp_path, certain(0.7, 95))
    at = shown.texts.index("mean confidence\u00a0%")
    assert shown.texts[at + 1] == "confidence − accuracy (points)"
    assert "70.0 1 no interval −25.0" in shown.text
    assert "it is the same in every resample, which gives no interval" in shown.text


def test_without_labels_the_verdict_says_what_labels_would_add() -> None:
    sentences, _ = judged(unlabeled(made_predictions()))
    assert sentences[0] == "Predicted classes of 30 bags: 12 class 0, 18 class 1."
    assert sentences[-1].startswith("No label is known, so accuracy")
    assert not any("Accuracy" in text for text in sentences)


def summary(table: PredictionTable, patients: Mapping[str, str] | None = None) -> dict[str, Any]:
    items, owners = Items.of(table), owners_of_items(table, patients or {})
    gathered = LevelSummary(table, items, owners)
    for measure in table.uncertainty_names:
        ranking = Ranking.of(table.uncertainty(measure))
        gathered.add(measure, ranking, ranking.among(items.judged))
    return gathered.finish(evaluate_level(table, items))


def test_points_of_the_reliability_diagram_hold_equally_many_with_exact_intervals() -> None:
    predictions = made_predictions(600).bags
    points = summary(predictions)["reliability"]
    assert len(points["count"]) == 10
    assert sum(points["count"]) == 400
    assert max(points["count"]) - min(points["count"]) <= 1
    inside = predictions.judged
    order = np.argsort(predictions.probabilities[inside].max(1), kind="stable")[: points["count"][0]]
    right = int((predictions.predicted == predictions.labels.values)[inside][order].sum())
    low, high = exact_interval(right, points["count"][0])
    assert (points["low"][0], points["high"][0]) == pytest.approx((low, high), rel=1e-5)
    few = summary(certain(0.9, 3, 4).bags)["reliability"]
    assert few["count"] == [4]  # equal confidences are one point


def test_intervals_of_the_figures_take_bags_of_a_patient_for_no_more_than_they_are() -> None:
    table = made_predictions(600).bags
    patients = {bag: f"patient {row // 5}" for row, bag in enumerate(table.bag_ids.tolist())}
    alone, shared = summary(table), summary(table, patients)
    measure = default_measures(table)[0]
    curve, judged = shared["coverage"][measure], np.flatnonzero(table.judged)
    order = judged[np.argsort(table.uncertainty(measure)[judged])]
    wrong = (table.predicted != table.labels.values)[order]
    of_patient = np.array([patients[bag] for bag in table.bag_ids[order]])
    for point in (len(curve["accepted"]) // 2, -1):
        accepted = curve["accepted"][point]
        wanted = grouped_error_interval(wrong[:accepted], of_patient[:accepted], 0.95)
        assert (curve["low"][point], curve["high"][point]) == pytest.approx(wanted, rel=1e-4)
        exact = exact_interval(int(wrong[:accepted].sum()), accepted)
        of_bags = alone["coverage"][measure]
        assert (of_bags["low"][point], of_bags["high"][point]) == pytest.approx(exact, rel=1e-4)
    assert shared["reliability"]["low"] != alone["reliability"]["low"]


def test_ten_copies_of_each_bag_of_a_patient_make_no_interval_narrower() -> None:
    once = made_predictions(200).bags
    rows = np.repeat(np.arange(len(once)), 10)
    names = np.array([f"{once.bag_ids[row]} copy {n % 10}" for n, row in enumerate(rows)], object)
    copied = replace(once.subset(rows), bag_ids=names)
    patients = {name: name.split(" copy")[0] for name in names}
    measure = default_measures(once)[0]
    wide, narrow = (summary(*of)["coverage"][measure] for of in ((copied, patients), (once, {})))
    assert wide["accepted"][-1] == 10 * narrow["accepted"][-1]
    assert wide["low"][-1] <= narrow["low"][-1] < narrow["high"][-1] <= wide["high"][-1]
    assert wide["high"][-1] - wide["low"][-1] < 1.1 * (narrow["high"][-1] - narrow["low"][-1])


def test_a_difference_that_rounds_to_zero_has_no_sign() -> None:
    shown = [metric_column("accuracy", {}).show(value, "+") for value in (0.0, -1e-5, 1e-5, -0.001)]
    assert shown == ["0.0", "0.0", "0.0", "−0.1"]


def test_ood_detection_is_compared_by_its_own_measure_where_there_is_no_distance() -> None:
    own, distance = (0.2, Interval(0.1, 0.3, 9)), (0.4, Interval(0.3, 0.5, 9))
    text = compare_methods([Difference("b", "a", {"ood cats": own})])
    assert text == ["b compared with a: detection of cats +20.0 points (+10.0 to +30.0)."]
    text = compare_methods([Difference("b", "a", {"ood cats": own, "detection cats": distance})])
    assert text == ["b compared with a: detection of cats +40.0 points (+30.0 to +50.0)."]


def test_bags_that_the_model_was_trained_on_are_said_beside_what_is_measured_on_them() -> None:
    given = made_predictions()
    parts = np.array(["train"] * 12 + ["validation"] * 3 + [""] * 15, object)
    for one in (given, unlabeled(given)):
        trained = replace(one, bags=replace(one.bags, training_parts=parts))
        sentences, _ = judged(trained)
        said = [text for text in sentences if text.startswith("The model was trained on 12 of these 30 bags")]
        assert len(said) == 1
        assert not sentences[0].startswith("The model")
        new = replace(one, bags=replace(one.bags, training_parts=np.where(parts == "train", "", parts)))
        assert not any(text.startswith("The model was trained") for text in judged(new)[0])


@pytest.mark.parametrize(
    ("value", "low", "high", "said"),
    [
        (-0.1, -0.2, -0.05, "net has a lower NLL than the baseline forest."),
        (-0.1, -0.2, 0.05, "No network can be shown to have a lower NLL than the baseline forest."),
        (0.1, 0.05, 0.2, "No network can be shown to have a lower NLL than the baseline forest."),
    ],
)
def test_one_sentence_says_whether_a_network_beats_the_baselines(
    value: float, low: float, high: float, said: str
) -> None:
    one = Difference("net", "forest", {"nll": (value, Interval(low, high, 100, ""))})
    assert compare_with_baselines([one], {"forest"}) == [said]
    assert compare_with_baselines([one.reverse()], {"forest"}) == [said]
    assert compare_with_baselines([one], {"net", "forest"}) == compare_with_baselines([one], set()) == []
