"""The report: what it says, what it refuses, how large it gets, and that no text of anyone's becomes code."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_files import slides
from made_predictions import NASTY, made_predictions, on_a_slide, unlabelled
from typer.testing import CliRunner

import miue
from miue.bags import BagDataset, Labels
from miue.calibration import FalseAlarmGoal, LabelSetGoal, ReferralGoal, calibrate, decide
from miue.cli import app
from miue.coords import Coords
from miue.data.opening import open_source
from miue.data.store import write_store
from miue.errors import ConfigError, DataError, MiueError
from miue.evaluation import evaluate
from miue.predictions import Predictions
from miue.report import page
from miue.report.details import all_instances
from miue.report.page import json_in_html
from miue.report.report import ReportFile, Resampling, write_report
from miue.report.runs import compare, named_runs


class Page(HTMLParser):
    """The elements, texts and scripts of a page, as a browser would take them apart."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._in: tuple[dict[str, str | None], list[str]] | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "script":
            self._in = (dict(attrs), [])

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self._in is not None:
            self.scripts.append((self._in[0], "".join(self._in[1])))
            self._in = None

    def handle_data(self, data: str) -> None:
        (self.texts if self._in is None else self._in[1]).append(data)

    @property
    def data(self) -> Any:
        return json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == "data"))

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures' library is 5 MB, and these tests draw nothing."""
    monkeypatch.setattr(page, "_plotly", lambda: "var Plotly = {};")


def made(tmp_path: Path, *found: Predictions, **options: Any) -> tuple[Page, ReportFile]:
    sources = [(f"place_{number}", one) for number, one in enumerate(found)]
    written = write_report(tmp_path / "report.html", sources, resampling=Resampling(20), **options)
    return Page((tmp_path / "report.html").read_text("utf-8")), written


def unpacked(packed: dict[str, str]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed["base64"]), np.dtype(packed["kind"]).newbyteorder("<"))


def without(predictions: Predictions, bags: set[str]) -> Predictions:
    def kept(table: Any) -> Any:
        return table.subset(np.flatnonzero([str(one) not in bags for one in table.bag_ids]))

    assert predictions.instances is not None
    return replace(predictions, bags=kept(predictions.bags), instances=kept(predictions.instances))


def test_the_numbers_of_the_page_are_those_of_the_evaluation(tmp_path: Path) -> None:
    predictions = made_predictions()
    shown, _ = made(tmp_path, predictions)
    level = evaluate(predictions).bags
    assert f"{100 * (level.metrics['accuracy'].value or 0):.1f}" in shown.text
    assert f"{level.metrics['nll'].value:.3f}" in shown.text
    content = shown.data["levels"]["bags"][0]
    curve = content["coverage"][level.confidence_measure]
    assert curve["errors"][-1] / curve["kept"][-1] == pytest.approx(1 - (level.metrics["accuracy"].value or 0))
    bins = content["reliability"]
    gap = np.abs(np.subtract(bins["accuracy"], bins["confidence"])) @ np.array(bins["count"])
    assert gap / sum(bins["count"]) == pytest.approx(level.metrics["ece"].value, abs=1e-5)
    inside, cats = content["distributions"]["vacuity"]["groups"]
    assert (inside["count"], cats["count"]) == (20, 10)
    assert sum(cats["share"]) == pytest.approx(1, abs=1e-5)
    assert cats["auroc"] == pytest.approx(level.ood["cats"].auroc.value)
    vacuity = unpacked(shown.data["predictions"][0]["measures"]["vacuity"])
    assert vacuity == pytest.approx(predictions.bags.uncertainties()["vacuity"], rel=1e-6)


