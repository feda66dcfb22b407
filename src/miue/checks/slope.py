"""How an uncertainty of the same bags changes with the number of training bags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Shaped

from miue.distributions.measures import MEASURES
from miue.evaluation.intervals import wide_shares

LOG_VOLUME = "differential_entropy"
KINDS = {"total": "total", "data": "aleatoric", "model": "epistemic"}


@dataclass(frozen=True)
class Slope:
    """How one uncertainty measure of the same bags changes with the number of training bags.

    Attributes:
        measure: its name.
        kind: "total", "aleatoric" or "epistemic".
        means: over bags and seeds, at each number of training bags.
        slope: change of the mean per doubling of the training bags, by least squares over log2 of their number.
        low: lower end of its 95 % interval over bags; training is not drawn again.
        high: upper end.
    """

    measure: str
    kind: str
    means: tuple[float, ...]
    slope: float
    low: float
    high: float

    @property
    def left(self) -> float | None:
        """The last mean as a share of the first; None where the first is not above zero.

        A differential entropy h, which can be below zero, is the log of a volume: the share is that of exp h.
        """
        first, last = self.means[0], self.means[-1]
        if self.measure == LOG_VOLUME:
            return float(np.exp(last - first))
        return last / first if first > 0 else None

    @property
    def verdict(self) -> str:
        """Whether it falls, with the whole interval below zero; hardly if more than half is left even so."""
        if self.high >= 0:
            return "does not fall"
        return "hardly falls" if self.left is not None and self.left > 0.5 else "falls"

    def _rise(self, sizes: Sequence[int]) -> str:
        """Return from where it rises again, if by more than a tenth of what it had fallen by."""
        at = int(np.argmin(self.means))
        first, lowest, last = self.means[0], self.means[at], self.means[-1]
        rises = self.high < 0 and last - lowest > 0.1 * (first - lowest)
        return f", rising again from {lowest:.4g} with {sizes[at]}" if rises else ""

    def sentence(self, sizes: Sequence[int]) -> str:
        """Return what was measured in one sentence."""
        first, last = self.means[0], self.means[-1]
        whole = "the volume that it is the log of" if self.measure == LOG_VOLUME else "it"
        remains = f", {self.left:.0%} of {whole}" if self.left is not None and 0 < self.left < 1 else ""
        return (
            f"{self.measure} ({self.kind}) {self.verdict} with data: {first:.4g} with {sizes[0]} training bags, "
            f"{last:.4g} with {sizes[-1]}{remains}{self._rise(sizes)}; {self.slope:+.3g} per doubling "
            f"(95 % interval {self.low:+.3g} to {self.high:+.3g})."
        )


def fit_slope(
    name: str,
    values: Float64[np.ndarray, "sizes bags"],
    doublings: Float64[np.ndarray, "sizes"],
    owners: Shaped[np.ndarray, "bags"],
    resamples: int,
    seed: int,
) -> Slope:
    """Return the slope of the mean of one measure, which is the mean of the bags' own slopes.

    Its interval is between percentiles that are wider where owners are few (``wide_shares``).

    Args:
        name: of the measure.
        values: of each bag, at each number of training bags.
        doublings: log2 of these numbers.
        owners: of each bag, such as its patient, at least two; they are drawn again as a whole.
        resamples: of the bootstrap.
        seed: of its draws.
    """
    centered = doublings - doublings.mean()
    of_bags = centered @ values / (centered @ centered)
    _, of_owner = np.unique(owners.astype(str), return_inverse=True)
    sums, counts = np.bincount(of_owner, of_bags), np.bincount(of_owner)
    drawn = np.random.default_rng(seed).integers(len(sums), size=(resamples, len(sums)))
    low, high = np.quantile(sums[drawn].sum(1) / counts[drawn].sum(1), wide_shares(len(sums)))
    means = tuple(float(mean) for mean in values.mean(1))
    return Slope(name, KINDS[MEASURES[name].kind], means, float(of_bags.mean()), float(low), float(high))
