"""The course of a deployed model over the bags that came since its calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.calibration.calibration import Calibration
from miue.calibration.class_mix import CLASS_MIX, MixEstimate, estimate_mix
from miue.calibration.monitoring.batch import Batch, reference_values, watched_scores
from miue.calibration.monitoring.martingale import log_martingale, online_p_values, power_bets, step_bets
from miue.calibration.ranks import Share
from miue.common.errors import DataError, lacking
from miue.common.seeds import derive_seed
from miue.common.text import PrintsAsTable, ResultTable, plural
from miue.common.values import checked
from miue.predictions import WEIGHTED_FOR

CHANCE = 0.01
MIX_SHARE = 0.5
"""Of the chance of a false alarm, for the class mix; the uncertainties share the rest."""

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
ORDER = 1_000_003  # of the seed: no number of a score


@dataclass(frozen=True, repr=False)
class Course(PrintsAsTable):
    """Evidence against "these bags are like those of the calibration", after each bag.

    Attributes:
        scores: what is watched: uncertainties, and the class mix.
        chance: of an alarm ever, as long as nothing changes.
        log10_limits: evidence of each of them that is an alarm: log10 of 1 / its share of the chance.
        calibrated: calibration bags that new ones are compared with.
        reference: what these are, in words.
        classes: their names.
        usual_mix: share of each class among the calibration bags; empty where their labels are not known.
        mix_unknown: why the class mix of new bags is not estimated, "" where it is.
        patients_unknown: why a false alarm is likelier than stated, as patients of bags are not, "" otherwise.
        batches: of the bags, in their order.
        counted: whether each bag of all batches is counted; of a patient, one bag is.
        batch_of: position of the batch of each counted bag.
        mix: of the counted bags of each batch; None without such bags, or where ``mix_unknown``.
        ids: of the counted bags, those of a batch in the order in which they were taken.
        log10_evidence: of each score after each counted bag.
    """

    scores: tuple[str, ...]
    chance: float
    log10_limits: tuple[float, ...]
    calibrated: int
    reference: str
    classes: tuple[str, ...]
    usual_mix: tuple[float, ...]
    mix_unknown: str
    patients_unknown: str
    batches: tuple[Batch, ...]
    counted: Bool[np.ndarray, "all"]
    batch_of: Int64[np.ndarray, "n"]
    mix: tuple[MixEstimate | None, ...]
    ids: tuple[str, ...]
    log10_evidence: Float64[np.ndarray, "n K"]

    @cached_property
    def above(self) -> Bool[np.ndarray, "n K"]:
        """Whether the evidence of each score is an alarm after each counted bag."""
        return self.log10_evidence >= np.array(self.log10_limits)

    @cached_property
    def alarms(self) -> dict[str, str]:
        """The bag at which each score gave its first alarm; none of one that gave none."""
        return {
            score: self.ids[int(self.above[:, column].argmax())]
            for column, score in enumerate(self.scores)
            if self.above[:, column].any()
        }

    @property
    def alarm_batch(self) -> str | None:
        """The batch of the first alarm of all; None without one."""
        rows = np.flatnonzero(self.above.any(1))
        return self.batches[int(self.batch_of[rows[0]])].name if len(rows) else None

    @property
    def only_mix(self) -> bool:
        """Whether there is an alarm, and none but of the class mix."""
        return bool(self.alarms) and all(is_mix(score) for score in self.alarms)

    @property
    def advice(self) -> str:
        """What to do after an alarm; "" without one."""
        if self.only_mix:
            return (
                "Only the class mix differs; the uncertainties raise no alarm. Look at the images all the same, "
                "since another scanner can shift predicted classes, too. If bags of each class look as before, "
                "prediction sets for each class still hold; for the other "
                "guarantees, calibrate again on bags of the new mix."
            )
        if self.alarms:
            return (
                "The guarantees of a calibration hold only for bags like its own. Check scanner, stain, focus, "
                "features and the mix of cases since then, and calibrate again if any of these has changed."
            )
        return ""

    def strongest(self) -> int:
        """Return the position of the score that came nearest to its limit, or exceeded it most."""
        return int((self.log10_evidence - np.array(self.log10_limits)).max(0).argmax())

    @property
    def _shown(self) -> tuple[int, ...]:
        """Classes whose shares are shown: of two the second, of more all."""
        return (1,) if len(self.classes) == 2 else tuple(range(len(self.classes)))

    def describe_mix(self) -> str:
        """Return the estimated class mix of the last batch as a sentence."""
        if self.mix_unknown:
            return f"The class mix is not estimated: {self.mix_unknown}."
        estimate = self.mix[-1]
        if estimate is None:
            return f"The class mix of {self.batches[-1].name} is not estimated: it has no bag that counts."
        shares = "; ".join(
            f"{_called(self.classes[label])} {estimate.percent(label)}, in the calibration {100 * usual:.0f} %"
            for label, usual in enumerate(self.usual_mix)
            if label in self._shown
        )
        bags = plural(estimate.bags, "bag")
        return (
            f"Estimated class mix of {self.batches[-1].name} ({bags}, with 95 % intervals): "
            f"{shares}. This assumes that bags of one class look as they did in the calibration."
            f"{self._doubt(estimate)}"
        )

    def _doubt(self, estimate: MixEstimate) -> str:
        """Return why the assumption of the estimate may not hold; "" where nothing speaks against it."""
        if estimate.impossible:
            return " They seem not to: no mix of the calibration bags fits these predicted classes."
        return (
            " Uncertainties differ, too, so this may not hold here." if self.alarms and not self.only_mix else ""
        )

    def mix_to_json(self) -> dict[str, Any]:
        """Return the share of each class of the calibration and of each batch, or why there is none."""
        if self.mix_unknown:
            return {"unknown": self.mix_unknown}
        return {
            "calibration": dict(zip(self.classes, self.usual_mix, strict=True)),
            "batches": {
                batch.name: None
                if mix is None
                else {
                    name: {"share": share, "low": low, "high": high}
                    for name, share, low, high in zip(self.classes, mix.shares, mix.low, mix.high, strict=True)
                }
                for batch, mix in zip(self.batches, self.mix, strict=True)
            },
        }

    @property
    def headline(self) -> str:
        """The state as one sentence."""
        state = f"Alarm since {self.alarm_batch}" if self.alarms else "No alarm"
        bags = f"{plural(len(self.ids), 'bag')} in {plural(len(self.batches), 'batch')}"
        compared = "differ from the" if self.alarms else "compared with"
        return f"{state}: {bags}{'' if self.alarms else ','} {compared} {self.calibrated:,} {self.reference}."

    def __str__(self) -> str:
        """Return the state, and which scores differ or how near the evidence is to an alarm."""
        if self.alarms:
            return f"{self.headline} They differ in {', '.join(self.alarms)}."
        column = self.strongest()
        evidence = f"{describe_evidence(self.log10_evidence[:, column].max())} ({self.scores[column]})"
        limit = f"{describe_evidence(self.log10_limits[column])} would be one"
        return f"{self.headline} The evidence nearest to an alarm was {evidence}; {limit}."

    def tables(self) -> list[ResultTable]:
        """Return a row for each batch: bags, class mix, the evidence nearest to an alarm at its end, and alarms.

        Of more than two classes, the mix is a table of its own, with a row for each batch and class.
        """
        shown = () if self.mix_unknown else self._shown
        labels = shown if len(shown) == 1 else ()
        rows = []
        for position, batch in enumerate(self.batches):
            of_batch = np.flatnonzero(self.batch_of == position)
            last = self.log10_evidence[of_batch[-1]] if len(of_batch) else None
            column = 0 if last is None else int((last - np.array(self.log10_limits)).argmax())
            raised = [score for score, bag in self.alarms.items() if bag in {self.ids[row] for row in of_batch}]
            mix = self.mix[position]
            rows.append(
                (
                    batch.name,
                    f"{len(batch.ids):,}",
                    f"{len(of_batch):,}",
                    *("—" if mix is None else mix.percent(label) for label in labels),
                    "—" if last is None else describe_evidence(float(last[column])),
                    "—" if last is None else self.scores[column],
                    ", ".join(raised) or "—",
                )
            )
        note = (
            f"Evidence against the bags being like the {self.calibrated:,} {self.reference}; an alarm at "
            f"{self.describe_limits()}. As long as nothing changes, the chance of an alarm ever is at most "
            f"{self.chance:g}."
        )
        shares = (f"share of {self.classes[label]}" for label in labels)
        heading = ("batch", "bags", "counted", *shares, "evidence", "of", "first alarm")
        notes = filter(None, (note, self.patients_unknown, self.describe_mix()))
        table = ResultTable(heading, tuple(rows), tuple(notes))
        return [table] if len(shown) < 2 else [table, self._mix_table()]

    def _mix_table(self) -> ResultTable:
        """Return the share of each class in each batch."""
        rows = (
            (batch.name, name, "—" if mix is None else mix.percent(label))
            for batch, mix in zip(self.batches, self.mix, strict=True)
            for label, name in enumerate(self.classes)
        )
        return ResultTable(("batch", "class", "share"), tuple(rows), ())

    def describe_limits(self) -> str:
        """Return the evidence that is an alarm, in words."""
        limits = {is_mix(score): limit for score, limit in zip(self.scores, self.log10_limits, strict=True)}
        words = [
            f"{describe_evidence(n)}{' of the class mix' if mix else ''}" for mix, n in sorted(limits.items())
        ]
        return " or ".join(words)


@checked()
def monitor(
    calibration: Calibration,
    batches: Sequence[Batch],
    *,
    scores: Sequence[str] | None = None,
    chance: Share = CHANCE,
    seed: int = 0,
) -> Course:
    """Return the evidence, after each bag, that bags are no longer like those of the calibration.

    Each uncertainty, and the probability of the class (of each, if there are more than two), has a conformal
    martingale of its own, which bets on changes in either direction. An alarm is raised where one reaches 1 over
    its share of ``chance``, half of which is the class mix's: the chance that this ever happens without a change
    is at most ``chance`` (Ville's inequality, and Bonferroni's over martingales), however often one looks. Labels
    are not read.

    The bags of a batch are taken in random order, so that a table sorted by class or site is no change. Of each
    patient one bag counts, drawn from the first batch with any, as bags of one patient are alike.

    Args:
        calibration: keeps the uncertainties and the classes of its bags.
        batches: in the order in which they came, of scores that the calibration has.
        scores: the uncertainties to watch, and "class_mix"; all that the calibration has by default.
        chance: of an alarm ever, as long as nothing changes, in (0, 1).
        seed: of the order within batches, and of the draws that break ties.

    Raises:
        ConfigError: an uncertainty that the calibration does not have, or a chance outside (0, 1).
        DataError: no bags, one twice, or a batch without one of the scores.
    """
    watched = watched_scores(calibration, scores)
    patients = [patient for batch in batches for patient in batch.patients]
    ids = [name for batch in batches for name in batch.ids]
    if not ids:
        raise lacking("the batches", "at least one bag", "pass predictions")
    _check_once(batches)
    _check_scores(batches, watched)
    order = _draw_order(batches, seed)
    order = order[_first_of_each([patients[row] for row in order])]
    counted = np.isin(np.arange(len(ids)), order)
    batch_of = np.repeat(np.arange(len(batches)), [len(batch.ids) for batch in batches])[order]
    evidence = np.empty((len(order), len(watched)))
    for column, score in enumerate(watched):
        values = np.concatenate([batch.values[score] for batch in batches])[order]
        random = np.random.default_rng(derive_seed(seed, column))
        p_values = online_p_values(reference_values(calibration, score), values.tolist(), random)
        bets = step_bets if is_mix(score) else power_bets
        evidence[:, column] = log_martingale(p_values, bets) / np.log(10)
    mix = calibration.class_mix
    unknown = "the calibration keeps no classes of its bags" if mix is None else mix.unknown_because
    return Course(
        scores=watched,
        chance=chance,
        log10_limits=_limits(watched, chance),
        calibrated=len(reference_values(calibration, watched[0])),
        reference=WEIGHTED_FOR if calibration.covariate_shift is not None else "calibration bags",
        classes=calibration.class_names,
        usual_mix=() if mix is None else mix.shares,
        mix_unknown=unknown,
        patients_unknown=calibration.made_from.describe_missing_patients(patients, len(ids)),
        batches=tuple(batches),
        counted=counted,
        batch_of=batch_of,
        mix=_estimate_mixes(calibration, batches, counted) if not unknown else (None,) * len(batches),
        ids=tuple(ids[row] for row in order),
        log10_evidence=evidence,
    )


def describe_evidence(log10_evidence: float) -> str:
    """Return an evidence as text: of one far from 1, which is neutral, its first digit and its power of ten.

    >>> describe_evidence(-0.04), describe_evidence(3.68), describe_evidence(4.0), describe_evidence(-3.2)
    ('0.912', '4,790', '10⁴', '6·10⁻⁴')
    """
    if -1 <= log10_evidence < 4:
        return f"{float(f'{10**log10_evidence:.3g}'):,g}"
    digit, power = f"{10 ** (log10_evidence % 1):.0f}", int(log10_evidence // 1)
    digit, power = ("1", power + 1) if digit == "10" else (digit, power)
    return f"{'' if digit == '1' else f'{digit}·'}10{str(power).translate(RAISED)}"


def is_mix(score: str) -> bool:
    """Return whether what is watched is the class mix, or that of one class."""
    return score.startswith(CLASS_MIX)


def _draw_order(batches: Sequence[Batch], seed: int) -> Int64[np.ndarray, "all"]:
    """Return the rows of all bags, batch after batch, those of a batch in an order that no later batch changes."""
    rows, start = [np.zeros(0, np.int64)], 0
    for position, batch in enumerate(batches):
        random = np.random.default_rng(derive_seed(seed, ORDER, position))
        rows.append(start + random.permutation(len(batch.ids)))
        start += len(batch.ids)
    return np.concatenate(rows)


def _first_of_each(patients: Sequence[str]) -> Int64[np.ndarray, "n"]:
    """Return the position of the first bag of each patient, and of every bag of an unknown one."""
    first_of = {patient: row for row, patient in reversed(list(enumerate(patients)))}
    return np.array([row for row, patient in enumerate(patients) if not patient or first_of[patient] == row])


def _check_once(batches: Sequence[Batch]) -> None:
    """Raise a ``DataError`` that names the first bag that came twice, and the batches that have it."""
    batch_of: dict[str, str] = {}
    for batch in batches:
        for name in batch.ids:
            if name in batch_of:
                item, got = f"bag {name!r} of batch {batch.name!r}", f"it in batch {batch_of[name]!r} too"
                fix = "leave one of them out, or give another bag an id of its own"
                raise DataError(item=item, wanted="every bag once", got=got, fix=fix)
            batch_of[name] = batch.name


def _check_scores(batches: Sequence[Batch], watched: Sequence[str]) -> None:
    """Raise a ``DataError`` that names the first batch without one of the scores."""
    for batch in batches:
        for score in watched:
            if score not in batch.values:
                raise DataError(
                    item=f"batch {batch.name!r}",
                    wanted=f"the uncertainty {score!r}, which is watched",
                    got=", ".join(batch.values),
                    fix="pass the same scores to Batch.of and to monitor",
                )


def _limits(scores: Sequence[str], chance: float) -> tuple[float, ...]:
    """Return the limits, between the class mix and the uncertainties by `MIX_SHARE`, and evenly among each."""
    of_mix = [is_mix(score) for score in scores]
    counts = {kind: of_mix.count(kind) for kind in (True, False)}
    shares = {True: MIX_SHARE, False: 1 - MIX_SHARE} if all(counts.values()) else {True: 1.0, False: 1.0}
    return tuple(float(np.log10(counts[kind] / (shares[kind] * chance))) for kind in of_mix)


def _estimate_mixes(
    calibration: Calibration, batches: Sequence[Batch], counted: Bool[np.ndarray, "all"]
) -> tuple[MixEstimate | None, ...]:
    """Return the class mix of the counted bags of each batch; batches of equal counts have the same one."""
    assert calibration.class_mix is not None
    ends = np.cumsum([len(batch.ids) for batch in batches])
    estimates: dict[tuple[int, ...], MixEstimate | None] = {(): None}
    keys = []
    for batch, of_batch in zip(batches, np.split(counted, ends[:-1]), strict=True):
        predicted = batch.predicted[of_batch]
        counts = tuple(np.bincount(predicted).tolist())
        if counts not in estimates:
            estimates[counts] = estimate_mix(calibration.class_mix.confusion, predicted)
        keys.append(counts)
    return tuple(estimates[counts] for counts in keys)


def _called(name: str) -> str:
    """Return how a class is called before a number.

    >>> _called("yes"), _called("1")
    ('yes', 'class 1:')
    """
    return f"class {name}:" if name.isdecimal() else name
