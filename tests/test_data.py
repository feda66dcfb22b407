"""Bag datasets, the store, and the bags that are drawn."""

from __future__ import annotations

import gzip
import itertools
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import miue
from miue.bags import BagDataset, Coords, Labels, as_float
from miue.bags.arrays import PartedInstances
from miue.common.errors import ConfigError, DataError, MiueError, StorageError
from miue.datasets.digits import IMAGES, digits_bags
from miue.datasets.drawing import DrawnBag, Pool, draw_bags, drawn_dataset, with_ood_instances
from miue.datasets.gaussian import CENTERS, gaussian_bags
from miue.datasets.images import read_idx, read_images
from miue.datasets.mnist import mnist_bags
from miue.io import load_bags

SMALL = {"train": 20, "validation": 10, "test": 15}


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = (
        struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    )
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """Small MNIST and FMNIST as idx files in torchvision's folders, KMNIST's test split as an archive."""
    random = np.random.default_rng(0)
    for folder, prefix in (("MNIST", "train"), ("MNIST", "t10k"), ("FashionMNIST", "train")):
        images = random.integers(0, 256, (400, 28, 28), dtype=np.uint8)
        raw = tmp_path / folder / "raw"
        write_idx(raw / f"{prefix}-images-idx3-ubyte.gz", images)
        write_idx(raw / f"{prefix}-labels-idx1-ubyte", random.integers(0, 10, 400, dtype=np.uint8))
    labels = np.zeros(90, np.uint8)
    np.savez(tmp_path / "kmnist.npz", test_images=np.full((90, 28, 28), 7, np.uint8), test_labels=labels)
    return tmp_path


def test_drawn_bags_have_the_published_sizes_and_classes() -> None:
    is_positive = np.arange(1000) % 10 == 9
    bags = draw_bags(np.random.RandomState(96), is_positive, 400)
    sizes = np.array([len(bag.members) for bag in bags])
    assert sizes.min() >= 1
    assert sizes.mean() == pytest.approx(9.5, abs=0.3)  # the normal draw is rounded down
    for number, bag in enumerate(bags):
        assert len(set(bag.members)) == len(bag.members)
        assert is_positive[bag.members].any() == (number % 2 == 0)


def test_a_positive_bag_of_one_instance_is_drawn() -> None:
    bags = draw_bags(np.random.RandomState(0), np.arange(50) < 5, 200, mean_size=1.0, size_deviation=0.0)
    assert all(len(bag.members) == 1 for bag in bags)


@pytest.mark.parametrize("ratio", [0.0, 0.05, 0.5, 1.0])
def test_a_share_of_each_bag_is_replaced_by_foreign_instances(ratio: float) -> None:
    bags = draw_bags(np.random.RandomState(1), np.arange(100) < 10, 30)
    replaced = with_ood_instances(np.random.RandomState(2), bags, 77, ratio)
    for before, after in zip(bags, replaced, strict=True):
        size = len(before.members)
        assert after.is_ood.sum() == (0 if ratio == 0 else max(1, int(ratio * size)))
        assert np.array_equal(before.members[~after.is_ood], after.members[~after.is_ood])


def test_labels_of_partly_and_wholly_foreign_bags() -> None:
    pool = Pool(np.arange(3, dtype=np.float32)[:, None], np.array([9, 1, 9]))
    foreign = Pool(np.full((2, 1), 50, np.float32), np.zeros(2, np.int64))
    bags = [
        DrawnBag(np.array([0, 1]), np.array([True, False])),  # the 9 was replaced
        DrawnBag(np.array([1, 2]), np.array([True, False])),
        DrawnBag(np.array([0, 1]), np.array([True, True])),
    ]
    data = drawn_dataset(bags, pool, 9, split="test", ood_set="f", ood_pool=foreign)
    assert data.labels.known.tolist() == [True, True, False]
    assert data.labels.values.tolist() == [0, 1, 0]
    assert data.instances[:, 0].tolist() == [50, 1, 50, 2, 50, 50]
    assert data.instance_labels.known.tolist() == [False, True, False, True, False, False]
    assert data.instance_is_ood.values.tolist() == [True, False, True, False, True, True]
    assert data.ood_sets == ("f", "f", "f")


