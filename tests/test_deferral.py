"""Deferral: its tests in order, what they promise over many draws, and bags of one patient."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_promises import RUNS, predictions_of, within_band
from scipy.stats import binom

from miue.calibration import CalibrationBags, DeferralGoal, FalseAlarmGoal, calibrate, count_patients, deferral
from miue.calibration.compared import counted_rows
from miue.calibration.deferral import (
    ORDERING_PART,
    fallback_tests,
    fit_deferral,
    needed_for_deferral,
    starting_shares,
)
from miue.calibration.ranks import needed_for_tolerance, p_values
from miue.common.errors import ConfigError, DataError
from miue.distributions import Categorical
from miue.predictions import Predictions

MEASURE = "least_confidence"


def deferral_problem(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Uncertainties u ~ U(0, 1), and whether predictions are right: wrong with chance 0.5 u⁴."""
    uncertainty = random.random(count)
    return uncertainty, random.random(count) >= 0.5 * uncertainty**4


def true_error_below(threshold: float) -> float:
    return 0.1 * min(threshold, 1.0) ** 4


@pytest.mark.parametrize(("count", "target"), [(200, 0.05), (600, 0.03)])
def test_the_true_error_among_the_kept_exceeds_the_target_no_oftener_than_promised(
    count: int, target: float
) -> None:
    random = np.random.default_rng(7)
    exceeded = answered = 0
    shares = []
    for run in range(RUNS):
        uncertainty, correct = deferral_problem(random, count)
        rule = fit_deferral(uncertainty, correct, MEASURE, DeferralGoal(target, 0.9), seed=run)
        if rule.refused:
            continue
        answered += 1
        threshold = 1.0 if rule.threshold is None else rule.threshold
        shares.append(threshold)
        exceeded += true_error_below(threshold) > target
    assert exceeded <= binom.ppf(0.9995, RUNS, 0.1)
    assert answered > 0.6 * RUNS
    assert np.median(shares) > 0.7 * (target / 0.1) ** 0.25


def test_errors_among_the_most_certain_do_not_end_the_search() -> None:
    """Wrong with chance 0.02 whatever the uncertainty: one start, at the most certain, often meets an error."""
    random = np.random.default_rng(21)
    answered = from_one_start = 0
    for run in range(RUNS):
        uncertainty, correct = random.random(500), random.random(500) >= 0.02
        most_certain = correct[np.argsort(uncertainty)][:60]  # one error is enough to fail below 77 bags
        from_one_start += bool(most_certain.all())
        answered += not fit_deferral(uncertainty, correct, MEASURE, DeferralGoal(0.05, 0.9), seed=run).refused
    assert from_one_start < 0.4 * RUNS
    assert answered > 0.8 * RUNS


def test_a_later_start_passes_where_all_bags_together_have_too_many_errors() -> None:
    """As above up to seven bags in ten; of the others half are wrong, so that the share for all is no help."""
    random = np.random.default_rng(23)
    answered = from_one_start = 0
    for run in range(RUNS):
        uncertainty = random.random(800)
        correct = random.random(800) >= np.where(uncertainty < 0.7, 0.02, 0.5)
        from_one_start += bool(correct[np.argsort(uncertainty)][:60].all())
        answered += not fit_deferral(uncertainty, correct, MEASURE, DeferralGoal(0.05, 0.9), seed=run).refused
    assert from_one_start < 0.4 * RUNS
    assert answered > 0.7 * RUNS, answered / RUNS


def test_the_first_threshold_accepts_as_many_bags_as_its_share_of_the_chance_needs() -> None:
    """Without an error up to so many bags and with errors alone beyond, no other threshold can pass."""
    random = np.random.default_rng(27)
    answered = 0
    for run in range(RUNS):
        uncertainty = random.random(600)
        rule = fit_deferral(uncertainty, uncertainty < 0.3, MEASURE, DeferralGoal(0.05, 0.9), seed=run)
        answered += not rule.refused
    assert answered > 0.87 * RUNS


