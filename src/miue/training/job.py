"""A recipe with the bags that it is trained on, and how it is handed over to other processes."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from miue.bags import BagDataset, Covariate, check_augmentation, encode_covariates, fingerprint
from miue.common.errors import ConfigError, DataError
from miue.common.files import make_folder
from miue.common.tensors import write_nested
from miue.common.values import Option
from miue.io import Splits, describe_bags, find_bags_again, keep_in_memory, read_handed_over
from miue.model import (
    DataContract,
    InitialWeights,
    ModelConfig,
    Recipe,
    check_saveable,
    check_statistics,
    find_distances,
    part_of_distance,
)
from miue.settings import RunSettings, TrainingConfig
from miue.training.run import Run
from miue.training.sets import check_instance_classes, training_sets

FILE = "job.safetensors"
NOT_OF_THE_TRAINING = {"extractor", "patch_scales", "pixels", "feature_names", "bag_per", "encoders"}
"""What a contract says of bags that does not change what is trained on them."""
USED = ("train", "validation")
_of_this_process: dict[str, tuple[Job, Run]] = {}


@dataclass(frozen=True)
class Job:
    """A recipe and the bags that it is trained on, which decide all that is learned.

    Attributes:
        recipe: what is trained.
        bags: labeled; if they have splits, their train split.
        held_out: bags for early stopping; else the validation split, else a stratified share is held out.
        splits: folds, of which each is a job (``fold``); None where ``bags`` are trained on as they are.
    """

    recipe: Recipe
    bags: BagDataset
    held_out: BagDataset | None = None
    splits: Splits | None = None

    def with_seed(self, seed: int) -> Job:
        """Return the same job with another seed."""
        return replace(self, recipe=self.recipe.with_seed(seed))

    def fold(self, number: int) -> Job:
        """Return the job of one fold, whose bags have its splits.

        Raises:
            DataError: as ``Splits.assign`` does.
        """
        assert self.splits is not None
        return Job(self.recipe, self.splits.assign(self.bags, number))

    def divided(self) -> Job:
        """Return the same job with bags that have the splits that training would draw of them."""
        if self.held_out is not None:
            return self
        part_of = self.parts().folds[0]
        return replace(
            self, bags=replace(self.bags, splits=tuple(part_of.get(name, "") for name in self.bags.ids))
        )

    def of_label(self, name: str) -> Job:
        """Return the job of one of several labels, without the bags of which it is unknown, but for later ones."""

        def known(bags: BagDataset) -> BagDataset:
            of_label, later = bags.of_label(name), [one not in ("", *USED) for one in bags.splits]
            return of_label.subset(np.flatnonzero(of_label.labels.known | np.array(later, bool)))

        return replace(self, bags=known(self.bags), held_out=self.held_out and known(self.held_out))

    def variant(self, seed: int | None = None, label: str | None = None) -> Job:
        """Return the job with another seed, or of one of several labels."""
        job = self if seed is None else self.with_seed(seed)
        return job if label is None else job.of_label(label)

    def check(self) -> None:
        """Raise unless the recipe can be trained on these bags.

        Raises:
            ConfigError: a name, option or setting that does not exist.
            DataError: bags that cannot be trained on, or without the image statistics that a distance needs.
            StorageError, ModelError: no whole model to start from.
        """
        if self.bags.target is not None and (several := self.bags.target.parts()):
            wanted, fix = "bags of one label each", "train a model of each: bags.by_label()"
            raise DataError(item="the bags", wanted=wanted, got=", ".join(several), fix=fix)
        for bags in (self.train, self.validation):
            check_instance_classes(bags, self.bags.num_classes)
        check_statistics(find_distances(self.recipe.distances), self.train)
        _ = self.model_config, self.initial
        check_augmentation(self.training_config.augmentation, self.bags.instance_shape)

    def keep_in_memory(self, memory_share: float) -> int:
        """Keep bags of files in a share of the free memory once they are read; return the bytes of all of them."""
        every = [self.bags, *([] if self.held_out is None else [self.held_out])]
        arrays = [array for bags in every for array in (bags.instances, bags.statistics) if array is not None]
        return sum(keep_in_memory(array, memory_share) for array in arrays)

    @cached_property
    def _raw_sets(self) -> tuple[BagDataset, BagDataset]:
        return training_sets(self.bags, self.held_out, self.recipe.training_config(self.bags))

    @cached_property
    def _covariates(self) -> list[Covariate]:
        train = self._raw_sets[0]
        return [Covariate.fit(name, train.covariate(name)) for name in train.covariates]

    @cached_property
    def _sets(self) -> tuple[BagDataset, BagDataset]:
        train, held_out = self._raw_sets
        fitted = encode_covariates(train.with_own_intervals(), self._covariates)  # of what is learned from alone
        if held_out is train:
            return fitted, fitted
        held_out = held_out if fitted.target is None else held_out.with_target(fitted.target)
        return fitted, encode_covariates(held_out, self._covariates)

    @property
    def train(self) -> BagDataset:
        """Bags that are learned from."""
        return self._sets[0]

    @property
    def validation(self) -> BagDataset:
        """Bags that training stops by; ``train`` where none are held out."""
        return self._sets[1]

    @property
    def holds_out(self) -> bool:
        """Whether training stops by other bags than it learns from."""
        return self.validation is not self.train

    @cached_property
    def model_config(self) -> ModelConfig:
        """What the model is made of."""
        shape, encoders = self.bags.instance_shape, tuple(self.bags.encoders.values())
        return self.recipe.model_config(shape, encoders=encoders, has_background=self.bags.outcomes is None)

    @cached_property
    def training_config(self) -> TrainingConfig:
        """How it is trained."""
        return self.recipe.training_config(self.train)

    @cached_property
    def initial(self) -> InitialWeights | None:
        """What training starts from, where that is specified."""
        return None if self.recipe.initial is None else InitialWeights.read(Path(self.recipe.initial))

    @cached_property
    def contract(self) -> DataContract:
        """What bags the model takes."""
        target = self.train.target
        return DataContract.of(self.bags if target is None else self.bags.with_target(target), self._covariates)

    @property
    def is_own(self) -> bool:
        """Whether all parts are of miue, so that loading what is saved of them needs no trust."""
        return self.model_config.is_own and all(part_of_distance(one).is_own for one in self.recipe.distances)

    def check_saveable(self) -> None:
        """Raise unless another process can build the model again.

        Raises:
            ConfigError: a part without an import path, or a module that cannot be built again.
        """
        check_saveable(self.model_config, self.contract, self.recipe.distances)

    def description(self, trainer_options: Mapping[str, Option]) -> dict[str, Any]:
        """Return all that must be the same for a run to be resumed."""
        return {
            "model": self.model_config.model_dump(mode="json"),
            "training": self.training_config.model_dump(mode="json"),
            "trainer": dict(trainer_options),
            **({} if self.initial is None else {"initial": f"weights {self.initial.sha256}"}),
            "contract": self.contract.model_dump(mode="json", exclude=NOT_OF_THE_TRAINING),
            "distances": list(find_distances(self.recipe.distances)),
            "training_bags": fingerprint(self.train),
            "validation_bags": fingerprint(self.validation),
        }

    def parts(self) -> Splits:
        """Return which bags are trained on, which are validated on, and what ``bags`` keep for later."""
        used = {"validation": self.validation, "train": self.train}  # of two bags of one name the latter counts
        learned = {name: split for split, part in used.items() for name in part.ids}
        kept = zip(self.bags.ids, self.bags.splits, strict=True)
        later = {name: split for name, split in kept if split and split not in used}
        return Splits("the run", ({**later, **learned},))


@contextmanager
def handed_over(job: Job, output: Path, run: Run) -> Iterator[str]:
    """Yield the path by which tasks read the job and how it runs, while the block runs.

    Other processes read it from a folder beside the output, which also gets instances that are in memory alone;
    this process takes it as it is. No path is yielded twice: a worker that outlives the command, as those of a
    Ray cluster that the caller has joined, keeps what it read from one.

    Args:
        job: what the tasks share.
        output: file or folder that the tasks write, whose lock the caller holds.
        run: how they run.

    Raises:
        ConfigError: a part that other processes cannot build, callbacks or a logger.
        StorageError: the folder cannot be written.
    """
    settings, executor = run.settings, run.executor
    if settings.callbacks or run.loggers:
        raise ConfigError(
            item="callbacks and logger",
            wanted="none, as each training is a task",
            got=f"{len(settings.callbacks)} callbacks and {len(run.loggers)} loggers",
            fix="train one model after another, or pass trackers by name",
        )
    every = output.parent.resolve() / f".{output.name}.job"
    folder = every / secrets.token_hex(4)
    shared = {
        "device": settings.device,
        "memory_share": settings.memory_share,
        "trackers": settings.trackers,
        "trainer_options": settings.trainer_options,
    }
    try:
        if executor.is_local:
            _of_this_process[str(folder)] = job, Run(None, RunSettings.of(shared), progress=False)
        else:
            job.recipe.check_importable(f"executor {executor.kind!r}")
            shutil.rmtree(every, ignore_errors=True)  # of a process that was killed
            _write(folder, job, shared)
        yield str(folder)
    finally:
        _of_this_process.pop(str(folder), None)
        shutil.rmtree(every, ignore_errors=True)


def read_job(path: str) -> tuple[Job, Run]:
    """Return the job that was handed over at ``path``, and how it runs, without a folder.

    Raises:
        StorageError: its files, or those of its bags, are not there.
    """
    return _of_this_process[path] if path in _of_this_process else _read(path)


def _write(folder: Path, job: Job, shared: Mapping[str, Any]) -> None:
    make_folder(folder)
    splits = job.splits
    content = {
        "recipe": job.recipe.to_json(),
        "bags": describe_bags(job.bags, folder / "bags.npy"),
        "held_out": None if job.held_out is None else describe_bags(job.held_out, folder / "held_out.npy"),
        "splits": splits and (splits.source, [dict(fold) for fold in splits.folds], splits.of_patients),
        "run": shared,
    }
    write_nested(folder / FILE, content)


@lru_cache(1)
def _read(path: str) -> tuple[Job, Run]:
    content = read_handed_over(Path(path) / FILE)
    held_out, splits = content["held_out"], content["splits"]
    job = Job(
        Recipe(**content["recipe"]),
        find_bags_again(content["bags"]),
        None if held_out is None else find_bags_again(held_out),
        None if splits is None else Splits(splits[0], tuple(splits[1]), splits[2]),
    )
    return job, Run(None, RunSettings.of(content["run"]), progress=False)
