"""Options that several commands of the paper share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from miue.common.errors import ConfigError
from miue.common.files import atomic_file
from papers.mirel.paths import SEEDS

Source = Annotated[Path, typer.Option(help="Folder with the files of the data.")]
Work = Annotated[Path, typer.Option(help="Folder for stores and trained models.")]
Results = Annotated[Path, typer.Option(help="Folder for results, one tidy CSV per run.")]
Seeds = Annotated[str, typer.Option(help="Seeds, separated by commas.")]
TablePath = Annotated[Path | None, typer.Option(help="Also write the Markdown to this file.")]
Older = Annotated[bool, typer.Option("--older", help="Show rows of an earlier version of their method, marked.")]

DATA = Path("../shared/data")
RESULTS = Path("results")
ALL_SEEDS = ",".join(map(str, SEEDS))


def parse_seeds(text: str) -> list[int]:
    """Return the seeds that ``text`` lists.

    Raises:
        ConfigError: a seed is not a whole number.
    """
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            item="--seeds", wanted="whole numbers separated by commas", got=repr(text), fix="write 42,17, say"
        ) from error


def print_markdown(text: str, out: Path | None) -> None:
    """Print a page, and write it to ``out`` where that is given, atomically."""
    if out is not None:
        with atomic_file(out) as temporary:
            temporary.write_text(text, "utf-8")
    sys.stdout.write(text)
