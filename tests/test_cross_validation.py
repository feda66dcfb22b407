"""Folds times seeds: what is run, what is kept, and the interval of the mean."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from commands import run
from made_bags import separable_bags
from rich.progress import Progress
from scipy import stats
from typer.testing import CliRunner

import miue
from miue.bags import Labels
from miue.cli.app import app
from miue.common.errors import ConfigError, DataError, StorageError
from miue.common.files import write_json
from miue.common.records import is_sealed, sealed
from miue.common.tables import read_rows, read_text_columns
from miue.io import Splits, make_folds
from miue.model.recipe import Recipe
from miue.networks.encoders import MLP
from miue.selection import Summaries, compare, cross_validate
from miue.selection.comparison import paired_difference
from miue.selection.cross_validation import OpenRuns
from miue.selection.summaries import FoldShares, Value, summarize
from miue.training.train import train_job

QUICK = Recipe(options={"encoder.width": 4}, settings={"max_epochs": 1}, distances=())


def values(*runs: tuple[int, int, float | None]) -> list[Value]:
    return [Value(fold, seed, "bags", "accuracy", value) for fold, seed, value in runs]


@pytest.mark.long
def test_every_fold_and_seed_is_run_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bags = separable_bags(24)
    splits = make_folds(bags, 3)
    out = tmp_path / "cv"
    found = cross_validate(bags, splits, [1, 2], out, QUICK, progress=False)
    accuracy = next(one for one in found if (one.level, one.metric) == ("bags", "accuracy"))
    assert accuracy.runs == 6
    per_run = []
    for fold in range(3):
        tested = splits.assign(bags, fold).split("test")
        for seed in (1, 2):
            folder = out / f"fold_{fold}" / f"seed_{seed}"
            predictions = miue.read_predictions(folder / "predictions")
            assert list(predictions.bags.bag_ids) == list(tested.ids)
            measured = miue.evaluate(predictions).bags.metrics["accuracy"].value
            assert measured is not None
            per_run.append(measured)
            assert miue.Model.load(folder / "run").provenance().seed == seed
    assert accuracy.mean == pytest.approx(np.mean(per_run))
    assert accuracy.std == pytest.approx(np.std(per_run, ddof=1))
    with (out / "runs.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["level"], row["metric"]) == ("bags", "accuracy")]
    assert {(row["fold"], row["seed"]) for row in rows} == {(str(k), str(s)) for k in range(3) for s in (1, 2)}

    monkeypatch.setattr("miue.selection.cross_validation.run_fold", lambda **_: pytest.fail("ran again"))
    assert cross_validate(bags, splits, [1, 2], out, QUICK, progress=False) == found


@pytest.mark.long
def test_its_bar_counts_the_epochs_of_the_run_that_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    completed = []
    update = Progress.update

    def recorded(self: Progress, task: Any, **values: Any) -> None:
        if self.tasks[task].description == "cross-validating":
            completed.append(values["completed"])
        update(self, task, **values)

    monkeypatch.setattr(Progress, "update", recorded)
    bags = separable_bags(24)
    recipe = replace(QUICK, settings={"max_epochs": 2})
    cross_validate(bags, make_folds(bags, 2), [1], tmp_path, recipe)
    assert completed == [0, 0.5, 1, 1, 1, 1.5, 2, 2]  # the start, both epochs, and the end of each run


@pytest.mark.long
def test_a_killed_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bags = separable_bags(24)
    splits = make_folds(bags, 2)
    wanted = cross_validate(bags, splits, [1], tmp_path / "whole", QUICK, progress=False)
    with monkeypatch.context() as patch:
        stop = Mock(side_effect=KeyboardInterrupt)
        patch.setattr("miue.selection.cross_validation.evaluate", stop)
        with pytest.raises(KeyboardInterrupt):
            cross_validate(bags, splits, [1], tmp_path / "cv", QUICK, progress=False)
    assert cross_validate(bags, splits, [1], tmp_path / "cv", QUICK, progress=False) == wanted


@pytest.mark.long
def test_one_whose_runs_are_removed_meanwhile_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended well without tables, and the same call was refused after."""
    bags, out, trained = separable_bags(), tmp_path / "cv", []

    def removing(*arguments: Any, **options: Any) -> miue.Model:
        trained.append(arguments)
        if len(trained) == 2:
            shutil.rmtree(out)
        return train_job(*arguments, **options)

    monkeypatch.setattr("miue.selection.cross_validation.train_job", removing)
    call = (bags, make_folds(bags, 3), [1], out, Recipe(settings={"max_epochs": 1}))
    with pytest.raises(StorageError, match="fold_0.*got none: 1 of 3 outputs removed meanwhile"):
        cross_validate(*call, progress=False)
    assert len(cross_validate(*call, progress=False)) > 0
    assert len(trained) == 4


