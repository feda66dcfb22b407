"""CIFAR-10, SVHN and DTD in the layouts they are published in, and the bags drawn from them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from miue.bags import BagDataset
from miue.common.errors import ConfigError, StorageError
from miue.datasets import cifar10
from miue.datasets.cifar10 import OOD_SOURCES, SIZES, cifar10_bags
from miue.datasets.drawing import SEEDS, TARGET, draw_bags, with_ood_instances
from miue.datasets.images import read_cifar10, read_dtd, read_ood, read_svhn

SMALL = {"train": 20, "validation": 10, "test": 15}
PER_FILE = 40
TRAIN_FILES = [f"data_batch_{i}.bin" for i in range(1, 6)]


def made_images(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def made_labels(count: int) -> np.ndarray:
    """All classes, half of the images trucks, so that few images suffice for positive and negative bags."""
    return np.where(np.arange(count) % 2 == 0, TARGET, np.arange(count) % 9).astype(np.uint8)


def write_records(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    """A label, then the red, the green and the blue plane, row by row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [
        bytes([label]) + b"".join(image[:, :, channel].tobytes() for channel in range(3))
        for image, label in zip(images, labels, strict=True)
    ]
    path.write_bytes(b"".join(records))


def write_strips(path: Path, per_strip: int = 16, **splits: tuple[np.ndarray, np.ndarray]) -> None:
    arrays: dict[str, Any] = {}
    for split, (images, labels) in splits.items():
        strips = []
        for start in range(0, len(images), per_strip):
            content = io.BytesIO()
            column = images[start : start + per_strip].reshape(-1, images.shape[2], 3)
            Image.fromarray(column).save(content, "WEBP", lossless=True)
            strips.append(content.getvalue())
        arrays[f"{split}_webp"] = np.frombuffer(b"".join(strips), np.uint8)
        arrays[f"{split}_webp_offsets"] = np.cumsum([0, *map(len, strips)])
        arrays[f"{split}_labels"] = labels
    np.savez(path, **arrays)


def write_mat(path: Path, images: np.ndarray, digits: np.ndarray) -> None:
    labels = np.where(digits == 0, 10, digits).astype(np.uint8)[:, None]
    savemat(path, {"X": images.transpose(1, 2, 3, 0), "y": labels}, do_compression=True)


def write_textures(source: Path, num_classes: int) -> None:
    """One image of one color per class, wider than high; the color survives JPEG and resizing."""
    for number in range(num_classes):
        path = source / "dtd" / "images" / f"class_{number:02d}" / f"class_{number:02d}_0001.jpg"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (70, 50), (5 * number,) * 3).save(path, quality=95)


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """CIFAR-10's six binary files, and both splits of SVHN."""
    for number, name in enumerate([*TRAIN_FILES, "test_batch.bin"]):
        path = tmp_path / "cifar-10-batches-bin" / name
        write_records(path, made_images(number, PER_FILE), made_labels(PER_FILE))
    write_mat(tmp_path / "train_32x32.mat", made_images(10, 41), np.arange(41) % 10)
    write_mat(tmp_path / "test_32x32.mat", made_images(11, 37), np.arange(37) % 10)
    return tmp_path


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """The three .npz files in the layout of the shared copies."""
    write_strips(
        tmp_path / "cifar10.npz",
        train=(made_images(0, 203), made_labels(203)),
        test=(made_images(1, PER_FILE), made_labels(PER_FILE)),
    )
    write_strips(tmp_path / "svhn_test10k.npz", test=(made_images(2, 43), np.arange(43, dtype=np.uint8) % 10))
    textures = np.full((60, 32, 32, 3), 7, np.uint8)
    np.savez(tmp_path / "dtd10_32.npz", images=textures, labels=np.arange(60, dtype=np.uint8) % 10)
    return tmp_path


def images_of(data: BagDataset, ood_set: str) -> np.ndarray:
    test = data.split("test")
    chosen = test.subset([i for i, name in enumerate(test.ood_sets) if name == ood_set])
    return chosen.instances[chosen.positions]


