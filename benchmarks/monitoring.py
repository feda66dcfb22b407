"""How soon a monitor sees a change, and how often it sees one that is not there, on real predictions.

Bags of PREDICTIONS that are in distribution are dealt at random: some are the calibration, others come one after
another. Then come bags of each out-of-distribution set, or only bags of one class. Written as CSV.

    python benchmarks/monitoring.py PREDICTIONS --out monitoring.csv
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from miue.calibration.calibration import Calibration
from miue.calibration.dataset_shift import usual_values
from miue.common.tables import write_rows
from miue.monitoring.course import Batch, monitor
from miue.predictions.folder import read_predictions
from miue.predictions.table import PredictionTable

COLUMNS = ("change", "streams", "alarms_before", "detected", "median_delay", "delay_90")


def changes(table: PredictionTable) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each change and the rows of the bags that come after it."""
    usual = np.flatnonzero(~table.is_ood.out_of_distribution)
    yield "none", usual
    for name in sorted({str(name) for name in table.ood_sets} - {""}):
        yield name, np.flatnonzero(table.ood_sets == name)
    for label in np.unique(table.labels.values[usual]):
        yield f"only class {label}", usual[table.labels.values[usual] == label]


def delays(
    table: PredictionTable, after: np.ndarray, sizes: tuple[int, int, int], chance: float, seed: int
) -> tuple[bool, int | None]:
    """Return whether there was an alarm before the change, and after how many changed bags there was one."""
    calibrated, calm, changed = sizes
    random = np.random.default_rng(seed)
    usual = random.permutation(np.flatnonzero(~table.is_ood.out_of_distribution))
    calibration = Calibration(class_names=("no", "yes"), usual=usual_values(table.subset(usual[:calibrated])))
    scores = tuple(calibration.usual)
    rest = np.setdiff1d(after, usual[: calibrated + calm])
    stream = np.concatenate([usual[calibrated : calibrated + calm], random.permutation(rest)[:changed]])
    batch = Batch.of("stream", table.subset(stream), scores)
    course = monitor(calibration, [batch], chance=chance, seed=seed)
    above: np.ndarray = np.any(course.log10_evidence >= course.log10_limit, axis=1)
    if above[:calm].any():
        return True, None
    return False, int(above.argmax()) - calm + 1 if above.any() else None


def main(
    predictions: Path,
    out: Annotated[Path, typer.Option()] = Path("monitoring.csv"),
    streams: Annotated[int, typer.Option(help="Random orders of the bags for each change.")] = 200,
    calibration: Annotated[int, typer.Option(help="Calibration bags.")] = 100,
    calm: Annotated[int, typer.Option(help="Bags before the change.")] = 100,
    changed: Annotated[int, typer.Option(help="Bags after the change.")] = 100,
    chance: Annotated[float, typer.Option(help="Of a false alarm, stated.")] = 0.05,
) -> None:
    """Simulate streams of bags with and without a change."""
    table = read_predictions(predictions).bags
    rows = []
    for name, after in changes(table):
        outcomes = [delays(table, after, (calibration, calm, changed), chance, seed) for seed in range(streams)]
        seen = sorted(delay for _, delay in outcomes if delay is not None)
        early = sum(before for before, _ in outcomes)
        late = [f"{np.quantile(seen, q):.0f}" if len(seen) > q * (streams - early) else "" for q in (0.5, 0.9)]
        rows.append((name, str(streams), str(early), str(len(seen)), *late))
        print(*rows[-1], flush=True)
    write_rows(out, COLUMNS, rows)


if __name__ == "__main__":
    typer.run(main)
