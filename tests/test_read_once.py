"""Bags of files are read once for all epochs, folds and seeds, as far as they fit into memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import made_files
import numpy as np
import pytest
from commands import run

import miue
from miue.bags import BagDataset
from miue.common.errors import DataError
from miue.io import instances, load_bags, make_folds
from miue.io.formats import read_rows
from miue.selection import cross_validate

SETTINGS: dict[str, Any] = {"max_epochs": 2, "distances": (), "device": "cpu"}


@pytest.fixture
def times_read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file is read, but for what is read of it where bags are listed."""
    times: Counter[str] = Counter()

    def counted(path: Path, *args: Any, **kwargs: Any) -> np.ndarray:
        times[path.stem] += 1
        return read_rows(path, *args, **kwargs)

    monkeypatch.setattr(instances, "read_rows", counted)
    return times


def load(folder: Path) -> BagDataset:
    features, labels = made_files.slides(folder, patients=8)
    return load_bags(features, labels=labels).bags


def trained(bags: BagDataset, **settings: Any) -> str:
    return miue.train(bags, settings={**SETTINGS, **settings}, progress=False).weights_sha256


def test_what_fits_is_read_once_and_trains_to_the_same_weights(
    tmp_path: Path, times_read: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = trained(load(tmp_path))
    assert set(times_read.values()) == {1}
    times_read.clear()
    assert trained(load(tmp_path), memory_share=0.0) == weights
    assert min(times_read.values()) > 1
    times_read.clear()
    monkeypatch.setattr(instances, "free_memory", lambda: 4 * 12 * 6 * 4)  # about twelve instances of each quarter
    assert trained(load(tmp_path)) == weights
    assert min(times_read.values()) == 1 and max(times_read.values()) > 1


def test_a_share_of_the_instances_is_drawn_from_bags_that_are_read_once(
    tmp_path: Path, times_read: Counter[str]
) -> None:
    weights = trained(load(tmp_path), instances_per_bag=2)
    assert set(times_read.values()) == {1}
    assert trained(load(tmp_path), instances_per_bag=2, memory_share=0.0) == weights


@pytest.mark.long
def test_folds_and_seeds_read_each_file_once(tmp_path: Path, times_read: Counter[str]) -> None:
    bags = load(tmp_path)
    recipe = miue.Recipe(settings={"max_epochs": 1}, distances=())
    cross_validate(bags, make_folds(bags, 2), [1, 2], tmp_path / "out", recipe, progress=False)
    assert set(times_read.values()) == {1} and len(times_read) == len(bags)


def test_no_more_is_kept_where_memory_shrinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bags = load(tmp_path)
    free = iter([*[1 << 20] * 5, *[0] * 1000])
    monkeypatch.setattr(instances, "free_memory", lambda: next(free))
    assert instances.keep_in_memory(bags.instances, 0.25) == bags.instances[:].nbytes
    assert isinstance(bags.instances, instances.FileInstances)
    assert list(bags.instances._kept) == [0, 1, 2, 3, 4]


def test_what_is_kept_is_not_changed_by_who_reads_it(tmp_path: Path) -> None:
    bags = load(tmp_path)
    instances.keep_in_memory(bags.instances, 0.25)
    before = bags.batch([2]).instances.clone()
    bags.batch([2]).instances.zero_()
    assert (bags.batch([2]).instances == before).all()


def test_a_file_that_changes_is_refused_where_it_is_read_again(tmp_path: Path) -> None:
    bags = load(tmp_path)
    made_files.trident(tmp_path / "features_uni_v1", bags.ids[1], made_files.features_of(90, 6))
    instances.keep_in_memory(bags.instances, 0.25)
    with pytest.raises(DataError) as refused:
        trained(bags)
    assert repr(str(tmp_path / "features_uni_v1" / f"{bags.ids[1]}.h5")) in refused.value.item


def test_training_says_how_much_is_kept(tmp_path: Path) -> None:
    features, labels = made_files.slides(tmp_path)
    train = ("train", features, "--labels", labels, "--set", "max_epochs=1", "--distance", "none")
    assert "MB in files, kept in memory once they are read (memory_share 0.25" in run(
        *train, "--out", tmp_path / "a"
    )
    said = run(*train, "--out", tmp_path / "b", "--memory-share", "0")
    assert "of which 0 MB are kept in memory" in said