def test_another_cross_validation_is_not_mixed_in(tmp_path: Path) -> None:
    bags = separable_bags(24)
    cross_validate(bags, make_folds(bags, 2), [1], tmp_path, QUICK, progress=False)
    with pytest.raises(ConfigError, match="expected the same splits as when it was started"):
        cross_validate(bags, make_folds(bags, 2, seed=1), [1], tmp_path, QUICK, progress=False)
    with pytest.raises(ConfigError, match=r"started, .*, got .* \(also different: .*max_epochs"):
        cross_validate(bags, make_folds(bags, 2), [1], tmp_path, Recipe(), progress=False)
    settings = {"max_epochs": 1, "learning_rate": 0.1}
    with pytest.raises(ConfigError, match="the same learning_rate as when it was started, nothing, got 0.1;"):
        other = replace(QUICK, settings=settings)
        cross_validate(bags, make_folds(bags, 2), [1], tmp_path, other, progress=False)
    encoded_again = replace(bags, instances=2 * np.asarray(bags.instances))
    with pytest.raises(ConfigError, match="expected the same bags as when it was started"):
        cross_validate(encoded_again, make_folds(bags, 2), [1], tmp_path, QUICK, progress=False)


@pytest.mark.slow
def test_processes_give_the_same_as_one(tmp_path: Path) -> None:
    bags = separable_bags(24)
    splits = make_folds(bags, 2)
    alone = cross_validate(bags, splits, [1], tmp_path / "one", QUICK, progress=False)
    assert (
        cross_validate(bags, splits, [1], tmp_path / "two", QUICK, settings={"jobs": 2}, progress=False) == alone
    )


def test_the_interval_is_that_of_the_corrected_t_test() -> None:
    given = values((0, 1, 0.8), (0, 2, 0.9), (1, 1, 0.7), (1, 2, 0.6), (2, 1, 0.9), (2, 2, 0.8))
    (found,) = summarize(given, FoldShares(0.5, 0.5))
    means = np.array([0.85, 0.65, 0.85])
    half = stats.t.ppf(0.975, 2) * np.sqrt((1 / 3 + 0.5) * means.var(ddof=1))
    assert found.mean == pytest.approx(means.mean())
    assert found.low == pytest.approx(max(0, means.mean() - half)) and found.high == pytest.approx(1.0)
    (narrow,) = summarize(
        [Value(*v) for v in [(0, 1, "bags", "nll", 2.0), (1, 1, "bags", "nll", 3.0)]], FoldShares(0.25, 0.25)
    )
    half = stats.t.ppf(0.975, 1) * np.sqrt((1 / 2 + 0.25) * 0.5)
    assert narrow.high == pytest.approx(2.5 + half)
    assert "In %; Brier from 0 to 2, NLL in nats." in repr(Summaries([found, narrow]))


@pytest.mark.long
def test_the_corrected_interval_covers_where_the_plain_one_does_not() -> None:
    """Fold means that share their training bags: correlated by test/(test + train), as the correction assumes."""
    random = np.random.default_rng(0)
    folds, rho = 10, 0.1
    share = rho / (1 - rho)
    covered = plain = 0
    for _ in range(2000):
        means = 0.5 + 0.01 * (np.sqrt(rho) * random.normal() + np.sqrt(1 - rho) * random.normal(size=folds))
        (found,) = summarize(values(*((k, 1, float(v)) for k, v in enumerate(means))), FoldShares(share, share))
        assert found.low is not None and found.high is not None
        covered += found.low <= 0.5 <= found.high
        plain += abs(means.mean() - 0.5) <= stats.t.ppf(0.975, folds - 1) * means.std(ddof=1) / np.sqrt(folds)
    assert covered / 2000 == pytest.approx(0.95, abs=0.02)
    assert plain / 2000 < 0.88


def test_of_one_fold_the_interval_is_over_seeds_and_of_one_run_there_is_none() -> None:
    (seeds,) = summarize(values((0, 1, 0.8), (0, 2, 0.9)), FoldShares(0.5, 0.5))
    assert seeds.low is not None and seeds.std == pytest.approx(np.std([0.8, 0.9], ddof=1))
    (single,) = summarize(values((0, 1, 0.8)), FoldShares(0.5, 0.5))
    assert (single.std, single.low, single.high) == (None, None, None)


def test_accuracies_of_few_bags_that_are_the_same_on_all_folds_have_no_interval() -> None:
    random, covered, found = np.random.default_rng(0), 0, 0
    for _ in range(1000):
        accuracies = (random.binomial(10, 0.8, size=2) / 10).tolist()
        (summary,) = summarize(values((0, 1, accuracies[0]), (1, 1, accuracies[1])), FoldShares(1.0, 1.0))
        if summary.low is None or summary.high is None:
            assert accuracies[0] == accuracies[1]
            continue
        found += 1
        covered += summary.low <= 0.8 <= summary.high
    assert found < 900 and covered / found > 0.95


def test_an_undefined_value_is_left_out_and_counted() -> None:
    (found,) = summarize(values((0, 1, 0.8), (1, 1, None), (2, 1, 0.6)), FoldShares(0.5, 0.5))
    assert found.runs == 2 and found.mean == pytest.approx(0.7)
    assert summarize(values((0, 1, None)), FoldShares(0.5, 0.5)) == Summaries()


