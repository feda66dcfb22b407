"""Which initial weights of DSMIL are the default: decided on validation bags, never on test data.

Each data set is trained on with both, with softmax and with MIREL; what is compared is the value that training
minimizes on its validation bags, NLL + error. The rule is in results/initial_weights/README.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from miue.bags.dataset import BagDataset
from miue.checks.mil import SETTINGS as CHECK_SETTINGS
from miue.checks.mil_bags import MIL_TESTS
from miue.common.errors import unknown_name
from miue.common.tables import read_rows, write_rows
from miue.common.terminal import TextTable
from miue.datasets.digits import digits_bags
from miue.datasets.mnist import mnist_bags
from miue.datasets.musk import musk_bags
from miue.model.options import Option
from miue.networks.dual_stream import InitialWeights
from papers.mirel.nuclei.bags import nuclei_bags
from papers.mirel.nuclei.experiment import ENCODER, OPTIONS, SETTINGS, fold_of

PUBLISHED, OTHER = get_args(InitialWeights)
METHODS = ("deterministic", "mirel")
COLUMNS = ("data", "method", "initial_weights", "seed", "epochs", "criterion", "constant_criterion")
FEWEST_SEEDS = 2
"""With fewer, a difference has no standard error, and counts for no side."""
MAJORITY, WORSE_BY = 2 / 3, 2.0

Row = dict[str, str]
Bags = Callable[[Path, int], tuple[BagDataset, BagDataset]]


@dataclass(frozen=True)
class Data:
    """Bags to train on and to validate on, and how they are trained on.

    Attributes:
        bags: returns both, given the folder of files and a seed.
        encoder: a name of ``miue.ENCODERS``, or "auto".
        options: what differs from the defaults, DSMIL's initial weights aside.
        settings: likewise.
    """

    bags: Bags
    encoder: str = "auto"
    options: dict[str, Option] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def _split(bags: BagDataset) -> tuple[BagDataset, BagDataset]:
    return bags.split("train"), bags.split("validation")


def _fold(bags: BagDataset, seed: int) -> tuple[BagDataset, BagDataset]:
    return fold_of(bags, seed, 0)[:2]


def _vectors(_: Path, seed: int) -> tuple[BagDataset, BagDataset]:
    made = MIL_TESTS["single-concept"].bags
    return made(300, seed=seed), made(75, seed=seed + 1)


MUSK: dict[str, Any] = {
    "options": {"encoder.width": 128, "encoder.standardize": True},
    "settings": {"learning_rate": 1e-3, "bags_per_update": 1, "max_epochs": 100},
}
DATA = {
    "vectors": Data(_vectors, settings=CHECK_SETTINGS),
    "musk1": Data(lambda source, seed: _fold(musk_bags(source, 1), seed), **MUSK),
    "musk2": Data(lambda source, seed: _fold(musk_bags(source, 2), seed), **MUSK),
    "digits": Data(lambda source, seed: _split(digits_bags())),
    "nuclei": Data(lambda source, seed: _fold(nuclei_bags(source), seed), ENCODER, OPTIONS, SETTINGS),
    "mnist": Data(
        lambda source, seed: _split(mnist_bags(source)),
        "lenet",
        settings={"max_epochs": 200, "bags_per_update": 8, "lr_patience": 10, "stop_patience": 20},
    ),
}


def measure_initial_weights(names: Sequence[str], seeds: Sequence[int], source: Path, out: Path) -> list[Row]:
    """Train with both initial weights; what the file ``out`` has already is not trained again.

    Args:
        names: of ``DATA``.
        seeds: of training, and of which bags are held out where the data have no splits.
        source: folder with the files of the data.
        out: CSV with a row for each training, written after each.

    Raises:
        ConfigError: a name that is not one of ``DATA``.
        StorageError: the files are not there.
    """
    for name in names:
        if name not in DATA:
            raise unknown_name("data", name, DATA)
    rows: list[Row] = [dict(row) for row in read_rows(out)] if out.exists() else []
    done = {tuple(row[column] for column in COLUMNS[:4]) for row in rows}
    for name in names:
        for seed in seeds:
            train, validation = DATA[name].bags(source, seed)
            for method in METHODS:
                for weights in (PUBLISHED, OTHER):
                    if (name, method, weights, str(seed)) not in done:
                        rows.append(_measure(name, method, weights, seed, train, validation))
                        rows.sort(key=lambda row: tuple(row[column] for column in COLUMNS[:4]))
                        write_rows(out, COLUMNS, [[row[column] for column in COLUMNS] for row in rows])
    return rows


def _measure(
    name: str, method: str, weights: str, seed: int, train_bags: BagDataset, validation: BagDataset
) -> Row:
    from miue.training.train import train

    data = DATA[name]
    options = {**data.options, "network.initial_weights": weights}
    if method == "mirel" and "network.hidden" in data.options:
        options["method.residual_hidden"] = data.options["network.hidden"]
    trained = train(
        train_bags,
        validation=validation,
        network="dsmil",
        method=method,
        encoder=data.encoder,
        options=options,
        distances=(),
        settings={**data.settings, "seed": seed},
        progress=False,
        device="cpu",
    ).training
    constant = trained.constant_criterion
    values = (name, method, weights, str(seed), str(trained.epochs), f"{trained.criterion:.5f}", f"{constant:.5f}")
    return dict(zip(COLUMNS, values, strict=True))


def choice_table(rows: Sequence[Row]) -> tuple[TextTable, str]:
    """Return NLL + error of each data set and method, and which initial weights the rule chooses."""
    values: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    constant: dict[tuple[str, str], float] = {}
    for row in rows:
        pair = (row["data"], row["method"])
        values[pair][row["initial_weights"]][row["seed"]] = float(row["criterion"])
        constant[pair] = float(row["constant_criterion"])
    table = TextTable("data", "method", "seeds", PUBLISHED, OTHER, "difference", "class shares")
    lower, is_worse = 0, False
    for pair, of_pair in values.items():
        seeds = sorted(of_pair[PUBLISHED].keys() & of_pair[OTHER].keys(), key=int)
        if len(seeds) < FEWEST_SEEDS:
            table.add_row(*pair, str(len(seeds)), "", "", "too few seeds yet", f"{constant[pair]:.3f}")
            continue
        before, after = (np.array([of_pair[weights][seed] for seed in seeds]) for weights in (PUBLISHED, OTHER))
        difference = after - before
        mean, error = difference.mean(), difference.std(ddof=1) / np.sqrt(len(seeds))
        lower += bool(mean < 0)
        is_worse |= bool(mean > WORSE_BY * error)
        shown = (before.mean(), after.mean())
        table.add_row(
            *pair,
            str(len(seeds)),
            *(f"{value:.3f}" for value in shown),
            f"{mean:+.3f} ± {error:.3f}",
            f"{constant[pair]:.3f}",
        )
    return table, OTHER if lower >= MAJORITY * len(values) and not is_worse else PUBLISHED
