"""Decisions: made by a calibration, written, read back, judged; from Python and by the commands."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_bags import separable_bags
from made_files import slides
from test_cli import fail, run

import miue
from miue.bags import BagDataset
from miue.calibration import Calibration, FalseAlarmGoal, LabelSetGoal, ReferralGoal, calibrate, decide
from miue.calibration.false_alarms import FalseAlarms
from miue.calibration.label_sets import LabelSets
from miue.calibration.referral import Referral
from miue.calibration.scaling import Scaling
from miue.cli.held_out import calibration_bags
from miue.data import write_store
from miue.data.split_files import read_splits
from miue.errors import DataError, StorageError
from miue.evaluation import evaluate
from miue.predictions import Predictions, read_predictions, read_tables

EASY = ["--max-error", "0.4", "--set-error", "0.2", "--false-alarms", "0.2"]


def by_hand(**changes: object) -> Calibration:
    """A calibration whose decisions can be told by looking."""
    parts = {
        "class_names": ("benign", "tumour"),
        "referral": Referral(
            measure="least_confidence",
            threshold=0.2,
            max_error=0.05,
            confidence=0.9,
            bags=90,
            kept=80,
            errors=0,
            error_bound=0.03,
        ),
        "label_sets": LabelSets(score="lac", error=0.1, per_class=False, thresholds=(0.6, 0.6), bags=(90, 90)),
        "false_alarms": FalseAlarms(score="far", threshold=2.0, rate=0.05, confidence=None, bags=90, rank=87),
        "scaling": Scaling(kind="temperature", temperature=2.0, nll_before=1.0, nll_after=0.5),
    }
    return Calibration(**{**parts, **changes})  # type: ignore[arg-type]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Predictions of another tool: a kept, a wrongly kept, a referred, and two far bags, one of them foreign."""
    rows = [
        "bag_id,label,is_ood,ood_set,p_0,p_1,score_far",
        "007,0,false,,0.9,0.1,1.0",
        "008,0,false,,0.1,0.9,1.0",
        "009,1,false,,0.45,0.55,1.0",
        "010,1,false,,0.05,0.95,2.5",
        "011,,true,fax,0.05,0.95,9.0",
    ]
    path = tmp_path / "bags.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_each_bag_is_decided_in_order_of_distribution_then_certainty(table: Path) -> None:
    bags = decide(read_tables(table), by_hand()).bags
    decisions = bags.decisions
    assert decisions is not None
    assert decisions.decision.tolist() == [
        "benign",
        "tumour",
        "refer",
        "out of distribution",
        "out of distribution",
    ]
    assert decisions.reason[0].startswith(
        "least_confidence 0.1 is at most 0.2: at most 0.05 of the kept are wrong"
    )
    assert decisions.reason[2].startswith("least_confidence 0.45 is above 0.2")
    assert decisions.reason[4] == "far 9 is above 2, which at most 0.05 of in-distribution bags exceed"
    assert decisions.label_sets is not None
    assert decisions.label_sets.tolist()[:3] == [[True, False], [False, True], [True, True]]
    assert decisions.calibrated is not None
    odds = decisions.calibrated.probabilities[0, 0] / decisions.calibrated.probabilities[0, 1]
    assert odds.item() == pytest.approx(3.0)  # the root of 0.9 / 0.1
    keep_all = by_hand(referral=by_hand().referral.model_copy(update={"threshold": None}))  # type: ignore[union-attr]
    kept = decide(read_tables(table), keep_all).bags.decisions
    assert kept is not None
    assert kept.kept.tolist() == [True, True, True, False, False]


def test_a_bag_at_a_threshold_is_on_the_side_that_the_calibration_counted_it(table: Path) -> None:
    given = read_tables(table)
    exactly = float(given.bags.uncertainties()["least_confidence"][2])
    rule = by_hand().referral.model_copy(update={"threshold": exactly})  # type: ignore[union-attr]
    far = by_hand().false_alarms.model_copy(update={"threshold": 2.5})  # type: ignore[union-attr]
    decisions = decide(given, by_hand(referral=rule, false_alarms=far)).bags.decisions
    assert decisions is not None
    assert decisions.decision.tolist()[2:] == ["tumour", "tumour", "out of distribution"]


