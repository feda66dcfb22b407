"""Mistakes that a new user makes, each with the message that helps."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import fail, run
from made_bags import separable_bags
from made_files import features_of, slides, trident
from PIL import Image

import miue

TABLES = {
    "no-id": "name,p_0,p_1\na,.5,.5\n",
    "no-probability": "id,x\na,.5\n",
    "sums": "id,prob_0,prob_1\na,.9,.1\nb,.2,.7\n",
    "names": "slide_id,Y,p_0,p_1\na,lusc,.9,.1\nb,luad,.2,.8\n",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, a run, an empty folder and tables."""
    folder = tmp_path_factory.mktemp("mistakes")
    bags = separable_bags(40)
    miue.write_store(folder / "STORE", bags)
    settings = {"max_epochs": 1}
    miue.train(bags, out=folder / "RUN", settings={**settings, "distances": (), "device": "cpu"}, progress=False)
    (folder / "EMPTY").mkdir()
    np.save(folder / "EMPTY.npy", np.zeros(3))
    for name, text in TABLES.items():
        (folder / name).with_suffix(".csv").write_text(text)
    miue.Model.load(folder / "RUN").predict(bags).save(folder / "PREDICTED")
    (folder / "FILE").write_text("x")
    _write_slides(folder)
    return folder


