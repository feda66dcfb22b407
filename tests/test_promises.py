"""What each part of a calibration promises, over many calibrations: without ties, with ties, and of patients.

Every simulation goes through ``calibrate`` and ``decide``, and the truth is computed, not sampled: how often a bag
is wrong given its uncertainty is known, so that the error of a rule is a weighted sum over all uncertainties.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from made_promises import predictions_of
from scipy.stats import binom

from miue.calibration import Calibration, DeferralGoal, FalseAlarmGoal, PredictionSetGoal, calibrate, decide
from miue.calibration.deferral import fallback_tests, starting_shares
from miue.calibration.ranks import p_values
from miue.distributions import Categorical
from miue.predictions import Decisions, Predictions

MANY = pytest.mark.parametrize("runs", [30, pytest.param(500, marks=pytest.mark.slow)])
GRID = 1000  # uncertainties at which the truth of a continuous world is computed
ALONE: dict[str, None] = {"deferral": None, "prediction_sets": None, "false_alarms": None}


@dataclass(frozen=True)
class World:
    """Bags of two classes, all predicted as the first: how unsure the model is, and how often it is wrong then.

    Attributes:
        least_confidence: of each kind of bag.
        far: a score of each kind, for the out-of-distribution threshold.
        weight: how often each occurs.
        wrong: how often a bag of each has the second class.
        between: draws bags between the kinds: (places with fractions) → the three values; None to draw kinds.
    """

    least_confidence: np.ndarray
    far: np.ndarray
    weight: np.ndarray
    wrong: np.ndarray
    between: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]] | None = None

    def sample(self, random: np.random.Generator, count: int, per_patient: int = 1) -> Predictions:
        """Return predictions of bags; those of one patient are all alike, right or wrong together."""
        if self.between is None:
            kinds = random.choice(len(self.weight), count, p=self.weight)
            values = self.least_confidence[kinds], self.far[kinds], self.wrong[kinds]
        else:
            values = self.between(random.random(count))
        sizes = random.integers(1, per_patient + 1, count)
        classes = (random.random(count) < values[2]).astype(np.int64)
        lc, far, labels = (np.repeat(one, sizes) for one in (*values[:2], classes))
        made = predictions_with(lc, far, labels)
        if per_patient == 1:
            return made
        names = np.repeat([f"patient {i}" for i in range(count)], sizes).astype(object)
        return replace(made, bags=replace(made.bags, patients=names))

    def decided(self, calibration: Calibration) -> Decisions:
        """Return what a calibration decides of every kind of bag."""
        every = predictions_with(self.least_confidence, self.far, np.zeros(len(self.weight), np.int64))
        decisions = decide(every, calibration).bags.decisions
        assert decisions is not None
        return decisions

    def share(self, which: np.ndarray) -> float:
        return float(self.weight[which].sum())

    def error_of(self, which: np.ndarray) -> float:
        return float((self.weight * self.wrong)[which].sum() / self.share(which)) if which.any() else 0.0

    def missed(self, sets: np.ndarray) -> np.ndarray:
        """Chance that a set misses the label: of all bags, of those of each class."""
        misses = self.weight * np.stack([(1 - self.wrong) * ~sets[:, 0], self.wrong * ~sets[:, 1]])
        classes = np.stack([self.weight * (1 - self.wrong), self.weight * self.wrong]).sum(1)
        return np.array([misses.sum(), *(misses.sum(1) / classes)])


def predictions_with(lc: np.ndarray, far: np.ndarray, labels: np.ndarray) -> Predictions:
    p = torch.from_numpy(np.stack([1 - lc, lc], 1))
    return predictions_of(Categorical(p), labels, scores={"far": far})


def continuous() -> World:
    """No two bags with one score: wrong with chance 0.5 u⁴, and far from training data where unsure."""

    def of(u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return 0.499 * u, np.where(u < 0.6, 10 + 7919 * u % 1, 20 + u), 0.5 * u**4

    lc, far, wrong = of((np.arange(GRID) + 0.5) / GRID)
    return World(lc, far, np.full(GRID, 1 / GRID), wrong, of)


def votes_of_five() -> World:
    """Votes of five members, 0, 1 or 2 of them against: three scores in all."""
    lc = np.array([0.0, 0.2, 0.4])
    return World(lc, np.array([1.0, 2.0, 3.0]), np.array([0.8, 0.1, 0.1]), np.array([0.005, 0.06, 0.5]))


def votes_and_distances() -> World:
    """Votes and rounded distances that say different things: many bags at each pair."""
    votes, far = (grid.ravel() for grid in np.meshgrid([0.0, 0.2, 0.4], [0.5, 0.6, 0.7, 0.8]))
    weight = np.tile([0.5, 0.3, 0.12, 0.08], (3, 1)).T.ravel() * np.tile([0.75, 0.15, 0.1], 4)
    wrong = np.clip(np.tile([0.005, 0.05, 0.2], 4) * np.repeat([0.5, 1.0, 2.0, 4.0], 3), 0, 0.5)
    return World(votes, far, weight / weight.sum(), wrong)


WORLDS = pytest.mark.parametrize(
    "make", [continuous, votes_of_five, votes_and_distances], ids=lambda f: f.__name__
)
PATIENTS = pytest.mark.parametrize("per_patient", [1, 4], ids=["bags", "patients"])
Make = Callable[[], World]


def at_most(broken: int, runs: int, chance: float) -> bool:
    """Whether so many broken promises are no more than ``chance`` explains in 1,999 of 2,000 simulations."""
    return bool(broken <= binom.ppf(0.9995, runs, chance))


@pytest.mark.long
@MANY
@WORLDS
@PATIENTS
@pytest.mark.parametrize("score", [None, "far", "without"])
def test_the_error_among_the_kept_is_kept_at_the_confidence(
    runs: int, make: Make, per_patient: int, score: str | None
) -> None:
    world, random, broken, answered = make(), np.random.default_rng(31), 0, 0
    for run in range(runs):
        made = calibrate(
            world.sample(random, 250, per_patient),
            scaling=False,
            prediction_sets=None,
            deferral=DeferralGoal(0.05, 0.9),
            false_alarms=None if score == "without" else FalseAlarmGoal(0.1, score),
            settings={"seed": run},
        )
        decisions = world.decided(made)
        broken += world.error_of(decisions.accepted) > 0.05
        answered += bool(decisions.accepted.any())
    assert at_most(broken, runs, 0.1), f"{broken} of {runs}"
    assert answered > 0.2 * runs


@pytest.mark.long
@MANY
@WORLDS
@PATIENTS
@pytest.mark.parametrize("per_class", [False, True])
def test_prediction_sets_miss_the_label_as_seldom_as_promised_whatever_the_deferral_came_to(
    runs: int, make: Make, per_patient: int, per_class: bool
) -> None:
    """A deferral that is often refused, so that only the better calibrations would be left."""
    world, random, misses, refused = make(), np.random.default_rng(32), [], 0
    for run in range(runs):
        made = calibrate(
            world.sample(random, 400 if per_class else 99, per_patient),
            scaling=False,
            deferral=DeferralGoal(0.05, 0.9),
            prediction_sets=PredictionSetGoal(0.3 if per_class else 0.05, per_class=per_class),
            false_alarms=None,
            settings={"seed": run},
        )
        assert made.deferral is not None
        refused += bool(made.deferral.refused)
        sets = world.decided(made).prediction_sets
        assert sets is not None
        misses.append(world.missed(sets))
    mean, error = np.mean(misses, 0), np.std(misses, 0) / np.sqrt(runs)
    promised, upto = slice(1, None) if per_class else slice(0, 1), 0.3 if per_class else 0.05
    assert (mean - 4 * error)[promised].max() <= upto + 1 / GRID, (mean, error)
    if make is continuous and not per_class:
        assert mean[0] > upto - 4 * error[0] - 1 / GRID  # without ties the promise is met exactly
        assert 0.1 * runs < refused < 0.95 * runs


@pytest.mark.long
@MANY
@WORLDS
@PATIENTS
@pytest.mark.parametrize("score", [None, "far"])
def test_false_alarms_keep_their_rate_on_average_and_at_a_confidence(
    runs: int, make: Make, per_patient: int, score: str | None
) -> None:
    world, random = make(), np.random.default_rng(33)
    alarms: dict[float | None, list[float]] = {None: [], 0.9: []}
    for _ in range(runs):
        given = world.sample(random, 79, per_patient)
        for confidence, rates in alarms.items():
            goal = FalseAlarmGoal(0.1, score, confidence)
            made = calibrate(given, **{**ALONE, "false_alarms": goal}, scaling=False)  # type: ignore[arg-type]
            rates.append(world.share(world.decided(made).flagged))
    error = np.std(alarms[None]) / np.sqrt(runs)
    assert np.mean(alarms[None]) <= 0.1 + 4 * error + 1 / GRID
    assert at_most(sum(rate > 0.1 for rate in alarms[0.9]), runs, 0.1)
    if make is continuous:
        assert np.mean(alarms[None]) >= 0.1 - 4 * error - 1 / GRID
        assert any(rate > 0.1 for rate in alarms[None])


@pytest.mark.parametrize("runs", [400, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("starts", "at_the_end"), [(1, 0.0), (2, 0.0), (4, 0.0), (1, 0.1), (4, 0.1)])
@pytest.mark.parametrize("tied", [False, True])
def test_tests_handed_on_reject_no_true_hypothesis_oftener_than_the_level(
    runs: int, starts: int, at_the_end: float, tied: bool
) -> None:
    """Error rates above and below the target in turn, tested by nested bags: p-values with ties, or jittered."""
    random, level, wrongly = np.random.default_rng(34), 0.1, 0
    rates = np.repeat([0.02, 0.3, 0.0, 0.12], 50)
    counts = np.arange(20, 201, 20)
    true = rates.cumsum()[counts - 1] / counts >= 0.05
    assert 0 < true.sum() < len(true)
    shares = starting_shares(len(counts), starts, level * (1 - at_the_end) / starts, level * at_the_end)
    assert shares.sum() == pytest.approx(level)
    for _ in range(runs):
        errors = (random.random(200) < rates).cumsum()[counts - 1]
        p = p_values(errors, counts, 0.05)
        if not tied:  # the randomised test: uniform where the error is at the target
            p = p - random.random(len(p)) * (p - p_values(errors - 1, counts, 0.05))
        wrongly += bool(fallback_tests(p, shares)[true].any())
    assert at_most(wrongly, runs, level)
