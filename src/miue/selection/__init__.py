"""Choosing between models: cross-validation, its comparison, and checks of what a model learns."""

from __future__ import annotations

from miue.selection.choice import Choice, Tried, candidates, choose
from miue.selection.comparison import Compared, Comparison, Difference, compare
from miue.selection.cross_validation import cross_validate
from miue.selection.labels import LabelSummaries, cross_validate_labels
from miue.selection.mil import MILCheck, check_mil
from miue.selection.mil_bags import MIL_TESTS
from miue.selection.summaries import Summaries, Summary
from miue.selection.vanishing import Vanishing, check_vanishing

__all__ = [
    "MIL_TESTS",
    "Choice",
    "Compared",
    "Comparison",
    "Difference",
    "LabelSummaries",
    "MILCheck",
    "Summaries",
    "Summary",
    "Tried",
    "Vanishing",
    "candidates",
    "check_mil",
    "check_vanishing",
    "choose",
    "compare",
    "cross_validate",
    "cross_validate_labels",
]
