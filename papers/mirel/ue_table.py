"""UE with the distance that models carry, by network: errors by the prediction, OOD by `combined`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from miue.methods import BAG_OF_ONE, RESIDUAL
from papers.mirel.preset import preset
from papers.mirel.results import DEFAULT, MARK, MARKED, Result, mean_and_std, metric_of, older_rows, read_results

ERRORS = ("error_probability", DEFAULT)
"""By which measure errors are detected, the first that there is; see error_measure_choice.

Instances have an error probability by the estimator of the error model: R of MIREL, T of softmax.
"""

TARGETS = {"bag": 95.5, "instance": 94.5}
OOD_SETS = ("fmnist", "kmnist-test")


@dataclass(frozen=True)
class Detection:
    """What one seed detects, in %.

    Attributes:
        accuracy: of the predictions.
        conf: AUROC of errors.
        ood: mean AUROC of FMNIST and KMNIST by `combined`.
        ue: mean of Conf. and both OOD.
    """

    accuracy: float
    conf: float
    ood: float
    ue: float


ROWS = {
    "`attention`": "mnist-combined/abmil-mirel",
    "`attention`, ensemble of five": "mnist-combined/abmil-mirel-ensemble",
    "`gated-attention`": "mnist-combined/gated-abmil-mirel",
    "`dsmil`, routing of the paper": "mnist-combined/dsmil-mirel",
    "`dsmil`, its default now": "mnist-routing/dsmil-residual-only",
    "`max`": "mnist-combined/max-mirel",
    "`mean`": "mnist-combined/mean-mirel",
    "`one-sided-attention`": "mnist-combined/one-sided-attention-mirel",
    "`attention`, softmax": "mnist-combined/abmil-deterministic",
    "`attention`, SNGP": "mnist-combined/abmil-sngp",
}
"""The folder of results of each row."""

TITLE = """## ue

UE on test bags of MNIST-bags, MIREL unless stated otherwise: mean ± standard deviation over seeds, in %. Conf. is
by the error probability, OOD (mean of FMNIST and KMNIST) by `combined`; instances by R and by T. A model has the
error probability of instances by one estimator, R of MIREL and T of softmax and SNGP; errors by T of MIREL are
detected by max alpha. Bold: bag UE of at least 95.5, instance UE of at least 94.5.

`python -m papers.mirel ue --older --out results/tables/ue.md`
"""
HEAD = "| | seeds | bag Acc | Conf | OOD | UE | instance Acc, R | T | Conf, R | T | OOD | UE, R | T |"


def ue_table(results: Path, *, older: bool = False) -> str:
    """Return the table in Markdown, a target that is reached in bold, of the seeds that are there.

    Args:
        results: the folder.
        older: show rows of an earlier version of their method, with a mark.

    Raises:
        StorageError: a file of results that is not one, or rows as ``older_rows`` refuses them.
    """
    files = {folder: sorted((results / folder).glob("*.csv")) for folder in ROWS.values()}
    marked = older_rows({folder: (paths, preset(folder).version) for folder, paths in files.items()}, shown=older)
    return "\n".join(
        [TITLE, HEAD, f"| --- |{' ---: |' * 12}", *_rows(files, marked), *(["", MARKED] if marked else []), ""]
    )


def _rows(files: Mapping[str, Sequence[Path]], marked: Collection[str]) -> Iterator[str]:
    for title, folder in ROWS.items():
        paths = files[folder]
        read = [read_results(path, (folder, int(path.stem))) for path in paths if path.stem.isdecimal()]
        of_seeds = [one for one in read if one is not None]
        by_t = _detections(of_seeds, BAG_OF_ONE, "instance")
        by_r = _detections(of_seeds, RESIDUAL, "instance")
        bags = _detections(of_seeds, RESIDUAL if by_r else BAG_OF_ONE, "bag")
        if bags:
            cells = [
                *(_cell(bags, field) for field in ("accuracy", "conf", "ood")),
                _cell(bags, "ue", TARGETS["bag"]),
                *(_cell(by, field) for field in ("accuracy", "conf") for by in (by_r, by_t)),
                _cell(by_t, "ood"),
                *(_cell(by, "ue", TARGETS["instance"]) for by in (by_r, by_t)),
            ]
            yield f"| {title}{MARK if folder in marked else ''} | {len(bags)} | {' | '.join(cells)} |"


def _detections(of_seeds: Sequence[list[Result]], estimator: str, level: str) -> list[Detection]:
    """Return one detection for each seed that was predicted so."""
    score = "combined_mean" if level == "bag" else "combined"
    found = []
    for results in of_seeds:
        by_errors = (metric_of(results, estimator, level, "conf", name).value for name in ERRORS)
        values = [
            metric_of(results, estimator, level, "accuracy").value,
            next((value for value in by_errors if value is not None), None),
            *(metric_of(results, estimator, level, f"ood {name}", score).value for name in OOD_SETS),
        ]
        known = [100 * value for value in values if value is not None]
        if len(known) == len(values):
            accuracy, conf, *ood = known
            found.append(Detection(accuracy, conf, float(np.mean(ood)), float(np.mean([conf, *ood]))))
    return found


def _cell(of_seeds: Sequence[Detection], field: str, target: float = float("inf")) -> str:
    values = [getattr(one, field) for one in of_seeds]
    text = mean_and_std(values, digits=1)
    return f"**{text}**" if values and np.mean(values) >= target else text