def test_the_promise_holds_where_the_error_rises_and_falls_with_the_uncertainty() -> None:
    """Wrong with chance 0.2 in the middle, else 0.012: the error among the accepted crosses the target twice."""
    random = np.random.default_rng(22)
    grid = np.linspace(0, 1, 10_001)[1:]
    wrong = np.where((grid > 0.5) & (grid < 0.7), 0.2, 0.012)
    below = wrong.cumsum() / np.arange(1, 10_001)
    assert (np.diff((below > 0.05).astype(int)) != 0).sum() == 2
    exceeded = 0
    for run in range(RUNS):
        uncertainty = random.random(600)
        correct = random.random(600) >= wrong[(uncertainty * 10_000).astype(int)]
        rule = fit_deferral(uncertainty, correct, MEASURE, DeferralGoal(0.05, 0.9), seed=run)
        if rule.refused:
            continue
        threshold = 1.0 if rule.threshold is None else rule.threshold
        exceeded += below[int(threshold * 10_000) - 1] > 0.05
    assert 0 < exceeded <= binom.ppf(0.9995, RUNS, 0.1)


def test_one_start_is_testing_in_a_fixed_sequence() -> None:
    random = np.random.default_rng(23)
    for _ in range(50):
        p = random.random(11) ** 4
        assert (
            fallback_tests(p, starting_shares(len(p), 1, 0.1)).tolist()
            == np.cumprod(p <= 0.1).astype(bool).tolist()
        )


def test_tests_in_order_are_those_of_mapie_and_handing_on_a_share_adds_to_them() -> None:
    """MAPIE's starts keep their own share; ours hand it on, so that what MAPIE rejects ours reject as well."""
    from mapie.risk_control.fwer_control import FWERFixedSequenceTesting, control_fwer

    random = np.random.default_rng(26)
    more = 0
    for _ in range(300):
        p = random.random(12) ** 6
        in_order = np.flatnonzero(fallback_tests(p, starting_shares(len(p), 1, 0.1)))
        assert in_order.tolist() == list(control_fwer(p, 0.1, "fixed_sequence"))
        for starts in (2, 3, 4):
            theirs = set(control_fwer(p, 0.1, FWERFixedSequenceTesting(starts)))
            ours = set(np.flatnonzero(fallback_tests(p, starting_shares(len(p), starts, 0.1 / starts))).tolist())
            assert theirs <= ours
            more += theirs < ours
    assert more > 0


@pytest.mark.long
@pytest.mark.parametrize("starts", [1, 2, 4])
def test_a_true_hypothesis_is_rejected_no_oftener_than_the_level(starts: int) -> None:
    """The first and the last hypotheses are false with p-values of zero; the true ones have uniform p-values."""
    random = np.random.default_rng(24)
    for true in (slice(0, 13), slice(5, 13), slice(3, 8)):
        rejected = 0
        for _ in range(20 * RUNS):
            p = np.zeros(13)
            p[true] = random.random(len(p[true]))
            rejected += bool(fallback_tests(p, starting_shares(len(p), starts, 0.1 / starts))[true].any())
        assert rejected <= binom.ppf(0.9995, 20 * RUNS, 0.1)
        if true == slice(5, 13) and starts == 1:
            assert within_band(rejected, 20 * RUNS, 0.1)


def test_choosing_the_threshold_on_the_tested_bags_breaks_the_promise_that_testing_in_order_keeps() -> None:
    """A coin-like measure: every threshold has the error 0.051, above the target of 0.05."""
    random = np.random.default_rng(8)
    ours = naive = 0
    for run in range(RUNS):
        uncertainty, correct = random.random(300), random.random(300) >= 0.051
        ours += not fit_deferral(uncertainty, correct, MEASURE, DeferralGoal(0.05, 0.9), seed=run).refused
        order = np.argsort(uncertainty)
        errors = np.cumsum(~correct[order])
        naive += bool((p_values(errors, np.arange(1, 301), 0.05) <= 0.1).any())
    assert ours <= binom.ppf(0.9995, RUNS, 0.1)
    assert naive > binom.ppf(0.9995, RUNS, 0.1)