def _write_slides(folder: Path) -> None:
    """Write folders of features, whole and damaged, and label tables that do not fit them."""
    features, labels = slides(folder, patients=12)
    features = features.rename(folder / "FEATURES")
    header, *rows = labels.read_text().splitlines()
    tables = {
        "other-ids": ["slide_id,label", "TCGA-1,normal", "TCGA-2,tumor"],
        "zeros-lost": ["slide_id,label", *(f"{int(row.split(',')[1])},{row.split(',')[2]}" for row in rows)],
        "twice": [header, *rows, "00,0000,normal"],
        "no-slide-id": ["case_id,label", *(f"{row.split(',')[0]},{row.split(',')[2]}" for row in rows)],
        "one-class": [header, *(row.replace("normal", "tumor") for row in rows)],
        "case": [header, rows[1].replace("normal", "Normal"), rows[0], *rows[2:]],
        "three-classes": [header, rows[1].replace("normal", "benign"), rows[0], *rows[2:]],
        "few": [header, *rows[:3]],
        "only-header": [header],
        "splits": ["train,val,test", "0000,0010,9999"],
    }
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (folder / "excel.xlsx").write_bytes(b"PK\x03\x04" + bytes(99))
    damages = {
        "NAN": features_of(4),
        "NO-TISSUE": np.zeros((0, 6), np.float32),
        "OTHER-ENCODER": features_of(4, 7),
    }
    damages["NAN"][1, 2] = np.nan
    for name, damaged in damages.items():
        shutil.copytree(features, folder / name)
        trident(folder / name, "0000", damaged)
    (folder / "SLIDES").mkdir()
    (folder / "SLIDES" / "text.svs").write_text("no image")
    Image.new("RGB", (64, 64)).save(folder / "flat.tif")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("predict STORE RUN --out NEW", "the arguments: expected RUN, then BAGS, got BAGS, then RUN"),
        ("calibrate STORE RUN", "the arguments: expected RUN, then BAGS, got BAGS, then RUN"),
        ("calibrate RUN", "got RUN without BAGS"),
        ("calibrate RUN STORE --max-error 5", "--max-error: expected less than 1, got 5.0"),
        ("train RUN --out NEW", "got a trained model"),
        ("train NOWHERE --out NEW", "expected bags: a bag store or a folder of feature files"),
        ("train EMPTY --out NEW", "got none; check the path"),
        ("train STORE --out NEW --set lr=1e-3", "did you mean 'learning_rate'?"),
        ("train STORE --out NEW --set epochs=5", "did you mean 'max_epochs'?"),
        ("train STORE --out NEW --set members=3", "did you mean 'method.size'?"),
        ("train STORE --out NEW --method deep-ensemble --set method.members=3", "did you mean 'method.size'?"),
        ("train STORE --out NEW --method mc-dropout --set method.n_samples=3", "did you mean 'method.draws'?"),
        ("train STORE --out NEW --method deep-ensemble --set method.memer=mirel", "did you mean 'method.member'?"),
        ("train STORE --out NEW --set max_epochs", "expected KEY=VALUE, got no '='"),
        ("train STORE --out NEW --network atention", "did you mean 'attention'?"),
        ("evaluate", "Missing argument 'PREDICTIONS'"),
        ("evaluate STORE", "expected predictions: a folder with bags.csv, or a table, got a bag store"),
        ("evaluate RUN", "got a trained model; predict bags with a model"),
        ("evaluate NOWHERE.csv", "got no such folder or file; check the path"),
        ("evaluate RUN/config.json", "expected a column of ids"),
        ("evaluate no-id.csv", "expected a column of ids: bag_id, slide_id"),
        ("evaluate no-probability.csv", "expected columns of probabilities: p_0, p_1"),
        ("evaluate sums.csv", "line 3 of the class probabilities: expected values of at least 0 that sum to 1"),
        ("evaluate names.csv", "pass --classes NAMES in the order of the probabilities"),
        ("data tile EMPTY --out NEW", "expected slides in it: .svs"),
        ("cross-validate STORE --out NEW --seeds 1,1", "--seeds: expected different numbers"),
        ("trian STORE", "Did you mean 'train'?"),
        ("train STORE --out NEW --epochs 5", "--max-epochs"),
        ("cross-validate STORE --out NEW --lr=1e-3", "No such option: --lr"),
        ("export heatmap STORE --split test", "No such option"),
        (
            "train STORE --out NEW --set max_epochs=many",
            "--max-epochs: expected a valid integer or None, got 'many'",
        ),
        (
            "train STORE --out NEW --set network.dropout=0.5",
            "expected one of network.hidden, got 'network.dropout'; ch",
        ),
        (
            "train STORE --out NEW --method deep-ensemble --set method.size=0",
            "expected at least 1, got 0; change the value",
        ),
        ("train STORE --out NEW --method mc-dropout --set method.dropout=0", "expected one of method.draws"),
        ("train STORE --out NEW --device cuda", "expected an accelerator, got 0 of them; choose the device 'cpu'"),
        ("train STORE --out NEW --encoder lenet", "choose 'mlp' for vectors"),
        ("train STORE --out NEW --set learning_rate=inf", "expected a finite number, got inf"),
        ("train STORE --out NEW --seed 99999999999999999999999", "less than 9223372036854775808, got"),
        ("train STORE --out NEW --seeds 1,99999999999999999999999", "less than 9223372036854775808, got"),
        ("train STORE --out NEW --network :", "the import path of a class"),
        ("train STORE --out NEW --network :Mean", "the import path of a class"),
        ("train STORE --out NEW --network miue:", "the import path of a class"),
        (f"inspect {'x' * 300}", "expected a path that can be used, got File name too long; check the path"),
        (
            f"train {'x' * 300} --out NEW",
            "expected a path that can be used, got File name too long; check the path",
        ),
        (f"data make gaussian-bags --out {'x' * 300}", "got File name too long"),
        ("train STORE --out NEW --classes a,b", "expected the classes that bag store"),
        ("train STORE --out NEW --tracker tensorbord", "did you mean 'tensorboard'?"),
        ("train STORE --out NEW --fold 3", "expected splits with several folds beside it"),
        ("train STORE --out FILE", "expected a new or empty folder, got a file that is there"),
        ("train STORE --out FILE/x", "FILE'; choose another place, or see who may write there"),
        ("train STORE --out /proc/x", "or a place that takes no files; wait until"),
        ("train STORE --out RUN", "pass --overwrite to replace it"),
        ("train FEATURES --out NEW", "give a table of labels"),
        ("train FEATURES/0000.h5 --out NEW", "got a file; pass the folder of the files"),
        ("inspect FEATURES/0000.h5", "got a file; pass the folder of the files"),
        ("train labels.csv --out NEW", "a label table is passed beside the folder of features (--labels TABLE)"),
        (
            "train FEATURES --labels other-ids.csv --out NEW",
            "TCGA-1: listed in 'other-ids.csv', but 'FEATURES' has no",
        ),
        ("train FEATURES --labels zeros-lost.csv --out NEW", "has no such bag"),
        (
            "train FEATURES --labels twice.csv --out NEW",
            "bag '0000' of 'twice.csv', column 'slide_id': expected one row",
        ),
        (
            "train FEATURES --labels no-slide-id.csv --out NEW",
            "column 'case_id': expected one row, got",
        ),
        ("train FEATURES --labels one-class.csv --out NEW", "expected at least two classes, got tumor"),
        (
            "train FEATURES --labels case.csv --out NEW",
            "got 'Normal' (1 bag) and 'normal' (7 bags)",
        ),
        (
            "train FEATURES --labels three-classes.csv --classes normal,tumor --out NEW",
            "the classes: --classes NAMES",
        ),
        (
            "train FEATURES --labels labels.csv --classes normal,tumour --out NEW",
            "label 'tumor' of 'labels.csv': ex",
        ),
        (
            "train FEATURES --labels labels.csv --classes normal,normal --out NEW",
            "expected each class once, got normal,",
        ),
        ("train FEATURES --labels labels.csv --label-column lable --out NEW", "did you mean 'label'?"),
        (
            "train FEATURES --labels labels.csv --splits splits.csv --out NEW",
            "bag '9999' of 'splits.csv': expected",
        ),
        ("train FEATURES --labels excel.xlsx --out NEW", "save the table as UTF-8 (in Excel: Save As, CSV UTF-8)"),
        ("train FEATURES --labels only-header.csv --out NEW", "expected at least one row, got none"),
        ("train NAN --labels labels.csv --out NEW", "bag '0000', row 1: expected finite features, got NaN"),
        (
            "train NO-TISSUE --labels labels.csv --out NEW",
            "got none (a slide without tissue, a video without a clip?); leave it out",
        ),
        ("train OTHER-ENCODER --labels labels.csv --out NEW", "extract all features with one encoder"),
        (
            "cross-validate FEATURES --labels few.csv --folds 5 --out NEW",
            "expected bags of at least 5 patients for 5",
        ),
        ("data split FEATURES --out NEW", "expected labels to draw a split by, got none"),
        ("predict RUN FEATURES --out NEW", "expected features of shape (5,), as the model takes them, got (6,)"),
        ("predict RUN STORE --out NEW", "all of which it was trained or validated on"),
        ("calibrate RUN STORE --part tset", "split 'tset': expected"),
        ("export geojson PREDICTED --out NEW", "expected instances with a position: columns x and y"),
        ("worklist STORE --out NEW", "got a bag store; predict bags with a model"),
        ("compare RUN RUN", "expected a finished cross-validation (with runs.csv), got a trained model"),
        ("report NOWHERE --out NEW", "'NOWHERE': expected predictions"),
        (
            "decide PREDICTED --calibration RUN --out NEW",
            "calibration 'RUN/calibration.json': expected an existing",
        ),
        ("data tile NOWHERE.svs --out NEW", "NOWHERE.svs': expected an existing file, got no such file"),
        ("data tile SLIDES --out NEW", "expected an image that OpenSlide reads, got"),
        ("data tile flat.tif --out NEW", "convert it: vips tiffsave IN OUT.tif --tile --pyramid"),
    ],
)
def test_a_mistake_ends_with_a_message_that_helps(
    command: str, message: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    said = fail(*(str(tmp_path / "new") if word == "NEW" else word for word in command.split()))
    assert message in said
    assert "Traceback" not in said


def test_a_table_of_another_tool_is_read_by_its_usual_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("slide_id,Y,p_tumor,p_normal\na,normal,.1,.9\nb,tumor,.8,.2\nc,tumor,.4,.6\n")
    said = run("evaluate", tmp_path / "t.csv")
    assert "p_0 = 'p_normal', p_1 = 'p_tumor'; classes normal, tumor" in said
    assert "66.67" in said


@pytest.mark.parametrize(
    ("positive", "negative"),
    [("tumor", "non-tumor"), ("MSI", "MSS"), ("mut", "wt"), ("disease", "ctrl"), ("tumor", "background")],
)
def test_of_a_table_of_another_tool_the_class_called_negative_is_the_first(
    positive: str, negative: str, tmp_path: Path
) -> None:
    rows = f"a,{negative},.1,.9\nb,{positive},.8,.2\nc,{positive},.7,.3\n"
    (tmp_path / "t.csv").write_text(f"slide_id,label,p_{positive},p_{negative}\n{rows}")
    said = run("evaluate", tmp_path / "t.csv")
    assert f"classes {negative}, {positive}" in said
    assert "100.00" in said


def test_a_column_of_a_class_with_a_huge_number_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("bag_id,label,p_0,p_1,p_999999999\na,0,.5,.5,0\n")
    assert "a column p_2 beside p_0" in fail("evaluate", tmp_path / "t.csv")


def test_a_probability_above_1_is_named_with_its_table_and_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("slide_id,label,p_1\na,0,0.2\nb,1,1.5\n")
    assert "t.csv', line 3" in fail("evaluate", tmp_path / "t.csv")


@pytest.mark.long
@pytest.mark.parametrize(("epochs", "is_noted"), [(3, True), (400, False)])
def test_a_training_that_ends_while_it_improves_says_so(
    place: Path, tmp_path: Path, epochs: int, is_noted: bool
) -> None:
    settings = ("--set", f"max_epochs={epochs}", "--set", "learning_rate=0.003", "--set", "stop_patience=2")
    said = run("train", place / "STORE", "--out", tmp_path / "run", *settings, "--quiet", "--distance", "none")
    assert (f"epoch 3 of {epochs} is the best so far; raise max_epochs and --resume" in said) is is_noted
    assert ("best so far" in said) is is_noted
    assert "Note: the error probability of bags: expected at least 5 labeled validation bags of each class" in said


@pytest.mark.long
@pytest.mark.parametrize(("seeds", "name"), [((), ""), (("--seeds", "1,2"), "seed_1: ")])
def test_a_short_training_is_said_to_be_unfinished_and_to_have_learned_hardly_anything(
    seeds: tuple[str, ...], name: str, place: Path, tmp_path: Path
) -> None:
    settings = ("--set", "max_epochs=1", "--set", "learning_rate=1e-9", "--quiet", "--distance", "none")
    said = run("train", place / "STORE", "--out", tmp_path / "run", *settings, *seeds)
    assert f"Note: {name}epoch 1 of 1 is the best so far" in said
    assert f"Note: {name}hardly anything was learned" in said
