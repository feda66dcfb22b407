"""Labels that are grades, numbers or times: what they mean, how they are learned, and how good predictions are."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import fail, run
from made_reports import reported
from scipy.stats import CensoredData, binomtest, ecdf, logrank, norm
from sklearn.metrics import cohen_kappa_score, r2_score

import miue
from miue.bags import BagBatch, BagDataset, Labels, OodFlags, Outcomes, Segments, merge_bags
from miue.calibration import PredictionSetGoal, TimeBoundGoal, worklist
from miue.calibration.prediction_sets import fit_prediction_sets
from miue.calibration.reasons import BETWEEN, SPREAD
from miue.common.errors import ConfigError, DataError
from miue.common.tensors import read_nested, write_nested
from miue.distributions import Categorical
from miue.evaluation.bootstrap import bootstrap_intervals
from miue.io import describe_bags, find_bags_again, make_folds
from miue.methods import CumulativeLinks
from miue.networks import MeanNetwork
from miue.networks.encoders import Identity
from miue.predictions import Predictions, PredictionTable
from miue.targets import TARGETS, IntervalTarget, Ordinal, Regression, Survival, Target, concordance
from miue.targets.kaplan_meier import KaplanMeier, log_rank

PARTS = ("train", "validation", "test")
QUICK: dict[str, Any] = {"progress": False, "settings": {"max_epochs": 3, "device": "cpu"}}


def made_bags(count: int = 90, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Return bags of features, and a number for each that their highest first feature says."""
    generator = np.random.default_rng(seed)
    bags = [generator.normal(size=(size, 4)).astype(np.float32) for size in generator.integers(2, 6, count)]
    return bags, np.array([float(bag[:, 0].max()) for bag in bags])


def numbers() -> BagDataset:
    bags, values = made_bags()
    return BagDataset.from_arrays(bags).with_outcomes(values)


def times(seed: int = 0) -> BagDataset:
    bags, values = made_bags(seed=seed)
    ends = np.random.default_rng(seed).exponential(3, len(bags))
    events = np.exp(-values)
    return BagDataset.from_arrays(bags).with_outcomes(np.minimum(events, ends), events <= ends, task="survival")


def made_table(p: np.ndarray, outcomes: Outcomes, target: IntervalTarget) -> PredictionTable:
    """Return predictions of labeled bags."""
    names, labels = np.array([f"b{n}" for n in range(len(p))], object), target.classes_of(outcomes.values)
    return PredictionTable(
        Categorical(torch.from_numpy(p)),
        names,
        Labels(labels, outcomes.known),
        OodFlags.unknown(len(p)),
        np.full(len(p), "", object),
        outcomes=outcomes,
        target=target,
    )


def plain(target: Target, p: np.ndarray, values: np.ndarray, observed: np.ndarray) -> dict[str, float]:
    """Return the metrics of bags that count once each."""
    return {name: float(of(np.ones((1, len(p))))[0]) for name, of in target.metrics(p, values, observed).items()}


@pytest.fixture
def p() -> np.ndarray:
    return np.random.default_rng(1).dirichlet(np.ones(4), 60)


def test_kappa_and_absolute_error_of_grades_are_those_of_the_median_grade(p: np.ndarray) -> None:
    labels = np.random.default_rng(2).integers(0, 4, 60)
    found = plain(Ordinal(grades=("a", "b", "c", "d")), p, labels.astype(float), np.ones(60, bool))
    median = np.array([next(k for k in range(4) if row[: k + 1].sum() >= 0.5) for row in p])
    assert found["kappa"] == pytest.approx(cohen_kappa_score(labels, median, weights="quadratic"))
    assert found["mae"] == pytest.approx(np.abs(labels - median).mean())


def test_a_number_is_the_mean_of_its_distribution_and_its_interval_has_the_stated_probability(
    p: np.ndarray,
) -> None:
    values = np.random.default_rng(3).normal(size=200)
    target = Regression.fit(values, np.ones(200, bool), 4)
    assert np.bincount(target.classes_of(values)).tolist() == [50] * 4
    assert [values[target.classes_of(values) == k].mean() for k in range(4)] == pytest.approx(target.means)
    found = target.columns(p, None)
    ends = np.array([target.low, *target.edges, target.high])
    for row in range(60):
        inside = (found["low"][row] <= ends[:-1]) & (ends[1:] <= found["high"][row])
        assert p[row][inside].sum() >= 0.9 and p[row][: inside.argmax()].sum() < 0.05
        assert p[row][len(inside) - inside[::-1].argmax() :].sum() <= 0.05
        mean, variance = p[row] @ target.means, p[row] @ (np.array(target.variances) + np.array(target.means) ** 2)
        assert found["value"][row] == pytest.approx(mean)
        assert found["std"][row] ** 2 == pytest.approx(variance - mean**2)
    labels = values[:60]
    assert plain(target, p, labels, np.ones(60, bool))["r2"] == pytest.approx(r2_score(labels, found["value"]))


def test_the_epistemic_deviation_of_a_dirichlet_is_that_of_the_mean_over_its_draws() -> None:
    target = Regression.fit(np.arange(40.0), np.ones(40, bool), 4)
    alpha = np.array([3.0, 1.5, 1.0, 6.0])
    means = np.random.default_rng(0).dirichlet(alpha, 400_000) @ target.means
    found = target.columns(alpha[None] / alpha.sum(), np.array([alpha.sum()]))
    assert found["epistemic_std"][0] == pytest.approx(means.std(), rel=5e-3)


