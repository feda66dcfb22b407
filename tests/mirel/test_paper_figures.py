"""The paper's figures: their numbers from made scores, and the command around them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from made_bags import separable_bags
from matplotlib.figure import Figure
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

import miue
from miue.bags import BagDataset, Labels, OodFlags
from miue.common.errors import ConfigError
from miue.datasets import cifar10
from miue.datasets.gaussian import gaussian_bags
from miue.datasets.mnist import digits_of_test_bags, mnist_bags
from miue.distributions import Categorical, Dirichlet
from miue.predictions import PredictionTable
from papers.mirel.cli import app
from papers.mirel.figures import FIGURES, FigureWithData, bag_examples, estimator_surfaces, ood_sweep, paper_figure
from papers.mirel.figures.confidence_by_digit import digit_rows
from papers.mirel.figures.confidence_by_ratio import by_ratio, summary_rows
from papers.mirel.figures.detection_by_ratio import detection_rows, draw_detection_by_ratio
from papers.mirel.figures.ood_sweep import (
    CONFIDENCE,
    RATIOS,
    SOURCES,
    STRENGTH,
    OodSweep,
    read_sweep,
    scores_of,
)
from papers.mirel.paths import Paths
from papers.mirel.preset import preset


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "data", tmp_path / "work", tmp_path / "results")


def made_sweep(seed: int = 0) -> OodSweep:
    """Scores that grow less certain with the share of foreign instances."""
    random = np.random.default_rng(seed)
    scores = {}
    for source, ratio in [("", 0.0), *((s, r) for s in chain(*SOURCES.values()) for r in RATIOS)]:
        for level in ("bag", "instance"):
            confidence = random.normal(-ratio, 0.3, 53).astype(np.float32)
            scores[level, source, ratio, CONFIDENCE] = confidence
            scores[level, source, ratio, STRENGTH] = np.exp(confidence) + 2
            scores[level, source, ratio, "vacuity"] = -confidence
    return OodSweep(scores)


def table_of(distribution: Categorical | Dirichlet) -> PredictionTable:
    count = len(distribution)
    return PredictionTable(
        distribution=distribution,
        bag_ids=np.array([f"b{i}" for i in range(count)], object),
        labels=Labels.unknown(count),
        is_ood=OodFlags.all_in(count),
        ood_sets=np.array([""] * count, object),
    )


def test_detection_is_the_auroc_of_foreign_bags_by_their_uncertainty() -> None:
    sweep = made_sweep()
    rows = detection_rows("mnist/abmil-mirel", 3, sweep)
    assert len(rows) == len(SOURCES["mnist-bags"]) * len(
        RATIOS
    )  # of the scores that the figure shows, these have the vacuity
    for _, seed, source, ratio, score, auroc in rows:
        inside, outside = sweep.of("bag", "vacuity"), sweep.of("bag", "vacuity", str(source), float(ratio))
        truth = np.repeat([0, 1], [len(inside), len(outside)])
        assert (seed, score) == (3, "vacuity")
        assert auroc == pytest.approx(roc_auc_score(truth, np.concatenate([inside, outside])))


def test_quantiles_of_confidence_are_those_of_each_set() -> None:
    sweep = made_sweep()
    rows = summary_rows("mnist/abmil-mirel", 3, sweep, CONFIDENCE, "fmnist")
    assert [(row[2], row[4], row[5]) for row in rows] == [
        ("bag", "", 0.0),
        *(("bag", "fmnist", ratio) for ratio in RATIOS),
        ("instance", "", 0.0),
        ("instance", "fmnist", 1.0),
    ]
    values = sweep.of("bag", CONFIDENCE, "fmnist", 0.4)
    assert rows[2][6:] == [
        53,
        *(pytest.approx(np.quantile(values, q)) for q in (0.05, 0.25, 0.5, 0.75, 0.95)),
        pytest.approx(values.mean()),
    ]


@pytest.mark.long
def test_figures_by_ratio_are_drawn_with_the_numbers_of_every_seed(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("confidence_by_ratio", "detection_by_ratio"):
        monkeypatch.setattr(f"papers.mirel.figures.{module}.sweep_of", lambda name, seed, *_: made_sweep(seed))
    names = ["mnist/dsmil-deterministic", "mnist/dsmil-mirel"]
    for drawn in (
        by_ratio(names, CONFIDENCE, "kmnist", [1, 2], paths, "cpu"),
        by_ratio(names[1:], STRENGTH, "kmnist", [1, 2], paths, "cpu"),
        draw_detection_by_ratio("dsmil", [1, 2], paths, "cpu"),
    ):
        drawn.write(paths.results, "figure")
        with (paths.results / "figure.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert {row["seed"] for row in rows} == {"1", "2"}
        assert {row["preset"] for row in rows} <= set(names)
        assert (paths.results / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", [name for name in FIGURES if name.startswith(("confidence-", "strength-"))])
def test_a_figure_by_ratio_shows_presets_of_the_data_that_have_its_source(
    name: str, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "papers.mirel.figures.confidence_by_ratio.sweep_of", lambda name, seed, *_: made_sweep(seed)
    )
    drawn = paper_figure(name).draw([1], paths, "cpu")
    score, network, source = name.split("-")
    column = {key: [row[place] for row in drawn.rows] for place, key in enumerate(drawn.columns)}
    presets = [preset(str(shown)) for shown in column["preset"]]
    assert {shown.method for shown in presets} == {"mirel", *(["deterministic"] if score == "confidence" else [])}
    assert all(source in SOURCES[shown.data] for shown in presets)
    assert {shown.network for shown in presets} == {{"abmil": "attention", "dsmil": "dsmil"}[network]}
    assert set(column["source"]) == {"", source}


def test_the_sets_of_a_sweep_are_of_the_data_and_each_of_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    bags = separable_bags(4)
    mixed = replace(bags, is_ood=OodFlags.of([True, True, False, False]))
    drawn = []

    def draw(source: Path, splits: list[str], ood: Sequence[str] = (), ood_ratio: float = 1.0) -> BagDataset:
        drawn.append((*splits, *ood, ood_ratio))
        return mixed if ood else bags

    monkeypatch.setattr(cifar10, "cifar10_bags", draw)
    sets = list(ood_sweep._sets("cifar10-bags", Path("images")))
    foreign = [(source, ratio) for source in ("svhn", "dtd") for ratio in RATIOS]
    assert [(source, ratio) for source, ratio, _ in sets] == [("", 0.0), *foreign]
    assert drawn == [("test", 1.0), *(("test", *each) for each in foreign)]
    assert [len(found) for _, _, found in sets] == [4, *[2] * len(foreign)]  # the others are in the first set


def test_the_confidence_of_a_digit_is_that_of_its_instances() -> None:
    alpha = torch.rand(40, 2, dtype=torch.float64) * 9 + 1
    table, digits = table_of(Dirichlet(alpha)), np.arange(40) % 10
    rows = digit_rows("mnist/abmil-mirel", 5, "residual", table, digits)
    confidence = -Dirichlet(alpha).expected_entropy().numpy()
    for row in rows:
        of_digit = digits == row[3]
        assert row[4:6] == [4, pytest.approx(confidence[of_digit].mean(), rel=1e-6)]
        assert row[-1] == pytest.approx((alpha[of_digit].argmax(1) == 1).double().mean().item())


def test_one_softmax_is_its_own_expectation() -> None:
    distribution = Categorical(torch.tensor([[0.25, 0.75]], dtype=torch.float64))
    scores = scores_of(table_of(distribution))
    assert scores[CONFIDENCE][0] == pytest.approx(-distribution.entropy().item())
    assert STRENGTH not in scores


def test_digits_of_test_bags_agree_with_their_labels(shared_data: Path) -> None:
    bags = mnist_bags(shared_data, splits=["test"])
    digits = digits_of_test_bags(shared_data)
    assert np.array_equal(digits == 9, bags.instance_labels.values == 1)


def test_a_sweep_is_computed_once_and_read_back(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    bags = separable_bags(30)
    model = miue.train(bags, settings={"max_epochs": 1, "device": "cpu", "distances": ()}, progress=False)
    calls = []

    def trained(*_: object) -> list[miue.Model]:
        calls.append(1)
        return [model]

    monkeypatch.setattr(ood_sweep, "train_preset", trained)
    labeled = BagDataset.from_arrays([bags.batch([i]).instances.numpy() for i in range(30)], bags.labels.values)
    store = replace(labeled, splits=("train",) * 30)
    monkeypatch.setattr(ood_sweep, "store_of", lambda *_: store)
    monkeypatch.setattr(
        ood_sweep, "_sets", lambda *_: [("", 0.0, bags), ("fmnist", 0.4, bags), ("fmnist", 1.0, bags)]
    )
    first = ood_sweep.sweep_of("mnist/abmil-mirel", 1, paths, "cpu")
    again = ood_sweep.sweep_of("mnist/abmil-mirel", 1, paths, "cpu")
    assert len(calls) == 1
    assert first.scores.keys() == again.scores.keys()
    for key, values in first.scores.items():
        assert np.array_equal(values, again.scores[key])
    assert "knn_mean" in again.names("bag")
    assert ("instance", "fmnist", 0.4, CONFIDENCE) not in again.scores
    assert read_sweep(paths.work / "sweeps" / "mnist" / "abmil-mirel" / "1.npz").names("bag") == first.names("bag")


def test_surfaces_show_what_models_say_of_each_point(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    bags = gaussian_bags(sizes={"train": 30, "validation": 10, "test": 10})
    models = {
        name: miue.train(
            bags, method=method, settings={"max_epochs": 1, "device": "cpu", "distances": ()}, progress=False
        )
        for name, method in (("deterministic", "deterministic"), ("i-edl", "i-edl"), ("mirel", "mirel"))
    }
    monkeypatch.setattr(estimator_surfaces, "store_of", lambda *_: bags)
    monkeypatch.setattr(estimator_surfaces, "SIDE", 21)
    monkeypatch.setattr(
        estimator_surfaces, "train_preset", lambda name, *_: [models[name.removeprefix("synthetic/abmil-")]]
    )
    drawn = estimator_surfaces.draw_estimator_surfaces([42], paths, "cpu")
    assert len(drawn.rows) == 4 * 3 * 3
    for name, estimator, row in (
        ("mirel", "residual", drawn.rows[-1]),
        ("deterministic", "bag-of-one", drawn.rows[9]),
    ):
        point = np.array([[row[3], row[4]]], np.float32)
        instances = models[name].predict([point], estimator=estimator, device="cpu").instances
        assert instances is not None
        assert row[5] == pytest.approx(instances.probabilities[0, 1], rel=1e-5)
        assert (row[7] == "") == (name == "deterministic")


def test_bag_examples_hold_every_instance_of_the_bags(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [np.full((size, 28, 28, 1), 7, np.uint8) for size in (3, 14)]
    bags = BagDataset.from_arrays(images * 2, [0, 1, 0, 1])
    settings = {"max_epochs": 1, "validation_fraction": 0.0}
    model = miue.train(bags, settings={**settings, "device": "cpu", "distances": ()}, progress=False)
    monkeypatch.setattr(bag_examples, "train_preset", lambda *_: [model])
    drawn = bag_examples.draw_bags(bags.subset([0, 1]), 42, paths, "cpu")
    assert [row[1] for row in drawn.rows] == [*range(3), *range(14)]


def test_figures_are_listed_and_an_unknown_one_is_named() -> None:
    listed = CliRunner().invoke(app, ["figure", "list"]).output
    assert all(name in listed for name in FIGURES)
    with pytest.raises(ConfigError, match="did you mean 'surfaces'"):
        paper_figure("surface")


def test_a_figure_without_its_data_says_what_is_missing(tmp_path: Path) -> None:
    arguments = ["figure", "digits-abmil", "--source", str(tmp_path / "none"), "--work", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exception is not None
    assert "mnist" in str(result.exception)


def test_a_figure_that_cannot_be_drawn_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = Figure()

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(figure, "savefig", broken)
    with pytest.raises(Exception, match="disk full"):
        FigureWithData(figure, ("a",), [[1]]).write(tmp_path, "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
