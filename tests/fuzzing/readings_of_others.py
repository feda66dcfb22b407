"""Readings of folders of other tools, of a monitor, of shards, of tables of other tools, and of tiles."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from fuzzing.commands_run import Case, run
from fuzzing.readings import Reading, by_expectation, digest, finite_probabilities

OURS = "d1"  # the bag of which a file is damaged


def pack_folder(case: Case) -> dict[str, Any]:
    """Inspect and pack the folder with what lies beside it, leaving out what cannot be used."""
    from miue.io import read_store

    torchmil = (case.folder / "patches").exists()
    bags = case.folder / "patches" if torchmil else case.folder / "bags"
    labels = ["--labels", bags / "labels", "--instance-labels", bags / "patch_labels"] if torchmil else []
    if not torchmil:
        labels = ["--labels", case.folder / "labels.csv"]
    inspected, _ = run("inspect", bags, "--read", "--json")
    out = case.folder / "packed"
    said = run("data", "pack", bags, *labels, "--splits", "none", "--out", out, "--skip-bad", "--quiet")
    packed = read_store(out)
    left = (out / "left_out.csv").read_text() if (out / "left_out.csv").exists() else ""
    parts = list(zip(packed.ids, packed.starts, packed.sizes, strict=True))
    rows = {name: digest(packed.instances[s : s + n]) for name, s, n in parts}
    finite = {name: bool(np.isfinite(packed.instances[s : s + n]).all()) for name, s, n in parts}
    places = {}
    if packed.coords is not None:
        values, known = packed.coords.values, packed.coords.known
        places = {name: digest(values[s : s + n]) if known[s : s + n].all() else "" for name, s, n in parts}
    return {
        "left out": left,
        "bags": rows,
        "places": places,
        "finite": finite,
        "labels": dict(zip(packed.ids, packed.labels.values.tolist(), strict=True)),
        "said": f"{inspected}{''.join(said)}",
    }


def check_pack_folder(case: Case, seen: Any, whole: Any) -> str:
    if not all(seen["finite"].values()):
        return "features that are not finite"
    for name, rows in whole["bags"].items():
        if name != OURS and name not in seen["left out"] and seen["bags"].get(name) != rows:
            return f"bag {name}, which is whole, is packed otherwise"
    if OURS not in seen["bags"]:
        gone = case.damaged is None or OURS in seen["left out"] or OURS in seen["said"]
        return "" if gone else "the damaged bag is neither packed nor listed"
    if any(word in case.target for word in ("/X/c/", "features")) and case.expect != "any":
        return by_expectation(case, seen["bags"][OURS], whole["bags"].get(OURS), True, True)
    return ""


def goes_on(case: Case) -> dict[str, Any]:
    """Add a batch to the monitor."""
    out, _ = run("monitor", case.folder / "calibration.json", case.folder / "second", "--out",
                 case.folder / "monitor", "--json")  # fmt: skip
    said = json.loads(out)
    names = ("bags", "counted", "batches", "alarm", "alarms")
    return {name: said[name] for name in names} | {"evidence": said["strongest"]["log10_evidence"]}


def check_goes_on(case: Case, seen: Any, whole: Any) -> str:
    if not np.isfinite(seen["evidence"]):
        return f"an evidence of {seen['evidence']}"
    if case.target.startswith("monitor/") and seen["bags"] != whole["bags"] and case.damaged is not None:
        return f"{seen['bags']} bags instead of {whole['bags']}"
    return ""


def merge(case: Case) -> dict[str, Any]:
    """Merge the shards."""
    from miue.predictions import read_predictions

    shards, out = case.folder / "shards", case.folder / "merged"
    run("merge", shards / "1", shards / "2", "--out", out, "--quiet")
    found = read_predictions(out)
    assert found.instances is not None
    return {
        "bags": list(found.bags.bag_ids),
        "instances": len(found.instances),
        "wrong": finite_probabilities(found.bags),
    }


def check_merge(case: Case, seen: Any, whole: Any) -> str:
    if seen["wrong"]:
        return str(seen["wrong"])
    return "" if len(seen["bags"]) == len(whole["bags"]) else f"{len(seen['bags'])} bags of {len(whole['bags'])}"


def evaluate_table(case: Case) -> dict[str, Any]:
    """Evaluate the table with its instances and groups, decide on it, and make a work list."""
    folder = case.folder
    words = (folder / "bags.csv", "--instances", folder / "instances.csv")
    groups = ("--groups", folder / "groups.csv", "--group-column", "hospital")
    out, said = run("evaluate", *words, *groups, "--json")
    run("evaluate", *words)
    run("worklist", folder / "bags.csv", "--out", folder / "worklist.csv")
    calibration = folder / "calibration.json"
    run("decide", folder / "bags.csv", "--calibration", calibration, "--out", folder / "decided")
    return {"evaluation": out, "said": said, "numbers": _numbers(json.loads(out))}


def check_evaluate_table(case: Case, seen: Any, whole: Any) -> str:
    wrong = [one for one in seen["numbers"] if not np.isfinite(one)]
    return f"numbers that are none: {wrong[:3]}" if wrong else ""


def report_table(case: Case) -> str:
    """Write the report of the table, and calibrate on it."""
    folder = case.folder
    words = (folder / "bags.csv", "--instances", folder / "instances.csv")
    groups = ("--groups", folder / "groups.csv", "--group-column", "hospital")
    run("report", *words, *groups, "--out", folder / "report.html", "--resamples", 10, "--quiet")
    run("calibrate", folder / "bags.csv", "--max-error", 0.4, "--out", folder / "made.json")
    return ""


def no_wrong(case: Case, seen: Any, whole: Any) -> str:
    return ""


def _numbers(content: Any) -> list[float]:
    if isinstance(content, dict):
        return [one for value in content.values() for one in _numbers(value)]
    if isinstance(content, list):
        return [one for value in content for one in _numbers(value)]
    return [content] if isinstance(content, float) else []


def decide_by(case: Case) -> dict[str, Any]:
    """Decide on the damaged predictions, and watch them."""
    from miue.predictions import read_predictions

    folder, out = case.folder / "predictions", case.folder / "decided_again"
    calibration = case.base / "calibration/calibration.json"
    run("decide", folder, "--calibration", calibration, "--out", out)
    run("monitor", calibration, folder, "--out", case.folder / "watched")
    found = read_predictions(out)
    return {"bags": len(found.bags), "wrong": finite_probabilities(found.bags)}


def check_decide_by(case: Case, seen: Any, whole: Any) -> str:
    if seen["wrong"]:
        return str(seen["wrong"])
    same = seen["bags"] == whole["bags"] or case.name == "patients.csv"
    return "" if same else f"{seen['bags']} decisions of {whole['bags']} bags"


def other_exports(case: Case) -> str:
    """Draw heatmaps, and write GeoParquet and OME-TIFF."""
    folder = case.folder / "predictions"
    run("export", "heatmap", folder, "--out", case.folder / "heatmaps", "--quiet")
    run("export", "geoparquet", folder, "--out", case.folder / "tables", "--quiet")
    run("export", "ome-tiff", folder, "--out", case.folder / "tiffs", "--quiet")
    return ""


def tile_again(case: Case) -> dict[str, Any]:
    """Give the commands again that cut the slide and shifted its patches."""
    from miue.io.formats import contents_of, read_rows

    run("data", "tile", case.folder / "slide.tiff", "--out", case.folder / "tiles", "--quiet")
    run("data", "shift", case.folder / "slide.tiff", "--kind", "blur", "--strength", "light", "--tiles",
        case.folder / "tiles", "--out", case.folder / "shifted")  # fmt: skip
    run("data", "shift", case.folder / "slide.tiff", "--kind", "noise", "--strength", "light", "--tiles",
        case.folder / "tiles", "--out", case.folder / "noisy")  # fmt: skip
    found = {name: contents_of(case.folder / name / "slide.h5") for name in ("tiles", "shifted", "noisy")}
    rows = {name: read_rows(one.path, 0, one.size) for name, one in found.items()}
    return {
        "sizes": {name: one.size for name, one in found.items()},
        "finite": all(bool(np.isfinite(of).all()) for of in rows.values()),
    }


def check_tile_again(case: Case, seen: Any, whole: Any) -> str:
    if case.name == "slide.tiff":
        return ""
    if case.expect != "any" and (seen["sizes"] != whole["sizes"] or not seen["finite"]):
        return f"{seen} instead of {whole}"
    return "" if len(set(seen["sizes"].values())) == 1 else f"other numbers of patches: {seen['sizes']}"


FOLDERS = (Reading(pack_folder, check_pack_folder),)
MONITOR = (Reading(goes_on, check_goes_on),)
SHARDS = (Reading(merge, check_merge),)
TABLES = (Reading(evaluate_table, check_evaluate_table), Reading(report_table, no_wrong, 6))
MORE_OF_PREDICTIONS = (Reading(decide_by, check_decide_by, 2), Reading(other_exports, no_wrong, 9))
AGAIN = (Reading(tile_again, check_tile_again),)
