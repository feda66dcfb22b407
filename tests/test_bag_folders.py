"""From a folder of files and a table to bags, to a store, and to patients."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import h5py
import made_files
import numpy as np
import pytest
from commands import fail, run
from made_bags import train_with

import miue
from miue.cli.inspection import MOST_ROWS
from miue.common.errors import ConfigError, DataError
from miue.io import load_bags, pack, read_label_table, read_values


@pytest.fixture
def slides(tmp_path: Path) -> tuple[Path, Path]:
    return made_files.slides(tmp_path / "job")


def test_a_folder_and_a_table_become_bags(slides: tuple[Path, Path]) -> None:
    folder, labels = slides
    table = read_label_table(labels)
    opened = load_bags(folder, labels=table)
    bags = opened.bags
    assert bags.ids == table.ids and bags.patients == table.patients
    assert bags.class_names == ("normal", "tumor")
    assert [bags.class_names[label] for label in bags.labels.values] == list(table.labels)
    assert bags.patch_sizes is not None and set(bags.patch_sizes.tolist()) == {1024}
    for row in (0, 5, len(bags) - 1):
        path = folder / f"{bags.ids[row]}.h5"
        batch = bags.batch([row])
        assert np.array_equal(batch.instances.numpy(), miue.io.formats.read_rows(path, 0, 99))
    swapped = load_bags(folder, labels=table, classes=["tumor", "normal"]).bags
    assert np.array_equal(swapped.labels.values, 1 - bags.labels.values)


def test_what_a_table_does_not_list_is_left_out_and_said(slides: tuple[Path, Path]) -> None:
    folder, labels = slides
    made_files.trident(folder, "extra", made_files.features_of(3))
    opened = load_bags(folder, labels=labels)
    assert "extra" not in opened.bags.ids
    assert [(one.bag, one.is_bad) for one in opened.left_out] == [("extra", False)]
    assert "extra" in load_bags(folder).bags.ids


def bad_files(folder: Path) -> None:
    made_files.trident(folder, "empty", np.zeros((0, 6), np.float32))
    made_files.trident(folder, "wide", made_files.features_of(5, width=8))
    made_files.trident(folder, "cut", made_files.features_of(500)).write_bytes(b"\x89HDF\r\n\x1a\n cut")
    made_files.stamp(folder, "other", made_files.features_of(5))


def test_one_bad_slide_does_not_stop_the_others(slides: tuple[Path, Path]) -> None:
    folder, _ = slides
    count = len(load_bags(folder).bags)
    bad_files(folder)
    with pytest.raises(DataError, match="got 4 that cannot .*skip_bad=True"):
        load_bags(folder)
    opened = load_bags(folder, skip_bad=True)
    assert len(opened.bags) == count
    reasons = {one.bag: one.reason for one in opened.left_out}
    assert "without tissue" in reasons["empty"] and "(8,)" in reasons["wide"]
    assert "whole HDF5 file" in reasons["cut"] and "'ctranspath'" in reasons["other"]


def test_inspect_lists_each_bag(slides: tuple[Path, Path]) -> None:
    folder, _ = slides
    bad_files(folder)
    broken = made_files.features_of(5)
    broken[2, 1] = np.nan
    made_files.trident(folder, "nan", broken)
    before = json.loads(run("inspect", folder, "--json", "--quiet"))
    after = json.loads(run("inspect", folder, "--json", "--quiet", "--read"))
    assert after["usable"] == before["usable"] - 1
    by_id = {one["bag"]: one for one in after["bag"]}
    assert by_id["0000"]["format"] == "TRIDENT" and by_id["0000"]["patch size"] == 1024
    assert by_id["0000"]["problems"] == [] and by_id["0000"]["encoder"] == "uni_v1"
    assert "NaN or infinity in 1 of 5 rows" in by_id["nan"]["problems"][0]
    assert {name for name, one in by_id.items() if one["problems"]} == {"empty", "wide", "cut", "other", "nan"}
    shown = run("inspect", folder, "--quiet")
    assert "empty: no instance (a slide without tissue, a video without a clip?)" in shown
    assert all(name in shown for name in by_id)


def test_inspect_of_many_bags_shows_the_first_and_all_with_a_problem(tmp_path: Path) -> None:
    for number in range(MOST_ROWS + 3):
        made_files.trident(tmp_path, f"slide{number:03}", made_files.features_of(5))
    made_files.trident(tmp_path, "without", np.zeros((0, 6), np.float32))
    shown = run("inspect", tmp_path, "--quiet")
    listed = re.findall(r"^\W*(slide\d+|without) +\W TRIDENT", shown, re.MULTILINE)
    assert listed == [f"slide{number:03}" for number in range(MOST_ROWS)] + ["without"]
    assert "3 further bags without a problem; --json lists all." in shown
    assert len(json.loads(run("inspect", tmp_path, "--json", "--quiet"))["bag"]) == MOST_ROWS + 4


def test_inspect_shows_a_note_of_several_bags_once(tmp_path: Path) -> None:
    for name, clips in {"a": 3, "b": 5}.items():
        np.save(tmp_path / f"{name}.npy", np.ones((clips, 2, 7), np.float32))
    text = " ".join(run("inspect", tmp_path, "--quiet").split())
    assert text.count("are averaged") == 1 and "are averaged (2 of 2 bags)" in text
    assert "level-0" not in text  # nothing here has positions


def test_inspect_says_how_many_rows_are_exactly_zero(tmp_path: Path) -> None:
    features = made_files.features_of(9)
    features[[1, 4, 5]] = 0
    features[2, 1:] = 0
    np.save(tmp_path / "a.npy", features)
    np.save(tmp_path / "b.npy", made_files.features_of(9))
    by_id = {one["bag"]: one for one in json.loads(run("inspect", tmp_path, "--json", "--quiet", "--read"))["bag"]}
    assert by_id["a"]["notes"] == ["3 of 9 rows are exactly zero in every feature"] and not by_id["a"]["problems"]
    assert by_id["b"]["notes"] == []
    assert "a: 3 of 9 rows are exactly zero" in run("inspect", tmp_path, "--quiet", "--read")


def test_a_slide_whose_rows_were_not_all_written_is_left_out_by_name(slides: tuple[Path, Path]) -> None:
    folder, labels = slides
    with h5py.File(folder / "0000.h5", "w") as file:
        file.create_dataset("features", (400, 6), "f4", chunks=(100, 6))[:150] = 1
        file["coords"] = made_files.grid(400, 1024)
    with pytest.raises(DataError, match=r"0000: .*every row of 'features' to be written, got 2 of 4 chunks"):
        load_bags(folder, labels=labels)
    opened = load_bags(folder, labels=labels, skip_bad=True)
    assert [one.bag for one in opened.left_out] == ["0000"] and "0000" not in opened.bags.ids
    listed = {one["bag"]: one for one in json.loads(run("inspect", folder, "--json", "--quiet"))["bag"]}
    assert "got 2 of 4 chunks of 100 rows" in listed["0000"]["problems"][0]


def test_a_patch_size_that_is_not_the_step_of_the_grid_is_said_once_with_the_number_of_files(
    tmp_path: Path,
) -> None:
    for name in "abc":
        features = made_files.features_of(20)
        made_files.trident(tmp_path, name, features, step=512, patch_size_level0=512 if name == "c" else 256)
    assert [note.split(":")[0] for note in load_bags(tmp_path).notes] == [
        "patch size 256, but neighbors are 512 level-0 pixels apart"
    ]
    assert load_bags(tmp_path).notes[0].endswith("(2 of 3 bags)")


def test_patches_that_lie_where_another_does_are_said(tmp_path: Path) -> None:
    for name in "abc":
        made_files.trident(tmp_path, name, made_files.features_of(20))
    assert not load_bags(tmp_path).notes
    for name in "ab":
        with h5py.File(tmp_path / f"{name}.h5", "r+") as file:
            file["coords"][7] = file["coords"][2]
    assert load_bags(tmp_path).notes == (
        "patches that lie where another one of the slide does, so that they count twice (2 of 3 bags)",
    )


def test_a_table_of_which_no_bag_is_there_says_which_it_looked_for(slides: tuple[Path, Path]) -> None:
    folder, labels = slides
    labels.write_text("slide_id,label\n/data/z0.svs,a\n/data/z1.svs,b\n")
    with pytest.raises(DataError, match=r"got none of 2 \(/data/z0.svs: listed in"):
        load_bags(folder, labels=labels, skip_bad=True)


def test_one_id_in_two_files_is_a_problem_of_that_bag_alone(slides: tuple[Path, Path]) -> None:
    folder, labels = slides
    whole = load_bags(folder).bags
    for name in ("0000", "0010"):
        np.save(folder / f"{name}.npy", made_files.features_of(5))
    with pytest.raises(DataError, match=r"got 2 that cannot .*one file of this name, got 0000\.h5 and 0000\.npy"):
        load_bags(folder)
    opened = load_bags(folder, labels=labels, skip_bad=True)
    assert set(whole.ids) - set(opened.bags.ids) == {"0000", "0010"} == {one.bag for one in opened.left_out}
    listed = json.loads(run("inspect", folder, "--json", "--quiet"))
    problems = {one["file"]: one["problems"] for one in listed["bag"] if one["problems"]}
    assert problems["0010.h5"] == ["expected one file of this name, got 0010.npy too"]
    assert set(problems) == {"0000.h5", "0000.npy", "0010.h5", "0010.npy"}
    assert (listed["bags"], listed["usable"]) == (len(whole), len(whole) - 2)


def test_two_files_of_one_id_that_the_table_does_not_list_do_no_harm(slides: tuple[Path, Path]) -> None:
    folder, labels = slides
    made_files.trident(folder, "extra", made_files.features_of(3))
    np.save(folder / "extra.npy", made_files.features_of(5))
    left = load_bags(folder, labels=labels).left_out
    assert [(one.bag, one.is_bad) for one in left] == [("extra", False)]


def test_the_width_asked_for_decides_and_not_that_of_most_files(tmp_path: Path) -> None:
    for name, width in (("a", 5), ("b", 5), ("c", 3)):
        np.save(tmp_path / f"{name}.npy", made_files.features_of(4, width=width))
    opened = load_bags(tmp_path, skip_bad=True, settings={"instance_shape": (3,)})
    assert opened.bags.ids == ("c",) and opened.bags.instance_shape == (3,)
    assert (
        "a.npy': expected features of shape (3,), as the model takes them, got (5,)" in opened.left_out[0].reason
    )
    with pytest.raises(DataError, match="got 2 that cannot"):
        load_bags(tmp_path, settings={"instance_shape": (3,)})
    with pytest.raises(DataError, match=r"none of 3 .*expected features of shape \(7,\)"):
        load_bags(tmp_path, skip_bad=True, settings={"instance_shape": (7,)})


def test_files_without_the_image_statistics_of_others_are_named_whichever_comes_first(tmp_path: Path) -> None:
    for name, width in {"a": 0, "b": 27, "c": 27, "d": 5}.items():
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["features"] = made_files.features_of(3)
            file["features"].attrs["encoder"] = "e"
            if width:
                file["image_statistics"] = np.zeros((3, width), np.float32)
    opened = load_bags(tmp_path)
    assert opened.notes == ("2 of 4 bags without the image statistics of others (a, d): none are used",)


def test_files_without_coords_are_named_where_others_have_them(tmp_path: Path) -> None:
    made_files.clam(tmp_path, "a", made_files.features_of(4))
    folder = tmp_path / "h5_files"
    np.save(folder / "bare.npy", made_files.features_of(5))
    opened = load_bags(folder)
    assert opened.bags.coords is not None and opened.bags.ids == ("a", "bare")
    assert opened.bags.coords.known.tolist() == [True] * 4 + [False] * 5
    assert opened.bags.without_coords == ("bare",)
    assert opened.bags.subset([1, 0]).without_coords == ("bare",)
    note = "1 of 2 bags without coords (bare): their instances have no position on a slide"
    assert opened.notes == (note,)
    with pytest.raises(DataError, match=r"coords, which --export needs, got 1 of 2 bags without \(bare\)"):
        load_bags(folder, settings={"coords_for": "--export"})
    kept = load_bags(folder, settings={"coords_for": "--export"}, skip_bad=True)
    assert kept.bags.ids == ("a", "bare") and kept.left_out == () and kept.notes == (note,)
    (folder / "a.h5").unlink()
    (folder.parent / "pt_files" / "a.pt").unlink()
    bare = load_bags(folder)
    assert bare.notes == () and bare.bags.coords is None and bare.bags.without_coords == ("bare",)
    with pytest.raises(DataError, match="got 1 of 1 bags without"):
        load_bags(folder, settings={"coords_for": "--export"}, skip_bad=True)


def test_a_store_without_coords_is_refused_where_they_are_needed(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", made_files.features_of(5))
    pack(load_bags(tmp_path).bags, tmp_path / "store")
    with pytest.raises(DataError, match="store': expected coords, which --export needs, got 1 of 1 bags without"):
        load_bags(tmp_path / "store", settings={"coords_for": "--export"})


@pytest.mark.long
def test_an_export_beside_predictions_is_refused_before_anything_is_predicted(
    slides: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, labels = slides
    bags = load_bags(folder, labels=labels).bags
    miue.train(
        bags,
        settings={"max_epochs": 1, "options": {"encoder.width": 8}, "distances": []},
        progress=False,
        out=tmp_path / "run",
    )
    made_files.trident(folder, "bare", made_files.features_of(4))
    with h5py.File(folder / "bare.h5", "a") as file:
        del file["coords"]
    predict = ("predict", tmp_path / "run", folder, "--part", "all", "--quiet", "--out", tmp_path / "p")
    said = run(*predict, "--export", "geojson", code=2)
    assert "coords, which --export needs" in said and "1 of 27 bags without (bare)" in said
    assert not (tmp_path / "p").exists()
    said = run(*predict, "--export", "geojson", "--skip-bad")
    assert "27 bags with" in said and "geojson of 26 slides written" in said
    assert "slide 'bare': expected a position of every patch, got 4 of 4 patches without" in said
    assert "note: 1 of 27 bags without coords (bare)" in run(*predict, "--overwrite")
    overlays = ("--export", "geojson", "--slides", tmp_path / "none", "--skip-bad")
    said = run(*predict[:-1], tmp_path / "other", *overlays, code=2)
    assert "expected the folder of slides (--slides), got no such folder" in said
    assert not (tmp_path / "other").exists()


@pytest.mark.long
def test_an_export_beside_predictions_that_fails_names_the_command_to_write_it(
    slides: tuple[Path, Path], tmp_path: Path
) -> None:
    """It asked for --patch-size, which predict does not have."""
    folder, labels = slides
    bags = load_bags(folder, labels=labels).bags
    more: dict[str, Any] = {"settings": {"max_epochs": 1}, "progress": False, "distances": []}
    train_with(bags, options={"encoder.width": 8}, out=tmp_path / "run", **more)
    made_files.clam(tmp_path / "clam", "one patch", made_files.features_of(1))
    predict = ("predict", tmp_path / "run", tmp_path / "clam", "--quiet", "--out", tmp_path / "p p")
    said = run(*predict, "--export", "heatmap", code=2)
    (command,) = re.findall('["](miue export .+?)["]', said)
    run(*shlex.split(command)[1:], "--patch-size", "256")
    assert (tmp_path / "p p" / "heatmap" / "one patch.png").exists()


def test_what_files_tell_of_themselves_is_said_once_by_every_command(tmp_path: Path) -> None:
    for name in "abc":
        made_files.stamp(tmp_path / "features", name, made_files.features_of(4))
    said = run("data", "pack", tmp_path / "features", "--out", tmp_path / "store", "--quiet")
    assert said.count("coords are in µm and left out, without a pixel width (3 of 3 bags)") == 1
    again = run("data", "pack", tmp_path / "features", "--out", tmp_path / "other", "--mpp", "0.5", "--quiet")
    assert "note:" not in again


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        (".xlsx", "got files ending in .xlsx; check the path"),
        (".pkl", "got files ending in .pkl; check the path"),
    ],
)
def test_a_folder_of_other_files_says_what_it_holds(ending: str, message: str, tmp_path: Path) -> None:
    for name in ("normal/a", "tumor/b"):
        path = tmp_path / "bags" / f"{name}{ending}"
        path.parent.mkdir(parents=True)
        path.write_text("0,1\n1.5,2.5\n")
    with pytest.raises(DataError, match=re.escape(message)):
        load_bags(tmp_path / "bags")


def test_slides_that_only_the_folder_beside_holds_are_said(tmp_path: Path) -> None:
    for name in "abcdefg":
        made_files.clam(tmp_path, name, made_files.features_of(4))
        if name > "b":
            (tmp_path / "h5_files" / f"{name}.h5").unlink()
    beside = "'pt_files' was not read; 5 of its bags are not in 'h5_files': c, d, e, …"
    assert load_bags(tmp_path).notes == (beside,)
    assert json.loads(run("inspect", tmp_path, "--json", "--quiet"))["note"] == beside
    assert "note" not in json.loads(run("inspect", tmp_path / "pt_files", "--json", "--quiet"))


@pytest.fixture
def some_not_finite(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of 40 bags, 20 of each class, of which 6 of class b hold NaN; and their labels."""
    random, folder, rows = np.random.default_rng(0), tmp_path / "features", ["slide_id,label"]
    folder.mkdir()
    for number in range(40):
        values = random.normal(size=(5, 8)).astype(np.float32)
        if number in (1, 3, 5, 7, 9, 11):
            values[0, 0] = np.nan
        np.save(folder / f"s{number:02d}.npy", values)
        rows.append(f"s{number:02d},{'ab'[number % 2]}")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder, tmp_path / "labels.csv"


