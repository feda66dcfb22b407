"""Options that are lists, tuples or members of enums: given as JSON has them, built as the constructor wants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import parts_of_others as others
import pytest
from made_bags import train_one_epoch

import miue
from miue.bags import BagDataset
from miue.cli.flags import value_of
from miue.common.errors import ConfigError

LAYERS = "parts_of_others:Layers"


@pytest.mark.parametrize(
    "options",
    [
        {"network.widths": [7, 3], "network.pooling": "maximum", "network.limit": 2},
        {"network.widths": (np.int64(7), 3), "network.pooling": others.Pooling.MAXIMUM, "network.limit": 2.0},
    ],
    ids=["as JSON writes them", "as Python writes them"],
)
def test_a_model_with_such_options_is_saved_and_built_again(
    options: dict[str, Any], bags: BagDataset, tmp_path: Path
) -> None:
    model = train_one_epoch(bags, network=others.Layers, method="softmax", options=options, out=tmp_path / "run")
    saved = json.loads((tmp_path / "run" / "config.json").read_text())["model"]["network"]["options"]
    assert saved == {"widths": [7, 3], "stains": ["h", "e"], "pooling": "maximum", "limit": 2}
    loaded = miue.Model.load(tmp_path / "run", trust=True)
    predictions = model.predict(bags)
    assert np.array_equal(loaded.predict(bags).bags.probabilities, predictions.bags.probabilities)
    predictions.save(tmp_path / "predictions")
    read = miue.read_predictions(tmp_path / "predictions").provenance.options
    assert read is not None and read["network.widths"] == [7, 3]
    again = train_one_epoch(
        bags, network=others.Layers, method="softmax", options=options, out=tmp_path / "run", if_exists="resume"
    )
    assert again.weights_sha256 == model.weights_sha256


def test_they_are_given_on_the_command_line(bags: BagDataset) -> None:
    values = {"network.widths": "[7, 3]", "network.stains": "['h']", "network.pooling": "maximum"}
    options = {key: value_of(text) for key, text in values.items()}
    recipe = miue.Recipe(LAYERS, "softmax", options=options)
    assert recipe.options["network.widths"] == [7, 3] and recipe.options["network.stains"] == ["h"]
    assert recipe.model_config(bags.instance_shape).network.options["pooling"] == "maximum"
    quoted = miue.Recipe("parts_of_others:Named", "softmax", options={"network.stain": value_of('"5"')})
    assert quoted.model_config(bags.instance_shape).network.options == {"stain": "5"}


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("[]", []),
        ("[ ]", []),
        ("[7, 3]", [7, 3]),
        ("[7,]", [7]),
        ("[true, 0.5, 'a']", [True, 0.5, "a"]),
        ("""["H, E" , 'a,b', "5"]""", ["H, E", "a,b", "5"]),
    ],
)
def test_a_list_is_read_as_it_is_written(text: str, entries: list[Any]) -> None:
    assert value_of(text) == entries


@pytest.mark.parametrize(
    ("key", "value", "item", "got"),
    [
        ("widths", "7,3", "option 'network.widths'", "'7,3'"),
        ("widths", [7, "x"], "option 'network.widths', entry 1", "'x'"),
        ("widths", [[7], [3]], "options['network.widths'], entry 0", "[7]"),
        ("pooling", "median", "option 'network.pooling'", "'median'"),
        ("limit", "big", "option 'network.limit'", "'big'"),
        ("depth", "all", "option 'network.depth'", "'all'"),
        ("size", 16, "option 'network.size'", "16"),
        ("layer", "ReLU", "option 'network.layer'", "'ReLU'"),
    ],
)
def test_a_value_that_does_not_fit_is_answered_as_it_is_given(
    key: str, value: Any, item: str, got: str, bags: BagDataset
) -> None:
    network = others.Sized if key in ("depth", "size", "layer") else others.Layers
    with pytest.raises(ConfigError) as said:
        train_one_epoch(bags, network=network, options={f"network.{key}": value})
    assert (said.value.item, said.value.got) == (item, got)


def test_none_can_be_given_where_it_is_the_default(bags: BagDataset, tmp_path: Path) -> None:
    none = {"network.depth": value_of("null")}
    train_one_epoch(bags, network=others.Sized, method="softmax", options=none, out=tmp_path / "run")
    options = miue.Model.load(tmp_path / "run", trust=True).config.network.options
    assert options == {"depth": None}  # what no file can say is left to the class


def test_a_module_that_is_built_keeps_them(bags: BagDataset, tmp_path: Path) -> None:
    built = others.Layers(bags.instance_shape[0], 2, (7, 3), pooling=others.Pooling.MAXIMUM)
    train_one_epoch(bags, network=built, method="softmax", out=tmp_path / "run")
    options = miue.Model.load(tmp_path / "run", trust=True).config.network.options
    assert options["widths"] == [7, 3] and options["pooling"] == "maximum"


def test_the_members_of_an_ensemble_take_them(bags: BagDataset) -> None:
    options: dict[str, Any] = {
        "method.size": 2,
        "method.member": "parts_of_others:PooledSoftmax",
        "method.pooling": "maximum",
        "method.levels": [1, 2.5],
    }
    train_one_epoch(bags, network="mean", method="deep-ensemble", options=options)
    with pytest.raises(ConfigError, match="option 'method.pooling': expected 'mean' or 'maximum'"):
        train_one_epoch(bags, network="mean", method="deep-ensemble", options={**options, "method.pooling": "x"})
