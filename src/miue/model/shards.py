"""Shards of a prediction: described when they are computed, and merged into what one command writes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from miue.bags.dataset import BagDataset
from miue.bags.fingerprint import fingerprint, fingerprint_of_facts
from miue.calibration import Calibration, decide
from miue.common.errors import MiueError, StorageError, first_few, wrong_type
from miue.common.files import atomic_folder, file_sha256, read_json, write_json
from miue.common.folder_kinds import EMPTY_SHARD, PREDICTIONS
from miue.common.tasks import Shard
from miue.common.text import bar
from miue.common.values import check_value, several
from miue.model.predict import NoReadableBag
from miue.predictions.folder import Predictions, read_predictions
from miue.predictions.provenance import Provenance, ShardOf
from miue.predictions.stored_instances import StoredInstances
from miue.predictions.stream import PredictionStream
from miue.predictions.table import PredictionTable

FIX = "merge the shards of one prediction: the same run, bags and options"


class EmptyShard(BaseModel):
    """A shard without bags: there are fewer batches than shards, or all were left out since none can be read.

    Attributes:
        shard: which.
        weights_sha256: of the model.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    shard: ShardOf
    weights_sha256: str


def describe_shard(shard: Shard, bags: BagDataset, seed: int, precision: str, run: Path) -> ShardOf:
    """Return what shows that shards belong together.

    Args:
        shard: which.
        bags: all that are predicted, in all shards.
        seed: of the draws.
        precision: of the encoder.
        run: folder of the model.
    """
    asked = f"{fingerprint(bags)} {fingerprint_of_facts(bags)} {seed} {precision}"
    request = hashlib.sha256(asked.encode()).hexdigest()[:16]
    digest = _digest(run) if (run / "calibration.json").exists() else ""
    where = str(run.resolve())
    return ShardOf(number=shard.number, count=shard.count, request=request, run=where, calibration=digest)


def merge_predictions(
    folders: Sequence[Path | str],
    out: Path | str,
    *,
    overwrite: bool = False,
    table_format: str | None = None,
    progress: bool = False,
) -> Predictions:
    """Write the predictions of all shards to one folder, byte for byte as without shards, and return them.

    Args:
        folders: of all shards, in any order.
        out: folder to write.
        overwrite: replace what is there.
        table_format: of the instances, "parquet" or "csv"; None for that of the shards.
        progress: show a bar with the time left.

    Raises:
        ConfigError: no folder, or one path in place of several.
        StorageError: a folder that is no shard, a shard that is missing, there twice, or of another prediction;
            a calibration that is gone or was made again meanwhile.
        NoReadableBag: no shard has any.
    """
    listed = several(folders)
    if not listed:
        raise wrong_type("folders", "the folders of all shards", folders, "pass a list of them")
    check_value("folders", listed, Sequence[Path | str])
    shards = _in_order([Path(folder) for folder in listed])
    if not shards:
        raise NoReadableBag("the shards")
    first = shards[0].provenance
    of_shard = first.shard
    assert of_shard is not None
    calibration = _read_calibration(of_shard)
    if table_format is None:
        in_parts = any(isinstance(shard.instances, StoredInstances) for shard in shards)
        table_format = "parquet" if in_parts else "csv"

    def complete(predictions: Predictions) -> Predictions:
        parts = [shard.bags.training_parts for shard in shards]
        if any(part is not None for part in parts):
            none = [np.full(len(shard.bags), "", object) for shard in shards]
            whole = np.concatenate([own if part is None else part for part, own in zip(parts, none, strict=True)])
            predictions = replace(predictions, bags=replace(predictions.bags, training_parts=whole))
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
    read: dict[int, Predictions | EmptyShard] = {}
    where: dict[int, Path] = {}
    for folder in folders:
        found = _read_shard(folder)
        shard = _shard_of(found)
        if not shard.number <= shard.count:
            raise _refused(folder, f"a shard from 1 to {shard.count}", f"shard {shard}")
        first = next(iter(read.values()), found)
        if shard.count != _shard_of(first).count:
            raise _refused(folder, f"one of {_shard_of(first).count} shards, as the first is", f"shard {shard}")
        if shard.number in read:
            raise _refused(folder, "each shard once", f"shard {shard}, which is {str(where[shard.number])!r} too")
        if difference := _difference(found, first):
            raise _refused(folder, f"a shard of the prediction of {str(folders[0])!r}", difference)
        read[shard.number], where[shard.number] = found, folder
    missing = [str(number) for number in range(1, shard.count + 1) if number not in read]
    if missing:
        raise StorageError(
            item=f"shard {missing[0]}/{shard.count}",
            wanted=f"all of the {shard.count} shards",
            got=f"{len(read)}; missing: {first_few(missing, 10)}",
            fix="predict the missing ones with --shard, then merge again",
        )
    in_order = [read[number] for number in sorted(read)]
    predicted = [found for found in in_order if isinstance(found, Predictions)]
    for shard_predictions in predicted[1:]:
        if difference := _other_provenance(shard_predictions.provenance, predicted[0].provenance):
            folder = where[_shard_of(shard_predictions).number]
            raise _refused(folder, "a shard of the same prediction as the others", difference)
    return predicted


