"""The paper's CAMELYON16 tables: presets, the commands from files to tables, and a real slide on that way."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast import slow_but
from made_camelyon16 import OUTLINED, SHIFTS, STEP, made_camelyon16
from typer.testing import CliRunner

from miue.bags import BagDataset
from miue.cli import app as miue_app
from miue.common.errors import StorageError
from miue.io import read_store
from miue.pathology.tile_files import Tiles, read_tiles
from papers.mirel import Preset, preset, preset_names, published_table, runner
from papers.mirel.cli import app
from papers.mirel.paths import Paths
from papers.mirel.results import read_results
from papers.mirel.stores import store_of
from papers.mirel.tables import markdown_table

KINDS = ("trident", "clam")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return made_camelyon16(tmp_path / "data")


def test_what_is_missing_is_named_before_anything_is_packed(source: Path, tmp_path: Path) -> None:
    shutil.rmtree(source / "tcga-prad")
    paths = Paths(source, tmp_path / "work", tmp_path / "results")
    with pytest.raises(StorageError, match="tcga-prad"):
        runner.make_bags(["camelyon16-prad/abmil-mirel"], paths)
    assert not (tmp_path / "work").exists()
    runner.make_bags(["camelyon16/abmil-mirel"], paths)
    assert [path.name for path in (tmp_path / "work" / "stores").iterdir()] == ["camelyon16"]


def test_the_presets_say_what_the_paper_says() -> None:
    names = [name for name in preset_names() if name.startswith("camelyon16")]
    assert len(names) == 24
    for name in names:
        chosen = preset(name)
        method = name.split("/")[1]
        assert (chosen.encoder, chosen.network) == ("mlp", "attention")
        assert chosen.options["encoder.width"] == 512
        assert chosen.settings["learning_rate"] == 1e-4
        assert chosen.distances == ()
        if method in ("abmil-i-edl", "abmil-mirel"):
            assert chosen.options["method.fisher_coefficient"] == 0.05
        if not name.startswith("camelyon16/"):
            assert chosen.trained_as == f"camelyon16/{method}"
            assert chosen.bags == {}
        else:
            assert chosen.bags == {"validation_share": 0.15, "validation_seed": 42}


def test_a_store_of_another_split_is_refused(source: Path, tmp_path: Path) -> None:
    paths = Paths(source, tmp_path / "work", tmp_path / "results")
    store_of("camelyon16", paths, {"validation_seed": 42})
    with pytest.raises(StorageError, match="'validation_seed': 42.*remove it"):
        store_of("camelyon16", paths, {"validation_seed": 43})


def shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every preset train one epoch, and an ensemble have two members."""

    def short(name: str) -> Preset:
        chosen = preset(name)
        size = {"method.size": 2} if chosen.method == "deep-ensemble" else {}
        epochs = {**chosen.settings, "max_epochs": 1}
        return chosen.model_copy(update={"settings": epochs, "options": {**chosen.options, **size}})

    monkeypatch.setattr(runner, "preset", short)


def paper(*words: object) -> Any:
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exit_code == 0, f"{result.output}\n{result.exception}"
    return result


@pytest.mark.long
@pytest.mark.parametrize("kind", slow_but(KINDS, ["clam"]))
def test_the_commands_run_from_files_to_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    source = made_camelyon16(tmp_path / "data", kind)
    shortened(monkeypatch)
    work, results = tmp_path / "work", tmp_path / "results"
    where = ["--source", source, "--work", work, "--results", results, "--seeds", "42", "--device", "cpu"]
    tables = ("table-c16", "apx-table-c16-ins", "apx-c16-shift") if kind == "trident" else ("table-c16",)
    for name in tables:
        output = paper("run", name, *where).output
        assert ("0 runs to do, 3 done before" in output) == (name == "apx-table-c16-ins"), output
    trained = sorted(path.name for path in (work / "runs" / "camelyon16").iterdir())
    assert len(trained) == 6
    assert [path.name for path in (work / "runs").iterdir()] == ["camelyon16"]
    bags = read_store(work / "stores" / "camelyon16")
    assert [bags.splits.count(split) for split in ("train", "validation", "test")] == [12, 2, 4]
    for name in tables:
        text = paper("table", name, "--results", results, "--seeds", "42").output
        assert "not run" not in text
        assert "could be had" not in text
    found = read_results(results / "camelyon16-prad" / "abmil-mirel" / "42.csv")
    assert found is not None
    assert {r.task for r in found} >= {"accuracy", "auroc", "conf", "ood prad"}
    assert not any(r.measure.startswith("knn") for r in found)


