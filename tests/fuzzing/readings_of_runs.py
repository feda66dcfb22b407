"""Readings of runs, whole and interrupted: what they predict with, and where a resume ends."""

from __future__ import annotations

from typing import Any

from fuzzing.commands_run import Case, run
from fuzzing.readings import Reading, digest, finite_probabilities, no_check, records


def model(case: Case) -> dict[str, Any]:
    """Load the model, inspect the run, predict with it."""
    from miue.model.model import Model
    from miue.predictions import read_predictions

    weights = Model.load(case.folder / "run").method.state_dict()
    out = case.folder / "predicted"
    run("inspect", case.folder / "run")
    bags = case.base / "trident/bags"
    run("predict", case.folder / "run", bags, "--part", "all", "--out", out, "--quiet")
    found = read_predictions(out)
    decisions = found.bags.decisions
    return {
        "bags": len(found.bags),
        "wrong": finite_probabilities(found.bags),
        "classes": found.bags.distribution.num_classes,
        "decided": decisions is not None,
        "weights": {name: digest(w) for name, w in weights.items()},
        "scores": sorted(found.bags.scores),
    }


def check_model(case: Case, seen: Any, whole: Any) -> str:
    return str(seen["wrong"]) or ("" if seen == whole else f"{seen} instead of {whole}")


def inspect_run(case: Case) -> str:
    """Inspect the run alone."""
    return run("inspect", case.folder / "run")[0]


def card(case: Case) -> str:
    """Write a model card with the evaluation."""
    folder = case.folder
    run("hub", "card", folder / "run", "--evaluation", folder / "evaluation.json", "--title", "a model")
    return (folder / "run/README.md").read_text("utf-8")


def check_card(case: Case, seen: Any, whole: Any) -> str:
    lines = [line for line in seen.splitlines() if line.startswith("#")]
    if lines != [line for line in whole.splitlines() if line.startswith("#")]:
        return f"other headings: {lines}"
    return "" if "nan" not in seen.lower().split() else "a metric that is nan"


def resume(case: Case) -> dict[str, Any]:
    """Continue the training, as it was begun, and load what it ends at."""
    from miue.model.model import Model

    ensemble = ["--method", "deep-ensemble", "--set", "method.size=2"]
    words = ensemble if (case.folder / "half_ensemble").exists() else []
    bags, labels = case.base / "train/features_uni_v1", case.base / "train/labels.csv"
    run("train", bags, "--labels", labels, "--out", case.folder / "run", "--resume", *words,
        "--set", "encoder.width=4", "--set", "max_epochs=3", "--quiet")  # fmt: skip
    weights = Model.load(case.folder / "run").method.state_dict()
    run("inspect", case.folder / "run")
    return {
        "shapes": {name: list(w.shape) for name, w in weights.items()},
        "weights": {name: digest(w) for name, w in weights.items()},
        "finite": all(bool(w.isfinite().all()) for w in weights.values()),
        "epochs": records((case.folder / "run/log.csv").read_bytes())
        if (case.folder / "run/log.csv").exists()
        else 3,
    }


def check_resume(case: Case, seen: Any, whole: Any) -> str:
    if not seen["finite"]:
        return "weights that are not finite"
    if seen["shapes"] != whole["shapes"]:
        return "weights of other shapes"
    if case.expect in ("same", "refuse") and seen["weights"] != whole["weights"]:
        return "resumed to other weights, from a checkpoint that is not what was written"
    return (
        "" if seen["epochs"] == whole["epochs"] or case.name == "log.csv" else f"a log of {seen['epochs']} epochs"
    )


MODEL = (Reading(inspect_run, no_check), Reading(model, check_model, 2))
CARD = (Reading(card, check_card),)
RESUME = (Reading(inspect_run, no_check, 2), Reading(resume, check_resume))
