"""What makes features of patches: plain statistics, or a network from a file, a batch at a time.

A network's file is code of its author. TorchScript runs it in an interpreter that can read and write files. An
exported program (.pt2) is rebuilt by ``torch.export.load``, which evaluates expressions of the file and unpickles
what the file says is pickled. Files with pickled parts are refused here, which closes the widest door, but neither
is a sandbox: load only what you trust.
"""

from __future__ import annotations

import json
import logging
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor

from miue.common.devices import torch_device
from miue.common.errors import ModelError, unknown_name
from miue.common.files import file_sha256

PLAIN = "color-texture"
EXPORTED = ".pt2"
NORMALIZATIONS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
"""Mean and standard deviation of red, green and blue in [0, 1], subtracted and divided by."""


@dataclass(frozen=True)
class PatchEncoder:
    """Features of patches, and the attributes that identify them.

    Attributes:
        name: kept in the file of features.
        encode: (n, H, W, 3) bytes → (n, D).
        attributes: what else is kept in the file.
        batch: patches at once.
    """

    name: str
    encode: Callable[[UInt8[np.ndarray, "n H W 3"]], Float32[np.ndarray, "n D"]]
    attributes: Mapping[str, str] = field(default_factory=dict)
    batch: int = 64


def plain_encoder() -> PatchEncoder:
    """Return the 24 statistics of color and texture."""
    return PatchEncoder(PLAIN, lambda patches: np.stack([color_texture(patch) for patch in patches]))


def color_texture(patch: UInt8[np.ndarray, "height width 3"]) -> Float32[np.ndarray, "24"]:
    """Return mean and spread of red, green, blue; of hematoxylin, eosin, DAB; of edges; and a texture histogram.

    Deterministic, nothing learned: a stand-in to try a pipeline with, or a baseline. It sees colors and fine
    grain, not cells or glands; for results, use features of an encoder trained on pathology.

    The stains are those of Ruifrok & Johnston 2001, the texture is the histogram of the uniform local binary
    patterns of 8 neighbors at radius 1 (Ojala et al. 2002), both as scikit-image has them.

    >>> gray = color_texture(np.full((8, 8, 3), 128, np.uint8))
    >>> [round(float(value), 3) for value in gray[:6]]  # three equal means, no spread
    [0.502, 0.502, 0.502, 0.0, 0.0, 0.0]
    """
    from skimage.color import rgb2hed
    from skimage.feature import local_binary_pattern
    from skimage.filters import sobel

    colors = patch / 255.0
    stains = rgb2hed(colors)
    gray = patch.mean(2).round().astype(np.uint8)
    patterns = local_binary_pattern(gray, 8, 1, "uniform").astype(int)
    edges = sobel(gray / 255.0)
    parts = [image.reshape(-1, 3) for image in (colors, stains)]
    moments = [moment for part in parts for moment in (part.mean(0), part.std(0))]
    histogram = np.bincount(patterns.ravel(), minlength=10) / patterns.size
    return np.concatenate([*moments, [edges.mean(), edges.std()], histogram]).astype(np.float32)


def network_encoder(
    path: Path, *, normalization: str = "imagenet", batch: int = 64, device: str = "auto"
) -> PatchEncoder:
    """Return the network in a file; only from an author you trust.

    It is given float32 (batch, 3, H, W), normalized, and returns (batch, D). The last batch is filled up and cut
    again, so that a network exported for one batch size runs.

    Args:
        path: TorchScript, or an exported program where it ends in .pt2.
        normalization: "imagenet" or "none" (values in [0, 1]).
        batch: patches at once.
        device: "auto", "cpu" or "gpu".

    Raises:
        ConfigError: no such normalization or device.
        StorageError: the file cannot be read.
        ModelError: it holds no network, parts that would be unpickled, or damaged ones.
    """
    check_normalization(normalization)
    target = torch_device(device)
    digest = file_sha256(path)
    _refuse_damaged(path)
    network = _exported(path, target) if path.suffix == EXPORTED else _scripted(path, target)
    mean, deviation = (
        torch.tensor(values, device=target)[:, None, None] for values in NORMALIZATIONS[normalization]
    )

    def encode(patches: np.ndarray) -> np.ndarray:
        filled = np.concatenate([patches, np.repeat(patches[-1:], batch - len(patches), 0)])
        values = torch.from_numpy(filled).to(target).permute(0, 3, 1, 2).float().div_(255)
        with torch.no_grad():
            features = _run(network, (values - mean) / deviation, path)
        return features[: len(patches)].cpu().numpy()

    return PatchEncoder(path.name, encode, {"encoder_sha256": digest, "normalization": normalization}, batch)


