"""Files of HDF5 are read by a process apart: what hangs or kills it is named, and the next file is read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import h5py
import made_files
import numpy as np
import pytest
from commands import run

import miue
from miue.common.errors import DataError, StorageError
from miue.io import load_bags
from miue.io.formats import child, contents_of, read_rows
from miue.pathology.tile_files import read_attributes, read_tiles

FEATURES = made_files.features_of(7)
SCRIPT = """
import sys
from pathlib import Path
from miue.io.formats import contents_of, child

child.SECONDS = float(sys.argv[2])
contents_of(Path(sys.argv[1]) / "good.h5")
print(child._process._process.pid, flush=True)
contents_of(Path(sys.argv[1]) / "endless.h5")
"""


@pytest.fixture(scope="session")
def hangs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where the HDF5 library in use ends on the file that is made to hang it."""
    path = made_files.endless(made_files.stamp(tmp_path_factory.mktemp("endless"), "s", FEATURES))
    read = f"import h5py; file = h5py.File({str(path)!r}); print('open', flush=True); dict(file.attrs)"
    with subprocess.Popen([sys.executable, "-c", read], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"open\n"
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            return
    pytest.skip("this version of HDF5 reads to the end")


@pytest.fixture
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "SECONDS", 1.0)


@pytest.fixture
def part_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "SECONDS", 0.3)


@pytest.fixture
def two_files(tmp_path: Path) -> Path:
    """A folder with a good file, and one that makes HDF5 loop for ever."""
    made_files.stamp(tmp_path, "good", FEATURES)
    made_files.endless(made_files.stamp(tmp_path, "endless", FEATURES))
    return tmp_path


def pid() -> int:
    process = child._process._process
    assert process is not None
    return process.pid


