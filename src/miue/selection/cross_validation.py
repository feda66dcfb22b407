"""Folds times seeds: each run trained and evaluated on its test bags; mean, deviation and interval of all."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from miue.bags.dataset import BagDataset
from miue.bags.fingerprint import fingerprint
from miue.common.devices import torch_device
from miue.common.errors import DataError, StorageError
from miue.common.files import atomic_file, make_folder, read_json, remove_temporaries, write_json
from miue.common.locks import locked
from miue.common.progress import bar
from miue.evaluation import Evaluation, evaluate
from miue.io.splits.files import write_splits
from miue.io.splits.splits import Splits
from miue.model.recipe import Recipe
from miue.predictions.folder import read_predictions
from miue.training.fit import Run
from miue.training.run_folder import changed_setting, changes
from miue.training.train import train_recipe

CONFIDENCE = 0.95
DEFAULT = Recipe()


class _Metric(TypedDict):
    """One line of metrics.json."""

    level: str
    metric: str
    value: float | None


_METRICS = TypeAdapter(list[_Metric])
UNBOUNDED = ("nll", "brier")  # every other metric is a share; the interval ends where a metric's range does


@dataclass(frozen=True)
class Value:
    """One metric of one run, None where it is undefined."""

    fold: int
    seed: int
    level: str
    metric: str
    value: float | None


@dataclass(frozen=True)
class Summary:
    """One metric over all runs in which it is defined.

    Attributes:
        level: "bags", "instances" or "patients".
        metric: its name.
        runs: in which it is defined.
        mean: over folds, each the mean over its seeds.
        std: standard deviation over these, None for one run.
        low: lower end of the 95 % interval of the mean, None where it cannot be told.
        high: upper end.
    """

    level: str
    metric: str
    runs: int
    mean: float
    std: float | None
    low: float | None
    high: float | None


def cross_validate(
    bags: BagDataset,
    splits: Splits,
    seeds: Sequence[int],
    out: Path | str,
    recipe: Recipe = DEFAULT,
    *,
    jobs: int = 1,
    device: str = "auto",
    progress: bool = True,
) -> list[Summary]:
    """Train on every fold with every seed, evaluate on its test bags, and return mean, deviation and interval.

    Each run is written to ``out/fold_<k>/seed_<s>`` as it ends; what is there is not run again. The folder also
    gets splits.csv, runs.csv (every number) and summary.csv.

    Args:
        bags: labelled.
        splits: folds, each with test bags.
        seeds: one run each for every fold.
        out: folder, new or of the same cross-validation.
        recipe: what is trained.
        jobs: runs at a time, in processes of their own.
        device: "auto", "cpu", "gpu", or torch's own such as "cuda:1".
        progress: show a bar with the time left.

    Raises:
        ConfigError: ``out`` holds another cross-validation.
        DataError: a fold that cannot be trained or tested on.
        StorageError: another process writes ``out``, or it cannot be written.
    """
    out = Path(out)
    folds = [splits.assign(bags, fold) for fold in range(len(splits))]
    if not any(fold.split("test").labels.known.any() for fold in folds):
        raise DataError(
            item=f"the test bags of {splits.source!r}",
            wanted="at least one with a label",
            got="none",
            fix="label bags that are tested on (--labels TABLE); cross-validation counts how often they are right",
        )
    torch_device(device)
    with locked(out):
        _open(out, {"bags": fingerprint(bags), "splits": _digest(folds), "recipe": recipe.to_json()})
        write_splits(out / "splits.csv", splits, bags)
        todo = [(k, seed) for seed in seeds for k in range(len(folds)) if not _evaluation(out, k, seed).exists()]
        with bar("runs", shown=progress) as shown:
            task = shown.add_task("cross-validating", total=len(todo))
            for _ in _run_all(folds, todo, out, recipe, jobs, device):
                shown.advance(task)
        values = [value for seed in seeds for k in range(len(folds)) for value in _values(out, k, seed)]
        _write(out / "runs.csv", values)
        summaries = summarise(values, _test_share(folds))
        _write(out / "summary.csv", summaries)
    return summaries


def summarise(values: Sequence[Value], test_share: float) -> list[Summary]:
    """Return mean, standard deviation and a 95 % interval of every metric.

    The interval is that of the corrected resampled t-test: folds share training bags, so that the variance of
    their mean is (1/k + test/train) s², not s²/k. Seeds are averaged within a fold first. Of a single fold the
    interval is over seeds, and tells nothing of other test bags.

    Reference: Nadeau & Bengio 2003, "Inference for the Generalization Error", Section 3.

    Args:
        values: of all runs.
        test_share: test bags of a fold over its training bags.
    """
    from scipy.stats import t

    summaries = []
    for level, metric in dict.fromkeys((value.level, value.metric) for value in values):
        defined = [v for v in values if (v.level, v.metric) == (level, metric) and v.value is not None]
        if not defined:
            continue
        numbers = np.array([v.value for v in defined], float)
        folds = sorted({v.fold for v in defined})
        means = np.array([np.mean([v.value for v in defined if v.fold == k]) for k in folds])
        groups, share = (means, test_share) if len(folds) > 1 else (numbers, 0.0)
        low = high = None
        if len(groups) > 1:
            half = t.ppf(0.5 + CONFIDENCE / 2, len(groups) - 1) * standard_error(groups, share)
            low, high = max(0.0, float(groups.mean() - half)), float(groups.mean() + half)
            high = min(1.0, high) if is_share(metric) else high
        std = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
        summaries.append(Summary(level, metric, len(numbers), float(groups.mean()), std, low, high))
    return summaries


def standard_error(of_folds: Float64[np.ndarray, "k"], test_share: float) -> float:
    """Return the standard error of a mean over k folds, which share training bags (corrected resampled t-test).

    Reference: Nadeau & Bengio 2003, "Inference for the Generalization Error", Section 3.

    Args:
        of_folds: one value of each fold, at least two.
        test_share: test bags of a fold over its training bags.
    """
    return float(np.sqrt((1 / len(of_folds) + test_share) * of_folds.var(ddof=1)))


def is_share(metric: str) -> bool:
    """Return whether a metric lies between 0 and 1, and so can be shown in percent.

    >>> is_share("ood_kmnist_auroc"), is_share("nll")
    (True, False)
    """
    return metric not in UNBOUNDED


def metrics_of(evaluation: Evaluation) -> Iterator[tuple[str, str, float | None]]:
    """Yield level, name and value of every metric; Conf. and OOD of the measures that the paper uses."""
    levels = {"bags": evaluation.bags, "instances": evaluation.instances, "patients": evaluation.patients}
    for name, level in levels.items():
        if level is None:
            continue
        for metric, one in level.metrics.items():
            yield name, metric, one.value
        yield name, "confidence_auroc", level.confidence.auroc.value
        for ood_set, separation in level.ood.items():
            yield name, f"ood_{ood_set}_auroc", separation.auroc.value


def _run_all(
    folds: Sequence[BagDataset],
    todo: Sequence[tuple[int, int]],
    out: Path,
    recipe: Recipe,
    jobs: int,
    device: str,
) -> Iterator[None]:
    """Do every run, several at a time; each writes its own folder."""
    if jobs == 1 or len(todo) < 2:
        for k, seed in todo:
            _run(folds[k], k, seed, out, recipe, device)
            yield
        return
    from joblib import Parallel, delayed

    work = (delayed(_run)(folds[k], k, seed, out, recipe, device) for k, seed in todo)
    yield from Parallel(n_jobs=jobs, return_as="generator_unordered")(work)


def _run(bags: BagDataset, fold: int, seed: int, out: Path, recipe: Recipe, device: str) -> None:
    folder = out / f"fold_{fold}" / f"seed_{seed}"
    remove_temporaries(folder)
    run = Run(folder / "run", progress=False, accelerator=device)
    model = train_recipe(recipe.with_seed(seed), bags, run, if_exists="resume")
    predictions = model.predict(bags.split("test"), device=device)
    predictions.save(folder / "predictions", overwrite=True)
    found = evaluate(read_predictions(folder / "predictions"))
    rows = [{"level": level, "metric": metric, "value": value} for level, metric, value in metrics_of(found)]
    write_json(_evaluation(out, fold, seed), {"fold": fold, "seed": seed, "metrics": rows})


def _evaluation(out: Path, fold: int, seed: int) -> Path:
    return out / f"fold_{fold}" / f"seed_{seed}" / "metrics.json"


def _values(out: Path, fold: int, seed: int) -> Iterator[Value]:
    path = _evaluation(out, fold, seed)
    content = read_json(path, what="metrics of a run")
    try:
        rows = _METRICS.validate_python(content.get("metrics"))
    except ValidationError as error:
        raise StorageError(
            item=f"metrics {str(path)!r}",
            wanted="level, metric and value of each",
            got=error.errors()[0]["msg"],
            fix="remove the file; the same command evaluates this run again",
        ) from error
    for row in rows:
        yield Value(fold, seed, row["level"], row["metric"], row["value"])


def _open(out: Path, description: dict[str, Any]) -> None:
    """Make the folder, or check that it is one of the same cross-validation; without any run it is begun anew."""
    path = out / "cross_validation.json"
    remove_temporaries(out)
    if path.exists() and any(out.glob("fold_*/seed_*/run/run.json")):
        if changed := changes(read_json(path, what="cross-validation"), description):
            raise changed_setting(f"cross-validation {str(out)!r}", changed, "choose another --out")
        return
    make_folder(out)
    write_json(path, description)


def _digest(folds: Sequence[BagDataset]) -> str:
    return hashlib.sha256("\n".join(" ".join(fold.splits) for fold in folds).encode()).hexdigest()[:16]


def _test_share(folds: Sequence[BagDataset]) -> float:
    return float(np.mean([fold.splits.count("test") / fold.splits.count("train") for fold in folds]))


def _write(path: Path, rows: Sequence[Value] | Sequence[Summary]) -> None:
    with atomic_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
