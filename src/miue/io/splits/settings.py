"""How splits are drawn, as a command says it."""

from __future__ import annotations

from pydantic import Field

from miue.bags.dataset import BagDataset
from miue.common.settings import Settings
from miue.io.splits.draw import VALIDATION_SHARE, make_folds, make_split
from miue.io.splits.splits import Splits


class SplitSettings(Settings):
    """Which splits are drawn."""

    folds: int = Field(
        default=1, ge=1, description="How many folds to draw, each bag tested once; 1 for a single split."
    )
    test: float = Field(default=0.2, ge=0.02, le=0.5, description="Share of test bags of a single split.")
    validation: float = Field(
        default=VALIDATION_SHARE, ge=0, le=0.5, description="Share of the other bags for validation."
    )
    calibration: float = Field(
        default=0.0, ge=0, le=0.5, description="Share of the remaining bags to reserve for miue calibrate."
    )
    seed: int = Field(default=42, ge=0, description="Random seed of the split.")

    def draw(self, bags: BagDataset) -> Splits:
        """Return splits of these bags, by patient and class."""
        shares = {"validation": self.validation, "calibration": self.calibration}
        if self.folds == 1:
            return make_split(bags, test=self.test, seed=self.seed, **shares)
        return make_folds(bags, self.folds, seed=self.seed, **shares)
