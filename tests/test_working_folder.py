"""What is read when it is asked for is found where it was opened, wherever the program is by then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_files import features_of, trident
from made_parts import ragged

import miue
from miue.io import describe_bags, find_bags_again
from miue.predictions import StoredInstances

COHORTS = ("first", "second")


def write_array(folder: Path, values: np.ndarray) -> None:
    folder.mkdir(parents=True)
    np.save(folder / "s.npy", values)


def write_hdf5(folder: Path, values: np.ndarray) -> None:
    trident(folder, "s", values)


@pytest.mark.parametrize("write", [write_array, write_hdf5])
def test_features_are_read_from_the_folder_in_which_they_were_opened(
    write: Callable[[Path, np.ndarray], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cohorts in folders of one form: after a change of folder, the features of the other one were read."""
    for number, cohort in enumerate(COHORTS):
        write(tmp_path / cohort / "features", features_of(3) + 10 * number)
    monkeypatch.chdir(tmp_path / "first")
    bags = miue.load_bags("features").bags
    for place in (tmp_path / "second", tmp_path):
        monkeypatch.chdir(place)
        assert np.array_equal(np.asarray(bags.instances), features_of(3))
    described = describe_bags(bags, tmp_path / "copy")
    assert np.array_equal(np.asarray(find_bags_again(described).instances), features_of(3))


def test_instances_of_predictions_are_read_from_the_folder_in_which_they_were_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that was seen to be whole was not compared again: those of the other cohort were returned."""
    wanted = {}
    for seed, cohort in enumerate(COHORTS):
        monkeypatch.chdir(tmp_path)
        predictions = ragged([3, 2], seed=seed)
        predictions.save(f"{cohort}/predictions")
        assert predictions.instances is not None
        wanted[cohort] = predictions.instances.probabilities
    assert not np.allclose(wanted["first"], wanted["second"])
    monkeypatch.chdir(tmp_path / "first")
    read = miue.read_predictions("predictions").instances
    assert isinstance(read, StoredInstances) and len(next(iter(read.parts()))) == 5
    chosen = read.of_bags([str(read.bag_ids[0])])
    for place in (tmp_path / "second", tmp_path):
        monkeypatch.chdir(place)
        assert np.allclose(next(iter(read.parts())).probabilities, wanted["first"])
        assert np.allclose(next(iter(chosen.parts())).probabilities, wanted["first"][: len(chosen)])
        names = [str(name) for name in dict.fromkeys(predictions.bags.bag_ids)]
        for later in (read.of_bags(names), read.in_order(names), read.flagged_by(lambda table: table)):
            assert np.allclose(later.probabilities, wanted["first"])


def test_where_the_working_folder_was_removed_features_elsewhere_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_array(tmp_path / "features", features_of(3))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    bags = miue.load_bags(tmp_path / "features").bags
    assert np.array_equal(np.asarray(bags.instances), features_of(3))