@pytest.mark.long
def test_the_promise_covers_the_bags_that_also_pass_the_distribution_threshold() -> None:
    """Bags with a high score are right more often, so that taking them away raises the error of the rest."""
    random = np.random.default_rng(9)
    exceeded = 0
    for _ in range(RUNS):
        score = random.random(600)
        labels = (random.random(600) < np.where(score > 0.7, 0.0, 0.05 / 0.7 * 1.02)).astype(np.int64)
        p = np.tile([0.9, 0.1], (600, 1)) + random.random((600, 1)) * [[1e-3, -1e-3]]
        given = predictions_of(Categorical(torch.from_numpy(p)), labels, scores={"score": score})
        made = calibrate(
            given,
            scaling=False,
            prediction_sets=None,
            deferral=DeferralGoal(0.07, 0.9),
            false_alarms=FalseAlarmGoal(0.3, "score"),
        )
        assert made.false_alarms is not None
        assert made.deferral is not None
        if made.deferral.refused:
            continue
        cut = made.false_alarms.threshold
        error = 0.05 / 0.7 * 1.02 * min(cut, 0.7) / cut
        exceeded += error > 0.07
    assert exceeded <= binom.ppf(0.9995, RUNS, 0.1)
    reachable = calibrate(
        given,
        scaling=False,
        prediction_sets=None,
        deferral=DeferralGoal(0.12, 0.9),
        false_alarms=FalseAlarmGoal(0.3, "score"),
    )
    assert reachable.deferral is not None
    assert not reachable.deferral.refused  # it does not keep the promise by refusing always


# Patients


def of_patients(patients: list[str | None], correct: np.ndarray) -> Predictions:
    random = np.random.default_rng(len(patients))
    p = 0.8 + 0.1 * random.random(len(patients))
    given = predictions_of(Categorical(torch.from_numpy(np.stack([p, 1 - p], 1))), (~correct).astype(np.int64))
    return replace(given, bags=replace(given.bags, patients=np.array(patients, object)))


def test_one_bag_of_each_patient_counts_and_patients_that_are_not_known_count_bag_by_bag() -> None:
    patients = ["a", "b", "a", None, "", "c", "a"]
    given = of_patients(patients, np.ones(7, bool))
    drawn = set()
    for seed in range(40):
        rows = counted_rows(given.bags.patients, 7, "one", seed)
        assert [patients[row] for row in rows].count("a") == 1
        assert {1, 3, 4, 5} <= set(rows.tolist())
        assert len(rows) == count_patients(given.bags.patients) == 5
        drawn |= set(rows.tolist())
    assert drawn == set(range(7))
    assert len(counted_rows(given.bags.patients, 7, "all", 0)) == 7
    with pytest.raises(ConfigError, match="one or all"):
        counted_rows(given.bags.patients, 7, "some", 0)


@pytest.mark.long
def test_bags_of_one_patient_break_the_promise_that_one_bag_of_each_keeps() -> None:
    """Six bags of each of 60 patients, all right or all wrong, with an error above the target."""
    random = np.random.default_rng(25)
    names: list[str | None] = [f"patient {i // 6}" for i in range(360)]
    passed = {"one": 0, "all": 0}
    for run in range(RUNS):
        given = of_patients(names, np.repeat(random.random(60) >= 0.055, 6))
        for counting in passed:
            made = calibrate(
                given,
                scaling=False,
                prediction_sets=None,
                false_alarms=None,
                deferral=DeferralGoal(0.05, 0.9),
                settings={"bags_of_patient": counting, "seed": run},
            )
            assert made.deferral is not None
            passed[counting] += not made.deferral.refused
    assert 0 < passed["one"] <= binom.ppf(0.9995, RUNS, 0.1)
    assert passed["all"] > binom.ppf(0.9995, RUNS, 0.1)


