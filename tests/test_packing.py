"""From files to a store: whole, resumed, verified."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_files
import numpy as np
import pytest
from commands import run
from PIL import Image

import miue
from miue.bags import BagDataset
from miue.common.errors import DataError, StorageError
from miue.io import load_bags, make_split, pack, packing, verify, write_store
from miue.settings import VALIDATION_SHARE


@pytest.fixture
def slides(tmp_path: Path) -> tuple[Path, Path]:
    return made_files.slides(tmp_path / "job")


def test_packing_keeps_every_number(slides: tuple[Path, Path], tmp_path: Path) -> None:
    folder, labels = slides
    said = run("data", "pack", folder, "--labels", labels, "--out", tmp_path / "store", "--quiet")
    stored = miue.read_store(tmp_path / "store")
    bags = load_bags(folder, labels=labels).bags
    assert f"{len(bags)} bags with {bags.sizes.sum()} instances packed" in said and "split by patient" in said
    assert stored.ids == bags.ids and stored.patients == bags.patients and stored.class_names == bags.class_names
    assert np.array_equal(np.asarray(stored.instances), np.asarray(bags.instances))
    assert stored.coords is not None and bags.coords is not None
    assert np.array_equal(stored.coords.values, bags.coords.values)
    assert stored.patch_sizes is not None and set(stored.patch_sizes.tolist()) == {1024}
    assert set(stored.splits) == {"train", "validation", "test"}
    verify(tmp_path / "store")
    assert not list(tmp_path.glob(".*packing"))
    with (tmp_path / "store" / "instances.npy").open("r+b") as file:
        file.seek(-8, 2)
        file.write(b"\0" * 8)
    with pytest.raises(StorageError, match=f"bag '{stored.ids[-1]}' in .*instances.npy'"):
        verify(tmp_path / "store")


def test_float16_stays_float16(tmp_path: Path) -> None:
    for name in "ab":
        made_files.stamp(tmp_path / "features", name, made_files.features_of(4))
    run("data", "pack", tmp_path / "features", "--out", tmp_path / "store", "--quiet")
    assert miue.read_store(tmp_path / "store").instances.dtype == np.float16
    made_files.trident(tmp_path / "features", "c", made_files.features_of(4), patch_size_level0="None")
    with pytest.raises(DataError, match="of 'ctranspath', as in 2 of 3 files"):
        load_bags(tmp_path / "features")


def test_a_file_that_states_no_encoder_beside_files_that_do_is_refused_as_such(tmp_path: Path) -> None:
    for name in "ab":
        made_files.trident(tmp_path, name, made_files.features_of(4))
    np.save(tmp_path / "c.npy", made_files.features_of(4))
    with pytest.raises(DataError, match=r"of 'uni_v1', as in 2 of 3 files, got"):
        load_bags(tmp_path)


def test_a_killed_packing_goes_on_where_it_stopped(
    slides: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = load_bags(slides[0]).bags
    read, seen = packing._read, []

    def stops(dataset: BagDataset, bag: int) -> Any:
        seen.append(bag)
        if bag == 7 and len(seen) < 20:
            raise KeyboardInterrupt
        return read(dataset, bag)

    monkeypatch.setattr(packing, "_read", stops)
    with pytest.raises(KeyboardInterrupt):
        pack(bags, tmp_path / "store")
    work = tmp_path / ".store.packing"
    assert work.is_dir() and not (tmp_path / "store").exists()
    with (work / "instances.npy").open("ab") as file:
        file.write(b"half a bag")
    with (work / "checksums.csv").open("ab") as file:
        file.write(b"7,")
    seen.extend(range(20))
    packed = pack(bags, tmp_path / "store")
    assert packed.resumed == 7 and packed.bags == len(bags)
    assert np.array_equal(np.asarray(miue.read_store(tmp_path / "store").instances), np.asarray(bags.instances))
    verify(tmp_path / "store")
    assert not work.exists()


def test_a_packing_goes_on_after_a_line_that_a_full_disk_tore_and_a_second_interrupt(
    slides: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next line was written behind the torn one, so that both and what came after were packed again."""
    bags, read, journal = load_bags(slides[0]).bags, packing._read, tmp_path / ".store.packing" / "checksums.csv"
    for stop in (7, 12):

        def stops(dataset: BagDataset, bag: int, stop: int = stop) -> Any:
            if bag == stop:
                raise KeyboardInterrupt
            return read(dataset, bag)

        monkeypatch.setattr(packing, "_read", stops)
        with pytest.raises(KeyboardInterrupt):
            pack(bags, tmp_path / "store")
        assert journal.read_bytes().count(b"\n") == stop
        if stop == 7:
            journal.write_bytes(journal.read_bytes()[:-20])
    monkeypatch.undo()
    assert pack(bags, tmp_path / "store").resumed == 12
    verify(tmp_path / "store")


