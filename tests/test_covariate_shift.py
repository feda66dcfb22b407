"""A calibration weighted for new bags of another mix covers where the plain one does not, or is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import fail, run
from hypothesis import given, settings
from hypothesis import strategies as st
from made_promises import predictions_of, within_band
from scipy.stats import binom, ks_2samp, norm

from miue.calibration import (
    Calibration,
    DeferralGoal,
    InstanceGoal,
    PredictionSetGoal,
    calibrate,
    covariate_shift,
    decide,
    find_shift,
)
from miue.calibration.covariate_shift import (
    CHANCE,
    CLIP,
    NEEDED,
    _as_many,
    _largest_gap,
    effective_sample_size,
    estimate_log_ratios,
    unbalanced,
)
from miue.calibration.prediction_sets import fit_prediction_sets
from miue.calibration.ranks import conformal_rank, weighted_rank
from miue.calibration.scaling import fit_scaling
from miue.common.errors import ConfigError, DataError, ModelError
from miue.distributions import Categorical, Dirichlet
from miue.predictions import Predictions, Provenance


def mixed_bags(count: int, center: float, random: np.random.Generator) -> Predictions:
    """Bags of a hardness x ~ N(center, 1): density ratios of two normals, and labels that depend on x alone."""
    x = random.normal(center, 1, count)
    sure = 0.6 + 0.39 * random.random(count)
    right = random.random(count) < 0.97 - 0.45 / (1 + np.exp(-2 * x + 2))
    top = random.integers(0, 2, count)
    p = np.where(np.arange(2) == top[:, None], sure[:, None], 1 - sure[:, None])
    labels = np.where(right, top, 1 - top)
    return predictions_of(Categorical(torch.from_numpy(p)), labels, scores={"hardness": x})


def coverage(calibration: Calibration, new: Predictions) -> float:
    assert calibration.prediction_sets is not None
    sets = calibration.prediction_sets.of(new.bags.probabilities)
    return float(sets[np.arange(len(sets)), new.bags.labels.values].mean())


# The weighted quantile


def naive_threshold(scores: list[float], weights: list[float], own: float, error: float) -> float:
    """The least score up to which the weights are 1 − error of all, by one sum for each score."""
    total = sum(map(Fraction, weights), Fraction(own))
    for score in sorted(scores):
        up_to = sum((Fraction(w) for s, w in zip(scores, weights, strict=True) if s <= score), Fraction(0))
        if up_to >= (1 - Fraction(str(error))) * total:
            return score
    return np.inf


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(0, 20)), min_size=1, max_size=30),
    st.floats(0.01, 20),
    st.sampled_from([0.05, 0.1, 0.25, 0.5]),
)
def test_the_weighted_threshold_is_that_of_the_naive_loop(
    pairs: list[tuple[int, float]], own: float, error: float
) -> None:
    scores, weights = ([float(pair[side]) for pair in pairs] for side in (0, 1))
    order = np.argsort(scores, kind="stable")
    rank = weighted_rank(np.array(weights)[order], own, error)
    threshold = scores[order[rank - 1]] if rank <= len(scores) else np.inf
    assert threshold == naive_threshold(scores, weights, own, error)
    if np.isfinite(threshold):  # of bags in any order
        p = 1 - np.array(scores) / 8
        fit = (np.zeros(len(p), np.int64), PredictionSetGoal(error), np.array(weights), own)
        assert fit_prediction_sets(np.stack([p, 1 - p], 1), *fit).thresholds[0] == threshold / 8


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 120), st.floats(0.001, 20), st.sampled_from([0.01, 0.05, 0.1, 0.29, 0.3, 0.5]))
def test_equal_weights_give_the_unweighted_rank_whatever_the_weight(
    count: int, weight: float, error: float
) -> None:
    assert weighted_rank(np.full(count, weight), weight, error) == conformal_rank(count, error)


def test_as_few_weighted_bags_as_a_rank_needs_have_the_largest_score_as_threshold() -> None:
    p, labels = np.linspace(0.1, 0.9, 9), np.zeros(9, np.int64)
    probabilities, goal = np.stack([p, 1 - p], 1), PredictionSetGoal(0.1)
    assert fit_prediction_sets(probabilities, labels, goal, np.ones(9)).thresholds[0] == pytest.approx(0.9)
    with pytest.raises(DataError, match="calibration bags that weigh at least 9 times"):
        fit_prediction_sets(probabilities, labels, goal, np.ones(9), 1.001)


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("levels", [3, 1000])
def test_sets_and_temperature_of_equal_weights_are_the_unweighted_ones(per_class: bool, levels: int) -> None:
    random = np.random.default_rng(1)
    p = (random.integers(1, levels + 1, 83) / (levels + 2))[:, None]
    p, labels = np.concatenate([p, 1 - p], 1), (random.random(83) < 0.4).astype(np.int64)
    goal = PredictionSetGoal(0.1, per_class=per_class)
    equal = np.full(83, 0.1)
    assert fit_prediction_sets(p, labels, goal, equal, 0.1) == fit_prediction_sets(p, labels, goal)
    for one in (Categorical(torch.from_numpy(p)), Dirichlet(torch.from_numpy(5 * p + 1))):
        plain, weighted = fit_scaling(one, labels), fit_scaling(one, labels, equal)
        assert weighted.temperature == pytest.approx(plain.temperature, rel=1e-6)
        assert weighted.nll_after == pytest.approx(plain.nll_after, rel=1e-12)


def test_the_temperature_of_whole_weights_is_that_of_bags_that_often() -> None:
    random = np.random.default_rng(2)
    p = random.dirichlet((1, 1, 1), 60)
    labels, times = random.integers(0, 3, 60), random.integers(0, 4, 60)
    weighted = fit_scaling(Categorical(torch.from_numpy(p)), labels, times.astype(float))
    repeated = fit_scaling(Categorical(torch.from_numpy(p.repeat(times, 0))), labels.repeat(times))
    assert weighted.temperature == pytest.approx(repeated.temperature, rel=1e-6)
    assert weighted.nll_before == pytest.approx(repeated.nll_before, rel=1e-12)


@pytest.mark.parametrize("weight", [1e-6, 0.3, 20.0])
def test_equal_weights_have_an_effective_sample_size_of_their_number(weight: float) -> None:
    assert effective_sample_size(np.full(17, weight)) == pytest.approx(17)
    assert effective_sample_size(np.array([weight, 0, 0])) == pytest.approx(1)
    assert effective_sample_size(np.zeros(3)) == 0


# The density ratio


def test_the_density_ratio_of_two_normals_is_estimated() -> None:
    random = np.random.default_rng(3)
    held, new = random.normal(0, 1, (4000, 1)), random.normal(0.7, 1, (2000, 1))
    for log_ratios, x in zip(estimate_log_ratios(held, new), (held, new), strict=True):
        known = 0.7 * x[:, 0] - 0.7**2 / 2
        assert np.abs(log_ratios - known).mean() < 0.1


def test_the_density_ratio_of_a_wider_normal_is_estimated() -> None:
    """It rises on both sides, which no function that is linear in the score does."""
    random = np.random.default_rng(13)
    held, new = random.normal(0, 1, (4000, 1)), random.normal(0, 1.5, (2000, 1))
    for log_ratios, x in zip(estimate_log_ratios(held, new), (held, new), strict=True):
        known = x[:, 0] ** 2 * (1 - 1 / 1.5**2) / 2 - np.log(1.5)
        assert np.abs(log_ratios - known).mean() < 0.1


@pytest.mark.parametrize("spread", [0.4, 2.0])
def test_weights_that_do_not_follow_the_shift_are_found_and_right_ones_pass(spread: float) -> None:
    random, found = np.random.default_rng(14), {"right": 0, "none": 0}
    for _ in range(50):
        held, new = random.normal(0, 1, (400, 2)), random.normal(0, 1, (300, 2)) * [1, spread]
        right = norm.pdf(held[:, 1], 0, spread) / norm.pdf(held[:, 1])
        found["right"] += bool(unbalanced(held, np.minimum(right, CLIP), new))
        found["none"] += unbalanced(held, np.ones(400), new) == [1]
    assert found["right"] <= 2 and found["none"] >= 45


def test_right_weights_of_a_strong_shift_are_refused_as_rarely_as_stated() -> None:
    random, runs, refused = np.random.default_rng(21), 500, 0
    for _ in range(runs):
        held, new = random.normal(0, 1, (400, 1)), random.normal(1, 1, (2000, 1))
        refused += bool(unbalanced(held, np.minimum(np.exp(held[:, 0] - 0.5), CLIP), new))
    assert refused <= binom.ppf(0.999, runs, CHANCE)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1).filter(
        lambda held: any(weight for _, weight in held)
    )
)
def test_weighted_values_count_for_as_many_as_vary_as_much_and_n_eff_at_most(held: list[tuple[int, int]]) -> None:
    values, weights = (np.array(one, float) for one in zip(*held, strict=True))
    shares = weights / weights.sum()
    variances = [((shares * ((values <= x) - shares[values <= x].sum())) ** 2).sum() for x in values]
    wanted = min(effective_sample_size(weights), 1 / max(4 * max(variances), 1e-9))
    assert _as_many(values, weights) == pytest.approx(wanted)


def test_many_bags_of_few_patients_are_no_evidence_against_weights() -> None:
    random, found = np.random.default_rng(15), {1.0: 0, 0.1: 0}
    for _ in range(50):
        held, new = random.normal(0, 1, (500, 1)), random.normal(0, 1, (50, 1)).repeat(10, 0)
        for share in found:
            found[share] += bool(unbalanced(held, np.ones(500), new, (1.0, share)))
    assert found[1.0] > 10 and found[0.1] <= 2


def test_bags_of_one_patient_are_in_one_fold() -> None:
    random = np.random.default_rng(4)
    held, new = random.normal(0, 1, (60, 40)), random.normal(0, 1, (60, 40))
    new[:, :] = held + 1e-9  # each new bag is a calibration bag's patient
    groups = np.tile(np.arange(60).astype(str), 2)
    log_held, log_new = estimate_log_ratios(held, new, groups)
    assert np.abs(log_held - log_new).max() < 1e-3  # judged by one regression


# Promises


@pytest.mark.long
def test_weights_cover_bags_of_another_mix_where_the_plain_sets_do_not() -> None:
    random = np.random.default_rng(5)
    runs = 30
    covered = {"plain": 0.0, "weighted": 0.0}
    effective = []
    for _ in range(runs):
        held, new = mixed_bags(600, 0, random), mixed_bags(500, 1, random)
        goals = {"scaling": False, "prediction_sets": PredictionSetGoal(0.1)}
        weighted = calibrate(held, like=new, **goals)  # type: ignore[arg-type]
        plain = calibrate(held, deferral=None, false_alarms=None, **goals)  # type: ignore[arg-type]
        later = mixed_bags(1000, 1, random)
        covered["plain"] += coverage(plain, later) / runs
        covered["weighted"] += coverage(weighted, later) / runs
        assert weighted.covariate_shift is not None
        effective.append(weighted.covariate_shift.effective_sample_size)
    assert covered["plain"] < 0.87
    assert 0.9 <= covered["weighted"] < 0.95
    assert np.mean(effective) == pytest.approx(600 / np.e, rel=0.3)  # of a normal, moved by one: n / e


@pytest.mark.long
def test_weights_follow_bags_that_are_harder_on_both_sides_or_are_refused() -> None:
    """A score of wider spread at the same mean; where bags come in clusters, no such weights do."""

    def bags(count: int, kind: str) -> Predictions:
        x = random.normal(0, 1.6 if kind == "wider" else 1, count)
        x = random.choice([-1.3, 0, 1.3], count) + random.normal(0, 0.25, count) if kind == "in clusters" else x
        sure, top = 0.6 + 0.39 * random.random(count), random.integers(0, 2, count)
        right = random.random(count) < 0.99 - 0.5 / (1 + np.exp(-4 * np.abs(x) + 6))
        p = np.where(np.arange(2) == top[:, None], sure[:, None], 1 - sure[:, None])
        labels = np.where(right, top, 1 - top)
        return predictions_of(Categorical(torch.from_numpy(p)), labels, scores={"hardness": x})

    random, runs, covered = np.random.default_rng(16), 20, {"plain": 0.0, "weighted": 0.0}
    goals = {"scaling": False, "prediction_sets": PredictionSetGoal(0.1)}
    for _ in range(runs):
        held, new, later = bags(600, "as before"), bags(500, "wider"), bags(1000, "wider")
        plain = calibrate(held, deferral=None, false_alarms=None, **goals)  # type: ignore[arg-type]
        covered["plain"] += coverage(plain, later) / runs
        covered["weighted"] += coverage(calibrate(held, like=new, **goals), later) / runs  # type: ignore[arg-type]
    assert covered["plain"] < 0.87
    assert 0.89 <= covered["weighted"] < 0.96
    with pytest.raises(DataError, match="got another of hardness; the mix of bags has changed in a way"):
        calibrate(bags(2000, "as before"), like=bags(2000, "in clusters"), **goals)  # type: ignore[arg-type]


@pytest.mark.long
def test_without_a_shift_the_effective_sample_size_is_about_n_and_the_coverage_stays() -> None:
    random = np.random.default_rng(6)
    runs, later_bags, covered, effective = 50, 50, 0.0, []
    for _ in range(runs):
        held, new, later = (mixed_bags(count, 0, random) for count in (300, 300, later_bags))
        made = calibrate(held, like=new, scaling=False)
        covered += coverage(made, later) * later_bags
        assert made.covariate_shift is not None
        effective.append(made.covariate_shift.effective_sample_size)
    assert np.mean(effective) > 0.9 * 300
    assert within_band(round(covered), runs * later_bags, 0.905)


@pytest.mark.long
def test_sets_per_class_cover_each_class_of_another_mix() -> None:
    random = np.random.default_rng(7)
    covered: dict[str, list[np.ndarray]] = {"plain": [], "weighted": []}
    goal = PredictionSetGoal(0.1, per_class=True)
    for _ in range(15):
        held, new, later = (mixed_bags(900, center, random) for center in (0, 1, 1))
        made = {
            "plain": calibrate(held, deferral=None, false_alarms=None, prediction_sets=goal),
            "weighted": calibrate(held, like=new, prediction_sets=goal),
        }
        for name, one in made.items():
            assert one.prediction_sets is not None
            labels = later.bags.labels.values
            inside = one.prediction_sets.of(later.bags.probabilities)[np.arange(900), labels]
            covered[name].append(np.array([inside[labels == c].mean() for c in (0, 1)]))
    assert (np.mean(covered["plain"], 0) < 0.87).all()
    assert (np.mean(covered["weighted"], 0) >= 0.9).all()


@pytest.mark.long
def test_the_weighted_temperature_is_nearer_to_that_of_the_new_bags() -> None:
    random = np.random.default_rng(8)
    later = mixed_bags(20_000, 1, random).bags
    wanted = fit_scaling(later.distribution, later.labels.values).temperature
    off: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(10):
        held, new = mixed_bags(1000, 0, random), mixed_bags(500, 1, random)
        for is_weighted in off:
            like = new if is_weighted else None
            scaling = calibrate(held, like=like, deferral=None, prediction_sets=PredictionSetGoal()).scaling
            assert scaling is not None
            off[is_weighted].append(float(np.log(scaling.temperature / wanted)))
    assert abs(np.mean(off[True])) < 0.3 * abs(np.mean(off[False]))


# What is refused, left out and stored


@pytest.mark.parametrize("distance", [4.0, 50.0])
@pytest.mark.parametrize("count", [60, 2000])
def test_new_bags_that_do_not_overlap_with_the_calibration_are_refused(distance: float, count: int) -> None:
    random = np.random.default_rng(9)
    with pytest.raises(DataError, match=r"overlap with the calibration.*label some of the new bags"):
        calibrate(mixed_bags(count, 0, random), like=mixed_bags(count, distance, random))


def test_new_bags_of_which_a_third_has_no_like_in_the_calibration_are_refused() -> None:
    random = np.random.default_rng(10)
    x = np.concatenate([random.normal(0, 1, 200), random.normal(30, 1, 100)])
    new = mixed_bags(300, 0, random)
    new = replace(new, bags=replace(new.bags, scores={"hardness": x}))
    with pytest.raises(DataError, match=r"overlap .* got 100 of 300|overlap .* got \d+ of 300"):
        calibrate(mixed_bags(500, 0, random), like=new)


def test_too_few_effective_or_new_bags_are_refused_with_their_number() -> None:
    random = np.random.default_rng(11)
    with pytest.raises(DataError, match=r"at least 30 effective ones.*got \d+\.\d; label some"):
        calibrate(mixed_bags(60, 0, random), like=mixed_bags(100, 1.2, random))
    with pytest.raises(DataError, match="at least 30 that are in distribution, one of each patient, got 29 of 29"):
        calibrate(mixed_bags(200, 0, random), like=mixed_bags(NEEDED - 1, 0, random))
    assert calibrate(mixed_bags(200, 0, random), like=mixed_bags(NEEDED, 0, random)).prediction_sets is not None
    with pytest.raises(DataError, match=r"weigh at least 99 times as much as a new bag.* got \d+"):
        calibrate(
            mixed_bags(200, 0, random), like=mixed_bags(100, 0.5, random), prediction_sets=PredictionSetGoal(0.01)
        )


@pytest.mark.parametrize(("count", "of_patient"), [(1, None), (NEEDED - 1, None), (60, "A")])
def test_too_few_calibration_bags_or_patients_are_refused(count: int, of_patient: str | None) -> None:
    random = np.random.default_rng(14)
    held = mixed_bags(count, 0, random)
    patients = None if of_patient is None else np.array([of_patient] * count, object)
    held = replace(held, bags=replace(held.bags, patients=patients))
    got = f"got {count}" + ("" if of_patient is None else ", of 1 patient")
    with pytest.raises(DataError, match=f"weighted for the new bags: expected at least {NEEDED}, of 5.*{got}"):
        calibrate(held, like=mixed_bags(60, 0, random), prediction_sets=None, settings={"bags_of_patient": "all"})


def test_a_patient_for_each_fold_is_enough() -> None:
    random = np.random.default_rng(14)
    held = mixed_bags(100, 0, random)
    held = replace(held, bags=replace(held.bags, patients=np.array(list("ABCDE") * 20, object)))
    made = calibrate(
        held, like=mixed_bags(60, 0, random), prediction_sets=None, settings={"bags_of_patient": "all"}
    )
    assert made.covariate_shift is not None


def test_a_new_bag_counts_with_the_largest_weight_of_any_and_patients_are_known_to_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weights as if the new bags had one of density ratio 5, and one beyond the clip."""
    random = np.random.default_rng(4)
    held, new = mixed_bags(80, 0, random), mixed_bags(60, 0, random)
    held = replace(held, bags=replace(held.bags, patients=np.array([f"p{row // 2}" for row in range(80)], object)))
    new = replace(new, bags=replace(new.bags, patients=np.array([f"p{row + 30}" for row in range(60)], object)))
    log_held, log_new, seen = np.log(1 + held.bags.labels.values), np.zeros(60), []

    def ratios(*given: Any) -> tuple[np.ndarray, np.ndarray]:
        seen.append(given[2])
        return log_held, log_new

    def same(*given: Any) -> list[int]:
        seen.append(given[3])
        return []

    monkeypatch.setattr(covariate_shift, "estimate_log_ratios", ratios)
    monkeypatch.setattr(covariate_shift, "unbalanced", same)
    for ratio, largest, clipped in ((5.0, 5.0, 0), (1.5, 2.0, 0), (25.0, CLIP, 1)):
        log_new[7] = np.log(ratio)
        sets = PredictionSetGoal(0.5)
        found = calibrate(
            held, like=new, prediction_sets=sets, settings={"bags_of_patient": "all"}
        ).covariate_shift
        assert found is not None
        assert found.largest == pytest.approx(largest)
        assert found.clipped == clipped
        of_class = np.bincount(held.bags.labels.values)
        assert found.effective_of_class == pytest.approx(of_class)  # of equal weights within each class
    groups, shares = seen[:2]
    assert len(set(groups)) == 90 and len(set(groups[:80])) == 40  # ten patients have bags on both sides
    assert groups[60] == groups[61] == groups[80] and shares == (0.5, 1.0)


