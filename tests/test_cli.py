"""The commands, run as a user runs them."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import made_files
import numpy as np
import pytest
from commands import fail, run
from made_bags import separable_bags
from typer.main import get_command
from typer.testing import CliRunner

import miue
from miue.bags import Labels
from miue.cli import app
from miue.cli.demo import NEXT
from miue.cli.inspection import description_table
from miue.common.errors import MiueError
from miue.io import write_store

RUNNER = CliRunner()
QUICK = ["--quiet", "--set", "max_epochs=2", "--set", "learning_rate=1e-3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, a run and predictions, made by the commands."""
    place = tmp_path_factory.mktemp("cli")
    run("data", "make", "digits-bags", "--out", place / "store")
    run("train", place / "store", "--out", place / "run", *QUICK)
    run("predict", place / "run", place / "store", "--out", place / "predictions", "--quiet")
    return place


def test_evaluation_is_printed_as_a_table_and_as_json(folder: Path, tmp_path: Path) -> None:
    table = run("evaluate", folder / "predictions", "--out", tmp_path / "evaluation.json")
    for name in (
        "Acc.",
        "Conf., AUROC",
        "OOD photographs, AUROC",
        "UE",
        "FPR95",
        "AUPR",
        "ECE",
        "Brier",
        "NLL",
        "AURC",
    ):
        assert name in table
    printed = json.loads(run("evaluate", folder / "predictions", "--json"))
    assert printed == json.loads((tmp_path / "evaluation.json").read_text())
    assert 0 <= printed["bags"]["metrics"]["accuracy"] <= 1


def test_tables_given_as_files_evaluate_as_the_folder_does(folder: Path) -> None:
    whole = json.loads(run("evaluate", folder / "predictions", "--json"))
    tables = [
        folder / "predictions" / "bags.csv",
        "--instances",
        folder / "predictions" / "instances" / "part-00000.parquet",
    ]
    of_files = json.loads(run("evaluate", *tables, "--json"))
    assert of_files.pop("provenance") == {}
    assert whole.pop("provenance")["method"] == "mirel"
    assert of_files == whole
    assert json.loads(run("evaluate", *tables[:1], "--json"))["instances"] is None


@pytest.mark.parametrize("kind", ["store", "run", "predictions"])
def test_inspect_shows_what_a_folder_holds(kind: str, folder: Path) -> None:
    described = json.loads(run("inspect", folder / kind, "--json"))
    wanted = {"store": "bag store", "run": "trained model", "predictions": "predictions"}[kind]
    assert described["kind"] == wanted
    table = run("inspect", folder / kind)
    known = {"store": "photographs", "run": "attention", "predictions": "median vacuity"}[kind]
    assert known in " ".join(table.split())


@pytest.mark.long
def test_training_says_how_an_ensemble_was_trained(folder: Path, tmp_path: Path) -> None:
    ensemble = ("--method", "deep-ensemble", "--set", "method.size=2", "--set", "max_epochs=1", "--quiet")
    said = run("train", folder / "store", *ensemble, "--out", tmp_path / "run")
    assert "Trained 2 networks for 2 epochs in all; best epochs 1, 1 (mean validation NLL" in said


