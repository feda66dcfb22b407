"""What a person sees of results: a few lines of text, a small table in a notebook, a data frame."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_bags import separable_bags

import miue
from miue.bags import Labels, OodFlags
from miue.common.errors import ConfigError
from miue.common.text import PrintsAsTable, ResultTable, plural
from miue.distributions import Categorical
from miue.io import LoadedBags
from miue.predictions import PredictionTable
from miue.selection import Compared, Comparison, Difference, Summaries, Summary

SUMMARIES = Summaries(
    Summary("bags", metric, 2, 0.91234, 0.01, 0.88, 0.94)
    for metric in ("accuracy", "auroc", "confidence_auroc", "ood_far_auroc", "ece", "brier", "nll", "aurc", "<ue>")
)


@pytest.fixture(scope="module")
def results() -> dict[str, PrintsAsTable]:
    bags = separable_bags().with_classes(("normal", "<b>tumor"))
    model = miue.train(bags, settings={"max_epochs": 1, "options": {"network.hidden": 7}}, progress=False)
    predictions = model.predict(bags)
    assert predictions.instances is not None
    by_key = {(one.level, one.metric): one for one in SUMMARIES}
    difference = {("bags", "accuracy"): Difference(-0.012, 0.5)}
    return {
        "bags": bags,
        "loaded": LoadedBags(bags, notes=("a <b>note",), label_columns={"label": "diagnosis"}),
        "model": model,
        "predictions": predictions,
        "table of bags": predictions.bags,
        "table of instances": predictions.instances,
        "calibration": miue.calibrate(
            predictions,
            deferral=miue.DeferralGoal(0.5, 0.5),
            false_alarms=None,
            settings={"allow_training_bags": True},
        ),
        "cross-validation": SUMMARIES,
        "comparison": Comparison([Compared("<a>", by_key, {}, True), Compared("b", by_key, difference, True)]),
    }


NAMES = (
    "bags",
    "loaded",
    "model",
    "predictions",
    "table of bags",
    "table of instances",
    "calibration",
    "cross-validation",
    "comparison",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_result_prints_as_a_few_lines_without_arrays(results: dict[str, PrintsAsTable], name: str) -> None:
    text = repr(results[name])
    lines = text.splitlines()
    assert 3 <= len(lines) <= 12 and set(lines[1]) == {"─"}
    assert max(map(len, lines)) <= 160
    assert not any(word in text for word in ("tensor(", "array(", "object at"))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_a_table_in_which_names_are_no_markup(
    results: dict[str, PrintsAsTable], name: str
) -> None:
    page = results[name]._repr_html_()
    assert page.startswith("<table>") and page.count("<td") >= 2
    assert not any(markup in page for markup in ("<b>", "<a>", "<ue>"))


def test_prints_say_what_there_is(results: dict[str, PrintsAsTable]) -> None:
    bags, model = results["bags"], results["model"]
    assert isinstance(bags, miue.BagDataset)
    assert repr(bags).splitlines()[0].split()[:4] == ["split", "bags", "normal", "<b>tumor"]
    assert repr(bags).splitlines()[2].split()[:4] == ["no", "split", "40", "20"]
    assert "a <b>note" in repr(results["loaded"]) and "column 'diagnosis'" in repr(results["loaded"])
    assert "attention" in repr(model) and "hidden=7" in repr(model) and "weights" in repr(model)
    assert "40 bags, 2 classes, dirichlet" in repr(results["table of bags"])
    assert repr(results["predictions"]).splitlines()[2].split()[:3] == ["bags", "40", "40"]
    calibration = str(results["calibration"])
    assert calibration.splitlines()[0].split() == ["part", "fitted", "promise"]
    assert "error among the accepted ≤ 0.5 at confidence 0.5" in calibration and "From 40 bags." in calibration
    assert "91.23 ± 1.00" in repr(SUMMARIES) and "1 more metric: to_frame()" in repr(SUMMARIES)
    assert "91.2 ± 1.0 (-1.2, p 0.50)" in repr(results["comparison"])


def test_one_item_is_counted_in_the_singular(results: dict[str, PrintsAsTable]) -> None:
    table = results["table of bags"]
    assert isinstance(table, PredictionTable)
    assert "1 bag, 2 classes, dirichlet" in repr(table.subset(np.arange(1)))
    assert (plural(1, "patch"), plural(1000, "patch")) == ("1 patch", "1,000 patches")
    assert (plural(1, "epoch"), plural(20, "epoch")) == ("1 epoch", "20 epochs")


def test_nothing_prints_as_a_table_without_rows(results: dict[str, PrintsAsTable]) -> None:
    bags = results["bags"]
    assert isinstance(bags, miue.BagDataset)
    none = PredictionTable(
        Categorical(torch.zeros(0, 2)),
        np.zeros(0, object),
        Labels.unknown(0),
        OodFlags.unknown(0),
        np.zeros(0, object),
    )
    for empty in (bags.subset([]), none, Summaries([])):
        assert len(repr(empty).splitlines()) >= 2
    assert repr(ResultTable(("a", "b"), ()).as_text()) == repr("a  b\n────")


def test_bags_of_many_splits_and_classes_are_counted_in_each() -> None:
    bags = miue.BagDataset.from_arrays([np.ones((2, 3))] * 18, [*range(9), *range(9)])
    lines = repr(bags).splitlines()
    assert "3 more classes" in lines[-1]
    assert lines[2].split()[-3:] == ["0", "0", "36"]


def frames(results: dict[str, PrintsAsTable]) -> dict[str, Any]:
    predictions = results["predictions"]
    assert isinstance(predictions, miue.Predictions)
    evaluation = miue.evaluate(predictions, allow_training_bags=True)
    return {name: results[name] for name in ("table of bags", "cross-validation", "comparison")} | {
        "evaluation": evaluation
    }


def test_tables_become_data_frames(results: dict[str, PrintsAsTable]) -> None:
    found = {name: one.to_frame() for name, one in frames(results).items()}
    assert len(found["table of bags"]) == 40 and "vacuity" in found["table of bags"]
    assert found["cross-validation"]["metric"].tolist() == [one.metric for one in SUMMARIES]
    compared = found["comparison"]
    assert len(compared) == 18 and compared["difference"].notna().sum() == 1
    evaluation = found["evaluation"]
    assert evaluation.columns.tolist() == ["level", "metric", "value", "reason"]
    row = evaluation[(evaluation.level == "bags") & (evaluation.metric == "ue")]
    assert row["value"].isna().all() and row["reason"].str.contains("is_ood").all()


def test_without_pandas_a_data_frame_names_the_extra(
    results: dict[str, PrintsAsTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = frames(results).values()
    monkeypatch.setitem(sys.modules, "pandas", None)
    for one in shown:
        with pytest.raises(ConfigError, match=r"pip install 'miue\[pandas\]'"):
            one.to_frame()


def test_a_result_prints_alike_after_it_was_saved(results: dict[str, PrintsAsTable], tmp_path: Path) -> None:
    predictions, model = results["predictions"], results["model"]
    assert isinstance(predictions, miue.Predictions) and isinstance(model, miue.Model)
    predictions.save(tmp_path / "predictions")
    model.save(tmp_path / "model")
    assert repr(miue.read_predictions(tmp_path / "predictions")) == repr(predictions)
    assert repr(miue.Model.load(tmp_path / "model")) == repr(model)
