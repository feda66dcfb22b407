"""Tables that are written by hand into pages have the numbers of the files that they are of."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import mean, stdev

import pytest

from miue.common.tables import read_rows
from papers.mirel.results import read_results

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
SEEDS = ("42", "17", "26", "50", "82")

NAMES = {"mnist": "MNIST", "musk1": "Musk 1", "musk2": "Musk 2", "deterministic": "softmax", "mirel": "MIREL"}
"""What tables of choices call data and methods, where it is another name than that of files."""


def table(page: str, first: str, start: str = "") -> list[list[str]]:
    """Return the rows of the table whose line of names begins with ``first``, after the text ``start``."""
    text = (ROOT / page).read_text("utf-8")
    lines = text[text.index(start) :].splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(first))
    end = next((number for number in range(begin, len(lines)) if not lines[number].startswith("|")), len(lines))
    return [[cell.strip(" *`") for cell in line.strip("|").split("|")] for line in lines[begin:end]]


def agree(shown: str, *values: float) -> bool:
    """Return whether a cell has these numbers, each rounded to the digits that it has there."""
    numbers = re.findall(r"([-+]?\d+(?:\.(\d+))?(?:e(-\d+))?)", shown.replace("−", "-"))
    return len(numbers) == len(values) and all(
        abs(float(number) - value) <= 0.501 * 10.0 ** (int(exponent or 0) - len(digits))
        for (number, digits, exponent), value in zip(numbers, values, strict=True)
    )


def runs(folder: str) -> dict[tuple[str, str, str, str], list[float]]:
    """Return the values of each estimator, level, task and measure over the seeds of a preset, in %."""
    values = defaultdict(list)
    for seed in SEEDS:
        for one in read_results(RESULTS / folder / f"{seed}.csv") or []:
            if one.value is not None:
                values[(one.estimator, one.level, one.task, one.measure)].append(100 * one.value)
    return values


def spread(values: Sequence[float]) -> Sequence[float]:
    """Return mean and standard deviation of several values, or the only one."""
    return (mean(values), stdev(values)) if len(values) > 1 else values


def choices(path: str, option: str) -> dict[tuple[str, str], dict[str, dict[str, float]]]:
    """Return the criterion of each data set and method, by value of the option and by seed."""
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in read_rows(RESULTS / path):
        of_value = found[NAMES.get(row["data"], row["data"]), NAMES.get(row["method"], row["method"])]
        of_value[row[option].removesuffix(".0")][row["seed"]] = float(row["criterion"])
    return found


def difference(values: dict[str, dict[str, float]], one: str, other: str) -> tuple[float, float]:
    """Return the mean over seeds of ``one`` less ``other``, and its standard error."""
    differences = [value - values[other][seed] for seed, value in values[one].items()]
    return mean(differences), stdev(differences) / sqrt(len(differences))


@pytest.mark.parametrize("section", ["Bags", "Nuclei"])
def test_rows_of_the_page_on_nuclei_are_rows_of_all_numbers(section: str) -> None:
    pages = [table("results/nuclei/README.md", "| | repetitions"), table("results/nuclei/README.md", "| | from")]
    known = {(row[1] == "1", *row[2:5]) for row in pages[0]}
    if section == "Nuclei":
        known = {("±" not in auroc, auroc, conf, accuracy) for _, _, auroc, accuracy, conf in pages[1]}
    first = "| | a" if section == "Bags" else "| | AUROC"
    rows = table("results/nuclei/overview.md", first, f"### {section}\n")[2:]
    assert len(rows) > 10
    for name, *cells in rows:
        for estimate in zip(*(cell.split("; ") for cell in cells), strict=True):
            assert ("one repetition" in name, *estimate) in known, name


def test_pages_count_what_was_run() -> None:
    repetitions = []
    for folder in (RESULTS / "nuclei").iterdir():
        done = [len(list(folder.glob(f"{seed}-*.csv"))) for seed in SEEDS] if folder.is_dir() else []
        if any(done):
            repetitions.append(done.count(10))
    limits = (ROOT / "docs/limits.md").read_text("utf-8")
    five, two, once = (repetitions.count(times) for times in (5, 2, 1))
    assert five + two + once == len(repetitions) and two == 1
    assert f"{five} methods with five repetitions of ten folds, {WORDS[once]} with one" in limits
    assert "one-sided mean with MIREL with two\n" in limits
    rows = Counter(path.parent for path in (RESULTS / "cifar10").glob("*/*.csv"))
    assert set(rows.values()) == {5}
    assert f"all {len(rows)} rows with five seeds" in limits
    slides, pooled = (len(list((RESULTS / "mitoses" / form).iterdir())) for form in ("slides", "pooled"))
    assert f"{WORDS[slides]} methods on slides; softmax, MIREL, MC dropout and a deep ensemble of\nfive" in (
        ROOT / "results/mitoses/overview.md"
    ).read_text("utf-8")
    assert pooled == 4
    musk = {folder.name for folder in (RESULTS / "musk/musk1").iterdir() if folder.is_dir()} - {"attention-all"}
    assert re.search(rf"Musk 1 and 2.*{WORDS[len(musk)]} networks", limits)


def test_precisions_are_compared_by_what_was_run() -> None:
    rows = table("results/mnist-bf16/README.md", "| | float32")[2:]
    tasks = {"accuracy": "accuracy", "Conf.": "conf", "OOD-F": "ood fmnist", "OOD-K": "ood kmnist-test"}
    columns = [runs(f"{data}/abmil-deterministic") for data in ("mnist", "mnist-bf16")]
    assert len(rows) == 8
    for name, *cells in rows:
        level, task = name.split()
        for cell, values in zip(cells, columns, strict=True):
            found = values["bag-of-one", level, tasks[task], "default"]
            assert len(found) == 5 and agree(cell, mean(found), stdev(found)), (name, cell)


def test_shifts_are_what_was_measured() -> None:
    values = defaultdict(list)
    for name in ("nuclei-mirel", "mnist-abmil-mirel"):
        for row in read_rows(RESULTS / "shift" / f"{name}.csv"):
            values[name, row["level"], row["score"], row["against"]].append(float(row["auroc"]))

    def measured(name: str, level: str, score: str, against: str, part: str = "mean") -> Sequence[float]:
        found = values.get((name, level, score, against)) or values[name, level, f"{score}_{part}", against]
        return spread(found)

    page, wrong = "docs/uncertainty.md", []
    (_, *shifts), _, *rows = table(page, "| score | blur-lighter")
    for score, *cells in rows:
        for against, cell in zip(shifts, cells, strict=True):
            wrong += [cell] * (not agree(cell, *measured("nuclei-mirel", "bag", score, against)))
    columns = [
        ("bag", "kmnist-test, 10% of a bag"),
        ("bag", "kmnist-test, 20% of a bag"),
        ("bag", "fmnist, 10% of a bag"),
        ("instance", "kmnist-test, 20% of a bag"),
    ]
    for score, *cells in table(page, "| score | bags, 10 % KMNIST")[2:]:
        for (level, against), cell in zip(columns, cells, strict=True):
            for part, one in zip(("mean", "high"), cell.split(" / "), strict=False):
                center, _ = measured("mnist-abmil-mirel", level, score, against, part)
                wrong += [cell] * (not agree(one, center))
    assert wrong == []


def test_a_rare_class_and_vanishing_uncertainties_are_what_was_measured() -> None:
    rare = read_rows(RESULTS / "rare_class.csv")
    columns = ("AUROC", "sensitivity", "specificity", "mean_p")
    for name, *cells in table("docs/choosing.md", "| | AUROC of bags")[2:]:
        method, balanced = name.split("`")[0], str("as many" in name)
        of_row = [row for row in rare if (row["method"], row["class_balanced"]) == (method, balanced)]
        for column, cell in zip(columns, cells, strict=True):
            found = [float(row[column]) for row in of_row]
            assert agree(cell, mean(found), stdev(found)), (name, column)
    for method, *cells in table("docs/uncertainty.md", "| method | 80 training bags")[2:]:
        [row] = [
            one for one in read_rows(RESULTS / f"vanishing/{method}.csv") if one["measure"] == "mutual_information"
        ]
        means = [float(row[f"mean_{count}"]) for count in (80, 160, 320, 640)]
        change = [float(row[column]) for column in ("slope", "low", "high")]
        shown = [*([one] for one in means), [100 * means[-1] / means[0]], change]
        assert all(agree(cell, *values) for cell, values in zip(cells, shown, strict=True)), method


def test_networks_pass_and_fail_checks_as_was_measured() -> None:
    shifted = defaultdict(list)
    for row in read_rows(RESULTS / "checks/mil.csv"):
        shifted[row["network"], row["test"], row["train_bags"]].append(float(row["shifted"]))
    rows = table("docs/mil_assumption.md", "| network | `single-concept`, 300")[2:]
    assert len(rows) == 11
    for name, *cells in rows:
        network = name.replace("`, `uniform", " network.initial_weights=uniform")
        for column, cell in enumerate(cells):
            test = ("single-concept", "multi-concept", "false-frequency")[column // 2]
            ends = sorted(shifted[network, test, ("300", "1200")[column % 2]])
            assert agree(cell, *(ends if " to " in cell else [mean(ends)])), (name, cell)


@pytest.mark.parametrize(
    ("folder", "option", "base", "values"),
    [
        ("length_scale", "length_scale", "0.3", ("0.1", "0.3", "1", "3")),
        ("divergence", "annealing_epochs", "10", ("10", "0")),
        ("evidence_prior", "prior", "0.1", ("0.01", "0.1", "0.5", "1")),
    ],
)
def test_a_choice_of_one_method_is_that_of_its_file(
    folder: str, option: str, base: str, values: Sequence[str]
) -> None:
    found = choices(f"{folder}/validation.csv", option)
    rows = table(f"results/{folder}/README.md", "| data |")[2:]
    assert len(rows) == len(found)
    for data, *cells in rows:
        [criteria] = [one for (name, _), one in found.items() if name == data]
        other = next(value for value in values if value != base)
        shown = [*((mean(criteria[value].values()),) for value in values), difference(criteria, other, base)]
        assert all(agree(cell, *one) for cell, one in zip(cells, shown, strict=False)), data


def test_choices_of_several_methods_are_those_of_their_files() -> None:
    weights = choices("initial_weights/validation.csv", "initial_weights")
    for data, method, normal, uniform, less, _ in table("results/initial_weights/README.md", "| data |")[2:]:
        found = weights[data, method]
        assert agree(normal, mean(found["normal"].values())) and agree(uniform, mean(found["uniform"].values()))
        assert agree(less, *difference(found, "uniform", "normal")), (data, method)
    page, scaling = "results/scaling/README.md", choices("scaling/validation.csv", "scaling")
    for data, method, as_is, *others, _ in table(page, "| data | method |")[2:]:
        found = scaling[data, method]
        assert agree(as_is, mean(found["as-is"].values()))
        for name, (criterion, less) in zip(("common", "each"), (others[:2], others[2:]), strict=True):
            assert agree(criterion, mean(found[name].values())) and agree(less, *difference(found, name, "as-is"))
    confirmed = choices("scaling/confirmation.csv", "scaling")
    for data, *cells in table(page, "| data | softmax:")[2:-1]:
        for method, (as_is, common, less) in zip(("softmax", "MIREL"), (cells[:3], cells[3:]), strict=True):
            found = confirmed[data, method]
            assert agree(as_is, mean(found["as-is"].values())) and agree(common, mean(found["common"].values()))
            assert agree(less, *difference(found, "common", "as-is")), (data, method)


def test_a_monitor_detects_changes_as_soon_as_was_measured() -> None:
    both = [
        [
            row
            for row in read_rows(RESULTS / f"monitoring/{name}.csv")
            if row["change"] not in ("none", "kmnist-test")
        ]
        for name in ("all", "all-17")
    ]
    rows = table("results/monitoring/README.md", "| data: bags of calibration")[2:]
    assert len(rows) == 15
    for (_, change, before, detected, bags), *models in zip(rows, *both, strict=True):
        alarms = [int(model["alarms_before"]) for model in models]
        assert agree(before, *(count / 2 for count in alarms)), change
        shares = [
            100 * int(model["detected"]) / (200 - count) for model, count in zip(models, alarms, strict=True)
        ]
        assert agree(detected, *shares), change
        delays = [model[f"delay_{share}"] or "—" for model in models for share in (50, 25, 75)]
        assert re.findall(r"\d+|—", bags) == delays, change
