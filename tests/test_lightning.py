"""Lightning's callbacks, loggers and trainer options are taken, and a run with them resumes as any other."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import lightning.pytorch as pl
import pytest
import torch
from fast import slow_but
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from made_bags import train_with

import miue
from miue.bags import BagDataset
from miue.common.errors import ConfigError

pytestmark = pytest.mark.usefixtures("every_epoch")
KINDS: dict[str, dict[str, Any]] = {
    "mirel": {"options": {"encoder.dropout": 0.2}},
    "bayes-mil": {"method": "bayes-mil"},
    "deep-ensemble": {"method": "deep-ensemble", "options": {"method.size": 2}},
}


class Epochs(Callback):
    """Notes each epoch that ends, draws random numbers as it likes, and fails where it is told to."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.seen: list[tuple[int, float]] = []
        self.drawn: torch.Tensor | None = None

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.drawn = torch.rand(3)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.seen.append((trainer.current_epoch + 1, float(trainer.callback_metrics["criterion"])))
        if trainer.current_epoch + 1 == self.fails_at:
            raise RuntimeError("the callback has a bug")

    def state_dict(self) -> dict[str, Any]:
        return {"seen": [list(epoch) for epoch in self.seen], "drawn": self.drawn}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seen = [(epoch, criterion) for epoch, criterion in state_dict["seen"]]


class Hoarder(Callback):
    """Has a state that only pickle could store."""

    def state_dict(self) -> dict[str, Any]:
        return {"path": Path("x")}


class Adder(Callback):
    """Adds to the checkpoint what only pickle could store."""

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["mine"] = Path("x")


def train(bags: BagDataset, out: Path | None = None, *, epochs: int = 4, **more: Any) -> miue.Model:
    settings = {"max_epochs": epochs, "learning_rate": 1e-2}
    return train_with(bags, out=out, settings={**settings, "device": "cpu"}, progress=False, **more)


def logged(folder: Path) -> list[tuple[int, float]]:
    with (folder / "log.csv").open(newline="") as file:
        return [(int(row["epoch"]), float(row["criterion"])) for row in csv.DictReader(file)]


