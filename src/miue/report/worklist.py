"""A worklist: which slides a person should look at first, and why, in words. No label is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from miue.calibration import applied_calibration, describe_flags
from miue.calibration.false_alarms import PREFERRED_SCORES
from miue.common.errors import ConfigError, StorageError
from miue.common.escapes import escape_formula
from miue.common.files import read_json, write_json
from miue.common.tables import write_rows
from miue.pathology.export.patches import class_names
from miue.predictions.error_model import ERROR_PROBABILITY
from miue.predictions.folder import Predictions
from miue.predictions.table import PredictionTable
from miue.report.summaries import described_measures

FLAGGED, DEFERRED = "called out of distribution", "deferred"
BETWEEN, UNSURE, FAR, FEW = "in between classes", "model unsure", "far from training data", "few patches"
REASONS = (FLAGGED, FAR, DEFERRED, UNSURE, BETWEEN, FEW)
"""The most pressing first: far from the training data, even a confident prediction may mean nothing."""

LIMITS = ("judged", "not judged", "order", "columns")
"""What the file of a worklist's limits has at least."""

QUANTILE = 0.95  # of the validation bags, from which a slide stands out
UNLIKE = {"statistics_mean": "looks unlike", "knn_mean": "means unlike"}
FEWEST = 10  # slides whose median says what is usual
TOO_MANY = 0.3  # share of slides that are first, from which a list no longer orders the work


@dataclass(frozen=True)
class Limits:
    """Where each reason begins, for predictions without a calibration; None takes it from the validation bags.

    Attributes:
        probability: a predicted class less probable than this is in between classes.
        model: mutual information in nats above which the model is unsure.
        distance: distance score above which a slide is far from the training data.
        patches: a slide of fewer patches has few.
        quantile: share of the validation bags that a limit of None leaves below it.
    """

    probability: float | None = None
    model: float | None = None
    distance: float | None = None
    patches: int | None = None
    quantile: float = QUANTILE

    def __post_init__(self) -> None:
        negative = [value for value in (self.model, self.patches) if value is not None and value < 0]
        if negative or not 0 <= (self.probability or 0) <= 1 or not 0.5 <= self.quantile <= 1:
            raise ConfigError(
                item="the worklist's limits",
                wanted="a probability from 0 to 1, a quantile from 0.5 to 1, no negative nats or patches",
                got=f"probability {self.probability}, quantile {self.quantile}, model {self.model}, "
                f"patches {self.patches}",
                fix="correct the option",
            )

    @property
    def given(self) -> list[str]:
        """The options that differ from the default, as the command names them."""
        named = {"min-probability": self.probability, "max-epistemic": self.model, "max-distance": self.distance}
        named |= {"min-patches": self.patches, "quantile": None if self.quantile == QUANTILE else self.quantile}
        return [f"--{name} {value:g}" for name, value in named.items() if value is not None]


@dataclass(frozen=True)
class Worklist:
    """Slides in the order in which they should be seen.

    Attributes:
        rows: one per slide, each with the same keys.
        judged: reason and where it begins, in words.
        not_judged: reason and why nothing can be said of it.
        order: what the slides of one reason are ordered by, in words.
        flags: by which rule patches were flagged and what is promised, in words; "" where none were.
        columns: what the numbers of each uncertainty say, by its name in the rows.
    """

    rows: list[dict[str, Any]]
    judged: dict[str, str]
    not_judged: dict[str, str] = field(default_factory=dict)
    order: str = ""
    flags: str = ""
    columns: dict[str, str] = field(default_factory=dict)

    @property
    def warning(self) -> str:
        """What is to be said of a list that judges nothing, or on which too many slides are first; else empty."""
        if not self.judged:
            return (
                "no slide could be judged, so that all are routine: give a limit, such as --min-probability, or "
                "calibrate first"
            )
        first, count = sum(row["look"] == "first" for row in self.rows), len(self.rows)
        share = f"{first:,} of {count:,} slides ({first / count:.0%})"
        return f"{share} are first, so that the list hardly orders the work: {self.advice}" if self.advice else ""

    @property
    def advice(self) -> str:
        """Why too many slides may be first, and what to do; empty where few are."""
        if sum(row["look"] == "first" for row in self.rows) <= TOO_MANY * len(self.rows):
            return ""
        calibrated = FLAGGED in self.judged or DEFERRED in self.judged
        if calibrated:
            return (
                "the new slides may not be like the calibration bags, or the calibration accepts few bags at all"
            )
        return (
            "these slides may not be like the validation bags, or the limits do not suit them; "
            "miue calibrate sets limits with a stated guarantee"
        )


