"""A worklist: which slides a person should look at first, and why, in words. No label is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from miue.errors import ConfigError
from miue.escapes import escape_formula
from miue.export.patches import class_names
from miue.files import atomic_file, write_json
from miue.prediction_table import PredictionTable
from miue.predictions import Predictions

FOREIGN, REFERRED = "called out of distribution", "referred"
BETWEEN, UNSURE, FAR, FEW = "in between classes", "model unsure", "far from training data", "few patches"
REASONS = (FOREIGN, FAR, REFERRED, UNSURE, BETWEEN, FEW)
"""The most pressing first: far from the training data, even a confident prediction may mean nothing."""

FEWEST = 10  # slides whose median says what is usual


@dataclass(frozen=True)
class Limits:
    """Where each reason begins.

    Attributes:
        probability: a predicted class less probable than this is in between classes.
        model: mutual information in nats from which the model is unsure.
        distance: distance score above which a slide is far from the training data; None takes the median of
            the slides here plus five median absolute deviations, where there are at least ten.
        patches: a slide of fewer patches has few.
    """

    probability: float = 0.8
    model: float = 0.05
    distance: float | None = None
    patches: int = 50

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1 or self.model < 0 or self.patches < 0:
            raise ConfigError(
                item="the worklist's limits",
                wanted="a probability from 0 to 1, and no negative limit",
                got=f"probability {self.probability}, model {self.model}, patches {self.patches}",
                fix="correct the option",
            )


@dataclass(frozen=True)
class Worklist:
    """Slides in the order in which they should be seen.

    Attributes:
        rows: one per slide, each with the same keys.
        judged: reason and where it begins, in words.
        not_judged: reason and why nothing can be said of it.
    """

    rows: list[dict[str, Any]]
    judged: dict[str, str]
    not_judged: dict[str, str] = field(default_factory=dict)


def worklist(predictions: Predictions, limits: Limits | None = None) -> Worklist:
    """Return the slides, the most pressing reason first, then the number of reasons, then the entropy.

    What a calibration decided to refer, or called out of distribution, is never routine.

    Args:
        predictions: of bags; patches are counted where there are instances.
        limits: where each reason begins.

    >>> import miue
    >>> bags = [np.random.default_rng(i).normal(size=(3, 4)) for i in range(20)]
    >>> model = miue.train(bags, [i % 2 for i in range(20)], settings={"max_epochs": 1}, progress=False)
    >>> worklist(model.predict(bags)).rows[0]["reason"].split("; ")[-1]
    'few patches (3 < 50)'
    """
    limits = limits or Limits()
    table, names = predictions.bags, class_names(predictions)
    flags, words, judged, not_judged = _judge(predictions, limits)
    uncertainties = table.uncertainties()
    predicted, entropy = table.predicted, uncertainties["entropy"]
    counts = _patch_counts(predictions)
    most = table.probabilities.max(1)
    rows: list[dict[str, Any]] = []
    for i in sorted(range(len(table)), key=lambda i: _urgency(flags, i, float(entropy[i]))):
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
                **{name: float(values[i]) for name, values in _shown(uncertainties, table).items()},
            }
        )
    return Worklist(rows, judged, not_judged)


def write_worklist(path: Path, given: Worklist) -> None:
    """Write the worklist as CSV, whole or not at all, and its limits beside it as .json.

    It is meant for a spreadsheet: text that one would take for a formula gets an apostrophe before it.
    """
    import csv

    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(given.rows[0]))
        writer.writeheader()
        for row in given.rows:
            writer.writerow({name: _cell(value) for name, value in row.items()})
    write_json(path.with_suffix(".json"), {"judged": given.judged, "not judged": given.not_judged})


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return escape_formula(value)
    return f"{value:.6g}" if isinstance(value, float) else value


Judgement = tuple[dict[str, Bool[np.ndarray, "n"]], dict[str, list[str]], dict[str, str], dict[str, str]]


def _judge(predictions: Predictions, limits: Limits) -> Judgement:
    """Return, per reason: which slides have it, the words for each slide, its limit, or why it is not judged."""
    table = predictions.bags
    values = table.uncertainties()
    most = table.probabilities.max(1)
    flags = {BETWEEN: most < limits.probability}
    words = {BETWEEN: [f"{BETWEEN} (probability {p:.2f} < {limits.probability:g})" for p in most]}
    judged = {BETWEEN: f"the predicted class has a probability below {limits.probability:g}"}
    not_judged = {}
    if "mutual_information" in values:
        model = values["mutual_information"]
        flags[UNSURE] = model >= limits.model
        words[UNSURE] = [f"{UNSURE} (mutual information {v:.3f} ≥ {limits.model:g} nats)" for v in model]
        judged[UNSURE] = f"mutual information of at least {limits.model:g} nats"
    else:
        not_judged[UNSURE] = "the method gives one softmax, which does not tell model from data uncertainty"
    name = _distance_name(table)
    if name is None:
        not_judged[FAR] = "the predictions carry no distance score"
    elif limits.distance is None and len(table) < FEWEST:
        not_judged[FAR] = f"fewer than {FEWEST} slides to compare with, and no limit was given"
    else:
        distance = np.asarray(table.scores[name])
        far, said = _far_from(distance, limits.distance)
        flags[FAR] = distance > far
        words[FAR] = [f"{FAR} ({name} {v:.3g} > {far:.3g})" for v in distance]
        judged[FAR] = f"{name} above {far:.4g}, {said}"
    counts = _patch_counts(predictions)
    if counts is None:
        not_judged[FEW] = "the predictions hold no instances"
    else:
        flags[FEW] = counts < limits.patches
        words[FEW] = [f"{FEW} ({n} < {limits.patches})" for n in counts]
        judged[FEW] = f"fewer than {limits.patches} patches"
    if table.decisions is None:
        not_judged |= dict.fromkeys((FOREIGN, REFERRED), "the model is not calibrated")
    else:
        flags |= {FOREIGN: table.decisions.flagged, REFERRED: table.decisions.referred}
        for reason in (FOREIGN, REFERRED):
            words[reason] = [f"{reason} ({why})" for why in table.decisions.reason]
            judged[reason] = "as the calibration decided"
    return flags, words, judged, not_judged


def _far_from(distance: Float64[np.ndarray, "n"], given: float | None) -> tuple[float, str]:
    if given is not None:
        return given, "as given"
    middle = float(np.median(distance))
    spread = float(np.median(np.abs(distance - middle)))
    return middle + 5 * spread, "the median of these slides plus five median absolute deviations"


def _distance_name(table: PredictionTable) -> str | None:
    """Return the bags' distance to the training data, the mean before the high quantile."""
    names = sorted(table.scores, key=lambda name: (not name.startswith("knn"), not name.endswith("_mean"), name))
    return next((name for name in names if name.endswith(("_mean", "_high"))), None)


def _shown(uncertainties: dict[str, Any], table: PredictionTable) -> dict[str, Any]:
    names = ["entropy", "expected_entropy", "mutual_information", _distance_name(table)]
    return {name: uncertainties[name] for name in names if name in uncertainties}


def _patch_counts(predictions: Predictions) -> np.ndarray | None:
    if predictions.instances is None:
        return None
    names, counts = np.unique(predictions.instances.bag_ids.astype(str), return_counts=True)
    of = dict(zip(names, counts, strict=True))
    return np.array([of.get(name, 0) for name in predictions.bags.bag_ids.astype(str)], np.int64)


def _urgency(flags: dict[str, Any], i: int, entropy: float) -> tuple[int, int, float]:
    has = [reason in flags and bool(flags[reason][i]) for reason in REASONS]
    return (has.index(True) if any(has) else len(REASONS), -sum(has), -entropy)
