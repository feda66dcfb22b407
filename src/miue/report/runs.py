"""Predictions side by side: named, checked against each other, and set on the same bags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int64

from miue.bags import Labels, OodFlags, Outcomes, PartlyKnown
from miue.bags.classes import quoted_order
from miue.calibration import Calibration, applied_calibration
from miue.common.errors import DataError
from miue.common.text import plural
from miue.predictions import Predictions, Provenance

# What is of one training and its predictions, and not of the method
OF_ONE_TRAINING = {
    "seed",
    "epochs",
    "best_epoch",
    "criterion",
    "version",
    "bags",
    "split",
    "weights_sha256",
    "calibration",
    "validation",
    "dataset_shift",
}
LISTED = 5  # bags named in a note
Truth = TypeVar("Truth", bound=PartlyKnown)
APART = "report predictions of the same classes together, the others by themselves"


@dataclass(frozen=True)
class Run:
    """Predictions of one trained model.

    Attributes:
        name: of the method; runs of one name are its seeds.
        seed: of the training, "" where unknown.
        source: the folder or file that they were read from.
        predictions: of bags and, perhaps, of instances.
    """

    name: str
    seed: str
    source: str
    predictions: Predictions

    @property
    def title(self) -> str:
        """Name and seed."""
        return f"{self.name}, seed {self.seed}" if self.seed else self.name

    @cached_property
    def rules(self) -> Calibration | None:
        """The calibration that they were decided by, None without one."""
        return applied_calibration(self.predictions.provenance)


@dataclass(frozen=True)
class Comparison:
    """Runs whose predictions may be set side by side.

    Attributes:
        runs: each with the truth that is known of its bags from any of them.
        shared: the same, restricted to the bags that all of them have; metrics and figures are of these.
        bag_ids: every bag of any run, in order of first appearance.
        rows: for each run the row of each bag in its table, −1 where it lacks the bag.
        labels: of every bag, where any run knows it.
        outcomes: numbers that the labels are intervals of, likewise; None where labels are classes.
        is_ood: whether every bag is out of distribution, likewise.
        ood_sets: the out-of-distribution set of every bag, "" for none.
        class_names: name of each class.
        notes: what a reader should know of what is missing or was made equal.
        absent: what is not shown since the data do not have it, as is usual.
    """

    runs: tuple[Run, ...]
    shared: tuple[Run, ...]
    bag_ids: np.ndarray
    rows: tuple[Int64[np.ndarray, "B"], ...]
    labels: Labels
    outcomes: Outcomes | None
    is_ood: OodFlags
    ood_sets: np.ndarray
    class_names: tuple[str, ...]
    notes: tuple[str, ...]
    absent: tuple[str, ...] = ()


def named_runs(found: Sequence[tuple[str, Predictions]], names: Sequence[str] = ()) -> tuple[Run, ...]:
    """Return a run for each (source, predictions), named after what made it, or as ``names`` say.

    Runs that look the same but for the seed share their name; the source is added where a seed would be
    twice under one name, or where something else differs.

    Raises:
        DataError: two of one name and seed.
    """
    sources = [source for source, _ in found]
    titles = list(names) or [_made_by(p.provenance) or source for source, p in found]
    seeds = ["" if p.provenance.seed is None else str(p.provenance.seed) for _, p in found]
    if not names:
        kinds = {(t, _what_stays(p.provenance)) for t, (_, p) in zip(titles, found, strict=True)}
        of_title, of_seed = Counter(title for title, _ in kinds), Counter(zip(titles, seeds, strict=True))
        unclear = {title for title, count in of_title.items() if count > 1}
        unclear |= {title for (title, _), count in of_seed.items() if count > 1}
        titles = [f"{t} ({s})" if t in unclear else t for t, s in zip(titles, sources, strict=True)]
    (title, seed), count = Counter(zip(titles, seeds, strict=True)).most_common(1)[0]
    if count > 1:
        raise DataError(
            item=f"predictions named {title!r}",
            wanted="different seeds under one name",
            got=f"{count} with {f'seed {seed}' if seed else 'no seed'}",
            fix="leave out a double, or pass names=NAME, a different one for each",
        )
    return tuple(Run(t, s, f[0], f[1]) for t, s, f in zip(titles, seeds, found, strict=True))


def _made_by(provenance: Provenance) -> str:
    changed = [f"{key}={value}" for key, value in (provenance.options or {}).items()]
    return ", ".join([" ".join(filter(None, (provenance.network, provenance.method))), *changed])


def _what_stays(provenance: Provenance) -> str:
    of_one = OF_ONE_TRAINING if provenance.target is None else OF_ONE_TRAINING | {"classes", "target"}
    return str(sorted((name, str(value)) for name, value in provenance.facts().items() if name not in of_one))


def compare(runs: Sequence[Run], class_names: Sequence[str] = ()) -> Comparison:
    """Return the runs set on the same bags.

    Args:
        runs: at least one.
        class_names: of a store; else those that the predictions carry, else the class indices.

    Raises:
        DataError: different classes, a bag with two labels, or no bag that all runs have.
    """
    has_classes = all(run.predictions.bags.has_classes for run in runs)
    classes = _class_names(runs, class_names) if has_classes else _intervals(runs)
    ids = dict.fromkeys(str(one) for run in runs for one in run.predictions.bags.bag_ids)
    bag_ids = np.array(list(ids), object)
    row_of = [{str(one): row for row, one in enumerate(run.predictions.bags.bag_ids)} for run in runs]
    rows = tuple(np.array([known.get(name, -1) for name in bag_ids], np.int64) for known in row_of)
    tables, words = [run.predictions.bags for run in runs], ("in distribution", "out of distribution")
    is_ood = _known_to_any(runs, rows, bag_ids, [table.is_ood for table in tables], lambda n: words[int(n)])
    outcomes = None
    if has_classes:
        labels = _known_to_any(runs, rows, bag_ids, [table.labels for table in tables], lambda n: f"label {n}")
    else:
        numbers = [table.outcomes or Outcomes.unknown(len(table)) for table in tables]
        outcomes = _known_to_any(runs, rows, bag_ids, numbers, lambda n: f"label {n:g}")
        labels = Labels(np.zeros(len(bag_ids), np.int64), outcomes.known)
    sets, notes = np.full(len(bag_ids), "", object), []
    for run, row, table in zip(runs, rows, tables, strict=True):
        is_out = table.is_ood.out_of_distribution[row] & (row >= 0)
        sets = np.where(is_out & (sets == ""), table.ood_sets[row], sets)
        for what, theirs, known in (
            ("labels", table.labels, labels),
            ("flags is_ood", table.is_ood, is_ood),
        ):
            if fewer := int(((row >= 0) & known.known & ~theirs.known[row]).sum()):
                lacking = f"{run.title} lacks the {what} of {plural(fewer, 'bag')}"
                notes.append(f"{lacking}; those of the other predictions are used.")
    everywhere = np.all([row >= 0 for row in rows], axis=0)
    notes += _notes_on_bags(runs, bag_ids, rows, everywhere)
    told = []
    for run, row in zip(runs, rows, strict=True):
        bag_of = np.flatnonzero(row >= 0)[np.argsort(row[row >= 0])]  # the bag of each row of this run
        bags = replace(run.predictions.bags, labels=labels[bag_of], is_ood=is_ood[bag_of], ood_sets=sets[bag_of])
        bags = bags if outcomes is None else bags.with_outcomes(outcomes[bag_of])
        told.append(replace(run, predictions=replace(run.predictions, bags=bags)))
    shared = told if everywhere.all() else [_only(run, set(bag_ids[everywhere].tolist())) for run in told]
    notes += notes_on_content(told)
    if not classes:
        notes.append("The models have intervals of their own, so that their NLL cannot be compared.")
    absent = _list_absent(told)
    return Comparison(
        tuple(told), tuple(shared), bag_ids, rows, labels, outcomes, is_ood, sets, classes, tuple(notes), absent
    )


def _class_names(runs: Sequence[Run], given: Sequence[str]) -> tuple[str, ...]:
    first = runs[0]
    count = first.predictions.bags.distribution.num_classes
    tables = [(run, table) for run in runs for table in (run.predictions.bags, run.predictions.instances) if table]
    for run, table in tables:
        classes = table.head.distribution.num_classes
        if classes != count:
            wanted = f"{count} classes, as {first.source!r} has"
            raise DataError(item=f"predictions {run.source!r}", wanted=wanted, got=str(classes), fix=APART)
    named = [(run, run.predictions.provenance.classes) for run in runs]
    named = [(run, names) for run, names in named if len(names) == count]
    for run, names in named:
        if names != named[0][1]:
            raise DataError(
                item=f"predictions {run.source!r}",
                wanted=f"the classes {', '.join(named[0][1])}, as {named[0][0].source!r} has",
                got=", ".join(names),
                fix=_one_order(named) or APART,
            )
    if len(given) == count and not named:
        return tuple(given)
    return named[0][1] if named else tuple(f"class {c}" for c in range(count))


def _intervals(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the names of intervals of numbers where all runs have the same; each has its own as it was trained.

    Raises:
        DataError: labels of another kind.
    """
    targets = [run.predictions.bags.target for run in runs]
    for run, target in zip(runs, targets, strict=True):
        kind, wanted = (("classes" if one is None else one.kind) for one in (target, targets[0]))
        if kind != wanted:
            raise DataError(item=f"predictions {run.source!r}", wanted=wanted, got=kind, fix=APART)
    named = {target.class_names for target in targets if target is not None}
    return named.pop() if len(named) == 1 else ()


