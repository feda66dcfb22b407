"""Figures and reports of predictions."""

from __future__ import annotations
