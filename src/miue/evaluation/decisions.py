"""What decisions came to: how many bags are deferred, how many of the accepted are wrong, what their sets hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from miue.bags import group_by_patient
from miue.calibration import Calibration, grouped_error_interval
from miue.evaluation.class_metrics import brier_score, expected_calibration_error, negative_log_likelihood
from miue.evaluation.level import LevelEvaluation
from miue.evaluation.metrics import NO_LABEL, NONE_KNOWN_IN, Judged, Metric
from miue.predictions import Decisions, PredictionTable
from miue.targets import KaplanMeier

INTERVAL = 0.95
RISK = ("selective_risk", "selective_risk_low", "selective_risk_high")


@dataclass(frozen=True)
class DecisionEvaluation:
    """Evaluation of decisions; shares of the bags that are not known to be out of distribution.

    Attributes:
        metrics: accepted, deferred, flagged (called out of distribution), false_alarms (the same share of the bags
            known to be in distribution), selective_risk (of labeled ones), its 95 % interval selective_risk_low
            and selective_risk_high (exact; widened where patients have several bags), coverage (label in its set),
            set_size (mean), empty_sets, single_sets, and ece, brier and nll of the calibrated probabilities; of
            times bound_coverage, the share without an event before its bound (Kaplan–Meier).
        coverage_by_class: share of each class's bags whose set holds it.
        found: share of each out-of-distribution set that is called so.
        not_accepted: share of each out-of-distribution set that is called so or deferred.
    """

    metrics: Mapping[str, Metric]
    coverage_by_class: Mapping[str, Metric]
    found: Mapping[str, Metric]
    not_accepted: Mapping[str, Metric]


NO_DEFERRAL = "the calibration has no rule that defers bags"
NO_ALARM = "the calibration has no rule that calls bags out of distribution"
NO_RULE = "the calibration has no rule that accepts bags or not"


def evaluate_decisions(
    table: PredictionTable, decisions: Decisions, calibration: Calibration | None = None
) -> DecisionEvaluation:
    """Return how the decisions of ``table`` came out.

    Args:
        table: of bags.
        decisions: of these bags.
        calibration: that they were made by; metrics of rules that it lacks are undefined. None if it is not known.
    """
    inside, known = ~table.is_ood.out_of_distribution, table.is_ood.in_distribution
    left_out = calibration.scaling_left_out if calibration is not None else ""
    metrics = {
        "accepted": _share(decisions.accepted[inside]),
        "deferred": _share(decisions.deferred[inside]),
        "flagged": _share(decisions.flagged[inside]),
        "false_alarms": _share(decisions.flagged[known]) if known.any() else Metric.undefined(NONE_KNOWN_IN),
        **_selective_risk(table, decisions),
        **_of_sets(table, decisions),
        **_of_calibrated(table, decisions, left_out),
        **_of_bounds(table, decisions),
    }
    sets = sorted({str(name) for name in table.ood_sets if name})
    found = {name: _share(decisions.flagged[table.ood_sets == name]) for name in sets}
    not_accepted = {name: _share(~decisions.accepted[table.ood_sets == name]) for name in sets}
    if calibration is not None:
        no_deferral, no_alarm = calibration.deferral is None, calibration.false_alarms is None
        if no_deferral:
            metrics |= _undefined(NO_DEFERRAL, "deferred")
        if no_alarm:
            metrics |= _undefined(NO_ALARM, "flagged", "false_alarms")
            found = _undefined(NO_ALARM, *sets)
        if no_deferral and no_alarm:
            metrics |= _undefined(NO_RULE, "accepted", *RISK)
            not_accepted = _undefined(NO_RULE, *sets)
    return DecisionEvaluation(metrics, _coverage_by_class(table, decisions), found, not_accepted)


def _undefined(reason: str, *names: str) -> dict[str, Metric]:
    return dict.fromkeys(names, Metric.undefined(reason))


def _selective_risk(table: PredictionTable, decisions: Decisions) -> dict[str, Metric]:
    if not table.has_classes:
        return _undefined("labels are numbers, of which none is right or wrong", *RISK)
    judged = table.judged & decisions.accepted
    wrong = (table.predicted != table.labels.values)[judged]
    if not len(wrong):
        return _undefined("no labeled bag was accepted" if table.judged.any() else NO_LABEL, *RISK)
    low, high = share_interval(table, wrong, judged)
    return {"selective_risk": Metric(float(wrong.mean())), "selective_risk_low": low, "selective_risk_high": high}


def share_interval(
    table: PredictionTable, happened: Bool[np.ndarray, "m"], counted: Bool[np.ndarray, "n"]
) -> tuple[Metric, Metric]:
    """Return both ends of the exact 95 % interval of a share, wider where patients have several bags.

    Args:
        table: of n bags.
        happened: to each of the m bags that are counted, at least one.
        counted: which bags these are.
    """
    patients = np.full(len(table), "", object) if table.patients is None else table.patients
    low, high = grouped_error_interval(happened, group_by_patient(patients)[counted], INTERVAL)
    return Metric(low), Metric(high)


def _of_sets(table: PredictionTable, decisions: Decisions) -> dict[str, Metric]:
    if decisions.prediction_sets is None:
        return _undefined("no prediction sets were asked for", "coverage", "set_size", "empty_sets", "single_sets")
    sizes = decisions.prediction_sets.sum(1)[~table.is_ood.out_of_distribution]
    covered = _covered(table, decisions.prediction_sets)[table.judged]
    return {
        "coverage": _share(covered) if len(covered) else Metric.undefined(NO_LABEL),
        "set_size": _share(sizes.astype(np.float64)),
        "empty_sets": _share(decisions.empty_sets[~table.is_ood.out_of_distribution]),
        "single_sets": _share(sizes == 1),
    }


def _of_bounds(table: PredictionTable, decisions: Decisions) -> dict[str, Metric]:
    """Return the share of times that are not before their bound; nothing where there are no bounds.

    It is Kaplan and Meier's estimate, for times as multiples of their bounds.
    """
    if decisions.time_bound is None or table.outcomes is None:
        return {}
    rows = table.judged
    bounds, known = decisions.time_bound[rows], table.outcomes[rows]
    if not len(bounds):
        return {"bound_coverage": Metric.undefined(NO_LABEL)}
    multiples = np.divide(known.values, bounds, out=np.ones(len(bounds)), where=bounds > 0)
    curve = KaplanMeier(multiples, known.observed, np.ones((1, len(bounds))))
    return {"bound_coverage": Metric(float(curve(np.ones(1), before=True)[0, 0]))}


def _of_calibrated(table: PredictionTable, decisions: Decisions, left_out: str) -> dict[str, Metric]:
    if decisions.calibrated is None:
        why = f"no temperature was fitted: {left_out}" if left_out else "no scaling was fitted"
        return _undefined(why, "ece", "brier", "nll")
    judged = table.judged
    results = Judged.of(decisions.calibrated.probabilities.numpy()[judged], table.labels.values[judged])
    return {
        "ece": expected_calibration_error(results).plain,
        "brier": brier_score(results).plain,
        "nll": negative_log_likelihood(results).plain,
    }


def _coverage_by_class(table: PredictionTable, decisions: Decisions) -> dict[str, Metric]:
    if decisions.prediction_sets is None:
        return {}
    covered, judged = _covered(table, decisions.prediction_sets), table.judged
    classes = range(table.distribution.num_classes)
    return {str(c): _share(covered[judged & (table.labels.values == c)]) for c in classes}


def _covered(table: PredictionTable, sets: Bool[np.ndarray, "n C"]) -> Bool[np.ndarray, "n"]:
    return sets[np.arange(len(table)), table.labels.values]


def _share(values: Bool[np.ndarray, "n"] | Float64[np.ndarray, "n"]) -> Metric:
    return Metric(float(values.mean())) if len(values) else Metric.undefined("no such bag")


@dataclass(frozen=True)
class GroupEvaluation:
    """Evaluation of the bags of one group.

    Attributes:
        bags: metrics of its bags.
        accuracy_low: lower end of the exact 95 % interval of the accuracy, wider where patients have several bags.
        accuracy_high: upper end.
        recall_low: lower end of that of the recall of each class, by its number.
        recall_high: upper ends.
        decisions: how the decisions of its bags came out; None where there are none.
    """

    bags: LevelEvaluation
    accuracy_low: Metric
    accuracy_high: Metric
    recall_low: Mapping[str, Metric]
    recall_high: Mapping[str, Metric]
    decisions: DecisionEvaluation | None

    def named_metrics(self, classes: Sequence[str]) -> Iterator[tuple[str, Metric]]:
        """Yield name and value of every metric of its bags, of the ends of intervals, and of decisions.

        Args:
            classes: names in order.
        """
        yield from self.bags.named_metrics(classes)
        yield "accuracy_low", self.accuracy_low
        yield "accuracy_high", self.accuracy_high
        for name, low, high in zip(classes, self.recall_low.values(), self.recall_high.values(), strict=True):
            yield f"recall_{name}_low", low
            yield f"recall_{name}_high", high
        if self.decisions is not None:
            yield from ((f"decisions_{name}", metric) for name, metric in self.decisions.metrics.items())
