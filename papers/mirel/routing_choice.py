"""Which gradient routing of MIREL is a network's default: decided on validation bags, never on test data.

The bags are drawn as the validation bags of MNIST-bags are, from training images that no training or validation
bag contains. The criterion is in results/routing/README.md. Labels of instances are used for the choice alone; the
choice from labels of bags is computed beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from miue.bags import BagDataset
from miue.common.text import ResultTable
from miue.datasets.drawing import SEEDS, TARGET, Pool, draw_bags, drawn_dataset
from miue.datasets.image_shifts import shifted_copies
from miue.datasets.images import read_images
from miue.datasets.mnist import SIZES
from miue.evaluation import evaluate
from miue.evaluation.metrics import Separation
from miue.methods import BAG_OF_ONE
from miue.predictions import Predictions
from papers.mirel.distance_choice import OF_DIGITS
from papers.mirel.measured import Row, read_measured, write_measured
from papers.mirel.paths import Paths
from papers.mirel.preset import Preset, preset
from papers.mirel.trained import load_trained

BAGS, SHIFTED, DRAW = 1000, 250, 1717
SHAPE = (28, 28, 1)
PAPER = ("through-residual", 1.0)
GAIN, LOSS, MAJORITY = 0.01, 0.01, 2 / 3

LABELED = (
    ("bag_accuracy", "bag_conf", "bag_ood"),
    ("instance_accuracy", "instance_conf", "instance_ood"),
)
BAG_LABELS = (LABELED[0], ("witness_accuracy", "witness_auroc", "instance_ood"))
BY_T = ("t_accuracy", "t_conf")
MEASURED = (*LABELED[0], "bag_combined", "bag_nll", *LABELED[1], "instance_combined", *BAG_LABELS[1][:2], *BY_T)
COLUMNS = ("preset", "seed", "network", "routing", "weight", *MEASURED)

Variant = tuple[str, float]


def measure_routings(names: Sequence[str], seeds: Sequence[int], paths: Paths, out: Path) -> list[Row]:
    """Measure trained presets on validation bags; what the file ``out`` has already is not measured again.

    Args:
        names: of presets of MNIST-bags with MIREL.
        seeds: of training.
        paths: of data and trained models.
        out: CSV with a row for each preset and seed, written after each.

    Raises:
        StorageError: a preset has not been trained with a seed.
    """
    rows, bags = read_measured(out), selection_bags(paths.source)
    done = {(row["preset"], row["seed"]) for row in rows}
    for name in names:
        for seed in seeds:
            if (name, str(seed)) not in done:
                rows.append(_measure(name, seed, bags, paths))
                rows.sort(key=lambda row: (row["network"], row["routing"], -float(row["weight"]), row["preset"]))
                write_measured(out, COLUMNS, rows)
    return rows


def selection_bags(source: Path) -> BagDataset:
    """Draw validation bags of MNIST-bags from training images that are in none of its bags."""
    pool = read_images(source, "mnist", "train")
    is_target, used = pool.labels == TARGET, np.zeros(len(pool.labels), bool)
    for split in ("train", "validation"):
        for bag in draw_bags(np.random.RandomState(SEEDS[split]), is_target, SIZES[split]):
            used[bag.members] = True
    unused = Pool(pool.instances[~used], pool.labels[~used])
    drawn = draw_bags(np.random.RandomState(DRAW), unused.labels == TARGET, BAGS)
    return drawn_dataset(drawn, unused, TARGET, split="selection")


def _measure(name: str, seed: int, bags: BagDataset, paths: Paths) -> Row:
    chosen, trained = preset(name), load_trained(name, seed, paths)
    model = trained.model
    predictions = model.predict(bags)
    evaluation = evaluate(predictions)
    shifted = shifted_copies(bags.subset(np.arange(SHIFTED)), seed=0, shifts=OF_DIGITS)
    of_shifts = evaluate(trained.with_distances(["combined"]).predict(shifted))
    values = {"bag_nll": evaluation.bags.metrics["nll"].value, **witnesses(predictions)}
    for level, own, copies, score in (
        ("bag", evaluation.bags, of_shifts.bags, "combined_mean"),
        ("instance", evaluation.instances, of_shifts.instances, "combined"),
    ):
        assert own is not None
        assert copies is not None
        values[f"{level}_accuracy"] = own.metrics["accuracy"].value
        values[f"{level}_conf"] = own.confidence.auroc.value
        values[f"{level}_ood"] = _mean_auroc(copies.ood)
        values[f"{level}_combined"] = _mean_auroc(copies.by_measure[score].ood)
    by_t = evaluate(model.predict(bags, estimator=BAG_OF_ONE)).instances
    assert by_t is not None
    values |= {"t_accuracy": by_t.metrics["accuracy"].value, "t_conf": by_t.confidence.auroc.value}
    routing, weight = variant_of(chosen)
    row = {
        "preset": name,
        "seed": str(seed),
        "network": chosen.network,
        "routing": routing,
        "weight": f"{weight:g}",
    }
    return row | {key: f"{value:.5f}" for key, value in values.items() if value is not None}


def witnesses(predictions: Predictions) -> dict[str, float]:
    """Return what labels of bags say of the predictions of instances.

    "witness_accuracy" is the mean of two shares: of the instances of negative bags, those predicted negative; of
    positive bags, those with an instance predicted positive. "witness_auroc" is the AUROC of the highest instance
    probability of a bag for the label of the bag.
    """
    instances = predictions.instances
    assert instances is not None
    positive = predictions.bags.labels.values == 1
    starts = np.sort(np.unique(instances.bag_ids, return_index=True)[1])
    highest = np.maximum.reduceat(instances.probabilities[:, 1], starts)
    of_negative = ~np.repeat(positive, np.diff([*starts, len(instances)]))
    shown, right = (highest[positive] > 0.5).mean(), (instances.predicted[of_negative] == 0).mean()
    return {
        "witness_accuracy": float((shown + right) / 2),
        "witness_auroc": float(roc_auc_score(positive, highest)),
    }


def variant_of(chosen: Preset) -> Variant:
    """Return routing and weight of the instance loss of a preset, as its model records them."""
    options = chosen.recipe.model_config(SHAPE).method.options
    return str(options["routing"]), float(str(options.get("instance_coefficient") or PAPER[1]))


@dataclass(frozen=True)
class Candidate:
    """A variant of one network, compared with that of the paper over the seeds that both have.

    Attributes:
        network: its name.
        variant: routing and weight.
        seeds: in both.
        bags: mean score of bags, less that of the paper's.
        instances: likewise.
        share_better: of the seeds, those in which the mean of both levels is higher.
    """

    network: str
    variant: Variant
    seeds: tuple[int, ...]
    bags: float
    instances: float
    share_better: float

    @property
    def gain(self) -> float:
        """Mean over both levels."""
        return (self.bags + self.instances) / 2

    @property
    def wins(self) -> bool:
        """Whether it replaces the paper's by the rule."""
        return self.gain >= GAIN and self.share_better >= MAJORITY and min(self.bags, self.instances) >= -LOSS


