"""What the patches of features show: stated by the files, kept with bags and models, and compared."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import made_files
import made_stores
import pytest
from commands import run

import miue
from miue import load_bags
from miue.io.formats import contents_of

FEATURES = made_files.features_of(20)
CORNERS = made_files.grid(20, 512)
AT_10, AT_20 = "256 px of 1 µm", "256 px of 0.5 µm"


def of_trident(folder: Path, **attributes: Any) -> Path:
    return made_files.trident(folder, "s", FEATURES, **attributes)


def of_stamp(folder: Path, **attributes: Any) -> Path:
    path = made_files.stamp(folder, "s", FEATURES)
    with h5py.File(path, "a") as file:
        file.attrs.update(attributes)
    return path


@pytest.mark.parametrize(
    ("make", "scale"),
    [
        (of_trident, AT_10),
        (lambda folder: of_trident(folder, target_magnification=20, patch_size=512), "512 px of 0.5 µm"),
        (lambda folder: of_trident(folder, target_magnification="None"), ""),
        (lambda folder: of_trident(folder, target_magnification=0), ""),
        (of_stamp, "224 px of 1.14 µm"),
        (lambda folder: of_stamp(folder, tile_size_px="None"), ""),
        (lambda folder: made_files.clam(folder, "s", FEATURES, CORNERS), ""),
    ],
)
def test_a_file_states_the_scale_of_its_patches(tmp_path: Path, make: Callable[[Path], Path], scale: str) -> None:
    assert contents_of(make(tmp_path), 0.25).patch_scale == scale


@pytest.mark.parametrize(
    ("spec", "scales"),
    [({}, (f"{made_stores.SIDE} px of 0.5 µm",)), ({"mpp": None}, ()), ({"height": 17}, ()), (None, ())],
)
def test_a_store_of_lazyslide_states_it_too(
    tmp_path: Path, spec: dict[str, Any] | None, scales: tuple[str, ...]
) -> None:
    pytest.importorskip("zarr")
    node = made_stores.lazyslide(tmp_path, "s", FEATURES, CORNERS) / "zarr.json"
    content = json.loads(node.read_text())
    tiles = content["attributes"]["tile_spec"]
    tiles["tiles"] = None if spec is None else {**tiles["tiles"], **spec}
    node.write_text(json.dumps(content))
    assert load_bags(tmp_path).bags.patch_scales == scales


def folder_of(folder: Path, *magnifications: object) -> Path:
    """Make a bag for each magnification, of which every second is positive."""
    for number, magnification in enumerate(magnifications):
        features = made_files.features_of(5, seed=number, positive=number % 2 == 1)
        made_files.trident(folder, f"{number:02}", features, target_magnification=magnification)
    return folder


def test_a_folder_of_several_scales_says_which_bags_differ(tmp_path: Path) -> None:
    loaded = load_bags(folder_of(tmp_path, 20, 10, 20, "None"))
    assert loaded.bags.patch_scales == (AT_20, AT_10)
    assert f"1 of 4 bags have patches of another scale than {AT_20} (01: {AT_10})" in loaded.notes
    assert "patch scales  │ 256 px of 0.5 µm 2, 256 px of 1 µm 1" in run("inspect", tmp_path)
    alike = load_bags(folder_of(tmp_path / "alike", 20, 20))
    assert not any("scale" in note for note in alike.notes)


def test_scales_are_kept_by_stores_and_joined_of_parts(tmp_path: Path) -> None:
    low, high, unknown = (
        load_bags(folder_of(tmp_path / str(magnification), magnification)).bags
        for magnification in (10, 20, "None")
    )
    named = [replace(bags, ids=(f"of {row}",)) for row, bags in enumerate((low, high, unknown))]
    assert unknown.patch_scales == ()
    assert miue.concatenate(named).patch_scales == (AT_20, AT_10)
    miue.write_store(tmp_path / "store", low)
    assert miue.read_store(tmp_path / "store").patch_scales == (AT_10,)
    run("data", "pack", tmp_path / "20", "--out", tmp_path / "packed", "--quiet")
    assert miue.read_store(tmp_path / "packed").patch_scales == (AT_20,)
    assert json.loads(run("inspect", tmp_path / "packed", "--json"))["patch scales"] == [AT_20]


@pytest.mark.long
def test_bags_of_another_scale_than_in_training_are_warned_of(tmp_path: Path) -> None:
    """Features of patches of twice the width mean something else, and a model predicts as if nothing were."""
    bags = load_bags(folder_of(tmp_path / "train", *[20] * 20)).bags
    bags = replace(bags, labels=miue.BagDataset.from_arrays([FEATURES] * 20, [0, 1] * 10).labels)
    miue.train(bags, settings={"max_epochs": 1, "device": "cpu"}, progress=False, out=tmp_path / "run")
    model = miue.Model.load(tmp_path / "run")
    assert json.loads(run("inspect", tmp_path / "run", "--json"))["encoder of the features"] == "uni_v1"
    assert model.contract.patch_scales == (AT_20,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(bags)
        model.predict(replace(bags, patch_scales=()))
        replace(model, contract=model.contract.model_copy(update={"patch_scales": ()})).predict(bags)
    other = load_bags(folder_of(tmp_path / "other", 20, 10)).bags
    with pytest.warns(UserWarning, match=f"trained on patches of {AT_20}, these bags have patches of {AT_10}: "):
        model.predict(other)
