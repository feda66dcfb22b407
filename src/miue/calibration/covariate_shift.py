"""Weights of calibration bags for new bags of another mix: density ratios by a classifier on the uncertainties."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
from jaxtyping import Float64
from pydantic import BaseModel, ConfigDict

from miue.bags import draw_folds, group_by_patient
from miue.calibration.compared import compared_uncertainties, counted_rows, refuse_other_weights
from miue.common.errors import DataError
from miue.common.text import plural
from miue.predictions import Predictions, PredictionTable

CLIP = 20.0
"""Largest density ratio; the calibration bags have 1 on average."""

NEEDED = 30
"""Least number of new bags, and of effective calibration bags."""

MOST_CLIPPED = 0.1
"""Largest share of new bags whose density ratio may exceed the clip."""

CHANCE = 0.01
"""Of weights that are right to be taken for wrong, as the weighted bags differ from the new ones by chance."""

_FOLDS = 5
_FIX = "label some of the new bags and calibrate on them"


class CovariateShift(BaseModel):
    """For which new bags a calibration was weighted, and how much of the calibration bags the weights leave.

    Attributes:
        path: of the new bags, or of the table of their predictions, where known.
        fingerprint: SHA-256 of the ids and uncertainties of the new bags that were counted.
        bags: how many new bags were counted.
        left_out: further new bags: out of distribution, or of patients that were counted already.
        scores: uncertainties by which the bags were compared.
        unused: uncertainties that are not finite for every bag.
        effective_sample_size: n_eff = (Σ w)² / Σ w² of the calibration bags.
        effective_of_class: the same of each class.
        clip: largest weight that was allowed, where calibration bags have 1 on average.
        clipped: how many of the new bags exceed it.
        largest: the largest weight of any bag, which each new bag is counted with.
        rules_left_out: which rules were left out, and why; "" where none was asked for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    path: str | None = None
    fingerprint: str
    bags: int
    left_out: int = 0
    scores: tuple[str, ...]
    unused: tuple[str, ...] = ()
    effective_sample_size: float
    effective_of_class: tuple[float, ...] = ()
    clip: float = CLIP
    clipped: int = 0
    largest: float
    rules_left_out: str = ""

    def __str__(self) -> str:
        return (
            f"weighted for bags like the {self.bags:,} new ones{f' of {self.path}' if self.path else ''} "
            f"(effective sample size {self.effective_sample_size:.1f}, density ratios clipped at {self.clip:g}), "
            "assuming that only the mix of bags has changed and not the label of a bag with these uncertainties"
        )

    def left_out_in_words(self) -> str:
        """Return which rules, bags and uncertainties were left out, a sentence each."""
        sentences = (
            f"Left out: {self.rules_left_out}; every bag is accepted." if self.rules_left_out else "",
            f"Beyond the clip: {plural(self.clipped, 'new bag')}." if self.clipped else "",
            f"Not counted: {plural(self.left_out, 'new bag')}, out of distribution or of patients that were "
            "counted already."
            if self.left_out
            else "",
            f"Not finite everywhere, so unused: {', '.join(self.unused)}." if self.unused else "",
        )
        return " ".join(filter(None, sentences))


def effective_sample_size(weights: Float64[np.ndarray, "n"]) -> float:
    """Return n_eff = (Σ w)² / Σ w², 0 where no bag has a weight.

    Reference: Kish 1965.

    >>> effective_sample_size(np.array([2.0, 2.0, 0.0]))
    2.0
    """
    total = float(weights.sum())
    return total**2 / float((weights**2).sum()) if total else 0.0


