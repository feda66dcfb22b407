"""A cohort of slides: predicted into a folder, evaluated and reported, against the network on the same arrays.

Usage: python benchmarks/cohort.py [--bags 100 1000] [--instances 12000] [--made] [--folder WORK] [--json FILE]

Slides of 512 float16 features are made by formula when they are read, and are not kept: 1,000 of them are 12 GB.
Each step runs in a process of its own, whose peak memory (resident, with all libraries) is that of the step. The
network's own rate is that of encoding, pooling and estimating the same arrays and nothing else. With --made the
predictions are made by formula, too, and only evaluated and reported.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import in_own_process, resident
from slides import WIDTH, build

import miue
from miue.bags import BagDataset, Labels, OodFlags, ordered_batches
from miue.distributions import Dirichlet
from miue.model import BATCH_INSTANCES, DataContract, fit_distances
from miue.model.encoding import encode_in_chunks
from miue.model.feature_scores import DistanceScores
from miue.model.predict import predict
from miue.predictions import Predictions, PredictionStream, PredictionTable, Provenance, read_predictions
from miue.report.report import write_report

MADE = 60_000  # rows of which every slide takes some, from a start of its own


class MadeSlides:
    """Features of slides, made when they are read.

    Args:
        count: slides.
        size: instances of each.
    """

    def __init__(self, count: int, size: int) -> None:
        self.shape, self.dtype, self.size = (count * size, WIDTH), np.dtype(np.float16), size
        made = np.random.default_rng(0).standard_normal((MADE, WIDTH), dtype=np.float32)
        made[:: MADE // 20] += 1
        self.made = np.concatenate([made, made[:size]]).astype(np.float16)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, span: slice) -> np.ndarray:
        """Return consecutive rows of one slide."""
        start, stop, _ = span.indices(len(self))
        slide, row = divmod(start, self.size)
        first = slide * 7919 % (MADE - self.size) + row
        return self.made[first : first + stop - start]

    def __array__(self, dtype: Any = None) -> np.ndarray:
        raise TypeError("slides are read one by one")


def cohort(count: int, size: int) -> BagDataset:
    """Return slides of which every fifth is out of distribution, with labels of all instances."""
    total, is_ood = count * size, np.arange(count) % 5 == 4
    return BagDataset(
        instances=MadeSlides(count, size),
        starts=np.arange(count) * size,
        sizes=np.full(count, size),
        ids=tuple(f"slide_{bag:05}" for bag in range(count)),
        labels=Labels.of([bag % 2 for bag in range(count)]),
        is_ood=OodFlags.of(is_ood),
        splits=("test",) * count,
        ood_sets=tuple(np.where(is_ood, "other", "").tolist()),
        instance_labels=Labels(np.broadcast_to(np.int64(0), total), np.broadcast_to(True, total)),
        instance_is_ood=OodFlags.of(np.repeat(is_ood, size)),
        class_names=("negative", "positive"),
    )


def measured(task: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Return what ``task`` returns with its peak memory, in a new process."""
    found: dict[str, Any] = in_own_process(_with_peak, task, *arguments)
    return found