def test_of_each_patient_one_new_bag_counts_and_none_that_is_out_of_distribution() -> None:
    random = np.random.default_rng(12)
    held, new = mixed_bags(100, 0, random), mixed_bags(90, 0, random)
    patients = np.array([f"patient {row // 2}" if row < 80 else "" for row in range(90)], object)
    new = replace(new, bags=replace(new.bags, patients=patients))
    shift = calibrate(held, like=new).covariate_shift
    assert shift is not None
    assert (shift.bags, shift.left_out) == (50, 40)
    few = replace(new, bags=replace(new.bags, patients=np.array([f"{row // 4}" for row in range(90)], object)))
    for bags_of_patient in ("one", "all"):
        with pytest.raises(DataError, match="got 23 of 90"):
            calibrate(held, like=few, settings={"bags_of_patient": bags_of_patient})
    foreign = predictions_of(
        new.bags.distribution, new.bags.labels.values, is_ood=np.arange(90) < 50, scores=dict(new.bags.scores)
    )
    counted = calibrate(held, like=foreign).covariate_shift
    assert counted is not None
    assert (counted.bags, counted.left_out) == (40, 50)


def test_rules_that_weights_void_are_left_out_in_words_or_refused() -> None:
    random = np.random.default_rng(13)
    held, new = mixed_bags(200, 0, random), mixed_bags(200, 0.5, random)
    made = calibrate(held, like=new)
    assert made.deferral is None
    assert made.false_alarms is None
    assert made.covariate_shift is not None
    assert "exact binomial tests do not hold" in made.covariate_shift.rules_left_out
    assert "out-of-distribution threshold" in made.covariate_shift.rules_left_out
    assert "only the mix of bags has changed" in made.made_from.caveat
    alone = calibrate(held, like=new, deferral=None, false_alarms=None)
    assert alone.covariate_shift is not None
    assert alone.covariate_shift.rules_left_out == ""
    with pytest.raises(ConfigError, match="no flags of instances"):
        calibrate(held, like=new, instances=InstanceGoal("no-false-flag"))
    with pytest.raises(ConfigError, match="expected prediction sets or scaling"):
        calibrate(held, like=new, scaling=False, prediction_sets=None, deferral=DeferralGoal())