def worklist(predictions: Predictions, limits: Limits | None = None) -> Worklist:
    """Return the slides, the most pressing reason first, and for each reason the most out of distribution first.

    Where the predictions were decided on by a calibration, its decisions alone say which slides are first. Else a
    slide is first where it stands out from the bags that the model was validated on, or exceeds a limit that is
    given.

    Args:
        predictions: of bags; patches are counted where there are instances.
        limits: where each reason begins, for predictions without a calibration.

    Raises:
        ConfigError: limits for decided predictions.

    >>> import miue
    >>> bags = [np.random.default_rng(i).normal(size=(3, 4)) for i in range(20)]
    >>> model = miue.train(bags, [i % 2 for i in range(20)], settings={"max_epochs": 1}, progress=False)
    >>> far = np.full((3, 4), 50.0)
    >>> worklist(model.predict([*bags, far])).rows[0]["reason"].split(" (")[0]
    'far from training data'
    """
    limits = limits or Limits()
    table, names = predictions.bags, class_names(predictions)
    flags, words, judged, not_judged = _judge(predictions, limits)
    uncertainties = table.uncertainties()
    predicted, entropy = table.predicted, uncertainties["entropy"]
    name = _ood_score(predictions)
    pressing, score = _pressing(flags, len(table)), uncertainties[name]
    counts, flagged = _patch_counts(predictions), _flag_counts(predictions)
    most = table.probabilities.max(1)
    rows: list[dict[str, Any]] = []
    for i in np.lexsort((-entropy, -score, pressing)):
        rows.append(
            {
                "order": len(rows) + 1,
                "slide": str(table.bag_ids[i]),
                "look": "first" if any(flags[r][i] for r in flags) else "routine",
                "reason": "; ".join(words[r][i] for r in REASONS if r in flags and flags[r][i]),
                **({} if table.decisions is None else {"decision": str(table.decisions.decision[i])}),
                "predicted": names[predicted[i]],
                "probability": float(most[i]),
                "patches": None if counts is None else int(counts[i]),
                **({} if flagged is None else {"flagged_patches": int(flagged[i])}),
                **{key: float(uncertainties[key][i]) for key in _shown(uncertainties, name)},
            }
        )
    order = f"within a reason the highest {name} first"
    described = described_measures([table])
    columns = {key: described[key]["text"] for key in _shown(uncertainties, name)}
    return Worklist(rows, judged, not_judged, order, describe_flags(predictions.provenance), columns)


def limits_file(path: Path) -> Path:
    """Return the file beside the worklist ``path`` that its limits are written to.

    Raises:
        StorageError: it is the worklist itself, or holds something else, which is not replaced.
    """
    limits = path.with_suffix(".json")
    if limits == path:
        raise StorageError(
            item=f"output {str(path)!r}",
            wanted="a CSV file, beside which the limits are written as .json",
            got="the name of the limits",
            fix=f"name it {path.with_suffix('.csv').name!r}",
        )
    if limits.is_file() and not set(LIMITS) <= set(read_json(limits, what="limits of a worklist")):
        raise StorageError(
            item=f"output {str(limits)!r}, the limits of {str(path)!r}",
            wanted="a new file, or the limits of an earlier worklist",
            got="a file of something else",
            fix="choose another --out",
        )
    return limits