def test_bags_left_out_before_their_values_are_read_stay_listed(some_not_finite: tuple[Path, Path]) -> None:
    folder, _ = some_not_finite
    np.save(folder / "empty.npy", np.zeros((0, 8), np.float32))
    loaded = load_bags(folder, skip_bad=True)
    checked, _ = read_values(loaded, str(folder), skip_bad=True, progress=False)
    assert [one.bag for one in checked.left_out] == ["empty", "s01", "s03", "s05", "s07", "s09", "s11"]
    assert len(checked.bags) == 34


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--set", "max_epochs=1", "--distance", "none"],
        ["cross-validate", "--set", "max_epochs=1", "--distance", "none", "--folds", "2"],
        ["data", "pack"],
        ["data", "split"],
    ],
    ids=" ".join,
)
def test_labels_are_counted_and_divided_of_the_bags_that_are_used(
    command: list[str], some_not_finite: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, labels = some_not_finite
    out = tmp_path / "out.csv"
    words = command[: 2 if command[0] == "data" else 1]
    said = run(*words, folder, *command[len(words) :], "--labels", labels, "--out", out, "--skip-bad", "--quiet")
    assert said.count("labels: column 'label' (a 20, b 14; negative class: a), patients: no column") == 1
    assert "b 20" not in said and said.count("left out: s") == 6
    table = out if out.is_file() else out / ("bags.csv" if words == ["data", "pack"] else "splits.csv")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 34 and not {"s01", "s11"} & {row["bag_id"] for row in rows}
    if words in (["train"], ["data", "split"]):  # a fifth of each class of the bags that are used
        tested = [row["bag_id"] for row in rows if row["fold_0"] == "test"]
        assert [sum(int(name[1:]) % 2 == label for name in tested) for label in (0, 1)] == [4, 3]


def test_a_split_reads_values_only_where_bags_are_left_out_by_them(
    some_not_finite: tuple[Path, Path], tmp_path: Path
) -> None:
    """Without --skip-bad no command that reads values goes on without these bags."""
    folder, labels = some_not_finite
    split = ("data", "split", folder, "--labels", labels, "--quiet", "--out")
    assert "(a 20, b 20; " in run(*split, tmp_path / "all.csv")
    for command in (["train"], ["cross-validate"], ["data", "pack"]):
        said = run(*command, folder, "--labels", labels, "--out", tmp_path / "run", "--quiet", code=2)
        assert "bag 's01'" in said and "finite" in said


def test_a_fold_without_splits_is_refused_where_a_split_would_be_drawn(slides: tuple[Path, Path]) -> None:
    folder, labels = slides
    with pytest.raises(ConfigError, match="fold 3: expected splits with several folds beside it, got none"):
        load_bags(folder, labels=labels, settings={"fold": 3, "validation_share": 0.15})


def test_files_that_the_table_does_not_list_are_named(slides: tuple[Path, Path], tmp_path: Path) -> None:
    folder, labels = slides
    for name in "wxyz":
        made_files.trident(folder, f"new_{name}", made_files.features_of(3))
    said = run("data", "split", folder, "--labels", labels, "--out", tmp_path / "splits.csv")
    assert "left out: 4 files that the label table does not list: new_w, new_x, new_y, …" in said


@pytest.mark.long
def test_a_folder_is_trained_on_and_predicted_directly(slides: tuple[Path, Path], tmp_path: Path) -> None:
    folder, labels = slides
    options = ["--quiet", "--distance", "none", "--set", "max_epochs=2", "--set", "encoder.width=8"]
    everything = run(
        "train", folder, "--labels", labels, "--out", tmp_path / "few", *options, "--set", "validation_fraction=0"
    )
    assert "validation 0, test" in everything and "(training NLL + error" in everything
    run("train", folder, "--labels", labels, "--out", tmp_path / "run", *options)
    with (tmp_path / "run" / "splits.csv").open(newline="") as file:
        part_of = {row["bag_id"]: row["fold_0"] for row in csv.DictReader(file)}
    learned = {name for name, part in part_of.items() if part in ("train", "validation")}
    patient_of = dict(zip(*(lambda t: (t.ids, t.patients))(read_label_table(labels)), strict=True))
    kept = {name for name, part in part_of.items() if part == "test"}
    made_files.trident(folder, "new", made_files.features_of(4))
    run("predict", tmp_path / "run", folder, "--out", tmp_path / "p", "--quiet")
    predicted = miue.read_predictions(tmp_path / "p").bags
    every = load_bags(folder).bags
    assert set(predicted.bag_ids) == set(every.ids) - learned and "new" in predicted.bag_ids
    assert kept == set(predicted.bag_ids) - {"new"}
    tested = set(predicted.bag_ids) - {"new"}
    assert not {patient_of[bag] for bag in tested} & {patient_of[bag] for bag in learned}
    run("predict", tmp_path / "run", folder, "--out", tmp_path / "all", "--part", "all", "--quiet")
    assert list(miue.read_predictions(tmp_path / "all").bags.bag_ids) == list(every.ids)


@pytest.mark.long
def test_a_prediction_writes_exports_of_each_slide_beside_its_tables(
    slides: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, labels = slides
    miue.train(
        load_bags(folder, labels=labels).bags,
        settings={"max_epochs": 1, "options": {"encoder.width": 8}},
        progress=False,
        out=tmp_path / "run",
    )
    predict = ("predict", tmp_path / "run", folder, "--part", "all", "--quiet", "--out", tmp_path / "p")
    assert "did you mean 'heatmap'" in run(*predict, "--export", "heatmaps", code=2)
    assert not (tmp_path / "p").exists()
    kinds = ("--export", "geojson", "--export", "arrays", "--export", "geojson")
    assert "geojson of 26 slides written" in run(*predict, *kinds)
    assert {path.name for path in (tmp_path / "p").iterdir() if path.is_dir()} == {
        "instances",
        "geojson",
        "arrays",
    }
    found = miue.read_predictions(tmp_path / "p")
    slide = str(found.bags.bag_ids[0])
    overlay = json.loads((tmp_path / "p" / "geojson" / f"{slide}.geojson").read_text())
    assert found.instances is not None
    assert len(overlay["features"]) == (found.instances.bag_ids == slide).sum()
    one, two = tmp_path / "p", tmp_path / "side by side"
    assert "geojson of 26 slides written" in run(*predict[:-1], two, *kinds, "--jobs", 2)
    for kind in ("geojson", "arrays"):
        files = sorted(path.name for path in (one / kind).iterdir())
        assert sorted(path.name for path in (two / kind).iterdir()) == files
        assert all((two / kind / name).read_bytes() == (one / kind / name).read_bytes() for name in files)


@pytest.mark.long
def test_a_slide_that_cannot_be_read_does_not_stop_a_prediction(slides: tuple[Path, Path], tmp_path: Path) -> None:
    folder, labels = slides
    model = miue.train(
        load_bags(folder, labels=labels).bags,
        settings={"max_epochs": 1, "options": {"encoder.width": 8}},
        progress=False,
        out=tmp_path / "run",
    )
    wanted = model.predict(load_bags(folder).bags)
    broken = made_files.features_of(5)
    broken[2, 1] = np.nan
    made_files.trident(folder, "0020", broken)
    message = run("predict", tmp_path / "run", folder, "--out", tmp_path / "p", "--part", "all", "--quiet", code=2)
    assert "bag '0020', row 2" in message
    said = run(
        "predict", tmp_path / "run", folder, "--out", tmp_path / "p", "--part", "all", "--quiet", "--skip-bad"
    )
    assert "left out: 0020: bag '0020', row 2" in said
    found = miue.read_predictions(tmp_path / "p").bags
    kept = wanted.bags.bag_ids != "0020"
    assert list(found.bag_ids) == list(wanted.bags.bag_ids[kept])
    np.testing.assert_allclose(found.probabilities, wanted.bags.probabilities[kept], rtol=1e-5)


@pytest.mark.long
def test_patients_get_the_mean_of_their_slides(slides: tuple[Path, Path], tmp_path: Path) -> None:
    folder, labels = slides
    bags = load_bags(folder, labels=labels).bags
    model = miue.train(
        bags, settings={"max_epochs": 1, "options": {"encoder.width": 8}, "distances": ["knn"]}, progress=False
    )
    predictions = model.predict(bags)
    predictions.save(tmp_path / "p")
    patients = predictions.by_patient()
    assert patients is not None and len(patients) == 20
    assert (tmp_path / "p" / "patients.csv").read_text().startswith("patient,label,")
    read = miue.read_predictions(tmp_path / "p").by_patient()
    assert read is not None
    np.testing.assert_allclose(read.probabilities, patients.probabilities, rtol=1e-6)
    assert bags.patients is not None
    for row, name in enumerate(patients.bag_ids):
        mine = np.array(bags.patients) == name
        np.testing.assert_allclose(
            patients.probabilities[row], predictions.bags.probabilities[mine].mean(0), rtol=1e-6
        )
        scores = predictions.bags.uncertainties()
        found = {measure: values[row] for measure, values in patients.uncertainties().items()}
        assert found["expected_entropy"] == pytest.approx(scores["expected_entropy"][mine].mean())
        assert found["mutual_information"] == pytest.approx(found["entropy"] - found["expected_entropy"], abs=1e-9)
        assert found["knn_mean"] == pytest.approx(scores["knn_mean"][mine].mean())
        assert patients.labels.values[row] == bags.labels.values[mine][0]
    evaluation = miue.evaluate(predictions, allow_training_bags=True)
    assert evaluation.patients is not None and evaluation.patients.count == 20
    assert model.predict(load_bags(folder).bags).by_patient() is None


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["p_1", "a,P,0.9,0.1", "b,P,0.8,0.3"], 1 - (0.9 + 0.7) / 2),
        (["p_1", "a,P,0.9,0.1", "b,P,0.2,0.3"], 1 - (0.9 + 0.3) / 2),  # one says class 1, one class 0 of it
        (["p_1", "a,P,0.0001,0.1", "b,P,1,0.3"], 1 - (0.1 + 0.7) / 2),
        (["p_0,p_1,p_2", "a,P,0.1,0.9,0,0.2", "b,P,0.5,0.3,0.2,0.4"], 1 - (0.8 + 0.4 * 0.3 / 0.5) / 2),
        (["p_0,p_1,p_2", "a,P,0.1,0.9,0,0.2", "b,P,1,0,0,0.4", "c,P,0,1,0,0"], 1 - (0.8 + 0.4 / 2 + 1) / 3),
    ],
)
def test_the_error_probability_of_a_patient_is_that_of_the_patients_class(
    rows: list[str], expected: float, tmp_path: Path
) -> None:
    lines = [f"bag_id,patient,{rows[0]},score_error_probability", *rows[1:]]
    (tmp_path / "bags.csv").write_text("\n".join(lines) + "\n")
    patients = miue.read_predictions(tmp_path).by_patient()
    assert patients is not None and patients.predicted.tolist() == [1]
    np.testing.assert_allclose(patients.scores["error_probability"], [expected], atol=1e-6)


