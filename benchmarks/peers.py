"""Training and prediction of slides beside torchmil, and beside the paper's published code, in one run.

Usage: python benchmarks/peers.py [--slides 32] [--instances 4000] [--cpu-time] [--published FOLDER] [--json FILE]

All train attention MIL with the same widths on the same ragged slides of 512 float32 features: two layers of 512,
attention of 256, Adam. torchmil pads eight slides to the largest; its loss is the cross-entropy of bags, and its
prediction is that of bags with the attention. Ours packs them and checks that they are finite; its prediction is
that of bags and of every instance, with all measures. MIREL has a fifth more to multiply than the network that all
share, for the residual of each instance. It predicts as it always does, up to 4,096 instances of whole slides
together; the peer predicts eight padded slides, or one. Ratios are medians over repetitions that take turns: above
1, ours is faster. The share is that of the matrix products of our linear layers, slide by slide and nothing else,
in our time: 1 is the most that these layers allow. On a machine that others use, --cpu-time compares seconds of
processor time. The published code is read from a checkout of https://github.com/liupei101/MIREL (commit d92653d);
it takes one bag at a time, of slides and of 500 bags of ten images of 28 × 28 (LeNet), which are tensors already.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import BAGS_PER_UPDATE, medians, optimizer_of
from torch import Tensor, nn

from miue.bags import BagDataset, shuffled_batches
from miue.common.devices import has_bfloat16
from miue.common.errors import MiueError, StorageError, import_extra
from miue.common.values import Option
from miue.methods import Method
from miue.model import DataContract, Recipe, build_method
from miue.model.predict import predict
from miue.networks import PRECISIONS, encoder_precision

WIDTH, ATTENTION = 512, 256
IMAGE, OF_LENET = (28, 28, 1), 800
METHODS = ("softmax", "mirel")
Run = Callable[[], None]


def ragged_slides(count: int, mean: int) -> BagDataset:
    """Return slides of a third to five thirds of the mean number of instances."""
    random = np.random.default_rng(0)
    sizes = random.integers(max(1, mean // 3), mean * 5 // 3 + 1, count)
    arrays = [random.standard_normal((size, WIDTH), dtype=np.float32) for size in sizes]
    return BagDataset.from_arrays(arrays, [bag % 2 for bag in range(count)])


def image_bags() -> BagDataset:
    """Return 500 bags of about ten images, the size of MNIST-bags."""
    random = np.random.default_rng(0)
    sizes = random.integers(8, 13, 500)
    arrays = [random.integers(0, 256, (size, *IMAGE), dtype=np.uint8) for size in sizes]
    return BagDataset.from_arrays(arrays, [bag % 2 for bag in range(500)])


def build(method: str, bags: BagDataset) -> Method:
    """Return attention MIL with a method of ours, and the layers of the peers': features are taken as they are."""
    of_images = bags.instance_shape == IMAGE
    options: dict[str, Option] = {"network.hidden": ATTENTION}
    if not of_images:
        options["encoder.scaling"] = "as-is"
    recipe = Recipe(method=method, encoder="lenet" if of_images else "mlp", options=options)
    contract = DataContract(instance_shape=bags.instance_shape, class_names=("0", "1"))
    return build_method(recipe.model_config(bags.instance_shape), contract, seed=1)


def our_epoch(method: str, bags: BagDataset, together: int, precision: str = "float32") -> Run:
    """One epoch: an update per ``together`` packed bags."""
    model = build(method, bags).train()
    optimizer = optimizer_of(model)

    def run() -> None:
        with encoder_precision(model, precision):
            for batch in shuffled_batches(bags, together, seed=1, epoch=0):
                optimizer.zero_grad()
                model.loss(batch, 1).backward()
                optimizer.step()

    return run


def our_prediction(method: str, bags: BagDataset) -> Run:
    """Predictions of slides and instances with all measures."""
    model = build(method, bags)

    def run() -> None:
        for of_bags, of_instances in predict(model, bags):
            of_bags.uncertainties()
            of_instances.uncertainties()

    return run


def products(method: str, bags: BagDataset, *, training: bool) -> Run:
    """The matrix products of our linear layers, slide by slide; in training also those of all gradients."""
    residual = (ATTENTION,) if method == "mirel" else ()
    layers = [torch.randn(WIDTH, width) / WIDTH for width in (WIDTH, WIDTH, ATTENTION, *residual)]

    def run() -> None:
        with torch.inference_mode():
            for bag in range(len(bags)):
                rows = slide(bags, bag)
                for number, weights in enumerate(layers):
                    out = rows @ weights
                    if training:
                        rows.T @ out
                    if training and number > 0:
                        out @ weights.T

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


