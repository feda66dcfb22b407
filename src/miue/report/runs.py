"""Predictions side by side: named, checked against each other, and set on the same bags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from miue.bags.classes import quoted_order
from miue.bags.labels import Labels
from miue.bags.ood_flags import OodFlags
from miue.common.errors import DataError
from miue.common.text import plural
from miue.predictions.folder import Predictions
from miue.predictions.provenance import Provenance
from miue.predictions.table import PredictionTable
from miue.report.notes import notes_on_content

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


@dataclass(frozen=True)
class Comparison:
    """Runs whose predictions may be set side by side.

    Attributes:
        runs: each with the truth that is known of its bags from any of them.
        shared: the same, restricted to the bags that all of them have; metrics and figures are of these.
        bag_ids: every bag of any run, in order of first appearance.
        rows: for each run the row of each bag in its table, −1 where it lacks the bag.
        class_names: name of each class.
        notes: what a reader should know of what is missing or was made equal.
    """

    runs: tuple[Run, ...]
    shared: tuple[Run, ...]
    bag_ids: np.ndarray
    rows: tuple[Int64[np.ndarray, "B"], ...]
    class_names: tuple[str, ...]
    notes: tuple[str, ...]


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
        kinds = [(t, _what_stays(p.provenance)) for t, (_, p) in zip(titles, found, strict=True)]
        of_title: dict[str, set[str]] = {}
        for title, kind in kinds:
            of_title.setdefault(title, set()).add(kind)
        seeds_of = Counter(zip(titles, seeds, strict=True))
        unclear = {title for (title, _), count in seeds_of.items() if count > 1}
        unclear |= {title for title, different in of_title.items() if len(different) > 1}
        titles = [f"{t} ({s})" if t in unclear else t for t, s in zip(titles, sources, strict=True)]
    twice = Counter(zip(titles, seeds, strict=True))
    for (title, seed), count in twice.items():
        if count > 1:
            raise DataError(
                item=f"predictions named {title!r}",
                wanted="different seeds under one name",
                got=f"{count} with {f'seed {seed}' if seed else 'no seed'}",
                fix="leave out a double, or pass a different --name for each",
            )
    return tuple(Run(t, s, f[0], f[1]) for t, s, f in zip(titles, seeds, found, strict=True))


def _made_by(provenance: Provenance) -> str:
    changed = [f"{key}={value}" for key, value in (provenance.options or {}).items()]
    return ", ".join([" ".join(filter(None, (provenance.network, provenance.method))), *changed])


def _what_stays(provenance: Provenance) -> str:
    facts = provenance.facts().items()
    return str(sorted((name, str(value)) for name, value in facts if name not in OF_ONE_TRAINING))


def compare(runs: Sequence[Run], class_names: Sequence[str] = ()) -> Comparison:
    """Return the runs set on the same bags.

    Args:
        runs: at least one.
        class_names: of a store; else those that the predictions carry, else the class indices.

    Raises:
        DataError: different classes, a bag with two labels, or no bag that all runs have.
    """
    classes = _class_names(runs, class_names)
    bag_ids = np.array(
        list(dict.fromkeys(str(one) for run in runs for one in run.predictions.bags.bag_ids)), object
    )
    rows = tuple(_rows_of(run.predictions.bags, bag_ids) for run in runs)
    known, notes = _known_truth(runs, bag_ids, rows)
    runs = [
        replace(run, predictions=_with_truth(run.predictions, known, r)) for run, r in zip(runs, rows, strict=True)
    ]
    everywhere = np.all([r >= 0 for r in rows], axis=0)
    notes += _notes_on_bags(runs, bag_ids, rows, everywhere)
    shared = [replace(run, predictions=_only(run.predictions, set(bag_ids[everywhere].tolist()))) for run in runs]
    return Comparison(
        tuple(runs),
        tuple(shared) if not everywhere.all() else tuple(runs),
        bag_ids,
        rows,
        classes,
        tuple(notes + notes_on_content([(run.title, run.predictions) for run in runs])),
    )


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
        return "train the models with the same --classes"
    return f"the classes are the same in another order; name it for the tables: {quoted_order(order)}"


def _class_names(runs: Sequence[Run], given: Sequence[str]) -> tuple[str, ...]:
    first = runs[0]
    count = first.predictions.bags.distribution.num_classes
    tables = [(run, table) for run in runs for table in (run.predictions.bags, run.predictions.instances) if table]
    for run, table in tables:
        classes = table.head.distribution.num_classes
        if classes != count:
            raise DataError(
                item=f"predictions {run.source!r}",
                wanted=f"{count} classes, as {first.source!r} has",
                got=f"{classes}",
                fix="report predictions of the same classes together, the others by themselves",
            )
    named = [(run, run.predictions.provenance.classes) for run in runs]
    named = [(run, names) for run, names in named if len(names) == count]
    for run, names in named:
        if names != named[0][1]:
            raise DataError(
                item=f"predictions {run.source!r}",
                wanted=f"the classes {', '.join(named[0][1])}, as {named[0][0].source!r} has",
                got=", ".join(names),
                fix=_one_order(named)
                or "report predictions of the same classes together, the others by themselves",
            )
    if len(given) == count and not named:
        return tuple(given)
    return named[0][1] if named else tuple(f"class {c}" for c in range(count))


def _rows_of(table: PredictionTable, bag_ids: np.ndarray) -> Int64[np.ndarray, "B"]:
    row_of = {str(name): row for row, name in enumerate(table.bag_ids)}
    return np.array([row_of.get(name, -1) for name in bag_ids], np.int64)


@dataclass(frozen=True)
class _Truth:
    labels: Labels
    is_ood: OodFlags
    ood_sets: np.ndarray


def _known_truth(
    runs: Sequence[Run], bag_ids: np.ndarray, rows: Sequence[Int64[np.ndarray, "B"]]
) -> tuple[_Truth, list[str]]:
    """Return what any run knows of each bag; runs that know less are listed in notes.

    Raises:
        DataError: two runs that contradict each other.
    """
    count, notes, flags = len(bag_ids), [], OodFlags.unknown(len(bag_ids))
    values, known, sets = np.zeros(count, np.int64), np.zeros(count, bool), np.full(count, "", object)
    for run, row in zip(runs, rows, strict=True):
        table, there = run.predictions.bags, row >= 0
        labeled = there & table.labels.known[row]
        labels = table.labels.values[row]
        conflict = np.flatnonzero(labeled & known & (labels != values))
        if len(conflict):
            raise DataError(
                item=f"bag {bag_ids[conflict[0]]!r} of predictions {run.source!r}",
                wanted=f"label {values[conflict[0]]}, as other predictions have it",
                got=f"{labels[conflict[0]]}{_and_more(len(conflict) - 1)}",
                fix="correct the labels, or report these predictions by themselves",
            )
        values, known = np.where(labeled, labels, values), known | labeled
        theirs = OodFlags(table.is_ood.values[row], there & table.is_ood.known[row])
        differ = np.flatnonzero(theirs.known & flags.known & (theirs.values != flags.values))
        if len(differ):
            words = ("in distribution", "out of distribution")
            raise DataError(
                item=f"bag {bag_ids[differ[0]]!r} of predictions {run.source!r}",
                wanted=f"{words[int(flags.values[differ[0]])]}, as other predictions have it",
                got=f"{words[int(theirs.values[differ[0]])]}{_and_more(len(differ) - 1)}",
                fix="correct the column is_ood, or report these predictions by themselves",
            )
        new = theirs.out_of_distribution & (sets == "")
        sets[new] = table.ood_sets[row[new]]
        flags = OodFlags(flags.values | theirs.out_of_distribution, flags.known | theirs.known)
    for run, row in zip(runs, rows, strict=True):
        table, there = run.predictions.bags, row >= 0
        fewer = int((there & known & ~table.labels.known[row]).sum())
        fewer_flags = int((there & flags.known & ~table.is_ood.known[row]).sum())
        for number, what in ((fewer, "labels"), (fewer_flags, "flags is_ood")):
            if number:
                lacking = f"{run.title} lacks the {what} of {plural(number, 'bag')}"
                notes.append(f"{lacking}; those of the other predictions are used.")
    return _Truth(Labels(values, known), flags, sets), notes


def _and_more(count: int) -> str:
    return f" (and {plural(count, 'more bag')} like it)" if count else ""


def _with_truth(predictions: Predictions, truth: _Truth, rows: Int64[np.ndarray, "B"]) -> Predictions:
    there = np.flatnonzero(rows >= 0)
    bag_of_row = np.empty(len(there), np.int64)
    bag_of_row[rows[there]] = there
    table = replace(
        predictions.bags,
        labels=truth.labels[bag_of_row],
        is_ood=truth.is_ood[bag_of_row],
        ood_sets=truth.ood_sets[bag_of_row],
    )
    return replace(predictions, bags=table)


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
            named = ", ".join(lacking[:LISTED]) + (
                f" and {len(lacking) - LISTED:,} more" if len(lacking) > LISTED else ""
            )
            notes.append(f"{run.title} lacks {len(lacking):,} of {len(bag_ids):,} bags: {named}.")
    if notes:
        notes.append(
            f"Metrics and figures are of the {int(everywhere.sum()):,} bags that all predictions have; "
            "the table of bags shows every bag."
        )
    return notes


def _only(predictions: Predictions, names: set[str]) -> Predictions:
    instances = predictions.instances and predictions.instances.of_bags(names)
    return replace(predictions, bags=predictions.bags.of_bags(names), instances=instances or None)
