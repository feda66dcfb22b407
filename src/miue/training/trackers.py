"""Lightning's loggers by name: TensorBoard, MLflow, Weights & Biases.

Each epoch's values are those of log.csv. By default all stays in the run's folder and nothing is sent anywhere.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, WandbLogger

from miue.common.errors import ConfigError, MiueError, StorageError, no_room_behind
from miue.common.files import make_folder, read_json, write_json
from miue.common.text import shortened, warn_user
from miue.settings import TrainingConfig
from miue.training.run import Run

IDS = "trackers.json"  # in the folder of a run: which MLflow and W&B runs are continued on resume


def tensorboard(run: Run, first_epoch: int, run_id: str | None) -> Logger:
    """Return the logger of event files in ``tensorboard/`` of the training's folder."""
    from lightning.pytorch.loggers import TensorBoardLogger

    assert run.folder is not None
    return TensorBoardLogger(
        run.folder, name="", version="tensorboard", default_hp_metric=False, purge_step=first_epoch
    )


def mlflow(run: Run, first_epoch: int, run_id: str | None) -> Logger:
    """Return the logger of an SQLite store, ``mlflow/`` of the model's folder, or of ``MLFLOW_TRACKING_URI``."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when mlflow is imported
    from lightning.pytorch.loggers import MLFlowLogger

    store = _home(run).resolve() / "mlflow"
    local = "MLFLOW_TRACKING_URI" not in os.environ
    if local:
        make_folder(store)
    logger = MLFlowLogger(
        "miue",
        run_name=run.name,
        tracking_uri=f"sqlite:///{store / 'mlflow.db'}" if local else os.environ["MLFLOW_TRACKING_URI"],
        artifact_location=(store / "artifacts").as_uri() if local else None,
        run_id=run_id,
    )
    try:
        _ = logger.experiment  # opens the run, for which MLflow writes its address into the environment
    finally:
        if local:  # the next training in this process has a store of its own
            os.environ.pop("MLFLOW_TRACKING_URI", None)
    return logger


def wandb(run: Run, first_epoch: int, run_id: str | None) -> Logger:
    """Return the logger of offline files, ``wandb/`` of the model's folder, or of what ``WANDB_MODE`` says."""
    import wandb as weights_and_biases

    opened = weights_and_biases.init(
        project="miue",
        name=run.name,
        id=run_id or secrets.token_hex(4),
        resume="allow",
        reinit="create_new",  # each member of an ensemble is a run of its own
        dir=_home(run),
        mode=os.environ.get("WANDB_MODE", "offline"),
        settings=weights_and_biases.Settings(silent=True),
    )
    return WandbLogger(experiment=opened)


TRACKERS: Mapping[str, Callable[[Run, int, str | None], Logger]] = {
    "tensorboard": tensorboard,
    "mlflow": mlflow,
    "wandb": wandb,
}
"""What opens each tracker, of a run, the epoch that is trained next (from 1), and the id of a run of MLflow or W&B
that is continued; the name is that of the package and of the extra that installs it."""


class Tracker(Logger):
    """The logger of a tracker, without which the training goes on where it fails, as when its server is gone.

    Args:
        called: the name of the tracker, for the warning.
        logger: of Lightning.
    """

    def __init__(self, called: str, logger: Logger) -> None:
        super().__init__()
        self.called, self.logger, self.has_failed = called, logger, False

    @property
    def name(self) -> str | None:
        """That of the logger."""
        return self.logger.name

    @property
    def version(self) -> int | str | None:
        """That of the logger."""
        return self.logger.version

    @property
    def save_dir(self) -> str | None:
        """That of the logger."""
        return self.logger.save_dir

    def log_hyperparams(self, params: Any, *args: Any, **named: Any) -> None:
        """Log what the training was made from."""
        self.logger.log_hyperparams(params, *args, **named)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Log the values of an epoch."""
        self._unless_failed(lambda: self.logger.log_metrics(metrics, step))

    def save(self) -> None:
        """Write what is not yet written."""
        self._unless_failed(self.logger.save)

    def finalize(self, status: str) -> None:
        """End the tracker's run."""
        self._unless_failed(lambda: self.logger.finalize(status))

    def close(self, exit_code: int) -> None:
        """End a run of W&B, which Lightning leaves open."""
        logger = self.logger
        if isinstance(logger, WandbLogger):
            self._unless_failed(lambda: logger.experiment.finish(exit_code=exit_code))

    def _unless_failed(self, write: Callable[[], object]) -> None:
        if self.has_failed:
            return
        try:
            write()
        except Exception as error:
            if no_room_behind(error) is not None:
                raise
            self.has_failed = True
            warn_user(
                f"tracker {self.called!r} failed ({type(error).__name__}: {shortened(str(error))}): the training "
                "goes on without it; log.csv has the values of every epoch"
            )


@contextmanager
def opened_loggers(run: Run, config: TrainingConfig, epoch: int) -> Iterator[list[Tracker]]:
    """Open a logger for each tracker, those of a resumed run where they were; Lightning ends all but W&B's runs.

    Args:
        run: with a folder where there are trackers; the first of its processes tracks.
        config: how it learns; its seed may be a member's own.
        epoch: how many epochs were trained before.

    Raises:
        ConfigError: a tracker cannot be opened, as when its server does not answer.
        StorageError: a tracker cannot write, since the disk is full.
    """
    folder, loggers, exit_code = run.folder, list[Tracker](), 1
    try:
        if folder is not None and run.is_first:
            loggers = _open(run, folder, config, epoch)
        try:
            yield loggers
            exit_code = 0
        finally:
            for logger in loggers:
                logger.close(exit_code)
    except Exception as error:
        full = no_room_behind(error)
        if folder is None or full is None or isinstance(error, MiueError):
            raise
        raise StorageError(
            item=f"what is tracked of {str(folder)!r}",
            wanted="to write it",
            got=str(full.strerror),
            fix="free space or choose another place, then resume the training",
        ) from error


def _open(run: Run, folder: Path, config: TrainingConfig, epoch: int) -> list[Tracker]:
    """Return a logger for each tracker, and write the ids of the runs that MLflow and W&B continue on resume."""
    resumes = bool(epoch) and (folder / IDS).exists()
    before = read_json(folder / IDS, what="tracked runs") if resumes else {}
    loggers, ids = [], dict(before)
    for name in dict.fromkeys(run.settings.trackers):
        try:
            logger = Tracker(name, TRACKERS[name](run, epoch + 1, before.get(name)))
            if name == "tensorboard" or name not in before:  # MLflow takes no other value of a parameter
                logger.log_hyperparams({**run.description, "training": config.model_dump(mode="json")})
            if name != "tensorboard":
                ids[name] = str(logger.version)
        except Exception as error:
            if isinstance(error, MiueError) or no_room_behind(error) is not None:
                raise
            raise ConfigError(
                item=f"tracker {name!r}",
                wanted="to open its run",
                got=f"{type(error).__name__}: {shortened(str(error))}",
                fix="see whether its server answers and its files are in place, or leave the tracker out",
            ) from error
        loggers.append(logger)
    if ids:
        write_json(folder / IDS, ids)
    return loggers


def _home(run: Run) -> Path:
    home = run.home or run.folder
    assert home is not None
    return home
