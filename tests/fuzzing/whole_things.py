"""One small, whole example of everything that miue reads, written once into a folder."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_files
import numpy as np
import torch
from made_predictions import made_predictions, on_a_slide
from safetensors.torch import save_file

from fuzzing.whole_others import build_others
from miue.bags import BagDataset, Coords
from miue.predictions import Predictions

WIDTH = 6
BAGS = ("d0", "d1", "d2")
SIZES = {"d0": 7, "d1": 5, "d2": 6}
SMALL = ("--set", "encoder.width=4", "--set", "max_epochs=3")
REAL_SLIDE = Path(__file__).resolve().parents[3] / "shared" / "data" / "CMU-1-Small-Region.svs"
REAL_FILES = Path(__file__).resolve().parents[3] / "shared" / "data" / "real_files"


def build(base: Path) -> None:
    """Write everything below ``base``."""
    bag_files(base)
    tables(base)
    stores(base)
    training(base)
    predictions(base)
    cross_validation(base)
    outlines(base)
    packing(base)
    pictures(base)
    build_others(base)


def bag_files(base: Path) -> None:
    """Write three bags in every format, each format in a folder of its own, with a label table."""
    for name, size in SIZES.items():
        features, coords = made_files.features_of(size, WIDTH, seed=size), made_files.grid(size, 512)
        made_files.clam(base / "clam", name, features)
        made_files.clam_patches(base / "clam", name, size, 256, 2.0)
        made_files.trident(base / "trident" / "bags", name, features)
        made_files.trident_pt(base / "trident_pt" / "bags", name, features)
        made_files.stamp(base / "stamp" / "bags", name, features)
        for kind in ("npy", "npz", "npz_compressed", "pt", "pth", "safetensors", "crops"):
            (base / kind / "bags").mkdir(parents=True, exist_ok=True)
        tensors = {"features": torch.from_numpy(features), "coords": torch.from_numpy(coords)}
        np.save(base / "npy/bags" / f"{name}.npy", features)
        np.save(base / "crops/bags" / f"{name}.npy", np.stack([features] * 3, 1))
        np.savez(base / "npz/bags" / f"{name}.npz", features=features, coords=coords)
        np.savez_compressed(base / "npz_compressed/bags" / f"{name}.npz", features=features, coords=coords)
        torch.save(tensors, base / "pt/bags" / f"{name}.pt")
        torch.save(tensors["features"], base / "pth/bags" / f"{name}.pth", _use_new_zipfile_serialization=False)
        save_file(tensors, base / "safetensors/bags" / f"{name}.safetensors")
    (base / "clam" / "h5_files").rename(base / "clam" / "bags")
    shutil.rmtree(base / "clam" / "pt_files")
    if REAL_FILES.is_dir():
        for number, path in enumerate(sorted((REAL_FILES / "clam").glob("*.h5"))[:3]):
            (base / "real_clam/bags").mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, base / "real_clam/bags" / f"d{number}.h5")
        (base / "real_metadata/bags").mkdir(parents=True)
        for name in BAGS:
            shutil.copyfile(REAL_FILES / "TCGA-3X-AAVA-01Z-00-DX1.h5", base / "real_metadata/bags" / f"{name}.h5")
    for folder in base.iterdir():
        (folder / "labels.csv").write_text("case_id,slide_id,label\np0,d0,tumor\np1,d1,normal\np2,d2,tumor\n")


def tables(base: Path) -> None:
    """Write long tables, label tables and splits of every kind."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    random = np.random.default_rng(3)
    sizes = [2, 3, 1, 4, 2, 3, 2, 2, 3, 2, 3, 2]
    bags = [f"b{number}" for number, size in enumerate(sizes) for _ in range(size)]
    numbers = [int(name[1:]) for name in bags]
    table = pa.table(
        {
            "bag_id": bags,
            "label": ["yes" if number % 2 else "no" for number in numbers],
            "patient": [f"p{number}" for number in numbers],
            "x": [float(512 * row) for row in range(len(bags))],
            "y": [0.0] * len(bags),
            "instance_label": ["0"] * len(bags),
            **{f"f{column}": random.normal(size=len(bags)) for column in range(3)},
        }
    )
    for name in ("long_csv", "long_tsv", "long_gz", "long_parquet", "label_tables", "splits"):
        (base / name).mkdir()
    csv.write_csv(table, base / "long_csv/bags.csv")
    csv.write_csv(table, base / "long_tsv/bags.tsv", csv.WriteOptions(delimiter="\t"))
    with pa.output_stream(str(base / "long_gz/bags.csv.gz"), compression="gzip") as stream:
        csv.write_csv(table, stream)
    parquet.write_table(table, base / "long_parquet/bags.parquet")

    labels = base / "label_tables"
    names = [f"00{number}" for number in range(12)]
    for name in names:
        (labels / "bags").mkdir(exist_ok=True)
        np.save(labels / "bags" / f"{name}.npy", made_files.features_of(3, WIDTH, seed=int(name)))
    classes = ["tumor" if number % 2 else "normal" for number in range(12)]
    parts = ["train"] * 6 + ["val"] * 2 + ["test"] * 4
    rows = list(zip(names, classes, parts, strict=True))
    _lines(labels / "clam.csv", "case_id,slide_id,label", [f"p{n},{n},{c}" for n, c, _ in rows])
    head = "case_id\tslide_id\tdiagnosis\tfold_0\tfold_1"
    _lines(labels / "patho.tsv", head, [f"p{n}\t{n}\t{c}\t{p}\t{p}" for n, c, p in rows])
    _lines(labels / "clini.csv", "PATIENT,MSI,AGE", [f"p{n},{c},60" for n, c, _ in rows])
    _lines(labels / "slides.csv", "PATIENT,FILENAME", [f"p{n},{n}.npy" for n in names])
    _lines(
        labels / "patches.csv", "bag_id,instance,instance_label", [f"{n},{k},0" for n in names for k in range(3)]
    )

    splits = base / "splits"
    shutil.copytree(labels / "bags", splits / "bags")
    shutil.copyfile(labels / "clam.csv", splits / "labels.csv")
    by_part = [[n for n, _, p in rows if p == part] for part in ("train", "val", "test")]
    ragged = [[part[row] if row < len(part) else "" for part in by_part] for row in range(6)]
    (splits / "folder").mkdir()
    for fold in range(2):
        lines = [",".join((str(row), *cells)) for row, cells in enumerate(ragged)]
        _lines(splits / "folder" / f"splits_{fold}.csv", ",train,val,test", lines)
    flags = [f"{n},{p == 'train'},{p == 'val'},{p == 'test'}" for n, _, p in rows]
    _lines(splits / "bool.csv", ",train,val,test", flags)
    _lines(splits / "patho.tsv", "slide_id\tfold_0", [f"{n}\t{p}" for n, _, p in rows])
    _lines(splits / "own.csv", "bag_id,patient,label,fold_0", [f"{n},p{n},{c},{p}" for n, c, p in rows])
    train, validation, test = (np.array([f"p{name}" for name in part]) for part in by_part)
    np.savez(splits / "mirel.npz", train_patients=train, val_patients=validation, test_patients=test)


