"""What an evaluation gives: metrics of each level, as values, data frames, JSON, and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from miue.calibration import describe_negative_class
from miue.common.errors import ConfigError, import_extra
from miue.common.text import PrintsAsTable, ResultTable
from miue.evaluation.decisions import DecisionEvaluation, GroupEvaluation
from miue.evaluation.instances import FlagEvaluation, applied_negative_class
from miue.evaluation.level import LevelEvaluation
from miue.evaluation.metrics import Metric
from miue.evaluation.tables import decision_table, group_tables, instance_table, level_table
from miue.predictions import UNKNOWN, Provenance

NO_GROUP = "no group"
"""Name of the group of bags whose group is not known."""


@dataclass(frozen=True, repr=False)
class Evaluation(PrintsAsTable):
    """Evaluation of bags and, where they were predicted, of instances; of decisions and patients, if any.

    It prints as a table, in a notebook as one of HTML.

    Attributes:
        bags: metrics of bags.
        instances: metrics of instances; None where they were not predicted.
        decisions: how the decisions came out; None where there are none.
        patients: metrics of patients with several bags; None where no patient has several bags.
        provenance: what made the predictions.
        froc: sensitivity for instances at rates of false positives per negative bag; None without instance labels.
        flags: what the flags of instances came to; None where there are none.
        groups: evaluation of the bags of each group, such as a hospital; None where none were named.
    """

    bags: LevelEvaluation
    instances: LevelEvaluation | None
    decisions: DecisionEvaluation | None = None
    patients: LevelEvaluation | None = None
    provenance: Provenance = UNKNOWN
    froc: Mapping[str, Metric] | None = None
    flags: FlagEvaluation | None = None
    groups: Mapping[str, GroupEvaluation] | None = None

    def tables(self) -> Iterator[ResultTable]:
        """Return the table of the levels, and of decisions, instances and groups where there are any."""
        yield level_table(self.levels(), self.class_names)
        if self.decisions is not None:
            yield decision_table(self.decisions, self.class_names, is_numeric=self.bags.is_numeric)
        yield from self.further_tables()

    def further_tables(self) -> Iterator[ResultTable]:
        """Return the tables of instances, positive against negative, and of groups, where there are any."""
        if self.froc is not None or self.flags is not None:
            negative = describe_negative_class(self.class_names, applied_negative_class(self.provenance))
            yield instance_table(self.froc, self.flags, negative)
        if self.groups is not None:
            yield from group_tables(self.groups, self.class_names)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes in order, their numbers where they are not known."""
        return self.provenance.classes or tuple(self.bags.recall_by_class)

    def levels(self) -> dict[str, LevelEvaluation]:
        """Return those that there are of "bags", "instances" and "patients"."""
        every = {"bags": self.bags, "instances": self.instances, "patients": self.patients}
        return {name: level for name, level in every.items() if level is not None}

    def metrics(self) -> Iterator[tuple[str, str, Metric]]:
        """Yield level, name and metric of every one; Conf. and OOD of the measures that the paper uses."""
        for name, level in self.levels().items():
            yield from ((name, metric, one) for metric, one in level.named_metrics(self.class_names))
        yield from (("instances", name, metric) for name, metric in (self.froc or {}).items())
        if self.flags is not None:
            yield from (("instances", f"flags_{name}", metric) for name, metric in self.flags.metrics.items())

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with level, metric, value and, where it is undefined, the reason.

        Metrics of groups are in ``groups_to_frame``, those of every measure and score in ``measures_to_frame``.

        Raises:
            ConfigError: pandas is not installed.
        """
        rows = [{"level": level, "metric": name, **asdict(one)} for level, name, one in self.metrics()]
        return as_frame(rows, "level", "metric")

    def measures_to_frame(self) -> Any:
        """Return a pandas DataFrame with how well each measure and score separates, a row for each metric of it.

        Columns are level ("bags", "instances", "patients"), measure, task ("errors", or "ood NAME" of an
        out-of-distribution set), metric ("auroc", "aupr", "aupr_unwanted", "fpr95"), value and, where it is
        undefined, the reason.

        Raises:
            ConfigError: pandas is not installed.
        """
        rows = [
            {"level": name, "measure": measure, "task": task, "metric": metric, **one}
            for name, level in self.levels().items()
            for measure, found in level.by_measure.items()
            for task, separation in [
                ("errors", found.confidence),
                *((f"ood {ood_set}", separation) for ood_set, separation in found.ood.items()),
            ]
            for metric, one in asdict(separation).items()
        ]
        return as_frame(rows, "level", "measure", "task", "metric")

    def groups_to_frame(self) -> Any:
        """Return a pandas DataFrame with group, metric, value and, where it is undefined, the reason.

        Every group has a row for each metric of bags, for both ends of the exact intervals of accuracy and recalls
        ("accuracy_low") and, where bags have decisions, for what they came to ("decisions_accepted").

        Raises:
            ConfigError: bags were not evaluated by group, or pandas is not installed.
        """
        if self.groups is None:
            fix = "pass evaluate the group of each bag by its name, as groups"
            raise ConfigError(item="the evaluation", wanted="groups of bags", got="none", fix=fix)
        rows = [
            {"group": group, "metric": name, **asdict(metric)}
            for group, one in self.groups.items()
            for name, metric in one.named_metrics(self.class_names)
        ]
        return as_frame(rows, "group", "metric")

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; an undefined metric is null with its reason beside it."""
        return {
            "provenance": self.provenance.to_json(),
            "bags": as_plain(asdict(self.bags)),
            "instances": self.instances and as_plain(asdict(self.instances)),
            "decisions": self.decisions and as_plain(asdict(self.decisions)),
            "patients": self.patients and as_plain(asdict(self.patients)),
            "froc": self.froc and as_plain({name: asdict(metric) for name, metric in self.froc.items()}),
            "flags": self.flags and as_plain(asdict(self.flags)),
            "groups": self.groups and {name: as_plain(asdict(one)) for name, one in self.groups.items()},
        }


def as_plain(value: Any) -> Any:
    """Return metrics as JSON values: a number, or null with the reason beside it."""
    if isinstance(value, dict):
        if set(value) == {"value", "reason"}:
            return value["value"] if value["value"] is not None else {"value": None, "reason": value["reason"]}
        return {key: as_plain(item) for key, item in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def as_frame(rows: Sequence[Mapping[str, Any]], *keys: str) -> Any:
    """Return a pandas DataFrame of metrics, whose values are numbers even where all are undefined."""
    return (
        import_extra("pandas", "a data frame", "pandas")
        .DataFrame(rows, columns=[*keys, "value", "reason"])
        .astype({"value": float})
    )
