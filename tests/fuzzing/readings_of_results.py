"""Readings of stores, predictions, calibrations, cross-validations and annotations."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

from fuzzing.commands_run import Case, run
from fuzzing.readings import Reading, digest, finite_probabilities, no_check, records


def declared(content: bytes | None) -> dict[str, Any]:
    """Return the JSON object that a file holds, {} where it is none."""
    try:
        found = json.loads(content or b"")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# Stores


def store(case: Case) -> dict[str, Any]:
    """Open the store, inspect it and predict its bags."""
    from miue.io import read_store
    from miue.predictions import read_predictions

    bags = read_store(case.folder / "bags")
    run("inspect", case.folder / "bags")
    seen = {
        "bags": len(bags),
        "instances": int(bags.sizes.sum()),
        "instance_shape": list(bags.instance_shape),
        "dtype": str(bags.instances.dtype),
        "rows": digest(bags.instances),
        "coords": None if bags.coords is None else digest(bags.coords.values),
        "wrong": "",
    }
    if bags.instance_shape == (6,):
        out = case.folder / "predicted"
        run("predict", case.base / "run/run", case.folder / "bags", "--part", "all", "--out", out, "--quiet")
        seen["wrong"] = finite_probabilities(read_predictions(out).bags)
    return seen


def check_store(case: Case, seen: Any, whole: Any) -> str:
    if seen["wrong"]:
        return str(seen["wrong"])
    if case.name == "bags.csv":  # of which rows may be dropped
        is_less = seen["bags"] <= whole["bags"] and seen["rows"] == whole["rows"]
        return "" if is_less else f"{seen['bags']} bags of {whole['bags']}"
    return "" if seen == whole else f"{seen} instead of {whole}"


# Predictions


def predictions(case: Case) -> dict[str, Any]:
    """Open, inspect and evaluate predictions."""
    from miue.predictions import read_predictions

    folder = case.folder / "predictions"
    found = read_predictions(folder)
    run("inspect", folder)
    run("evaluate", folder)
    out, _ = run("evaluate", folder, "--json")
    return {
        "bags": len(found.bags),
        "instances": 0 if found.instances is None else len(found.instances),
        "distribution": type(found.bags.distribution).__name__.lower(),
        "wrong": finite_probabilities(found.bags),
        "labeled": int(found.bags.labels.known.sum()),
        "evaluation": len(json.loads(out)),
    }


def check_predictions(case: Case, seen: Any, whole: Any) -> str:
    if seen["wrong"]:
        return str(seen["wrong"])
    others = {
        key: (seen[key], whole[key]) for key in ("bags", "instances", "distribution") if seen[key] != whole[key]
    }
    return f"{others} are not what was written" if others else ""


def exports(case: Case) -> str:
    """Write overlays, arrays and the work list."""
    folder = case.folder / "predictions"
    run("export", "geojson", folder, "--out", case.folder / "overlays", "--merge", "--quiet")
    run("export", "arrays", folder, "--out", case.folder / "arrays", "--quiet")
    run("worklist", folder, "--out", case.folder / "worklist.csv")
    for path in (case.folder / "overlays").glob("*.geojson"):
        json.loads(path.read_text("utf-8"), parse_constant=float.fromhex)  # a number that JSON does not have
    return (case.folder / "worklist.csv").read_text("utf-8")


def check_exports(case: Case, seen: Any, whole: Any) -> str:
    rows = list(csv.reader(io.StringIO(seen)))
    formulas = [cell for row in rows for cell in row if cell[:1] in tuple("=+@") or cell[:2] in ("-1",)]
    formulas = [cell for cell in formulas if not _is_number(cell)]
    return f"a formula in the work list: {formulas[0]!r}" if formulas else ""


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def report(case: Case) -> str:
    """Write the report."""
    out = case.folder / "report.html"
    run("report", case.folder / "predictions", "--out", out, "--resamples", 10, "--quiet")
    return str(out.stat().st_size > 10_000)


def calibrated_again(case: Case) -> dict[str, Any]:
    """Calibrate on the bag table."""
    out = case.folder / "made.json"
    run("calibrate", case.folder / "source/bags.csv", "--max-error", 0.4, "--classes", "normal,tumor",
        "--out", out)  # fmt: skip
    return declared(out.read_bytes())


def check_calibrated(case: Case, seen: Any, whole: Any) -> str:
    made = seen.get("calibration", {})
    bags, count = made.get("made_from", {}).get("bags"), records(case.damaged)
    if case.name == "bags.csv" and count is not None and isinstance(bags, int) and bags > count:
        return f"calibrated on {bags} of {count} bags"
    return "" if made else "nothing was written"


def decide(case: Case) -> dict[str, Any]:
    """Decide by the calibration."""
    from miue.predictions import read_predictions

    out = case.folder / "decided"
    run(
        "decide",
        case.base / "predictions/predictions",
        "--calibration",
        case.folder / "calibration.json",
        "--out",
        out,
    )
    found = read_predictions(out)
    assert found.bags.decisions is not None
    return {"bags": len(found.bags), "wrong": finite_probabilities(found.bags)}


def check_decide(case: Case, seen: Any, whole: Any) -> str:
    if seen["bags"] != whole["bags"]:
        return f"{seen['bags']} decisions of {whole['bags']} bags"
    return str(seen["wrong"])


def compare(case: Case) -> str:
    """Compare the cross-validation with the whole one."""
    first = case.base / "cross_validation/cv"
    run("compare", first, (case.folder / "cv").rename(case.folder / "other"), "--out", case.folder / "compared.md")
    (case.folder / "other").rename(case.folder / "cv")
    return (case.folder / "compared.md").read_text("utf-8")


def go_on(case: Case) -> dict[str, Any]:
    """Give the command of the cross-validation again."""
    run("cross-validate", case.base / "long_csv/bags.csv", "--out", case.folder / "cv", "--folds", 2, "--distance",
        "none", "--set", "encoder.width=4", "--set", "max_epochs=3", "--quiet")  # fmt: skip
    return {"runs": records((case.folder / "cv/runs.csv").read_bytes())}


def check_go_on(case: Case, seen: Any, whole: Any) -> str:
    return "" if seen == whole else f"{seen} instead of {whole}"


def outlines(case: Case) -> dict[str, Any]:
    """Label patches by the outlines."""
    out = case.folder / "labels.csv"
    run(
        "data",
        "patch-labels",
        case.folder / "bags",
        "--annotations",
        case.folder / "drawn",
        "--out",
        out,
        "--quiet",
    )
    rows = list(csv.DictReader(io.StringIO(out.read_text("utf-8"))))
    positive = {name: sum(row["instance_label"] == "1" for row in rows if row["bag_id"] == name) for name in "st"}
    return {"rows": len(rows), "positive": positive}


def check_outlines(case: Case, seen: Any, whole: Any) -> str:
    if case.damaged is None and case.name.endswith(".h5"):  # a slide without features has no patches to label
        return ""
    return "" if seen["rows"] == whole["rows"] else f"{seen['rows']} patches of {whole['rows']}"


def area(case: Case) -> float:
    """Return the area of what is outlined."""
    from miue.pathology.annotations import Groups, read_tumor

    return float(read_tumor(case.path, Groups(positive=("_0", "tumor", "metastasis"), ignored=("None",))).area)


def check_area(case: Case, seen: Any, whole: Any) -> str:
    return "" if 0 < seen < 1e18 else f"an area of {seen}"


def pack_on(case: Case) -> dict[str, Any]:
    """Go on with a packing that was interrupted."""
    from miue.io import read_store

    run("data", "pack", case.base / "npy/bags", "--out", case.folder / "store", "--quiet")
    return {"rows": digest(read_store(case.folder / "store").instances)}


def check_pack_on(case: Case, seen: Any, whole: Any) -> str:
    return "" if seen == whole else "packed other rows than the files have"


STORE = (Reading(store, check_store),)
PREDICTIONS = (
    Reading(predictions, check_predictions),
    Reading(exports, check_exports, 3),
    Reading(report, no_check, 12),
)
CALIBRATION = (Reading(decide, check_decide),)
CALIBRATION_SOURCE = (Reading(calibrated_again, check_calibrated),)
CROSS_VALIDATION = (Reading(compare, no_check), Reading(go_on, check_go_on, 2))
ANNOTATIONS = (Reading(area, check_area), Reading(outlines, check_outlines, 2))
PACKING = (Reading(pack_on, check_pack_on),)
TILES = (Reading(outlines, check_outlines),)
