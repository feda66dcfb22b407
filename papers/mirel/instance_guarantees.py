"""Promised against measured: flags of instances on MNIST-bags and nuclei-bags, calibrated with bag labels alone.

A model predicts bags that it was not trained on. Many times, a random half of each class calibrates and the other
half is flagged; the loss of the promise, and what the flags find, are means over these splits. The label of every
instance is known here, and used for the promise "recall" and to measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from miue.bags import BagDataset
from miue.calibration import InstanceFlags, InstanceGoal
from miue.calibration.instance_flags import POSTERIOR, score_names
from miue.calibration.instance_thresholds import fit_instance_flags
from miue.common.tables import write_rows
from miue.evaluation.instances import flag_metrics
from miue.methods import ATTENTION
from miue.model import Model
from miue.predictions import Predictions, read_predictions
from papers.mirel.nuclei.bags import nuclei_bags
from papers.mirel.nuclei.experiment import ENCODER, METHOD_SETUPS, OPTIONS, SETTINGS
from papers.mirel.nuclei.shift_detection import parts_of

GOALS = (
    InstanceGoal("no-false-flag", 0.1),
    InstanceGoal("false-positives", 1.0, cap=10),
    InstanceGoal("detection", 0.1),
    InstanceGoal("recall", 0.1),
)
NUCLEI = (("attention", "mirel"), ("attention", "deterministic"), ("max", "mirel"), ("dsmil", "mirel"))
SPLITS = {"mnist": 25, "nuclei": 200}  # of 1,000 and of 50 bags
RAW = "attention"  # a_k as the network computes it; the estimator "attention" scales it to [0, 1] within a bag
COLUMNS = (
    "data",
    "network",
    "method",
    "seed",
    "score",
    "guarantee",
    "level",
    "measured",
    "calibration_bags",
    "sensitivity",
    "positive_bags_with_a_flag",
    "flags_that_are_positive",
)


@dataclass(frozen=True)
class Scored:
    """Predictions of one model.

    Attributes:
        data: "mnist" or "nuclei".
        network: its name.
        method: its name.
        seed: of the training.
        score: T, R, a_k or raw a_k, or one of them given the bag.
        predictions: of bags with instance labels.
        column: the score of the instances.
    """

    data: str
    network: str
    method: str
    seed: int
    score: str
    predictions: Predictions
    column: str = "probability"


def predict_mnist(store: Path, runs: Path, out: Path) -> None:
    """Predict the in-distribution test bags with every trained run and estimator; what is there is skipped."""
    from miue.io import read_store

    bags = read_store(store)
    test = bags.subset(np.flatnonzero((np.array(bags.splits) == "test") & bags.is_ood.in_distribution))
    for run in sorted(runs.glob("*/*/config.json")):
        model = Model.load(run.parent)
        name = f"mnist_{model.config.network.name}_{model.config.method.name}_{run.parent.name}"
        variant = run.parent.parent.name.count("-") > 2  # of the loss
        if not variant and model.config.method.name != "bayes-mil":  # whose attention is a distribution
            _predict(model, test, out, name)


def predict_nuclei(source: Path, out: Path, network: str, method: str, seed: int) -> None:
    """Train on 38 patients, stop by 10, and predict the other 50 with every estimator."""
    from miue.bags import concatenate
    from miue.training.train import train

    name = f"nuclei_{network}_{method.replace('deterministic', 'softmax')}_{seed}"
    if list(out.glob(f"{name}_*")):
        return
    parts = parts_of(nuclei_bags(source), seed)
    options = {key: value for key, value in OPTIONS.items() if network == "attention" or key != "network.hidden"}
    model = train(
        parts["train"],
        validation=parts["validation"],
        network=network,
        method=method,
        encoder=ENCODER,
        settings={**SETTINGS, "seed": seed, "options": {**options, **METHOD_SETUPS[method].options}},
        progress=False,
    )
    _predict(model, concatenate([parts["test"], parts["calibration"]]), out, name)


def _predict(model: Model, bags: BagDataset, out: Path, name: str) -> None:
    network = model.method.members()[0].network
    for estimator in model.method.estimators:
        folder = out / f"{name}_{estimator}"
        if folder.exists() or (estimator == ATTENTION and not network.has_attention):
            continue
        predictions = model.predict(bags, estimator=estimator, device="cpu")
        if estimator == ATTENTION and predictions.instances is not None:
            scores = {RAW: _raw_attention(model, bags)}
            predictions = replace(predictions, instances=replace(predictions.instances, scores=scores))
        predictions.save(folder)


def _raw_attention(model: Model, bags: BagDataset) -> np.ndarray:
    """Return a_k, the last column where there is one for each class, in the order of the bags."""
    import torch

    method = model.method.members()[0].eval()
    parts = []
    with torch.inference_mode():
        for row in range(len(bags)):
            attention = method.bag_scores(bags.batch(np.array([row]))).attention
            assert attention is not None
            parts.append(attention[:, -1].double().numpy())
    return np.concatenate(parts)


def read_scored(folder: Path) -> Iterator[Scored]:
    """Yield the predictions of every model and score."""
    short = {"residual": "R", "bag-of-one": "T", "attention": "scaled a_k"}
    for path in sorted(folder.iterdir()):
        data, network, method, seed, estimator = path.name.split("_")
        predictions = read_predictions(path)
        assert predictions.instances is not None
        scored = Scored(data, network, method, int(seed), short[estimator], predictions)
        yield scored
        if RAW in predictions.instances.uncertainty_names:
            yield replace(scored, score="a_k", column=RAW)
        if POSTERIOR in score_names(predictions.instances):
            yield replace(scored, score=f"{scored.score} given the bag", column=POSTERIOR)


def measure(scored: Scored, goal: InstanceGoal) -> tuple[object, ...]:
    """Return a row: means over random halves that calibrate and random halves that are flagged."""
    asked, random = replace(goal, score=scored.column), np.random.default_rng(scored.seed)
    whole, count = scored.predictions, len(scored.predictions.bags)
    assert whole.instances is not None
    rows_of = whole.instances.rows_of_bags()
    instances = whole.instances.subset(np.arange(len(whole.instances)))  # in memory
    order = {name: number for number, name in enumerate(whole.bags.bag_ids)}
    bag = np.array([order[name] for name in rows_of.names])[rows_of.bag]
    found, used = [], 0
    for _ in range(SPLITS[scored.data]):
        half = np.zeros(count, bool)
        for label in (0, 1):
            of_class = np.flatnonzero(whole.bags.labels.values == label)
            half[random.permutation(of_class)[: len(of_class) // 2]] = True
        calibrating, tested = (
            Predictions(whole.bags.subset(np.flatnonzero(one)), instances.subset(np.flatnonzero(one[bag])))
            for one in (half, ~half)
        )
        rule = fit_instance_flags(calibrating, asked, ("negative", "positive"))
        used = rule.bags
        found.append(_outcome(tested, rule))
    means = [_mean([value for value in column if value is not None]) for column in zip(*found, strict=True)]
    names = (scored.data, scored.network, scored.method, scored.seed, scored.score)
    return (*names, goal.guarantee, goal.level, means[0], used, *means[1:])


def _mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):.4f}" if values else ""


def _outcome(predictions: Predictions, rule: InstanceFlags) -> tuple[float | None, ...]:
    assert predictions.instances is not None
    flagged = replace(predictions, instances=rule.flag(predictions.instances))
    metrics = flag_metrics(flagged, rule)
    names = ("loss", "sensitivity", "positive_bags_with_a_flag", "precision")
    return tuple(metrics[name].value for name in names)


def write_measured(folder: Path, out: Path) -> None:
    """Measure every promise of every model and score, and write the table."""
    rows: list[Sequence[object]] = []
    for scored in read_scored(folder):
        rows += [measure(scored, goal) for goal in GOALS]
    write_rows(out, COLUMNS, rows)