def files(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Leave annotations unchecked, as they are outside of the tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_callback_is_called_at_the_end_of_every_epoch_of_every_network(
    kind: str, tmp_path: Path, bags: BagDataset
) -> None:
    epochs = Epochs()
    train(bags, tmp_path / "run", callbacks=[epochs], **KINDS[kind])
    folders = [tmp_path / "run" / "members" / "0", tmp_path / "run" / "members" / "1"]
    wanted = [logged(folder) for folder in (folders if kind == "deep-ensemble" else [tmp_path / "run"])]
    assert [len(epochs) for epochs in wanted] == [4] * len(wanted)
    assert epochs.seen == [epoch for log in wanted for epoch in log]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_lightning_learns_what_the_loop_without_it_learns(kind: str, tmp_path: Path, bags: BagDataset) -> None:
    train(bags, tmp_path / "plain", **KINDS[kind])
    train(bags, tmp_path / "lightning", callbacks=[Callback()], **KINDS[kind])
    plain, lightning = files(tmp_path / "plain"), files(tmp_path / "lightning")
    assert plain.keys() == lightning.keys()
    assert {path for path in plain if plain[path] != lightning[path]} == {
        path for path in plain if path.name == "last.safetensors"
    }


@pytest.mark.long
@pytest.mark.parametrize("kind", slow_but(KINDS, ["mirel", "deep-ensemble"]))
def test_a_run_that_a_callback_broke_off_resumes_to_the_same_files(
    kind: str, tmp_path: Path, bags: BagDataset
) -> None:
    train(bags, tmp_path / "whole", callbacks=[Epochs()], **KINDS[kind])
    with pytest.raises(RuntimeError, match="the callback has a bug"):
        train(bags, tmp_path / "broken", callbacks=[Epochs(fails_at=3)], **KINDS[kind])
    mended = Epochs()
    train(bags, tmp_path / "broken", callbacks=[mended], if_exists="resume", **KINDS[kind])
    assert [epoch for epoch, _ in mended.seen] == [1, 2, 3, 4] * (2 if kind == "deep-ensemble" else 1)
    assert files(tmp_path / "broken") == files(tmp_path / "whole")


@pytest.mark.long
@pytest.mark.parametrize("kind", slow_but(KINDS, ["mirel"]))
def test_callbacks_may_come_and_go_between_a_run_and_its_resume(
    kind: str, tmp_path: Path, bags: BagDataset
) -> None:
    wanted = train(bags, tmp_path / "plain", **KINDS[kind]).weights_sha256
    for name, before, after in (("gone", [Epochs()], []), ("come", [], [Epochs()])):
        train(bags, tmp_path / name, epochs=2, callbacks=before, **KINDS[kind])
        model = train(bags, tmp_path / name, callbacks=after, if_exists="resume", **KINDS[kind])
        assert model.weights_sha256 == wanted, name


@pytest.mark.long
@pytest.mark.parametrize("callback", [Hoarder, Adder])
def test_a_callback_whose_state_is_no_plain_data_is_named_and_leaves_the_checkpoint(
    callback: type[Callback], tmp_path: Path, bags: BagDataset
) -> None:
    train(bags, tmp_path / "run", epochs=2)
    before = (tmp_path / "run" / "checkpoints" / "last.safetensors").read_bytes()
    with pytest.raises(ConfigError, match="callbacks add.*numbers, strings and tensors.*PosixPath"):
        train(bags, tmp_path / "run", callbacks=[callback()], if_exists="resume")
    assert (tmp_path / "run" / "checkpoints" / "last.safetensors").read_bytes() == before
    wanted = train(bags, tmp_path / "whole").weights_sha256
    assert train(bags, tmp_path / "run", if_exists="resume").weights_sha256 == wanted


@pytest.mark.long
def test_checkpoints_of_lightnings_own_are_written_into_the_run(tmp_path: Path, bags: BagDataset) -> None:
    kept = ModelCheckpoint(monitor="criterion", save_top_k=1)
    train(bags, tmp_path / "run", epochs=2, callbacks=[kept])
    model = train(bags, tmp_path / "run", callbacks=[kept], if_exists="resume")
    assert Path(kept.best_model_path).parent == tmp_path / "run" / "checkpoints"
    assert model.weights_sha256 == train(bags, tmp_path / "plain").weights_sha256


def test_a_logger_gets_the_values_of_each_epoch(tmp_path: Path, bags: BagDataset) -> None:
    train(bags, tmp_path / "run", logger=CSVLogger(tmp_path / "curves", name="", version=""))
    with (tmp_path / "curves" / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = logged(tmp_path / "run")
    assert [int(row["step"]) for row in rows] == [epoch for epoch, _ in wanted]
    assert [float(row["criterion"]) for row in rows] == pytest.approx([criterion for _, criterion in wanted])
    assert {"train_loss", "validation_nll", "validation_error", "learning_rate"} <= set(rows[0])


def test_a_logger_of_an_ensemble_is_refused_before_anything_is_written(tmp_path: Path, bags: BagDataset) -> None:
    with pytest.raises(ConfigError, match="an ensemble of 2.*trackers"):
        train(bags, tmp_path / "run", logger=CSVLogger(tmp_path / "curves"), **KINDS["deep-ensemble"])
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_trainer_options_change_what_is_learned_and_must_stay_on_resume(tmp_path: Path, bags: BagDataset) -> None:
    clipped = {"gradient_clip_val": 1e-3}
    whole = train(bags, tmp_path / "whole", trainer_options=clipped)
    assert whole.weights_sha256 != train(bags).weights_sha256
    train(bags, tmp_path / "run", epochs=2, trainer_options=clipped)
    with pytest.raises(ConfigError, match="gradient_clip_val"):
        train(bags, tmp_path / "run", if_exists="resume")
    resumed = train(bags, tmp_path / "run", trainer_options=clipped, if_exists="resume")
    assert resumed.weights_sha256 == whole.weights_sha256


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"trainer_options": {"max_epochs": 3}}, "trainer option 'max_epochs'"),
        ({"trainer_options": {"gradient_clip_vale": 3}}, "did you mean 'gradient_clip_val'"),
        ({"trainer_options": {"gradient_clip_val": "much"}}, "trainer_options.*much"),
        ({"trainer_options": {"limit_train_batches": -3}}, "trainer_options.*-3"),
        ({"trainer_options": {"limit_train_batches": 0.0}}, "'limit_train_batches': expected a number above 0"),
        ({"trainer_options": {"limit_train_batches": 0.001}}, "trainer_options.*Please increase"),
        ({"trainer_options": {"accumulate_grad_batches": 0}}, "'accumulate_grad_batches': expected a number abo"),
        ({"callbacks": [EarlyStopping("criterion")] * 2}, "callbacks.*EarlyStopping"),
        ({"callbacks": [print]}, "callbacks, entry 0: expected an instance of Callback"),
        ({"logger": ["tensorboard"]}, "logger, entry 0: expected an instance of Logger"),
    ],
)
def test_what_lightning_does_not_take_is_answered(
    given: dict[str, Any], says: str, bags: BagDataset, unchecked: None
) -> None:
    with pytest.raises(ConfigError, match=says):
        train(bags, **given)