def test_mnist_bags_from_idx_files_and_archives(image_folder: Path) -> None:
    data = mnist_bags(image_folder, ood=("fmnist", "kmnist"), sizes=SMALL)
    test = data.split("test")
    assert [data.splits.count(split) for split in SMALL] == [20, 10, 45]
    assert [test.ood_sets.count(name) for name in ("", "fmnist", "kmnist-test")] == [15, 15, 15]
    assert data.instance_shape == (28, 28, 1)
    assert data.instances.dtype == np.uint8
    foreign = test.subset([i for i, name in enumerate(test.ood_sets) if name == "kmnist-test"])
    assert (foreign.instances[foreign.positions] == 7).all()
    alone = mnist_bags(image_folder, splits=["test"], sizes=SMALL)
    assert np.array_equal(alone.instances, test.instances[test.subset(np.arange(15)).positions])


def test_mnist_test_bags_are_the_published_ones(shared_data: Path) -> None:
    """Digits of some test bags as the published predictions list them."""
    pool = read_images(shared_data, "mnist", "test")
    bags = draw_bags(np.random.RandomState(96), pool.labels == 9, 2000)
    published = {
        0: [9, 3, 9, 9, 4, 9, 9, 9, 9, 9],
        1: [7, 7, 3, 8, 7, 6, 5, 2, 4],
        6: [9, 1, 2, 9, 9, 9, 9, 2],
        20: [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 2, 9, 9, 9],
        34: [1, 9, 9, 2, 9, 3, 6],
    }
    assert {number: pool.labels[bags[number].members].tolist() for number in published} == published


def test_gaussian_bags_lie_around_their_centres() -> None:
    data = gaussian_bags(splits=["train", "test"], sizes=SMALL)
    positive = data.instances[data.instance_labels.known & (data.instance_labels.values == 1)]
    assert np.abs(positive.mean(0) - CENTERS[0]).max() < 0.2
    assert np.abs(data.instances[data.instance_is_ood.values].mean(0) - (5, -5)).max() < 0.2
    assert data.instances.shape[1] == 2


def test_digits_are_of_one_part_but_those_of_calibration_and_test_and_every_other_bag_contains_a_nine() -> None:
    assert sum(IMAGES.values()) == 1797
    data = digits_bags(sizes={**SMALL, "calibration": 100})
    test = data.split("test")
    assert test.ood_sets.count("photographs") == 15
    inside = test.is_ood.in_distribution
    assert test.labels.values[inside].tolist() == [1, 0] * 7 + [1]
    known = data.subset(np.flatnonzero(data.is_ood.in_distribution))
    images = {
        split: {image.tobytes() for image in data.instances[known.split(split).positions]}
        for split in ("train", "validation", "calibration", "test")
    }
    for first, second in itertools.combinations(images, 2):
        shared = len(images[first] & images[second])  # the dataset itself has a few identical images
        assert shared > 50 if {first, second} == {"calibration", "test"} else shared <= 2, (first, second)


def test_a_calibration_split_of_digits_changes_no_other_bag_for_training() -> None:
    sizes = {"train": 4, "validation": 3}
    without, with_it = digits_bags(sizes=sizes), digits_bags(sizes={**sizes, "calibration": 5})
    for split in sizes:
        one, other = without.split(split), with_it.split(split)
        assert np.array_equal(without.instances[one.positions], with_it.instances[other.positions])
    assert with_it.splits.count("calibration") == 5


def test_a_store_gives_back_what_was_written(tmp_path: Path) -> None:
    data = digits_bags(sizes=SMALL)
    miue.write_store(tmp_path / "store", data, made_by={"command": "test"})
    back = miue.read_store(tmp_path / "store")
    assert isinstance(back.instances, np.memmap)
    for field in ("ids", "splits", "ood_sets", "class_names"):
        assert getattr(back, field) == getattr(data, field)
    for field in ("instances", "sizes"):
        assert np.array_equal(getattr(back, field), getattr(data, field))
    for field in ("labels", "instance_labels", "is_ood", "instance_is_ood"):
        ours, theirs = getattr(back, field), getattr(data, field)
        assert np.array_equal(ours.known, theirs.known)
        assert np.array_equal(ours.values[ours.known], theirs.values[theirs.known])
    assert not any(b"pickle" in path.read_bytes()[:200] for path in (tmp_path / "store").iterdir())


def test_a_subset_is_stored_in_its_own_order_with_its_coordinates(tmp_path: Path) -> None:
    data = BagDataset.from_arrays(
        [np.full((2, 3), 1.0), np.full((1, 3), 2.0), np.full((3, 3), 3.0)], [0, 1, None], ids=["007", "b,c", "ü"]
    )
    data = replace(data, coords=Coords.of(np.arange(12).reshape(6, 2)))
    miue.write_store(tmp_path / "store", data.subset([2, 0]))
    back = miue.read_store(tmp_path / "store")
    assert back.ids == ("ü", "007")
    assert back.instances[:, 0].tolist() == [3, 3, 3, 1, 1]
    assert back.coords is not None
    assert back.coords.values[:, 0].tolist() == [6, 8, 10, 0, 2]
    assert back.labels.known.tolist() == [False, True]


