"""The paper's experiments: presets, runs, tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from miue.common.errors import ConfigError, StorageError
from miue.datasets.gaussian import gaussian_bags
from miue.evaluation.level import evaluate_level
from miue.model.build import build_method
from miue.model.contract import DataContract
from miue.model.recipe import settings_by_size
from papers.mirel import Preset, preset, preset_names, published_table, published_tables, runner
from papers.mirel.cli import app
from papers.mirel.distance_choice import ranking
from papers.mirel.paths import Paths
from papers.mirel.preset import build_preset, read_preset_table
from papers.mirel.results import Result, metric_of, read_results, write_results
from papers.mirel.runner import missing, run_all
from papers.mirel.stored_bags import bags_path, read_bags, read_resamples, resamples_path, write_resamples
from papers.mirel.stores import store_of
from papers.mirel.tables import TASKS, markdown_seeds, markdown_table

SHAPES = {"mnist-bags": (28, 28, 1), "cifar10-bags": (32, 32, 3), "gaussian-bags": (2,)}
SHAPES |= dict.fromkeys(("camelyon16", "camelyon16-prad", "camelyon16-blur", "camelyon16-hed"), (512,))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "data", tmp_path / "work", tmp_path / "results")


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_can_be_built_and_predicts_as_it_says(name: str) -> None:
    chosen = preset(name)
    shape = SHAPES[chosen.data]
    recipe, fewer = chosen.recipe, {"method.size": 2} if chosen.method == "deep-ensemble" else {}
    config = replace(recipe, options={**recipe.options, **fewer}).model_config(shape)
    assert set(settings_by_size(1, 1)) <= set(recipe.settings)  # published numbers follow from no rule of today
    method = build_method(config, DataContract(instance_shape=shape, class_names=("0", "1")), seed=0)
    for estimator in chosen.estimators:
        method.check_estimator(estimator)


def test_every_row_of_every_table_has_a_preset_with_its_estimator() -> None:
    assert len(published_tables()) == 20
    for table in published_tables().values():
        for row in table.rows:
            assert row.estimator in preset(row.preset).estimators, row.label


def test_some_published_numbers() -> None:
    row = published_table("table-mnist").rows[7]
    assert row.label == "ABMIL + MIREL"
    assert row.paper["bag"]["OOD-F"] == (92.84, 0.60)
    assert row.paper["instance"]["UE"] == (78.63, None)
    assert published_table("apx-table-cifar").rows[0].paper["bag"].keys() == {
        "Acc",
        "Conf",
        "OOD-S",
        "OOD-T",
        "UE",
    }


@pytest.mark.parametrize(
    ("name", "columns"), [("mnist-combined", "OOD-F | OOD-K"), ("cifar10-combined", "OOD-S | OOD-T")]
)
def test_a_table_beyond_the_paper_has_the_sources_of_its_data(name: str, columns: str, tmp_path: Path) -> None:
    text = markdown_table(published_table(name), Paths(tmp_path, tmp_path, tmp_path), [42])
    assert f"| | Acc | Conf | {columns} | UE |" in text


ROW = '{ title = "x", data = "d", encoder = "e", network = "n", method = "m", estimators = ["t"] }'


def read(text: str) -> dict[str, Preset]:
    """Return every preset of a table that is called "p"."""
    contents = read_preset_table("p", text)
    return {name: build_preset(name, contents) for name in contents}


def test_a_row_adds_to_what_its_table_shares_and_replaces_the_rest() -> None:
    shared = 'title = "shared"\ndistances = []\n[options]\n"network.hidden" = 3\n"method.red" = true\n'
    own = ROW.replace('title = "x"', 'title = "own", options = { "method.red" = false, "encoder.width" = 5 }')
    presets = read(f"{shared}[settings]\nmax_epochs = 7\n[presets]\na = {ROW}\nb = {own}\n")
    assert list(presets) == ["p/a", "p/b"]
    assert [presets[name].title for name in presets] == ["x", "own"]
    assert presets["p/a"].options == {"network.hidden": 3, "method.red": True}
    assert presets["p/b"].options == {"network.hidden": 3, "method.red": False, "encoder.width": 5}
    assert all(one.settings == {"max_epochs": 7} and one.distances == () for one in presets.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = ", "presets 'p': expected TOML"),
        ('title = "x"', r"presets 'p': expected a table \[presets\].* got none"),
        ('presets = "x"', r"presets 'p': expected a table \[presets\].* got 'x'"),
        ("[presets]\na = 3", r"presets 'p': expected a table \[presets\]"),
        ('titel = "x"\n[presets]', "key in presets 'p' 'titel': .* did you mean 'title'"),
        ('[presets]\na = { titel = "x" }', "key in preset 'p/a' 'titel': .* did you mean 'title'"),
        ('[presets]\na = { title = "x" }', "preset 'p/a', key 'data'"),
        (f"options = 3\n[presets]\na = {ROW}", "presets 'p', key 'options': expected a table, got 3"),
        (f"[settings]\n[presets]\na = {ROW.replace('{', '{ settings = 3,')}", "preset 'p/a', key 'settings'"),
        ('[presets]\na = { trained_as = "p/b" }\nab = { title = "x" }', "is trained as, 'p/b'.*'p/ab'"),
    ],
)
def test_a_preset_that_cannot_be_used_says_why(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(text)


def test_no_table_has_two_rows_of_one_name_and_every_column_is_of_a_known_task() -> None:
    numbers = 0
    for table in published_tables().values():
        assert len({row.label for row in table.rows}) == len(table.rows), table.name
        for row in table.rows:
            assert bool(row.paper) != bool(row.ood_score), row.label
            for columns in row.paper.values():
                assert all(column in {*TASKS, *row.tasks, "UE"} for column in columns), row.label
                numbers += len(columns)
    assert numbers == 819


def test_names_that_do_not_exist_are_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'mnist/abmil-mirel'"):
        preset("mnist/abmil-mirl")
    with pytest.raises(ConfigError, match="did you mean 'table-mnist'"):
        published_table("tabel-mnist")


def test_results_come_back_and_half_written_ones_count_as_missing(paths: Paths) -> None:
    results = [Result("residual", "bag", "conf", "default", 0.5), Result("residual", "bag", "ue", "default", None)]
    path = paths.result("mnist/abmil-mirel", 42)
    write_results(path, "mnist/abmil-mirel", 42, 2, results)
    assert read_results(path) == results
    assert missing(["mnist/abmil-mirel"], [42, 17], paths) == [("mnist/abmil-mirel", 17)]
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    assert read_results(path) is None
    assert ("mnist/abmil-mirel", 42) in missing(["mnist/abmil-mirel"], [42], paths)


def test_results_that_are_cut_anywhere_count_as_missing(paths: Paths) -> None:
    path = paths.result("mnist/abmil-mirel", 42)
    write_results(path, "mnist/abmil-mirel", 42, 2, [Result("residual", "bag", "conf", "default", 0.5)])
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        assert missing(["mnist/abmil-mirel"], [42], paths) == [("mnist/abmil-mirel", 42)], whole[:end]


def test_results_of_another_run_or_of_two_are_refused(paths: Paths) -> None:
    results, name = [Result("residual", "bag", "conf", "default", 0.5)], "mnist/abmil-mirel"
    mine, other = paths.result(name, 42), paths.result(name, 17)
    write_results(other, name, 17, 2, results)
    mine.write_bytes(other.read_bytes())
    with pytest.raises(StorageError, match="those of mnist/abmil-mirel, seed 42, alone, got .*seed 17"):
        markdown_table(published_table("table-mnist"), paths, [42, 17])
    with pytest.raises(StorageError, match="remove the file and run again"):
        missing([name], [42], paths)
    write_results(mine, "mnist/abmil-i-edl", 42, 2, results)
    with pytest.raises(StorageError, match="got mnist/abmil-i-edl, seed 42"):
        markdown_seeds(name, paths, [42])
    write_results(mine, name, 42, 2, results)
    lines = mine.read_text().splitlines()
    mine.write_text("\n".join([*lines[:-1], *other.read_text().splitlines()[1:]]) + "\n")
    with pytest.raises(StorageError, match="results of one preset and seed, got .*seed 17, .*seed 42"):
        read_results(mine)
    mine.write_text("\n".join(lines).replace("0.500000", "nan") + "\n")
    with pytest.raises(StorageError, match="nan for conf of bags"):
        read_results(mine)


def test_a_table_is_of_one_version_of_its_methods_numbers(paths: Paths) -> None:
    results, table = (
        [Result("residual", "bag", "conf", "default", 0.5)],
        published_table("apx-table-mnist-red-loss"),
    )
    with_red, without = "mnist/abmil-mirel", "mnist/abmil-mirel-no-red"
    write_results(paths.result(with_red, 42), with_red, 42, preset(with_red).version, results)
    write_results(paths.result(without, 42), without, 42, preset(without).version - 1, results)
    with pytest.raises(StorageError, match=f"earlier ones of {without}; .*--older"):
        markdown_table(table, paths, [42])
    shown = markdown_table(table, paths, [42], older=True)
    assert "| without RED † | " in shown and "| with RED | " in shown and "\n† trained before" in shown
    write_results(paths.result(without, 17), without, 17, preset(without).version, results)
    with pytest.raises(StorageError, match=f"{without}.*one version.*42.csv of version 1, 17.csv of version 2"):
        markdown_table(table, paths, [42, 17], older=True)


def test_a_cell_has_both_kinds_of_error_and_the_paired_difference(paths: Paths) -> None:
    table, names = published_table("apx-table-mnist-gated-attn"), ("mnist/gated-abmil-mirel", "mnist/abmil-mirel")
    shared = np.linspace(-0.1, 0.1, 1000)  # what makes a resample hard for both
    for name, value, own in zip(names, (0.8, 0.7), (0.01, 0.0), strict=True):
        for seed, shift in ((42, 0.0), (17, 0.02)):
            results = [
                Result("residual", level, task, "default", value + shift)
                for level in ("bag", "instance")
                for task in ("accuracy", "conf", "ood fmnist", "ood kmnist-test")
            ]
            write_results(paths.result(name, seed), name, seed, preset(name).version, results)
            drawn = value + shift + shared + own * np.tile((-1, 1), 500)
            starts = ("bag", "instance, residual")
            kinds = ("accuracy", "confidence", "ood fmnist", "ood kmnist-test")
            resamples = {f"{start}, {kind}": drawn for start in starts for kind in kinds}
            write_resamples(resamples_path(paths.result(name, seed)), resamples)
    lines = markdown_table(table, paths, [42, 17]).splitlines()
    gated, standard = (
        next(one for one in lines if one.startswith(f"| {row} attention")) for row in ("gated", "standard")
    )
    cell = "**81.00 ± 1.41** (± 5.87)<br>+10.0 [+9.0, +11.0]"  # of the mean over seeds; what both share cancels
    assert gated.count(cell) == 5 and standard.count("**71.00 ± 1.41** (± 5.78)<br>paper") == 5
    assert any("the difference to mnist/abmil-mirel, [its 95 % interval" in line for line in lines)
    resamples_path(paths.result(names[0], 17)).unlink()
    assert "**81.00 ± 1.41** (± 5.87)<br>+10.0 [+9.0, +11.0] (1 seeds)<br>" in markdown_table(
        table, paths, [42, 17]
    )
    resamples_path(paths.result(names[0], 42)).unlink()
    without = markdown_table(table, paths, [42, 17])
    assert "predictions of bags were not kept: gated attention." in without and "<br>+10.0" not in without


def test_a_task_with_a_star_is_the_one_that_begins_so() -> None:
    results = [Result("residual", "bag", "ood kmnist-test", "default", 0.75)]
    assert metric_of(results, "residual", "bag", "ood kmnist*").value == 0.75
    assert metric_of(results, "residual", "bag", "ood fmnist*").reason == "not run"


def test_a_table_shows_ours_the_papers_and_the_difference(paths: Paths) -> None:
    for seed, value in ((42, 0.80), (17, 0.84)):
        results = [
            Result("residual", level, task, "default", value)
            for level in ("bag", "instance")
            for task in ("accuracy", "conf", "ood fmnist", "ood kmnist-test", "ue")
        ]
        write_results(paths.result("mnist/abmil-mirel", seed), "mnist/abmil-mirel", seed, 2, results)
    text = markdown_table(published_table("table-mnist"), paths, [42, 17])
    row = next(line for line in text.splitlines() if line.startswith("| ABMIL + MIREL"))
    # OOD-F: ours 82 ± 2.83, paper 92.84 ± 0.60
    assert "**82.00 ± 2.83**<br>paper 92.84 ± 0.60 (-3.7)" in row
    assert "OOD-K\\*" in text
    assert "drawn from a part" in text
    assert "| Mean | not run<br>paper 93.38 ± 0.90" in text
    assert "| MIREL + distance (ABMIL) | **82.00 ± 2.83** | **82.00 ± 2.83** | not run | not run" in text
    partial = markdown_table(published_table("table-mnist"), paths, [42, 17, 26])
    assert "(2 of 3 seeds)" in partial


def test_a_table_beyond_the_paper_shows_ours_alone(paths: Paths) -> None:
    name = "mnist-combined/dsmil-mirel"
    tasks = {"accuracy": 0.9, "conf": 0.8, "ood fmnist": 0.1, "ood kmnist-test": 0.1}
    results = [Result("residual", "bag", task, "default", value) for task, value in tasks.items()]
    results += [
        Result("residual", "bag", task, "combined_mean", 1.0) for task in ("ood fmnist", "ood kmnist-test")
    ]
    write_results(paths.result(name, 42), name, 42, 2, results)
    text = markdown_table(published_table("mnist-combined"), paths, [42])
    assert "| | Acc | Conf | OOD-F | OOD-K\\* | UE |" in text
    assert "| DSMIL, routing of the paper | **90.00** | **80.00** | **100.00** | **100.00** | **93.33** |" in text
    assert "paper " not in text.split("###")[1].replace("routing of the paper", "")


def test_ue_is_the_mean_of_the_tables_own_columns_and_what_is_undefined_is_not_called_not_run(
    paths: Paths,
) -> None:
    values = {"conf": 0.5, "ood blur-lighter": 0.51, "ood blur-light": 0.6, "ood blur-strong": 0.9, "ue": 0.1}
    results = [Result("residual", "bag", task, "default", value) for task, value in values.items()]
    results += [Result("residual", "instance", task, "default", None) for task in values]
    name = "camelyon16-blur/abmil-mirel"
    write_results(paths.result(name, 42), name, 42, 2, results)
    text = markdown_table(published_table("apx-c16-shift"), paths, [42])
    assert "Not run here" not in text
    bags, instances = (line for line in text.splitlines() if line.startswith("| MIREL, blur"))
    assert [cell.split("<")[0].strip() for cell in bags.split("|")[2:-1]] == [
        "**51.00**",
        "**60.00**",
        "**90.00**",
        "**67.00**",
    ]
    assert "not run" not in instances
    assert instances.count("undefined for this seed<br>paper") == 4
    assert "drawn from a part" not in text


def test_ue_leaves_accuracy_and_the_auroc_of_classes_out(paths: Paths) -> None:
    values = {"accuracy": 0.99, "auroc": 0.98, "conf": 0.5, "ood prad": 0.7}
    results = [Result("attention", "instance", task, "default", value) for task, value in values.items()]
    name = "camelyon16-prad/abmil-i-edl"
    write_results(paths.result(name, 42), name, 42, 2, results)
    text = markdown_table(published_table("apx-table-c16-ins"), paths, [42])
    row = next(line for line in text.splitlines() if line.startswith("| I-EDL, a_k"))
    shown = [cell.split("<")[0].strip(" *") for cell in row.split("|")[2:-1]]
    assert shown == ["99.00", "98.00", "50.00", "70.00", "60.00"]


def test_a_preset_may_take_the_models_of_another() -> None:
    trained, derived = preset("camelyon16/abmil-mirel"), preset("camelyon16-hed/abmil-mirel")
    assert derived.trained_as == "camelyon16/abmil-mirel"
    for field in ("encoder", "network", "method", "options", "settings", "distances"):
        assert getattr(derived, field) == getattr(trained, field)
    assert (derived.data, derived.bags) == ("camelyon16-hed", {})


def test_every_seed_is_shown_with_mean_and_deviation(paths: Paths) -> None:
    assert "Not run." in markdown_seeds("mnist/abmil-mirel", paths, [42])
    for seed, value in ((42, 0.80), (17, 0.84)):
        results = [
            Result("residual", level, task, "default", value)
            for level in ("bag", "instance")
            for task in ("accuracy", "conf", "ood fmnist", "ue")
        ]
        write_results(paths.result("mnist/abmil-mirel", seed), "mnist/abmil-mirel", seed, 2, results)
    text = markdown_seeds("mnist/abmil-mirel", paths, [42, 17, 26])
    assert "| 17 | 84.00 | 84.00 | 84.00 | 84.00 |" in text
    assert "| **mean ± std** | **82.00 ± 2.83** |" in text
    assert "| 26 |" not in text


@pytest.mark.long
def test_a_run_trains_what_is_missing_and_skips_what_is_done(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "synthetic/abmil-mirel"
    short = preset(name).model_copy(update={"settings": {"max_epochs": 1}})
    small = gaussian_bags(sizes={"train": 16, "validation": 8, "test": 8})
    calls: list[str] = []

    def store(data: str, where: Paths, arguments: object) -> object:
        calls.append(data)
        return small

    def short_preset(wanted: str) -> Preset:
        return short

    monkeypatch.setattr(runner, "preset", short_preset)
    monkeypatch.setattr(runner, "store_of", store)
    monkeypatch.setattr(runner, "make_bags", lambda names, where, **more: None)
    tasks = missing([name], [1, 2], paths)
    assert tasks == [(name, 1), (name, 2)]
    run_all(tasks, paths, device="cpu")
    results = read_results(paths.result(name, 1))
    assert results is not None
    assert {r.estimator for r in results} == {"residual", "bag-of-one", "attention"}
    assert {r.task for r in results} >= {"accuracy", "conf", "ood gaussian", "ue", "ece", "brier", "nll", "aurc"}
    assert any(r.measure == "mutual_information" for r in results)
    bags, resamples = (
        read_bags(bags_path(paths.result(name, 1))),
        read_resamples(resamples_path(paths.result(name, 1))),
    )
    again = evaluate_level(bags)
    for task in ("accuracy", "nll", "ece", "aurc"):
        assert again.metrics[task].value == pytest.approx(
            metric_of(results, "residual", "bag", task).value, abs=1e-5
        )
    assert np.nanmean(resamples["bag, accuracy"]) == pytest.approx(again.metrics["accuracy"].value, abs=0.05)
    assert {name.split(", ")[1] for name in resamples if name.startswith("instance")} == {
        r.estimator for r in results
    }
    assert missing([name], [1, 2], paths) == []
    model = paths.work / "runs" / name / "1" / "model.safetensors"
    before = model.stat().st_mtime_ns
    paths.result(name, 1).unlink()
    run_all(missing([name], [1, 2], paths), paths, device="cpu")
    assert model.stat().st_mtime_ns == before, "only evaluation was done again"


def test_data_files_that_are_absent_are_named_with_what_to_do(paths: Paths) -> None:
    with pytest.raises(StorageError, match="pass the folder that holds them as --source"):
        store_of("mnist-bags", paths)


def test_the_commands_list_and_print(paths: Paths) -> None:
    listed = CliRunner().invoke(app, ["list", "--results", str(paths.results)])
    assert listed.exit_code == 0
    assert "apx-table-mnist-red-loss" in listed.output
    out = paths.work / "table.md"
    arguments = ["table", "apx-table-mnist-red-loss", "--results", str(paths.results), "--out", str(out)]
    printed = CliRunner().invoke(app, arguments)
    assert printed.exit_code == 0
    assert printed.output == out.read_text()
    assert "without RED" in printed.output


def test_the_ranking_is_of_means_over_rows_of_its_level() -> None:
    rows = [
        ("p", "1", "bag", "a", "0", "0", "0", "0.5"),
        ("p", "2", "bag", "a", "0", "0", "0", "0.7"),
        ("p", "1", "bag", "b", "0", "0", "0", "0.9"),
        ("p", "1", "instance", "c", "0", "0", "0", "1.0"),
    ]
    assert ranking(rows, "bag") == [("b", 0.9), ("a", pytest.approx(0.6))]
