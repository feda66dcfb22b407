"""Lightning's loggers by name: TensorBoard, MLflow, Weights & Biases.

Each epoch's values are those of log.csv. By default all stays in the run's folder and nothing is sent anywhere.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, WandbLogger

from miue.common.errors import ConfigError, MiueError, StorageError, no_room_behind, unknown_name
from miue.common.files import make_folder, read_json, write_json
from miue.common.text import shortened
from miue.common.user_warnings import warn_user
from miue.settings import TrainingConfig

IDS = "trackers.json"  # in the folder of a run: which MLflow and W&B runs are continued on resume


@dataclass(frozen=True)
class Destination:
    """Where one training is tracked.

    Attributes:
        home: folder of the whole run, which an ensemble's members share.
        folder: of this training: ``home``, or a member's below it.
        first_epoch: the epoch, from 1, that is trained next.
        run_id: of an MLflow or W&B run that is continued.
        root: folder of the command that trains several such runs, as one seed after another; else ``home``.
    """

    home: Path
    folder: Path
    first_epoch: int
    run_id: str | None
    root: Path

    @property
    def name(self) -> str:
        """What the training is called in lists of runs."""
        return self.folder.resolve().relative_to(self.root.resolve().parent).as_posix()


def tensorboard(destination: Destination) -> Logger:
    """Return the logger of event files in ``tensorboard/`` of the training's folder."""
    from lightning.pytorch.loggers import TensorBoardLogger

    return TensorBoardLogger(
        destination.folder,
        name="",
        version="tensorboard",
        default_hp_metric=False,
        purge_step=destination.first_epoch,
    )


def mlflow(destination: Destination) -> Logger:
    """Return the logger of an SQLite store, ``mlflow/`` of the run's folder, or of ``MLFLOW_TRACKING_URI``."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when mlflow is imported
    from lightning.pytorch.loggers import MLFlowLogger

    store = destination.home.resolve() / "mlflow"
    local = "MLFLOW_TRACKING_URI" not in os.environ
    if local:
        make_folder(store)
    logger = MLFlowLogger(
        "miue",
        run_name=destination.name,
        tracking_uri=f"sqlite:///{store / 'mlflow.db'}" if local else os.environ["MLFLOW_TRACKING_URI"],
        artifact_location=(store / "artifacts").as_uri() if local else None,
        run_id=destination.run_id,
    )
    try:
        _ = logger.experiment  # opens the run, for which MLflow writes its address into the environment
    finally:
        if local:  # the next training in this process has a store of its own
            os.environ.pop("MLFLOW_TRACKING_URI", None)
    return logger


def wandb(destination: Destination) -> Logger:
    """Return the logger of offline files, ``wandb/`` of the run's folder, or of what ``WANDB_MODE`` says."""
    import wandb as weights_and_biases

    run = weights_and_biases.init(
        project="miue",
        name=destination.name,
        id=destination.run_id or secrets.token_hex(4),
        resume="allow",
        reinit="create_new",  # each member of an ensemble is a run of its own
        dir=destination.home,
        mode=os.environ.get("WANDB_MODE", "offline"),
        settings=weights_and_biases.Settings(silent=True),
    )
    return WandbLogger(experiment=run)


TRACKERS: Mapping[str, Callable[[Destination], Logger]] = {
    "tensorboard": tensorboard,
    "mlflow": mlflow,
    "wandb": wandb,
}
"""What opens each tracker; the name is that of the package and of the extra that installs it."""


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


@dataclass(frozen=True)
class Tracking:
    """Which trackers a run writes to.

    Attributes:
        names: of ``TRACKERS``.
        home: folder of the run.
        parameters: what the run was made from, shown beside its curves.
        root: folder that the tracked runs are named from, where a command trains several; None for ``home``.
    """

    names: tuple[str, ...] = ()
    home: Path = Path()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    root: Path | None = None

    def of_run(self, home: Path, parameters: Mapping[str, Any]) -> Tracking:
        """Return these trackers, each once, for the run in ``home`` that was made from ``parameters``."""
        return replace(self, names=tuple(dict.fromkeys(self.names)), home=home, parameters=parameters)


def check_trackers(names: Sequence[str], folder: Path | None) -> None:
    """Raise unless each tracker exists, is installed, and has a folder to write to.

    Raises:
        ConfigError: one of these is missing.
    """
    for name in names:
        if name not in TRACKERS:
            raise unknown_name("tracker", name, TRACKERS)
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                item=f"tracker {name!r}",
                wanted=f"the package {name}",
                got="it is not installed",
                fix=f"pip install 'miue[{name}]', or leave the tracker out",
            )
        if folder is None:
            raise ConfigError(
                item=f"tracker {name!r}", wanted="a folder for the run", got="out=None", fix="pass out=FOLDER"
            )


@contextmanager
def opened_loggers(
    tracking: Tracking, folder: Path | None, config: TrainingConfig, epoch: int
) -> Iterator[list[Tracker]]:
    """Open a logger for each tracker, those of a resumed run where they were; Lightning ends all but W&B's runs.

    Args:
        tracking: which trackers.
        folder: of this training; None where nothing is tracked.
        config: how it learns; its seed may be a member's own.
        epoch: how many epochs were trained before.

    Raises:
        ConfigError: a tracker cannot be opened, as when its server does not answer.
        StorageError: a tracker cannot write, since the disk is full.
    """
    loggers: list[Tracker] = []
    with _full_disk_said(folder):
        if folder is not None:
            resumes = bool(epoch) and (folder / IDS).exists()
            before = read_json(folder / IDS, what="tracked runs") if resumes else {}
            ids = dict(before)
            for name in tracking.names:
                destination = Destination(
                    tracking.home, folder, epoch + 1, before.get(name), tracking.root or tracking.home
                )
                with _failure_to_open_said(name):
                    logger = Tracker(name, TRACKERS[name](destination))
                    if name == "tensorboard" or name not in before:  # MLflow takes no other value of a parameter
                        logger.log_hyperparams({**tracking.parameters, "training": config.model_dump(mode="json")})
                    if name != "tensorboard":
                        ids[name] = str(logger.version)
                loggers.append(logger)
            if ids:
                write_json(folder / IDS, ids)
        exit_code = 1
        try:
            yield loggers
            exit_code = 0
        finally:
            for logger in loggers:
                logger.close(exit_code)


@contextmanager
def _failure_to_open_said(name: str) -> Iterator[None]:
    """Let an error that a tracker raises when it is opened name the tracker, unless the disk is full."""
    try:
        yield
    except Exception as error:
        if isinstance(error, MiueError) or no_room_behind(error) is not None:
            raise
        raise ConfigError(
            item=f"tracker {name!r}",
            wanted="to open its run",
            got=f"{type(error).__name__}: {shortened(str(error))}",
            fix="see whether its server answers and its files are in place, or leave the tracker out",
        ) from error


@contextmanager
def _full_disk_said(folder: Path | None) -> Iterator[None]:
    """Let an error that a tracker raises since the disk is full say so; each words it in another way."""
    try:
        yield
    except Exception as error:
        full = no_room_behind(error)
        if folder is None or full is None or isinstance(error, MiueError):
            raise
        raise StorageError(
            item=f"what is tracked of {str(folder)!r}",
            wanted="to write it",
            got=str(full.strerror),
            fix="free space or choose another place, then train again, or go on with --resume",
        ) from error
