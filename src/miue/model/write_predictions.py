"""Predictions written to a folder: by this process, a shard by a job of a cluster, or all shards as tasks."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from miue.bags.dataset import BagDataset
from miue.common.errors import MiueError
from miue.common.files import file_sha256, make_folder, read_json, write_json
from miue.common.locks import locked
from miue.common.nested import write_nested
from miue.common.tasks import MOST_SHARDS, Executor, Shard, Task, run_tasks
from miue.io.file_states import state_of_bags
from miue.io.handover import describe_bags, find_bags_again, read_handed_over
from miue.model.folder import CONFIG
from miue.model.model import Model
from miue.model.predict import NoReadableBag, batches_of
from miue.model.shards import EmptyShard, describe_shard, merge_predictions, write_empty_shard
from miue.predictions.folder import Predictions
from miue.predictions.provenance import ShardOf

BAGS = "bags.safetensors"


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
        write_empty_shard(out, EmptyShard(shard=shard, weights_sha256=model.weights_sha256), overwrite=overwrite)
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
        folder = out.parent.resolve() / f".{out.name}.shards" / _digest(request, first, bags)
        _remove_others(folder)
        make_folder(folder)
        try:
            write_nested(folder / BAGS, describe_bags(bags, folder / "bags.npy"))
        except MiueError:  # a full disk: room for others
            (folder / "bags.npy").unlink(missing_ok=True)
            raise
        tasks = [
            Task(
                name=f"shard {shard} of {out}",
                function="miue.model.write_predictions:shard_task",
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


def _digest(request: PredictionRequest, shard: ShardOf, bags: BagDataset) -> str:
    """Return the name of a folder whose shards are those of this prediction of these instances and no other."""
    model = file_sha256(Path(request.run) / CONFIG)  # which lists the other files
    text = json.dumps([asdict(request), shard.model_dump(), model, state_of_bags(bags)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _remove_others(folder: Path) -> None:
    """Remove the shards of another prediction that was not finished."""
    for other in folder.parent.iterdir() if folder.parent.exists() else ():
        if other != folder:
            shutil.rmtree(other)