def test_decisions_are_read_back_as_they_were_and_judged_the_same(table: Path, tmp_path: Path) -> None:
    decided = decide(read_tables(table), by_hand())
    decided.save(tmp_path / "out")
    back = read_predictions(tmp_path / "out")
    ours, theirs = back.bags.decisions, decided.bags.decisions
    assert ours is not None
    assert theirs is not None
    assert ours.decision.tolist() == theirs.decision.tolist()
    assert ours.reason.tolist() == theirs.reason.tolist()
    assert np.array_equal(ours.label_sets, theirs.label_sets)  # type: ignore[arg-type]
    assert torch.equal(ours.calibrated.probabilities, theirs.calibrated.probabilities)  # type: ignore[union-attr]
    assert evaluate(back).to_json() == evaluate(decided).to_json()
    with (tmp_path / "out" / "bags.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label_set"] for row in rows] == ["0", "1", "0 1", "1", "1"]
    assert list(rows[0])[-5:] == ["decision", "reason", "label_set", "calibrated_p_0", "calibrated_p_1"]


def test_decisions_come_out_as_counted_by_hand(table: Path) -> None:
    found = evaluate(decide(read_tables(table), by_hand())).to_json()["decisions"]
    metrics = found["metrics"]
    assert (metrics["kept"], metrics["referred"], metrics["flagged"]) == (0.5, 0.25, 0.25)
    assert metrics["error_among_kept"] == 0.5
    assert metrics["error_low"] < 0.02
    assert metrics["error_high"] > 0.98
    assert metrics["coverage"] == 0.75
    assert metrics["set_size"] == 1.25
    assert (metrics["empty_sets"], metrics["single_sets"]) == (0.0, 0.75)
    assert found["coverage_by_class"] == {"0": 0.5, "1": 1.0}
    assert found["found"] == {"fax": 1.0}
    assert found["not_kept"] == {"fax": 1.0}
    assert evaluate(read_tables(table)).to_json()["decisions"] is None


def test_parts_that_were_left_out_make_no_column_and_undefined_metrics(table: Path, tmp_path: Path) -> None:
    bare = by_hand(scaling=None, label_sets=None, false_alarms=None, referral=None)
    decided = decide(read_tables(table), bare)
    decided.save(tmp_path / "out")
    header = (tmp_path / "out" / "bags.csv").read_text().splitlines()[0]
    assert header.endswith('"decision","reason"')
    metrics = evaluate(read_predictions(tmp_path / "out")).to_json()["decisions"]["metrics"]
    assert metrics["kept"] == 1.0
    assert metrics["coverage"] == {"value": None, "reason": "no label sets were asked for"}
    assert metrics["nll"] == {"value": None, "reason": "no scaling was asked for"}


