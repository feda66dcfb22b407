"""Predictions as tables: distributions, decisions, patients; written and read."""
