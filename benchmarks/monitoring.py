r"""How soon a monitor sees a change, and how often one that is not there: digits, nuclei, and three real scanners.

Bags that a model was not trained on are dealt at random: some are the calibration, others come one after another,
unchanged. Then come changed bags: other instances, blur, another scanner, or another mix of classes. All that a
monitor watches by default is watched, or what --score names. Trains what is not in WORK, but for the model of
digits (python -m papers.mirel run mnist/abmil-mirel); writes a CSV file with a row for each change.

    python benchmarks/monitoring.py --source data --work work --out results/monitoring/all.csv
    python benchmarks/monitoring.py --source data --work work --out results/monitoring/two.csv \
        --score combined_mean --score class_mix
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from monitored import monitored_predictions

from miue.calibration import Calibration
from miue.calibration.class_mix import fit_class_mix
from miue.calibration.compared import usual_values
from miue.calibration.monitoring.batch import Batch
from miue.calibration.monitoring.course import monitor
from miue.common.tables import write_rows
from miue.predictions import PredictionTable
from papers.mirel.paths import Paths

COLUMNS = (
    *(
        "data",
        "change",
        "watched",
        "calibration_bags",
        "calm_bags",
        "changed_bags",
        "streams",
        "alarms_before",
        "detected",
    ),
    *("delay_25", "delay_50", "delay_75", "first_alarm", "share", "share_estimated", "share_covered"),
)
Draw = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""(rows of unchanged bags that are left, what draws) → rows of changed bags in their order."""


@dataclass(frozen=True)
class Sizes:
    """How many bags of each kind a stream has."""

    calibration: int
    calm: int
    changed: int


@dataclass(frozen=True)
class Outcome:
    """What came of one stream.

    Attributes:
        before: whether there was an alarm before the change.
        delay: changed bags up to the first alarm after it; None without one.
        score: that gave the first alarm.
        changed: how many bags came after the change.
        share: of class 1 among the changed bags.
        estimated: the same, estimated from their predicted classes.
        covered: whether its interval holds the share.
    """

    before: bool
    delay: int | None
    score: str
    changed: int
    share: float
    estimated: float
    covered: bool


def changes(table: PredictionTable) -> Mapping[str, Draw]:
    """Return each change by name."""
    found: dict[str, Draw] = {"none": lambda left, random: random.permutation(left)}
    for name in sorted({str(name) for name in table.ood_sets} - {""}):
        found[name] = partial(_of_set, table, name)
    if len(table) > 1000:
        for percent in (80, 20, 100, 0):
            found[f"{percent} % positive"] = partial(_mixed, table, percent / 100)
    return found


def _of_set(table: PredictionTable, name: str, left: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the bags of an OOD set, but for changed copies of bags that were seen unchanged."""
    names, rows = table.bag_ids.astype(str), random.permutation(np.flatnonzero(table.ood_sets == name))
    kept = set(names[left])
    usual = set(names[table.ood_sets == ""]) - kept
    return np.array([row for row in rows if names[row].rsplit("_", 1)[0] not in usual])


def _mixed(table: PredictionTable, share: float, left: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return bags of which each is of class 1 with this chance."""
    of_class = [list(random.permutation(left[table.labels.values[left] == label])) for label in (0, 1)]
    wanted = random.random(len(left)) < share
    ends = min(np.append(np.flatnonzero(np.cumsum(wanted == c) > len(of_class[c])), len(left))[0] for c in (0, 1))
    return np.array([of_class[int(label)].pop() for label in wanted[:ends]])


def follow(
    table: PredictionTable, draw: Draw, sizes: Sizes, scores: Sequence[str] | None, chance: float, seed: int
) -> Outcome:
    """Return what comes of one random order."""
    random = np.random.default_rng(seed)
    usual = random.permutation(np.flatnonzero(table.ood_sets == ""))
    held, calm, left = np.split(usual, [sizes.calibration, sizes.calibration + sizes.calm])
    changed = draw(left, random)[: sizes.changed]
    calibrated = table.subset(held)
    calibration = Calibration(
        class_names=("no", "yes"),
        usual=usual_values(calibrated),
        class_mix=fit_class_mix(calibrated, ("no", "yes")),
    )
    batches = [
        Batch.of(name, table.subset(rows), calibration, scores)
        for name, rows in (("calm", calm), ("new", changed))
    ]
    course = monitor(calibration, batches, scores=scores, chance=chance, seed=seed)
    above = np.asarray(course.above.any(1))
    mix, share = course.mix[-1], float((table.labels.values[changed] == 1).mean())
    estimated, covered = (np.nan, False) if mix is None else (mix.shares[1], mix.low[1] <= share <= mix.high[1])
    before = bool(above[: len(calm)].any())
    if before or not above.any():
        return Outcome(before, None, "", len(changed), share, estimated, covered)
    row = int(above.argmax())
    margin = course.log10_evidence[row] - np.array(course.log10_limits)
    score = course.scores[int(margin.argmax())]
    return Outcome(False, row - len(calm) + 1, score, len(changed), share, estimated, covered)


def _row(outcomes: list[Outcome]) -> tuple[str, ...]:
    """Return the cells of a change; quartiles are over all streams without an alarm before it."""
    delays = [np.inf if one.delay is None else one.delay for one in outcomes if not one.before]
    quartiles = np.quantile(delays, (0.25, 0.5, 0.75), method="inverted_cdf") if delays else np.full(3, np.inf)
    first = Counter(one.score for one in outcomes if one.score).most_common(1)
    estimated = [one.estimated for one in outcomes if not np.isnan(one.estimated)]
    return (
        f"{np.mean([one.changed for one in outcomes]):.0f}",
        *(str(len(outcomes)), str(sum(one.before for one in outcomes)), str(int(np.isfinite(delays).sum()))),
        *("" if np.isinf(delay) else f"{delay:.0f}" for delay in quartiles),
        f"{first[0][0]} {first[0][1]}" if first else "",
        f"{np.mean([one.share for one in outcomes]):.3f}",
        *((f"{np.mean(estimated):.3f}", str(sum(one.covered for one in outcomes))) if estimated else ("", "")),
    )


def main(
    source: Annotated[Path, typer.Option(help="Folder with the files of the data.")],
    work: Annotated[Path, typer.Option(help="Folder of stores, trained models and their predictions.")],
    out: Annotated[Path, typer.Option()] = Path("delays.csv"),
    streams: Annotated[int, typer.Option(help="Random orders of the bags for each change.")] = 200,
    score: Annotated[list[str] | None, typer.Option(help="Watch only these; all by default.")] = None,
    chance: Annotated[float, typer.Option(help="Of a false alarm, stated.")] = 0.05,
    seed: Annotated[int, typer.Option(help="Of the models, and of which bags they are trained on.")] = 42,
) -> None:
    """Simulate streams of bags with and without a change."""
    watched = "all" if not score else " ".join(score)
    rows: list[tuple[str, ...]] = []
    for data, predictions in monitored_predictions(Paths(source, work, work / "results"), seed):
        table = predictions.bags
        usual = int((table.ood_sets == "").sum())
        sizes = Sizes(100, 100, 100) if usual > 400 else Sizes(int(0.55 * usual), int(0.25 * usual), 45)
        for name, draw in changes(table).items():
            outcomes = [follow(table, draw, sizes, score or None, chance, stream) for stream in range(streams)]
            rows.append((data, name, watched, str(sizes.calibration), str(sizes.calm), *_row(outcomes)))
            print(*rows[-1], flush=True)
            write_rows(out, COLUMNS, rows)


if __name__ == "__main__":
    typer.run(main)