def test_a_calibration_is_saved_readably_and_read_back(tmp_path: Path) -> None:
    by_hand().save(tmp_path / "calibration.json")
    assert Calibration.load(tmp_path) == Calibration.load(tmp_path / "calibration.json") == by_hand()
    content = json.loads((tmp_path / "calibration.json").read_text())
    assert content["format"] == "miue-calibration"
    assert content["calibration"]["referral"]["threshold"] == 0.2


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("version",), 3, "version 2"),
        (("calibration", "referral", "threshold"), "high", r"referral\.threshold"),
        (("calibration", "scaling", "temperature"), -1.0, r"scaling\.temperature"),
        (("calibration", "label_sets", "score"), "raps", "raps"),
        (("calibration", "label_sets", "thresholds"), [0.5], "1 thresholds"),
        (("calibration", "extra"), 1, "extra"),
    ],
)
def test_a_calibration_that_is_damaged_or_newer_is_refused(
    place: tuple[str, ...], value: object, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    by_hand().save(path)
    content = json.loads(path.read_text())
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path.write_text(json.dumps(content))
    with pytest.raises(StorageError, match=message):
        Calibration.load(path)


def test_predictions_that_do_not_fit_a_calibration_are_refused(table: Path) -> None:
    given = read_tables(table)
    with pytest.raises(DataError, match="2 classes"):
        decide(given, by_hand(class_names=("a", "b", "c")))
    with pytest.raises(
        DataError, match="got 2 classes; .*, or calibrate with --classes in the order of the model"
    ):
        decide(given, by_hand(class_names=("0", "1", "2")))
    with pytest.raises(DataError, match="calibrated: 0, 1, got 1, 0"):
        decide(Predictions(given.bags, None, {"classes": ["1", "0"]}), by_hand(class_names=("0", "1")))
    with pytest.raises(DataError, match="expected the classes that were calibrated: benign, tumour, got tumour"):
        decide(Predictions(given.bags, None, {"classes": ["tumour", "benign"]}), by_hand())
    with pytest.raises(DataError, match="'knn_mean'"):
        far = by_hand().false_alarms.model_copy(update={"score": "knn_mean"})  # type: ignore[union-attr]
        decide(given, by_hand(false_alarms=far))


def test_classes_without_names_are_those_of_the_same_number(table: Path) -> None:
    given, numbered = read_tables(table), by_hand(class_names=("0", "1"))
    named = Predictions(given.bags, None, {"classes": ["benign", "tumour"]})
    bare = Predictions(given.bags, None, {"classes": ["0", "1"]})
    for predictions, calibration in ((named, numbered), (bare, by_hand()), (given, by_hand())):
        decisions = decide(predictions, calibration).bags.decisions
        assert decisions is not None
        assert decisions.decision.tolist()[:2] == ["benign", "tumour"]
    unnamed = decide(given, numbered).bags.decisions
    assert unnamed is not None
    assert unnamed.decision.tolist()[:2] == ["0", "1"]


def test_a_label_set_that_is_none_is_named(table: Path) -> None:
    lines = table.read_text().splitlines()
    table.write_text("\n".join([lines[0] + ",decision,label_set", *(line + ",refer,0 2" for line in lines[1:])]))
    with pytest.raises(DataError, match="row 1, column 'label_set'.*'0 2'"):
        read_tables(table)


# With a model


@pytest.fixture(scope="module")
def calibrated() -> tuple[miue.Model, BagDataset]:
    bags = separable_bags(200, seed=3)
    model = miue.train(bags.subset(range(100)), settings={"max_epochs": 3}, progress=False, device="cpu")
    held = model.predict(bags.subset(range(100, 200)), device="cpu")
    made = calibrate(
        held,
        referral=ReferralGoal(0.3),
        label_sets=LabelSetGoal(0.2),
        false_alarms=FalseAlarmGoal(0.2),
        class_names=model.contract.class_names,
    )
    return replace(model, calibration=made), bags


def test_a_saved_model_decides_as_before_and_its_calibrated_dirichlet_keeps_three_uncertainties(
    calibrated: tuple[miue.Model, BagDataset], tmp_path: Path
) -> None:
    model, bags = calibrated
    model.save(tmp_path / "model")
    back = miue.Model.load(tmp_path / "model")
    assert back.calibration == model.calibration
    ours, theirs = back.predict(bags, device="cpu"), model.predict(bags, device="cpu")
    assert ours.bags.to_arrow().equals(theirs.bags.to_arrow())
    decisions = ours.bags.decisions
    assert decisions is not None
    assert isinstance(decisions.calibrated, miue.Dirichlet)
    assert (decisions.calibrated.mutual_information() > 0).all()
    assert ours.about["calibration"]["false_alarms"]["score"] == "knn_mean"
    assert replace(model, calibration=None).predict(bags, device="cpu").bags.decisions is None


def test_decisions_do_not_depend_on_whether_the_predictions_went_through_a_file(
    calibrated: tuple[miue.Model, BagDataset], tmp_path: Path
) -> None:
    model, bags = calibrated
    assert model.calibration is not None
    bare = replace(model, calibration=None).predict(bags, device="cpu")
    bare.save(tmp_path / "out")
    direct, read = decide(bare, model.calibration), decide(read_predictions(tmp_path / "out"), model.calibration)
    assert direct.bags.to_arrow().equals(read.bags.to_arrow())
    assert len(set(direct.bags.decisions.decision)) > 1  # type: ignore[union-attr]


# The commands


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
    assert "error among the kept ≤ 0.4" in " ".join(printed.replace("│", " ").split())
    assert "Note" not in printed
    about = json.loads((model / "calibration.json").read_text())["calibration"]["about"]
    assert (about["split"], about["bags"]) == ("calibration", 80)
    run("predict", model, folder / "store", "--out", tmp_path / "out", "--quiet")
    assert "error among the kept" in run("evaluate", tmp_path / "out")
    judged = json.loads(run("evaluate", tmp_path / "out", "--json"))["decisions"]["metrics"]
    assert judged["kept"] + judged["referred"] + judged["flagged"] == pytest.approx(1)
    assert "least_confidence" in json.dumps(json.loads(run("inspect", model, "--json"))["calibration"])
    calibrated_again = run("calibrate", model, folder / "store", *EASY, "--quiet")
    assert calibrated_again == printed


def test_bags_that_stopped_the_training_are_used_with_a_note(folder: Path, tmp_path: Path) -> None:
    model = copied(folder, "run", tmp_path / "run")
    assert "chose the epoch" in run("calibrate", model, folder / "two", *EASY, "--without", "ood", "--quiet")
    whole = copied(folder, "whole-run", tmp_path / "whole-run")
    bags, about = calibration_bags(whole, miue.read_store(folder / "whole"), None)
    assert (len(bags), about["split"]) == (52, "held out by training")
    assert "caveat" in about


def test_training_bags_are_refused_where_they_can_be_seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"monkeypatch": monkeypatch, "capsys": capsys}
    printed = fail("calibrate", folder / "run", folder / "store", "--split", "train", **given)  # type: ignore[arg-type]
    assert "80 bags that the model was trained on" in printed
    bags = miue.read_store(folder / "whole")
    renamed = replace(bags, splits=("test",) * len(bags))
    with pytest.raises(DataError, match="208 bags that the model was trained on"):
        calibration_bags(folder / "whole-run", renamed, "test")
    assert not (folder / "run" / "calibration.json").exists()


