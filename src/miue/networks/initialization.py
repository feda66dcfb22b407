"""Initial weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from math import sqrt

import torch
from torch import nn


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global CPU generator within the block and restore its state afterwards.

    >>> with seeded(1):
    ...     first = nn.Linear(2, 3).weight
    >>> with seeded(1):
    ...     bool((nn.Linear(2, 3).weight == first).all())
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@torch.no_grad()
def initialize(
    module: nn.Module,
    generator: torch.Generator,
    *,
    kept: Collection[nn.Module] = (),
    fixed: Collection[nn.Module] = (),
) -> None:
    """Draw the initial weights of every layer of ``module`` from ``generator``.

    A module with a rule of its own, ``reset_parameters(generator)``, is drawn by that rule, with all of its
    children. Otherwise, Linear and Conv2d: U(±1/sqrt(fan-in)), biases included. Batch normalization: weight
    U(0, 1), bias 0. Class tokens of a transformer: N(0, 1). All other parameters keep their constructor's values.

    Reference: the published code of Liu & Ji 2024.

    Args:
        module: changed in place.
        generator: the only source of randomness.
        kept: modules that keep their values unless they have a rule of their own.
        fixed: modules that keep their values, with all of their children.
    """
    kept_ids, seen = set(map(id, kept)), set(map(id, fixed))

    def visit(layer: nn.Module) -> None:
        if id(layer) in seen:
            return
        seen.add(id(layer))
        if (rule := own_rule(layer)) is not None:
            rule(generator)
            seen.update(map(id, layer.modules()))
            return
        if id(layer) not in kept_ids:
            _draw(layer, generator)
        for child in layer.children():
            visit(child)

    visit(module)


def own_rule(layer: nn.Module) -> Callable[[torch.Generator], object] | None:
    """Return the module's ``reset_parameters`` if it takes a generator, else None."""
    rule = getattr(layer, "reset_parameters", None)
    if not callable(rule) or "generator" not in inspect.signature(rule).parameters:
        return None
    return lambda generator: rule(generator=generator)


def _draw(layer: nn.Module, generator: torch.Generator) -> None:
    """Draw the weights of one layer if its type has a rule."""
    if isinstance(layer, nn.Linear | nn.Conv2d):
        bound = 1 / sqrt(layer.weight[0].numel())
        layer.weight.uniform_(-bound, bound, generator=generator)
        if layer.bias is not None:
            layer.bias.uniform_(-bound, bound, generator=generator)
    elif isinstance(layer, nn.BatchNorm2d):
        layer.weight.uniform_(0, 1, generator=generator)
        layer.bias.zero_()
    elif isinstance(token := getattr(layer, "cls_token", None), nn.Parameter):
        token.normal_(0, 1, generator=generator)
