"""``miue calibrate`` and ``miue decide``: which bags they take, and what they refuse."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import fail, run
from made_bags import separable_bags
from made_files import slides

import miue
from miue.calibration import Calibration
from miue.cli.bags import calibration_bags
from miue.common.errors import DataError, StorageError
from miue.io import read_splits, write_store
from miue.predictions import read_predictions
from miue.report.verdict import guarantees

EASY = ["--max-error", "0.4", "--coverage", "0.8", "--false-alarms", "0.2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("decisions")
    bags = separable_bags(260, seed=5)
    splits = np.repeat(["train", "validation", "calibration", "test"], [80, 40, 80, 60])
    names = ("benign", "tumour")
    write_store(place / "store", replace(bags, splits=tuple(splits.tolist()), class_names=names))
    two = np.where(splits == "calibration", "test", splits)
    write_store(place / "two", replace(bags, splits=tuple(two.tolist()), class_names=names))
    write_store(place / "whole", replace(bags, class_names=names))
    quick = ["--quiet", "--set", "max_epochs=3", "--set", "learning_rate=1e-3"]
    run("train", place / "store", "--out", place / "run", *quick)
    run("train", place / "whole", "--out", place / "whole-run", *quick)
    return place


def copied(folder: Path, name: str, to: Path) -> Path:
    to.mkdir()
    for file in (folder / name).glob("*.*"):
        (to / file.name).write_bytes(file.read_bytes())
    return to


def test_a_calibrated_run_is_applied_by_predict_and_judged_by_evaluate(folder: Path, tmp_path: Path) -> None:
    model = copied(folder, "run", tmp_path / "run")
    printed = run("calibrate", model, folder / "store", *EASY, "--quiet")
    assert "error among the accepted ≤ 0.4" in " ".join(printed.replace("│", " ").split())
    assert "Note" not in printed
    about = json.loads((model / "calibration.json").read_text())["calibration"]["made_from"]
    assert (about["split"], about["bags"]) == ("calibration", 80)
    run("predict", model, folder / "store", "--out", tmp_path / "out", "--quiet")
    assert "error among the accepted" in run("evaluate", tmp_path / "out")
    judged = json.loads(run("evaluate", tmp_path / "out", "--json"))["decisions"]["metrics"]
    assert judged["accepted"] + judged["deferred"] + judged["flagged"] == pytest.approx(1)
    assert "error_probability" in json.dumps(json.loads(run("inspect", model, "--json"))["calibration"])
    calibrated_again = run("calibrate", model, folder / "store", *EASY, "--quiet")
    assert calibrated_again == printed


def test_bags_that_stopped_the_training_are_used_with_a_note(folder: Path, tmp_path: Path) -> None:
    model = copied(folder, "run", tmp_path / "run")
    assert "chose the epoch" in run("calibrate", model, folder / "two", *EASY, "--without", "ood", "--quiet")
    whole = copied(folder, "whole-run", tmp_path / "whole-run")
    bags, made_from = calibration_bags(whole, miue.read_store(folder / "whole"), None)
    assert (len(bags), made_from.split) == (52, "held out by training")
    assert made_from.caveat


def test_all_needs_are_said_before_anything_is_predicted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def predict(*_: object, **__: object) -> None:
        raise AssertionError("bags were predicted")

    monkeypatch.setattr(miue.Model, "predict", predict)
    strict = ["--max-error", "0.01", "--coverage", "0.99", "--false-alarms", "0.01"]
    printed = fail("calibrate", folder / "run", folder / "store", *strict)
    for words in (
        "labeled bags for the deferral",
        "at least 99 labeled bags for prediction sets",
        "at least 99 in-distribution bags",
        "got 80 labeled bags; 80 in-distribution bags",
        "leave out the deferral",
        "leave out prediction sets",
        "leave out the out-of-distribution threshold",
    ):
        assert words in printed


def test_bags_that_all_tie_at_the_out_of_distribution_threshold_are_deferred_with_what_to_do(
    tmp_path: Path,
) -> None:
    lines = [f"b{i},{int(i % 10 == 0)},0.1" for i in range(120)]
    (tmp_path / "held.csv").write_text("\n".join(["bag_id,label,p_1", *lines]) + "\n")
    words = ("calibrate", tmp_path / "held.csv", "--out", tmp_path / "c.json", "--max-error", "0.2")
    printed = " ".join(run(*words).split())
    assert "0 bags below the out-of-distribution threshold" in printed
    assert "or leave that out, add bags, allow a larger error" in printed
    assert "Warning" not in run(*words, "--without", "ood", "--overwrite")


def test_a_deferral_that_no_threshold_passes_is_said_and_refers_every_bag(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    lines = [f"b{i},{i % 2},{q}" for i, q in enumerate(random.random(120))]  # labels that nothing predicts
    lines[7] = "b7,0,1.0"  # and one that was thought impossible
    (tmp_path / "held.csv").write_text("\n".join(["bag_id,label,p_1", *lines]) + "\n")
    out = tmp_path / "calibration.json"
    printed = run("calibrate", tmp_path / "held.csv", "--out", out)
    assert "Warning: No bag is accepted: no threshold on least_confidence passed the tests" in printed
    assert "leave the deferral out" in printed
    assert "no temperature was fitted: probability 0 for 1 label," in printed
    said = run("decide", tmp_path / "held.csv", "--calibration", out, "--out", tmp_path / "decided")
    assert said.startswith("120 bags: 0 accepted")
    judged = run("evaluate", tmp_path / "decided", "--json")
    metrics = json.loads(judged[judged.index("{") :])["decisions"]["metrics"]
    assert metrics["nll"]["reason"].startswith("no temperature was fitted: probability 0 for 1 label")
    made = json.loads(out.read_text())["calibration"]
    assert made["scaling"] is None
    assert made["prediction_sets"]["bags"] == [120, 120]
    assert "no threshold passed" in guarantees(Calibration.load(out))[0]


def test_training_bags_are_refused_where_they_can_be_seen(folder: Path) -> None:
    printed = fail("calibrate", folder / "run", folder / "store", "--part", "train")
    assert "80 bags that the model was trained on" in printed
    bags = miue.read_store(folder / "whole")
    renamed = replace(bags, splits=("test",) * len(bags))
    with pytest.raises(DataError, match="208 bags that the model was trained on"):
        calibration_bags(folder / "whole-run", renamed, "test")
    assert not (folder / "run" / "calibration.json").exists()


def test_a_calibration_that_cannot_be_written_is_refused_before_bags_are_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("bags were read, though the calibration cannot be written")

    monkeypatch.setattr("miue.cli.calibrate.open_bags_of", read)
    monkeypatch.setattr("miue.cli.calibrate.read_given", read)
    (tmp_path / "file").write_text("no folder")
    out = tmp_path / "file" / "rules.json"
    for source in ((folder / "run", folder / "store"), (folder / "predictions",)):
        printed = fail("calibrate", *source, *EASY, "--out", out)
        assert f"{str(out)!r}: expected to write it whole" in printed


def test_predictions_of_another_tool_are_calibrated_and_decided(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    p = random.beta(0.3, 0.3, 300)
    labels = (random.random(300) < p).astype(int)
    for name, part in (("held", slice(0, 200)), ("new", slice(200, 300))):
        lines = [f"{name}{i},{y},{q}" for i, (y, q) in enumerate(zip(labels[part], p[part], strict=True))]
        (tmp_path / f"{name}.csv").write_text("\n".join(["bag_id,label,p_1", *lines]) + "\n")
    out = tmp_path / "calibration.json"
    options = ["--classes", "benign, tumour", "--max-error", "0.1", "--per-class", "--prediction-set", "aps"]
    run("calibrate", tmp_path / "held.csv", "--out", out, *options)
    with pytest.raises(StorageError, match="a file that is there"):
        run("calibrate", tmp_path / "held.csv", "--out", tmp_path / "new.csv", *options)
    run("calibrate", tmp_path / "held.csv", "--out", out, "--overwrite", *options)
    printed = run("decide", tmp_path / "new.csv", "--calibration", out, "--out", tmp_path / "decided")
    assert printed.startswith("100 bags: ")
    with (tmp_path / "decided" / "bags.csv").open(newline="") as file:
        assert {row["decision"] for row in csv.DictReader(file)} >= {"benign", "tumour", "deferred"}
    again = run("decide", tmp_path / "decided", "--calibration", out, "--out", tmp_path / "again")
    assert again.split(".")[0] == printed.split(".")[0]
    metrics = json.loads(run("evaluate", tmp_path / "decided", "--json"))["decisions"]["metrics"]
    assert metrics["selective_risk_low"] <= 0.1
    assert metrics["coverage"] > 0.8


def test_a_table_has_its_labels_by_the_names_of_the_calibration(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    p = random.uniform(0, 1, 200)
    names = np.where(random.random(200) < p, "Tumor, groß", "kein Tumor")
    lines = [f'{i},"{name}",{q}' for i, (name, q) in enumerate(zip(names, p, strict=True))]
    table, out = tmp_path / "table.csv", tmp_path / "calibration.json"
    table.write_text("\n".join(["bag_id,label,p_1", *lines]) + "\n", encoding="utf-8")
    words = ["--classes", "kein Tumor", "--classes", "Tumor, groß", "--without", "deferral,ood"]
    run("calibrate", table, "--out", out, *words)
    run("decide", table, "--calibration", out, "--out", tmp_path / "decided")
    decided = read_predictions(tmp_path / "decided")
    assert decided.provenance.classes == ("kein Tumor", "Tumor, groß")
    assert decided.bags.labels.values.tolist() == (names == "Tumor, groß").astype(int).tolist()
    swapped = ["--classes", "Tumor, groß", "--classes", "kein Tumor"]
    with pytest.raises(DataError, match="the classes that were calibrated: kein Tumor, Tumor, groß"):
        run("decide", table, "--calibration", out, "--out", tmp_path / "swapped", *swapped)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calibrate"], "Missing argument"),
        (["calibrate", "RUN"], "expected RUN and BAGS, or PREDICTIONS"),
        (["calibrate", "RUN", "STORE", "--without", "sett"], "did you mean 'sets'"),
        (["calibrate", "RUN", "STORE", "--part", "calib"], "expected one of calibration"),
        (["calibrate", "RUN", "STORE", "--max-error", "5"], "--max-error: expected less than 1, got 5.0"),
        (["calibrate", "RUN", "STORE", "--max-error", "0.01"], "at least 268 labeled"),
        (["calibrate", "RUN", "STORE", "--measure", "entropie"], "did you mean 'entropy'"),
        (
            ["decide", "TABLE", "--calibration", "RUN", "--out", "NEW"],
            "calibration.json': expected an existing",
        ),
        (["decide", "NOWHERE", "--calibration", "RULES", "--out", "NEW"], "no.csv': expected predictions"),
        (["decide", "RUN", "--calibration", "RULES", "--out", "NEW"], "expected predictions"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: list[str],
    message: str,
    folder: Path,
    tmp_path: Path,
) -> None:
    places = {
        "RUN": folder / "run",
        "STORE": folder / "store",
        "NEW": tmp_path / "new",
        "TABLE": tmp_path / "table.csv",
        "NOWHERE": tmp_path / "no.csv",
        "RULES": tmp_path / "rules.json",
    }
    Calibration(class_names=("benign", "tumour")).save(places["RULES"])
    places["TABLE"].write_text("bag_id,label,p_1\na,0,0.2\n")
    filled = [str(places.get(word, word)) for word in arguments]
    assert message in fail(*filled)
    assert not (folder / "run" / "calibration.json").exists()


def test_a_store_of_other_classes_is_refused(folder: Path, tmp_path: Path) -> None:
    bags = miue.read_store(folder / "store")
    write_store(tmp_path / "store", replace(bags, class_names=("benign", "tumor")))
    printed = fail("calibrate", folder / "run", tmp_path / "store")
    assert "class 'tumor' of the bags: expected one of the classes benign, tumour" in printed


@pytest.mark.long
def test_a_folder_of_feature_files_is_calibrated_on_the_patients_that_training_held_out(tmp_path: Path) -> None:
    features, labels = slides(tmp_path, patients=90)
    told = ["--labels", labels, "--quiet"]
    run("train", features, "--out", tmp_path / "run", *told, "--set", "max_epochs=2")
    easy = ["--max-error", "0.5", "--confidence", "0.7", "--coverage", "0.8", "--without", "ood"]
    printed = run("calibrate", tmp_path / "run", features, *told, *easy)
    made = json.loads((tmp_path / "run" / "calibration.json").read_text())["calibration"]
    assert made["class_names"] == ["normal", "tumor"]
    assert made["made_from"]["split"] == "held out by training"
    total = len(labels.read_text().splitlines()) - 1
    assert f"{total} bags, held out by training" in " ".join(printed.split())
    parts = read_splits(tmp_path / "run" / "splits.csv").folds[0]
    validation = [name for name, part in parts.items() if part == "validation"]
    assert made["made_from"]["patients"] == made["made_from"]["bags"] < len(validation)
    assert made["made_from"]["left_out"] == len(validation) - made["made_from"]["bags"]
    assert f"one bag of each of {made['made_from']['patients']} patients" in printed
    assert "chose the epoch" in printed
    again = ["calibrate", tmp_path / "run", features, "--quiet", *easy, "--out", tmp_path / "again.json"]
    run(*again)  # without --labels: those that the training listed
    assert (
        json.loads((tmp_path / "again.json").read_text())["calibration"]["made_from"]["bags"]
        == made["made_from"]["bags"]
    )
    run(*again, "--overwrite", "--part", "validation")
    named = json.loads((tmp_path / "again.json").read_text())["calibration"]["made_from"]
    assert (named["bags"], named["split"]) == (made["made_from"]["bags"], "validation")
    assert "bags that the model was trained on" in fail(*again, "--overwrite", "--part", "train")
    whole = [*map(str, again), "--overwrite", "--labels", str(labels), "--part", "all"]
    assert "bags that the model was trained on" in fail(*whole)
    table = [*map(str, easy), "--splits", str(labels), "--out", "y.json"]
    assert "got PREDICTIONS with --splits" in fail("calibrate", "x.csv", *table)
    run("predict", tmp_path / "run", features, "--out", tmp_path / "out", "--quiet")
    assert "decision" in (tmp_path / "out" / "bags.csv").read_text().split("\n")[0].split(",")


def test_bags_that_the_run_does_not_know_are_all_used_and_patients_it_knows_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    model = copied(folder, "whole-run", tmp_path / "run")
    bags = miue.read_store(folder / "whole")
    others = replace(bags, ids=tuple(f"other_{name}" for name in bags.ids), labels=bags.labels)
    sizes = others.subset(range(100))
    chosen, made_from = calibration_bags(model, sizes, None)
    assert (len(chosen), made_from.split) == (100, "all bags")
    assert not made_from.caveat
    learned = [n for n, part in read_splits(model / "splits.csv").folds[0].items() if part == "train"]
    held_out = [n for n, part in read_splits(model / "splits.csv").folds[0].items() if part == "validation"]
    patients = dict(zip(bags.ids, bags.ids, strict=True)) | {held_out[3]: learned[5]}
    shared = replace(bags, patients=tuple(patients[name] for name in bags.ids))
    with pytest.raises(DataError, match="1 bag that the model was trained on, or others of their patients"):
        calibration_bags(model, shared, None)


def test_a_run_trained_anew_forgets_its_calibration(folder: Path, tmp_path: Path) -> None:
    model = copied(folder, "run", tmp_path / "run")
    run("calibrate", model, folder / "store", *EASY, "--quiet")
    run("train", folder / "store", "--out", model, "--overwrite", "--quiet", "--set", "max_epochs=1")
    assert not (model / "calibration.json").exists()


FLAGS = ["--without", "deferral,sets,ood,scaling", "--instances"]


def test_instances_are_flagged_by_predict_and_by_shards_as_the_calibration_promises(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # so that no sentence is divided among the lines of a cell
    model = copied(folder, "run", tmp_path / "run")
    named = ["--negative-class", "benign", "--estimator", "bag-of-one", "--quiet"]
    printed = run("calibrate", model, folder / "store", *FLAGS, "no-false-flag", "--instance-level", "0.2", *named)
    text = " ".join(printed.replace("│", " ").split())
    assert "any instance is flagged with chance at most 0.2" in text
    assert "Assumed for flags of instances: negative bags have negative instances only" in text
    rule = Calibration.load(model).instances
    assert rule is not None and rule.estimator == "bag-of-one"
    run("predict", model, folder / "store", "--out", tmp_path / "out", "--quiet")  # by the calibrated estimator
    read = read_predictions(tmp_path / "out")
    assert read.provenance.estimator == "bag-of-one" and read.instances is not None
    flagged = read.instances.flagged
    assert flagged is not None and 0 < flagged.sum() < len(flagged)
    assert np.array_equal(flagged, 1 - read.instances.probabilities[:, 0] >= rule.threshold)
    run("predict", model, folder / "store", "--out", tmp_path / "shard", "--shard", "1/1", "--quiet")
    run("merge", tmp_path / "shard", "--out", tmp_path / "merged", "--quiet")
    parts = [path / "instances" / "part-00000.parquet" for path in (tmp_path / "out", tmp_path / "merged")]
    assert parts[0].read_bytes() == parts[1].read_bytes()
    said = fail("predict", model, folder / "store", "--out", tmp_path / "o", "--estimator", "attention", "--quiet")
    assert "'bag-of-one', which was calibrated" in said
    said = fail("predict", model, folder / "store", "--out", tmp_path / "o", "--estimator", "atention", "--quiet")
    assert "did you mean 'attention'?" in said
    assert "any instance is flagged" in " ".join(guarantees(Calibration.load(model)))
    rules = model / "calibration.json"
    said = run("decide", tmp_path / "out", "--calibration", rules, "--out", tmp_path / "decided")
    nothing = "no rule of the calibration defers bags, nor calls them out of distribution;"
    assert f"{nothing} {flagged.sum():,} of {len(flagged):,} instances flagged." in " ".join(said.split())
    said = run("decide", tmp_path / "out", "--calibration", rules, "--out", tmp_path / "as-json", "--json")
    assert json.JSONDecoder().raw_decode(said)[0]["flagged_instances"] == flagged.sum()
    bags = tmp_path / "out" / "bags.csv"
    said = run("decide", bags, "--calibration", rules, "--out", tmp_path / "of-bags", "--classes", "benign,tumour")
    assert "; there are no instances to flag." in " ".join(said.split())


def test_the_need_of_flags_is_said_before_anything_is_predicted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def predict(*_: object, **__: object) -> None:
        raise AssertionError("bags were predicted")

    monkeypatch.setattr(miue.Model, "predict", predict)
    few = [*FLAGS, "false-positives", "--instance-level", "0.01", "--flags-cap", "2"]
    printed = fail("calibrate", folder / "run", folder / "store", *few)
    assert "at least 199 negative bags for flags of instances (false-positives 0.01)" in printed
    wrong = fail("calibrate", folder / "run", folder / "store", *FLAGS, "detection", "--negative-class", "normal")
    assert "negative class" in wrong and "benign" in wrong
    assert "recall" in fail("calibrate", folder / "run", folder / "store", *FLAGS, "fdr")


def test_a_class_without_a_calibration_bag_is_named(folder: Path, tmp_path: Path) -> None:
    bags = miue.read_store(folder / "store").split("calibration")
    ids = [name for name, label in zip(bags.ids, bags.labels.values, strict=True) if label == 0]
    benign = bags.subset([bags.ids.index(name) for name in ids])
    miue.Model.load(folder / "run").predict(benign).save(tmp_path / "benign")
    rules = ["--max-error", "0.9", "--coverage", "0.6", "--false-alarms", "0.2"]
    printed = run("calibrate", tmp_path / "benign", *rules, "--out", tmp_path / "rules.json")
    assert "Note: no calibration bag is of class tumour, so that nothing is promised" in printed
    flags = ["--without", "scaling,deferral,sets,ood", "--instances", "no-false-flag", "--instance-level", "0.2"]
    printed = run("calibrate", tmp_path / "benign", *flags, "--out", tmp_path / "flags.json")
    assert "no calibration bag" not in printed  # negative bags are all that these need
