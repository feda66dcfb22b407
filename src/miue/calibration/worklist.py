"""A worklist: which slides a person should look at first, and why, in words. No label is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from miue.bags.classes import numbered_classes
from miue.calibration.calibration import Calibration, applied_calibration, describe_flags
from miue.calibration.false_alarms import PREFERRED_SCORES
from miue.calibration.reasons import (
    DEFERRED,
    EMPTY,
    FLAGGED,
    REASONS,
    count_instances,
    distance_name,
    judge,
)
from miue.common.errors import StorageError
from miue.common.files import atomic_file, json_text, read_json
from miue.common.tables import write_rows
from miue.common.text import escape_formula
from miue.common.values import checked
from miue.predictions import ERROR_PROBABILITY, Predictions, check_not_empty, describe_scores
from miue.settings import Limits

LIMITS = ("judged", "not judged", "order", "columns")
"""What the file of a worklist's limits has at least."""

TOO_MANY = 0.3  # share of slides that are first, from which a list no longer orders the work


@dataclass(frozen=True)
class Worklist:
    """Slides, or patients, in the order in which they should be seen.

    Attributes:
        rows: one per slide or patient, each with the same keys.
        judged: reason and where it begins, in words.
        not_judged: reason and why nothing can be said of it.
        order: what the slides of one reason are ordered by, in words.
        flags: by which rule patches were flagged and what is promised, in words; "" where none were.
        columns: what the numbers of each uncertainty say, by its name in the rows.
        none_accepted: why the calibration accepts no bag, and what would help; "" where it may accept some.
        per: what a row is of, and the column of its name: "slide", or what all slides of a bag share.
    """

    rows: list[dict[str, Any]]
    judged: dict[str, str]
    not_judged: dict[str, str] = field(default_factory=dict)
    order: str = ""
    flags: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    none_accepted: str = ""
    per: str = "slide"

    @property
    def warning(self) -> str:
        """What is to be said of a list that judges nothing, or on which too many slides are first; else empty."""
        if not self.judged:
            return "No bag could be judged, so all are routine: set a limit, or calibrate first."
        share = f"{self._first:,} of {len(self.rows):,} bags ({self._first / len(self.rows):.0%})"
        advice = f"{share} are first, so the order is of little help: {self.advice}." if self.advice else ""
        return self.none_accepted or advice

    @property
    def _first(self) -> int:
        return sum(row["look"] == "first" for row in self.rows)

    @property
    def advice(self) -> str:
        """Why too many slides may be first, and what to do; empty where few are."""
        if self.none_accepted or self._first <= TOO_MANY * len(self.rows):
            return ""
        of = "calibration" if {FLAGGED, DEFERRED, EMPTY} & set(self.judged) else "validation"
        return f"these bags may differ from the {of} bags, or the limits do not suit them"


@checked()
def worklist(predictions: Predictions, limits: Limits | Mapping[str, Any] | None = None) -> Worklist:
    """Return the slides, the most pressing reason first, and for each reason the most out of distribution first.

    Where the predictions were decided on by a calibration, it alone says which slides are first: those that are
    not accepted, and those with an empty prediction set; where it accepts none, the most uncertain come first.
    Else a slide is first where it stands out from the bags that the model was validated on, or exceeds a limit.

    Args:
        predictions: of bags; patches are counted where there are instances.
        limits: where each reason begins, for predictions without a calibration.

    Raises:
        DataError: there is no bag.
        ConfigError: limits for decided predictions, or something else than predictions or limits.

    >>> import miue
    >>> bags = [np.random.default_rng(i).normal(size=(3, 4)) for i in range(20)]
    >>> model = miue.train(bags, [i % 2 for i in range(20)], settings={"max_epochs": 1}, progress=False)
    >>> far = np.full((3, 4), 50.0)
    >>> worklist(model.predict([*bags, far])).rows[0]["reason"].split(" (")[0]
    'far from training data'
    """
    check_not_empty(predictions)
    limits = Limits.of(limits)
    table = predictions.bags
    known, count = predictions.provenance.classes, table.distribution.num_classes
    names = known if len(known) == count else numbered_classes(count)  # as decisions name them
    judgments = judge(predictions, limits)
    flags = {reason: one.flags for reason, one in judgments.items() if one.flags is not None}
    rules = applied_calibration(predictions.provenance)
    none_accepted = "" if rules is None else rules.warning
    ood_score = _ood_score(predictions, rules)
    score = rules.deferral.measure if rules and rules.deferral and none_accepted else ood_score
    shown = {name: table.uncertainty(name) for name in _shown(table.uncertainty_names, score, ood_score)}
    predicted, words = table.predicted, table.described()
    said = (
        {**table.predicted_values(), **table.decided_values()}
        if words
        else {"probability": table.probabilities.max(1)}
    )
    counts, flagged = count_instances(predictions), _flag_counts(predictions)
    patients = table.patients if table.patients is not None and table.patients.any() else None
    per = predictions.provenance.bag_per or Worklist.per
    held = {} if per == Worklist.per or predictions.instances is None else predictions.instances.slides_of_bags()
    rows: list[dict[str, Any]] = []
    order = np.lexsort((-shown["entropy"], -shown[score], _pressing(flags, len(table))))
    for i in order:
        reasons = [reason for reason in REASONS if reason in flags and flags[reason][i]]
        rows.append(
            {
                "order": len(rows) + 1,
                per: str(table.bag_ids[i]),
                **({"slides": len(held[str(table.bag_ids[i])])} if held else {}),
                **({} if patients is None else {"patient": str(patients[i])}),
                "look": "first" if reasons else "routine",
                "reason": "; ".join(judgments[reason].words[i] for reason in reasons),
                **({} if table.decisions is None else {"decision": str(table.decisions.decision[i])}),
                "predicted": words[i] if words else names[predicted[i]],
                **{name: float(values[i]) for name, values in said.items()},
                "patches": None if counts is None else int(counts[i]),
                **({} if flagged is None else {"flagged_patches": int(flagged[i])}),
                **{name: float(values[i]) for name, values in shown.items()},
            }
        )
    described = describe_scores(table.uncertainty_names)
    return Worklist(
        rows,
        judged={reason: one.limit for reason, one in judgments.items() if one.flags is not None},
        not_judged={reason: one.limit for reason, one in judgments.items() if one.flags is None},
        order=f"within a reason the highest {score} first",
        flags=describe_flags(predictions.provenance),
        columns={name: described[name]["text"] for name in shown},
        none_accepted=none_accepted,
        per=per,
    )


