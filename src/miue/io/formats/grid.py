"""The grid of patches: how far neighbors are apart, and what to know of patches that are on none."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

FEWEST_PAIRS = 8  # neighbors that a grid is recognized by


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


def grid_note(coords: Int64[np.ndarray, "n 2"], patch_size: int) -> str:
    """Return what to know of a patch size that is not the distance of neighbors; "" where it is.

    >>> grid_note(np.stack([np.arange(20) * 512, np.zeros(20, np.int64)], 1), 256)
    'patch size 256, but neighbors are 512 level-0 pixels apart: gaps between patches, or a wrong patch size'
    """
    distances, counts = grid_steps(coords)
    if counts.sum() < FEWEST_PAIRS or 2 * counts.max() < counts.sum():
        return ""
    step = int(distances[counts.argmax()])
    if abs(step - patch_size) <= max(1, patch_size // 100):  # coords in µm are rounded
        return ""
    kind = "patches that overlap" if step < patch_size else "gaps between patches"
    return f"patch size {patch_size}, but neighbors are {step} level-0 pixels apart: {kind}, or a wrong patch size"


def repeats_note(coords: Int64[np.ndarray, "n 2"]) -> str:
    """Return what to know of patches that lie where others do; "" where none does.

    >>> repeats_note(np.array([[0, 0], [256, 0], [0, 0]]))
    'patches that lie where another one of the slide does, so that they count twice'
    """
    if len(np.unique(coords, axis=0)) == len(coords):
        return ""
    return "patches that lie where another one of the slide does, so that they count twice"
