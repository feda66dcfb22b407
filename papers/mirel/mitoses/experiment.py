"""Trained on slides of one scanner, tested on its other slides and on those of two other scanners.

Each scanner in turn is cross-validated: its slides in 5 folds; of the slides outside a fold, a fifth stops
training and chooses the epoch. The slides of the fold, and all of the other scanners, are only predicted. Instance
labels are only evaluated with. Results are one CSV file for each form of bags, method, scanner, seed and fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from miue.bags import BagDataset, OodFlags, concatenate, draw_folds, hold_out
from miue.common.errors import unknown_name
from miue.common.seeds import derive_seed
from miue.evaluation import evaluate
from papers.mirel.folds import CrossValidationFold, write_test_bags
from papers.mirel.mitoses.bags import ScannedSlides, pooled_bags, scanned_slides
from papers.mirel.nuclei.experiment import METHOD_SETUPS, train_setup, version_of_setup
from papers.mirel.results import Result, results_of, write_results

SCANNERS = ("aperio-cs2", "hamamatsu-s360", "hamammatsu-xr")
FORMS = ("slides", "pooled")
FOLDS = 5
VALIDATION_SHARE = 0.2
POOLED = {"train": 200, "validation": 50, "test": 50, "other": 100}
"""Bags that are drawn from the crops of each part, where bags are pooled."""

COMPARED = ("accuracy", "auroc", "conf")
"""What is evaluated on the bags of every other scanner."""


@dataclass(frozen=True)
class Fold(CrossValidationFold):
    """One method on one fold of the slides of one scanner.

    Attributes:
        form: "slides" or "pooled".
        method: its name.
        scanner: whose slides are trained on.
        seed: of folds, draws and training.
        number: of the fold, from 0.
    """

    form: str
    method: str
    scanner: str
    seed: int
    number: int

    function: ClassVar[str] = "papers.mirel.mitoses.experiment:run_fold"

    @property
    def name(self) -> str:
        """Method, form and scanner of the bags, seed and fold."""
        return f"{self.method}, {self.form} of {self.scanner}, seed {self.seed}, fold {self.number}"

    def path(self, results: Path) -> Path:
        """Return the file of its results."""
        return results / "mitoses" / self.form / self.method / f"{self.scanner}-{self.seed}-{self.number}.csv"

    @property
    def run(self) -> tuple[str, int]:
        """Preset and seed in the file of its results."""
        return f"mitoses/{self.form}/{self.method}/{self.scanner}/fold-{self.number}", self.seed


def all_folds(forms: Sequence[str], methods: Sequence[str], seeds: Sequence[int]) -> list[Fold]:
    """Return every fold, one seed and method after the other.

    Raises:
        ConfigError: a form or a method that takes no part.
    """
    for kind, names, known in (("form", forms, FORMS), ("method", methods, METHOD_SETUPS)):
        for name in names:
            if name not in known:
                raise unknown_name(kind, name, known)
    return [
        Fold(form, method, scanner, seed, number)
        for seed in seeds
        for form in forms
        for method in methods
        for scanner in SCANNERS
        for number in range(FOLDS)
    ]


def parts_of(fold: Fold, slides: ScannedSlides) -> dict[str, BagDataset]:
    """Return the bags of a fold: "train", "validation", "test", and those of each other scanner by its name."""
    own = slides.of_scanner(fold.scanner)
    labels = own.labels.values
    rest, tested = list(draw_folds(labels, FOLDS, fold.seed))[fold.number]
    trained, held = hold_out(labels[rest], VALIDATION_SHARE, derive_seed(fold.seed, fold.number))
    rows = {"train": rest[trained], "validation": rest[held], "test": tested}
    parts = {name: own.subset(np.sort(chosen)) for name, chosen in rows.items()}
    parts |= {name: slides.of_scanner(name) for name in slides.names if name != fold.scanner}
    if fold.form == "slides":
        return parts
    return {
        name: pooled_bags(
            part,
            POOLED.get(name, POOLED["other"]),
            seed=derive_seed(fold.seed, fold.number, number) % 2**32,
            name=name,
        )
        for number, (name, part) in enumerate(parts.items())
    }


def run_fold(fold: Sequence[str | int], source: str, results: str, device: str = "auto") -> None:
    """Train on a fold, evaluate on its test bags and on each other scanner, and write the results; a task."""
    form, method, scanner, seed, number = fold
    chosen = Fold(str(form), str(method), str(scanner), int(seed), int(number))
    parts = parts_of(chosen, _slides(source))
    setup = METHOD_SETUPS[chosen.method]
    fold_seed = derive_seed(chosen.seed, chosen.number)
    model = train_setup(chosen.method, parts["train"], parts["validation"], fold_seed, device)
    others = [name for name in parts if name not in ("train", "validation", "test")]
    estimator = setup.estimators[0]
    written: list[Result] = []
    together = concatenate([_marked(parts["test"]), *(_marked(parts[name], name) for name in others)])
    predictions = model.predict(together, estimator=estimator, device=device)
    write_test_bags(chosen, predictions.bags, Path(results))
    written += results_of(evaluate(predictions), estimator)
    for name in others:
        evaluation = evaluate(model.predict(parts[name], estimator=estimator, device=device))
        written += [
            replace(result, task=f"{result.task} on {name}")
            for result in results_of(evaluation, estimator)
            if result.task in COMPARED
        ]
    write_results(chosen.path(Path(results)), *chosen.run, version_of_setup(chosen.method), written)


@cache
def _slides(source: str) -> ScannedSlides:
    """Return the slides; they are read once in each process."""
    return scanned_slides(Path(source))


def _marked(bags: BagDataset, other_scanner: str = "") -> BagDataset:
    """Return bags as in distribution, or as out of distribution by the name of their scanner."""
    outside = bool(other_scanner)
    known, known_instances = np.ones(len(bags), bool), np.ones(len(bags.instances), bool)
    return replace(
        bags,
        is_ood=OodFlags(known & outside, known),
        ood_sets=(other_scanner,) * len(bags),
        instance_is_ood=OodFlags(known_instances & outside, known_instances),
        ids=tuple(f"{other_scanner or 'test'}/{name}" for name in bags.ids),
    )
