"""Training and prediction of slides beside torchmil, and beside the paper's published code, in one run.

Usage: python benchmarks/peers.py [--slides 32] [--instances 4000] [--cpu-time] [--published FOLDER] [--json FILE]

All train attention MIL with the same widths on the same ragged slides of 512 float32 features: two layers of 512,
attention of 256, Adam. torchmil pads eight slides to the largest; its loss is the cross-entropy of bags, and its
prediction is that of bags with the attention. Ours packs them and checks that they are finite; its prediction is
that of bags and of every instance, with all measures. MIREL has a fifth more to multiply than the network that all
share, for the residual of each instance. Ratios are medians over repetitions that take turns: above 1, ours is
faster. On a machine that others use, --cpu-time compares seconds of processor time. The published code is read
from a checkout of https://github.com/liupei101/MIREL (commit d92653d); it takes one bag at a time.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import BAGS_PER_UPDATE, medians, optimizer_of
from torch import Tensor, nn

from miue.bags.batches import shuffled_batches
from miue.bags.dataset import BagDataset
from miue.common.errors import MiueError, StorageError
from miue.common.extras import import_extra
from miue.common.option_types import Option
from miue.methods import Method
from miue.model import predict as prediction
from miue.model.config import build_method
from miue.model.contract import DataContract
from miue.model.recipe import Recipe

WIDTH, ATTENTION = 512, 256
METHODS = ("softmax", "mirel")
Run = Callable[[], None]


def ragged_slides(count: int, mean: int) -> BagDataset:
    """Return slides of a third to five thirds of the mean number of instances."""
    random = np.random.default_rng(0)
    sizes = random.integers(max(1, mean // 3), mean * 5 // 3 + 1, count)
    arrays = [random.standard_normal((size, WIDTH), dtype=np.float32) for size in sizes]
    return BagDataset.from_arrays(arrays, [bag % 2 for bag in range(count)])


def build(method: str) -> Method:
    """Return attention MIL with a method of ours, and the layers of torchmil's: features are taken as they are."""
    options: dict[str, Option] = {"network.hidden": ATTENTION, "encoder.scaling": "as-is"}
    config = Recipe(method=method, encoder="mlp", options=options).model_config((WIDTH,))
    return build_method(config, DataContract(instance_shape=(WIDTH,), class_names=("0", "1")), seed=1)


def our_epoch(method: str, bags: BagDataset, together: int) -> Run:
    """One epoch: an update per ``together`` packed slides."""
    model = build(method).train()
    optimizer = optimizer_of(model)

    def run() -> None:
        for batch in shuffled_batches(bags, together, seed=1, epoch=0):
            optimizer.zero_grad()
            model.loss(batch, 1).backward()
            optimizer.step()

    return run


def our_prediction(method: str, bags: BagDataset, together: int) -> Run:
    """Predictions of slides and instances with all measures, of one slide after another or of several."""
    model = build(method)

    def run() -> None:
        before = prediction.BATCH_INSTANCES
        prediction.BATCH_INSTANCES = 1 if together == 1 else int(bags.sizes.mean()) * together
        try:
            for of_bags, of_instances in prediction.predict(model, bags):
                of_bags.uncertainties()
                of_instances.uncertainties()
        finally:
            prediction.BATCH_INSTANCES = before

    return run


def torchmil_model() -> Any:
    """Return torchmil's attention MIL with the same layers.

    Raises:
        ConfigError: torchmil is not installed.
    """
    models = import_extra("torchmil.models", "the comparison with torchmil", "torchmil")
    layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    return models.ABMIL((WIDTH,), att_dim=ATTENTION, feat_ext=layers)


def slide(bags: BagDataset, bag: int) -> Tensor:
    """Return the features of a slide as peers read them: from memory, without a check."""
    start, size = bags.starts[bag], bags.sizes[bag]
    return torch.from_numpy(bags.instances[start : start + size])