def estimate_log_ratios(
    calibration: Float64[np.ndarray, "n F"],
    new: Float64[np.ndarray, "m F"],
    groups: np.ndarray | None = None,
    seed: int = 0,
) -> tuple[Float64[np.ndarray, "n"], Float64[np.ndarray, "m"]]:
    """Return the log density ratio, new over calibration, of the calibration bags and of the new ones.

    A logistic regression on standardized columns separates the two; the ratio is p / (1 − p) · n / m. Each
    bag is judged by the regression of the folds that do not have it. Another one has the squares of the columns
    too, for shifts to both ends or to the middle; that of the two is taken which judges bags better (log loss).

    Reference: Bickel et al. 2009; Tibshirani et al. 2019, section 2.3.

    Args:
        calibration: columns of the calibration bags, finite.
        new: the same columns of the new bags.
        groups: of all n + m bags, such as patients; the bags of one are in the same fold.
        seed: of the folds.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    columns = np.concatenate([calibration, new])
    is_new = np.arange(len(columns)) >= len(calibration)
    found = []
    for terms in ([], [FunctionTransformer(_with_squares), StandardScaler()]):
        log_odds, log_ratios = np.empty(len(columns)), np.empty(len(columns))
        for kept, tested in draw_folds(is_new, _FOLDS, seed, groups=groups):
            classifier = make_pipeline(StandardScaler(), *terms, LogisticRegression(max_iter=2000))
            classifier.fit(columns[kept], is_new[kept])
            prior = np.log(is_new[kept].mean()) - np.log1p(-is_new[kept].mean())
            log_odds[tested] = classifier.decision_function(columns[tested])
            log_ratios[tested] = log_odds[tested] - prior
        found.append((log_loss(is_new, 1 / (1 + np.exp(-log_odds.clip(-30, 30)))), log_ratios))
    _, best = min(found, key=lambda one: one[0])
    return best[~is_new], best[is_new]


def _with_squares(columns: Float64[np.ndarray, "n F"]) -> Float64[np.ndarray, "n 2*F"]:
    return np.concatenate([columns, columns**2], 1)


def unbalanced(
    calibration: Float64[np.ndarray, "n F"],
    weights: Float64[np.ndarray, "n"],
    new: Float64[np.ndarray, "m F"],
    shares: tuple[float, float] = (1.0, 1.0),
) -> list[int]:
    """Return the columns in which the weighted calibration bags still differ from the new bags.

    Each column is compared by the two-sample Kolmogorov–Smirnov test, with as many bags as ``_as_many`` counts for
    the weighted ones, and Bonferroni's correction; right weights fail with chance about `CHANCE` at most.

    Args:
        calibration: columns of the calibration bags.
        weights: of the calibration bags, at least one positive.
        new: the same columns of the new bags.
        shares: patients over bags, of the calibration and of the new bags, since the bags of one are alike.
    """
    columns = calibration.shape[1]
    factor = -0.5 * np.log(CHANCE / columns / 2)
    different = []
    for k, (held, others) in enumerate(zip(calibration.T, new.T, strict=True)):
        counts = (_as_many(held, weights) * shares[0], len(new) * shares[1])
        if _largest_gap(held, weights, others) > np.sqrt(factor * sum(1 / count for count in counts)):
            different.append(k)
    return different


def _as_many(held: Float64[np.ndarray, "n"], weights: Float64[np.ndarray, "n"]) -> float:
    """Return how many bags of equal weight have a distribution that varies as weighted values do, n_eff at most.

    The share F of the weights up to x has the variance Σ w² (1{value ≤ x} − F)² / (Σ w)², that of n bags of equal
    weight F (1 − F) / n, 1 / 4n at most. Where the largest weights are all on one side, the former can exceed
    1 / (4 n_eff).
    """
    order = np.argsort(held)
    last = np.append(np.diff(held[order]) > 0, True)  # of equal values
    share, squares = (one[order].cumsum()[last] / one.sum() for one in (weights, weights**2))
    most = float((squares * (1 - share) ** 2 + (1 - squares) * share**2).max())
    return effective_sample_size(weights) / max(1.0, 4 * most)


def _largest_gap(
    held: Float64[np.ndarray, "n"], weights: Float64[np.ndarray, "n"], new: Float64[np.ndarray, "m"]
) -> float:
    """Return the largest difference between the distribution of weighted values and that of others."""
    at = np.unique(np.concatenate([held, new]))
    order = np.argsort(held)
    summed = np.concatenate([[0.0], weights[order].cumsum()]) / weights.sum()
    of_held = summed[np.searchsorted(held[order], at, side="right")]
    of_new = np.searchsorted(np.sort(new), at, side="right") / len(new)
    return float(np.abs(of_held - of_new).max())


def count_new_bags(like: Predictions, bags_of_patient: str, seed: int) -> PredictionTable:
    """Return the new bags that count: not known to be out of distribution, one of each patient.

    Raises:
        DataError: too few of them.
    """
    table = like.bags.subset(np.flatnonzero(~like.bags.is_ood.out_of_distribution))
    table = table.subset(counted_rows(table.patients, len(table), bags_of_patient, seed))
    count = len(table) if table.patients is None else len(np.unique(group_by_patient(table.patients)))
    if count < NEEDED:
        raise DataError(
            item="the new bags to calibrate for",
            wanted=f"at least {NEEDED} that are in distribution, one of each patient",
            got=f"{count:,} of {len(like.bags):,}",
            fix="predict more of the new bags, or calibrate without them",
        )
    return table


def weigh_bags(
    predictions: Predictions, like: Predictions, *, bags_of_patient: str, seed: int
) -> tuple[CovariateShift, PredictionTable, Float64[np.ndarray, "n"]]:
    """Return what the weights leave, the new bags that count, and the weight of each calibration bag, ≤ ``CLIP``.

    Args:
        predictions: of the calibration bags that count.
        like: of the new bags; labels are not read.
        bags_of_patient: "one" or "all", of the new bags.
        seed: of the folds, and of the new bags that are drawn of patients.

    Raises:
        DataError: too few bags, other uncertainties, or new bags that are too unlike the calibration bags.
        ModelError: predictions of another model.
    """
    weights_sha256 = predictions.provenance.weights_sha256
    refuse_other_weights(weights_sha256, like.provenance.weights_sha256, "the new bags to calibrate for")
    held, new = predictions.bags, count_new_bags(like, bags_of_patient, seed)
    _check_enough(held)
    of_held, of_new = compared_uncertainties(held), compared_uncertainties(new)
    scores = [n for n in of_held if n in of_new and np.isfinite(of_held[n]).all() and np.isfinite(of_new[n]).all()]
    classes, others = held.distribution.num_classes, new.distribution.num_classes
    if set(of_held) != set(of_new) or classes != others or not scores:
        raise DataError(
            item="the new bags to calibrate for",
            wanted=f"{classes} classes and the finite uncertainties {', '.join(of_held)}",
            got=f"{others} classes and {', '.join(of_new)}",
            fix="predict both with the same model and options",
        )
    groups = None
    if held.patients is not None or new.patients is not None:
        patients = [t.patients if t.patients is not None else np.full(len(t), "", object) for t in (held, new)]
        groups = group_by_patient(np.concatenate(patients))
    held_columns, new_columns = (np.stack([one[name] for name in scores], 1) for one in (of_held, of_new))
    log_held, log_new = estimate_log_ratios(held_columns, new_columns, groups, seed)
    clipped = int((log_new > np.log(CLIP)).sum())
    weights, of_new_bags = (np.minimum(np.exp(np.minimum(one, np.log(CLIP))), CLIP) for one in (log_held, log_new))
    labels = held.labels
    shift = CovariateShift(
        path=like.provenance.bags,
        fingerprint=sha256("\n".join(map(str, new.bag_ids)).encode() + new_columns.tobytes()).hexdigest(),
        bags=len(new),
        left_out=len(like.bags) - len(new),
        scores=tuple(scores),
        unused=tuple(name for name in of_held if name not in scores),
        effective_sample_size=effective_sample_size(weights),
        effective_of_class=tuple(effective_sample_size(weights[labels.values == c]) for c in range(classes)),
        clipped=clipped,
        largest=max(weights.max(), of_new_bags.max()),
    )
    _check_overlap(shift)
    shares = (_patients_per_bag(held), _patients_per_bag(new))
    if different := unbalanced(held_columns, weights, new_columns, shares):
        raise DataError(
            item="the calibration bags, weighted for the new bags",
            wanted="the distribution that the new bags have of each uncertainty",
            got=f"another of {', '.join(scores[k] for k in different)}",
            fix=f"the mix of bags has changed in a way that these weights do not follow: {_FIX}",
        )
    return shift, new, weights


def _check_enough(held: PredictionTable) -> None:
    """Raise unless there are as many calibration bags as must be effective, of a patient for each fold."""
    patients = round(_patients_per_bag(held) * len(held))
    if len(held) < NEEDED or patients < _FOLDS:
        raise DataError(
            item="the calibration bags to be weighted for the new bags",
            wanted=f"at least {NEEDED}, of {_FOLDS} patients or more",
            got=f"{len(held):,}" if held.patients is None else f"{len(held):,}, of {plural(patients, 'patient')}",
            fix="add calibration bags, or calibrate on these without the new ones",
        )


def _patients_per_bag(table: PredictionTable) -> float:
    return 1.0 if table.patients is None else len(np.unique(group_by_patient(table.patients))) / len(table)


def _check_overlap(shift: CovariateShift) -> None:
    if shift.clipped > MOST_CLIPPED * shift.bags:
        raise DataError(
            item="the new bags to calibrate for",
            wanted=f"bags that overlap with the calibration: at most {MOST_CLIPPED:.0%} of them more than "
            f"{CLIP:g} times as frequent as there",
            got=f"{shift.clipped} of {shift.bags}",
            fix=f"no weights mend this: {_FIX}",
        )
    if shift.effective_sample_size < NEEDED:
        raise DataError(
            item="the calibration bags, weighted for the new bags",
            wanted=f"at least {NEEDED} effective ones, (Σ w)² / Σ w²",
            got=f"{shift.effective_sample_size:.1f}",
            fix=f"{_FIX}, or add calibration bags like the new ones",
        )
