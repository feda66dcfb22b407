"""Reports of predictions: what they come to, their tables and figures, in one page."""

from __future__ import annotations