def test_summaries_are_those_of_numpy_at_every_level() -> None:
    random, shares = np.random.default_rng(0), FoldShares(0.5, 2.0)
    keys = [("bags", "accuracy"), ("patients", "accuracy"), ("bags", "ue"), ("bags", "ood_x_auroc")]
    given = [
        Value(fold, seed, level, metric, 0.4 + 0.2 * random.random())
        for level, metric in keys
        for fold in range(5)
        for seed in (1, 2, 3)
        if (fold, seed) != (0, 3)
    ] + [Value(0, 3, level, metric, None) for level, metric in keys]  # undefined in one run
    found = summarize(given, shares)
    assert [(one.level, one.metric) for one in found] == keys
    for one in found:
        rows = [v for v in given if (v.level, v.metric) == (one.level, one.metric)]
        mine = [(v.fold, v.value) for v in rows if v.value is not None]
        means = np.array([np.mean([value for fold, value in mine if fold == k]) for k in range(5)])
        share = 0.5 if one.metric == "accuracy" else 2.0
        half = stats.t.ppf(0.975, 4) * np.sqrt((1 / 5 + share) * means.var(ddof=1))
        assert one.runs == 14 and one.mean == pytest.approx(means.mean())
        assert one.std == pytest.approx(np.std([value for _, value in mine], ddof=1))
        assert (one.low, one.high) == pytest.approx((means.mean() - half, means.mean() + half))
    (seeds,) = summarize(values((0, 1, 0.5), (0, 2, 0.51), (0, 3, 0.53)), shares)  # of one fold, and not widened
    half = stats.t.ppf(0.975, 2) * np.std([0.5, 0.51, 0.53], ddof=1) / np.sqrt(3)
    assert (seeds.low, seeds.high) == pytest.approx((seeds.mean - half, seeds.mean + half))


def test_values_that_differ_by_rounding_alone_have_no_interval() -> None:
    (same,) = summarize(values((0, 1, 0.1 + 0.2), (1, 1, 0.3)), FoldShares(0.5, 0.5))
    assert same.low is same.high is None
    (close,) = summarize(values((0, 1, 0.3), (1, 1, 0.305)), FoldShares(0.5, 0.5))
    assert close.low is not None


def test_summaries_print_shares_in_percent_and_the_first_eight_metrics() -> None:
    runs = [Value(fold, 1, "bags", name, 0.25 + 0.1 * fold) for name in ("accuracy", "nll") for fold in (0, 1)]
    found = summarize(runs, FoldShares(0.0, 0.0))
    half = stats.t.ppf(0.975, 1) * 0.05
    rows = found.as_table().rows
    assert rows[0] == ("accuracy", "bags", "30.00 ± 7.07", f"0.00 to {100 * (0.3 + half):.2f}", "2")
    assert rows[1] == ("nll", "bags", "0.3000 ± 0.0707", f"0.0000 to {0.3 + half:.4f}", "2")
    for count, notes in ((8, 1), (10, 2)):
        (table,) = Summaries([found[0]] * count).tables()
        assert len(table.rows) == 8 and len(table.notes) == notes
    assert table.notes[1] == "2 more metrics: to_frame()"


@pytest.mark.long
def test_the_command(tmp_path: Path) -> None:
    miue.write_store(tmp_path / "store", separable_bags(24))
    command = [
        "cross-validate",
        str(tmp_path / "store"),
        "--folds",
        "2",
        "--seeds",
        "3,4",
        "--out",
        str(tmp_path / "cv"),
    ]
    options = ["--set", "max_epochs=1", "--set", "encoder.width=4", "--distance", "none", "--quiet"]
    result = CliRunner().invoke(app, [*command, *options])
    assert result.exit_code == 0, result.output
    assert "2 folds × 2 seeds" in result.output and "accuracy" in result.output
    written = json.loads((tmp_path / "cv" / "fold_1" / "seed_4" / "metrics.json").read_text())
    assert written["seed"] == 4 and is_sealed(written)
    evaluated = CliRunner().invoke(app, ["evaluate", str(tmp_path / "cv")])
    first = tmp_path / "cv" / "fold_0" / "seed_3" / "predictions"
    assert f"got a cross-validation; name those in it: {first}, " in str(evaluated.exception)
    none = [*command[:-1], str(tmp_path / "none"), "--splits", "none"]
    assert CliRunner().invoke(app, [*none, *options]).exit_code == 0
    assert (tmp_path / "none" / "splits.csv").read_text() == (tmp_path / "cv" / "splits.csv").read_text()
    again = CliRunner().invoke(app, [*command[:4], "--seeds", "3,3", "--out", str(tmp_path / "x"), *options])
    assert isinstance(again.exception, ConfigError) and "different numbers" in str(again.exception)


