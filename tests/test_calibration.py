"""Calibration: what each part promises holds over many random splits, and agrees with other libraries."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import ceil, comb, floor, log
from pathlib import Path

import numpy as np
import pytest
import torch
from made_flags import scored_bags
from made_promises import RUNS, exact_interval, predictions_of, within_band
from scipy.stats import beta, binom, binomtest, t

from miue.calibration import (
    SET_SCORES,
    Calibration,
    ClassMix,
    CovariateShift,
    DeferralGoal,
    FalseAlarmGoal,
    InstanceGoal,
    PredictionSetGoal,
    calibrate,
    grouped_error_interval,
)
from miue.calibration.false_alarms import fit_false_alarms
from miue.calibration.prediction_sets import fit_prediction_sets
from miue.calibration.ranks import conformal_rank, needed_for_rank, needed_for_tolerance, p_values, tolerance_rank
from miue.common.errors import ConfigError, DataError
from miue.distributions import Categorical
from miue.predictions import Predictions, Provenance, read_predictions


def softmax_problem(count: int, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities, and labels drawn from sharper ones: a model that is not calibrated."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(count, classes)) * 2
    true = torch.from_numpy(logits).softmax(-1).numpy()
    labels = (true.cumsum(1) < random.random((count, 1))).sum(1).clip(max=classes - 1)
    return torch.from_numpy(logits * 1.7).softmax(-1).numpy(), labels


def error_bound(errors: int, count: int, confidence: float) -> float:
    """The exact bound of scipy, which an error rate exceeds with chance at most 1 − confidence."""
    return float(binomtest(errors, count, alternative="less").proportion_ci(confidence, "exact").high)


# Ranks and bounds


@pytest.mark.parametrize("error", [0.01, 0.05, 0.1, 0.2, 0.3, 0.5])
def test_the_rank_is_the_first_whose_exact_chance_to_be_exceeded_is_small_enough(error: float) -> None:
    for count in range(1, 200):
        rank = conformal_rank(count, error)
        chance = [(count + 1 - k) / (count + 1) for k in range(count + 2)]  # of exceeding the k-th smallest
        assert chance[rank] <= error + 1e-12
        assert chance[rank - 1] > error + 1e-12
        assert (rank <= count) == (count >= needed_for_rank(error))


def test_a_rank_is_right_where_floating_point_says_otherwise() -> None:
    assert 100 - floor(100 * 0.29) == 72  # the naive form: 100 · 0.29 is a hair below 29
    assert conformal_rank(99, 0.29) == 71


def test_bags_needed_are_those_of_the_formulas() -> None:
    assert [needed_for_rank(e) for e in (0.1, 0.05, 0.03)] == [9, 19, ceil(1 / 0.03) - 1]
    for error, confidence in ((0.05, 0.9), (0.1, 0.95), (0.01, 0.99)):
        needed = needed_for_tolerance(error, confidence)
        assert needed == ceil(log(1 - confidence) / log(1 - error))
        assert error_bound(0, needed, confidence) <= error < error_bound(0, needed - 1, confidence)
        assert tolerance_rank(needed, error, confidence) == needed
        assert tolerance_rank(needed - 1, error, confidence) == needed


@pytest.mark.parametrize("error", [0.1, 0.2, 0.25, 0.3, 0.5])
def test_a_tolerance_rank_is_right_where_the_chance_equals_the_confidence(error: float) -> None:
    """Confidences that some rank of some count meets exactly; SciPy's quantile is off by one for a few of them."""
    assert (needed_for_tolerance(0.2, 0.36), tolerance_rank(2, 0.2, 0.36)) == (2, 2)
    assert tolerance_rank(1, 0.3, 3 * 0.1) == 2  # a confidence a hair above 0.3, which one bag cannot reach
    assert fit_false_alarms(np.array([1.0, 2.0]), "s", FalseAlarmGoal(0.2, confidence=0.36)).threshold == 2.0
    share = Fraction(str(error))
    for count in range(1, 16):
        for confidence in (0.1, 0.19, 0.25, 0.271, 0.36, 0.488, 0.5, 0.51, 0.657, 0.75, 0.875, 0.9, 0.99):
            chances = [comb(count, j) * (1 - share) ** j * share ** (count - j) for j in range(count)]
            reached = [sum(chances[:k]) >= Fraction(str(confidence)) for k in range(1, count + 1)]
            wanted = reached.index(True) + 1 if any(reached) else count + 1
            assert tolerance_rank(count, error, confidence) == wanted
            assert (tolerance_rank(count, error, confidence) <= count) == (
                count >= needed_for_tolerance(error, confidence)
            )


