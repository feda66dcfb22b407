"""Positions of instances in their slide, some of which may be unknown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from miue.bags.cells import MOST_EXACT
from miue.bags.partly_known import PartlyKnown

LARGEST_COORD = MOST_EXACT  # beyond it a float64 does not separate one pixel from the next


@dataclass(frozen=True, eq=False)
class Coords(PartlyKnown):
    """Positions of n instances.

    Attributes:
        values: x and y in level-0 pixels; zero and without meaning where ``known`` is false.
        known: whether the position is known.
    """

    values: Int64[np.ndarray, "n 2"]
    known: Bool[np.ndarray, "n"]

    item = "position"

    @classmethod
    def of(cls, values: Int64[np.ndarray, "n 2"]) -> Coords:
        """Return positions all of which are known."""
        return cls(values, np.ones(len(values), bool))

    @classmethod
    def unknown(cls, count: int) -> Coords:
        """Return ``count`` positions of which none is known."""
        return cls(np.zeros((count, 2), np.int64), np.zeros(count, bool))

    def completed_by(self, others: Coords) -> Coords:
        """Return these positions, and those of ``others`` where these are unknown."""
        values = np.where(self.known[:, None], self.values, others.values)
        return Coords(values, self.known | others.known)


def grid_step(coords: Int64[np.ndarray, "n 2"]) -> int | None:
    """Return the most common distance between neighbors of one row or column; None where it makes no grid.

    The most common, not the smallest: pieces of tissue may each have a grid of their own. Patches that
    overlap are further apart than nothing but nearer than their side, so their step is what tiles the slide.
    Of patches that lie anywhere, as where each piece of tissue has few, most distances are no multiples of it.

    >>> grid_step(np.array([[0, 0], [512, 0], [1536, 0], [0, 512]]))
    512
    >>> grid_step(np.array([[0, 0]])) is None
    True
    """
    distances, counts = grid_steps(coords)
    if not len(distances):
        return None
    step = int(distances[counts.argmax()])
    from_multiple = np.abs((distances + step // 2) % step - step // 2)
    on_grid = counts[from_multiple <= 1].sum()  # coords that were in µm are rounded
    return step if 2 * on_grid >= counts.sum() else None


def grid_steps(coords: Int64[np.ndarray, "n 2"]) -> tuple[Int64[np.ndarray, "k"], Int64[np.ndarray, "k"]]:
    """Return the distances between neighbors of one row or column, and how many pairs have each.

    >>> [part.tolist() for part in grid_steps(np.array([[0, 0], [512, 0], [1536, 0], [0, 512]]))]
    [[512, 1024], [2, 1]]
    """
    steps = []
    for along, across in ((0, 1), (1, 0)):
        ordered = coords[np.lexsort((coords[:, along], coords[:, across]))]
        difference = np.diff(ordered, axis=0)
        steps.append(difference[(difference[:, across] == 0) & (difference[:, along] > 0), along])
    return np.unique(np.concatenate(steps), return_counts=True)