@pytest.mark.long
def test_folds_that_list_a_bag_that_cannot_be_used_are_run_without_it(tmp_path: Path) -> None:
    folder, labels, folds = tmp_path / "bags", tmp_path / "labels.csv", tmp_path / "folds.csv"
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(12):
        np.save(folder / f"b{number}.npy", random.normal(size=(3, 5)))
    np.save(folder / "b12.npy", np.zeros((0, 5)))
    labels.write_text("bag_id,label\n" + "".join(f"b{number},{number % 2}\n" for number in range(13)))
    rows = [f"b{number},{('train,test', 'test,train')[number // 2 % 2]}\n" for number in range(13)]
    folds.write_text("bag_id,fold_0,fold_1\n" + "".join(rows))
    command = ["cross-validate", str(folder), "--labels", str(labels), "--splits", str(folds), "--skip-bad"]
    options = ["--set", "max_epochs=1", "--set", "encoder.width=4", "--distance", "none", "--quiet"]
    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "cv"), *options])
    assert result.exit_code == 0, result.output
    assert "b12" not in (tmp_path / "cv" / "splits.csv").read_text()


@pytest.mark.long
def test_runs_of_seeds_that_are_not_named_again_are_said_not_to_be_counted(tmp_path: Path) -> None:
    miue.write_store(tmp_path / "store", separable_bags(24))
    options = ["--set", "max_epochs=1", "--set", "encoder.width=4", "--distance", "none", "--quiet"]
    cv = tmp_path / "cv"
    command = ["cross-validate", tmp_path / "store", "--folds", "2", "--out", cv, *options, "--seeds"]
    assert "Note" not in run(*command, "3,4")
    said = run(*command, "5", "--shard", "1/2")
    assert said == f"Shard 1/2 is done. 1 of 2 runs are in {cv}; the last shard to end writes the tables.\n"
    said = run(*command, "5")
    assert f"Note: runs of 2 other seeds in {cv} are not counted; with them: --seeds 3,4,5\n" in said
    assert set(read_text_columns(cv / "runs.csv")["seed"]) == {"5"}
    assert "2 folds × 3 seeds" in run(*command, "3,4,5")
    assert set(read_text_columns(cv / "runs.csv")["seed"]) == {"3", "4", "5"}


