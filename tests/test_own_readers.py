"""Readers of others: a function that returns a file, or a context manager; what gives something else is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import miue
from miue.common.errors import ConfigError, DataError
from miue.io import state_of_instances
from miue.io.formats import READERS, OpenFile, contents_of, read_rows


class ClosesItself:
    """A context manager that is no generator."""

    closed = 0

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> OpenFile:
        return returned(self.path)

    def __exit__(self, *_: object) -> None:
        ClosesItself.closed += 1


def returned(path: Path) -> OpenFile:
    rows = np.loadtxt(path, dtype=np.float32, ndmin=2)
    return OpenFile(format="lines", features=rows[:, 2:], coords=lambda: rows[:, :2])


def yielded(path: Path) -> Iterator[OpenFile]:
    yield returned(path)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    np.savetxt(tmp_path / "slide_1.bagl", np.arange(12.0).reshape(3, 4))
    return tmp_path / "slide_1.bagl"


@pytest.mark.parametrize("reader", [returned, contextmanager(yielded), ClosesItself])
def test_a_reader_returns_a_file_or_is_a_context_manager(
    reader: Any, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(READERS, "_registered", {".bagl": reader})
    monkeypatch.setattr(ClosesItself, "closed", 0)
    found = contents_of(lines)
    assert (found.format, found.size, found.instance_shape) == ("lines", 3, (2,))
    assert found.coords is not None and found.coords.tolist() == [[0, 1], [4, 5], [8, 9]]
    assert read_rows(lines, 1, 3).tolist() == [[6, 7], [10, 11]]
    assert ClosesItself.closed == (2 if reader is ClosesItself else 0)
    lines.write_text("1 2 three")
    with pytest.raises(DataError, match="slide_1.bagl'.*could not convert string 'three'"):
        contents_of(lines)
    with pytest.raises(DataError, match="at least one bag|no bag|none"):
        miue.load_bags(lines.parent, skip_bad=True)


def of_a_folder(path: Path) -> OpenFile:
    return OpenFile(format="folders", features=np.load(path / "inner" / "rows.npy"))


def test_a_folder_with_the_ending_of_a_reader_is_one_bag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(READERS, "_registered", {".bagl": of_a_folder})
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    for name in ("slide.1.bagl", "slide_2.bagl"):
        (tmp_path / name / "inner").mkdir(parents=True)
        np.save(tmp_path / name / "inner" / "rows.npy", rows)
    bags = miue.load_bags(tmp_path).bags
    assert bags.ids == ("slide.1", "slide_2")
    assert np.array_equal(bags.instances[3:6], rows)
    assert miue.load_bags(tmp_path / "slide_2.bagl").bags.ids == ("slide_2",)
    before = state_of_instances(bags)
    np.save(tmp_path / "slide_2.bagl" / "inner" / "rows.npy", np.ones((3, 2), np.float32))
    assert state_of_instances(bags) != before
    (tmp_path / "slide_2.bagl" / "inner" / "rows.npy").unlink()
    with pytest.raises(DataError, match="slide_2.bagl'.*rows.npy"):
        miue.load_bags(tmp_path)


def truncated(path: Path) -> OpenFile:
    files: dict[str, OpenFile] = {}
    return files[path.stem]


def of_damaged_rows(path: Path) -> OpenFile:
    class Rows(np.ndarray):
        def __getitem__(self, key: Any) -> Any:
            raise EOFError("the stream ends")

    return OpenFile("lines", np.ones((3, 2)).view(Rows))


@pytest.mark.parametrize(
    ("reader", "got"), [(truncated, "KeyError: 'slide_1'"), (of_damaged_rows, "EOFError: the stream ends")]
)
def test_whatever_a_reader_raises_the_file_is_named_and_can_be_left_out(
    reader: Any, got: str, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(lines.with_name("slide_2.npy"), np.ones((3, 2), np.float32))
    monkeypatch.setattr(READERS, "_registered", {".bagl": reader})
    with pytest.raises(DataError, match=f"slide_1.bagl'.*{got}"):
        read_rows(lines, 0, 2)
    loaded = miue.load_bags(lines.parent, skip_bad=True).bags
    assert "slide_2" in loaded.ids
    assert reader is of_damaged_rows or loaded.ids == ("slide_2",)


@pytest.mark.parametrize(
    ("reader", "got"),
    [
        (yielded, "a value of type generator"),
        (lambda path: np.ones((3, 2)), "a value of type ndarray"),
        (lambda path: None, "a value of type NoneType"),
        (lambda path: nullcontext(3), "a value of type int"),
        (lambda path: OpenFile("lines", [[1.0]]), "features of type list"),
        (lambda path: OpenFile("lines", torch.ones(3, 2)), "features of type Tensor"),
    ],
)
def test_a_reader_that_gives_something_else_is_named(
    reader: Any, got: str, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(READERS, "_registered", {".bagl": reader})
    message = f"reader of '.bagl', .*registered in this process: expected .*OpenFile.*, got {got};"
    with pytest.raises(ConfigError, match=message):
        contents_of(lines)
    with pytest.raises(ConfigError, match=message):
        miue.load_bags(lines.parent)


def test_the_entry_point_of_a_reader_that_gives_something_else_is_named(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reader_of_others.py").write_text("def open_bagl(path):\n    return 3\n")
    point = EntryPoint(".bagl", "reader_of_others:open_bagl", "miue.readers")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(READERS, "_found", {".bagl": point})
    monkeypatch.setattr(READERS, "_loaded", dict(READERS._loaded))
    with pytest.raises(ConfigError, match=r"the entry point '.bagl' \(reader_of_others:open_bagl\): expected"):
        contents_of(lines)