def test_predictions_that_do_not_fit_are_refused() -> None:
    random = np.random.default_rng(14)
    held, new = mixed_bags(100, 0, random), mixed_bags(100, 0, random)
    with pytest.raises(DataError, match="the finite uncertainties .*hardness"):
        calibrate(held, like=replace(new, bags=replace(new.bags, scores={})))
    one, other = (replace(p, provenance=Provenance(weights_sha256=w)) for p, w in ((held, "a"), (new, "b")))
    with pytest.raises(ModelError, match="predictions of other weights"):
        calibrate(one, like=other)
    same = replace(new, provenance=Provenance(weights_sha256="a"))
    of_unknown = calibrate(one, like=new)  # of a model that does not say which
    assert calibrate(one, like=same).prediction_sets == of_unknown.prediction_sets is not None
    trained = np.array(["train", *[""] * 99], object)
    with pytest.raises(DataError, match="the bags to calibrate for: expected bags that took no part in training"):
        calibrate(held, like=replace(new, bags=replace(new.bags, training_parts=trained)))


def test_an_uncertainty_that_is_infinite_somewhere_is_unused_and_named() -> None:
    random = np.random.default_rng(15)
    held, new = mixed_bags(100, 0, random), mixed_bags(100, 0, random)
    odd = replace(new, bags=replace(new.bags, scores={"hardness": np.r_[np.inf, np.zeros(99)]}))
    shift = calibrate(held, like=odd).covariate_shift
    assert shift is not None
    assert shift.unused == ("hardness",)
    assert "hardness" not in shift.scores
    held = replace(held, bags=replace(held.bags, scores={"hardness": np.r_[np.zeros(99), -np.inf]}))
    shift = calibrate(held, like=new).covariate_shift
    assert shift is not None
    assert shift.unused == ("hardness",)