def _lines(path: Path, head: str, lines: list[str]) -> None:
    path.write_text("\n".join([head, *lines]) + "\n")


def stores(base: Path) -> None:
    """Write a store with every array that one can have, and a packed one."""
    from miue.io import write_store

    random = np.random.default_rng(0)
    sizes = (4, 3, 5, 2, 6, 3)
    total = sum(sizes)
    bags = BagDataset.from_arrays(
        [random.normal(size=(size, WIDTH)).astype(np.float32) for size in sizes],
        labels=[0, 1, 1, 0, 1, 0],
        instance_labels=[[0] * size for size in sizes],
        is_ood=[False, False, False, False, False, True],
        class_names=("normal", "tumor"),
    )
    coords = Coords(512 * np.arange(2 * total).reshape(total, 2), np.arange(total) < total - 3)
    patients = tuple(f"q{number}" for number in range(6))
    patches = np.full(6, 512, np.int64)
    write_store(base / "store/bags", replace(bags, coords=coords, patients=patients, patch_sizes=patches))
    command("data", "pack", base / "trident/bags", "--labels", base / "trident/labels.csv", "--splits", "none",
            "--out", base / "packed/bags", "--quiet")  # fmt: skip
    (base / "images").mkdir()
    pictures = [random.integers(0, 255, (2, 8, 8, 3)).astype(np.uint8) for _ in range(4)]
    write_store(base / "images/bags", BagDataset.from_arrays(pictures, labels=[0, 1, 0, 1]))


def training(base: Path) -> None:
    """Write a trained, calibrated run, and runs that were interrupted."""
    bags, labels = made_files.slides(base / "train", patients=14, width=WIDTH)
    data = (bags, "--labels", labels)
    command("train", *data, "--out", base / "run/run", *SMALL, "--quiet")
    evidence = made_predictions(240, 1, seed=1).bags
    known = evidence.subset(np.flatnonzero(~evidence.is_ood.out_of_distribution))
    Predictions(known, None).save(base / "calibration/source")
    command("calibrate", base / "calibration/source/bags.csv", "--classes", "normal,tumor",
            "--max-error", 0.4, "--out", base / "run/run/calibration.json")  # fmt: skip
    _interrupted(2, "train", *data, "--out", base / "half_run/run", *SMALL, "--quiet")
    ensemble = ("--method", "deep-ensemble", "--set", "method.size=2", *SMALL, "--quiet")
    _interrupted(2, "train", *data, "--out", base / "half_ensemble/run", *ensemble)


