"""Labels and patients that the splits of a trained run list, for bags that come without any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from miue.bags import BagDataset, Labels
from miue.bags.names import strip_endings
from miue.common.tables import read_text_columns
from miue.common.text import plural
from miue.io.loaded import counts_of_classes


def with_labels_of_run(bags: BagDataset, splits: Path, classes: tuple[str, ...]) -> tuple[BagDataset, str]:
    """Return bags without labels with the labels and patients that a run lists, and one line that says so.

    Bags are matched by name, as it is written, else without the endings of files where that means one bag alone.
    One with another number of instances than the run lists may be another of the same name, and gets no label.

    Args:
        bags: of which none has a label.
        splits: the table that a training writes (bag_id, patient, label, fold_0).
        classes: of the model; a label of another name is unknown.

    Raises:
        StorageError: a table that cannot be read.
    """
    if not splits.exists():
        return bags, f"labels: none, and {str(splits)!r} is not there; pass labels to evaluate"
    listed = _listed(splits)
    rows = [listed.get(name) or listed.get(strip_endings(name)) or ("", "", "") for name in bags.ids]
    is_other = [known not in ("", str(size)) for (*_, known), size in zip(rows, bags.sizes, strict=True)]
    cells = [("", "") if other else row[:2] for other, row in zip(is_other, rows, strict=True)]
    numbers = [classes.index(label) if label in classes else None for _, label in cells]
    others = f"of {plural(sum(is_other), 'bag')} with another number of instances than in training"
    if not any(number is not None for number in numbers):
        of_others = f", but {others}" if any(is_other) else ""
        return (
            bags,
            f"labels: none, and {str(splits)!r} lists none for these bags{of_others}; pass labels to evaluate",
        )
    labeled = replace(bags, labels=Labels.of(numbers), class_names=classes)
    patients = tuple(patient for patient, _ in cells)  # "" of a bag that is not listed: not known
    pairs = zip(patients, bags.ids, strict=True)
    if bags.patients is None and any(p and strip_endings(p) != strip_endings(b) for p, b in pairs):
        labeled = replace(labeled, patients=patients)
    absent = sum(name not in listed and strip_endings(name) not in listed for name in bags.ids)
    said = f", none for {plural(absent, 'bag')} that it does not list" if absent else ""
    said += f", none {others}" if any(is_other) else ""
    text = f"labels: those that the training listed in {str(splits)!r} ({counts_of_classes(labeled)}{said})"
    return labeled, f"{text}; pass labels for others"


def _listed(splits: Path) -> Mapping[str, tuple[str, str, str]]:
    """Return patient, label and number of instances by the name of each bag.

    They are also found by the name without endings, where it is of one bag.
    """
    columns = read_text_columns(splits)
    facts = list(zip(columns["patient"], columns["label"], columns["instances"], strict=True))
    keys = Counter(map(strip_endings, columns["bag_id"]))
    by_key = {strip_endings(name): fact for name, fact in zip(columns["bag_id"], facts, strict=True)}
    by_key = {key: fact for key, fact in by_key.items() if keys[key] == 1}
    return {**by_key, **dict(zip(columns["bag_id"], facts, strict=True))}
