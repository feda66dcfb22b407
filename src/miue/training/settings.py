"""Everything that a training is told: what is trained, how, and where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, Strict

from miue.common.parts import DISTANCES, ENCODERS, METHODS, NETWORKS
from miue.common.settings import Settings, for_python
from miue.common.tasks.settings import ComputeSettings
from miue.common.text import MODEL, TRAINING
from miue.common.values import Option, several
from miue.io.splits.draw import VALIDATION_SHARE
from miue.model.config import TrainingConfig, TrainingSettings
from miue.model.recipe import (
    DEFAULT_DISTANCES,
    DEFAULT_ENCODER,
    DEFAULT_METHOD,
    DEFAULT_NETWORK,
    OTHER_NAMES,
    Recipe,
)
from miue.training.fit import Run
from miue.training.trackers import Tracking


class RecipeSettings(Settings):
    """What is trained."""

    heading = MODEL

    network: Any = Field(
        default=DEFAULT_NETWORK,
        description=f"Network: {NETWORKS.help()} (torchmil-… need the extra 'torchmil'), or the import path "
        "package.module:Class of your own.",
    )
    method: Any = Field(
        default=DEFAULT_METHOD,
        description=f"Uncertainty method: {METHODS.help()}, or the import path of your own.",
    )
    encoder: Any = Field(
        default=DEFAULT_ENCODER,
        description=f"Encoder of instances: auto, {ENCODERS.help()}, or the import path of your own.",
    )
    options: dict[str, Option] = Field(
        default={},
        description="Option of a part, such as network.hidden=128 or method.routing=through-estimator, or any "
        "other setting, such as max_epochs=50. Repeat it.",
        json_schema_extra={"heading": TRAINING},
    )
    distances: Annotated[tuple[Any, ...], Strict(False)] = Field(
        default=DEFAULT_DISTANCES,
        description="Distance of an instance to the training instances, fitted after training: "
        f"{DISTANCES.help()}, or none.",
    )


class RunSettings(ComputeSettings):
    """Where a training runs, which does not change what it learns."""

    devices: int = Field(
        default=1,
        ge=1,
        description="Devices of each machine to train on together, one process each; processes on a CPU.",
    )
    nodes: int = Field(
        default=1,
        ge=1,
        description="Machines to train on together; start the program on each by srun or torchrun.",
    )
    trackers: Annotated[tuple[Literal["tensorboard", "mlflow", "wandb"], ...], Strict(False)] = Field(
        default=(),
        description="Experiment tracker to log each epoch to, which needs the extra of its name. It writes into "
        "the folder of the run; nothing is sent unless MLFLOW_TRACKING_URI or WANDB_MODE says so.",
        json_schema_extra={"heading": TRAINING},
    )
    callbacks: Annotated[tuple[Any, ...], Strict(False)] = for_python(
        (), "Lightning's, called in the training of each network; their state is part of its checkpoints."
    )
    logger: Any = for_python(None, "One of Lightning's loggers or several, which get the values of each epoch.")
    trainer_options: dict[str, Option] = for_python(
        {}, "Arguments of Lightning's Trainer, such as gradient_clip_val; see ``TRAINER_OPTIONS``."
    )


class TrainSettings(RunSettings, TrainingSettings, RecipeSettings):
    """What is trained, how and where: the settings of ``miue.train`` and of ``miue train``."""

    other_names: ClassVar[Mapping[str, str]] = OTHER_NAMES

    def recipe(self) -> Recipe:
        """Return what is trained and how."""
        settings = {name: value for name, value in self.given().items() if name in TrainingConfig.model_fields}
        distances = () if self.distances == ("none",) else self.distances
        return Recipe(self.network, self.method, self.encoder, self.options, distances, settings)

    @property
    def validation_share(self) -> float:
        """Share of the bags to validate on in splits that are drawn by patient and class."""
        return self.given().get("validation_fraction", VALIDATION_SHARE)

    def run(self, out: Path | None, *, progress: bool = True) -> Run:
        """Return where and how it runs.

        Args:
            out: folder of the run; None writes nothing.
            progress: show a bar with the time left.
        """
        return Run(
            out,
            progress=progress,
            accelerator=self.device,
            devices=self.devices,
            nodes=self.nodes,
            tracking=Tracking(self.trackers),
            callbacks=self.callbacks,
            loggers=() if self.logger is None else tuple(several(self.logger) or (self.logger,)),
            trainer_options=self.trainer_options,
            executor=self.to_executor(),
        )
