"""A full disk, a folder that takes no files, a device that is not there: said, and nothing half-made stays."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import fail, run
from fast import slow_but
from made_bags import separable_bags, train_with
from made_predictions import made_predictions

import miue
from miue.bags import BagDataset
from miue.calibration import Goals, worklist, write_worklist
from miue.common.devices import lightning_device, torch_device
from miue.common.errors import NO_ROOM, ConfigError, DataError, StorageError, WriteError, not_readable
from miue.common.files import atomic_file, atomic_folder
from miue.common.folder_kinds import PREDICTIONS
from miue.common.tasks import Executor
from miue.io import make_folds, pack, write_store
from miue.io.formats import refusing, write_array
from miue.model.calibrate import calibrate_model
from miue.model.recipe import Recipe
from miue.pathology.export.folders import export
from miue.pathology.tile_files import Tiles, read_tiles, write_features
from miue.predictions import Predictions
from miue.selection import cross_validate
from miue.settings import RunSettings, TrainingConfig
from miue.training.run import Run
from miue.training.run_folder import IfExists, clear_run
from miue.training.trackers import opened_loggers

QUICK = {"max_epochs": 1}
TWO = Executor("processes", 2)


@contextmanager
def full_disk(allowed: int) -> Iterator[None]:
    """Let every file that grows beyond ``allowed`` bytes fail, whichever library writes it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (allowed, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def train(out: Path, **more: Any) -> miue.Model:
    given: dict[str, Any] = {"if_exists": "refuse", **more}
    return train_with(separable_bags(), settings={**QUICK, "device": "cpu"}, out=out, progress=False, **given)


WRITERS: dict[str, Callable[[Path], object]] = {
    "train": train,
    "ensemble": lambda out: train(out, method="deep-ensemble"),
    "cross_validate": lambda out: cross_validate(
        separable_bags(), make_folds(separable_bags(), 2), [1], out, Recipe(settings=QUICK), progress=False
    ),
    "store": lambda out: write_store(out, separable_bags()),
    "pack": lambda out: pack(separable_bags(), out),
    "cross_validate side by side": lambda out: cross_validate(
        separable_bags(), make_folds(separable_bags(), 2), [1], out, Recipe(settings=QUICK), settings={"jobs": 2}
    ),
    "predictions": lambda out: made_predictions(200).save(out),
}


FULL = [(what, allowed) for what in WRITERS for allowed in (100, 5_000) if "side by side" not in what]


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "allowed"),
    slow_but([("cross_validate side by side", allowed) for allowed in (100, 5_000)], FULL),
)
def test_a_full_disk_is_said_and_the_next_try_goes_through(what: str, allowed: int, tmp_path: Path) -> None:
    out = tmp_path / "out"
    try:
        with full_disk(allowed):
            WRITERS[what](out)
    except StorageError as error:
        assert "File too large" in str(error)
        assert "free space" in str(error)
    else:
        assert what in ("store", "pack") and allowed == 5_000, "these bags are small"
        return
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith((".tmp", ".lock"))]
    WRITERS[what](out)


@pytest.mark.parametrize("allowed", [100, 1_000], ids=["first file", "table of long names"])
def test_a_packing_that_meets_a_full_disk_says_that_the_same_command_goes_on(allowed: int, tmp_path: Path) -> None:
    names = [letter * 200 for letter in "abcdefg"]
    bags = BagDataset.from_arrays([np.ones((1, 2), np.float32)] * 7, [0, 1, 0, 1, 0, 1, 0], ids=names)
    out = tmp_path / "out"
    with full_disk(allowed), pytest.raises(WriteError) as raised:
        pack(bags, out)
    assert raised.value.item == repr(str(out))
    assert raised.value.got == "File too large"
    assert raised.value.fix == "free space, then give the same command again: it goes on where it stopped"
    assert pack(bags, out).resumed == (7 if allowed == 1_000 else 0)