class Counted(PartedInstances):
    """Instances that count the bags that are read of them."""

    reads = 0

    def read_span(self, part: int, start: int, stop: int) -> np.ndarray:
        self.reads += 1
        return np.full((stop - start, *self.shape[1:]), part if start else np.nan, np.float32)


def test_a_store_is_written_while_its_bags_are_read_once_and_a_bad_one_leaves_nothing(tmp_path: Path) -> None:
    instances = Counted([5, 7], (2,), np.dtype(np.float32))
    bags = BagDataset.packed(instances, np.array([1, 4, 1, 6]), "abcd")
    miue.write_store(tmp_path / "store", bags.subset([1, 3]))
    assert instances.reads == 2
    assert np.array_equal(miue.read_store(tmp_path / "store").instances, np.repeat([[0.0, 0], [1, 1]], [4, 6], 0))
    with pytest.raises(DataError, match="bag 'c', row 0: expected finite"):
        miue.write_store(tmp_path / "bad", bags.subset([1, 2]))
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_bags_without_coords_beside_bags_with_them_are_stored_so(tmp_path: Path) -> None:
    data = BagDataset.from_arrays([np.zeros((2, 3)), np.zeros((1, 3)), np.zeros((3, 3))], ids=["a", "b", "c"])
    known = np.array([True, True, False, True, True, True])
    data = replace(data, coords=Coords(np.arange(12).reshape(6, 2), known))
    miue.write_store(tmp_path / "store", data.subset([2, 1]))
    back = miue.read_store(tmp_path / "store")
    assert back.coords is not None and back.coords.known.tolist() == [True, True, True, False]
    assert data.without_coords == back.without_coords == ("b",)
    assert not data.subset([0, 2]).without_coords
    miue.write_store(tmp_path / "whole", data.subset([0, 2]))
    assert not (tmp_path / "whole" / "located.npy").exists()
    assert not miue.read_store(tmp_path / "whole").without_coords


def test_a_store_names_the_classes_of_instances_as_well(tmp_path: Path) -> None:
    """It was written with the names of the bags' classes alone, and could not be read."""
    arrays = [np.ones((2, 3)) * number for number in range(3)]
    bags = BagDataset.from_arrays(arrays, [0, 1, 1], instance_labels=[[0, 0], [2, None], [3, 0]])
    for chosen, names in (([0, 1, 2], ("0", "1", "2", "3")), ([1, 0], ("0", "1", "2")), ([0], ("0", "1"))):
        part = bags.subset(chosen)
        miue.write_store(tmp_path / str(len(names)), part)
        read = miue.read_store(tmp_path / str(len(names)))
        assert read.class_names == names
        assert np.array_equal(read.instance_labels.values, part.instance_labels.values[part.positions])
        assert np.array_equal(read.instance_labels.known, part.instance_labels.known[part.positions])


def test_half_precision_features_stay_half(tmp_path: Path) -> None:
    data = BagDataset.from_arrays([np.ones((2, 3), np.float16)])
    miue.write_store(tmp_path / "store", data)
    back = miue.read_store(tmp_path / "store")
    assert back.instances.dtype == np.float16
    assert back.batch([0]).instances.dtype.itemsize == 2


def test_batches_pack_bags_in_the_order_asked(bags: BagDataset) -> None:
    batch = bags.batch([5, 0])
    expected = np.concatenate(
        [bags.instances[s : s + n] for s, n in ((bags.starts[i], bags.sizes[i]) for i in (5, 0))]
    )
    assert np.array_equal(batch.instances.numpy(), expected)
    assert batch.segments.sizes.tolist() == bags.sizes[[5, 0]].tolist()
    assert batch.labels.tolist() == bags.labels.values[[5, 0]].tolist()


