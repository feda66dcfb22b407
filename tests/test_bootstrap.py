"""Bootstrap intervals: every resample against an evaluation of the bags that it drew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from miue.bags.labels import Labels
from miue.bags.ood_flags import OodFlags
from miue.distributions import Categorical, Dirichlet, PredictiveDistribution
from miue.evaluation import bootstrap, ranking
from miue.evaluation.bootstrap import (
    bootstrap_intervals,
    paired_differences,
    patients_by_bag,
    percentile_intervals,
    resampled_metrics,
)
from miue.evaluation.evaluate import default_metrics, evaluate_level
from miue.evaluation.metrics import Metric, Owners
from miue.predictions.table import PredictionTable


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
    metrics["mean_confidence"] = Metric(float(table.probabilities[inside].max(1).mean()))
    metrics["overconfidence"] = Metric(float(np.mean(table.probabilities[inside].max(1) - correct)))
    return {name: np.nan if one.value is None else one.value for name, one in metrics.items()}


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
    assert (nothing.low, nothing.high, nothing.excludes_zero) == (0, 0, False)
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
    unlabelled = PredictionTable(
        table.distribution, table.bag_ids, Labels.unknown(len(table)), table.is_ood, table.ood_sets
    )
    intervals = bootstrap_intervals(unlabelled, {}, resamples=20)
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
    apart = bootstrap_intervals(bags, {})["accuracy"]
    together = bootstrap_intervals(bags, patients_by_bag(bags))["accuracy"]
    of_patients = bootstrap_intervals(bags.subset(np.arange(0, 200, 10)), {})["accuracy"]
    assert None not in (apart.low, apart.high, together.low, together.high, of_patients.low, of_patients.high)
    assert together.high - together.low > 2.5 * (apart.high - apart.low)  # type: ignore[operator]
    assert together.high - together.low == pytest.approx(of_patients.high - of_patients.low)  # type: ignore[operator]
    unknown = replace(bags, patients=np.where(np.arange(200) < 10, "p0", "").astype(object))
    assert set(patients_by_bag(unknown).values()) == {"p0"}


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
