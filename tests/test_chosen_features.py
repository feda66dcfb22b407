"""Which columns of a table of instances are features."""

from __future__ import annotations

import warnings
from pathlib import Path

import made_files
import numpy as np
import pandas as pd
import pytest
from commands import fail, run

import miue
from miue.common.errors import ConfigError, DataError, ModelError, StorageError
from miue.io import load_bags

QUICK = ("--set", "max_epochs=1", "--quiet")


def table_of(folder: Path, name: str = "t.csv", **more: object) -> Path:
    """Write a table with two features of a network, one of shape, a column of text and a number of the tile."""
    rng = np.random.default_rng(0)
    ids = np.repeat([f"{number:02}" for number in range(30)], 3)
    table = pd.DataFrame({"bag_id": ids, "tile_no": np.arange(90), "f_0": rng.normal(size=90)})
    table["label"] = np.repeat(["n", "p"] * 15, 3)
    table["f_1"] = rng.normal(size=90) + 3 * (table["label"] == "p")
    table["Area [px]"], table["comment"] = rng.uniform(size=90), "fine"
    table.assign(**more).to_csv(folder / name, index=False)
    return folder / name


@pytest.mark.parametrize(
    ("features", "names"),
    [
        (["f_*"], ("f_0", "f_1")),
        (["f_1", "f_*"], ("f_1", "f_0")),
        (["Area [px]", "f_?"], ("Area [px]", "f_0", "f_1")),
        (["area [px]"], ("Area [px]",)),
        (["*_[0n]*"], ("tile_no", "f_0")),
    ],
)
def test_features_of_a_table_are_chosen_by_name_or_pattern(
    features: list[str], names: tuple[str, ...], tmp_path: Path
) -> None:
    table = table_of(tmp_path)
    bags = load_bags(table, features=features).bags
    assert bags.feature_names == names
    rows = pd.read_csv(table)[list(names)].to_numpy(np.float32)
    np.testing.assert_array_equal(np.asarray(bags.instances), rows)