def test_binary_cifar_files_are_read_in_order_with_their_planes_as_channels(official: Path) -> None:
    train, test = read_cifar10(official, "train"), read_cifar10(official, "test")
    assert np.array_equal(train.instances, np.concatenate([made_images(i, PER_FILE) for i in range(5)]))
    assert train.labels.tolist() == made_labels(PER_FILE).tolist() * 5
    assert np.array_equal(test.instances, made_images(5, PER_FILE))
    for array, dtype in ((train.instances, np.uint8), (train.labels, np.int64)):
        assert array.dtype == dtype
        assert array.flags.c_contiguous


def test_webp_strips_give_back_every_pixel(archives: Path) -> None:
    train = read_cifar10(archives, "train")
    assert np.array_equal(train.instances, made_images(0, 203))
    assert np.array_equal(train.labels, made_labels(203))
    svhn = read_svhn(archives, "test")
    assert np.array_equal(svhn.instances, made_images(2, 43))
    assert svhn.labels.dtype == np.int64
    assert svhn.labels.tolist() == (np.arange(43) % 10).tolist()
    assert read_dtd(archives).labels.tolist() == list(range(10)) * 6


def test_official_files_are_taken_before_an_archive(official: Path) -> None:
    write_strips(official / "cifar10.npz", test=(made_images(8, 5), made_labels(5)))
    write_strips(official / "svhn_test10k.npz", test=(made_images(9, 5), made_labels(5)))
    assert np.array_equal(read_cifar10(official, "test").instances, made_images(5, PER_FILE))
    assert np.array_equal(read_svhn(official, "test").instances, made_images(11, 37))


def test_matlab_files_of_svhn_call_the_digit_zero_ten(official: Path) -> None:
    train = read_svhn(official, "train")
    assert np.array_equal(train.instances, made_images(10, 41))
    assert train.labels.tolist() == (np.arange(41) % 10).tolist()
    assert train.instances.flags.c_contiguous


def test_textures_are_resized_whole_with_antialiasing(tmp_path: Path) -> None:
    folder = tmp_path / "dtd" / "images" / "striped"
    folder.mkdir(parents=True)
    halves = np.zeros((64, 96, 3), np.uint8)
    halves[:, 48:] = 255
    Image.fromarray(halves).save(folder / "halves.jpg", quality=100, subsampling=0)
    stripes = np.zeros((96, 96, 3), np.uint8)
    stripes[::3] = 255  # without antialiasing, every row would be black or white
    Image.fromarray(stripes).convert("L").save(folder / "stripes.jpg", quality=100)
    (folder / ".directory").write_text("the published archive holds such files")
    halves_small, stripes_small = read_dtd(tmp_path).instances
    assert halves_small.shape == stripes_small.shape == (32, 32, 3)
    assert halves_small[:, :15].max() <= 2
    assert halves_small[:, 17:].min() >= 253
    assert np.abs(stripes_small[4:-4].astype(int) - 85).max() <= 30


def test_textures_are_labeled_by_their_folders_in_alphabetical_order(tmp_path: Path) -> None:
    write_textures(tmp_path, 47)
    name, pool = read_ood(tmp_path, "dtd")
    assert name == "dtd"
    assert pool.labels.tolist() == list(range(47))
    assert np.abs(pool.instances.astype(int) - 5 * np.arange(47)[:, None, None, None]).max() <= 1


def test_a_foreign_set_is_named_for_what_its_files_hold(official: Path) -> None:
    write_textures(official, 11)
    assert read_ood(official, "dtd")[0] == "dtd-part"
    assert read_ood(official, "svhn")[0] == "svhn"
    (official / "train_32x32.mat").unlink()
    name, pool = read_ood(official, "svhn")
    assert (name, len(pool.labels)) == ("svhn-test", 37)
    (official / "test_32x32.mat").unlink()
    write_strips(official / "svhn_test10k.npz", test=(made_images(2, 5), made_labels(5)))
    name, pool = read_ood(official, "svhn")
    assert (name, len(pool.labels)) == ("svhn-part", 5)


