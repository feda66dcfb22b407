"""Initial weights."""

from __future__ import annotations

from math import sqrt

import torch
from torch import nn


@torch.no_grad()
def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Draw the initial weights of every layer of ``module`` from ``generator``.

    Linear and Conv2d: U(±1/sqrt(fan-in)), biases too. Batch normalisation: weight U(0, 1), bias 0.
    Conv1d (the bag head of DSMIL): N(0, 1), bias too. Class tokens (of a transformer): N(0, 1).

    Reference: the published code of Liu & Ji 2024.

    Args:
        module: changed in place.
        generator: the only source of randomness.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = 1 / sqrt(layer.weight[0].numel())
            layer.weight.uniform_(-bound, bound, generator=generator)
            if layer.bias is not None:
                layer.bias.uniform_(-bound, bound, generator=generator)
        elif isinstance(layer, nn.BatchNorm2d):
            layer.weight.uniform_(0, 1, generator=generator)
            layer.bias.zero_()
        elif isinstance(layer, nn.Conv1d):
            layer.weight.normal_(0, 1, generator=generator)
            if layer.bias is not None:
                layer.bias.normal_(0, 1, generator=generator)
        elif isinstance(token := getattr(layer, "cls_token", None), nn.Parameter):
            token.normal_(0, 1, generator=generator)
