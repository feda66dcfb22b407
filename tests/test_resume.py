"""A training that was interrupted goes on to what it would have become, whatever is trained."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fast import slow_but
from lightning.pytorch import Callback, Trainer
from made_bags import separable_bags, train_with
from made_images import bright_bags
from torch import Tensor, nn

import miue
from miue.bags import BagDataset
from miue.common.errors import DataError, StorageError
from miue.io import make_folds
from miue.model.recipe import Recipe, settings_by_size
from miue.selection import cross_validate
from miue.settings import TrainingConfig
from miue.training.checkpoints import BestWeights, epochs_in
from miue.training.learner import optimizer_and_schedule

pytestmark = pytest.mark.usefixtures("every_epoch")
RARE = [*range(1, 24, 2), 0, 2, 4]  # three of fifteen are positive
KINDS: dict[str, tuple[BagDataset, dict[str, Any]]] = {
    "lenet": (bright_bags(side=16), {"encoder": "lenet", "options": {"encoder.dropout": 0.2}}),
    "alexnet": (bright_bags(12, side=15, channels=3), {"encoder": "alexnet"}),
    "compact": (bright_bags(), {"encoder": "compact"}),
    "augmented": (bright_bags(side=9), {"encoder": "compact", "settings": {"augmentation": "rotate-flip"}}),
    "mlp": (separable_bags(24), {"encoder": "mlp", "options": {"encoder.scaling": "each"}}),
    "rare class": (separable_bags(24).subset(RARE), {"encoder": "mlp", "settings": {"class_balanced": True}}),
    "sampled": (separable_bags(24), {"encoder": "mlp", "settings": {"instances_per_bag": 3}}),
    "torchmil-transmil": (bright_bags(), {"network": "torchmil-transmil", "method": "softmax"}),
    "bayes-mil": (bright_bags(), {"method": "bayes-mil"}),
    "ensemble": (bright_bags(), {"method": "deep-ensemble", "options": {"method.size": 2}}),
}


class Killed(BaseException):
    """Stands for a kill; nothing that runs inside a training catches it."""


def train(kind: str, out: Path, **more: Any) -> miue.Model:
    if kind.startswith("torchmil") and importlib.util.find_spec("torchmil") is None:
        pytest.skip("needs torchmil")
    bags, options = KINDS[kind]
    options = {**options, **more}
    settings = {"seed": 7, "max_epochs": 4, "learning_rate": 3e-3}
    for of_kind_or_test in (KINDS[kind][1], more):
        settings |= of_kind_or_test.get("settings", {})
    return train_with(bags, out=out, progress=False, device="cpu", **{**options, "settings": settings})


def kill_after(epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is trained die once it has written down this many epochs."""
    written = []

    def count() -> None:
        written.append(1)
        if len(written) == epochs:
            raise Killed

    def counted(write: Callable[..., None]) -> Callable[..., None]:
        def write_and_count(*given: Any) -> None:
            write(*given)
            count()

        return write_and_count

    monkeypatch.setattr(BestWeights, "save", counted(BestWeights.save))


