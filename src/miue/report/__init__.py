"""Figures of predictions."""

from __future__ import annotations
