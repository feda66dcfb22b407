"""A monitor raises an alarm when bags change, seldom otherwise, and goes on from what it wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run
from made_bags import separable_bags
from made_predictions import chromium
from made_reports import Page
from scipy.integrate import quad
from scipy.stats import binom, kstest
from test_dataset_shift import bags_with

from miue.calibration import Calibration, CalibrationBags
from miue.calibration.monitoring import Batch, Course, monitor
from miue.calibration.monitoring.folder import BAGS, COURSE, PAGE, STATE, add_batches, batch_names
from miue.calibration.monitoring.martingale import (
    CUTS,
    EXPONENTS,
    ODDS,
    log_martingale,
    online_p_values,
    step_bets,
)
from miue.calibration.monitoring.page import render_monitor
from miue.common.errors import ConfigError, DataError, MiueError, StorageError
from miue.common.tables import read_columns
from miue.io import write_store

RANDOM = np.random.default_rng
pytestmark = pytest.mark.usefixtures("small_plotly")


def calibrated(**values: np.ndarray) -> Calibration:
    usual = {name: tuple(np.sort(one).tolist()) for name, one in values.items()}
    return Calibration(class_names=("no", "yes"), usual=usual)


def batch(name: str, patients: tuple[str, ...] | None = None, **values: np.ndarray) -> Batch:
    count = len(next(iter(values.values())))
    ids = tuple(f"{name}-{row}" for row in range(count))
    return Batch(name, ids, patients or ("",) * count, values, np.zeros(count, np.int64))


def test_a_p_value_counts_what_is_larger_and_a_share_of_what_is_equal() -> None:
    calibration, values = [1.0, 2.0, 2.0, np.inf], [2.0, 5.0, 0.0, np.inf, 2.0]
    draws = 1 - RANDOM(3).random(5)
    wanted, so_far = [], list(calibration)
    for value, draw in zip(values, draws, strict=True):
        so_far.append(value)
        larger, equal = sum(v > value for v in so_far), sum(v == value for v in so_far)
        wanted.append((larger + draw * equal) / len(so_far))
    assert online_p_values(calibration, values, RANDOM(3)) == pytest.approx(wanted, rel=1e-15)


@pytest.mark.parametrize("levels", [None, 3, 1], ids=["no ties", "three values", "all equal"])
def test_p_values_of_bags_that_do_not_change_are_uniform_and_independent(levels: int | None) -> None:
    random = RANDOM(0)
    values = random.normal(size=2050) if levels is None else random.integers(0, levels, 2050).astype(float)
    p_values = online_p_values(values[:50].tolist(), values[50:].tolist(), random)
    assert kstest(p_values, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(p_values[1:], p_values[:-1])[0, 1]) < 0.06


def test_every_bet_is_fair() -> None:
    for exponent in EXPONENTS:
        assert quad(lambda p, e=exponent: e * p ** (e - 1), 0, 1)[0] == pytest.approx(1, abs=1e-6)


def test_winnings_are_those_of_the_bets_with_a_share_dealt_anew() -> None:
    p_values = np.array([0.3, 0.001, 0.999])
    bets = [np.array([*(e * p ** (e - 1) for e in EXPONENTS), *(e * (1 - p) ** (e - 1) for e in EXPONENTS), 1])
            for p in p_values]  # fmt: skip
    money, wanted = np.full(21, 1 / 21), []
    for bet in bets:
        money = money * bet
        wanted.append(np.log(money.sum()))
        money = 0.99 * money + 0.01 * money.sum() / 21
    assert log_martingale(p_values) == pytest.approx(wanted, rel=1e-12)
    assert np.isfinite(log_martingale(np.array([0.0, 1.0]))).all()


@pytest.mark.parametrize("levels", [None, 4], ids=["no ties", "ties"])
def test_alarms_without_a_change_are_as_rare_as_stated(levels: int | None) -> None:
    random, runs, chance = RANDOM(1), 120, 0.1
    alarms = 0
    for _ in range(runs):
        common = random.normal(size=(70, 1)) + 0.3 * random.normal(size=(70, 2))
        values = common if levels is None else np.digitize(common, np.linspace(-1, 1, levels - 1)).astype(float)
        before, after = values[:30], values[30:]
        course = monitor(
            calibrated(a=before[:, 0], b=before[:, 1]),
            [batch("all", a=after[:, 0], b=after[:, 1])],
            chance=chance,
            seed=int(random.integers(2**32)),
        )
        alarms += bool(course.alarms)
    assert alarms <= binom.ppf(0.999, runs, chance)
    assert alarms > 0


def test_a_step_bet_is_fair_and_pays_for_odds_of_its_factor() -> None:
    at_cut, beyond = (np.exp(np.diagonal(step_bets(p)[:, : len(CUTS)])) for p in (CUTS, np.nextafter(CUTS, 1)))
    for of_step, (low, high) in zip(
        (ODDS, 1 / ODDS), np.exp(step_bets(np.array([0.01, 0.99]))).reshape(2, 2, -1).swapaxes(0, 1), strict=True
    ):
        share = CUTS * low  # of p-values at or below the cut, for which the bet is best
        np.testing.assert_allclose(share + (1 - CUTS) * high, 1)  # the mean over uniform p-values
        np.testing.assert_allclose(share / (1 - share), of_step * CUTS / (1 - CUTS))
    assert (at_cut > 1).all() and (beyond < 1).all()


def test_the_seed_breaks_ties() -> None:
    ties = np.ones(30)
    found = [
        monitor(calibrated(a=ties), [batch("all", a=ties)], seed=seed).log10_evidence.tobytes()
        for seed in (0, 1, 1)
    ]
    assert found[0] != found[1] == found[2]


def test_the_chance_is_shared_by_all_that_is_watched() -> None:
    random = RANDOM(4)
    names = ("a", "b", "c")
    before, after = ({name: random.normal(size=40) for name in names} for _ in range(2))
    for count in (1, 3):
        chosen = names[:count]
        course = monitor(
            calibrated(**{name: before[name] for name in chosen}),
            [batch("all", None, **{name: after[name] for name in chosen})],
            chance=0.02,
        )
        assert (10 ** -np.array(course.log10_limits)).sum() == pytest.approx(0.02)


@pytest.mark.parametrize("shift", [-2.0, 2.0])
@pytest.mark.parametrize("calm", [0, 500])
def test_a_change_is_seen_soon_in_either_direction_also_after_a_long_calm(shift: float, calm: int) -> None:
    random = RANDOM(2)
    before = batch("calm", a=random.normal(size=calm), b=random.normal(size=calm))
    after = batch("changed", a=random.normal(size=60), b=random.normal(shift, 1, 60))
    batches = [before, after] if calm else [after]
    course = monitor(calibrated(a=random.normal(size=60), b=random.normal(size=60)), batches)
    assert set(course.alarms) == {"b"}
    assert course.alarm_batch == "changed"
    assert course.ids.index(course.alarms["b"]) - calm < 25
    assert str(course).startswith("Alarm since changed: ")


@pytest.mark.long
@pytest.mark.parametrize(("calibrated_bags", "limit", "late", "early"), [(1000, 2.0, 10, 4), (100, 3.4, 12, 9)])
def test_a_late_change_is_detected_as_soon_as_the_page_on_monitoring_says(
    calibrated_bags: int, limit: float, late: int, early: int
) -> None:
    random, medians = RANDOM(4), []
    for calm in (2000, 10):
        bags = []
        for _ in range(25):
            values = np.concatenate([random.normal(size=calm), random.normal(3, 1, 60)]).tolist()
            p_values = online_p_values(random.normal(size=calibrated_bags).tolist(), values, random)
            bags.append(1 + int((log_martingale(p_values)[calm:] >= limit * np.log(10)).argmax()))
        medians.append(float(np.median(bags)))
    assert medians == pytest.approx([late, early], abs=1)
    page = (Path(__file__).parents[1] / "docs/howto/monitor.md").read_text()
    assert f"{calibrated_bags:,} calibration bags" in page
    assert f"after {late}" in page


def test_the_strongest_evidence_is_the_nearest_to_its_limit_which_is_an_alarm_once_reached() -> None:
    course = monitor(calibrated(a=np.arange(20.0), b=np.arange(20.0)), [batch("1", a=np.zeros(1), b=np.zeros(1))])
    below = replace(course, log10_limits=(2.0, 3.0), log10_evidence=np.array([[1.75, 2.0]]))
    assert (below.strongest(), below.alarms) == (0, {})
    reached = replace(below, log10_evidence=np.array([[1.75, 3.0]]))
    assert (reached.strongest(), reached.alarms) == (1, {"b": "1-0"})
    for shown, said in ((below, "—"), (reached, "b")):
        [table] = shown.tables()
        assert [row[table.heading.index("first alarm")] for row in table.rows] == [said]


def test_an_alarm_is_of_the_batch_and_the_bag_that_raised_it_first_also_where_it_lasts_or_ends() -> None:
    usual = calibrated(a=np.arange(20.0), b=np.arange(20.0))
    course = monitor(usual, [batch(name, a=np.zeros(2), b=np.zeros(2)) for name in ("1", "2", "3")])
    evidence = np.array([[0.0, 0.0], [1.0, 0.5], [3.0, 1.0], [4.0, 1.5], [3.5, 2.5], [0.25, 1.25]])
    shown = replace(course, log10_limits=(2.0, 2.0), log10_evidence=evidence)
    assert shown.alarms == {"a": shown.ids[2], "b": shown.ids[4]}
    assert shown.alarm_batch == "2"
    assert str(shown).startswith("Alarm since 2: 6 bags in 3 batches")
    [table] = shown.tables()
    last, of, first = (table.heading.index(name) for name in ("evidence", "of", "first alarm"))
    assert [(row[last], row[of], row[first]) for row in table.rows] == [
        ("10", "a", "—"),
        ("10⁴", "a", "a"),
        ("17.8", "b", "b"),
    ]
    calm = replace(shown, log10_limits=(4.5, 3.5))  # at the end b is nearer, but a was
    assert str(calm).endswith("nearest to an alarm was 10⁴ (a); 3·10⁴ would be one.")


def test_evidence_near_one_is_shown_as_a_number(tmp_path: Path) -> None:
    course = monitor(calibrated(a=np.arange(20.0)), [batch("1", a=np.zeros(1)), batch("2", a=np.zeros(1))])
    shown = replace(course, log10_evidence=np.array([[-0.04], [3.68]]), log10_limits=(4.0,))
    [table] = shown.tables()
    assert [row[table.heading.index("evidence")] for row in table.rows] == ["0.912", "4,790"]
    calm = replace(shown, log10_evidence=np.array([[-0.04], [-0.1]]))
    assert "The evidence nearest to an alarm was 0.912 (a); 10⁴ would be one." in str(calm)
    assert not calm.only_mix and calm.advice == ""
    page = render_monitor(calm).decode()
    assert "<td>0.794</td><td>0.912</td>" in page and "10⁻" not in page and "<sup>-" not in page


def test_of_a_patient_one_bag_counts_drawn_from_the_first_batch_with_any() -> None:
    value, drawn = np.zeros(3), set()
    for seed in range(20):
        course = monitor(
            calibrated(a=RANDOM(0).normal(size=20)),
            [batch("1", ("p", "", "p"), a=value), batch("2", ("q", "p", ""), a=value)],
            seed=seed,
        )
        assert course.counted[[1, 3, 4, 5]].tolist() == [True, True, False, True]
        assert course.counted.sum() == 4
        drawn.add(int(course.counted[:3].argmax()))
        assert set(course.ids) == {f"{1 + row // 3}-{row % 3}" for row in np.flatnonzero(course.counted)}
        assert course.batch_of.tolist() == [0, 0, 1, 1]
        assert course.log10_evidence.shape == (4, 1)
        assert [row[:3] for row in course.tables()[0].rows] == [("1", "3", "2"), ("2", "3", "2")]
    assert drawn == {0, 1}  # the first bag of "p", or the last, so that the first that counts is the second


@pytest.mark.parametrize("how", ["sorted", "first slide of a patient"])
def test_neither_the_order_of_a_batch_nor_that_of_a_patients_slides_raises_alarms(how: str) -> None:
    random, runs, chance, alarms = RANDOM(6), 60, 0.1, 0
    for _ in range(runs):
        if how == "sorted":
            before, patients = random.normal(size=60), None
            batches = [batch(day, a=np.sort(random.normal(size=60))) for day in ("1", "2")]
        else:  # of three slides the first is unlike the others; the calibration drew one of each patient
            before = random.normal(size=60) + 2 * (random.integers(3, size=60) == 0)
            patients = tuple(f"p{row // 3}" for row in range(180))
            batches = [batch("1", patients, a=random.normal(size=180) + 2 * (np.arange(180) % 3 == 0))]
        alarms += bool(monitor(calibrated(a=before), batches, chance=chance).alarms)
    assert alarms <= binom.ppf(0.999, runs, chance)


def test_bags_that_the_model_was_trained_on_are_left_out_and_counted() -> None:
    new = bags_with({"a": RANDOM(0).normal(size=8)}).bags
    parts = np.array(["train", "", "validation", "train", "", "", "", ""], object)
    taken = Batch.of("today", replace(new, training_parts=parts), calibrated(a=np.arange(20.0)), ("a",))
    assert (taken.trained, len(taken.ids)) == (2, 6)
    assert taken.ids[0] == str(new.bag_ids[1])
    assert taken.values["a"] == pytest.approx(new.scores["a"][[1, 2, 4, 5, 6, 7]])


def test_bags_of_a_table_whose_patient_is_not_known_all_count() -> None:
    new = bags_with({"a": RANDOM(0).normal(size=4)}).bags
    known = calibrated(a=np.arange(20.0))
    taken = Batch.of("today", replace(new, patients=np.array(["p", None, "p", None], object)), known, ("a",))
    assert taken.patients == ("p", "", "p", "")
    assert monitor(known, [taken]).counted.sum() == 3


def test_new_bags_without_patients_are_named_where_calibrated_patients_have_several_bags() -> None:
    value, known = np.zeros(3), calibrated(a=RANDOM(0).normal(size=20))
    several = known.model_copy(update={"made_from": CalibrationBags(bags=20, patients=20, left_out=4)})
    course = monitor(several, [batch("1", ("p", "", "q"), a=value), batch("2", a=value)])
    assert course.patients_unknown.startswith("No patient is stated for 4 of 6 bags, and patients of the calibr")
    assert course.patients_unknown in course.tables()[0].notes
    assert course.patients_unknown in render_monitor(course).decode()
    assert monitor(several, [batch("1", ("p", "r", "q"), a=value)]).patients_unknown == ""
    single = known.model_copy(update={"made_from": CalibrationBags(bags=20, patients=20)})
    assert monitor(single, [batch("1", a=value)]).patients_unknown == ""
    assert monitor(known, [batch("1", a=value)]).patients_unknown == ""


def test_batches_one_after_another_end_at_the_bytes_of_all_at_once(tmp_path: Path) -> None:
    random = RANDOM(3)
    calibration = calibrated(a=random.normal(size=30), b=random.normal(size=30))
    batches = [batch(f"day {d}", a=random.normal(size=5), b=random.normal(size=5)) for d in range(4)]
    batches[2].values["a"][1] = np.inf  # as an uncertainty beyond float32 is
    batches.insert(1, batch("trained on", a=np.zeros(0), b=np.zeros(0)))  # of which every bag was left out
    add_batches(tmp_path / "all", calibration, batches, ("a", "b"), chance=0.01)
    for end in (1, 4, 4, 5):  # twice the same: what is there is not added again
        course = add_batches(tmp_path / "each", calibration, batches[:end], ("a", "b"), chance=0.01)
    for name in (BAGS, COURSE, PAGE, STATE):
        assert (tmp_path / "each" / name).read_bytes() == (tmp_path / "all" / name).read_bytes(), name
    assert len(course.ids) == 20
    (tmp_path / "each" / COURSE).unlink()  # as a kill after the bags leaves it
    (tmp_path / "each" / f".{COURSE}.0123abcd.tmp").touch()  # as a kill while the course is written leaves it
    add_batches(tmp_path / "each", calibration, [], ("a", "b"), chance=0.01)
    assert {file.name for file in (tmp_path / "each").iterdir()} == {
        file.name for file in (tmp_path / "all").iterdir()
    }
    assert (tmp_path / "each" / COURSE).read_bytes() == (tmp_path / "all" / COURSE).read_bytes()
    written = read_columns(tmp_path / "all" / COURSE, text=("batch", "bag_id"))
    assert written["log10_evidence_b"] == pytest.approx(course.log10_evidence[:, 1])


def test_a_batch_that_is_named_twice_is_counted_once_also_where_the_monitor_begins(tmp_path: Path) -> None:
    calibration, first = calibrated(a=np.arange(20.0)), batch("1", a=np.arange(3.0))
    turned = replace(first, ids=first.ids[::-1], values={"a": first.values["a"][::-1]})
    for folder in ("begins", "goes on", "goes on"):
        course = add_batches(tmp_path / folder, calibration, [first, first, turned], ("a",), chance=0.01)
        assert len(course.counted) == 3
    assert (tmp_path / "begins" / BAGS).read_bytes() == (tmp_path / "goes on" / BAGS).read_bytes()
    for ids, which in (("1-0", "1-1"), "without bag '1-2'"), (("1-0", "1-1", "1-2", "x"), "with bag 'x'"):
        other = replace(batch("1", a=np.zeros(len(ids))), ids=ids)
        with pytest.raises(DataError, match=f"the 3 bags that this monitor has of it, got {len(ids)}, {which}"):
            add_batches(tmp_path / "begins", calibration, [other], ("a",), chance=0.01)


def test_another_or_corrected_day_under_the_name_and_bag_ids_of_one_before_is_refused(tmp_path: Path) -> None:
    calibration, first = calibrated(a=np.arange(20.0)), batch("1", ("p", "", "q"), a=np.array([1.0, np.inf, 3.0]))
    add_batches(tmp_path / "monitor", calibration, [first], ("a",), chance=0.01)
    before = (tmp_path / "monitor" / BAGS).read_bytes()
    for values, patients, message in (
        ([2.0, np.inf, 3.0], first.patients, "bag '1-0' of the batch '1': .* the a that .* of it: 1, got 2;"),
        ([1.0, 4.0, 3.0], first.patients, "bag '1-1' .* inf, got 4;"),
        ([1.0, np.inf, 3.0], ("p", "r", "q"), "bag '1-1' .* the patient .* unknown, got 'r'"),
        ([1.0, np.inf, 3.0], ("p", "", "r"), "bag '1-2' .* the patient .* 'q', got 'r'"),
    ):
        other = replace(first, values={"a": np.array(values)}, patients=patients)
        for known in ("monitor", "begins"):
            with pytest.raises(DataError, match=message):
                add_batches(tmp_path / known, calibration, [first, other], ("a",), chance=0.01)
    again = replace(
        first, values={"a": np.array([1.02, np.inf, 2.98])}, patients=("",) * 3
    )  # at another precision
    course = add_batches(tmp_path / "monitor", calibration, [again], ("a",), chance=0.01)
    assert len(course.counted) == 3
    assert (tmp_path / "monitor" / BAGS).read_bytes() == before
    small = batch("small", a=np.array([0.001, 2.0, -1.0]))  # it may differ by a share of 2
    add_batches(tmp_path / "small", calibration, [small], ("a",), chance=0.01)
    for value, is_refused in ((0.09, False), (0.12, True)):
        again = replace(small, values={"a": np.array([value, 2.0, -1.0])})
        with pytest.raises(DataError, match="bag 'small-0'") if is_refused else nullcontext():
            add_batches(tmp_path / "small", calibration, [again], ("a",), chance=0.01)


def test_a_second_call_meanwhile_is_refused_so_that_no_batch_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibration, first = calibrated(a=np.arange(20.0)), batch("1", a=np.zeros(2))
    add_batches(tmp_path, calibration, [first], ("a",), chance=0.01)
    refused: list[BaseException | None] = []

    def compute_meanwhile(*arguments: Any, **more: Any) -> Course:
        monkeypatch.setattr("miue.calibration.monitoring.folder.monitor", monitor)
        third = batch("3", a=np.zeros(2))
        with ThreadPoolExecutor(1) as other:
            refused.append(
                other.submit(add_batches, tmp_path, calibration, [third], ("a",), chance=0.01).exception()
            )
        return monitor(*arguments, **more)

    monkeypatch.setattr("miue.calibration.monitoring.folder.monitor", compute_meanwhile)
    add_batches(tmp_path, calibration, [batch("2", a=np.zeros(2))], ("a",), chance=0.01)
    assert isinstance(refused[0], StorageError) and "no other process that writes it" in str(refused[0])
    add_batches(tmp_path, calibration, [batch("3", a=np.zeros(2))], ("a",), chance=0.01)
    assert read_columns(tmp_path / BAGS, text=("batch",))["batch"].tolist() == ["1", "1", "2", "2", "3", "3"]


def test_what_does_not_fit_a_monitor_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    calibration = calibrated(a=np.arange(20.0), b=np.arange(20.0))
    first = batch("1", a=np.zeros(2), b=np.zeros(2))
    folder = tmp_path / "monitor"
    add_batches(folder, calibration, [first], ("a",), chance=0.01)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    others = replace(first, ids=("x", "y"))
    again = replace(first, name="2")
    for error, message, arguments in (
        (DataError, "a name of its own", (calibration, [others], ("a",), 0.01)),
        (DataError, "bag '1-0'", (calibration, [again], ("a",), 0.01)),
        (DataError, "batch '2': .*got it in batch '1' too", (calibration, [again], ("a",), 0.01)),
        (ConfigError, "the uncertainties that it began with", (calibration, [], ("b",), 0.01)),
        (ConfigError, "the chance that it began with", (calibration, [], ("a",), 0.02)),
        (ConfigError, "the calibration that it", (calibrated(a=np.ones(3)), [], ("a",), 0.01)),
    ):
        with pytest.raises(error, match=message):
            add_batches(folder, *arguments[:3], chance=arguments[3])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("important")
    with pytest.raises(StorageError, match="empty folder"):
        add_batches(tmp_path / "other", calibration, [first], ("a",), chance=0.01)
    heading, damaged = "batch,bag_id,patient,predicted,a\n", []
    damaged += [("predicted", f"{heading}1,b,,{one},0.5\n1,c,,0,0.5\n") for one in ("2", "-1", "", "yes", "0.5")]
    damaged += [("a", f"{heading}1,b,,0,0.5\n1,c,,0,{one}\n") for one in ("", "abc", "nan")]
    damaged += [("a", "batch,bag_id,patient,predicted\n1,b,,0\n")]
    for column, text in damaged:
        (folder / BAGS).write_text(text)
        with pytest.raises(StorageError) as refused:
            add_batches(folder, calibration, [], ("a",), chance=0.01)
        assert refused.value.item == f"monitor {str(folder / BAGS)!r}, column {column!r}"


def other_value(lines: list[str]) -> list[str]:
    return [*lines[:2], lines[2].rsplit(",", 1)[0] + ",9.5", *lines[3:]]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        (BAGS, lambda lines: [*lines[:2], *lines[3:]]),
        (BAGS, lambda lines: lines[:-1]),
        (BAGS, lambda lines: [*lines, "0,another,,0,0.5"]),
        (BAGS, other_value),
        (COURSE, lambda lines: [*lines[:-1], "0,another,0.5"]),
        (COURSE, other_value),
        (COURSE, lambda lines: ["\x00" * 40]),
        (COURSE, lambda lines: lines[:3]),  # as a call that was killed before it wrote it leaves it
        (COURSE, lambda lines: None),
    ],
    ids=["lost", "cut", "added", "changed", "course of others", "another course", "damaged", "begun", "none"],
)
def test_bags_that_a_monitor_lost_or_that_were_changed_do_not_pass_for_those_it_had(
    file: str, change: Callable[[list[str]], list[str] | None], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The evidence was then another one, without a word."""
    calibration, values = calibrated(a=RANDOM(1).normal(size=30)), RANDOM(2).normal(size=(2, 8))
    first, second = (batch(str(number), a=one) for number, one in enumerate(values))
    whole = add_batches(tmp_path / "whole", calibration, [first, second], ("a",), chance=0.01)
    folder = tmp_path / "monitor"
    add_batches(folder, calibration, [first], ("a",), chance=0.01)
    lines = change((folder / file).read_text().splitlines())
    if lines is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text("\n".join(lines) + "\n")
    if request.node.callspec.id in ("begun", "none"):
        course = add_batches(folder, calibration, [second], ("a",), chance=0.01)
        assert np.array_equal(course.log10_evidence, whole.log10_evidence)
        return
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(
        StorageError, match=r"the bags in bags.csv that course.csv was computed of.*put back the file"
    ):
        add_batches(folder, calibration, [second], ("a",), chance=0.01)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_wrong_input_is_named() -> None:
    calibration = calibrated(a=np.arange(20.0))
    with pytest.raises(ConfigError, match="calibrate again"):
        monitor(Calibration(class_names=("no", "yes")), [])
    with pytest.raises(ConfigError, match="'vacuity'"):
        monitor(calibration, [], scores=["vacuity"])
    with pytest.raises(ConfigError, match="chance: expected less than 1"):
        monitor(calibration, [], chance=1.0)
    with pytest.raises(DataError, match="at least one bag"):
        monitor(calibration, [])
    table = bags_with({"a": np.array([1.0, np.nan, 2.0])}).bags
    calibration = calibrated(a=np.arange(20.0), knn_mean=np.arange(20.0))
    with pytest.raises(DataError, match="a of bag '.*' of predictions 'today': expected a number, got NaN"):
        Batch.of("today", table, calibration, ("a",))
    with pytest.raises(DataError, match="predictions 'today': expected the uncertainty 'knn_mean'"):
        Batch.of("today", table, calibration, ("knn_mean",))
    infinite = Batch.of("today", bags_with({"a": np.array([1.0, np.inf])}).bags, calibration, ("a",))
    assert np.isfinite(monitor(calibration, [infinite], scores=["a"]).log10_evidence).all()
    with pytest.raises(
        DataError, match="batch 'today': expected the uncertainty 'knn_mean'.* got a; pass the same"
    ):
        monitor(calibration, [infinite])