def kill_between_checkpoints(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is trained die when it is to write its last.safetensors for this number of times."""
    written = []
    save = BestWeights.save

    def save_or_die(best: BestWeights, write: Callable[[Path], None]) -> None:
        def write_or_die(path: Path) -> None:
            written.append(1)
            if len(written) == number:
                raise Killed
            write(path)

        save(best, write_or_die)

    monkeypatch.setattr(BestWeights, "save", save_or_die)


def assert_same_files(first: Path, second: Path) -> None:
    contents = [
        {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for folder in (first, second)
    ]
    assert contents[0].keys() == contents[1].keys()
    assert [name for name in contents[0] if contents[0][name] != contents[1][name]] == []


@pytest.mark.long
@pytest.mark.parametrize("kind", slow_but(KINDS, [kind for kind in KINDS if kind != "alexnet"]))
def test_what_is_resumed_ends_in_the_same_files(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(kind, tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_after(3 if kind != "ensemble" else 6, patch)
        with pytest.raises(Killed):
            train(kind, tmp_path / "killed")
    assert not (tmp_path / "killed" / "config.json").exists()
    train(kind, tmp_path / "killed", if_exists="resume")
    assert_same_files(tmp_path / "whole", tmp_path / "killed")


BETWEEN = [(kind, number) for kind in ("compact", "mlp", "ensemble") for number in (1, 2, 4)]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "number"), slow_but(BETWEEN, [("compact", 2), ("mlp", 1), ("ensemble", 4)]))
def test_a_run_killed_between_best_and_last_weights_is_resumed(
    kind: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(kind, tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_between_checkpoints(number, patch)
        with pytest.raises(Killed):
            train(kind, tmp_path / "killed")
    train(kind, tmp_path / "killed", if_exists="resume")
    assert_same_files(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.parametrize("callbacks", [(), (Callback(),)], ids=["loop", "lightning"])
def test_checkpoints_are_written_by_time_and_at_the_end(
    callbacks: tuple[Callback, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, written, add = [0.0], list[int](), BestWeights.add

    def take_six_seconds(best: BestWeights, epoch: int, *given: Any) -> None:
        now[0] += 6
        add(best, epoch, *given)
        if best.last.exists() and epochs_in(best.last) not in written:
            written.append(epochs_in(best.last))
        if epoch == dies_at:
            raise Killed

    monkeypatch.setattr("miue.training.checkpoints.SECONDS", 15.0)
    monkeypatch.setattr("miue.training.checkpoints.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(BestWeights, "add", take_six_seconds)
    more: dict[str, Any] = {"settings": {"max_epochs": 8, "callbacks": callbacks}}
    dies_at = 0
    train("mlp", tmp_path / "whole", **more)
    assert written == [3, 6]
    assert epochs_in(tmp_path / "whole" / "checkpoints" / "last.safetensors") == 8
    dies_at = 5
    with pytest.raises(Killed):
        train("mlp", tmp_path / "killed", **more)
    assert epochs_in(tmp_path / "killed" / "checkpoints" / "last.safetensors") == 3
    dies_at = 0
    train("mlp", tmp_path / "killed", **more, if_exists="resume")
    assert_same_files(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.long
def test_a_cross_validation_of_images_goes_on_to_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = bright_bags()
    recipe = Recipe(encoder="compact", settings={"max_epochs": 3, "learning_rate": 3e-3})
    splits = make_folds(bags, 2)
    cross_validate(bags, splits, [1], tmp_path / "whole", recipe, progress=False)
    with monkeypatch.context() as patch:
        kill_after(5, patch)
        with pytest.raises(Killed):
            cross_validate(bags, splits, [1], tmp_path / "killed", recipe, progress=False)
    cross_validate(bags, splits, [1], tmp_path / "killed", recipe, progress=False)
    assert_same_files(tmp_path / "whole", tmp_path / "killed")


UNFINISHED = [(kind, False) for kind in ("lenet", "compact", "mlp", "ensemble")]
FAST = [("lenet", True), ("compact", False), ("mlp", True), ("bayes-mil", True), ("ensemble", False)]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "finished"), slow_but([*((kind, True) for kind in KINDS), *UNFINISHED], FAST))
def test_more_epochs_end_where_a_training_of_that_length_ends(
    kind: str, finished: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(kind, tmp_path / "whole")
    with monkeypatch.context() as patch:
        if not finished:
            kill_after(1, patch)
        with nullcontext() if finished else pytest.raises(Killed):
            train(kind, tmp_path / "longer", settings={"max_epochs": 2})
    trained = train(kind, tmp_path / "longer", settings={"max_epochs": 4}, if_exists="resume")
    assert trained.training.settings["max_epochs"] == 4
    assert_same_files(tmp_path / "whole", tmp_path / "longer")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mlp", "ensemble"])
def test_fewer_epochs_end_a_training_where_it_is(kind: str, tmp_path: Path) -> None:
    longer = train(kind, tmp_path / "run")
    (tmp_path / "run" / "calibration.json").write_text("{}")  # of the weights that there were
    with pytest.warns(UserWarning, match="the calibration in .* is removed: calibrate again"):
        shorter = train(kind, tmp_path / "run", settings={"max_epochs": 2}, if_exists="resume")
    assert shorter.weights_sha256 == longer.weights_sha256
    assert shorter.training.epochs == longer.training.epochs
    assert not (tmp_path / "run" / "calibration.json").exists()


@pytest.mark.long
@pytest.mark.parametrize("kind", slow_but(KINDS, ["mlp", "bayes-mil", "ensemble"]))
def test_other_distances_are_fitted_without_training_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(kind, tmp_path / "whole", distances=("mahalanobis",))
    train(kind, tmp_path / "run", distances=("knn",))
    kill_after(1, monkeypatch)
    resumed = train(kind, tmp_path / "run", distances=("mahalanobis",), if_exists="resume")
    assert list(resumed.distances) == ["mahalanobis"]
    assert_same_files(tmp_path / "whole", tmp_path / "run")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mlp", "ensemble"])
def test_a_distance_that_cannot_be_fitted_costs_no_epoch(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(DataError, match="all the same"):
        patch.setattr("miue.training.train.fit_distances", refuse)
        train(kind, tmp_path / "run", distances=("knn",))
    kill_after(1, monkeypatch)
    resumed = train(kind, tmp_path / "run", distances=(), if_exists="resume")
    assert not resumed.distances and len(resumed.predict(KINDS[kind][0]).bags)


def test_a_run_that_is_removed_while_it_is_trained_is_whole_in_the_end(tmp_path: Path) -> None:
    """Each checkpoint makes the folder again; run.json, by which training bags are known, was missing."""

    class Remove(Callback):
        def on_train_epoch_end(self, trainer: Trainer, module: object) -> None:
            if trainer.current_epoch == 1:
                shutil.rmtree(tmp_path / "removed")

    quick: dict[str, Any] = {"settings": {"max_epochs": 2}, "progress": False}
    train_with(separable_bags(), out=tmp_path / "kept", **quick)
    train_with(separable_bags(), out=tmp_path / "removed", callbacks=[Remove()], **quick)
    assert (tmp_path / "removed" / "run.json").read_bytes() == (tmp_path / "kept" / "run.json").read_bytes()


def refuse(*_: object, **__: object) -> None:
    raise DataError(item="features", wanted="some that differ", got="all the same", fix="train longer")


CHANGES: dict[str, dict[str, Any]] = {
    "more epochs": {"settings": {"max_epochs": 4}},
    "another distance": {"settings": {"max_epochs": 2}, "distances": ("mahalanobis",)},
}


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["mlp", "ensemble"])
def test_a_model_stays_until_its_successor_is_there(
    kind: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, begun, changed = tmp_path / "run", {"settings": {"max_epochs": 2}}, CHANGES[change]
    first = train(kind, run, **begun)
    with monkeypatch.context() as patch, pytest.raises((Killed, DataError)):
        kill_after(1, patch)
        patch.setattr("miue.training.train.fit_distances", refuse)
        train(kind, run, **changed, if_exists="resume")
    kept = miue.Model.load(run)
    assert kept.weights_sha256 == first.weights_sha256 and list(kept.distances) == list(first.distances)
    assert train(kind, run, **begun, if_exists="resume").training == first.training
    train(kind, run, **changed, if_exists="resume")
    train(kind, tmp_path / "whole", **changed)
    assert_same_files(tmp_path / "whole", run)


@pytest.mark.parametrize("lost", ["damaged", "gone"])
@pytest.mark.parametrize("kind", ["mlp", "ensemble"])
def test_a_model_stays_where_other_epochs_cannot_be_trained(kind: str, lost: str, tmp_path: Path) -> None:
    train(kind, tmp_path / "run", settings={"max_epochs": 2})
    for path in (tmp_path / "run").rglob("last.safetensors"):
        path.write_bytes(b"half")
        if lost == "gone":
            path.unlink()
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(StorageError, match="--overwrite"):
        train(kind, tmp_path / "run", if_exists="resume")
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}


class Filters(nn.Module):
    """Four-dimensional weights in a memory format of choice."""

    def __init__(self, memory_format: torch.memory_format) -> None:
        super().__init__()
        values = torch.randn(3, 5, 2, 2, generator=torch.Generator().manual_seed(0))
        self.weight = nn.Parameter(values.contiguous(memory_format=memory_format))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_loaded_moments_meet_their_weights_in_every_memory_format(memory_format: torch.memory_format) -> None:
    def step(filters: Filters, optimizer: torch.optim.Optimizer) -> Tensor:
        optimizer.zero_grad()
        filters.weight.pow(3).sum().backward()
        optimizer.step()
        return filters.weight.detach().clone()

    filters = Filters(memory_format)
    optimizer, _ = optimizer_and_schedule(filters, TrainingConfig.model_validate(settings_by_size(500, 5000)))
    step(filters, optimizer)
    saved = {
        k: v.contiguous().clone() if torch.is_tensor(v) else v for k, v in optimizer.state[filters.weight].items()
    }
    again = Filters(memory_format)
    again.load_state_dict(filters.state_dict())
    resumed, _ = optimizer_and_schedule(again, TrainingConfig.model_validate(settings_by_size(500, 5000)))
    resumed.load_state_dict({**optimizer.state_dict(), "state": {0: saved}})
    assert torch.equal(step(again, resumed), step(filters, optimizer))
