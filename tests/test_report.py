"""The report: what it says, what it refuses, and that no text of anyone's becomes code."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_predictions import NASTY, made_predictions, made_provenance, on_a_slide, unlabeled
from made_reports import Page, reported, store_of, unpacked
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

import miue
from miue.bags import Labels, OodFlags
from miue.calibration import CalibrationBags, DeferralGoal, FalseAlarmGoal, PredictionSetGoal, calibrate, decide
from miue.cli import app
from miue.common.errors import DataError, MiueError
from miue.common.text import json_in_html
from miue.evaluation import evaluate
from miue.evaluation.metrics import NO_LABEL
from miue.io import write_store
from miue.predictions import Predictions, Provenance
from miue.report.fitting import SCRIPTS, TEMPLATE
from miue.report.runs import named_runs

pytestmark = pytest.mark.usefixtures("small_plotly")


def without(predictions: Predictions, bags: set[str]) -> Predictions:
    def kept(table: Any) -> Any:
        return table.subset(np.flatnonzero([str(one) not in bags for one in table.bag_ids]))

    assert predictions.instances is not None
    return replace(predictions, bags=kept(predictions.bags), instances=kept(predictions.instances))


def test_the_numbers_of_the_page_are_those_of_the_evaluation(tmp_path: Path) -> None:
    predictions = made_predictions()
    shown, _ = reported(tmp_path, predictions)
    level = evaluate(predictions).bags
    assert f"{100 * (level.metrics['accuracy'].value or 0):.1f}" in shown.text
    assert f"{level.metrics['nll'].value:.3f}" in shown.text
    content = shown.data["levels"]["bags"][0]
    curve = content["coverage"][level.confidence_measure]
    assert curve["errors"][-1] / curve["accepted"][-1] == pytest.approx(1 - (level.metrics["accuracy"].value or 0))
    bins = content["reliability"]
    accuracy = np.array(bins["accuracy"]) @ np.array(bins["count"]) / sum(bins["count"])
    assert accuracy == pytest.approx(level.metrics["accuracy"].value, abs=1e-5)
    inside, cats = content["distributions"]["vacuity"]["groups"]
    assert (inside["count"], cats["count"]) == (20, 10)
    assert sum(cats["share"]) == pytest.approx(1, abs=1e-5)
    assert cats["auroc"] == pytest.approx(level.ood["cats"].auroc.value)
    vacuity = unpacked(shown.data["predictions"][0]["measures"]["vacuity"])
    assert vacuity == pytest.approx(predictions.bags.uncertainties()["vacuity"], rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_confusion_matrix_of_each_level_is_shown_and_of_two_classes_sensitivity_and_specificity(
    tmp_path: Path, classes: int
) -> None:
    names = ("benign", NASTY, "other")[:classes]
    predictions = made_predictions(classes=classes, provenance=made_provenance(classes=names))
    shown, _ = reported(tmp_path, predictions)
    evaluation = evaluate(predictions)
    assert evaluation.instances is not None
    for level in (evaluation.bags, evaluation.instances):
        for name, counts in zip(names, level.confusion, strict=True):
            cells = " ".join(f"{count} {100 * count / sum(counts):.1f} %" for count in counts)
            assert f"label {name} {cells}" in shown.text
        recalls = [f"{100 * (one.value or 0):.1f}" for one in level.recall_by_class.values()]
        balanced = f"{100 * (level.metrics['balanced_accuracy'].value or 0):.1f}"
        assert all(text in shown.text for text in (*recalls, balanced))
    columns = [f"{name} % ↑" in shown.text for name in ("sensitivity", "specificity")]
    assert columns == [classes == 2] * 2
    assert ("share of the items labeled benign that are predicted so" in shown.text) == (classes == 2)
    assert "Confusion matrix of bags" in shown.text and "Confusion matrix of instances" in shown.text


def test_errors_are_shown_by_the_paper_s_measure_and_by_the_one_that_defers_bags(tmp_path: Path) -> None:
    predictions = made_predictions()
    random = np.random.default_rng(5)
    scores = {"error_probability": random.uniform(size=len(predictions.bags))}
    shown, _ = reported(tmp_path, replace(predictions, bags=replace(predictions.bags, scores=scores)))
    by_measure = evaluate(predictions).bags.by_measure
    judged = predictions.bags.judged
    wrong = predictions.bags.predicted[judged] != predictions.bags.labels.values[judged]
    for measure, auroc in (
        ("inverse max alpha", by_measure["inverse_max_alpha"].confidence.auroc.value),
        ("error probability", roc_auc_score(wrong, scores["error_probability"][judged])),
    ):
        assert f"error detection (AUROC) % ↑ by {measure}" in shown.text
        assert auroc is not None
        assert f"{100 * auroc:.1f}" in shown.text
    assert shown.data["levels"]["bags"][0]["defaults"]["confidence"] == "error_probability"
    assert shown.data["levels"]["instances"][0]["defaults"]["confidence"] == "least_confidence"


@pytest.mark.long
def test_patients_with_several_bags_are_evaluated_as_by_the_command(tmp_path: Path) -> None:
    made = made_predictions(seed=1, provenance=Provenance(method="told"))
    patients = np.array([f"patient {number // 2}" for number in range(len(made.bags))], object)
    told = replace(made, bags=replace(made.bags, patients=patients))
    other = made_predictions(seed=2, provenance=Provenance(method="silent"))
    shown, _ = reported(tmp_path, told, other)
    alike = replace(other, bags=replace(other.bags, patients=patients))
    places = [shown.text.index(f"Metrics of {level}") for level in ("bags", "patients", "instances")]
    assert places == sorted(places)
    below = shown.text[places[1] : places[2]]
    for name, predictions in (("told", told), ("silent", alike)):
        level = evaluate(predictions).patients
        assert level is not None and level.count == 15
        assert re.search(rf"{name} {100 * (level.metrics['accuracy'].value or 0):.1f}", below)
    alone, _ = reported(tmp_path, made)
    assert "Metrics of patients" not in alone.text


def test_the_file_asks_for_nothing_from_a_network(tmp_path: Path) -> None:
    shown, _ = reported(tmp_path, made_predictions())
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
    provenance = Provenance(network=NASTY, method="m", classes=(NASTY, "b<i>"), notes={NASTY: NASTY})
    predictions = made_predictions(name=NASTY, ood_set=NASTY, provenance=provenance)
    shown, _ = reported(tmp_path, predictions, title=NASTY)
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
    for name in SCRIPTS:
        script = (TEMPLATE.parent / name).read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script)
        assert "http" not in script


def test_seeds_of_one_method_are_summarised(tmp_path: Path) -> None:
    of_seeds = [made_provenance(network="a", method="m", seed=s, epochs=s) for s in (3, 4)]
    both = [made_predictions(seed=s, provenance=one) for s, one in zip((3, 4), of_seeds, strict=True)]
    other = Provenance(network="a", method="other")
    shown, written = reported(tmp_path, *both, made_predictions(seed=5, provenance=other))
    assert "a m, mean ± std of 2 seeds" in shown.text
    assert "a other, mean" not in shown.text
    accuracies = [100 * (evaluate(one).bags.metrics["accuracy"].value or 0) for one in both]
    assert f"{np.mean(accuracies):.1f} ± {np.std(accuracies, ddof=1):.1f}" in shown.text
    assert written.notes == ()


def test_options_tell_the_seeds_of_one_variant_from_those_of_another() -> None:
    provenances = [
        made_provenance(method="m", seed=seed, options={"method.red": red})
        for red in (True, False)
        for seed in (1, 2)
    ]
    runs = named_runs([(str(number), made_predictions(provenance=one)) for number, one in enumerate(provenances)])
    assert [run.name for run in runs] == ["m, method.red=True"] * 2 + ["m, method.red=False"] * 2
    assert runs[0].title == "m, method.red=True, seed 1"
    provenances = [made_provenance(method="m", seed=seed, calibration={"made": seed}) for seed in (1, 2)]
    runs = named_runs([("", made_predictions(provenance=one)) for one in provenances])
    assert [run.title for run in runs] == ["m, seed 1", "m, seed 2"]  # though each has a calibration of its own


def test_runs_that_differ_in_more_than_the_seed_keep_their_own_names() -> None:
    first = made_predictions(provenance=made_provenance(method="m", seed=1, estimator="residual"))
    other = made_predictions(provenance=made_provenance(method="m", seed=2, estimator="attention"))
    assert [run.name for run in named_runs([("a", first), ("b", other)])] == ["m (a)", "m (b)"]
    assert [run.name for run in named_runs([("a", first), ("b", first)])] == ["m (a)", "m (b)"]
    assert [run.name for run in named_runs([("a", first), ("b", other)], ["x", "x"])] == ["x", "x"]
    with pytest.raises(DataError) as refused:
        named_runs([("a", first), ("b", first)], ["x", "x"])
    assert (refused.value.item, refused.value.got) == ("predictions named 'x'", "2 with seed 1")


def test_bags_that_one_lacks_are_named_and_metrics_are_of_the_shared_ones(tmp_path: Path) -> None:
    whole = made_predictions(seed=1, provenance=Provenance(method="whole"))
    part = without(made_predictions(seed=2, provenance=Provenance(method="part")), {"bag 0003", "bag 0007"})
    shown, written = reported(tmp_path, whole, part)
    assert "part lacks 2 of 30 bags: bag 0003, bag 0007." in written.notes
    assert any("are of the 28 bags that all predictions have" in note for note in written.notes)
    for note in written.notes:
        assert note in shown.text
    accuracy = evaluate(without(whole, {"bag 0003", "bag 0007"})).bags.metrics["accuracy"].value
    assert accuracy != evaluate(whole).bags.metrics["accuracy"].value
    assert f"whole {100 * (accuracy or 0):.1f}" in shown.text
    lacking = unpacked(shown.data["predictions"][1]["measures"]["vacuity"])
    assert np.flatnonzero(np.isnan(lacking)).tolist() == [3, 7]


def test_without_labels_there_is_no_empty_figure_or_column_and_what_is_missing_is_said(tmp_path: Path) -> None:
    shown, written = reported(tmp_path, unlabeled(made_predictions()))
    assert any(note.startswith("No bag has a label") for note in written.notes)
    assert (
        "Not shown: accuracy, balanced accuracy, specificity, sensitivity, AUROC, error detection (AUROC), UE, ECE"
        in shown.text
    )
    assert ("id", "reliability") not in shown.attributes
    assert "No label is known, so accuracy" in shown.text
    content = shown.data["levels"]["bags"][0]
    assert content["reliability"] == {"reason": NO_LABEL}
    assert content["distributions"]["vacuity"]["groups"][1]["auroc"] is not None


def test_what_is_missing_in_every_cohort_is_one_quiet_line_and_no_note(tmp_path: Path) -> None:
    given = made_predictions()
    assert given.instances is not None
    bags = replace(
        given.bags, is_ood=OodFlags.unknown(len(given.bags)), ood_sets=np.full(len(given.bags), "", object)
    )
    bare = replace(given, bags=bags, instances=unlabeled(given).instances)
    shown, written = reported(tmp_path, bare, store=store_of(bare, tmp_path, (6,)))
    [line] = written.notes
    assert line == (
        "Not in the data, and so not shown: OOD detection (no bag is known to be out of distribution, column "
        "'is_ood'); errors of instances (no instance has a label); pictures of instances (the store holds "
        "features, not images)."
    )
    assert shown.text.count(line) == 1 and ("id", "notes") not in shown.attributes
    assert ("id", "absent") not in reported(tmp_path, given)[0].attributes


def test_labels_that_one_lacks_come_from_the_other(tmp_path: Path) -> None:
    whole, bare = (
        made_predictions(provenance=Provenance(method="a")),
        unlabeled(made_predictions(provenance=Provenance(method="b"))),
    )
    shown, written = reported(tmp_path, whole, bare)
    assert "b lacks the labels of 20 bags; those of the other predictions are used." in written.notes
    assert shown.data["levels"]["bags"][1]["coverage"]["vacuity"]["accepted"][-1] == 20


def turned(predictions: Predictions, bags: slice) -> Predictions:
    labels = predictions.bags.labels
    values = labels.values.copy()
    values[bags] = 1 - values[bags]
    table = replace(predictions.bags, labels=Labels(values, labels.known))
    return replace(predictions, bags=table, provenance=Provenance(method="turned"))


@pytest.mark.parametrize(
    ("other", "item", "got"),
    [
        (turned(made_predictions(), slice(1)), "bag 'bag 0000' of predictions 'place_1'", r"label \d$"),
        (
            turned(made_predictions(), slice(None)),
            "bag 'bag 0000' of predictions 'place_1'",
            r"label \d \(and 19 ",
        ),
        (made_predictions(classes=3), "predictions 'place_1'", "3"),
        (made_predictions(provenance=Provenance(classes=("x", "z"))), "predictions 'place_1'", "x, z"),
        (made_predictions(name="other"), "predictions 'place_0', 'place_1'", "none in common"),
    ],
    ids=["a label", "labels", "number of classes", "classes", "no bag in common"],
)
def test_predictions_that_do_not_fit_together_are_refused(
    tmp_path: Path, other: Predictions, item: str, got: str
) -> None:
    with pytest.raises(DataError) as refused:
        reported(tmp_path, made_predictions(provenance=Provenance(classes=("x", "y"))), other)
    assert refused.value.item == item
    assert re.match(got, refused.value.got)


def decided(predictions: Predictions) -> Predictions:
    inside = without(predictions, {str(n) for n in predictions.bags.bag_ids[predictions.bags.is_ood.values]})
    goals = {"deferral": DeferralGoal(0.45, 0.6), "prediction_sets": PredictionSetGoal(0.2)}
    few = CalibrationBags(caveat="<b>few</b>")
    made_of = calibrate(inside, false_alarms=FalseAlarmGoal(0.2), made_from=few, settings={"seed": 1}, **goals)  # type: ignore[arg-type]
    assert made_of.deferral is not None
    stricter = made_of.deferral.model_copy(update={"threshold": 0.3})
    return decide(predictions, made_of.model_copy(update={"deferral": stricter}))


@pytest.mark.long
def test_decisions_are_shown_with_their_promises_and_reasons(tmp_path: Path) -> None:
    predictions = decided(made_predictions(90, seed=3))
    shown, _ = reported(tmp_path, predictions, made_predictions(90, seed=4, provenance=Provenance(method="plain")))
    found = evaluate(predictions).decisions
    assert found is not None
    accepted, error, low = (
        100 * (found.metrics[k].value or 0) for k in ("accepted", "selective_risk", "selective_risk_low")
    )
    assert error > 0
    assert 0 < accepted < 100
    heading = shown.texts.index("Decision rules on these bags")
    said = " ".join(shown.texts[heading : heading + 60])
    assert f"{accepted:.1f}" in said
    assert f"{error:.1f} {low:.1f} to " in said
    assert f"{100 * (found.found['cats'].value or 0):.1f}" in said
    assert "deferral: error among the accepted ≤ 0.45 at confidence 0.6; " in said
    assert "prediction sets: a set misses the label with chance ≤ 0.2, over all bags" in said
    assert "but <b>few</b>" in said
    ours, others = (one["decisions"] for one in shown.data["predictions"])
    assert others is None
    bags = predictions.bags
    assert bags.decisions is not None
    for name, wanted in (("decision", bags.decisions.decision), ("reason", bags.decisions.reason)):
        assert [ours[name]["texts"][code] for code in unpacked(ours[name]["codes"])] == wanted.tolist()
    held = [ours["set"]["texts"][code] for code in unpacked(ours["set"]["codes"])]
    assert held == bags.decisions.columns()["prediction_set"].tolist()
    assert {"deferred", "out of distribution"} < set(ours["decision"]["texts"])
    assert "Decisions" not in reported(tmp_path, made_predictions())[0].text


def test_the_settings_of_the_training_and_the_data_are_told(tmp_path: Path) -> None:
    bags = [np.full((2, 3), float(i % 2)) for i in range(20)]
    settings = {"max_epochs": 1, "learning_rate": 3e-3}
    model = miue.train(bags, [i % 2 for i in range(20)], settings={**settings, "distances": []}, progress=False)
    given = model.predict(bags, progress=False)
    provenance = given.provenance.model_copy(update={"bags": "the slides of spring"})
    shown, _ = reported(tmp_path, replace(given, provenance=provenance))
    at = shown.texts.index("settings of training")
    assert shown.texts[at + 1].startswith("max_epochs = 1, learning_rate = 0.003, weight_decay = 1e-05, ")
    assert shown.texts[shown.texts.index("data") + 1] == "the slides of spring"
    assert shown.texts[shown.texts.index("instances of a bag") + 1] == "2 to 2, median 2"


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
    tables = [str(tmp_path / "bags.csv"), "--instances", str(tmp_path / "instances.csv")]
    result = CliRunner().invoke(app, ["report", *tables, "--out", str(tmp_path / "other.html"), "--quiet"])
    assert result.exit_code == 0, result.output
    assert "note: No bag has a label" in result.output
    shown = Page((tmp_path / "other.html").read_text("utf-8"))
    assert shown.data["bags"]["id"] == ["007", "008"]
    assert unpacked(shown.data["instances"]["position"]).tolist() == [0, 1, 0]
    assert "its model, seed and version are unknown" in shown.text


def test_the_command_prints_the_numbers_of_the_verdict_as_json(tmp_path: Path) -> None:
    predictions = made_predictions(30)
    predictions.save(tmp_path / "pred")
    out = tmp_path / "r.html"
    command = ["report", str(tmp_path / "pred"), "--out", str(out), "--resamples", "20", "--quiet", "--json"]
    printed = json.loads(CliRunner().invoke(app, command).stdout)
    assert (printed["out"], printed["bytes"]) == (str(out), out.stat().st_size)
    [verdict] = printed["verdicts"]
    accuracy = verdict["metrics"]["accuracy"]
    assert accuracy["value"] == evaluate(predictions).bags.metrics["accuracy"].value
    assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
    assert f"Accuracy {100 * accuracy['value']:.1f}" in verdict["sentences"][0]
    assert " ".join(verdict["sentences"][0].split()) in Page(out.read_text("utf-8")).text


def test_folders_and_tables_of_other_tools_are_compared_in_one_report(tmp_path: Path) -> None:
    made_predictions(30).save(tmp_path / "pred")
    labels = made_predictions(30).bags.labels.values
    rows = [f"bag {n:04d},{label},{0.8 if label else 0.1}" for n, label in enumerate(labels.tolist())]
    (tmp_path / "theirs.csv").write_text("\n".join(["slide_id,Y,prob_1", *rows]) + "\n")
    both = [str(tmp_path / "pred"), str(tmp_path / "theirs.csv")]
    result = CliRunner().invoke(app, ["report", *both, "--out", str(tmp_path / "r.html"), "--resamples", "20"])
    assert result.exit_code == 0, result.output
    shown = Page((tmp_path / "r.html").read_text("utf-8"))
    assert [run["title"] for run in shown.data["runs"]] == ["attention mirel, seed 42", both[1]]
    assert f"{both[1]} − attention mirel" in shown.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["empty"], "predictions: a folder with bags.csv, or a table, got a folder without it"),
        (["nowhere"], "got no such folder"),
        (["pred", "--instances", "pred/instances.csv"], "a folder of predictions with instances"),
        (["pred", "pred", "--instances", "f.csv"], "one bag table that it belongs to, got 2 predictions"),
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
