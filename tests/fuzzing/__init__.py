"""Damaged files of every kind, read by commands in a process that is watched: ``python -m fuzzing --help``."""
