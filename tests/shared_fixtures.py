"""Fixtures and settings of every process that runs tests.

Shapes written in signatures are checked meanwhile, unless ``CHECK_SHAPES`` is "no".
"""

from __future__ import annotations

import functools
import gc
import os
import signal
from pathlib import Path

import lightning.pytorch  # noqa: F401
import matplotlib.figure  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
import sklearn.covariance  # noqa: F401
import torch
import typer.main
import typer.testing
from hypothesis import settings
from shape_checks import install

SOURCE = Path(__file__).resolve().parents[1] / "src"
WITH_SHAPES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in sorted(SOURCE.rglob("*.py"))
    if "jaxtyping" in path.read_text(encoding="utf-8")
]
if os.environ.get("CHECK_SHAPES") != "no":
    install(WITH_SHAPES)
# What a checked module imports is compiled anew, so that large packages are imported above.

from made_bags import separable_bags  # noqa: E402
from made_slides import predictions_of_two_slides  # noqa: E402

from miue.bags import BagDataset  # noqa: E402
from miue.methods import Method  # noqa: E402
from miue.predictions import Predictions  # noqa: E402
from miue.predictions import parts as written_parts  # noqa: E402
from miue.settings import TrainingConfig  # noqa: E402
from miue.training.fit import TrainingSummary, fit  # noqa: E402
from miue.training.run import Run  # noqa: E402

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)  # the tests' tensors are small, and several test processes share the cores
settings.register_profile("miue", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("miue")


os.fsync = lambda fd: None  # what a test writes need not outlive a loss of power
# All commands are built for each call of one, which takes longer than many of them.
typer.main.get_command = typer.testing._get_command = functools.cache(  # type: ignore[attr-defined]
    typer.main.get_command
)


def pytest_collection_finish() -> None:
    """Keep what is imported out of the garbage collector's rounds."""
    gc.collect()
    gc.freeze()


SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real datasets beside a checkout; absent elsewhere."""
    if not (SHARED_DATA / "mnist.npz").exists():
        pytest.skip("needs mnist.npz, fashion_mnist.npz and kmnist.npz in ../shared/data")
    return SHARED_DATA


@pytest.fixture
def bags() -> BagDataset:
    return separable_bags()


@pytest.fixture
def two_slides() -> Predictions:
    return predictions_of_two_slides()


@pytest.fixture
def saved_slides(two_slides: Predictions, tmp_path: Path) -> Path:
    """Where the predictions of two slides are kept."""
    two_slides.save(tmp_path / "predictions")
    return tmp_path / "predictions"


@pytest.fixture
def small_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures' library is 5 MB, which a report that is not drawn can do without."""
    monkeypatch.setattr("miue.common.text._plotly", lambda: "var Plotly = {};")


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of at most seven rows in groups of three, or one larger bag."""
    monkeypatch.setattr(written_parts, "PART_ROWS", 7)
    monkeypatch.setattr(written_parts, "GROUP_ROWS", 3)


@pytest.fixture
def every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a checkpoint be written at the end of every epoch."""
    monkeypatch.setattr("miue.training.checkpoints.SECONDS", 0.0)


@pytest.fixture
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every training end after three epochs: of examples it counts whether they run, not what is learned."""

    def short(method: Method, of: BagDataset, by: BagDataset, config: TrainingConfig, run: Run) -> TrainingSummary:
        return fit(method, of, by, config.model_copy(update={"max_epochs": min(3, config.max_epochs)}), run)

    monkeypatch.setattr("miue.training.train.fit", short)