@pytest.mark.long
def test_folds_without_validation_bags_train_on_all_the_others(tmp_path: Path) -> None:
    miue.write_store(tmp_path / "store", separable_bags(40))
    words = ("cross-validate", tmp_path / "store", "--folds", "4", "--method", "softmax", "--quiet")
    every = (*words, "--set", "max_epochs=2", "--distance", "none", "--set", "validation_fraction=0")
    result = CliRunner().invoke(app, [*map(str, every), "--out", str(tmp_path / "cv")])
    assert result.exit_code == 0, result.output
    with (tmp_path / "cv" / "splits.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for fold in range(4):
        parts = [row[f"fold_{fold}"] for row in rows]
        assert (parts.count("train"), parts.count("test")) == (30, 10)


def test_the_difference_on_folds_is_the_corrected_paired_t_test() -> None:
    ours, theirs = np.array([0.9, 0.8, 0.85, 0.7]), np.array([0.8, 0.82, 0.8, 0.71])
    found = paired_difference(ours, theirs, test_share=0.25)
    plain = stats.ttest_rel(ours, theirs)
    corrected = plain.statistic * np.sqrt((1 / 4) / (1 / 4 + 0.25))
    assert found.mean == pytest.approx((ours - theirs).mean())
    assert found.p == pytest.approx(2 * stats.t.sf(abs(corrected), 3))
    assert paired_difference(ours, theirs, test_share=0.0).p == pytest.approx(plain.pvalue)
    assert paired_difference(ours, ours, 0.25) == type(found)(0.0, 1.0)
    assert paired_difference(ours[:1], theirs[:1], 0.25).p is None


def test_bags_that_every_fold_tests_do_not_widen_what_is_not_computed_on_them() -> None:
    in_turn = [["test", "train", "validation"], ["train", "test", "train"], ["validation", "train", "test"]]
    alone = FoldShares.of([True] * 3, in_turn)
    for labeled in (True, False):
        found = FoldShares.of([True] * 3 + [labeled] * 5, [fold + ["test"] * 5 for fold in in_turn])
        assert found.judged == alone.judged == pytest.approx((1 + 1 / 2 + 1) / 3)
        assert found.tested == pytest.approx((6 + 6 / 2 + 6) / 3)
        assert found.of_metric("accuracy") == found.judged
        assert found.of_metric("ood_x_auroc") == found.of_metric("ue") == found.tested
    same = FoldShares.of([True] * 4, [["test", "train", "train", "validation"]] * 2)
    assert same == FoldShares(0.5, 0.5)
    of_labeled = FoldShares.of([True, False, True, True], [["test", "test", "train", "train"]] * 2)
    assert of_labeled == FoldShares(0.5, 1.0)
    mixed = FoldShares.of(  # without a label, or tested and never trained on
        [True, True, False, True], [["test", "train", "test", "test"], ["train", "test", "train", ""]]
    )
    assert mixed == FoldShares(judged=(1 + 1 / 2) / 2, tested=(3 + 1 / 2) / 2)


def write_cross_validation(
    folder: Path,
    runs: Sequence[tuple[int, int, str, str, float | None]],
    *,
    test: tuple[int, ...] = (0, 1, 2),
    unused: str = "train",
    label: str = "x",
    method: str = "softmax",
) -> Path:
    """A finished cross-validation of three folds, each with one of six labeled bags to test."""
    folder.mkdir()
    (folder / "cross_validation.json").write_text(json.dumps({"recipe": {"method": method}}))
    lines = ["far,,test,test,test", "unlabeled,,test,train,train"]
    for row in range(6):
        parts = ["test" if row == one else "train" if row in test else unused for one in test]
        lines.append(f"b{row},{label},{','.join(parts)}")
    (folder / "splits.csv").write_text("\n".join(["bag_id,label,fold_0,fold_1,fold_2", *lines]))
    rows = [",".join("" if cell is None else str(cell) for cell in run) for run in runs]
    (folder / "runs.csv").write_text("\n".join(["fold,seed,level,metric,value", *rows]))
    return folder


@pytest.mark.parametrize("unused", ["train", ""])
def test_differences_are_between_means_over_seeds_on_the_folds_that_both_have(unused: str, tmp_path: Path) -> None:
    random, folders = np.random.default_rng(0), []
    names = ("accuracy", "auroc", "ood_x_auroc", "mcc")
    of_name: dict[str, np.ndarray] = {}
    for name in ("a", "b"):
        of_name[name] = random.random((3, 2, 4))  # folds, seeds, metrics
        of_name[name][0, 0, 0] = 0.0
        undefined = {("b", 1, "auroc"), ("a", 0, "mcc"), ("b", 1, "mcc"), ("b", 2, "mcc")}  # mcc: in one of both
        runs = [
            (fold, seed, "bags", metric, None if (name, fold, metric) in undefined else value)
            for fold in range(3)
            for seed in (1, 2)
            for metric, value in zip(names, of_name[name][fold, seed - 1], strict=True)
        ]
        runs += [(fold, 1, "patients", "nll", 0.5) for fold in range(3) if name == "b"]
        folders.append(write_cross_validation(tmp_path / name, runs, unused=unused if name == "b" else "train"))
    first, second = compare(folders)
    assert first.differences == {} and second.same_tests
    assert {metric for _, metric in second.differences} == {"accuracy", "auroc", "ood_x_auroc"}
    trained = (2, 3, 3) if unused == "" else (5, 6, 6)  # the larger share counts
    judged, tested = (float(np.mean(np.divide(count, trained))) for count in ((1, 1, 1), (3, 2, 2)))
    for metric, kept, share in ((0, [0, 1, 2], judged), (1, [0, 2], judged), (2, [0, 1, 2], tested)):
        pairs = [of_name[name][kept, :, metric].mean(1) for name in ("b", "a")]
        wanted, found = paired_difference(pairs[0], pairs[1], share), second.differences["bags", names[metric]]
        assert found.mean == pytest.approx(wanted.mean) and found.p == pytest.approx(wanted.p)
    numbers, difference = second.numbers()["bags", "accuracy"], second.differences["bags", "accuracy"]
    assert (numbers["difference"], numbers["p"]) == (difference.mean, difference.p)
    assert first.numbers()["bags", "accuracy"]["p"] is None


def test_a_comparison_shows_each_metric_and_names_what_has_no_difference(tmp_path: Path) -> None:
    metrics = {"bags": ("accuracy", "nll", "mine"), "patients": ("nll",), "instances": ("brier",)}
    folders = []
    for name, offset, step in (("a", 0.0, 2e-4), ("b", 0.01, 1e-4), ("c", 0.2, 0.0), ("d", 0.0, 0.0)):
        runs = [
            (fold, 1, level, metric, None if name == "d" else 0.3 + offset + step * fold**2)
            for level, of_level in metrics.items()
            for metric in of_level
            for fold in range(3)
        ]
        test = (3, 4, 5) if name == "c" else (0, 1, 2)
        folders.append(write_cross_validation(tmp_path / name, runs, test=test))
    table = compare(folders).as_table()
    assert table.heading == ("", "runs", "accuracy", "nll", "mine")
    assert table.rows[1][2:4] == ("31.0 ± 0.0 (+1.0, p < 0.005)", "0.310 ± 0.000 (+0.010, p < 0.005)")
    assert table.rows[2] == ("c", "3", "50.0 ± 0.0", "0.500 ± 0.000", "0.500 ± 0.000")
    assert table.rows[3] == ("d", "0", "—", "—", "—")
    assert table.notes[0].endswith(" Without a difference, since their folds test other bags: c.")
    assert "other bags" not in compare(folders[:2]).as_table().notes[0]
    assert compare(folders).as_table("patients").heading == ("", "runs", "nll")
    assert compare(folders).as_table("instances").heading == ("", "runs", "brier")
    with pytest.raises(ConfigError, match="level 'bag'"):
        compare(folders).as_table("bag")
    with pytest.raises(ConfigError, match="metric 'accuracy'"):
        compare(folders).as_table("patients", ["accuracy"])
    with pytest.raises(DataError, match="'a': expected folders of different names, got 2;"):
        compare([folders[0], folders[1], folders[0]])
    with pytest.raises(ConfigError, match="several folders"):
        compare([])
    better = [(fold, 1, "bags", "nll", 0.3 + gain) for fold, gain in enumerate((0.1, 0.11, 0.13))]
    cell = compare([folders[0], write_cross_validation(tmp_path / "e", better)]).as_table().rows[1][3]
    assert cell == "0.413 ± 0.015 (+0.113, p 0.01)"
    relabeled = write_cross_validation(tmp_path / "y", [(k, 1, "bags", "nll", 0.5) for k in range(3)], label="y")
    assert not compare([folders[0], relabeled])[1].same_tests


def test_a_p_value_is_that_of_both_sides() -> None:
    better, worse = np.array([0.9, 0.8, 0.85, 0.7]), np.array([0.8, 0.82, 0.8, 0.71])
    assert paired_difference(worse, better, 0.25).p == paired_difference(better, worse, 0.25).p
    assert paired_difference(better[:2], worse[:2], 0.0).p == pytest.approx(
        stats.ttest_rel(better[:2], worse[:2]).pvalue
    )


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda rows: [*rows, rows[0]], "accuracy, nll, accuracy in fold 0, seed 1"),
        (lambda rows: rows[1:], "nll in fold 0, seed 1"),
        (lambda rows: [*rows, "3,1,bags,nll,0.5"], "nll in fold 3, seed 1"),
        (lambda rows: [*rows, "0,1,bags,other,inf"], "NaN or infinity"),
        (lambda rows: [*rows, "0,1,bags,ood_x_auroc,0.5", "2,1,patients,nll,0.5"], None),
    ],
)
def test_runs_that_are_not_whole_are_named(
    change: Callable[[list[str]], list[str]], got: str | None, tmp_path: Path
) -> None:
    runs = [(fold, 1, "bags", metric, 0.5) for fold in range(3) for metric in ("accuracy", "nll")]
    folder = write_cross_validation(tmp_path / "cv", runs)
    heading, *rows = (folder / "runs.csv").read_text().splitlines()
    (folder / "runs.csv").write_text("\n".join([heading, *change(rows)]))
    if got is None:  # what is out of distribution, or a level, may be there in some folds alone
        assert compare([folder])[0].summaries["bags", "ood_x_auroc"].runs == 1
        return
    with pytest.raises(StorageError) as raised:
        compare([folder])
    assert raised.value.got == got