def test_later_bags_are_compared_with_the_new_ones_and_the_file_keeps_it_all(tmp_path: Path) -> None:
    random = np.random.default_rng(16)
    held, new = mixed_bags(400, 0, random), mixed_bags(300, 1, random)
    made = calibrate(held, like=new)
    made.save(tmp_path / "calibration.json")
    assert Calibration.load(tmp_path / "calibration.json") == made
    assert made.covariate_shift is not None
    assert made.covariate_shift.clip == CLIP
    assert not find_shift(mixed_bags(200, 1, random).bags, made.usual)
    assert find_shift(mixed_bags(200, 0, random).bags, made.usual)
    assert decide(new, made).bags.decisions is not None
    assert calibrate(held, like=new) == made
    again = calibrate(held, like=mixed_bags(300, 1, random)).covariate_shift
    assert again is not None
    assert again.fingerprint != made.covariate_shift.fingerprint


def write_csv(path: Path, predictions: Predictions, *, labeled: bool) -> Path:
    bags = predictions.bags
    rows = zip(bags.bag_ids, bags.labels.values, bags.probabilities[:, 1], bags.scores["hardness"], strict=True)
    lines = [f"{name},{label if labeled else ''},{p},{x}" for name, label, p, x in rows]
    path.write_text("\n".join(["bag_id,label,p_1,score_hardness", *lines]) + "\n")
    return path


