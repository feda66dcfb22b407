"""What reads a damaged thing, and what must hold where it is read and not refused."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.commands_run import Case, run


@dataclass(frozen=True)
class Reading:
    """One way to read a thing.

    Attributes:
        read: returns what it saw, or raises.
        check: given the case, what was seen of it and of the whole thing, says what is wrong; "" if nothing is.
        every: how many cases of a kind there are for one that is read in this way.
    """

    read: Callable[[Case], Any]
    check: Callable[[Case, Any, Any], str]
    every: int = 1

    @property
    def name(self) -> str:
        """How it is called."""
        return self.read.__name__


def digest(array: Any) -> str:
    content = np.ascontiguousarray(np.asarray(array))
    return f"{content.dtype} {content.shape} {hashlib.sha256(content.tobytes()).hexdigest()[:12]}"


def finite_probabilities(table: Any) -> str:
    p = table.distribution.probabilities.numpy()
    if not np.isfinite(p).all() or (p < -1e-9).any() or not np.allclose(p.sum(1), 1, atol=1e-3):
        return f"probabilities that are none: {p[~np.isfinite(p).all(1)][:2]}"
    measures = {name: values for name, values in table.uncertainties().items() if not np.isfinite(values).all()}
    return f"measures that are not finite: {', '.join(measures)}" if measures else ""


def by_expectation(case: Case, seen: Any, whole: Any, same: bool, shaped: bool) -> str:
    if case.expect == "refuse":
        return "accepted although its parts contradict each other"
    if case.expect == "same" and not same:
        return f"accepted although bytes are missing or added: {seen} instead of {whole}"
    if case.expect == "shape" and not shaped:
        return f"accepted with another shape: {seen} instead of {whole}"
    return ""


# Bag files


def bag_file(case: Case) -> dict[str, Any]:
    """Open the file and read all of its rows."""
    from miue.io.formats import contents_of, read_rows

    found = contents_of(case.path)
    rows = read_rows(case.path, 0, found.size)
    return {
        "shape": [found.size, *found.instance_shape],
        "read": list(rows.shape) if found.size else [0, *found.instance_shape],
        "rows": digest(rows),
        "coords": None if found.coords is None else digest(found.coords),
        "patch": found.patch_size,
        "notes": list(found.notes),
    }


def check_bag_file(case: Case, seen: Any, whole: Any) -> str:
    if seen["read"] != seen["shape"]:
        return f"declares shape {seen['shape']}, reads {seen['read']}"
    if case.expect == "flag":
        return "" if seen["notes"] else "rows that were never written, without a word"
    parts = ("shape", "rows", "coords")
    return by_expectation(
        case, seen, whole, all(seen[k] == whole[k] for k in parts), seen["shape"] == whole["shape"]
    )


def inspect_bags(case: Case) -> dict[str, Any]:
    """Inspect the folder with all features read."""
    run("inspect", case.folder / "bags", "--read")
    out, _ = run("inspect", case.folder / "bags", "--read", "--json")
    return {bag["file"]: bag for bag in json.loads(out)["bag"]}


def check_inspect_bags(case: Case, seen: Any, whole: Any) -> str:
    for name in whole:
        if name != case.name and name in seen and seen[name]["instances"] != whole[name]["instances"]:
            return f"another file, {name}, is read otherwise: {seen[name]}"
    if case.damaged is None:
        return ""
    if case.name not in seen:
        return "the damaged file is not listed"
    ours, before = seen[case.name], whole.get(case.name)
    if ours["problems"] or before is None:
        return ""
    if case.expect == "flag":
        return "" if ours["notes"] else "rows that were never written, without a word"
    shaped = (ours["instances"], ours["shape"]) == (before["instances"], before["shape"])
    return by_expectation(case, ours, before, shaped, shaped)


def pack_bags(case: Case) -> dict[str, Any]:
    """Pack the folder, leaving out what cannot be used."""
    from miue.io import read_store

    out = case.folder / "packed"
    run("data", "pack", case.folder / "bags", "--out", out, "--skip-bad", "--quiet")
    bags = read_store(out)
    parts = zip(bags.ids, bags.starts, bags.sizes, strict=True)
    left = (out / "left_out.csv").read_text() if (out / "left_out.csv").exists() else ""
    return {"left out": left, "bags": {name: digest(bags.instances[s : s + n]) for name, s, n in parts}}


def check_pack_bags(case: Case, seen: Any, whole: Any) -> str:
    ours = Path(case.target).stem
    for name, rows in whole["bags"].items():
        if name != ours and name not in seen["left out"] and seen["bags"].get(name) != rows:
            return f"bag {name}, which is whole, is packed otherwise"
    if ours not in seen["bags"]:
        gone = case.damaged is None or ours in seen["left out"]
        return "" if gone else "the damaged bag is neither packed nor listed"
    if case.expect == "flag" or "patches" in case.target:
        return ""
    same = seen["bags"][ours] == whole["bags"].get(ours)
    return by_expectation(case, seen["bags"][ours], whole["bags"].get(ours), same, True)


def predict_bags(case: Case) -> dict[str, Any]:
    """Predict the folder, leaving out what cannot be used."""
    from miue.predictions import read_predictions

    out = case.folder / "predicted"
    run(
        "predict",
        case.base / "run/run",
        case.folder / "bags",
        "--skip-bad",
        "--part",
        "all",
        "--out",
        out,
        "--quiet",
    )
    found = read_predictions(out)
    assert found.instances is not None
    return {"bags": list(found.bags.bag_ids), "wrong": finite_probabilities(found.bags)}


def check_predict_bags(case: Case, seen: Any, whole: Any) -> str:
    return seen["wrong"]


def train_bags(case: Case) -> dict[str, Any]:
    """Train on the folder for an epoch, leaving out what cannot be used."""
    from miue.model.model import Model

    out = case.folder / "trained"
    run("train", case.folder / "bags", "--labels", case.folder / "labels.csv", "--out", out, "--skip-bad",
        "--set", "max_epochs=1", "--set", "encoder.width=4", "--set", "validation_fraction=0", "--splits", "none",
        "--distance", "none", "--quiet")  # fmt: skip
    weights = Model.load(out).method.state_dict()
    return {"wrong": "" if all(bool(w.isfinite().all()) for w in weights.values()) else "weights not finite"}


# Tables of bags


def records(content: bytes | None, mark: str = ",") -> int | None:
    """Return how many records a CSV has after its header, as Python reads them; None where it cannot."""
    try:
        text = (content or b"").decode("utf-8-sig")
        return sum(1 for row in csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True) if row) - 1
    except (UnicodeDecodeError, csv.Error):
        return None


def long_table(case: Case) -> dict[str, Any]:
    """Open the table, inspect and pack it."""
    from miue.io import read_store

    run("inspect", case.path)
    run("data", "pack", case.path, "--out", case.folder / "packed", "--quiet")
    bags = read_store(case.folder / "packed")
    return {"bags": len(bags), "instances": int(bags.sizes.sum()), "shape": list(bags.instances.shape),
            "finite": bool(np.isfinite(bags.instances).all())}  # fmt: skip


def check_long_table(case: Case, seen: Any, whole: Any) -> str:
    if not seen["finite"]:
        return "features that are not finite"
    if case.name.endswith(".csv"):
        count = records(case.damaged)
        if count is not None and count != seen["instances"] and b"\0" not in (case.damaged or b""):
            return f"{seen['instances']} instances of {count} records"
    return by_expectation(case, seen, whole, True, True)


def label_table(case: Case) -> dict[str, Any]:
    """Draw splits of the folder with its label table, and take the labels of patches."""
    from miue.io import read_label_table

    folder, out = case.folder, case.folder / "drawn.csv"
    given: dict[str, Any] = {"slide_table": folder / "slides.csv", "columns": {"label": "MSI"}}
    more: list[Any] = ["--slide-table", folder / "slides.csv", "--label-column", "MSI"]
    table = {"slides.csv": "clini.csv", "patches.csv": "clam.csv"}.get(case.name, case.name)
    stamp = table == "clini.csv"
    if case.name == "patches.csv":
        more = ["--instance-labels", case.path]
    elif not stamp:
        more = []
    read = read_label_table(folder / table, **(given if stamp else {}))
    _, said = run("data", "split", folder / "bags", "--labels", folder / table, *more, "--out", out, "--skip-bad")
    drawn = len(records_of(out))
    return {
        "rows": len(read.ids),
        "labels": sorted(set(read.labels)),
        "drawn": drawn,
        "said": said,
    }


def records_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def check_label_table(case: Case, seen: Any, whole: Any) -> str:
    if case.name in ("clam.csv", "patho.tsv"):
        count = records(case.damaged, "\t" if case.name.endswith("tsv") else ",")
        if count is not None and count != seen["rows"]:
            return f"{seen['rows']} rows of {count} records"
    if seen["drawn"] < whole["drawn"] and "left out" not in seen["said"]:
        return f"{seen['drawn']} of {whole['drawn']} bags, without a word"
    return by_expectation(case, seen, whole, True, True)


def splits(case: Case) -> dict[str, Any]:
    """Pack the folder with the splits."""
    from miue.io import read_store

    given = case.path.parent if case.name.startswith("splits_") else case.path
    _, said = run("data", "pack", case.folder / "bags", "--labels", case.folder / "labels.csv", "--splits", given,
                  "--out", case.folder / "packed", "--skip-bad", "--quiet")  # fmt: skip
    bags = read_store(case.folder / "packed")
    return {"splits": dict(zip(bags.ids, bags.splits, strict=True)), "said": said}


def check_splits(case: Case, seen: Any, whole: Any) -> str:
    lacking = {"train", "validation", "test"} - set(seen["splits"].values())
    if lacking and not seen["said"]:
        return f"no bag in {', '.join(sorted(lacking))}, without a word"
    moved = [n for n, part in seen["splits"].items() if part and part != whole["splits"].get(n)]
    if moved and case.expect in ("shape", "same") and case.name.endswith(".npz"):
        return f"bags in other splits: {moved}"
    return by_expectation(case, seen, whole, True, True)


def no_check(case: Case, seen: Any, whole: Any) -> str:
    return ""