def ends(pid: int, seconds: float) -> bool:
    """Whether the process is gone within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def read_endless(folder: Path, how: str) -> None:
    """Read a file on which HDF5 loops for ever, in each way that miue reads text from HDF5."""
    if how == "features":
        contents_of(made_files.endless(made_files.stamp(folder, "s", FEATURES)))
    elif how == "tiles":
        read_tiles(made_files.endless(made_files.clam_patches(folder, "s", 7, 256, 1.0)))
    else:
        read_attributes(made_files.endless(made_files.trident(folder, "s", FEATURES)))


@pytest.mark.usefixtures("hangs", "part_of_a_second")
@pytest.mark.parametrize("how", ["features", "tiles", "attributes"])
def test_a_file_on_which_hdf5_loops_for_ever_is_named_and_the_next_one_read(tmp_path: Path, how: str) -> None:
    begin = time.process_time()
    with pytest.raises(DataError, match=r"s\.h5': .* got no end of reading it after \d s of computing time"):
        read_endless(tmp_path, how)
    good = made_files.stamp(tmp_path, "good", FEATURES)
    assert contents_of(good).size == 7 and np.array_equal(read_rows(good, 0, 7), FEATURES.astype(np.float16))
    assert time.process_time() - begin < 1  # it was the other process's


@pytest.mark.long
@pytest.mark.usefixtures("hangs", "part_of_a_second")
def test_every_command_names_the_file_and_goes_on_without_it(tmp_path: Path) -> None:
    features, labels = tmp_path / "features", tmp_path / "labels.csv"
    for number in range(16):
        positive = number % 2 == 0
        made_files.stamp(features, f"s{number}", made_files.features_of(5, seed=number, positive=positive))
    names = [f"s{number}" for number in range(16)]
    rows = [f"{name},{'ab'[number % 2]}" for number, name in enumerate(names)]
    labels.write_text("\n".join(["slide_id,label", *rows]) + "\n")
    made_files.endless(features / "s3.h5")
    why = "s3.h5': expected a file that the HDF5 library can read"
    listed = json.loads(run("inspect", features, "--json", "--quiet", "--read"))
    assert listed["usable"] == 15
    (bad,) = [one for one in listed["bag"] if one["problems"]]
    assert bad["bag"] == "s3" and "no end of reading it" in bad["problems"][0]
    told = (features, "--labels", labels, "--quiet")
    assert why in run("data", "pack", *told, "--out", tmp_path / "store", code=2)
    said = run("data", "pack", *told, "--out", tmp_path / "store", "--skip-bad")
    assert "15 bags" in said and f"left out: s3: bag file '{features}/{why}" in said
    train = ("train", *told, "--out", tmp_path / "run", "--set", "max_epochs=1", "--distance", "none")
    assert why in run(*train, code=2)
    assert why in run(*train, "--skip-bad")
    predict = ("predict", tmp_path / "run", features, "--part", "all", "--quiet", "--out", tmp_path / "p")
    assert why in run(*predict, code=2)
    said = run(*predict, "--skip-bad")
    assert why in said and "15 bags with" in said


def killing(signal_number: int, after: float) -> Thread:
    """Send a signal to the reading process after some seconds."""

    def kill() -> None:
        time.sleep(after)
        os.kill(pid(), signal_number)

    thread = Thread(target=kill)
    thread.start()
    return thread


@pytest.mark.long
@pytest.mark.usefixtures("hangs")
def test_a_file_that_kills_the_process_is_named_and_the_next_one_read(two_files: Path) -> None:
    child._process.end()
    thread = killing(signal.SIGSEGV, 2)
    with pytest.raises(DataError, match=r"endless\.h5': .* got a crash of the library \(signal SIGSEGV\)"):
        contents_of(two_files / "endless.h5")
    thread.join()
    assert contents_of(two_files / "good.h5").size == 7


@pytest.mark.long
@pytest.mark.usefixtures("hangs", "one_second")
def test_what_kills_a_process_that_read_other_files_before_is_tried_again_in_a_new_one(
    two_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents_of(two_files / "good.h5")
    before = pid()
    thread = killing(signal.SIGSEGV, 0.3)
    with pytest.raises(
        DataError, match="no end of reading it after 1 s"
    ):  # of the second process, which is not killed
        contents_of(two_files / "endless.h5")
    thread.join()
    contents_of(two_files / "good.h5")
    assert pid() != before


def started(folder: Path, seconds: float) -> tuple[subprocess.Popen[str], int]:
    """Start a script without a main guard that hangs on a file; return it and its reading process."""
    (folder / "script.py").write_text(SCRIPT)
    script = subprocess.Popen(
        [sys.executable, str(folder / "script.py"), str(folder), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert script.stdout is not None
    return script, int(script.stdout.readline())


@pytest.fixture
def scripts() -> Iterator[Callable[[Path, float], tuple[subprocess.Popen[str], int]]]:
    running = []

    def start(folder: Path, seconds: float) -> tuple[subprocess.Popen[str], int]:
        running.append(started(folder, seconds))
        return running[-1]

    yield start
    for script, _ in running:
        script.kill()
        script.communicate()


Start = Callable[[Path, float], tuple[subprocess.Popen[str], int]]


@pytest.mark.long
@pytest.mark.usefixtures("hangs")
def test_ctrl_c_ends_a_hang_at_once_and_the_reading_process_with_it(two_files: Path, scripts: Start) -> None:
    script, reader = scripts(two_files, 600)
    time.sleep(0.5)
    script.send_signal(signal.SIGINT)
    _, said = script.communicate(timeout=10)
    assert "KeyboardInterrupt" in said and said.count("Traceback") == 1 and ends(reader, 5)


@pytest.mark.usefixtures("hangs")
def test_the_reading_process_ends_itself_where_the_one_that_asked_was_killed(
    two_files: Path, scripts: Start
) -> None:
    script, reader = scripts(two_files, 2)
    script.kill()
    assert ends(reader, 20)


@pytest.mark.long
@pytest.mark.usefixtures("hangs")
def test_a_script_without_a_main_guard_gets_the_error(two_files: Path, scripts: Start) -> None:
    script, reader = scripts(two_files, 1)
    _, said = script.communicate(timeout=20)
    assert "endless.h5': expected a file that the HDF5 library can read" in said and ends(reader, 5)


@pytest.mark.long
def test_the_reading_process_ends_with_a_process_that_waits_for_nothing(tmp_path: Path) -> None:
    path = made_files.trident(tmp_path, "s", FEATURES)
    imports = "from pathlib import Path; from miue.io.formats import contents_of, child"
    code = f"{imports}; contents_of(Path({str(path)!r})); print(child._process._process.pid)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert ends(int(done.stdout), 5) and done.stderr == ""


@pytest.mark.long
def test_threads_and_forks_each_get_the_rows_they_ask_for(tmp_path: Path) -> None:
    arrays = [made_files.features_of(3 + number, seed=number) for number in range(20)]
    paths = [made_files.trident(tmp_path, f"s{number}", array) for number, array in enumerate(arrays)]

    def same(number: int) -> bool:
        return np.array_equal(read_rows(paths[number], 0, 3 + number), arrays[number])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(same, list(range(20)) * 5))
    before = pid()
    forked = os.fork()
    if not forked:  # asks a process of its own
        status = 1
        try:
            status = 0 if all(map(same, range(20))) and pid() != before else 2
            child._process.end()
        finally:
            os._exit(status)
    assert all(map(same, range(20)))
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert all(map(same, range(20))) and pid() == before


def test_paths_are_relative_to_where_one_is_and_named_as_they_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, size in (("a", 3), ("b", 5)):
        made_files.trident(tmp_path / folder, "s", made_files.features_of(size))
        monkeypatch.chdir(tmp_path / folder)
        assert contents_of(Path("s.h5")).size == size
    Path("s.h5").write_bytes(b"none")
    with pytest.raises(DataError, match="^bag file 's.h5': expected a whole HDF5 file"):
        contents_of(Path("s.h5"))


@pytest.mark.long
def test_code_in_the_current_folder_is_not_run(tmp_path: Path) -> None:
    path = made_files.trident(tmp_path / "features", "s", FEATURES)
    (tmp_path / "h5py.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')")
    command = [sys.executable, "-P", "-m", "miue", "inspect", str(path.parent), "--quiet"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert not (tmp_path / "trace").exists()


def test_a_process_that_cannot_be_started_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made_files.trident(tmp_path, "s", FEATURES)
    process = child.ReadingProcess()
    monkeypatch.setattr(child, "_process", process)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no_python"))
    with pytest.raises(StorageError, match="the process that reads files of HDF5 and Zarr: expected .*no_python"):
        contents_of(path)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StorageError, match="the process that reads files of HDF5 and Zarr: .* got exit status 1"):
        contents_of(path)


@pytest.mark.long
@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the system does not say how much memory is taken"
)
def test_memory_that_a_file_asks_for_beyond_all_measure_is_refused(tmp_path: Path) -> None:
    """40 million texts of no length, in a chunk that packs well, would take gigabytes as objects of Python."""
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["features"] = FEATURES
        kind = h5py.string_dtype()
        coords = file.create_dataset("coords", (4_000_000, 2), kind, chunks=(4_000_000, 2), compression="gzip")
        coords[:1] = "a"
    with pytest.raises(DataError, match=r"bag file '.*s\.h5'"):
        contents_of(tmp_path / "s.h5")
    assert contents_of(made_files.trident(tmp_path, "t", FEATURES)).size == 7


def test_rows_of_a_folder_are_those_of_its_files(tmp_path: Path) -> None:
    folder, labels = made_files.slides(tmp_path, patients=6)
    bags = load_bags(folder, labels=labels).bags
    with h5py.File(folder / f"{bags.ids[2]}.h5") as file:
        assert np.array_equal(bags.batch([2]).instances, file["features"][()])
    assert isinstance(bags, miue.BagDataset)


def test_the_reading_process_loads_only_what_reading_needs() -> None:
    code = (
        "import sys, miue.io.formats.serve; print([name for name in ('torch', 'filelock') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_larger_array_makes_the_block_grow_and_those_before_stay_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(child, "_process", child.ReadingProcess())
    arrays = [made_files.features_of(size, 7, seed=size) for size in (3, 40_001, 5, 90_001, 2)]
    paths = [made_files.trident(tmp_path, f"s{len(array)}", array) for array in arrays]
    read = [read_rows(path, 0, len(array)) for path, array in zip(paths, arrays, strict=True)]
    assert all(map(np.array_equal, read, arrays))
    assert np.array_equal(read_rows(paths[1], 31, 40_000), arrays[1][31:40_000])
    assert all(one.flags.owndata and one.flags.writeable for one in read)


def test_an_answer_that_is_larger_than_the_block_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made_files.trident(tmp_path, "s", FEATURES)
    lies = 'import sys; print(\'{"array_shape": [9000, 7], "array_dtype": "<f4"}\', flush=True); input()'
    begins = f'print(\'{{"array_shape": [0], "array_dtype": "<f4"}}\', flush=True); {lies}'
    monkeypatch.setattr(child, "SERVER", ("-c", begins))
    monkeypatch.setattr(child, "_process", child.ReadingProcess())
    with pytest.raises(DataError, match=r"s\.h5': .* got a crash of the library"):
        read_rows(path, 0, 7)