def test_concordance_counts_pairs_whose_order_is_known() -> None:
    generator = np.random.default_rng(0)
    risk, values = generator.integers(0, 5, 40).astype(float), generator.integers(1, 9, 40).astype(float)
    observed = generator.random(40) < 0.6
    right = total = 0.0
    for i in range(40):
        for j in range(40):
            if observed[i] and (values[j] > values[i] or (values[j] == values[i] and not observed[j])):
                total += 1
                right += (risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j])
    assert concordance(risk, values, observed)(np.ones((1, 40)))[0] == pytest.approx(right / total)
    assert np.isnan(concordance(risk, values, np.zeros(40, bool))(np.ones((1, 40)))[0])


def test_the_share_that_is_not_censored_is_the_product_limit() -> None:
    values, observed = np.array([1.0, 2, 2, 3, 4]), np.array([True, False, True, False, True])
    share = KaplanMeier(values, ~observed, np.ones((1, 5)), others_first=True)
    # at 2 three are at risk after the event, at 3 two
    assert share(np.array([2.0, 3.0]), before=True)[0].tolist() == pytest.approx([1, 2 / 3])
    assert share(np.array([2.0, 3.5]))[0].tolist() == pytest.approx([2 / 3, 1 / 3])
    free = KaplanMeier(values, observed, np.array([[1.0, 1, 1, 1, 1], [1, 0, 2, 0, 1]]))
    assert free.at_risk.tolist() == [[5, 4, 1], [4, 3, 1]]
    assert free(np.array([1.0, 2.0, 4.0]))[0].tolist() == pytest.approx([4 / 5, 3 / 5, 0])
    assert free(np.array([1.0, 2.0, 4.0]))[1].tolist() == pytest.approx([3 / 4, 1 / 4, 0])


def test_without_censoring_both_concordances_agree_and_the_brier_score_is_plain(p: np.ndarray) -> None:
    values = np.random.default_rng(5).exponential(2, 60)
    target = Survival.fit(values, np.ones(60, bool), 4)
    found = plain(target, p, values, np.ones(60, bool))
    assert found["c_index"] == pytest.approx(found["c_index_uno"])
    later = 1 - p.cumsum(1)[:, :-1]
    expected = np.mean([((values >= edge) - later[:, k]) ** 2 for k, edge in enumerate(target.edges)])
    assert found["integrated_brier"] == pytest.approx(expected)


TARGET_OF: dict[str, Target] = {
    "ordinal": Ordinal(grades=("a", "b", "c", "d")),
    "regression": Regression.fit(np.arange(12.0), np.ones(12, bool), 4),
    "survival": Survival(edges=(2.0, 5.0, 8.0)),
}


@pytest.mark.parametrize("kind", TARGET_OF)
def test_a_bag_that_counts_twice_is_the_same_as_two_bags(kind: str, p: np.ndarray) -> None:
    generator, target = np.random.default_rng(6), TARGET_OF[kind]
    values = generator.integers(0, 4 if kind == "ordinal" else 12, 60).astype(float)
    observed = generator.random(60) < (0.6 if kind == "survival" else 1.1)
    weights = generator.integers(0, 3, (5, 60)).astype(float)
    found = target.metrics(p, values, observed)
    assert set(found) == set(target.own_metrics)
    for name, of in found.items():
        each = [np.repeat(np.arange(60), row.astype(int)) for row in weights]
        drawn = [plain(target, p[rows], values[rows], observed[rows])[name] for rows in each]
        np.testing.assert_allclose(of(weights), drawn, err_msg=name)


def product_limit(values: np.ndarray, events: np.ndarray, until: float) -> float:
    """Return the share without an event before a time, by its definition."""
    share = 1.0
    for time in sorted({float(one) for one, event in zip(values, events, strict=True) if event and one < until}):
        share *= 1 - (events & (values == time)).sum() / (values >= time).sum()
    return share


def test_metrics_of_times_are_those_of_their_definitions(p: np.ndarray) -> None:
    generator = np.random.default_rng(7)
    values, observed = generator.permutation(60) + 1.0, generator.random(60) < 0.6  # no two alike
    target = Survival(edges=(9.0, 25.0, 44.0))
    found, risk = plain(target, p, values, observed), target.columns(p, None)["risk"]
    free = {float(value): product_limit(values, ~observed, float(value)) for value in (*values, *target.edges)}
    right = total = 0.0
    for i, j in product(np.flatnonzero(observed), range(60)):
        if values[j] > values[i]:
            total += free[values[i]] ** -2
            right += ((risk[i] > risk[j]) + (risk[i] == risk[j]) / 2) * free[values[i]] ** -2
    assert found["c_index_uno"] == pytest.approx(right / total)
    squares = []
    for number, edge in enumerate(target.edges):
        later = 1 - p[:, : number + 1].sum(1)
        for value, event, s in zip(values, observed, later, strict=True):
            squares.append((1 - s) ** 2 / free[edge] if value >= edge else event * s**2 / free[value])
    assert found["integrated_brier"] == pytest.approx(np.mean(squares))
    gap = p[:, :2].sum(1).mean() - (1 - product_limit(values, observed, 25.0))
    assert found["calibration_gap"] == pytest.approx(gap)