def write_worklist(path: Path | str, given: Worklist) -> None:
    """Write the worklist as CSV, whole or not at all, and its limits beside it as .json.

    It is meant for a spreadsheet: text that one would take for a formula gets an apostrophe before it.

    Raises:
        StorageError: a file cannot be written, or that of the limits holds something else.
    """
    path = Path(path)
    beside = limits_file(path)
    write_rows(path, list(given.rows[0]), [list(map(_cell, row.values())) for row in given.rows])
    limits = dict(zip(LIMITS, (given.judged, given.not_judged, given.order, given.columns), strict=True))
    said = {name: text for name, text in (("flags", given.flags), ("warning", given.warning)) if text}
    write_json(beside, {**limits, **said})


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return escape_formula(value)
    return f"{value:.6g}" if isinstance(value, float) else value


Judgement = tuple[dict[str, Bool[np.ndarray, "n"]], dict[str, list[str]], dict[str, str], dict[str, str]]


def _judge(predictions: Predictions, limits: Limits) -> Judgement:
    """Return, per reason: which slides have it, the words for each slide, its limit, or why it is not judged."""
    rules = _deciding(predictions)
    if not rules:
        return _by_limits(predictions, limits)
    if limits.given:
        raise ConfigError(
            item="the worklist's limits",
            wanted="none: the decisions of the calibration say which slides are first",
            got=", ".join(limits.given),
            fix="leave them out, or export predictions that were made without a calibration",
        )
    decisions = predictions.bags.decisions
    assert decisions is not None
    flags = {FLAGGED: decisions.flagged, DEFERRED: decisions.deferred}
    words = {name: [f"{name} ({why})" for why in decisions.reason] for name in flags}
    judged = dict.fromkeys(rules, "as the calibration decided")
    return flags, words, judged, {n: "the calibration has no such rule" for n in flags if n not in rules}


def _deciding(predictions: Predictions) -> list[str]:
    """Return the reasons that a calibration decided on; both where there are decisions and no rules."""
    if predictions.bags.decisions is None:
        return []
    rules = applied_calibration(predictions.provenance)
    if rules is None:
        return [FLAGGED, DEFERRED]
    return [name for name, part in ((FLAGGED, rules.false_alarms), (DEFERRED, rules.deferral)) if part is not None]


def _by_limits(predictions: Predictions, limits: Limits) -> Judgement:
    """Return what limits say that are given, or that the validation bags of the model set."""
    table = predictions.bags
    values, most = table.uncertainties(), table.probabilities.max(1)
    usual = predictions.provenance.validation
    whose = "" if usual is None else f"quantile of the {usual.bags:,} validation bags"
    said = f"the {limits.quantile:.4g} {whose}"
    unknown = "no limit was given, and the predictions do not say what the model was validated on"
    calibrated = applied_calibration(predictions.provenance) is not None
    why = "the calibration has no such rule" if calibrated else "the model is not calibrated"
    not_judged = dict.fromkeys((FLAGGED, DEFERRED), why)
    flags: dict[str, Bool[np.ndarray, "n"]] = {}
    words: dict[str, list[str]] = {}
    judged: dict[str, str] = {}

    def limit_of(name: str, given: float | None) -> tuple[float | None, str]:
        found = None if usual is None else usual.uncertainty(name, limits.quantile)
        return (found, said) if given is None else (given, "as given")

    least = None if limits.probability is None else 1 - limits.probability
    unsure, how = limit_of("least_confidence", least)
    if unsure is None:
        not_judged[BETWEEN] = unknown
    else:
        flags[BETWEEN] = 1 - most > unsure
        words[BETWEEN] = [f"{BETWEEN} (probability {p:.2f} < {1 - unsure:.3g})" for p in most]
        judged[BETWEEN] = f"the predicted class has a probability below {1 - unsure:.4g}, {how}"
    of_model, how = limit_of("mutual_information", limits.model)
    if "mutual_information" not in values:
        not_judged[UNSURE] = "the method gives one softmax, which does not tell model from data uncertainty"
    elif of_model is None:
        not_judged[UNSURE] = unknown
    else:
        model = values["mutual_information"]
        flags[UNSURE] = model > of_model
        words[UNSURE] = [f"{UNSURE} (mutual information {v:.3g} > {of_model:.3g} nats)" for v in model]
        judged[UNSURE] = f"mutual information above {of_model:.4g} nats, {how}"
    name = _distance_name(table)
    far, how = (None, "") if name is None else limit_of(name, limits.distance)
    if name is not None and far is None and len(table) >= FEWEST:
        far, how = _far_from(np.asarray(table.scores[name]))
    if name is None:
        not_judged[FAR] = "the predictions carry no distance score"
    elif far is None:
        not_judged[FAR] = f"{unknown}; there are fewer than {FEWEST} slides to compare with each other"
    else:
        distance = np.asarray(table.scores[name])
        flags[FAR] = distance > far
        sides = _unlike(table, lambda score: limit_of(score, None)[0])
        words[FAR] = [f"{FAR} ({name} {v:.3g} > {far:.3g}{s})" for v, s in zip(distance, sides, strict=True)]
        judged[FAR] = f"{name} above {far:.4g}, {how}"
    counts = _patch_counts(predictions)
    few = limits.patches if usual is None or limits.patches is not None else usual.size(1 - limits.quantile)
    if counts is None:
        not_judged[FEW] = "the predictions hold no instances"
    elif few is None:
        not_judged[FEW] = unknown
    else:
        flags[FEW] = counts < few
        words[FEW] = [f"{FEW} ({n} < {few:.4g})" for n in counts]
        below = "as given" if limits.patches is not None else f"the {1 - limits.quantile:.4g} {whose}"
        judged[FEW] = f"fewer than {few:.4g} patches, {below}"
    return flags, words, judged, not_judged