def test_cifar_bags_hold_trucks_in_every_other_bag_and_foreign_images_in_their_own_sets(archives: Path) -> None:
    data = cifar10_bags(archives, ood=OOD_SOURCES, sizes=SMALL)
    assert [data.splits.count(split) for split in SMALL] == [20, 10, 45]
    assert data.instances.dtype == np.uint8
    assert data.instance_shape == (32, 32, 3)
    assert len(set(data.ids)) == len(data)
    for split, count in SMALL.items():
        part = data.split(split)
        assert part.labels.values[~part.is_ood.out_of_distribution].tolist() == [1 - i % 2 for i in range(count)]
    test = data.split("test")
    assert [test.ood_sets.count(name) for name in ("", "svhn-part", "dtd-part")] == [15, 15, 15]
    assert not test.labels.known[test.is_ood.out_of_distribution].any()
    assert (images_of(data, "dtd-part") == 7).all()
    svhn = {image.tobytes() for image in made_images(2, 43)}
    assert {image.tobytes() for image in images_of(data, "svhn-part")} <= svhn


def test_images_and_their_labels_stay_together_in_the_bags(archives: Path) -> None:
    data = cifar10_bags(archives, ood=("svhn",), ood_ratio=0.5, sizes=SMALL)
    own = {
        split: dict(zip((image.tobytes() for image in made_images(seed, count)), made_labels(count), strict=True))
        for split, seed, count in (("train", 0, 203), ("test", 1, PER_FILE))
    }
    for split, source in (("train", "train"), ("validation", "train"), ("test", "test")):
        part = data.split(split)
        for place in part.positions:
            label = own[source].get(data.instances[place].tobytes())
            assert (label is None) == data.instance_is_ood.values[place]
            if label is not None:
                assert data.instance_labels.values[place] == (label == TARGET)


def test_every_foreign_source_starts_from_the_state_after_twice_n_bags(archives: Path) -> None:
    alone = cifar10_bags(archives, splits=["test"], ood=("dtd",), ood_ratio=0.5, sizes=SMALL)
    second = cifar10_bags(archives, splits=["test"], ood=OOD_SOURCES, ood_ratio=0.5, sizes=SMALL)
    assert np.array_equal(images_of(alone, "dtd-part"), images_of(second, "dtd-part"))
    random = np.random.RandomState(SEEDS["test"])
    drawn = draw_bags(random, made_labels(PER_FILE) == TARGET, 30)
    replaced = with_ood_instances(random, drawn[15:], 60, 0.5)
    images = [
        np.where(b.is_ood[:, None, None, None], 7, made_images(1, PER_FILE)[b.members * ~b.is_ood])
        for b in replaced
    ]
    assert np.array_equal(images_of(alone, "dtd-part"), np.concatenate(images))
    own = np.concatenate([made_images(1, PER_FILE)[bag.members] for bag in drawn[:15]])
    assert np.array_equal(images_of(alone, ""), own)
    assert np.array_equal(images_of(cifar10_bags(archives, splits=["test"], sizes=SMALL), ""), own)


def test_a_split_is_the_same_whichever_others_are_drawn(archives: Path) -> None:
    together = cifar10_bags(archives, splits=["test", "validation"], sizes=SMALL)
    assert together.splits == ("test",) * 15 + ("validation",) * 10
    validation, alone = together.split("validation"), cifar10_bags(archives, splits=["validation"], sizes=SMALL)
    assert np.array_equal(together.instances[validation.positions], alone.instances)


