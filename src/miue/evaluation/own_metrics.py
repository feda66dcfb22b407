"""Metrics that a user brings: functions of the labeled items of a level."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real

import numpy as np
import torch

from miue.common.errors import ConfigError, wrong_type
from miue.evaluation.class_metrics import METRICS
from miue.evaluation.metrics import NO_LABEL, Metric
from miue.predictions.table import PredictionTable

OwnMetric = Callable[[PredictionTable], float]
"""A function of the items of a level that have a label and are not known to be out of distribution."""

NOT_FINITE = "the function returned no finite number"
OTHERS = ("confidence_auroc", "froc")
BUILT_IN_PREFIXES = ("recall_", "ood_", "flags_", "sensitivity_at_")


def is_built_in(name: str) -> bool:
    """Return whether a metric of this name is, or can be, one of miue.

    >>> is_built_in("accuracy"), is_built_in("ood_kmnist_auroc"), is_built_in("f1")
    (True, True, False)
    """
    return name in METRICS or name in OTHERS or name.startswith(BUILT_IN_PREFIXES)


def check_own_metrics(metrics: object) -> None:
    """Check that metrics of a user are functions, under names that no metric of miue has.

    Raises:
        ConfigError: they are not.
    """
    if not isinstance(metrics, Mapping):
        raise wrong_type("metrics", "functions by their names", metrics, 'pass {"NAME": function}')
    for name, function in metrics.items():
        if not isinstance(name, str) or not name.strip():
            raise wrong_type("a metric's name", "a text", name, 'pass {"NAME": function}')
        if not callable(function):
            raise wrong_type(f"metric {name!r}", "a function of a table", function, "pass the function itself")
        if is_built_in(name):
            raise ConfigError(
                item=f"metric {name!r}",
                wanted="a name of its own",
                got="one that miue has or may have",
                fix="choose another name",
            )


def own_metrics(
    metrics: Mapping[str, OwnMetric], table: PredictionTable, unlabeled: str = NO_LABEL
) -> dict[str, Metric]:
    """Return the value of each metric, undefined where it is not finite or no item has a label.

    Args:
        metrics: functions by their names, checked.
        table: predictions of a level; the functions are given the items with a label that are not known to be out
            of distribution.
        unlabeled: why there are no metrics, where no item has a label.

    Raises:
        ConfigError: a function returns something else than a number.
    """
    judged = np.flatnonzero(table.judged) if metrics else np.empty(0, np.int64)
    if not len(judged):
        return dict.fromkeys(metrics, Metric.undefined(unlabeled))
    known = table.subset(judged)
    return {name: _value(name, function, known) for name, function in metrics.items()}


def _value(name: str, function: OwnMetric, table: PredictionTable) -> Metric:
    try:
        found: object = function(table)
    except Exception as error:
        error.add_note(f"in metric {name!r}; where it is undefined, return NaN")
        raise
    if isinstance(found, np.ndarray | torch.Tensor) and found.ndim == 0:
        found = found.item()
    if not isinstance(found, Real):
        raise wrong_type(f"metric {name!r}", "a number from its function", found, "return a number")
    return Metric(float(found)) if math.isfinite(found) else Metric.undefined(NOT_FINITE)
