"""Mitoses-bags: slides are bags, slides are on one side of a fold, and other scanners are only tested on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cifar10_bags import write_strips
from typer.testing import CliRunner

from miue.common.errors import ConfigError, DataError, StorageError
from miue.common.tables import read_rows
from miue.io import read_store, read_store_summary
from papers.mirel.cli import app
from papers.mirel.folds import missing
from papers.mirel.mitoses import experiment as mitoses
from papers.mirel.mitoses.bags import ARCHIVE, CLASS_NAMES, ScannedSlides, pooled_bags, scanned_slides
from papers.mirel.mitoses.experiment import FOLDS, SCANNERS, Fold, all_folds, parts_of
from papers.mirel.mitoses.table import mitoses_page
from papers.mirel.nuclei import experiment as nuclei
from papers.mirel.results import Result, metric_of, read_results, write_results

SLIDES_OF_SCANNER, CROPS_OF_SLIDE = 15, 20
NAMES = ("Aperio CS2", "Hamamatsu S360", "Hamammatsu XR")


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """45 slides of three scanners, whose brightness differs; atypical mitoses are striped."""
    folder = tmp_path_factory.mktemp("mitoses")
    random = np.random.default_rng(0)
    slides = np.repeat(np.arange(3 * SLIDES_OF_SCANNER), CROPS_OF_SLIDE)
    scanners = slides % 3
    atypical = (random.random(len(slides)) < 0.8) & (slides % 2 == 0)
    images = np.clip(random.normal(60 + 60 * scanners[:, None, None, None], 5, (len(slides), 64, 64, 3)), 0, 255)
    images[atypical, ::2] /= 2
    write_strips(folder / "strips.npz", 100, images=(images.astype(np.uint8), np.zeros(len(slides))))
    with np.load(folder / "strips.npz") as strips:
        arrays = {name: strips[name] for name in ("images_webp", "images_webp_offsets")}
    np.savez(
        folder / ARCHIVE,
        slide=slides.astype(np.int16),
        slide_names=np.array([f"{slide:03d}.tiff" for slide in np.unique(slides)]),
        scanner=scanners.astype(np.int8),
        scanner_names=np.array(NAMES),
        is_atypical=atypical.astype(np.uint8),
        **arrays,
    )
    return folder


@pytest.fixture(scope="module")
def slides(source: Path) -> ScannedSlides:
    return scanned_slides(source)


def test_slides_are_bags_with_a_scanner_each(slides: ScannedSlides) -> None:
    assert slides.bags.ids[:2] == ("000", "001")
    assert slides.names == SCANNERS
    assert slides.scanners[:4] == (*SCANNERS, SCANNERS[0])
    assert set(slides.bags.sizes) == {CROPS_OF_SLIDE}
    truth = slides.bags.instance_labels.values.reshape(-1, CROPS_OF_SLIDE)
    assert slides.bags.labels.values.tolist() == truth.max(1).tolist()
    brightness = [slides.of_scanner(name).batch([0]).instances.float().mean() for name in SCANNERS]
    assert brightness == sorted(brightness)


@pytest.mark.parametrize(
    "change",
    [
        {"is_atypical": lambda values: values + 2},
        {"slide": lambda values: values[:-1]},
        {"scanner": lambda values: np.roll(values, 1)},
    ],
)
def test_damaged_files_are_named(source: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    with np.load(source / ARCHIVE) as arrays:
        content = dict(arrays)
    np.savez(tmp_path / ARCHIVE, **{**content, **{name: edit(content[name]) for name, edit in change.items()}})
    with pytest.raises(StorageError, match="whole, readable file"):
        scanned_slides(tmp_path)
    with pytest.raises(StorageError, match=ARCHIVE):
        scanned_slides(tmp_path / "nowhere")


def test_the_real_mitoses_are_135_slides(shared_data: Path) -> None:
    if not (shared_data / ARCHIVE).exists():
        pytest.skip(f"needs {ARCHIVE} in ../shared/data")
    real = scanned_slides(shared_data)
    assert (len(real.bags), int(real.bags.labels.values.sum()), len(real.bags.positions)) == (135, 100, 1721)
    assert int(real.bags.instance_labels.values.sum()) == 404
    assert [len(real.of_scanner(name)) for name in SCANNERS] == [47, 44, 44]
    page = (Path(__file__).resolve().parents[2] / "results/mitoses/overview.md").read_text("utf-8")
    assert f"Slides have {real.bags.sizes.min()} to {real.bags.sizes.max()} crops" in page
    with np.load(shared_data / ARCHIVE) as arrays:
        differ = np.isin(arrays["votes_atypical"], (1, 2)).sum()
    assert f"they differ on {differ}." in page
    assert f"the experts differ on {differ} of them" in " ".join((scanned_slides.__doc__ or "").split())


def test_pooled_bags_are_larger_balanced_and_repeat_with_their_seed(slides: ScannedSlides) -> None:
    own = slides.of_scanner(SCANNERS[0])
    pooled = pooled_bags(own, 60, seed=3, name="train")
    assert pooled.class_names == CLASS_NAMES
    assert pooled.labels.values.tolist() == [1, 0] * 30
    assert 8 < pooled.sizes.mean() < 12
    of_bags = np.split(pooled.instance_labels.values[pooled.positions], pooled.sizes.cumsum()[:-1])
    assert [int(labels.max()) for labels in of_bags] == pooled.labels.values.tolist()
    assert np.array_equal(pooled_bags(own, 60, seed=3, name="train").instances, pooled.instances)
    assert not np.array_equal(pooled_bags(own, 60, seed=4, name="train").sizes, pooled.sizes)
    with pytest.raises(DataError, match="draw from more slides"):
        pooled_bags(own.subset([1]), 60, seed=3, name="train")


def test_every_slide_is_tested_once_and_other_scanners_are_not_trained_on(slides: ScannedSlides) -> None:
    tested: list[str] = []
    for number in range(FOLDS):
        parts = parts_of(Fold("slides", "mirel", SCANNERS[1], 42, number), slides)
        assert set(parts) == {"train", "validation", "test", SCANNERS[0], SCANNERS[2]}
        names = [name for part in parts.values() for name in part.ids]
        assert len(names) == len(set(names)) == len(slides.bags)
        tested += parts["test"].ids
    assert sorted(tested) == sorted(slides.of_scanner(SCANNERS[1]).ids)


def test_crops_of_a_pooled_part_are_those_of_its_slides(slides: ScannedSlides) -> None:
    fold = Fold("slides", "mirel", SCANNERS[0], 42, 0)
    of_slides = parts_of(fold, slides)
    pooled = parts_of(Fold("pooled", "mirel", SCANNERS[0], 42, 0), slides)
    for name, part in pooled.items():
        crops = {image.tobytes() for image in of_slides[name].instances[of_slides[name].positions]}
        assert {image.tobytes() for image in part.instances[part.positions]} <= crops


def test_unknown_forms_and_methods_are_refused() -> None:
    with pytest.raises(ConfigError, match="slides"):
        all_folds(["crops"], ["mirel"], [42])
    with pytest.raises(ConfigError, match="mirel"):
        all_folds(["slides"], ["magic"], [42])


@pytest.mark.long
def test_a_fold_is_trained_evaluated_on_each_scanner_and_shown(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nuclei, "SETTINGS", {"max_epochs": 1, "bags_per_update": 4})
    monkeypatch.setattr(nuclei, "OPTIONS", {"encoder.width": 8, "network.hidden": 4})
    fold = Fold("slides", "deterministic", SCANNERS[2], 42, 1)
    mitoses.run_fold(["slides", "deterministic", SCANNERS[2], 42, 1], str(source), str(tmp_path))
    results = read_results(fold.path(tmp_path))
    assert results is not None
    for other in SCANNERS[:2]:
        for level in ("bag", "instance"):
            assert metric_of(results, "bag-of-one", level, f"accuracy on {other}").value is not None
            assert metric_of(results, "bag-of-one", level, f"ood {other}").value is not None
    assert metric_of(results, "bag-of-one", "bag", "ood aperio-cs2", "knn_mean").value is not None
    assert missing([fold, Fold("slides", "deterministic", SCANNERS[2], 42, 2)], tmp_path)[0].number == 2
    page = mitoses_page(tmp_path, [42])
    assert "softmax 1 of 15" in page and "mitoses table --seeds 42 --out " in page
    assert "\n| softmax (1 of 15 folds) | knn_mean |" in page


def test_a_mean_is_over_folds_then_over_scanners(tmp_path: Path) -> None:
    values = {SCANNERS[0]: (0.5, 0.7), SCANNERS[1]: (0.9,), SCANNERS[2]: (None,)}
    for scanner, numbers in values.items():
        for number, value in enumerate(numbers):
            fold = Fold("slides", "deterministic", scanner, 42, number)
            results = [Result("bag-of-one", "bag", "accuracy", "default", value)]
            write_results(fold.path(tmp_path), *fold.run, 1, results)
    assert "| softmax (4 of 15 folds) | 0.750 ± 0.212 | — |" in mitoses_page(tmp_path, [42])


def test_the_commands_make_a_store_and_skip_what_is_done(source: Path, tmp_path: Path) -> None:
    words = ("mitoses", "make", "--source", source, "--out", tmp_path / "store")
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert "45 bags with 900 instances written to" in result.output
    assert read_store(tmp_path / "store").ids[0] == "aperio-cs2/000"
    assert read_store_summary(tmp_path / "store").made_by["name"] == "mitoses-bags"
    for fold in all_folds(["slides"], ["mirel"], [42]):
        write_results(fold.path(tmp_path), *fold.run, 2, [])
    done = run("mitoses", "run", "--results", tmp_path, "--seeds", 42, "--form", "slides", "--method", "mirel")
    assert done.exit_code == 0, done.output
    assert "0 folds to do, 15 done before" in done.output
    assert run("mitoses", "table", "--results", tmp_path, "--out", tmp_path / "page.md").exit_code == 0
    assert (tmp_path / "page.md").read_text().startswith("# Mitoses-bags")
    assert len(read_rows(all_folds(["slides"], ["mirel"], [42])[0].path(tmp_path))) == 1
