"""The same bags by several patch encoders: a place for each, whose patches are joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from miue.bags import BagDataset, join_features, unlike_patches
from miue.bags.names import match_names, strip_endings
from miue.common.errors import ConfigError, DataError, first_few, first_repeated
from miue.common.text import plural
from miue.io.layouts.layout import Layout
from miue.io.loaded import LeftOut, LoadedBags, refuse_or_skip
from miue.settings import LoadSettings


class EncodersLayout(Layout):
    """Bags with the features of all places; labels, patients and coordinates are those of the first.

    Args:
        layouts: the bags of each encoder.
        settings: how they are read.

    Raises:
        ConfigError: a place twice.
    """

    name = "bags by several patch encoders"

    def __init__(self, layouts: Sequence[Layout], settings: LoadSettings) -> None:
        self.first, *self.others = layouts
        self.path, self.settings = self.first.path, settings
        if (twice := first_repeated(layout.path.resolve() for layout in layouts)) is not None:
            item, wanted = f"more_features {str(twice)!r}", "a folder of its own for each encoder"
            raise ConfigError(item=item, wanted=wanted, got="the same one twice", fix="leave it out")

    @staticmethod
    def matches(path: Path) -> bool:
        """Return whether a path alone names such bags, which it never does."""
        return False

    def list(self) -> tuple[str, ...]:
        """Return the names of the bags of the first place."""
        first = self.first
        self.listed = first.list()
        self.has_labels, self.label_columns, self.patients = first.has_labels, first.label_columns, first.patients
        return self.listed

    def open(self, names: Sequence[str], left_out: Sequence[LeftOut], classes: Sequence[str]) -> LoadedBags:
        """Return the bags of which each place has the same patches; the others are bad.

        Raises:
            DataError: a place without any of the bags, or bags that cannot be used.
        """
        opened = self.first.open(names, left_out, classes)
        bad, notes, bags = list(opened.left_out), list(opened.notes), [opened.bags]
        for layout in self.others:
            more = self._open_as(layout, opened.bags.ids, classes)
            bad += more.left_out
            notes += more.notes
            bags.append(more.bags)
        parts: dict[str, BagDataset] = dict(zip(self._names(bags), bags, strict=True))
        unlike, known = unlike_patches(parts), {one.bag for one in bad}
        wanted = "expected the same patches by each encoder, got"
        bad += [LeftOut(bag, f"{wanted} {said}") for bag, said in unlike.items() if bag not in known]
        alike = {
            name: part.subset([row for row, bag in enumerate(part.ids) if bag not in unlike])
            for name, part in parts.items()
        }
        count = len(opened.bags) - sum(bag in unlike for bag in opened.bags.ids)
        refuse_or_skip(str(self.path), count, bad, skip_bad=self.settings.skip_bad)
        if without := [name for name, part in parts.items() if part.coords is None]:
            notes.append(f"{first_few(without)} without coords: rows of one number are taken for the same patch")
        return LoadedBags(join_features(alike), tuple(bad), tuple(notes))

    def _open_as(self, layout: Layout, names: Sequence[str], classes: Sequence[str]) -> LoadedBags:
        """Return the bags of another place that have these names, under them."""
        theirs, where = layout.list(), str(layout.path)
        places = zip(self.listed, match_names(self.listed, theirs, str(self.path)), strict=True)
        known = {theirs[place]: name for name, place in places if place is not None}
        name_of = {bag: name for bag, name in known.items() if name in set(names)}
        only = sorted({*theirs} - {*known})
        if not name_of:
            wanted, got = f"bags of {str(self.path)!r}, such as {names[0]!r}", f"others, such as {theirs[0]!r}"
            raise DataError(item=repr(where), wanted=wanted, got=got, fix="pass features of the same bags")
        found = layout.open(list(name_of), (), classes)
        left_out = tuple(replace(one, bag=name_of[one.bag]) for one in found.left_out)
        said = [f"{plural(len(only), 'bag')} of {where!r} alone were not read: {first_few(only)}"] if only else []
        bags = replace(found.bags, ids=tuple(name_of[name] for name in found.bags.ids))
        return LoadedBags(bags, left_out, (*found.notes, *said))

    def _names(self, bags: Sequence[BagDataset]) -> tuple[str, ...]:
        """Return what each encoder is called, by its files or its place; numbered where two are alike."""
        places = [strip_endings(layout.path.name) for layout in (self.first, *self.others)]
        names = [part.extractor or place for part, place in zip(bags, places, strict=True)]
        return tuple(f"{name} {number}" if names.count(name) > 1 else name for number, name in enumerate(names, 1))
