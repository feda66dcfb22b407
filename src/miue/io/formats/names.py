"""The names under which features and coords are stored in a file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from miue.common.errors import first_few
from miue.common.text import plural
from miue.io.formats.base import bag_error

FEATURES = ("features", "feats", "feature", "embeddings", "x")
COORDS = ("coords", "coordinates")


def features_name(path: Path, names: Iterable[str]) -> str:
    """Return the name under which the features are: a known one, or the only one there is.

    Raises:
        DataError: none of the known names, and not one alone.
    """
    present = list(names)
    for name in FEATURES:
        if name in present:
            return name
    if present == ["coords"] or set(present) <= {*COORDS, "stitch"}:
        raise bag_error(
            path,
            f"features, named {FEATURES[0]!r} or {FEATURES[1]!r}",
            "positions of patches alone" if present else "nothing",
            "extract features first, and give the folder that holds them",
        )
    others = [name for name in present if name not in COORDS]
    if len(others) == 1:
        return others[0]
    raise bag_error(
        path,
        f"features, named {FEATURES[0]!r} or {FEATURES[1]!r}",
        f"{plural(len(present), 'name')}: {first_few(present)}",
        "name the features so; a file holds one bag, so give each of several bags a file of its own",
    )


def coords_name(names: Iterable[str]) -> str | None:
    """Return the name under which the coords are, None where there are none."""
    return next((name for name in COORDS if name in names), None)
