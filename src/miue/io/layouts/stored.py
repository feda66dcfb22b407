"""The layout of a bag store, and what it shares with that of tables: all is read before bags are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from miue.bags.cells import known_text
from miue.bags.classes import known_labels
from miue.io.layouts.layout import Layout, in_order
from miue.io.loaded import LeftOut, LoadedBags, refuse_or_skip
from miue.io.raw_bags import RawBags, to_dataset
from miue.io.store import MAIN, read_raw_store


class StoredLayout(Layout):
    """Bags of which all is read before they are chosen from."""

    raw: RawBags

    def list(self) -> tuple[str, ...]:
        """Return the ids of the bags, those that cannot be used last."""
        raw = self.raw
        labels = known_labels(raw.of_bags.get("label", ()), raw.source, raw.class_names or self.settings.classes)
        self.has_labels = any(labels)
        has = {"label": self.has_labels, "patient": any(map(known_text, raw.of_bags.get("patient", ())))}
        if has["patient"]:
            self.patients = dict(zip(raw.ids, map(known_text, raw.of_bags["patient"]), strict=True))
        if raw.columns:
            self.label_columns = {meaning: name for meaning, name in raw.columns.items() if has.get(meaning)}
        return (*(name for name in raw.ids if name not in raw.bad), *raw.bad)

    def open(self, names: Sequence[str], left_out: Sequence[LeftOut], classes: Sequence[str]) -> LoadedBags:
        """Return the bags of these names; those that are bad are left out."""
        usable = [name for name in names if name not in self.raw.bad]
        bad = [LeftOut(name, self.raw.bad[name]) for name in names if name in self.raw.bad]
        refuse_or_skip(str(self.path), len(usable), [*left_out, *bad], skip_bad=self.settings.skip_bad)
        bags = in_order(to_dataset(self.raw, classes), usable)
        return LoadedBags(bags, (*left_out, *bad), self.raw.notes)


class StoreLayout(StoredLayout):
    """A store that miue wrote."""

    name = "a bag store"

    @staticmethod
    def matches(path: Path) -> bool:
        """Return whether there is a store at a path."""
        return (path / MAIN).exists()

    def list(self) -> tuple[str, ...]:
        """Return the ids of the bags, in the order of their instances."""
        self.raw = read_raw_store(self.path)
        return super().list()
