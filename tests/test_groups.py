"""Evaluation by group: each hospital, scanner or sex."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_bags import separable_bags
from made_predictions import made_predictions
from made_reports import Page, reported
from scipy.stats import binomtest
from typer.testing import CliRunner

import miue
from miue.calibration import DeferralGoal, FalseAlarmGoal
from miue.cli.app import app
from miue.common.errors import ConfigError, DataError
from miue.evaluation import Metric, evaluate
from miue.evaluation.metrics import NO_LABEL
from miue.evaluation.tables import group_tables
from miue.io import read_groups
from miue.predictions import Predictions


def groups_of(predictions: Predictions) -> dict[str, str]:
    """Every seventh bag is not named, of every seventh no group is known."""
    names = ("Leeds", "Cork", "", "Leeds", "Leeds", "Cork")
    return {name: names[row % 7] for row, name in enumerate(predictions.bags.bag_ids) if row % 7 < 6}


def bags_of(predictions: Predictions, group: str) -> set[str]:
    groups = groups_of(predictions)
    return {name for name in predictions.bags.bag_ids if (groups.get(name) or "no group") == group}


def inside_of(predictions: Predictions) -> Predictions:
    """The bags to calibrate on."""
    return Predictions(predictions.bags.subset(np.flatnonzero(predictions.bags.judged)), None)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_group_is_evaluated_as_its_bags_alone(classes: int) -> None:
    predictions = made_predictions(bags=90, classes=classes)
    groups = groups_of(predictions)
    found = evaluate(predictions, groups=groups).groups
    assert found is not None
    assert list(found) == ["Cork", "Leeds", "no group"]
    of_bags = [groups.get(name) or "no group" for name in predictions.bags.bag_ids]
    for name, group in found.items():
        rows = np.flatnonzero(np.array(of_bags) == name)
        alone = evaluate(Predictions(predictions.bags.subset(rows), None))
        assert group.bags == alone.bags
        assert group.decisions is None
    assert sum(group.bags.count for group in found.values()) == 90


def test_the_interval_of_the_accuracy_is_exact() -> None:
    predictions = made_predictions(bags=60)
    found = evaluate(predictions, groups=groups_of(predictions)).groups
    assert found is not None
    for group in found.values():
        count, accuracy = group.bags.labeled, group.bags.metrics["accuracy"].value
        assert accuracy is not None
        exact = binomtest(round(accuracy * count), count).proportion_ci(0.95, "exact")
        assert group.accuracy_low.value == pytest.approx(exact.low)
        assert group.accuracy_high.value == pytest.approx(exact.high)


def test_the_interval_is_wider_where_all_bags_of_a_patient_are_right_or_wrong_together() -> None:
    predictions = made_predictions(bags=60)
    bags = predictions.bags.subset(np.repeat(np.arange(60), 4))
    names = np.array([f"bag {number}" for number in range(240)], object)
    alone = replace(bags, bag_ids=names, patients=None)
    together = replace(alone, patients=np.repeat(predictions.bags.bag_ids, 4))
    groups = dict.fromkeys(names, "Cork")
    widths = []
    for table in (predictions.bags, alone, together):
        found = evaluate(
            Predictions(table, None), groups={**groups, **dict.fromkeys(table.bag_ids, "Cork")}
        ).groups
        assert found is not None
        low, high = found["Cork"].accuracy_low.value, found["Cork"].accuracy_high.value
        assert low is not None and high is not None
        widths.append(high - low)
    assert widths[2] == pytest.approx(widths[0], rel=0.06)
    assert widths[1] < 0.6 * widths[2]


def test_decisions_are_counted_in_each_group() -> None:
    predictions = made_predictions(bags=90)
    calibration = miue.calibrate(inside_of(predictions), deferral=None, false_alarms=FalseAlarmGoal(0.3))
    decided = miue.decide(predictions, calibration)
    evaluation = evaluate(decided, groups=groups_of(predictions))
    assert evaluation.groups is not None and evaluation.decisions is not None
    shares, counts = [], []
    for group in evaluation.groups.values():
        assert group.decisions is not None
        flagged = group.decisions.metrics["flagged"].value
        assert flagged is not None
        shares.append(flagged)
        counts.append(group.bags.count - group.bags.out_of_distribution)
    assert np.average(shares, weights=counts) == pytest.approx(evaluation.decisions.metrics["flagged"].value)
    text = str(evaluation)
    assert "called OOD" in text and "Leeds" in text


@pytest.mark.parametrize("classes", [2, 3])
def test_the_tables_of_groups_fit_a_terminal_of_80_columns(
    classes: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    predictions = made_predictions(bags=90, classes=classes)
    rules = {"deferral": DeferralGoal(0.3), "false_alarms": FalseAlarmGoal(0.3)}
    calibration = miue.calibrate(inside_of(predictions), **rules)  # type: ignore[arg-type]
    evaluation = evaluate(miue.decide(predictions, calibration), groups=groups_of(predictions))
    assert evaluation.groups is not None
    for table in group_tables(evaluation.groups, evaluation.class_names):
        table.show()
        lines = [*table.as_text().splitlines(), *capsys.readouterr().out.splitlines()]
        assert max(map(len, lines)) <= 80, lines


def test_the_data_frame_of_groups_has_a_row_for_each_group_and_metric() -> None:
    predictions = made_predictions(bags=90)
    evaluation = evaluate(predictions, groups=groups_of(predictions))
    assert evaluation.groups is not None
    frame = evaluation.groups_to_frame().set_index(["group", "metric"])
    assert frame.index.is_unique and list(frame) == ["value", "reason"]
    for name, group in evaluation.groups.items():
        alone = evaluate(Predictions(predictions.bags.of_bags(bags_of(predictions, name)), None)).to_frame()
        ends = [f"{share}_{end}" for share in ("accuracy", "recall_0", "recall_1") for end in ("low", "high")]
        found = frame.loc[name].drop(ends)
        pd.testing.assert_frame_equal(found, alone.set_index("metric")[["value", "reason"]])
        assert frame.loc[(name, "accuracy_low"), "value"] == group.accuracy_low.value
    without = evaluate(predictions)
    pd.testing.assert_frame_equal(without.to_frame(), evaluation.to_frame())
    with pytest.raises(ConfigError, match="expected groups of bags, got none"):
        without.groups_to_frame()


def test_a_group_without_labels_has_no_metrics_of_classes() -> None:
    predictions = made_predictions(bags=30)
    groups = {name: "first" if row < 15 else "second" for row, name in enumerate(predictions.bags.bag_ids)}
    labels = predictions.bags.labels
    known = labels.known & (np.arange(30) < 15)
    bags = replace(predictions.bags, labels=replace(labels, known=known))
    evaluation = evaluate(Predictions(bags, None), groups=groups)
    assert evaluation.groups is not None
    second = evaluation.groups["second"]
    assert second.bags.labeled == 0
    assert second.accuracy_low.value is None and second.accuracy_low.reason == NO_LABEL
    assert evaluation.groups["first"].accuracy_low.value is not None
    assert json.loads(json.dumps(evaluation.to_json()))["groups"]["second"]["accuracy_low"]["value"] is None


def test_groups_have_names_of_any_kind() -> None:
    predictions = made_predictions(bags=30)
    kinds = (0, 1, np.int64(1), None, np.nan, " 1 ", "no group")
    groups = {name: kinds[row % 7] for row, name in enumerate(predictions.bags.bag_ids)}
    found = evaluate(predictions, groups=groups).groups
    assert found is not None
    assert {name: group.bags.count for name, group in found.items()} == {"0": 5, "1": 13, "no group": 12}


@pytest.mark.parametrize("groups", [{}, {"another": "Cork"}, {"bag 0000": ""}, {"bag 0000": None}])
def test_groups_that_name_none_of_the_bags_are_refused(groups: dict[str, str | None]) -> None:
    with pytest.raises(ConfigError, match="such as 'bag 0000'"):
        evaluate(made_predictions(), groups=groups)


def test_a_group_has_the_exact_intervals_of_its_recalls() -> None:
    predictions = made_predictions(bags=60)
    found = evaluate(predictions, groups=groups_of(predictions)).groups
    assert found is not None
    for group in found.values():
        for number, counts in enumerate(group.bags.confusion):
            exact = binomtest(counts[number], sum(counts)).proportion_ci(0.95, "exact")
            assert group.recall_low[str(number)].value == pytest.approx(exact.low)
            assert group.recall_high[str(number)].value == pytest.approx(exact.high)


@pytest.mark.long
@pytest.mark.parametrize("classes", [2, 3])
def test_a_report_shows_each_group_as_it_is_evaluated(classes: int, tmp_path: Path) -> None:
    predictions = made_predictions(bags=90, classes=classes)
    groups = groups_of(predictions)
    predictions = Predictions(predictions.bags, None)
    decided = miue.decide(predictions, miue.calibrate(inside_of(predictions), deferral=DeferralGoal(0.3)))
    page, _ = reported(tmp_path, decided, groups=groups)
    found = evaluate(decided, groups=groups).groups
    assert found is not None
    for name, group in found.items():
        row = page.texts[page.texts.index(name) + 1 :]
        cells = [text for text in row[:40] if text.strip()]
        level, decisions = group.bags, group.decisions
        assert (
            decisions is not None
            and group.accuracy_low.value is not None
            and group.accuracy_high.value is not None
        )
        wanted = [f"{level.labeled}", f"{100 * value_of(level.metrics['accuracy']):.1f}"]
        wanted.append(f"{100 * group.accuracy_low.value:.1f} to {100 * group.accuracy_high.value:.1f}")
        assert cells[:3] == wanted
        risk = decisions.metrics["selective_risk"]
        low, high = (decisions.metrics[f"selective_risk_{end}"] for end in ("low", "high"))
        ends = f"{100 * value_of(low):.1f} to {100 * value_of(high):.1f}"
        assert cells[cells.index(ends) - 1] == f"{100 * value_of(risk):.1f}"
        if classes == 2:
            low, high = group.recall_low["1"], group.recall_high["1"]
            ends = f"{100 * value_of(low):.1f} to {100 * value_of(high):.1f}"
            assert f"{100 * value_of(level.recall_by_class['1']):.1f}" == cells[cells.index(ends) - 1]
    both, _ = reported(tmp_path, decided, predictions, groups=groups)
    rows = [text.split(":")[0] for text in both.texts if text.startswith(("Cork: ", "Leeds: ", "no group: "))]
    assert rows == ["Cork"] * 2 + ["Leeds"] * 2 + ["no group"] * 2
    assert "these predictions have no decisions" in both.text
    assert "Groups of bags" not in reported(tmp_path, decided)[0].text
    with pytest.raises(ConfigError, match="the groups: expected"):
        reported(tmp_path, decided, groups={"another": "Cork"})


def value_of(metric: Metric) -> float:
    assert metric.value is not None
    return metric.value


def test_the_report_command_reads_groups_by_the_names_of_all_bags(tmp_path: Path) -> None:
    for name, rows in (("a", range(4)), ("b", range(1, 5))):
        lines = [f"slide {row},{row % 2},{0.2 + 0.1 * row}" for row in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join(["bag_id,label,p_1", *lines, ""]))
    names = [f"slide {row}.svs,{('Cork', 'Leeds')[row // 3]}" for row in range(5)]
    (tmp_path / "sites.csv").write_text("\n".join(["case,site", *names, ""]))
    out, sites = tmp_path / "r.html", ("--groups", str(tmp_path / "sites.csv"))
    words = ["report", *(str(tmp_path / f"{name}.csv") for name in "ab"), "--out", str(out), "--resamples", "10"]

    def run(*options: str) -> None:
        CliRunner().invoke(app, [*words, "--quiet", "--overwrite", *options], catch_exceptions=False)

    run(*sites, "--group-column", "site", "--id-column", "case")
    page = Page(out.read_text("utf-8"))
    start = [n for n, text in enumerate(page.texts) if text.startswith(("Cork: ", "Leeds: "))]
    counts = [next(text for text in page.texts[n + 1 :] if text.strip()) for n in start]
    assert counts == ["2", "2", "1", "1"]  # of the bags that both have
    folder = tmp_path / "features"
    folder.mkdir()
    for row in range(5):
        np.save(folder / f"slide {row}.npy", np.ones((2, 3), np.float32))
    table = tmp_path / "instances.csv"
    table.write_text("bag_id,f\n" + "".join(f"slide {row},1\n" for row in range(5)))
    for store in (folder, table):  # which have no such column
        run(*sites, "--group-column", "site", "--id-column", "case", "--store", str(store))
    table.write_text(table.read_text().replace("bag_id", "case"))
    run(*sites, "--group-column", "site", "--id-column", "case", "--store", str(table))
    for options, message in (
        (sites, "'case', 'site'"),
        (("--group-column", "site"), "--groups TABLE with it"),
        (("--id-column", "case"), "--store beside it"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(*options)


TABLE = """slide_id,label,scanner
a.svs,1,Aperio
b,0, Hamamatsu
c,1,NA
elsewhere,0,Aperio
"""


def test_a_table_of_groups_is_joined_by_the_names_of_bags(tmp_path: Path) -> None:
    path = tmp_path / "cohort.csv"
    path.write_text(TABLE)
    assert read_groups(path, "scanner", ["d", "c", "b.h5", "a"]) == {"a": "Aperio", "b.h5": "Hamamatsu", "c": ""}
    with pytest.raises(DataError, match="got none of them in column 'slide_id', which has names such as 'a.svs'"):
        read_groups(path, "scanner", ["x", "y"])
    with pytest.raises(DataError, match="got column 'scanner' without a value for any of them"):
        read_groups(path, "scanner", ["c", "y"])
    with pytest.raises(ConfigError, match="column of groups 'scaner'.*did you mean 'scanner'"):
        read_groups(path, "scaner", ["a"])
    path.write_text(TABLE.replace("slide_id", "case"))
    assert read_groups(path, "scanner", ["a"], id_column="case") == {"a": "Aperio"}


def test_a_table_of_groups_can_name_the_patients_of_bags(tmp_path: Path) -> None:
    path = tmp_path / "cohort.csv"
    path.write_text("case_id,hospital\nP2,Cork\nP1,Leeds\nP3,\n")
    bags = ["P1-b", "P2-a", "P1-a", "P4-a", "x"]
    patients = {"P1-b": "P1", "P2-a": "P2", "P1-a": "P1", "P4-a": "P4"}
    found = {"P1-b": "Leeds", "P2-a": "Cork", "P1-a": "Leeds"}
    assert read_groups(path, "hospital", bags, patient_of=patients) == found
    with pytest.raises(DataError, match="to name patients, predict with a table of labels"):
        read_groups(path, "hospital", bags)
    path.write_text("slide_id,case_id,hospital\nP2-a,P2,Cork\nelsewhere,P1,Leeds\n")
    assert read_groups(path, "hospital", bags, patient_of=patients) == {"P2-a": "Cork"}


def test_evaluate_and_report_take_the_label_table_of_patients_as_that_of_groups(tmp_path: Path) -> None:
    (tmp_path / "bags.csv").write_text(
        "bag_id,patient,label,p_1\n"
        + "".join(f"P{row // 2}-{row % 2},P{row // 2},{row // 2 % 2},{0.1 * row + 0.1}\n" for row in range(8))
    )
    table = tmp_path / "labels.csv"
    rows = [f"P{n},{n % 2},{('Cork', 'Leeds')[n // 2]}" for n in range(4)]
    table.write_text("\n".join(["patient,diagnosis,hospital", *rows, ""]))
    options = ("--groups", str(table), "--group-column", "hospital")
    command = ["evaluate", str(tmp_path / "bags.csv"), *options, "--json"]
    groups = json.loads(CliRunner().invoke(app, command, catch_exceptions=False).output)["groups"]
    assert {name: group["bags"]["count"] for name, group in groups.items()} == {"Cork": 4, "Leeds": 4}
    out = tmp_path / "r.html"
    command = ["report", str(tmp_path / "bags.csv"), "--out", str(out), "--resamples", "10", "--quiet", *options]
    CliRunner().invoke(app, command, catch_exceptions=False)
    assert {"Cork", "Leeds"} <= set(Page(out.read_text("utf-8")).texts)


def test_evaluate_shows_each_group(tmp_path: Path) -> None:
    bags = separable_bags()
    model = miue.train(bags, settings={"max_epochs": 1, "device": "cpu"}, progress=False)
    others = replace(separable_bags(40, seed=1), ids=tuple(f"slide {row}" for row in range(40)))
    model.predict(others).save(tmp_path / "predictions")
    rows = [f"slide {row}.h5,{('Cork', 'Leeds')[row % 2]}" for row in range(0, 40, 1)]
    (tmp_path / "sites.csv").write_text("\n".join(["slide_id,site", *rows, ""]))

    def run(*options: str) -> tuple[int, str]:
        arguments = ["evaluate", str(tmp_path / "predictions"), *options]
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
        return result.exit_code, result.output

    table = str(tmp_path / "sites.csv")
    code, shown = run("--groups", table, "--group-column", "site", "--json")
    assert code == 0
    found = json.loads(shown)["groups"]
    assert {name: group["bags"]["count"] for name, group in found.items()} == {"Cork": 20, "Leeds": 20}
    code, shown = run("--groups", table, "--group-column", "site")
    assert code == 0 and "interval" in shown and "Leeds" in shown
    for options, message in (
        (["--groups", table], "'slide_id', 'site'"),
        (["--group-column", "site"], "--groups TABLE with it"),
        (["--id-column", "slide_id"], "--groups TABLE with it"),
    ):
        with pytest.raises(ConfigError, match=message):
            CliRunner().invoke(app, ["evaluate", str(tmp_path / "predictions"), *options], catch_exceptions=False)