def test_the_file_asks_for_nothing_from_a_network(tmp_path: Path) -> None:
    shown, _ = made(tmp_path, made_predictions())
    for name, value in shown.attributes:
        if name in ("src", "href", "action", "data"):
            assert value is not None
            assert value.startswith(("#", "data:")), value
    policy = next(
        value for name, value in shown.attributes if name == "content" and value and "default-src" in value
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in policy


def test_text_of_others_is_escaped_wherever_it_stands(tmp_path: Path) -> None:
    about = {"network": NASTY, "method": "m", "seed": NASTY, "classes": [NASTY, "b<i>"], NASTY: NASTY}
    predictions = made_predictions(name=NASTY, ood_set=NASTY, about=about)
    shown, _ = made(tmp_path, predictions, title=NASTY)
    assert len(shown.scripts) == 3
    assert not {"b", "i"} & set(shown.tags)
    assert NASTY in "".join(shown.texts)
    assert shown.data["bags"]["id"][0] == f"{NASTY} 0000"
    assert shown.data["classes"] == [NASTY, "b<i>"]
    assert shown.data["bags"]["sets"] == ["", NASTY]
    raw = (tmp_path / "report.html").read_text("utf-8")
    assert raw.count("</script>") == 3
    assert "<script>document" not in raw
    assert json_in_html({"a": "<!--\u2028&"}) == '{"a":"\\u003c!--\\u2028\\u0026"}'


def test_the_scripts_of_the_page_never_make_markup_of_text() -> None:
    for name in page.SCRIPTS:
        script = (page.FOLDER / name).read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script)
        assert "http" not in script


def test_seeds_of_one_method_are_summarised(tmp_path: Path) -> None:
    both = [
        made_predictions(seed=s, about={"network": "a", "method": "m", "seed": s, "epochs": s}) for s in (3, 4)
    ]
    shown, written = made(tmp_path, *both, made_predictions(seed=5, about={"network": "a", "method": "other"}))
    assert "a m, mean ± std of 2 seeds" in shown.text
    assert "a other, mean" not in shown.text
    accuracies = [100 * (evaluate(one).bags.metrics["accuracy"].value or 0) for one in both]
    assert f"{np.mean(accuracies):.1f} ± {np.std(accuracies, ddof=1):.1f}" in shown.text
    assert written.notes == ()


def test_options_tell_the_seeds_of_one_variant_from_those_of_another() -> None:
    abouts = [
        {"method": "m", "seed": seed, "options": {"method.red": red}} for red in (True, False) for seed in (1, 2)
    ]
    runs = named_runs([(str(number), made_predictions(about=about)) for number, about in enumerate(abouts)])
    assert [run.name for run in runs] == ["m, method.red=True"] * 2 + ["m, method.red=False"] * 2
    assert runs[0].title == "m, method.red=True, seed 1"


def test_runs_that_differ_in_more_than_the_seed_keep_their_own_names() -> None:
    first = made_predictions(about={"method": "m", "seed": 1, "estimator": "residual"})
    other = made_predictions(about={"method": "m", "seed": 2, "estimator": "attention"})
    assert [run.name for run in named_runs([("a", first), ("b", other)])] == ["m (a)", "m (b)"]
    assert [run.name for run in named_runs([("a", first), ("b", first)])] == ["m (a)", "m (b)"]
    assert [run.name for run in named_runs([("a", first), ("b", other)], ["x", "x"])] == ["x", "x"]
    with pytest.raises(DataError, match="different seeds under one name, got 2 with seed 1"):
        named_runs([("a", first), ("b", first)], ["x", "x"])


def test_bags_that_one_lacks_are_named_and_metrics_are_of_the_shared_ones(tmp_path: Path) -> None:
    whole = made_predictions(seed=1, about={"method": "whole"})
    part = without(made_predictions(seed=2, about={"method": "part"}), {"bag 0003", "bag 0007"})
    shown, written = made(tmp_path, whole, part)
    assert "part lacks 2 of 30 bags: bag 0003, bag 0007." in written.notes
    assert any("are of the 28 bags that all predictions have" in note for note in written.notes)
    for note in written.notes:
        assert note in shown.text
    accuracy = evaluate(without(whole, {"bag 0003", "bag 0007"})).bags.metrics["accuracy"].value
    assert accuracy != evaluate(whole).bags.metrics["accuracy"].value
    assert f"whole {100 * (accuracy or 0):.1f}" in shown.text
    lacking = unpacked(shown.data["predictions"][1]["measures"]["vacuity"])
    assert np.flatnonzero(np.isnan(lacking)).tolist() == [3, 7]
    even, odd = ({f"bag {number:04d}" for number in range(start, 30, 2)} for start in (0, 1))
    with pytest.raises(DataError, match="bags that all of them have, got none in common"):
        made(tmp_path, without(whole, even), without(part, odd))