def test_the_log_rank_test_and_the_product_limit_agree_with_others() -> None:
    generator = np.random.default_rng(0)
    values, observed = generator.integers(1, 12, 50).astype(float), generator.random(50) < 0.6
    group = generator.integers(0, 2, 50)
    parts = [
        CensoredData(uncensored=values[of & observed], right=values[of & ~observed])
        for of in (group < 1, group > 0)
    ]
    assert log_rank(values, observed, group) == pytest.approx(logrank(*parts).pvalue)
    theirs = ecdf(CensoredData(uncensored=values[observed], right=values[~observed])).sf
    ours = KaplanMeier(values, observed, np.ones((1, 50)))
    np.testing.assert_allclose(ours(theirs.quantiles)[0], theirs.probabilities, atol=1e-12)
    every = KaplanMeier(values, np.ones(50, bool), np.ones((1, 50))).interval(np.array([0.0, 6.0, 20.0]))
    exact = [binomtest(int((values >= t).sum()), 50).proportion_ci(method="exact") for t in (0, 6, 20)]
    np.testing.assert_allclose(every, np.transpose([(one.low, one.high) for one in exact]))


@pytest.mark.long
def test_intervals_of_the_product_limit_contain_it_as_often_as_stated() -> None:
    hits = []
    for seed in range(500):
        generator = np.random.default_rng(seed)
        events, ends = generator.exponential(1, 40), generator.exponential(2, 40)
        curve = KaplanMeier(np.minimum(events, ends), events <= ends, np.ones((1, 40)))
        low, high = curve.interval(np.array([0.2, 0.7, 1.5]))
        hits.append((low <= np.exp([-0.2, -0.7, -1.5])) & (np.exp([-0.2, -0.7, -1.5]) <= high))
    assert (np.mean(hits, axis=0) > 0.94).all()


@pytest.mark.long
def test_intervals_of_the_concordance_contain_it_nearly_as_often_as_stated() -> None:
    hits = []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        risk = generator.normal(size=60)
        events, ends = generator.exponential(np.exp(-risk)), generator.exponential(2, 60)
        p = np.stack([norm.cdf(risk), 1 - norm.cdf(risk)], 1)
        outcomes = Outcomes.of(np.minimum(events, ends), events <= ends)
        table = made_table(p, outcomes, Survival(edges=(0.5,)))
        interval = bootstrap_intervals(table, {}, resamples=200)["c_index"]
        assert interval.low is not None and interval.high is not None
        hits.append(interval.low <= 0.7331 <= interval.high)
    assert np.mean(hits) > 0.9


@pytest.mark.long
def test_the_truth_has_the_best_brier_score_whatever_the_censoring() -> None:
    generator = np.random.default_rng(0)
    scores: dict[float, list[float]] = {0.7: [], 1.0: [], 1.4: []}
    for _ in range(60):
        rate = generator.uniform(0.3, 2, 400)
        events, ends = generator.exponential(1 / rate), generator.exponential(1.5, 400)
        values, observed = np.minimum(events, ends), events <= ends
        target = Survival.fit(values, observed, 5)
        for factor, found in scores.items():
            later = np.exp(-factor * rate[:, None] * np.array(target.edges))
            p = -np.diff(np.hstack([np.ones((400, 1)), later, np.zeros((400, 1))]))
            found.append(plain(target, p, values, observed)["integrated_brier"])
    means = {factor: np.mean(found) for factor, found in scores.items()}
    assert min(means, key=means.get) == 1.0  # type: ignore[arg-type]


def test_the_likelihood_of_a_time_without_an_event_is_that_of_its_interval_and_later_ones() -> None:
    logits = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels, observed = torch.tensor([1, 1, 0]), torch.tensor([True, False, False])
    batch = BagBatch(torch.zeros(3, 1), Segments.of(1, 1, 1), labels, observed, observed=observed)
    p = logits.softmax(1)
    wanted = [p[0, 1].log(), p[1, 1:].sum().log(), torch.zeros((), dtype=torch.float64)]
    found = batch.log_likelihood(logits.log_softmax(1))
    torch.testing.assert_close(found, torch.stack(wanted))
    assert torch.autograd.gradcheck(lambda x: batch.log_likelihood(x.log_softmax(1)), (logits,))


def test_cumulative_links_are_differences_of_ordered_probabilities() -> None:
    logits = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    method = CumulativeLinks(MeanNetwork(Identity((5,)), 5)).double()
    even = method.log_probabilities(torch.zeros(1, 5, dtype=torch.float64)).exp()
    torch.testing.assert_close(even, torch.full_like(even, 0.2))
    with torch.no_grad():
        method.thresholds.steps.add_(torch.tensor([0.5, -1.0, 2.0]) / 30)
    below = (method.thresholds() - logits[:, :1]).sigmoid()
    plain = torch.cat([below[:, :1], below.diff(), 1 - below[:, -1:]], 1)
    torch.testing.assert_close(method.log_probabilities(logits).exp(), plain)
    far = torch.tensor([[-800.0], [800.0]], dtype=torch.float64, requires_grad=True)
    found = method.log_probabilities(far.expand(2, 5))  # where differences of probabilities are 0
    assert found.isfinite().all()
    assert torch.autograd.grad(found.sum(), far)[0].isfinite().all()
    two = CumulativeLinks(MeanNetwork(Identity((5,)), 2))
    torch.testing.assert_close(
        two.log_probabilities(torch.tensor([[2.0, 9.0]])).exp()[0, 1], torch.tensor(2.0).sigmoid()
    )


