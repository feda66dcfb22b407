"""Print the oldest versions that pyproject.toml allows, one a line; torch is that of constraints.txt."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("pandas", "slides", "hub", "zarr")
NEWEST = ("openslide-bin", "huggingface_hub", "jaxtyping")
"""A library in C, the client of a server, and what checks shapes in tests, by older versions in all functions."""
TESTED_WITH = ("beartype", "hypothesis", "latex2mathml", "mapie", "mpmath", "pytest", "pytest-xdist")


def oldest() -> list[str]:
    """Return the requirements, each pinned to its lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for name in EXTRAS for one in extras[name])]
    pinned = [
        re.sub(r">=([^,]+).*", r"==\1", one)
        for one in wanted
        if re.split(r"[>=<]", one)[0] not in ("torch", *NEWEST)
    ]
    torch = re.search(r"^torch==.*$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    assert torch is not None
    return [torch[0], *pinned, *NEWEST, *TESTED_WITH]


if __name__ == "__main__":
    print("\n".join(oldest()))
