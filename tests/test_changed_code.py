"""Models with parts of others, loaded where the code of these parts is no longer what it was."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import parts_of_others as others
import pytest
from made_bags import train_one_epoch
from sealed_files import seal_again
from torch import nn

import miue
from miue.bags import BagDataset
from miue.common.errors import ModelError
from miue.model import part


class Loaded:
    """A model of ``PlainMean`` that version 1.2 of a package brought, where version 2.0 is installed."""

    def __init__(self, folder: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        train_one_epoch(bags, network=others.PlainMean, method="softmax", distances=[others.Farness], out=folder)
        package = {"package": "stains 1.2"}
        seal_again(folder / "config.json", lambda content: content["model"]["network"].update(package))
        monkeypatch.setattr(part, "find_package", lambda _: "stains 2.0")

    def message(self) -> str:
        with pytest.raises(ModelError) as raised:
            miue.Model.load(self.folder, trust=True)
        return str(raised.value)


@pytest.fixture
def loaded(tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    return Loaded(tmp_path / "run", bags, monkeypatch)


INSTALL = "install stains 1.2, with which it was saved (stains 2.0 is installed)"


def test_another_version_of_a_package_is_warned_of(loaded: Loaded) -> None:
    with pytest.warns(UserWarning, match="saved with stains 1.2, and stains 2.0 is installed"):
        miue.Model.load(loaded.folder, trust=True)


class OtherOption(nn.Module):
    def __init__(self, in_features: int, num_classes: int, hidden: str = "six") -> None:
        super().__init__()


class WithoutOption(nn.Module):
    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()


class OtherWeights(others.PlainMean):
    def __init__(self, in_features: int, num_classes: int, hidden: int = 6) -> None:
        super().__init__(in_features, num_classes, hidden + 1)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (OtherOption, "option 'network.hidden' of the saved model '.*': expected a valid string, got 6"),
        (WithoutOption, "option 'network.hidden' of the saved model '.*': expected no options"),
        (OtherWeights, "weights '.*': expected the weights that config.json describes, got .* instead of"),
        (None, "network 'PlainMean' of a saved model: expected 'parts_of_others:PlainMean', code of stains 1.2"),
    ],
)
def test_where_the_code_of_a_saved_part_has_changed_both_versions_are_named(
    kind: type | None, message: str, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind is None:
        monkeypatch.delattr(others, "PlainMean")
    else:
        monkeypatch.setattr(others, "PlainMean", kind)
    said = loaded.message()
    assert re.search(message, said) and said.endswith(INSTALL)


def test_a_saved_distance_whose_tensors_have_other_names_now_is_named_with_what_to_do(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(others.Farness, "state_names", ("middle", "whitening"))
    with pytest.warns(UserWarning, match="stains"):
        said = loaded.message()
    assert "distance 'parts_of_others:Farness' of a saved model: expected the tensors middle, whitening, " in said
    assert "the code of parts_of_others:Farness has changed since it was saved: use that of then" in said


def test_a_training_does_not_go_on_with_other_code(
    tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: dict[str, Any] = {"network": "parts_of_others:PlainMean", "distances": [], "out": tmp_path / "run"}
    train_one_epoch(bags, **words)
    changed = type("PlainMean", (OtherWeights,), {"__module__": others.__name__})
    monkeypatch.setattr(others, "PlainMean", changed)
    words |= {"if_exists": "resume", "settings": {"max_epochs": 2}}
    with pytest.raises(ModelError, match=r"weight 'network.*' of the training to resume: .* resume it with the c"):
        train_one_epoch(bags, **words)
