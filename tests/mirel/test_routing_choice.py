"""Which routing of MIREL is a network's default: the rule, and that the bags it was chosen on are no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from miue.bags import Labels, OodFlags
from miue.datasets.mnist import mnist_bags
from miue.distributions import Dirichlet
from miue.predictions import Predictions, PredictionTable
from papers.mirel import preset
from papers.mirel.measured import Row
from papers.mirel.routing_choice import (
    BAG_LABELS,
    MEASURED,
    PAPER,
    choose,
    compare,
    estimates_by_variant,
    lowest_nll,
    selection_bags,
    variant_of,
    witnesses,
)

RESIDUAL_ONLY, LIGHTER = ("residual-only", 1.0), ("through-residual", 0.3)


def row(variant: tuple[str, float], seed: int, *, bag: float, instance: float, **others: float) -> Row:
    """Return a row in which every quantity of a level has the same value."""
    values = {key: bag if key.startswith("bag") else instance for key in MEASURED} | others
    identity = {
        "preset": "p",
        "seed": str(seed),
        "network": "max",
        "routing": variant[0],
        "weight": str(variant[1]),
    }
    return identity | {key: str(value) for key, value in values.items()}


@pytest.mark.parametrize(
    ("bag", "instance", "chosen"),
    [
        (0.83, 0.80, RESIDUAL_ONLY),
        (0.84, 0.795, RESIDUAL_ONLY),
        (0.815, 0.80, PAPER),  # gains less than a point
        (0.90, 0.78, PAPER),  # loses more than a point at instance level
        (0.78, 0.90, PAPER),  # and at bag level
    ],
)
def test_a_routing_replaces_that_of_the_paper_only_where_it_gains_and_loses_at_no_level(
    bag: float, instance: float, chosen: tuple[str, float]
) -> None:
    rows = [row(PAPER, seed, bag=0.80, instance=0.80) for seed in (1, 2, 3)]
    rows += [row(RESIDUAL_ONLY, seed, bag=bag, instance=instance) for seed in (1, 2, 3)]
    assert choose(compare(rows)) == {"max": chosen}


def test_a_gain_in_one_of_three_seeds_is_no_gain() -> None:
    rows = [row(PAPER, seed, bag=0.80, instance=0.80) for seed in (1, 2, 3)]
    rows += [
        row(RESIDUAL_ONLY, seed, bag=value, instance=0.80) for seed, value in ((1, 0.98), (2, 0.79), (3, 0.79))
    ]
    (candidate,) = compare(rows)
    assert candidate.gain > 0.01
    assert not candidate.wins


def test_of_several_that_win_the_one_that_gains_most_is_chosen_over_the_seeds_it_shares_with_the_papers() -> None:
    rows = [row(PAPER, 1, bag=0.80, instance=0.80), row(RESIDUAL_ONLY, 1, bag=0.83, instance=0.80)]
    rows += [row(LIGHTER, 1, bag=0.83, instance=0.83), row(LIGHTER, 2, bag=0.1, instance=0.1)]
    assert [candidate.seeds for candidate in compare(rows)] == [(1,), (1,)]
    assert choose(compare(rows)) == {"max": LIGHTER}


def test_labels_of_bags_can_choose_otherwise_than_labels_of_instances() -> None:
    rows = [row(PAPER, 1, bag=0.80, instance=0.80), row(RESIDUAL_ONLY, 1, bag=0.80, instance=0.90)]
    rows[1] = {**rows[1], "witness_accuracy": "0.5", "witness_auroc": "0.5", "bag_nll": "0.9"}
    assert choose(compare(rows)) == {"max": RESIDUAL_ONLY}
    assert choose(compare(rows, BAG_LABELS)) == {"max": PAPER}
    assert lowest_nll(rows) == {"max": PAPER}


def test_r_and_t_are_compared_over_the_seeds_that_t_was_measured_with() -> None:
    rows = [
        row(PAPER, seed, bag=0.8, instance=0.7, t_accuracy=0.6, t_conf=conf) for seed, conf in ((1, 0.8), (2, 0.9))
    ]
    rows.append({**row(PAPER, 3, bag=0.8, instance=0.1), "t_accuracy": "", "t_conf": ""})
    ((network, variant, seeds, values),) = estimates_by_variant(rows)
    assert (network, variant, seeds) == ("max", PAPER, 2)
    assert values == pytest.approx([0.7, 0.6, 0.7, 0.85])


def table(
    probabilities: list[float], bag_ids: list[str], labels: list[int], **more: np.ndarray
) -> PredictionTable:
    """Return predictions of these probabilities of the positive class."""
    positive = torch.tensor(probabilities, dtype=torch.float64)
    count = len(probabilities)
    return PredictionTable(
        Dirichlet(torch.stack([2 - 2 * positive, 2 * positive], 1)),
        np.array(bag_ids, object),
        Labels.of(labels),
        OodFlags(np.zeros(count, bool), np.ones(count, bool)),
        np.full(count, "", object),
    )


def test_witnesses_are_what_labels_of_bags_say_of_instances() -> None:
    bags = table([0.9, 0.1, 0.9], ["b", "a", "c"], [1, 0, 1])
    instances = table(
        [0.2, 0.7, 0.6, 0.3, 0.1, 0.4],
        ["b", "b", "a", "a", "a", "c"],
        [0, 1, 0, 0, 0, 1],
    )
    expected = {"witness_accuracy": (1 / 2 + 2 / 3) / 2, "witness_auroc": 1 / 2}  # 0.7 and 0.4 against 0.6
    assert witnesses(Predictions(bags, instances)) == pytest.approx(expected)
    unknown = replace(instances, labels=Labels.unknown(6))
    assert witnesses(Predictions(bags, unknown)) == pytest.approx(expected)


def test_presets_differ_from_the_papers_in_what_their_names_say() -> None:
    assert variant_of(preset("mnist/dsmil-mirel")) == PAPER
    for name, variant in (("residual-only", RESIDUAL_ONLY), ("weight-30", LIGHTER)):
        for network in ("abmil", "gated-abmil", "dsmil", "max", "mean", "one-sided-attention"):
            ours, papers = preset(f"mnist-routing/{network}-{name}"), preset(f"mnist/{network}-mirel")
            assert variant_of(ours) == variant
            assert (ours.network, ours.settings, ours.encoder) == (papers.network, papers.settings, papers.encoder)


@pytest.mark.slow
def test_the_bags_of_the_choice_have_no_image_of_a_training_or_validation_bag(shared_data: Path) -> None:
    bags = selection_bags(shared_data)
    assert (len(bags), bags.labels.values.mean()) == (1000, 0.5)
    trained = mnist_bags(shared_data, splits=["train", "validation"])
    used, chosen = ({image.tobytes() for image in np.asarray(one.instances)} for one in (trained, bags))
    assert len(chosen) > 7000
    assert not used & chosen
