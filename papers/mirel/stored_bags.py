"""What is kept of the test bags of a run beside its numbers: predictions, and the numbers of bags drawn again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float64

from miue.common.files import atomic_file
from miue.evaluation.bootstrap import resampled_metrics
from miue.evaluation.level import detection_score, error_measure
from miue.predictions import Predictions, PredictionTable, uncertainty_column
from miue.predictions.read import read_table
from miue.predictions.table import parameter_columns

RESAMPLES = 1000
KEPT = ("accuracy", "auroc", "confidence", "errors", "ood ", "detection ")
"""What the names of the metrics begin with whose resamples are kept."""

DIGITS = 10_000  # of a resampled metric, which is kept as a whole number

Resamples = Mapping[str, Float64[np.ndarray, "resamples"]]


def bags_path(results: Path) -> Path:
    """Return the file of the test bags' predictions that a file of results is of."""
    return results.with_name(f"{results.stem}-bags.parquet")


def resamples_path(results: Path) -> Path:
    """Return the file of the numbers in resamples of the test bags, beside a file of results."""
    return results.with_name(f"{results.stem}-resamples.parquet")


def write_bags(path: Path, bags: PredictionTable) -> None:
    """Write what the metrics of bags are computed from, in single precision."""
    columns: dict[str, Any] = {
        "bag_id": pa.array(bags.bag_ids, pa.string()),
        "label": pa.array(bags.labels.values.astype(np.int8), mask=~bags.labels.known),
        "is_ood": pa.array(bags.is_ood.values, mask=~bags.is_ood.known),
        "ood_set": pa.array(bags.ood_sets, pa.string()).dictionary_encode(),
    }
    scores = {error_measure(bags), detection_score(bags)} & set(bags.scores)
    numbers = parameter_columns(bags.distribution) | {
        uncertainty_column(name): bags.scores[name] for name in scores
    }
    _write(path, columns | {name: values.astype(np.float32) for name, values in sorted(numbers.items())})


def read_bags(path: Path) -> PredictionTable:
    """Return predictions that ``write_bags`` has written."""
    return read_table(path)


def resample_test_bags(predictions: Predictions, estimator: str) -> dict[str, Float64[np.ndarray, "resamples"]]:
    """Return the metrics of bags, and of instances by an estimator, in resamples of the test bags.

    The same seed draws the same bags for every preset and training, so that differences are paired.
    """
    found: dict[str, Float64[np.ndarray, "resamples"]] = {}
    for level, table in (("bag", predictions.bags), (f"instance, {estimator}", predictions.instances)):
        if table is not None:
            drawn = resampled_metrics(table, {}, resamples=RESAMPLES, seed=0)
            found |= {f"{level}, {name}": drawn[name] for name in drawn if name.startswith(KEPT)}
    return found


def write_resamples(path: Path, resamples: Resamples) -> None:
    """Write resampled metrics, shares of 1, to four digits; −1 where one is undefined."""
    _write(
        path,
        {
            name: np.nan_to_num((values * DIGITS).round(), nan=-DIGITS).astype(np.int16)
            for name, values in resamples.items()
        },
    )


def read_resamples(path: Path) -> Resamples:
    """Return what ``write_resamples`` has written."""
    table = pq.read_table(path)
    shares = {name: table[name].to_numpy() / DIGITS for name in table.column_names}
    return {name: np.where(values < 0, np.nan, values) for name, values in shares.items()}


def _write(path: Path, columns: Mapping[str, Any]) -> None:
    with atomic_file(path) as temporary:
        pq.write_table(pa.table(dict(columns)), temporary, compression="zstd", compression_level=19)