def published_model(folder: Path, bags: BagDataset) -> Any:
    """Return attention MIL of the paper's published code, for slides or for images.

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
    of_images = bags.instance_shape == IMAGE
    return load(
        "clf",
        "ABMIL",
        [OF_LENET if of_images else WIDTH, ATTENTION, 2],
        drop_rate=0.0,
        use_feat_proj="mnist" if of_images else "default",
        edl_output=False,
        edl_evidence_func="exp",
        pooling="attention",
        ins_pred_from="ins",
    )


def as_published(bags: BagDataset, bag: int) -> Tensor:
    """Return a bag as the published network takes it: (1, n, D), or images (1, n, 1, 28, 28) in [0, 1]."""
    instances = slide(bags, bag)[None]
    return instances if instances.dim() == 3 else instances.permute(0, 1, 4, 2, 3).float().div(255)


def published_epoch(model: Any, bags: BagDataset) -> Run:
    """One epoch of the published network: one slide at a time, an update per eight."""
    optimizer = optimizer_of(model.train())
    given = [as_published(bags, bag) for bag in range(len(bags))]

    def run() -> None:
        for group in shuffled_batches(bags, BAGS_PER_UPDATE, seed=1, epoch=0).groups:
            optimizer.zero_grad()
            for bag in group:
                label = torch.tensor([bags.labels.values[bag]])
                (nn.functional.cross_entropy(model(given[bag]), label) / len(group)).backward()
            optimizer.step()

    return run


def published_prediction(model: Any, bags: BagDataset) -> Run:
    """Prediction of the published network, of bags and of their instances."""
    given = [as_published(bags, bag) for bag in range(len(bags))]

    def run() -> None:
        model.eval()
        with torch.inference_mode():
            for bag in given:
                model(bag, ret_ins_res=True)

    return run


def with_torchmil(bags: BagDataset) -> Iterator[tuple[str, Run, Run, Run]]:
    """Yield what is compared, torchmil, ours, and the products alone."""
    for together in (BAGS_PER_UPDATE, 1):
        how = f"batches of {together}" if together > 1 else "bag by bag"
        for method in METHODS:
            yield (
                f"torchmil, training, {how}, {method}",
                torchmil_epoch(bags, together),
                our_epoch(method, bags, together),
                products(method, bags, training=True),
            )
            yield (
                f"torchmil, prediction, {how}, {method}",
                torchmil_prediction(bags, together),
                our_prediction(method, bags),
                products(method, bags, training=False),
            )


def with_published(folder: Path, slides: BagDataset) -> Iterator[tuple[str, Run, Run]]:
    """Yield what is compared, the published code, and ours."""
    for kind, bags in (("slides", slides), ("images", image_bags())):
        published = published_model(folder, bags)
        name = f"published code, {kind}, softmax"
        for precision in PRECISIONS if has_bfloat16(torch.device("cpu")) else ("float32",):
            ours = our_epoch("softmax", bags, BAGS_PER_UPDATE, precision)
            yield f"{name}, training, ours in {precision}", published_epoch(published, bags), ours
        yield f"{name}, prediction", published_prediction(published, bags), our_prediction("softmax", bags)


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
    bags = ragged_slides(arguments.slides, arguments.instances)
    try:
        torchmil_model()
        if arguments.published is not None:
            published_model(arguments.published, bags)
    except MiueError as error:
        sys.exit(str(error))
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
    of_published = () if arguments.published is None else with_published(arguments.published, bags)
    for name, *sides in chain[tuple[Any, ...]](with_torchmil(bags), of_published):
        theirs, ours, *least = medians(*sides, repetitions=arguments.repetitions, clock=clock)
        results[name] = {"theirs": theirs, "ours": ours, "ratio": theirs / ours}
        line = f"{name}: theirs {theirs:.2f} s, ours {ours:.2f} s, {theirs / ours:.2f}"
        if least:
            results[name]["products"] = least[0]
            line += f"; products alone {least[0]:.2f} s, share {least[0] / ours:.2f}"
        print(line, flush=True)
    if arguments.published is None:
        print("the paper's published code is not compared: pass its checkout as --published FOLDER")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