@pytest.mark.long
def test_a_training_that_meets_a_full_disk_says_so_and_goes_on_once_there_is_room(tmp_path: Path) -> None:
    write_store(tmp_path / "store", separable_bags())
    training = ["train", tmp_path / "store", "--out", tmp_path / "run", "--quiet", "--device", "cpu", "--set"]
    with full_disk(5_000):
        assert "nothing half-written was left" in fail(*training, "max_epochs=2")
    run(*training, "max_epochs=2")
    longer = [*training, "max_epochs=3", "--resume"]
    with full_disk(5_000):
        assert "free space" in fail(*longer)
    run(*longer)
    validated = ["cross-validate", tmp_path / "store", "--folds", "2", "--seeds", "1", "--set", "max_epochs=1"]
    with full_disk(5_000):
        assert "free space" in fail(*validated, "--out", tmp_path / "cv", "--quiet")
    run(*validated, "--out", tmp_path / "cv", "--quiet")


@pytest.mark.parametrize(
    "command",
    [
        ["export", "geojson"],
        ["export", "heatmap"],
        ["export", "arrays"],
        ["export", "geoparquet"],
        ["export", "ome-tiff"],
        ["worklist"],
        ["report"],
        ["evaluate"],
    ],
    ids=" ".join,
)
def test_commands_say_that_the_disk_is_full_or_the_folder_takes_no_files(
    command: list[str], saved_slides: Path, tmp_path: Path, small_plotly: None
) -> None:
    out = tmp_path / "out"
    with full_disk(10):
        said = fail(*command, saved_slides, "--out", out)
    assert "File too large; free space" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["predictions"]
    (tmp_path / "file").touch()
    said = fail(*command, saved_slides, "--out", tmp_path / "file" / "out")
    assert f"got File exists: '{tmp_path / 'file'}'; choose another place" in said


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "sizes"), [("geojson", 12), ("heatmap", 3), ("arrays", 12), ("geoparquet", 12), ("ome-tiff", 12)]
)
def test_an_export_meets_a_full_disk_wherever_in_its_file_that_is(
    kind: str, sizes: int, two_slides: Predictions, tmp_path: Path
) -> None:
    """HDF5 writes most of a file when it is closed, and its errors there are no errors of the system."""
    export(two_slides, tmp_path / "whole", kind)
    largest = max(path.stat().st_size for path in (tmp_path / "whole").iterdir())
    for allowed in np.linspace(0, largest - 1, sizes, dtype=int).tolist():
        with full_disk(allowed), pytest.raises(StorageError, match="File too large; free space"):
            export(two_slides, tmp_path / "out", kind)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["whole"]


def test_a_worklist_and_its_limits_are_written_both_or_neither(two_slides: Predictions, tmp_path: Path) -> None:
    """A list without its limits would stand in the way of the same command."""
    made = worklist(two_slides)
    write_worklist(tmp_path / "list.csv", made)
    sizes = sorted(path.stat().st_size for path in tmp_path.iterdir())
    for path in tmp_path.iterdir():
        path.unlink()
    for allowed in (0, sizes[0], sizes[1] - 1):
        with full_disk(allowed), pytest.raises(StorageError, match="File too large; free space"):
            write_worklist(tmp_path / "list.csv", made)
        assert not list(tmp_path.iterdir())


def test_features_meet_a_full_disk_wherever_in_their_file_that_is(tmp_path: Path) -> None:
    random, path = np.random.default_rng(0), tmp_path / "slide.h5"
    features = random.normal(size=(2000, 4)).astype(np.float32)
    tiles = Tiles(random.integers(0, 9000, (2000, 2)), 256, 256, {"level0_width": 9000})
    write_features(path, features, features[:, :3], tiles, {"encoder": "mine"})
    largest = path.stat().st_size
    path.unlink()
    for allowed in np.linspace(0, largest - 1, 12, dtype=int).tolist():
        with full_disk(allowed), pytest.raises(StorageError, match="File too large; free space"):
            write_features(path, features, features[:, :3], tiles, {"encoder": "mine"})
        assert not list(tmp_path.iterdir())
    write_features(path, features, features[:, :3], tiles, {"encoder": "mine"})
    assert np.array_equal(read_tiles(path).coords, tiles.coords)


def test_no_array_of_a_store_loses_its_end_to_a_full_disk(tmp_path: Path) -> None:
    """``np.save`` passes over an error of its last page, and leaves a shorter file."""
    bags = BagDataset.from_arrays([np.ones((500, 1), np.float32)], [1], instance_labels=[np.ones(500, int)])
    with full_disk(4096), pytest.raises(StorageError, match="File too large; free space"):
        write_store(tmp_path / "store", bags)
    assert not list(tmp_path.glob("*"))