def course_of(name: str, shift: float) -> Course:
    random = RANDOM(4)
    new = batch(name, a=random.normal(shift, 1, 40), b=random.normal(size=40))
    return monitor(calibrated(a=random.normal(size=50), b=random.normal(size=50)), [new])


def test_the_page_says_what_is_the_case_and_escapes_names() -> None:
    shown = Page(render_monitor(course_of("<b>monday</b>", 0.0)).decode())
    assert (
        "No alarm: 40 bags in 1 batch, compared with 50 calibration bags." in shown.texts
        and "<b>monday</b>" in shown.texts
        and "b" not in shown.tags
    )
    assert len(shown.scripts) == 3
    alarm = Page(render_monitor(course_of("monday", 3.0)).decode())
    assert "Alarm since monday: 40 bags in 1 batch differ from the 50 calibration bags." in alarm.texts
    said = "Check scanner, stain, focus, features and the mix of cases since then"
    assert said in alarm.text and said not in shown.text
    names = {name: np.arange(20.0) for name in ("a<b>",)}
    hostile = monitor(calibrated(**names), [batch("1", None, **names)])
    assert Page(render_monitor(hostile).decode()).data["traces"][0]["name"] == "a&lt;b&gt;"


def test_the_page_leads_with_one_sentence_and_two_lines_that_cross_the_limit_with_the_first_alarm() -> None:
    names = ("a", "b", "class_mix_x")
    course = monitor(
        calibrated(**{name: np.arange(20.0) for name in names}),
        [batch("1", None, **{name: np.zeros(3) for name in names})],
    )
    evidence = np.array([[0.5, 1.0, 0.0], [2.5, 1.5, 0.5], [1.0, 3.0, -3.0]])
    shown = Page(render_monitor(replace(course, log10_limits=(2.0, 2.0, 1.0), log10_evidence=evidence)).decode())
    uncertainties, mix = shown.data["together"]
    assert (uncertainties["name"], uncertainties["y"]) == ("highest of 2 uncertainties", [0, 1.0, 2.5, 3.0])
    assert (mix["name"], mix["y"]) == ("class_mix_x", [0, 0, 0.5, -2])
    folded = shown.text.index("Each of the 3 scores")
    assert shown.text.index("Alarm since 1: 3 bags in 1 batch differ from the 20 calibration bags.") < folded
    assert f"highest of 2 uncertainties 1,000 1,000 {course.ids[1]}" in shown.text[:folded]
    assert [f" {name} " in shown.text[folded:] for name in names] == [True] * 3


