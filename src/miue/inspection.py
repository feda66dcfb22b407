"""What a folder holds, for a person or a program."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from miue.errors import StorageError
from miue.files import read_json


def describe(path: Path) -> dict[str, Any]:
    """Return what is in the folder ``path``, as JSON values.

    Raises:
        StorageError: neither a store, a run, nor predictions.
    """
    if (path / "store.json").exists():
        return _describe_store(path)
    if (path / "run.json").exists() or (path / "config.json").exists():
        return _describe_run(path)
    if (path / "bags.csv").exists():
        return _describe_predictions(path)
    raise StorageError(
        item=f"{str(path)!r}",
        wanted="a bag store (store.json), a run (run.json or config.json) or predictions (bags.csv)",
        got="none of them" if path.is_dir() else "no such folder",
        fix="check the path",
    )


def description_table(description: dict[str, Any]) -> Table:
    """Return a description as rows of name and value; a list of records becomes one row each."""
    table = Table(title=f"{description['kind']}: {description['path']}", title_justify="left", show_header=False)
    for key, value in description.items():
        if key in ("kind", "path"):
            continue
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for record in value:
                name, *rest = record.values()
                facts = ", ".join(f"{k} {_show(v)}" for k, v in list(record.items())[1:])
                table.add_row(f"{key} {name}", facts if rest else "")
        elif isinstance(value, dict):
            table.add_row(key, ", ".join(f"{k} {_show(v)}" for k, v in value.items()))
        else:
            table.add_row(key, _show(value))
    return table


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list):
        return (
            " × ".join(map(str, value)) if all(isinstance(v, int) for v in value) else ", ".join(map(str, value))
        )
    return str(value)


def _describe_store(path: Path) -> dict[str, Any]:
    from miue.data.store import read_store, read_store_summary

    summary, bags = read_store_summary(path), read_store(path)
    splits = []
    for split in dict.fromkeys(bags.splits):
        part = bags.subset([i for i, name in enumerate(bags.splits) if name == split])
        inside = part.labels.known & ~part.is_ood
        counts = np.bincount(part.labels.values[inside], minlength=bags.num_classes)
        record: dict[str, Any] = {
            "split": split or "(none)",
            "bags": len(part),
            "instances": int(part.sizes.sum()),
        }
        record.update({f"class {name}": int(n) for name, n in zip(bags.class_names, counts, strict=True)})
        record["unlabelled"] = int((~part.labels.known & ~part.is_ood).sum())
        for name in sorted(set(part.ood_sets) - {""}):
            record[f"OOD {name}"] = part.ood_sets.count(name)
        splits.append(record)
    return {
        "kind": "bag store",
        "path": str(path),
        "instance shape": list(bags.instance_shape),
        "dtype": summary["dtype"],
        "bags": len(bags),
        "instances": int(bags.sizes.sum()),
        "bag sizes": {
            "min": int(bags.sizes.min()),
            "median": float(np.median(bags.sizes)),
            "max": int(bags.sizes.max()),
        },
        "instance labels": "known" if bags.instance_labels.known.any() else "not known",
        "split": splits,
        "made by": summary["made_by"],
    }


def _describe_run(path: Path) -> dict[str, Any]:
    finished = (path / "config.json").exists()
    content = read_json(path / ("config.json" if finished else "run.json"), what="run")
    model, contract = content["model"], content["contract"]
    description: dict[str, Any] = {
        "kind": "trained model" if finished else "unfinished run (continue it with 'miue train … --resume')",
        "path": str(path),
        "network": _component(model["network"]),
        "method": _component(model["method"]),
        "encoder": _component(model["encoder"]),
        "instance shape": contract["instance_shape"],
        "classes": contract["class_names"],
    }
    if finished:
        description["training"] = content["about"]
        from safetensors import safe_open

        with safe_open(path / "model.safetensors", "np") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
        description["parameters"] = int(sum(np.prod(shape) for shape in shapes))
    if (path / "calibration.json").exists():
        parts = read_json(path / "calibration.json", what="calibration").get("calibration", {})
        description["calibration"] = {name: _facts(part) for name, part in parts.items() if name in _CALIBRATED}
    if (path / "log.csv").exists():
        with (path / "log.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        description["epochs trained"] = len(rows)
        description["last epoch"] = {k: float(v) for k, v in rows[-1].items()} if rows else {}
    return description


_CALIBRATED = ("scaling", "referral", "label_sets", "false_alarms")


def _facts(part: dict[str, Any] | None) -> str:
    if part is None:
        return "left out"
    return " ".join(f"{key}={_show(value)}" for key, value in part.items() if value != "")


def _component(component: dict[str, Any]) -> str:
    options = ", ".join(f"{key}={value}" for key, value in component["options"].items())
    return component["name"] + (f" ({options})" if options else "")


def _describe_predictions(path: Path) -> dict[str, Any]:
    from miue.predictions import read_predictions

    predictions = read_predictions(path)
    levels = []
    for name, table in (("bags", predictions.bags), ("instances", predictions.instances)):
        if table is not None:
            record: dict[str, Any] = {
                "level": name,
                "count": len(table),
                "labelled": int(table.labels.known.sum()),
            }
            record["out of distribution"] = int(table.is_ood.sum())
            medians = {k: float(np.median(v)) for k, v in table.uncertainties().items()}
            record.update({f"median {k}": v for k, v in medians.items()})
            levels.append(record)
    return {
        "kind": "predictions",
        "path": str(path),
        "distribution": type(predictions.bags.distribution).__name__,
        "classes": predictions.bags.distribution.num_classes,
        "made by": dict(predictions.about),
        "level": levels,
    }