def test_bags_of_unknown_patients_are_not_one_patient(tmp_path: Path) -> None:
    rows = ["bag_id,p_1,label,patient", "a,0.9,1,P1", "b,0.8,1,", "c,0.1,0,", "d,0.2,0,P1"]
    (tmp_path / "bags.csv").write_text("\n".join(rows) + "\n")
    patients = miue.read_predictions(tmp_path).by_patient()
    assert patients is not None and patients.bag_ids.tolist() == ["P1", "b", "c"]
    np.testing.assert_allclose(patients.probabilities[:, 1], [0.55, 0.8, 0.1])


def test_folds_of_the_label_table_are_used(slides: tuple[Path, Path]) -> None:
    folder, labels = slides
    lines = labels.read_text().splitlines()
    patients = sorted({line.split(",")[0] for line in lines[1:]})
    parts = {p: ("train", "train", "val", "test")[n // 2 % 4] for n, p in enumerate(patients)}
    other = {p: {"train": "test", "val": "val", "test": "train"}[part] for p, part in parts.items()}
    rows = [f"{line},{parts[line[: line.index(',')]]},{other[line[: line.index(',')]]}" for line in lines[1:]]
    labels.write_text("\n".join([lines[0] + ",fold_0,fold_1", *rows]) + "\n")
    first = load_bags(folder, labels=labels).bags
    second = load_bags(folder, labels=labels, settings={"fold": 1}).bags
    swap = {"train": "test", "validation": "validation", "test": "train"}
    assert first.splits.count("train") > first.splits.count("test") > 0
    assert second.splits == tuple(swap[split] for split in first.splits)


def test_clam_features_take_their_patch_size_from_the_patches(tmp_path: Path) -> None:
    made_files.clam(tmp_path, "a", made_files.features_of(7))
    made_files.clam_patches(tmp_path, "a", 7, 256, 2.0)
    bags = load_bags(tmp_path).bags
    assert bags.patch_sizes is not None and bags.patch_sizes.tolist() == [512]
    shutil.rmtree(tmp_path / "patches")
    bags = load_bags(tmp_path).bags
    assert bags.patch_sizes is not None and bags.patch_sizes.tolist() == [0]


def test_a_side_that_a_file_states_itself_counts_before_that_of_patches_beside_it(tmp_path: Path) -> None:
    made_files.trident(tmp_path / "features_uni", "a", made_files.features_of(7), step=1024)
    made_files.clam_patches(tmp_path, "a", 7, 256, 2.0)
    bags = load_bags(tmp_path / "features_uni").bags
    assert bags.patch_sizes is not None and bags.patch_sizes.tolist() == [1024]


def test_features_two_folders_below_the_patches_of_clam_take_their_side(tmp_path: Path) -> None:
    made_files.clam(tmp_path / "features_uni", "a", made_files.features_of(7))  # features_uni/h5_files/a.h5
    made_files.clam_patches(tmp_path, "a", 7, 256, 2.0)
    bags = load_bags(tmp_path / "features_uni").bags
    assert bags.patch_sizes is not None and bags.patch_sizes.tolist() == [512]


def test_the_folder_of_tensors_of_clam_is_read_where_it_is_alone(tmp_path: Path) -> None:
    for job, name in (("first", "a"), ("second", "b")):
        made_files.clam(tmp_path / job, name, made_files.features_of(4))
    shutil.rmtree(tmp_path / "second" / "h5_files")
    assert load_bags(tmp_path / "second").bags.ids == ("b",)
    loaded = load_bags(tmp_path)  # of two jobs, the second of which kept the tensors alone
    assert loaded.bags.ids == ("a", "b") and loaded.bags.without_coords == ("b",)


def test_files_that_are_not_read_are_said_and_such_as_cannot_be_are_bad_bags(tmp_path: Path) -> None:
    folder = tmp_path / "features"
    for name in "ab":
        made_files.trident(folder, name, made_files.features_of(4))
    (folder / "a.h5").rename(folder / "a.hdf5")
    (folder / "more").mkdir()
    np.save(folder / "more" / "c.npy", made_files.features_of(3))
    for name in ("labels.csv", "d.mat", ".hidden.mat"):
        (folder / name).touch()
    said = "not read: 2 (d.mat, more)"
    loaded = load_bags(folder)
    assert loaded.bags.ids == ("a", "b")
    assert loaded.notes == (said,)
    (folder / "e.npy").symlink_to("nowhere")
    os.mkfifo(folder / "f.pt")
    with pytest.raises(DataError, match=r"2 that cannot \(e: .*got no such file; .*f: .*got a pipe, a socket"):
        load_bags(folder)
    assert [one.bag for one in load_bags(folder, skip_bad=True).left_out] == ["e", "f"]


def test_folders_of_classes_or_hospitals_are_read_as_one_where_no_bag_is_in_two(tmp_path: Path) -> None:
    for number in range(4):
        folder = tmp_path / "slides" / ("b", "a")[number % 2]
        made_files.clam(folder, f"s{number}", made_files.features_of(5, seed=number))
        made_files.clam_patches(folder, f"s{number}", 5, 256, 2.0)
    opened = load_bags(tmp_path / "slides")
    assert opened.bags.ids == ("s0", "s1", "s2", "s3")  # as if they were in one folder
    assert opened.bags.patch_sizes is not None and set(opened.bags.patch_sizes.tolist()) == {512}
    assert np.array_equal(opened.bags.batch([2]).instances.numpy(), made_files.features_of(5, seed=2))
    assert opened.notes == ("bags of 2 folders were read: a/h5_files (2), b/h5_files (2)",)
    made_files.clam(tmp_path / "slides" / "a", "s0", made_files.features_of(5))
    with pytest.raises(
        DataError,
        match=r"got a/h5_files \(3\), b/h5_files \(2\), with the same bag 's0'; pass one of these folders",
    ):
        load_bags(tmp_path / "slides")


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (("train", "test"), ("train", "test")),
        (("Training/normal", "Val/normal/site", "calibration/h5_files"), ("train", "validation", "calibration")),
        (("test/a", "test/b"), ("test", "test")),
        (("normal", "tumor"), ("", "")),
        (("train",), ("",)),
    ],
)
def test_folders_of_splits_name_the_splits_of_their_bags(
    tmp_path: Path, names: tuple[str, ...], splits: tuple[str, ...]
) -> None:
    root = tmp_path / "test"  # the name of the folder itself, or of one above it, is that of no bag's split
    for number, name in enumerate(names):
        made_files.trident(root / name, f"s{number}", made_files.features_of(5, seed=number))
    loaded = load_bags(root)
    assert (loaded.bags.ids, loaded.bags.splits) == (tuple(f"s{number}" for number in range(len(names))), splits)
    assert (", which name their splits, were read: " in str(loaded.notes)) == any(splits)
    assert load_bags(root / names[0]).bags.splits == ("",)
    (tmp_path / "splits.csv").write_text("slide_id,split\ns0,train\n")
    given = load_bags(root, splits=tmp_path / "splits.csv").bags.splits
    assert given == ("train", *("" for _ in names[1:]))


