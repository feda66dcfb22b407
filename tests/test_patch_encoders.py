"""Networks from files: what they are given, what they may return, and what is not loaded."""

from __future__ import annotations

import hashlib
import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from miue.common.errors import ConfigError, MiueError, ModelError, StorageError
from miue.pathology.patch_encoders import network_encoder, open_encoder, plain_encoder
from miue.settings import TileSettings

SIDE, WIDTH = 11, 6


class Means(nn.Module):
    """Mean of each color, smallest value, number of patches at once, and red of the top right corner."""

    def forward(self, patches: Tensor) -> Tensor:
        means = patches.mean((2, 3))
        smallest = patches.flatten(1).amin(1, keepdim=True)
        return torch.cat([means, smallest, torch.full_like(smallest, patches.shape[0]), patches[:, :1, 0, -1]], 1)


class Unpooled(nn.Module):
    def forward(self, patches: Tensor) -> Tensor:
        return patches


class Broken(nn.Module):
    def forward(self, patches: Tensor) -> Tensor:
        return patches.mean((2, 3)) / 0


def scripted(network: nn.Module, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(network).save(str(path))
    return path


def exported(network: nn.Module, path: Path, batch: int) -> Path:
    torch.export.save(torch.export.export(network, (torch.zeros(batch, 3, SIDE, SIDE),)), path)
    return path


@pytest.fixture
def patches() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (3, SIDE, SIDE, 3)).astype(np.uint8)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["scripted", "exported"])
def test_a_network_is_given_normalized_batches_of_one_size(kind: str, tmp_path: Path, patches: np.ndarray) -> None:
    file = scripted(Means(), tmp_path / "e.pt") if kind == "scripted" else exported(Means(), tmp_path / "e.pt2", 7)
    encoder = network_encoder(file, normalization="imagenet", batch=7, device="cpu")
    features = encoder.encode(patches)
    scaled = (patches / 255.0 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    assert features.shape == (3, WIDTH)
    assert features.dtype == np.float32
    assert features[:, :3] == pytest.approx(scaled.mean((1, 2)), abs=1e-5)
    assert features[:, 3] == pytest.approx(scaled.min((1, 2, 3)), abs=1e-5)
    assert (features[:, 4] == 7).all()  # filled up, and cut again
    assert features[:, 5] == pytest.approx(scaled[:, 0, -1, 0], abs=1e-5)
    plain = network_encoder(file, normalization="none", batch=7, device="cpu").encode(patches)
    assert plain[:, :3] == pytest.approx(patches.mean((1, 2)) / 255, abs=1e-5)
    assert encoder.name == file.name
    assert encoder.attributes["encoder_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert encoder.attributes["normalization"] == "imagenet"


def test_a_network_predicts_as_it_does_after_training(tmp_path: Path, patches: np.ndarray) -> None:
    network = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1))
    encoder = network_encoder(scripted(network.train(), tmp_path / "e.pt"), normalization="none", device="cpu")
    features = encoder.encode(patches)  # (64, 3, 1, 1) is taken for (64, 3)
    assert features == pytest.approx(patches.mean((1, 2)) / 255, abs=1e-4)


def test_what_is_no_network_or_no_features_is_named(tmp_path: Path, patches: np.ndarray) -> None:
    weights = tmp_path / "weights.pt"
    torch.save(Means().state_dict(), weights)
    text = tmp_path / "text.pt2"
    text.write_text("no archive")
    for file in (weights, text):
        with pytest.raises(ModelError, match="weights alone are no network"):
            network_encoder(file, device="cpu")
    with pytest.raises(ModelError, match=r"expected features \(4, D\), .* got \(4, 3, 11, 11\)"):
        network_encoder(scripted(Unpooled(), tmp_path / "u.pt"), batch=4, device="cpu").encode(patches)
    with pytest.raises(ModelError, match="NaN or infinity"):
        network_encoder(scripted(Broken(), tmp_path / "b.pt"), device="cpu").encode(patches)
    with pytest.raises(ModelError, match=r"takes float32 \(4, 3, 11, 11\).* --batch"):
        network_encoder(exported(Means(), tmp_path / "m.pt2", 7), batch=4, device="cpu").encode(patches)
    with pytest.raises(StorageError, match="check the path"):
        network_encoder(tmp_path / "none.pt")
    with pytest.raises(ConfigError, match="did you mean 'imagenet'"):
        network_encoder(weights, normalization="imagenett")


class Fixed(nn.Module):
    """Features of one kind, whatever the patches are."""

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.features = features

    def forward(self, patches: Tensor) -> Tensor:
        return self.features


