"""Draw docs/images/heatmap.png: a heatmap of a real slide, by a model of an artificial task.

python docs/draw_heatmap.py SLIDE  (OpenSlide's CMU-1-Small-Region.svs, CC0; about a minute on two cores)

The model learns from bags of patches of the lower half of the slide, whether a bag contains a dark patch. The
distance thus shows where the upper half looks different.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

import miue
from miue.bags import BagDataset
from miue.cli import app
from miue.common.files import atomic_file

PICTURE = Path(__file__).with_name("images") / "heatmap.png"
WIDTH = 1560  # pixels
BAGS, PATCHES_OF_BAG = 300, 6
DARK = 0.2  # share of patches that are called dark


def main(slide: Path) -> None:
    """Cut, train, predict and draw."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        slides, features = folder / "slides", folder / "features"
        slides.mkdir()
        (slides / slide.name).symlink_to(slide.resolve())
        run("data", "tile", slides / slide.name, "--out", features, "--patch-px", 64, "--magnification", 10)
        bags = bags_of_patches(features / f"{slide.stem}.h5")
        miue.train(
            bags, settings={"max_epochs": 30, "seed": 1, "distances": ["knn"]}, out=folder / "run", progress=False
        )
        run("predict", folder / "run", features, "--out", folder / "predictions")
        run("export", "heatmap", folder / "predictions", "--slides", slides, "--out", folder / "heatmaps")
        with Image.open(folder / "heatmaps" / f"{slide.stem}.png") as drawn, atomic_file(PICTURE) as temporary:
            save_small(drawn, temporary)


def save_small(picture: Image.Image, path: Path) -> None:
    """Write a picture as wide as a page, in 256 colors."""
    size = (WIDTH, round(picture.height * WIDTH / picture.width))
    picture.convert("RGB").resize(size, Image.Resampling.LANCZOS).quantize(256).save(path, "PNG", optimize=True)


def run(*words: object) -> None:
    """Run a command of miue."""
    app([*map(str, words), "--quiet"], standalone_mode=False)


def bags_of_patches(path: Path) -> BagDataset:
    """Return bags of patches of the lower half of a slide, labeled by whether one of them is dark."""
    with h5py.File(path) as file:
        features, coords = file["features"][:].squeeze(), file["coords"][:].squeeze()
    brightness = features[:, :3].mean(1)
    dark = brightness <= np.quantile(brightness, DARK)
    lower = np.flatnonzero(coords[:, 1] > np.median(coords[:, 1]))
    random = np.random.default_rng(0)
    drawn = random.choice(lower, (BAGS, PATCHES_OF_BAG))
    drawn[::2] = random.choice(lower[~dark[lower]], (len(drawn[::2]), PATCHES_OF_BAG))
    arrays = [features[rows] for rows in drawn]
    return BagDataset.from_arrays(arrays, dark[drawn].any(1).astype(int).tolist(), class_names=("light", "dark"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