@pytest.mark.long
def test_cumulative_links_learn_grades_from_few_bags_better_than_softmax() -> None:
    grades = tuple("abcdef")

    def graded(count: int, seed: int) -> BagDataset:
        generator = np.random.default_rng(seed)
        bags = [generator.normal(size=(k, 8)).astype(np.float32) for k in generator.integers(3, 8, count)]
        scores = np.array([bag[:, 0].max() for bag in bags]) + generator.normal(0, 0.3, count)
        labels = np.digitize(scores, [0.4, 0.8, 1.2, 1.6, 2.0]).tolist()
        return BagDataset.from_arrays(bags, labels, class_names=grades).with_target(Ordinal(grades=grades))

    settings = {"device": "cpu", "learning_rate": 1e-3, "max_epochs": 60}
    gains: dict[str, list[float]] = {"nll": [], "kappa": [], "mae": []}
    for seed in (10, 11, 12):
        softmax, links = (
            miue.train(graded(80, seed), method=name, progress=False, settings=settings).evaluate(graded(300, 2))
            for name in ("softmax", "cumulative-links")
        )
        for metric, of in gains.items():
            ours, theirs = (one.bags.metrics[metric].value or 0 for one in (links, softmax))
            of.append(ours - theirs)
    assert np.mean(gains["nll"]) < -0.15
    assert np.mean(gains["kappa"]) > 0.05
    assert np.mean(gains["mae"]) < -0.05


@pytest.mark.long
@pytest.mark.parametrize("score", ["lac", "aps"])
def test_sets_of_grades_have_no_gap_and_keep_their_promise(score: str) -> None:
    generator, hits, gaps = np.random.default_rng(0), [], 0
    for _ in range(300):
        p = generator.dirichlet(np.ones(5), 120)
        labels = np.array([generator.choice(5, p=row) for row in p])
        found = fit_prediction_sets(p[:60], labels[:60], PredictionSetGoal(0.2, score))
        plain, sets = found.of(p[60:]), found.of(p[60:], in_order=True)
        assert (sets >= plain).all()
        gaps += int((sets != plain).any(1).sum())
        numbers = [np.flatnonzero(row) for row in sets if row.any()]
        assert all(len(row) == row[-1] - row[0] + 1 for row in numbers)
        hits.append(sets[np.arange(60), labels[60:]].mean())
    assert gaps > 0
    assert np.mean(hits) > 0.8


@pytest.mark.long
def test_sets_of_a_number_contain_it_as_often_as_promised() -> None:
    generator, hits = np.random.default_rng(1), []
    labels = np.round(generator.normal(size=400), 1)  # with ties
    target = Regression.fit(labels, np.ones(400, bool), 8)
    ends = np.array([-np.inf, *target.edges, np.inf])
    for _ in range(300):
        truth = np.round(generator.normal(size=120), 1)
        guess = truth + generator.normal(0, 0.7, 120)
        p = norm.cdf(ends[1:], guess[:, None], 0.4) - norm.cdf(ends[:-1], guess[:, None], 0.4)  # too sure
        found = fit_prediction_sets(p[:60], target.classes_of(truth[:60]), PredictionSetGoal(0.1, "aps"))
        bounds = target.bounds(found.of(p[60:], in_order=True))
        hits.append(((bounds["set_low"] <= truth[60:]) & (truth[60:] <= bounds["set_high"])).mean())
    assert np.mean(hits) >= 0.9 - 2 * np.std(hits) / np.sqrt(300)


def test_a_number_is_calibrated_by_sets_of_its_intervals(tmp_path: Path) -> None:
    bags = numbers()
    model = miue.train(bags.subset(np.arange(40)), **QUICK)
    of_rest = model.predict(bags.subset(np.arange(40, 90)))
    calibration = miue.calibrate(of_rest)
    assert calibration.deferral is None and calibration.scaling is None and calibration.prediction_sets is not None
    decided = miue.decide(of_rest, calibration)
    decided.save(tmp_path / "decided")
    frame = miue.read_predictions(tmp_path / "decided").bags.to_frame()
    inside = (frame["set_low"] <= frame["outcome"]) & (frame["outcome"] <= frame["set_high"])
    evaluation = miue.evaluate(decided).decisions
    assert evaluation is not None
    assert inside.mean() == pytest.approx(evaluation.metrics["coverage"].value)
    assert inside.mean() >= 0.9
    assert evaluation.metrics["selective_risk"].value is None