@lru_cache(1)
def open_encoder(path: str | None, normalization: str, batch: int, device: str) -> PatchEncoder:
    """Return the network in a file, or the plain statistics where there is no path; the last one is kept.

    Raises:
        ConfigError, StorageError, ModelError: as ``network_encoder`` does.
    """
    if path is None:
        check_normalization(normalization)
        return plain_encoder()
    return network_encoder(Path(path), normalization=normalization, batch=batch, device=device)


def check_normalization(name: str) -> None:
    """Raise unless it is one that there is.

    Raises:
        ConfigError: it is not.
    """
    if name not in NORMALIZATIONS:
        raise unknown_name("normalization", name, NORMALIZATIONS)


def _run(network: Any, values: Tensor, path: Path) -> Tensor:
    """Return (batch, D) features in float32; (batch, D, 1, 1) are taken for such."""
    try:
        found = network(values)
    except Exception as error:  # whatever the network's code raises
        raise _unfit(
            path,
            f"a network that takes float32 {tuple(values.shape)}",
            str(error).strip().split("\n")[-1],
            "pass the --patch-px and --batch that it was made for",
        ) from error
    wanted, fix = (
        f"features ({len(values)}, D), real, dense and finite",
        "export a network that ends in pooled features",
    )
    if not isinstance(found, Tensor):
        raise _unfit(path, wanted, type(found).__name__, fix)
    if found.dim() < 2 or found.shape[0] != len(values) or not found.shape[1] or found[0, 0].numel() != 1:
        raise _unfit(path, wanted, str(tuple(found.shape)), fix)
    if found.is_complex() or found.layout is not torch.strided:
        raise _unfit(path, wanted, f"{'complex' if found.is_complex() else 'sparse'} ones", fix)
    features = found.reshape(found.shape[:2]).float()  # a double may be infinite in float32
    if not torch.isfinite(features).all():
        raise _unfit(path, wanted, "NaN or infinity", "check the network and --normalization")
    return features


def _refuse_damaged(path: Path) -> None:
    """Raise where a part of the archive is not what was written, which PyTorch does not look at.

    Raises:
        ModelError: its check sum is of other bytes.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except Exception:  # of many kinds: no such archive, which loading it says better
        return
    if damaged is not None:
        raise _unfit(
            path,
            "a file whose parts have the check sums (CRC-32) that they were written with",
            f"another one of {damaged!r}",
            "copy or download the file again: it was damaged on the way, and would make other features",
        )


def _scripted(path: Path, device: torch.device) -> Any:
    with warnings.catch_warnings():  # PyTorch prefers torch.export by now; files of this kind are what people have
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return torch.jit.load(str(path), map_location=device).eval()
        except (RuntimeError, ValueError) as error:
            raise _no_network(path, str(error)) from error


def _exported(path: Path, device: torch.device) -> Any:
    _refuse_pickled_parts(path)
    said = _Behind()
    logger = logging.getLogger("torch.export")
    logger.addFilter(said)
    try:
        program = torch.export.load(path)
        if device.type != "cpu":
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, device)
        return program.module()
    except Exception as error:  # of many kinds, wherever the damage is
        reason = said.errors[-1] if said.errors else error
        raise _no_network(path, str(reason) or type(reason).__name__) from error
    finally:
        logger.removeFilter(said)


class _Behind(logging.Filter):
    """Keeps what PyTorch logs with a traceback and refers to in its error, which says nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.errors.append(error)
        return error is None


def _refuse_pickled_parts(path: Path) -> None:
    """Raise unless all weights and constants of an exported program are plain tensors.

    Raises:
        ModelError: they are not, or the file is no exported program.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [
                name
                for name in archive.namelist()
                if name.endswith(("_weights_config.json", "_constants_config.json"))
            ]
            configs = [json.loads(archive.read(name))["config"] for name in names]
            parts = [part for config in configs for part in config.values()]
            plain = all(
                not part["use_pickle"] and part["path_name"].startswith(("weight_", "tensor_")) for part in parts
            )
    except Exception as error:  # of many kinds: what zipfile and its decompressors raise, and JSON of another form
        raise _no_network(path, str(error) or type(error).__name__) from error
    if len(names) < 2 or not plain:
        raise _unfit(
            path,
            "an exported program whose parts are plain tensors",
            "an older or another format" if len(names) < 2 else "pickled parts, which can run any code",
            "export it again with a current PyTorch, from plain parameters and buffers",
        )


def _no_network(path: Path, got: str) -> ModelError:
    return _unfit(
        path,
        "a TorchScript network, or an exported program that ends in .pt2",
        got.strip().split("\n")[0],
        "weights alone are no network: save it with torch.export.save or as TorchScript",
    )


def _unfit(path: Path, wanted: str, got: str, fix: str) -> ModelError:
    return ModelError(item=f"encoder {str(path)!r}", wanted=wanted, got=got, fix=fix)
