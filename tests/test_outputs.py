"""--overwrite replaces outputs of the same kind, and never what a command reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import fail, run
from made_bags import separable_bags

import miue
from miue.bags import BagDataset
from miue.common.errors import StorageError
from miue.common.folder_kinds import EXPORT, PREDICTIONS, STORE, FolderKind, kind_of
from miue.common.outputs import refuse_existing
from miue.io import write_store
from miue.predictions import Predictions

ONE_EPOCH = ("--set", "max_epochs=1", "--method", "deterministic", "--quiet")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, a model and predictions."""
    place = tmp_path_factory.mktemp("made")
    bags = separable_bags()
    write_store(place / "store", bags)
    model = miue.train(bags, method="deterministic", settings={"max_epochs": 1}, progress=False)
    model.save(place / "run")
    model.predict(bags).save(place / "predictions")
    return place


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "store", tmp_path / "store")


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "run", tmp_path / "run")


@pytest.fixture
def predicted(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "predictions", tmp_path / "predictions")


def test_folders_are_known_by_kind(store: Path, model: Path, predicted: Path, tmp_path: Path) -> None:
    names = [kind.name if kind else None for kind in map(kind_of, (store, model, predicted, tmp_path))]
    assert names == ["a bag store", "a trained model", "predictions", None]


@pytest.mark.parametrize(
    "command", ["make", "pack", "predict", "side by side", "shard", "train", "train seeds", "decide"]
)
def test_overwrite_spares_folders_of_other_kinds(
    command: str, store: Path, model: Path, predicted: Path, tmp_path: Path
) -> None:
    slides = tmp_path / "slides"
    (slides / "checkpoints").mkdir(parents=True)
    (slides / "splits.csv").write_text("mine")
    (slides / "checkpoints" / "a").write_text("mine")
    (slides / "seed_1").mkdir()
    (slides / "seed_1" / "log.csv").write_text("mine")
    words: tuple[object, ...] = {
        "make": ("data", "make", "gaussian-bags"),
        "pack": ("data", "pack", store),
        "predict": ("predict", model, store, "--part", "all"),
        "side by side": ("predict", model, store, "--part", "all", "--jobs", 2),
        "shard": ("predict", model, store, "--part", "all", "--shard", "1/2"),
        "train": ("train", store, *ONE_EPOCH),
        "train seeds": ("train", store, *ONE_EPOCH, "--seeds", "1,2"),
        "decide": ("decide", predicted, "--calibration", tmp_path / "rules.json"),
    }[command]
    own = {"make": store, "pack": store, "train": model, "train seeds": model}.get(command, predicted)
    for out in {store, model, predicted, slides} - {own}:
        before = content(out)
        said = run(*words, "--out", out, "--overwrite", code=1)
        assert "choose another --out" in said
        assert content(out) == before


@pytest.mark.long
def test_exports_spare_what_is_no_export(saved_slides: Path, tmp_path: Path) -> None:
    overlays = tmp_path / "overlays"
    overlays.mkdir()
    (overlays / "drawn_by_hand.geojson").write_text("{}")
    for kind in ("geojson", "heatmap", "arrays"):
        said = run("export", kind, saved_slides, "--out", overlays, "--overwrite", code=1)
        assert "expected an export to replace, got a folder of other files" in said
        assert [path.name for path in overlays.iterdir()] == ["drawn_by_hand.geojson"]
        for _ in range(2):
            run("export", kind, saved_slides, "--out", tmp_path / kind, "--overwrite")
        assert kind_of(tmp_path / kind) == EXPORT


def test_an_input_is_not_replaced_even_by_its_kind(
    store: Path, model: Path, predicted: Path, tmp_path: Path
) -> None:
    inner = predicted / "store"
    store.rename(inner)
    labels = tmp_path / "labels.csv"
    labels.write_text("slide_id,label\na,1\n")
    kept = content(predicted), content(model), labels.read_bytes()
    for words in (
        ("data", "pack", inner, "--out", inner),
        ("data", "pack", inner, "--out", tmp_path / "new", "--labels", labels, "--splits", tmp_path / "new"),
        ("predict", model, inner, "--out", predicted, "--part", "all"),
        ("predict", model, inner, "--out", predicted, "--part", "all", "--jobs", 2),
        ("train", inner, "--out", predicted, *ONE_EPOCH),
        ("worklist", labels, "--out", labels),
        ("evaluate", labels, "--out", labels),
        ("report", labels, "--out", labels),
        ("data", "split", inner, "--labels", labels, "--out", labels),
    ):
        (tmp_path / "new").mkdir(exist_ok=True)
        said = run(*words, "--overwrite", code=1)
        assert "an output that holds nothing of what is read" in said, words
    assert kept == (content(predicted), content(model), labels.read_bytes())


def test_a_file_of_a_folder_is_not_replaced_with_another(
    store: Path, model: Path, predicted: Path, tmp_path: Path
) -> None:
    kept = content(predicted), content(model), content(store)
    for words in (
        ("worklist", predicted, "--out", predicted / "bags.csv"),
        ("evaluate", predicted, "--out", predicted / "predictions.json"),
        ("report", predicted, "--out", model / "model.safetensors"),
        ("data", "split", store, "--out", store / "bags.csv"),
        ("data", "split", store, "--out", model / "splits.csv"),
    ):
        said = run(*words, "--overwrite", code=1)
        assert "a file that belongs to nothing else, got one of" in said, words
    assert kept == (content(predicted), content(model), content(store))
    for _ in range(2):
        run("worklist", predicted, "--out", predicted / "worklist.csv", "--overwrite")