def test_a_calibration_tells_how_patients_were_counted() -> None:
    names: list[str | None] = [f"patient {i // 2}" for i in range(200)]
    given = of_patients(names, np.ones(200, bool))
    other = CalibrationBags(caveat="the other")
    drawn = calibrate(given, made_from=other).made_from
    assert (drawn.bags, drawn.patients, drawn.left_out) == (100, 100, 100)
    assert drawn.caveat == "the other"
    counted = calibrate(given, made_from=other, settings={"bags_of_patient": "all"}).made_from
    assert counted.bags == 200
    assert "alike" in counted.caveat
    assert counted.caveat.endswith("; the other")
    few = of_patients(names[:80], np.ones(80, bool))
    with pytest.raises(DataError, match=r"got 40 labeled bags \(one bag of each of 40 patients, of 80 bags\)"):
        calibrate(few, false_alarms=None)


def test_bags_that_equal_the_threshold_are_accepted_in_the_tests_too() -> None:
    uncertainty = np.repeat([0.25, 0.75], [300, 100])  # all are wrong from 0.75 on
    rule = fit_deferral(uncertainty, uncertainty < 0.5, MEASURE, DeferralGoal(0.05, 0.9))
    assert rule.threshold is not None and 0.25 <= rule.threshold < 0.75
    assert (rule.errors, rule.bags) == (0, 360)  # one bag in ten tests nothing


def test_a_p_value_that_equals_its_level_passes() -> None:
    assert fallback_tests(np.array([0.25, 0.25]), np.array([0.25, 0])).all()
    assert fallback_tests(np.array([0.3, 0.1 + 0.2]), np.array([0.3, 0])).all()


def test_what_has_no_share_is_not_rejected_however_small_its_p_value() -> None:
    assert fallback_tests(np.array([0.9, 0.0, 0.0]), np.array([0.05, 0, 0.05])).tolist() == [False, False, True]


