"""What is said of a training before it begins: its length, its bags, and what may be wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from miue.bags import BagDataset, largest_pixel, leaking_covariates, warn_of_copies
from miue.bags.classes import doubt_about_negative_class
from miue.common.errors import first_few
from miue.common.processes import free_memory
from miue.common.text import plural, say, warn_user
from miue.model import Recipe, TrainingBags
from miue.settings import TrainSettings
from miue.training.job import USED, Job

LARGEST_PIXEL = 32  # beyond what images have that are standardized to mean 0 and deviation 1


def length_in_words(job: Job, networks: int, *, is_fitted_at_once: bool) -> str:
    """Return how much is trained on, and for how long at most."""
    config, bags, instances = job.training_config, len(job.train), int(job.train.sizes.sum())
    size = f"{plural(bags, 'bag')}, {plural(instances, 'instance')}"
    if is_fitted_at_once:
        return f"{size}: fitted at once"
    if config.instances_per_bag is not None:
        size += f", of each bag at most {config.instances_per_bag:,} in an epoch"
    each = f"{networks} networks, each " if networks > 1 else ""
    return (
        f"{size}: {each}at most "
        f"{plural(config.max_epochs, 'epoch')} ({plural(max(1, bags // config.bags_per_update), 'update')} each), "
        f"fewer if {config.stop_patience} bring no improvement"
    )


def say_method(recipe: Recipe, settings: TrainSettings) -> None:
    """Say where another method than the default is trained, as that does not learn from the labels."""
    if recipe.method != settings.method:
        say(
            f"Note: method {recipe.method}, as {settings.method} does not learn from times without an event",
            err=True,
        )


def keep_in_memory(job: Job, memory_share: float, *, progress: bool) -> None:
    """Keep bags of files in a share of the free memory once they are read, and say how much fits."""
    needed, room = job.keep_in_memory(memory_share), memory_share * free_memory()
    if progress and needed:
        kept = f"{needed / 1e6:,.0f} MB in files, kept in memory once they are read"
        if needed > room:
            kept = f"{needed / 1e6:,.0f} MB in files, of which {room / 1e6:,.0f} MB are kept in memory"
        say(f"instances: {kept} (memory_share {memory_share:g} of what is free)", err=True)


def say_parts(job: Job) -> None:
    """Say how many bags each part has, where they came with parts, and how many are held out."""
    splits, validation = job.bags.splits, job.validation
    if not any(splits):
        return
    counts = {name: splits.count(name) for name in dict.fromkeys(splits)}
    used = ", ".join(f"{name} {counts[name]:,}" for name in USED if name in counts)
    others = [f"{name or 'of no part'} {count:,}" for name, count in counts.items() if name not in USED]
    say(f"parts: {used}" + (f"; not used: {', '.join(others)}" if others else ""), err=True)
    if job.holds_out and job.held_out is None and "validation" not in counts:
        say(
            f"no part to validate on: {len(validation):,} of the {plural(counts['train'], 'bag')} of train are "
            f"held out for it (validation_fraction {job.training_config.validation_fraction:g})",
            err=True,
        )


def question_negative_class(bags: BagDataset, recipe: Recipe) -> None:
    """Say where another class than the first is called as the negative one usually is, and none was named.

    Say, too, where labels of instances show that MIREL's negative class has bags of other instances.
    """
    doubt = doubt_about_negative_class(bags.class_names)
    if doubt and recipe.options.get("method.background") is None:
        say(f"Note: {doubt} (in Python: class_names, negative_class)", err=True)
    number, known = recipe.options.get("method.background", 0), bags.instance_labels.known.any()
    if recipe.method != "mirel" or not isinstance(number, int) or not known:
        return
    labels = bags.own_instance_labels
    negative = bags.labels.known & (bags.labels.values == number) & ~bags.is_ood.out_of_distribution
    labeled = labels.known & negative[bags.bag_of_instance]
    if others := int((labeled & (labels.values != number)).sum()):
        name = repr(bags.class_names[number]) if bags.class_names else str(number)
        say(
            f"Note: MIREL takes every instance of a bag of the negative class, {name}, to be of this class, but "
            f"{others:,} of {plural(int(labeled.sum()), 'labeled instance')} in such bags are not. Name a class "
            "first whose bags hold its own instances only (class_names); if there is none, set the option "
            "method.background to none",
            err=True,
        )


def warn_of_bags(job: Job) -> None:
    """Warn of bags that may be wrong: copies, pixels of another scale, without label, a class without bags.

    Warn, too, where all are smaller than ``instances_per_bag``, or were trained on by the initial model.
    """
    _warn_of_initial_bags(job)
    for name in leaking_covariates(job.bags):
        warn_user(f"covariate {name!r} tells the label of every bag; leave it out if it is not known before")
    if job.splits is not None:
        folds = [job.fold(number) for number in range(len(job.splits))]
        _warn_of_large_pixels(folds[0])
        _warn_of_small_bags(folds[0])
        warn_of_copies([job.bags], [dict(zip(fold.bags.ids, fold.bags.splits, strict=True)) for fold in folds])
        return
    _warn_of_large_pixels(job)
    _warn_of_small_bags(job)
    bags, held_out = job.bags, job.held_out
    passed_alone = held_out is not None and not set(held_out.ids) <= set(bags.ids)
    warn_of_copies([bags, job.validation] if passed_alone else [bags], job.parts().folds)
    unlabeled = [] if any(bags.splits) else np.flatnonzero(~bags.labels.known).tolist()
    if unlabeled:
        warn_user(
            f"{len(unlabeled):,} of {plural(len(bags), 'bag')} have no label, so that nothing is learned from "
            f"them: {first_few([bags.ids[row] for row in unlabeled])}"
        )
    trained = set(job.train.labels.values.tolist())
    without = [name for number, name in enumerate(job.train.class_names) if number not in trained]
    if without:
        warn_user(
            f"no bag to train on is of class {first_few(map(repr, without))}, so that the model cannot learn it: "
            "check how the labels are written, and the parts, or leave the class out (class_names)"
        )


def _warn_of_small_bags(job: Job) -> None:
    """Warn where no bag is larger than what is taken of each."""
    limit, largest = job.training_config.instances_per_bag, int(job.bags.sizes.max())
    if limit is not None and largest <= limit:
        warn_user(
            f"instances_per_bag={limit} changes nothing: no bag is larger than {plural(largest, 'instance')}, so "
            "that all are used"
        )


def _warn_of_large_pixels(job: Job) -> None:
    """Warn where images are numbers far from 0 to 1, which encoders of miue take as they are."""
    largest = largest_pixel(job.train)
    if largest > LARGEST_PIXEL and job.model_config.encoder.part("encoder", trust=True).is_own:
        warn_user(
            f"images of numbers up to {largest:,.0f} are taken as they are, where encoders expect about 0 to 1: "
            "pass bytes (uint8), which are divided by 255, or divide the numbers"
        )


def _warn_of_initial_bags(job: Job) -> None:
    """Warn of bags that judge the training, by validation or test, and that the initial model was trained on."""
    learned = None if job.recipe.initial is None else TrainingBags.load(Path(job.recipe.initial))
    if learned is None:
        return
    trained_on = set() if job.splits is not None else set(job.train.ids)
    seen = [
        name
        for bags in (job.bags, *([] if job.held_out is None else [job.held_out]))
        for name, part in learned.compare(bags).part_of().items()
        if part and name not in trained_on
    ]
    if seen:
        warn_user(
            f"the initial model was trained on {plural(len(seen), 'bag')} that this training is judged by "
            f"({first_few(seen)}): what is measured on them says little of new bags; take a model of other bags"
        )
