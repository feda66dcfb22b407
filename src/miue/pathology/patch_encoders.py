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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor

from miue.common.devices import torch_device
from miue.common.errors import ModelError, unknown_name
from miue.common.files import file_sha256
from miue.pathology.color_texture import NAME, color_texture

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
    return PatchEncoder(NAME, lambda patches: np.stack([color_texture(patch) for patch in patches]))


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
        features_of_batch = network(values)
    except Exception as error:  # whatever the network's code raises
        raise ModelError(
            item=f"encoder {str(path)!r}",
            wanted=f"a network that takes float32 {tuple(values.shape)}",
            got=str(error).strip().split("\n")[-1],
            fix="pass the --patch-px and --batch that it was made for",
        ) from error
    shape = tuple(features_of_batch.shape) if isinstance(features_of_batch, Tensor) else ()
    if len(shape) < 2 or shape[0] != len(values) or shape[1] == 0 or any(side != 1 for side in shape[2:]):
        raise ModelError(
            item=f"encoder {str(path)!r}",
            wanted=f"features ({len(values)}, D)",
            got=str(shape) if shape else type(features_of_batch).__name__,
            fix="export a network that ends in pooled features",
        )
    if features_of_batch.is_complex() or features_of_batch.layout is not torch.strided:
        kind = "complex" if features_of_batch.is_complex() else "sparse"
        raise ModelError(
            item=f"encoder {str(path)!r}",
            wanted=f"features ({len(values)}, D) that are real and dense",
            got=f"{kind} ones",
            fix="export a network that ends in pooled features",
        )
    features = features_of_batch.reshape(shape[0], shape[1]).float()  # a double may be infinite in float32
    if not torch.isfinite(features).all():
        raise ModelError(
            item=f"encoder {str(path)!r}",
            wanted="finite features",
            got="NaN or infinity",
            fix="check the network and --normalization",
        )
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
        raise ModelError(
            item=f"encoder {str(path)!r}",
            wanted="a file whose parts have the check sums (CRC-32) that they were written with",
            got=f"another one of {damaged!r}",
            fix="copy or download the file again: it was damaged on the way, and would make other features",
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
        raise ModelError(
            item=f"encoder {str(path)!r}",
            wanted="an exported program whose parts are plain tensors",
            got="an older or another format" if len(names) < 2 else "pickled parts, which can run any code",
            fix="export it again with a current PyTorch, from plain parameters and buffers",
        )


def _no_network(path: Path, got: str) -> ModelError:
    return ModelError(
        item=f"encoder {str(path)!r}",
        wanted="a TorchScript network, or an exported program that ends in .pt2",
        got=got.strip().split("\n")[0],
        fix="weights alone are no network: save it with torch.export.save or as TorchScript",
    )
