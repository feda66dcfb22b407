"""Bag files and label tables written as the tools of the field write them: names, attributes, types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch


def features_of(size: int, width: int = 6, seed: int = 0, positive: bool = False) -> np.ndarray:
    """Features (size, width) in float32; a positive bag's first instance is shifted."""
    array = np.random.default_rng(seed).normal(size=(size, width)).astype(np.float32)
    if positive:
        array[0] += 4
    return array


def grid(size: int, step: int) -> np.ndarray:
    """Corners of ``size`` patches, row by row, four in a row."""
    return np.stack([np.arange(size) % 4 * step, np.arange(size) // 4 * step], 1)


def clam(folder: Path, name: str, features: np.ndarray, coords: np.ndarray | None = None) -> Path:
    """CLAM: h5_files/<slide>.h5 with int32 coords and no attributes, and pt_files/<slide>.pt."""
    for kind in ("h5_files", "pt_files"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / "h5_files" / f"{name}.h5", "w") as file:
        size, chunk = features.shape, (1, *features.shape[1:])
        file.create_dataset("features", data=features, chunks=chunk, maxshape=(None, *size[1:]))
        corners = grid(len(features), 512) if coords is None else coords
        file.create_dataset("coords", data=corners.astype(np.int32), chunks=(1, 2), maxshape=(None, 2))
    torch.save(torch.from_numpy(features), folder / "pt_files" / f"{name}.pt")
    return folder / "h5_files" / f"{name}.h5"


def clam_patches(folder: Path, name: str, size: int, patch_size: int, downsample: float) -> Path:
    """CLAM: patches/<slide>.h5, the side of a patch at its level and how much smaller that level is."""
    (folder / "patches").mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / "patches" / f"{name}.h5", "w") as file:
        coords = file.create_dataset("coords", data=grid(size, round(patch_size * downsample)).astype(np.int32))
        coords.attrs.update(
            patch_size=patch_size,
            patch_level=1,
            downsample=np.array([downsample, downsample]),
            name=name,
            save_path="/somewhere",
        )
    return folder / "patches" / f"{name}.h5"


def trident(
    folder: Path, name: str, features: np.ndarray, step: int = 1024, encoder: str = "uni_v1", **attributes: Any
) -> Path:
    """TRIDENT: features_<encoder>/<slide>.h5; at 40x with patches of 256 at 10x the grid's step is 1024."""
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / f"{name}.h5", "w") as file:
        stored = file.create_dataset("features", data=features)
        stored.attrs.update(encoder=encoder, name=name, savetodir="/somewhere")
        coords = file.create_dataset("coords", data=grid(len(features), step).astype(np.int64))
        told: dict[str, Any] = {
            "patch_size": 256,
            "patch_size_level0": step,
            "level0_magnification": 40,
            "target_magnification": 10,
            "overlap": 0,
            "name": name,
            "savetodir": "None",
            "level0_width": 20000,
            "level0_height": 20000,
        }
        coords.attrs.update({**told, **attributes})
    return folder / f"{name}.h5"


def trident_pt(folder: Path, name: str, features: np.ndarray) -> Path:
    """TRIDENT's .pt: a NumPy array, pickled."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(features, folder / f"{name}.pt")
    return folder / f"{name}.pt"


def stamp(folder: Path, name: str, features: np.ndarray) -> Path:
    """STAMP: feats in float16, coords in µm, tiles of 256 µm in 224 pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / f"{name}.h5", "w") as file:
        file["feats"] = features.astype(np.float16)
        file["coords"] = grid(len(features), 1).astype(np.float32) * 256.0
        file.attrs.update(
            unit="um", tile_size_um=256.0, tile_size_px=224, extractor="ctranspath", stamp_version="2.0"
        )
    return folder / f"{name}.h5"


def endless(path: Path) -> Path:
    """Flip the bit in an HDF5 file with attributes of text that makes HDF5 2.0 loop for ever when it reads them.

    It belongs to the size of the first text in the file's global heap, which then does not fit the heap any more.
    """
    content = bytearray(path.read_bytes())
    content[content.index(b"GCOL") + 25] ^= 1
    path.write_bytes(content)
    return path


def slides(folder: Path, patients: int = 20, width: int = 6) -> tuple[Path, Path]:
    """A TRIDENT folder of one or two slides per patient, ids with leading zeros, and CLAM's label table."""
    features, lines = folder / "features_uni_v1", ["case_id,slide_id,label"]
    for patient in range(patients):
        positive = patient % 2 == 0
        for slide in range(1 + patient % 3 // 2):
            name = f"00{patient}{slide}"
            size = 3 + (patient * 5 + slide) % 7
            trident(features, name, features_of(size, width, seed=10 * patient + slide, positive=positive))
            lines.append(f"0{patient},{name},{'tumor' if positive else 'normal'}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return features, folder / "labels.csv"