def _unlike(table: PredictionTable, limit_of: Callable[[str], float | None]) -> list[str]:
    """Return in which respect each slide is far, where its looks and its meaning are scored apart."""
    sides = [""] * len(table)
    if not all(name in table.scores for name in UNLIKE):
        return sides
    for name, words in UNLIKE.items():
        limit = limit_of(name)
        if limit is not None:
            above = np.asarray(table.scores[name]) > limit
            sides = [f"{side}, {words}" if far else side for side, far in zip(sides, above, strict=True)]
    return sides


def _far_from(distance: Float64[np.ndarray, "n"]) -> tuple[float, str]:
    middle = float(np.median(distance))
    spread = float(np.median(np.abs(distance - middle)))
    return middle + 5 * spread, "the median of these slides plus five median absolute deviations"


def _distance_name(table: PredictionTable) -> str | None:
    """Return the bags' distance to the training data, the mean before the high quantile."""
    names = sorted(table.scores, key=lambda name: (_order(name), not name.endswith("_mean"), name))
    return next((name for name in names if name.endswith(("_mean", "_high"))), None)


def _order(name: str) -> int:
    first = ("combined", "knn")
    return next((place for place, kind in enumerate(first) if name.startswith(kind)), len(first))


def _ood_score(predictions: Predictions) -> str:
    """Return what orders slides: the calibrated out-of-distribution score, else a distance, else vacuity."""
    known = predictions.bags.uncertainty_names
    rules = applied_calibration(predictions.provenance)
    alarms = None if rules is None else rules.false_alarms
    wanted = (alarms and alarms.score, _distance_name(predictions.bags), *PREFERRED_SCORES)
    return next(str(name) for name in wanted if name in known)


def _shown(uncertainties: Mapping[str, Any], ood_score: str) -> list[str]:
    names = [ERROR_PROBABILITY, "entropy", "expected_entropy", "mutual_information", ood_score]
    return list(dict.fromkeys(name for name in names if name in uncertainties))


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
    row_of = {name: row for row, name in enumerate(predictions.bags.bag_ids.astype(str).tolist())}
    counts = np.zeros(len(row_of), np.int64)
    for part in predictions.instances.parts():
        if part.flagged is None:
            return None
        bags = part.rows_of_bags()
        rows = np.array([row_of[name] for name in bags.names], np.int64)[bags.bag]
        counts += np.bincount(rows[part.flagged], minlength=len(counts))
    return counts


def _patch_counts(predictions: Predictions) -> np.ndarray | None:
    if predictions.instances is None:
        return None
    sizes = predictions.instances.bag_sizes()
    return np.array([sizes.get(name, 0) for name in predictions.bags.bag_ids.astype(str)], np.int64)