def test_a_time_and_its_level_say_the_same(p: np.ndarray) -> None:
    target = Survival(edges=(2.0, 5.0, 8.0))
    for level in (0.05, 0.3, 0.9):
        at = target.times_at(p, level)
        inside = at < 8
        assert inside.any()
        np.testing.assert_allclose(target.levels(p, at)[inside], level)
        assert (p[~inside, -1] >= 1 - level - 1e-12).all()
    for number, edge in enumerate(target.edges[:-1]):
        np.testing.assert_allclose(target.levels(p, np.full(60, edge)), p[:, : number + 1].sum(1))
    assert target.levels(p[:3], np.array([0.0, 8.0, 99.0])).tolist() == [0.0, 1.0, 1.0]


CENSORING: dict[str, Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]] = {
    "none": lambda generator, events, rate: np.full(len(events), np.inf),
    "by chance": lambda generator, events, rate: generator.exponential(1.5, len(events)),
    "of those at risk": lambda generator, events, rate: generator.exponential(1 / rate),
    "of late events": lambda generator, events, rate: np.where(events > 1, 0.3, 9.0),
}


def times_of_patients(
    generator: np.random.Generator, count: int, censoring: str
) -> tuple[Predictions, np.ndarray, np.ndarray]:
    """Return predictions of patients with one to four bags, their events, and the patient of each bag."""
    rate, owner = generator.uniform(0.3, 2, count), np.repeat(np.arange(count), generator.integers(1, 5, count))
    events = generator.exponential(1 / rate)
    ends = CENSORING[censoring](generator, events, rate)
    guess = rate[owner] ** 1.5 * np.exp(generator.normal(0, 0.3, len(owner)))
    target = Survival(edges=(0.2, 0.5, 1.0, 2.0))
    later = np.exp(-guess[:, None] * np.array(target.edges))
    p = -np.diff(np.hstack([np.ones((len(owner), 1)), later, np.zeros((len(owner), 1))]))
    table = made_table(p, Outcomes.of(np.minimum(events, ends)[owner], (events <= ends)[owner]), target)
    named = replace(table, patients=np.array([f"p{n}" for n in owner], object))
    return Predictions(named, None), events[owner], owner


@pytest.mark.long
@pytest.mark.parametrize("censoring", CENSORING)
def test_no_event_comes_before_its_bound_more_often_than_promised(censoring: str) -> None:
    hits = []
    for seed in range(500):
        generator = np.random.default_rng(seed)
        known, _, _ = times_of_patients(generator, 30, censoring)
        new, events, owner = times_of_patients(generator, 60, censoring)
        found = miue.decide(new, miue.calibrate(known, false_alarms=None)).bags.decisions
        assert found is not None and found.time_bound is not None
        _, first = np.unique(owner, return_index=True)
        hits.append((found.time_bound <= events)[first].mean())
    error = 2 * np.std(hits) / np.sqrt(500)
    assert np.mean(hits) >= 0.9 - error
    if censoring == "none":  # three of 31 ranks
        assert np.mean(hits) == pytest.approx(1 - 3 / 31, abs=error)


def test_times_get_a_bound_that_is_kept_and_evaluated(tmp_path: Path) -> None:
    bags = times()
    model = miue.train(bags.subset(np.arange(40)), method="softmax", **QUICK)
    of_rest = model.predict(bags.subset(np.arange(40, 90)))
    calibration = miue.calibrate(of_rest)
    assert calibration.prediction_sets is None and calibration.deferral is None
    assert calibration.time_bound is not None and calibration.time_bound.error == pytest.approx(0.1)
    calibration.save(tmp_path / "calibration.json")
    decided = miue.decide(of_rest, miue.Calibration.load(tmp_path / "calibration.json"))
    decided.save(tmp_path / "decided")
    read = miue.read_predictions(tmp_path / "decided")
    decisions, outcomes = read.bags.decisions, read.bags.outcomes
    assert decisions is not None and decisions.time_bound is not None and outcomes is not None
    np.testing.assert_allclose(read.bags.to_frame()["time_bound"], decisions.time_bound)
    evaluation = miue.evaluate(read).decisions
    assert evaluation is not None
    free = product_limit(outcomes.values / decisions.time_bound, outcomes.observed, 1.0)
    assert evaluation.metrics["bound_coverage"].value == pytest.approx(free)
    assert free >= 0.9
    printed = str(miue.evaluate(read))
    assert "no event before the bound" in printed and "—" not in printed and "No metric of" not in printed
    page, _ = reported(tmp_path, read)
    shown = page.text[page.text.index("Skip to the content") :]
    assert "no event before the bound" in shown and "set size" not in shown
    assert "time_bound" in worklist(read).rows[0]
    few = of_rest.bags.subset(np.arange(8))
    with pytest.raises(DataError, match="at least 9 labeled bags for the bound of the time"):
        miue.calibrate(replace(of_rest, bags=few), false_alarms=None)
    with pytest.raises(ConfigError, match="another mix"):
        miue.calibrate(of_rest, like=of_rest)


