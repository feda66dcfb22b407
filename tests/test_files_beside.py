"""Positions and labels that slideflow, slide2vec and torchmil write in files beside the features."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from miue.bags import BagDataset
from miue.common.errors import ConfigError, DataError
from miue.io import load_bags

SIDE = 512
CORNERS = np.stack(np.meshgrid(np.arange(4), np.arange(3)), -1).reshape(-1, 2) * SIDE
LABELS = "bag_id,label\na,0\nb,1\n"


def features(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(len(CORNERS), 5)).astype(np.float32)


def labels_in(folder: Path) -> Path:
    path = folder / "labels.csv"
    path.write_text(LABELS)
    return path


def corners_of(bags: BagDataset, bag: int) -> np.ndarray:
    assert bags.coords is not None and bags.coords.known.all()
    start = int(bags.starts[bag])
    return bags.coords.values[start : start + int(bags.sizes[bag])]


def slideflow(folder: Path, ending: str = ".index.npz") -> Path:
    """Two bags as slideflow writes them, with the centers of tiles."""
    bags = folder / "bags"
    bags.mkdir(parents=True)
    for number, name in enumerate("ab"):
        torch.save(torch.from_numpy(features(number)), bags / f"{name}.pt")
        centers = CORNERS + SIDE // 2
        if ending.endswith("z"):
            np.savez(bags / (name + ending), centers)
        else:
            np.save(bags / (name + ending), centers)
    (bags / "bags_config.json").write_text(json.dumps({"extractor": {"class": "uni"}, "tile_px": 256}))
    return bags


def slide2vec(folder: Path) -> Path:
    """Two bags as slide2vec writes them."""
    for name in ("tile_embeddings", "tiles"):
        (folder / name).mkdir(parents=True)
    for number, name in enumerate("ab"):
        torch.save(torch.from_numpy(features(number)), folder / "tile_embeddings" / f"{name}.pt")
        where = folder / "tiles" / f"{name}.coordinates.npz"
        np.savez(where, tile_index=np.arange(len(CORNERS)), x=CORNERS[:, 0], y=CORNERS[:, 1])
        (folder / "tiles" / f"{name}.coordinates.meta.json").write_text("{}")
        facts = {"coordinates_npz_path": str(where), "tile_size_lv0": SIDE, "encoder_name": "uni2"}
        (folder / "tile_embeddings" / f"{name}.meta.json").write_text(json.dumps(facts))
    return folder


def torchmil(folder: Path) -> Path:
    """Two bags of a data set of torchmil."""
    root = folder / "patches_512"
    for name in ("features/features_UNI", "labels", "patch_labels", "coords"):
        (root / name).mkdir(parents=True)
    for number, name in enumerate("ab"):
        np.save(root / "features" / "features_UNI" / f"{name}.npy", features(number))
        np.save(root / "coords" / f"{name}.npy", CORNERS)
        np.save(root / "labels" / f"{name}.npy", np.array(number))
        np.save(root / "patch_labels" / f"{name}.npy", np.zeros(len(CORNERS), int))
    return folder


@pytest.mark.parametrize(("write", "extractor"), [(slideflow, "uni"), (slide2vec, "uni2"), (torchmil, "UNI")])
def test_corners_and_extractor_are_found_beside_the_features(
    write: Callable[[Path], Path], extractor: str, tmp_path: Path
) -> None:
    loaded = load_bags(write(tmp_path / "data"), labels=labels_in(tmp_path))
    assert loaded.bags.ids == ("a", "b")
    assert loaded.bags.instance_shape == (5,)
    assert loaded.bags.extractor == extractor
    for bag in range(2):
        assert np.array_equal(corners_of(loaded.bags, bag), CORNERS)


def test_an_index_in_one_array_is_read_as_well(tmp_path: Path) -> None:
    loaded = load_bags(slideflow(tmp_path / "data", ".index.npy"), labels=labels_in(tmp_path))
    assert loaded.bags.ids == ("a", "b")
    assert np.array_equal(corners_of(loaded.bags, 1), CORNERS)


def test_centers_are_never_taken_for_corners_where_no_grid_shows_the_side_of_a_tile(tmp_path: Path) -> None:
    root = slideflow(tmp_path / "data")
    torch.save(torch.from_numpy(features(0)[:1]), root / "a.pt")
    np.savez(root / "a.index.npz", CORNERS[:1] + SIDE // 2)
    loaded = load_bags(root, labels=labels_in(tmp_path))
    assert loaded.bags.without_coords == ("a",)
    assert loaded.bags.coords is not None and np.array_equal(loaded.bags.coords.values[1:], CORNERS)
    assert any("left out where no grid" in note and "(1 of 2 bags)" in note for note in loaded.notes)


def test_positions_in_the_file_of_features_count_before_those_beside_it(tmp_path: Path) -> None:
    root = slideflow(tmp_path / "data")
    own = {"features": torch.from_numpy(features()), "coords": torch.from_numpy(CORNERS + 7)}
    torch.save(own, root / "a.pt")
    bags = load_bags(root, labels=labels_in(tmp_path), skip_bad=True).bags
    assert np.array_equal(corners_of(bags, bags.ids.index("a")), CORNERS + 7)


def test_the_side_of_a_patch_is_the_one_that_is_stated(tmp_path: Path) -> None:
    bags = load_bags(slide2vec(tmp_path / "data"), labels=labels_in(tmp_path)).bags
    assert bags.patch_sizes is not None and set(bags.patch_sizes) == {SIDE}


def test_a_moved_folder_of_slide2vec_keeps_its_positions(tmp_path: Path) -> None:
    slide2vec(tmp_path / "data").rename(tmp_path / "moved")
    bags = load_bags(tmp_path / "moved" / "tile_embeddings", labels=labels_in(tmp_path)).bags
    assert np.array_equal(corners_of(bags, 0), CORNERS)


def test_the_scale_of_slide2vec_is_the_one_that_was_requested(tmp_path: Path) -> None:
    root = slide2vec(tmp_path / "data")
    for name in "ab":
        path = root / "tile_embeddings" / f"{name}.meta.json"
        facts = {**json.loads(path.read_text()), "requested_tile_size_px": 224, "requested_spacing_um": 0.5}
        path.write_text(json.dumps(facts))
    assert load_bags(root).bags.patch_scales == ("224 px of 0.5 µm",)


def test_tiles_of_a_class_of_slide2vec_have_their_positions_in_a_folder_of_the_class(tmp_path: Path) -> None:
    slide2vec(tmp_path / "data")
    root = tmp_path / "moved"
    for kind in ("tile_embeddings", "tiles"):
        (root / kind).mkdir(parents=True)
        (tmp_path / "data" / kind).rename(root / kind / "tumor")
    bags = load_bags(root).bags
    assert bags.extractor == "uni2" and np.array_equal(corners_of(bags, 1), CORNERS)


@pytest.mark.parametrize("numbers", [[7, 0, 3], list(range(11, -1, -1))], ids=["some", "backwards"])
def test_rows_of_slide2vec_are_at_the_tiles_that_they_name(numbers: list[int], tmp_path: Path) -> None:
    root = slide2vec(tmp_path / "data")
    (root / "tile_embeddings" / "a.pt").unlink()
    np.savez(root / "tile_embeddings" / "a.npz", features=features()[numbers], tile_index=np.array(numbers))
    bags = load_bags(root, labels=labels_in(tmp_path)).bags
    assert np.array_equal(corners_of(bags, 0), CORNERS[numbers])
    assert np.array_equal(corners_of(bags, 1), CORNERS)


@pytest.mark.parametrize(
    ("of_features", "of_tiles", "said"),
    [
        ([0, 12], list(range(12)), "a corner for each tile of the features, got no tile 12"),
        ([0, 1], [0, 0, *range(2, 12)], "each tile once, got 11 tiles, 12 corners"),
    ],
    ids=["unknown", "repeated"],
)
def test_tiles_of_slide2vec_that_do_not_fit_are_refused_by_name(
    of_features: list[int], of_tiles: list[int], said: str, tmp_path: Path
) -> None:
    root = slide2vec(tmp_path / "data")
    (root / "tile_embeddings" / "a.pt").unlink()
    np.savez(root / "tile_embeddings" / "a.npz", features=features()[:2], tile_index=np.array(of_features))
    where = root / "tiles" / "a.coordinates.npz"
    np.savez(where, tile_index=np.array(of_tiles), x=CORNERS[:, 0], y=CORNERS[:, 1])
    with pytest.raises(DataError, match=said):
        load_bags(root, labels=labels_in(tmp_path))


def test_features_of_slide2vec_without_their_tiles_keep_what_is_stated_and_say_what_is_missing(
    tmp_path: Path,
) -> None:
    root = slide2vec(tmp_path / "data")
    for path in (root / "tiles").iterdir():
        path.unlink()
    loaded = load_bags(root)
    assert loaded.bags.extractor == "uni2" and loaded.bags.coords is None
    assert loaded.notes == (
        "no tiles/<slide>.coordinates.npz of slide2vec, which has the positions of patches (2 of 2 bags)",
    )


@pytest.mark.parametrize("write", [slideflow, slide2vec, torchmil])
def test_positions_of_another_number_are_refused_by_name(write: Callable[[Path], Path], tmp_path: Path) -> None:
    root = write(tmp_path / "data")
    (where,) = (*root.rglob("a.index.npz"), *root.rglob("coords/a.npy"), *root.rglob("a.coordinates.npz"))
    short = CORNERS[:-1]
    if where.suffix == ".npy":
        np.save(where, short)
    else:
        np.savez(where, short, x=short[:, 0], y=short[:, 1])
    with pytest.raises(DataError, match=r"features of the 11 patches that '.*' lists, got 12"):
        load_bags(root, labels=labels_in(tmp_path))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"\x93NUMPY"], ids=["empty", "zip", "npy"])
def test_a_damaged_file_of_positions_is_named(content: bytes, tmp_path: Path) -> None:
    root = slideflow(tmp_path / "data")
    (root / "a.index.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.index\.npz'"):
        load_bags(root, labels=labels_in(tmp_path))


def test_positions_without_x_and_y_say_what_is_there(tmp_path: Path) -> None:
    root = slide2vec(tmp_path / "data")
    np.savez(root / "tiles" / "a.coordinates.npz", left=CORNERS[:, 0])
    with pytest.raises(DataError, match="arrays named x and y, or coords, got left"):
        load_bags(root, labels=labels_in(tmp_path))


PLACES = [
    *("f/a.position.npy", "f/a_coords.npy", "f/coords/a.npy", "coords/a.npy"),
    *("f/patches/a.h5", "patches/a.h5", "patches/a_patches.h5", "../patches/a.h5", "tiles/a.coordinates.npz"),
]


@pytest.mark.parametrize("ending", ["npy", "pt", "npz", "h5"])
@pytest.mark.parametrize("place", PLACES)
def test_positions_in_any_place_are_read_or_compared(place: str, ending: str, tmp_path: Path) -> None:
    where = tmp_path / "job" / place
    for folder in (where.parent, tmp_path / "job" / "f"):
        folder.mkdir(parents=True, exist_ok=True)
    save_array(tmp_path / "job" / "f" / f"a.{ending}", features())
    save_array(where, CORNERS)
    opened = load_bags(tmp_path / "job" / "f")
    assert opened.bags.ids == ("a",) and np.array_equal(corners_of(opened.bags, 0), CORNERS)
    assert opened.bags.patch_sizes is not None
    assert opened.bags.patch_sizes.tolist() == [2 * SIDE if where.suffix == ".h5" else 0]
    save_array(where, np.concatenate([CORNERS, CORNERS + 10 * SIDE]))
    if ending in ("npz", "h5"):
        save_array(tmp_path / "job" / "f" / f"a.{ending}", features(), CORNERS)
    with pytest.raises(DataError, match=rf"features of the 24 patches that '.*{where.name}' lists, got 12"):
        load_bags(tmp_path / "job" / "f")


def save_array(path: Path, array: np.ndarray, coords: np.ndarray | None = None) -> None:
    """Write features or, into a file that is named as one of positions, positions."""
    name = "coords" if array.shape[1] == 2 else "features"
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".pt":
        torch.save(torch.from_numpy(array), path)
    elif path.suffix == ".npz":
        arrays: dict[str, Any] = {name: array} | ({} if coords is None else {"coords": coords})
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            file[name] = array
            if coords is not None:
                file["coords"] = coords
            if name == "coords":
                file[name].attrs.update(patch_size=SIDE, downsample=np.array([2.0, 2.0]))


@pytest.mark.parametrize("content", [b"", b"\xff{}", b" " * (1 << 24) + b"{}"], ids=["empty", "no text", "long"])
@pytest.mark.parametrize(("write", "name"), [(slideflow, "bags_config.json"), (slide2vec, "a.meta.json")])
def test_a_file_of_json_beside_that_cannot_be_read_is_named(
    write: Callable[[Path], Path], name: str, content: bytes, tmp_path: Path
) -> None:
    (path,) = write(tmp_path / "data").rglob(name)
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"a.pt': expected JSON in '{name}' that can be read"):
        load_bags(tmp_path / "data", labels=labels_in(tmp_path))


def test_splits_of_torchmil_name_bags_in_a_column_of_theirs(tmp_path: Path) -> None:
    (tmp_path / "splits.csv").write_text("bag_name,split\na,train\nb,train\n")
    loaded = load_bags(torchmil(tmp_path / "data"), labels=labels_in(tmp_path), splits=tmp_path / "splits.csv")
    assert loaded.bags.splits == ("train", "train")


def test_labels_of_torchmil_are_read_from_their_folders(tmp_path: Path) -> None:
    root = torchmil(tmp_path / "data") / "patches_512"
    of_instances = np.arange(len(CORNERS)) % 2
    np.save(root / "patch_labels" / "b.npy", of_instances)
    (root / "patch_labels" / "a.npy").unlink()
    bags = load_bags(root, labels=root / "labels", instance_labels=root / "patch_labels").bags
    assert bags.labels.values.tolist() == [0, 1]
    known = bags.instance_labels.known
    assert known.tolist() == [False] * len(CORNERS) + [True] * len(CORNERS)
    assert np.array_equal(bags.instance_labels.values[known], of_instances)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.array([0, 1]), r"labels '.*a.npy': expected the label of a bag: one whole number, got an array of sh"),
        (np.array(0.5), "expected labels that are whole numbers"),
        (np.array("tumor"), "expected labels that are whole numbers, got values of type <U5"),
        (None, "expected a whole .npy array of numbers"),
    ],
)
def test_an_array_that_is_no_label_is_named(array: np.ndarray | None, said: str, tmp_path: Path) -> None:
    root = torchmil(tmp_path / "data") / "patches_512"
    where = root / "labels" / "a.npy"
    if array is None:
        where.write_bytes(b"no array")
    else:
        np.save(where, array)
    with pytest.raises(DataError, match=said):
        load_bags(root, labels=root / "labels")


def test_labels_of_instances_of_another_number_or_class_or_of_other_bags_are_named(tmp_path: Path) -> None:
    root = torchmil(tmp_path / "data") / "patches_512"
    for array, said in (
        (np.zeros(3, int), "a.npy': expected a label for each of 12 instances, got 3 numbers"),
        (np.full(len(CORNERS), 7), "a.npy'.*expected one of 0, 1.*got '7'"),
    ):
        np.save(root / "patch_labels" / "a.npy", array)
        with pytest.raises(DataError, match=said):
            load_bags(root, labels=root / "labels", instance_labels=root / "patch_labels")
    for name in "ab":
        (root / "patch_labels" / f"{name}.npy").rename(root / "patch_labels" / f"other_{name}.npy")
    with pytest.raises(DataError, match="expected arrays of the bags, such as a.npy, got those of 2 others"):
        load_bags(root, labels=root / "labels", instance_labels=root / "patch_labels")


def test_a_folder_without_arrays_is_no_table_of_labels(tmp_path: Path) -> None:
    root = torchmil(tmp_path / "data") / "patches_512"
    with pytest.raises(DataError, match="expected a table, or a folder with an array <bag>.npy for each bag"):
        load_bags(root, labels=root)
    with pytest.raises(ConfigError, match=r"slide_table: .* got a folder of arrays"):
        load_bags(root, labels=root / "labels", settings={"slide_table": tmp_path / "slides.csv"})


@pytest.mark.parametrize(
    ("stated", "scales"),
    [
        ({"tile_px": 299, "tile_um": 302}, ("299 px of 1.01 µm",)),
        ({"tile_px": 256, "tile_um": "20x"}, ("256 px of 0.5 µm",)),
        ({"tile_px": 256, "tile_um": "2.5X"}, ("256 px of 4 µm",)),
        ({"tile_px": 256}, ()),
        ({"tile_um": 302}, ()),
        ({"tile_px": 256, "tile_um": "0x"}, ()),
        ({"tile_px": 256, "tile_um": -1}, ()),
        ({"tile_px": 0, "tile_um": "20x"}, ()),
        ({"tile_px": "256", "tile_um": [1]}, ()),
    ],
)
def test_the_scale_of_tiles_is_that_of_the_configuration_of_slideflow(
    tmp_path: Path, stated: dict[str, object], scales: tuple[str, ...]
) -> None:
    bags = slideflow(tmp_path)
    (bags / "bags_config.json").write_text(json.dumps({"extractor": {"class": "uni"}, **stated}))
    assert load_bags(bags).bags.patch_scales == scales
