"""Why a slide is to be looked at first: each reason judges all slides, by a calibration or by limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from miue.calibration.calibration import applied_calibration
from miue.common.errors import ConfigError
from miue.common.text import plural
from miue.predictions import MEAN, Predictions, PredictionTable, ValidationQuantiles, distance_of
from miue.settings import Limits

FLAGGED, DEFERRED = "called out of distribution", "deferred"
EMPTY = "empty prediction set"
BETWEEN, UNSURE, FAR, FEW = "in between classes", "model unsure", "far from training data", "few instances"
SPREAD = "spread over intervals"
REASONS = (FLAGGED, FAR, DEFERRED, EMPTY, UNSURE, BETWEEN, SPREAD, FEW)
"""Most urgent first: far from the training data, even a confident prediction may mean nothing."""

QUANTILE = 0.95  # of the validation bags, from which a slide stands out
UNLIKE = {"statistics_mean": "unusual appearance", "knn_mean": "unusual features"}
NO_LIMIT = "no limit was given, and the predictions do not say what the model was validated on"
NO_RULE, NOT_CALIBRATED = "the calibration has no such rule", "the model is not calibrated"
FEWEST = 10  # slides whose median says what is usual


@dataclass(frozen=True)
class Judgment:
    """What one reason says of n slides.

    Attributes:
        limit: where it begins, in words; why nothing can be said of it, where there are no flags.
        flags: the slides that it holds for.
        words: for each slide, the reason and the number behind it.
    """

    limit: str
    flags: Bool[np.ndarray, "n"] | None = None
    words: Sequence[str] = ()


class _Limit(NamedTuple):
    """A number from which a reason holds, None where it is not known, and where it is from."""

    value: float | int | None
    source: str


def judge(predictions: Predictions, limits: Limits) -> dict[str, Judgment]:
    """Return what each reason says, by the calibration that decided or else by limits.

    Raises:
        ConfigError: limits for decided predictions.
    """
    rules, decisions = applied_calibration(predictions.provenance), predictions.bags.decisions
    deciding = {
        FLAGGED: rules is None or rules.false_alarms is not None,
        DEFERRED: rules is None or rules.deferral is not None,
    }
    if decisions is None or not any(deciding.values()):
        undecided = Judgment(NOT_CALIBRATED if rules is None else NO_RULE)
        return {FLAGGED: undecided, DEFERRED: undecided, **_by_limits(predictions, limits)}
    if given := limits.given():
        raise ConfigError(
            item="the worklist's limits",
            wanted="none: the decisions of the calibration say which bags are first",
            got=", ".join(f"{name}={value:g}" for name, value in given.items()),
            fix="leave them out, or pass predictions that were made without a calibration",
        )
    usual = predictions.provenance.validation
    sides = _unlike(predictions.bags, lambda score: None if usual is None else usual.uncertainty(score, QUANTILE))
    judgments = {}
    for reason, flags in ((FLAGGED, decisions.flagged), (DEFERRED, decisions.deferred)):
        of = sides if reason == FLAGGED else [""] * len(flags)
        words = [f"{reason} ({why}{side})" for why, side in zip(decisions.reason, of, strict=True)]
        decided = Judgment("as the calibration decided", flags, words)
        judgments[reason] = decided if deciding[reason] or flags.any() else Judgment(NO_RULE)
    return {**judgments, EMPTY: _empty_set(predictions)}


def _empty_set(predictions: Predictions) -> Judgment:
    """Judge by the prediction sets: an empty one says that no class is probable enough."""
    decisions, rules = predictions.bags.decisions, applied_calibration(predictions.provenance)
    if decisions is None or decisions.prediction_sets is None:
        return Judgment(NOT_CALIBRATED if decisions is None else NO_RULE)
    sets = None if rules is None else rules.prediction_sets
    of = f" (coverage {1 - sets.error:g})" if sets is not None else ""
    most, part = predictions.bags.probabilities.max(1), "class" if predictions.bags.has_classes else "interval"
    words = [f"{EMPTY} (no {part} is probable enough, the highest has {p:.2f})" for p in most]
    return Judgment(f"no {part} is probable enough for the calibrated sets{of}", decisions.empty_sets, words)


def _by_limits(predictions: Predictions, limits: Limits) -> dict[str, Judgment]:
    """Return what each reason says by the limits that are given, or that the validation bags of the model set."""
    table, usual = predictions.bags, predictions.provenance.validation

    def limit_of(given: float | int | None, of: Callable[[ValidationQuantiles], float | None], q: float) -> _Limit:
        if given is not None or usual is None:
            return _Limit(given, "as given")
        source = f"the {q:.4g} quantile of the {usual.bags:,} validation bags"
        if (usual.bags + 1) * (1 - limits.quantile) < 1:  # a bag like these exceeds it more often than asked
            bags = plural(usual.bags, "validation bag")
            source = f"the most extreme of {bags}, too few for the {q:.4g} quantile"
        return _Limit(of(usual), source)

    def of_score(name: str, given: float | None = None) -> _Limit:
        return limit_of(given, lambda one: one.uncertainty(name, limits.quantile), limits.quantile)

    share = 1 - limits.quantile
    least = None if limits.min_probability is None else 1 - limits.min_probability
    few = limit_of(limits.min_patches, lambda one: one.size(share), share)
    between = (BETWEEN, _between_classes(table, of_score("least_confidence", least)))
    if not table.has_classes:
        between = (SPREAD, _spread(table, of_score("entropy")))
    return {
        EMPTY: _empty_set(predictions),
        **dict([between]),
        UNSURE: _model_unsure(table, of_score("mutual_information", limits.max_epistemic)),
        FAR: _far_from_training(table, limits.max_distance, of_score),
        FEW: _few_instances(count_instances(predictions), few),
    }


def _beyond(
    reason: str, limit: _Limit, begins: str, beyond: Bool[np.ndarray, "n"], numbers: Iterable[str]
) -> Judgment:
    """Return the judgment of the slides beyond a limit, with the number of each."""
    return Judgment(f"{begins}, {limit.source}", beyond, [f"{reason} ({number})" for number in numbers])


def _between_classes(table: PredictionTable, limit: _Limit) -> Judgment:
    """Judge by the probability of the predicted class, of which ``limit`` is one minus the least."""
    if limit.value is None:
        return Judgment(NO_LIMIT)
    most, least = table.probabilities.max(1), 1 - limit.value
    numbers = (f"probability {_compared(p, '<', least)}" for p in most)
    begins = f"the predicted class has a probability below {least:.4g}"
    return _beyond(BETWEEN, limit, begins, 1 - most > limit.value, numbers)


def _spread(table: PredictionTable, limit: _Limit) -> Judgment:
    """Judge the distribution over intervals by its entropy, in nats."""
    if limit.value is None:
        return Judgment(NO_LIMIT)
    values = table.uncertainty("entropy")
    numbers = (f"entropy {_compared(v, '>', limit.value)} nats" for v in values)
    return _beyond(SPREAD, limit, f"entropy above {limit.value:.4g} nats", values > limit.value, numbers)


def _model_unsure(table: PredictionTable, limit: _Limit) -> Judgment:
    """Judge by the mutual information, in nats."""
    if "mutual_information" not in table.uncertainty_names:
        return Judgment("a single softmax does not separate epistemic from aleatoric uncertainty")
    if limit.value is None:
        return Judgment(NO_LIMIT)
    values = table.uncertainty("mutual_information")
    numbers = (f"mutual information {_compared(v, '>', limit.value)} nats" for v in values)
    begins = f"mutual information above {limit.value:.4g} nats"
    return _beyond(UNSURE, limit, begins, values > limit.value, numbers)


def _far_from_training(
    table: PredictionTable, given: float | None, limit_of: Callable[[str, float | None], _Limit]
) -> Judgment:
    """Judge by a distance score: above a limit, or else far above those of the other slides."""
    name = distance_name(table)
    if name is None:
        return Judgment("the predictions carry no distance score")
    distance = np.asarray(table.scores[name])
    limit = limit_of(name, given)
    if limit.value is None and len(table) >= FEWEST:
        middle = float(np.median(distance))
        spread = float(np.median(np.abs(distance - middle)))
        limit = _Limit(middle + 5 * spread, "the median of these bags plus five median absolute deviations")
    if limit.value is None:
        return Judgment(f"{NO_LIMIT}; there are fewer than {FEWEST} bags to compare with each other")
    sides = _unlike(table, lambda score: limit_of(score, None).value)
    numbers = [f"{name} {_compared(v, '>', limit.value)}{side}" for v, side in zip(distance, sides, strict=True)]
    return _beyond(FAR, limit, f"{name} above {limit.value:.4g}", distance > limit.value, numbers)


def _compared(value: float, sign: str, limit: float) -> str:
    """Return a value beside its limit, with as many digits, at least three, as show that they differ.

    >>> _compared(0.5, "<", 0.505), _compared(0.10331, ">", 0.10327)
    ('0.5 < 0.505', '0.10331 > 0.10327')
    """
    digits = next((n for n in range(3, 17) if f"{value:.{n}g}" != f"{limit:.{n}g}"), 17)
    return f"{value:.{digits}g} {sign} {limit:.{digits}g}"


def _few_instances(counts: Int64[np.ndarray, "n"] | None, limit: _Limit) -> Judgment:
    """Judge by the number of instances of each bag."""
    if counts is None:
        return Judgment("the predictions hold no instances")
    if limit.value is None:
        return Judgment(NO_LIMIT)
    least = f"{limit.value:,.1f}".removesuffix(".0")
    numbers = (f"{n:,} < {least}" for n in counts)
    return _beyond(FEW, limit, f"fewer than {least} instances", counts < limit.value, numbers)


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


def distance_name(table: PredictionTable) -> str | None:
    """Return the bags' distance to the training data, the mean before the high quantile."""
    first = ("combined", "knn")
    place = {name: next((i for i, kind in enumerate(first) if name.startswith(kind)), 2) for name in table.scores}
    names = sorted(table.scores, key=lambda name: (place[name], not name.endswith(MEAN), name))
    return next((name for name in names if distance_of(name, names)), None)


def count_instances(predictions: Predictions) -> Int64[np.ndarray, "n"] | None:
    """Return the number of instances of each bag, None where instances were not predicted."""
    if predictions.instances is None:
        return None
    sizes = predictions.instances.bag_sizes()
    return np.array([sizes.get(name, 0) for name in predictions.bags.bag_ids.astype(str)], np.int64)