def test_the_command_prints_and_stores_effective_sample_size_and_clip(tmp_path: Path) -> None:
    random = np.random.default_rng(17)
    held = write_csv(tmp_path / "held.csv", mixed_bags(300, 0, random), labeled=True)
    new = write_csv(tmp_path / "new.csv", mixed_bags(200, 0.8, random), labeled=False)
    out = tmp_path / "calibration.json"
    printed = " ".join(run("calibrate", held, "--like", new, "--out", out).replace("│", " ").split())
    shift = json.loads(out.read_text())["calibration"]["covariate_shift"]
    assert f"effective sample size {shift['effective_sample_size']:.1f}, clip 20" in printed
    assert "every bag is accepted" in printed
    assert "the deferral, whose exact binomial tests" in printed
    assert shift["path"] == str(new)
    said = run("calibrate", held, "--like", new, "--out", tmp_path / "json.json", "--json")
    assert json.JSONDecoder().raw_decode(said)[0]["covariate_shift"] == shift
    decided = run("decide", new, "--calibration", out, "--out", tmp_path / "decided")
    assert decided.startswith("200 bags: ")
    elsewhere = write_csv(tmp_path / "elsewhere.csv", mixed_bags(200, -3, random), labeled=False)
    warned = run("decide", elsewhere, "--calibration", out, "--out", tmp_path / "warned")
    said = "the 200 new bags are not like the 200 bags that the calibration was weighted for: hardness is lower"
    assert f"Warning: {said}" in warned
    assert "--like PREDICTIONS" in warned
    assert "calibration bags" not in warned
    far = write_csv(tmp_path / "far.csv", mixed_bags(200, 30, random), labeled=False)
    assert "overlap with the calibration" in fail("calibrate", held, "--like", far, "--out", tmp_path / "far.json")
    assert "no flags of instances" in fail(
        "calibrate", held, "--like", new, "--instances", "no-false-flag", "--out", tmp_path / "far.json"
    )
    assert not (tmp_path / "far.json").exists()


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), min_size=2), st.lists(st.integers(0, 4), min_size=2)
)
def test_the_gap_of_weighted_values_is_that_of_values_repeated_with_ties(
    held: list[tuple[int, int]], new: list[int]
) -> None:
    values, weights = (np.array(one, float) for one in zip(*held, strict=True))
    gap = _largest_gap(values, weights, np.array(new, float))
    repeated = np.repeat(values, weights.astype(int))
    assert gap == pytest.approx(ks_2samp(repeated, new, method="asymp").statistic)  # of p, exact ones can fail