@pytest.mark.parametrize("count", [60, 100, 400, 3000])
@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_no_more_than_the_allowed_chance_is_shared_among_the_tests(
    count: int, confidence: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: list[float] = []

    def spy(p: np.ndarray, shares: np.ndarray) -> np.ndarray:
        shared.append(float(shares.sum()))
        return fallback_tests(p, shares)

    monkeypatch.setattr(deferral, "fallback_tests", spy)
    uncertainty, correct = deferral_problem(np.random.default_rng(3), count)
    fit_deferral(uncertainty, correct, MEASURE, DeferralGoal(0.1, confidence))
    assert shared == pytest.approx([1 - confidence], rel=1e-12)


@pytest.mark.parametrize("max_error", [0.01, 0.03, 0.05, 0.1])
def test_a_deferral_asks_for_as_few_bags_as_leave_enough_to_test(max_error: float) -> None:
    goal = DeferralGoal(max_error, 0.9)
    count, enough = needed_for_deferral(goal), needed_for_tolerance(max_error, 0.9)
    left = [n - n // ORDERING_PART for n in (count - 1, count)]
    assert left == [enough - 1, enough]


def test_the_seed_says_which_bags_are_ordered_by() -> None:
    uncertainty, correct = deferral_problem(np.random.default_rng(3), 400)
    rules = [fit_deferral(uncertainty, correct, MEASURE, DeferralGoal(0.05, 0.9), seed=s) for s in (0, 0, 1, 2)]
    assert rules[0] == rules[1]
    assert len({rule.threshold for rule in rules}) > 1


def test_the_deferral_is_tested_strictly_below_the_distribution_threshold() -> None:
    p = np.tile([0.9, 0.1], (100, 1))
    given = predictions_of(Categorical(torch.from_numpy(p)), np.zeros(100), scores={"far": np.arange(100.0)})
    made = calibrate(given, false_alarms=FalseAlarmGoal(0.05, "far"))
    assert made.false_alarms is not None and made.deferral is not None
    assert made.false_alarms.threshold == 95
    assert made.deferral.bags == 95 - 95 // 10


def test_a_deferral_of_all_says_how_many_bags_are_below_the_distribution_threshold() -> None:
    p, far = np.tile([0.9, 0.1], (60, 1)), np.r_[np.arange(40.0), np.full(20, 50.0)]
    given = predictions_of(Categorical(torch.from_numpy(p)), np.zeros(60), scores={"far": far})
    deferral = calibrate(given, false_alarms=FalseAlarmGoal(0.05, "far")).deferral
    assert deferral is not None
    wanted = "40 bags below the out-of-distribution threshold, where 49 are needed; 20 equal it"
    assert (deferral.refused, deferral.bags) == (wanted, 40)
    assert deferral.fitted == "defer all"
    assert deferral.promise.endswith("; no threshold passed")


def test_one_error_is_counted_as_one() -> None:
    correct = np.arange(60) > 0  # the error is the most certain bag
    rule = fit_deferral(np.arange(60.0), correct, MEASURE, DeferralGoal(0.05, 0.9), seed=1)
    assert "at best 1 error among the " in rule.refused


def test_a_refusal_says_how_many_more_bags_would_pass_or_that_they_would_not() -> None:
    random = np.random.default_rng(30)
    rules = [
        fit_deferral(random.random(85), np.ones(85, bool), MEASURE, DeferralGoal(0.05, 0.9), seed=run)
        for run in range(100)
    ]
    reasons = [rule.refused for rule in rules if rule.refused]
    assert reasons
    for reason in reasons:
        found = re.search(r"at best 0 errors among the (\d+) .* 45 pass\); about (\d+) more labeled bags", reason)
        assert found is not None
        assert 45 <= int(found[1]) * (1 + int(found[2]) / 85) <= 46.5
    wrong = fit_deferral(random.random(85), np.arange(85) % 3 > 0, MEASURE, DeferralGoal(0.05, 0.9))
    assert "more bags alone will hardly help" in wrong.refused
    assert "at most 5 % may be" in wrong.refused


def test_bags_with_an_infinite_uncertainty_are_deferred() -> None:
    uncertainty = np.where(np.arange(400) % 2, np.inf, np.random.default_rng(3).uniform(0, 1, 400))
    rule = fit_deferral(uncertainty, np.isfinite(uncertainty), MEASURE, DeferralGoal(0.05, 0.9))
    assert rule.threshold is not None and 0 < rule.threshold < np.inf
    assert rule.accepted > 80 and rule.errors == 0


def test_the_reason_names_a_test_that_was_made_not_a_later_threshold_that_would_have_passed() -> None:
    """Two errors among all 45 bags would pass, but the sequence ended at the few most certain ones."""
    correct = np.arange(50) > 1  # the errors are the most certain bags
    rule = fit_deferral(np.arange(50.0), correct, MEASURE, DeferralGoal(0.15, 0.9), seed=0)
    begins = r"(\d+) errors? among the (\d+) most certain ones, where they begin \(.* 15 pass\)"
    found = re.search(begins, rule.refused)
    assert found is not None
    assert p_values(np.array([int(found[1])]), np.array([int(found[2])]), 0.15) > 0.01
    assert p_values(np.array([2]), np.array([45]), 0.15) < 0.1


@pytest.mark.parametrize("count", [99, 110, 150, 300])
def test_a_model_without_errors_is_never_deferred_as_a_whole(count: int) -> None:
    """Too few bags may happen to lie below the first threshold: a part of the chance is kept for all bags."""
    random = np.random.default_rng(29)
    for run in range(RUNS):
        rule = fit_deferral(random.random(count), np.ones(count, bool), MEASURE, DeferralGoal(0.05, 0.9), seed=run)
        assert (rule.refused, rule.threshold) == ("", None)
