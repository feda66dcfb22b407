"""Slides that look a little like tissue, predictions of their patches, and a server that shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import tifffile
import torch
from made_slides import prediction_table

from miue.distributions import Dirichlet
from miue.predictions import Predictions, Provenance
from miue.view import Content, Server, Site, VerdictFile

SIDE = 64  # level-0 pixels of a patch


def write_pyramid(path: Path, columns: int = 24, rows: int = 16, levels: int = 3) -> None:
    """Write a slide of flat squares, each of a color of its own: red by column, green by row."""
    grid = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1)
    colors = np.concatenate([grid * 8, np.full((rows, columns, 1), 128)], -1).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"tile": (256, 256), "photometric": "rgb", "compression": "zlib"}
    stated = {"resolution": (20_000, 20_000), "resolutionunit": "CENTIMETER"}  # 0.5 µm
    with tifffile.TiffWriter(path) as file:
        for level in range(levels):
            side = SIDE >> (2 * level)
            picture = colors.repeat(side, 0).repeat(side, 1)
            file.write(picture, **options, **(stated if level == 0 else {"subfiletype": 1}))


def color_of(column: int, row: int) -> list[int]:
    """Return the color of a square of ``write_pyramid``."""
    return [column * 8, row * 8, 128]


def view_predictions(
    names: tuple[str, ...] = ("a", "b"), columns: int = 24, rows: int = 16, seed: int = 0
) -> Predictions:
    """Predictions of slides of ``write_pyramid``, of which every square is a patch."""
    random = np.random.default_rng(seed)
    grid = np.array([[x, y] for y in range(rows) for x in range(columns)], np.int64) * SIDE
    count, n = len(names), columns * rows
    alpha = Dirichlet(torch.from_numpy(1 + random.gamma(1.0, 3.0, (count * n, 2))))
    ids = [name for name in names for _ in range(n)]
    knn = random.gamma(2.0, 1.0, count * n)
    instances = prediction_table(alpha, ids, np.tile(grid, (count, 1)), knn=knn)
    instances = replace(instances, instance=np.tile(np.arange(n), count))
    bags = prediction_table(
        Dirichlet(torch.from_numpy(1 + random.gamma(1.0, 3.0, (count, 2)))),
        list(names),
        knn_mean=random.gamma(2.0, 1.0, count),
    )
    return Predictions(bags, instances, Provenance(classes=("normal", "tumor")))


class Asked:
    """A running server, and requests to it."""

    def __init__(self, server: Server) -> None:
        self.server, self.token = server, server.site.token
        self.host = f"127.0.0.1:{server.server_address[1]}"

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> tuple[HTTPResponse, bytes]:
        """Return the answer to a request below the token."""
        return self.ask_plainly(f"/{self.token}/{path}", method, body, **headers)

    def ask_plainly(
        self, path: str, method: str = "GET", body: Any = None, **headers: str
    ) -> tuple[HTTPResponse, bytes]:
        """Return the answer to a request."""
        connection = HTTPConnection(self.host, timeout=20)
        text = None if body is None else json.dumps(body) if not isinstance(body, str) else body
        connection.request(method, path, text, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer, content

    def json(self, path: str) -> Any:
        """Return what is there as JSON."""
        answer, content = self.ask(path)
        assert answer.status == 200, content
        return json.loads(content)

    def say(self, bag: Any, label: Any, note: Any = "", **headers: str) -> tuple[int, Any]:
        """Return status and content of the answer to a verdict."""
        given = {"Origin": f"http://{self.host}", "Content-Type": "application/json"} | headers
        answer, content = self.ask("verdicts", "POST", {"bag": bag, "label": label, "note": note}, **given)
        return answer.status, json.loads(content)


@contextmanager
def served(predictions: Predictions, verdicts: Path, person: str = "Ada", **options: Any) -> Iterator[Asked]:
    """Serve predictions while the block runs."""
    site = Site(Content(predictions, VerdictFile(verdicts, person), **options))
    with Server(site) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield Asked(server)
        finally:
            server.shutdown()
            thread.join()
