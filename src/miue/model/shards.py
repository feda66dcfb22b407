"""Predictions written to a folder: by this process, a shard by a job of a cluster, or all shards as tasks."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from miue.bags import BagDataset, fingerprint, fingerprint_of_facts
from miue.calibration import CALIBRATION, Calibration, decide
from miue.common.errors import MiueError, StorageError, first_few, wrong_type
from miue.common.files import atomic_folder, file_sha256, make_folder, read_json, write_json
from miue.common.folder_kinds import EMPTY_SHARD, PREDICTIONS
from miue.common.outputs import locked
from miue.common.tasks import MOST_SHARDS, Executor, Shard, Task, run_tasks
from miue.common.tensors import write_nested
from miue.common.text import bar
from miue.common.values import check_value, several
from miue.io import describe_bags, find_bags_again, read_handed_over
from miue.io.instances import state_of_bags
from miue.model.folder import CONFIG
from miue.model.model import Model
from miue.model.predict import NoReadableBag, batches_of
from miue.predictions import (
    Predictions,
    PredictionStream,
    PredictionTable,
    ShardOf,
    StoredInstances,
    read_predictions,
)

BAGS = "bags.safetensors"


class EmptyShard(BaseModel):
    """A shard without bags: there are fewer batches than shards, or none of its bags can be read.

    Attributes:
        shard: which.
        weights_sha256: of the model.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    shard: ShardOf
    weights_sha256: str


@dataclass(frozen=True)
class PredictionRequest:
    """What all shards of a prediction share, besides the bags.

    Attributes:
        run: folder of the model.
        source: path of the bags, for the provenance.
        split: which of them, likewise.
        estimator: what instances are predicted from; None for that of the model.
        seed: of the draws.
        device: "auto", "cpu", "gpu".
        precision: of the encoder.
        skip_bad: leave out bags that cannot be read; else the first is an error.
        trust: run third-party code that the model names.
    """

    run: str
    source: str
    split: str
    estimator: str | None = None
    seed: int = 0
    device: str = "auto"
    precision: str = "float32"
    skip_bad: bool = False
    trust: bool = False


def write_predictions(
    model: Model,
    bags: BagDataset,
    request: PredictionRequest,
    out: Path,
    *,
    shard: ShardOf | None = None,
    overwrite: bool = False,
    table_format: str = "parquet",
    progress: bool = False,
) -> tuple[Predictions | None, list[str]]:
    """Predict in this process, and return the predictions, and which bags were left out, with the reasons.

    Args:
        model: read from the folder of the request.
        bags: of all shards.
        request: what is predicted.
        out: folder to write; where the shard has no bag that can be read it says so, and there are no predictions.
        shard: which part of the bags to predict, of ``describe_shard``; None for all.
        overwrite: replace what is there.
        table_format: of the instances, "parquet" or "csv".
        progress: show a bar with the time left.

    Raises:
        DataError: a bag that cannot be read, unless it is left out; none that can.
    """
    left_out: list[str] = []
    stream = model.stream(
        bags,
        estimator=request.estimator,
        seed=request.seed,
        progress=progress,
        device=request.device,
        precision=request.precision,
        on_bad=(lambda name, error: left_out.append(f"{name}: {error}")) if request.skip_bad else None,
        shard=None if shard is None else Shard(shard.number, shard.count),
    )
    facts = {"bags": request.source, "split": request.split, "shard": shard}
    stream = replace(stream, provenance=stream.provenance.model_copy(update=facts))
    try:
        return stream.save(out, overwrite=overwrite, table_format=table_format), left_out
    except NoReadableBag:
        if shard is None:
            raise
        empty = EmptyShard(shard=shard, weights_sha256=model.weights_sha256)
        with atomic_folder(out, PREDICTIONS, overwrite=overwrite) as folder:
            write_json(folder / EMPTY_SHARD, empty.model_dump(mode="json"))
        return None, left_out


def write_predictions_side_by_side(
    bags: BagDataset,
    request: PredictionRequest,
    out: Path,
    executor: Executor,
    *,
    overwrite: bool = False,
    table_format: str = "parquet",
    progress: bool = False,
) -> tuple[Predictions, list[str]]:
    """Write what one process of as many threads writes, byte for byte; return it, and which bags were left out.

    Shards are tasks, kept in a folder beside ``out`` until all are merged: after a kill, the same call goes on.

    Args:
        bags: to predict.
        request: what is predicted.
        out: folder to write.
        executor: where the shards are predicted.
        overwrite: replace what is there.
        table_format: of the instances.
        progress: show a bar with the time left.

    Raises:
        MiueError: of a shard, or of the executor.
    """
    count = min(MOST_SHARDS, len(batches_of(bags)))
    first = describe_shard(Shard(1, count), bags, request.seed, request.precision, Path(request.run))
    shards = [first.model_copy(update={"number": number}) for number in range(1, count + 1)]
    with locked(out):
        folder = out.parent.resolve() / f".{out.name}.shards" / _request_digest(request, first, bags)
        for other in folder.parent.iterdir() if folder.parent.exists() else ():
            if other != folder:  # of another prediction that was not finished
                shutil.rmtree(other)
        make_folder(folder)
        try:
            write_nested(folder / BAGS, describe_bags(bags, folder / "bags.npy"))
        except MiueError:  # a full disk: room for others
            (folder / "bags.npy").unlink(missing_ok=True)
            raise
        tasks = [
            Task(
                name=f"shard {shard} of {out}",
                function="miue.model.shards:shard_task",
                arguments={"folder": str(folder), "request": asdict(request), "shard": shard.model_dump()},
                part=folder / f"{shard.number}.json",
            )
            for shard in shards
        ]
        run_tasks(tasks, executor, doing="predicting", unit="shards", progress=progress)
        left_out = [line for task in tasks for line in read_json(task.part, what="a shard")["left_out"]]
        parts = [folder / str(shard.number) for shard in shards]
        predictions = merge_predictions(parts, out, overwrite=overwrite, table_format=table_format)
        shutil.rmtree(folder.parent)
    return predictions, left_out


