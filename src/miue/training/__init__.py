"""Training on Lightning: batches, criterion, checkpoints that hold no code, and the fit itself."""

from __future__ import annotations

from miue.training.fit import Run, TrainingSummary, fit

__all__ = ["Run", "TrainingSummary", "fit"]
