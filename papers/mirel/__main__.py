"""``python -m papers.mirel``."""

from papers.mirel.cli import main

main()
