"""Folders of images are bags: read in order, in one form, and named where they cannot be."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from commands import run
from PIL import ExifTags, Image

import miue
from miue.common.errors import DataError
from miue.io import FilesLayout, describe_bags, find_bags_again, find_layout, load_bags
from miue.io.formats import contents_of, read_rows
from miue.io.layouts.files import BagFiles
from miue.settings import LoadSettings


def image(seed: int, size: tuple[int, int] = (6, 9), mode: str = "L") -> Image.Image:
    """A made image of some width and height."""
    width, height = size
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, *channels), dtype=np.uint8)
    return Image.fromarray(pixels, mode)


def images(folder: Path, count: int = 3, **how: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        image(number, **how).save(folder / f"{number}.png")  # type: ignore[arg-type]
    return folder


def list_bags(folder: Path) -> BagFiles:
    layout = find_layout(folder, LoadSettings())
    assert isinstance(layout, FilesLayout)
    return layout.find()


def test_nothing_in_a_folder_of_bags_goes_unsaid(tmp_path: Path) -> None:
    for name in "ab":
        images(tmp_path / "bags" / name)
    (tmp_path / "bags" / "empty").mkdir()
    (tmp_path / "bags" / "a" / "notes.doc").touch()
    notes = load_bags(tmp_path / "bags").notes
    assert notes[0] == "not read: 1 (empty), which are no bags"
    assert notes[1].startswith("files of other kinds were not read: .doc (1 ")
    os.mkfifo(tmp_path / "bags" / "b" / "7.png")
    (tmp_path / "bags" / "a" / "7.png").symlink_to("nowhere")
    with pytest.raises(DataError, match=r"2 that cannot \(a: .*7.png.*got no such file"):
        load_bags(tmp_path / "bags")


def test_a_gif_is_an_image_unless_it_moves(tmp_path: Path) -> None:
    folder = images(tmp_path / "bag")
    image(5).save(folder / "5.gif")
    assert contents_of(folder).size == 4
    image(5).save(folder / "6.gif", save_all=True, append_images=[image(6)])
    with pytest.raises(DataError, match="expected one image, got 2"):
        contents_of(folder)


def test_instances_are_the_images_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    folder = images(tmp_path / "bag.7", 12)
    contents = contents_of(folder)
    assert (contents.id, contents.format, contents.size) == ("bag.7", "images", 12)
    assert contents.instance_shape == (9, 6, 1) and contents.dtype == np.uint8 and contents.coords is None
    rows = read_rows(folder, 2, 11)
    assert rows.dtype == np.uint8 and len(rows) == 9
    for number, row in zip(range(2, 11), rows, strict=True):
        assert np.array_equal(row[..., 0], np.asarray(image(number)))
    assert read_rows(folder, 4, 4).shape == (0, 9, 6, 1)


@pytest.mark.parametrize("ending", ["png", "jpg", "JPEG", "tif", "bmp", "webp"])
def test_every_kind_of_image_is_read(tmp_path: Path, ending: str) -> None:
    (tmp_path / "bag").mkdir()
    image(1, mode="RGB").save(tmp_path / "bag" / f"a.{ending}")
    (tmp_path / "bag" / "notes.txt").write_text("no image")
    (tmp_path / "bag" / "._a.png").write_text("of a Mac")
    assert contents_of(tmp_path / "bag").instance_shape == (9, 6, 3)
    with Image.open(tmp_path / "bag" / f"a.{ending}") as written:
        assert np.array_equal(read_rows(tmp_path / "bag", 0, 1)[0], np.asarray(written.convert("RGB")))


def test_one_image_in_color_makes_all_of_three_channels_and_what_is_transparent_is_white(tmp_path: Path) -> None:
    folder = images(tmp_path / "bag", 2)
    clear = image(5, mode="RGBA")
    clear.putalpha(0)
    clear.save(folder / "2.png")
    image(6, mode="RGB").convert("P").save(folder / "3.png")
    rows = read_rows(folder, 0, 4)
    assert rows.shape == (4, 9, 6, 3)
    assert np.array_equal(rows[0], np.repeat(np.asarray(image(0))[..., None], 3, 2))
    assert (rows[2] == 255).all()
    assert np.array_equal(rows[3], np.asarray(image(6, mode="RGB").convert("P").convert("RGB")))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def deep(path: Path) -> None:
    Image.fromarray(np.zeros((9, 6), np.uint16)).save(path)


def deep_in_color(path: Path) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = zlib.compress((b"\0" + bytes(6 * 6)) * 9)  # a filter and 6 pixels of 3 × 16 bits each
    header = struct.pack(">IIBBBBB", 6, 9, 16, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


def deep_tiff_in_color(path: Path) -> None:
    tifffile.imwrite(path, np.zeros((9, 6, 3), np.uint16), photometric="rgb")


def deep_tiff_in_planes(path: Path) -> None:
    tifffile.imwrite(path, np.zeros((3, 9, 6), np.uint16), photometric="rgb", planarconfig="separate")


def moving(path: Path) -> None:
    image(1).save(path, save_all=True, append_images=[image(2)])


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (
        lambda path: image(1, (7, 9)).save(path),
        "6 × 9 pixels as in the first image of its folder, got 7 × 9; crop",
    ),
    (
        lambda path: path.write_text("text"),
        "an image that can be read, got no PNG, JPEG, .*; save this image again",
    ),
    (lambda path: path.write_bytes(b""), "an image that can be read, got no PNG, JPEG, .*; save this image again"),
    (deep_in_color, "an image of 8 bits, got 16 bits a channel; save it with 8 bits a channel"),
    (deep_tiff_in_color, "an image of 8 bits, got 16 bits a channel"),
    (deep_tiff_in_planes, "an image of 8 bits, got 16 bits a channel"),
    (deep, "an image of 8 bits, got mode I;16; save it with 8 bits a channel"),
    (moving, "one image, got 2; save each in a file of its own"),
    (cut_short, "an image that can be read, got"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_an_image_that_cannot_be_used_is_named_and_the_other_bags_are_read(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    images(tmp_path / "good")
    damage(images(tmp_path / "bad") / "1.png")
    with pytest.raises(DataError, match=rf"bag file '.*bad/1\.png': expected {message}"):
        read_rows(tmp_path / "bad", 0, contents_of(tmp_path / "bad").size)
    if damage is not cut_short:  # seen where it is read
        loaded = load_bags(tmp_path, skip_bad=True)
        assert loaded.bags.ids == ("good",) and [one.bag for one in loaded.left_out] == ["bad"]


def test_images_of_another_shape_are_to_be_resized_and_not_encoded_again(tmp_path: Path) -> None:
    for name in "ab":
        images(tmp_path / "bags" / name)
    images(tmp_path / "bags" / "c", mode="RGB")
    with pytest.raises(DataError, match="give all images one size, and save all in color or all in gray"):
        load_bags(tmp_path / "bags")
    (tmp_path / "bags" / "c").rename(tmp_path / "c")
    with pytest.raises(DataError, match="give the images the size and the channels"):
        load_bags(tmp_path / "bags", settings={"instance_shape": (10, 6, 1)})


def test_images_for_a_model_of_features_are_to_be_encoded(tmp_path: Path) -> None:
    images(tmp_path / "bags" / "a")
    with pytest.raises(DataError, match="the model takes features, not images: encode the images"):
        load_bags(tmp_path / "bags", settings={"instance_shape": (24,)})


def test_features_for_a_model_of_images_are_to_be_replaced_by_the_images(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 24), np.float32))
    with pytest.raises(DataError, match="the model takes images, not features: pass the images themselves"):
        load_bags(tmp_path, settings={"instance_shape": (10, 6, 1)})


def test_a_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    (tmp_path / "bag").mkdir()
    Image.new("1", (9_000, 9_000)).save(tmp_path / "bag" / "bomb.png")
    with pytest.raises(DataError, match=r"bomb\.png': expected an array that its file can hold"):
        contents_of(tmp_path / "bag")


def test_a_folder_that_changes_is_looked_at_again(tmp_path: Path) -> None:
    folder = images(tmp_path / "bag", 2)
    assert contents_of(folder).size == 2
    images(folder, 4)
    assert contents_of(folder).size == 4


def test_images_that_are_written_over_are_looked_at_again(tmp_path: Path) -> None:
    folder = images(tmp_path / "bags" / "a")
    assert load_bags(tmp_path / "bags").bags.instance_shape == (9, 6, 1)
    times = folder.stat()
    images(folder, size=(7, 8))
    bags = load_bags(tmp_path / "bags").bags
    assert bags.instance_shape == (8, 7, 1)  # was refused as another size
    images(folder, size=(7, 8), mode="RGB")
    before, bags = bags, load_bags(tmp_path / "bags").bags
    assert bags.instance_shape == (8, 7, 3)  # was read as gray
    with pytest.raises(DataError, match=r"listed, .* of shape \(8, 7, 1\), got .* \(8, 7, 3\); give"):
        before.batch([0])
    assert np.array_equal(bags.batch([0]).instances[1], np.asarray(image(1, (7, 8), "RGB")))
    Image.fromarray(np.full((8, 7), 40_000, np.uint16)).save(folder / "1.png")
    with pytest.raises(DataError, match="8 bits, got mode I;16"):
        load_bags(tmp_path / "bags")
    assert folder.stat().st_mtime_ns == times.st_mtime_ns  # nothing of this shows in the folder itself


def test_gray_images_behind_one_in_color_take_no_color_from_it(tmp_path: Path) -> None:
    folder = images(tmp_path / "bag", 3)
    image(4, mode="RGB").save(folder / "0.png")
    rows = read_rows(folder, 0, 3)
    assert rows.shape == (3, 9, 6, 3) and np.array_equal(rows[0], np.asarray(image(4, mode="RGB")))


def test_an_image_that_got_another_size_since_it_was_listed_is_named(tmp_path: Path) -> None:
    bags = load_bags(images(tmp_path / "bags" / "a", 3).parent).bags
    with (tmp_path / "bags" / "a" / "1.png").open("wb") as file:  # which leaves the time of the folder
        image(7, (9, 6)).save(file, "PNG")
    with pytest.raises(DataError, match=r"1\.png.*expected 6 × 9 pixels as in the first image .* got 9 × 6"):
        bags.instances[1:2]


def test_folders_of_images_are_found_where_there_are_no_bag_files(tmp_path: Path) -> None:
    for name in ("b", "a.1"):
        images(tmp_path / "data" / "pictures" / name)
    (tmp_path / "data" / "empty").mkdir()
    (tmp_path / "data" / "pictures" / "labels.csv").write_text("bag_id,label\n")
    for root in (tmp_path / "data", tmp_path / "data" / "pictures"):
        assert list(list_bags(root).by_id) == ["a.1", "b"]
    image(0).save(tmp_path / "data" / "pictures" / "overview.png")
    assert list_bags(tmp_path / "data").notes == ("not read: 1 (pictures), which are no bags",)
    images(tmp_path / "data" / "others" / "c")
    assert list(list_bags(tmp_path / "data").by_id) == ["a.1", "b", "c"]
    with pytest.raises(DataError, match="got files ending in .png; check the path"):
        list_bags(tmp_path / "data" / "pictures" / "b")


def test_thumbnails_and_masks_of_other_tools_are_no_bags(tmp_path: Path) -> None:
    for name in ("masks", "stitches", "thumbnails", "contours"):
        images(tmp_path / name)
    with pytest.raises(DataError, match="got files ending in .png; check the path"):
        list_bags(tmp_path)
    np.save(tmp_path / "slide.npy", np.zeros((3, 4), np.float32))
    assert list(list_bags(tmp_path).by_id) == ["slide"]


@pytest.fixture
def pictures(tmp_path: Path) -> tuple[Path, Path]:
    """Forty folders of images, of which those with a bright one are positive, and their labels."""
    rows = ["bag_id,label"]
    for number in range(40):
        folder = images(tmp_path / "pictures" / f"{number:02d}", 3)
        image(100 + number).save(folder / "2.png")  # so that no two bags are the same
        if number % 2:
            Image.new("L", (6, 9), 255).save(folder / "1.png")
        rows.append(f"{number:02d},{'bright' if number % 2 else 'dark'}")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "pictures", tmp_path / "labels.csv"


def test_folders_of_images_are_trained_on_as_the_store_packed_of_them(
    pictures: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, labels = pictures
    run(
        "data",
        "pack",
        folder,
        "--labels",
        labels,
        "--classes",
        "dark,bright",
        "--out",
        tmp_path / "store",
        "--quiet",
    )
    loaded = load_bags(folder, labels=labels, classes=("dark", "bright")).bags
    settings = {"max_epochs": 2, "seed": 1}
    store = miue.read_store(tmp_path / "store")
    models = [
        miue.train(bags, settings={**settings, "distances": ("statistics",), "device": "cpu"}, progress=False)
        for bags in (replace(loaded, splits=store.splits), store)
    ]
    assert models[0].weights_sha256 == models[1].weights_sha256


@pytest.mark.long
def test_they_are_inspected_predicted_and_found_by_another_process(
    pictures: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, labels = pictures
    assert "│ formats       │ images 40" in run("inspect", folder, "--read", "--quiet")
    how = ("--labels", labels, "--set", "max_epochs=1", "--distance", "none", "--quiet")
    run("train", folder, *how, "--out", tmp_path / "run")
    run("predict", tmp_path / "run", folder, "--part", "all", "--out", tmp_path / "predictions", "--quiet")
    assert len(miue.read_predictions(tmp_path / "predictions").bags) == 40
    run("report", tmp_path / "predictions", "--store", folder, "--out", tmp_path / "report.html")
    assert "data:image/" in (tmp_path / "report.html").read_text()
    loaded = load_bags(folder, labels=labels).bags
    again = find_bags_again(describe_bags(loaded, tmp_path / "copy.npy"))
    assert np.array_equal(np.asarray(again.instances), np.asarray(loaded.instances))
    assert not (tmp_path / "copy.npy").exists()


def test_folders_of_images_may_be_in_one_folder_for_each_class(tmp_path: Path) -> None:
    for name in ("well/b", "well/d", "ill/a", "ill/c"):
        images(tmp_path / "data" / name)
    found = list_bags(tmp_path / "data")
    assert list(found.by_id) == ["a", "b", "c", "d"]
    assert found.notes == ("bags of 2 folders were read: ill (2), well (2)",)
    loaded = load_bags(tmp_path / "data")
    assert loaded.bags.ids == ("a", "b", "c", "d") and loaded.bags.sizes.tolist() == [3] * 4
    (tmp_path / "data" / "well" / "empty").mkdir()
    assert "not read: 1 (empty), which are no bags" in list_bags(tmp_path / "data").notes


def test_folders_of_images_may_be_in_folders_of_splits(tmp_path: Path) -> None:
    for name in ("train/well/b", "train/ill/c", "test/well/a"):
        images(tmp_path / name)
    bags = load_bags(tmp_path).bags
    assert dict(zip(bags.ids, bags.splits, strict=True)) == {"a": "test", "b": "train", "c": "train"}


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (("well/a", "ill/a"), r"ill \(1\), well \(1\), with the same bag 'a'; pass one of these folders"),
        (("train/a", "other/b"), "of which not each is named like one split; pass one of these"),
        (("well/a", "hospital/ill/b"), "in several at one depth, got some in hospital/ill, well"),
    ],
)
def test_folders_of_images_that_are_no_single_set_are_refused(
    folders: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    for name in folders:
        images(tmp_path / name)
    with pytest.raises(DataError, match=message):
        list_bags(tmp_path)


TURNED: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: np.array,
    2: np.fliplr,
    3: lambda pixels: np.rot90(pixels, 2),
    4: np.flipud,
    5: np.transpose,
    6: np.rot90,
    7: lambda pixels: np.rot90(pixels, 2).T,
    8: lambda pixels: np.rot90(pixels, -1),
}
"""Of each orientation of EXIF how the pixels are stored."""


@pytest.mark.parametrize("ending", ["jpg", "png", "tif", "webp"])
@pytest.mark.parametrize("orientation", TURNED)
def test_an_image_that_its_exif_data_turn_is_read_as_it_is_shown(
    orientation: int, ending: str, tmp_path: Path
) -> None:
    shown = np.zeros((6, 9), np.uint8)
    shown[:3, :4] = 255
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    folder = images(tmp_path / "bag", 1, size=(9, 6))
    of_endings: dict[str, dict[str, Any]] = {"jpg": {"quality": 100}, "webp": {"lossless": True}}
    stored = Image.fromarray(np.ascontiguousarray(TURNED[orientation](shown)))
    stored.save(folder / f"1.{ending}", exif=exif, **of_endings.get(ending, {}))
    pixels = read_rows(folder, 1, 2)[0, ..., 0]
    assert np.array_equal(pixels > 127, shown > 127)


def test_damaged_exif_data_turn_nothing(tmp_path: Path) -> None:
    folder = images(tmp_path / "bag")
    image(3).save(folder / "3.jpg", exif=b"Exif\x00\x00II*\x00\xff\xff")
    image(4).save(folder / "4.jfif", "JPEG")
    assert contents_of(folder).size == 5