@pytest.mark.parametrize("copies", [(20, 1), (1, 20)])
def test_a_patient_whose_bags_are_alike_counts_once(copies: tuple[int, int]) -> None:
    held = norm.ppf((np.arange(60) + 0.5) / 60)[:, None]  # with the new ones a gap of 0.27, by chance up to 0.30
    of_held, of_new = (np.repeat(one, times, 0) for one, times in zip((held, held + 0.66), copies, strict=True))
    weights = np.ones(len(of_held))
    assert unbalanced(of_held, weights, of_new, (1 / copies[0], 1 / copies[1])) == []
    assert unbalanced(of_held, weights, of_new) == [0], "were all of them patients, it would be up to 0.22"


def test_what_weights_leave_out_is_said_with_its_reason() -> None:
    random = np.random.default_rng(14)
    held, new = mixed_bags(200, 0, random), mixed_bags(120, 0.3, random)
    stated = replace(
        new, bags=replace(new.bags, patients=np.array([f"n{row // 2}" for row in range(120)], object))
    )
    made = calibrate(held, like=stated)
    said = " ".join(made.notes())
    assert "for weighted bags, and the out-of-distribution threshold" in said
    assert "Not counted: 60 new bags, out of distribution or of patients that were counted already." in said
    assert "The NLL of these bags is weighted, too." in str(made)
    assert "weighted, too" not in str(calibrate(held, like=stated, scaling=False))


@pytest.mark.long
def test_new_bags_without_patients_are_said_where_calibrated_patients_have_several_bags() -> None:
    random = np.random.default_rng(15)
    held, new = mixed_bags(200, 0, random), mixed_bags(100, 0.3, random)
    several = replace(
        held, bags=replace(held.bags, patients=np.array([f"p{row // 2}" for row in range(200)], object))
    )
    some = replace(new, bags=replace(new.bags, patients=np.array(["", *map(str, range(99))], object)))
    for like, unknown in ((new, 100), (some, 1)):
        said = f"No patient is stated for {unknown} of 100 bags, and patients of the calibration have several bags"
        assert said in " ".join(calibrate(several, like=like).notes())
        assert "No patient is stated" not in " ".join(calibrate(held, like=like).notes())
        assert "No patient is stated" not in " ".join(
            calibrate(several, like=like, settings={"bags_of_patient": "all"}).notes()
        )
