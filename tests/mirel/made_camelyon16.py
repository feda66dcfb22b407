"""A made CAMELYON16 of a few slides, in the files of the challenge, CLAM, TRIDENT and ``miue data shift``."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from made_files import clam, clam_patches, grid, trident

from miue.pathology.tile_files import Tiles, write_features

STEP, WIDTH = 1024, 6
TRAINING = [f"{kind}_{number:03d}" for kind in ("normal", "tumor") for number in range(1, 8)]
CLASSES = {"test_001": "Tumor", "test_002": "Normal", "test_003": "Normal", "test_114": "Tumor"}
SHIFTS = [f"{kind}-{strength}" for kind in ("blur", "hed") for strength in ("lighter", "light", "strong")]
OUTLINED = 3  # patches of every slide with tumor, the first ones


def size_of(name: str) -> int:
    """Patches of a slide, at least eight."""
    return 8 + sum(map(ord, name)) % 7


def made_features(name: str, width: int = WIDTH) -> np.ndarray:
    """Features (n, width); those of tumor lie apart."""
    random = np.random.default_rng(sum(ord(letter) * place for place, letter in enumerate(name, 1)))
    features = random.normal(size=(size_of(name), width)).astype(np.float32)
    if name.startswith("tumor") or CLASSES.get(name) == "Tumor":
        features[:OUTLINED] += 4
    return features


def write_slides(
    folder: Path, names: list[str], kind: str = "trident", *, width: int = WIDTH, encoder: str = "uni_v1"
) -> None:
    """Write the slides' features: TRIDENT's files in the folder, or CLAM's h5_files, pt_files and patches."""
    for name in names:
        features = made_features(name, width)
        if kind == "trident":
            with h5py.File(trident(folder, name, features, step=STEP), "r+") as file:
                file["features"].attrs["encoder"] = encoder
        else:
            clam(folder, name, features, grid(len(features), STEP))
            clam_patches(folder, name, len(features), STEP // 2, 2.0)


def write_outlines(folder: Path, name: str) -> Path:
    """Write ASAP's XML around three patches of a slide, a quarter of the fourth, and a tenth of the fifth.

    Patches lie four in a row, so that the fifth begins the second row.
    """
    folder.mkdir(parents=True, exist_ok=True)
    boxes = [("_0", 0, 0, OUTLINED * STEP + STEP // 4, STEP), ("_1", 0, STEP, STEP // 10, 2 * STEP)]
    drawn = ""
    for number, (group, left, top, right, bottom) in enumerate(boxes):
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        points = "".join(f'<Coordinate Order="{i}" X="{x}" Y="{y}" />' for i, (x, y) in enumerate(corners))
        drawn += (
            f'<Annotation Name="Annotation {number}" Type="Polygon" PartOfGroup="{group}" Color="#F4FA58">'
            f"<Coordinates>{points}</Coordinates></Annotation>"
        )
    path = folder / f"{name}.xml"
    path.write_text(
        f'<?xml version="1.0"?><ASAP_Annotations><Annotations>{drawn}</Annotations>'
        '<AnnotationGroups><Group Name="_0" PartOfGroup="None" Color="#64FE2E"><Attributes /></Group>'
        "</AnnotationGroups></ASAP_Annotations>"
    )
    return path


def write_reference(path: Path) -> None:
    """Write the classes of the test slides as the challenge does, without a header."""
    rows = [f"{name},{word},{'IDC,Macro' if word == 'Tumor' else 'None,None'}" for name, word in CLASSES.items()]
    path.write_text("\n".join(rows) + "\n")


def write_shifts(folder: Path, shifts: list[str], width: int = WIDTH, encoder: str = "uni.pt2") -> None:
    """Write shifted copies of the test slides, as ``miue data shift`` does."""
    for shift in shifts:
        kind, strength = shift.split("-")
        amount = {"lighter": 0.1, "light": 0.5, "strong": 3.0}[strength]
        for name in CLASSES:
            features = made_features(name, width)
            tiles = Tiles(grid(len(features), STEP).astype(np.int64), STEP, 256, {})
            about = {"encoder": encoder, "shift": kind, "strength": strength, "seed": 0}
            statistics = np.zeros((len(features), 27), np.float32)
            write_features(
                folder / shift / f"{name}.h5",
                features + np.float32(amount),
                statistics,
                tiles,
                about,
            )


def made_camelyon16(source: Path, kind: str = "trident", *, width: int = WIDTH, encoder: str = "uni_v1") -> Path:
    """Write all of it; return ``source``."""
    home = source / "camelyon16"
    names = [*TRAINING, *CLASSES]
    write_slides(home / "features", names, kind, width=width, encoder=encoder)
    (home / "slides.csv").write_text("slide_id\n" + "\n".join(names) + "\n")
    write_reference(home / "reference.csv")
    for name in [name for name in names if name.startswith("tumor") or CLASSES.get(name) == "Tumor"]:
        write_outlines(home / "annotations", name)
    write_shifts(home / "shifted", SHIFTS, width, encoder)
    prad = [f"TCGA-2A-A8V{letter}-01Z-00-DX1.5C6B2FF5" for letter in "LOTVW"]
    write_slides(source / "tcga-prad", prad, kind, width=width, encoder=encoder)
    return source
