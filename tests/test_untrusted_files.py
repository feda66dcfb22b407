"""Files that are damaged, or made to do harm: each is refused by name, before memory is taken, from any thread."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import made_files
import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import save_file

from miue.bags import BagDataset, Coords, OodFlags
from miue.cli.predictions import read_given
from miue.common.errors import DataError, StorageError
from miue.common.files import file_sha256, read_json
from miue.common.tables import read_columns, read_header, read_text_columns
from miue.common.tensors import read_nested, read_tensors
from miue.datasets.mnist import mnist_bags
from miue.datasets.musk import musk_bags
from miue.io import read_splits, read_store, write_store
from miue.io.formats import contents_of, read_array
from miue.io.layouts.long_table import read_long_table
from miue.pathology.outlines import outlines
from miue.pathology.tile_files import read_attributes, read_tiles

FEATURES = made_files.features_of(7)
COORDS = made_files.grid(7, 512).astype(np.float64)
WITH_COORDS = (".h5", ".npz", ".pt", ".safetensors")


def write(path: Path, features: np.ndarray, coords: np.ndarray) -> Path:
    """Write features and coords as the ending says."""
    if path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["features"], file["coords"] = features, coords
    elif path.suffix == ".npz":
        np.savez_compressed(path, features=features, coords=coords)
    elif path.suffix == ".pt":
        torch.save({"features": torch.from_numpy(features), "coords": torch.from_numpy(coords)}, path)
    else:
        save_file({"features": torch.from_numpy(features), "coords": torch.from_numpy(coords)}, path)
    return path


def test_pickled_arrays_are_read_by_several_threads_at_once(tmp_path: Path) -> None:
    paths = [made_files.trident_pt(tmp_path, f"s{number:03}", FEATURES) for number in range(150)]
    with ThreadPoolExecutor(4) as pool:
        assert [found.size for found in pool.map(contents_of, paths)] == [7] * 150
    assert np.ndarray not in torch.serialization.get_safe_globals()


@pytest.mark.parametrize("part", ["features", "coords"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_tensor_that_claims_more_than_its_file_holds_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, kind: torch.dtype
) -> None:
    def copied(*_: Any) -> None:
        raise AssertionError("it was read")

    huge = torch.ones(1, 1, dtype=kind).expand(1 << 40, 2)
    torch.save({"features": torch.ones(7, 6), part: huge}, tmp_path / "s.pt")
    monkeypatch.setattr(torch.Tensor, "float", copied)
    monkeypatch.setattr(np, "isfinite", copied)
    with pytest.raises(DataError, match=r"bag file '.*s\.pt': expected an array that its file can hold"):
        contents_of(tmp_path / "s.pt")


def small_store(path: Path) -> Path:
    """Write a store with all its files."""
    numbers = np.random.default_rng(0)
    bags = BagDataset.from_arrays(
        [numbers.random((size, 3), np.float32) for size in (2, 3, 1)],
        labels=[0, 1, 1],
        instance_labels=[[0, 1], [1, 0, None], [1]],
        is_ood=[False, False, True],
        class_names=("benign", "tumour"),
    )
    coords = Coords(np.arange(12).reshape(6, 2), np.arange(6) < 4)
    flags = OodFlags(np.arange(6) == 4, np.arange(6) != 3)  # other than those of the bags
    placed = replace(bags, coords=coords, instance_is_ood=flags)
    write_store(path, replace(placed, patients=("p", "q", ""), patch_sizes=bags.sizes))
    return path


ARRAYS = ("instances", "coords", "located", "instance_is_ood", "instance_ood_known", "instance_labels")


def test_instances_of_another_shape_or_longer_than_they_state_are_named(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    content = (store / "instances.npy").read_bytes()
    (store / "instances.npy").write_bytes(content[:130] + b"\1" * 8 + content[130:])
    with pytest.raises(StorageError, match=r"instances.npy': expected a whole .npy array, got .* bytes where"):
        read_store(store)
    for other in (np.ones((6, 4), np.float32), np.ones((6, 3)), np.full((6, 3), "a"), np.ones(6, np.float32)):
        np.save(store / "instances.npy", other)
        with pytest.raises(StorageError, match=r"instances.npy': expected float32 \(6, 3\), as store.json says"):
            read_store(store)


def test_a_label_of_a_store_that_is_no_class_is_named(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    text = (store / "bags.csv").read_text()
    assert "bag_1,2,3,1" in text
    (store / "bags.csv").write_text(text.replace("bag_1,2,3,1", "bag_1,2,3,2"))
    said = r"bags.csv', line 3, column 'label': expected a class index from 0 to 1, .*, got '2'"
    with pytest.raises(DataError, match=said):
        read_store(store)


class Enormous:
    def __reduce__(self) -> tuple[Any, ...]:
        return np.ndarray, ((1 << 58,),)


def test_an_array_for_which_there_is_no_memory_is_named(tmp_path: Path) -> None:
    torch.save({"features": Enormous()}, tmp_path / "s.pt")
    with pytest.raises(DataError, match=r"bag file '.*s\.pt': .*allocate"):
        contents_of(tmp_path / "s.pt")


def meta(path: Path) -> None:
    torch.save(torch.ones(3, 2, device="meta"), path)


def test_safetensors_that_are_no_plain_numbers_are_named(tmp_path: Path) -> None:
    save_file({"features": torch.ones(3, 2).to(torch.float8_e4m3fn)}, tmp_path / "s.safetensors")
    with pytest.raises(DataError, match=r"bag file '.*s\.safe.*': expected a dense tensor of plain numbers"):
        contents_of(tmp_path / "s.safetensors")


@pytest.mark.parametrize("suffix", WITH_COORDS)
@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e300])
def test_coords_that_are_no_pixels_are_refused_by_every_reader(tmp_path: Path, suffix: str, value: float) -> None:
    coords = COORDS.copy()
    coords[3, 1] = value
    path = write(tmp_path / f"s{suffix}", FEATURES, coords)
    with pytest.raises(DataError, match=r"bag file '.*s\..*': expected finite coords"):
        contents_of(path)


@pytest.mark.parametrize("suffix", WITH_COORDS)
def test_coords_on_a_slide_are_taken_by_every_reader(tmp_path: Path, suffix: str) -> None:
    found = contents_of(write(tmp_path / f"s{suffix}", FEATURES, COORDS + (1 << 40)))
    assert found.coords is not None and np.array_equal(found.coords, COORDS.astype(np.int64) + (1 << 40))


def inflated(path: Path, part: str) -> Path:
    """Write a file of torch in which one part is compressed, and grows 300 times as it is read."""
    torch.save(torch.from_numpy(FEATURES), path)
    with zipfile.ZipFile(path) as whole:
        parts = {name: whole.read(name) for name in whole.namelist()}
    root = next(iter(parts)).split("/")[0]
    parts[f"{root}/{part}"] = b"\0" * 3_000_000
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content, zipfile.ZIP_DEFLATED if name.endswith(part) else zipfile.ZIP_STORED)
    return path


@pytest.mark.parametrize("part", ["byteorder", ".data/serialization_id", "data/0", "anything"])
def test_a_file_of_torch_that_inflates_is_refused_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def loaded(*_: Any, **__: Any) -> None:
        raise AssertionError("it was loaded")

    path = inflated(tmp_path / "s.pt", part)
    monkeypatch.setattr(torch, "load", loaded)
    with pytest.raises(DataError, match=r"s\.pt': expected parts stored as they are, .*, got 3,\d+,\d+ bytes of"):
        contents_of(path)


def test_parts_of_a_file_of_torch_that_share_their_bytes_are_refused_before_it_is_loaded(tmp_path: Path) -> None:
    """Every entry of the archive's directory names the same bytes."""
    path = tmp_path / "s.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("s/data/0", b"\0" * 1_000_000)
        first = archive.infolist()[0]
        for number in range(1, 100):
            twin = copy(first)
            twin.filename = twin.orig_filename = f"s/data/{number}"
            archive.filelist.append(twin)
            archive.NameToInfo[twin.filename] = twin
    with pytest.raises(DataError, match=r"expected parts stored as they are, .*, got 100,000,000 bytes"):
        contents_of(path)