@pytest.mark.parametrize("method", ["softmax", "mirel"])
def test_a_number_is_trained_predicted_saved_and_evaluated(tmp_path: Path, method: str) -> None:
    bags = numbers()
    model = miue.train(bags.subset(np.arange(60)), method=method, **QUICK)
    assert "method.background" not in model.config.options() or model.config.options()["method.background"] is None
    model.save(tmp_path / "model")
    predictions = miue.Model.load(tmp_path / "model").predict(bags.subset(np.arange(60, 90)))
    predictions.save(tmp_path / "predictions")
    read = miue.read_predictions(tmp_path / "predictions")
    np.testing.assert_array_equal(read.bags.outcomes, bags.outcomes[60:])  # type: ignore[index]
    found = miue.evaluate(read).bags.metrics
    assert set(found) == {"nll", "mae", "rmse", "r2", "coverage", "width"}
    value = read.bags.to_frame()["value"].to_numpy()
    assert found["mae"].value == pytest.approx(np.abs(value - np.asarray(read.bags.outcomes)).mean())
    assert "accuracy" not in str(miue.evaluate(read)).lower()


def test_intervals_are_of_the_bags_that_are_learned_from_alone() -> None:
    bags = numbers()
    model = miue.train(bags.subset(np.arange(60)), validation=bags.subset(np.arange(60, 90)), **QUICK)
    target = model.contract.target
    assert isinstance(target, Regression)
    learned = np.asarray(bags.outcomes)[:60]
    assert (target.low, target.high) == (learned.min(), learned.max())


@pytest.mark.long
@pytest.mark.parametrize("method", ["softmax", "mc-dropout"])
def test_times_with_and_without_events_are_learned_from(method: str) -> None:
    bags = times()
    settings = {"max_epochs": 40, "device": "cpu", "learning_rate": 1e-3, "validation_fraction": 0.0}
    model = miue.train(bags, method=method, progress=False, settings=settings)
    found = miue.evaluate(model.predict(times(1))).bags.metrics
    assert (found["c_index"].value or 0) > 0.7
    assert set(found) == set(Survival.own_metrics)


def test_numbers_are_held_out_by_what_is_low_and_high_among_them() -> None:
    bags = BagDataset.from_arrays(made_bags(40)[0]).with_outcomes(np.arange(40.0))
    chosen = bags.subset(np.array([*range(28), 39]))  # of which one is high among all 40
    assert np.bincount(chosen.strata).tolist()[-1] == 1
    miue.train(chosen, **QUICK)


def test_folds_keep_the_shares_of_events_and_of_low_and_high_numbers() -> None:
    for bags in (times(), numbers()):
        folds = make_folds(bags, 3, validation=0.2, seed=0)
        for fold in range(3):
            shares = [np.bincount(part.strata) / len(part) for part in map(folds.assign(bags, fold).split, PARTS)]
            assert np.ptp(shares, axis=0).max() < 0.1


def test_slides_of_a_patient_become_one_bag_with_their_time() -> None:
    bags = times()
    patients = [f"p{number // 2}" for number in range(90)]
    with pytest.raises(DataError, match="agree"):
        merge_bags(bags, patients)
    same = np.repeat(np.arange(0, 90, 2), 2)
    assert bags.outcomes is not None
    merged = merge_bags(replace(bags, outcomes=bags.outcomes[same], labels=bags.labels[same]), patients)
    assert merged.outcomes is not None
    np.testing.assert_array_equal(merged.outcomes.values, bags.outcomes.values[::2])
    np.testing.assert_array_equal(merged.outcomes.observed, bags.outcomes.observed[::2])


@pytest.mark.long
def test_times_take_softmax_where_no_method_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    model = miue.train(times(), settings=QUICK["settings"])
    assert model.provenance().method == "softmax"
    said = [line for line in capsys.readouterr().err.splitlines() if "method softmax" in line]
    assert len(said) == 1 and "mirel does not learn" in said[0]
    assert miue.train(numbers(), settings=QUICK["settings"]).provenance().method == "mirel"
    assert "does not learn" not in capsys.readouterr().err


def test_a_method_that_does_not_learn_from_censored_times_is_refused() -> None:
    with pytest.raises(ConfigError, match="MIREL"):
        miue.train(times(), method="mirel", **QUICK)


def test_what_needs_classes_refuses_numbers() -> None:
    bags = numbers()
    predictions = miue.train(bags, **QUICK).predict(bags)
    with pytest.raises(ConfigError, match="flags of instances"):
        miue.calibrate(predictions, instances=miue.InstanceGoal("no-false-flag", 0.1))
    with pytest.raises(ConfigError, match="bound of the time"):
        miue.calibrate(predictions, time_bound=TimeBoundGoal())


@pytest.fixture(scope="module")
def predicted() -> dict[str, Predictions]:
    """Return predictions of new bags whose labels are numbers, and times."""
    found = {}
    for bags in (numbers(), times()):
        assert bags.target is not None
        model = miue.train(bags.subset(np.arange(50)), method="softmax", **QUICK)
        found[bags.target.kind] = model.predict(bags.subset(np.arange(50, 90)))
    return found