def test_drawing_shows_how_many_bags_of_each_split_are_drawn(
    archives: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cifar10_bags(archives, sizes=SMALL)
    assert capsys.readouterr().err == ""
    cifar10_bags(archives, sizes=SMALL, ood=["svhn"], progress=True)
    shown = capsys.readouterr().err
    for split, count in SMALL.items():
        total = 2 * count if split == "test" else count
        assert f"{total}/{total} bags" in next(line for line in shown.splitlines() if f"drawing {split}" in line)


def test_unknown_splits_and_foreign_sources_are_named(archives: Path) -> None:
    with pytest.raises(ConfigError, match="OOD source 'svnh': .* did you mean 'svhn'"):
        cifar10_bags(archives, splits=["train"], ood=("svnh",), sizes=SMALL)
    with pytest.raises(ConfigError, match="OOD source 'fmnist'"):
        read_ood(archives, "fmnist")
    with pytest.raises(ConfigError, match="split 'valid': .* did you mean 'validation'"):
        cifar10_bags(archives, splits=["valid"], sizes=SMALL)


def test_absent_images_name_both_layouts(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cifar10 train images: expected .*data_batch_1.bin .*or cifar10.npz"):
        read_cifar10(tmp_path, "train")
    with pytest.raises(
        StorageError, match=r"expected cifar-10-batches-bin/test_batch.bin or cifar10.npz.* --source"
    ):
        read_cifar10(tmp_path, "test")
    for split in ("train", "test"):
        with pytest.raises(StorageError, match=rf"svhn {split} images: .*{split}_32x32.mat.* or svhn_test10k.npz"):
            read_svhn(tmp_path, split)
    with pytest.raises(StorageError, match=r"expected dtd/images/<class>/\*.jpg or dtd10_32.npz, got none"):
        read_dtd(tmp_path)


def test_the_archive_of_test_images_is_not_taken_for_the_train_split(archives: Path) -> None:
    with pytest.raises(StorageError, match="svhn train images: expected train_32x32.mat"):
        read_svhn(archives, "train")
    write_strips(archives / "cifar10.npz", test=(made_images(1, 3), made_labels(3)))
    with pytest.raises(StorageError, match="no cifar10 train images"):
        read_cifar10(archives, "train")


def test_pickled_cifar_files_are_refused_for_the_binary_version(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(StorageError, match="expected cifar-10-batches-bin/data_batch_1.bin"):
        read_cifar10(tmp_path, "train")


def test_a_batch_that_is_missing_among_others_is_named(official: Path) -> None:
    (official / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    write_strips(official / "cifar10.npz", train=(made_images(0, 3), made_labels(3)))
    with pytest.raises(StorageError, match=r"data_batch_3.bin': expected an existing file"):
        read_cifar10(official, "train")


def test_damaged_cifar_records_are_named(official: Path) -> None:
    path = official / "cifar-10-batches-bin" / "test_batch.bin"
    whole = path.read_bytes()
    for content, message in (
        (whole[:-5], "122915 bytes, not a multiple of 3073"),
        (b"\x0a" + whole[1:], "labels from 0 to 10, beyond 10 classes"),
        (b"", "no images"),
    ):
        path.write_bytes(content)
        with pytest.raises(StorageError, match=f"test_batch.bin.*whole, readable file, got {message}"):
            read_cifar10(official, "test")


def test_damaged_matlab_files_are_named(official: Path) -> None:
    path = official / "test_32x32.mat"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-1000], whole[:100], b"", b"no matlab file" * 30):
        path.write_bytes(content)
        with pytest.raises(StorageError, match="test_32x32.mat.*whole, readable file"):
            read_svhn(official, "test")
    savemat(path, {"X": np.zeros((32, 32, 3, 2), np.uint8)})
    with pytest.raises(StorageError, match="no arrays X and y"):
        read_svhn(official, "test")
    savemat(path, {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[3], [11]])})
    with pytest.raises(StorageError, match="y from 3 to 11"):
        read_svhn(official, "test")