def test_a_packing_that_ends_once_its_store_is_there_leaves_nothing_beside_it(
    slides: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command is refused then, so that what stayed would stay."""
    replace = Path.replace

    def stop_after(path: Path, target: Path) -> Path:
        new = replace(path, target)
        if target == tmp_path / "store":
            raise KeyboardInterrupt
        return new

    monkeypatch.setattr(Path, "replace", stop_after)
    with pytest.raises(KeyboardInterrupt):
        pack(load_bags(slides[0]).bags, tmp_path / "store")
    verify(tmp_path / "store")
    assert not list(tmp_path.glob(".*"))


def test_what_was_packed_is_on_the_disk_before_it_is_moved(
    slides: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing a large store out takes long, and what is killed meanwhile goes on only where it was not moved."""
    synced = []

    def sync(file: int) -> None:
        work = tmp_path / ".store.packing" / "instances.npy"
        synced.append(work.exists() and os.path.samestat(os.fstat(file), work.stat()))

    monkeypatch.setattr(os, "fsync", sync)
    pack(load_bags(slides[0]).bags, tmp_path / "store")
    assert any(synced)


def test_what_was_damaged_meanwhile_is_packed_again(slides: tuple[Path, Path], tmp_path: Path) -> None:
    bags = load_bags(slides[0]).bags
    pack(bags, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pack(bags, tmp_path / "store")
    with (tmp_path / ".store.packing" / "instances.npy").open("r+b") as file:
        file.seek(-9, 2)
        file.write(b"\7")
        file.seek(0, 2)
        file.write(b"half a bag" * 9)
    packed = pack(bags, tmp_path / "store")
    assert packed.resumed == len(bags) - 1
    for name in ("instances.npy", "bags.csv", "checksums.csv"):
        assert (tmp_path / "store" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_packing_of_other_files_begins_anew(slides: tuple[Path, Path], tmp_path: Path) -> None:
    bags = load_bags(slides[0]).bags
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pack(bags, tmp_path / "store")
    changed = made_files.features_of(int(bags.sizes[0]), seed=99)
    made_files.trident(slides[0], bags.ids[0], changed)
    packed = pack(load_bags(slides[0]).bags, tmp_path / "store")
    assert packed.resumed == 0
    assert np.array_equal(miue.read_store(tmp_path / "store").instances[: len(changed)], changed)


def image_bags(folder: Path, seed: int) -> Path:
    for number in range(6):
        path = folder / f"bag_{number // 3}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number + (seed if number == 4 else 0)).integers(0, 256, (5, 4), np.uint8)
        Image.fromarray(pixels).save(path, compress_level=0)  # all files of one size
    return folder


def long_table(folder: Path, seed: int) -> Path:
    folder.mkdir(exist_ok=True)
    rows = [f"bag_{number // 3},{number + (seed if number == 4 else 0)}.5" for number in range(6)]
    (folder / "table.csv").write_text("\n".join(["bag_id,f0", *rows, ""]))
    return folder / "table.csv"


def store(folder: Path, seed: int) -> Path:
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    rows[4] += seed
    write_store(folder, BagDataset.from_arrays([rows[:3], rows[3:]]), overwrite=True)
    return folder


@pytest.mark.parametrize("make", [image_bags, long_table, store])
def test_a_killed_packing_goes_on_with_the_same_input_alone(
    make: Callable[[Path, int], Path], tmp_path: Path
) -> None:
    """What is read may change while names, numbers, shapes and sizes of files stay the same."""

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    source = make(tmp_path / "in", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_finish", kill)
        for name in ("same", "changed"):
            with pytest.raises(KeyboardInterrupt):
                pack(load_bags(source).bags, tmp_path / name)
    assert pack(load_bags(source).bags, tmp_path / "same").resumed == 2
    make(tmp_path / "in", 1)
    assert pack(load_bags(source).bags, tmp_path / "changed").resumed == 0
    before, after = (np.asarray(miue.read_store(tmp_path / name).instances) for name in ("same", "changed"))
    assert after.shape == before.shape and not np.array_equal(after, before)


def test_a_bag_with_nan_is_left_out_of_the_store_where_asked(slides: tuple[Path, Path], tmp_path: Path) -> None:
    folder, labels = slides
    broken = made_files.features_of(5)
    broken[2, 1] = np.nan
    made_files.trident(folder, "0020", broken)
    with pytest.raises(DataError, match="bag '0020', row 2: expected finite features"):
        pack(load_bags(folder).bags, tmp_path / "store")
    said = run("data", "pack", folder, "--labels", labels, "--out", tmp_path / "store", "--skip-bad", "--quiet")
    stored = miue.read_store(tmp_path / "store")
    counts = ", ".join(f"{name} {stored.splits.count(name)}" for name in ("train", "validation", "test"))
    assert f"with seed 42: {counts} bags" in said and said.count("left out: 0020: ") == 1
    assert "0020" not in stored.ids and len(stored) == len(load_bags(folder).bags) - 1
    assert stored.splits == make_split(stored, validation=VALIDATION_SHARE).assign(stored).splits
    assert "0020" in (tmp_path / "store" / "left_out.csv").read_text()
    whole = load_bags(folder).bags
    row = whole.ids.index(stored.ids[-1])
    assert np.array_equal(stored.batch([len(stored) - 1]).instances, whole.batch([row]).instances)


@pytest.mark.long
@pytest.mark.parametrize("name", ["checksums.csv", "instances.npy", "pack.json"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe damaged", b"1,2,3\n", b"x,y," + b"0" * 64 + b"\n"])
def test_a_packing_whose_remains_are_damaged_begins_anew(
    slides: tuple[Path, Path], tmp_path: Path, name: str, content: bytes
) -> None:
    bags = load_bags(slides[0]).bags
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pack(bags, tmp_path / "store")
    (tmp_path / ".store.packing" / name).write_bytes(content)
    assert pack(bags, tmp_path / "store").resumed == 0
    assert np.array_equal(np.asarray(miue.read_store(tmp_path / "store").instances), np.asarray(bags.instances))


@pytest.mark.parametrize("shape", [(9, 1), (9, 2048), (9, 3, 3), (10**12, 10**9, 7)])
def test_a_packing_with_the_header_of_other_bags_begins_anew(
    slides: tuple[Path, Path], tmp_path: Path, shape: tuple[int, ...]
) -> None:
    bags = load_bags(slides[0]).bags
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pack(bags, tmp_path / "store")
    path = tmp_path / ".store.packing" / "instances.npy"
    with path.open("rb") as file:
        packing._pass_header(file)
        rows = file.read()
    with path.open("wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(bags.instances.dtype)), "fortran_order": False}
        np.lib.format.write_array_header_1_0(file, {**header, "shape": shape})
        file.write(rows)
    assert pack(bags, tmp_path / "store").resumed == 0
    assert np.array_equal(np.asarray(miue.read_store(tmp_path / "store").instances), np.asarray(bags.instances))
