"""Another class mix raises an alarm, seldom a false one, and is estimated from the predicted classes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import fail, run
from made_promises import predictions_of
from scipy.stats import beta, binom

from miue.bags import Labels
from miue.calibration import Calibration, ClassMix, calibrate, decide, estimate_mix
from miue.calibration.class_mix import CLASS_MIX
from miue.calibration.monitoring import Batch, Course, monitor
from miue.calibration.monitoring.batch import watched_scores
from miue.calibration.monitoring.folder import add_batches
from miue.calibration.monitoring.martingale import log_martingale, online_p_values, power_bets, step_bets
from miue.calibration.monitoring.page import render_monitor
from miue.common.errors import ConfigError
from miue.distributions import Categorical
from miue.predictions import Predictions, Provenance, read_predictions

LESS = {"scaling": False, "deferral": None, "prediction_sets": None}


def mixed_bags(count: int, share: float, random: np.random.Generator, *, wrong: float = 0.1) -> Predictions:
    """Bags of two classes with this share of class 1; the score depends on no class."""
    labels = (random.random(count) < share).astype(np.int64)
    sure = 0.55 + 0.44 * random.random(count)
    p = np.where((random.random(count) < wrong) != (labels == 1), sure, 1 - sure)
    of = Categorical(torch.from_numpy(np.stack([1 - p, p], 1)))
    return predictions_of(of, labels, scores={"hardness": random.normal(size=count)})


def watch(held: Predictions, *new: Predictions, **options: object) -> Course:
    made = calibrate(held, class_names=("no", "yes"), **LESS)  # type: ignore[arg-type]
    batches = [Batch.of(str(number), one.bags, made) for number, one in enumerate(new)]
    ids = iter(range(10**6))
    renamed = [replace(batch, ids=tuple(f"bag {next(ids)}" for _ in batch.ids)) for batch in batches]
    return monitor(made, renamed, **options)  # type: ignore[arg-type]


def confusion_of(made: Calibration) -> np.ndarray:
    assert made.class_mix is not None
    return np.array(made.class_mix.confusion)


# The estimate


@pytest.mark.parametrize("positives", [0, 13, 40, 88, 97, 100])
def test_of_two_classes_the_estimate_is_that_of_rogan_and_gladen(positives: int) -> None:
    predicted = np.repeat([0, 1], [100 - positives, positives])
    found = estimate_mix([[43, 7], [5, 25]], predicted)
    sensitivity, false_positives = 25 / 30, 7 / 50
    wanted = (positives / 100 - false_positives) / (sensitivity - false_positives)
    assert found.shares[1] == pytest.approx(min(max(wanted, 0), 1), abs=1e-12)
    assert sum(found.shares) == pytest.approx(1)
    assert found.bags == 100
    assert found.low[1] <= found.shares[1] <= found.high[1]
    assert estimate_mix([[43, 7], [5, 25]], predicted) == found


@pytest.mark.parametrize(("bags", "positives", "within"), [(8, 8, 0.05), (3, 0, 0.05), (30, 11, 0.006)])
def test_where_predictions_are_always_right_the_interval_is_that_of_a_share(
    bags: int, positives: int, within: float
) -> None:
    """Jeffreys' interval, since the share of class 1 is that of the bags predicted so."""
    found = estimate_mix([[10**7, 0], [0, 10**7]], (np.arange(bags) < positives).astype(int))
    jeffreys = beta(positives + 0.5, bags - positives + 0.5)
    assert (found.low[1], found.high[1]) == pytest.approx(jeffreys.ppf([0.025, 0.975]), abs=within)


@pytest.mark.parametrize(("found", "missed"), [(12, 3), (9, 0)])
def test_few_calibration_bags_of_a_class_widen_the_interval_as_jeffreys_does(found: int, missed: int) -> None:
    """Without false positives and with very many new bags, the share of class 1 is μ / sensitivity."""
    estimate = estimate_mix([[10**7, 0], [missed, found]], np.repeat([0, 1], [700_000, 300_000]))
    ends = 0.3 / beta(found + 0.5, missed + 0.5).ppf([0.975, 0.025])
    assert (estimate.low[1], estimate.high[1]) == pytest.approx(ends, rel=0.02)


