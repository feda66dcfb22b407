"""Damaged files of every kind, read by every command in a process that is watched: see ``python -m fuzzing --help``."""
