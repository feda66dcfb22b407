"""``check vanishing``: nested refits, slopes over the number of training bags, and what is said of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_bags import separable_bags
from scipy.stats import norm, t
from sealed_files import seal_again
from sklearn.linear_model import LinearRegression
from typer.testing import CliRunner

import miue
from miue.bags import BagDataset, Labels, OodFlags
from miue.cli import app
from miue.common.errors import DataError, ModelError
from miue.common.tables import read_rows
from miue.common.tasks import Task, run_tasks
from miue.io import write_store
from miue.model.folder import SavedConfig, read_config
from miue.model.training_bags import parts_of_run
from miue.predictions import TrainingRecord, read_predictions
from miue.selection import Vanishing, check_vanishing, vanishing
from miue.selection.vanishing import Slope, fit_slope, nested_subsets

SETTINGS = {"max_epochs": 2, "learning_rate": 1e-3, "seed": 3, "validation_fraction": 0.25}


@pytest.mark.parametrize("seed", range(5))
def test_subsets_are_nested_stratified_and_keep_patients_whole(seed: int) -> None:
    random = np.random.default_rng(seed)
    patients = random.integers(0, 60, 200).astype(str)
    labels = np.where(random.random(60) < 0.3, 1, 0)[patients.astype(int)]
    labels[:5] = 1 - labels[:5]  # some patients have bags of both classes
    subsets = nested_subsets(labels, patients, (0.125, 0.25, 0.5, 1.0), seed)
    for smaller, larger in itertools.pairwise(subsets):
        assert not (smaller & ~larger).any() and larger.sum() > smaller.sum()
    for subset in subsets:
        assert not set(patients[subset]) & set(patients[~subset])
        assert abs(labels[subset].mean() - labels.mean()) < 0.15
    assert subsets[-1].all()
    assert abs(subsets[2].mean() - 0.5) < 0.1


def test_a_slope_is_that_of_least_squares_with_an_interval_over_patients() -> None:
    random = np.random.default_rng(1)
    sizes, owners = np.log2([50, 100, 200, 400]), np.repeat(np.arange(30), 3).astype(str)
    values = 0.5 - 0.03 * sizes[:, None] + random.normal(0, 0.05, 30)[owners.astype(int)] * sizes[:, None]
    found = fit_slope("mutual_information", values, sizes, owners, 4000, 0)
    fitted = LinearRegression().fit(sizes[:, None], values.mean(1))
    assert found.slope == pytest.approx(fitted.coef_[0])
    of_patients = values.reshape(4, 30, 3).mean(2)
    error = np.polyfit(sizes, of_patients, 1)[0].std() / np.sqrt(30)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_a_patient_that_is_drawn_again_brings_each_of_its_bags_and_few_patients_widen_the_interval() -> None:
    random = np.random.default_rng(2)
    sizes, owners = np.log2([50, 100, 200, 400]), np.repeat(["a", "b", "c", "d"], [1, 2, 9, 20])
    values = random.normal(size=(4, 32)) + np.repeat([0.0, 1.0, 2.0, 3.0], [1, 2, 9, 20]) * sizes[:, None]
    found = fit_slope("mutual_information", values, sizes, owners, 300, 5)
    of_bags = np.polyfit(sizes, values, 1)[0]
    drawn = np.array(["a", "b", "c", "d"])[np.random.default_rng(5).integers(4, size=(300, 4))]
    means = [np.concatenate([of_bags[owners == owner] for owner in row]).mean() for row in drawn]
    below = norm.cdf(-np.sqrt(4 / 3) * t.ppf(0.975, 3))  # Hesterberg 2015; 2.5 % would be too narrow
    assert (found.low, found.high) == pytest.approx(np.quantile(means, [below, 1 - below]))


def test_a_sentence_says_whether_a_measure_falls() -> None:
    falls = Slope("mutual_information", "epistemic", (0.4, 0.3, 0.2, 0.1), -0.1, -0.12, -0.08)
    assert falls.sentence((5, 10, 20, 40)) == (
        "mutual_information (epistemic) falls with data: 0.4 with 5 training bags, 0.1 with 40, 25% of it; "
        "-0.1 per doubling (95 % interval -0.12 to -0.08)."
    )
    hardly = replace(falls, means=(0.4, 0.39, 0.38, 0.37), slope=-0.01, low=-0.012, high=-0.008)
    assert "hardly falls with data: 0.4 with 5 training bags, 0.37 with 40, 92% of it" in hardly.sentence((5, 40))
    volume = replace(hardly, measure="differential_entropy", means=(-1.0, -1.1, -1.2, -1.3))
    words = (
        "hardly falls with data: -1 with 5 training bags, -1.3 with 40, 74% of the volume that it is the log of"
    )
    assert words in volume.sentence((5, 40))
    assert replace(volume, means=(0.0, -1.0)).verdict == "falls"
    rises = replace(falls, means=(0.42, 0.26, 0.29, 0.31))
    assert ", 0.31 with 40, 74% of it, rising again from 0.26 with 10; -0.1 per" in rises.sentence((5, 10, 20, 40))
    rises_little = replace(falls, means=(0.42, 0.26, 0.27, 0.29))  # by more than a tenth of the fall of 0.16
    assert "rising again from 0.26 with 10" in rises_little.sentence((5, 10, 20, 40))
    assert "rising" not in replace(falls, means=(0.42, 0.26, 0.27, 0.27)).sentence((5, 10, 20, 40))
    stays = Slope("vacuity", "epistemic", (0.4, 0.3, 0.2, 0.39), -0.01, -0.02, 0.001)
    assert "vacuity (epistemic) does not fall with data" in stays.sentence((5, 10, 20, 40))
    assert "rising" not in stays.sentence((5, 10, 20, 40))  # it did not fall
    grows = replace(stays, means=(0.2, 0.3, 0.3, 0.4), slope=0.06, low=0.05, high=0.07)
    assert "0.2 with 5 training bags, 0.4 with 40; +0.06 per" in grows.sentence((5, 40))  # "200% of it" is no rest


@pytest.fixture
def split_bags() -> BagDataset:
    splits = ("train",) * 64 + ("validation",) * 16 + ("test",) * 40
    return replace(separable_bags(120), splits=splits, ids=tuple(f"slide {row}" for row in range(120)))


@pytest.fixture
def run(split_bags: BagDataset, tmp_path: Path) -> Path:
    miue.train(
        split_bags,
        method="deep-ensemble",
        settings={**SETTINGS, "options": {"method.size": 2, "encoder.width": 8}, "device": "cpu"},
        out=tmp_path / "run",
        progress=False,
    )
    return tmp_path / "run"


@pytest.mark.long
def test_a_run_is_refitted_to_parts_of_its_bags_and_measured_on_the_same_others(
    run: Path, split_bags: BagDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[list[str]] = []
    split_bags = replace(split_bags, patients=("",) * 80 + tuple(f"of two {row // 2}" for row in range(40)))

    def recorded(tasks: Sequence[Task], *more: Any, **others: Any) -> Any:
        together.append([task.name for task in tasks])
        return run_tasks(tasks, *more, **others)

    monkeypatch.setattr(vanishing, "run_tasks", recorded)

    def check(**more: Any) -> Any:
        return check_vanishing(
            run, split_bags, tmp_path / "out", settings={"device": "cpu"}, progress=False, **more
        )

    found = check()
    assert found.sizes == (8, 16, 32, 64) and found.bags == 40
    assert together == [[f"refit_{size}, fold 0, seed 3" for size in found.sizes]]  # which can run side by side
    assert (tmp_path / "out" / "refit_8" / "summary.csv").exists()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "vanishing.csv", *(f"refit_{size}" for size in found.sizes)
    }  # fmt: skip
    names = [one.measure for one in found.slopes]
    assert names == ["least_confidence", "entropy", "expected_entropy", "mutual_information"]
    whole = miue.Model.load(tmp_path / "out" / "refit_64" / "fold_0" / "seed_3" / "run")
    wanted = miue.Model.load(run)
    for name, weight in wanted.method.state_dict().items():  # the refit to all bags is the run itself
        assert (whole.method.state_dict()[name] == weight).all()
    predicted = read_predictions(tmp_path / "out" / "refit_8" / "fold_0" / "seed_3" / "predictions").bags
    assert found.slopes[1].means[0] == pytest.approx(predicted.uncertainties()["entropy"].mean())
    fewest = miue.Model.load(tmp_path / "out" / "refit_8" / "fold_0" / "seed_3" / "run").training
    assert fewest.settings["max_epochs"] == 8 * SETTINGS["max_epochs"]  # as many updates
    for name in ("max_epochs", "stop_patience", "lr_patience"):  # and as many until it stops or learns more slowly
        assert fewest.settings[name] == 8 * int(str(wanted.training.settings[name]))
    entropies = [
        read_predictions(tmp_path / "out" / f"refit_{size}" / "fold_0" / "seed_3" / "predictions").bags
        for size in found.sizes
    ]
    values = np.stack([one.uncertainties()["entropy"] for one in entropies])
    whose = np.array(split_bags.patient_groups, object)[80:]
    assert found.patients == 20
    assert found.slopes[1] == fit_slope("entropy", values, np.log2(found.sizes), whose, 1000, 3)
    rows = read_rows(tmp_path / "out" / "vanishing.csv")
    assert [row["measure"] for row in rows] == names and float(rows[3]["slope"]) == pytest.approx(
        found.slopes[3].slope
    )
    assert check() == found
    assert "per doubling" in repr(found)


@pytest.mark.slow
def test_refits_run_in_processes_to_the_same_slopes(run: Path, split_bags: BagDataset, tmp_path: Path) -> None:
    here = check_vanishing(run, split_bags, tmp_path / "a", settings={"device": "cpu"}, progress=False)
    there = check_vanishing(run, split_bags, tmp_path / "b", settings={"device": "cpu", "jobs": 2}, progress=False)
    assert [one.slope for one in here.slopes] == pytest.approx([one.slope for one in there.slopes])


@pytest.mark.long
def test_the_command_prints_sentences_or_json(run: Path, split_bags: BagDataset, tmp_path: Path) -> None:
    write_store(tmp_path / "store", split_bags)
    command = ["check", "vanishing", str(run), str(tmp_path / "store"), "--out", str(tmp_path / "out"), "--quiet"]
    result = CliRunner().invoke(app, [*command, "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert "mutual_information" in result.output and "with data" in result.output
    content = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert content["sizes"] == [8, 16, 32, 64]
    assert content["bags"] == content["patients"] == 40
    assert {"measure", "slope", "low", "high", "verdict", "sentence"} <= set(content["measures"][0])
    nothing = Labels.of([None] * len(split_bags))
    write_store(tmp_path / "unlabeled", replace(split_bags, labels=nothing, splits=("",) * len(split_bags)))
    command[3] = str(tmp_path / "unlabeled")  # then labels are those that the training listed
    assert json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout) == content


def test_bags_of_patients_that_the_run_learned_from_and_those_of_other_distributions_are_not_predicted(
    run: Path, split_bags: BagDataset
) -> None:
    whose = {5: "of training", 90: "of training", 70: "of validation", 91: "of validation"}
    bags = replace(
        split_bags,
        patients=tuple(whose.get(row, "") for row in range(120)),
        is_ood=OodFlags.of([row == 92 for row in range(120)]),
    )
    saved = read_config(run)
    for splits in (bags.splits, ("",) * 120):
        given = replace(bags, splits=splits)
        train, validation, test = vanishing._rows_of_parts(saved, parts_of_run(run, given), given)
        assert train.tolist() == [*range(64)] and validation.tolist() == [*range(64, 80)]
        assert test.tolist() == [*range(80, 90), *range(93, 120)]


@pytest.mark.parametrize("where", ["network", "member"])
def test_code_of_others_that_a_run_names_is_not_imported_without_trust(
    where: str, run: Path, split_bags: BagDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a member of an ensemble it was, and ran: only the parts themselves were asked for."""
    changes: dict[str, Callable[[dict[str, Any]], None]] = {
        "network": lambda c: c["model"]["network"].update(
            name="Thing", import_path="leaves_traces:Thing", options={}
        ),
        "member": lambda c: c["model"]["method"]["options"].update(member="leaves_traces:Thing"),
    }
    seal_again(run / "config.json", changes[where])
    (tmp_path / "leaves_traces.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelError, match="leave to run the code of others, got 'leaves_traces:Thing.*trust=True"):
        check_vanishing(run, split_bags, tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit):
        check_vanishing(run, split_bags, tmp_path / "out", settings={"trust": True}, progress=False)


def test_bags_without_those_of_the_run_are_refused(run: Path, split_bags: BagDataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the 64 training and 16 validation bags of the run, got 10 and 0"):
        check_vanishing(run, split_bags.subset(np.arange(10)), tmp_path / "out", progress=False)
    with pytest.raises(DataError, match="bags that the run did not learn from"):
        check_vanishing(run, split_bags.subset(np.arange(80)), tmp_path / "out", progress=False)
    of_one = replace(split_bags, patients=("",) * 80 + ("one",) * 40)
    with pytest.raises(DataError, match="two patients or more, got 40 bags of one"):
        check_vanishing(run, of_one, tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("patients", "said"), [(2, True), (4, True), (5, False)])
def test_few_patients_are_said_to_be_too_few_for_an_interval(patients: int, said: bool) -> None:
    (table,) = Vanishing((8, 16), 40, patients, ()).tables()
    assert (f"of {patients} patients, too few for a 95 % interval" in " ".join(table.notes)) == said


def test_what_one_nth_leaves_is_that_of_the_sizes_that_were_trained_on() -> None:
    (table,) = Vanishing((9, 11, 24, 52), bags=20, patients=20, slopes=()).tables()
    assert "that vanishes as 1/n has 17 % of that at n = 9 left at n = 52." in table.notes[0]


def test_too_few_bags_to_halve_three_times_are_refused(tmp_path: Path) -> None:
    bags = separable_bags(20)
    miue.train(
        bags.subset(np.arange(12)), settings={**SETTINGS, "device": "cpu"}, out=tmp_path / "run", progress=False
    )
    with pytest.raises(DataError, match="an eighth of them holds 2 of each class"):
        check_vanishing(tmp_path / "run", bags, tmp_path / "out", progress=False)


def test_training_bags_whose_eighth_holds_two_of_each_class_are_enough() -> None:
    saved = SavedConfig.model_construct(training=TrainingRecord.model_construct(seed=1))
    names = np.array([f"p{n}" for n in range(32)])
    subsets = vanishing._training_subsets(np.arange(32) % 2, names, saved)
    assert [int(subset.sum()) for subset in subsets] == [4, 8, 16, 32]
