"""Flags of instances: each promise holds over many calibrations, with ties and patients of several bags."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor, inf
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from commands import run
from made_flags import FlagWorld, flagged_slides, mean_loss, scored_bags
from made_predictions import made_predictions, made_provenance

from miue.bags import Labels, OodFlags
from miue.calibration import (
    GUARANTEES,
    Calibration,
    InstanceFlags,
    InstanceGoal,
    PredictionSetGoal,
    calibrate,
    decide,
    instance_scores,
    worklist,
    write_worklist,
)
from miue.calibration.instance_thresholds import fit_instance_flags
from miue.common.errors import ConfigError, DataError
from miue.common.text import plural
from miue.distributions import Categorical
from miue.evaluation.instances import flag_metrics
from miue.pathology.export.folders import export
from miue.pathology.export.heatmap import heatmap_figure, probability_layer
from miue.pathology.export.patches import patch_sizes, patches_by_slide
from miue.predictions import Predictions, read_predictions
from miue.predictions.decode import read_flagged
from miue.report.levels import Resampling
from miue.report.report import write_report

NAMES = ("benign", "tumor")
OF_NEGATIVES = ("no-false-flag", "false-positives")
WORLDS = [FlagWorld(), FlagWorld(rounded=1), FlagWorld(bags_of_patient=4), FlagWorld(1, 4)]
GOALS = [
    InstanceGoal("no-false-flag", 0.1),
    InstanceGoal("no-false-flag", 0.1, allowed=2),
    InstanceGoal("false-positives", 0.5, cap=5),
    InstanceGoal("detection", 0.1),
    InstanceGoal("recall", 0.2),
]


def fit(predictions: Predictions, goal: InstanceGoal, **options: str) -> InstanceFlags:
    return fit_instance_flags(predictions, goal, NAMES, **options)


def loss_of(rule: InstanceFlags, predictions: Predictions) -> float:
    assert predictions.instances is not None
    flagged = rule.flag(predictions.instances).flagged
    assert flagged is not None
    return mean_loss(predictions, flagged, rule.guarantee, allowed=rule.allowed, cap=rule.cap)


# The promises


@pytest.mark.long
@pytest.mark.parametrize("world", WORLDS, ids=["bags", "ties", "patients", "ties of patients"])
@pytest.mark.parametrize("goal", GOALS, ids=lambda g: f"{g.guarantee}{g.allowed or ''}")
def test_the_mean_loss_of_new_patients_is_at_most_the_level_over_many_calibrations(
    world: FlagWorld, goal: InstanceGoal
) -> None:
    random, label = np.random.default_rng(5), int(not goal.of_negatives)
    new = world.sample(random, 300, label)
    losses = np.array([loss_of(fit(world.sample(random, 39, label), goal), new) for _ in range(40)])
    error = losses.std() / np.sqrt(len(losses)) + 0.25 / np.sqrt(300)
    assert losses.mean() <= goal.level + 3 * error, (losses.mean(), error)
    if world == FlagWorld():
        assert losses.mean() >= 0.6 * goal.level  # and not for nothing


@pytest.mark.parametrize("level", [0.05, 0.1, 0.29, 0.3, 1 / 3, 0.5])
@pytest.mark.parametrize("count", [19, 20, 39, 99])
def test_thresholds_are_the_order_statistics_of_the_textbook(level: float, count: int) -> None:
    level = float(str(level)[:6])
    scores = np.random.default_rng(count).random((count, 3)).round(2)  # with ties
    highest, exact = np.sort(scores.max(1)), Fraction(str(level))
    negative = scored_bags(scores.tolist(), [0] * count)
    k = ceil((count + 1) * (1 - exact))
    rule = fit(negative, InstanceGoal("no-false-flag", level))
    shown = instance_scores(scored_bags([[one] for one in highest], [0] * count).instances, "probability", 0)  # type: ignore[arg-type]
    assert rule.threshold == np.nextafter(shown[k - 1], inf)
    positive = scored_bags(scores.tolist(), [1] * count)
    k = floor((count + 1) * exact)
    assert fit(positive, InstanceGoal("detection", level)).threshold == shown[k - 1]


@pytest.mark.parametrize("goal", GOALS, ids=lambda g: f"{g.guarantee}{g.allowed or ''}")
@pytest.mark.parametrize("world", WORLDS, ids=["bags", "ties", "patients", "ties of patients"])
def test_the_threshold_is_the_extreme_one_that_fits_among_all_thresholds_tried_one_by_one(
    world: FlagWorld, goal: InstanceGoal
) -> None:
    given = world.sample(np.random.default_rng(8), 39, int(not goal.of_negatives))
    assert given.instances is not None
    rule = fit(given, goal)
    scores = instance_scores(given.instances, "probability", 0)
    tried = np.unique(np.concatenate([scores, np.nextafter(scores, inf)]))
    count = len(set(given.bags.bag_ids if given.bags.patients is None else given.bags.patients))
    loss = [mean_loss(given, scores >= t, goal.guarantee, allowed=goal.allowed, cap=goal.cap) for t in tried]
    fits = [count * one + goal.highest_loss <= goal.level * (count + 1) + 1e-9 for one in loss]
    best = tried[fits].min() if goal.of_negatives else tried[fits].max()
    flags = [(scores >= t).tolist() for t in (best, rule.threshold)]
    assert flags[0] == flags[1]
    assert rule.measured == pytest.approx(loss_of(rule, given))
    assert count * loss_of(rule, given) + goal.highest_loss <= goal.level * (count + 1) + 1e-9


def test_bags_that_tie_at_the_threshold_are_not_flagged_where_a_flag_is_an_error() -> None:
    tied = scored_bags([[0.2, 0.75]] * 9 + [[0.25]], [0] * 10)
    rule = fit(tied, InstanceGoal("no-false-flag", 0.1))
    assert rule.threshold == np.nextafter(0.75, 1)
    assert loss_of(rule, tied) == 0
    shown = fit(scored_bags([[0.2, 0.75]] * 10, [1] * 10), InstanceGoal("detection", 0.1))
    assert (shown.threshold, shown.rule) == (0.75, "probability ≥ 0.75")


def test_a_bag_counts_no_more_flags_than_the_cap() -> None:
    given = scored_bags([[(row + 1) / 16] * 5 for row in range(10)], [0] * 10)
    rule = fit(given, InstanceGoal("false-positives", 1.0, cap=2))
    assert rule.threshold == np.nextafter(6 / 16, 1)  # four bags count 2 each, of 1 · 11 − 2 that fit
    assert rule.measured == loss_of(rule, given) == 0.8


def test_bags_of_no_more_instances_than_are_allowed_never_have_more_flags() -> None:
    goal = InstanceGoal("no-false-flag", 0.2, allowed=1)  # of 9 bags one may have more
    larger = [[0.5, 0.625], [0.25, 0.5], [0.25, 0.375], [0.125, 0.25]]
    rule = fit(scored_bags([[0.75]] * 5 + larger, [0] * 9), goal)
    assert rule.threshold == np.nextafter(0.25, 1)
    assert rule.measured == pytest.approx(1 / 9)
    nothing_to_lose = fit(scored_bags([[0.75], [0.5]] * 5, [0] * 10), goal)
    assert (nothing_to_lose.threshold, nothing_to_lose.measured) == (0.5, 0)


def test_flags_that_are_allowed_on_negative_bags_do_not_change_what_is_detected() -> None:
    given = scored_bags([[(row + 1) / 16, 0.01] for row in range(10)], [1] * 10)
    rule = fit(given, InstanceGoal("detection", 0.25))
    assert rule.threshold == pytest.approx(2 / 16)
    assert fit(given, InstanceGoal("detection", 0.25, allowed=1)).threshold == rule.threshold


def test_where_every_false_positive_fits_all_instances_are_flagged() -> None:
    given = scored_bags([[0.5]] * 8 + [[0.125, 0.25, 0.75]], [0] * 9)
    rule = fit(given, InstanceGoal("false-positives", 1.4, cap=2))  # 8 + 2 + 2 ≤ 1.4 · 10
    assert rule.threshold == 0.125
    assert rule.measured == pytest.approx(10 / 9)


def test_a_rank_is_exact_where_floating_point_says_otherwise() -> None:
    """0.29 · 100 is a hair below 29 in floats, which would make the threshold one bag too high."""
    scores = [[i / 128] for i in range(1, 100)]
    assert fit(scored_bags(scores, [1] * 99), InstanceGoal("detection", 0.29)).threshold == 29 / 128
    thirds = InstanceGoal("recall", 0.3)
    bags = [[0.25, 0.5, 0.75]] * 9  # each misses one third below 0.5: 9 / 3 + 1 > 0.3 · 10
    assert fit(scored_bags(bags, [1] * 9, positives=[[1, 1, 1]] * 9), thirds).threshold == 0.25
    more = replace(thirds, level=0.4)  # 9 / 3 + 1 = 0.4 · 10
    assert fit(scored_bags(bags, [1] * 9, positives=[[1, 1, 1]] * 9), more).threshold == 0.5


def test_probabilities_close_to_one_are_told_apart() -> None:
    tiny = [2.0**-40 * (i + 1) for i in range(9)]
    given = scored_bags([[1 - one] for one in tiny], [0] * 9)
    rule = fit(given, InstanceGoal("no-false-flag", 0.2))
    assert rule.measured == pytest.approx(1 / 9)
    assert rule.rule == f"probability ≥ 1 − {2.0**-39:.2g}"


# Patients


def test_a_threshold_of_one_flags_what_is_certain_and_one_above_it_nothing() -> None:
    rule = InstanceFlags(
        guarantee="detection", level=0.5, score="probability", negative_class=0, threshold=1.0, allowed=0, cap=10,
        bags=9, patients=None, left_out=0, measured=0.0, estimator=None,
    )  # fmt: skip
    assert rule.rule == "probability ≥ 1"  # it was "≥ 1 − 0"
    above = rule.model_copy(update={"threshold": float(np.nextafter(1, 2))})
    assert above.rule == "probability > 1, that is nowhere"
    assert rule.model_copy(update={"threshold": 1 - 1e-7}).rule == "probability ≥ 1 − 1e-07"


def test_bags_that_are_out_of_distribution_set_no_threshold() -> None:
    given = scored_bags([[0.1 * row] for row in range(1, 10)], [0] * 9)
    outside = np.arange(9) >= 7
    marked = replace(given, bags=replace(given.bags, is_ood=OodFlags(outside, np.ones(9, bool))))
    goal = InstanceGoal("no-false-flag", 0.25)
    found = fit_instance_flags(marked, goal, ("no", "yes"))
    assert found.bags == 7 and found.threshold == pytest.approx(0.6)  # the 6th of 7 is exceeded
    assert fit_instance_flags(given, goal, ("no", "yes")).threshold == pytest.approx(0.8)


def test_a_patient_counts_once_however_many_bags_it_has() -> None:
    """One patient with 90 bags of high scores, and nine others: one in ten, as the level allows."""
    scores = [[0.9]] * 90 + [[i / 100] for i in range(9)]
    patients = ["big"] * 90 + [f"small {i}" for i in range(9)]
    given = scored_bags(scores, [0] * 99, patients=patients)
    rule = fit(given, InstanceGoal("no-false-flag", 0.2))
    assert (rule.patients, rule.bags) == (10, 99)
    assert rule.threshold < 0.1
    as_bags = fit(given, InstanceGoal("no-false-flag", 0.2), bags_of_patient="all")
    assert (as_bags.patients, as_bags.threshold) == (None, np.nextafter(1 - (1 - 0.9), 1))
    assert "drawn from a new patient" in rule.promise


def test_too_few_patients_are_counted_and_said() -> None:
    given = scored_bags([[0.1]] * 20, [0] * 20, patients=[f"p{i % 8}" for i in range(20)])
    with pytest.raises(DataError, match=r"at least 9 patients with negative bags.*8"):
        fit(given, InstanceGoal("no-false-flag", 0.1))
    with pytest.raises(DataError, match="at least 99 negative bags, got 20; "):
        fit(given, InstanceGoal("false-positives", 0.1), bags_of_patient="all")
    with pytest.raises(DataError, match=r"at least 9 patients with negative bags for flags of instances"):
        calibrate(given, instances=InstanceGoal(), **NO_OTHER)  # type: ignore[arg-type]


NO_OTHER = {"scaling": False, "deferral": None, "prediction_sets": None, "false_alarms": None}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_one_bag_fewer_than_needed_is_refused(guarantee: str) -> None:
    goal = InstanceGoal(guarantee, 0.25, cap=2)
    label, needed = int(guarantee not in OF_NEGATIVES), {"false-positives": 7}.get(guarantee, 3)
    assert goal.needed == needed
    positives: list[list[int] | None] = [[label]] * needed
    fit(scored_bags([[0.5]] * needed, [label] * needed, positives=positives), goal)
    with pytest.raises(DataError, match=f"at least {needed}"):
        fit(scored_bags([[0.5]] * (needed - 1), [label] * (needed - 1), positives=positives[1:]), goal)


# What is refused or left out


def test_recall_without_labels_of_instances_says_to_label_them() -> None:
    given = scored_bags([[0.8, 0.3]] * 12, [1] * 12)
    with pytest.raises(DataError, match=r"got 0; label instances of positive bags"):
        fit(given, InstanceGoal("recall", 0.1))
    with pytest.raises(DataError, match="got 2; add bags, ask for less, or leave the flags out"):
        fit(scored_bags([[0.8, 0.3]] * 2, [1] * 2), InstanceGoal("detection", 0.1))


def test_recall_counts_only_positive_bags_with_labels_of_all_instances() -> None:
    labeled: list[list[int] | None] = [[1, 0]] * 10
    given = scored_bags([[0.8, 0.3]] * 12, [1] * 12, positives=[*labeled, None, [0, 0]])
    assert given.instances is not None
    given.instances.labels.known[19] = False  # the second instance of the tenth bag
    rule = fit(given, InstanceGoal("recall", 0.1))
    assert (rule.bags, rule.left_out, rule.threshold) == (9, 3, 1 - (1 - 0.8))


@pytest.mark.parametrize("world", [WORLDS[0], WORLDS[3]], ids=["bags", "ties of patients"])
def test_bags_without_labels_of_instances_change_no_threshold_of_recall_wherever_they_are(
    world: FlagWorld,
) -> None:
    given, goal = world.sample(np.random.default_rng(3), 30, 1), InstanceGoal("recall", 0.3)
    table = given.instances
    assert table is not None
    bare = np.isin(table.bag_ids, given.bags.bag_ids[::3])
    labels = Labels(table.labels.values, ~bare)
    rule = fit(Predictions(given.bags, replace(table, labels=labels)), goal)
    rest = np.flatnonzero(np.arange(len(given.bags)) % 3 > 0)
    alone = fit(Predictions(given.bags.subset(rest), table.subset(np.flatnonzero(~bare))), goal)
    assert rule == alone.model_copy(update={"left_out": len(given.bags) - len(rest)})


def test_recall_is_calibrated_on_the_bags_that_it_is_evaluated_on() -> None:
    labels: list[list[int] | None] = [*[[1, 0]] * 9, *[[1, 1]] * 3]
    given = scored_bags([[0.8, 0.3]] * 9 + [[0.8, 0.1]] * 3, [1] * 12, positives=labels)
    assert given.instances is not None
    outside = np.arange(24) >= 18
    outside[18::2] = False  # the second instance of the last three bags is no tumor: its label is not judged
    marked = replace(given, instances=replace(given.instances, is_ood=OodFlags(outside, outside)))
    goal = InstanceGoal("recall", 0.5)
    rule = fit(marked, goal)
    assert (rule.bags, rule.left_out, rule.measured) == (9, 3, 0.0)  # it was (12, 0, 0.125)
    alone = Predictions(marked.bags, rule.flag(marked.instances))  # type: ignore[arg-type]
    assert flag_metrics(alone, rule)["loss"].value == rule.measured


def test_a_negative_bag_with_a_positive_instance_is_refused() -> None:
    given = scored_bags([[0.5, 0.6]] * 9, [0] * 9, positives=[*[[0, 0]] * 8, [0, 1]])
    with pytest.raises(DataError, match="bag 8.*negative class.*1 such instance of 1 bag;"):
        fit(given, InstanceGoal("no-false-flag", 0.1))


def test_bad_goals_are_refused() -> None:
    for bad in ({"guarantee": "fdr"}, {"level": 1.0}, {"allowed": -1}, {"cap": 0}):
        with pytest.raises(ConfigError):
            InstanceGoal(**bad)
    with pytest.raises(ConfigError, match="between 0 and 10"):
        InstanceGoal("false-positives", 10.0)
    given = scored_bags([[0.5]] * 9, [0] * 9)
    with pytest.raises(ConfigError, match="negative class.*normal"):
        fit(given, InstanceGoal(negative_class="normal"))
    with pytest.raises(DataError, match="the score 'knn'.*probability, least_confidence, entropy"):
        fit(given, InstanceGoal(score="knn"))
    with pytest.raises(DataError, match="predictions of instances"):
        fit(replace(given, instances=None), InstanceGoal())
    assert given.instances is not None
    fewer = replace(given, instances=given.instances.subset(np.arange(8)))
    with pytest.raises(DataError, match="bag 'bag 8'.*at least one instance"):
        fit(fewer, InstanceGoal())
    nan = replace(given, instances=replace(given.instances, scores={"own": np.full(9, np.nan)}))
    with pytest.raises(DataError, match="own of an instance of bag 'bag 0'.*finite"):
        fit(nan, InstanceGoal(score="own"))


def test_the_negative_class_is_chosen_by_name() -> None:
    given = scored_bags([[0.8, 0.3]] * 9, [1] * 9)
    rule = fit(given, InstanceGoal("no-false-flag", 0.1, negative_class="tumor"))
    assert (rule.negative_class, rule.threshold) == (1, np.nextafter(1 - 0.3, 1))


@pytest.mark.parametrize("background, negative", [(1, 1), (0, 0), (None, 0)])
def test_the_negative_class_is_that_of_the_model_where_none_is_named(
    background: int | None, negative: int
) -> None:
    given = scored_bags([[0.2, 0.75], [0.1, 0.4]] * 20, [0, 1] * 20)
    given = replace(given, provenance=made_provenance(options={"method.background": background}))
    only = {"scaling": False, "deferral": None, "prediction_sets": None, "false_alarms": None}
    fitted = calibrate(given, instances=InstanceGoal(level=0.5), **only).instances  # type: ignore[arg-type]
    assert fitted is not None and fitted.negative_class == negative
    named = calibrate(given, instances=InstanceGoal(level=0.5, negative_class="0"), **only)  # type: ignore[arg-type]
    assert named.instances is not None and named.instances.negative_class == 0


def test_the_posterior_probability_is_that_of_the_predicted_class_or_else_the_error_probability() -> None:
    given = scored_bags([[0.2, 0.75, 0.5]] * 9, [0] * 9)
    assert given.instances is not None
    with pytest.raises(DataError, match="the score 'posterior_probability'.* got probability, least_confidence"):
        fit(given, InstanceGoal(score="posterior_probability"))
    wrong = np.tile([0.1, 0.3, 0.4], 9)
    instances = replace(given.instances, scores={"error_probability": wrong})
    found = instance_scores(instances, "posterior_probability", 0)
    np.testing.assert_allclose(found, np.tile([0.1, 0.7, 0.4], 9), rtol=1e-6)
    np.testing.assert_allclose(
        instance_scores(instances, "posterior_probability", 1)[:3], [0.9, 0.3, 0.6], rtol=1e-6
    )
    rule = fit(replace(given, instances=instances), InstanceGoal(score="posterior_probability"))
    assert rule.threshold == pytest.approx(0.7) and not rule.flag(instances).flagged.any()  # type: ignore[union-attr]
    with pytest.raises(DataError, match="got probability, posterior_probability, least_confidence"):
        fit(replace(given, instances=instances), InstanceGoal(score="knn"))


def test_of_three_classes_the_posterior_probability_is_that_of_both_positive_ones() -> None:
    given = scored_bags([[0.5] * 4], [0])
    assert given.instances is not None
    p = torch.tensor([[0.05, 0.6, 0.35], [0.6, 0.3, 0.1], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]], dtype=torch.float64)
    scores = {"error_probability": np.array([0.5, 0.25, 0.25, 0.5])}
    instances = replace(given.instances, distribution=Categorical(p), scores=scores)
    found = instance_scores(instances, "posterior_probability", 0)
    np.testing.assert_allclose(found, [1 - 0.5 * 0.05 / 0.4, 0.25, 0.875, 1.0], rtol=1e-6)
    found = instance_scores(
        instances, "posterior_probability", 1
    )  # of which classes 0 and 2 are the positive ones
    np.testing.assert_allclose(found, [0.5, 1 - 0.25 * 0.75, 0.25, 0.5], rtol=1e-6)


# Saved, applied, read


@pytest.mark.parametrize("table_format", ["parquet", "csv"])
@pytest.mark.parametrize("score", ["probability", "posterior_probability", "mutual_information"])
def test_flags_are_the_same_in_memory_and_read_from_any_format(
    table_format: str, score: str, tmp_path: Path
) -> None:
    given = made_predictions(60)
    assert given.instances is not None
    wrong = np.random.default_rng(0).random(len(given.instances))
    given = replace(given, instances=replace(given.instances, scores={"error_probability": wrong}))
    instances = InstanceGoal("no-false-flag", 0.3, score)
    inside = given.bags.judged & (given.bags.labels.values == 0)
    negatives = given.bags.subset(np.flatnonzero(inside))
    bare = replace(given, bags=negatives, instances=_unlabeled(given))
    made = calibrate(bare, instances=instances, class_names=NAMES, **NO_OTHER)  # type: ignore[arg-type]
    made.save(tmp_path / "calibration.json")
    assert Calibration.load(tmp_path / "calibration.json") == made
    flagged = decide(given, made)
    assert flagged.instances is not None
    expected = flagged.instances.flagged
    assert expected is not None and 0 < expected.sum() < len(expected)
    given.save(tmp_path / "plain", table_format=table_format)
    decided = decide(read_predictions(tmp_path / "plain"), made)
    decided.save(tmp_path / "decided", table_format=table_format)
    for read in (decided, read_predictions(tmp_path / "decided")):
        assert read.instances is not None
        assert np.array_equal(read.instances.flagged, expected)  # type: ignore[arg-type]
        first = read.bags.bag_ids[:2].tolist()
        assert np.array_equal(read.instances.of_bags(first).flagged, expected[:10])  # type: ignore[arg-type]


@pytest.mark.parametrize("score", ["far", "posterior_probability"])
def test_a_score_in_memory_is_compared_as_the_float32_that_is_stored(score: str) -> None:
    """Else the instance at whose score the threshold is would be flagged in memory, and not where it is read."""
    given = made_predictions(60)
    assert given.instances is not None
    values = {"far": np.random.default_rng(1).normal(size=len(given.instances))}
    values["error_probability"] = np.random.default_rng(2).random(len(given.instances))
    stored = {name: one.astype(np.float32).astype(np.float64) for name, one in values.items()}
    in_memory, read = (instance_scores(replace(given.instances, scores=one), score, 0) for one in (values, stored))
    assert np.array_equal(in_memory, read)


def _unlabeled(predictions: Predictions):  # type: ignore[no-untyped-def]
    from made_predictions import unlabeled

    return unlabeled(predictions).instances


def test_instances_of_another_estimator_are_not_flagged() -> None:
    given = scored_bags([[0.5]] * 9, [0] * 9)
    known = replace(given, provenance=given.provenance.model_copy(update={"estimator": "residual"}))
    made = calibrate(known, instances=InstanceGoal(), **NO_OTHER)  # type: ignore[arg-type]
    assert made.instances is not None and made.instances.estimator == "residual"
    other = replace(given, provenance=given.provenance.model_copy(update={"estimator": "attention"}))
    with pytest.raises(DataError, match="'residual', which was calibrated; got 'attention'|residual.*attention"):
        decide(other, made)


# Shown


@pytest.fixture(scope="module")
def on_slides() -> Predictions:
    return flagged_slides()


def test_exports_show_flags_with_their_promise(on_slides: Predictions, tmp_path: Path) -> None:
    assert on_slides.instances is not None and on_slides.instances.flagged is not None
    promise = "promised: on a new negative bag, any instance is flagged with chance at most 0.4"
    export(on_slides, tmp_path / "json", "geojson", patch_size=256)
    flagged = 0.0
    for path in (tmp_path / "json").glob("*.geojson"):
        content = json.loads(path.read_text())
        assert promise in content["miue"]["flags"]
        flagged += sum(one["properties"]["measurements"]["flagged"] for one in content["features"])
    assert flagged == on_slides.instances.flagged.sum()
    export(on_slides, tmp_path / "merged", "geojson", patch_size=256, merge=True)
    regions = [
        one for path in (tmp_path / "merged").glob("*.geojson") for one in json.loads(path.read_text())["features"]
    ]
    assert sum(one["properties"]["measurements"]["flagged patches"] for one in regions) == flagged
    export(on_slides, tmp_path / "arrays", "arrays", patch_size=256)
    with h5py.File(tmp_path / "arrays" / "bag 0000.h5") as file:
        assert np.array_equal(file["flagged"][()], on_slides.instances.flagged[:8])
        assert promise in file["flagged"].attrs["promise"]


def test_a_heatmap_outlines_flagged_patches_and_says_the_promise(on_slides: Predictions) -> None:
    sizes = patch_sizes(on_slides, 256)
    patches = next(p for p in patches_by_slide(on_slides, sizes) if p.flagged is not None and p.flagged.any())
    layers = [probability_layer("tumor")]
    figure = heatmap_figure(patches, layers, 1, None, "promised: little")
    (frames,) = figure.axes[0].collections
    assert patches.flagged is not None
    assert len(frames.get_paths()) == patches.flagged.sum()
    outlined = plural(int(patches.flagged.sum()), "patch")
    assert f"{outlined} outlined: promised: little" in " ".join(figure.get_suptitle().split())
    assert not heatmap_figure(replace(patches, flagged=None), layers, 1).axes[0].collections


def test_worklist_and_report_count_flags_and_say_the_promise(on_slides: Predictions, tmp_path: Path) -> None:
    assert on_slides.instances is not None and on_slides.instances.flagged is not None
    made = worklist(on_slides)
    assert sum(row["flagged_patches"] for row in made.rows) == on_slides.instances.flagged.sum()
    write_worklist(tmp_path / "list.csv", made)
    promise = "on a new negative bag, any instance is flagged with chance at most 0.4"
    assert promise in json.loads((tmp_path / "list.json").read_text())["flags"]
    write_report(tmp_path / "report.html", [("ours", on_slides)], resampling=Resampling(20))
    page = (tmp_path / "report.html").read_text()
    assert promise in page
    assert "Positive instances found (FROC)" in page
    assert "found\u00a0% ↑ at 0.25<" in page and "at 0.25\u00a0%" not in page  # 0.25 is no percentage
    assert "flagged_patches" not in worklist(replace(on_slides, instances=None)).rows[0]
    assert set(made.not_judged.values()) & {"the calibration has no such rule"}
    assert "the model is not calibrated" not in made.not_judged.values()


def test_the_worklist_command_prints_flag_counts_and_the_promise(on_slides: Predictions, tmp_path: Path) -> None:
    on_slides.save(tmp_path / "predictions")
    printed = run("worklist", tmp_path / "predictions", "--out", tmp_path / "list.csv", "--show", "30")
    assert "flagged" in printed.split("reason")[0]
    promise = "promised: on a new negative bag, any instance is flagged with chance at most 0.4"
    assert promise in " ".join(printed.split())
    said = run("worklist", tmp_path / "predictions", "--out", tmp_path / "again.csv", "--json")
    assert promise in json.JSONDecoder().raw_decode(said)[0]["flags"]


@pytest.mark.parametrize(
    ("goal", "used"),
    [
        (InstanceGoal("no-false-flag", 0.2), "10 negative bags"),
        (InstanceGoal("detection", 0.2), "12 positive bags"),
        (InstanceGoal("recall", 0.2), "9 positive bags with all instances labeled"),
    ],
)
def test_it_is_said_which_bags_set_the_threshold(goal: InstanceGoal, used: str, tmp_path: Path) -> None:
    """All bags were named, also where the flags were all that was fitted."""
    scores = [[0.1, 0.2 + 0.01 * n] for n in range(10)] + [[0.3, 0.9 - 0.01 * n] for n in range(12)]
    positives: list[list[int] | None] = [*([[0, 0]] * 10), *([[0, 1]] * 9), None, None, None]
    predictions = scored_bags(scores, [0] * 10 + [1] * 12, positives=positives)
    nothing: dict[str, Any] = {"scaling": False, "deferral": None, "prediction_sets": None, "false_alarms": None}
    alone = calibrate(predictions, **nothing, instances=goal)
    assert f"From {used}. For bags like these." in str(alone)
    written = write_report(tmp_path / "r.html", [("m", decide(predictions, alone))], resampling=Resampling(10))
    (verdict,) = written.verdicts
    nothing_else = ": no rule defers bags or calls them out of distribution."
    assert verdict.sentences[-1] == f"Calibrated on {used}{nothing_else}"
    bags = replace(predictions.bags, labels=Labels.unknown(22))
    (unlabeled,) = write_report(
        tmp_path / "r.html",
        [("m", decide(replace(predictions, bags=bags), alone))],
        resampling=Resampling(10),
    ).verdicts
    assert unlabeled.sentences[0] == "Predicted classes of 22 bags: 10 class 0, 12 class 1."
    with_sets = calibrate(predictions, **nothing | {"prediction_sets": PredictionSetGoal(0.2)}, instances=goal)
    assert f"From 22 bags, flags of instances from {used}." in " ".join(str(with_sets).split())


def test_an_instance_that_is_neither_flagged_nor_not_is_named() -> None:
    assert read_flagged(np.array(["true", "False"], object), "t.csv").tolist() == [True, False]
    with pytest.raises(DataError, match="column 'flagged': expected true or false, got an empty cell"):
        read_flagged(np.array(["true", ""], object), "t.csv")
