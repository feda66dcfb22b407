"""Real histology with the truth of every instance: repeated stratified cross-validation on nuclei-bags.

A repetition is a seed: 98 bags in 10 folds; of the bags outside a fold, some are held out to stop training and
choose its best epoch. The bags of the fold are only predicted. Instance labels are only evaluated with. Results
are one CSV file for each method, seed and fold, so that a run may be killed and started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from miue.bags import BagDataset, draw_folds, hold_out
from miue.common.errors import unknown_name
from miue.common.seeds import derive_seed
from miue.common.values import Option
from miue.datasets.image_shifts import shifted_copies
from miue.evaluation import evaluate
from miue.methods import ATTENTION, BAG_OF_ONE, RESIDUAL
from miue.model import Model
from miue.pathology.stain_shifts import ALL_SHIFTS
from papers.mirel.folds import CrossValidationFold, write_test_bags
from papers.mirel.nuclei.bags import nuclei_bags
from papers.mirel.results import Result, results_of, write_results
from papers.mirel.versions import version_of

FOLDS = 10
VALIDATION_BAGS = 15
NETWORK = "attention"
ENCODER = "lenet"
OPTIONS: dict[str, Option] = {"encoder.width": 512, "network.hidden": 128}
SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-4,
    "bags_per_update": 1,
    "max_epochs": 40,
    "stop_patience": 12,
    "lr_patience": 8,
    "temperature_scaling": False,
}
"""Chosen once, see results/nuclei/overview.md; the same for every method with attention."""


@dataclass(frozen=True)
class MethodSetup:
    """How a method takes part in the comparison.

    Attributes:
        title: its name in tables.
        options: what differs from the method's defaults.
        estimators: what instances are predicted from, the method's own first.
        network: under the method.
        method: its registered name, where several setups share it; else the name of the setup.
        settings: what differs from ``SETTINGS``.
    """

    title: str
    options: dict[str, Option] = field(default_factory=dict)
    estimators: tuple[str, ...] = (BAG_OF_ONE, ATTENTION)
    network: str = NETWORK
    method: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


MIREL_OPTIONS: dict[str, Option] = {"method.residual_hidden": 128, "method.routing": "through-residual"}
OWN_AND_BAG_OF_ONE = (RESIDUAL, BAG_OF_ONE)
ONE_SIDED, LOG_SUM_EXP, MEAN = "one-sided-attention", "one-sided-log-sum-exp", "one-sided-mean"
PATIENT = {"max_epochs": 80, "stop_patience": 30, "lr_patience": 15}  # it begins to learn after ten epochs
METHOD_SETUPS = {
    "deterministic": MethodSetup("softmax"),
    "long-deterministic": MethodSetup("softmax, at most 80 epochs", method="deterministic", settings=PATIENT),
    "mirel": MethodSetup("MIREL", MIREL_OPTIONS, OWN_AND_BAG_OF_ONE),
    "i-edl": MethodSetup("I-EDL"),
    "mc-dropout": MethodSetup("MC dropout, 10 draws"),
    "deep-ensemble": MethodSetup("deep ensemble of 5", {"method.size": 5}),
    "laplace": MethodSetup("last-layer Laplace"),
    "sngp": MethodSetup("SNGP"),
    "r-edl": MethodSetup("R-EDL", {"method.prior": 0.5, "method.annealing_epochs": 0}),  # see results/nuclei
    "daedl": MethodSetup("DAEDL"),
    "mirel-ensemble": MethodSetup(
        "ensemble of 5, MIREL",
        {**MIREL_OPTIONS, "method.member": "mirel", "method.size": 5},
        OWN_AND_BAG_OF_ONE,
        method="deep-ensemble",
    ),
    "one-sided-attention-deterministic": MethodSetup(
        "one-sided attention, softmax", network=ONE_SIDED, method="deterministic", settings=PATIENT
    ),
    "one-sided-attention-mirel": MethodSetup(
        "one-sided attention, MIREL",
        MIREL_OPTIONS,
        OWN_AND_BAG_OF_ONE,
        network=ONE_SIDED,
        method="mirel",
        settings=PATIENT,
    ),
    "one-sided-gp": MethodSetup(
        "one-sided Gaussian process",
        estimators=(BAG_OF_ONE,),
        network=ONE_SIDED,
        method="one-sided-gp",
        settings=PATIENT,
    ),
    "one-sided-log-sum-exp-deterministic": MethodSetup(
        "one-sided log-sum-exp, softmax",
        estimators=(BAG_OF_ONE,),
        network=LOG_SUM_EXP,
        method="deterministic",
        settings=PATIENT,
    ),
    "long-one-sided-log-sum-exp-deterministic": MethodSetup(
        "one-sided log-sum-exp, softmax, at most 200 epochs",
        estimators=(BAG_OF_ONE,),
        network=LOG_SUM_EXP,
        method="deterministic",
        settings={**PATIENT, "max_epochs": 200},
    ),
    "augmented-one-sided-log-sum-exp-deterministic": MethodSetup(
        "one-sided log-sum-exp, softmax, rotated and mirrored",
        estimators=(BAG_OF_ONE,),
        network=LOG_SUM_EXP,
        method="deterministic",
        settings={**PATIENT, "augmentation": "rotate-flip"},
    ),
    "one-sided-log-sum-exp-deep-ensemble": MethodSetup(
        "one-sided log-sum-exp, deep ensemble of 5",
        {"method.size": 5},
        estimators=(BAG_OF_ONE,),
        network=LOG_SUM_EXP,
        method="deep-ensemble",
        settings={**PATIENT, "precision": "bf16-mixed"},
    ),
    "one-sided-log-sum-exp-mc-dropout": MethodSetup(
        "one-sided log-sum-exp, MC dropout, 10 draws",
        estimators=(BAG_OF_ONE,),
        network=LOG_SUM_EXP,
        method="mc-dropout",
        settings=PATIENT,
    ),
    "one-sided-log-sum-exp-mirel": MethodSetup(
        "one-sided log-sum-exp, MIREL",
        MIREL_OPTIONS,
        OWN_AND_BAG_OF_ONE,
        network=LOG_SUM_EXP,
        method="mirel",
        settings=PATIENT,
    ),
    "one-sided-mean-deterministic": MethodSetup(
        "one-sided mean, softmax",
        estimators=(BAG_OF_ONE,),
        network=MEAN,
        method="deterministic",
        settings=PATIENT,
    ),
    "one-sided-mean-mirel": MethodSetup(
        "one-sided mean, MIREL",
        MIREL_OPTIONS,
        OWN_AND_BAG_OF_ONE,
        network=MEAN,
        method="mirel",
        settings=PATIENT,
    ),
}


def version_of_setup(name: str) -> int:
    """Return the version of the numbers that one of ``METHOD_SETUPS`` comes to with the code as it is."""
    return version_of(METHOD_SETUPS[name].method or name, METHOD_SETUPS[name].options)


@dataclass(frozen=True)
class Fold(CrossValidationFold):
    """One method on one fold of one repetition.

    Attributes:
        method: its name.
        seed: of folds and training.
        number: of the fold, from 0.
    """

    method: str
    seed: int
    number: int

    function: ClassVar[str] = "papers.mirel.nuclei.experiment:run_fold"

    @property
    def name(self) -> str:
        """Method, seed and fold."""
        return f"{self.method}, seed {self.seed}, fold {self.number}"

    def path(self, results: Path) -> Path:
        """Return the file of its results."""
        return results / "nuclei" / self.method / f"{self.seed}-{self.number}.csv"

    @property
    def run(self) -> tuple[str, int]:
        """Preset and seed in the file of its results."""
        return f"nuclei/{self.method}/fold-{self.number}", self.seed


def all_folds(methods: Sequence[str], seeds: Sequence[int]) -> list[Fold]:
    """Return every fold, one repetition after the other.

    Raises:
        ConfigError: a method that takes no part.
    """
    for method in methods:
        if method not in METHOD_SETUPS:
            raise unknown_name("method", method, METHOD_SETUPS)
    return [Fold(method, seed, number) for seed in seeds for method in methods for number in range(FOLDS)]


def fold_of(bags: BagDataset, seed: int, fold: int) -> tuple[BagDataset, BagDataset, BagDataset]:
    """Return training, validation and test bags of one fold, each stratified by the bags' labels.

    Args:
        bags: all bags, labeled.
        seed: of the repetition; the same folds for every method.
        fold: from 0.
    """
    labels = bags.labels.values
    rest, test = list(draw_folds(labels, FOLDS, seed))[fold]
    train, validation = hold_out(labels[rest], VALIDATION_BAGS, derive_seed(seed, fold))
    return bags.subset(np.sort(rest[train])), bags.subset(np.sort(rest[validation])), bags.subset(test)


def train_setup(name: str, training: BagDataset, validation: BagDataset, seed: int, device: str = "auto") -> Model:
    """Return a model of one of ``METHOD_SETUPS``, trained with the settings that all share."""
    from miue.training.train import train

    setup = METHOD_SETUPS[name]
    return train(
        training,
        validation=validation,
        network=setup.network,
        method=setup.method or name,
        encoder=ENCODER,
        settings={
            **SETTINGS,
            **setup.settings,
            "seed": seed,
            "options": {**OPTIONS, **setup.options},
            "device": device,
        },
        progress=False,
    )


def train_fold(fold: Fold, bags: BagDataset, device: str = "auto") -> Model:
    """Return the model of one fold."""
    training, validation, _ = fold_of(bags, fold.seed, fold.number)
    return train_setup(fold.method, training, validation, derive_seed(fold.seed, fold.number), device)


def run_fold(fold: Sequence[str | int], source: str, results: str, device: str = "auto") -> None:
    """Train on a fold, evaluate on its test bags and their shifted copies, and write the results; a task."""
    method, seed, number = fold
    evaluate_fold(Fold(str(method), int(seed), int(number)), _bags(source), Path(results), device)


@cache
def _bags(source: str) -> BagDataset:
    """Return the bags; they are read once in each process."""
    return nuclei_bags(Path(source))


def evaluate_fold(fold: Fold, bags: BagDataset, results: Path, device: str = "auto") -> list[Result]:
    """Train on a fold, predict its test bags and their shifted copies, evaluate, and write the results."""
    setup = METHOD_SETUPS[fold.method]
    model, test = train_fold(fold, bags, device), fold_of(bags, fold.seed, fold.number)[2]
    shifted = shifted_copies(test, seed=derive_seed(fold.seed, fold.number), shifts=ALL_SHIFTS)
    results_of_fold: list[Result] = []
    for estimator in setup.estimators:
        predictions = model.predict(shifted, estimator=estimator, device=device)
        new = results_of(evaluate(predictions), estimator)
        results_of_fold += [
            result for result in new if result.level == "instance" or estimator == setup.estimators[0]
        ]
        if estimator == setup.estimators[0]:
            write_test_bags(fold, predictions.bags, results)
    write_results(fold.path(results), *fold.run, version_of_setup(fold.method), results_of_fold)
    return results_of_fold