def test_a_number_that_float32_cannot_hold_is_called_so_and_not_infinite(tmp_path: Path) -> None:
    large = np.ones((4, 3))
    large[2, 1] = -1e300
    said = r"expected features that float32 can hold, of at most 3.4e\+38, got 1 number beyond it, first -1e\+300"
    with pytest.raises(DataError, match=f"bag 'slide_1': {said}"):
        BagDataset.from_arrays([large], ids=["slide_1"])
    frame = pd.DataFrame(large, columns=list("abc")).assign(bag_id="s", label=0)
    with pytest.raises(DataError, match=r"column 'b': .*got 1 number beyond it, first -1e\+300"):
        BagDataset.from_frame(frame, bag="bag_id", label="label")
    np.save(tmp_path / "s.npy", large)
    with pytest.raises(DataError, match=said):
        load_bags(tmp_path).bags.batch([0])
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match=r"\(line 4, column 'b', which is infinite or beyond 3.4e\+38"):
        load_bags(tmp_path / "t.csv")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_feature_that_is_not_finite_is_named_by_bag_and_row(value: float, tmp_path: Path) -> None:
    broken = np.ones((4, 3))
    broken[2, 1] = value
    message = r"bag 'slide_2', row 2: expected finite features, got NaN or infinity in 1 of 4 rows"
    with pytest.raises(DataError, match=message):
        BagDataset.from_arrays([np.ones((1, 3)), broken], ids=["slide_1", "slide_2"])
    data = BagDataset.from_arrays([np.ones((1, 3)), np.ones((4, 3))], ids=["slide_1", "slide_2"])
    np.asarray(data.instances)[3, 1] = value
    with pytest.raises(DataError, match=message):
        data.batch([0, 1])
    with pytest.raises(DataError, match=message):
        miue.write_store(tmp_path / "store", data)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([], "the list of bags"),
        ([np.ones((2, 3)), np.ones((0, 3))], "bag 'bag_1': expected at least one instance"),
        ([np.ones((2, 3)), np.ones((2, 4))], r"bag 'bag_1': expected instances of shape \(3,\)"),
        ([np.ones(3)], r"bag 'bag_0': expected an array \(n, D\)"),
    ],
)
def test_bags_that_cannot_be_used_are_named(arrays: list[np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message):
        BagDataset.from_arrays(arrays)


def test_repeated_ids_wrong_counts_and_wrong_labels_are_named() -> None:
    two = [np.ones((2, 3))] * 2
    with pytest.raises(DataError, match="bag 'a': expected a unique id"):
        BagDataset.from_arrays(two, ids=["a", "a"])
    with pytest.raises(DataError, match="the labels: expected 2, one for each bag, got 3"):
        BagDataset.from_arrays(two, labels=[0, 1, 1])
    with pytest.raises(DataError, match="label 1: expected a class index"):
        BagDataset.from_arrays(two, labels=[0, -1])
    with pytest.raises(DataError, match="instance labels"):
        BagDataset.from_arrays(two, instance_labels=[[0, 1], [0]])
    with pytest.raises(DataError, match="label 0"):
        Labels.of(np.array([0.5]))


def test_a_split_that_does_not_exist_names_those_that_do() -> None:
    with pytest.raises(DataError, match="split 'tset': expected one of train, validation"):
        digits_bags(splits=["train", "validation"], sizes=SMALL).split("tset")


def test_files_that_are_no_store_say_what_they_lack(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such folder"):
        miue.read_store(tmp_path / "nothing")
    with pytest.raises(StorageError, match="a folder without it"):
        miue.read_store(tmp_path)
    store = tmp_path / "store"
    miue.write_store(store, digits_bags(splits=["train"], sizes=SMALL))
    whole = (store / "instances.npy").read_bytes()
    (store / "instances.npy").write_bytes(whole[:-1000])
    with pytest.raises(StorageError, match="truncated"):
        miue.read_store(store)
    (store / "instances.npy").write_bytes(whole)
    lines = (store / "bags.csv").read_text().splitlines()
    (store / "bags.csv").write_text("\n".join([lines[0].replace("size", "sizes"), *lines[1:]]))
    with pytest.raises(DataError, match="columns bag_id, start, size"):
        miue.read_store(store)


def edited(store: Path, row: str) -> Path:
    """The store, after the first bag's line of bags.csv was replaced by hand."""
    path = store / "bags.csv"
    header, _, *rest = path.read_text().splitlines()
    path.write_text("\n".join([header, row, *rest]) + "\n")
    return store


@pytest.fixture
def plain_store(tmp_path: Path) -> Path:
    """Two bags, a and b, of two instances each."""
    data = BagDataset.from_arrays([np.ones((2, 3))] * 2, [0, 1], ids=["a", "b"])
    miue.write_store(tmp_path / "store", replace(data, patients=("p", "q")))
    return tmp_path / "store"


@pytest.mark.parametrize("word", ["1", "yes", "TRUE"])
def test_a_store_edited_by_hand_is_read_as_it_is_meant(word: str, plain_store: Path) -> None:
    bags = miue.read_store(edited(plain_store, f"a,0,2,0,{word},val,x,"))
    assert bags.is_ood.values.tolist() == [True, False] and bags.splits == ("validation", "")
    assert bags.patients == ("a", "q")
    assert miue.read_store(edited(plain_store, "a,0,2,0,,,,")).is_ood.known.tolist() == [False, False]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,0,2,0,maybe,,,", "line 2, column 'is_ood': expected true, false, or empty where unknown, got 'maybe'"),
        ("a,0,2,0,false,trian,,", "bags.csv', line 2, split 'trian': .*did you mean 'train'"),
        ("a,0,3,0,,,,", "bag 'a' of .*bags.csv': expected .* as checksums.csv lists them, got start 0 and size 3"),
        ("c,0,2,0,,,,", "bag 'c' of .*bags.csv': expected .* as checksums.csv lists them"),
        ("a,0,two,0,,,,", "bags.csv', line 2, column 'size': expected a whole number from 0 on, got 'two'"),
        (
            "a,0,2,2,,,,",
            "bags.csv', line 2, column 'label': expected a class index from 0 to 1, or empty .* got '2'",
        ),
        ("b,0,2,0,,,,", "bag 'b' of .*: expected a unique id, got 2"),
        ("a,0,2", "bags.csv': .* Expected 8 columns, got 3: a,0,2"),
        ("a,0,2,0,false,,,p,q", "Expected 8 columns, got 9"),
    ],
)
def test_a_line_of_a_store_that_cannot_be_read_is_named(row: str, message: str, plain_store: Path) -> None:
    with pytest.raises(MiueError, match=message):
        miue.read_store(edited(plain_store, row))