def test_a_tracker_that_finds_no_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.setattr("threading.excepthook", lambda *_: None)  # TensorBoard's thread fails as well
    tracked = Run(tmp_path, RunSettings(trackers=("tensorboard",)))
    config = TrainingConfig(max_epochs=1, bags_per_update=1, lr_patience=1, stop_patience=1)
    with (
        pytest.raises(StorageError, match="what is tracked of .*File too large; free space"),
        opened_loggers(tracked, config, 0) as loggers,
        full_disk(100),
    ):
        for step in range(100):
            loggers[0].log_metrics({"criterion": 0.5}, step)
            loggers[0].save()


def no_place_for_temporaries() -> str:
    raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")


def test_a_system_without_a_folder_for_temporary_files_is_said(
    monkeypatch: pytest.MonkeyPatch, saved_slides: Path
) -> None:
    """As in a container with a read-only file system; matplotlib, which Lightning imports, words it otherwise."""

    def refuse(*_: object) -> None:
        raise OSError("Matplotlib requires access to a writable cache directory")

    monkeypatch.setattr("miue.common.text.ResultTable.show", refuse)
    with pytest.raises(OSError, match="Matplotlib"):
        fail("inspect", saved_slides)
    monkeypatch.setattr(tempfile, "gettempdir", no_place_for_temporaries)
    said = fail("inspect", saved_slides)
    assert "temporary files: expected a folder that can be written, got none" in said
    assert "set TMPDIR to one" in said


def test_bags_are_calibrated_without_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = train(tmp_path / "run")
    monkeypatch.setattr(tempfile, "gettempdir", no_place_for_temporaries)
    scaling_alone = Goals(deferral=None, prediction_sets=None, false_alarms=None)
    bags = replace(separable_bags(), ids=tuple(f"new_{bag}" for bag in range(40)))
    assert calibrate_model(model, bags, scaling_alone, device="cpu").scaling is not None


@pytest.mark.parametrize("number", NO_ROOM)
def test_a_standard_output_without_room_is_said(
    number: int, monkeypatch: pytest.MonkeyPatch, saved_slides: Path
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("miue.common.text.ResultTable.show", refuse)
    said = fail("inspect", saved_slides)
    assert f"'the standard output': expected a path that can be used, got {os.strerror(number)}" in said


@pytest.mark.parametrize("what", WRITERS)
def test_a_folder_that_cannot_be_made_is_said(what: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="got File exists: '.*/file'; choose another"):
        WRITERS[what](tmp_path / "file" / "out")


def test_a_folder_that_takes_no_files_names_who_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, os.strerror(13), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)  # as a file system that is read-only does
    with (
        pytest.raises(StorageError, match="got Permission denied.*; choose another place, or see who"),
        atomic_file(tmp_path / "a"),
    ):
        pass


def denied(monkeypatch: pytest.MonkeyPatch, refused: Path) -> None:
    """Let the system refuse to open one file, as it does to a user who may not; root may open any."""
    really = Path.open

    def open_or_refuse(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.absolute() == refused.absolute():
            raise PermissionError(13, os.strerror(13), str(path))
        return really(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", open_or_refuse)


def test_an_input_that_may_not_be_read_is_not_taken_for_the_output(tmp_path: Path) -> None:
    given, out = tmp_path / "given.txt", tmp_path / "out"
    for place in (atomic_file(out), atomic_folder(out, PREDICTIONS)):
        with pytest.raises(StorageError) as caught, place:
            raise PermissionError(13, os.strerror(13), str(given))
        assert not isinstance(caught.value, WriteError)
        assert (caught.value.item, caught.value.fix) == (repr(str(given)), "see who may read it")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "said", ["[Errno 13] x: Permission denied", "no file (name = 'a', errno = 13, flags = 0)"]
)
def test_a_file_that_may_not_be_read_is_not_called_damaged(said: str, tmp_path: Path) -> None:
    error = not_readable("it", "a whole file", OSError(said), "make it again")
    assert str(error) == "it: expected a whole file, got Permission denied; see who may read it"
    refused = pytest.raises(DataError, match="got Permission denied; see who may read it")
    with refused, refusing(tmp_path, "a whole HDF5 file", OSError):
        raise OSError(said)
    assert "got Errno 130 is none; make it again" in str(
        not_readable("it", "a whole file", OSError("Errno 130 is none"), "make it again")
    )


def test_weights_that_may_not_be_read_are_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "run")
    weights = tmp_path / "run" / "model.safetensors"
    weights.write_bytes(b"")  # of which safetensors says something else, as it does where it may not read
    denied(monkeypatch, weights)
    with pytest.raises(StorageError, match=r"safetensors': expected .*, got Permission denied; see who"):
        miue.Model.load(tmp_path / "run")


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o002])
def test_every_file_of_a_run_has_the_mode_of_a_new_file(umask: int, tmp_path: Path, bags: BagDataset) -> None:
    before = os.umask(umask)
    try:
        model = train(tmp_path / "run")
        model.save(tmp_path / "copy")
        model.predict(bags).save(tmp_path / "predictions")
        miue.write_store(tmp_path / "store", bags)
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.name: oct(mode) for path, mode in modes.items() if mode != 0o666 & ~umask} == {}
    assert any(path.suffix == ".safetensors" for path in modes)


