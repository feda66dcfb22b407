"""Metrics against scikit-learn, hand counts and definitions."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    log_loss,
    recall_score,
    roc_auc_score,
)

from miue.bags import Labels, OodFlags
from miue.common.text import ResultTable
from miue.distributions import Categorical, Dirichlet
from miue.evaluation import Evaluation, Metric, evaluate
from miue.evaluation.class_metrics import (
    brier_score,
    confidence_bins,
    expected_calibration_error,
    negative_log_likelihood,
)
from miue.evaluation.level import detection_score, evaluate_level
from miue.evaluation.metrics import NO_INSTANCE_LABEL, NO_LABEL, Judged, Owners
from miue.evaluation.ranking import (
    Ranking,
    area_under_risk_coverage,
    class_auroc,
    ranked_risk_coverage,
    separation,
)
from miue.predictions import Predictions, PredictionTable, Provenance
from miue.report.levels import Resampling
from miue.report.report import write_report


def level_table(evaluation: Evaluation) -> ResultTable:
    """The metrics of each level, the first table of an evaluation."""
    return next(evaluation.tables())


def table(
    distribution: Dirichlet | Categorical,
    labels: list[int | None],
    ood_sets: list[str] | None = None,
    scores: dict[str, np.ndarray] | None = None,
) -> PredictionTable:
    sets = np.array(ood_sets or [""] * len(labels), object)
    names = np.array([f"b{i}" for i in range(len(labels))], object)
    return PredictionTable(
        distribution, names, Labels.of(labels), OodFlags.of(sets != ""), sets, scores=scores or {}
    )


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=3, max_size=40))
def test_separation_equals_scikit_learn_with_ties(rows: list[tuple[int, bool]]) -> None:
    uncertainty = np.array([float(u) for u, _ in rows])
    wanted = np.array([w for _, w in rows])
    result = separation(uncertainty, wanted, names=("wanted", "unwanted"))
    if wanted.all() or not wanted.any():
        assert result.auroc.value is None
        return
    assert result.auroc.value == pytest.approx(roc_auc_score(wanted, -uncertainty))
    assert result.aupr.value == pytest.approx(average_precision_score(wanted, -uncertainty))
    pairs = [(u < v) + 0.5 * (u == v) for u in uncertainty[wanted] for v in uncertainty[~wanted]]
    assert result.auroc.value == pytest.approx(np.mean(pairs))
    thresholds = sorted(set(uncertainty))
    accepted = next(t for t in thresholds if (uncertainty[wanted] <= t).mean() >= 0.95)
    assert result.fpr95.value == pytest.approx((uncertainty[~wanted] <= accepted).mean())


def test_the_threshold_of_the_fpr_accepts_95_percent_of_the_wanted_items_and_no_more() -> None:
    uncertainty = np.array([*range(20), 17.5, 18.5])
    result = separation(uncertainty, np.arange(22) < 20, names=("wanted", "unwanted"))
    assert result.fpr95.value == 0.5


@pytest.mark.parametrize("values", [5, 1000])
def test_counts_in_blocks_are_those_of_all_values_at_once(values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(values)
    uncertainty, wanted = random.integers(0, values, 211).astype(float), random.random(211) < 0.7
    at_once = separation(uncertainty, wanted, names=("wanted", "unwanted"))
    assert at_once.aupr_unwanted.value == pytest.approx(average_precision_score(~wanted, uncertainty), abs=1e-15)
    monkeypatch.setattr("miue.evaluation.ranking.BLOCK", 2)
    assert separation(uncertainty, wanted, names=("wanted", "unwanted")) == at_once


def test_a_ranking_of_some_items_is_that_of_them_alone() -> None:
    random = np.random.default_rng(1)
    uncertainty, wanted, some = (
        random.integers(0, 30, 97).astype(float),
        random.random(97) < 0.5,
        np.arange(97) % 3 > 0,
    )
    among = Ranking.of(uncertainty).among(some)
    assert among.separation(wanted, names=("a", "b")) == separation(
        uncertainty[some], wanted[some], names=("a", "b")
    )
    owners = Owners(np.arange(97) % 7, 7)
    weights = random.integers(0, 3, (5, 7))
    alone = area_under_risk_coverage(uncertainty[some], wanted[some], owners[some])
    assert np.array_equal(ranked_risk_coverage(among, wanted, owners)(weights), alone(weights))


def test_aurc_is_the_mean_error_rate_over_all_coverages() -> None:
    uncertainty = np.array([0.1, 0.2, 0.3, 0.4])
    correct = np.array([True, False, True, False])
    assert area_under_risk_coverage(uncertainty, correct).plain.value == pytest.approx(
        (0 + 1 / 2 + 1 / 3 + 2 / 4) / 4
    )


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=12), st.randoms())
def test_aurc_does_not_depend_on_the_order_of_ties(rows: list[tuple[int, bool]], random: object) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    values = [
        area_under_risk_coverage(np.array([float(u) for u, _ in r]), np.array([c for _, c in r])).plain.value
        for r in (rows, shuffled)
    ]
    assert values[0] == pytest.approx(values[1])


def test_aurc_with_ties_is_the_mean_over_their_orders() -> None:
    tied = area_under_risk_coverage(np.zeros(2), np.array([True, False])).plain.value
    assert tied == pytest.approx(np.mean([(0 + 1 / 2) / 2, (1 + 1 / 2) / 2]))


def test_calibration_error_weighs_bins_by_their_items() -> None:
    p = np.array([0.95, 0.95, 0.95, 0.65])
    probabilities = np.stack([1 - p, p], 1)
    labels = np.array([1, 1, 0, 1])
    expected = (3 * abs(2 / 3 - 0.95) + 1 * abs(1 - 0.65)) / 4
    assert expected_calibration_error(Judged.of(probabilities, labels)).plain.value == pytest.approx(expected)


def test_a_bin_of_the_calibration_error_holds_its_upper_end() -> None:
    assert confidence_bins(np.array([0.0, 0.2, 0.2001, 0.4, 1.0]), 5).tolist() == [0, 0, 1, 1, 4]


def test_calibration_error_equals_the_bins_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    p = random.uniform(0.5, 1, 997)
    labels = (random.uniform(size=997) < p).astype(int)
    probabilities = np.stack([1 - p, p], 1)
    shares, means = calibration_curve(labels, p, n_bins=15)
    counts = np.histogram(p, np.linspace(0, 1, 16))[0]
    expected = np.abs(shares - means) @ counts[counts > 0] / 997
    assert expected_calibration_error(Judged.of(probabilities, labels)).plain.value == pytest.approx(expected)


def test_brier_and_likelihood_equal_scikit_learn() -> None:
    random = np.random.default_rng(1)
    p = random.uniform(size=101)
    labels = random.integers(0, 2, 101)
    binary = np.stack([1 - p, p], 1)
    assert brier_score(Judged.of(binary, labels)).plain.value == pytest.approx(2 * brier_score_loss(labels, p))
    assert negative_log_likelihood(Judged.of(binary, labels)).plain.value == pytest.approx(
        log_loss(labels, binary)
    )
    several = random.dirichlet(np.ones(3), 101)
    truth = random.integers(0, 3, 101)
    assert negative_log_likelihood(Judged.of(several, truth)).plain.value == pytest.approx(
        log_loss(truth, several)
    )
    assert class_auroc(lambda c: several[:, c], truth, 3).plain.value == pytest.approx(
        roc_auc_score(truth, several, multi_class="ovr")
    )


def test_a_label_of_probability_zero_has_no_likelihood() -> None:
    result = negative_log_likelihood(Judged.of(np.array([[1.0, 0.0]]), np.array([1]))).plain
    assert result == Metric(None, "probability zero for 1 label")


def test_an_evidential_model_is_judged_by_max_alpha_and_strength() -> None:
    random = np.random.default_rng(2)
    alpha = 1 + random.exponential(5, (200, 2))
    labels = random.integers(0, 2, 200).tolist()
    sets = [""] * 120 + ["far"] * 80
    level = evaluate_level(table(Dirichlet(torch.from_numpy(alpha)), labels, sets))
    inside = np.arange(200) < 120
    correct = (alpha.argmax(1) == labels)[inside]
    conf = roc_auc_score(correct, alpha.max(1)[inside])
    ood = roc_auc_score(inside, alpha.sum(1))
    assert level.confidence.auroc.value == pytest.approx(conf)
    assert level.ood["far"].auroc.value == pytest.approx(ood)
    assert level.metrics["ue"].value == pytest.approx((conf + ood) / 2)
    assert level.metrics["accuracy"].value == pytest.approx(correct.mean())
    assert level.labeled == 120


def test_a_softmax_model_is_judged_by_its_max_probability() -> None:
    random = np.random.default_rng(3)
    p = random.dirichlet(np.ones(3), 90)
    labels = random.integers(0, 3, 90)
    level = evaluate_level(table(Categorical(torch.from_numpy(p)), labels.tolist(), [""] * 60 + ["far"] * 30))
    expected = roc_auc_score((p.argmax(1) == labels)[:60], p.max(1)[:60])
    assert level.confidence.auroc.value == pytest.approx(expected)
    assert level.ood["far"].auroc.value == pytest.approx(roc_auc_score(np.arange(90) < 60, p.max(1)))


def test_each_foreign_set_is_compared_with_the_in_distribution_items_alone() -> None:
    alpha = torch.tensor([[9.0, 1.0], [8.0, 1.0], [5.0, 1.0], [20.0, 1.0]])
    level = evaluate_level(table(Dirichlet(alpha), [0, 0, None, None], ["", "", "near", "far"]))
    assert level.ood["near"].auroc.value == 1
    assert level.ood["far"].auroc.value == 0


def test_an_item_of_which_it_is_unknown_is_compared_with_no_set_whatever_its_name() -> None:
    alpha = torch.tensor([[9.0, 1.0], [8.0, 1.0], [5.0, 1.0], [20.0, 1.0]])
    given = table(Dirichlet(alpha), [0, 0, None, None], ["", "", "near", "near"])
    known = OodFlags(given.is_ood.values, np.array([True, True, True, False]))
    assert evaluate_level(replace(given, is_ood=known)).ood["near"].auroc.value == 1
    assert evaluate_level(given).ood["near"].auroc.value == 0.5


def test_out_of_distribution_sets_are_in_the_order_of_their_names() -> None:
    given = table(Dirichlet(torch.full((7, 2), 2.0)), [0, *[None] * 6], ["", *"fbdace"])
    assert list(evaluate_level(given).ood) == list("abcdef")


def test_extra_scores_are_treated_like_measures() -> None:
    distances = np.array([0.0, 1.0, 5.0])
    alpha = torch.full((3, 2), 2.0)
    level = evaluate_level(table(Dirichlet(alpha), [0, 0, None], ["", "", "far"], {"distance": distances}))
    assert level.by_measure["distance"].ood["far"].auroc.value == 1
    assert level.by_measure["vacuity"].ood["far"].auroc.value == 0.5


def test_measures_become_a_data_frame_with_a_row_for_each_metric_of_what_they_separate() -> None:
    alpha = torch.tensor([[9.0, 1.0], [1.0, 8.0], [5.0, 1.0], [20.0, 1.0]])
    bags = table(Dirichlet(alpha), [0, 0, None, None], ["", "", "near", "far"], {"mine": np.arange(4.0)})
    evaluation = evaluate(Predictions(bags, None))
    frame = evaluation.measures_to_frame()
    rows = frame.set_index(["level", "measure", "task", "metric"])
    assert rows.index.is_unique and rows.columns.tolist() == ["value", "reason"]
    measures = list(bags.uncertainties())
    assert len(frame) == len(measures) * 3 * 4 and "mine" in measures and set(frame["measure"]) == set(measures)
    assert rows.loc[("bags", "mine", "ood far", "auroc"), "value"] == 1
    expected = evaluation.bags.by_measure["vacuity"].confidence.fpr95
    assert rows.loc[("bags", "vacuity", "errors", "fpr95"), "value"] == expected.value
    without = evaluate(Predictions(table(Dirichlet(alpha), [None] * 4, [""] * 4), None)).measures_to_frame()
    assert without["value"].dtype == np.float64
    assert without["value"].isna().all() and without["reason"].str.len().min() > 0


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [(["knn", "combined"], "combined"), (["knn"], "knn"), (["knn_high", "knn_mean"], "knn_mean"), ([], "vacuity")],
)
def test_the_detection_is_that_of_the_distance_of_bags_and_of_instances(scores: list[str], chosen: str) -> None:
    of_scores = {name: np.array([1.0, 2.0]) for name in scores}
    assert detection_score(table(Dirichlet(torch.full((2, 2), 2.0)), [0, 0], ["", "far"], of_scores)) == chosen
    point = table(Categorical(torch.full((2, 2), 0.5)), [0, 0], ["", "far"], of_scores)
    assert detection_score(point) == (chosen if scores else "least_confidence")


def test_a_foreign_set_may_have_any_name() -> None:
    alpha = torch.tensor([[9.0, 1.0], [1.0, 8.0], [5.0, 1.0], [20.0, 1.0]])
    named = [
        evaluate_level(table(Dirichlet(alpha), [0, 0, 1, None], ["", "", "", name]))
        for name in ("far", "confidence")
    ]
    assert named[0].confidence == named[1].confidence
    assert named[0].ood["far"] == named[1].ood["confidence"] != named[0].confidence
    assert named[0].metrics["ue"] == named[1].metrics["ue"]


def test_the_table_has_a_row_for_each_score_at_both_levels() -> None:
    alpha, sets = torch.full((3, 2), 2.0), ["", "", "far"]
    bags = table(Dirichlet(alpha), [0, 1, None], sets, {"knn_mean": np.arange(3.0), "knn_high": np.arange(3.0)})
    instances = table(Dirichlet(alpha), [0, 1, None], sets, {"knn": np.array([3.0, 1.0, 2.0])})
    rendered = level_table(evaluate(Predictions(bags, instances)))
    assert ("OOD far, AUROC by knn", "100.00", "50.00") in rendered.rows
    assert not any("high" in title for title, *_ in rendered.rows)


def test_a_score_of_ones_own_has_a_row_whatever_its_name_ends_in() -> None:
    alpha, up = torch.full((3, 2), 2.0), np.arange(3.0)
    own = {"grade_high": up, "age_mean": -up, "median_mean": up, "median_high": -up}
    bags = table(Dirichlet(alpha), [0, 1, None], ["", "", "far"], own)
    rows = level_table(evaluate(Predictions(bags, None))).rows
    by_score = {row[0].removeprefix("OOD far, AUROC by "): row[1] for row in rows}
    assert (by_score["grade_high"], by_score["age_mean"], by_score["median"]) == ("100.00", "0.00", "100.00")
    assert not by_score.keys() & {"grade", "age", "median_high", "median_mean"}
    of_errors = {row[0]: row[1] for row in rows}  # the second bag alone is wrong
    assert [of_errors.get(f"Conf., AUROC by {name}") for name in own] == ["100.00", "0.00", None, None]


def test_an_evidential_table_has_conf_of_the_measure_that_is_deferred_by_too() -> None:
    alpha = torch.tensor(
        [[30.0, 20.0], [9.0, 1.0], [2.0, 1.0]]
    )  # the first has most evidence and least confidence
    evidential = evaluate(Predictions(table(Dirichlet(alpha), [1, 0, 0]), None))
    rows = {row[0]: row[1] for row in level_table(evidential).rows}
    assert (rows["Conf., AUROC"], rows["Conf., AUROC by least_confidence"]) == ("0.00", "100.00")
    point = evaluate(Predictions(table(Categorical(alpha / alpha.sum(1, keepdim=True)), [1, 0, 0]), None))
    rows = {row[0]: row[1] for row in level_table(point).rows}
    assert rows["Conf., AUROC"] == "100.00" and "Conf., AUROC by least_confidence" not in rows


@pytest.mark.parametrize("classes", [2, 3])
def test_recalls_and_the_confusion_matrix_equal_scikit_learn_of_the_items_that_are_judged(classes: int) -> None:
    random = np.random.default_rng(classes)
    alpha = torch.from_numpy(random.gamma(1.0, size=(60, classes)) + 0.1)
    truth = random.integers(classes, size=60)
    labels = [None if number % 7 == 0 else int(label) for number, label in enumerate(truth)]
    sets = ["far" if number % 5 == 0 else "" for number in range(60)]
    level = evaluate_level(table(Dirichlet(alpha), labels, sets))
    judged = [number for number in range(60) if number % 7 and number % 5]
    of, predicted = truth[judged], alpha.argmax(1).numpy()[judged]
    assert np.array_equal(level.confusion, confusion_matrix(of, predicted, labels=range(classes)))
    found = [level.recall_by_class[str(number)].value for number in range(classes)]
    assert found == pytest.approx(recall_score(of, predicted, average=None).tolist(), abs=1e-15)
    assert level.metrics["balanced_accuracy"].value == pytest.approx(balanced_accuracy_score(of, predicted))


def test_recalls_are_named_as_in_diagnostics_where_there_are_two_classes() -> None:
    two = Predictions(
        table(Dirichlet(torch.tensor([[9.0, 1.0], [5.0, 1.0], [5.0, 1.0]])), [0, 0, 1]),
        None,
        Provenance(classes=("benign", "tumor")),
    )
    rows = [(*row,) for row in level_table(evaluate(two)).rows]
    assert ("Specificity, recall of benign", "100.00") in rows
    assert ("Sensitivity, recall of tumor", "0.00") in rows
    assert ("Balanced acc.", "50.00") in rows
    assert "Items of the class metrics: bags benign (2), tumor (1)." in level_table(evaluate(two)).notes
    values = {metric: one.value for _, metric, one in evaluate(two).metrics()}
    assert (values["recall_benign"], values["recall_tumor"]) == (1, 0)
    three = Predictions(table(Dirichlet(torch.eye(3) + 1), [0, 1, 1]), None, Provenance(classes=("a", "B", "c")))
    rendered = level_table(evaluate(three))
    assert ("Recall of B", "50.00") in rendered.rows
    assert any("Recall of c" in note and "no item of class 'c' among 3" in note for note in rendered.notes)


def test_a_class_without_an_item_is_called_by_its_name_which_may_be_another_number(tmp_path: Path) -> None:
    numbers = Provenance(classes=("2", "9", "10"))
    lacking = Predictions(table(Dirichlet(torch.eye(3) + 1), [0, 1, 1]), None, numbers)
    evaluation = evaluate(lacking, groups=dict.fromkeys(lacking.bags.bag_ids.tolist(), "Leeds"))
    for level in (evaluation.bags, (evaluation.groups or {})["Leeds"].bags):
        reasons = {level.metrics[name].reason for name in ("auroc", "balanced_accuracy")}
        assert reasons | {level.recall_by_class["2"].reason} == {"no item of class '10' among 3"}
    groups = dict.fromkeys(lacking.bags.bag_ids.tolist(), "Leeds")
    write_report(tmp_path / "r.html", [("theirs", lacking)], groups=groups, resampling=Resampling(10))
    page = unescape((tmp_path / "r.html").read_text())
    assert "no item of class '10' among 3" in page and "no item of class 2 " not in page


def test_an_undefined_metric_has_no_row_but_its_reason_and_is_null_in_json() -> None:
    predictions = Predictions(table(Dirichlet(torch.tensor([[9.0, 1.0], [5.0, 1.0]])), [0, 0]), None)
    evaluation = evaluate(predictions)
    assert evaluation.bags.confidence.auroc == Metric(None, "no misclassified item among 2")
    assert evaluation.to_json()["bags"]["confidence"]["auroc"] == {
        "value": None,
        "reason": "no misclassified item among 2",
    }
    assert evaluation.bags.metrics["ue"].value is None
    rendered = level_table(evaluation)
    assert [row[0] for row in rendered.rows] == [
        *("Acc.", "Specificity, recall of 0"),
        *("ECE", "Brier", "NLL", "AURC"),
    ]
    assert any(
        note.startswith("No value of Conf., AUROC; Conf., AUPR; ")
        and note.endswith(": no misclassified item among 2")
        for note in rendered.notes
    )


def test_a_reason_counts_thousands_as_other_lines_do() -> None:
    certain = table(Dirichlet(torch.tensor([[9.0, 1.0]]).repeat(1655, 1)), [0] * 1655)
    bags = evaluate(Predictions(certain, None)).bags
    assert bags.confidence.auroc == Metric(None, "no misclassified item among 1,655")
    assert bags.metrics["balanced_accuracy"].reason == "no item of class 1 among 1,655"


def test_a_metric_that_one_level_lacks_is_a_dash_there_with_its_reason() -> None:
    alpha = torch.tensor([[9.0, 1.0], [5.0, 1.0]])
    tables = table(Dirichlet(alpha), [0, 1]), table(Dirichlet(alpha), [0, 0])
    rendered = level_table(evaluate(Predictions(*tables)))
    assert ("Conf., AUROC", "100.00", "— [1]") in rendered.rows
    assert "[1] no misclassified item among 2" in rendered.notes


def test_a_level_without_labels_has_no_column_but_the_reason() -> None:
    alpha = torch.tensor([[9.0, 1.0], [5.0, 1.0]])
    tables = table(Dirichlet(alpha), [0, 1]), table(Dirichlet(alpha), [None, None])
    rendered = level_table(evaluate(Predictions(*tables)))
    assert rendered.heading == ("metric", "bags (2)")
    assert f"No metric of instances (2): {NO_INSTANCE_LABEL}" in rendered.notes
    unknown = Predictions(table(Dirichlet(alpha), [None, None]), None)
    assert level_table(evaluate(unknown)).rows == ()
    assert f"No metric of bags (2): {NO_LABEL}" in str(evaluate(unknown)).replace("\n", " ")


def test_without_any_metric_the_reasons_are_all_that_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    alpha = torch.tensor([[9.0, 1.0], [5.0, 1.0]])
    evaluation = evaluate(Predictions(table(Dirichlet(alpha), [None, None]), None))
    [reason] = level_table(evaluation).notes
    assert reason == f"No metric of bags (2): {NO_LABEL}"
    assert str(evaluation).replace("\n", " ") == reason
    page = unescape(evaluation._repr_html_())
    assert "<table>" not in page and reason in page
    level_table(evaluation).show("Evaluation")
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "Evaluation" and " ".join(map(str.strip, lines)) == reason


def test_predictions_without_any_label_are_still_evaluated() -> None:
    level = evaluate_level(table(Dirichlet(torch.tensor([[9.0, 1.0], [3.0, 1.0]])), [None, None], ["", "far"]))
    assert level.metrics["accuracy"] == Metric(None, NO_LABEL)
    assert level.confidence.auroc == Metric(None, NO_LABEL)
    assert level.ood["far"].auroc.value == 1


def test_where_nothing_can_be_compared_no_uncertainty_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    alpha = torch.tensor([[9.0, 1.0], [3.0, 1.0], [2.0, 2.0]])
    unlabeled = table(Dirichlet(alpha), [None, None, None])
    seen: list[str] = []
    with_visit = evaluate_level(unlabeled, visit=lambda name, ranking, _: seen.append(f"{name} {len(ranking)}"))
    assert seen == [f"{name} 3" for name in unlabeled.uncertainty_names]
    monkeypatch.setattr(PredictionTable, "uncertainty", lambda *_: pytest.fail("read"))
    steps: list[None] = []
    assert evaluate_level(unlabeled, step=lambda: steps.append(None)) == with_visit
    assert len(steps) == len(seen)


def test_an_evaluation_prints_as_a_table_and_as_html_without_markup_of_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alpha = torch.tensor([[9.0, 1.0], [1.0, 8.0], [1.0, 5.0], [3.0, 1.0]])
    evaluation = evaluate(Predictions(table(Dirichlet(alpha), [0, 1, 0, None], ["", "", "", "[red]<b>"]), None))
    lines = str(evaluation).splitlines()
    assert lines[0].split() == ["metric", "bags", "(4)"]
    assert lines[2].split() == ["Acc.", "66.67"] and len({len(line) for line in lines[:5]}) == 1
    assert repr(evaluation) == str(evaluation) and "OOD [red]<b>, AUROC" in str(evaluation)
    page = evaluation._repr_html_()
    assert "<td style='text-align:right'>66.67</td>" in page
    assert "OOD [red]&lt;b&gt;, AUROC" in page and "<b>" not in page
    level_table(evaluation).show("Evaluation")
    assert "OOD [red]<b>, AUROC" in capsys.readouterr().out
