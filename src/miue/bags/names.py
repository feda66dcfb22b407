"""Bags are joined by name: as it is written first, else without the endings of files, both sides alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from miue.common.errors import DataError
from miue.common.parts import READERS

SLIDES_AND_IMAGES = (
    *(".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".czi", ".scn", ".svslide", ".vms", ".vmu", ".bif", ".qptiff"),
    *(".dcm", ".jpg", ".jpeg", ".png"),
)


def key_of(name: str) -> str:
    """Return a bag's name without the endings of files.

    >>> key_of("007.svs"), key_of("TCGA-01.d2f4.svs.h5")
    ('007', 'TCGA-01.d2f4')
    """
    return _endings(tuple(READERS)).sub("", name.strip())


def places_of(wanted: Sequence[str], names: Sequence[str], source: str) -> list[int | None]:
    """Return where in ``names`` the bag of each wanted name stands, None where there is none.

    A name stands for the bag that is called just so, else for the one that is called so but for endings of files.

    Args:
        wanted: each once.
        names: of bags, each once.
        source: what the wanted names come from, for messages.

    Raises:
        DataError: a name that may be that of two bags, or two names of one bag.

    >>> places_of(["b", "a.svs", "c"], ["a", "b.h5"], "labels.csv")
    [1, 0, None]
    """
    exact = {name: place for place, name in enumerate(names)}
    places = [exact.get(name) for name in wanted]
    called_so = {place for place in places if place is not None}
    alike: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        alike.setdefault(key_of(name), []).append(place)
    name_of: dict[int, str] = {}
    for row, name in enumerate(wanted):
        meant = alike.get(key_of(name), []) if places[row] is None else []
        if len(meant) > 1:
            raise _unclear(name, source, "the name of one bag", [names[place] for place in meant])
        if meant and meant[0] not in called_so:
            if name_of.setdefault(meant[0], name) != name:
                raise _unclear(names[meant[0]], source, "one name of this bag", [name_of[meant[0]], name])
            places[row] = meant[0]
    return places


def named_twice(names: Sequence[str]) -> str | None:
    """Return a name that stands there twice, or once more with the ending of a file; None if there is none."""
    seen = set()
    for name in map(str.strip, names):
        if name in seen:
            return name
        seen.add(name)
    return next((key for name in names if (key := key_of(name)) != name.strip() and key in seen), None)


def rows_of(name: str, names: Sequence[str]) -> list[int]:
    """Return where ``name`` stands, with or without the ending of a file."""
    return [row for row, other in enumerate(names) if name in (other.strip(), key_of(other))]


@cache
def _endings(readers: tuple[str, ...]) -> re.Pattern[str]:
    """Return what matches the endings of files that readers open, of slides and of images."""
    known = "|".join(map(re.escape, (*readers, *SLIDES_AND_IMAGES)))
    return re.compile(f"({known})+$", re.IGNORECASE)


def _unclear(name: str, source: str, wanted: str, found: Sequence[str]) -> DataError:
    return DataError(
        item=f"{name!r} of {source!r}",
        wanted=wanted,
        got=f"{found[0]!r} and {found[1]!r}, which differ in the ending alone",
        fix="write the names as the bags have them",
    )
