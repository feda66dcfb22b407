"""Draw docs/images/view.jpg and view_patch.jpg: the page of ``miue view`` on parts of a real slide.

python docs/draw_view.py SLIDE  (OpenSlide's CMU-1-Small-Region.svs, CC0; needs playwright and a Chromium)

Twelve parts of the slide stand for slides. The model learns from bags of six patches whether one of them is dark.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any

import h5py
import numpy as np
import openslide
import tifffile
from draw_heatmap import run
from PIL import Image
from playwright.sync_api import sync_playwright

import miue
from miue.bags import BagDataset
from miue.view import Content, Server, Site, VerdictFile

IMAGES = Path(__file__).with_name("images")
BAGS = 40  # of each part, to train on
PART = 800  # pixels of a part's side
MICRONS = 0.499  # of a pixel


def main(slide: Path) -> None:
    """Cut, train, predict, serve and take pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = write_parts(slide, folder / "slides")
        cut = ("--patch-px", 32, "--magnification", 10, "--mpp", MICRONS)
        run("data", "tile", *parts, "--out", folder / "features", *cut)
        settings = {"max_epochs": 30, "seed": 1, "distances": ["knn"]}
        miue.train(bags_of_parts(folder / "features"), settings=settings, out=folder / "run", progress=False)
        run("predict", folder / "run", folder / "features", "--out", folder / "predictions")
        verdicts = VerdictFile(folder / "review.verdicts.csv", "A. Reader")
        read = miue.read_predictions(folder / "predictions")
        content = Content(read, verdicts, title="CMU-1, twelve parts", slides=folder / "slides")
        with Server(Site(content)) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            take_pictures(server.address, verdicts, [case["name"] for case in content.overview["cases"]])
            server.shutdown()


def bags_of_parts(folder: Path) -> BagDataset:
    """Return bags of patches of one part each, labeled by whether one of them is dark."""
    random, arrays, owners = np.random.default_rng(0), [], []
    for path in sorted(folder.glob("*.h5")):
        with h5py.File(path) as file:
            features = file["features"][:].squeeze()
        arrays += [features[random.choice(len(features), 6)] for _ in range(BAGS)]
        owners += [f"training {path.stem}"] * BAGS
    limit = np.quantile(np.concatenate(arrays)[:, :3].mean(1), 0.04)
    labels = [int((bag[:, :3].mean(1) <= limit).any()) for bag in arrays]
    return BagDataset.from_arrays(arrays, labels, class_names=("light", "dark"), patients=owners)


def write_parts(slide: Path, folder: Path) -> list[Path]:
    """Write twelve parts of a slide, which overlap, as slides of their own."""
    folder.mkdir()
    with openslide.OpenSlide(str(slide)) as whole:
        width, height = whole.dimensions
        picture = np.asarray(whole.read_region((0, 0), 0, (width, height)).convert("RGB"))
    corners = [(x, y) for y in np.linspace(0, height - PART, 4) for x in np.linspace(400, width - PART - 200, 3)]
    paths = [folder / f"part {number:02d}.tif" for number in range(1, 1 + len(corners))]
    per_cm = 1e4 / MICRONS
    options: dict[str, Any] = {"tile": (256, 256), "photometric": "rgb", "compression": "zlib"}
    for path, (x, y) in zip(paths, corners, strict=True):
        part = picture[int(y) : int(y) + PART, int(x) : int(x) + PART]
        tifffile.imwrite(path, part, resolution=(per_cm, per_cm), resolutionunit="CENTIMETER", **options)
    return paths


def take_pictures(address: str, verdicts: VerdictFile, names: list[str]) -> None:
    """Save the page with a whole slide, and with a patch of it after a verdict."""
    for name, label in ((names[1], "dark"), (names[2], "light"), (names[4], "cannot tell")):
        verdicts.append(name, label, "")
    with sync_playwright() as started:
        browser = started.chromium.launch(
            args=["--no-sandbox"], executable_path=shutil.which("chromium") or shutil.which("google-chrome")
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
        page.goto(address)
        page.wait_for_selector("#stage[data-ready=yes]")
        page.wait_for_timeout(6000)
        save(page, IMAGES / "view.jpg")
        for _ in range(2):
            page.keyboard.press(".")
        page.fill("#note", "crushed, at the margin")
        page.locator("#note").blur()
        page.keyboard.press("2")
        page.wait_for_timeout(6000)
        save(page, IMAGES / "view_patch.jpg")
        browser.close()


def save(page: Any, path: Path) -> None:
    """Write what is on the screen, as JPEG."""
    Image.open(BytesIO(page.screenshot())).convert("RGB").save(path, quality=88, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