@pytest.mark.parametrize(
    ("kind", "titles"),
    [
        ("regression", ("Predicted against true", "Uncertainty", "Calibration")),
        ("survival", ("Survival", "Calibration")),
    ],
)
def test_a_report_shows_what_has_a_meaning_for_the_label_alone(
    predicted: dict[str, Predictions], tmp_path: Path, kind: str, titles: tuple[str, ...]
) -> None:
    given = predicted[kind]
    page, written = reported(tmp_path, given)
    assert [figure["title"].partition(":")[0] for figure in page.data["figures"][0]] == list(titles)
    assert all(title in page.text for title in titles)
    for word in ("accura", "Reliability", "incorrect", "sensitivity", "confidence"):
        assert word not in page.text[page.text.index("Skip to the content") :]
    target = given.bags.target
    assert target is not None
    metrics = written.verdicts[0].to_json()["metrics"]
    assert set(metrics) == {"nll", *target.own_metrics}
    assert metrics[target.headline[0]]["low"] < metrics[target.headline[0]]["high"]
    [values] = [one["values"] for one in page.data["predictions"]]
    assert set(values) == set(given.bags.predicted_values())
    outcomes = page.data["bags"]["outcome"]
    assert given.bags.outcomes is not None
    assert any(text.endswith("+") for text in outcomes["texts"]) != given.bags.outcomes.observed.all()
    without = replace(given.bags, labels=Labels.unknown(40), outcomes=Outcomes.unknown(40))
    unlabeled, _ = reported(tmp_path, replace(given, bags=without))
    assert unlabeled.data["figures"] == [[]]
    assert f"Predicted {next(iter(values)).replace('_', ' ')} of 40 bags" in unlabeled.text


def test_the_curves_of_a_report_are_of_groups_of_the_risk(predicted: dict[str, Predictions]) -> None:
    table = predicted["survival"].bags
    figure = table.own_figures()[0]
    assert table.outcomes is not None
    risk, values = table.predicted_values()["risk"], table.outcomes.values
    low = risk <= np.quantile(risk, 0.5, method="lower")
    curve = KaplanMeier(values[low], table.outcomes.observed[low], np.ones((1, int(low.sum()))))
    assert figure.series[0].name == "lower risk"
    x = np.array([0.0, *curve.times, values[low].max()])
    np.testing.assert_allclose(figure.series[0].x, x, rtol=1e-5)
    np.testing.assert_allclose(figure.series[0].y, curve(x)[0], atol=1e-5)
    assert figure.table is not None
    assert [row[1] for row in figure.table[1:]] == [str(low.sum()), str((~low).sum())]


def test_models_that_disagree_about_a_number_cannot_be_compared(
    predicted: dict[str, Predictions], tmp_path: Path
) -> None:
    given = predicted["regression"]
    assert given.bags.outcomes is not None
    values = given.bags.outcomes.values + (np.arange(40) == 3) * 1e-9
    other = replace(given, bags=replace(given.bags, outcomes=Outcomes.of(values)))
    with pytest.raises(DataError, match="as other predictions have it"):
        reported(tmp_path, given, other, names=["a", "b"])


def test_models_with_intervals_of_their_own_are_compared(
    predicted: dict[str, Predictions], tmp_path: Path
) -> None:
    given = predicted["survival"]
    bags = times()
    model = miue.train(bags.with_own_intervals(3).subset(np.arange(48)), **QUICK)
    other = model.predict(bags.subset(np.arange(50, 90)))
    assert other.bags.target != given.bags.target
    page, written = reported(tmp_path, given, other, names=["a", "b"])
    assert page.data["classes"] == [] and "NLL cannot be compared" in page.text
    assert [one["width"] for one in page.data["predictions"]] == [given.bags.distribution.num_classes, 3]
    for verdict, one in zip(written.verdicts, (given, other), strict=True):
        expected = miue.evaluate(one).bags.metrics
        assert {name: metric.value for name, metric in verdict.metrics.items()} == {
            name: pytest.approx(metric.value) for name, metric in expected.items()
        }
    assert "b compared with a" in page.text
    with pytest.raises(DataError, match="survival, got regression"):
        reported(tmp_path, given, predicted["regression"])


@pytest.mark.parametrize(("kind", "columns"), [("regression", "value"), ("survival", "risk")])
def test_a_worklist_says_what_is_predicted_in_the_words_of_the_label(
    predicted: dict[str, Predictions], kind: str, columns: str
) -> None:
    row = worklist(predicted[kind]).rows[0]
    at = predicted[kind].bags.bag_ids.tolist().index(row["slide"])
    assert row["predicted"] == predicted[kind].bags.described()[at]
    assert columns in row and "probability" not in row
    assert SPREAD in worklist(predicted[kind]).judged and BETWEEN not in worklist(predicted[kind]).judged


def test_a_store_keeps_outcomes_and_their_target(tmp_path: Path) -> None:
    bags = times()
    miue.write_store(tmp_path / "store", bags)
    read = miue.load_bags(tmp_path / "store").bags
    assert read.target == bags.target and read.class_names == bags.class_names
    assert read.outcomes is not None and bags.outcomes is not None
    for name in ("values", "known", "observed"):
        np.testing.assert_array_equal(getattr(read.outcomes, name), getattr(bags.outcomes, name))