def test_a_store_of_splits_that_nothing_reads_is_not_written(tmp_path: Path) -> None:
    data = replace(BagDataset.from_arrays([np.ones((2, 3))], ids=["a"]), splits=("elsewhere",))
    with pytest.raises(ConfigError, match="split 'elsewhere': expected one of calibration, test, train, val"):
        miue.write_store(tmp_path / "store", data)
    assert not (tmp_path / "store").exists()


def test_a_store_does_not_run_what_a_file_says(tmp_path: Path) -> None:
    store = tmp_path / "store"
    miue.write_store(store, digits_bags(splits=["train"], sizes=SMALL))
    np.save(store / "instances.npy", np.array([{"an": "object"}], dtype=object), allow_pickle=True)
    with pytest.raises(StorageError, match="instances.npy"):
        miue.read_store(store)


def test_image_files_that_are_absent_or_damaged_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="mnist train images: expected mnist.npz or MNIST/raw/train-images"):
        read_images(tmp_path, "mnist", "train")
    (tmp_path / "mnist.npz").write_bytes(b"PK not an archive")
    with pytest.raises(StorageError, match="mnist.npz"):
        read_images(tmp_path, "mnist", "train")
    write_idx(tmp_path / "images", np.zeros((3, 4, 4), np.uint8))
    assert read_idx(tmp_path / "images").shape == (3, 4, 4)
    (tmp_path / "images").write_bytes((tmp_path / "images").read_bytes()[:-5])
    with pytest.raises(StorageError, match="whole, readable file"):
        read_idx(tmp_path / "images")


@pytest.mark.parametrize("label", ["tumour", float("nan"), float("inf"), 1.5, -1])
def test_a_label_that_is_no_class_index_is_shown(label: Any) -> None:
    with pytest.raises(DataError, match="label 1: expected a class index"):
        Labels.of(np.array([0, label], object))


def test_numbers_of_half_width_are_taken_and_bytes_beside_them_are_not() -> None:
    half = BagDataset.from_arrays([torch.ones(2, 3, dtype=torch.bfloat16)])
    assert half.instances.dtype == np.float32
    with pytest.raises(DataError, match="bag 'bag_1': expected float32 .* got uint8"):
        BagDataset.from_arrays([np.ones((2, 3)), np.ones((2, 3), np.uint8)])


def test_bytes_are_brightness_in_images_alone() -> None:
    images, counts = torch.full((1, 2, 2, 1), 255, dtype=torch.uint8), torch.full((1, 4), 255, dtype=torch.uint8)
    assert as_float(images).max() == 1
    assert as_float(counts).max() == 255


def test_every_class_has_a_name() -> None:
    with pytest.raises(DataError, match="class names: expected at least 3"):
        BagDataset.from_arrays([np.ones((2, 3))] * 2, [0, 2], class_names=["a", "b"])