def test_splits_of_a_comparison_need_folds_with_bags_to_train_on(tmp_path: Path) -> None:
    folder = write_cross_validation(tmp_path / "cv", [(0, 1, "bags", "nll", 0.5)])
    for text in ("bag_id,label,fold_0\na,0,test\n", "bag_id,label\na,0\n", "bag_id,fold_0\na,train\n"):
        (folder / "splits.csv").write_text(text)
        with pytest.raises(StorageError, match="each with bags to train on"):
            compare([folder])


@pytest.mark.parametrize(
    ("losses", "wanted"),
    [
        (
            {"net": (0.30, 0.30, 0.30), "other": (0.5, 0.5, 0.5)},
            "net is better than the baseline forest (NLL -0.100",
        ),
        (
            {"net": (0.1, 0.5, 0.55)},
            "No network clearly beats the baseline forest; the nearest is net (NLL -0.017",
        ),
        ({"net": (0.5, 0.6, 0.7)}, "No network clearly beats the baseline forest; the nearest is net (NLL +0.200"),
    ],
)
def test_one_sentence_says_whether_a_network_beats_the_baselines(
    losses: dict[str, tuple[float, ...]], wanted: str, tmp_path: Path
) -> None:
    baselines = {"logistic": (0.6, 0.6, 0.6), "forest": (0.40, 0.41, 0.39)}
    folders = [
        write_cross_validation(
            tmp_path / name,
            [(fold, 1, "bags", "nll", value) for fold, value in enumerate(of_name)],
            method=f"pooled-{name}" if name in baselines else "mirel",
        )
        for name, of_name in {**losses, **baselines}.items()
    ]
    found = compare(folders)
    assert wanted in found.beside_baseline
    assert found.beside_baseline in found.as_table("bags", ["nll"]).notes
    assert compare(folders[: len(losses)]).beside_baseline == ""


def test_a_p_value_is_the_same_whichever_is_first(tmp_path: Path) -> None:
    for name, unused, worse in (("a", "train", 0.1), ("b", "", 0.0)):
        write_cross_validation(tmp_path / name, [])
        lines = [f"{k},x,{','.join('test' if k == fold else 'train' for fold in range(3))}" for k in range(3)]
        lines += [f"more {k},x,{unused},{unused},{unused}" for k in range(3)]
        (tmp_path / name / "splits.csv").write_text("\n".join(["bag_id,label,fold_0,fold_1,fold_2", *lines]))
        rows = [f"{k},1,bags,accuracy,{value - worse * k}" for k, value in enumerate((0.9, 0.8, 0.85))]
        (tmp_path / name / "runs.csv").write_text("\n".join(["fold,seed,level,metric,value", *rows]))
    orders = [[tmp_path / name for name in names] for names in ("ab", "ba")]
    one, other = (compare(folders)[1].differences["bags", "accuracy"] for folders in orders)
    assert one.p == other.p and one.mean == -other.mean


