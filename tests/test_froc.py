"""FROC, and what flags of instances came to."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run
from made_flags import FlagWorld, mean_loss, scored_bags
from made_predictions import made_provenance, unlabeled

from miue.bags import Labels, OodFlags
from miue.calibration import InstanceFlags, InstanceGoal, calibrate, decide, instance_scores
from miue.evaluation import evaluate, froc
from miue.evaluation.instances import FROC_TITLES, RATES, flag_metrics
from miue.predictions import Predictions, read_predictions
from miue.predictions import table as tables

ALONE = {"scaling": False, "deferral": None, "prediction_sets": None, "false_alarms": None}


def both(world: FlagWorld, bags: int, seed: int) -> Predictions:
    """Negative and positive bags."""
    from miue.predictions import PredictionTable

    random = np.random.default_rng(seed)
    parts = [world.sample(random, bags, label) for label in (0, 1)]
    renamed = []
    for label, part in enumerate(parts):
        assert part.instances is not None
        new = [
            replace(of, bag_ids=np.array([f"{label} {name}" for name in of.bag_ids], object))
            for of in (part.bags, part.instances)
        ]
        if new[0].patients is not None:
            new[0] = replace(new[0], patients=np.array([f"{label} {p}" for p in new[0].patients], object))
        renamed.append(new)
    bags_of, instances = (PredictionTable.concatenate([one[i] for one in renamed]) for i in (0, 1))
    return Predictions(bags_of, instances)


def naive_froc(predictions: Predictions) -> list[float]:
    """The best sensitivity of all thresholds whose false positives are few enough, counted one by one."""
    table = predictions.instances
    assert table is not None
    scores = instance_scores(table, "probability", 0).tolist()
    negative = {
        name
        for name, label in zip(predictions.bags.bag_ids, predictions.bags.labels.values, strict=True)
        if not label
    }
    wrong = [s for s, bag in zip(scores, table.bag_ids, strict=True) if bag in negative]
    right = [s for s, label in zip(scores, table.labels.values, strict=True) if label == 1]
    best = []
    for rate in RATES:
        fits = [t for t in [*scores, 2.0] if Fraction(sum(s >= t for s in wrong), len(negative)) <= rate]
        best.append(sum(s >= min(fits) for s in right) / len(right))
    return best


@pytest.mark.parametrize(
    "world", [FlagWorld(), FlagWorld(rounded=1), FlagWorld(1, 3)], ids=["", "ties", "patients"]
)
@pytest.mark.parametrize("part_rows", [7, 1 << 18])
def test_froc_equals_a_loop_over_all_thresholds_however_it_is_read(
    world: FlagWorld, part_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = both(world, 12, 3)
    expected = naive_froc(given)
    monkeypatch.setattr(tables, "PART_ROWS", part_rows)
    measured = [one.value for one in froc(given).values()]
    assert measured[1:] == pytest.approx(expected, abs=0)
    assert measured[0] == pytest.approx(np.mean(expected))
    assert len(set(expected)) > 2


def test_froc_of_a_hand_example_with_ties() -> None:
    """Four negative bags: one false positive is 1/4. Of the positives .9 and .5 tie with negatives."""
    negatives = [[0.875, 0.1], [0.5, 0.1], [0.5, 0.1], [0.25]]
    positives = [[0.9375, 0.1], [0.875, 0.5], [0.25, 0.2]]
    labels: list[list[int] | None] = [None, [0, 0], None, [0], [1, 0], [1, 1], [1, 0]]  # negative as their bags
    given = scored_bags([*negatives, *positives], [0] * 4 + [1] * 3, positives=labels)
    by_rate = [one.value for one in froc(given).values()][1:]
    # 1/4: one false positive: ≥ .875 finds .9375 and .875. 1/2: two are not reached by the tie at .5.
    assert by_rate == [0.5, 0.5, 1.0, 1.0, 1.0, 1.0]
    assert list(FROC_TITLES)[1:4] == ["sensitivity_at_0.25", "sensitivity_at_0.5", "sensitivity_at_1"]


def test_a_rate_of_froc_is_never_exceeded_where_it_is_no_whole_number_of_false_positives() -> None:
    """Seven negative bags: 1/4 is one false positive, not 1.75 or two, and 1/2 is three, not 3.5 or four."""
    negatives = [[0.9], [0.8], [0.7], [0.6], [0.5], [0.1], [0.1]]
    given = scored_bags([*negatives, [0.85, 0.75, 0.65, 0.55]], [0] * 7 + [1], positives=[*[[0]] * 7, [1] * 4])
    assert [one.value for one in froc(given).values()][1:4] == [0.25, 0.75, 1.0]


def test_the_negative_class_of_froc_is_that_of_the_model() -> None:
    labels: list[list[int] | None] = [[1, 1], [1, 1], [0, 1]]
    given = scored_bags([[0.75, 0.875], [0.625, 0.875], [0.25, 0.875]], [1, 1, 0], positives=labels)
    given = replace(given, provenance=made_provenance(options={"method.background": 1}))
    measured = evaluate(given).froc
    assert measured is not None and measured["froc"].value == 1.0  # .25 of class 1 is the least of all
    assert measured == froc(given, negative_class=1)


def test_froc_is_undefined_with_its_reason() -> None:
    given = both(FlagWorld(), 5, 1)
    assert given.instances is not None
    assert evaluate(unlabeled(given)).froc is None
    positive = np.flatnonzero(given.bags.labels.values == 1)
    alone = replace(given, bags=given.bags.subset(positive))
    assert "no labeled bag of the negative class" in froc(alone)["froc"].reason
    said = "of the negative class has an instance that is labeled positive"
    assert said in froc(given, negative_class=1)["froc"].reason
    out = OodFlags.of(given.instances.labels.values == 1)
    assert (
        "no labeled positive instance"
        in froc(replace(given, instances=replace(given.instances, is_ood=out)))["froc"].reason
    )
    assert evaluate(replace(given, instances=None)).froc is None
    assert froc(replace(given, instances=None))["froc"].reason == "no instances were predicted"


@pytest.mark.parametrize("guarantee", ["no-false-flag", "false-positives", "detection", "recall"])
@pytest.mark.parametrize("world", [FlagWorld(), FlagWorld(bags_of_patient=3)], ids=["bags", "patients"])
def test_flags_are_measured_as_they_are_promised(guarantee: str, world: FlagWorld) -> None:
    given = both(world, 40, 9)
    bare = given if guarantee == "recall" else unlabeled(given)
    bare = replace(bare, bags=given.bags)
    made = calibrate(bare, instances=InstanceGoal(guarantee, 0.5), **ALONE)  # type: ignore[arg-type]
    decided = decide(given, made)
    flags = evaluate(decided).flags
    assert flags is not None and decided.instances is not None and decided.instances.flagged is not None
    label = int(guarantee in ("detection", "recall"))
    rows = np.isin(decided.instances.bag_ids, given.bags.bag_ids[given.bags.labels.values == label])
    side = Predictions(
        given.bags.subset(np.flatnonzero(given.bags.labels.values == label)),
        decided.instances.subset(np.flatnonzero(rows)),
    )
    loss = mean_loss(side, decided.instances.flagged[rows], guarantee)
    assert flags.metrics["loss"].value == pytest.approx(loss)
    assert loss <= 0.5  # of the very bags that were calibrated on
    labels = decided.instances.labels.values
    assert flags.metrics["sensitivity"].value == pytest.approx(decided.instances.flagged[labels == 1].mean())
    assert flags.metrics["precision"].value == pytest.approx((labels == 1)[decided.instances.flagged].mean())


def flagged_by_hand() -> Predictions:
    """Six negative and four positive bags, some of whose instances are flagged, not labeled or not judged.

    Negative: three, two and no flags; one flag of a bag that is out of distribution; a bag without instances; one
    flag of a patient with the first two. Positive: one of two found; one found beside a flag without a label; one
    whose positive instance is out of distribution; one whose only instance is flagged and labeled negative.
    """
    flags = [[1, 1, 1], [1, 1], [0], [1], [1], [1], [1, 0, 0], [1, 1], [1], [1]]
    given = scored_bags(
        [[float(one) for one in bag] for bag in flags],
        [0] * 6 + [1] * 4,
        positives=[*([0] * len(bag) for bag in flags[:6]), [1, 1, 0], [1, 0], [1], [0]],
        patients=["A", "A", "B", "C", "D", "A", "E", "F", "G", "H"],
    )
    table = given.instances
    assert table is not None

    def of_bag(row: int) -> np.ndarray:
        return np.asarray(given.instances.bag_ids == f"bag {row}")  # type: ignore[union-attr]

    unlabeled = of_bag(7) & (table.instance == 1)
    table = replace(
        table,
        labels=Labels(table.labels.values, ~unlabeled),
        is_ood=OodFlags(of_bag(8), of_bag(8)),
        flagged=table.distribution.probabilities[:, 1].numpy() == 1,
    )
    outside = np.arange(10) == 3
    bags = replace(given.bags, is_ood=OodFlags(outside, outside))
    return Predictions(bags, table.subset(np.flatnonzero(~of_bag(4))))


@pytest.mark.parametrize(
    ("goal", "loss"),
    [
        ({"guarantee": "no-false-flag", "allowed": 0}, 3 / 4),
        ({"guarantee": "no-false-flag", "allowed": 1}, 2 / 4),
        ({"guarantee": "no-false-flag", "allowed": 0, "patients": 9}, (1 + 0) / 2),
        ({"guarantee": "no-false-flag", "allowed": 1, "patients": 9}, (2 / 3 + 0) / 2),
        ({"guarantee": "false-positives", "cap": 2}, (2 + 2 + 0 + 1) / 4),
        ({"guarantee": "detection"}, 0.0),
        ({"guarantee": "recall"}, 1 / 2),  # of the only bag with positive instances that are all judged
    ],
    ids=str,
)
def test_flags_come_out_as_counted_by_hand(goal: dict[str, Any], loss: float) -> None:
    rule = InstanceFlags(
        **{"level": 0.5, "score": "probability", "negative_class": 0, "threshold": 1.0, "allowed": 0, "cap": 10,
           "bags": 9, "patients": None, "left_out": 0, "measured": 0.0, "estimator": None, **goal}
    )  # fmt: skip
    found = {name: one.value for name, one in flag_metrics(flagged_by_hand(), rule).items()}
    assert found == {
        "loss": pytest.approx(loss),
        "negative_bags_with_a_flag": 3 / 4,
        "false_positives": 6 / 4,
        "positive_bags_with_a_flag": 1.0,
        "sensitivity": pytest.approx(2 / 3),
        "precision": pytest.approx(2 / 9),
    }


def test_what_is_out_of_distribution_has_no_share_in_froc() -> None:
    labels: list[list[int] | None] = [[0, 0], [0], [1]]
    given = scored_bags([[0.25, 0.875], [0.875], [0.5]], [0, 0, 1], positives=labels)
    assert given.instances is not None
    plain = [one.value for one in froc(given).values()]
    assert plain[1:4] == [0.0, 0.0, 1.0]
    bags = replace(given.bags, is_ood=OodFlags.of([False, True, False]))
    instances = replace(given.instances, is_ood=OodFlags.of([False, True, False, False]))
    assert [one.value for one in froc(Predictions(bags, instances)).values()] == [1.0] * 7
    outside = np.array([False, False, False, True])
    none = replace(given, instances=replace(given.instances, is_ood=OodFlags(outside, outside)))
    assert "no labeled positive instance" in froc(none)["froc"].reason


def test_the_last_rate_of_froc_is_not_reached_below_more_false_positives() -> None:
    given = scored_bags([[0.875] * 9, [0.5]], [0, 1], positives=[[0] * 9, [1]])
    assert froc(given)["sensitivity_at_8"].value == 0


def test_froc_is_of_the_score_that_flags_are_made_by() -> None:
    given = both(FlagWorld(), 40, 9)
    assert given.instances is not None
    given = replace(given, instances=given.instances.with_score("other", -given.instances.probabilities[:, 1]))
    goal = InstanceGoal("no-false-flag", 0.5, score="other")
    made = calibrate(replace(unlabeled(given), bags=given.bags), instances=goal, **ALONE)  # type: ignore[arg-type]
    measured = evaluate(decide(given, made)).froc
    assert measured == froc(given, score="other") != froc(given)


def test_at_a_rate_above_all_negatives_even_scores_below_zero_are_found() -> None:
    given = scored_bags([[0.5], [0.5, 0.1]], [0, 1], positives=[[0], [1, 1]])
    assert given.instances is not None
    given = replace(given, instances=given.instances.with_score("energy", np.array([-3.0, -2.0, -9.0])))
    by_rate = [one.value for one in froc(given, score="energy").values()][1:]
    assert by_rate == [0.5, 0.5, 1.0, 1.0, 1.0, 1.0]


def test_evaluate_shows_froc_and_flags(tmp_path: Path) -> None:
    given = both(FlagWorld(), 40, 9)
    made = calibrate(replace(unlabeled(given), bags=given.bags), instances=InstanceGoal(), **ALONE)  # type: ignore[arg-type]
    decide(given, made).save(tmp_path / "out")
    text = " ".join(run("evaluate", tmp_path / "out").replace("│", " ").split())
    assert "Sensitivity at 1/4 false positives per negative bag" in text
    assert "Sensitivity at 1 false positive per negative bag" in text
    assert "controlled risk, at most 0.1" in text
    assert "labeled positive instances that are flagged" in text
    assert "labeled flagged instances that are positive" in text  # flags without a label do not count
    assert "on a new negative bag, any instance is flagged with chance at most 0.1" in text
    parsed = json.loads(run("evaluate", tmp_path / "out", "--json"))
    assert 0 < parsed["froc"]["sensitivity_at_0.25"] <= parsed["froc"]["sensitivity_at_8"] <= 1
    assert parsed["flags"]["metrics"]["loss"] <= 0.1
    frame = evaluate(read_predictions(tmp_path / "out")).to_frame()
    assert {"froc", "flags_sensitivity"} <= set(frame[frame.level == "instances"].metric)


def test_negative_bags_without_instances_do_not_dilute_false_positives() -> None:
    whole = both(FlagWorld(), 40, 3)
    assert whole.instances is not None
    few = {name for name in whole.bags.bag_ids if name.startswith("0") and hash_of(name) % 2}
    some = whole.instances.subset(np.flatnonzero([name not in few for name in whole.instances.bag_ids]))
    kept = whole.bags.subset(np.flatnonzero([name not in few for name in whole.bags.bag_ids]))
    assert 5 < len(few) < 35
    assert froc(Predictions(whole.bags, some)) == froc(Predictions(kept, some))


def hash_of(name: str) -> int:
    return sum(map(ord, name))
