"""A table of predictions: a distribution for each bag or instance beside what is known of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from miue.bags import Coords, GroupedRows, ItemColumns, Labels, OodFlags, Outcomes, Slides
from miue.bags.rows import plain_values
from miue.common.errors import ConfigError, DataError, first_few, import_extra, unknown_name
from miue.common.text import PrintsAsTable, ResultTable, plural
from miue.distributions import MEASURES, Dirichlet, Draws, Measure, PredictiveDistribution, applicable_measures
from miue.predictions.decisions import Decisions
from miue.targets import Figure, IntervalTarget, Target

SCORE_PREFIX = "score_"
OTHER_NAMES = ("probability", "posterior_probability")
"""What flags of instances call by a name beside measures and scores."""
SHOWN = 5  # items in print
PART_ROWS = 1 << 18  # items that are held at once where a table is read part by part


@dataclass(frozen=True, eq=False, repr=False)
class PredictionTable(PrintsAsTable):
    """Predictions of one level, bags or instances, n of them.

    Attributes:
        distribution: what is predicted.
        bag_ids: the bag of each item.
        labels: class of each item, where known.
        is_ood: whether each item is out of distribution, as far as that is known.
        ood_sets: where an out-of-distribution item comes from, "" for none.
        instance: position of each instance in its bag; None for bags.
        scores: further named uncertainties, higher where less certain.
        coords: position of each instance, None where no bag has any.
        decisions: what was decided of each bag, where a calibration was applied.
        patients: whose each bag is, where known.
        patch_sizes: side of each bag's patches in level-0 pixels, 0 where unknown.
        training_parts: "train" or "validation" of a bag that the model was so made with, or another bag of its
            patient, "" of others; None where the model does not know its training bags.
        flagged: whether each instance is flagged, where a calibration of instances was applied.
        outcomes: numbers that the labels are intervals of, of a target that has them; else None.
        target: what labels mean where they are more than classes.
        slides: that each instance is of, where bags hold several.
    """

    distribution: PredictiveDistribution
    bag_ids: np.ndarray
    labels: Labels
    is_ood: OodFlags
    ood_sets: np.ndarray
    instance: Int64[np.ndarray, "n"] | None = None
    scores: Mapping[str, Float64[np.ndarray, "n"]] = field(default_factory=dict)
    coords: Coords | None = None
    decisions: Decisions | None = None
    patients: np.ndarray | None = None
    patch_sizes: Int64[np.ndarray, "n"] | None = None
    training_parts: np.ndarray | None = None
    flagged: Bool[np.ndarray, "n"] | None = None
    outcomes: Outcomes | None = None
    target: Target | None = None
    slides: Slides | None = None

    made_by: ClassVar[str] = "pass those of bags or of instances: predictions.bags, predictions.instances"

    def __len__(self) -> int:
        return len(self.bag_ids)

    @property
    def probabilities(self) -> Float64[np.ndarray, "n C"]:
        """Expected class probabilities."""
        return self.distribution.probabilities.numpy()

    @property
    def predicted(self) -> Int64[np.ndarray, "n"]:
        """The most probable class of each item."""
        return self.distribution.predicted.numpy()

    @property
    def class_in_question(self) -> Int64[np.ndarray, "n"]:
        """The class whose probability says most of an item's parts: class 1 of two, else the predicted one."""
        return self.predicted if self.distribution.num_classes > 2 else np.ones(len(self), np.int64)

    @property
    def judged(self) -> Bool[np.ndarray, "n"]:
        """The items whose class can be judged: labeled, and not known to be out of distribution."""
        return self.labels.known & ~self.is_ood.out_of_distribution

    @property
    def trained_on(self) -> Bool[np.ndarray, "n"]:
        """The bags that the model was trained on, and others of their patients: no measure of what it does."""
        parts = self.training_parts
        return np.zeros(len(self), bool) if parts is None else np.asarray(parts == "train")

    def refuse_training_bags(self, purpose: str, fix: str) -> None:
        """Raise where the model was trained on some of these bags, or on others of their patients.

        Args:
            purpose: of the bags, such as "calibrate on".
            fix: what to do instead.

        Raises:
            DataError: it was.
        """
        if self.trained_on.any():
            names = self.bag_ids[self.trained_on].astype(str).tolist()
            raise DataError(
                item=f"the bags to {purpose}",
                wanted="bags that took no part in training",
                got=f"{len(names):,} of {len(self):,} that the model was trained on, or others of their patients: "
                + first_few(map(repr, names)),
                fix=fix,
            )

    @property
    def columns(self) -> ItemColumns:
        """What is known of each item beside its prediction."""
        return ItemColumns(**{one.name: getattr(self, one.name) for one in fields(ItemColumns)})

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes, so that a prediction is right or wrong, and not numbers."""
        return not isinstance(self.target, IntervalTarget)

    def with_outcomes(self, outcomes: Outcomes) -> PredictionTable:
        """Return the table with these numbers as labels."""
        assert isinstance(self.target, IntervalTarget)
        classes = np.where(outcomes.known, self.target.classes_of(outcomes.values), 0)
        return replace(self, outcomes=outcomes, labels=Labels(classes, outcomes.known))

    def likelihoods(self) -> Float64[np.ndarray, "n"]:
        """Return the probability of each label; of one that is a lower bound, of its class and all later ones."""
        rows = np.arange(len(self))
        of_label = self.probabilities[rows, self.labels.values]
        if self.outcomes is None:
            return of_label
        later = self.probabilities[:, ::-1].cumsum(1)[:, ::-1][rows, self.labels.values]
        return np.where(self.outcomes.observed, of_label, later)

    def predicted_values(self) -> dict[str, Float64[np.ndarray, "n"]]:
        """Return what the distributions say of the label, by names of columns; nothing where it is a class."""
        if self.target is None:
            return {}
        found = self.distribution
        concentration = found.alpha.sum(1).numpy() if isinstance(found, Dirichlet) else None
        return self.target.columns(self.probabilities, concentration)

    def decided_values(self) -> dict[str, Float64[np.ndarray, "n"]]:
        """Return what was decided of the label, by names of columns; nothing where it is a class."""
        if self.target is None or self.decisions is None:
            return {}
        sets, bound = self.decisions.prediction_sets, self.decisions.time_bound
        of_sets = {} if sets is None else self.target.bounds(sets)
        return of_sets if bound is None else {**of_sets, "time_bound": bound}

    def described(self) -> list[str]:
        """Return each prediction in words, as its target has them; nothing where it is a class by its name."""
        return [] if self.target is None else self.target.describe(self.predicted_values())

    def own_figures(self) -> list[Figure]:
        """Return the figures of its own that the target has of labeled items; none where no item has a label."""
        rows = np.flatnonzero(self.judged)
        if self.target is None or self.outcomes is None or not len(rows):
            return []
        known = self.outcomes[rows]
        return self.target.figures(self.probabilities[rows], known.values, known.observed)

    def uncertainties(self) -> dict[str, Float64[np.ndarray, "n"]]:
        """Return every measure and extra score by name, higher where less certain."""
        return {name: self.uncertainty(name) for name in self.uncertainty_names}

    @property
    def uncertainty_names(self) -> list[str]:
        """Names of the measures and extra scores."""
        return list(dict.fromkeys([*applicable_measures(self.distribution), *self.scores]))

    def uncertainty(self, name: str) -> Float64[np.ndarray, "n"]:
        """Return one measure or extra score, higher where less certain.

        Raises:
            ConfigError: none of ``uncertainty_names``.
        """
        if name in self.scores:
            return self.scores[name]
        values: np.ndarray = self._measure(name).of(self.distribution).numpy()
        return values

    def _measure(self, name: str) -> Measure:
        if name not in applicable_measures(self.head.distribution):
            raise unknown_name("uncertainty", name, self.uncertainty_names)
        return MEASURES[name]

    def with_score(self, name: str, values: Any) -> PredictionTable:
        """Return the table with one more named uncertainty, or with other values of it.

        Args:
            name: of the score; its column in saved tables begins with "score_".
            values: one for each item, higher where less certain.

        Raises:
            ConfigError: the name of a measure, or none.
            DataError: not one finite number for each item.
        """
        taken = [*applicable_measures(self.distribution), *OTHER_NAMES]
        if not isinstance(name, str) or not name.strip() or name in taken:
            raise ConfigError(
                item="the name of the score",
                wanted="a text that is not the name of a measure",
                got=repr(name),
                fix="choose a name of its own",
            )
        plain = plain_values(values, f"values of score {name!r}", "item")
        numbers = np.array([one if isinstance(one, Real) else np.nan for one in plain], np.float64)
        wrong = np.flatnonzero(~np.isfinite(numbers))
        if len(wrong) or len(numbers) != len(self):
            raise DataError(
                item=f"score {name!r}",
                wanted=f"{len(self):,} finite numbers, one for each item",
                got=f"{plain[wrong[0]]!r} at item {wrong[0]}" if len(wrong) else f"{len(numbers):,}",
                fix="compute it for every item, higher where less certain",
            )
        return replace(self, scores={**self.scores, name: numbers})

    @property
    def head(self) -> PredictionTable:
        """Some of the items, for what all have in common: kind of the distribution, classes, names of scores."""
        return self

    def parts(self) -> Iterator[PredictionTable]:
        """Yield the items in order, a bounded number at a time."""
        if len(self) <= PART_ROWS:
            yield self
            return
        for start in range(0, len(self), PART_ROWS):
            yield self.subset(np.arange(start, min(start + PART_ROWS, len(self))))

    def known_parts(self) -> Iterator[PredictionTable]:
        """Yield the items as ``parts`` does, perhaps without positions and scores."""
        yield from self.parts()

    def distributions(self) -> Iterator[PredictiveDistribution]:
        """Yield the distributions of the items in order, a bounded number at a time."""
        yield from (part.distribution for part in self.parts())

    def by_bag(self) -> Iterator[tuple[str, PredictionTable]]:
        """Yield the id and the items of each bag, in the order in which bags first appear."""
        rows = self.rows_of_bags()
        members = rows.split(np.arange(len(self))) if len(self) else []
        yield from zip(rows.names, map(self.subset, members), strict=True)

    def bag_sizes(self) -> dict[str, int]:
        """Return the number of items of each bag, in the order in which bags first appear."""
        rows = self.rows_of_bags()
        return dict(zip(rows.names, np.bincount(rows.bag).tolist(), strict=True))

    def slides_of_bags(self) -> dict[str, dict[str, int]]:
        """Return how many instances of each bag are of each slide, in order; nothing where no bag has slides."""
        if self.slides is None:
            return {}
        sizes, rows = self.bag_sizes(), self.in_order(list(self.bag_sizes()))
        assert rows.slides is not None
        return dict(zip(sizes, rows.slides.of_bags(list(sizes.values())), strict=True))

    def per_slide(self) -> PredictionTable:
        """Return the instances with the slide of each in place of its bag."""
        if self.slides is None:
            return self
        known = self.slides.numbers >= 0
        return replace(self, bag_ids=np.where(known, self.slides.texts, self.bag_ids), slides=None)

    def flagged_by_bag(self) -> dict[str, int] | None:
        """Return how many items of each bag are flagged, None where the items have no flags."""
        counts: dict[str, int] = {}
        for flagged, bags in self._flags():
            if flagged is None:
                return None
            found = np.bincount(bags.bag[flagged], minlength=len(bags.names)).tolist()
            for name, count in zip(bags.names, found, strict=True):
                counts[name] = counts.get(name, 0) + count
        return counts

    def _flags(self) -> Iterator[tuple[Bool[np.ndarray, "part"] | None, GroupedRows]]:
        """Yield the flags of the items in order, and their bags, a bounded number at a time."""
        yield from ((part.flagged, part.rows_of_bags()) for part in self.parts())

    def rows_of_bags(self) -> GroupedRows:
        """Return the bags, in the order in which they first appear, and the bag of each item."""
        ids = self.bag_ids
        if not len(ids):
            return GroupedRows.of(ids)
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        runs = GroupedRows.of(ids[starts])  # mostly as many as bags
        return GroupedRows(runs.names, np.repeat(runs.bag, np.diff(starts, append=len(ids))))

    def of_bags(self, names: Collection[str]) -> PredictionTable:
        """Return the items of some bags."""
        return self.subset(np.flatnonzero(np.isin(self.bag_ids.astype(str), list(names))))

    def in_order(self, names: Sequence[str]) -> PredictionTable:
        """Return the items bag after bag and slide after slide, the bags in the order of ``names``, of all."""
        bag = self.rows_of_bags().places({name: number for number, name in enumerate(names)})
        if self.slides is not None:
            bag = bag * (len(self.slides.names) + 1) + self.slides.numbers % (len(self.slides.names) + 1)
        return self if (np.diff(bag) >= 0).all() else self.subset(bag.argsort(kind="stable"))

    @classmethod
    def concatenate(cls, tables: Sequence[PredictionTable]) -> PredictionTable:
        """Return the items of all tables, which have the same kind of distribution and the same scores.

        Decisions are those of all bags together, so that the tables have none.
        """
        first = tables[0]
        if len(tables) == 1:
            return first
        numbers = [table.instance for table in tables if table.instance is not None]
        flags = [table.flagged for table in tables if table.flagged is not None]
        return PredictionTable(
            distribution=type(first.distribution).concatenate([table.distribution for table in tables]),
            bag_ids=np.concatenate([table.bag_ids for table in tables]),
            instance=np.concatenate(numbers) if len(numbers) == len(tables) else None,
            scores={name: np.concatenate([table.scores[name] for table in tables]) for name in first.scores},
            flagged=np.concatenate(flags) if len(flags) == len(tables) else None,
            target=first.target,
            **ItemColumns.concatenate([table.columns for table in tables]).columns(),
        )

    def tempered(self, temperature: float) -> PredictionTable:
        """Return the table with its distribution at a temperature above 0."""
        return replace(self, distribution=self.distribution.tempered(temperature))

    def subset(self, rows: Int64[np.ndarray, "m"]) -> PredictionTable:
        """Return the items of the given rows."""
        return PredictionTable(
            distribution=self.distribution.subset(torch.from_numpy(rows)),
            bag_ids=self.bag_ids[rows],
            instance=None if self.instance is None else self.instance[rows],
            scores={name: values[rows] for name, values in self.scores.items()},
            decisions=None if self.decisions is None else self.decisions.subset(rows),
            training_parts=None if self.training_parts is None else self.training_parts[rows],
            flagged=None if self.flagged is None else self.flagged[rows],
            target=self.target,
            **self.columns.subset(rows).columns(),
        )

    def known_columns(self) -> dict[str, Any]:
        """Return positions, labels and out-of-distribution flags as columns of pyarrow, null where unknown."""
        import pyarrow as pa

        columns: dict[str, Any] = {}
        if self.slides is not None:
            columns["slide"] = pa.array(self.slides.texts, pa.string())
        if self.instance is not None:
            columns["instance"] = self.instance
        if self.coords is not None:
            places = zip("xy", self.coords.values.T, strict=True)
            columns.update({axis: pa.array(values, mask=~self.coords.known) for axis, values in places})
        columns["label"] = pa.array(self.labels.values, mask=~self.labels.known)
        columns["is_ood"] = pa.array(self.is_ood.values, mask=~self.is_ood.known)
        columns["ood_set"] = pa.array(self.ood_sets, pa.string())
        return columns

    def to_arrow(self) -> Any:
        """Return the table as it is written (a pyarrow table)."""
        import pyarrow as pa

        dirichlet = isinstance(self.distribution, Dirichlet)
        columns: dict[str, Any] = {"bag_id": pa.array(self.bag_ids, pa.string())}
        if self.patients is not None:
            columns["patient"] = pa.array(self.patients, pa.string())
        if self.patch_sizes is not None:
            columns["patch_size"] = self.patch_sizes
        if self.training_parts is not None and any(self.training_parts):
            columns["training_part"] = pa.array(self.training_parts, pa.string())
        columns |= self.known_columns()
        if self.outcomes is not None:
            columns["outcome"] = pa.array(self.outcomes.values, mask=~self.outcomes.known)
            columns["observed"] = pa.array(self.outcomes.observed, mask=~self.outcomes.known)
        if self.target is not None:
            columns |= self.predicted_values()
        if dirichlet:
            columns |= parameter_columns(self.distribution)
        for c, probability in enumerate(self.probabilities.T):
            columns[f"p_{c}"] = probability if not dirichlet else probability.astype(np.float32)
        columns["predicted"] = self.predicted
        for name, values in self.uncertainties().items():
            exact = name == "expected_entropy" and isinstance(self.distribution, Draws)  # read back as a parameter
            columns[uncertainty_column(name)] = values if exact else values.astype(np.float32)
        if self.decisions is not None:
            columns.update(self.decisions.columns())
            columns |= self.decided_values()
        if self.flagged is not None:
            columns["flagged"] = self.flagged
        return pa.table(columns)

    def to_frame(self) -> Any:
        """Return the table as a pandas DataFrame.

        Raises:
            ConfigError: pandas is not installed.
        """
        import_extra("pandas", "a data frame", "pandas")
        return self.to_arrow().to_pandas()

    def tables(self) -> Iterator[ResultTable]:
        """Return the first items, with their class and their uncertainty."""
        head = self.head
        first = head.subset(np.arange(min(SHOWN, len(head)))) if len(self) else self
        known, labels = first.labels.known, first.labels.values
        columns: dict[str, list[str]] = {"bag": first.bag_ids.astype(str).tolist()}
        if first.instance is not None:
            columns["instance"] = [f"{number}" for number in first.instance]
        columns["label"] = [str(label) if is_known else "" for label, is_known in zip(labels, known, strict=True)]
        columns["predicted"] = [str(label) for label in first.predicted]
        columns["probability"] = [f"{p:.4f}" for p in first.probabilities.max(1, initial=0.0)]
        for name, values in first.uncertainties().items() if len(self) else ():
            if name in ("entropy", "mutual_information", "vacuity"):
                columns[name.replace("_", " ")] = [f"{value:.4f}" for value in values]
        if first.decisions is not None:
            columns["decision"] = first.decisions.decision.astype(str).tolist()
        if first.flagged is not None:
            columns["flagged"] = first.flagged.astype(str).tolist()
        kind = type(first.distribution).__name__.lower()
        items = plural(len(self), "bag" if first.instance is None else "instance")
        note = f"{items}, {first.distribution.num_classes} classes, {kind}; all columns: to_frame()"
        yield ResultTable(tuple(columns), tuple(zip(*columns.values(), strict=True)), (note,))


def uncertainty_column(name: str) -> str:
    """Return the column of a measure or score in tables: the name of a measure is its own.

    >>> uncertainty_column("vacuity"), uncertainty_column("knn")
    ('vacuity', 'score_knn')
    """
    return name if name in MEASURES else SCORE_PREFIX + name


def parameter_columns(distribution: PredictiveDistribution) -> dict[str, Float64[np.ndarray, "n"]]:
    """Return the parameters of a distribution by the names of their columns."""
    prefix, values = (
        ("alpha_", distribution.alpha)
        if isinstance(distribution, Dirichlet)
        else ("p_", distribution.probabilities)
    )
    columns = {f"{prefix}{c}": column for c, column in enumerate(values.numpy().T)}
    if isinstance(distribution, Draws):
        columns["expected_entropy"] = distribution.expected_entropy().numpy()
    return columns
