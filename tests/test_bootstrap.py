"""Bootstrap intervals: every resample against an evaluation of the bags that it drew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm, t

from miue.bags import Labels, OodFlags
from miue.distributions import Categorical, Dirichlet, PredictiveDistribution
from miue.evaluation import Interval, Metric, bootstrap, ranking
from miue.evaluation.bootstrap import (
    bootstrap_intervals,
    owners_of_items,
    paired_differences,
    patients_by_bag,
    resampled_metrics,
)
from miue.evaluation.intervals import _most_independent, auroc_interval, percentile_intervals
from miue.evaluation.level import default_metrics, evaluate_level
from miue.evaluation.metrics import Owners
from miue.predictions import PredictionTable


def made_table(classes: int = 2, bags: int = 23, per_bag: int = 7, ties: bool = False) -> PredictionTable:
    random = np.random.default_rng(5)
    count = bags * per_bag
    alpha = random.gamma(1.3, size=(count, classes)) + 1
    if ties:
        alpha = np.round(alpha, 0)
    of_bag = np.repeat(np.arange(bags), per_bag)
    is_ood = np.repeat(random.random(bags) < 0.4, per_bag)
    sets = np.where(is_ood, np.where(of_bag % 2 == 0, "even", "odd"), "").astype(object)
    labels = Labels(random.integers(classes, size=count), random.random(count) < 0.8)
    names = np.array([f"bag {b}" for b in of_bag], object)
    return PredictionTable(Dirichlet(torch.from_numpy(alpha)), names, labels, OodFlags.of(is_ood), sets)


def drawn_again(table: PredictionTable, seed: int, number: int) -> PredictionTable:
    names, bag_of = np.unique(table.bag_ids.astype(str), return_inverse=True)
    drawn = np.random.default_rng([seed, number]).integers(len(names), size=len(names))
    rows = np.concatenate([np.flatnonzero(bag_of == bag) for bag in drawn])
    distribution: PredictiveDistribution
    if isinstance(table.distribution, Dirichlet):
        distribution = Dirichlet(table.distribution.alpha[torch.from_numpy(rows)])
    else:
        distribution = Categorical(table.distribution.probabilities[torch.from_numpy(rows)])
    return PredictionTable(
        distribution, table.bag_ids[rows], table.labels[rows], table.is_ood[rows], table.ood_sets[rows]
    )


def values_of(table: PredictionTable) -> dict[str, float]:
    level = evaluate_level(table)
    by_measure = level.by_measure["least_confidence"]  # of a table without error probabilities
    metrics = {**level.metrics, "confidence": level.confidence.auroc, "errors": by_measure.confidence.auroc}
    metrics.update({f"ood {name}": one.auroc for name, one in level.ood.items()})
    inside = table.judged
    correct = table.predicted[inside] == table.labels.values[inside]
    metrics.update({f"recall {number}": one for number, one in level.recall_by_class.items()})
    metrics["mean_confidence"] = Metric(float(table.probabilities[inside].max(1).mean()))
    metrics["overconfidence"] = Metric(float(np.mean(table.probabilities[inside].max(1) - correct)))
    return {name: np.nan if one.value is None else one.value for name, one in metrics.items()}


def widths(intervals: dict[str, Interval]) -> dict[str, float]:
    found = {name: (one.low, one.high) for name, one in intervals.items()}
    return {name: high - low for name, (low, high) in found.items() if low is not None and high is not None}


@pytest.mark.parametrize(
    ("classes", "per_bag", "ties"), [(2, 7, False), (2, 7, True), (3, 5, False), (2, 1, False)]
)
def test_a_resample_has_the_metrics_of_the_bags_it_drew(
    classes: int, per_bag: int, ties: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made_table(classes, per_bag=per_bag, ties=ties)
    monkeypatch.setattr(bootstrap, "CELLS_AT_ONCE", 3 * len(table))
    found = resampled_metrics(table, {}, resamples=11, seed=3)
    for number in range(11):
        wanted = values_of(drawn_again(table, 3, number))
        if not {"ood even", "ood odd"} <= set(wanted):
            del wanted["ue"]  # a resample without a set has no mean over all sets
            assert np.isnan(found["ue"][number])
        for name, value in wanted.items():
            assert found[name][number] == pytest.approx(value, abs=1e-12, nan_ok=True), name
    assert set(found) == {*values_of(table), "detection even", "detection odd"}


@pytest.mark.long
def test_differences_of_two_methods_are_those_of_the_same_resamples() -> None:
    table = made_table()
    alpha = Dirichlet(torch.from_numpy(1 + np.random.default_rng(8).gamma(1.3, size=(len(table), 2))))
    other = replace(table, distribution=alpha)
    ours, theirs = (resampled_metrics(one, {}, resamples=30, seed=1) for one in (other, table))
    found = paired_differences([ours], [theirs])["accuracy"]
    for number in range(30):
        a, b = (values_of(drawn_again(one, 1, number))["accuracy"] for one in (other, table))
        assert found[number] == pytest.approx(a - b, abs=1e-12)
    nothing = percentile_intervals(paired_differences([ours], [ours]), owners=23)["accuracy"]
    assert (nothing.low, nothing.high, nothing.excludes_zero) == (None, None, False)
    assert not Interval(0.0, 0.1, 9).excludes_zero
    assert not Interval(-0.1, 0.0, 9).excludes_zero
    assert "same in every resample" in nothing.reason
    seeds = paired_differences([ours, theirs], [theirs])["accuracy"]
    assert seeds == pytest.approx(found / 2)


def test_a_paired_interval_shows_a_difference_that_overlapping_intervals_hide() -> None:
    hard = np.arange(200) % 10 < 4  # both methods fail on the same bags, one of them on a few more
    tables = []
    for wrong in (hard, hard | (np.arange(200) % 25 == 5)):
        p = np.where(wrong[:, None], [0.2, 0.8], [0.8, 0.2])
        ids = np.array([str(i) for i in range(200)], object)
        labels, unknown = Labels(np.zeros(200, np.int64), np.ones(200, bool)), OodFlags.unknown(200)
        none = np.full(200, "", object)
        tables.append(PredictionTable(Categorical(torch.from_numpy(p)), ids, labels, unknown, none))
    alone = [bootstrap_intervals(one, {}, resamples=300)["accuracy"] for one in tables]
    assert None not in (alone[0].low, alone[1].high)
    assert alone[0].low < alone[1].high  # type: ignore[operator]
    draws = [[resampled_metrics(one, {}, resamples=300, seed=0)] for one in tables]
    assert percentile_intervals(paired_differences(*draws), owners=200)["accuracy"].excludes_zero


def test_instances_of_a_bag_stay_together() -> None:
    table = made_table(bags=2, per_bag=50)
    halves = PredictionTable(
        Categorical(torch.tensor([[0.9, 0.1]]).repeat(100, 1)),
        table.bag_ids,
        Labels(np.repeat([0, 1], 50), np.ones(100, bool)),
        OodFlags.unknown(100),
        np.full(100, "", object),
    )
    accuracies = resampled_metrics(halves, {}, resamples=200, seed=0)["accuracy"]
    assert set(accuracies.tolist()) == {0.0, 0.5, 1.0}  # instances drawn one by one would spread near a half


@pytest.mark.long
def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    random, covered = np.random.default_rng(0), 0
    for trial in range(200):
        right = random.random(60) < 0.7
        table = PredictionTable(
            Categorical(torch.tensor([[0.8, 0.2]], dtype=torch.float64).repeat(60, 1)),
            np.array([str(i) for i in range(60)], object),
            Labels(np.where(right, 0, 1), np.ones(60, bool)),
            OodFlags.unknown(60),
            np.full(60, "", object),
        )
        interval = bootstrap_intervals(table, {}, resamples=200, seed=trial)["accuracy"]
        assert interval.low is not None
        assert interval.high is not None
        covered += interval.low <= 0.7 <= interval.high
    assert 0.88 <= covered / 200 <= 0.99


def test_the_seed_decides_and_the_chunk_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made_table()
    first = bootstrap_intervals(table, {}, resamples=50, seed=1)
    assert first == bootstrap_intervals(table, {}, resamples=50, seed=1)
    assert first != bootstrap_intervals(table, {}, resamples=50, seed=2)
    monkeypatch.setattr(bootstrap, "CELLS_AT_ONCE", 1)
    other = bootstrap_intervals(table, {}, resamples=50, seed=1)
    assert [one.low for one in other.values()] == pytest.approx([one.low for one in first.values()])


def test_an_undefined_metric_has_no_interval_but_a_reason() -> None:
    table = made_table()
    unlabeled = PredictionTable(
        table.distribution, table.bag_ids, Labels.unknown(len(table)), table.is_ood, table.ood_sets
    )
    intervals = bootstrap_intervals(unlabeled, {}, resamples=20)
    assert intervals["accuracy"].low is None
    assert intervals["accuracy"].reason == "defined in only 0 of 20 resamples"
    assert intervals["aurc"].low is None
    assert intervals["ood even"].low is not None


def test_the_bags_of_a_patient_are_drawn_together() -> None:
    right = np.repeat(np.arange(20) % 10 < 7, 10)
    bags = PredictionTable(
        Categorical(torch.tensor([[0.8, 0.2]]).repeat(200, 1)),
        np.array([str(i) for i in range(200)], object),
        Labels(np.where(right, 0, 1), np.ones(200, bool)),
        OodFlags.unknown(200),
        np.full(200, "", object),
        patients=np.array([f"p{i // 10}" for i in range(200)], object),
    )
    apart = widths(bootstrap_intervals(bags, {}))
    together = widths(bootstrap_intervals(bags, patients_by_bag(bags)))
    of_patients = widths(bootstrap_intervals(bags.subset(np.arange(0, 200, 10)), {}))
    assert together["brier"] > 2.5 * apart["brier"]
    assert together["brier"] == pytest.approx(of_patients["brier"], rel=0.05)
    assert 2.5 * apart["accuracy"] < of_patients["accuracy"] < together["accuracy"] < 1.2 * of_patients["accuracy"]
    unknown = replace(bags, patients=np.where(np.arange(200) < 10, "p0", "").astype(object))
    assert set(patients_by_bag(unknown).values()) == {"p0"}


def test_a_bag_that_is_called_as_a_patient_is_drawn_by_itself() -> None:
    table = made_table(bags=3, per_bag=2)
    owners = owners_of_items(table, {"bag 0": "bag 2", "bag 1": "bag 2"})
    assert owners.count == 2
    assert owners.index[0] == owners.index[2] != owners.index[4]


def test_percentiles_are_as_far_out_as_so_few_owners_need() -> None:
    uniform = np.linspace(0, 1, 100_001)
    for owners in (3, 5, 1000):
        found = percentile_intervals({"m": uniform}, owners=owners)["m"]
        expected = norm.cdf(-np.sqrt(owners / (owners - 1)) * t.ppf(0.975, owners - 1))
        assert found.low == pytest.approx(expected, abs=1e-5)
        assert found.high == pytest.approx(1 - expected, abs=1e-5)


def test_a_metric_needs_half_of_the_resamples() -> None:
    values = np.arange(100.0)
    values[:50] = np.nan
    assert percentile_intervals({"m": values}, owners=30)["m"].low is not None
    values[50] = np.nan
    few = percentile_intervals({"m": values}, owners=30)["m"]
    assert (few.low, few.defined, few.reason) == (None, 49, "defined in only 49 of 100 resamples")


def test_one_patient_alone_tells_no_interval() -> None:
    table = made_table(bags=3)
    one = dict.fromkeys((str(name) for name in table.bag_ids), "p")
    interval = bootstrap_intervals(table, one, resamples=20)["accuracy"]
    assert (interval.low, interval.high) == (None, None)
    assert "one patient" in interval.reason


def test_quantiles_of_many_items_give_the_metrics_of_all_and_nearly_their_resamples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = made_table(bags=60, per_bag=53)
    exact = resampled_metrics(table, {}, resamples=40, seed=0)
    monkeypatch.setattr(ranking, "EXACT_ITEMS", 1000)
    owners = Owners(table.rows_of_bags().bag, 60)
    binned = default_metrics(table, owners)
    level = evaluate_level(table)
    assert binned["aurc"](np.ones((1, 60), np.int64))[0] == pytest.approx(level.metrics["aurc"].value, abs=1e-12)
    assert binned["confidence"].plain.value == pytest.approx(level.confidence.auroc.value, abs=1e-12)
    resampled = resampled_metrics(table, {}, resamples=40, seed=0)
    for name, values in exact.items():
        assert np.abs(resampled[name] - values).max() < 5e-4, name
    assert any((resampled[name] != values).any() for name, values in exact.items())


def test_few_labeled_items_of_many_are_resampled_some_draws_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made_table(bags=60, per_bag=53)
    expected = resampled_metrics(table, {}, resamples=40, seed=0)
    labeled = int(table.labels.known.sum())
    assert len(table) > ranking.BINS
    monkeypatch.setattr(ranking, "EXACT_ITEMS", labeled)
    for module in (ranking, bootstrap):
        monkeypatch.setattr(module, "CELLS_AT_ONCE", 10 * labeled, raising=False)
    monkeypatch.setattr(bootstrap, "EXACT_ITEMS", labeled)
    sizes, auroc = [], ranking._auroc

    def recorded(hits: np.ndarray, others: np.ndarray) -> np.ndarray:
        sizes.append(hits.size)
        return auroc(hits, others)

    monkeypatch.setattr(ranking, "_auroc", recorded)
    resampled = resampled_metrics(table, {}, resamples=40, seed=0)
    assert max(sizes) <= 10 * labeled
    assert (resampled["confidence"] == expected["confidence"]).all()


def calibrated_bags(seed: int, patients: int, per_patient: int, apart: float) -> PredictionTable:
    """Bags of two classes as frequent, whose scores are normal and ``apart``; probabilities are right."""
    random = np.random.default_rng(seed)
    label = np.repeat(random.integers(2, size=patients), per_patient)
    alike = np.repeat(random.normal(size=patients), per_patient)
    noise = alike if per_patient == 1 else (0.7**0.5 * alike + 0.3**0.5 * random.normal(size=len(label)))
    p = 1 / (1 + np.exp(-apart * (apart * (label - 0.5) + noise)))
    return PredictionTable(
        Categorical(torch.from_numpy(np.stack([1 - p, p], 1))),
        np.array([str(i) for i in range(len(p))], object),
        Labels(label, np.ones(len(p), bool)),
        OodFlags.unknown(len(p)),
        np.full(len(p), "", object),
        patients=np.array([f"p{i // per_patient}" for i in range(len(p))], object),
    )


@pytest.mark.long
@pytest.mark.parametrize(("runs", "least"), [(40, 0.85), pytest.param(400, 0.93, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("patients", "per_patient"), [(20, 1), (12, 4)])
def test_intervals_of_few_bags_hold_the_truth_where_percentiles_do_not(
    patients: int, per_patient: int, runs: int, least: float
) -> None:
    metrics = ("accuracy", "balanced_accuracy", "recall 0", "recall 1", "auroc", "brier", "nll", "aurc")
    truth = {name: values_of(calibrated_bags(1, 50_000, 1, 3.0))[name] for name in metrics}
    truth |= {"overconfidence": 0.0, "ece": 0.0}
    held, by_percentiles = (dict.fromkeys(truth, 0) for _ in range(2))
    for seed in range(runs):
        table = calibrated_bags(seed, patients, per_patient, 3.0)
        of = patients_by_bag(table)
        draws = resampled_metrics(table, of, resamples=200, seed=seed)
        ways = (
            (held, bootstrap_intervals(table, of, resamples=200, seed=seed)),
            (by_percentiles, percentile_intervals(draws, owners=patients)),
        )
        for counts, intervals in ways:
            for name, value in truth.items():
                low, high = intervals[name].low, intervals[name].high
                counts[name] += low is not None and high is not None and low <= value <= high
    assert min(held.values()) >= 0.85 * runs, held
    assert min(count for name, count in held.items() if name != "aurc") >= least * runs, held
    assert max(by_percentiles.values()) < 0.9 * runs, by_percentiles


def test_losses_without_an_error_are_as_high_as_the_errors_that_may_be_and_the_probabilities_of_these() -> None:
    """Of one label in three classes, all right: at most 16.84 % of 20 are wrong (Clopper–Pearson)."""
    p = np.tile([[0.7, 0.2, 0.1], [0.9, 0.06, 0.04]], (10, 1))
    of = np.zeros(20, np.int64)
    table = replace(right_with(p[:, 0]), distribution=Categorical(torch.from_numpy(p)))
    found = bootstrap_intervals(table, {}, resamples=50)
    most = 1 - 0.025 ** (1 / 20)
    loss = ((p[:, None, :] - np.eye(3)) ** 2).sum(2)  # by the label that might have been
    brier = (p[:, 1:] * loss[:, 1:]).sum() / p[:, 1:].sum()
    rest = p[:, 1:].sum(1)
    nll = (-rest * np.log(rest)).sum() / rest.sum()
    right = {"brier": loss[:, 0].mean(), "nll": -np.log(p[:, 0]).mean(), "aurc": 0.0}
    for name, wrong in (("brier", brier), ("nll", nll), ("aurc", 1.0)):
        expected = right[name] + most * (wrong - right[name])
        assert found[name].high == pytest.approx(expected), name
        assert found[name].low == pytest.approx(
            0.0 if name == "aurc" else percentile_low(table, name), abs=1e-12
        ), name
    all_wrong = replace(table, labels=Labels(of + 2, np.ones(20, bool)))
    of_wrong = bootstrap_intervals(all_wrong, {}, resamples=50)
    as_right = (p[:, 0] * loss[:, 0]).sum() / p[:, 0].sum()
    assert of_wrong["brier"].low == pytest.approx(loss[:, 2].mean() + most * (as_right - loss[:, 2].mean()))
    assert of_wrong["aurc"].low == pytest.approx(1 - most)
    assert of_wrong["aurc"].high == 1.0


def percentile_low(table: PredictionTable, name: str) -> float:
    low = percentile_intervals(resampled_metrics(table, {}, resamples=50, seed=0), owners=len(table))[name].low
    assert low is not None
    return low


def test_a_loss_grows_with_errors_as_it_does_between_resamples_and_no_farther_than_it_can() -> None:
    table = right_with(np.repeat([0.45, 0.99], [1, 29]))  # one of 30 is wrong
    found = bootstrap_intervals(table, {}, resamples=400)
    wrong, right, accuracy = 2 * 0.55**2, 2 * 0.01**2, found["accuracy"]
    assert accuracy.low is not None and accuracy.high is not None
    expected = [right + share * (wrong - right) for share in (1 - accuracy.high, 1 - accuracy.low)]
    assert found["brier"].low == pytest.approx(min(right, expected[0]))
    assert found["brier"].high == pytest.approx(expected[1])
    by_percentiles = percentile_intervals(resampled_metrics(table, {}, resamples=400, seed=0), owners=30)["brier"]
    assert by_percentiles.high is not None and by_percentiles.high < expected[1]
    certain = bootstrap_intervals(right_with(np.repeat([0.0, 1.0], [29, 1])), {}, resamples=100)
    assert (certain["brier"].high, certain["aurc"].high) == (2.0, 1.0)
    assert bootstrap_intervals(right_with(np.ones(9)), {}, resamples=20)["nll"].low is None


def both_classes_of_each(patients: int, *, alike: bool) -> PredictionTable:
    """Two bags of each patient, one of each class; both are right or both wrong where they are alike."""
    random = np.random.default_rng(3)
    right = random.random((patients, 2)) < 0.8
    right[:, 1] = right[:, 0] if alike else right[random.permutation(patients), 0]
    p = np.where(right, 0.9, 0.1).ravel()
    label = np.tile([0, 1], patients)
    return PredictionTable(
        Categorical(torch.from_numpy(np.where(label[:, None] == [0, 1], p[:, None], 1 - p[:, None]))),
        np.array([str(i) for i in range(2 * patients)], object),
        Labels(label, np.ones(2 * patients, bool)),
        OodFlags.unknown(2 * patients),
        np.full(2 * patients, "", object),
        patients=np.array([f"p{i // 2}" for i in range(2 * patients)], object),
    )


def test_the_mean_of_recalls_is_as_uncertain_as_one_of_them_where_patients_are_right_or_wrong_in_both() -> None:
    found = {}
    for alike in (True, False):
        table = both_classes_of_each(60, alike=alike)
        intervals = bootstrap_intervals(table, patients_by_bag(table), resamples=400)
        found[alike] = widths(intervals)
        assert found[alike]["recall 0"] == pytest.approx(found[alike]["recall 1"])
    assert found[True]["balanced_accuracy"] == pytest.approx(found[True]["recall 0"])
    assert found[False]["balanced_accuracy"] == pytest.approx(0.5**0.5 * found[False]["recall 0"], rel=0.1)


def auroc_deviation(theta: float, wanted: float, others: float) -> float:
    q1, q2 = theta / (2 - theta), 2 * theta**2 / (1 + theta)  # Hanley & McNeil, with both sizes averaged
    mean = (wanted + others) / 2 - 1
    excess = mean * (q1 - theta**2) + mean * (q2 - theta**2)
    return float(np.sqrt((theta * (1 - theta) + excess) / (wanted * others)))


def test_the_interval_of_an_auroc_ends_where_the_value_is_as_far_as_chance_takes_it() -> None:
    pair = (np.full(30, 1.0), np.array([2.0] * 10 + [0.0] * 20))
    small = auroc_deviation(0.9, 30, 20) ** 2 / 7  # less variance than items allow: all of them count, and no more
    low, high = auroc_interval(0.9, small, [pair], owners=30)
    assert abs(0.9 - low) == pytest.approx(2.0452 * auroc_deviation(low, 30, 20), rel=1e-4)
    assert abs(high - 0.9) == pytest.approx(2.0452 * auroc_deviation(high, 30, 20), rel=1e-4)
    assert auroc_interval(0.1, small, [pair], owners=30) == pytest.approx((1 - high, 1 - low))
    wider = auroc_interval(0.9, auroc_deviation(0.9, 30, 20) ** 2 * 4, [pair], owners=30)
    assert wider[0] < low
    assert wider[1] > high
    one = (np.array([1.0]), np.array([19.0]))  # a single wanted item: its share of the variance counts in full
    low, _ = auroc_interval(0.9, auroc_deviation(0.9, 1, 19) ** 2 * 4, [one], owners=30)
    assert 0.9 - low == pytest.approx(2.0452 * auroc_deviation(low, 1 / 4, 19 / 4), rel=1e-4)
    for copies in (1, 10):  # of each bag of a patient
        low, high = auroc_interval(1.0, 0.0, [(copies * pair[0], copies * pair[1])], owners=30)
        assert high == 1
        assert 1 - low == pytest.approx(2.0452 * auroc_deviation(low, 30, 10), rel=1e-4)


def test_several_aurocs_vary_together_or_apart_as_their_mean_does_between_resamples() -> None:
    pairs = [
        (np.full(30, 1.0), np.array([2.0] * 10 + [0.0] * 20)),
        (np.full(30, 1.0), np.array([0.0] * 20 + [0.5] * 10)),
    ]
    large, small = auroc_deviation(0.8, 30, 20), auroc_deviation(0.8, 30, 5)
    together = ((large + small) / 2) ** 2
    apart = (large**2 + small**2) / 4
    assert together / 2 < apart < together
    for variance, more in ((together, 1), (apart, together / apart), (together / 9, 2)):
        low, high = auroc_interval(0.8, variance, pairs, owners=30)
        for end in (low, high):
            mean = (auroc_deviation(end, 30 * more, 20 * more) + auroc_deviation(end, 30 * more, 5 * more)) / 2
            assert abs(end - 0.8) == pytest.approx(2.0452 * mean, rel=1e-4)


def test_the_interval_of_ue_is_that_of_the_mean_of_its_aurocs() -> None:
    table = made_table(bags=40, per_bag=1)
    metrics = default_metrics(table, owners_of_items(table, {}))
    draws = resampled_metrics(table, {}, resamples=200, seed=0)["ue"]
    variance = float(np.nanvar(draws)) * 40 / 39
    value = evaluate_level(table).metrics["ue"].value
    assert value is not None
    pairs = [pair for name in ("confidence", "ood even", "ood odd") for pair in metrics[name].pairs]
    found = bootstrap_intervals(table, {}, resamples=200)["ue"]
    assert len(pairs) == 3
    assert (found.low, found.high) == pytest.approx(auroc_interval(value, variance, pairs, owners=40))
    assert found.high is not None and found.low is not None  # near its value as wide as 2 t standard deviations
    assert found.high - found.low == pytest.approx(2 * t.ppf(0.975, 39) * variance**0.5, rel=0.1)


def test_the_auroc_of_three_classes_compares_each_with_the_rest() -> None:
    table = made_table(3, bags=40, per_bag=1)
    labels = table.labels.values[table.judged]
    pairs = []
    for number in range(3):
        wanted = (table.judged & (table.labels.values == number)).astype(float)
        pairs.append((wanted, table.judged - wanted))
    draws = resampled_metrics(table, {}, resamples=200, seed=0)["auroc"]
    value, found = values_of(table)["auroc"], bootstrap_intervals(table, {}, resamples=200)["auroc"]
    assert set(labels) == {0, 1, 2}
    wanted_interval = auroc_interval(value, float(np.nanvar(draws)) * 40 / 39, pairs, owners=40)
    assert (found.low, found.high) == pytest.approx(wanted_interval)


def test_an_auroc_needs_half_of_the_resamples_and_its_variance_is_that_of_few_owners() -> None:
    table = calibrated_bags(2, 12, 1, 1.0)
    draws = resampled_metrics(table, {}, resamples=200, seed=0)
    found = bootstrap_intervals(table, {}, resamples=200)["auroc"]
    pair = (table.labels.values.astype(float), 1.0 - table.labels.values)
    value, variance = values_of(table)["auroc"], np.nanvar(draws["auroc"]) * 12 / 11
    assert 0.5 < value < 1
    assert (found.low, found.high) == pytest.approx(auroc_interval(value, variance, [pair], owners=12))
    few = replace(table, labels=Labels(table.labels.values, np.isin(np.arange(12), [0, 1])))
    assert set(table.labels.values[:2]) == {0, 1}
    interval = bootstrap_intervals(few, {}, resamples=200)["auroc"]
    assert interval.low is None
    assert interval.reason == f"defined in only {interval.defined} of 200 resamples"


def right_with(confidence: np.ndarray) -> PredictionTable:
    """Bags that are predicted right, with these probabilities."""
    count = len(confidence)
    return PredictionTable(
        Categorical(torch.from_numpy(np.stack([confidence, 1 - confidence], 1))),
        np.array([str(i) for i in range(count)], object),
        Labels(np.zeros(count, np.int64), np.ones(count, bool)),
        OodFlags.unknown(count),
        np.full(count, "", object),
    )


def test_the_calibration_error_is_at_least_the_underconfidence() -> None:
    found = bootstrap_intervals(right_with(np.linspace(0.55, 0.65, 40)), {}, resamples=50)
    gap, ece = found["overconfidence"], found["ece"]
    assert gap.high is not None and gap.high < -0.25
    assert ece.low == -gap.high
    assert ece.high is not None and ece.high > 0.38


def test_the_overconfidence_is_as_wide_as_its_percentiles_where_these_are_wider() -> None:
    table = right_with(np.repeat([0.501, 1.0], 8))
    found = bootstrap_intervals(table, {}, resamples=200)["overconfidence"]
    draws = resampled_metrics(table, {}, resamples=200, seed=0)["overconfidence"]
    by_percentiles = percentile_intervals({"o": draws}, owners=16)["o"]
    assert found.low is not None and found.high is not None and by_percentiles.low is not None
    assert found.low <= by_percentiles.low
    assert found.high - found.low > 0.25


def test_a_metric_that_no_resample_changes_has_no_interval_but_exact_counts_give_one() -> None:
    table = PredictionTable(
        Categorical(torch.tensor([[0.9, 0.1]], dtype=torch.float64).repeat(20, 1)),
        np.array([str(i) for i in range(20)], object),
        Labels(np.zeros(20, np.int64), np.ones(20, bool)),
        OodFlags.unknown(20),
        np.full(20, "", object),
    )
    intervals = bootstrap_intervals(table, {}, resamples=20)
    assert "same in every resample" in intervals["mean_confidence"].reason
    gap = intervals["overconfidence"]
    found = [intervals["accuracy"].low, intervals["accuracy"].high, gap.low, gap.high]
    assert found == pytest.approx([0.8316, 1, -0.1, 0.9 - 0.8316], abs=1e-4)
    assert not gap.excludes_zero


@pytest.mark.parametrize(("positive", "negative", "similar"), [(4, 40, 1.0), (4, 40, 0.95), (6, 30, 1.0)])
def test_bags_that_repeat_those_of_their_patient_narrow_no_interval_of_an_auroc(
    positive: int, negative: int, similar: float
) -> None:
    random = np.random.default_rng(positive)
    ratios = []
    for seed in range(12):
        labels = np.repeat([1, 0], [positive, negative])
        of_patients = 1.5 * labels + random.normal(size=len(labels)) * similar**0.5
        found = []
        for copies in (1, 4):
            scores = np.repeat(of_patients, copies)
            scores += random.normal(size=len(scores)) * (1 - similar) ** 0.5
            p = torch.from_numpy(1 / (1 + np.exp(0.75 - scores)))
            names = np.array([f"bag {row}" for row in range(len(p))], object)
            table = PredictionTable(
                Categorical(torch.stack([1 - p, p], 1)),
                names,
                Labels.of(np.repeat(labels, copies).tolist()),
                OodFlags.all_in(len(p)),
                np.full(len(p), "", object),
            )
            patients = {str(name): f"patient {row // copies}" for row, name in enumerate(names)}
            found.append(widths(bootstrap_intervals(table, patients, resamples=200, seed=seed))["auroc"])
        ratios.append(found[1] / found[0])
    assert np.mean(ratios) > 0.94


def test_owners_count_fewer_items_by_the_variance_between_them() -> None:
    items, independent = np.array([[40.0, 60.0]]), np.array([[4.0, 6.0]])
    found = _most_independent(items, independent, 0.04, [0.1])  # the variance is 4 of 0.1², times 4 / 3
    np.testing.assert_allclose(found, items / (4 * 4 / 3))
    np.testing.assert_allclose(_most_independent(items, independent, 0.4, [0.1]), independent)
    np.testing.assert_allclose(_most_independent(items, independent, 0.001, [0.1]), items)
