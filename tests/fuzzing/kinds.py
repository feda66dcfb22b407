"""The kinds of things that are damaged: where each lies, which of its files, in which ways, and who reads it."""

from __future__ import annotations

from dataclasses import dataclass

from fuzzing import (
    array_damages,
    hdf5_damages,
    readings,
    readings_of_others,
    readings_of_pictures,
    readings_of_results,
    readings_of_runs,
    text_damages,
)
from fuzzing.byte_damages import BYTES, Damage
from fuzzing.readings import Reading
from fuzzing.whole_things import REAL_FILES, REAL_SLIDE


@dataclass(frozen=True)
class Kind:
    """One kind.

    Attributes:
        name: of it.
        root: folder of the whole thing.
        targets: patterns of files within it that are damaged.
        readings: how it is read.
        weight: share of the cases.
        damages: of all targets; by their endings if empty.
    """

    name: str
    root: str
    targets: tuple[str, ...]
    readings: tuple[Reading, ...]
    weight: int = 4
    damages: tuple[Damage, ...] = ()


BAGS = (
    Reading(readings.bag_file, readings.check_bag_file),
    Reading(readings.inspect_bags, readings.check_inspect_bags, 3),
    Reading(readings.pack_bags, readings.check_pack_bags, 5),
    Reading(readings.predict_bags, readings.check_predict_bags, 12),
    Reading(readings.train_bags, readings.check_predict_bags, 12),
)
PATCHES = BAGS[1:3]
OF_OTHER_WIDTH = tuple(one for one in BAGS if one.read is not readings.predict_bags)  # than the model takes
REAL = ("real_clam", "real_metadata") if REAL_FILES.is_dir() else ()
FORMATS = ("clam", "trident", "stamp", "trident_pt", "pt", "pth", "npy", "crops", "npz", "npz_compressed",
           "safetensors")  # fmt: skip
OF_PREDICTIONS = (*readings_of_results.PREDICTIONS, *readings_of_others.MORE_OF_PREDICTIONS)
OTHERS = {
    "spatial_data": ("bags/d1.zarr/**/*",),
    "slideflow": ("bags/d1.*", "bags/bags_config.json"),
    "slide2vec": ("bags/d1.*", "tiles/d1.*"),
    "torchmil": ("patches/*/d1.npy",),
    "image_folders": ("bags/d1/*",),
    "table_folder": ("bags/d1.csv",),
}
LONG = (Reading(readings.long_table, readings.check_long_table),)

KINDS: tuple[Kind, ...] = (
    *(Kind(name, name, ("bags/d1.*",), BAGS, 6) for name in FORMATS),
    *(Kind(name, name, ("bags/d1.*",), OF_OTHER_WIDTH, 3) for name in REAL),
    Kind("clam_patches", "clam", ("patches/d1.h5",), PATCHES, 2),
    *(Kind(name, name, ("bags.*",), LONG, 5) for name in ("long_csv", "long_tsv", "long_gz", "long_parquet")),
    Kind(
        "label_tables",
        "label_tables",
        ("*.csv", "*.tsv"),
        (Reading(readings.label_table, readings.check_label_table),),
        8,
    ),
    Kind(
        "splits",
        "splits",
        ("folder/splits_1.csv", "bool.csv", "patho.tsv", "own.csv", "mirel.npz"),
        (Reading(readings.splits, readings.check_splits),),
        8,
    ),
    Kind("store", "store", ("bags/*",), readings_of_results.STORE, 12),
    Kind("packed", "packed", ("bags/*",), readings_of_results.STORE, 5),
    Kind("images", "images", ("bags/*",), readings_of_results.STORE, 3),
    Kind("packing", "packing", (".store.packing/*",), readings_of_results.PACKING, 5),
    Kind("run", "run", ("run/*.*",), readings_of_runs.MODEL, 12),
    Kind("card", "card", ("*.json", "run/config.json", "run/calibration.json"), readings_of_runs.CARD, 5),
    Kind("half_run", "half_run", ("run/*.*", "run/checkpoints/*"), readings_of_runs.RESUME, 8),
    Kind("half_ensemble", "half_ensemble", ("run/*.*", "run/members/*/*", "run/members/*/checkpoints/*"),
         readings_of_runs.RESUME, 8),
    Kind("predictions", "predictions", ("predictions/*", "predictions/instances/*"), OF_PREDICTIONS, 12),
    Kind("decided", "decided", ("predictions/*",), OF_PREDICTIONS, 8),
    Kind("calibration", "calibration", ("calibration.json",), readings_of_results.CALIBRATION, 8),
    Kind("calibration_source", "calibration", ("source/bags.csv",), readings_of_results.CALIBRATION_SOURCE, 4),
    Kind(
        "cross_validation",
        "cross_validation",
        ("cv/*.*", "cv/fold_0/seed_42/metrics.json", "cv/fold_0/seed_42/run/*.*"),
        readings_of_results.CROSS_VALIDATION,
        8,
    ),
    Kind("tiles", "annotations", ("bags/s.h5",), readings_of_results.TILES, 4),
    Kind("archives", "archives", ("*.*",), readings_of_pictures.ARCHIVES, 6),
    *((Kind("slides", "slides", ("slide.svs",), readings_of_pictures.SLIDES, 2),) if REAL_SLIDE.is_file() else ()),
    *(Kind(name, name, of_one, readings_of_others.FOLDERS, 6) for name, of_one in OTHERS.items()),
    Kind("monitor", "monitor", ("monitor/*.csv", "monitor/*.json", "second/*", "calibration.json"),
         readings_of_others.MONITOR, 8),
    Kind("shards", "shards", ("shards/1/*", "shards/1/instances/*"), readings_of_others.SHARDS, 8),
    Kind("tables_of_others", "tables_of_others", ("*.csv",), readings_of_others.TABLES, 8),
    Kind("tiled", "tiled", ("tiles/*.h5", "shifted/*.h5", "slide.tiff"), readings_of_others.AGAIN, 5),
    Kind("annotations", "annotations", ("drawn/*",), readings_of_results.ANNOTATIONS, 8),
)  # fmt: skip


def damages_of(name: str, content: bytes) -> tuple[Damage, ...]:
    """Return the ways in which a file of that name can be damaged: half of them of its bytes."""
    own: tuple[Damage, ...] = ()
    lower = name.lower()
    if lower.endswith((".json", ".geojson")):
        own = text_damages.JSON
    elif lower.endswith((".csv", ".tsv")):
        own = text_damages.TABLE
    elif lower.endswith(".csv.gz"):
        own = (*map(text_damages.gzipped, text_damages.TABLE), text_damages.gzip_bomb)
    elif lower.endswith(".xml"):
        own = text_damages.XML
    elif lower.endswith(".npy"):
        own = array_damages.NPY
    elif lower.endswith(".npz"):
        own = array_damages.NPZ
    elif lower.endswith((".pt", ".pth")):
        own = array_damages.ARCHIVE if content[:2] == b"PK" else ()
    elif lower.endswith(".safetensors"):
        own = array_damages.SAFETENSORS
    elif lower.endswith(".parquet"):
        own = array_damages.PARQUET
    elif lower.endswith(".h5"):
        own = hdf5_damages.HDF5
    return (*BYTES, *own * max(1, round(len(BYTES) / max(1, len(own)))))