def test_tables_without_results_say_so_beside_the_papers_numbers(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path, tmp_path)
    text = markdown_table(published_table("table-c16"), paths, [42])
    assert "Not run here: neither the slides of CAMELYON16 and TCGA-PRAD nor features" in text
    assert "| MIREL | not run<br>paper 87.09 ± 1.07 | not run<br>paper 61.62 ± 6.85 |" in text
    instances = markdown_table(published_table("apx-table-c16-ins"), paths, [42])
    assert "| | Acc | AUROC | Conf | OOD-PRAD | UE |" in instances
    assert "| I-EDL †, T | not run<br>paper 87.53 ± 5.61 | not run<br>paper 95.11 ± 0.26 |" in instances
    shifts = markdown_table(published_table("apx-c16-shift"), paths, [42])
    assert "| | DS-lighter | DS-light | DS-strong | UE |" in shifts
    assert "| MIREL, blur | not run<br>paper 51.98 ± 0.89 |" in shifts
    assert "| MIREL, HED | not run<br>paper 51.98 ± 0.89 |" in shifts


@pytest.mark.long
def test_a_real_slide_goes_the_whole_way(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slide region is cut, outlined, labeled and shifted by the commands, and stands for a test slide."""
    slide = tmp_path / "test_001.svs"
    shutil.copy(shared_data / "CMU-1-Small-Region.svs", slide)
    source = made_camelyon16(tmp_path / "data", width=24, encoder="color-texture")
    features, shifted = source / "camelyon16" / "features", source / "camelyon16" / "shifted"
    tile_and_shift(slide, features, shifted)
    annotations, table = source / "camelyon16" / "annotations", source / "camelyon16" / "patch-labels.csv"
    data("patch-labels", features, "--annotations", annotations, "--unannotated", "negative", "--out", table)
    shutil.rmtree(annotations)
    shortened(monkeypatch)
    where = ["--source", source, "--work", tmp_path / "work", "--results", tmp_path / "results", "--seeds", "17"]
    paper("run", "camelyon16-blur/abmil-mirel", *where, "--device", "cpu")
    bags = read_store(tmp_path / "work" / "stores" / "camelyon16-blur")
    assert sorted(set(bags.ood_sets)) == sorted(["", *SHIFTS[:3]])
    assert np.array_equal(classes_of(bags, "test_001"), outlined_pixels(read_tiles(features / "test_001.h5")))
    copies = [bags.batch([bags.ids.index(f"test_001-{shift}")]).instances.numpy() for shift in SHIFTS[:3]]
    original = bags.batch([bags.ids.index("test_001")]).instances.numpy()
    distances = [float(np.abs(copy - original).mean()) for copy in copies]
    assert 0 < distances[0] < distances[1] < distances[2]
    found = read_results(tmp_path / "results" / "camelyon16-blur" / "abmil-mirel" / "17.csv")
    assert found is not None
    assert {r.task for r in found if r.level == "instance"} >= {f"ood {shift}" for shift in SHIFTS[:3]}
    text = paper("table", "apx-c16-shift", "--results", tmp_path / "results", "--seeds", "17").output
    rows = {line.split(" | ")[0]: line for line in text.splitlines()}
    assert "not run" not in rows["| MIREL, blur"]
    assert rows["| MIREL, HED"].count("not run") == 4


def classes_of(bags: BagDataset, name: str) -> list[int]:
    bag = bags.ids.index(name)
    span = slice(bags.starts[bag], bags.starts[bag] + bags.sizes[bag])
    assert bags.instance_labels.known[span].all()
    return bags.instance_labels.values[span].tolist()


def data(*words: object) -> None:
    result = CliRunner().invoke(miue_app, ["data", *map(str, words), "--quiet"])
    assert result.exit_code == 0, result.output


def tile_and_shift(slide: Path, features: Path, shifted: Path) -> None:
    """Put the slide's own features and blurred copies in the place of the made ones, and leave HED away."""
    (features / f"{slide.stem}.h5").unlink()
    data("tile", slide, "--out", features)
    for shift in SHIFTS:
        kind, strength = shift.split("-")
        if kind == "hed":
            shutil.rmtree(shifted / shift)
            continue
        (shifted / shift / f"{slide.stem}.h5").unlink()
        words = ("--kind", kind, "--strength", strength, "--tiles", features, "--out", shifted / shift)
        data("shift", slide, *words)


def outlined_pixels(tiles: Tiles) -> list[int]:
    """Return which patches are a fifth within the made outlines, counted pixel by pixel."""
    inside = np.zeros((4 * STEP, 4 * STEP), bool)
    inside[:STEP, : OUTLINED * STEP + STEP // 4] = True
    inside[STEP : 2 * STEP, : STEP // 10] = True
    shares = [inside[y : y + tiles.step, x : x + tiles.step].mean() for x, y in tiles.coords]
    labels = [int(share >= 0.2) for share in shares]
    assert 0 < sum(labels) < len(labels)
    return labels
