"""Files that are damaged, or made to do harm: each is refused by name, before memory is taken, from any thread."""

from __future__ import annotations

import gzip
import os
import tracemalloc
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
from fast import slow_but
from pyarrow import parquet
from safetensors.torch import save_file

from miue.bags import BagDataset, Coords, OodFlags
from miue.cli.predictions import read_given
from miue.common.errors import DataError, MiueError, StorageError
from miue.common.files import file_sha256, read_json
from miue.common.nested import read_nested
from miue.common.tables import read_columns, read_header, read_text_columns
from miue.common.weights import read_tensors
from miue.datasets.images import has_split, read_idx
from miue.datasets.mnist import mnist_bags
from miue.datasets.musk import musk_bags
from miue.io import read_splits, read_store, write_store
from miue.io.formats import child, contents_of, read_array, read_rows
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


def named_when_damaged(path: Path, read: Callable[[Path], object], named: Path | None = None) -> float:
    """Damage a file at every place in turn, read it, and return how often it was refused, always by name."""
    name = str(named or path)
    whole = path.read_bytes()
    refused = 0
    places = range(0, len(whole), 1 + len(whole) // 150)
    for place in places:
        for damage in (bytes([whole[place] ^ 1]), b"\xff" * 12):
            path.write_bytes(whole[:place] + damage + whole[place + len(damage) :])
            try:
                read(path)
            except MiueError as error:
                assert name in str(error)
                refused += 1
    return refused / (2 * len(places))


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
STORED = ("store.json", "bags.csv", "checksums.csv", *(f"{name}.npy" for name in ARRAYS))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::UserWarning")  # of NumPy, of damaged headers
@pytest.mark.parametrize("name", [*STORED, "instance_labelled.npy"])
def test_damage_to_a_file_of_a_store_is_named(name: str, tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    assert named_when_damaged(store / name, lambda path: read_store(path.parent), named=store) > 0.3


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


def float8(path: Path) -> None:
    torch.save(torch.ones(3, 2).to(torch.float8_e4m3fn), path)


def quantised(path: Path) -> None:
    torch.save(torch._empty_affine_quantized([3, 2], dtype=torch.qint8), path)


def sparse(path: Path) -> None:
    torch.save(torch.eye(3).to_sparse(), path)


def meta(path: Path) -> None:
    torch.save(torch.ones(3, 2, device="meta"), path)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, of kinds that it will drop
@pytest.mark.parametrize("save", [float8, quantised, sparse, meta])
def test_tensors_that_are_no_plain_numbers_are_named(tmp_path: Path, save: Callable[[Path], None]) -> None:
    save(tmp_path / "s.pt")
    with pytest.raises(DataError, match=r"bag file '.*s\.pt': expected a dense tensor of plain numbers"):
        contents_of(tmp_path / "s.pt")


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


@pytest.mark.parametrize("suffix", [".h5", ".npz"])
def test_coords_of_text_are_named(tmp_path: Path, suffix: str) -> None:
    kind = "S1" if suffix == ".h5" else "U1"
    path = write(tmp_path / f"s{suffix}", FEATURES, np.full((7, 2), "a", kind))
    with pytest.raises(
        DataError, match=r"expected coords \(n, 2\) that are numbers, got .[SU]1 of shape \(7, 2\)"
    ):
        contents_of(path)


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


def test_a_message_of_a_library_is_cut(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"a" * 10_000: FEATURES, "b" * 10_000: FEATURES}
    np.savez(tmp_path / "s.npz", **arrays)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["a" * 10_000], file["b" * 10_000] = FEATURES, FEATURES
    torch.save({"a" * 10_000: torch.ones(2), "b" * 10_000: torch.ones(2)}, tmp_path / "s.pt")
    for suffix in (".npz", ".h5", ".pt"):
        with pytest.raises(DataError) as caught:
            contents_of(tmp_path / f"s{suffix}")
        assert len(caught.value.got) == 301 and caught.value.got.startswith("2 names: aaa")


@pytest.mark.long
@pytest.mark.parametrize("tool", slow_but(["clam", "trident", "stamp"], ["trident"]))
def test_a_file_of_hdf5_damaged_anywhere_is_read_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    monkeypatch.setattr(child, "SECONDS", 0.5)

    def read(path: Path) -> None:
        read_rows(path, 0, contents_of(path).size)

    assert named_when_damaged(getattr(made_files, tool)(tmp_path, "s", made_files.features_of(60)), read) > 0


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


def test_a_text_of_a_file_of_torch_that_claims_more_than_its_file_takes_no_memory(tmp_path: Path) -> None:
    """4 GB were asked for; where there were none, the command ended for want of memory, also with --skip-bad."""
    path = tmp_path / "s.pth"
    torch.save(torch.from_numpy(FEATURES), path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    text = content.index(b"protocol_version")
    path.write_bytes(content[: text - 4] + (2**32 - 2).to_bytes(4, "little") + content[text:])
    tracemalloc.start()
    with pytest.raises(DataError, match="a whole file of torch"):
        contents_of(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 64 << 20


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".npz", ".pt", ".pth", ".safetensors", ".npy"])
def test_a_bag_file_damaged_anywhere_is_read_or_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"s{suffix}"
    features = made_files.features_of(60)
    if suffix == ".npy":
        np.save(path, features)
    elif suffix == ".pth":
        torch.save(torch.from_numpy(features), path, _use_new_zipfile_serialization=False)
    else:
        write(path, features, made_files.grid(60, 512))
    assert named_when_damaged(path, contents_of) > 0


def test_an_encrypted_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    np.savez(path, features=FEATURES)
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.find(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"bag file '.*s\.npz': .*encrypted"):
        contents_of(path)


def test_a_damaged_archive_of_foreign_images_is_named(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "mnist.npz",
        test_images=np.zeros((600, 28, 28), np.uint8),
        test_labels=np.arange(600, dtype=np.int64) % 10,
    )
    (tmp_path / "fashion_mnist.npz").write_bytes(b"PK\x03\x04 damaged")
    with pytest.raises(StorageError, match=r"fashion_mnist\.npz.*whole, readable file"):
        has_split(tmp_path, "fmnist", "train")
    with pytest.raises(StorageError, match=r"fashion_mnist\.npz.*whole, readable file"):
        mnist_bags(tmp_path, splits=["test"], ood=["fmnist"], sizes={"test": 4})


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


@pytest.mark.long
def test_other_files_damaged_anywhere_are_read_or_named(tmp_path: Path) -> None:
    header = b"\0\0\x08\x01" + (25600).to_bytes(4, "big")
    (tmp_path / "images.gz").write_bytes(gzip.compress(header + bytes(range(256)) * 100))
    assert named_when_damaged(tmp_path / "images.gz", read_idx) > 0.5
    random = np.random.default_rng(0)
    np.savez_compressed(tmp_path / "splits.npz", train_patients=random.integers(0, 1000, 300).astype(str))
    assert named_when_damaged(tmp_path / "splits.npz", read_splits) > 0.5
    np.savez_compressed(
        tmp_path / "musk.npz",
        musk1_features=random.normal(size=(40, 5)),
        musk1_bag_index=np.arange(40) // 2,
        musk1_bag_labels=np.arange(20) % 2,
        musk1_bag_names=np.arange(20).astype(str),
    )
    assert named_when_damaged(tmp_path / "musk.npz", lambda path: musk_bags(path.parent, 1)) > 0.5


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


def test_a_file_of_coords_alone_has_no_features_and_that_is_said(tmp_path: Path) -> None:
    path = made_files.clam_patches(tmp_path, "s", 7, 256, 1.0)
    assert len(read_tiles(path).coords) == 7
    with pytest.raises(StorageError, match="a file of features as this command writes it"):
        read_attributes(path)


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
        with pytest.raises(
            StorageError, match="expected (a file, got a pipe, a socket or a device|predictions: .*got a file)"
        ):
            read(tmp_path / "pipe")
    finally:
        os.close(writer)
