"""``python -m miue``."""

from miue.cli import main

main()