def shard_task(folder: str, request: Mapping[str, Any], shard: Mapping[str, Any]) -> None:
    """Write one shard into ``folder``, and beside it, last, what was left out."""
    what, which, where = PredictionRequest(**request), ShardOf(**shard), Path(folder)
    model, bags = _opened(folder, what.run, what.trust)
    _, left_out = write_predictions(model, bags, what, where / str(which.number), shard=which, overwrite=True)
    write_json(where / f"{which.number}.json", {"left_out": left_out})


@lru_cache(1)
def _opened(folder: str, run: str, trust: bool) -> tuple[Model, BagDataset]:
    return Model.load(run, trust=trust), find_bags_again(read_handed_over(Path(folder) / BAGS))


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
    digest = _digest(run) if (run / CALIBRATION).exists() else ""
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
    wanted: dict[str, Any] = {}
    for folder in folders:
        shard = _read_shard(folder)
        of, facts = _shard_of(shard), _facts(shard)
        others = [name for name, value in facts.items() if wanted.setdefault(name, value) != value]
        if others:
            said = f"one of another prediction: another {', '.join(others)}"
            raise _refused(folder, f"a shard of the prediction of {str(folders[0])!r}", said)
        if of.number in read:
            raise _refused(folder, "each shard once", f"shard {of}, which is {str(where[of.number])!r} too")
        read[of.number], where[of.number] = shard, folder
    missing = [str(number) for number in range(1, of.count + 1) if number not in read]
    if missing:
        raise StorageError(
            item=f"shard {missing[0]}/{of.count}",
            wanted=f"all of the {of.count} shards",
            got=f"{len(read)}; missing: {first_few(missing, 10)}",
            fix="predict the missing ones, then merge again",
        )
    in_order = [read[number] for number in sorted(read)]
    return [shard for shard in in_order if isinstance(shard, Predictions)]


def _facts(shard: Predictions | EmptyShard) -> dict[str, Any]:
    """Return what all shards of one prediction share, by what it is called; of an empty one some is not known."""
    of = _shard_of(shard)
    facts = {
        "number of shards": of.count,
        "bags, labels, patients, seed or precision": of.request,
        "calibration of the run": of.calibration,
    }
    if isinstance(shard, EmptyShard):
        return {"model": shard.weights_sha256, **facts}
    provenance = shard.provenance
    others = {name: value for name, value in provenance if name not in ("shard", "bags", "weights_sha256")}
    return {"model": provenance.weights_sha256, **facts, **others}


def _read_shard(folder: Path) -> Predictions | EmptyShard:
    wanted = "a shard of a prediction"
    if (folder / EMPTY_SHARD).exists():
        try:
            return EmptyShard(**read_json(folder / EMPTY_SHARD, what="an empty shard"))
        except ValidationError as error:
            raise _refused(folder, wanted, f"{EMPTY_SHARD} with other keys") from error
    predictions = read_predictions(folder)
    if predictions.provenance.shard is None or predictions.instances is None:
        raise _refused(folder, wanted, "whole predictions")
    return predictions


def _shard_of(found: Predictions | EmptyShard) -> ShardOf:
    shard = found.shard if isinstance(found, EmptyShard) else found.provenance.shard
    assert shard is not None
    return shard


def _read_calibration(shard: ShardOf) -> Calibration | None:
    """Return the calibration of the run that made the shards, unless it had none.

    Raises:
        StorageError: it is gone, or was made again meanwhile.
    """
    if not shard.calibration:
        return None
    path, fix = Path(shard.run) / CALIBRATION, "put it back, or predict again"
    if _digest(Path(shard.run)) != shard.calibration:
        wanted, got = "the calibration that the shards were predicted with", "one that was made since"
        raise StorageError(item=repr(str(path)), wanted=wanted, got=got, fix=fix)
    return Calibration.load(path)


def _digest(run: Path) -> str:
    return file_sha256(run / CALIBRATION)[:16]


def _refused(folder: Path, wanted: str, got: str) -> MiueError:
    fix = "merge the shards of one prediction: the same run, bags and options"
    return StorageError(item=f"predictions {str(folder)!r}", wanted=wanted, got=got, fix=fix)


def _request_digest(request: PredictionRequest, shard: ShardOf, bags: BagDataset) -> str:
    """Return the name of a folder whose shards are those of this prediction of these instances and no other."""
    model = file_sha256(Path(request.run) / CONFIG)  # which lists the other files
    text = json.dumps([asdict(request), shard.model_dump(), model, state_of_bags(bags)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
