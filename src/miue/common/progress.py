"""Progress with the time left, on the screen and never in the output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")


def bar(unit: str, *, shown: bool, kept: bool = True) -> Progress:
    """Return a bar that counts ``unit`` and shows the time left.

    Args:
        unit: what is counted.
        shown: show it.
        kept: leave it on the screen when it has ended; one that is not kept is shown on a terminal alone.
    """
    console = Console(stderr=True)
    return Progress(
        TextColumn("[bold]{task.description}[/]"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit}, time left"),
        TimeRemainingColumn(),
        console=console,
        disable=not (shown and (kept or console.is_terminal)),
        transient=not kept,
    )


def tracked(
    items: Sequence[Item] | Iterable[Item],
    doing: str,
    *,
    shown: bool,
    total: int | None = None,
    unit: str = "bags",
    kept: bool = True,
) -> Iterator[Item]:
    """Yield ``items`` while a bar shows how many are done."""
    with bar(unit, shown=shown, kept=kept) as progress:
        yield from progress.track(items, description=doing, total=total)