def test_of_three_classes_the_mix_is_recovered_exactly_from_expected_counts() -> None:
    confusion = np.array([[70, 20, 10], [5, 45, 0], [15, 30, 105]])
    mix = np.array([0.2, 0.5, 0.3])
    shares = (confusion / confusion.sum(1, keepdims=True)).T @ mix
    found = estimate_mix(confusion.tolist(), np.repeat([0, 1, 2], np.round(1000 * shares).astype(int)))
    assert found.shares == pytest.approx(mix, abs=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_the_interval_covers_the_share_as_often_as_it_says(share: float) -> None:
    random, runs, covered = np.random.default_rng(3), 300, 0
    for _ in range(runs):
        held, new = mixed_bags(80, 0.5, random), mixed_bags(60, share, random)
        made = calibrate(held, **LESS)  # type: ignore[arg-type]
        found = estimate_mix(confusion_of(made).tolist(), new.bags.predicted)
        covered += found.low[1] <= share <= found.high[1]
    assert covered >= binom.ppf(0.001, runs, 0.94)


def test_a_mix_that_cannot_be_estimated_says_why() -> None:
    assert not ClassMix(confusion=((9, 1), (2, 8))).unknown_because
    assert "hardly depend" in ClassMix(confusion=((5, 5), (5, 5))).unknown_because
    assert "hardly depend" in ClassMix(confusion=((52, 48), (48, 52))).unknown_because  # solved, but by chance
    assert not ClassMix(confusion=((60, 40), (45, 55))).unknown_because
    assert "no bag of some class" in ClassMix(confusion=((5, 5), (0, 0))).unknown_because
    assert "not known" in ClassMix().unknown_because
    assert ClassMix(confusion=((9, 0), (0, 8))).missing == ()  # a class that is always predicted right is there
    assert ClassMix(confusion=((5, 5), (0, 0))).missing == (1,)
    random = np.random.default_rng(0)
    held, new = mixed_bags(80, 0.5, random), mixed_bags(200, 0.5, random)
    weighted = calibrate(held, like=new)
    course = monitor(weighted, [Batch.of("new", mixed_bags(20, 0.5, random).bags, weighted)])
    assert course.describe_mix().startswith("The class mix is not estimated: labels of the bags")
    assert "compared with 200 bags that the calibration was weighted for" in str(course)
    assert course.tables()[0].heading == ("batch", "bags", "counted", "evidence", "of", "first alarm")
    assert course.mix_to_json().keys() == {"unknown"}


def test_a_calibration_counts_its_bags_by_class_and_keeps_it_out_of_predictions(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    held = mixed_bags(90, 0.4, random)
    made = calibrate(held, class_names=("no", "yes"), **LESS)  # type: ignore[arg-type]
    wanted = np.zeros((2, 2), int)
    np.add.at(wanted, (held.bags.labels.values, held.bags.predicted), 1)
    assert confusion_of(made).tolist() == wanted.tolist()
    assert made.class_mix is not None
    assert made.class_mix.shares == pytest.approx(np.bincount(held.bags.labels.values) / 90)
    made.save(tmp_path / "calibration.json")
    assert Calibration.load(tmp_path / "calibration.json") == made
    decided = decide(held, made).provenance.calibration
    assert decided is not None and "class_mix" not in decided
    weighted = calibrate(held, like=mixed_bags(200, 0.5, random))
    assert weighted.class_mix is not None
    assert weighted.class_mix.confusion == ()
    assert len(weighted.class_mix.probabilities[CLASS_MIX]) == 200


def test_one_bag_without_a_label_leaves_no_classes_to_compare_with() -> None:
    held = mixed_bags(40, 0.5, np.random.default_rng(2))
    labels = Labels(held.bags.labels.values, np.arange(40) != 17)
    made = calibrate(replace(held, bags=replace(held.bags, labels=labels)), **LESS)  # type: ignore[arg-type]
    assert made.class_mix is not None
    assert made.class_mix.confusion == ()
    assert len(made.class_mix.probabilities[CLASS_MIX]) == 40


def test_bags_in_memory_are_watched_as_those_of_a_table_that_was_written(tmp_path: Path) -> None:
    """The second bag is of class 1 by a digit that no table has."""
    p = np.array([0.1, 0.5 + 1e-12, 0.9, 1 / 3])
    of = Categorical(torch.from_numpy(np.stack([1 - p, p], 1)))
    new = predictions_of(of, np.array([0, 1, 1, 0]), scores={"hardness": np.array([0.1, 1 / 3, 1e-50, 7.0])})
    made = calibrate(mixed_bags(40, 0.5, np.random.default_rng(0)), **LESS)  # type: ignore[arg-type]
    batch = Batch.of("new", new.bags, made)
    new.save(tmp_path / "new")
    read = Batch.of("new", read_predictions(tmp_path / "new").bags, made)
    assert batch.values[CLASS_MIX].tolist() == p.astype(np.float32).tolist()
    assert batch.predicted.tolist() == read.predicted.tolist() == [0, 0, 1, 0]
    assert batch.values["hardness"].tolist() == np.array([0.1, 1 / 3, 0, 7], np.float32).tolist()
    assert {name: one.tolist() for name, one in batch.values.items()} == {
        name: one.tolist() for name, one in read.values.items()
    }


# The alarm


def false_alarms(runs: int, chance: float, *, share: float, wrong: float) -> int:
    random = np.random.default_rng(int(100 * share))
    alarms = 0
    for seed in range(runs):
        held, new = (mixed_bags(count, share, random, wrong=wrong) for count in (40, 60))
        alarms += bool(watch(held, new, chance=chance, seed=seed).alarms)
    return alarms


@pytest.mark.slow
@pytest.mark.parametrize(("share", "wrong"), [(0.5, 0.0), (0.5, 0.1), (0.05, 0.05), (0.9, 0.3)])
def test_alarms_of_four_hundred_streams_without_a_change_are_as_rare_as_stated(share: float, wrong: float) -> None:
    assert false_alarms(400, 0.1, share=share, wrong=wrong) <= binom.ppf(0.999, 400, 0.1)


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_another_mix_is_seen_within_eighty_bags_and_its_share_estimated(share: float) -> None:
    random = np.random.default_rng(5)
    seen = 0
    for _ in range(10):
        course = watch(mixed_bags(200, 0.5, random), mixed_bags(80, share, random), chance=0.05)
        seen += CLASS_MIX in course.alarms
        assert set(course.alarms) <= {CLASS_MIX}
        assert course.mix[0] is not None
        assert abs(course.mix[0].shares[1] - share) < 0.2
    assert seen >= 8


def test_step_bets_see_a_mix_that_power_bets_do_not() -> None:
    random = np.random.default_rng(6)
    gained = []
    for _ in range(30):
        held, new = (mixed_bags(200, share, random).bags.probabilities[:, 1] for share in (0.5, 0.8))
        p_values = online_p_values(held.tolist(), new[:80].tolist(), random)
        gained.append([log_martingale(p_values, bets)[-1] for bets in (step_bets, power_bets)])
    step, power = np.median(gained, axis=0)
    assert step > np.log(100) > 3 * power


def test_half_of_the_chance_is_for_the_class_mix_and_the_rest_is_shared() -> None:
    random = np.random.default_rng(7)
    course = watch(mixed_bags(60, 0.5, random), mixed_bags(9, 0.5, random), chance=0.02)
    chances = 10 ** -np.array(course.log10_limits)
    assert chances.sum() == pytest.approx(0.02)
    assert chances[course.scores.index(CLASS_MIX)] == pytest.approx(0.01)
    assert chances[0] == pytest.approx(0.01 / (len(course.scores) - 1))
    for alone in ("hardness", CLASS_MIX):
        limits = watch(mixed_bags(60, 0.5, random), mixed_bags(9, 0.5, random), scores=[alone]).log10_limits
        assert limits == pytest.approx((2.0,))


def test_the_mix_of_a_batch_is_that_of_one_bag_of_each_patient() -> None:
    random = np.random.default_rng(9)
    held, new = mixed_bags(60, 0.5, random), mixed_bags(40, 0.5, random)
    patients = np.array([f"patient {row // 4}" if row < 32 else "" for row in range(40)], object)
    course = watch(held, replace(new, bags=replace(new.bags, patients=patients)))
    assert course.counted.sum() == 8 + 8
    confusion = confusion_of(calibrate(held, **LESS)).tolist()  # type: ignore[arg-type]
    assert course.mix == (estimate_mix(confusion, new.bags.predicted[course.counted]),)


def test_a_monitor_refuses_a_calibration_that_counted_other_classes_of_the_same_bags(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    held, new = mixed_bags(60, 0.5, random), mixed_bags(10, 0.5, random)
    made = calibrate(held, **LESS)  # type: ignore[arg-type]
    assert made.class_mix is not None
    today = Batch.of("today", new.bags, made)
    add_batches(tmp_path, made, [today], watched_scores(made), chance=0.01)
    corrected = tuple(row[::-1] for row in made.class_mix.confusion)
    other = made.model_copy(update={"class_mix": made.class_mix.model_copy(update={"confusion": corrected})})
    with pytest.raises(ConfigError, match="the calibration that it began with"):
        add_batches(tmp_path, other, [], watched_scores(made), chance=0.01)


def test_of_three_classes_each_is_watched_and_estimated() -> None:
    random = np.random.default_rng(8)

    def of_classes(shares: list[float], count: int) -> Predictions:
        labels = random.choice(3, count, p=shares)
        p = 0.2 * random.random((count, 3)) + 2 * np.eye(3)[labels]
        return predictions_of(Categorical(torch.from_numpy(p / p.sum(1, keepdims=True))), labels)

    made = calibrate(of_classes([0.4, 0.3, 0.3], 150), class_names=("a", "b", "c"), **LESS)  # type: ignore[arg-type]
    course = monitor(
        made, [Batch.of("new", of_classes([0.1, 0.3, 0.6], 90).bags, made, [CLASS_MIX])], scores=[CLASS_MIX]
    )
    assert course.scores == ("class_mix_a", "class_mix_b", "class_mix_c")
    assert "class_mix_c" in course.alarms and "class_mix_b" not in course.alarms
    batches, classes = course.tables()
    assert batches.heading == ("batch", "bags", "counted", "evidence", "of", "first alarm")
    mix = course.mix[0]
    assert mix is not None
    assert classes.rows == tuple(("new", name, mix.percent(label)) for label, name in enumerate("abc"))
    assert all(f"<td>{cell}</td>" in render_monitor(course).decode() for row in classes.rows for cell in row)
    said = course.describe_mix()
    assert "; b " in said and "; c " in said


def test_the_page_and_the_table_say_the_share_and_what_an_alarm_of_the_mix_alone_means() -> None:
    random = np.random.default_rng(9)
    course = watch(mixed_bags(200, 0.5, random), mixed_bags(150, 0.9, random), chance=0.05)
    assert course.mix[0] is not None
    assert course.tables()[0].rows[0][3] == course.mix[0].percent(1)
    page = " ".join(render_monitor(course).decode().split())
    assert "Only the class mix differs" in page
    assert "prediction sets for each class still hold" in page and "--like" not in page, (
        "weights follow uncertainties, which do not differ"
    )
    assert f"(150 bags, with 95 % intervals): yes {course.mix[0].percent(1)}, in the calibration" in page
    assert "alarm of the uncertainties" in page and "alarm of the class mix" in page
    course = watch(mixed_bags(90, 0.5, random), mixed_bags(9, 0.5, random))
    calm = " ".join(render_monitor(course).decode().split())
    assert "Only the class mix" not in calm and "This assumes that bags of one class look" in calm


def test_predicted_classes_that_no_mix_fits_are_said_to_contradict_the_assumption() -> None:
    confusion, classes = [[35, 4], [14, 25]], np.array([0, 1])
    assert estimate_mix(confusion, np.repeat(classes, [0, 60])).impossible
    assert not estimate_mix(confusion, np.repeat(classes, [20, 40])).impossible
    assert not estimate_mix([[40, 0], [0, 40]], np.repeat(classes, [0, 60])).impossible
    random = np.random.default_rng(11)
    held, new = mixed_bags(200, 0.5, random, wrong=0.3), mixed_bags(150, 1.0, random, wrong=0.0)
    course = watch(held, new)
    no_mix = "They seem not to: no mix of the calibration bags fits these predicted classes."
    assert no_mix in course.describe_mix() and no_mix in render_monitor(course).decode()
    fits = watch(held, mixed_bags(150, 0.8, random, wrong=0.3))
    assert fits.describe_mix().endswith("look as they did in the calibration.")


def test_a_class_that_is_called_by_a_number_is_not_read_as_its_share() -> None:
    random = np.random.default_rng(11)
    made = calibrate(mixed_bags(200, 0.5, random), class_names=("0", "1"), **LESS)  # type: ignore[arg-type]
    said = monitor(made, [Batch.of("new", mixed_bags(120, 0.5, random).bags, made)]).describe_mix()
    assert "intervals): class 1: " in said


def test_the_command_estimates_the_mix_and_refuses_classes_in_another_order(tmp_path: Path) -> None:
    random = np.random.default_rng(10)
    made = calibrate(mixed_bags(200, 0.5, random), class_names=("no", "yes"), **LESS)  # type: ignore[arg-type]
    made.save(tmp_path / "calibration.json")
    new = mixed_bags(120, 0.85, random)
    for name, classes in (("new", ("no", "yes")), ("swapped", ("yes", "no"))):
        replace(new, provenance=Provenance(classes=classes)).save(tmp_path / name)
    words = ("monitor", tmp_path / "calibration.json")
    said = json.JSONDecoder().raw_decode(run(*words, tmp_path / "new", "--out", tmp_path / "m", "--json"))[0]
    share = said["class_mix"]["batches"]["new"]["yes"]
    assert share["low"] <= 0.85 <= share["high"]
    assert said["alarms"].keys() == {CLASS_MIX}
    assert said["log10_limits"][CLASS_MIX] == pytest.approx(np.log10(2 / 0.01))
    printed = " ".join(run(*words, tmp_path / "new", "--out", tmp_path / "m").split())
    assert (
        f"Estimated class mix of new (120 bags, with 95 % intervals): yes {100 * share['share']:.0f} %" in printed
    )
    assert "the classes that were calibrated" in fail(*words, tmp_path / "swapped", "--out", tmp_path / "n")