def _one_order(named: Sequence[tuple[Run, tuple[str, ...]]]) -> str:
    """Return how tables get the order of the others, "" where classes are not the same.

    The order of a model's predictions is theirs for good; that of another tool's table is named.
    """
    orders = dict.fromkeys(names for _, names in named)
    if len({frozenset(names) for names in orders}) > 1:
        return ""
    of_models = dict.fromkeys(names for run, names in named if run.predictions.provenance.weights_sha256)
    order = next(iter(of_models or orders))
    if len(of_models) > 1:
        return "train the models with the same classes in one order"
    return f"the classes are the same in another order; name it for the tables: {quoted_order(order)}"


def _known_to_any(
    runs: Sequence[Run],
    rows: Sequence[Int64[np.ndarray, "B"]],
    bag_ids: np.ndarray,
    truths: Sequence[Truth],
    describe: Callable[[Any], str],
) -> Truth:
    """Return what any run knows of each bag.

    Raises:
        DataError: two runs that contradict each other.
    """
    found = replace(truths[0][np.zeros(len(bag_ids), np.int64)], known=np.zeros(len(bag_ids), bool))
    names = [one.name for one in fields(found)]
    for run, row, truth in zip(runs, rows, truths, strict=True):
        theirs, is_known = truth[row], truth.known[row] & (row >= 0)
        differ = np.any([getattr(theirs, name) != getattr(found, name) for name in names], axis=0)
        conflict = np.flatnonzero(is_known & found.known & differ)
        if len(conflict):
            bag, more = conflict[0], len(conflict) - 1
            raise DataError(
                item=f"bag {bag_ids[bag]!r} of predictions {run.source!r}",
                wanted=f"{describe(found.values[bag])}, as other predictions have it",
                got=describe(theirs.values[bag]) + (f" (and {plural(more, 'more bag')} like it)" if more else ""),
                fix="correct one of them, or report these predictions by themselves",
            )
        columns = {name: np.where(is_known, getattr(theirs, name), getattr(found, name)) for name in names}
        found = replace(found, **columns)
    return found


