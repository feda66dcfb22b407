"""Reports as they are written, and their pages taken apart."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from miue.bags import BagDataset
from miue.predictions import Predictions
from miue.report.levels import Resampling
from miue.report.report import ReportFile, write_report


class Page(HTMLParser):
    """The elements, texts and scripts of a page, as a browser would take them apart."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._in: tuple[dict[str, str | None], list[str]] | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "script":
            self._in = (dict(attrs), [])

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self._in is not None:
            self.scripts.append((self._in[0], "".join(self._in[1])))
            self._in = None

    def handle_data(self, data: str) -> None:
        (self.texts if self._in is None else self._in[1]).append(data)

    @property
    def data(self) -> Any:
        return json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == "data"))

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def reported(tmp_path: Path, *found: Predictions, **options: Any) -> tuple[Page, ReportFile]:
    """Return the page of a report, and what ``write_report`` returned."""
    sources = [(f"place_{number}", one) for number, one in enumerate(found)]
    written = write_report(tmp_path / "report.html", sources, resampling=Resampling(20), **options)
    return Page((tmp_path / "report.html").read_text("utf-8")), written


def unpacked(packed: dict[str, str]) -> np.ndarray:
    """Return an array as the page packs it."""
    return np.frombuffer(base64.b64decode(packed["base64"]), np.dtype(packed["kind"]).newbyteorder("<"))


def store_of(predictions: Predictions, tmp_path: Path, shape: tuple[int, ...], per_bag: int = 5) -> BagDataset:
    """Bags of random instances for made predictions."""
    random = np.random.default_rng(0)
    arrays = [random.integers(0, 255, size=(per_bag, *shape)).astype(np.uint8) for _ in predictions.bags.bag_ids]
    if len(shape) == 1:
        arrays = [array.astype(np.float32) for array in arrays]
    return BagDataset.from_arrays(arrays, ids=[str(one) for one in predictions.bags.bag_ids])
