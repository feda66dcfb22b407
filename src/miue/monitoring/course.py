"""The course of a deployed model over the bags that came since its calibration."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.calibration.calibration import Calibration
from miue.calibration.compared import compared_uncertainties
from miue.common.errors import ConfigError, DataError, lacking, out_of_range, unknown_name
from miue.common.result_table import PrintsAsTable, ResultTable
from miue.common.seeds import derive_seed
from miue.monitoring.martingale import log_martingale, online_p_values
from miue.predictions.table import PredictionTable

CHANCE = 0.01


@dataclass(frozen=True)
class Batch:
    """Bags that came together, in their order.

    Attributes:
        name: such as a day, a folder or a shard.
        ids: of the bags.
        patients: of the bags, "" where unknown.
        values: uncertainties of the bags by name.
    """

    name: str
    ids: tuple[str, ...]
    patients: tuple[str, ...]
    values: dict[str, Float64[np.ndarray, "n"]]

    @classmethod
    def of(cls, name: str, table: PredictionTable, scores: Collection[str]) -> Batch:
        """Return the bags of a table of predictions with the uncertainties that are watched.

        Raises:
            DataError: an uncertainty that the table does not have, or that is not a number.
        """
        values = compared_uncertainties(table)
        ids = tuple(map(str, table.bag_ids))
        for score in scores:
            if score not in values:
                raise DataError(
                    item=f"the predictions {name!r}",
                    wanted=f"the uncertainty {score!r}, which is watched",
                    got=", ".join(values),
                    fix="predict with the calibrated model, or name the uncertainties to watch with --score",
                )
            unknown = np.flatnonzero(np.isnan(values[score]))
            if len(unknown):
                raise DataError(
                    item=f"bag {ids[unknown[0]]!r} of {name!r}",
                    wanted=f"a number as {score}",
                    got="nan",
                    fix="predict this bag again, or leave it out",
                )
        patients = ("",) * len(ids) if table.patients is None else tuple(p or "" for p in table.patients)
        return cls(name, ids, patients, {score: values[score] for score in scores})


@dataclass(frozen=True, repr=False)
class Course(PrintsAsTable):
    """Evidence against "these bags are like those of the calibration", after each bag.

    Attributes:
        scores: the uncertainties that are watched.
        chance: of an alarm ever, as long as nothing changes.
        calibrated: calibration bags that new ones are compared with.
        batches: of the bags, in their order.
        counted: whether each bag of all batches is counted; of a patient, only the first bag is.
        batch_of: position of the batch of each counted bag.
        ids: of the counted bags.
        log10_evidence: of each score after each counted bag.
    """

    scores: tuple[str, ...]
    chance: float
    calibrated: int
    batches: tuple[Batch, ...]
    counted: Bool[np.ndarray, "all"]
    batch_of: Int64[np.ndarray, "n"]
    ids: tuple[str, ...]
    log10_evidence: Float64[np.ndarray, "n K"]

    @property
    def log10_limit(self) -> float:
        """Evidence of one score that is an alarm: log10 of the number of scores over the chance."""
        return float(np.log10(len(self.scores) / self.chance))

    @cached_property
    def alarms(self) -> dict[str, str]:
        """The bag at which each score gave its first alarm; none of one that gave none."""
        above = self.log10_evidence >= self.log10_limit
        return {
            score: self.ids[int(above[:, column].argmax())]
            for column, score in enumerate(self.scores)
            if above[:, column].any()
        }

    @property
    def alarm_batch(self) -> str | None:
        """The batch of the first alarm of all; None without one."""
        rows = np.flatnonzero((self.log10_evidence >= self.log10_limit).any(1))
        return self.batches[int(self.batch_of[rows[0]])].name if len(rows) else None

    def highest(self) -> tuple[str, float]:
        """Return the score with the most evidence at any time, and its base-10 logarithm."""
        column = int(self.log10_evidence.max(0).argmax())
        return self.scores[column], float(self.log10_evidence[:, column].max())

    def __str__(self) -> str:
        """Return the state as a sentence."""
        batches = "1 batch" if len(self.batches) == 1 else f"{len(self.batches):,} batches"
        bags = f"{len(self.ids):,} bags in {batches}"
        compared = f"compared with {self.calibrated:,} calibration bags"
        if self.alarm_batch is not None:
            return f"Alarm since {self.alarm_batch}: {bags}, {compared}. They differ in {', '.join(self.alarms)}."
        score, evidence = self.highest()
        strongest = f"The strongest evidence was 10^{evidence:.1f} ({score})"
        return f"No alarm: {bags}, {compared}. {strongest}; 10^{self.log10_limit:.1f} would be an alarm."

    def tables(self) -> list[ResultTable]:
        """Return a row for each batch: its bags, the strongest evidence at its end, and its alarms."""
        rows = []
        for position, batch in enumerate(self.batches):
            of_batch = np.flatnonzero(self.batch_of == position)
            last = self.log10_evidence[of_batch[-1]] if len(of_batch) else None
            raised = [score for score, bag in self.alarms.items() if bag in {self.ids[row] for row in of_batch}]
            rows.append(
                (
                    batch.name,
                    f"{len(batch.ids):,}",
                    f"{len(of_batch):,}",
                    "—" if last is None else f"10^{last.max():.1f}",
                    "—" if last is None else self.scores[int(last.argmax())],
                    ", ".join(raised) or "—",
                )
            )
        note = (
            f"Evidence against the bags being like the {self.calibrated:,} calibration bags; an alarm at "
            f"10^{self.log10_limit:.1f}. As long as nothing changes, the chance of an alarm ever is at most "
            f"{self.chance:g}."
        )
        return [ResultTable(("batch", "bags", "counted", "evidence", "of", "first alarm"), tuple(rows), (note,))]


def monitor(
    calibration: Calibration,
    batches: Sequence[Batch],
    *,
    scores: Sequence[str] | None = None,
    chance: float = CHANCE,
    seed: int = 0,
) -> Course:
    """Return the evidence, after each bag, that bags are no longer like those of the calibration.

    Each uncertainty has a conformal martingale of its own, which bets on values that are too high as well as on
    those that are too low. An alarm is raised where one reaches K / chance, K being the number of uncertainties:
    the chance that this ever happens without a change is at most ``chance`` (Ville's inequality, and Bonferroni's
    over uncertainties), however often one looks. Labels are not read.

    Of each patient only the first bag counts, as bags of one patient are alike.

    Args:
        calibration: keeps the uncertainties of its bags.
        batches: in the order in which they came, of uncertainties that the calibration has.
        scores: the uncertainties to watch; all that the calibration has by default.
        chance: of an alarm ever, as long as nothing changes, in (0, 1).
        seed: of the draws that break ties.

    Raises:
        ConfigError: an uncertainty that the calibration does not have, or a chance outside (0, 1).
        DataError: no bags, or one twice.
    """
    if not 0 < chance < 1:
        raise out_of_range("the chance of a false alarm", "between 0 and 1", chance)
    watched = watched_scores(calibration, scores)
    patients = [patient for batch in batches for patient in batch.patients]
    ids = [name for batch in batches for name in batch.ids]
    if not ids:
        raise lacking("the batches", "at least one bag", "pass predictions")
    if len(set(ids)) < len(ids):
        twice = next(name for row, name in enumerate(ids) if name in ids[:row])
        raise DataError(
            item=f"bag {twice!r}", wanted="every bag once", got="it twice", fix="leave one of them out"
        )
    first_of = {patient: row for row, patient in reversed(list(enumerate(patients)))}
    counted = np.array([not patient or first_of[patient] == row for row, patient in enumerate(patients)])
    batch_of = np.repeat(np.arange(len(batches)), [len(batch.ids) for batch in batches])[counted]
    evidence = np.empty((int(counted.sum()), len(watched)))
    for column, score in enumerate(watched):
        values = np.concatenate([batch.values[score] for batch in batches])[counted]
        random = np.random.default_rng(derive_seed(seed, column))
        p_values = online_p_values(calibration.usual[score], values.tolist(), random)
        evidence[:, column] = log_martingale(p_values) / np.log(10)
    return Course(
        scores=watched,
        chance=chance,
        calibrated=len(calibration.usual[watched[0]]),
        batches=tuple(batches),
        counted=counted,
        batch_of=batch_of,
        ids=tuple(name for name, is_counted in zip(ids, counted, strict=True) if is_counted),
        log10_evidence=evidence,
    )


def watched_scores(calibration: Calibration, scores: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the uncertainties to watch: those named, or all of which the calibration keeps values.

    Raises:
        ConfigError: one that the calibration does not have, or a calibration without values.
    """
    if not calibration.usual:
        raise ConfigError(
            item="the calibration",
            wanted="the uncertainties of its bags",
            got="none",
            fix="calibrate again: miue calibrate RUN STORE",
        )
    for score in scores or ():
        if score not in calibration.usual:
            raise unknown_name("uncertainty", score, calibration.usual)
    return tuple(scores or calibration.usual)
