"""Checks of what a network with its method learns, on bags that are generated for the purpose."""

from __future__ import annotations

from miue.checks.mil import MILCheck, check_mil

__all__ = ["MILCheck", "check_mil"]
