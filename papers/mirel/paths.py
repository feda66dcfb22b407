"""Where an experiment finds and leaves its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SEEDS = (42, 17, 26, 50, 82)


@dataclass(frozen=True)
class Paths:
    """Where an experiment finds and leaves its files.

    Attributes:
        source: folder with the files of the data.
        work: folder for stores and trained models.
        results: folder for results, <preset>/<seed>.csv.
    """

    source: Path
    work: Path
    results: Path

    def result(self, name: str, seed: int) -> Path:
        """Return the file of one preset and seed."""
        return self.results / name / f"{seed}.csv"

    def run(self, name: str, seed: int) -> Path:
        """Return the folder of one preset that was trained with one seed."""
        return self.work / "runs" / name / str(seed)