def test_splits_of_a_label_table_count_before_those_of_folders_with_a_note(tmp_path: Path) -> None:
    for number, name in enumerate(("train", "train", "test", "test")):
        made_files.trident(tmp_path / "slides" / name, f"s{number}", made_files.features_of(5, seed=number))
    labels = tmp_path / "labels.csv"
    labels.write_text("slide_id,label,split\ns0,a,train\ns1,b,test\ns2,b,train\ns3,a,test\n")
    loaded = load_bags(tmp_path / "slides", labels=labels)
    assert loaded.bags.splits == ("train", "test", "train", "test")
    said = "2 bags had another, as by a folder's name: s1 (train, now test), s2 (test, now train)"
    assert f"splits are those of {str(labels)!r}; {said}" in loaded.notes
    assert "had another" not in str(load_bags(tmp_path / "slides", labels=labels, splits=labels).notes)
    labels.write_text("slide_id,label,split\ns0,a,train\ns1,b,train\ns2,b,test\ns3,a,test\n")
    assert "had another" not in str(load_bags(tmp_path / "slides", labels=labels).notes)


@pytest.mark.parametrize("names", [("train", "other"), ("train/normal", "val/train", "test")])
def test_folders_of_splits_beside_others_are_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    for number, name in enumerate(names):
        made_files.trident(tmp_path / name, f"s{number}", made_files.features_of(5, seed=number))
    with pytest.raises(DataError, match=r"of which not each is named like one split; pass one of these folders"):
        load_bags(tmp_path)