def test_without_labels_the_rest_is_shown_and_what_is_missing_is_said(tmp_path: Path) -> None:
    shown, written = made(tmp_path, unlabelled(made_predictions()))
    assert any(note.startswith("No bag has a label") for note in written.notes)
    assert "no labelled item" in shown.text
    assert "—" in shown.text
    content = shown.data["levels"]["bags"][0]
    assert content["reliability"] == {"reason": "no labelled item in distribution"}
    assert content["distributions"]["vacuity"]["groups"][1]["auroc"] is not None


def test_labels_that_one_lacks_come_from_the_other_and_contradictions_are_refused(tmp_path: Path) -> None:
    whole, bare = made_predictions(about={"method": "a"}), unlabelled(made_predictions(about={"method": "b"}))
    shown, written = made(tmp_path, whole, bare)
    assert "b lacks the labels of 20 bags; those of the other predictions are used." in written.notes
    assert shown.data["levels"]["bags"][1]["coverage"]["vacuity"]["kept"][-1] == 20
    known = whole.bags.labels
    turned = replace(whole.bags, labels=Labels(1 - known.values, known.known))
    with pytest.raises(DataError, match="bag 'bag 0000' of predictions 'place_1': expected label"):
        made(tmp_path, whole, replace(whole, bags=turned, about={"method": "c"}))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (made_predictions(classes=3), "expected 2 classes, as 'place_0' has, got 3"),
        (made_predictions(about={"classes": ["x", "z"]}), "expected the classes x, y, as 'place_0' has, got x, z"),
    ],
)
def test_other_classes_are_refused(tmp_path: Path, other: Predictions, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        made(tmp_path, made_predictions(about={"classes": ["x", "y"]}), other)


def test_an_instance_twice_is_refused(tmp_path: Path) -> None:
    predictions = made_predictions()
    assert predictions.instances is not None
    assert predictions.instances.instance is not None
    doubled = np.where(predictions.instances.instance == 1, 0, predictions.instances.instance)
    wrong = replace(predictions, instances=replace(predictions.instances, instance=doubled))
    with pytest.raises(DataError, match="instance 0 of bag 'bag 0000' in predictions 'place_0'"):
        made(tmp_path, wrong)


def test_a_report_shows_fewer_instances_until_it_fits_and_says_so(tmp_path: Path) -> None:
    predictions = made_predictions(bags=40, per_bag=400)
    _, written = made(tmp_path, predictions)
    assert written.notes == ()
    limit = (written.bytes - 20_000) / 1e6
    shown, written = made(tmp_path, predictions, max_mb=limit)
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
    with pytest.raises(ConfigError, match=r"at most 0.03 MB .*pass --max-mb 1"):
        made(tmp_path, predictions, max_mb=0.03)


@pytest.mark.slow
def test_two_thousand_bags_of_two_hundred_thousand_instances_stay_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # with the figures' library
    _, written = made(tmp_path, made_predictions(bags=2000, per_bag=100))
    assert 4e6 < written.bytes < 20e6
    assert written.notes == ()


def store_of(predictions: Predictions, tmp_path: Path, shape: tuple[int, ...], per_bag: int = 5) -> BagDataset:
    random = np.random.default_rng(0)
    arrays = [random.integers(0, 255, size=(per_bag, *shape)).astype(np.uint8) for _ in predictions.bags.bag_ids]
    if len(shape) == 1:
        arrays = [array.astype(np.float32) for array in arrays]
    return BagDataset.from_arrays(arrays, ids=[str(one) for one in predictions.bags.bag_ids])


def decided(predictions: Predictions) -> Predictions:
    inside = without(predictions, {str(n) for n in predictions.bags.bag_ids[predictions.bags.is_ood]})
    goals = {"referral": ReferralGoal(0.45, 0.6), "label_sets": LabelSetGoal(0.2), "seed": 1}
    made_of = calibrate(inside, **goals, false_alarms=FalseAlarmGoal(0.2), about={"caveat": "<b>few</b>"})  # type: ignore[arg-type]
    assert made_of.referral is not None
    stricter = made_of.referral.model_copy(update={"threshold": 0.3})
    return decide(predictions, made_of.model_copy(update={"referral": stricter}))


def test_decisions_are_shown_with_their_promises_and_reasons(tmp_path: Path) -> None:
    predictions = decided(made_predictions(90, seed=3))
    shown, _ = made(tmp_path, predictions, made_predictions(90, seed=4, about={"method": "plain"}))
    found = evaluate(predictions).decisions
    assert found is not None
    kept, error, low = (100 * (found.metrics[k].value or 0) for k in ("kept", "error_among_kept", "error_low"))
    assert error > 0
    assert 0 < kept < 100
    heading = shown.texts.index("Decisions: what the rules of a calibration came to")
    told = " ".join(shown.texts[heading : heading + 60])
    assert f"{kept:.1f}" in told
    assert f"{error:.1f} {low:.1f} – " in told
    assert f"{100 * (found.found['cats'].value or 0):.1f}" in told
    promise = "error among the kept at most 0.45, at confidence 0.6; label missing from its set at most 0.2"
    assert promise in told
    assert "but <b>few</b>" in told
    ours, others = (one["decisions"] for one in shown.data["predictions"])
    assert others is None
    bags = predictions.bags
    assert bags.decisions is not None
    for name, wanted in (("decision", bags.decisions.decision), ("reason", bags.decisions.reason)):
        assert [ours[name]["texts"][code] for code in unpacked(ours[name]["codes"])] == wanted.tolist()
    held = [ours["set"]["texts"][code] for code in unpacked(ours["set"]["codes"])]
    assert held == bags.decisions.columns()["label_set"].tolist()
    assert {"refer", "out of distribution"} < set(ours["decision"]["texts"])
    assert "Decisions" not in made(tmp_path, made_predictions())[0].text


def test_a_calibration_that_another_tool_wrote_is_left_out(tmp_path: Path) -> None:
    predictions = decided(made_predictions(90, seed=3))
    strangers: list[Any] = [
        "text",
        {"referral": 3},
        {"referral": {"max_error": "x", "confidence": 1}},
        {"about": []},
    ]
    for strange in strangers:
        shown, _ = made(tmp_path, replace(predictions, about={"calibration": strange}))
        assert "Promised" not in shown.text


def test_seeds_that_were_calibrated_each_by_itself_stay_seeds_of_one_method() -> None:
    about = {"network": "attention", "method": "mirel"}
    runs = [
        (f"run {seed}", made_predictions(about={**about, "seed": seed, "calibration": {"made": seed}}))
        for seed in (1, 2)
    ]
    assert [run.title for run in named_runs(runs)] == ["attention mirel, seed 1", "attention mirel, seed 2"]


def test_the_settings_of_the_training_and_the_data_are_told(tmp_path: Path) -> None:
    bags = [np.full((2, 3), float(i % 2)) for i in range(20)]
    settings = {"max_epochs": 1, "learning_rate": 3e-3}
    model = miue.train(bags, [i % 2 for i in range(20)], settings=settings, distances=[], progress=False)
    given = model.predict(bags, progress=False)
    shown, _ = made(tmp_path, replace(given, about={**given.about, "bags": "the slides of spring"}))
    at = shown.texts.index("settings of training")
    assert shown.texts[at + 1].startswith("max_epochs = 1, learning_rate = 0.003, weight_decay = 1e-05, ")
    assert shown.texts[shown.texts.index("data") + 1] == "the slides of spring"
    assert shown.texts[shown.texts.index("instances of a bag") + 1] == "2 to 2, median 2"


def test_positions_come_from_a_folder_of_feature_files(tmp_path: Path) -> None:
    features, _ = slides(tmp_path, patients=6)
    bags = open_source(features).bags
    count = int(bags.sizes.sum())
    bag_ids = np.repeat(np.array(bags.ids, object), bags.sizes)
    of_bags = made_predictions(len(bags), 1).bags
    instances = made_predictions(count, 1).instances
    assert instances is not None
    within = np.concatenate([np.arange(size) for size in bags.sizes])
    given = Predictions(
        replace(of_bags, bag_ids=np.array(bags.ids, object)),
        replace(instances, bag_ids=bag_ids, instance=within),
        {},
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
    shown, _ = made(tmp_path, predictions, store=store)
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
    shown, written = made(tmp_path, predictions, store=store_of(predictions, tmp_path, (6,)))
    assert "pictures" not in shown.data
    assert "The store holds features, not images, so no picture of an instance is shown." in written.notes
    with pytest.raises(DataError, match="bag 'bag 0020': expected every predicted bag in the store, got 10 bags"):
        made(tmp_path, predictions, store=store_of(made_predictions(bags=20), tmp_path, (9, 9, 1)))
    with pytest.raises(DataError, match="expected one of the 4 instances that the store has of it"):
        made(tmp_path, predictions, store=store_of(predictions, tmp_path, (9, 9, 1), per_bag=4))


def test_the_place_of_an_instance_is_told_by_the_first_predictions_that_know_it(tmp_path: Path) -> None:
    whole = on_a_slide(made_predictions(bags=3, per_bag=2))
    assert whole.instances is not None and whole.instances.coords is not None
    table = whole.instances
    parts = [
        Predictions(whole.bags, replace(table.subset(np.arange(4)), coords=Coords(np.full((4, 2), 7), KNOWN))),
        Predictions(whole.bags, replace(table, coords=Coords(whole.instances.coords.values, ~table.is_ood))),
        Predictions(whole.bags, replace(table.subset(np.arange(2)), coords=None)),
    ]
    instances = all_instances(compare(named_runs([(str(n), part) for n, part in enumerate(parts)])))
    assert instances is not None and instances.coords is not None
    assert instances.coords.known.tolist() == [True] * 4 + [False] * 2  # the third bag is foreign
    assert instances.coords.values[:4].tolist() == [[7, 7], [256, 0], [0, 0], [7, 7]]


KNOWN = np.array([True, False, False, True])


def test_the_command_reads_folders_and_tables_of_other_tools(tmp_path: Path) -> None:
    predictions = on_a_slide(made_predictions())
    predictions.save(tmp_path / "pred")
    write_store(tmp_path / "store", store_of(predictions, tmp_path, (8, 8, 1)))
    out = tmp_path / "r.html"
    command = ["report", str(tmp_path / "pred"), "--store", str(tmp_path / "store"), "--out", str(out), "--quiet"]
    result = CliRunner().invoke(app, [*command, "--resamples", "20", "--name", "mine"])
    assert result.exit_code == 0, result.output
    shown = Page(out.read_text("utf-8"))
    assert shown.data["runs"][0]["title"] == "mine, seed 42"
    assert shown.data["instances"]["x"] is not None
    assert shown.data["pictures"]["perBag"] == 12

    (tmp_path / "bags.csv").write_text("bag_id,p_1\n007,0.25\n008,0.5\n")
    (tmp_path / "instances.csv").write_text("bag_id,p_1\n007,0.5\n007,0.75\n008,0.5\n")
    tables = ["--bags", str(tmp_path / "bags.csv"), "--instances", str(tmp_path / "instances.csv")]
    result = CliRunner().invoke(app, ["report", *tables, "--out", str(tmp_path / "other.html"), "--quiet"])
    assert result.exit_code == 0, result.output
    assert "note: No bag has a label" in result.output
    shown = Page((tmp_path / "other.html").read_text("utf-8"))
    assert shown.data["bags"]["id"] == ["007", "008"]
    assert unpacked(shown.data["instances"]["position"]).tolist() == [0, 1, 0]
    assert "its model, seed and version are unknown" in shown.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["empty"], "a folder of predictions (with bags.csv), got a folder without it"),
        (["nowhere"], "got no such folder"),
        ([], "folders of predictions, or --bags FILE"),
        (["pred", "--bags", "pred/bags.csv"], "folders of predictions, or --bags FILE"),
        (["pred", "pred", "--name", "a"], "one for each of 2 predictions, got 1"),
        (["pred", "--max-mb", "0.1", "--out", "taken.html"], "expected a new name, got a file that is there"),
    ],
)
def test_what_cannot_be_reported_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    made_predictions().save("pred")
    Path("empty").mkdir()
    Path("taken.html").write_text("mine")
    result = CliRunner().invoke(app, ["report", *arguments, "--quiet"])
    assert isinstance(result.exception, MiueError)
    assert message in str(result.exception)
    assert Path("taken.html").read_text() == "mine"
    assert not Path("report.html").exists()
