"""Accessibility of a page in the browser, as axe-core judges it."""

from __future__ import annotations

import importlib.resources
from typing import Any

import pytest

GRAVE = ("serious", "critical")


def grave_violations(page: Any) -> list[str]:
    """Return each element of the open page that breaks a rule of axe-core seriously, with the rule."""
    package = pytest.importorskip("axe_playwright_python", reason="needs the package axe-playwright-python")
    page.evaluate((importlib.resources.files(package) / "axe.min.js").read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{rule['id']}: {node['html'][:200]}"
        for rule in found
        if rule["impact"] in GRAVE
        for node in rule["nodes"]
    ]
