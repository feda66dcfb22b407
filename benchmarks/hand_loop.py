"""A bare loop of attention MIL in PyTorch beside ``miue train`` and ``miue predict`` on the same feature files.

Usage: python benchmarks/hand_loop.py [--slides 8] [--instances 12000] [--width 1024] [--epochs 2 20]

The loop is what one writes by hand: it reads with h5py, trains slide by slide with Adam, keeps the best weights,
and predicts probabilities of bags and attention; it checks nothing. Both run as processes of their own, on one
thread.
Printed is the loop's processor time divided by ours, start included: 1 is as fast as the loop.
"""

from __future__ import annotations

import argparse
import copy
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

METHODS = ("softmax", "mirel")


def write_slides(folder: Path, slides: int, instances: int, width: int) -> None:
    """Write features in float16 as CLAM does, and a table of labels."""
    import h5py
    import numpy as np

    random = np.random.default_rng(0)
    (folder / "features").mkdir()
    for number in range(slides):
        values = random.standard_normal((instances, width), dtype=np.float32)
        values[: instances // 10] += 0.5 * (number % 2)
        with h5py.File(folder / "features" / f"slide_{number}.h5", "w") as file:
            file["features"] = values.astype(np.float16)
    rows = [f"slide_{number},{number % 2}" for number in range(slides)]
    (folder / "labels.csv").write_text("\n".join(["slide_id,label", *rows]) + "\n")


def loop(folder: Path, epochs: int) -> None:
    """Train and keep the best weights; with 0 epochs, predict all slides with those that are there."""
    import h5py
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
            self.attention = nn.Sequential(nn.Linear(512, 256), nn.Tanh(), nn.Linear(256, 1))
            self.head = nn.Linear(512, 2)

        def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = self.encoder(features)
            attention = self.attention(hidden).softmax(0)
            return self.head((attention * hidden).sum(0)), attention

    def read(path: Path) -> torch.Tensor:
        with h5py.File(path) as file:
            return torch.from_numpy(file["features"][:]).float()

    paths = sorted((folder / "features").iterdir())
    labels = [int(path.stem.split("_")[1]) % 2 for path in paths]
    network, weights = Network(read(paths[0]).shape[1]), folder / "loop.pt"
    if not epochs:
        network.load_state_dict(torch.load(weights, weights_only=True))
        with torch.inference_mode():
            predicted = [network(read(path)) for path in paths]
        torch.save([(logits.softmax(0), attention) for logits, attention in predicted], folder / "predicted.pt")
        return
    optimizer, held_out = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True), max(2, len(paths) // 5)
    lowest, best = float("inf"), network.state_dict()
    for _ in range(epochs):
        for path, label in list(zip(paths, labels, strict=True))[held_out:]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(read(path))[0], torch.tensor(label)).backward()
            optimizer.step()
        with torch.inference_mode():
            pairs = list(zip(paths[:held_out], labels, strict=False))
            loss = sum(float(-network(read(path))[0].log_softmax(0)[label]) for path, label in pairs)
        if loss < lowest:
            lowest, best = loss, copy.deepcopy(network.state_dict())
    torch.save(best, weights)


def seconds(*words: object) -> float:
    """Return the processor time of a command, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *map(str, words)], check=True, env=environment, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(folder: Path, epochs: int) -> None:
    """Print the ratios of one number of epochs."""
    data = (folder / "features", "--labels", folder / "labels.csv", "--quiet")
    of_loop = seconds(__file__, "--loop", folder, epochs), seconds(__file__, "--loop", folder, 0)
    print(f"{epochs} epochs: loop {of_loop[0]:.1f} s to train, {of_loop[1]:.1f} s to predict")
    for method in METHODS:
        run, fixed = folder / f"{method}_{epochs}", ["--set", f"max_epochs={epochs}", "--set", "bags_per_update=1"]
        train = ("-m", "miue", "train", *data, "--method", method, "--distance", "none", "--out", run, *fixed)
        ours = (
            seconds(*train),
            seconds("-m", "miue", "predict", run, *data, "--part", "all", "--out", f"{run}_predicted"),
        )
        ratios = ", ".join(
            f"{name} {theirs / mine:.2f} ({mine:.1f} s)"
            for name, theirs, mine in zip(("train", "predict"), of_loop, ours, strict=True)
        )
        print(f"  {method}: {ratios}")


def main() -> None:
    """Compare, or be the loop."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slides", type=int, default=8)
    parser.add_argument("--instances", type=int, default=12_000)
    parser.add_argument("--width", type=int, default=1_024)
    parser.add_argument("--epochs", type=int, nargs="+", default=[2, 20])
    parser.add_argument("--loop", nargs=2, metavar=("FOLDER", "EPOCHS"), help="be the loop")
    options = parser.parse_args()
    if options.loop:
        loop(Path(options.loop[0]), int(options.loop[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_slides(Path(folder), options.slides, options.instances, options.width)
        for epochs in options.epochs:
            compare(Path(folder), epochs)


if __name__ == "__main__":
    main()