def test_a_bag_in_two_folders_of_splits_is_refused_and_so_is_a_patient(tmp_path: Path) -> None:
    for number in range(12):
        folder = tmp_path / "slides" / ("train" if number < 8 else "test")
        made_files.trident(folder, f"s{number}", made_files.features_of(5, seed=number))
    rows = [f"s{number},p{number % 11},{'ab'[number % 2]}" for number in range(12)]
    (tmp_path / "labels.csv").write_text("slide_id,case_id,label\n" + "\n".join(rows) + "\n")
    words = ("train", tmp_path / "slides", "--labels", tmp_path / "labels.csv", "--out", tmp_path / "run")
    assert "patient 'p0'" in fail(*words)
    made_files.trident(tmp_path / "slides" / "test", "s0", made_files.features_of(5))
    with pytest.raises(DataError, match="with the same bag 's0'"):
        load_bags(tmp_path / "slides")


@pytest.mark.long
def test_a_run_beside_the_features_is_no_folder_of_bags(slides: tuple[Path, Path], tmp_path: Path) -> None:
    folder, labels = slides
    miue.train(load_bags(folder, labels=labels).bags, settings={"max_epochs": 1}, out=tmp_path / "run")
    with pytest.raises(DataError, match="run .*of which miue wrote one; pass one of these folders"):
        load_bags(tmp_path)


def test_the_adjacency_of_torchmil_is_no_folder_of_bags(tmp_path: Path) -> None:
    for name, array in (("features/features_UNI", made_files.features_of(5)), ("adj", np.eye(5))):
        (tmp_path / name).mkdir(parents=True)
        np.save(tmp_path / name / "s.npy", array)
    assert load_bags(tmp_path).bags.instance_shape == (6,)
