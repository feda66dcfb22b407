"""Reproductions of published work, run from a checkout; no part of the wheel."""
