"""How uncertain a model is of its validation bags: what a value is usual for, where no calibration says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Int64
from pydantic import BaseModel, ConfigDict, Field, model_validator

from miue.common.json_record import JsonFormat
from miue.predictions.table import PredictionTable

FILE = "validation.json"
FORMAT = JsonFormat("miue-validation", 2, "validation", "validation quantiles", "train again")

SHARES = (0.0, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 1.0)


class ValidationQuantiles(BaseModel):
    """Quantiles over validation bags.

    Attributes:
        bags: how many there were.
        shares: which quantiles, ascending from 0 to 1.
        uncertainties: the quantiles of each measure and score.
        instances: the quantiles of the number of instances in a bag.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    bags: int = Field(ge=1)
    shares: tuple[float, ...] = Field(min_length=2)
    uncertainties: dict[str, tuple[float, ...]]
    instances: tuple[float, ...]

    @model_validator(mode="after")
    def _one_value_for_each_share(self) -> ValidationQuantiles:
        for values in (*self.uncertainties.values(), self.instances):
            if len(values) != len(self.shares):
                raise ValueError("a quantile for each share is wanted")
        return self

    @classmethod
    def of(cls, bags: PredictionTable, sizes: Int64[np.ndarray, "n"]) -> ValidationQuantiles:
        """Return the quantiles of these bags; an uncertainty that is not finite everywhere is left out.

        The i-th smallest of n values is the quantile i / (n + 1) (Weibull), which a new value of the same kind
        exceeds with chance 1 − i / (n + 1). Six digits are kept.

        Args:
            bags: their predictions.
            sizes: how many instances each has.
        """
        named = bags.uncertainties()
        return cls(
            bags=len(bags),
            shares=SHARES,
            uncertainties={name: _quantiles(one) for name, one in named.items() if np.isfinite(one).all()},
            instances=_quantiles(sizes),
        )

    def uncertainty(self, name: str, share: float) -> float | None:
        """Return the value up to which the uncertainty of such a share of validation bags is; None if not kept."""
        values = self.uncertainties.get(name)
        return None if values is None else self._at(share, values)

    def size(self, share: float) -> float:
        """Return the number of instances up to which such a share of validation bags has."""
        return self._at(share, self.instances)

    def _at(self, share: float, values: tuple[float, ...]) -> float:
        """Interpolate with as many digits as are kept: a share of 1 - 0.95 is 0.05 within rounding alone."""
        return _rounded(float(np.interp(share, self.shares, values)))

    def save(self, path: Path) -> None:
        """Write the quantiles to the file ``path``, whole or not at all.

        Raises:
            StorageError: it cannot be written.
        """
        FORMAT.write(path, self)

    @classmethod
    def load(cls, path: Path) -> ValidationQuantiles:
        """Return the quantiles in the file ``path``.

        Raises:
            StorageError: a damaged file, or one of another version.
        """
        return FORMAT.read(path, cls)


def _quantiles(values: np.ndarray) -> tuple[float, ...]:
    quantiles = np.quantile(np.asarray(values, np.float64), SHARES, method="weibull")
    return tuple(map(_rounded, quantiles.tolist()))


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
