"""Exports that several processes write: the files of one process, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_slides import GRID, alpha_of, export, prediction_table, write_glass

import miue
from miue.bags import Coords
from miue.common.errors import ConfigError, DataError, StorageError
from miue.common.files import atomic_file
from miue.common.tasks import ALL, Executor, Shard
from miue.pathology.export import folders
from miue.pathology.export.folders import Export, Share, SlideWriter, export_side_by_side
from miue.pathology.export.kinds import KINDS
from miue.predictions import Predictions, Provenance, read_predictions

OPTIONS: dict[str, dict[str, Any]] = {
    "geojson": {"merge": True, "classes": ["tumour"], "threshold": 0.3, "bounds": (512, 7)},
    "heatmap": {"class_name": "normal"},
}
MARKS = {"heatmap": pytest.mark.long}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Predictions of seven slides: "lone" has one patch beside two patch sizes, "unplaced" one with a position."""
    places = {f"slide {number}": GRID[: 4 + number] for number in range(4)}
    places |= {"lone": GRID[:1] + 77, "unplaced": GRID[:5], "a/b": GRID[:3] // 2}
    ids = [slide for slide, where in places.items() for _ in where]
    known = np.array([name != "unplaced" for name in ids])
    known[ids.index("unplaced")] = True
    coords = Coords(np.concatenate(list(places.values())), known)
    distances = np.linspace(0.1, 2, len(ids))
    instances = replace(prediction_table(alpha_of(len(ids)), ids, coords.values, knn=distances), coords=coords)
    bags = prediction_table(alpha_of(len(places), 1), list(places), knn_mean=np.linspace(0, 1, len(places)))
    Predictions(bags, instances, Provenance(classes=("normal", "tumour"))).save(tmp_path / "p")
    return tmp_path / "p"


def contents(folder: Path) -> dict[str, bytes]:
    """Bytes of every file in a folder, by its path there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=MARKS.get(kind, ())) for kind in KINDS])
def test_shards_write_the_files_of_one_process(saved: Path, tmp_path: Path, kind: str) -> None:
    given = {"skip_bad": True, **OPTIONS.get(kind, {})}
    whole = miue.export(read_predictions(saved), tmp_path / "whole", kind, **given)
    shards = export_side_by_side(read_predictions(saved), saved, tmp_path / "shards", kind, Executor(), **given)
    assert shards == whole and shards.slides == 5
    assert ["unplaced" in line for line in whole.left_out] == [True, False] and "'lone'" in whole.left_out[1]
    assert contents(tmp_path / "shards") == contents(tmp_path / "whole") and len(contents(tmp_path / "whole")) == 6
    with pytest.raises(StorageError, match="shards"):  # which is there
        export_side_by_side(read_predictions(saved), saved, tmp_path / "shards", kind, Executor(), **given)
    again = {**given, "overwrite": True, "patch_size": 64}
    assert (
        export_side_by_side(read_predictions(saved), saved, tmp_path / "shards", kind, Executor(), **again).slides
        == 6
    )


@pytest.mark.long
def test_processes_write_the_files_of_one(saved: Path, tmp_path: Path) -> None:
    slides = tmp_path / "slides"
    for name in ("slide 0", "slide 1", "slide 2", "slide 3"):
        write_glass(slides / f"{name}.tif", 2600, 1600)
    (slides / "a_b.tif").write_bytes(b"no slide")
    words = ("heatmap", saved, "--slides", slides, "--skip-bad", "--quiet", "--out")
    one, two = export(*words, tmp_path / "one"), export(*words, tmp_path / "two", "--jobs", 2)
    assert one.exit_code == two.exit_code == 0
    assert (
        two.output.replace(str(tmp_path / "two"), str(tmp_path / "one")) == one.output
        and "4 heatmaps written" in one.output
    )
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_the_first_slide_that_fails_stops_all_shards_and_nothing_is_written(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="slide 'unplaced': expected a position of every patch"):
        export_side_by_side(read_predictions(saved), saved, tmp_path / "out", "arrays", Executor())
    (tmp_path / "slides").mkdir()
    with pytest.raises(StorageError, match="slide 'slide 0'"):
        export_side_by_side(
            read_predictions(saved), saved, tmp_path / "out", "heatmap", Executor(), slides=tmp_path / "slides"
        )
    with pytest.raises(DataError, match="expected at least one slide to write, got none .*'slide 0'"):
        export_side_by_side(
            read_predictions(saved),
            saved,
            tmp_path / "out",
            "heatmap",
            Executor(),
            slides=tmp_path / "slides",
            skip_bad=True,
        )
    with pytest.raises(ConfigError, match="class 'tumor'"):
        export_side_by_side(
            read_predictions(saved), saved, tmp_path / "out", "heatmap", Executor(), class_name="tumor"
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p", "slides"]


def test_what_a_killed_worker_leaves_is_removed(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, halves = SlideWriter.write_to, []

    def leaves_half_a_file(self: SlideWriter, folder: Path, shard: Shard = ALL, **options: Any) -> Share:
        with atomic_file(folder / "slide 0.h5") as temporary:
            temporary.touch()
            halves.append(temporary.name)
        (folder / halves[-1]).touch()
        return write(self, folder, shard, **options)

    monkeypatch.setattr(SlideWriter, "write_to", leaves_half_a_file)
    export_side_by_side(read_predictions(saved), saved, tmp_path / "out", "arrays", Executor(), skip_bad=True)
    assert len(halves) == 7
    files = {"slide 0.h5", "slide 1.h5", "slide 2.h5", "slide 3.h5", "a_b.h5", "export.json"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files


def test_patch_sizes_are_known_of_all_slides_in_each_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ["a", "a", "lone"]
    instances = prediction_table(alpha_of(3), ids, np.array([[0, 0], [512, 0], [9, 9]]))
    predictions = Predictions(prediction_table(alpha_of(2, 1), ["a", "lone"]), instances)
    writer = SlideWriter.of(predictions, Export("arrays", {}))
    assert writer.write_to(tmp_path, Shard(2, 2)) == Share({"lone": "lone.h5"}, 1, [], [])
    reported: list[float] = []
    monkeypatch.setattr(folders, "report_share", reported.append)
    writer.write_to(tmp_path)
    assert reported == [0, 1 / 2]


def test_a_slide_of_which_nothing_is_drawn_has_a_file(saved: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"classes": ["tumour"], "threshold": 1.0, "skip_bad": True, "patch_size": 64}
    written = miue.export(read_predictions(saved), tmp_path / "out", "geojson", **given)
    assert (written.slides, written.objects) == (6, 0) and len(list((tmp_path / "out").glob("*.geojson"))) == 6
