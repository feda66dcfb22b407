"""Several bags become one: all slides of a patient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from miue.bags.arrays import rearranged
from miue.bags.cells import known_text
from miue.bags.classes import names_or_numbers
from miue.bags.dataset import BagDataset, check_dataset
from miue.bags.known import Slides
from miue.common.errors import DataError, lacking

PATIENT, COVARIATE = "patient", "covariate "


def merge_bags(bags: BagDataset, owners: Sequence[str] | None = None, *, per: str = PATIENT) -> BagDataset:
    """Return one bag for all bags of each owner, such as the slides of a patient, with all that is known of them.

    Its instances are those of the bags in the order of their ids, and know which of these they are of
    (``slides``); in files and stores they stay there. What is known of one of the bags is true of all.

    Args:
        bags: a dataset, in which a bag is a slide.
        owners: of each bag, which names the bag that it becomes part of; its patient if None.
        per: what an owner is called.

    Raises:
        ConfigError: no dataset.
        DataError: a bag without an owner, or bags of one owner that differ in label, split or patient.

    >>> slides = BagDataset.from_arrays([np.ones((3, 2)), np.zeros((1, 2))], [1, 1], ids=["s1", "s2"])
    >>> patients = merge_bags(slides, ["p", "p"])
    >>> patients.ids, patients.sizes.tolist(), patients.slides.texts.tolist()
    (('p',), [4], ['s1', 's1', 's1', 's2'])
    """
    check_dataset(bags)
    names = list(map(known_text, owners if owners is not None else bags.patients or [""] * len(bags)))
    if len(names) != len(bags):
        wanted = f"the {per} of each of the {len(bags):,} bags"
        raise DataError(item="owners", wanted=wanted, got=f"{len(names):,}", fix="pass one for each bag")
    if "" in names:
        raise lacking(f"bag {bags.ids[names.index('')]!r}", f"a {per}", f"state its {per}, or leave it out")
    rows_of, facts = _rows_of(bags, names), _facts(bags)
    for name, said in disagreements(bags, names).items():
        fix = "correct what is stated of them, or take each of these bags by itself"
        raise DataError(item=f"{per} {name!r}", wanted="bags that agree", got=said, fix=fix)
    members = [np.array(rows, np.int64) for rows in rows_of.values()]
    parts = bags.subset(np.concatenate(members))
    sizes = np.array([bags.sizes[rows].sum() for rows in members], np.int64)
    first = {what: np.array([_first(known, rows) for rows in rows_of.values()]) for what, known in facts.items()}
    patch_sizes = bags.patch_sizes
    if patch_sizes is not None:
        alike = [len(set(patch_sizes[rows].tolist())) == 1 for rows in members]
        patch_sizes = np.where(alike, patch_sizes[[rows[0] for rows in members]], 0)
    is_by_patient = per == PATIENT or bags.patients is None
    spans, statistics, rows_of_parts = (parts.starts, parts.sizes), bags.statistics, parts.positions
    slides = Slides(parts.ids, np.repeat(np.arange(len(parts)), parts.sizes))
    return replace(
        bags,
        instances=rearranged(bags.instances, *spans),
        starts=sizes.cumsum() - sizes,
        sizes=sizes,
        ids=tuple(rows_of),
        labels=bags.labels[first["label"]],
        outcomes=None if bags.outcomes is None else bags.outcomes[first["label"]],
        is_ood=bags.is_ood[first["is_ood"]],
        splits=tuple(bags.splits[row] for row in first["split"]),
        ood_sets=tuple(bags.ood_sets[row] for row in first["is_ood"]),
        instance_labels=bags.instance_labels[rows_of_parts],
        instance_is_ood=bags.instance_is_ood[rows_of_parts],
        coords=None if bags.coords is None else bags.coords[rows_of_parts],
        patients=None if is_by_patient else tuple((bags.patients or bags.ids)[row] for row in first["patient"]),
        patch_sizes=patch_sizes,
        statistics=None if statistics is None else rearranged(statistics, *spans),
        slides=slides if bags.slides is None else bags.slides[rows_of_parts],
        bag_per=per,
        covariates={
            name: tuple(cells[row] for row in first[COVARIATE + name]) for name, cells in bags.covariates.items()
        },
        encoded_covariates=None,
    )


def disagreements(bags: BagDataset, owners: Sequence[str]) -> dict[str, str]:
    """Return in what bags of one owner differ that must agree, in words, by the owner.

    >>> bags = BagDataset.from_arrays([np.ones((1, 2))] * 4, [1, None, 0, 1], ids=["s1", "s2", "s3", "s4"])
    >>> disagreements(bags, ["p", "p", "p", "q"])
    {'p': "label 1 of 's1' and 0 of 's3'"}
    """
    facts, found = _facts(bags), {}
    for owner, rows in _rows_of(bags, owners).items():
        for what, known in facts.items():
            first = {known[row]: bags.ids[row] for row in reversed(rows) if known[row]}
            if len(first) > 1:
                texts = [f"{text} of {name!r}" for text, name in reversed(first.items())]
                found[owner] = f"{what} {' and '.join(texts[:2])}"
    return found


def _rows_of(bags: BagDataset, owners: Sequence[str]) -> dict[str, list[int]]:
    """Return the rows of the bags of each owner in the order of their ids; owners as they first appear."""
    rows_of: dict[str, list[int]] = {name: [] for name in owners}
    for row in sorted(range(len(bags)), key=bags.ids.__getitem__):
        rows_of[owners[row]].append(row)
    return rows_of


def _facts(bags: BagDataset) -> dict[str, list[str]]:
    """Return what bags that become one must agree in, each as text, "" where it is unknown."""
    names = names_or_numbers(bags.class_names, bags.num_classes)
    flags = zip(bags.is_ood.known, bags.is_ood.values, bags.ood_sets, strict=True)
    found = {
        "label": ["" if label is None else names[label] for label in bags.labels],
        "is_ood": [(f"true, {of}" if flag else "false") if known else "" for known, flag, of in flags],
        "split": list(bags.splits),
        "patient": list(bags.patients or [""] * len(bags)),
        **{COVARIATE + name: list(map(known_text, cells)) for name, cells in bags.covariates.items()},
    }
    if (outcomes := bags.outcomes) is not None:
        rows = zip(outcomes.values, outcomes.observed, outcomes.known, strict=True)
        found["label"] = [
            f"{value:g}{'' if seen else ' (no event)'}" if known else "" for value, seen, known in rows
        ]
    return found


def _first(known: Sequence[str], rows: Sequence[int]) -> int:
    """Return the first of some rows of which something is known, else the first."""
    return next((row for row in rows if known[row]), rows[0])