def write_empty_shard(folder: Path, empty: EmptyShard, *, overwrite: bool) -> None:
    """Write that a shard has no bag that can be read, in place of its predictions."""
    with atomic_folder(folder, PREDICTIONS, overwrite=overwrite) as temporary:
        write_json(temporary / EMPTY_SHARD, empty.model_dump(mode="json"))


def _read_shard(folder: Path) -> Predictions | EmptyShard:
    if (folder / EMPTY_SHARD).exists():
        try:
            return EmptyShard(**read_json(folder / EMPTY_SHARD, what="an empty shard"))
        except ValidationError as error:
            raise _refused(
                folder, "a shard, as 'miue predict --shard' writes it", f"{EMPTY_SHARD} with other keys"
            ) from error
    predictions = read_predictions(folder)
    if predictions.provenance.shard is None or predictions.instances is None:
        raise _refused(folder, "a shard, as 'miue predict --shard' writes it", "whole predictions")
    return predictions


def _shard_of(found: Predictions | EmptyShard) -> ShardOf:
    shard = found.shard if isinstance(found, EmptyShard) else found.provenance.shard
    assert shard is not None
    return shard


def _difference(found: Predictions | EmptyShard, first: Predictions | EmptyShard) -> str:
    """Return what shows that two shards are of different predictions, "" where nothing does."""
    weights = [
        each.weights_sha256 if isinstance(each, EmptyShard) else each.provenance.weights_sha256
        for each in (found, first)
    ]
    if weights[0] != weights[1]:
        return "one of another model: other weights"
    ours, theirs = _shard_of(found), _shard_of(first)
    for name, problem in (
        ("request", "other bags, labels or patients, another --seed or --precision"),
        ("calibration", "another calibration"),
    ):
        if getattr(ours, name) != getattr(theirs, name):
            return f"one of another prediction: {problem}"
    return ""


def _other_provenance(ours: Provenance, theirs: Provenance) -> str:
    """Return which facts of two shards show that they are of different predictions, "" where none does."""
    left_out = {"shard", "bags"}
    if ours.model_dump(exclude=left_out) == theirs.model_dump(exclude=left_out):
        return ""
    names = [name for name, value in ours if name not in left_out and value != getattr(theirs, name)]
    return f"one of another prediction: another {', '.join(names)}"


def _read_calibration(shard: ShardOf) -> Calibration | None:
    """Return the calibration of the run that made the shards, unless it had none.

    Raises:
        StorageError: it is gone, or was made again meanwhile.
    """
    if not shard.calibration:
        return None
    path, fix = Path(shard.run) / "calibration.json", "put it back, or predict again"
    if _digest(Path(shard.run)) != shard.calibration:
        wanted, got = "the calibration that the shards were predicted with", "one that was made since"
        raise StorageError(item=repr(str(path)), wanted=wanted, got=got, fix=fix)
    return Calibration.load(path)


def _digest(run: Path) -> str:
    return file_sha256(run / "calibration.json")[:16]


def _refused(folder: Path, wanted: str, got: str) -> MiueError:
    return StorageError(item=f"predictions {str(folder)!r}", wanted=wanted, got=got, fix=FIX)
