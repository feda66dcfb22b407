"""The demonstration: softmax and MIREL on the same bags, calibrated, evaluated and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from miue.bags import BagDataset
from miue.calibration import CalibrationBags, DeferralGoal, calibrate, decide, worklist, write_worklist
from miue.common.files import atomic_folder, write_json
from miue.common.folder_kinds import DEMO
from miue.datasets.digits import digits_bags
from miue.evaluation import Evaluation, LevelEvaluation, Metric, evaluate
from miue.io import write_store
from miue.predictions import Predictions
from miue.report.figures import bag_figure, confidence_figure, save_figure
from miue.report.report import write_report
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
DEFERRAL = DeferralGoal(max_error=0.1, confidence=0.9)
DEFERRED = 0.1  # share of the bags that a person looks at in the comparison, the least certain ones
OOD_SET = "photographs"


@dataclass(frozen=True)
class DemoResult:
    """What the demo prints.

    Attributes:
        evaluations: of each method, by its name.
        errors_accepted: of each method, the share of wrong predictions among the bags that are not deferred.
        cases: three bags of MIREL, in words.
    """

    evaluations: Mapping[str, Evaluation]
    errors_accepted: Mapping[str, float]
    cases: tuple[str, ...]

    def rows(self) -> list[tuple[str, ...]]:
        """Return what is compared, the value of each method in %, and why they differ."""
        return [(name, *map(_percent, values), reason) for name, reason, values in self._compared()]

    def to_json(self) -> dict[str, object]:
        """Return what is compared, with the share of each method, and the cases, as JSON values."""
        compared = [
            {"what": name, **dict(zip(self.evaluations, values, strict=True)), "reason": reason}
            for name, reason, values in self._compared()
        ]
        return {"compared": compared, "cases": self.cases}

    def _compared(self) -> list[tuple[str, str, list[float | None]]]:
        least = f"the {DEFERRED:.0%} with the highest entropy go to a person; compare with 100 − accuracy"
        accepted: list[float | None] = [*self.errors_accepted.values()]
        return [
            *(
                (name, reason, [metric.value for metric in metrics])
                for name, reason, metrics in _compare(list(self.evaluations.values()))
            ),
            ("bags: errors among those accepted", least, accepted),
        ]


def run_demo(out: Path, *, overwrite: bool = False, progress: bool = True) -> DemoResult:
    """Train attention with softmax and with MIREL on digits-bags, and write everything about both to ``out``.

    Args:
        out: folder for the store, and for each method the model, predictions and evaluation; with the report of
            both, and figures and the work list of MIREL.
        overwrite: replace what is at ``out``.
        progress: show bars with the time left.
    """
    with atomic_folder(out, DEMO, overwrite=overwrite) as folder:
        bags = digits_bags()
        write_store(folder / "store", bags, made_by={"command": "miue data make digits-bags"})
        test = bags.split("test")
        predicted, evaluations = {}, {}
        for method in METHODS:
            model = train(bags, method=method, settings=SETTINGS, out=folder / "runs" / method, progress=progress)
            held_out = model.predict(bags.split("calibration"), progress=progress)
            made_from = CalibrationBags(split="calibration")
            calibration = calibrate(held_out, deferral=DEFERRAL, made_from=made_from)
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
    errors = {name: float(_split_by_certainty(one)[1].mean()) for name, one in predicted.items()}
    return DemoResult(evaluations, errors, describe_cases(predicted["mirel"], predicted["softmax"], test))


def _compare(evaluations: list[Evaluation]) -> list[tuple[str, str, list[Metric]]]:
    bags = [one.bags for one in evaluations]
    digits = [one.instances for one in evaluations if one.instances is not None]
    slow = "MIREL's evidence grows with the data: trained on few bags, its probabilities are too moderate"
    weak = "no digit has a label; MIREL trains a residual for digits, softmax treats a digit as a bag of one"
    return [
        ("bags: accuracy", "both learn from bag labels", [one.metrics["accuracy"] for one in bags]),
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
            "by the probability with softmax, by the total evidence with MIREL",
            [one.ood[OOD_SET].auroc for one in bags],
        ),
        (
            "bags: OOD detection by distance, AUROC",
            "compares the bag with the training data; available with every method",
            [one.by_measure["combined_mean"].ood[OOD_SET].auroc for one in bags],
        ),
    ]


def _errors(levels: Sequence[LevelEvaluation]) -> str:
    counts = [round(one.labeled * (1 - (one.metrics["accuracy"].value or 0))) for one in levels]
    return " and ".join(f"{count:,}" for count in counts)


def describe_cases(predictions: Predictions, softmax: Predictions, bags: BagDataset) -> tuple[str, ...]:
    """Return the least certain bag, the first out-of-distribution bag and a bag digit by digit, in words.

    Args:
        predictions: of MIREL, with decisions.
        softmax: of softmax, for the same bags.
        bags: the bags themselves.
    """
    table = predictions.bags
    decisions = table.decisions
    assert decisions is not None
    names = bags.class_names or ("negative", "positive")

    def describe(row: int) -> str:
        truth = f"; actually {names[table.labels.values[row]]}" if table.labels.known[row] else ""
        return f"{table.bag_ids[row]}, predicted {names[table.predicted[row]]}{truth}. Reason: "

    deferred, accepted = _split_by_certainty(predictions)
    first = _order_by_certainty(predictions)[0]
    least = f"its probability of {names[1]}, {table.probabilities[first, 1]:.2f}, is the least certain"
    errors = f"{deferred.sum()} of {deferred.sum() + accepted.sum()} errors"
    share = f"the {len(deferred)} least certain include {errors}"
    flagged = np.flatnonzero(decisions.flagged & table.is_ood.out_of_distribution)
    detected = (
        f"{describe(int(flagged[0]))}{decisions.reason[flagged[0]]}" if len(flagged) else "no bag was detected"
    )
    return (
        f"Deferred: {describe(int(first))}{least} among the bags of digits; {share}",
        f"Out of distribution: {detected}",
        _digit_by_digit(predictions, softmax, bags),
    )


def _order_by_certainty(predictions: Predictions) -> Int64[np.ndarray, "B"]:
    """Return the rows of the labeled bags in distribution, the least certain first."""
    rows = np.flatnonzero(predictions.bags.is_ood.in_distribution & predictions.bags.labels.known)
    entropy = predictions.bags.uncertainties()["entropy"][rows]
    order: Int64[np.ndarray, "B"] = rows[np.argsort(-entropy, kind="stable")]
    return order


def _split_by_certainty(predictions: Predictions) -> tuple[Bool[np.ndarray, "deferred"], Bool[np.ndarray, "kept"]]:
    """Return which of the least certain share of the bags are predicted wrongly, and which of the others."""
    rows, table = _order_by_certainty(predictions), predictions.bags
    wrong = table.predicted[rows] != table.labels.values[rows]
    count = round(DEFERRED * len(rows))
    return wrong[:count], wrong[count:]


def _digit_by_digit(predictions: Predictions, softmax: Predictions, bags: BagDataset) -> str:
    bag = select_bag_with_few_positives(bags)
    name = bags.ids[bag]
    members = bags.subset([bag])
    nines = np.flatnonzero(members.instance_labels.values[members.positions] == 1)
    where = f"instance{'s' * (len(nines) > 1)} {' and '.join(map(str, nines))}"
    shown = []
    for title, one in ((METHODS["mirel"], predictions), (METHODS["softmax"], softmax)):
        assert one.instances is not None
        p = one.instances.probabilities[one.instances.bag_ids == name, 1]
        values = " and ".join(f"{value:.2f}" for value in p[nines])
        shown.append(f"{title}: {values}, any other at most {np.delete(p, nines).max():.2f}")
    return (
        f"Digit by digit: {name} has {len(p)} digits, instances 0 to {len(p) - 1}, and a 9 as {where}. "
        f"Probability of being a 9, learned from bag labels alone. {'. '.join(shown)}"
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


def _percent(share: float | None) -> str:
    return "—" if share is None else f"{100 * share:.1f}"
