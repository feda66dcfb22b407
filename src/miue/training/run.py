"""Where and how a training runs, which does not change what it learns."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from miue.common.devices import training_rank
from miue.common.errors import ConfigError, one_of_two, out_of_range, unknown_name
from miue.common.tasks import Executor
from miue.common.values import check_fields, check_value, several
from miue.settings import RunSettings

TRAINER_OPTIONS = (
    "accumulate_grad_batches",
    "benchmark",
    "detect_anomaly",
    "deterministic",
    "gradient_clip_algorithm",
    "gradient_clip_val",
    "limit_train_batches",
    "log_every_n_steps",
)
"""Arguments of Lightning's Trainer that may be given; all others decide what miue decides itself: epochs, devices,
validation, checkpoints, and the precision of float32 that evidence needs."""

WITHOUT_UPDATES = ("accumulate_grad_batches", "limit_train_batches")
"""Those with which there is no update where they are 0; Lightning then ends without a word, or in an error."""


@dataclass(frozen=True)
class Run:
    """Where and how a training runs, which does not change what it learns.

    Attributes:
        folder: where checkpoints and log go; None writes nothing.
        settings: devices, trackers and what is Lightning's.
        resume: continue from the folder's last checkpoint, if there is one.
        progress: show a bar with the time left.
        warn: warn of bags that may be wrong; false where that is done for several trainings at once.
        home: folder of the model, which the members of an ensemble share; None for ``folder``.
        root: folder that tracked runs are named from, where a command trains several; None for ``home``.
        description: what the model is made from, shown beside tracked values.

    Raises:
        ConfigError: a field of another type, several devices for each of several processes, or callbacks, loggers
            or trainer options that are not Lightning's.
    """

    folder: Path | None = None
    settings: RunSettings = RunSettings()  # noqa: RUF009  (frozen)
    resume: bool = False
    progress: bool = True
    warn: bool = True
    home: Path | None = None
    root: Path | None = None
    description: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.processes > 1 and not self.executor.is_local:
            raise one_of_two("several devices for each training, and trainings on several processes")
        if self.settings.callbacks or self.loggers:
            from lightning.pytorch import Callback
            from lightning.pytorch.loggers import Logger

            check_value("callbacks", self.settings.callbacks, tuple[Callback, ...])
            check_value("logger", self.loggers, tuple[Logger, ...])
        for name, value in self.settings.trainer_options.items():
            if name not in TRAINER_OPTIONS:
                raise unknown_name("trainer option", name, TRAINER_OPTIONS)
            if name in WITHOUT_UPDATES and value == 0:
                raise out_of_range(f"trainer option {name!r}", "a number above 0", value)

    @cached_property
    def executor(self) -> Executor:
        """Where the members of an ensemble, or several trainings, are trained."""
        return self.settings.to_executor()

    @property
    def processes(self) -> int:
        """Processes that train one network together."""
        return self.settings.devices * self.settings.nodes

    @property
    def on_lightning(self) -> bool:
        """Whether Lightning trains, whose import takes seconds: several devices, or what is Lightning's."""
        given = self.settings
        return bool(
            self.processes > 1 or given.trackers or given.callbacks or self.loggers or given.trainer_options
        )

    @cached_property
    def loggers(self) -> tuple[Any, ...]:
        """Lightning's loggers, beside those of the trackers."""
        logger = self.settings.logger
        return () if logger is None else tuple(several(logger) or (logger,))

    @property
    def is_first(self) -> bool:
        """Whether this is the first of the processes, which alone writes, logs and shows progress."""
        return training_rank(self.processes) == 0

    @property
    def name(self) -> str:
        """What a training with a folder is called in lists of runs: its path from the folder of the command."""
        root = self.root or self.home or self.folder
        assert root is not None
        assert self.folder is not None
        return self.folder.resolve().relative_to(root.resolve().parent).as_posix()


def check_trackers(names: Sequence[str], folder: Path | None) -> None:
    """Raise unless each tracker is installed, and has a folder to write to.

    Raises:
        ConfigError: one of these is missing.
    """
    for name in names:
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
