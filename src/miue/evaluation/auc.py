"""An AUC with an interval in closed form, for bags that are independent of each other.

``bootstrap`` resamples every metric, and patients as a whole, since bags of one patient are alike. Where bags are
independent, as those that ``check_mil`` generates, and the AUC alone is wanted, no draws are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from scipy.stats import rankdata

from miue.evaluation.intervals import auroc_interval

LEVEL = 0.95
"""Coverage of the interval."""


@dataclass(frozen=True)
class Auc:
    """An area under the ROC curve, with an interval over test bags.

    Attributes:
        value: chance that a positive bag scores higher than a negative one; ties count half.
        low: lower end.
        high: upper end.
    """

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, scores: Float64[np.ndarray, "B"], labels: Int64[np.ndarray, "B"]) -> Auc:
        """Return the AUC of scores and its score interval, by the variance between bags.

        AUC ± 1.96 standard deviations misses too often near 0 and 1 or with few bags: of 40 bags with a true AUC
        of 0.97 it contained that in 85 % of simulations, the score interval in 97 %.

        Reference: DeLong et al. 1988, for the variance; Newcombe 2006, part 2, method 5 (``auroc_interval``).

        Args:
            scores: higher for positive bags.
            labels: 1 of positive bags, 0 of negative ones; at least two of each.

        >>> str(Auc.of(np.arange(40.0), np.repeat([0, 1], 20)))
        '1.000 [0.892, 1.000]'
        """
        ranks = rankdata(scores)
        parts = []
        for label in (1, 0):
            of_class = labels == label
            others = len(labels) - of_class.sum()
            below = (ranks[of_class] - rankdata(scores[of_class])) / others
            parts.append(below if label else 1 - below)
        value = float(parts[0].mean())
        variance = float(sum(part.var(ddof=1) / len(part) for part in parts))
        pair = ((labels == 1).astype(np.float64), (labels == 0).astype(np.float64))
        return cls(value, *auroc_interval(value, variance, [pair], owners=len(labels), level=LEVEL))

    @classmethod
    def over_seeds(cls, values: Sequence[Auc]) -> Auc:
        """Return the mean of several, with the widest ends."""
        mean = float(np.mean([one.value for one in values]))
        return cls(mean, min(one.low for one in values), max(one.high for one in values))

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"
