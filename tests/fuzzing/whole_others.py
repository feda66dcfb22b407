"""Small, whole examples of what is read beside the files of bags: folders of other tools, and what goes on."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_files
import made_stores
import numpy as np
import torch
from made_predictions import made_predictions, on_a_slide
from made_slides import write_glass
from PIL import Image

from miue.predictions import Predictions

BAGS = ("d0", "d1", "d2")
SIZE, WIDTH, SIDE = 8, 6, 512
LABELS = "case_id,slide_id,label\np0,d0,tumor\np1,d1,normal\np2,d2,tumor\n"
IMAGES = ("0.png", "1.jpg", "2.tif", "3.bmp", "4.webp", "5.gif")


def build_others(base: Path) -> None:
    """Write everything below ``base``, where the calibration and the predictions are."""
    _stores_of_lazyslide(base / "spatial_data")
    _slideflow(base / "slideflow")
    _slide2vec(base / "slide2vec")
    _torchmil(base / "torchmil")
    _images(base / "image_folders")
    _table_folder(base / "table_folder")
    _shards(base)
    _monitor(base)
    _tables_of_others(base)
    _tiles(base)
    for name in ("spatial_data", "slideflow", "slide2vec", "image_folders", "table_folder"):
        (base / name / "labels.csv").write_text(LABELS)


def _features(number: int) -> np.ndarray:
    return made_files.features_of(SIZE, WIDTH, seed=number)


def _stores_of_lazyslide(folder: Path) -> None:
    for number, name in enumerate(BAGS):
        corners = made_files.grid(SIZE, made_stores.SIDE)
        made_stores.lazyslide(folder / "bags", name, _features(number), corners, chunks=(5, 4))


def _slideflow(folder: Path) -> None:
    (folder / "bags").mkdir(parents=True)
    for number, name in enumerate(BAGS):
        torch.save(torch.from_numpy(_features(number)), folder / "bags" / f"{name}.pt")
        np.savez(folder / "bags" / f"{name}.index.npz", made_files.grid(SIZE, SIDE) + SIDE // 2)
    facts = {"extractor": {"class": "uni"}, "tile_px": 256, "tile_um": 128}
    (folder / "bags/bags_config.json").write_text(json.dumps(facts))


def _slide2vec(folder: Path) -> None:
    for name in ("bags", "tiles"):
        (folder / name).mkdir(parents=True)
    x, y = made_files.grid(SIZE, SIDE).T
    for number, name in enumerate(BAGS):
        np.savez(folder / "bags" / f"{name}.npz", features=_features(number), tile_index=np.arange(SIZE))
        where = folder / "tiles" / f"{name}.coordinates.npz"
        np.savez(where, tile_index=np.arange(SIZE), x=x, y=y)
        facts = {"coordinates_npz_path": f"tiles/{where.name}", "tile_size_lv0": SIDE, "encoder_name": "uni2",
                 "requested_tile_size_px": 256, "requested_spacing_um": 0.5}  # fmt: skip
        (folder / "bags" / f"{name}.meta.json").write_text(json.dumps(facts))


def _torchmil(folder: Path) -> None:
    root = folder / "patches"
    for name in ("features/features_UNI", "labels", "patch_labels", "coords"):
        (root / name).mkdir(parents=True)
    for number, name in enumerate(BAGS):
        np.save(root / "features/features_UNI" / f"{name}.npy", _features(number))
        np.save(root / "coords" / f"{name}.npy", made_files.grid(SIZE, SIDE))
        np.save(root / "labels" / f"{name}.npy", np.array(number % 2))
        np.save(root / "patch_labels" / f"{name}.npy", np.arange(SIZE) % 2 * (number % 2))


def _images(folder: Path) -> None:
    random = np.random.default_rng(0)
    for name in BAGS:
        (folder / "bags" / name).mkdir(parents=True)
        for image in IMAGES:
            pixels = random.integers(0, 255, (12, 10, 3)).astype(np.uint8)
            Image.fromarray(pixels).convert("RGB").save(folder / "bags" / name / image)


def _table_folder(folder: Path) -> None:
    (folder / "bags").mkdir(parents=True)
    for number, name in enumerate(BAGS):
        x, y = made_files.grid(SIZE, SIDE).T
        rows = [
            ",".join(map(str, (a, b, *row))) for a, b, row in zip(x, y, _features(number).tolist(), strict=True)
        ]
        head = ",".join(("x", "y", *(f"f{column}" for column in range(WIDTH))))
        (folder / "bags" / f"{name}.csv").write_text("\n".join((head, *rows)) + "\n")


def _shards(base: Path) -> None:
    from fuzzing.whole_things import command

    for number in (1, 2):
        command("predict", base / "run/run", base / "store/bags", "--part", "all", "--shard", f"{number}/2",
                "--out", base / "shards/shards" / str(number), "--quiet")  # fmt: skip


def _known(predictions: Predictions, start: int, stop: int) -> Predictions:
    assert predictions.instances is not None
    keep = np.arange(start, stop)
    bags = predictions.bags.subset(keep)
    rows = np.flatnonzero(np.isin(predictions.instances.bag_ids, bags.bag_ids))
    return replace(predictions, bags=bags, instances=predictions.instances.subset(rows))


def _monitor(base: Path) -> None:
    from fuzzing.whole_things import command

    (base / "monitor").mkdir()
    shutil.copyfile(base / "calibration/calibration.json", base / "monitor/calibration.json")
    made = on_a_slide(made_predictions(40, 3, seed=4))
    for number, name in enumerate(("first", "second")):
        _known(made, 20 * number, 20 * (number + 1)).save(base / "monitor" / name)
    command(
        "monitor", base / "monitor/calibration.json", base / "monitor/first", "--out", base / "monitor/monitor"
    )


def _tables_of_others(base: Path) -> None:
    folder = base / "tables_of_others"
    folder.mkdir()
    from fuzzing.whole_things import command

    made = made_predictions(240, 2, seed=5)
    known = np.flatnonzero(~made.bags.is_ood.out_of_distribution)
    assert made.instances is not None
    p, of_patches = made.bags.distribution.probabilities.numpy(), made.instances.distribution.probabilities.numpy()
    names = ("normal", "tumor")
    lines = ["slide_id,case_id,y_true,p_normal,p_tumor,score_mine,hospital"]
    for row in known:
        label = names[int(made.bags.labels.values[row])]
        more = f"{p[row, 0]:.6f},{1 - float(f'{p[row, 0]:.6f}'):.6f},{row / 240},{'ab'[row % 2]}"
        lines.append(f"{made.bags.bag_ids[row]},p{row},{label},{more}")
    (folder / "bags.csv").write_text("\n".join(lines) + "\n")
    kept = set(made.bags.bag_ids[known])
    lines = ["slide_id,instance,x,y,prob"]
    numbers = made.instances.instance
    assert numbers is not None
    for patch, name in enumerate(made.instances.bag_ids):
        if name in kept:
            lines.append(f"{name},{numbers[patch]},{256 * numbers[patch]},0,{of_patches[patch, 1]:.6f}")
    (folder / "instances.csv").write_text("\n".join(lines) + "\n")
    groups = [f"{made.bags.bag_ids[row]},{'ab'[row % 2]}" for row in known]
    (folder / "groups.csv").write_text("\n".join(["bag_id,hospital", *groups]) + "\n")
    command("calibrate", folder / "bags.csv", "--max-error", 0.4, "--out", folder / "calibration.json")


def _tiles(base: Path) -> None:
    """A small slide with tissue, its features as ``data tile`` writes them, and shifted ones."""
    import tifffile

    from fuzzing.whole_things import command

    folder = base / "tiled"
    folder.mkdir()
    write_glass(folder / "slide.tiff", 1024, 768)
    pixels: Any = tifffile.imread(folder / "slide.tiff")
    random = np.random.default_rng(1)
    pixels[128:640, 128:900] = random.integers((120, 40, 120), (200, 120, 200), (512, 772, 3))
    per_cm = 1e4 / 0.499
    tifffile.imwrite(folder / "slide.tiff", pixels, tile=(256, 256), photometric="rgb", compression="zlib",
                     resolution=(per_cm, per_cm), resolutionunit="CENTIMETER")  # fmt: skip
    command("data", "tile", folder / "slide.tiff", "--out", folder / "tiles", "--quiet")
    command("data", "shift", folder / "slide.tiff", "--kind", "blur", "--strength", "light", "--tiles",
            folder / "tiles", "--out", folder / "shifted")  # fmt: skip