def test_columns_that_are_not_read_are_stated(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    assert load_bags(table, features=["f_*"]).notes == (
        "2 columns taken for features; not read: 'tile_no', 'Area [px]', 'comment'",
    )
    said = " ".join(run("inspect", table, "--features", "f_*,Area [px]").replace("│", " ").split())
    assert "f_0, f_1, Area [px]" in said and "3 columns taken for features; not read: 'tile_no', 'comment'" in said
    many = run("inspect", table, "--features", "Area [px]", "--features", "f_1")
    assert "Area [px], f_1" in many


def test_a_column_of_text_says_how_features_are_chosen(tmp_path: Path) -> None:
    message = r"column 'comment': expected numbers, got 'fine'; .* or choose the features \(features=NAME"
    with pytest.raises(StorageError, match=message):
        load_bags(table_of(tmp_path))
    pd.read_csv(tmp_path / "t.csv").to_parquet(tmp_path / "t.parquet")
    with pytest.raises(StorageError, match=r"column 'comment': .*'fine'.* or choose the features"):
        load_bags(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (["g_*"], r"expected columns of features that match 'g_\*', got columns bag_id, tile_no"),
        (["f_0", "f_7"], r"expected a column of features 'f_7', got columns bag_id, .*; name columns that it has"),
        (["f_0", "Label"], r"column 'label': expected a feature, .* got the column label of the bags"),
        (["F_*"], r"features that match 'F_\*'"),
        (["bag_*"], r"features that match 'bag_\*'"),
    ],
)
def test_features_that_a_table_does_not_have_are_named(features: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load_bags(table_of(tmp_path), features=features)


def test_features_are_chosen_of_tables_alone(tmp_path: Path) -> None:
    made_files.trident(tmp_path / "slides", "a", made_files.features_of(5, seed=0))
    miue.write_store(tmp_path / "store", load_bags(table_of(tmp_path), features=["f_*"]).bags)
    for place in ("slides", "store"):
        said = r"^features: expected bags that take names of features"
        with pytest.raises(ConfigError, match=said):
            load_bags(tmp_path / place, features=["f_*"])
        printed = fail("inspect", tmp_path / place, "--features", "f_*")
        assert "--features: expected bags that take names of features" in printed


def test_options_of_a_folder_are_refused_by_inspect_beside_a_table(tmp_path: Path) -> None:
    """They were accepted without effect."""
    table = table_of(tmp_path)
    printed = fail("inspect", table, "--mpp", "0.5")
    assert "--mpp: expected bags that take a pixel width" in printed
    printed = fail("inspect", table, "--feature-key", "uni")
    assert "--feature-key: expected bags that take a table of features" in printed


@pytest.mark.long
def test_a_model_reads_its_columns_of_a_table_by_name(tmp_path: Path) -> None:
    """Columns that a table has beside them, or another order of them, change nothing."""
    table = table_of(tmp_path)
    run("train", table, "--features", "f_1,Area [px],f_0", "--out", tmp_path / "run", *QUICK)
    model = miue.Model.load(tmp_path / "run")
    assert model.contract.feature_names == ("f_1", "Area [px]", "f_0")
    frame = pd.read_csv(table, dtype={"bag_id": str})
    frame[frame.columns[::-1]].assign(more=1.5).to_csv(tmp_path / "turned.csv", index=False)
    tables: list[str] = []
    for name, options in (
        ("t.csv", ["--features", "f_1", "--features", "Area [px]", "--features", "f_0"]),
        ("t.csv", []),
        ("turned.csv", []),
    ):
        out = tmp_path / f"p{len(tables)}"
        said = run("predict", tmp_path / "run", tmp_path / name, "--out", out, "--quiet", *options)
        assert "3 columns taken for features; not read: " in said and "other names" not in said
        tables.append((out / "bags.csv").read_text())
    assert tables[0] == tables[1] == tables[2]
    run(
        "calibrate",
        tmp_path / "run",
        tmp_path / "turned.csv",
        "--without",
        "deferral,scaling,ood",
        "--coverage",
        "0.7",
        "--quiet",
    )
    said = fail("check", "vanishing", tmp_path / "run", table, "--out", tmp_path / "v", "--quiet")
    assert "3 columns taken for features" in said and "train on more bags first" in said


def test_a_table_without_a_column_of_the_model_says_which(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    run("train", table, "--features", "f_*", "--out", tmp_path / "run", *QUICK)
    pd.read_csv(table, dtype={"bag_id": str})[["bag_id", "label", "f_0", "tile_no"]].to_csv(table, index=False)
    predict = ("predict", tmp_path / "run", table, "--out", tmp_path / "p", "--quiet")
    with pytest.warns(UserWarning, match=r"other names .*'f_1' missing, 'tile_no' unexpected"):
        run(*predict, "--features", "f_0,tile_no")
    said = run(*predict, "--features", "f_0", "--overwrite", code=2)
    assert "'f_1' missing" in said and "pass the columns that it was trained on" in said


def test_python_reads_the_columns_of_a_model(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    bags = load_bags(table, features=["f_1", "f_0"]).bags
    model = miue.train(bags, settings={"max_epochs": 1, "device": "cpu"}, progress=False)
    with pytest.raises(ModelError, match=r"order of training: f_1, f_0 .*load_bags\(.*features="):
        model.predict(load_bags(table, features=["f_*"]).bags)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(load_bags(table, features=model.contract.feature_names).bags)


@pytest.mark.long
def test_folds_and_stores_take_the_chosen_features(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    run("data", "pack", table, "--features", "f_*", "--out", tmp_path / "store", "--quiet")
    assert miue.read_store(tmp_path / "store").feature_names == ("f_0", "f_1")
    chosen = ("--features", "f_*", "--folds", "2", "--out", tmp_path / "cv")
    run("cross-validate", table, *chosen, *QUICK)
    model = next(iter(sorted((tmp_path / "cv").rglob("config.json")))).parent
    assert miue.Model.load(model).contract.feature_names == ("f_0", "f_1")


@pytest.mark.long
def test_a_report_shows_positions_of_a_table_whose_features_are_chosen(tmp_path: Path) -> None:
    table = table_of(tmp_path, x=np.arange(90) * 256, y=0)
    run("train", table, "--features", "f_*", "--out", tmp_path / "run", *QUICK)
    run("predict", tmp_path / "run", table, "--out", tmp_path / "p", "--quiet")
    report = ("report", tmp_path / "p", "--out", tmp_path / "r.html", "--resamples", "10", "--quiet")
    assert "column 'comment': expected numbers" in fail(*report, "--store", table).replace("\n", " ")
    run(*report, "--store", table, "--features", "f_*")
    assert (tmp_path / "r.html").exists()
    assert "--features: expected --store beside it, got none" in fail(*report, "--features", "f_*", "--overwrite")
