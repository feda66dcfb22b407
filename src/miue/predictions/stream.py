"""Predictions that are computed while they are taken: collected in memory, or written part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from miue.bags.arrays import check_ids
from miue.common.errors import ConfigError
from miue.common.files import atomic_folder
from miue.common.folder_kinds import PREDICTIONS
from miue.predictions.folder import Predictions, check_table_format
from miue.predictions.part_writer import PartWriter
from miue.predictions.parts import FOLDER
from miue.predictions.provenance import Provenance
from miue.predictions.stored_instances import StoredInstances
from miue.predictions.table import PredictionTable

TABLES_JOINED = 64


@dataclass
class PredictionStream:
    """Predictions of some whole bags after another; they can be taken once.

    Attributes:
        batches: of some bags and of all their instances.
        provenance: what makes them.
        complete: adds what needs all bags, such as decisions; the predictions that it takes have no instances.
        taken: whether they were, also where that ended in an error.
    """

    batches: Iterator[tuple[PredictionTable, PredictionTable]]
    provenance: Provenance
    complete: Callable[[Predictions], Predictions]
    taken: bool = field(default=False, init=False)

    def collect(self) -> Predictions:
        """Return all of them, in memory.

        Raises:
            ConfigError: they were taken before.
        """
        bags, instances = zip(*self._take(), strict=True)
        return replace(self._of_bags(list(bags)), instances=PredictionTable.concatenate(list(instances)))

    def collect_bags(self) -> Predictions:
        """Return those of bags alone, in memory; those of instances are dropped as they come.

        Raises:
            ConfigError: they were taken before.
        """
        return self._of_bags(_joined(of_bags for of_bags, _ in self._take()))

    def save(self, path: Path | str, *, overwrite: bool = False, table_format: str = "parquet") -> Predictions:
        """Write them to the folder ``path``, whole or not at all, and return them as they are read from there.

        Parts of the instances are written while the next bags are computed, so that memory does not grow with the
        number of bags; as CSV they are collected first.

        Args:
            path: the folder.
            overwrite: replace what is there.
            table_format: of the instances, "parquet" or "csv".

        Raises:
            DataError: a bag is there twice.
            StorageError: ``path`` is taken, or the disk is full.
            ConfigError: no such format, or they were taken before.
        """
        check_table_format(table_format)
        if table_format == "csv":
            predictions = self.collect()
            predictions.save(path, overwrite=overwrite, table_format=table_format)
            return predictions
        with atomic_folder(Path(path), PREDICTIONS, overwrite=overwrite) as folder:
            with PartWriter(folder / FOLDER) as writer:
                bags = _joined(_written(_each_bag_once(self._take()), writer))
            predictions = self._of_bags(bags)
            predictions.write_bags(folder, writer.parts)
        return replace(predictions, instances=StoredInstances(Path(path) / FOLDER, writer.parts))

    def _take(self) -> Iterator[tuple[PredictionTable, PredictionTable]]:
        """Return the batches.

        Raises:
            ConfigError: they were taken before: those that are left are not all.
        """
        if self.taken:
            raise ConfigError(
                item="the stream of predictions",
                wanted="one whose predictions were not taken yet",
                got="one that was collected or saved, or began to be",
                fix="make another with model.stream(bags), or read what was saved: miue.read_predictions(folder)",
            )
        self.taken = True
        return self.batches

    def _of_bags(self, tables: list[PredictionTable]) -> Predictions:
        return self.complete(Predictions(PredictionTable.concatenate(tables), None, self.provenance))


def _written(
    batches: Iterator[tuple[PredictionTable, PredictionTable]], writer: PartWriter
) -> Iterator[PredictionTable]:
    """Write the instances, and yield the bags."""
    for of_bags, of_instances in batches:
        writer.add(of_instances)
        yield of_bags


def _joined(tables: Iterable[PredictionTable]) -> list[PredictionTable]:
    """Return the same rows in fewer tables.

    A table of one bag has a dozen small arrays. Among the large arrays of instances, they keep the C library from
    using the memory between them again: a process grew by 60 kB for each slide of 12,000 instances.
    """
    rest = iter(tables)
    return [PredictionTable.concatenate(some) for some in iter(lambda: list(islice(rest, TABLES_JOINED)), [])]


def _each_bag_once(
    batches: Iterator[tuple[PredictionTable, PredictionTable]],
) -> Iterator[tuple[PredictionTable, PredictionTable]]:
    """Yield the batches as they come.

    Raises:
        DataError: a bag of one is there twice, or was in another before.
    """
    seen: set[str] = set()
    for of_bags, of_instances in batches:
        ids = of_bags.bag_ids.tolist()
        check_ids([*seen.intersection(ids), *ids])
        seen.update(ids)
        yield of_bags, of_instances
