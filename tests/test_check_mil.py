"""Tests of the MIL assumption: bags as their formulas say, exact AUC, and verdicts that follow from it."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fast import slow_but
from hypothesis import example, given
from hypothesis import strategies as st
from rich.progress import Progress
from scipy.stats import norm
from sklearn.metrics import roc_auc_score
from torch import nn
from typer.testing import CliRunner

import miue
from miue.bags import BagDataset
from miue.cli import app
from miue.common.errors import ConfigError
from miue.evaluation import Auc
from miue.evaluation.intervals import auroc_interval
from miue.selection import MIL_TESTS, MILCheck
from miue.selection.mil import FEWEST_TEST_BAGS, SETTINGS, MILTestResult
from miue.training.job import Job

FAST: dict[str, Any] = {"options": {"encoder.width": 32}, "max_epochs": 12, "learning_rate": 3e-3}


def kinds(bags: BagDataset) -> list[dict[str, int]]:
    """How many instances of each kind a bag has, by the mean of their numbers."""
    counted = []
    for row in range(len(bags)):
        means = bags.batch([row]).instances.numpy().mean(1)
        near = {"poison": -10, "first": 2, "second": 3}
        counted.append({name: int((np.abs(means - center) < 0.2).sum()) for name, center in near.items()})
    return counted


@pytest.mark.parametrize("name", ["single-concept", "multi-concept"])
@pytest.mark.parametrize("is_shifted", [False, True])
def test_the_poison_is_in_negative_bags_and_moves_to_positive_ones(name: str, is_shifted: bool) -> None:
    bags = MIL_TESTS[name].bags(100, seed=5, is_shifted=is_shifted)
    for label, counts in zip(bags.labels.values, kinds(bags), strict=True):
        assert counts["poison"] == int((label == 1) == is_shifted)


def test_two_concepts_make_a_bag_positive_and_one_does_not() -> None:
    bags = MIL_TESTS["multi-concept"].bags(300, seed=5)
    positive = [c for c, label in zip(kinds(bags), bags.labels.values, strict=True) if label]
    negative = [c for c, label in zip(kinds(bags), bags.labels.values, strict=True) if not label]
    assert {c["first"] for c in positive} == {1, 2, 3}
    assert all(c["first"] == c["second"] for c in positive)
    assert all(c["first"] + c["second"] == 1 for c in negative)
    assert 50 < sum(c["first"] for c in negative) < 100


def test_shifted_negative_bags_repeat_one_concept_many_times() -> None:
    bags = MIL_TESTS["false-frequency"].bags(400, seed=5, is_shifted=True)
    negative = [c for c, label in zip(kinds(bags), bags.labels.values, strict=True) if not label]
    assert all(min(c["first"], c["second"]) == 0 for c in negative)
    assert {max(c["first"], c["second"]) for c in negative} == set(range(35, 45))
    trained = kinds(MIL_TESTS["false-frequency"].bags(400, seed=5))
    assert {c["first"] + c["second"] for c in trained} == {1, 2}


@pytest.mark.parametrize("name", MIL_TESTS)
def test_bags_follow_from_their_seed_and_their_order_says_nothing(name: str) -> None:
    first, again, other = (MIL_TESTS[name].bags(60, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.instances, again.instances)
    assert len(first.instances) != len(other.instances)
    bags = MIL_TESTS["single-concept"].bags(200, seed=1)
    means = [bags.batch([row]).instances.numpy().mean(1) for row in range(1, 200, 2)]
    places = {int(np.argmin(one)) for one in means if len(one) > 5}
    assert len(places) > 3


def test_the_hidden_concept_is_wider_or_shifted() -> None:
    bags = MIL_TESTS["single-concept"].bags(200, seed=3, is_shifted=True)
    norms = [(bags.batch([row]).instances.numpy() ** 2).mean(1) for row in range(len(bags))]
    poisoned = [
        np.sort(norm)[:-1].max(initial=0) if label else norm.max()
        for norm, label in zip(norms, bags.labels.values, strict=True)
    ]
    assert roc_auc_score(bags.labels.values, poisoned) > 0.8  # the concept is there to be learned
    assert roc_auc_score(bags.labels.values, [-norm.max() for norm in norms]) < 0.05  # and the easy rule is wrong


@pytest.mark.long
@given(scores=st.lists(st.integers(0, 5), min_size=6, max_size=30))
@example(scores=[0] * 20)
def test_the_auc_is_that_of_scikit_learn_with_ties(scores: list[int]) -> None:
    labels = np.arange(len(scores)) % 2
    auc = Auc.of(np.array(scores, float), labels)
    assert auc.value == pytest.approx(roc_auc_score(labels, scores))
    assert 0 <= auc.low <= auc.value <= auc.high <= 1
    assert auc.low < auc.high  # also where a model says the same of every bag


def test_without_an_error_the_interval_has_a_width_also_with_classes_of_different_size() -> None:
    auc = Auc.of(np.arange(7.0), np.array([0, 0, 0, 0, 1, 1, 1]))
    assert auc.value == auc.high == 1 and 0.3 < auc.low < 0.9


@pytest.mark.parametrize("spread", [1, 8])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_interval_is_the_score_interval_by_the_variance_of_delong(spread: int, sign: int) -> None:
    """Spread negative bags give a variance above that of Hanley & McNeil, which the interval is at least of."""
    random = np.random.default_rng(0)
    labels = np.arange(61) % 2
    scores = sign * np.where(labels == 1, random.normal(0.5, 1, 61), spread * random.normal(0, 1, 61)).round(1)
    wins = (scores[labels == 1][:, None] > scores[labels == 0]) + 0.5 * (
        scores[labels == 1][:, None] == scores[labels == 0]
    )
    variance = wins.mean(1).var(ddof=1) / 30 + wins.mean(0).var(ddof=1) / 31
    pair = ((labels == 1).astype(float), (labels == 0).astype(float))
    auc = Auc.of(scores, labels)
    assert (auc.low, auc.high) == pytest.approx(auroc_interval(wins.mean(), variance, [pair], owners=61))
    least = auroc_interval(wins.mean(), variance / 1e6, [pair], owners=61)
    assert (least[0] > auc.low + 5e-3) == (spread > 1)  # so that the variance counts


@pytest.mark.long
@pytest.mark.parametrize("bags", [FEWEST_TEST_BAGS, 100])
def test_scores_by_chance_rarely_pass_or_fail_a_test_of_so_many_bags(bags: int) -> None:
    random, labels = np.random.default_rng(0), np.arange(bags) % 2
    intervals = [Auc.of(random.normal(size=bags), labels) for _ in range(2000)]
    assert np.mean([one.low > 0.5 for one in intervals]) < 0.045
    assert np.mean([one.high < 0.5 for one in intervals]) < 0.045


def test_an_auc_of_one_has_an_interval_that_is_wider_with_fewer_bags() -> None:
    few, many = (Auc.of(np.arange(float(count)), np.repeat([0, 1], count // 2)) for count in (20, 1000))
    assert (few.value, few.high, many.value, many.high) == (1, 1, 1, 1)
    assert 0.5 < few.low < 0.9 < 0.99 < many.low < 1
    turned = Auc.of(-np.arange(20.0), np.repeat([0, 1], 10))
    assert (turned.value, turned.low) == (0, 0)
    assert turned.high == pytest.approx(1 - few.low)


@pytest.mark.long
@pytest.mark.parametrize(("bags", "true"), [(200, 0.76), (20, 0.9), (40, 0.97), (100, 0.99)])
@pytest.mark.parametrize("sign", slow_but([1, -1], [1]))
def test_nineteen_of_twenty_intervals_contain_the_true_auc(bags: int, true: float, sign: int) -> None:
    random, labels = np.random.default_rng(0), np.arange(bags) % 2
    distance = 2**0.5 * norm.ppf(true)
    intervals = [Auc.of(sign * random.normal(distance * labels, 1), labels) for _ in range(400)]
    wanted = true if sign == 1 else 1 - true
    assert 0.93 < np.mean([one.low <= wanted <= one.high for one in intervals]) < 0.998


def result(low: float, high: float) -> MILTestResult:
    return MILTestResult("single-concept", "moved", Auc(1.0, 1.0, 1.0), Auc((low + high) / 2, low, high))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.51, 0.6, "passes"),
        (0.4, 0.49, "fails"),
        (0.5, 0.6, "undecided"),
        (0.2, 0.6, "undecided"),  # of which the middle is below 0.5
        (0.4, 0.5, "undecided"),
    ],
)
def test_a_verdict_needs_an_interval_on_one_side_of_chance(low: float, high: float, verdict: str) -> None:
    assert result(low, high).verdict == verdict


def test_several_seeds_have_the_widest_interval() -> None:
    together = Auc.over_seeds([Auc(0.5, 0.45, 0.55), Auc(0.75, 0.4, 0.85)])
    assert together == Auc(0.625, 0.4, 0.85)


def test_the_sentence_says_what_passes_and_what_does_not() -> None:
    results = (
        result(0.6, 0.7),
        MILTestResult("b", "x", Auc(0.9, 0.8, 1.0), Auc(0.1, 0.0, 0.2)),
        MILTestResult("c", "x", *[Auc(0.55, 0.45, 0.65)] * 2),
    )
    check = MILCheck("max", "mirel", 300, (1,), results)
    assert not check.passes
    assert "passes single-concept, fails b and is not clearly better or worse than chance in c." in check.sentence
    assert check.sentence.endswith(" are not clearly ranked better than by chance in c: train on more.")
    assert "ranked" not in replace(check, results=results[:2]).sentence
    assert "0.100 [0.000, 0.200]" in repr(check)
    assert "with seed 1." in repr(check) and "a 95 % interval" in repr(check)
    assert "with seeds 1, 2." in repr(replace(check, seeds=(1, 2)))


def test_bags_to_train_on_to_stop_by_and_to_test_on_are_draws_of_their_own_and_the_last_alone_are_shifted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[tuple[dict[str, Any], list[BagDataset]]] = []

    def train(job: Job, _run: Any) -> Any:
        assert job.held_out is not None
        used.append((dict(job.recipe.settings), [job.bags, job.held_out]))
        return SimpleNamespace(predict=predict)

    def predict(bags: BagDataset, *, progress: bool) -> Any:
        """Probabilities that round to 1, that rank positive bags higher, shifted ones of the first test lower."""
        used[-1][1].append(bags)
        sign = -1 if len(used[-1][1]) == 4 and len(used) <= 2 else 1
        negative = 10.0 ** -(25 + 5 * sign * bags.labels.values)
        return SimpleNamespace(bags=SimpleNamespace(probabilities=np.stack([negative, 1 - negative], 1)))

    monkeypatch.setattr("miue.selection.mil.train_job", train)
    chosen: dict[str, Any] = {"tests": ["multi-concept", "single-concept"], "settings": {"max_epochs": 7}}
    chosen |= {"train_bags": 24, "test_bags": 30, "seeds": [4, 5], "progress": False}
    found = miue.check_mil("mean", "softmax", **chosen)
    assert [(one.as_trained.value, one.shifted.value) for one in found.results] == [(1.0, 0.0), (1.0, 1.0)]
    settings = [SETTINGS | {"max_epochs": 7, "seed": seed} for seed in (4, 5, 4, 5)]
    assert [given for given, _ in used] == settings
    for _, sets in used:
        assert [len(bags) for bags in sets] == [24, 6, 30, 30]
        for number, bags in enumerate(sets):
            poisoned = [bag["poison"] > 0 for bag in kinds(bags)]
            assert poisoned == (bags.labels.values == (1 if number == 3 else 0)).tolist()
    firsts = [bags.batch([0]).instances.numpy().tobytes() for _, sets in used for bags in sets]
    assert len({*firsts}) == len(firsts) == 16


@pytest.mark.long
def test_max_pooling_fails_and_its_one_sided_form_passes() -> None:
    free, one_sided = (
        miue.check_mil(
            name, "softmax", tests=["single-concept"], train_bags=160, test_bags=300, progress=False, settings=FAST
        )
        for name in ("max", "one-sided-max")
    )
    assert free.results[0].as_trained.value > 0.95 > 0.5 > free.results[0].shifted.high
    assert "fails single-concept" in free.sentence
    assert one_sided.passes


@pytest.mark.long
@pytest.mark.parametrize("method", ["softmax", "deep-ensemble"])
def test_its_progress_counts_epochs(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    completed = []
    update = Progress.update

    def recorded(self: Progress, task: Any, **values: Any) -> None:
        if self.tasks[task].description == "checking":
            completed.append(values["completed"])
        update(self, task, **values)

    monkeypatch.setattr(Progress, "update", recorded)
    options = {"encoder.width": 8} | ({"method.size": 2} if method == "deep-ensemble" else {})
    miue.check_mil(
        "mean",
        method,
        tests=["single-concept", "multi-concept"],
        train_bags=16,
        test_bags=20,
        settings={"max_epochs": 4, "options": options},
    )
    members = options.get("method.size", 1)
    epochs = [done / members / 4 for done in range(4 * members + 1)]
    assert sorted({*completed}) == sorted({*epochs, *(1 + share for share in epochs)})
    assert completed == sorted(completed)


@pytest.mark.slow
def test_trainings_side_by_side_end_as_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    small: dict[str, Any] = {"tests": ["multi-concept", "single-concept"], "train_bags": 24, "test_bags": 30}
    small |= {"seeds": [1, 2], "progress": False}
    quick = {"options": {"encoder.width": 8}, "max_epochs": 3}
    alone, together = (
        miue.check_mil("mean", "softmax", settings={**quick, "jobs": jobs}, **small) for jobs in (1, 2)
    )
    assert alone == together
    assert len({(one.as_trained, one.shifted) for one in alone.results}) == 2
    of_seeds = [miue.check_mil("mean", "softmax", settings=quick, **small | {"seeds": [seed]}) for seed in (1, 2)]
    for number, result in enumerate(alone.results):
        assert result.shifted == Auc.over_seeds([one.results[number].shifted for one in of_seeds])


def test_parts_that_other_processes_cannot_build_are_refused_for_several_jobs() -> None:
    with pytest.raises(ConfigError, match="executor .processes.*another process can import"):
        miue.check_mil(nn.Linear(16, 2), "softmax", settings={"jobs": 2}, progress=False)
    with pytest.raises(ConfigError, match="jobs: expected greater than or equal to 1"):
        miue.check_mil("mean", "softmax", settings={"jobs": 0})


@pytest.mark.long
def test_the_command_prints_json_of_every_test() -> None:
    words = [
        "--train-bags",
        "16",
        "--test-bags",
        "20",
        "--set",
        "max_epochs=1",
        "--set",
        "encoder.width=8",
        "--seeds",
        "1,2",
    ]
    done = CliRunner().invoke(app, ["check", "mil", "--method", "softmax", *words, "--json", "--quiet"])
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert [one["test"] for one in content["results"]] == list(MIL_TESTS)
    assert content["seeds"] == [1, 2] and content["train_bags"] == 16
    assert all(one["verdict"] in ("passes", "fails", "undecided") for one in content["results"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--test", "single"], "test of the MIL assumption.*'single-concept'"),
        (["--network", "maxx"], "network.*'max'"),
        (["--seeds", "a"], "--seeds.*valid integer.*'a'"),
        (["--set", "epochs=3"], "max_epochs"),
    ],
)
def test_a_mistake_is_answered_before_anything_is_trained(words: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["check", "mil", "--quiet", *words])
    assert done.exit_code != 0
    with pytest.raises(Exception, match="(?s)" + message):
        raise done.exception or AssertionError(done.output)


@pytest.mark.parametrize("options", [{"train_bags": 7}, {"test_bags": 19}, {"seeds": ()}, {"tests": ()}])
def test_too_few_bags_or_seeds_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected at least"):
        miue.check_mil("max", "softmax", **options)


@pytest.mark.parametrize("is_shifted", [False, True])
def test_bags_of_two_concepts_are_made_as_in_torchmil(is_shifted: bool) -> None:
    """torchmil implements the same algorithms of Raff and Holt."""
    datasets = pytest.importorskip("torchmil.datasets", reason="needs the extra 'torchmil'")
    theirs = datasets.MCStandardMILDataset(16, 400, train=not is_shifted)
    bags = [theirs[row] for row in range(400)]
    other = BagDataset.from_arrays([one["X"].numpy() for one in bags], [int(one["Y"]) for one in bags])
    ours = MIL_TESTS["multi-concept"].bags(400, seed=1, is_shifted=is_shifted)

    def composition(bags: BagDataset) -> set[tuple[int, ...]]:
        rows = zip(bags.labels.values, bags.sizes, kinds(bags), strict=True)
        return {(label, *c.values(), 0 < size - sum(c.values()) < 10) for label, size, c in rows}

    assert composition(ours) == composition(other)
    assert np.asarray(ours.instances).std() == pytest.approx(np.asarray(other.instances).std(), rel=0.05)
