"""Files of other tools: what is found in them, and what is refused."""

from __future__ import annotations

import errno
import os
import pickle
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import h5py
import made_files
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from miue.common.errors import DataError, StorageError
from miue.io import FileInstances, describe_bag_files, load_bags
from miue.io.formats import READERS, contents_of, read_rows
from miue.io.formats.numpy_files import Member
from miue.io.formats.open import contents_here
from miue.io.layouts.files import FilesLayout, list_bag_files
from miue.settings import LoadSettings

FEATURES = made_files.features_of(7)


def test_clam_features_have_coords_and_no_patch_size_of_their_own(tmp_path: Path) -> None:
    path = made_files.clam(tmp_path, "slide_1", FEATURES)
    found = contents_of(path)
    assert (found.format, found.id, found.size, found.instance_shape) == ("CLAM", "slide_1", 7, (6,))
    assert found.dtype == np.float32 and found.patch_size is None and found.extractor == ""
    assert found.coords is not None and np.array_equal(found.coords, made_files.grid(7, 512))
    assert np.array_equal(read_rows(path, 0, 7), FEATURES)
    assert np.array_equal(read_rows(path, 2, 5), FEATURES[2:5])


def test_the_side_of_a_clam_patch_is_that_of_level_0(tmp_path: Path) -> None:
    path = made_files.clam(tmp_path, "slide_1", FEATURES)
    assert contents_of(path).patch_size is None
    made_files.clam_patches(tmp_path, "slide_1", 7, 256, 4.0)
    assert contents_of(path).patch_size == 1024


def test_the_grid_of_trident_is_that_of_level_0(tmp_path: Path) -> None:
    found = contents_of(made_files.trident(tmp_path, "s", FEATURES))
    assert (found.format, found.patch_size, found.extractor) == ("TRIDENT", 1024, "uni_v1")
    unknown = contents_of(made_files.trident(tmp_path, "t", FEATURES, patch_size_level0="None"))
    assert unknown.format == "TRIDENT" and unknown.patch_size is None


def test_coords_of_stamp_become_pixels_where_their_width_is_told(tmp_path: Path) -> None:
    path = made_files.stamp(tmp_path, "s", FEATURES)
    found = contents_of(path)
    assert found.format == "STAMP" and found.dtype == np.float16 and found.extractor == "ctranspath"
    assert found.coords is None and "in µm" in found.notes[0]
    told = contents_of(path, microns_per_pixel=0.25)
    assert told.patch_size == 1024
    assert told.coords is not None and np.array_equal(told.coords, made_files.grid(7, 1024))
    uneven = contents_of(path, microns_per_pixel=0.3)  # 853.3 pixels, so that two are 1706.7
    assert uneven.patch_size == 853
    assert uneven.coords is not None and np.array_equal(uneven.coords, np.rint(made_files.grid(7, 256) / 0.3))
    assert 1707 in uneven.coords
    assert np.array_equal(read_rows(path, 1, 3), FEATURES.astype(np.float16)[1:3])


@pytest.mark.parametrize(("level", "side"), [(0, 256), (1, None)])
def test_a_side_of_clam_without_a_downsample_is_known_at_level_0_alone(
    level: int, side: int | None, tmp_path: Path
) -> None:
    path = made_files.clam(tmp_path, "a", FEATURES)
    with h5py.File(made_files.clam_patches(tmp_path, "a", len(FEATURES), 256, 4.0), "a") as file:
        del file["coords"].attrs["downsample"]
        file["coords"].attrs["patch_level"] = level
    assert contents_of(path).patch_size == side


