"""Mistakes that a new user makes, each with the message that helps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import fail, run
from made_bags import separable_bags

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
    miue.train(bags, out=folder / "RUN", settings=settings, distances=(), progress=False, device="cpu")
    (folder / "EMPTY").mkdir()
    np.save(folder / "EMPTY.npy", np.zeros(3))
    for name, text in TABLES.items():
        (folder / name).with_suffix(".csv").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("predict STORE RUN --out NEW", "the arguments: expected RUN, then BAGS, got BAGS, then RUN"),
        ("calibrate STORE RUN", "the arguments: expected RUN, then BAGS, got BAGS, then RUN"),
        ("calibrate RUN", "got RUN without BAGS"),
        ("calibrate RUN STORE --max-error 5", "expected a share between 0 and 1, got 5.0; write 0.05 for 5 %"),
        ("train RUN --out NEW", "got a trained model"),
        ("train NOWHERE --out NEW", "expected bags: a bag store, a folder of feature files, or a table"),
        ("train EMPTY --out NEW", "features come from CLAM, TRIDENT or STAMP"),
        ("train STORE --out NEW --set lr=1e-3", "did you mean 'learning_rate'?"),
        ("train STORE --out NEW --set epochs=5", "did you mean 'max_epochs'?"),
        ("train STORE --out NEW --set members=3", "did you mean 'method.size'?"),
        ("train STORE --out NEW --set max_epochs", "expected KEY=VALUE, got no '='"),
        ("train STORE --out NEW --network atention", "did you mean 'attention'?"),
        ("evaluate", "Missing argument 'PREDICTIONS'"),
        ("evaluate STORE", "expected predictions: a folder with bags.csv, or a table, got a bag store"),
        ("evaluate RUN", "got a trained model; make them with 'miue predict RUN BAGS --out FOLDER'"),
        ("evaluate NOWHERE", "got no such folder; check the path"),
        ("evaluate no-id.csv", "expected a column of ids: bag_id, slide_id"),
        ("evaluate no-probability.csv", "expected columns of probabilities: p_0, p_1"),
        ("evaluate sums.csv", "line 3 of the class probabilities: expected values of at least 0 that sum to 1"),
        ("evaluate names.csv", "pass --classes with the names in the order of the probabilities"),
        ("data tile EMPTY --out NEW", "expected slides in it: .svs"),
        ("cross-validate STORE --out NEW --seeds 1,1", "expected different whole numbers, got 1, 1"),
        ("trian STORE", "Did you mean 'train'?"),
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


@pytest.mark.parametrize(("epochs", "is_noted"), [(3, True), (400, False)])
def test_a_training_that_ends_while_it_improves_says_so(
    place: Path, tmp_path: Path, epochs: int, is_noted: bool
) -> None:
    settings = ("--set", f"max_epochs={epochs}", "--set", "learning_rate=0.01", "--set", "stop_patience=2")
    said = run("train", place / "STORE", "--out", tmp_path / "run", *settings, "--quiet", "--distance", "none")
    assert (f"still improving at epoch 3 of {epochs}; raise max_epochs and --resume" in said) is is_noted
    assert ("still improving" in said) is is_noted