def limits_file(path: Path) -> Path:
    """Return the file beside the worklist ``path`` that its limits are written to.

    Raises:
        StorageError: it is the worklist itself, or holds something else, which is not replaced.
    """
    limits = path.with_suffix(".json")
    if limits == path:
        wanted, fix = "a CSV file, beside which the limits are written as .json", f"name it {path.stem}.csv"
        raise StorageError(item=f"output {str(path)!r}", wanted=wanted, got="the name of the limits", fix=fix)
    if limits.is_file() and not set(LIMITS) <= set(read_json(limits, what="limits of a worklist")):
        item, got = f"output {str(limits)!r}, the limits of {str(path)!r}", "a file of something else"
        wanted = "a new file, or the limits of an earlier worklist"
        raise StorageError(item=item, wanted=wanted, got=got, fix="choose another name")
    return limits


@checked()
def write_worklist(path: Path | str, given: Worklist) -> None:
    """Write the worklist as CSV, and its limits beside it as .json: both whole, or neither.

    It is meant for a spreadsheet: text that one would take for a formula gets an apostrophe before it.

    Raises:
        StorageError: a file cannot be written, or that of the limits holds something else.
    """
    path = Path(path)
    limits = dict(zip(LIMITS, (given.judged, given.not_judged, given.order, given.columns), strict=True))
    said = {name: text for name, text in (("flags", given.flags), ("warning", given.warning)) if text}
    with atomic_file(limits_file(path)) as temporary:  # its room is taken before the list is there
        temporary.write_text(json_text({**limits, **said}), "utf-8")
        write_rows(path, list(given.rows[0]), [list(map(_cell, row.values())) for row in given.rows])


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return escape_formula(value)
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _ood_score(predictions: Predictions, rules: Calibration | None) -> str:
    """Return what orders slides: the calibrated out-of-distribution score, else a distance, else vacuity."""
    known = predictions.bags.uncertainty_names
    alarms = None if rules is None else rules.false_alarms
    wanted = (alarms and alarms.score, distance_name(predictions.bags), *PREFERRED_SCORES)
    return next(str(name) for name in wanted if name in known)


def _shown(known: Sequence[str], *scores: str) -> list[str]:
    names = [ERROR_PROBABILITY, "entropy", "expected_entropy", "mutual_information", *scores]
    return list(dict.fromkeys(name for name in names if name in known))


def _pressing(flags: Mapping[str, Bool[np.ndarray, "n"]], count: int) -> Int64[np.ndarray, "n"]:
    """Return the place of each slide's most pressing reason, one more than the last for none."""
    places = np.full(count, len(REASONS))
    for place, reason in reversed(list(enumerate(REASONS))):
        if reason in flags:
            places[flags[reason]] = place
    return places


def _flag_counts(predictions: Predictions) -> Int64[np.ndarray, "n"] | None:
    """Return the flagged patches of each slide, None where instances were not calibrated."""
    if predictions.instances is None or not describe_flags(predictions.provenance):
        return None
    counts = predictions.instances.flagged_by_bag()
    if counts is None:
        return None
    return np.array([counts.get(name, 0) for name in predictions.bags.bag_ids.astype(str).tolist()], np.int64)
