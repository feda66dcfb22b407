"""Cross-validations of several labels on the same folds, and the means over the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from miue.bags import BagDataset
from miue.common.errors import lacking
from miue.common.label_folders import of_label, open_label_folders
from miue.common.outputs import locked
from miue.common.tasks import Shard
from miue.common.text import PrintsAsTable, ResultTable
from miue.common.values import checked
from miue.evaluation import units
from miue.io import Splits, write_splits
from miue.model import Recipe
from miue.selection.cross_validation import DEFAULT, cross_validate, values_of_run, write_tables
from miue.selection.summaries import FoldShares, Summaries, Value
from miue.settings import RunSettings

MEAN = "mean"
SHOWN = ("accuracy", "balanced_accuracy", "auroc", "ece", "nll")


class LabelSummaries(PrintsAsTable, dict[str, Summaries]):
    """The cross-validation of each label by its name, and under "mean" that of the means over labels."""

    def tables(self) -> tuple[ResultTable]:
        """Return the first metrics of bags, with a row for each label."""
        rows = []
        for label, one in self.items():
            cells = {summary.metric: summary.in_words() for summary in one if summary.level == "bags"}
            rows.append((label, *(cells.get(name, "—") for name in SHOWN)))
        said = "Mean ± standard deviation over runs; the last row is of the means over labels (macro average)."
        return (ResultTable(("bags", *SHOWN), tuple(rows), (units(), said)),)


@checked()
def cross_validate_labels(
    bags: BagDataset,
    splits: Splits,
    seeds: Sequence[int],
    out: Path | str,
    recipe: Recipe = DEFAULT,
    *,
    settings: RunSettings | Mapping[str, Any] | None = None,
    shard: Shard | None = None,
    progress: bool = True,
) -> LabelSummaries:
    """Cross-validate each of several labels on the same folds, into a folder for each, as ``cross_validate`` does.

    A bag whose label is unknown takes no part in the cross-validation of that label. The metrics of all labels are
    averaged in each run (macro average) and then over runs; one that is undefined for a label is left out there.
    The folder also gets splits.csv, and runs.csv and summary.csv of these means.

    Raises:
        ConfigError, DataError, StorageError: as there; an error of one label names it.
    """
    out, parts = Path(out), bags.by_label()
    if not parts:
        raise lacking("the bags", "several labels each", "pass them by with_label_sets")
    with locked(out, wait=True):
        folders = open_label_folders(out, parts, overwrite=False, resume=True)
    found = LabelSummaries()
    for label, of_bags in parts.items():
        known = of_bags.subset(np.flatnonzero(of_bags.labels.known))
        own, _ = splits.without_absent(known)
        with of_label(label):
            found[label] = cross_validate(
                known, own, seeds, folders[label], recipe, settings=settings, shard=shard, progress=progress
            )
    if not all(found.values()):
        return LabelSummaries()
    values: dict[tuple[int, int, str, str], list[float | None]] = {}
    for folder in folders.values():
        for run in product(range(len(splits)), seeds):
            for one in values_of_run(folder, *run):
                values.setdefault((*run, one.level, one.metric), []).append(one.value)
    means = [Value(*key, _mean(of_labels)) for key, of_labels in values.items() if len(of_labels) == len(parts)]
    folds = [splits.assign(bags, fold).splits for fold in range(len(splits))]
    with locked(out, wait=True):
        write_splits(out / "splits.csv", splits, bags)
        found[MEAN] = write_tables(out, means, FoldShares.of(bags.labels.known.tolist(), folds))
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None