def _with_peak(task: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    before = time.process_time()
    found = task(*arguments)
    return {**found, "CPU seconds": time.process_time() - before, "peak MB": resident("VmHWM") * 1.048576}


def network_alone(count: int, size: int) -> dict[str, Any]:
    """Encode, pool and estimate all slides, and keep nothing."""
    bags, method = cohort(count, size), build().eval()
    started = time.perf_counter()
    with torch.inference_mode():
        for group in ordered_batches(bags, BATCH_INSTANCES).groups:
            batch = bags.batch(group)
            method.predict([encode_in_chunks(method.encode, batch.instances)], batch.segments, "residual")
    return {"seconds": time.perf_counter() - started}


def predict_cohort(out: str, count: int, size: int, distances: bool) -> dict[str, Any]:
    """Predict all slides into a folder."""
    bags, method = cohort(count, size), build().eval()
    scores = DistanceScores(fit_distances(method, cohort(5, size), ["knn"], seed=0)) if distances else None
    classes = DataContract(instance_shape=(WIDTH,), class_names=("negative", "positive")).class_names
    started = time.perf_counter()
    PredictionStream(predict(method, bags, scores=scores), Provenance(classes=classes), _unchanged).save(out)
    seconds = time.perf_counter() - started
    parts = list((Path(out) / "instances").iterdir())
    return {"seconds": seconds, "bytes per instance": sum(part.stat().st_size for part in parts) / (count * size)}


def _unchanged(predictions: Predictions) -> Predictions:
    return predictions


def make_predictions(out: str, count: int, size: int) -> dict[str, Any]:
    """Write predictions by formula: every fifth slide is out of distribution, half of them have positives."""

    def table(bag: int, rows: int, instance: np.ndarray | None) -> PredictionTable:
        random, is_ood = np.random.default_rng([bag, rows]), bag % 5 == 4
        labels = np.array([bag % 2]) if instance is None else random.random(rows) < 0.1 * (bag % 2)
        positive = 1 / (1 + np.exp(random.normal(0, 1.5, rows) + np.where(labels, -1.5, 1.5) * (not is_ood)))
        evidence = np.exp(random.normal(1 if is_ood else 2.5, 0.7, rows))
        alpha = 1 + evidence[:, None] * np.stack([1 - positive, positive], 1)
        distance = random.gamma(4 if is_ood else 3, size=rows).astype(np.float32).astype(np.float64)
        return PredictionTable(
            distribution=Dirichlet(torch.from_numpy(alpha).float()),
            bag_ids=np.full(rows, f"slide_{bag:05}", object),
            labels=Labels.of(labels.astype(np.int64)),
            is_ood=OodFlags.of(np.full(rows, is_ood)),
            ood_sets=np.full(rows, "other" if is_ood else "", object),
            instance=instance,
            scores={"knn" if instance is not None else "knn_mean": distance},
        )

    made = ((table(bag, 1, None), table(bag, size, np.arange(size))) for bag in range(count))
    started = time.perf_counter()
    PredictionStream(made, Provenance(classes=("negative", "positive")), _unchanged).save(out)
    return {"seconds": time.perf_counter() - started}


def evaluate_cohort(folder: str) -> dict[str, Any]:
    """Evaluate the predictions in a folder."""
    started = time.perf_counter()
    evaluation = miue.evaluate(read_predictions(folder))
    assert evaluation.instances is not None
    return {"seconds": time.perf_counter() - started, "instances": evaluation.instances.count}


def report_cohort(folder: str) -> dict[str, Any]:
    """Write a report of the predictions in a folder."""
    started = time.perf_counter()
    written = write_report(Path(folder).parent / "report.html", [("cohort", read_predictions(folder))])
    return {"seconds": time.perf_counter() - started, "MB": written.bytes / 1e6}


def main() -> None:
    """Print the figures and, where asked, write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bags", type=int, nargs="+", default=[100])
    parser.add_argument("--instances", type=int, default=12_000)
    parser.add_argument("--made", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = {"threads": torch.get_num_threads(), "torch": torch.__version__}
    size = arguments.instances
    with tempfile.TemporaryDirectory(dir=arguments.folder) as work:
        for count in arguments.bags:
            print(f"{count:,} slides of {size:,} × {WIDTH} float16, {results['threads']} threads")
            folder = str(Path(work) / f"{count}")
            steps: dict[str, dict[str, Any]] = {}
            predicted: list[tuple[Any, ...]] = [
                ("network alone", network_alone, count, size),
                ("predict", predict_cohort, folder, count, size, False),
                ("network alone, again", network_alone, count, size),
                ("predict with knn", predict_cohort, f"{folder}-knn", count, size, True),
            ]
            made: list[tuple[Any, ...]] = [("make predictions", make_predictions, f"{folder}-knn", count, size)]
            for name, *task in (
                *(made if arguments.made else predicted),
                ("evaluate", evaluate_cohort, f"{folder}-knn"),
                ("report", report_cohort, f"{folder}-knn"),
            ):
                steps[name] = measured(*task)
                print(f"  {name}: " + ", ".join(f"{key} {value:,.1f}" for key, value in steps[name].items()))
            results[str(count)] = steps
            if arguments.made:
                continue
            alone = np.mean([steps[name]["seconds"] for name in ("network alone", "network alone, again")])
            share, knn = (alone / steps[name]["seconds"] for name in ("predict", "predict with knn"))
            print(f"  predict runs at {share:.2f} of the network's own rate (wanted 0.8), with knn at {knn:.2f}")
            results[str(count)] |= {"share": share, "share with knn": knn}
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
