"""Everything that a training is told: what is trained, how, and where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, Strict

from miue.common.parts import DISTANCES, ENCODERS, METHODS, NETWORKS
from miue.common.settings import Location, Settings, for_python
from miue.common.tasks.executor import ComputeSettings
from miue.common.text import MODEL, TRAINING
from miue.common.values import Augmentation, Option, Precision
from miue.settings.bags import VALIDATION_SHARE

DEFAULT_NETWORK, DEFAULT_METHOD, DEFAULT_ENCODER = "attention", "mirel", "auto"
METHOD_OF_TIMES = "softmax"
"""The default of bags with times without an event, from which MIREL does not learn."""
DEFAULT_DISTANCES = ("combined",)  # the best on shifted validation bags of any kind; see docs/uncertainty.md

OTHER_NAMES = {
    "lr": "learning_rate",
    "epochs": "max_epochs",
    "n_epochs": "max_epochs",
    "patience": "stop_patience",
    "early_stopping": "stop_patience",
    "batch_size": "bags_per_update",
    "wd": "weight_decay",
    "members": "method.size",
    "n_members": "method.size",
    "hidden": "network.hidden",
    "random_state": "seed",
}
"""Settings and options by what other tools call them, for messages."""

BY_SIZE = "; by default by the size of the data"
Count = Annotated[int, Field(ge=1)]
Patience = Annotated[int, Field(ge=0)]


class TrainingSettings(Settings):
    """How a model is trained; what is None follows from the size of the data (``settings_by_size``)."""

    model_config = ConfigDict(allow_inf_nan=False)
    heading = TRAINING

    seed: int = Field(
        default=42, ge=0, lt=2**63, description="Random seed of initial weights, bag order and dropout."
    )
    max_epochs: Count | None = Field(default=None, description=f"Epochs at most{BY_SIZE}.")
    learning_rate: float = Field(default=1e-4, gt=0, description="Learning rate of Adam, at the start.")
    weight_decay: float = Field(default=1e-5, ge=0, description="Weight decay, not on biases or norms.")
    bags_per_update: Count | None = Field(default=None, description=f"Bags that share one update{BY_SIZE}.")
    instances_per_bag: Count | None = Field(
        default=None,
        description="Instances of each bag, drawn anew, that an epoch learns from at most; by default, and in "
        "prediction, all.",
    )
    class_balanced: bool = Field(
        default=False,
        description="An epoch takes as many bags of each class, not each bag once; validation counts classes.",
    )
    augmentation: Augmentation = Field(
        default="none",
        description="Augmentation of images in training; rotate-flip: each is rotated by quarter turns and "
        "mirrored at random, anew in each epoch.",
    )
    precision: Precision = Field(
        default="float32",
        description="Precision of the encoder in training; bf16-mixed is faster where a device has it.",
    )
    lr_factor: float = Field(default=0.5, gt=0, lt=1, description="Factor by which the learning rate is reduced.")
    lr_patience: Patience | None = Field(
        default=None, description=f"Epochs without improvement before the learning rate is reduced{BY_SIZE}."
    )
    stop_patience: Count | None = Field(
        default=None, description=f"Epochs without improvement before training ends{BY_SIZE}."
    )
    validation_fraction: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="Share of bags held out to stop by where there are no validation bags; 0: train on all.",
    )
    temperature_scaling: bool = Field(
        default=True,
        description="Calibrate the probabilities by a temperature that is fitted to the validation bags.",
    )


class TrainingConfig(TrainingSettings):
    """How a model was trained: settings with a value for each.

    Reference: Liu & Ji 2024, Appendix D.3.
    """

    max_epochs: Count = Field(description="Epochs at most.")
    bags_per_update: Count = Field(description="Bags that share one update.")
    lr_patience: Patience = Field(description="Epochs without improvement before the learning rate is reduced.")
    stop_patience: Count = Field(description="Epochs without improvement before training ends.")


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
        description=f"Uncertainty method: {METHODS.help()}, or the import path of your own. If none is named, "
        f"{METHOD_OF_TIMES} for times without an event.",
    )
    encoder: Any = Field(
        default=DEFAULT_ENCODER,
        description=f"Encoder of instances: auto, {ENCODERS.help()}, or the import path of your own.",
    )
    join: Literal["members", "patches"] = Field(
        default="members",
        description="With features of several patch encoders: members trains a network on each and predicts their "
        "mean, so that their disagreement counts as epistemic uncertainty; patches trains one on all features of "
        "a patch.",
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
    initial: Location | None = Field(
        default=None,
        description="Model whose weights training starts from, where they fit by name and shape.",
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
    memory_share: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="Share of the free memory in which bags of feature files are kept once they are read; "
        "others are read in each epoch.",
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

    @property
    def validation_share(self) -> float:
        """Share of the bags to validate on in splits that are drawn by patient and class."""
        return self.given().get("validation_fraction", VALIDATION_SHARE)