def test_accuracies_of_few_bags_that_differ_alike_on_all_folds_have_no_p_value() -> None:
    """Two classifiers of equal accuracy: folds of few bags often agree on how much better one of them was."""
    random, found = np.random.default_rng(0), []
    for _ in range(1000):
        ours, theirs = (random.binomial(10, 0.8, size=2) / 10 for _ in range(2))
        found.append(paired_difference(ours, theirs, test_share=1.0))
    p_values = np.array([1.0 if one.p is None else one.p for one in found])
    assert sum(one.p is None for one in found) > 50
    assert (p_values > 0).all() and (p_values < 0.01).mean() < 0.01 and (p_values < 0.05).mean() < 0.05


@pytest.mark.long
def test_cross_validations_stand_side_by_side(tmp_path: Path) -> None:
    bags = separable_bags(24)
    for name, network, seed, seeds in (
        ("a", "mean", 42, [1, 2]),
        ("b", "max", 42, [1, 2]),
        ("other folds", "mean", 7, [1]),
    ):
        recipe = Recipe(network=network, options={"encoder.width": 4}, settings={"max_epochs": 1}, distances=())
        cross_validate(bags, make_folds(bags, 3, seed=seed), seeds, tmp_path / name, recipe, progress=False)
    recipe = Recipe(network="mean", settings={"max_epochs": 1, "validation_fraction": 0}, distances=())
    cross_validate(
        bags, make_folds(bags, 3, validation=0.0, seed=42), [1], tmp_path / "all", recipe, progress=False
    )
    base, same, other, more = compare([tmp_path / name for name in ("a", "b", "other folds", "all")])
    assert (base.differences, other.differences) == ({}, {})
    assert [one.same_tests for one in (base, same, other, more)] == [True, True, False, True]
    assert more.differences.keys() == same.differences.keys()
    key = ("bags", "nll")
    by_fold: dict[str, np.ndarray] = {}
    for name in ("a", "b"):
        with (tmp_path / name / "runs.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if (row["level"], row["metric"]) == key]
        of_fold = [[float(r["value"]) for r in rows if r["fold"] == str(k)] for k in range(3)]
        by_fold[name] = np.array(of_fold).mean(1)
    train = make_folds(bags, 3, seed=42).assign(bags, 0).splits.count("train")
    wanted = paired_difference(by_fold["b"], by_fold["a"], 8 / train)
    assert same.differences[key].mean == pytest.approx(wanted.mean)
    assert same.differences[key].p == pytest.approx(wanted.p, rel=1e-6)
    assert same.summaries[key].mean == pytest.approx(np.mean(by_fold["b"]))

    words = [
        "compare",
        str(tmp_path / "a"),
        str(tmp_path / "b"),
        "--metric",
        "nll",
        "--out",
        str(tmp_path / "t.md"),
    ]
    assert CliRunner().invoke(app, words).exit_code == 0
    lines = (tmp_path / "t.md").read_text().splitlines()
    assert lines[0] == "|  | runs | nll |"
    assert lines[3].startswith("| b | 6 | ") and f"({wanted.mean:+.3f}, p " in lines[3]
    assert "other bags" not in lines[-1]
    numbers = [*words[:-1], str(tmp_path / "t.csv")]
    assert CliRunner().invoke(app, numbers).exit_code == 0
    first, second = read_rows(tmp_path / "t.csv")
    assert (first["name"], first["metric"], first["runs"], first["difference"]) == ("a", "nll", "6", "")
    assert float(second["difference"]) == pytest.approx(wanted.mean) and float(second["p"]) == wanted.p
    latex = CliRunner().invoke(app, [*words[:-1], str(tmp_path / "t.tex")])
    assert isinstance(latex.exception, ConfigError) and "to_latex()" in str(latex.exception)
    apart = CliRunner().invoke(app, ["compare", str(tmp_path / "a"), str(tmp_path / "other folds")])
    assert "since their folds test other bags: other folds." in " ".join(apart.output.split())
    (tmp_path / "all" / "splits.csv").write_text("bag_id,label,fold_0\na,0,test\n")
    with pytest.raises(StorageError, match="each with bags to train on"):
        compare([tmp_path / "all"])
    (tmp_path / "x").mkdir()
    with pytest.raises(StorageError, match="a finished cross-validation"):
        compare([tmp_path / "x"])
    assert isinstance(CliRunner().invoke(app, [*words, "--level", "bag", "--overwrite"]).exception, ConfigError)


def test_a_metric_that_is_undefined_in_some_folds_says_of_how_many_runs_it_is(tmp_path: Path) -> None:
    aurocs: dict[str, list[float | None]] = {"a": [0.9, 0.5, None], "b": [0.8, None, None], "c": [0.7, 0.6, 0.5]}
    for name, values in aurocs.items():
        write_cross_validation(tmp_path / name, [])
        bags = "x,0,test,train,train\ny,1,train,test,train\nz,1,train,train,test\n"
        (tmp_path / name / "splits.csv").write_text(f"bag_id,label,fold_0,fold_1,fold_2\n{bags}")
        rows = [f"{k},1,bags,accuracy,0.5" for k in range(3)]
        rows += [f"{k},1,bags,auroc,{'' if value is None else value}" for k, value in enumerate(values)]
        (tmp_path / name / "runs.csv").write_text("fold,seed,level,metric,value\n" + "\n".join(rows) + "\n")
    table = compare([tmp_path / name for name in aurocs]).as_table(metrics=["accuracy", "auroc"])
    assert [row[1] for row in table.rows] == ["3", "3", "3"]
    assert table.rows[0][3] == "70.0 ± 28.3 of 2 runs"
    assert table.rows[1][3] == "80.0 of 1 run (-10.0)"
    assert table.rows[2][3].startswith("60.0 ± 10.0 (-5.0, p ")
    assert "undefined in some runs" in table.notes[0]
    alone = compare([tmp_path / "a", tmp_path / "b"]).as_table(metrics=["auroc"])
    assert alone.rows[1][1:] == ("3", "80.0 of 1 run (-10.0)")
    assert "undefined" not in compare([tmp_path / "c", tmp_path / "a"]).as_table(metrics=["accuracy"]).notes[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: "\n".join(lines).encode("utf-16")[:-7], "expected text in UTF-8"),
        (
            lambda lines: "\n".join(lines).replace("nll", "é").encode("latin-1"),
            "line [0-9]+: expected text in UTF-8",
        ),
        (lambda lines: "\n".join(lines[: len(lines) // 2]).encode(), "of bags once in 2 folds of every seed"),
        (
            lambda lines: "\n".join(["fold,seed,level", "0,1,bags"]).encode(),
            "columns fold, seed, level, metric, value",
        ),
    ],
)
def test_a_damaged_table_of_runs_is_named_and_one_that_lost_rows_is_not_averaged(
    damage: Callable[[list[str]], bytes], said: str, tmp_path: Path
) -> None:
    bags = separable_bags(16)
    recipe = Recipe(network="mean", options={"encoder.width": 4}, settings={"max_epochs": 1}, distances=())
    cross_validate(bags, make_folds(bags, 2), [1], tmp_path / "cv", recipe, progress=False)
    path = tmp_path / "cv" / "runs.csv"
    assert compare([tmp_path / "cv"])
    path.write_bytes(damage(path.read_text().splitlines()))
    with pytest.raises(StorageError, match=rf"runs.csv.*{said}"):
        compare([tmp_path / "cv"])


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["metrics"].pop(),
        lambda content: content["metrics"][0].update(value=0.123),
        lambda content: content.pop("sha256"),
        lambda content: content.update(sealed({**content, "fold": 1})),
    ],
)
def test_metrics_of_a_run_that_are_not_what_was_written_are_named(
    change: Callable[[dict[str, Any]], Any], tmp_path: Path
) -> None:
    """One that was cut off was missing in runs.csv, and the mean over runs left it out."""
    (tmp_path / "fold_0/seed_1").mkdir(parents=True)
    path = tmp_path / "fold_0/seed_1/metrics.json"
    rows = [{"level": "bags", "metric": name, "value": 0.5} for name in ("accuracy", "nll")]
    content = sealed({"fold": 0, "seed": 1, "metrics": rows})
    write_json(path, content)
    runs = OpenRuns(tmp_path, ((0, 1),), (), FoldShares(1.0, 1.0))
    assert [one.metric for one in runs.write_tables()] == ["accuracy", "nll"]
    (tmp_path / "runs.csv").unlink()
    change(content)
    write_json(path, content)
    with pytest.raises(StorageError, match=r"metrics.json'.* of fold 0, seed 1.*remove the file; "):
        runs.write_tables()
    assert not (tmp_path / "runs.csv").exists()


