"""Draw docs/images/report.png: the first screen of the demo's report.

miue demo --out demo && python docs/draw_report.py demo/report.html  (needs playwright and a Chromium)
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).with_name("images") / "report.png"


def main(report: Path) -> None:
    """Open the report and save what is on the screen."""
    with sync_playwright() as started:
        browser = started.chromium.launch(
            args=["--no-sandbox"], executable_path=shutil.which("chromium") or shutil.which("google-chrome")
        )
        page = browser.new_page(viewport={"width": 1200, "height": 1010}, color_scheme="light")
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
