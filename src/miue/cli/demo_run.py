"""The demonstration: real bags in, a trained MIREL network, predictions, evaluation and figures out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from miue.bags.dataset import BagDataset
from miue.common.files import atomic_folder, write_json
from miue.datasets.digits import digits_bags
from miue.evaluation import Evaluation, evaluate
from miue.io.store.store import write_store
from miue.predictions.folder import Predictions
from miue.report.figures import bag_figure, confidence_figure, save_figure
from miue.report.report import write_report
from miue.training.train import train

SETTINGS = {"seed": 42, "learning_rate": 5e-4, "max_epochs": 80, "stop_patience": 10, "lr_patience": 5}


def run_demo(out: Path, *, overwrite: bool = False, progress: bool = True) -> Evaluation:
    """Make digits-bags, train ABMIL + MIREL on them, predict, evaluate, and write everything to ``out``.

    Args:
        out: folder for store, model, predictions, evaluation.json, figures and report.html.
        overwrite: replace what is at ``out``.
        progress: show bars with the time left.
    """
    with atomic_folder(out, overwrite=overwrite) as folder:
        bags = digits_bags()
        write_store(folder / "store", bags, made_by={"command": "miue data make digits-bags"})
        model = train(bags, settings=SETTINGS, out=folder / "run", progress=progress)
        test = bags.split("test")
        predictions = model.predict(test, progress=progress)
        predictions.save(folder / "predictions")
        evaluation = evaluate(predictions)
        write_json(folder / "evaluation.json", evaluation.to_json())
        write_figures(folder / "figures", predictions, test)
        write_report(folder / "report.html", [("predictions", predictions)], store=test, title="miue demo")
    return evaluation


def write_figures(folder: Path, predictions: Predictions, bags: BagDataset) -> None:
    """Write the confidence figure and one figure of a positive bag and of an out-of-distribution bag."""
    save_figure(confidence_figure(predictions), folder / "confidence.png")
    shown = {
        "positive": telling_bag(bags),
        "out_of_distribution": int(np.flatnonzero(bags.is_ood.out_of_distribution)[0]),
    }
    for name, bag in shown.items():
        instances = bags.batch([bag]).instances.numpy()
        save_figure(bag_figure(predictions, bag, instances, bags.class_names), folder / f"bag_{name}.png")


def telling_bag(bags: BagDataset) -> int:
    """Return the first large bag with one or two positive instances: chosen by its labels, not by predictions."""
    labels = np.where(bags.instance_labels.known, bags.instance_labels.values, 0)[bags.positions]
    positives = np.add.reduceat(labels, np.concatenate([[0], bags.sizes.cumsum()[:-1]]))
    telling = bags.is_ood.in_distribution & (positives >= 1) & (positives <= 2) & (bags.sizes >= 8)
    return int(np.flatnonzero(telling)[0])