def test_predictions_of_another_tool_are_calibrated_and_decided(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    p = random.beta(0.3, 0.3, 300)
    labels = (random.random(300) < p).astype(int)
    for name, part in (("held", slice(0, 200)), ("new", slice(200, 300))):
        lines = [f"{name}{i},{y},{q}" for i, (y, q) in enumerate(zip(labels[part], p[part], strict=True))]
        (tmp_path / f"{name}.csv").write_text("\n".join(["bag_id,label,p_1", *lines]) + "\n")
    out = tmp_path / "calibration.json"
    options = ["--classes", "benign, tumour", "--max-error", "0.1", "--per-class", "--set-score", "aps"]
    run("calibrate", "--bags", tmp_path / "held.csv", "--out", out, *options)
    with pytest.raises(StorageError, match="a file that is there"):
        run("calibrate", "--bags", tmp_path / "held.csv", "--out", tmp_path / "new.csv", *options)
    run("calibrate", "--bags", tmp_path / "held.csv", "--out", out, "--overwrite", *options)
    printed = run("decide", out, "--bags", tmp_path / "new.csv", "--out", tmp_path / "decided")
    assert printed.startswith("100 bags: ")
    with (tmp_path / "decided" / "bags.csv").open(newline="") as file:
        assert {row["decision"] for row in csv.DictReader(file)} >= {"benign", "tumour", "refer"}
    again = run("decide", out, tmp_path / "decided", "--out", tmp_path / "again")
    assert again.split(".")[0] == printed.split(".")[0]
    metrics = json.loads(run("evaluate", tmp_path / "decided", "--json"))["decisions"]["metrics"]
    assert metrics["error_low"] <= 0.1
    assert metrics["coverage"] > 0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calibrate"], "expected RUN and BAGS, or --bags FILE"),
        (["calibrate", "RUN"], "expected RUN and BAGS, or --bags FILE"),
        (["calibrate", "RUN", "STORE", "--without", "sett"], "did you mean 'sets'"),
        (["calibrate", "RUN", "STORE", "--split", "calib"], "expected one of calibration"),
        (["calibrate", "RUN", "STORE", "--max-error", "5"], "expected a share between 0 and 1"),
        (["calibrate", "RUN", "STORE", "--max-error", "0.01"], "at least 255 labelled"),
        (["calibrate", "RUN", "STORE", "--measure", "entropie"], "did you mean 'entropy'"),
        (["decide", "RUN", "--bags", "TABLE", "--out", "NEW"], "calibration.json': expected an existing file"),
        (["decide", "RUN", "--bags", "NOWHERE", "--out", "NEW"], "no.csv': expected an existing CSV file"),
        (["decide", "RUN", "--out", "NEW"], "expected a folder of predictions"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: list[str],
    message: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = {
        "RUN": folder / "run",
        "STORE": folder / "store",
        "NEW": tmp_path / "new",
        "TABLE": tmp_path / "table.csv",
        "NOWHERE": tmp_path / "no.csv",
    }
    places["TABLE"].write_text("bag_id,label,p_1\na,0,0.2\n")
    filled = [str(places.get(word, word)) for word in arguments]
    assert message in fail(*filled, monkeypatch=monkeypatch, capsys=capsys)
    assert not (folder / "run" / "calibration.json").exists()


def test_a_store_of_other_classes_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bags = miue.read_store(folder / "store")
    write_store(tmp_path / "store", replace(bags, class_names=("benign", "tumor")))
    printed = fail("calibrate", folder / "run", tmp_path / "store", monkeypatch=monkeypatch, capsys=capsys)
    assert "class 'tumor' of the bags: expected one of the classes benign, tumour" in printed


def test_a_folder_of_feature_files_is_calibrated_on_the_patients_that_training_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    features, labels = slides(tmp_path, patients=90)
    told = ["--labels", labels, "--quiet"]
    run("train", features, "--out", tmp_path / "run", *told, "--set", "max_epochs=2")
    easy = ["--max-error", "0.5", "--confidence", "0.7", "--set-error", "0.2", "--without", "ood"]
    printed = run("calibrate", tmp_path / "run", features, *told, *easy)
    made = json.loads((tmp_path / "run" / "calibration.json").read_text())["calibration"]
    assert made["class_names"] == ["normal", "tumor"]
    assert made["about"]["split"] == "held out by training"
    parts = read_splits(tmp_path / "run" / "splits.csv").folds[0]
    validation = [name for name, part in parts.items() if part == "validation"]
    assert made["about"]["patients"] == made["about"]["bags"] < len(validation)
    assert made["about"]["bags left out"] == len(validation) - made["about"]["bags"]
    assert f"one bag of each of {made['about']['patients']} patients" in printed
    assert "chose the epoch" in printed
    given = {"monkeypatch": monkeypatch, "capsys": capsys}
    refused = ["calibrate", tmp_path / "run", features, "--quiet", *easy, "--out", tmp_path / "none.json"]
    assert "without one" in fail(*map(str, refused), **given)  # type: ignore[arg-type]
    whole = [*map(str, refused), "--labels", str(labels), "--split", "all"]
    assert "bags that the model was trained on" in fail(*whole, **given)  # type: ignore[arg-type]
    table = [*map(str, easy), "--labels", str(labels), "--bags", "x.csv", "--out", "y.json"]
    assert "neither, or a mixture" in fail("calibrate", *table, **given)  # type: ignore[arg-type]
    run("predict", tmp_path / "run", features, "--out", tmp_path / "out", "--quiet")
    assert '"decision"' in (tmp_path / "out" / "bags.csv").read_text()


def test_bags_that_the_run_does_not_know_are_all_used_and_patients_it_knows_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    model = copied(folder, "whole-run", tmp_path / "run")
    bags = miue.read_store(folder / "whole")
    others = replace(bags, ids=tuple(f"other_{name}" for name in bags.ids), labels=bags.labels)
    sizes = others.subset(range(100))
    chosen, about = calibration_bags(model, sizes, None)
    assert (len(chosen), about["split"]) == (100, "all bags")
    assert "caveat" not in about
    learned = [n for n, part in read_splits(model / "splits.csv").folds[0].items() if part == "train"]
    held_out = [n for n, part in read_splits(model / "splits.csv").folds[0].items() if part == "validation"]
    patients = dict(zip(bags.ids, bags.ids, strict=True)) | {held_out[3]: learned[5]}
    shared = replace(bags, patients=tuple(patients[name] for name in bags.ids))
    with pytest.raises(DataError, match="1 bags that the model was trained on, or others of their patients"):
        calibration_bags(model, shared, None)


def test_a_run_trained_anew_forgets_its_calibration(folder: Path, tmp_path: Path) -> None:
    model = copied(folder, "run", tmp_path / "run")
    run("calibrate", model, folder / "store", *EASY, "--quiet")
    run("train", folder / "store", "--out", model, "--overwrite", "--quiet", "--set", "max_epochs=1")
    assert not (model / "calibration.json").exists()