def _notes_on_bags(
    runs: Sequence[Run], bag_ids: np.ndarray, rows: Sequence[Int64[np.ndarray, "B"]], everywhere: np.ndarray
) -> list[str]:
    if not everywhere.any():
        raise DataError(
            item=f"predictions {', '.join(repr(run.source) for run in runs)}",
            wanted="bags that all of them have",
            got="none in common",
            fix="predict the same store with each model, or make one report each",
        )
    notes = []
    for run, row in zip(runs, rows, strict=True):
        lacking = bag_ids[row < 0]
        if len(lacking):
            more = f" and {len(lacking) - LISTED:,} more" if len(lacking) > LISTED else ""
            named = ", ".join(lacking[:LISTED]) + more
            notes.append(f"{run.title} lacks {len(lacking):,} of {len(bag_ids):,} bags: {named}.")
    if notes:
        notes.append(
            f"Metrics and figures are of the {int(everywhere.sum()):,} bags that all predictions have; "
            "the table of bags shows every bag."
        )
    return notes


def _only(run: Run, names: set[str]) -> Run:
    bags, instances = run.predictions.bags.of_bags(names), run.predictions.instances
    kept = instances and instances.of_bags(names)
    return replace(run, predictions=replace(run.predictions, bags=bags, instances=kept or None))


def notes_on_content(runs: Sequence[Run]) -> list[str]:
    """Return what is missing in predictions, and what follows from that."""
    notes, bags = [], [run.predictions.bags for run in runs]
    if not any(table.labels.known.any() for table in bags):
        notes.append(
            "No bag has a label, so nothing can be said about errors: class metrics, the reliability diagram and "
            "the risk–coverage curve are missing. To see them, predict with labels, or fill the column 'label' of "
            "the bag table."
        )
    flags = OodFlags.concatenate([table.is_ood for table in bags])
    if flags.out_of_distribution.any() and not flags.in_distribution.any():
        notes.append(
            "No bag is known to be in distribution (false in the column 'is_ood'), so OOD detection cannot be "
            "measured."
        )
    for run in runs:
        shift, table = run.predictions.provenance.dataset_shift, run.predictions.instances
        if shift:
            patients, count = run.predictions.bags.patients, len(run.predictions.bags)
            unknown = run.rules.made_from.describe_missing_patients(patients, count) if run.rules else ""
            notes.append(" ".join(filter(None, (f"{run.title}: {shift}. {shift.meaning}.", unknown))))
        if table is None:
            notes.append(f"{run.title} has no predictions of instances.")
    return notes


def _list_absent(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return what the data of most cohorts do not have, and what is not shown for that reason."""
    tables = [run.predictions.instances for run in runs if run.predictions.instances is not None]
    absent = []
    if not any(run.predictions.bags.is_ood.out_of_distribution.any() for run in runs):
        absent.append("OOD detection (no bag is known to be out of distribution, column 'is_ood')")
    if tables and not any(part.labels.known.any() for table in tables for part in table.known_parts()):
        absent.append("errors of instances (no instance has a label)")
    return tuple(absent)