def compare(rows: Sequence[Row], criterion: Sequence[Sequence[str]] = LABELED) -> Iterator[Candidate]:
    """Yield every variant but the paper's, network by network, compared by a criterion.

    Args:
        rows: of ``measure_routings``.
        criterion: the columns of bags and those of instances.
    """
    scores: dict[str, dict[Variant, dict[int, np.ndarray]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        values = [np.mean([float(row[column]) for column in columns]) for columns in criterion]
        variant = (row["routing"], float(row["weight"]))
        scores[row["network"]][variant][int(row["seed"])] = np.array(values)
    for network, variants in scores.items():
        for variant in sorted(set(variants) - {PAPER}, reverse=True):
            seeds = tuple(sorted(set(variants[variant]) & set(variants[PAPER])))
            if seeds:
                gains = np.array([variants[variant][seed] - variants[PAPER][seed] for seed in seeds])
                share = float((gains.mean(1) > 0).mean())
                of_bags, of_instances = map(float, gains.mean(0))
                yield Candidate(network, variant, seeds, of_bags, of_instances, share)


def choose(candidates: Iterable[Candidate]) -> dict[str, Variant]:
    """Return the variant of each network: of those that win, the one that gains most, else the paper's."""
    best: dict[str, Candidate | None] = {}
    for candidate in candidates:
        leading = best.setdefault(candidate.network, None)
        if candidate.wins and (leading is None or candidate.gain > leading.gain):
            best[candidate.network] = candidate
    return {network: PAPER if winner is None else winner.variant for network, winner in best.items()}


def lowest_nll(rows: Sequence[Row]) -> dict[str, Variant]:
    """Return the variant of each network with the lowest mean NLL of bags, over the seeds that all of it have."""
    values: dict[str, dict[Variant, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        variant = (row["routing"], float(row["weight"]))
        values[row["network"]][variant][int(row["seed"])] = float(row["bag_nll"])
    lowest = {}
    for network, variants in values.items():
        seeds = set.intersection(*map(set, variants.values()))
        means = {variant: np.mean([of[seed] for seed in seeds]) for variant, of in variants.items()}
        lowest[network] = min(means, key=lambda variant: means[variant])
    return lowest


def choice_tables(rows: Sequence[Row]) -> Iterator[ResultTable]:
    """Yield what each variant gains at each level, and what each rule chooses for each network."""
    labeled, from_bags = list(compare(rows)), list(compare(rows, BAG_LABELS))
    gains: list[tuple[str, ...]] = []
    for one in labeled:
        cells = (f"{100 * one.bags:+.1f}", f"{100 * one.instances:+.1f}", f"{one.share_better:.0%}")
        gains.append((one.network, describe(one.variant), str(len(one.seeds)), *cells, "yes" if one.wins else ""))
    yield ResultTable(("network", "variant", "seeds", "bags", "instances", "better in", "wins"), gains)
    chosen: list[tuple[str, ...]] = []
    by_label, by_bags, by_nll = choose(labeled), choose(from_bags), lowest_nll(rows)
    for network in by_label:
        chosen.append((network, *(describe(rule[network]) for rule in (by_label, by_bags, by_nll))))
    yield ResultTable(("network", "labels of instances", "labels of bags", "lowest bag NLL"), chosen)
    estimates: list[tuple[str, ...]] = []
    for network, variant, seeds, values in estimates_by_variant(rows):
        numbers = [f"{100 * value:.1f}" for value in values]
        prefers = "T" if values[1] + values[3] > values[0] + values[2] else "R"
        estimates.append((network, describe(variant), str(seeds), *numbers, prefers))
    heading = ("network", "variant", "seeds", "accuracy of R", "of T", "Conf. of R", "of T", "prefers")
    yield ResultTable(heading, estimates)


def estimates_by_variant(rows: Sequence[Row]) -> Iterator[tuple[str, Variant, int, np.ndarray]]:
    """Yield network, variant, number of seeds, and the means of accuracy of R and T and Conf. of R and T."""
    columns = ("instance_accuracy", "t_accuracy", "instance_conf", "t_conf")
    values: dict[tuple[str, Variant], list[list[float]]] = defaultdict(list)
    for row in rows:
        if row["t_conf"]:
            variant = (row["routing"], float(row["weight"]))
            values[row["network"], variant].append([float(row[column]) for column in columns])
    for (network, variant), of_seeds in values.items():
        yield network, variant, len(of_seeds), np.mean(of_seeds, axis=0)


def describe(variant: Variant) -> str:
    """Return routing and, where it is not 1, weight."""
    routing, weight = variant
    return routing if weight == PAPER[1] else f"{routing}, weight {weight:g}"


def _mean_auroc(separations: Mapping[str, Separation]) -> float:
    return float(np.mean([one.auroc.value for one in separations.values() if one.auroc.value is not None]))