def padded(bags: BagDataset, group: Iterable[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return slides as torchmil's loader does: padded features, their mask, and labels."""
    collate = import_extra("torchmil.data", "the comparison with torchmil", "torchmil")
    features, mask = collate.pad_tensors([slide(bags, bag) for bag in group])
    return features, mask, torch.tensor(bags.labels.values[np.array(group)])


def torchmil_epoch(bags: BagDataset, together: int) -> Run:
    """One epoch of torchmil, with the same slides in each update."""
    model = torchmil_model().train()
    optimizer = optimizer_of(model)

    def run() -> None:
        for group in shuffled_batches(bags, together, seed=1, epoch=0).groups:
            features, mask, labels = padded(bags, group)
            optimizer.zero_grad()
            _, losses = model.compute_loss(labels, features, mask)
            sum(losses.values()).backward()
            optimizer.step()

    return run


def torchmil_prediction(bags: BagDataset, together: int) -> Run:
    """Prediction of torchmil: logits of slides, attention of instances."""
    model = torchmil_model().eval()

    def run() -> None:
        with torch.inference_mode():
            for first in range(0, len(bags), together):
                features, mask, _ = padded(bags, range(first, min(first + together, len(bags))))
                model.predict(features, mask, return_inst_pred=True)

    return run


def published_model(folder: Path) -> Any:
    """Return attention MIL of the paper's published code.

    Raises:
        StorageError: ``folder`` is no checkout of it, or the code cannot be imported.
    """
    wanted = "a checkout of https://github.com/liupei101/MIREL, with model/model_utils.py"
    fix = "clone it and install what it imports, or leave out --published"
    if not (folder / "model" / "model_utils.py").is_file():
        got = "no such folder" if not folder.is_dir() else "a folder without that file"
        raise StorageError(item=f"--published {str(folder)!r}", wanted=wanted, got=got, fix=fix)
    sys.path.insert(0, str(folder.resolve()))
    try:
        load: Any = importlib.import_module("model.model_utils").load_model
    except (ImportError, AttributeError) as error:
        raise StorageError(item=f"--published {str(folder)!r}", wanted=wanted, got=str(error), fix=fix) from error
    return load(
        "clf",
        "ABMIL",
        [WIDTH, ATTENTION, 2],
        drop_rate=0.0,
        use_feat_proj="default",
        edl_output=False,
        edl_evidence_func="exp",
        pooling="attention",
        ins_pred_from="ins",
    )


def published_epoch(model: Any, bags: BagDataset) -> Run:
    """One epoch of the published network: one slide at a time, an update per eight."""
    optimizer = optimizer_of(model.train())

    def run() -> None:
        for group in shuffled_batches(bags, BAGS_PER_UPDATE, seed=1, epoch=0).groups:
            optimizer.zero_grad()
            for bag in group:
                label = torch.tensor([bags.labels.values[bag]])
                (nn.functional.cross_entropy(model(slide(bags, bag)[None]), label) / len(group)).backward()
            optimizer.step()

    return run


def published_prediction(model: Any, bags: BagDataset) -> Run:
    """Prediction of the published network, of slides and of their instances."""

    def run() -> None:
        model.eval()
        with torch.inference_mode():
            for bag in range(len(bags)):
                model(slide(bags, bag)[None], ret_ins_res=True)

    return run


def comparisons(bags: BagDataset, published: Any | None) -> Iterator[tuple[str, Run, Run]]:
    """Yield what is compared, the peer, and ours."""
    for together in (BAGS_PER_UPDATE, 1):
        how = f"batches of {together}" if together > 1 else "bag by bag"
        for method in METHODS:
            yield (
                f"torchmil, training, {how}, {method}",
                torchmil_epoch(bags, together),
                our_epoch(method, bags, together),
            )
            yield (
                f"torchmil, prediction, {how}, {method}",
                torchmil_prediction(bags, together),
                our_prediction(method, bags, together),
            )
    if published is not None:
        yield (
            "published code, training, softmax",
            published_epoch(published, bags),
            our_epoch("softmax", bags, BAGS_PER_UPDATE),
        )
        yield (
            "published code, prediction, softmax",
            published_prediction(published, bags),
            our_prediction("softmax", bags, BAGS_PER_UPDATE),
        )


def main() -> None:
    """Print the ratios and, where asked, write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slides", type=int, default=32)
    parser.add_argument("--instances", type=int, default=4000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--published", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    try:
        torchmil_model()
        published = None if arguments.published is None else published_model(arguments.published)
    except MiueError as error:
        sys.exit(str(error))
    bags = ragged_slides(arguments.slides, arguments.instances)
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    results: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "clock": clock.__name__,
    }
    padding = np.mean([bags.sizes[i : i + BAGS_PER_UPDATE].max() for i in range(0, len(bags), BAGS_PER_UPDATE)])
    print(
        f"{len(bags)} slides of {bags.sizes.min():,} to {bags.sizes.max():,} × {WIDTH} float32, padded to "
        f"{padding / bags.sizes.mean():.2f} times their size in batches of {BAGS_PER_UPDATE}; "
        f"{results['threads']} threads, medians of {arguments.repetitions} ({clock.__name__})"
    )
    for name, theirs, ours in comparisons(bags, published):
        their_seconds, our_seconds = medians(theirs, ours, repetitions=arguments.repetitions, clock=clock)
        print(f"{name}: theirs {their_seconds:.2f} s, ours {our_seconds:.2f} s, {their_seconds / our_seconds:.2f}")
        results[name] = {"theirs": their_seconds, "ours": our_seconds, "ratio": their_seconds / our_seconds}
    if published is None:
        print("the paper's published code is not compared: pass its checkout as --published FOLDER")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