def test_inspect_shows_a_run_that_has_not_ended(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text((folder / "run" / "run.json").read_text())
    assert "unfinished run" in json.loads(run("inspect", tmp_path, "--json"))["kind"]


def test_inspect_writes_facts_within_facts_as_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Counts of bags were written as the shape of an image is, settings as Python writes them."""
    made_by = {"settings": {"max_epochs": 15, "device": ""}, "higher": {}, "threshold": None, "bags": [15, 15]}
    shape = {"instance shape": [8, 8, 3]}
    description_table({"kind": "predictions", "path": "p", **shape, "made by": made_by}).show()
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "settings (max_epochs 15), higher none, threshold none, bags 15, 15" in said
    assert "8 × 8 × 3" in said


@pytest.mark.parametrize(
    ("value", "shown"), [(12_345.0, "12,345"), (12_345.5, "12,345.5"), (0.12345, "0.1235"), (999.0, "999")]
)
def test_numbers_are_shown_as_a_person_writes_them(
    value: float, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    description_table({"kind": "bags", "path": "p", "bag sizes": {"median": value}}).show()
    assert f"median {shown} " in capsys.readouterr().out.replace("│", " ")


def test_prediction_of_a_store_without_labels(folder: Path, tmp_path: Path) -> None:
    bags = miue.read_store(folder / "store").split("test")
    unlabeled = replace(
        bags, labels=Labels.unknown(len(bags)), instance_labels=Labels.unknown(len(bags.instances))
    )
    miue.write_store(tmp_path / "store", unlabeled)
    run("predict", folder / "run", tmp_path / "store", "--out", tmp_path / "out", "--quiet")
    assert "predict with instance labels" in " ".join(run("evaluate", tmp_path / "out").split())


@pytest.mark.long
def test_mnist_bags_are_made_from_archives(shared_data: Path, tmp_path: Path) -> None:
    arguments = ["--source", shared_data, "--ood", "fmnist", "--ood-ratio", "0.4", "--part", "test"]
    run("data", "make", "mnist-bags", *arguments, "--out", tmp_path / "store")
    described = json.loads(run("inspect", tmp_path / "store", "--json"))
    assert described["bags"] == 2000
    assert described["split"][0]["OOD fmnist"] == 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "STORE", "--out", "NEW", "--network", "atention"], "did you mean 'attention'"),
        (["train", "STORE", "--out", "NEW", "--method", "mirl"], "did you mean 'mirel'"),
        (["train", "STORE", "--out", "NEW", "--set", "max_epoch=3"], "did you mean 'max_epochs'"),
        (["train", "STORE", "--out", "NEW", "--set", "method.rooting=x"], "did you mean 'method.routing'"),
        (["train", "STORE", "--out", "NEW", "--set", "max_epochs"], "write --set KEY=VALUE"),
        (["train", "STORE", "--out", "NEW", "--resume", "--overwrite"], "leave one out"),
        (["train", "STORE", "--out", "RUN"], "pass --overwrite to replace it"),
        (["train", "STORE", "--out", "RUN"], "pass --resume to continue a run that is there"),
        (["cross-validate", "STORE", "--folds", "2", "--out", "RUN"], "files; choose another --out\n"),
        (["train", "NOWHERE", "--out", "NEW"], "a bag store"),
        (["predict", "STORE", "STORE", "--out", "NEW"], "expected a trained model"),
        (
            ["predict", "RUN", "STORE", "--out", "NEW", "--part", "tset"],
            "expected one of calibration, test, train, validation",
        ),
        (["predict", "RUN", "STORE", "--out", "PREDICTIONS"], "--overwrite"),
        (["evaluate", "NOWHERE"], "expected predictions"),
        (["inspect", "NOWHERE"], "no such folder"),
        (["data", "make", "digit-bags", "--out", "NEW"], "did you mean 'digits-bags'"),
        (["data", "make", "mnist-bags", "--out", "NEW"], "pass --source FOLDER"),
        (
            ["data", "make", "mnist-bags", "--out", "NEW", "--source", "NEW", "--ood", "kmist"],
            "did you mean 'kmnist'",
        ),
        (["data", "make", "mnist-bags", "--out", "NEW", "--source", "NEW"], "mnist.npz or MNIST/raw"),
        (["data", "make", "digits-bags", "--out", "NEW", "--part", "trian"], "did you mean 'train'"),
        (["data", "make", "gaussian-bags", "--out", "NEW", "--ood", "fmnist"], "leave it out"),
        (["data", "make", "digits-bags", "--out", "STORE"], "--overwrite"),
        (["demo", "--out", "RUN"], "--overwrite"),
    ],
)
def test_bad_input_ends_with_status_two_and_one_sentence(
    arguments: list[str],
    message: str,
    folder: Path,
    tmp_path: Path,
) -> None:
    places = {"STORE": folder / "store", "RUN": folder / "run", "PREDICTIONS": folder / "predictions"}
    places.update(NEW=tmp_path / "new", NOWHERE=tmp_path / "nowhere")
    error = fail(*(places.get(a, a) for a in arguments))
    assert error.startswith("miue: error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "new").exists(), "nothing is left behind"


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [(["train", "x", "--out", "y", "--sead", "3"], "--seed"), (["evalute", "x"], "evaluate")],
)
def test_a_misspelt_option_or_command_names_the_nearest(arguments: list[str], nearest: str) -> None:
    assert nearest in fail(*arguments)


def test_an_error_has_four_parts() -> None:
    error = MiueError(item="bag 'a'", wanted="one instance", got="none", fix="drop it")
    assert (error.item, error.wanted, error.got, error.fix) == ("bag 'a'", "one instance", "none", "drop it")
    assert str(error) == "bag 'a': expected one instance, got none; drop it"


@pytest.mark.parametrize("words", [[], ["data"], ["train"], ["calibrate"], ["report"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    argv = ["miue", *words, "--help"]
    code = f"import sys; sys.argv = {argv}\nfrom miue.cli import main\ntry:\n    main()\nfinally:\n    "
    names = "('torch', 'lightning', 'sklearn', 'matplotlib', 'pyarrow')"
    heavy = f"print('HEAVY', [m for m in {names} if m in sys.modules])"
    output = subprocess.run(
        [sys.executable, "-c", code + heavy], capture_output=True, text=True, check=False
    ).stdout
    assert "HEAVY []" in output


@pytest.mark.long
@pytest.mark.parametrize("words", [["slides"], ["slides", "--labels", "labels.csv"], ["store"]])
def test_inspecting_bags_loads_no_pytorch(tmp_path: Path, words: list[str]) -> None:
    made_files.slides(tmp_path, patients=4)[0].rename(tmp_path / "slides")
    write_store(tmp_path / "store", separable_bags(7))
    argv = ["miue", "inspect", *words, "--json"]
    code = f"import sys; sys.argv = {argv}\nfrom miue.cli import main\ntry:\n    main()\nfinally:\n    "
    code += "print('LOADED', [m for m in ('torch', 'scipy.stats', 'miue.model') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "LOADED []" in done.stdout


def test_the_commands_that_the_demo_ends_with_take_their_options() -> None:
    lines = [line.split() for line in NEXT.splitlines() if line.startswith("  miue ")]
    assert len(lines) == 3
    for _, command, *words in lines:
        with get_command(app).commands[command].make_context(command, words) as context:  # type: ignore[attr-defined]
            assert context.params


@pytest.mark.long
def test_the_demo_compares_softmax_with_mirel_and_writes_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from miue.cli import demo_run as demo
    from miue.datasets.digits import digits_bags
    from miue.report.levels import Resampling
    from miue.report.report import write_report

    sizes = {"train": 40, "validation": 20, "calibration": 70, "test": 30}
    monkeypatch.setattr("miue.cli.demo_run.digits_bags", functools.partial(digits_bags, sizes=sizes))
    monkeypatch.setattr(demo, "SETTINGS", {**demo.SETTINGS, "max_epochs": 2})
    quick = functools.partial(write_report, resampling=Resampling(20))
    monkeypatch.setattr("miue.cli.demo_run.write_report", quick)
    monkeypatch.setattr(demo, "run_demo", functools.cache(demo.run_demo))
    output = " ".join(run("demo", "--out", tmp_path / "demo", "--quiet").split())
    assert "softmax" in output and "MIREL" in output and "explanation" in output
    for case in ("Deferred: ", "Out of distribution: ", "Digit by digit: "):
        assert case in output
    assert "with your own data" in output
    written = {str(p.relative_to(tmp_path / "demo")) for p in (tmp_path / "demo").rglob("*") if p.is_file()}
    for method in ("softmax", "mirel"):
        wanted = {f"runs/{method}/model.safetensors", f"runs/{method}/calibration.json"}
        wanted |= {f"predictions/{method}/{name}" for name in ("bags.csv", "instances/part-00000.parquet")}
        assert wanted | {f"evaluations/{method}.json"} <= written
    figures = {f"figures/{name}.png" for name in ("confidence", "bag_positive", "bag_out_of_distribution")}
    assert figures | {"store/bags.csv", "worklist.csv", "report.html"} <= written
    assert (tmp_path / "demo" / "figures" / "confidence.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob(".*.tmp"))
    evaluation = json.loads((tmp_path / "demo" / "evaluations" / "mirel.json").read_text())
    shown = f"{100 * evaluation['bags']['metrics']['accuracy']:.1f}"
    assert shown in output
    printed = json.loads(run("demo", "--out", tmp_path / "demo", "--quiet", "--json"))
    accuracy = {one["what"]: one["mirel"] for one in printed["compared"]}["bags: accuracy"]
    assert accuracy == evaluation["bags"]["metrics"]["accuracy"]
    assert len(printed["cases"]) == 3 and Path(printed["report"]).is_file()


def test_the_demo_shows_a_deferred_bag_whatever_the_calibration_accepts(tmp_path: Path) -> None:
    from dataclasses import replace

    from miue.cli.demo_run import describe_cases
    from miue.datasets.digits import digits_bags
    from miue.predictions import Decisions

    bags = digits_bags(sizes={"train": 20, "validation": 10, "test": 20})
    model = miue.train(bags, settings={"max_epochs": 1}, progress=False)
    predictions = model.predict(bags.split("test"))
    everything = np.array(["negative"] * len(predictions.bags), object)
    table = replace(predictions.bags, decisions=Decisions(everything, everything))
    accepted = replace(predictions, bags=table)
    deferred, detected, _ = describe_cases(accepted, accepted, bags.split("test"))
    known = np.flatnonzero(table.is_ood.in_distribution)
    least = known[np.abs(table.probabilities[known, 1] - 0.5).argmin()]
    assert deferred.startswith(f"Deferred: {table.bag_ids[least]}, predicted ")
    wrong = int((table.predicted[known] != table.labels.values[known]).sum())
    assert "the 2 least certain include " in deferred and f" of {wrong} errors" in deferred
    assert detected == "Out of distribution: no bag was detected"


@pytest.mark.long
def test_train_says_which_parts_it_uses_and_asks_about_the_negative_class(tmp_path: Path) -> None:
    splits = ("train",) * 24 + ("validation",) * 8 + ("test",) * 6 + ("",) * 2
    bags = replace(separable_bags(), splits=splits, class_names=("tumour", "normal"))
    miue.write_store(tmp_path / "store", bags)
    for more in ((), ("--quiet",), ("--seeds", "1,2")):
        words = ("train", tmp_path / "store", "--out", tmp_path / "run", "--set", "max_epochs=1", "--overwrite")
        said = run(*words, *more)
        used = said.count("parts: train 24, validation 8; not used: test 6, of no part 2\n")
        assert used == ("--quiet" not in more)
        assert said.count("Note: the negative class is 'tumour'") == 1
