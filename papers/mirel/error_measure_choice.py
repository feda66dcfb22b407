"""Which measure detects errors: the one with the highest mean Conf. over networks on validation bags.

The bags are those on which routings were chosen: drawn as the validation bags of MNIST-bags are, from training
images that no training or validation bag contains. Labels of instances are used for the choice alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from miue.bags import BagDataset
from miue.common.text import ResultTable
from miue.distributions.measures import MEASURES
from miue.evaluation import evaluate
from miue.methods import BAG_OF_ONE, RESIDUAL
from miue.model import Model
from miue.predictions import ERROR_PROBABILITY
from papers.mirel.measured import Row, read_measured, write_measured
from papers.mirel.paths import Paths
from papers.mirel.preset import preset
from papers.mirel.routing_choice import selection_bags
from papers.mirel.trained import load_trained

BAGS = "bags"
COLUMNS = ("preset", "seed", "network", "predicted", "measure", "conf")


def measure_errors(names: Sequence[str], seeds: Sequence[int], paths: Paths, out: Path) -> list[Row]:
    """Return Conf. of every measure on validation bags; what the file ``out`` has already is not measured again.

    Args:
        names: of presets of MNIST-bags with MIREL.
        seeds: of training.
        paths: of data and trained models.
        out: CSV with the rows of each preset and seed, written after each.

    Raises:
        StorageError: a preset has not been trained with a seed.
    """
    rows, bags = read_measured(out), selection_bags(paths.source)
    done = {(row["preset"], row["seed"]) for row in rows}
    for name in names:
        for seed in seeds:
            if (name, str(seed)) not in done:
                trained = load_trained(name, seed, paths)
                model = replace(trained.model, distances={}).with_validation(trained.bags.split("validation"))
                found = {"preset": name, "seed": str(seed), "network": preset(name).network}
                rows += [{**found, **values} for values in conf_by_measure(model, bags)]
                write_measured(out, COLUMNS, rows)
    return rows


def conf_by_measure(model: Model, bags: BagDataset) -> Iterator[Row]:
    """Yield Conf. of each measure, of bags, and of instances by R and by T."""
    for estimator in (RESIDUAL, BAG_OF_ONE):
        evaluation = evaluate(model.predict(bags, estimator=estimator))
        levels = {estimator: evaluation.instances}
        if estimator == RESIDUAL:
            levels[BAGS] = evaluation.bags
        for predicted, level in levels.items():
            assert level is not None
            for measure, separations in level.by_measure.items():
                conf = separations.confidence.auroc.value
                if measure in (*MEASURES, ERROR_PROBABILITY) and conf is not None:
                    yield {"predicted": predicted, "measure": measure, "conf": f"{conf:.5f}"}


def means(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the mean Conf. over seeds by what is predicted, measure and network."""
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        values[row["predicted"], row["measure"], row["network"]].append(float(row["conf"]))
    found: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for (predicted, measure, network), of_seeds in values.items():
        found[predicted][measure][network] = float(np.mean(of_seeds))
    return found


def chosen_measures(rows: Sequence[Row]) -> dict[str, str]:
    """Return the measure with the highest mean over networks, for bags and for instances by R and by T."""
    return {
        predicted: max(by_measure, key=lambda measure: np.mean(list(by_measure[measure].values())))
        for predicted, by_measure in means(rows).items()
    }


def choice_tables(rows: Sequence[Row]) -> Iterator[tuple[str, ResultTable]]:
    """Yield what is predicted, and Conf. in % of each measure for each network, the best measure first."""
    chosen = chosen_measures(rows)
    for predicted, by_measure in means(rows).items():
        networks = sorted({network for of in by_measure.values() for network in of})
        table = []
        overall = {measure: float(np.mean(list(of.values()))) for measure, of in by_measure.items()}
        for measure in sorted(overall, key=lambda name: -overall[name]):
            values = [*(by_measure[measure][name] for name in networks), overall[measure]]
            cells = [f"{100 * value:.1f}" for value in values]
            table.append((measure, *cells, "yes" if measure == chosen[predicted] else ""))
        yield predicted, ResultTable(("measure", *networks, "mean", "chosen"), table)