@pytest.mark.parametrize("command", ["worklist", "report", "split", "evaluate"])
def test_a_place_that_cannot_be_written_is_refused_by_its_name_before_the_work(
    command: str, store: Path, predicted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "out.csv"
    words = ("data", "split", store) if command == "split" else (command, predicted)
    monkeypatch.setattr("miue.cli.evaluate.read_given", None)  # read nothing before
    said = run(*words, "--out", out, code=1)
    assert repr(str(out)) in said and "out.json" not in said


def test_results_within_an_output_are_not_lost_with_it(store: Path, model: Path, predicted: Path) -> None:
    model.rename(store / "run")
    said = run("data", "make", "gaussian-bags", "--out", store, "--overwrite", code=1)
    assert "expected a bag store without other results in it, got a trained model in 'run'" in said
    assert (store / "run" / "model.safetensors").exists()


@pytest.mark.long
@pytest.mark.parametrize("command", ["evaluate", "worklist", "report", "split", "compare"])
def test_a_file_is_replaced_on_request_alone(command: str, store: Path, predicted: Path, tmp_path: Path) -> None:
    out = tmp_path / ("out.csv" if command in ("worklist", "split", "compare") else "out.html")
    words: tuple[object, ...] = {
        "evaluate": ("evaluate", predicted, "--allow-training-bags"),
        "worklist": ("worklist", predicted),
        "report": ("report", predicted),
        "split": ("data", "split", store),
        "compare": ("compare", tmp_path / "cv"),
    }[command]
    if command == "compare":
        run("cross-validate", store, *ONE_EPOCH, "--folds", 2, "--seeds", "1", "--out", tmp_path / "cv")
    out.write_text("what was there")
    assert "a file that is there; choose another --out, or pass --overwrite" in run(*words, "--out", out, code=1)
    assert out.read_text() == "what was there"
    run(*words, "--out", out, "--overwrite")
    assert "what was there" not in out.read_text()
    if command == "worklist":
        out.unlink()
        assert "out.json" in run(*words, "--out", out, code=1)


def test_pipes_and_devices_are_left_as_they_are(predicted: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for words in (("evaluate", predicted, "--allow-training-bags"), ("worklist", predicted)):
        assert "a device or a pipe" in run(*words, "--out", pipe, "--overwrite", code=1)
    assert pipe.is_fifo()
    assert "a device or a pipe" in run("data", "make", "gaussian-bags", "--out", pipe, "--overwrite", code=1)


def test_what_a_link_leads_to_is_written(bags: BagDataset, tmp_path: Path, two_slides: Predictions) -> None:
    disk = tmp_path / "large_disk"
    disk.mkdir()
    (tmp_path / "store").symlink_to(disk)
    for _ in range(2):
        write_store(tmp_path / "store", bags, overwrite=True)
    assert (tmp_path / "store").is_symlink()
    assert kind_of(disk) == STORE
    (tmp_path / "list.csv").symlink_to(disk / "list.csv")
    run("worklist", _saved(two_slides, tmp_path), "--out", tmp_path / "list.csv")
    assert (tmp_path / "list.csv").is_symlink()
    assert (disk / "list.csv").is_file()


def _saved(predictions: Predictions, folder: Path) -> Path:
    predictions.save(folder / "predictions")
    return folder / "predictions"


def test_the_folder_in_which_a_command_runs_is_not_replaced(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store)
    for out in (".", store, store.parent / "store"):
        said = run("data", "make", "gaussian-bags", "--out", out, "--overwrite", code=1)
        assert "the one in which it runs" in said
    assert kind_of(store) == STORE


def test_a_folder_that_was_removed_under_a_command_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one, torch ends its process as it is imported."""
    (tmp_path / "removed").mkdir()
    monkeypatch.chdir(tmp_path / "removed")
    (tmp_path / "removed").rmdir()
    said = fail("inspect", tmp_path)
    assert "expected one that is there, got one that was removed; change to another" in said


@pytest.mark.parametrize(
    ("name", "utf8", "said"),
    [
        (b"caf\xe9", "1", "got another encoding, such as Latin-1; rename the file or folder"),
        ("café".encode(), "0", "got a system set to ascii; set PYTHONUTF8=1"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes")
def test_an_argument_in_another_encoding_is_refused_before_the_work(name: bytes, utf8: str, said: str) -> None:
    """All bags were predicted, and writing where they came from failed with a traceback."""
    settings = {"LC_ALL": "C", "PYTHONUTF8": utf8, "PYTHONCOERCECLOCALE": "0"}
    command = [os.fsencode(sys.executable), b"-m", b"miue", b"inspect", name]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings})
    assert ended.returncode == 2
    assert ended.stderr.startswith("miue: error: argument 'caf") and said in ended.stderr


def test_a_path_that_cannot_be_looked_at_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="name too long; choose another place, or see who may write there"):
        refuse_existing(tmp_path / ("x" * 300), FolderKind("a test", ("mark",)), overwrite=True)
    with pytest.raises(StorageError, match="a file, got a folder"):
        refuse_existing(tmp_path, overwrite=True)
    with pytest.raises(StorageError, match="a new or empty folder, got a file"):
        (tmp_path / "file").touch()
        refuse_existing(tmp_path / "file", PREDICTIONS, overwrite=True)
