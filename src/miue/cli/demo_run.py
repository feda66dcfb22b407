"""The demonstration: softmax and MIREL on the same bags, calibrated, evaluated and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from miue.bags.dataset import BagDataset
from miue.calibration import CalibrationBags, DeferralGoal, calibrate, decide
from miue.common.files import atomic_folder, write_json
from miue.datasets.digits import digits_bags
from miue.evaluation import Evaluation, evaluate
from miue.evaluation.evaluation import LevelEvaluation
from miue.evaluation.metrics import Metric
from miue.io.store.store import write_store
from miue.predictions.folder import Predictions
from miue.report.figures import bag_figure, confidence_figure, save_figure
from miue.report.report import write_report
from miue.report.worklist import worklist, write_worklist
from miue.training.train import train

SETTINGS = {
    "seed": 42,
    "learning_rate": 5e-4,
    "max_epochs": 80,
    "bags_per_update": 8,
    "stop_patience": 10,
    "lr_patience": 5,
}
METHODS = {"softmax": "softmax", "mirel": "MIREL"}
DEFERRAL = DeferralGoal(max_error=0.05, confidence=0.95)
OOD_SET = "photographs"


@dataclass(frozen=True)
class DemoResult:
    """What the demo prints.

    Attributes:
        evaluations: of each method, by its name.
        cases: three bags of MIREL, in words.
    """

    evaluations: Mapping[str, Evaluation]
    cases: tuple[str, ...]

    def rows(self) -> list[tuple[str, ...]]:
        """Return what is compared, the value of each method in %, and why they differ."""
        return [
            (name, *(_percent(metric) for metric in metrics), reason)
            for name, reason, metrics in _compare(list(self.evaluations.values()))
        ]


def run_demo(out: Path, *, overwrite: bool = False, progress: bool = True) -> DemoResult:
    """Train attention with softmax and with MIREL on digits-bags, and write everything about both to ``out``.

    Args:
        out: folder for the store, and for each method the model, predictions and evaluation; with the report of
            both, and figures and the work list of MIREL.
        overwrite: replace what is at ``out``.
        progress: show bars with the time left.
    """
    with atomic_folder(out, overwrite=overwrite) as folder:
        bags = digits_bags()
        write_store(folder / "store", bags, made_by={"command": "miue data make digits-bags"})
        test = bags.split("test")
        predicted, evaluations = {}, {}
        for method in METHODS:
            model = train(bags, method=method, settings=SETTINGS, out=folder / "runs" / method, progress=progress)
            held_out = model.predict(bags.split("calibration"), progress=progress)
            made_from = CalibrationBags(split="calibration")
            calibration = calibrate(
                held_out, deferral=DEFERRAL, class_names=bags.class_names or (), made_from=made_from
            )
            calibration.save(folder / "runs" / method / "calibration.json")
            predicted[method] = decide(model.predict(test, progress=progress), calibration)
            predicted[method].save(folder / "predictions" / method)
            evaluations[method] = evaluate(predicted[method])
            write_json(folder / "evaluations" / f"{method}.json", evaluations[method].to_json())
        write_figures(folder / "figures", predicted["mirel"], test)
        write_worklist(folder / "worklist.csv", worklist(predicted["mirel"]))
        shown = [(f"predictions/{name}", predictions) for name, predictions in predicted.items()]
        write_report(
            folder / "report.html",
            shown,
            names=list(METHODS.values()),
            store=test,
            title="Digits: softmax and MIREL",
        )
    return DemoResult(evaluations, describe_cases(predicted["mirel"], predicted["softmax"], test))


def _compare(evaluations: list[Evaluation]) -> list[tuple[str, str, list[Metric]]]:
    bags = [one.bags for one in evaluations]
    digits = [one.instances for one in evaluations if one.instances is not None]
    decisions = [one.decisions.metrics for one in evaluations if one.decisions is not None]
    slow = "MIREL's evidence grows with the data: from few bags its probabilities are moderate"
    weak = "no digit has a label; MIREL trains a residual for digits, softmax sees a digit as a bag of one"
    request = (
        f"at most {DEFERRAL.max_error:.0%} requested ({DEFERRAL.confidence:.0%} confidence), for bags like "
        "those of calibration; these contain other digits"
    )
    return [
        ("bags: accuracy", "both learn from the labels of bags", [one.metrics["accuracy"] for one in bags]),
        ("digits: accuracy", weak, [one.metrics["accuracy"] for one in digits]),
        ("bags: calibration error", slow, [one.metrics["ece"] for one in bags]),
        ("digits: calibration error", "as for bags", [one.metrics["ece"] for one in digits]),
        ("bags: error detection, AUROC", f"from {_errors(bags)} errors only", [b.confidence.auroc for b in bags]),
        (
            "digits: error detection, AUROC",
            f"from {_errors(digits)} errors",
            [one.confidence.auroc for one in digits],
        ),
        (
            "bags: OOD detection by prediction, AUROC",
            "softmax has its probability, MIREL the amount of evidence",
            [one.ood[OOD_SET].auroc for one in bags],
        ),
        (
            "bags: OOD detection by distance, AUROC",
            "compares features with those of training, under any method",
            [one.by_measure["knn_mean"].ood[OOD_SET].auroc for one in bags],
        ),
        (
            "bags deferred to a person",
            "as many as the calibration bags require",
            [d["deferred"] for d in decisions],
        ),
        ("errors among accepted bags", request, [one["selective_risk"] for one in decisions]),
    ]


def _errors(levels: Sequence[LevelEvaluation]) -> str:
    counts = [round(one.labelled * (1 - (one.metrics["accuracy"].value or 0))) for one in levels]
    return " and ".join(f"{count:,}" for count in counts)


def describe_cases(predictions: Predictions, softmax: Predictions, bags: BagDataset) -> tuple[str, ...]:
    """Return the first deferred bag, the first out-of-distribution bag and a bag digit by digit, in words.

    Args:
        predictions: of MIREL, with decisions.
        softmax: of softmax, for the same bags.
        bags: the bags themselves.
    """
    table = predictions.bags
    decisions = table.decisions
    assert decisions is not None
    inside = table.is_ood.in_distribution
    deferred = np.flatnonzero(decisions.deferred & inside)
    flagged = np.flatnonzero(decisions.flagged & table.is_ood.out_of_distribution)
    names = bags.class_names or ("negative", "positive")

    def reason(name: str, rows: np.ndarray, otherwise: str) -> str:
        if not len(rows):
            return f"{name}: {otherwise}"
        row = int(rows[0])
        truth = f"; in truth {names[table.labels.values[row]]}" if table.labels.known[row] else ""
        case = f"{table.bag_ids[row]}, predicted {names[table.predicted[row]]}{truth}"
        return f"{name}: {case}. Reason: {decisions.reason[row]}"

    return (
        reason("Deferred", deferred, "no bag; the calibration accepts all"),
        reason("Out of distribution", flagged, "no bag of photographs was detected"),
        _digit_by_digit(predictions, softmax, bags),
    )


def _digit_by_digit(predictions: Predictions, softmax: Predictions, bags: BagDataset) -> str:
    bag = select_bag_with_few_positives(bags)
    name = bags.ids[bag]
    members = bags.subset([bag])
    nines = np.flatnonzero(members.instance_labels.values[members.positions] == 1)
    digits = f"digit{'s' * (len(nines) > 1)} {' and '.join(str(place + 1) for place in nines)}"
    shown = []
    for title, one in ((METHODS["mirel"], predictions), (METHODS["softmax"], softmax)):
        assert one.instances is not None
        p = one.instances.probabilities[one.instances.bag_ids == name, 1]
        values = " and ".join(f"{value:.2f}" for value in p[nines])
        shown.append(f"{title}: {values}, any other at most {np.delete(p, nines).max():.2f}")
    return (
        f"Digit by digit: {name} has {len(p)} digits and a 9 as {digits}. Probability to be a 9, learned from bag "
        f"labels alone. {'. '.join(shown)}"
    )


def write_figures(folder: Path, predictions: Predictions, bags: BagDataset) -> None:
    """Write the confidence figure and one figure of a positive bag and of an out-of-distribution bag."""
    save_figure(confidence_figure(predictions), folder / "confidence.png")
    shown = {
        "positive": select_bag_with_few_positives(bags),
        "out_of_distribution": int(np.flatnonzero(bags.is_ood.out_of_distribution)[0]),
    }
    for name, bag in shown.items():
        instances = bags.batch([bag]).instances.numpy()
        save_figure(bag_figure(predictions, bag, instances, bags.class_names), folder / f"bag_{name}.png")


def select_bag_with_few_positives(bags: BagDataset) -> int:
    """Return the first large bag with one or two positive instances: chosen by its labels, not by predictions."""
    labels = np.where(bags.instance_labels.known, bags.instance_labels.values, 0)[bags.positions]
    positives = np.add.reduceat(labels, np.concatenate([[0], bags.sizes.cumsum()[:-1]]))
    suitable = bags.is_ood.in_distribution & (positives >= 1) & (positives <= 2) & (bags.sizes >= 8)
    return int(np.flatnonzero(suitable)[0])


def _percent(metric: Metric) -> str:
    return "—" if metric.value is None else f"{100 * metric.value:.1f}"
