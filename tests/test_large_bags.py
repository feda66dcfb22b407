"""Bags too large to be held at once: the same numbers in parts as whole; reading ahead of use."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fast import slow_but
from made_bags import FITTING, separable_bags

import miue
from miue.bags import BagDataset, batches, ordered_batches, read_ahead
from miue.methods import METHODS, MIREL
from miue.model import encoding
from miue.model import predict as prediction
from miue.model.build import build_method
from miue.model.contract import DataContract
from miue.model.recipe import Recipe
from miue.networks import base as networks


def method_of(name: str, network: str, dropout: float = 0.0) -> miue.methods.Method:
    options: dict[str, float] = {"encoder.width": 16}
    if network not in ("mean", "max", "pooled"):
        options["network.hidden"] = 8
    if name == "deep-ensemble":
        options["method.size"] = 2
    if dropout:
        options["encoder.dropout"] = dropout
    config = Recipe(network, name, "mlp", options).model_config((5,))
    return build_method(config, DataContract(instance_shape=(5,), class_names=("0", "1")), seed=1)


BLOCKWISE = [pair for pair in FITTING if pair[0] != "bayes-mil"]
FAST = [pair for pair in BLOCKWISE if pair[0] == "mirel" or pair[1] == "attention"]


@pytest.mark.parametrize(("name", "network"), slow_but(BLOCKWISE, FAST))
def test_a_bag_is_predicted_in_blocks_as_it_is_whole(
    name: str, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, bags = method_of(name, network), separable_bags(6)
    if name == "mc-dropout":  # its draws depend on how many instances are encoded at once
        method = METHODS["softmax"](method.network)
    (whole,) = prediction.predict(method, bags)
    monkeypatch.setattr(encoding, "BLOCK_INSTANCES", 3)
    (parts,) = prediction.predict(method, bags)
    for found, wanted in zip(parts, whole, strict=True):
        for measure, values in wanted.uncertainties().items():
            np.testing.assert_allclose(found.uncertainties()[measure], values, rtol=1e-5, atol=1e-6)


def test_distances_are_scored_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    bags = separable_bags(20)
    model = miue.train(bags, settings={"max_epochs": 1, "options": {"encoder.width": 8}}, progress=False)
    whole = model.predict(bags)
    monkeypatch.setattr(encoding, "BLOCK_INSTANCES", 3)
    parts = model.predict(bags)
    for level in ("bags", "instances"):
        wanted = getattr(whole, level).scores
        assert wanted
        for name, values in wanted.items():
            np.testing.assert_allclose(getattr(parts, level).scores[name], values, rtol=1e-5, atol=1e-5)


def test_features_of_a_large_bag_are_projected_a_chunk_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    method, bags = method_of("mirel", "attention"), separable_bags(3)
    monkeypatch.setattr(encoding, "CHUNK_FEATURES", 2)
    projected: list[int] = []
    project = method.network.project

    def follow(features: torch.Tensor) -> tuple[torch.Tensor, ...]:
        projected.append(len(features))
        return project(features)

    monkeypatch.setattr(method.network, "project", follow)
    list(prediction.predict(method, bags))
    assert sum(projected) == bags.sizes.sum() and max(projected) == 2


def test_a_single_bag_in_memory_is_not_copied() -> None:
    bags = separable_bags(3)
    assert isinstance(bags.instances, np.ndarray)
    assert np.shares_memory(bags.batch([1]).instances.numpy(), bags.instances)
    read_only = bags.instances.copy()
    read_only.flags.writeable = False
    batch = replace(bags, instances=read_only).batch([1])  # torch would warn of memory that it may not write
    assert torch.equal(batch.instances, bags.batch([1]).instances)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_finite_features_of_any_size_are_read(dtype: type[np.floating]) -> None:
    highest = np.full((4, 5), np.finfo(dtype).max, dtype)
    assert BagDataset.from_arrays([highest, -highest], [0, 1]).batch([0, 1]).instances.isfinite().all()
    bags = separable_bags(3)
    for value in (np.nan, np.inf, -np.inf):
        instances = np.asarray(bags.instances).astype(dtype)
        instances[bags.starts[2], 1] = value
        with pytest.raises(miue.MiueError, match=repr(bags.ids[2])):
            replace(bags, instances=instances).batch([1, 2])


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", ["mirel", "softmax"])
def test_gradients_through_chunks_are_those_of_the_whole(
    name: str, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = separable_bags(6).batch(range(6))
    gradients = []
    for at_once in (1 << 27, 15):
        monkeypatch.setattr(networks, "ENCODED_AT_ONCE", at_once)
        method = method_of(name, "attention", dropout).train()
        torch.manual_seed(3)
        method.loss(batch, 3).backward()
        gradients.append([p.grad.clone() for p in method.parameters() if p.grad is not None])
    if dropout:  # chunks draw other units; the second pass must draw those of the first
        assert all(torch.isfinite(g).all() for g in gradients[1])
    else:
        for whole, parts in zip(*gradients, strict=True):
            torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "network"), FITTING)
def test_gradients_of_many_vectors_in_parts_are_those_of_all_at_once(
    name: str, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, bags = method_of(name, network).double().eval(), separable_bags(6)
    parts: list[int] = []

    def gradients() -> list[torch.Tensor]:
        found = []
        for member in method.members():
            member.zero_grad()
            torch.manual_seed(0)
            member.loss(batch, epoch=20).backward()
            found += [p.grad.clone() for p in member.parameters() if p.grad is not None]
        return found

    batch = bags.batch(range(len(bags)))
    batch = replace(batch, instances=batch.instances.double())
    whole = gradients()
    encoder = method.members()[0].network.encoder
    encode = encoder.forward

    def counted(rows: torch.Tensor) -> torch.Tensor:
        parts.append(len(rows))
        return encode(rows)

    monkeypatch.setattr(encoder, "forward", counted)
    monkeypatch.setattr(networks, "FEWEST_SPLIT", 5)
    monkeypatch.setattr(networks, "VECTORS_IN_CACHE", 3)
    for found, wanted in zip(gradients(), whole, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
    if name not in ("bayes-mil", "mc-dropout"):
        assert len(parts) > 1 and max(parts) == 3


def test_residuals_are_computed_of_the_parts_that_the_network_projects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joined and split again, all features would be written to memory and read from it."""
    monkeypatch.setattr(networks, "FEWEST_SPLIT", 5)
    monkeypatch.setattr(networks, "VECTORS_IN_CACHE", 3)
    method, batch = method_of("mirel", "attention"), separable_bags(6).batch(range(6))
    assert isinstance(method, MIREL)
    projected: list[torch.Tensor] = []
    read: list[torch.Tensor] = []
    project, residual = method.network.project, method.residual.forward

    def watched_project(rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        projected.append(rows)
        return project(rows)

    def watched_residual(rows: torch.Tensor) -> torch.Tensor:
        read.append(rows)
        return residual(rows)

    monkeypatch.setattr(method.network, "project", watched_project)
    monkeypatch.setattr(method.residual, "forward", watched_residual)
    method.loss(batch, epoch=1).backward()
    assert len(read) > 1 and sum(map(len, read)) == len(batch.instances)
    assert [id(rows) for rows in read] == [id(rows) for rows in projected]


def test_dropout_is_drawn_again_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of chunks with dropout agrees with finite differences of the same draw."""
    monkeypatch.setattr(networks, "ENCODED_AT_ONCE", 15)
    batch = separable_bags(4).batch(range(4))
    batch = replace(batch, instances=batch.instances.double())
    method = method_of("softmax", "attention", 0.3).double().train()
    weight = next(method.network.encoder.parameters())

    def loss() -> torch.Tensor:
        torch.manual_seed(7)
        return method.loss(batch, 1)

    loss().backward()
    assert weight.grad is not None
    row, column = divmod(int(weight.grad.abs().argmax()), weight.shape[1])
    step = 1e-6
    with torch.no_grad():
        weight[row, column] += step
    above = loss()
    with torch.no_grad():
        weight[row, column] -= 2 * step
    assert weight.grad[row, column].item() == pytest.approx(((above - loss()) / (2 * step)).item(), rel=1e-4)


def test_chunks_keep_less_than_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    method = method_of("softmax", "attention").train()
    instances = torch.randn(200, 5)

    def saved() -> int:
        held: list[torch.Tensor] = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            held.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            method.encode(instances)
        return sum(tensor.numel() for tensor in held)

    whole = saved()
    monkeypatch.setattr(networks, "ENCODED_AT_ONCE", 50)
    assert saved() < whole / 2


def test_what_is_read_ahead_comes_in_order_and_no_further_ahead_than_told() -> None:
    read: list[int] = []
    most = 0

    def slow(item: int) -> int:
        time.sleep(0.001)
        read.append(item)
        return item * item

    for position, value in enumerate(read_ahead(slow, range(20), 2)):
        assert value == position**2
        time.sleep(0.003)
        most = max(most, len(read) - position - 1)
    assert 0 < most <= 3


def test_an_error_in_the_thread_reaches_the_caller_and_the_thread_ends() -> None:
    def fails(item: int) -> int:
        if item == 2:
            raise ValueError("at two")
        return item

    before = threading.active_count()
    found = []
    with pytest.raises(ValueError, match="at two"):
        for value in read_ahead(fails, range(5), 2):
            found.append(value)
    assert found == [0, 1] and threading.active_count() == before
    stopped = read_ahead(fails, range(2), 2)
    assert isinstance(stopped, Generator)
    next(stopped)
    stopped.close()
    assert threading.active_count() == before


def test_batches_from_disk_are_those_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bags = separable_bags(20)
    miue.write_store(tmp_path / "store", bags)
    stored = miue.read_store(tmp_path / "store")
    used: list[int] = []

    def follow(read, groups, ahead):  # type: ignore[no-untyped-def]
        used.append(ahead)
        return read_ahead(read, groups, ahead)

    monkeypatch.setattr(batches, "read_ahead", follow)
    for mine, theirs in zip(ordered_batches(bags, 10), ordered_batches(stored, 10), strict=True):
        assert torch.equal(mine.instances, theirs.instances) and torch.equal(mine.labels, theirs.labels)
    assert sorted(used) == [0, batches.READ_AHEAD]


def test_training_on_a_folder_is_training_on_arrays(tmp_path: Path) -> None:
    bags = separable_bags(20)
    (tmp_path / "f").mkdir()
    for row, name in enumerate(bags.ids):
        np.save(tmp_path / "f" / f"{name}.npy", bags.batch([row]).instances.numpy())
    from miue.io import load_bags

    opened = load_bags(tmp_path / "f").bags
    order = [opened.ids.index(name) for name in bags.ids]
    in_files: BagDataset = replace(opened.subset(order), labels=bags.labels)
    models = [
        miue.train(
            data, settings={"max_epochs": 2, "options": {"encoder.width": 8}, "distances": ()}, progress=False
        )
        for data in (bags, in_files)
    ]
    of_arrays, of_files = (dict(model.method.named_parameters()) for model in models)
    assert all(torch.equal(of_arrays[name], of_files[name]) for name in of_arrays)