@pytest.mark.parametrize("shape", [(5,), (1, 5)])
def test_a_vector_of_stamp_for_a_whole_slide_is_a_bag_of_one(shape: tuple[int, ...], tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["feats"] = np.arange(5, dtype=np.float32).reshape(shape)
        file.attrs.update(feat_type="slide", extractor="titan", stamp_version="2.4.0")
    found = contents_of(tmp_path / "s.h5")
    assert (found.format, found.size, found.instance_shape, found.extractor) == ("STAMP", 1, (5,), "titan")


@pytest.mark.parametrize("ending", [".h5", ".pt", ".npy", ".npz", ".safetensors"])
def test_one_vector_is_a_bag_of_one_without_the_positions_of_its_patches(ending: str, tmp_path: Path) -> None:
    vector, coords, path = FEATURES[0], np.zeros((7, 2), np.int64), tmp_path / "titan" / f"s{ending}"
    path.parent.mkdir()
    if ending == ".h5":
        with h5py.File(path, "w") as file:
            file["features"], file["coords"] = vector, coords
    elif ending == ".pt":
        torch.save({"features": torch.from_numpy(vector), "coords": torch.from_numpy(coords)}, path)
    elif ending == ".safetensors":
        save_file({"features": vector}, path)
    else:
        np.savez(path, features=vector, coords=coords) if ending == ".npz" else np.save(path, vector)
    made_files.clam_patches(tmp_path, "s", 7, 256, 4.0)  # of the patches that the vector is of
    found = contents_of(path)
    assert (found.size, found.instance_shape, found.coords) == (1, FEATURES.shape[1:], None)
    assert found.notes == ("one vector, as the embedding of a whole slide: a bag of one instance",)
    assert np.array_equal(read_rows(path, 0, 1), FEATURES[:1])


def test_coords_of_stamp_in_an_unknown_unit_are_left_out(tmp_path: Path) -> None:
    path = made_files.stamp(tmp_path, "s", FEATURES)
    with h5py.File(path, "a") as file:
        file.attrs["unit"] = "furlong"
    found = contents_of(path, microns_per_pixel=0.25)
    assert found.coords is None
    assert "'furlong'" in found.notes[0]


def test_a_pickled_numpy_array_is_read(tmp_path: Path) -> None:
    path = made_files.trident_pt(tmp_path, "s", FEATURES)
    assert contents_of(path).size == 7
    assert np.array_equal(read_rows(path, 0, 7), FEATURES)


def test_a_pickle_of_numpy_1_is_read(tmp_path: Path) -> None:
    torch.save(FEATURES, tmp_path / "new.pt")
    with zipfile.ZipFile(tmp_path / "new.pt") as new, zipfile.ZipFile(tmp_path / "old.pt", "w") as old:
        for name in new.namelist():
            old.writestr(name, new.read(name).replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert np.array_equal(read_rows(tmp_path / "old.pt", 0, 7), FEATURES)


@pytest.mark.parametrize("kind", ["tensor", "half", "bfloat16", "legacy", "dictionary", "leading one", "double"])
def test_tensors_are_read(tmp_path: Path, kind: str) -> None:
    tensor = torch.from_numpy(FEATURES)
    made: dict[str, Any] = {
        "tensor": tensor,
        "half": tensor.half(),
        "bfloat16": tensor.bfloat16(),
        "legacy": tensor,
        "dictionary": {"feats": tensor, "coords": torch.zeros(7, 2, dtype=torch.int64), "name": "s"},
        "leading one": tensor[None],
        "double": tensor.double(),
    }
    path = tmp_path / "s.pt"
    torch.save(made[kind], path, _use_new_zipfile_serialization=kind != "legacy")
    rows = read_rows(path, 0, 7)
    assert rows.dtype == (np.float16 if kind == "half" else np.float32)
    expected = {"half": tensor.half(), "bfloat16": tensor.bfloat16().float()}.get(kind, tensor)
    assert np.array_equal(rows, expected.numpy())
    assert contents_of(path).dtype == rows.dtype
    assert (contents_of(path).coords is not None) == (kind == "dictionary")


class RunsCode:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["MADE_BY_PICKLE"],)


@pytest.mark.parametrize("how", ["torch", "plain pickle", "in a dictionary", "object array"])
def test_a_pickle_that_would_run_code_is_refused_and_runs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    trace, path = tmp_path / "trace", tmp_path / "s.pt"
    monkeypatch.setenv("MADE_BY_PICKLE", str(trace))
    if how == "plain pickle":
        path.write_bytes(pickle.dumps(RunsCode(), protocol=2))
    else:
        made = {"torch": RunsCode(), "in a dictionary": {"features": torch.ones(2, 2), "x": RunsCode()}}
        torch.save(made.get(how, np.array([RunsCode()], object)), path)
    with pytest.raises(DataError, match="would run code or build other objects; nothing of it was loaded"):
        contents_of(path)
    assert not trace.exists()
    # the same pickle does run where pickles are trusted: the test could fail
    content = torch.load(path, weights_only=False) if how != "plain pickle" else pickle.loads(path.read_bytes())
    assert trace.exists(), content


@pytest.mark.parametrize("ending", ["npy", "npz"])
@pytest.mark.parametrize("content", [b"overwritten " * 9, pickle.dumps(FEATURES)], ids=["damaged", "pickle"])
def test_a_damaged_file_of_numpy_is_refused_without_its_advice_to_load_pickles(
    tmp_path: Path, ending: str, content: bytes
) -> None:
    path = tmp_path / f"s.{ending}"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a file that begins with b'.*', as none that NumPy writes") as caught:
        contents_of(path)
    assert "allow_pickle" not in str(caught.value)


@pytest.mark.parametrize("kind", ["npy", "npz", "npz of one", "safetensors", "leading one", "int"])
def test_arrays_are_read(tmp_path: Path, kind: str) -> None:
    coords = made_files.grid(7, 512)
    if kind == "npz":
        np.savez_compressed(path := tmp_path / "s.npz", feats=FEATURES, coords=coords)
    elif kind == "npz of one":
        np.savez(path := tmp_path / "s.npz", anything=FEATURES)
    elif kind == "safetensors":
        save_file({"features": FEATURES, "coords": coords}, path := tmp_path / "s.safetensors")
    else:
        array = {"leading one": FEATURES[None], "int": FEATURES.astype(np.int64)}.get(kind, FEATURES)
        np.save(path := tmp_path / "s.npy", array)
    expected = FEATURES.astype(np.int64).astype(np.float32) if kind == "int" else FEATURES
    assert np.array_equal(read_rows(path, 1, 4), expected[1:4])
    found = contents_of(path)
    assert found.size == 7 and found.instance_shape == (6,) and found.dtype == np.float32
    if kind in ("npz", "safetensors"):
        assert found.coords is not None and np.array_equal(found.coords, coords)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_crops_of_a_video_are_averaged_and_that_is_said(tmp_path: Path, dtype: type[np.floating]) -> None:
    clips = np.random.default_rng(0).normal(size=(5, 10, 6)).astype(dtype)
    np.save(tmp_path / "v.npy", clips)
    found = contents_of(tmp_path / "v.npy")
    assert (found.size, found.instance_shape) == (5, (6,))
    assert found.notes == ("the 10 crops of each clip, or tiles of each region, are averaged",)
    mean = clips.astype(np.float32).mean(1)
    np.testing.assert_allclose(load_bags(tmp_path).bags.instances[:], mean, rtol=1e-6)


def test_a_file_with_many_videos_is_refused_with_the_first_names_and_what_to_do(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "all.h5", "w") as file:
        for number in range(97):
            file[f"v{number:02d}"] = np.ones((2, 3), np.float32)
    with pytest.raises(DataError, match=r"got 97 names: v00, v01, v02, …; .*a file for each bag"):
        load_bags(tmp_path)
    assert (
        "a file for each bag" in describe_bag_files(FilesLayout(tmp_path, LoadSettings()))["bag"][0]["problems"][0]
    )


def test_a_file_that_is_still_written_is_named_and_one_without_locks_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    path = made_files.clam(tmp_path, "s", FEATURES)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as HDF5 locks what it writes
        with pytest.raises(DataError, match=r"s\.h5': expected a file that no process writes"):
            contents_of(path)
        for error in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(error, "no locks")))
            assert contents_here(path).size == len(FEATURES)


