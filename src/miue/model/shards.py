"""Shards of a prediction: described when they are computed, and merged into what one command writes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from miue.bags.dataset import BagDataset
from miue.bags.fingerprint import fingerprint
from miue.calibration import Calibration, decide
from miue.common.errors import MiueError, StorageError, first_few, not_readable
from miue.common.progress import bar
from miue.predictions.folder import Predictions, read_predictions
from miue.predictions.provenance import ShardOf
from miue.predictions.stream import PredictionStream
from miue.predictions.table import PredictionTable
from miue.tasks import Shard

FIX = "merge the shards of one prediction: the same run, bags and options"


def describe_shard(shard: Shard, bags: BagDataset, seed: int, run: Path) -> ShardOf:
    """Return what shows that shards belong together.

    Args:
        shard: which.
        bags: all that are predicted, in all shards.
        seed: of the draws.
        run: folder of the model.
    """
    request = hashlib.sha256(f"{fingerprint(bags)} {seed}".encode()).hexdigest()[:16]
    digest = _digest(run) if (run / "calibration.json").exists() else ""
    where = str(run.resolve())
    return ShardOf(number=shard.number, count=shard.count, request=request, run=where, calibration=digest)


def merge_predictions(
    folders: Sequence[Path | str],
    out: Path | str,
    *,
    overwrite: bool = False,
    table_format: str = "parquet",
    progress: bool = False,
) -> Predictions:
    """Write the predictions of all shards to one folder, byte for byte as without shards, and return them.

    Args:
        folders: of all shards, in any order.
        out: folder to write.
        overwrite: replace what is there.
        table_format: of the instances, "parquet" or "csv".
        progress: show a bar with the time left.

    Raises:
        StorageError: a folder that is no shard, a shard that is missing, there twice, or of another prediction;
            a calibration that is gone or was made again meanwhile.
    """
    shards = _in_order([Path(folder) for folder in folders])
    first = shards[0].provenance
    of_shard = first.shard
    assert of_shard is not None
    calibration = _read_calibration(of_shard)

    def complete(predictions: Predictions) -> Predictions:
        parts = [shard.bags.training_parts for shard in shards]
        known = [part for part in parts if part is not None]
        if known:
            predictions = replace(
                predictions, bags=replace(predictions.bags, training_parts=np.concatenate(known))
            )
        return predictions if calibration is None else decide(predictions, calibration)

    rule = None if calibration is None else calibration.instances
    batches = _batches(shards, progress)
    if rule is not None:
        batches = ((of_bags, rule.flag(of_instances)) for of_bags, of_instances in batches)
    stream = PredictionStream(batches, first.model_copy(update={"shard": None}), complete)
    return stream.save(out, overwrite=overwrite, table_format=table_format)


def _batches(shards: Sequence[Predictions], progress: bool) -> Iterator[tuple[PredictionTable, PredictionTable]]:
    """Yield bags with all their instances, a file at a time."""
    with bar("bags", shown=progress) as shown:
        task = shown.add_task("merging", total=sum(len(shard.bags) for shard in shards))
        for shard in shards:
            assert shard.instances is not None
            row_of = {name: row for row, name in enumerate(shard.bags.bag_ids)}
            for part in shard.instances.parts():
                rows = np.array([row_of[name] for name in part.bag_sizes()], np.int64)
                yield shard.bags.subset(rows), part
                shown.advance(task, len(rows))


def _in_order(folders: Sequence[Path]) -> list[Predictions]:
    """Return the predictions of all shards in order, after they were found to be those of one prediction."""
    read: dict[int, Predictions] = {}
    where: dict[int, Path] = {}
    first: ShardOf | None = None
    for folder in folders:
        predictions = read_predictions(folder)
        shard = predictions.provenance.shard
        if shard is None or predictions.instances is None:
            raise _refused(folder, "a shard, as 'miue predict --shard' writes it", "whole predictions")
        if not shard.number <= shard.count:
            raise _refused(folder, f"a shard from 1 to {shard.count}", f"shard {shard}")
        first = first or shard
        if shard.count != first.count:
            raise _refused(folder, f"one of {first.count} shards, as the first is", f"shard {shard}")
        if shard.number in read:
            raise _refused(folder, "each shard once", f"shard {shard}, which is {str(where[shard.number])!r} too")
        if difference := _difference(predictions, next(iter(read.values()), predictions)):
            raise _refused(folder, f"a shard of the prediction of {str(folders[0])!r}", difference)
        read[shard.number], where[shard.number] = predictions, folder
    assert first is not None
    missing = [str(number) for number in range(1, first.count + 1) if number not in read]
    if missing:
        raise StorageError(
            item=f"shard {missing[0]}/{first.count}",
            wanted=f"all of the {first.count} shards",
            got=f"{len(read)}; missing: {first_few(missing, 10)}",
            fix="predict the missing ones with --shard, then merge again",
        )
    return [read[number] for number in sorted(read)]


def _difference(predictions: Predictions, first: Predictions) -> str:
    """Return what shows that two shards are of different predictions, "" where nothing does."""
    ours, theirs = predictions.provenance, first.provenance
    if ours.weights_sha256 != theirs.weights_sha256:
        return "one of another model: other weights"
    assert ours.shard is not None and theirs.shard is not None
    for name, problem in (("request", "other bags or another --seed"), ("calibration", "another calibration")):
        if getattr(ours.shard, name) != getattr(theirs.shard, name):
            return f"one of another prediction: {problem}"
    left_out = {"shard", "bags"}
    if ours.model_dump(exclude=left_out) != theirs.model_dump(exclude=left_out):
        names = [name for name, value in ours if name not in left_out and value != getattr(theirs, name)]
        return f"one of another prediction: another {', '.join(names)}"
    return ""


def _read_calibration(shard: ShardOf) -> Calibration | None:
    """Return the calibration of the run that made the shards, unless it had none.

    Raises:
        StorageError: it is gone, or was made again meanwhile.
    """
    if not shard.calibration:
        return None
    path, fix = Path(shard.run) / "calibration.json", "put it back, or predict again"
    try:
        digest = _digest(Path(shard.run))
    except OSError as error:
        raise not_readable(
            repr(str(path)), "the calibration that the shards were predicted with", error, fix
        ) from error
    if digest != shard.calibration:
        wanted, got = "the calibration that the shards were predicted with", "one that was made since"
        raise StorageError(item=repr(str(path)), wanted=wanted, got=got, fix=fix)
    return Calibration.load(path)


def _digest(run: Path) -> str:
    return hashlib.sha256((run / "calibration.json").read_bytes()).hexdigest()[:16]


def _refused(folder: Path, wanted: str, got: str) -> MiueError:
    return StorageError(item=f"predictions {str(folder)!r}", wanted=wanted, got=got, fix=FIX)