@pytest.mark.long
def test_a_table_that_claims_more_rows_than_it_can_hold_is_refused_unread(tmp_path: Path) -> None:
    rows = 12_000_000
    table = pa.table({"bag_id": pa.repeat("a", rows), "f": pa.repeat(np.float32(0), rows)})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(
        DataError, match=r"t\.parquet': expected rows that the file can hold, got 12,000,000 rows of 2"
    ):
        read_long_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    "read",
    [read_long_table, read_text_columns, lambda path: read_columns(path, ())],
    ids=["bags", "texts", "columns"],
)
def test_bytes_of_a_parquet_table_that_are_no_text_are_named(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    """They were a traceback of pyarrow or of a codec."""
    ends = pa.array([0, 3, 4], pa.int32()).buffers()[1]
    ids = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer("Süd1".encode("latin-1"))])
    parquet.write_table(pa.table({"bag_id": ids, "label": ["a", "b"], "f": [1.0, 2.0]}), tmp_path / "t.parquet")
    with pytest.raises(StorageError, match=r"t\.parquet'.* column 'bag_id': expected text in UTF-8"):
        read(tmp_path / "t.parquet")


def test_an_archive_with_a_member_that_is_no_array_or_of_another_length_is_named(tmp_path: Path) -> None:
    images, labels = np.zeros((600, 28, 28), np.uint8), np.arange(600, dtype=np.int64) % 10
    path = tmp_path / "mnist.npz"
    np.savez(path, test_images=images, test_labels=labels)
    with zipfile.ZipFile(path) as archive:
        whole = {name: archive.read(name) for name in archive.namelist()}
    longer = whole["test_images.npy"] + b"0"
    claims = whole["test_images.npy"].replace(b"(600, 28, 28)", b"(900, 28, 28)", 1)
    for wrong, message in ((b"", "magic"), (longer, "of 470,529 bytes"), (claims, "makes 705,728")):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in {**whole, "test_images.npy": wrong}.items():
                archive.writestr(name, content)
        with pytest.raises(StorageError, match=rf"mnist\.npz': expected a whole, readable file, got .*{message}"):
            mnist_bags(tmp_path, splits=["test"], sizes={"test": 4})


