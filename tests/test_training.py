"""Training: schedule, early stop, best weights, and a resume that ends at the same weights."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from made_bags import labeled, separable_bags, train_with
from safetensors.torch import load_file

import miue
from miue.bags import BagDataset, Labels, OodFlags, ordered_batches, shuffled_batches
from miue.common.errors import ConfigError, DataError, StorageError
from miue.common.tensors import read_nested, write_nested
from miue.model.recipe import settings_by_size
from miue.model.training_bags import parts_of_run
from miue.settings import TrainingConfig
from miue.training.learner import EpochSums, TrainingData, optimizer_and_schedule

QUICK = {"seed": 7, "max_epochs": 4, "learning_rate": 1e-3}


def quick_train(bags: BagDataset, **more: Any) -> miue.Model:
    settings = {**QUICK, **more.pop("settings", {})}
    return train_with(bags, settings={**settings, "device": "cpu"}, progress=False, **more)


@pytest.mark.long
@pytest.mark.parametrize("method", ["mirel", "softmax"])
def test_training_learns_bags_and_instances_from_bag_labels(method: str) -> None:
    settings = {"max_epochs": 12, "learning_rate": 5e-3}  # from 80 bags all are learned, so that 0.9 leaves room
    model = quick_train(separable_bags(80), method=method, settings=settings)
    test = separable_bags(60, seed=1)
    predictions = model.predict(test)
    assert (predictions.bags.predicted == test.labels.values).mean() > 0.9
    assert predictions.instances is not None
    assert (predictions.instances.predicted == test.instance_labels.values).mean() > 0.9
    assert not model.training.warning and "hardly anything" not in str(model)


@pytest.mark.parametrize("negative_share", [0.5, 0.75])
def test_a_model_that_learned_nothing_says_so(negative_share: float) -> None:
    random = np.random.default_rng(0)
    labels = [int(i >= 80 * negative_share) for i in range(80)]
    noise = [random.normal(size=(3, 4)).astype(np.float32) for _ in labels]
    model = quick_train(BagDataset.from_arrays(noise, labels))
    shares = np.array([negative_share, 1 - negative_share])  # of the validation bags too, which are stratified
    lowest = -(shares * np.log(shares)).sum() + 1 - shares.max()
    assert model.training.constant_criterion == pytest.approx(lowest)
    assert model.training.criterion > 0.95 * lowest
    assert "hardly anything was learned: on the validation bags NLL + error is" in str(model)
    assert "initial_weights" not in str(model)


@pytest.mark.parametrize(("labels", "gap"), [((1, 2), 0), ((0, 2), 1), ((0, 100_000), 1), ((0, 1, 3), 2)])
def test_numbers_of_classes_without_names_have_no_gaps(labels: tuple[int, ...], gap: int) -> None:
    arrays = [np.full((2, 3), label, np.float32) for label in labels * 8]
    bags = BagDataset.from_arrays(arrays, [*labels] * 8)
    with pytest.raises(DataError, match=f"without gaps, or names of classes, got no bag of class {gap}, and "):
        quick_train(bags)


@pytest.mark.long
def test_a_model_that_learned_nothing_says_what_its_network_and_encoder_could_try() -> None:
    bags = separable_bags(32)
    of_network, of_encoder = "network.initial_weights=uniform", "encoder.scaling=each"
    for weights, scaling, said in (
        ("normal", "common", f", or {of_network} or {of_encoder}"),
        ("normal", "each", f", or {of_network}"),
        ("uniform", "common", f", or {of_encoder}"),
        ("uniform", "each", "or method"),
    ):
        options = {"network.initial_weights": weights, "encoder.scaling": scaling}
        model = quick_train(bags, network="dsmil", settings={"learning_rate": 1e-12}, options=options)
        assert "hardly anything" in model.training.warning
        assert model.training.warning.endswith(said)
    assert (
        quick_train(bags, network="dsmil", method="softmax", settings={"max_epochs": 12}).training.also_try == ""
    )


def test_bags_of_one_class_have_no_class_shares_to_compare_with(bags: BagDataset) -> None:
    positive = np.flatnonzero(bags.labels.values == 1)
    others = np.setdiff1d(np.arange(len(bags)), positive[:4])
    model = quick_train(bags.subset(others), validation=bags.subset(positive[:4]))
    assert model.training.constant_criterion is None and not model.training.warning


@pytest.mark.long
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(bags: BagDataset) -> None:
    first, second, other = (quick_train(bags, settings={"seed": s}).method.state_dict() for s in (7, 7, 8))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_dropout_draws_depend_on_the_seed_alone(bags: BagDataset) -> None:
    options = {"encoder.dropout": 0.5}
    first = quick_train(bags, options=options).method.state_dict()
    torch.manual_seed(99)
    second = quick_train(bags, options=options).method.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_every_epoch_sees_every_bag_once_in_another_order(bags: BagDataset) -> None:
    orders = []
    for epoch in (0, 1):
        batches = shuffled_batches(bags, 8, seed=1, epoch=epoch)
        orders.append(np.concatenate(batches.groups))
        assert len(batches) == 5
        assert sorted(orders[-1]) == list(range(40))
    assert not np.array_equal(orders[0], orders[1])
    assert len(shuffled_batches(bags, 7, seed=1, epoch=0)) == 5  # the last, incomplete one is dropped
    assert len(shuffled_batches(bags, 64, seed=1, epoch=0)) == 1  # unless it is the only one


def test_an_epoch_is_judged_by_likelihood_and_error_of_all_validation_bags() -> None:
    sums, p = EpochSums(np.ones(2)), torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], dtype=torch.float64)
    sums.add_update(0.5)
    sums.add_update(1.5)
    sums.add_validation(p[:2].log(), labeled(torch.tensor([0, 1])))
    sums.add_validation(p[2:].log(), labeled(torch.tensor([1])))
    nll, error = -np.log([0.9, 0.8, 0.4]).mean(), 1 / 3
    expected = {"train_loss": 1.0, "validation_nll": nll, "validation_error": error, "criterion": nll + error}
    assert sums.values(1, "lower it") == pytest.approx(expected)


def test_an_epoch_that_is_hardly_better_does_not_count_as_the_best(bags: BagDataset) -> None:
    model = quick_train(bags, settings={"max_epochs": 2, "learning_rate": 1e-12}, distances=())
    assert model.training is not None
    assert model.training.best_epoch == 1


def test_each_epoch_draws_other_numbers(bags: BagDataset) -> None:
    seeds: list[int] = []

    class Seeds(Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            seeds.append(torch.initial_seed())

    settings = {"max_epochs": 2, "bags_per_update": len(bags)}
    quick_train(bags, settings=settings, callbacks=[Seeds()], distances=())
    assert len(set(seeds)) == len(seeds) == 2


def test_the_order_of_training_is_another_for_each_seed_and_epoch(bags: BagDataset) -> None:
    orders = set()
    for seed in (7, 8):
        settings = {**settings_by_size(40, 160), "seed": seed, "bags_per_update": len(bags)}
        data = TrainingData(bags, bags, TrainingConfig.model_validate(settings))
        for epoch in (0, 1):
            orders.add(tuple(data.updates(epoch).groups[0].tolist()))
    assert len(orders) == 4


def test_ordered_batches_hold_whole_bags_within_the_limit(bags: BagDataset) -> None:
    batches = ordered_batches(bags, 10)
    assert np.concatenate(batches.groups).tolist() == list(range(40))
    for group in batches.groups:
        assert bags.sizes[group].sum() <= 10 or len(group) == 1


def test_weight_decay_leaves_biases_alone(bags: BagDataset) -> None:
    method = quick_train(bags).method
    config = TrainingConfig.model_validate({**settings_by_size(500, 5000), "weight_decay": 0.5})
    decayed, others = optimizer_and_schedule(method, config)[0].param_groups
    assert decayed["weight_decay"] == 0.5
    assert others["weight_decay"] == 0
    assert all(p.dim() > 1 for p in decayed["params"])
    assert {p.dim() for p in others["params"]} == {1}


def read_log(run: Path) -> list[dict[str, float]]:
    with (run / "log.csv").open(newline="") as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


@pytest.mark.long
def test_training_stops_early_halves_its_rate_and_keeps_the_best_epoch(tmp_path: Path) -> None:
    noise = separable_bags(40, seed=3)
    random = np.random.default_rng(0)
    unlearnable = BagDataset.from_arrays(
        [random.normal(size=(3, 5)) for _ in range(40)], labels=noise.labels.values.tolist()
    )
    settings = {"max_epochs": 60, "stop_patience": 5, "lr_patience": 1, "learning_rate": 0.01}
    model = quick_train(unlearnable, settings=settings, out=tmp_path / "run")
    log = read_log(tmp_path / "run")
    criteria = [row["criterion"] for row in log]
    best = int(np.argmin(criteria))
    assert model.training.best_epoch == best + 1
    assert len(log) == best + 1 + 5 < 60
    assert log[-1]["learning_rate"] < log[0]["learning_rate"] == 0.01
    assert all(row["criterion"] == pytest.approx(row["validation_nll"] + row["validation_error"]) for row in log)
    kept = load_file(tmp_path / "run" / "checkpoints" / "best.safetensors")
    assert all(torch.equal(kept[name], value) for name, value in model.method.state_dict().items())


SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
sys.path.insert(0, sys.argv[1])
import miue
from made_bags import separable_bags
from miue.training import checkpoints
from miue.training.checkpoints import BestWeights
checkpoints.SECONDS = 0
add, save = BestWeights.add, BestWeights.save

def train(out, if_exists, pace):
    def note(self, epoch, *given):
        with open(out + ".epochs", "a") as file:
            file.write(f"{epoch - 1}\\n")
        add(self, epoch, *given)

    def slowly(self, *given):
        save(self, *given)
        time.sleep(0.2 if pace == "slow" else 0)

    BestWeights.add, BestWeights.save = note, slowly
    settings = dict(seed=5, max_epochs=14, learning_rate=5e-3, lr_patience=0, stop_patience=9, device="cpu")
    settings["options"] = {"encoder.dropout": 0.3}
    miue.train(separable_bags(), settings=settings, out=out, if_exists=if_exists, progress=False)

miue.train  # loads the trainer, once for all runs
for line in sys.stdin:
    process = os.fork()
    if not process:
        train(*line.rstrip("\\n").split("\\t"))
        break
    print(process, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


class Trainings:
    """A process that has loaded the trainer and trains in forks of itself, one after the other."""

    def __init__(self) -> None:
        words = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.parent = subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, run: Path, if_exists: str, pace: str = "fast") -> int:
        """Return the id of the process that trains."""
        assert self.parent.stdin is not None
        self.parent.stdin.write(f"{run}\t{if_exists}\t{pace}\n")
        self.parent.stdin.flush()
        return self._read()

    def wait(self) -> int:
        """Return the exit status of the training, negative for a signal."""
        return self._read()

    def _read(self) -> int:
        assert self.parent.stdout is not None
        return int(self.parent.stdout.readline())


@pytest.fixture
def trainings() -> Iterator[Trainings]:
    started = Trainings()
    with started.parent:
        yield started
        started.parent.kill()


@pytest.mark.long
@pytest.mark.parametrize("epochs_at_kills", [(3,), pytest.param((2, 5), marks=pytest.mark.slow)])
def test_a_run_killed_at_any_moment_resumes_to_the_same_weights(
    epochs_at_kills: tuple[int, ...], tmp_path: Path, trainings: Trainings
) -> None:
    trainings.start(tmp_path / "whole", "refuse")
    assert trainings.wait() == 0
    killed = tmp_path / "killed"
    for kills, wanted_epochs in enumerate(epochs_at_kills):
        process = trainings.start(killed, "resume" if kills else "refuse", "slow")
        while len(read_log(killed)) < wanted_epochs if (killed / "log.csv").exists() else True:
            os.kill(process, 0)  # raises where the run ended before it could be killed
            time.sleep(0.05)
        os.kill(process, signal.SIGKILL)
        assert trainings.wait() == -signal.SIGKILL
        assert not (killed / "config.json").exists()
        with pytest.raises(StorageError, match="has not ended"):
            miue.Model.load(killed)
    trainings.start(killed, "resume")
    assert trainings.wait() == 0
    whole, resumed = (load_file(folder / "model.safetensors") for folder in (tmp_path / "whole", killed))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert read_log(killed) == read_log(tmp_path / "whole")
    trained = [int(line) for line in Path(f"{killed}.epochs").read_text().split()]
    epochs = len(read_log(killed))
    assert sorted(set(trained)) == list(range(epochs))
    assert len(trained) <= epochs + len(epochs_at_kills), "each kill loses one epoch at most"
    rates = [row["learning_rate"] for row in read_log(killed)]
    assert rates[-1] < rates[0], "the schedule must have moved for the test to mean anything"


@pytest.mark.slow  # its sibling of the shell stands in test_interrupt.py
def test_an_interrupt_is_an_interrupt_and_leaves_a_run_to_resume(tmp_path: Path, trainings: Trainings) -> None:
    run = tmp_path / "run"
    process = trainings.start(run, "refuse", "slow")
    while not (run / "checkpoints" / "last.safetensors").exists():
        os.kill(process, 0)
        time.sleep(0.05)
    os.kill(process, signal.SIGINT)
    assert trainings.wait() == -signal.SIGINT
    assert read_nested(run / "checkpoints" / "last.safetensors")["epoch"] >= 0
    assert not (run / "config.json").exists()


def test_resuming_where_training_had_stopped_trains_no_further(tmp_path: Path, bags: BagDataset) -> None:
    run = tmp_path / "run"
    settings = {"max_epochs": 30, "stop_patience": 2, "learning_rate": 0.05}
    first = quick_train(bags, settings=settings, out=run)
    (run / "config.json").unlink()  # as if killed after the last epoch, before the model was written
    second = quick_train(bags, settings=settings, out=run, if_exists="resume")
    assert second.training == first.training
    states = first.method.state_dict(), second.method.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.long
def test_a_run_is_not_overwritten_unless_asked_and_not_resumed_as_another(
    tmp_path: Path, bags: BagDataset
) -> None:
    run = tmp_path / "run"
    quick_train(bags, out=run)
    before = (run / "model.safetensors").read_bytes()
    with pytest.raises(StorageError, match="--overwrite"):
        quick_train(bags, out=run)
    with pytest.raises(ConfigError, match="the same seed as when it was started, 7, got 8; go on"):
        quick_train(bags, out=run, if_exists="resume", settings={"seed": 8})
    with pytest.raises(
        ConfigError, match=r"same learning_rate as when.*, 0.001, got 0.1 \(also different: lr_pat"
    ):
        quick_train(bags, out=run, if_exists="resume", settings={"learning_rate": 0.1, "lr_patience": 3})
    with pytest.raises(ConfigError, match="the same encoder.width as when it was started, nothing, got 8;"):
        quick_train(bags, out=run, if_exists="resume", options={"encoder.width": 8})
    with pytest.raises(ConfigError, match="the same network as when it was started, 'attention', got 'mean';"):
        quick_train(bags, out=run, if_exists="resume", network="mean")
    with pytest.raises(ConfigError, match="the same training_bags as when it was started"):
        encoded_again = replace(bags, instances=2 * np.asarray(bags.instances))
        quick_train(encoded_again, out=run, if_exists="resume")
    assert (run / "model.safetensors").read_bytes() == before
    quick_train(bags, out=run, if_exists="overwrite", settings={"seed": 8})
    assert (run / "model.safetensors").read_bytes() != before


def test_a_nested_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    content = {
        "tensors": [torch.arange(3), torch.zeros((), dtype=torch.float64)],
        "keys": {1: "one", ("a", 2): None},
        "numbers": (float("inf"), -1.5, True, 7),
        "empty": {},
    }
    write_nested(tmp_path / "checkpoint", content)
    back = read_nested(tmp_path / "checkpoint")
    assert torch.equal(back["tensors"][0], content["tensors"][0])  # type: ignore[index]
    assert back["tensors"][1].dtype == torch.float64
    assert (back["keys"], back["numbers"], back["empty"]) == (content["keys"], content["numbers"], {})
    assert type(back["numbers"]) is tuple


def test_a_damaged_checkpoint_says_so(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"not safetensors")
    with pytest.raises(StorageError, match="checkpoint written by miue"):
        read_nested(tmp_path / "checkpoint")


def test_only_one_class_is_refused_before_training() -> None:
    with pytest.raises(DataError, match="bags of at least 2 classes, got class \\[1\\] only"):
        miue.train([np.ones((2, 3))] * 4, [1, 1, 1, 1])
    named = BagDataset.from_arrays([np.ones((2, 3))] * 4, [1, 1, 1, 1], class_names=("2", "9", "10"))
    with pytest.raises(DataError, match="bags of at least 2 classes, got class \\['9'\\] only"):
        miue.train(named)


def test_a_bag_without_a_label_that_is_to_be_trained_on_is_named() -> None:
    bags = replace(BagDataset.from_arrays([np.ones((2, 3))] * 3, [1, None, 0]), splits=("train",) * 3)
    with pytest.raises(
        DataError, match="bag 'bag_1' of the training set.*take these bags out of the training part"
    ):
        miue.train(bags)


def test_bags_of_which_none_has_a_label_are_not_trained_on() -> None:
    with pytest.raises(DataError, match="bag 'bag_0' of the training set: expected a label for every bag"):
        miue.train([np.ones((2, 3))] * 3, [None, None, None])


def test_foreign_bags_are_not_learned_from(bags: BagDataset) -> None:
    with pytest.raises(DataError, match="expected bags in distribution"):
        quick_train(replace(bags, is_ood=OodFlags.of(np.arange(len(bags)) == 3)))


def test_splits_without_one_to_train_on_are_refused(bags: BagDataset) -> None:
    with pytest.raises(DataError, match="split 'train': expected one of test"):
        quick_train(replace(bags, splits=("test",) * len(bags)))


def test_a_patient_in_two_splits_is_refused_wherever_the_bags_come_from(bags: BagDataset, tmp_path: Path) -> None:
    halves = ("train", "train", "validation", "validation") * (len(bags) // 4)
    shared = replace(bags, splits=halves, patients=tuple(f"p{row // 4}" for row in range(len(bags))))
    miue.write_store(tmp_path / "store", shared)
    with pytest.raises(DataError, match="patient 'p0' in 'the bags': expected all bags of a patient in one split"):
        quick_train(miue.read_store(tmp_path / "store"))


def test_validation_bags_are_like_those_of_training(bags: BagDataset) -> None:
    with pytest.raises(DataError, match="the validation bags: expected instances of shape"):
        quick_train(bags, validation=separable_bags(8, width=3))
    other = BagDataset.from_arrays([np.ones((2, 5))] * 3, [0, 1, 2])
    with pytest.raises(DataError, match="the validation bags: expected classes from 0 to 1"):
        quick_train(bags, validation=other)


@pytest.mark.long
def test_classes_of_validation_bags_are_matched_by_their_names(bags: BagDataset) -> None:
    names, held_out = ("healthy", "ill"), separable_bags(16, seed=1)
    held_out = replace(held_out, ids=tuple(f"held_out_{row}" for row in range(16)), class_names=names)
    named = replace(bags, class_names=names)
    criterion = quick_train(named, validation=held_out).training.criterion
    reordered = held_out.with_classes(("ill", "healthy"))
    assert quick_train(named, validation=reordered).training.criterion == criterion
    ill = held_out.subset(held_out.labels.values == 1)
    one_class = replace(ill, labels=Labels.of([0] * len(ill)), class_names=("ill",))
    one_class = replace(one_class, instance_labels=Labels.unknown(len(ill.instances)))
    criteria = [quick_train(named, validation=bags).training.criterion for bags in (ill, one_class)]
    assert criteria[0] == criteria[1]
    with pytest.raises(DataError, match="class 'ill' of the bags: expected one of the classes 0, 1"):
        quick_train(bags, validation=held_out)


def test_a_large_share_held_out_leaves_a_bag_of_each_class() -> None:
    random = np.random.default_rng(0)
    few = BagDataset.from_arrays([random.normal(size=(2, 3)) for _ in range(6)], [0, 0, 1, 1, 2, 2])
    model = quick_train(few, settings={"validation_fraction": 0.9, "max_epochs": 1})
    assert (model.training.training_bags, model.training.validation_bags) == (3, 3)


@pytest.mark.long
@pytest.mark.parametrize("splits", [(), ("train", "test", "train")])
def test_where_none_is_held_out_all_are_learned_from_and_say_when_to_stop(
    splits: tuple[str, ...], bags: BagDataset, tmp_path: Path
) -> None:
    given = replace(bags, splits=splits * (len(bags) // 3) + ("train",) * (len(bags) % 3)) if splits else bags
    settings = {"validation_fraction": 0, "max_epochs": 3}
    model = quick_train(given, settings=settings, out=tmp_path / "run")
    learned = [name for name, split in zip(given.ids, given.splits, strict=True) if split in ("", "train")]
    assert (model.training.training_bags, model.training.validation_bags) == (len(learned), 0)
    wanted = quick_train(given.subset([given.ids.index(name) for name in learned]), settings=settings)
    assert model.training.criterion == pytest.approx(wanted.training.criterion)
    parts = parts_of_run(tmp_path / "run", given)
    assert parts.within("train") == set(learned)
    assert not parts.within("validation")


def test_a_class_too_small_to_hold_out_from_is_named() -> None:
    said = r"class 1 of the training set: expected at least 2 bags.*hold none out \(validation_fraction=0\)"
    with pytest.raises(DataError, match=said):
        miue.train([np.ones((2, 3))] * 6, [0, 0, 0, 0, 0, 1])


def test_a_class_of_too_few_patients_to_hold_out_from_is_named(bags: BagDataset) -> None:
    patients = ["one" if label else f"{row}" for row, label in enumerate(bags.labels.values)]
    said = (
        r"class 1 of the training set: expected at least 2 patients, .* got 1; add patients of this class, pass "
        r"validation bags, or hold none out \(validation_fraction=0\)$"
    )
    with pytest.raises(DataError, match=said):
        miue.train(replace(bags, patients=tuple(patients)), settings={"max_epochs": 1})


def test_a_learning_rate_that_diverges_is_reported(bags: BagDataset) -> None:
    with pytest.raises(DataError, match="a finite loss"):
        quick_train(bags, method="softmax", settings={"learning_rate": 1e30, "max_epochs": 20})


def test_where_splits_have_none_to_validate_on_it_is_said_how_many_are_held_out(
    bags: BagDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    halves = tuple("test" if row % 4 == 3 else "train" for row in range(len(bags)))
    given, learned = replace(bags, splits=halves), halves.count("train")
    for share in (0.2, 0):
        settings = {**QUICK, "validation_fraction": share, "max_epochs": 1}
        model = miue.train(given, settings={**settings, "device": "cpu"})
        said = " ".join(capsys.readouterr().err.split())
        held_out = model.training.validation_bags
        wanted = f"no part to validate on: {held_out} of the {learned} bags of train are held out for it"
        assert (wanted in said) == bool(share)


@pytest.mark.parametrize("labeled", [range(60), range(30)], ids=["all", "some"])
def test_instances_of_a_class_that_no_bag_has_are_refused_before_training(labeled: range, tmp_path: Path) -> None:
    """Where they were in validation bags, all epochs were trained, and no model was returned or saved."""
    bags = separable_bags(60)
    rows = [[2] + [0] * (size - 1) if row in labeled else [None] * size for row, size in enumerate(bags.sizes)]
    arrays = [bags.instances[start : start + size] for start, size in zip(bags.starts, bags.sizes, strict=True)]
    wrong = miue.BagDataset.from_arrays(arrays, bags.labels.values, instance_labels=rows)
    settings = {"max_epochs": 1}
    with pytest.raises(
        DataError, match="^the instance labels of bag 'bag_.*classes from 0 to 1.*got class 2, and"
    ):
        miue.train(wrong, settings={**settings, "device": "cpu"}, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    others = wrong.subset([row for row in range(60) if row not in labeled])
    if len(others):  # labels of bags that are not trained on do not count
        miue.train(others, settings={**settings, "distances": (), "device": "cpu"}, progress=False)
    names = ("none", "one", "two")
    named = miue.BagDataset.from_arrays(arrays, bags.labels.values, instance_labels=rows, class_names=names)
    with pytest.warns(UserWarning, match="no bag to train on is of class 'two'"):
        model = miue.train(named, settings={**settings, "distances": (), "device": "cpu"}, progress=False)
    assert model.contract.num_classes == 3
