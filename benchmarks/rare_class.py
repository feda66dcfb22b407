"""Training on bags of which few are positive: each bag once in an epoch, or as many of each class.

Usage: python benchmarks/rare_class.py [--positive 24] [--seeds 1,2,3] [--methods softmax,mirel] [--source FOLDER]

MNIST-bags with all 250 negative and few positive training bags, two thirds of which are trained on and one third
validated on (of the negative ones four fifths and a fifth); tested on the 1,000 test bags, half of which are
positive. Printed are AUROC of bags and instances, sensitivity and specificity at a probability of 0.5, and the
mean probability of the positive class over test bags, weighted to the frequencies of the training bags.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

import miue
from miue.bags import BagDataset
from miue.datasets.mnist import mnist_bags


def few_positive(bags: BagDataset, positive: int, seed: int) -> tuple[BagDataset, BagDataset]:
    """Return training and validation bags."""
    random = np.random.default_rng(seed)
    train, validation = [], []
    for label, learned in ((0, 4 / 5), (1, 2 / 3)):
        rows = random.permutation(np.flatnonzero(bags.labels.values == label))
        rows = rows[:positive] if label else rows
        end = int(len(rows) * learned)
        train.append(rows[:end])
        validation.append(rows[end:])
    return bags.subset(np.sort(np.concatenate(train))), bags.subset(np.sort(np.concatenate(validation)))


def main() -> None:
    """Print a row for each method, seed and way to draw bags."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--positive", type=int, default=24)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--methods", default="softmax,mirel")
    parser.add_argument("--source", type=Path, default=Path("../shared/data"))
    arguments = parser.parse_args()
    every = mnist_bags(arguments.source, splits=["train"], ood=())
    test = mnist_bags(arguments.source, splits=["test"], ood=())
    labels = test.labels.values
    columns = "AUROC,sensitivity,specificity,instance_AUROC,mean_p,share"
    print(f"method,seed,class_balanced,epochs,{columns}", flush=True)
    for method in arguments.methods.split(","):
        for seed in map(int, arguments.seeds.split(",")):
            train, validation = few_positive(every, arguments.positive, seed)
            share = float((train.labels.values == 1).mean())
            for balanced in (False, True):
                settings = {"seed": seed, "class_balanced": balanced}
                model = miue.train(
                    train, validation=validation, encoder="lenet", method=method, settings=settings, progress=False
                )
                predictions = model.predict(test)
                assert predictions.instances is not None
                assert model.training is not None
                p, of_instances = (
                    table.probabilities[:, 1] for table in (predictions.bags, predictions.instances)
                )
                numbers = (
                    roc_auc_score(labels, p),
                    (p[labels == 1] > 0.5).mean(),
                    (p[labels == 0] <= 0.5).mean(),
                    roc_auc_score(test.instance_labels.values, of_instances),
                    (1 - share) * p[labels == 0].mean() + share * p[labels == 1].mean(),
                    share,
                )
                shown = ",".join(f"{number:.3f}" for number in numbers)
                print(f"{method},{seed},{balanced},{model.training.epochs},{shown}", flush=True)


if __name__ == "__main__":
    main()
