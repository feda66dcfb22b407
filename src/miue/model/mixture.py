"""One model of several that were trained on the same bags: the mean of their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from miue.bags import BagDataset
from miue.methods import Mixture, can_be_mixed
from miue.model.config import ModelConfig
from miue.model.model import Model
from miue.model.part import find_part
from miue.model.recipe import Recipe


def mixes(recipe: Recipe, instance_shape: tuple[int, ...]) -> bool:
    """Return whether what a recipe trains can be a member of a mixture."""
    method = recipe.model_config(instance_shape).parts(trust=True)["method"].make
    return can_be_mixed(method if isinstance(method, type) else type(method))


def learns_from(recipe: Recipe, bags: BagDataset) -> bool:
    """Return whether a recipe's method learns from labels such as these, of which some may be lower bounds."""
    return not bags.is_censored or bool(getattr(find_part("method", recipe.method).make, "takes_censoring", False))


def mix(models: Sequence[Model]) -> Model:
    """Return the mixture of models; distances and data are those of the first.

    What the models say of their validation bags is left out: ``with_validation`` says it of the mixture.

    Args:
        models: trained on the same bags.

    Raises:
        ConfigError: as ``Mixture`` does.
    """
    first, records = models[0], [model.training for model in models]
    parts = [model.method.members() if model.config.members else [model.method] for model in models]
    method = Mixture([member for members in parts for member in members])
    temperatures = [one.temperature or 1.0 for one, of in zip(records, parts, strict=True) for _ in of]
    method.temperatures.copy_(torch.tensor(temperatures))
    training = first.training.model_copy(
        update={
            "epochs": sum(record.epochs for record in records),
            "best_epoch": tuple(record.best_epoch for record in records),
            "criterion": sum(record.criterion for record in records) / len(records),
            "temperature": None,
        }
    )
    return replace(
        first,
        method=method.eval(),
        config=ModelConfig.mixture([one for model in models for one in model.config.members or [model.config]]),
        training=training,
        calibration=None,
        validation=None,
        error_model=None,
        weights_sha256="",
    )
