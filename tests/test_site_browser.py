"""The site in a real browser: every page opens, asks for nothing outside, fits, and shows its formulas."""

from __future__ import annotations

import functools
import html
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from accessibility import grave_violations
from made_predictions import chromium

pytestmark = [pytest.mark.slow, pytest.mark.browser]
PICTURES_LOADED = "[...document.images].every((one) => one.naturalWidth || one.loading === 'lazy')"
ROOT = Path(__file__).resolve().parents[1]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def copyfile(self, source: Any, outputfile: Any) -> None:
        try:
            super().copyfile(source, outputfile)
        except BrokenPipeError:  # the browser has gone to the next page
            self.close_connection = True


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    out = tmp_path_factory.mktemp("site")
    told = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    call = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    subprocess.run(call, cwd=ROOT, env=told, check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_every_link_within_the_site_leads_to_a_file(site: Path) -> None:
    missing = []
    for page in site.rglob("*.html"):
        for link in re.findall(r'\b(?:href|src)="?([^" >]+)', page.read_text()):
            path = unquote(html.unescape(link).partition("#")[0].partition("?")[0])
            if path and not re.match(r"[a-z]+:|/", path):  # those of 404.html are absolute
                to = page.parent / path
                missing += [] if (to / "index.html" if to.is_dir() else to).is_file() else [f"{page}: {link}"]
    assert missing == []


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (380, "dark")])
def test_every_page_opens_fits_and_asks_for_nothing_outside(
    site: Path, address: str, width: int, scheme: str
) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
    where = chromium()
    if where is None:
        pytest.skip("needs an installed chromium or google-chrome")
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")
    assert len(pages) > 25
    formulas = 0
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=where, args=["--no-sandbox"])
        for name in pages:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            complaints: list[str] = []
            asked: list[str] = []
            page = context.new_page()
            page.on("console", lambda message, to=complaints: to.append(message.text))
            page.on("pageerror", lambda error, to=complaints: to.append(str(error)))
            page.on("request", lambda request, to=asked: to.append(request.url))
            page.on("response", lambda got, to=complaints: to.append(got.url) if got.status >= 400 else None)
            page.goto(address + name, wait_until="load")
            assert complaints == [], name
            assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == [], name
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), name
            assert page.evaluate(
                "[...document.images].every((one) => one.naturalWidth || one.loading === 'lazy')"
            ), name
            assert "\\frac" not in page.inner_text("article"), name
            formulas += page.locator("math").count()
            context.close()
        browser.close()
    assert formulas > 50


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_a_rule_of_accessibility_seriously(site: Path, address: str, scheme: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
    where = chromium()
    if where is None:
        pytest.skip("needs an installed chromium or google-chrome")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=where, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme).new_page()
        found = {}
        for path in sorted(site.rglob("*.html")):
            name = path.relative_to(site).as_posix()
            page.goto(address + name, wait_until="load")
            found[name] = grave_violations(page)
        browser.close()
    assert {name: broken for name, broken in found.items() if broken} == {}
