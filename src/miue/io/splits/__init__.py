"""Splits of bags: drawn, read from files, written."""