class Sparse(nn.Module):
    def forward(self, patches: Tensor) -> Tensor:
        return patches.mean((2, 3)).to_sparse()


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (Fixed(torch.zeros(4, 0)), "(4, 0)"),
        (Fixed(torch.ones(4, 2, dtype=torch.complex64)), "complex ones"),
        (Sparse(), "sparse ones"),
        (Fixed(torch.full((4, 2), 1e300, dtype=torch.float64)), "NaN or infinity"),
    ],
    ids=["none", "complex", "sparse", "too large"],
)
def test_features_that_a_file_cannot_hold_are_refused(
    network: nn.Module, said: str, tmp_path: Path, patches: np.ndarray
) -> None:
    encoder = network_encoder(scripted(network, tmp_path / "n.pt"), batch=4, device="cpu")
    with pytest.raises(ModelError) as refused:
        encoder.encode(patches)
    assert refused.value.got == said


@pytest.mark.parametrize(
    ("part", "content", "said"),
    [
        ("_weights_config.json", b"[" * 100_000, "recursion depth"),
        ("models/model.json", b"[" * 100_000, "recursion depth"),
        ("/weight_0", None, "weight_0: file not found"),
        ("version", b"999", "with version 999"),
    ],
    ids=["deep weights", "deep model", "no weight", "version"],
)
def test_a_damaged_exported_program_says_what_is_wrong_and_nothing_else(
    part: str, content: bytes | None, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = exported(nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 2)), tmp_path / "whole.pt2", 2)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(tmp_path / "e.pt2", "w") as new:
        for name in old.namelist():
            if part not in name or content is not None:
                new.writestr(name, content if part in name and content is not None else old.read(name))
    capfd.readouterr()
    with pytest.raises(ModelError, match=f"e.pt2': expected a TorchScript network.*got .*{said}"):
        network_encoder(tmp_path / "e.pt2", batch=2, device="cpu")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", ["scripted", "exported"])
def test_a_network_with_a_damaged_weight_makes_no_features(kind: str, tmp_path: Path) -> None:
    linear = nn.Linear(3 * SIDE * SIDE, 2)
    network = nn.Sequential(nn.Flatten(), linear)
    file = tmp_path / ("e.pt" if kind == "scripted" else "e.pt2")
    scripted(network, file) if kind == "scripted" else exported(network, file, 2)
    network_encoder(file, batch=2, device="cpu")
    content = bytearray(file.read_bytes())
    content[content.index(linear.weight.detach().numpy().tobytes()) + 3] ^= 0x55
    file.write_bytes(content)
    with pytest.raises(ModelError, match=r"check sums .* got another one of '.*(data/0|weight_0)'; copy or down"):
        network_encoder(file, batch=2, device="cpu")


def repacked(source: Path, target: Path, change: Any) -> Path:
    """An archive whose weights config went through ``change``."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("_weights_config.json"):
                content = json.dumps(change(json.loads(content))).encode()
            new.writestr(name, content)
    return target


def test_exported_programs_with_pickled_parts_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = exported(nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 2)), tmp_path / "whole.pt2", 2)
    loaded: list[object] = []
    load = torch.export.load
    monkeypatch.setattr(torch.export, "load", lambda path: loaded.append(path) or load(path))  # type: ignore[func-returns-value]
    network_encoder(whole, batch=2, device="cpu")
    assert len(loaded) == 1

    def pickled(config: dict[str, Any]) -> dict[str, Any]:
        next(iter(config["config"].values()))["use_pickle"] = True
        return config

    def custom(config: dict[str, Any]) -> dict[str, Any]:
        next(iter(config["config"].values()))["path_name"] = "opaque_obj_0"
        return config

    for number, change in enumerate((pickled, custom, lambda config: {"config": {"w": {}}})):
        with pytest.raises(ModelError):
            network_encoder(repacked(whole, tmp_path / f"{number}.pt2", change), batch=2, device="cpu")
    legacy = tmp_path / "legacy.pt2"
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(legacy, "w") as new:
        for name in old.namelist():
            if not name.endswith("_constants_config.json"):
                new.writestr(name, old.read(name))
    with pytest.raises(ModelError, match="older or another format"):
        network_encoder(legacy, batch=2, device="cpu")
    assert len(loaded) == 1


def test_a_network_that_a_link_leads_to_has_the_name_of_the_link(tmp_path: Path) -> None:
    link = tmp_path / "uni.pt2"
    link.symlink_to(exported(Means(), tmp_path / "network.pt2", 7).rename(tmp_path / "0123abcd"))
    encoder = open_encoder(
        **TileSettings.of({"patch_encoder": link, "normalization": "none", "batch": 7, "device": "cpu"}).encoder()
    )
    assert encoder.name == "uni.pt2"


def test_plain_statistics_need_no_file(patches: np.ndarray) -> None:
    encoder = plain_encoder()
    assert (encoder.name, encoder.encode(patches).shape, dict(encoder.attributes)) == (
        "color-texture",
        (3, 24),
        {},
    )


def test_an_accelerator_that_is_not_there_is_not_taken_for_one(tmp_path: Path) -> None:
    file = scripted(Means(), tmp_path / "e.pt")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="expected an accelerator"):
            network_encoder(file, device="gpu")
    with pytest.raises(MiueError, match="device 'tpu'"):
        network_encoder(file, device="tpu")