def without_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.mark.parametrize("device", ["gpu", "cuda", "cuda:0", "mps"])
def test_a_device_that_is_not_there_is_refused_before_anything_is_written(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bags: BagDataset
) -> None:
    without_accelerator(monkeypatch)
    write_store(tmp_path / "store", bags)
    out = tmp_path / "out"
    message = f"device {device!r}: expected an accelerator, got 0 of them; choose the device 'cpu', or 'auto'"
    for command in ("train", "cross-validate"):
        assert message in fail(command, tmp_path / "store", "--out", out, "--device", device)
    with pytest.raises(ConfigError, match="an accelerator"):
        miue.train(bags, out=out, settings={"device": device}, progress=False)
    with pytest.raises(ConfigError, match="an accelerator"):
        cross_validate(bags, make_folds(bags, 2), [1], out, settings={"device": device}, progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_devices_are_named_as_torch_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    names = {"auto": "cuda", "gpu": "cuda", "cuda": "cuda", "cuda:1": "cuda:1", "cpu": "cpu"}
    assert {name: str(torch_device(name)) for name in names} == names
    assert lightning_device("cuda:1") == {"accelerator": "cuda", "devices": [1]}
    assert lightning_device("gpu") == {"accelerator": "cuda", "devices": 1}
    for name in ("cuda:2", "mps"):
        with pytest.raises(ConfigError, match="an accelerator"):
            torch_device(name)


def test_more_devices_than_there_are_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert lightning_device("gpu", 2) == {"accelerator": "cuda", "devices": 2, "num_nodes": 1}
    with pytest.raises(ConfigError, match="3 devices on each machine: expected at most 2, which this machine has"):
        lightning_device("gpu", 3)
    with pytest.raises(ConfigError, match="named without a number"):
        lightning_device("cuda:1", 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device 'gpu': expected an accelerator, got 0 of them"):
        lightning_device("gpu", 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert (str(torch_device("gpu")), str(torch_device("mps")), str(torch_device("auto"))) == ("mps", "mps", "cpu")
    for name in ("meta", "gpus"):
        with pytest.raises(ConfigError, match="expected one of auto, cpu, gpu"):
            torch_device(name)


def test_a_run_without_a_finished_epoch_does_not_block_the_next_try(tmp_path: Path, bags: BagDataset) -> None:
    out = tmp_path / "run"
    with pytest.raises(DataError, match="a finite loss"):
        miue.train(
            bags,
            method="softmax",
            settings={"learning_rate": 1e30, "max_epochs": 1, "device": "cpu"},
            out=out,
            progress=False,
        )
    assert (out / "run.json").exists()
    (out / "checkpoints").mkdir(exist_ok=True)
    (out / "checkpoints" / "best.safetensors").write_bytes(b"half an epoch")
    train(out, if_exists="resume", method="softmax")
    other = tmp_path / "other"
    other.mkdir()
    (other / "run.json").write_text("{}")
    (other / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="holds files"):
        train(other)
    assert (other / "run.json").exists()
    (other / "notes.txt").unlink()
    train(other)


class Killed(BaseException):
    """Stands for a kill."""


def kill_after_removals(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process die once it has removed this many files and folders."""
    removed: list[object] = []

    def counted(remove: Callable[..., None]) -> Callable[..., None]:
        def remove_or_die(*given: Any, **more: Any) -> None:
            removed.append(given)
            if len(removed) > number:
                raise Killed
            remove(*given, **more)

        return remove_or_die

    monkeypatch.setattr(Path, "unlink", counted(Path.unlink))
    monkeypatch.setattr(shutil, "rmtree", counted(shutil.rmtree))


@pytest.mark.parametrize("number", [1, 7, 9, 10, 14])
@pytest.mark.parametrize("is_run", [True, False])
def test_a_kill_while_a_run_is_cleared_leaves_no_model_and_does_not_block_the_same_call(
    number: int, is_run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    model = train(tmp_path / "run" if not is_run else out, method="softmax", distances=())
    if not is_run:
        model.save(out)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_after_removals(number, patch)
        clear_run(out)
    assert is_run <= (not (out / "config.json").exists())
    train(out, if_exists="overwrite", method="softmax", distances=())
    assert miue.Model.load(out)


@pytest.mark.parametrize(
    ("if_exists", "number"), [("overwrite", 0), ("overwrite", 9), ("resume", 0), ("resume", 10)]
)
def test_a_run_of_which_something_cannot_be_removed_is_not_begun_anew(
    if_exists: IfExists, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints that stayed would be gone on with as if they were those of the new run."""
    settings = {"max_epochs": 2 if if_exists == "resume" else 1}
    train(tmp_path, method="softmax", distances=())
    before = (tmp_path / "run.json").read_bytes()
    removed, unlink = [], Path.unlink

    def refuse(path: Path | str, *_: object, **__: object) -> None:
        removed.append(path)
        if len(removed) > number:
            raise PermissionError(13, os.strerror(13), str(path))
        if Path(path).is_file():
            unlink(Path(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        patch.setattr(shutil, "rmtree", refuse)
        with pytest.raises(StorageError, match="to remove it, got Permission denied; choose another place"):
            miue.train(
                separable_bags(),
                method="mirel" if if_exists == "overwrite" else "softmax",
                settings={**settings, "distances": (), "device": "cpu"},
                out=tmp_path,
                if_exists=if_exists,
                progress=False,
            )
    assert (tmp_path / "run.json").read_bytes() == before


def test_a_cross_validation_of_which_no_run_was_begun_does_not_block_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bags: BagDataset
) -> None:
    folds = make_folds(bags, 2)
    with pytest.raises(ConfigError):
        cross_validate(bags, folds, [1], tmp_path, Recipe(network="no-network"), progress=False)
    cross_validate(bags, folds, [1], tmp_path, Recipe(settings=QUICK), progress=False)


def test_a_cross_validation_without_the_models_of_its_runs_is_still_that_of_its_recipe(
    tmp_path: Path, bags: BagDataset
) -> None:
    """Models are large, and may be removed: the metrics that stay are not those of another recipe."""
    folds = make_folds(bags, 2)
    cross_validate(bags, folds, [1], tmp_path, Recipe(settings=QUICK), progress=False)
    for finished in tmp_path.glob("fold_*/seed_*/run"):
        shutil.rmtree(finished)
    with pytest.raises(ConfigError, match="the same method as when it was started"):
        cross_validate(bags, folds, [1], tmp_path, Recipe(method="softmax", settings=QUICK), progress=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_large_arrays_are_written_so_that_a_full_disk_is_an_error() -> None:
    """A memory map reserves no room, and the process ends by SIGBUS once its pages are to be written."""
    rows = np.zeros((1000, 50), np.float32)
    with pytest.raises(OSError, match="No space left on device"):
        write_array(Path("/dev/full"), rows.dtype, rows.shape, [rows])


@pytest.mark.parametrize("dtype", ["float16", "float32", "uint8", "int64"])
def test_arrays_written_span_by_span_are_those_of_numpy(dtype: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 200, (7, 3, 2)).astype(dtype)
    write_array(tmp_path / "a.npy", rows.dtype, rows.shape, [rows[:3], rows[3:3], rows[3:, ::1]])
    np.save(tmp_path / "b.npy", rows)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    write_array(tmp_path / "a.npy", rows.dtype, rows.shape, [rows[:3].astype(np.float64), rows[3:]])
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    for spans, wrong in (([rows[:3]], "3 rows"), ([rows[:, :2]], "rows of shape")):
        with pytest.raises(ValueError, match=wrong):
            write_array(tmp_path / "c.npy", rows.dtype, rows.shape, spans)