def test_bags_that_no_patient_shares_have_the_exact_interval() -> None:
    for errors, count in ((0, 7), (3, 40), (17, 17)):
        wrong = np.arange(count) < errors
        interval = grouped_error_interval(wrong, np.arange(count), 0.95)
        assert interval == pytest.approx(exact_interval(errors, count), abs=1e-12)


@pytest.mark.parametrize("wrong_of_patient", [0, 4])
def test_patients_who_are_all_right_or_all_wrong_count_once(wrong_of_patient: int) -> None:
    wrong = np.repeat([wrong_of_patient > 0] * 3, 4)
    interval = grouped_error_interval(wrong, np.repeat(["a", "b", "c"], 4), 0.95)
    assert interval == pytest.approx(exact_interval(3 * wrong_of_patient // 4, 3), abs=1e-12)
    of_one = grouped_error_interval(wrong, np.repeat("a", 12), 0.95)
    assert of_one == pytest.approx(exact_interval(wrong_of_patient // 4, 1), abs=1e-12)


def test_the_interval_of_grouped_errors_is_that_of_their_effective_number() -> None:
    wrong = np.array([1, 1, 0, 0, 0, 1, 0, 0, 0, 0], bool)
    patients = np.array(list("aabbbcdddd"), object)
    # rate 0.3; errors less expected: 1.4, -0.9, 0.7, -1.2; sum of squares 4.7, of variance 4.7 · 4 / 3 / 10²
    t_ratio = t.ppf(0.975, 9) / t.ppf(0.975, 3)
    effective = 0.21 / (4.7 * 4 / 3 / 100) * t_ratio**2
    low, high = grouped_error_interval(wrong, patients, 0.95)
    assert low == pytest.approx(beta.ppf(0.025, 0.3 * effective, 0.7 * effective + 1))
    assert high == pytest.approx(beta.ppf(0.975, 0.3 * effective + 1, 0.7 * effective))


def test_errors_that_differ_less_between_patients_than_by_chance_count_as_independent_ones() -> None:
    wrong = np.tile([True, False], 20)  # one bag of each patient, and both of one
    wrong[1] = True
    interval = grouped_error_interval(wrong, np.repeat(np.arange(20), 2), 0.95)
    assert interval == pytest.approx(exact_interval(21, 40), abs=1e-12)
    wrong = np.tile(np.arange(10) == 0, 8)  # alike in all patients: no variance between them
    interval = grouped_error_interval(wrong, np.repeat(np.arange(8), 10), 0.95)
    assert interval == pytest.approx(exact_interval(8, 80), abs=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(("patients", "rate", "alike"), [(40, 0.05, 1.0), (100, 0.1, 0.8), (60, 0.2, 0.0)])
def test_the_interval_holds_the_rate_where_bags_of_a_patient_are_alike(
    patients: int, rate: float, alike: float
) -> None:
    random, kept, independent = np.random.default_rng(4), 0, 0
    for _ in range(RUNS):
        sizes = random.integers(1, 6, patients)
        of_patient = random.random(patients) < rate
        group = np.repeat(np.arange(patients), sizes)
        own = random.random(len(group)) < rate
        wrong = np.where(random.random(len(group)) < alike, of_patient[group], own)
        low, high = grouped_error_interval(wrong, group, 0.95)
        kept += low <= rate <= high
        low, high = exact_interval(int(wrong.sum()), len(wrong))
        independent += low <= rate <= high
    assert kept >= binom.ppf(0.001, RUNS, 0.95)
    assert alike == 0 or independent < 0.91 * RUNS


def test_the_test_passes_exactly_where_the_bound_is_small_enough() -> None:
    for count in (40, 61, 200):
        errors = np.arange(count + 1)
        passed = p_values(errors, np.full(count + 1, count), 0.07) <= 0.1
        assert passed.tolist() == [error_bound(int(e), count, 0.9) <= 0.07 for e in errors]
        assert passed.any()


# Prediction sets


def coverage_chance(count: int, rank: int) -> float:
    """Chance that a new score is at most the rank-th smallest of ``count``."""
    return rank / (count + 1)


@pytest.mark.parametrize("score", sorted(SET_SCORES))
def test_prediction_sets_cover_as_often_as_the_theory_says_over_random_splits(score: str) -> None:
    count, error = 37, 0.1
    probabilities, labels = softmax_problem(RUNS * (count + 1), seed=1)
    covered = 0
    for run in range(RUNS):
        part = slice(run * (count + 1), (run + 1) * (count + 1))
        p, y = probabilities[part], labels[part]
        sets = fit_prediction_sets(p[:-1], y[:-1], PredictionSetGoal(error, score))
        covered += bool(sets.of(p[-1:])[0, y[-1]])
    rank = conformal_rank(count, error)
    assert within_band(covered, RUNS, coverage_chance(count, rank))
    own = fit_prediction_sets(probabilities[:count], labels[:count], PredictionSetGoal(error, score)).of(
        probabilities[:count]
    )
    assert own[np.arange(count), labels[:count]].sum() == rank  # the bag at the threshold is covered


def test_an_index_off_by_one_leaves_the_band_that_the_right_one_keeps() -> None:
    count, error, runs = 19, 0.05, 20_000
    scores = np.sort(np.random.default_rng(2).random((runs, count)), 1)
    new = np.random.default_rng(3).random(runs)
    rank = conformal_rank(count, error)
    assert rank == 19
    assert within_band(int((new <= scores[:, rank - 1]).sum()), runs, 1 - error)
    assert not within_band(int((new <= scores[:, rank - 2]).sum()), runs, 1 - error)
    values = np.arange(1.0, count + 1)
    assert fit_false_alarms(values, "s", FalseAlarmGoal(error)).threshold == values[rank - 1]
    p = np.stack([1 - values / 40, values / 40], 1)
    assert fit_prediction_sets(p, np.zeros(count, np.int64), PredictionSetGoal(error)).thresholds[0] == 19 / 40


def test_sets_per_class_cover_each_class_where_marginal_ones_fail_the_rare_one() -> None:
    random = np.random.default_rng(4)
    labels = (random.random(40_000) < 0.1).astype(np.int64)
    certainty = np.where(labels == 1, random.beta(2, 2, 40_000), random.beta(1, 12, 40_000))
    p = np.stack([1 - certainty, certainty], 1)
    held, new = slice(0, 2000), slice(2000, None)
    coverages = {}
    for per_class in (False, True):
        sets = fit_prediction_sets(p[held], labels[held], PredictionSetGoal(0.1, "lac", per_class)).of(p[new])
        inside = sets[np.arange(len(sets)), labels[new]]
        coverages[per_class] = [float(inside[labels[new] == c].mean()) for c in (0, 1)]
    assert coverages[False][1] < 0.7
    assert all(abs(coverage - 0.9) < 0.05 for coverage in coverages[True])


class Given:
    """A fitted classifier, for MAPIE, whose features are its probabilities."""

    def __init__(self, classes: int) -> None:
        self.classes_ = np.arange(classes)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Given:
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[X.argmax(1)]

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return X

    def __sklearn_is_fitted__(self) -> bool:
        return True


def mapie_sets(score: object, held: np.ndarray, labels: np.ndarray, new: np.ndarray, error: float) -> np.ndarray:
    from mapie.classification import SplitConformalClassifier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = SplitConformalClassifier(
            Given(held.shape[1]),
            confidence_level=1 - error,
            conformity_score=score,
            prefit=True,
            random_state=NoTies(),
        ).conformalize(held, labels)
        kwargs = {} if score == "lac" else {"conformity_score_params": {"include_last_label": False}}
        return np.asarray(made.predict_set(new, **kwargs)[1][:, :, 0])


class NoTies(np.random.RandomState):
    """Draws only zeros, which switches the random part of MAPIE's scores off."""

    def uniform(self, low=0.0, high=1.0, size=None):  # type: ignore[no-untyped-def]
        return np.zeros(size)


@pytest.mark.parametrize("error", [0.07, 0.2])
def test_sets_are_those_of_mapie(error: float) -> None:
    from mapie.conformity_scores import APSConformityScore

    p, y = softmax_problem(700, classes=5, seed=5)
    held, new, labels = p[:211], p[211:], y[:211]
    ours = fit_prediction_sets(held, labels, PredictionSetGoal(error)).of(new)
    assert np.array_equal(ours, mapie_sets("lac", held, labels, new, error))
    assert 1 < ours.sum(1).mean() < 5
    theirs = mapie_sets(APSConformityScore(), held, labels, new, error)
    ours = fit_prediction_sets(held, labels, PredictionSetGoal(error, "aps")).of(new)
    assert np.array_equal(ours, theirs)


def test_sets_per_class_are_those_of_mapie_on_the_bags_of_each_class() -> None:
    p, y = softmax_problem(700, classes=3, seed=6)
    held, new, labels = p[:300], p[300:], y[:300]
    ours = fit_prediction_sets(held, labels, PredictionSetGoal(0.1, per_class=True)).of(new)
    assert len(set(fit_prediction_sets(held, labels, PredictionSetGoal(0.1, per_class=True)).thresholds)) == 3
    for c in range(3):
        scores = np.sort(1 - held[labels == c, c])
        theirs = mapie_sets_of_scores(scores, 1 - new[:, c], 0.1)
        assert np.array_equal(ours[:, c], theirs)


@pytest.mark.parametrize("right", [0.98, 0.9])
def test_ties_of_probabilities_are_broken_by_rank_and_coverage_holds(right: float) -> None:
    """Probabilities of exactly 0 and 1: the sets of all bags held all seven classes."""
    random = np.random.default_rng(0)
    missed, sizes = [], []
    for _ in range(60):
        labels = random.integers(7, size=420)
        given = (labels + np.where(random.random(420) < right, 0, random.integers(1, 7, size=420))) % 7
        p = np.eye(7)[given]
        sets = fit_prediction_sets(p[:120], labels[:120], PredictionSetGoal(0.05, "aps")).of(p[120:])
        missed.append(1 - sets[np.arange(300), labels[120:]].mean())
        sizes.append(sets.sum(1).mean())
    assert np.mean(missed) <= 0.05
    assert np.mean(sizes) < (1.5 if right > 0.95 else 5)


@pytest.mark.parametrize(("wrong", "noted"), [(40, True), (0, False)])
def test_sets_that_hold_every_class_are_noted(wrong: int, noted: bool, tmp_path: Path) -> None:
    rows = [f"b{n},{n % 2},{(n + (n < wrong)) % 2}" for n in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["bag_id,label,p_1", *rows]))
    sets = calibrate(read_predictions(tmp_path / "t.csv"), deferral=None, false_alarms=None)
    assert any("every calibration bag holds all classes" in note for note in sets.notes()) == noted


def mapie_sets_of_scores(scores: np.ndarray, new: np.ndarray, error: float) -> np.ndarray:
    """MAPIE with one class in all bags: its set holds that class where the score is low enough."""
    two = np.stack([1 - scores, scores], 1)
    return mapie_sets("lac", two, np.zeros(len(two), np.int64), np.stack([1 - new, new], 1), error)[:, 0]


# Out of distribution


@pytest.mark.long
def test_false_alarms_keep_their_rate_on_average_and_at_a_confidence() -> None:
    random = np.random.default_rng(10)
    rate, count, runs = 0.05, 150, 4000
    values = random.random((runs, count))
    on_average = [fit_false_alarms(v, "s", FalseAlarmGoal(rate)).threshold for v in values]
    alarms = 1 - np.array(on_average)
    expected = 1 - conformal_rank(count, rate) / (count + 1)
    assert abs(alarms.mean() - expected) < 4 * alarms.std() / np.sqrt(runs)
    assert expected <= rate
    sure = [fit_false_alarms(v, "s", FalseAlarmGoal(rate, confidence=0.9)).threshold for v in values]
    kept = int((1 - np.array(sure) <= rate).sum())
    rank = tolerance_rank(count, rate, 0.9)
    assert within_band(kept, runs, float(beta.sf(1 - rate, rank, count + 1 - rank)))
    assert kept >= binom.ppf(0.0005, runs, 0.9)
    assert beta.sf(1 - rate, rank - 1, count + 2 - rank) < 0.9  # one rank lower would not do


# What is refused


Change = Callable[[], object]


def made(count: int = 100, **changes: object) -> Predictions:
    p, y = softmax_problem(count, classes=2, seed=15)
    return predictions_of(Categorical(torch.from_numpy(p)), y, **changes)  # type: ignore[arg-type]


ALONE: dict[str, None] = {"deferral": None, "prediction_sets": None, "false_alarms": None}


@pytest.mark.parametrize(
    ("count", "goal", "needed"),
    [
        (18, {"prediction_sets": PredictionSetGoal(0.05)}, "at least 19 labeled bags for prediction sets"),
        (18, {"false_alarms": FalseAlarmGoal(0.05)}, "at least 19 in-distribution"),
        (44, {"false_alarms": FalseAlarmGoal(0.05, confidence=0.9)}, "at least 45 in-distribution"),
        (48, {"deferral": DeferralGoal(0.05, 0.9)}, "at least 49 labeled"),
        (9, {"deferral": DeferralGoal(0.5, 0.5)}, "at least 10 labeled"),  # one of ten chooses what is tested
    ],
)
def test_too_few_bags_are_refused_with_the_number_needed_and_one_more_is_enough(
    count: int, goal: dict[str, object], needed: str
) -> None:
    def given(bags: int) -> Predictions:
        p = np.linspace(0.8, 0.9, bags)
        return predictions_of(Categorical(torch.from_numpy(np.stack([p, 1 - p], 1))), np.zeros(bags, np.int64))

    wanted = {**ALONE, **goal, "scaling": False}
    with pytest.raises(DataError, match=needed):
        calibrate(given(count), **wanted)  # type: ignore[arg-type]
    assert isinstance(calibrate(given(count + 1), **wanted), Calibration)  # type: ignore[arg-type]


def test_a_class_without_enough_bags_is_named() -> None:
    p, y = softmax_problem(60, classes=2, seed=16)
    one_class = predictions_of(Categorical(torch.from_numpy(p)), np.zeros_like(y))
    alone = {**ALONE, "prediction_sets": PredictionSetGoal(0.1, per_class=True)}
    with pytest.raises(DataError, match=r"at least 9 labeled bags of class 1 .*got 0 labeled bags of class 1;"):
        calibrate(one_class, scaling=False, **alone)  # type: ignore[arg-type]


def test_bags_that_cannot_calibrate_are_named() -> None:
    flags = np.arange(100) == 3
    with pytest.raises(DataError, match="1 of 100 marked out of distribution \\('bag_3' first"):
        calibrate(made(is_ood=flags))
    with pytest.raises(DataError, match="1 of 100 without one \\('bag_3' first"):
        calibrate(made(known=~flags))
    few = made(20, is_ood=np.arange(20) < 3)
    with pytest.raises(DataError, match=r"got 3 of 20 marked out of distribution .*; 17 in-distribution bags;"):
        calibrate(few, scaling=False, deferral=None, prediction_sets=None)
    negative = made(20).bags.labels.values == 0
    with pytest.raises(DataError, match=r"out of distribution .*; 0 negative bags;"):
        calibrate(made(20, is_ood=negative), instances=InstanceGoal(), scaling=False, **ALONE)  # type: ignore[arg-type]
    unlabeled = made(known=np.zeros(100, bool))
    only_alarms = calibrate(unlabeled, scaling=False, deferral=None, prediction_sets=None)
    assert only_alarms.false_alarms is not None
    with pytest.raises(ConfigError, match="at least one part"):
        calibrate(made(), scaling=False, deferral=None, prediction_sets=None, false_alarms=None)
    with pytest.raises(ConfigError, match="2 different names"):
        calibrate(made(), class_names=("deferred", "other"))
    with pytest.raises(ConfigError, match="did you mean 'entropy'"):
        calibrate(made(), deferral=DeferralGoal(measure="entropie"))


def test_classes_have_the_names_that_the_predictions_know_and_no_others() -> None:
    predictions = made()
    named = replace(predictions, provenance=Provenance(classes=("healthy", "ill")))
    assert calibrate(named).class_names == ("healthy", "ill")
    assert calibrate(predictions).class_names == ("0", "1")
    assert calibrate(predictions, class_names=("healthy", "ill")).class_names == ("healthy", "ill")
    assert calibrate(named, class_names=("0", "1")).class_names == (
        "0",
        "1",
    )  # as in a table of another tool
    with pytest.raises(
        ConfigError, match="the class names: expected healthy, ill, in this order.*got ill, healthy"
    ):
        calibrate(named, class_names=("ill", "healthy"))


def test_what_to_know_of_a_calibration_is_said_of_what_holds_for_it_alone() -> None:
    plain = calibrate(made(), deferral=None, false_alarms=None)
    assert plain.notes() == []

    def noted(**changes: object) -> str:
        [note] = plain.model_copy(update=changes).notes()
        return note

    drawn = plain.made_from.model_copy(update={"patients": 60, "left_out": 40})
    assert noted(made_from=drawn).endswith("left out: 40 further bags.")
    assert "one bag of each of 60 patients was drawn" in noted(made_from=drawn)
    assert noted(made_from=plain.made_from.model_copy(update={"caveat": "the caveat"})) == "the caveat."
    no_bag_of_one = ClassMix(confusion=((70, 30), (0, 0)))
    assert noted(class_mix=no_bag_of_one).startswith(
        "no calibration bag is of class 1, so that nothing is promised"
    )
    rare = ClassMix(confusion=((88, 2), (9, 1)))
    assert noted(class_mix=rare).startswith(
        "the sets may miss 10 % of all labels, which can be all bags of class 1 (10 of 100); sets per class"
    )
    assert plain.prediction_sets is not None
    per_class = plain.prediction_sets.model_copy(update={"per_class": True})
    assert plain.model_copy(update={"class_mix": rare, "prediction_sets": per_class}).notes() == []
    assert plain.model_copy(update={"class_mix": ClassMix(confusion=((88, 1), (9, 2)))}).notes() == []
    deferring = calibrate(made(), deferral=DeferralGoal(0.2), prediction_sets=None, false_alarms=None)
    assert deferring.model_copy(update={"class_mix": rare}).notes() == [
        "20 % of accepted bags may be wrong, which can be all bags of class 1 (10 of 100)."
    ]
    assert noted(scaling_left_out="the reason") == "no temperature was fitted: the reason."
    shift = CovariateShift(fingerprint="", bags=90, scores=("hardness",), effective_sample_size=50, largest=9)
    assert plain.model_copy(update={"covariate_shift": shift}).notes() == []
    for fact, words in (
        ({"rules_left_out": "the deferral"}, "Left out: the deferral; every bag is accepted."),
        ({"clipped": 1}, "Beyond the clip: 1 new bag."),
        (
            {"left_out": 3},
            "Not counted: 3 new bags, out of distribution or of patients that were counted already.",
        ),
        ({"unused": ("far", "near")}, "Not finite everywhere, so unused: far, near."),
    ):
        assert noted(covariate_shift=shift.model_copy(update=fact)) == words
    bags = scored_bags([[number / 40, 0.1] for number in range(40)], [0] * 30 + [1] * 10)
    alone = calibrate(bags, scaling=False, instances=InstanceGoal("no-false-flag", 0.2), **ALONE)  # type: ignore[arg-type]
    assert alone.instances is not None
    of_flags = alone.model_copy(update={"made_from": drawn, "class_mix": no_bag_of_one})
    assert of_flags.notes() == []  # neither of these is of flags of instances
    some = alone.instances.model_copy(update={"left_out": 1})
    assert alone.model_copy(update={"instances": some}).notes() == [
        "left out of the flags: 1 positive bag without labels of all instances, or without a positive one."
    ]


def test_all_that_a_calibration_lacks_is_said_at_once_with_the_part_that_needs_it() -> None:
    few = made(8, known=np.arange(8) > 0)
    goals = {
        "deferral": DeferralGoal(),
        "prediction_sets": PredictionSetGoal(per_class=True),
        "false_alarms": FalseAlarmGoal(),
    }
    with pytest.raises(DataError) as told:
        calibrate(few, class_names=("benign", "tumour"), **goals)  # type: ignore[arg-type]
    for words in (
        "1 of 8 without one ('bag_0' first)",
        "at least 51 labeled bags for the deferral (error 0.05 at confidence 0.9, 49 of them below",
        "at least 9 labeled bags of class benign for prediction sets",
        "at least 9 labeled bags of class tumour for prediction sets",
        "at least 19 in-distribution bags for the out-of-distribution threshold",
        "7 labeled",
        "8 in-distribution",
        "label them, or leave out these bags, or scaling, deferral, prediction sets",
        "leave out the out-of-distribution threshold",
    ):
        assert words in str(told.value), (words, str(told.value))
    by_patient = replace(few.bags, patients=np.array(["a", "a", "b", "b", "c", "c", "d", "d"], object))
    with pytest.raises(
        DataError, match=r"\(one bag of each of 4 patients, of 8 bags\); add bags of other patients"
    ):
        calibrate(Predictions(by_patient, None), scaling=False, deferral=None, prediction_sets=None)
    with pytest.raises(DataError, match="got 8 in-distribution bags; add bags, "):
        parts = {"scaling": False, "deferral": None, "prediction_sets": None}
        calibrate(Predictions(by_patient, None), settings={"bags_of_patient": "all"}, **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize("confidence", [None, 0.9])
def test_so_many_bags_as_are_asked_for_are_enough_for_all_parts_together(confidence: float | None) -> None:
    def given(count: int) -> Predictions:
        p = np.linspace(0.8, 0.9, count)
        return predictions_of(Categorical(torch.from_numpy(np.stack([p, 1 - p], 1))), np.zeros(count, np.int64))

    goal = FalseAlarmGoal(0.2, confidence=confidence)
    with pytest.raises(DataError, match="at least") as told:
        calibrate(given(20), false_alarms=goal)
    needed = int(str(told.value).split("at least ")[1].split()[0])
    with pytest.raises(DataError, match=f"at least {needed} "):
        calibrate(given(needed - 1), false_alarms=goal)
    deferral = calibrate(given(needed), false_alarms=goal).deferral
    assert deferral is not None
    assert not deferral.refused


@pytest.mark.parametrize(
    "goal",
    [
        lambda: DeferralGoal(0.0),
        lambda: DeferralGoal(0.1, 1.0),
        lambda: PredictionSetGoal(1.5),
        lambda: PredictionSetGoal(0.1, "raps"),
        lambda: FalseAlarmGoal(-0.1),
        lambda: FalseAlarmGoal(0.1, confidence=2.0),
    ],
)
def test_goals_that_are_none_are_refused(goal: Change) -> None:
    with pytest.raises(ConfigError):
        goal()


def test_a_tolerance_rank_is_exact_where_the_confidence_is_a_probability_of_ranks() -> None:
    for count, error in product(range(1, 9), (0.1, 0.2, 0.5)):
        kept = 1 - Fraction(str(error))
        masses = [comb(count, k) * kept**k * (1 - kept) ** (count - k) for k in range(count + 1)]
        below = [sum(masses[:k], Fraction(0)) for k in range(count + 1)]  # P(Binomial ≤ k − 1)
        for reached in below[1:]:
            for confidence in (float(reached), np.nextafter(float(reached), 1), np.nextafter(float(reached), 0)):
                if 0 < confidence < 1:
                    wanted = next(
                        (k for k, p in enumerate(below) if p >= Fraction(repr(float(confidence)))), count + 1
                    )
                    assert tolerance_rank(count, error, float(confidence)) == wanted
