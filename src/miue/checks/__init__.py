"""Checks of what a network with its method learns: the MIL assumption, and uncertainty that vanishes with data."""

from __future__ import annotations

from miue.checks.mil import MILCheck, check_mil
from miue.checks.vanishing import Vanishing, check_vanishing

__all__ = ["MILCheck", "Vanishing", "check_mil", "check_vanishing"]
