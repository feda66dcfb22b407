"""Which value of an option is its default: decided on validation bags, never on test data.

Each data set is trained on with each value; what is compared is what training minimizes on its validation bags,
NLL + error. The choices are in option_choices.py, the rule of each in the README.md of its folder in results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from miue.bags import BagDataset
from miue.common.errors import unknown_name
from miue.common.text import ResultTable
from miue.common.values import Option
from papers.mirel.measured import Row, read_measured, write_measured

FEWEST_SEEDS = 2
"""With fewer, a difference has no standard error, and counts for no side."""
MAJORITY, WORSE_BY = 2 / 3, 2.0

Bags = Callable[[Path, int], tuple[BagDataset, BagDataset]]


@dataclass(frozen=True)
class Data:
    """Bags to train on and to validate on, and how they are trained on.

    Attributes:
        bags: returns both, given the folder of files and a seed.
        encoder: a name of ``miue.ENCODERS``, or "auto".
        options: what differs from the defaults, the option that is chosen aside.
        settings: likewise.
    """

    bags: Bags
    encoder: str = "auto"
    options: dict[str, Option] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """A choice between values of an option.

    Attributes:
        option: such as "network.initial_weights".
        before: the value that stays unless another is better.
        others: which may be.
        network: that is trained.
        data: what is trained on, by name.
        methods: that are trained.
        tolerance: how much higher than before NLL + error may be on any data.
    """

    option: str
    before: Option
    others: tuple[Option, ...]
    network: str
    data: Mapping[str, Data]
    methods: tuple[str, ...] = ("deterministic", "mirel")
    tolerance: float = 0.0

    @property
    def column(self) -> str:
        """The column of the option's value."""
        return self.option.split(".")[1]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the file of results."""
        return ("data", "method", self.column, "seed", "epochs", "criterion", "constant_criterion")


@dataclass(frozen=True)
class Difference:
    """Mean over seeds of a paired difference, and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, differences: np.ndarray) -> Difference:
        """Return those of one difference per seed."""
        return cls(float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences))))

    def is_above(self, tolerance: float) -> bool:
        """Whether the difference is clear, and larger than what is tolerated."""
        return self.mean > max(WORSE_BY * self.error, tolerance)


def measure_choice(
    choice: Choice, names: Sequence[str], seeds: Sequence[int], source: Path, out: Path
) -> list[Row]:
    """Train with each value of the option; what the file ``out`` has already is not trained again.

    Args:
        choice: the option, its values, and the data.
        names: of data.
        seeds: of training, and of which bags are held out where the data have no splits.
        source: folder with the files of the data.
        out: CSV with a row for each training, written after each.

    Raises:
        ConfigError: a name of no data.
        StorageError: the files are not there.
    """
    for name in names:
        if name not in choice.data:
            raise unknown_name("data", name, choice.data)
    rows = read_measured(out)
    done = {tuple(row[column] for column in choice.columns[:4]) for row in rows}
    for name in names:
        for seed in seeds:
            train, validation = choice.data[name].bags(source, seed)
            for method in choice.methods:
                for value in (choice.before, *choice.others):
                    if (name, method, str(value), str(seed)) not in done:
                        rows.append(_measure(choice, name, method, value, seed, train, validation))
                        rows.sort(key=lambda row: tuple(row[column] for column in choice.columns[:4]))
                        write_measured(out, choice.columns, rows)
    return rows


def _measure(
    choice: Choice,
    name: str,
    method: str,
    value: Option,
    seed: int,
    train_bags: BagDataset,
    validation: BagDataset,
) -> Row:
    from miue.training.train import train

    data = choice.data[name]
    options = {**data.options, choice.option: value}
    if method == "mirel" and "network.hidden" in data.options:
        options["method.residual_hidden"] = data.options["network.hidden"]
    trained = train(
        train_bags,
        validation=validation,
        network=choice.network,
        method=method,
        encoder=data.encoder,
        settings={**data.settings, "seed": seed, "options": options, "distances": (), "device": "cpu"},
        progress=False,
    ).training
    constant = trained.constant_criterion
    measured = (str(trained.epochs), f"{trained.criterion:.5f}", f"{constant:.5f}")
    return dict(zip(choice.columns, (name, method, str(value), str(seed), *measured), strict=True))


def choice_table(choice: Choice, rows: Sequence[Row]) -> tuple[ResultTable, Option]:
    """Return NLL + error of each data set and method, and which value the rule chooses.

    Of several values that the rule lets replace the one before, the one with the lowest mean is chosen.
    """
    values: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    constant: dict[tuple[str, str], float] = {}
    for row in rows:
        pair = (row["data"], row["method"])
        values[pair][row[choice.column]][row["seed"]] = float(row["criterion"])
        constant[pair] = float(row["constant_criterion"])
    compared = [heading for value in choice.others for heading in (str(value), "difference")]
    cells_of_rows: list[tuple[str, ...]] = []
    of_values: dict[Option, list[Difference]] = {value: [] for value in choice.others}
    for pair, of_pair in values.items():
        tried = (choice.before, *choice.others)
        seeds = sorted(set.intersection(*(set(of_pair[str(value)]) for value in tried)), key=int)
        if len(seeds) < FEWEST_SEEDS:
            empty = [cell for _ in choice.others for cell in ("", "too few seeds yet")]
            cells_of_rows.append((*pair, str(len(seeds)), "", *empty, f"{constant[pair]:.3f}"))
            continue
        before = np.array([of_pair[str(choice.before)][seed] for seed in seeds])
        cells = []
        for value in choice.others:
            after = np.array([of_pair[str(value)][seed] for seed in seeds])
            difference = Difference.of(after - before)
            of_values[value].append(difference)
            cells += [f"{after.mean():.3f}", f"{difference.mean:+.3f} ± {difference.error:.3f}"]
        cells_of_rows.append((*pair, str(len(seeds)), f"{before.mean():.3f}", *cells, f"{constant[pair]:.3f}"))
    means = {
        value: sum(one.mean for one in differences)
        for value, differences in of_values.items()
        if sum(one.mean < 0 for one in differences) >= MAJORITY * len(values)
        and not any(one.is_above(choice.tolerance) for one in differences)
    }
    heading = ("data", "method", "seeds", str(choice.before), *compared, "class shares")
    return ResultTable(heading, cells_of_rows), min(means, key=lambda value: means[value], default=choice.before)
