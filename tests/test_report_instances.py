"""The look into a bag: which instances a report shows, where they lie, and their pictures."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_files import slides
from made_flags import flagged_slides
from made_predictions import made_predictions, of_two_slides, on_a_slide
from made_reports import Page, reported, store_of, unpacked
from matplotlib.patches import Rectangle
from typer.testing import CliRunner

from miue.bags import Coords
from miue.cli import app
from miue.common.errors import ConfigError, DataError
from miue.distributions import Dirichlet
from miue.io import load_bags
from miue.predictions import Predictions
from miue.report.figures import bag_figure
from miue.report.instances import first_instances
from miue.report.runs import compare, named_runs

pytestmark = pytest.mark.usefixtures("small_plotly")


def test_an_instance_twice_is_refused(tmp_path: Path) -> None:
    predictions = made_predictions()
    assert predictions.instances is not None
    assert predictions.instances.instance is not None
    doubled = np.where(predictions.instances.instance == 1, 0, predictions.instances.instance)
    wrong = replace(predictions, instances=replace(predictions.instances, instance=doubled))
    with pytest.raises(DataError, match="instance 0 of bag 'bag 0000' in predictions 'place_0'"):
        reported(tmp_path, wrong)


@pytest.mark.parametrize(("classes", "shown"), [(2, 1), (3, 0)])
def test_a_figure_of_a_bag_of_the_first_class_shows_that_of_three_and_the_other_of_two(
    classes: int, shown: int
) -> None:
    predictions = made_predictions(classes=classes)
    bag = int((predictions.bags.predicted == 0).argmax())
    figure = bag_figure(predictions, bag, np.zeros((5, 2)), ["a", "b", "c"])
    assert figure.axes[0].get_ylabel() == f"probability\nof {'ab'[shown]}"
    assert predictions.instances is not None
    heights = [bar.get_bbox().height for bar in figure.axes[0].patches if isinstance(bar, Rectangle)]
    np.testing.assert_allclose(heights, predictions.instances.probabilities[5 * bag : 5 * bag + 5, shown])


def test_a_figure_of_a_bag_numbers_instances_as_tables_and_reports_do() -> None:
    axes = bag_figure(made_predictions(bags=1), 0, np.zeros((5, 2)), ["a", "b"]).axes[1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2", "3", "4"]


def test_a_figure_of_a_bag_shows_all_of_a_vacuity_above_1() -> None:
    predictions = made_predictions(bags=1)
    assert predictions.instances is not None
    evidential = bag_figure(predictions, 0, np.zeros((5, 2)), ["a", "b"]).axes[1]
    assert (evidential.get_ylabel(), evidential.get_ylim()) == ("vacuity C/α0\n(no evidence = 1)", (0, 1))
    alpha = Dirichlet(torch.full((5, 2), 0.25, dtype=torch.float64))  # as of R-EDL, where α = evidence + λ
    relaxed = replace(predictions, instances=replace(predictions.instances, distribution=alpha))
    shown = bag_figure(relaxed, 0, np.zeros((5, 2)), ["a", "b"]).axes[1]
    assert (shown.get_ylabel(), shown.get_ylim()) == ("vacuity C/α0", (0, 4))


@pytest.mark.long
def test_a_report_shows_fewer_instances_until_it_fits_and_says_so(tmp_path: Path) -> None:
    predictions = made_predictions(bags=40, per_bag=400)
    _, written = reported(tmp_path, predictions)
    assert written.notes == ()
    limit = (written.bytes - 20_000) / 1e6
    shown, written = reported(tmp_path, predictions, max_mb=limit)
    assert written.bytes <= limit * 1e6
    cap = shown.data["instances"]["cap"]
    assert 0 < cap < 400
    hidden = f"at most {cap} instances of each bag are listed"
    assert hidden in written.notes[-1]
    assert f"{40 * (400 - cap):,} of 16,000 instances, of 40 bags, are not" in written.notes[-1]
    assert hidden in shown.text
    assert unpacked(shown.data["instances"]["total"]).tolist() == [400] * 40
    kept = unpacked(shown.data["instances"]["position"])[:cap]
    assert predictions.instances is not None
    uncertain = np.argsort(-predictions.instances.uncertainties()["vacuity"][:400])
    probable = np.argsort(-predictions.instances.probabilities[:400, 1])
    assert set(uncertain[: cap // 2].tolist()) <= set(kept.tolist())
    assert set(probable[: cap // 2].tolist()) <= set(kept.tolist())
    with pytest.raises(ConfigError, match=r"at most 0.03 MB, got .*pass max_mb=1"):
        reported(tmp_path, predictions, max_mb=0.03)


def test_a_size_above_the_limit_never_reads_as_the_limit(tmp_path: Path) -> None:
    """It was rounded: "expected at most 5.2 MB, got 5.2 MB"."""
    predictions = replace(made_predictions(bags=4), instances=None)
    _, written = reported(tmp_path, predictions)
    with pytest.raises(ConfigError, match="for 4 bags and 1 set of predictions without") as refused:
        reported(tmp_path, predictions, max_mb=(written.bytes - 1) / 1e6)
    (stated,) = re.findall(r"got ([\d.]+) MB", str(refused.value))
    assert written.bytes <= float(stated) * 1e6 < written.bytes + 1e5


@pytest.mark.long
def test_more_instances_than_any_page_lists_are_not_blamed_on_its_size(tmp_path: Path) -> None:
    shown, written = reported(tmp_path, made_predictions(bags=4, per_bag=20_001))
    note = written.notes[-1]
    assert note.startswith("At most 20,000 instances of each bag are listed, the most uncertain")
    assert "4 of 80,004 instances, of 4 bags, are not" in note
    assert "MB" not in note and "limit" not in note and note in shown.text


@pytest.mark.slow
def test_two_thousand_bags_of_two_hundred_thousand_instances_stay_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # with the figures' library
    _, written = reported(tmp_path, made_predictions(bags=2000, per_bag=100))
    assert 4e6 < written.bytes < 20e6
    assert written.notes == ()


def test_positions_come_from_a_folder_of_feature_files(tmp_path: Path) -> None:
    features, _ = slides(tmp_path, patients=6)
    bags = load_bags(features).bags
    count = int(bags.sizes.sum())
    bag_ids = np.repeat(np.array(bags.ids, object), bags.sizes)
    of_bags = made_predictions(len(bags), 1).bags
    instances = made_predictions(count, 1).instances
    assert instances is not None
    within = np.concatenate([np.arange(size) for size in bags.sizes])
    given = Predictions(
        replace(of_bags, bag_ids=np.array(bags.ids, object)),
        replace(instances, bag_ids=bag_ids, instance=within),
    )
    given.save(tmp_path / "predictions")
    (features / "damaged.h5").write_bytes(b"not HDF5")  # which was not predicted
    out = tmp_path / "report.html"
    call = ["report", tmp_path / "predictions", "--store", features, "--out", out, "--resamples", "10", "--quiet"]
    done = CliRunner().invoke(app, list(map(str, call)))
    assert done.exit_code == 0 and "left out: damaged: bag file" in done.stderr
    shown = Page(out.read_text())
    x = unpacked(shown.data["instances"]["x"])
    assert bags.coords is not None
    assert sorted(x.tolist()) == sorted(bags.coords.values[:, 0].tolist())
    assert len(set(x.tolist())) > 1


@pytest.mark.parametrize(("shape", "size"), [((28, 28, 1), (28, 28)), ((96, 48, 3), (20, 40))])
def test_pictures_come_from_the_store(tmp_path: Path, shape: tuple[int, ...], size: tuple[int, int]) -> None:
    import io

    from PIL import Image

    predictions = made_predictions()
    store = store_of(predictions, tmp_path, shape)
    shown, _ = reported(tmp_path, predictions, store=store)
    pictures = shown.data["pictures"]
    assert (pictures["width"], pictures["height"]) == size
    assert pictures["positions"][7] == [0, 1, 2, 3, 4]
    strip = Image.open(io.BytesIO(base64.b64decode(pictures["pictures"][7].split(",")[1])))
    assert strip.size == (5 * size[0], size[1])
    if shape[-1] == 1:
        wanted = store.instances[store.starts[7] + 1][..., 0].astype(float)
        tile = np.asarray(strip.convert("L"), float)[:, size[0] : 2 * size[0]]
        assert np.corrcoef(wanted.ravel(), tile.ravel())[0, 1] > 0.98


def test_a_store_of_other_bags_is_refused_and_one_of_features_shows_no_picture(tmp_path: Path) -> None:
    predictions = made_predictions()
    shown, written = reported(tmp_path, predictions, store=store_of(predictions, tmp_path, (6,)))
    assert "pictures" not in shown.data
    pictures = "pictures of instances (the store holds features, not images)"
    assert written.notes == (f"Not in the data, and so not shown: {pictures}.",)
    with pytest.raises(DataError, match="bag 'bag 0020': expected every predicted bag in the store, got 10 bags"):
        reported(tmp_path, predictions, store=store_of(made_predictions(bags=20), tmp_path, (9, 9, 1)))
    with pytest.raises(DataError, match="expected one of the 4 instances that the store has of it"):
        reported(tmp_path, predictions, store=store_of(predictions, tmp_path, (9, 9, 1), per_bag=4))


def test_the_place_of_an_instance_is_told_by_the_first_predictions_that_know_it(tmp_path: Path) -> None:
    whole = on_a_slide(made_predictions(bags=3, per_bag=2))
    assert whole.instances is not None and whole.instances.coords is not None
    table, known = whole.instances, np.array([True, False, False, True])
    parts = [
        Predictions(whole.bags, replace(table.subset(np.arange(4)), coords=Coords(np.full((4, 2), 7), known))),
        Predictions(
            whole.bags, replace(table, coords=Coords(whole.instances.coords.values, table.is_ood.in_distribution))
        ),
        Predictions(whole.bags, replace(table.subset(np.arange(2)), coords=None)),
    ]
    instances = first_instances(compare(named_runs([(str(n), part) for n, part in enumerate(parts)])), 2)
    assert instances is not None and instances.coords is not None
    assert instances.coords.known.tolist() == [True] * 4 + [False] * 2  # the third bag is foreign
    assert instances.coords.values[:4].tolist() == [[7, 7], [256, 0], [0, 0], [7, 7]]


@pytest.mark.long
def test_a_report_knows_the_slide_of_each_instance_where_bags_hold_several(tmp_path: Path) -> None:
    given = of_two_slides(made_predictions(bags=3, per_bag=12))
    instances = reported(tmp_path, given)[0].data["instances"]
    slides = np.array(instances["slides"])[unpacked(instances["slide"])]
    position = unpacked(instances["position"])
    bag = np.repeat(given.bags.bag_ids, 12)
    sides = np.where(position < 8, "left of ", "right of ")
    assert slides.tolist() == [f"{side}{name}" for side, name in zip(sides, bag, strict=True)]
    (tmp_path / "without").mkdir()
    assert reported(tmp_path / "without", made_predictions())[0].data["instances"]["slide"] is None


def test_flags_of_each_run_are_kept_with_their_promise_and_counted_in_all(tmp_path: Path) -> None:
    flagged, plain = flagged_slides(40, 400), on_a_slide(made_predictions(40, 400, seed=1))
    assert flagged.instances is not None and flagged.instances.flagged is not None
    of_bags = flagged.instances.flagged.reshape(40, 400).sum(1)
    whole, _ = reported(tmp_path, flagged, plain, names=["with", "without"])
    data = whole.data["instances"]
    assert data["promises"][0].startswith("flagged where probability ≥ ")
    assert data["promises"][0].endswith(
        "promised: on a new negative bag, any instance is flagged with chance at most 0.4"
    )
    assert data["promises"][1] == "" and data["runs"][1]["flagged"] is None
    assert unpacked(data["runs"][0]["flagged"]).tolist() == flagged.instances.flagged.astype(int).tolist()
    shown, written = reported(tmp_path, flagged, max_mb=0.25)
    assert any("instances of each bag are listed" in note for note in written.notes)
    data = shown.data["instances"]
    assert unpacked(data["runs"][0]["flags"]).tolist() == of_bags.tolist()  # also of those that are not listed
    kept = np.split(unpacked(data["runs"][0]["flagged"]), unpacked(data["starts"])[1:-1])
    assert [part.sum() for part in kept] == np.minimum(of_bags, data["cap"]).tolist()  # flagged ones come first


def test_predictions_without_flags_show_none(tmp_path: Path) -> None:
    shown, _ = reported(tmp_path, on_a_slide(made_predictions()))
    (run,) = shown.data["instances"]["runs"]
    assert run["flagged"] is None and run["flags"] is None
    assert shown.data["instances"]["promises"] == [""]