def test_damaged_archives_are_named(archives: Path) -> None:
    path = archives / "cifar10.npz"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"PK not an archive", b""):
        path.write_bytes(content)
        with pytest.raises(StorageError, match="cifar10.npz.*whole, readable file"):
            read_cifar10(archives, "train")
    images = made_images(0, 7)
    write_strips(path, train=(images, made_labels(6)))
    with pytest.raises(StorageError, match=r"\(7, 32, 32, 3\) and 6 labels"):
        read_cifar10(archives, "train")
    write_strips(path, train=(images[:, :, :31], made_labels(7)))
    with pytest.raises(StorageError, match="224×31 pixels"):
        read_cifar10(archives, "train")
    np.savez(
        path, train_webp=np.zeros(50, np.uint8), train_webp_offsets=np.array([0, 50]), train_labels=made_labels(1)
    )
    with pytest.raises(StorageError, match="cifar10.npz.*cannot identify image"):
        read_cifar10(archives, "train")
    np.savez(archives / "dtd10_32.npz", images=images)
    with pytest.raises(StorageError, match="dtd10_32.npz.*labels is not a file in the archive"):
        read_dtd(archives)


def test_an_archive_with_objects_is_not_unpickled(archives: Path) -> None:
    labels = np.array([{"an": "object"}], dtype=object)
    write_strips(archives / "cifar10.npz", train=(made_images(0, 1), labels))
    np.savez(archives / "dtd10_32.npz", images=made_images(0, 1), labels=labels)
    with pytest.raises(StorageError, match="allow_pickle=False"):
        read_cifar10(archives, "train")
    with pytest.raises(StorageError, match="allow_pickle=False"):
        read_dtd(archives)


@pytest.fixture
def texture(tmp_path: Path) -> Path:
    path = tmp_path / "dtd" / "images" / "banded" / "banded_0001.jpg"
    path.parent.mkdir(parents=True)
    Image.fromarray(made_images(0, 1)[0]).save(path)
    return path


def test_a_damaged_texture_is_named(texture: Path, tmp_path: Path) -> None:
    texture.write_bytes(texture.read_bytes()[:-200])
    with pytest.raises(StorageError, match="banded_0001.jpg.*truncated"):
        read_dtd(tmp_path)


def test_a_texture_of_too_many_pixels_is_named(
    texture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(StorageError, match="banded_0001.jpg.*decompression bomb"):
        read_dtd(tmp_path)


@pytest.mark.slow
def test_bags_of_the_real_images_are_balanced_and_whole(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cifar10.npz", "svhn_test10k.npz", "dtd10_32.npz"):
        if not (shared_data / name).exists():
            pytest.skip(f"needs {name} in ../shared/data")
    train = read_cifar10(shared_data, "train")
    assert train.instances.shape == (50000, 32, 32, 3)
    assert np.bincount(train.labels).tolist() == [5000] * 10
    assert train.instances.mean((0, 1, 2)) == pytest.approx((125.307, 122.950, 113.865), abs=0.01)
    read = {"train": train, "test": read_cifar10(shared_data, "test")}
    monkeypatch.setattr(cifar10, "read_cifar10", lambda _, split: read[split])  # decoding takes seconds
    data = cifar10_bags(shared_data, ood=OOD_SOURCES, sizes=SMALL)
    assert SIZES == {"train": 6000, "validation": 1000, "test": 2000}
    trucks = {image.tobytes() for image in train.instances[train.labels == 9]}
    first = data.instances[: data.sizes[0]]
    assert [int(image.tobytes() in trucks) for image in first] == data.instance_labels.values[
        : len(first)
    ].tolist()
    assert data.instance_shape == (32, 32, 3)
    assert [data.splits.count(split) for split in SMALL] == [20, 10, 45]
    assert [data.ood_sets.count(name) for name in ("svhn-part", "dtd-part")] == [15, 15]
    assert data.labels.values[data.labels.known].tolist() == [1, 0] * 10 + [1, 0] * 5 + [1, 0] * 7 + [1]
    assert data.sizes.mean() == pytest.approx(9.5, abs=0.7)
    images = images_of(data, "svhn-part")
    assert images.mean((0, 1, 2)) / 255 == pytest.approx((0.454, 0.454, 0.470), abs=0.06)