def test_inputs_are_read_once_for_all_members_of_an_ensemble(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, learn = [], MLP.learn_inputs

    def counted(self: MLP, batches: Any) -> None:
        calls.append(1)
        learn(self, batches)

    monkeypatch.setattr(MLP, "learn_inputs", counted)
    options: dict[str, Any] = {"encoder.width": 4, "encoder.scaling": "each", "method.size": 3}
    model = miue.train(
        separable_bags(24), method="deep-ensemble", settings={"max_epochs": 1, "options": options}, progress=False
    )
    encoders = [member.network.encoder for member in model.method.members()]
    assert len(calls) == 1
    assert len(encoders) == 3
    for encoder in encoders:
        assert isinstance(encoder, MLP)
        assert not torch.equal(encoder.mean, torch.zeros_like(encoder.mean))
        assert torch.equal(encoder.deviation, encoders[0].get_buffer("deviation"))
    weights = [encoder.get_parameter("layers.0.weight") for encoder in encoders]
    assert not torch.equal(weights[0], weights[1])


def test_test_bags_without_any_label_are_refused(tmp_path: Path) -> None:
    bags = separable_bags(24)
    split = ["train"] * 12 + ["validation"] * 6 + ["test"] * 6
    unknown = Labels(bags.labels.values, np.array(split) != "test")
    splits = Splits("made", (dict(zip(bags.ids, split, strict=True)),))
    with pytest.raises(DataError, match="the test bags of 'made': expected at least one with a label"):
        cross_validate(replace(bags, labels=unknown), splits, [1], tmp_path, QUICK, progress=False)
