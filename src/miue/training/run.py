"""Where and how a training runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger

from miue.common.errors import ConfigError, one_of_two
from miue.common.processes import training_rank
from miue.common.tasks import Executor
from miue.common.values import check_fields
from miue.settings import RunSettings


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
        ConfigError: a field of another type, or several devices for each of several processes.
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
        given = self.settings
        for what, kind, values in (("callbacks", Callback, given.callbacks), ("logger", Logger, given.loggers)):
            for value in values:
                if not isinstance(value, kind):
                    wanted = f"objects of lightning.pytorch's {kind.__name__}"
                    fix = f"derive its class from {kind.__name__}, or leave it out"
                    raise ConfigError(item=what, wanted=wanted, got=type(value).__name__, fix=fix)
        if self.settings.processes > 1 and not self.executor.is_local:
            raise one_of_two("several devices for each training, and trainings on several processes")

    @cached_property
    def executor(self) -> Executor:
        """Where the members of an ensemble, or several trainings, are trained."""
        return self.settings.to_executor()

    @property
    def is_first(self) -> bool:
        """Whether this is the first of the processes, which alone writes, logs and shows progress."""
        return training_rank(self.settings.processes) == 0

    @property
    def name(self) -> str:
        """What a training with a folder is called in lists of runs: its path from the folder of the command."""
        root = self.root or self.home or self.folder
        assert root is not None
        assert self.folder is not None
        return self.folder.resolve().relative_to(root.resolve().parent).as_posix()