def test_musk_arrays_of_other_shapes_are_named(tmp_path: Path) -> None:
    parts = {"bag_index": np.zeros(4, int), "bag_labels": np.ones(1, int), "bag_names": np.array(["a"])}
    for wrong in ({"bag_names": np.array("a")}, {"features": np.ones(4)}):
        arrays: dict[str, Any] = {"features": np.ones((4, 3)), **parts, **wrong}
        np.savez(tmp_path / "musk.npz", **{f"musk1_{name}": array for name, array in arrays.items()})
        with pytest.raises(StorageError, match=r"musk\.npz': expected an archive with .*, got arrays of shapes"):
            musk_bags(tmp_path, 1)


def linked(path: Path, how: str) -> None:
    """Write features beside coords that lie in another file."""
    outside = path.parent / "outside.h5"
    with h5py.File(outside, "w") as file:
        file["coords"] = np.array([[0, 0], [256, 0]])
        file["coords"].attrs.update(patch_size=256, patch_size_level0=256, downsample=1.0)
    with h5py.File(path, "w") as file:
        file["features"] = FEATURES[:2]
        if how == "link":
            file["coords"] = h5py.ExternalLink(str(outside), "/coords")
            return
        if how == "external":
            coords = file.create_dataset("coords", (2, 2), "i8", external=[(str(outside), 0, 32)])
        else:
            layout = h5py.VirtualLayout((2, 2), np.int64)
            layout[:] = h5py.VirtualSource(str(outside), "coords", (2, 2))
            coords = file.create_virtual_dataset("coords", layout)
        coords.attrs.update(patch_size=256, patch_size_level0=256, downsample=1.0)


@pytest.mark.parametrize("how", ["link", "external", "virtual"])
def test_coords_that_lie_in_other_files_are_refused_wherever_they_are_read(tmp_path: Path, how: str) -> None:
    linked(path := tmp_path / "s.h5", how)
    for read in (contents_of, read_tiles, read_attributes):
        with pytest.raises(DataError, match=r"s\.h5': expected 'coords' in the file itself"):
            read(path)
    patches = tmp_path / "clam" / "patches"
    patches.mkdir(parents=True)
    linked(patches / "s.h5", how)
    with pytest.raises(DataError, match=r"patches/s\.h5': expected 'coords' in the file itself"):
        contents_of(made_files.clam(tmp_path / "clam", "s", FEATURES))


@pytest.mark.parametrize(
    "read",
    [
        read_header,
        read_text_columns,
        read_splits,
        lambda path: read_splits(path.rename(path.with_suffix(".npz"))),
        lambda path: read_json(path, what="calibration"),
        read_nested,
        read_given,
        read_tensors,
        file_sha256,
        lambda path: read_array(path, "make it again"),
        lambda path: contents_of(path.rename(path.with_suffix(".npy"))),
        lambda path: contents_of(path.rename(path.with_suffix(".h5"))),
        lambda path: list(outlines(path)),
        lambda path: list(outlines(path.rename(path.with_suffix(".xml")))),
    ],
)
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(
    read: Callable[[Path], Any], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)  # else a reader that opens it would wait for ever
    os.write(writer, b"bag_id,label\na,0\n")
    try:
        with pytest.raises(StorageError, match="expected a file, got a pipe, a socket or a device"):
            read(tmp_path / "pipe")
    finally:
        os.close(writer)