@pytest.mark.parametrize("kind", TARGETS)
def test_bags_are_handed_to_other_processes_with_their_target(tmp_path: Path, kind: str) -> None:
    arrays, values = made_bags(12)
    grades = BagDataset.from_arrays(arrays, np.arange(12) % 3, class_names=["low", "middle", "high"])
    sets = BagDataset.from_arrays(arrays).with_label_sets([[1, 0], [0, None], [None, None]] * 4, ["ER", "PR"])
    bags = {
        "multi-label": sets,
        "ordinal": grades.with_target(Ordinal(grades=grades.class_names)),
        "regression": BagDataset.from_arrays(arrays).with_outcomes(values),
        "survival": times().subset(np.arange(12)),
    }[kind]
    write_nested(tmp_path / "bags", describe_bags(bags, tmp_path / "bags.npy"))
    read = find_bags_again(read_nested(tmp_path / "bags"))
    assert read.target == bags.target and list(read.labels) == list(bags.labels)
    np.testing.assert_array_equal(read.strata, bags.strata)
    assert (read.outcomes is None) == (bags.outcomes is None)
    if read.outcomes is not None and bags.outcomes is not None:
        np.testing.assert_array_equal(read.outcomes.values, bags.outcomes.values)
        np.testing.assert_array_equal(read.outcomes.observed, bags.outcomes.observed)


def written(tmp_path: Path, rows: dict[str, list[Any]]) -> list[str | Path]:
    """Write a folder of features and a table of labels, and return how a command reads them."""
    bags, _ = made_bags(len(next(iter(rows.values()))))
    (tmp_path / "features").mkdir()
    for number, bag in enumerate(bags):
        np.save(tmp_path / "features" / f"s{number}.npy", bag)
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["slide_id", *rows])
        table.writerows([f"s{number}", *cells] for number, cells in enumerate(zip(*rows.values(), strict=True)))
    return [tmp_path / "features", "--labels", tmp_path / "labels.csv"]


TASKS = {
    "regression": (["--label-column", "age"], "mae"),
    "survival": (["--time-column", "months", "--event-column", "dead"], "c_index"),
    "ordinal": (["--label-column", "grade", "--classes", "low,middle,high"], "kappa"),
}


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_each_task_runs_from_folder_to_evaluation(tmp_path: Path, task: str) -> None:
    _, values = made_bags(60)
    generator = np.random.default_rng(0)
    rows = {
        "age": [f"{value * 10 + 50:.1f}" for value in values],
        "months": [f"{value:.2f}" for value in generator.exponential(9, 60)],
        "dead": generator.integers(0, 2, 60).tolist(),
        "grade": [("low", "middle", "high")[int(value > 1) + int(value > 1.7)] for value in values],
    }
    named, metric = TASKS[task]
    given = [*written(tmp_path, rows), "--task", task, *named]
    run("train", *given, "--out", tmp_path / "run", "--set", "max_epochs=2", "--quiet")
    assert json.loads(run("inspect", tmp_path / "run", "--json"))["task"] == task
    run("predict", tmp_path / "run", *given, "--out", tmp_path / "out", "--part", "all", "--quiet")
    found = json.loads(run("evaluate", tmp_path / "out", "--json", "--allow-training-bags"))
    assert found["bags"]["metrics"][metric] is not None
    run("cross-validate", *given, "--out", tmp_path / "cv", "--set", "max_epochs=1", "--folds", "3", "--quiet")
    with (tmp_path / "cv" / "summary.csv").open() as file:
        assert metric in {row["metric"] for row in csv.DictReader(file)}


@pytest.mark.parametrize(
    ("rows", "named", "wanted"),
    [
        ({"age": ["50", "61 years", "3"]}, ["--task", "regression"], "61 years"),
        ({"age": ["50", "50", "50"]}, ["--task", "regression"], "of one value"),
        ({"t": ["1", "-2", "3"], "e": ["1", "1", "1"]}, [*("--task", "survival", "--event-column", "e")], "-2"),
        (
            {"t": ["1", "2", "3"], "e": ["1", "dead", "1"]},
            [*("--task", "survival", "--event-column", "e")],
            "dead",
        ),
        (
            {"t": ["1", "2", "3"], "e": ["0", "0", "0"]},
            [*("--task", "survival", "--event-column", "e")],
            "0 events",
        ),
        (
            {"t": ["1", "2", "3"], "e": ["1", "", "0"]},
            [*("--task", "survival", "--event-column", "e")],
            "empty cell",
        ),
        ({"t": ["1", "2", "3"]}, ["--task", "survival"], "column of events"),
        ({"t": ["1", "2", "3"]}, ["--task", "survival", "--event-column", "e"], "event column 'e'"),
        ({"g": ["low", "high", "worst"]}, ["--task", "ordinal", "--classes", "low,high"], "worst"),
    ],
)
def test_labels_that_are_none_of_a_task_are_named(
    tmp_path: Path, rows: dict[str, list[str]], named: list[str], wanted: str
) -> None:
    assert wanted in fail("train", *written(tmp_path, rows), *named, "--out", tmp_path / "run")


def test_outcomes_are_one_finite_number_for_each_bag() -> None:
    bags = BagDataset.from_arrays(made_bags(3)[0])
    with pytest.raises(DataError, match="one for each bag"):
        bags.with_outcomes([1.0, 2.0])
    with pytest.raises(DataError, match="infinity"):
        bags.with_outcomes([1.0, 2.0, np.inf])
    with pytest.raises(ConfigError, match="ordinal"):
        bags.with_outcomes([1.0, 2.0, 3.0], task="ordinal")
    assert list(Outcomes.of([1.0, None])) == [1.0, None]
    assert all(kind.model_fields["kind"].default == name for name, kind in TARGETS.items())