def _interrupted(after: int, *words: object) -> None:
    """Run a command that is interrupted at the end of the epoch after the first ``after``, of all members."""
    from unittest.mock import patch

    from miue.training.checkpoints import BestWeights

    whole, calls = BestWeights.save, 0

    def save(self: Any, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            raise KeyboardInterrupt
        whole(self, *arguments)

    with patch.object(BestWeights, "save", save), patch("miue.training.checkpoints.SECONDS", 0.0):
        _stopped(*words)


def _stopped(*words: object) -> None:
    try:
        command(*words)
    except SystemExit as end:
        assert end.code == 130
        return
    raise AssertionError("it was not interrupted")


def predictions(base: Path) -> None:
    """Write predictions with coords, the same decided on, and an evaluation of a model's own."""
    made = on_a_slide(made_predictions(24, 4, seed=2))
    made = replace(made, bags=replace(made.bags, patients=np.array([f"p{n % 12}" for n in range(24)], object)))
    made.save(base / "predictions/predictions")
    (base / "calibration").mkdir(exist_ok=True)
    shutil.copyfile(base / "run/run/calibration.json", base / "calibration/calibration.json")
    command("decide", base / "predictions/predictions", "--calibration", base / "calibration/calibration.json",
            "--out", base / "decided/predictions")  # fmt: skip
    command("predict", base / "run/run", base / "store/bags", "--part", "all", "--out", base / "card/predictions",
            "--quiet")  # fmt: skip
    command("evaluate", base / "card/predictions", "--out", base / "card/evaluation.json")
    shutil.rmtree(base / "card/predictions")
    shutil.copytree(base / "run/run", base / "card/run")


def cross_validation(base: Path) -> None:
    """Write a finished cross-validation of a table."""
    command("cross-validate", base / "long_csv/bags.csv", "--out", base / "cross_validation/cv", "--folds", 2,
            *SMALL, "--distance", "none", "--quiet")  # fmt: skip


def outlines(base: Path) -> None:
    """Write slides with outlines in both formats, and a real one."""
    for name in ("s", "t"):
        made_files.trident(base / "annotations/bags", name, made_files.features_of(16, WIDTH), 512)
    corners = [(100, 100), (1500, 100), (1500, 1500), (100, 1500)]
    order = "".join(f'<Coordinate Order="{n}" X="{x}.5" Y="{y}" />' for n, (x, y) in enumerate(corners))
    drawn = f'<Annotation Name="a" Type="Polygon" PartOfGroup="_0"><Coordinates>{order}</Coordinates></Annotation>'
    xml = f'<?xml version="1.0"?><ASAP_Annotations><Annotations>{drawn}{drawn}</Annotations></ASAP_Annotations>'
    (base / "annotations/drawn").mkdir()
    (base / "annotations/drawn/s.xml").write_text(xml)
    feature = {
        "type": "Feature",
        "properties": {"objectType": "annotation", "classification": {"name": "Tumor", "color": [200, 0, 0]}},
        "geometry": {"type": "Polygon", "coordinates": [[*map(list, corners), list(corners[0])]]},
    }
    content = {"type": "FeatureCollection", "features": [feature, feature]}
    (base / "annotations/drawn/t.geojson").write_text(json.dumps(content))


def packing(base: Path) -> None:
    """Write the folder that a packing leaves which was stopped after two of its bags."""
    from unittest.mock import patch

    def check_bag(name: str, *_: Any) -> None:
        if name == "d2":
            raise KeyboardInterrupt

    (base / "packing").mkdir()
    with patch("miue.io.packing.check_bag", check_bag):
        _stopped("data", "pack", base / "npy/bags", "--out", base / "packing/store", "--quiet")


def pictures(base: Path) -> None:
    """Write small archives of known images, and a real slide where there is one."""
    import gzip

    (base / "archives").mkdir()
    digits = np.arange(600, dtype=np.uint8) % 10
    images = np.random.default_rng(0).integers(0, 255, (600, 28, 28)).astype(np.uint8)
    np.savez_compressed(base / "archives/mnist.npz", test_images=images, test_labels=digits)
    header = b"\0\0\x08\x03" + b"".join(side.to_bytes(4, "big") for side in images.shape)
    (base / "archives/images.gz").write_bytes(gzip.compress(header + images.tobytes()))
    np.savez(
        base / "archives/musk.npz",
        musk1_features=np.ones((40, 5)),
        musk1_bag_index=np.arange(40) // 2,
        musk1_bag_labels=np.arange(20) % 2,
        musk1_bag_names=np.arange(20).astype(str),
    )
    if REAL_SLIDE.is_file():
        (base / "slides").mkdir()
        shutil.copyfile(REAL_SLIDE, base / "slides" / "slide.svs")


def command(*words: object) -> None:
    """Run a command that must succeed, saying nothing."""
    import contextlib
    import io
    import sys
    from unittest.mock import patch

    from miue.cli import main

    out = io.StringIO()
    try:
        with (
            patch.object(sys, "argv", ["miue", *map(str, words)]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
        ):
            main()
    except SystemExit as end:
        if end.code == 130:
            raise
        assert not end.code, out.getvalue()