def test_images_keep_their_bytes(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3)).astype(np.uint8)
    np.save(tmp_path / "color.npy", images)
    np.save(tmp_path / "grey.npy", images[..., 0])
    assert contents_of(tmp_path / "color.npy").instance_shape == (8, 8, 3)
    assert contents_of(tmp_path / "grey.npy").instance_shape == (8, 8, 1)
    assert np.array_equal(read_rows(tmp_path / "grey.npy", 0, 5), images[..., :1])
    np.save(tmp_path / "one.npy", images[:1, :, :, 0])  # no axis of one before features
    assert contents_of(tmp_path / "one.npy").instance_shape == (8, 8, 1)
    assert np.array_equal(read_rows(tmp_path / "one.npy", 0, 1), images[:1, ..., :1])


@pytest.mark.parametrize("half", ["a", "b"])
def test_files_of_half_and_single_precision_become_single(half: str, tmp_path: Path) -> None:
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.full((2, 3), 1.0001, np.float16 if name == half else np.float32))
    bags = load_bags(tmp_path).bags
    assert bags.instances.dtype == np.float32
    assert bags.batch(["ba".index(half)]).instances[0, 0].item() == np.float32(1.0001)


@pytest.mark.parametrize("shape", [(0, 6), (0,)])
def test_a_slide_without_tissue_is_a_valid_file(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "s.h5"
    with h5py.File(path, "w") as file:
        file["features"], file["coords"] = np.zeros(shape, np.float32), np.zeros((0, 2), np.int64)
    assert contents_of(path).size == 0
    assert len(read_rows(path, 0, 0)) == 0


def broken_h5(path: Path, kind: str) -> str:
    """Write a file that cannot be used; return what the message must say."""
    if kind == "truncated":
        made_files.trident(path.parent, path.stem, made_files.features_of(500))
        path.write_bytes(path.read_bytes()[:-2000])
        return "expected a whole HDF5 file, got .*truncated"
    if kind == "not HDF5":
        path.write_bytes(b"not at all")
        return "expected a whole HDF5 file"
    outside = path.parent / "outside.bin"
    outside.write_bytes(b"\0" * 4 * 12)
    with h5py.File(path, "w") as file:
        if kind == "other names":
            file["data"], file["more"] = FEATURES, FEATURES
            return "named 'features' or 'feats', got 2 names: data, more"
        if kind == "lengths":
            file["features"], file["coords"] = FEATURES, made_files.grid(5, 1)
            return "as many coords as features, got 5 coords, 7 features"
        if kind == "text":
            file["features"] = np.array([b"a", b"b"])
            return "features that are numbers"
        if kind == "scalar":
            file["features"] = FEATURES[0, 0]
            return r"of at least one number, got shape \(\)"
        if kind == "coords NaN":
            file["features"], file["coords"] = FEATURES, np.full((7, 2), np.nan)
            return "expected finite coords"
        if kind == "link":
            file["features"] = h5py.ExternalLink("elsewhere.h5", "/features")
            return "a link to elsewhere"
        if kind == "external":
            file.create_dataset("features", (2, 6), "f4", external=[(str(outside), 0, 48)])
            return "data that is stored in other files"
        if kind == "group":
            file.create_group("features")
            return "'features' to be an array, got a group"
        assert kind == "bomb"
        file.create_dataset("features", (10**9, 1024), "f4", chunks=(1, 1024), compression="gzip")
        return "an array that its file can hold, got 4,096,000,000,000 bytes"


@pytest.mark.parametrize(
    "kind",
    [
        "truncated",
        "not HDF5",
        "other names",
        "lengths",
        "text",
        "scalar",
        "coords NaN",
        "link",
        "external",
        "group",
        "bomb",
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "slide_7.h5"
    message = broken_h5(path, kind)
    with pytest.raises(DataError, match=r"bag file '.*slide_7\.h5': .*" + message):
        contents_of(path)


@pytest.mark.parametrize("suffix", sorted(READERS))
def test_damaged_files_of_every_kind_are_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"slide_7{suffix}"
    path.write_bytes(b"\x93NUMPY\x01\x00 damaged")
    with pytest.raises(DataError, match=r"bag file '.*slide_7"):
        contents_of(path)


def test_an_archive_that_claims_too_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "s.npz", features=np.zeros((20_000_000, 1), np.uint8))
    with zipfile.ZipFile(tmp_path / "s.npz") as archive:
        content = archive.read("features.npy")
    claim = content.replace(b"(20000000, 1)", b"(2000000000000, 1)".ljust(13))[:128]
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("features.npy", claim)
    with pytest.raises(DataError, match="an array that its file can hold"):
        contents_of(tmp_path / "t.npz")


def inflating(path: Path, features: np.ndarray) -> None:
    """Write features that pack to next to nothing, as the ending says."""
    if path.suffix == ".npz":
        np.savez_compressed(path, features=features)
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("features", data=features, chunks=(1 << 16, 16), compression="gzip")


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_an_array_that_inflates_beyond_all_measure_is_refused_by_what_it_states(
    tmp_path: Path, suffix: str
) -> None:
    inflating(tmp_path / f"bomb{suffix}", np.zeros((5_000_000, 16), np.uint8))
    with pytest.raises(
        DataError, match=r"hold, got 80,000,\d\d\d bytes in a file of .* store it without compression"
    ):
        contents_of(tmp_path / f"bomb{suffix}")
    inflating(tmp_path / f"small{suffix}", np.zeros((1_000_000, 16), np.uint8))  # as empty, and no danger
    assert contents_of(tmp_path / f"small{suffix}").size == 1_000_000


def test_a_chunk_of_coords_that_claims_more_than_its_file_holds_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["features"] = FEATURES
        file.create_dataset("coords", (7, 2), "i8", chunks=(1 << 23, 2), maxshape=(None, 2), compression="gzip")
        file["coords"][:] = 512
    with pytest.raises(DataError, match="an array that its file can hold, got 134,217,728 bytes"):
        contents_of(tmp_path / "s.h5")


@pytest.mark.parametrize("kind", [".npy", ".npz", ".h5", ".pth"])
def test_a_file_longer_than_it_states_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"s{kind}"
    if kind == ".npy":
        np.save(path, FEATURES)
    elif kind == ".npz":
        np.save(tmp_path / "features.npy", FEATURES)
        content = (tmp_path / "features.npy").read_bytes()
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("features.npy", content[:200] + b"\0" * 24 + content[200:])
    elif kind == ".h5":
        made_files.trident(tmp_path, "s", FEATURES)
    else:
        torch.save(torch.from_numpy(FEATURES), path, _use_new_zipfile_serialization=False)
    if kind != ".npz":
        path.write_bytes(path.read_bytes() + b"\0" * 24)
    with pytest.raises(DataError, match=r"bag file '.*s\..*': expected a.* bytes (where|of which)"):
        contents_of(path)


def killed(path: Path, kind: str) -> str:
    """Write what an extraction leaves that was ended; return what the message must say."""
    with h5py.File(path, "w") as file:
        more: dict[str, Any] = {} if kind == "chunked" else {"compression": "gzip"}
        if kind in ("chunked", "compressed"):
            file.create_dataset("features", (4000, 8), "f4", chunks=(100, 8), **more)[:1000] = 1.0
            file["coords"] = made_files.grid(4000, 256)
            return r"every row of 'features' to be written, got 10 of 40 chunks of 100 rows of shape \(4000, 8\)"
        if kind == "coords":
            file["features"] = made_files.features_of(400)
            file.create_dataset("coords", (400, 2), "i8", chunks=(1, 2), maxshape=(None, 2))[:399] = 1
            return r"every row of 'coords' to be written, got 399 of 400 chunks of 1 rows of shape \(400, 2\)"
        if kind == "never":
            file.create_dataset("features", (400, 6), "f4")
            return "'features' to be written, got 0 of 9,600 bytes"
        assert kind == "never, in chunks"
        file.create_dataset("features", (400, 6), "f4", chunks=(64, 6))
        return "got 0 of 7 chunks of 64 rows"


@pytest.mark.parametrize("kind", ["chunked", "compressed", "coords", "never", "never, in chunks"])
def test_rows_that_were_never_written_are_no_data(tmp_path: Path, kind: str) -> None:
    message = killed(tmp_path / "s.h5", kind)
    with pytest.raises(DataError, match=message + ".*; extract these features again: the extraction was ended"):
        contents_of(tmp_path / "s.h5")
    with pytest.raises(DataError, match=message) if kind != "coords" else nullcontext():
        read_rows(tmp_path / "s.h5", 0, 3)


@pytest.mark.parametrize("shape", [(7, 0), (7, 4, 0, 3)])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5", ".pt", ".safetensors"])
def test_features_of_width_0_are_named(tmp_path: Path, suffix: str, shape: tuple[int, ...]) -> None:
    path, features = tmp_path / f"s{suffix}", np.zeros(shape, np.uint8)
    if suffix == ".npy":
        np.save(path, features)
    elif suffix == ".npz":
        np.savez(path, features=features)
    elif suffix == ".pt":
        torch.save(torch.from_numpy(features), path)
    elif suffix == ".safetensors":
        save_file({"features": features}, path)
    else:
        with h5py.File(path, "w") as file:
            file["features"] = features
    with pytest.raises(
        DataError, match=r"bag file '.*s\..*': expected features .* of at least one number, got shape \(7,"
    ):
        contents_of(path)


@pytest.mark.parametrize("tool", ["trident", "clam", "stamp"])
def test_a_patch_size_that_is_not_the_step_of_the_grid_is_said(tmp_path: Path, tool: str) -> None:
    features = made_files.features_of(20)
    if tool == "trident":
        path, mpp = made_files.trident(tmp_path, "s", features, step=512, patch_size_level0=256), None
    elif tool == "clam":
        path, mpp = made_files.clam(tmp_path, "s", features, made_files.grid(20, 512)), None
        made_files.clam_patches(tmp_path, "s", 20, 128, 2.0)
    else:
        path, mpp = made_files.stamp(tmp_path, "s", features), 0.5
        with h5py.File(path, "a") as file:
            file.attrs["tile_size_um"] = 128.0
    found = contents_of(path, mpp)
    note = (
        "patch size 256, but neighbors are 512 level-0 pixels apart: gaps between patches, or a wrong patch size"
    )
    assert (found.patch_size, found.notes) == (256, (note,))
    made_files.trident(tmp_path, "whole", features, step=512)
    made_files.trident(tmp_path, "few", features[:4], step=512, patch_size_level0=256)
    made_files.trident(tmp_path, "lapping", features, step=512, patch_size_level0=1024)
    assert contents_of(tmp_path / "whole.h5").notes == contents_of(tmp_path / "few.h5").notes == ()
    assert "1024, but neighbors are 512 level-0 pixels apart: patches that overlap" in str(
        contents_of(tmp_path / "lapping.h5").notes
    )


def test_coords_in_microns_are_as_many_as_features_whether_they_are_used_or_not(tmp_path: Path) -> None:
    path = made_files.stamp(tmp_path, "s", FEATURES)
    with h5py.File(path, "a") as file:
        del file["coords"]
        file["coords"] = np.zeros((5, 2), np.float32)
    for mpp in (None, 0.25):
        with pytest.raises(DataError, match="as many coords as features, got 5 coords, 7 features"):
            contents_of(path, mpp)


def test_features_of_an_archive_are_not_read_to_know_their_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "s.npz", features=FEATURES, coords=made_files.grid(7, 256))
    read: list[str] = []
    whole = Member.read

    def noted(member: Member) -> np.ndarray:
        read.append(member.name)
        return whole(member)

    monkeypatch.setattr(Member, "read", noted)
    assert contents_of(tmp_path / "s.npz").size == 7 and read == ["coords"]
    assert np.array_equal(read_rows(tmp_path / "s.npz", 2, 4), FEATURES[2:4]) and read == ["coords", "features"]


def test_bag_files_are_found_where_tools_put_them(tmp_path: Path) -> None:
    made_files.clam(tmp_path / "clam", "a", FEATURES)
    made_files.clam_patches(tmp_path / "clam", "a", 7, 256, 1)
    assert list_bag_files(tmp_path / "clam").by_id == {"a": (tmp_path / "clam" / "h5_files" / "a.h5",)}
    job = tmp_path / "trident" / "20x_256px_0px_overlap"
    made_files.trident(job / "features_uni_v1", "a", FEATURES)
    made_files.clam_patches(job, "a", 7, 256, 1)
    assert list_bag_files(tmp_path / "trident").by_id == {"a": (job / "features_uni_v1" / "a.h5",)}
    made_files.trident(job / "features_conch", "a", FEATURES)
    with pytest.raises(DataError, match="features_conch .*features_uni_v1 .*with the same bag"):
        list_bag_files(tmp_path / "trident")
    with pytest.raises(StorageError, match="no such folder"):
        load_bags(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="got none; check the path"):
        load_bags(tmp_path / "empty")


def test_the_files_of_one_id_are_found_together(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", FEATURES)
    torch.save(torch.from_numpy(FEATURES), tmp_path / "a.pt")
    np.save(tmp_path / "b.npy", FEATURES)
    found = list_bag_files(tmp_path)
    assert [path.name for path in found.by_id["a"]] == ["a.npy", "a.pt"]
    assert list(found.by_id) == ["a", "b"] and found.notes == ()


def test_instances_in_files_are_like_one_array(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    sizes = np.array([3, 1, 5, 2])
    paths = []
    for number, size in enumerate(sizes):
        np.save(path := tmp_path / f"{number}.npy", random.normal(size=(size, 4)).astype(np.float32))
        paths.append(path)
    whole = np.concatenate([np.load(path) for path in paths])
    lazy = FileInstances(paths, sizes, (4,), np.dtype(np.float32))
    assert lazy.shape == whole.shape and len(lazy) == 11
    for start in range(12):
        for stop in range(start, 12):
            assert np.array_equal(lazy[start:stop], whole[start:stop])
    assert np.array_equal(np.asarray(lazy), whole)
    for positions in (np.array([1, 2]), np.array([10, 0, 4, 4, 3]), np.array([], int)):
        assert np.array_equal(lazy[positions], whole[positions])
    for wrong in (slice(0, 5, 2), np.array([0.5]), np.zeros((2, 2), int), np.zeros(11, bool), "a"):
        with pytest.raises(TypeError, match="slices of consecutive ones, or by positions"):
            lazy[wrong]
    for beyond in ([11], [-1]):
        with pytest.raises(IndexError, match="11 instances"):
            lazy[np.array(beyond)]


@pytest.mark.parametrize("ending", [".npy", ".h5"])
@pytest.mark.parametrize("size", [2, 4])
def test_a_file_that_was_replaced_since_it_was_listed_is_refused(ending: str, size: int, tmp_path: Path) -> None:
    """As while features are extracted anew: the first rows of a longer file were taken for the whole bag."""
    path = tmp_path / f"a{ending}"
    for count in (3, size):
        if ending == ".npy":
            np.save(path, np.ones((count, 4), np.float32))
        else:
            with h5py.File(path, "w") as file:
                file["features"] = np.ones((count, 4), np.float32)
        if count == 3:
            bags = load_bags(tmp_path).bags
    wanted = "the 3 instances that it had when the bags were listed"
    with pytest.raises(DataError, match=f"expected {wanted}, got {size}; give the same command again once"):
        bags.instances[:2]


@pytest.mark.parametrize("other", [np.ones((3, 5), np.float32), np.full((3, 4), 0.7, np.float32)])
def test_a_file_that_got_instances_of_another_kind_since_it_was_listed_is_refused(
    other: np.ndarray, tmp_path: Path
) -> None:
    """Bytes were made of numbers, of 0.7 a 0; another width had an error of NumPy or torch."""
    np.save(tmp_path / "a.npy", np.ones((3, 4), np.float16))
    bags = load_bags(tmp_path).bags
    np.save(tmp_path / "a.npy", other)
    got = rf"float32 of shape \({other.shape[1]},\); give the same command again once nothing writes"
    for read in (lambda: bags.batch([0]), lambda: bags.instances[np.array([2, 0])]):
        with pytest.raises(DataError, match=rf"a\.npy.*listed, float16 of shape \(4,\), got {got}"):
            read()


def test_patches_without_a_grid_say_nothing_of_the_distance_of_neighbors(tmp_path: Path) -> None:
    across = np.cumsum(np.arange(60) % 7 * 10 + 100)  # as around cells, whose patches are where these are
    path = made_files.trident(tmp_path, "s", np.ones((60, 4), np.float32), step=64)
    with h5py.File(path, "a") as file:
        file["coords"][:] = np.stack([across, np.zeros(60, np.int64)], 1)
    assert contents_of(path).notes == ()


def test_coords_may_have_the_leading_axis_that_features_have(tmp_path: Path) -> None:
    torch.save({"feats": torch.ones(1, 4, 3), "coords": torch.arange(8).reshape(1, 4, 2)}, tmp_path / "a.pt")
    found = contents_of(tmp_path / "a.pt")
    assert found.size == 4 and found.coords is not None
    assert found.coords.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