def figure_of(course: Course) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Lines and layout of the figure on the page."""
    drawn = Page(render_monitor(course).decode()).data
    return drawn["traces"], drawn["layout"]


def test_the_figure_has_every_bag_the_ends_of_batches_and_the_limit_where_they_are() -> None:
    before = RANDOM(0).normal(size=200)
    new = [batch("1", a=np.zeros(30)), batch("2", a=np.full(70, 9.0)), batch("3", a=np.full(20, 9.0))]
    course = monitor(calibrated(a=before), new)
    [line], layout = figure_of(course)
    assert line["x"] == list(range(121))
    low, high = layout["yaxis"]["range"]
    wanted = np.maximum([0.0, *course.log10_evidence[:, 0]], -2)  # it is 1 before the first bag
    assert line["y"] == pytest.approx(wanted, abs=1e-3)
    assert low < min(line["y"]) and max(line["y"]) < high and max(line["y"]) > course.log10_limits[0] + 5
    ends = [one["x0"] for one in layout["shapes"] if one["x0"] == one["x1"]]
    assert ends == [30, 100]
    assert [one["y0"] for one in layout["shapes"] if one["y0"] == one["y1"]] == list(course.log10_limits)
    many = monitor(calibrated(a=before), [batch("1", a=np.zeros(4000))])
    [line], _ = figure_of(many)
    assert len(line["x"]) < 2100 and line["x"][-1] == 4000
    one = monitor(calibrated(a=np.arange(50.0)), [batch("monday", None, a=np.array([20.5]))])
    for evidence in (-5.0, 90.0):
        [line], layout = figure_of(replace(one, log10_evidence=np.array([[evidence]])))
        assert line["x"] == [0, 1] and layout["xaxis"]["range"] == [0, 1] and 0 in layout["yaxis"]["tickvals"]


def test_every_score_has_a_line_of_its_own_and_one_class_mix_is_plain() -> None:
    names = (*(f"score_{place:02}" for place in range(11)), *(f"class_mix_{place:02}" for place in range(10)))
    values = {name: np.arange(20.0) for name in names}
    course = monitor(calibrated(**values), [batch("monday", None, **values)])
    looks = {(line["line"]["color"], line["line"]["dash"]) for line in figure_of(course)[0]}
    assert len(looks) == len(names)
    two = replace(course_of("monday", 0.0), scores=("class_mix", "b"), log10_limits=(2.0, 3.0))
    lines, layout = figure_of(two)
    assert (lines[0]["line"]["color"], lines[0]["line"]["dash"]) == ("ink", "solid")
    labels = [one["text"].removeprefix("alarm of the ") for one in layout["annotations"]]
    assert labels == ["class mix", "uncertainties"]


@pytest.mark.long
def test_a_deployed_model_is_watched_from_predictions_to_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = separable_bags(140)
    write_store(tmp_path / "store", bags.subset(np.arange(40)))
    write_store(tmp_path / "held-out", bags.subset(np.arange(40, 80)))
    new = bags.subset(np.arange(80, 140))
    brighter = replace(
        new, instances=np.asarray(new.instances) + 3, ids=tuple(f"{name}-bright" for name in new.ids)
    )
    write_store(tmp_path / "same", new)
    write_store(tmp_path / "shifted", brighter)
    run("train", tmp_path / "store", "--out", tmp_path / "run", "--set", "max_epochs=2")
    run("calibrate", tmp_path / "run", tmp_path / "held-out", "--without", "deferral")
    for name in ("same", "shifted"):
        run("predict", tmp_path / "run", tmp_path / name, "--out", tmp_path / f"p-{name}")
    words = ("monitor", tmp_path / "run", tmp_path / "p-same", "--out", tmp_path / "monitor")
    assert "No alarm: 60 bags in 1 batch," in " ".join(run(*words).split())
    output = run(*words, tmp_path / "p-shifted", "--json")
    both = json.loads(output[output.index("{") : output.rindex("}") + 1])
    assert (both["alarm"], both["alarm_batch"], both["batches"]) == (True, "p-shifted", 2)
    assert "knn_mean" in both["alarms"] and both["skipped"] == ["p-same"]
    monkeypatch.setattr("miue.cli.monitor.ROWS_SHOWN", 1)
    again = " ".join(run(*words).split())
    assert "The last 1 of 2 rows." in again and "The last" not in (tmp_path / "monitor" / PAGE).read_text()
    assert "skipped 'p-same', which the monitor has already" in again
    assert "Check scanner, stain, focus, features and the mix of cases since then" in again
    assert "Uncertainties differ, too, so this may not hold here." in again or "They seem not to" in again
    assert (tmp_path / "monitor" / PAGE).exists()
    run("predict", tmp_path / "run", tmp_path / "store", "--part", "all", "--out", tmp_path / "p-all")
    twice = (tmp_path / "p-same", tmp_path / "p-all", tmp_path / "p-same")
    said = " ".join(run(*words[:2], *twice, "--out", tmp_path / "m").split())
    assert "Note: left out 32 bags that the model was trained on" in said
    assert "Note: skipped 'p-same', which the monitor has already" in said
    refused = run(
        "monitor", tmp_path / "run", tmp_path / "p-same", "--out", tmp_path / "m", "--score", "knn", code=2
    )
    assert "did you mean 'knn_mean'" in refused
    (tmp_path / "p-same" / "below").mkdir()
    for path, place in ((".", "p-shifted"), ("..", "p-same/below")):  # nightly jobs change into the new folder
        monkeypatch.chdir(tmp_path / place)
        run("monitor", tmp_path / "run", path, "--out", tmp_path / "from-within")
    assert batch_names(tmp_path / "from-within") == ["p-shifted", "p-same"]


def test_a_monitor_that_could_not_begin_leaves_nothing(tmp_path: Path) -> None:
    calibration, first = calibrated(a=np.arange(20.0)), batch("1", a=np.zeros(2))
    with pytest.raises(MiueError):
        add_batches(tmp_path / "monitor", calibration, [first], ("a",), chance=2.0)
    add_batches(tmp_path / "monitor", calibration, [first], ("a",), chance=0.01)
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ".monitor.json.01234567.tmp").write_text("{")  # by a kill while it was first written
    add_batches(tmp_path / "killed", calibration, [first], ("a",), chance=0.01)


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_fits_a_phone_and_white_paper_with_many_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # with the figures' library
    where = chromium()
    if where is None:
        pytest.skip("needs Chromium or Chrome")
    api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    names = ("relative_mahalanobis_mean", *(f"uncertainty_{place}" for place in range(7)))
    names += tuple(f"class_mix_{place}" for place in range(3))
    course = monitor(
        calibrated(**{name: np.arange(60.0) for name in names}),
        [batch("monday in the second hospital", None, **{name: np.arange(100.0, 120) for name in names})],
    )
    (tmp_path / "page.html").write_bytes(render_monitor(course))
    scrolls = "[...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)"
    with api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=where, args=["--no-sandbox"])
        try:
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)
                complaints: list[str] = []
                page.on("console", lambda message, said=complaints: said.append(message.text))
                page.on("pageerror", lambda message, said=complaints: said.append(str(message)))
                page.goto((tmp_path / "page.html").as_uri())
                page.wait_for_selector("html[data-ready=yes]")
                assert page.evaluate("document.documentElement.scrollWidth") <= 390
                assert page.locator("#figure .trace").count() == 2
                page.locator("summary").click()
                page.wait_for_selector("#scores .trace")
                assert page.locator("#scores .trace").count() == len(names)
                labels = page.locator("#figure .annotation-text").all_text_contents()
                assert labels == ["alarm of the uncertainties", "alarm of the class mix"]
                frame, first = (
                    page.locator(f"section:last-of-type {name}").first.bounding_box() for name in (".scroll", "td")
                )
                assert first["width"] < 0.6 * frame["width"]  # beside the name, numbers are in view
                page.set_viewport_size({"width": 660, "height": 900})
                page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
                page.emulate_media(media="print")
                assert not page.evaluate(scrolls)
                assert page.evaluate("document.documentElement.scrollWidth") <= 660
                assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
                assert page.evaluate("document.getElementById('figure').layout.font.color") == "#1d2430"
                page.emulate_media(media="screen")
                page.evaluate("window.dispatchEvent(new Event('afterprint'))")
                ink = page.evaluate("document.getElementById('figure').layout.font.color")
                assert (ink == "#1d2430") == (scheme == "light")
                assert complaints == []
                page.close()
        finally:
            browser.close()
