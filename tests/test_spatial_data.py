"""SpatialData stores of lazyslide: what is read, which table, and what is refused."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_files
import made_stores
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from commands import fail, run

from miue.common.errors import ConfigError, DataError
from miue.io import load_bags, state_of_instances
from miue.io.formats import contents_of, read_rows
from miue.io.formats.open import contents_here

SIZE, WIDTH = 23, 6
CORNERS = made_files.grid(SIZE, made_stores.SIDE) + np.array([1000, 72_000])


def features(seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(SIZE, WIDTH)).astype(dtype)


def table(store: Path, name: str = "uni_tiles") -> Path:
    return store / "tables" / name


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return made_stores.lazyslide(tmp_path / "job", "slide 1.2", features(), CORNERS, chunks=(10, 4))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("zarr_format", "how"),
    [
        (3, {}),
        (3, {"chunks": (10, 4)}),
        (3, {"chunks": (5, 3), "shards": (10, 6)}),
        (3, {"compressors": None}),
        (2, {"chunks": (10, 4)}),
        (2, {"compressors": None}),
    ],
)
def test_features_and_corners_are_those_of_the_tiles(
    tmp_path: Path, zarr_format: int, how: dict[str, Any], dtype: Any
) -> None:
    """Tiles are found by their numbers: rows of features and of outlines are in different orders."""
    written = features(dtype=dtype)
    shuffled = np.random.default_rng(1).permutation(SIZE)
    made_stores.lazyslide(tmp_path, "slide 1.2", written, CORNERS, zarr_format=zarr_format, order=shuffled, **how)
    bags = load_bags(tmp_path).bags
    assert bags.ids == ("slide 1.2",) and bags.extractor == "uni"
    assert bags.patch_sizes is not None and bags.patch_sizes.tolist() == [made_stores.SIDE]
    assert bags.coords is not None and np.array_equal(bags.coords.values, CORNERS)
    expected = np.float16 if dtype == np.float16 else np.float32
    assert bags.instances.dtype == expected
    assert np.array_equal(bags.instances[:], written.astype(expected))
    assert np.array_equal(bags.instances[7:19], written.astype(expected)[7:19])
    assert np.array_equal(bags.instances[np.array([20, 3])], written.astype(expected)[[20, 3]])


def test_one_store_is_one_bag(store: Path) -> None:
    bags = load_bags(store).bags
    assert bags.ids == ("slide 1.2",) and np.array_equal(bags.instances[:], features())


def test_tiles_of_a_coarser_level_have_their_side_in_pixels_of_the_finest(store: Path) -> None:
    attributes = json.loads((store / "zarr.json").read_text())["attributes"]
    attributes["tile_spec"]["tiles"].update(base_level=1, base_downsample=4.001)
    made_stores.rewrite(store / "zarr.json", attributes=attributes)
    assert contents_of(table(store)).patch_size == 4 * made_stores.SIDE
    assert contents_of(table(store)).patch_scale == f"{made_stores.SIDE} px of 0.5 µm"


def test_of_several_tables_the_one_asked_for_is_read(tmp_path: Path) -> None:
    for name in "ab":
        made_stores.lazyslide(tmp_path, name, features(), CORNERS, encoders=("conch", "uni"))
    with pytest.raises(DataError, match=r"tables conch_tiles, uni_tiles.*feature_key=conch_tiles"):
        load_bags(tmp_path)
    for key, more in (("conch_tiles", 0), ("uni_tiles", 1), ("uni", 1)):
        bags = load_bags(tmp_path, settings={"feature_key": key}).bags
        assert bags.ids == ("a", "b") and bags.extractor == key.removesuffix("_tiles")
        assert np.array_equal(bags.instances[:SIZE], features() + np.float32(more))
    shutil.rmtree(table(tmp_path / "b.zarr"))
    with pytest.raises(DataError, match=r"b\.zarr.*asked for.*got tables conch_tiles"):
        load_bags(tmp_path, settings={"feature_key": "uni"})
    opened = load_bags(tmp_path, settings={"feature_key": "uni"}, skip_bad=True)
    assert opened.bags.ids == ("a",) and [one.bag for one in opened.left_out] == ["b"]


def test_a_table_that_anndata_alone_wrote_is_known_by_its_name(store: Path) -> None:
    """Which tiles it describes is then stated within the table (``uns``), not by the attributes of its group."""
    shutil.copytree(store / "shapes" / "tiles", store / "shapes" / "small_tiles")
    made_stores.rewrite(table(store) / "zarr.json", attributes={"encoding-type": "anndata"})
    bags = load_bags(store.parent).bags
    assert bags.extractor == "uni" and bags.patch_sizes is not None and bags.patch_sizes[0] > 0
    assert bags.coords is not None and np.array_equal(bags.coords.values, CORNERS)


def test_tables_that_are_no_features_are_named_without_other_files(store: Path) -> None:
    table(store).rename(table(store, "cells"))
    with pytest.raises(DataError, match=r"got tables cells; "):
        load_bags(store.parent)


def test_tables_of_other_things_are_not_taken_for_features(store: Path) -> None:
    """Tables of cells, and of what was computed of features, do not make a slide ambiguous."""
    for name, region in (("cells", "cells"), ("uni_tiles_text_similarity", "tiles"), ("notes", None)):
        shutil.copytree(table(store), table(store, name))
        attributes = json.loads((table(store, name) / "zarr.json").read_text())["attributes"]
        made_stores.rewrite(table(store, name) / "zarr.json", attributes={**attributes, "region": region})
    assert load_bags(store.parent).bags.extractor == "uni"


def test_zarr_folders_that_are_no_stores_of_a_slide_are_named(tmp_path: Path) -> None:
    zarr.open_group(str(tmp_path / "a.zarr"), mode="w").create_array("X", data=features())  # as AnnData writes one
    with pytest.raises(DataError, match="got files ending in .*zarr; check the path"):
        load_bags(tmp_path)


def test_a_table_is_asked_for_only_where_there_are_stores(tmp_path: Path, store: Path) -> None:
    made_files.trident(tmp_path / "files", "a", features())
    with pytest.raises(ConfigError, match="feature_key: expected"):
        load_bags(tmp_path / "files", settings={"feature_key": "uni"})
    long_table = tmp_path / "long.csv"
    long_table.write_text("bag_id,label,f0\na,0,1\nb,1,2\n")
    with pytest.raises(ConfigError, match="feature_key: expected"):
        load_bags(long_table, settings={"feature_key": "uni"})
    for key in ("../tables/uni_tiles", "/etc", ".."):
        with pytest.raises(DataError, match="asked for"):
            load_bags(store, settings={"feature_key": key})


def test_a_store_beside_a_file_of_its_name_is_refused(store: Path) -> None:
    made_files.trident(store.parent, store.stem, features())
    with pytest.raises(DataError, match=r"slide 1\.2\.h5 and slide 1\.2\.zarr"):
        load_bags(store.parent)


def test_slides_beside_their_stores_are_said_and_not_read(store: Path) -> None:
    (store.parent / "slide 1.2.svs").write_bytes(b"pixels")
    (store.parent / "image.ome.zarr" / "0").mkdir(parents=True)
    opened = load_bags(store.parent)
    assert opened.bags.ids == ("slide 1.2",)
    assert any("slide 1.2.svs" in note for note in opened.notes)


def without_outlines(store: Path) -> None:
    shutil.rmtree(store / "shapes" / "tiles")


def without_numbers(store: Path) -> None:
    shutil.rmtree(table(store) / "obs" / "tile_id")


def with_several_regions(store: Path) -> None:
    made_stores.rewrite(table(store) / "zarr.json", attributes={"region": ["tiles", "others"]})


def with_moved_outlines(store: Path) -> None:
    scaled = {"coordinateTransformations": [{"type": "scale", "scale": [2, 2]}]}
    made_stores.rewrite(store / "shapes" / "tiles" / "zarr.json", attributes=scaled)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_outlines, "no outlines of its tiles"),
        (without_numbers, "no outlines of its tiles by 'tile_id'"),
        (with_several_regions, "does not say which tiles"),
        (with_moved_outlines, "not in level-0 pixels"),
    ],
)
def test_a_table_without_places_is_read_without_coords(
    store: Path, change: Callable[[Path], None], said: str
) -> None:
    change(store)
    contents = contents_of(table(store))
    assert contents.coords is None and contents.patch_size is None
    assert any(said in note for note in contents.notes)
    assert np.array_equal(read_rows(table(store), 0, SIZE), features())


def outlines_as(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    def changed(store: Path) -> None:
        path = store / "shapes" / "tiles" / "shapes.parquet"
        pq.write_table(change(pq.read_table(path)), path)

    return changed


def without_a_chunk(store: Path) -> None:
    (table(store) / "X" / "c" / "1" / "0").unlink()


def with_a_linked_chunk(store: Path) -> None:
    (table(store) / "X" / "c" / "1" / "0").unlink()
    (table(store) / "X" / "c" / "1" / "0").symlink_to("/etc/hostname")


def with_linked_chunks(store: Path) -> None:
    (table(store) / "X" / "c").rename(store.parent / "elsewhere")
    (table(store) / "X" / "c").symlink_to(store.parent / "elsewhere")


def with_a_pipe(store: Path) -> None:
    (table(store) / "X" / "c" / "1" / "0").unlink()
    os.mkfifo(table(store) / "X" / "c" / "1" / "0")


def with_damaged_chunks(store: Path) -> None:
    for chunk in (table(store) / "X" / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"\xff" * 40)


def with_sparse_features(store: Path) -> None:
    shutil.rmtree(table(store) / "X")
    group = zarr.open_group(str(table(store)), mode="a")
    group.create_array("X/data", data=np.ones(3))
    group.create_array("X/indptr", data=np.arange(SIZE + 1))


def claiming_more(store: Path) -> None:
    made_stores.rewrite(table(store) / "X" / "zarr.json", shape=[1 << 40, WIDTH])


def claiming_large_chunks(store: Path) -> None:
    grid = {"name": "regular", "configuration": {"chunk_shape": [1 << 30, WIDTH]}}
    made_stores.rewrite(table(store) / "X" / "zarr.json", chunk_grid=grid)


def of_another_codec(store: Path) -> None:
    within = {"chunk_shape": [10, 4], "codecs": ["bytes", {"name": "numcodecs.pickle"}], "index_codecs": []}
    codecs = [{"name": "sharding_indexed", "configuration": within}]
    made_stores.rewrite(table(store) / "X" / "zarr.json", codecs=codecs)


def with_an_index_of_another_codec(store: Path) -> None:
    within = {"chunk_shape": [10, 4], "codecs": ["bytes"], "index_codecs": ["bytes", {"name": "numcodecs.pickle"}]}
    codecs = [{"name": "sharding_indexed", "configuration": within}]
    made_stores.rewrite(table(store) / "X" / "zarr.json", codecs=codecs)


def with_damaged_metadata(store: Path) -> None:
    (table(store) / "X" / "zarr.json").write_text('{"node_type": "array"')


def with_complex_numbers(store: Path) -> None:
    shutil.rmtree(table(store) / "X")
    zarr.open_group(str(table(store)), mode="a").create_array("X", data=np.ones((SIZE, 2), np.complex64))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (outlines_as(lambda rows: rows.slice(1)), "for every row, got no tile 7"),
        (outlines_as(lambda rows: pa.concat_tables([rows, rows.slice(0, 1)])), "each tile once"),
        (outlines_as(lambda rows: rows.drop_columns("geometry")), "outlines of tiles"),
        (outlines_as(lambda rows: rows.set_column(2, "geometry", pa.array([b"?"] * SIZE))), "outlines of tiles"),
        (outlines_as(lambda rows: rows.set_column(2, "geometry", pa.nulls(SIZE, pa.binary()))), "finite coords"),
        (without_a_chunk, "to be written, got 5 of 6 chunks"),
        (with_a_linked_chunk, "a link"),
        (with_linked_chunks, "a link"),
        (with_a_pipe, "a link or another kind of file"),
        (with_sparse_features, "a number in each place"),
        (claiming_more, "that its file can hold"),
        (claiming_large_chunks, "that its file can hold"),
        (of_another_codec, "by 'numcodecs.pickle'"),
        (with_an_index_of_another_codec, "by 'numcodecs.pickle'"),
        (with_damaged_metadata, "JSON in 'zarr.json' that can be read"),
        (with_complex_numbers, "features that are numbers"),
    ],
)
def test_a_store_that_is_not_whole_is_refused_by_name(
    store: Path, change: Callable[[Path], None], said: str
) -> None:
    change(store)
    with pytest.raises(DataError, match=r"slide 1\.2\.zarr") as error:
        load_bags(store.parent)
    assert said in str(error.value)


def test_damaged_chunks_are_refused_where_they_are_read(store: Path) -> None:
    with_damaged_chunks(store)
    with pytest.raises(DataError, match=r"slide 1\.2\.zarr.*features that can be read"):
        load_bags(store.parent).bags.instances[:]


def test_a_chunk_that_becomes_more_than_it_may_is_refused(store: Path) -> None:
    """A megabyte of repeated bytes that zstd makes 42 GB of, more than the process may have."""
    block = b"\x02\x00\x10" + b"\0"  # a block of 2^17 repeated bytes
    head = b"\x28\xb5\x2f\xfd" + b"\xe0" + (320_000 << 17).to_bytes(8, "little")
    for chunk in (table(store) / "X" / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(head + block * 320_000)
    with pytest.raises(DataError, match=r"slide 1\.2\.zarr"):
        load_bags(store.parent).bags.instances[:]


class Told:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_pickle_in_a_chunk_is_never_loaded(tmp_path: Path) -> None:
    """Of Zarr 2, one of the filters unpickles what it is given."""
    store = made_stores.lazyslide(
        tmp_path / "job", "slide", features(), CORNERS, zarr_format=2, compressors=None, chunks=(SIZE, WIDTH)
    )
    told = tmp_path / "told"
    made_stores.rewrite(table(store) / "X" / ".zarray", filters=[{"id": "pickle", "protocol": 5}])
    (table(store) / "X" / "0.0").write_bytes(pickle.dumps(Told(told)))
    with pytest.raises(DataError, match="by 'pickle'"):
        load_bags(store.parent)
    assert not told.exists()


def test_a_store_says_when_it_changed(store: Path) -> None:
    bags = load_bags(store.parent).bags
    before = state_of_instances(bags)
    assert before == state_of_instances(load_bags(store.parent).bags)
    chunk = table(store) / "X" / "c" / "0" / "0"
    os.utime(chunk, (1, 1))
    assert state_of_instances(bags) != before


def test_without_the_package_it_says_what_to_install(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ConfigError, match=r"pip install 'miue\[zarr\]'"):
        contents_here(table(store))


def test_the_process_apart_passes_on_what_to_install(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from miue.io.formats import child
    from miue.io.formats.child import ReadingProcess

    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "zarr.py").write_text("raise ImportError('no zarr here')\n")
    monkeypatch.syspath_prepend(tmp_path / "without")
    monkeypatch.setattr(child, "_process", ReadingProcess())
    with pytest.raises(ConfigError, match=r"no zarr here.*pip install 'miue\[zarr\]'"):
        load_bags(store.parent, skip_bad=True)
    child._process.end()


@pytest.mark.long
def test_stores_go_through_whole_commands(tmp_path: Path) -> None:
    """Training, prediction, overlays: squares lie where the tiles do."""
    slides, labels = tmp_path / "slides", ["slide,label"]
    for number in range(12):
        name, positive = f"s{number}", number % 2 == 1
        values = made_files.features_of(SIZE, WIDTH, number, positive)
        made_stores.lazyslide(slides, name, values, CORNERS, encoders=("conch", "uni"))
        labels.append(f"{name},{'tumor' if positive else 'normal'}")
    (tmp_path / "labels.csv").write_text("\n".join(labels) + "\n")
    how = ("--labels", tmp_path / "labels.csv", "--feature-key", "uni")
    assert "--feature-key conch_tiles" in fail("inspect", slides)
    described = json.loads(run("inspect", slides, "--feature-key", "uni", "--read", "--json", "--quiet"))
    assert described["usable"] == 12 and described["encoders"] == {"uni": 12}
    assert described["bag"][0]["file"] == "s0.zarr" and not described["bag"][0]["problems"]
    run("train", slides, *how, "--set", "max_epochs=2", "--out", tmp_path / "run", "--device", "cpu")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["contract"]["extractor"] == "uni"
    run("predict", tmp_path / "run", slides, *how, "--out", tmp_path / "predictions", "--device", "cpu")
    run("export", "geojson", tmp_path / "predictions", "--out", tmp_path / "overlays")
    drawn = json.loads(min((tmp_path / "overlays").glob("*.geojson")).read_text())["features"]
    found = {tuple(np.min(one["geometry"]["coordinates"][0], 0).astype(int).tolist()) for one in drawn}
    assert found == set(map(tuple, CORNERS.tolist()))
    for one in drawn:
        assert np.ptp(one["geometry"]["coordinates"][0], 0).tolist() == [made_stores.SIDE] * 2
