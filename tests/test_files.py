"""Writing is all or nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from commands import fail

import miue
from miue.bags import BagDataset
from miue.common import files
from miue.common.errors import StorageError, WriteError, unknown_name
from miue.common.files import atomic_file, atomic_folder, make_folder, read_json, write_json
from miue.common.folder_kinds import FolderKind

KIND = FolderKind("a test", ("mark",))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_on_the_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append((os.fstat(file), (tmp_path / "file").exists())))
    with atomic_file(tmp_path / "file") as temporary:
        temporary.write_text("whole")
        written = temporary.stat()
    assert [(os.path.samestat(one, written), exists) for one, exists in synced] == [(True, False)]


def test_every_file_of_a_folder_is_on_the_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    with atomic_folder(tmp_path / "folder", KIND) as temporary:
        (temporary / "inner").mkdir()
        files = [temporary / "mark", temporary / "inner" / "part"]
        for file in files:
            file.write_text("whole")
        written = [file.stat().st_ino for file in files]
    assert set(written) <= set(synced)


def test_a_failed_folder_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "kept").write_text("old")
    (path / "mark").touch()
    with pytest.raises(StorageError, match="--overwrite"), atomic_folder(path, KIND):
        pass
    with pytest.raises(RuntimeError), atomic_folder(path, KIND, overwrite=True) as temporary:
        (temporary / "new").write_text("half")
        raise RuntimeError
    assert sorted(p.name for p in path.iterdir()) == ["kept", "mark"]
    with atomic_folder(path, KIND, overwrite=True) as temporary:
        (temporary / "new").write_text("whole")
    assert [p.name for p in path.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("method", "call", "content"), [("replace", 2, "old"), ("rmdir", 1, "new")])
def test_an_interrupt_while_a_folder_is_replaced_leaves_one_of_the_two(
    method: str, call: int, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder"
    with atomic_folder(path, KIND) as temporary:
        (temporary / "mark").write_text("old")
    calls: list[object] = []
    owner = Path if method == "replace" else os
    original = getattr(owner, method)

    def interrupted(*arguments: object, **more: object) -> object:
        calls.append(arguments)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*arguments, **more)

    monkeypatch.setattr(owner, method, interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_folder(path, KIND, overwrite=True) as temporary:
        (temporary / "mark").write_text("new")
    assert (path / "mark").read_text() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_made_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("new")
    make_folder(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "new").is_dir()


def test_a_file_that_could_not_be_written_is_named_by_where_it_was_to_be(tmp_path: Path) -> None:
    expected = pytest.raises(StorageError, match=f"^'{tmp_path}/folder/part'")
    with expected, atomic_folder(tmp_path / "folder", KIND) as temporary, atomic_file(temporary / "part"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that takes no folders")
def test_a_place_that_takes_no_folders_was_not_removed() -> None:
    with pytest.raises(WriteError, match="got No such file or directory.*; choose another place"):
        make_folder(Path("/proc/none"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_the_device_that_is_always_full_is_reported(tmp_path: Path) -> None:
    expected = pytest.raises(StorageError, match="No space left on device")
    with expected, atomic_file(tmp_path / "file"), Path("/dev/full").open("w") as full:
        full.write("x" * 100_000)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["store", "predictions", "model"])
def test_a_full_disk_while_writing_leaves_nothing_half_written(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bags: BagDataset
) -> None:
    model = miue.train(bags, settings={"max_epochs": 1, "device": "cpu"}, progress=False)
    predictions = model.predict(bags)
    calls = []

    def full(path: Path) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "_sync", full)
    target = tmp_path / "out"
    write = {
        "store": lambda: miue.write_store(target, bags),
        "predictions": lambda: predictions.save(target),
        "model": lambda: model.save(target),
    }[what]
    with pytest.raises(StorageError, match="No space left on device; free space or choose another place"):
        write()
    assert len(calls) == 2
    assert not list(tmp_path.iterdir())


def test_json_comes_back_and_refuses_what_is_not_json(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"ü": [1, None]})
    assert read_json(tmp_path / "a.json", what="file") == {"ü": [1, None]}
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "b.json", {"x": np.inf})
    assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (b"{", "Expecting property name"),
        (b"[1]", "got list"),
        (b'{"x": 1, "y": {"z": 1, "z": 2}}', "the key 'z' twice in one object"),
        (b"[" * 20_000, "recursion"),
        (b'{"x": ' * 20_000 + b"1" + b"}" * 20_000, "recursion"),
        (b'{"x": ' + b"7" * 5000 + b"}", "Exceeds the limit"),
        (b'{"x": "\xe9"}', "can't decode byte 0xe9"),
        (b'{"x": "\\ud800"}', "surrogates not allowed"),
        ('{"x": 1}'.encode("utf-16"), "can't decode byte 0xff"),
    ],
)
def test_json_that_cannot_be_taken_is_named(content: bytes, got: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(StorageError, match=f"file '.*c.json': .*{got}"):
        read_json(tmp_path / "c.json", what="file")


def test_json_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"ü": 1}', "utf-8-sig")
    assert read_json(tmp_path / "a.json", what="file") == {"ü": 1}


@pytest.mark.parametrize("mode", [0o600, 0o444, 0o664])
def test_an_output_keeps_the_mode_of_what_it_replaces(mode: int, tmp_path: Path) -> None:
    """What was readable for its owner alone, such as ids of patients, became readable for all."""
    folder, part = tmp_path / "folder", tmp_path / "folder" / "inner" / "part"

    def write() -> None:
        with atomic_folder(folder, KIND, overwrite=True) as temporary:
            (temporary / "inner").mkdir()
            for file in (temporary / "mark", temporary / "inner" / "part"):
                file.write_text("ids")

    write()
    folder.chmod(mode | 0o100)
    part.chmod(mode)
    write()
    assert [path.stat().st_mode & 0o777 for path in (folder, part)] == [mode | 0o100, mode]
    with atomic_file(part) as temporary:
        temporary.write_text("other ids")
    assert part.stat().st_mode & 0o777 == mode and part.read_text() == "other ids"


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    error = unknown_name("network", "atention", ["mean", "attention"])
    assert str(error) == (
        "network 'atention': expected one of attention, mean, got 'atention'; did you mean 'attention'?"
    )
    assert "did you mean" not in str(unknown_name("network", "zzz", ["mean"]))


@pytest.mark.parametrize("ending", [".npy", ".csv", ""])
def test_a_name_in_another_encoding_is_refused_before_anything_is_written(ending: str, tmp_path: Path) -> None:
    """Such as files of old Windows shares have; Python hands their bytes on, and no table takes them."""
    path = tmp_path / f"b\udce9{ending}"
    try:
        if not ending:
            path.mkdir()
        (path if ending else path / "a.png").write_text("f,g\n1,2\n")
    except OSError:
        pytest.skip("a file system that takes no such name")
    for command in (("data", "pack", tmp_path, "--out", tmp_path / "store"), ("inspect", tmp_path)):
        assert f"b\\udce9{ending}': expected a name in UTF-8, got another encoding" in fail(*command)
    assert not (tmp_path / "store").exists()
