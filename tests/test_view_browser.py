"""The page of ``miue view`` in a real browser: slides, layers, patches and verdicts are what they say."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accessibility import grave_violations
from made_predictions import NASTY, chromium, made_predictions, of_two_slides, on_a_slide
from made_views import SIDE, Asked, color_of, served, view_predictions, write_pyramid
from matplotlib import colormaps
from PIL import Image

from miue.bags import BagDataset
from miue.common.errors import ConfigError
from miue.predictions import Predictions
from miue.report.levels import Resampling
from miue.report.report import write_report

pytestmark = [pytest.mark.slow, pytest.mark.browser]
NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
    where = chromium()
    if where is None:
        pytest.skip("needs an installed chromium or google-chrome")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=where, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def slides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slides")
    for name in NAMES:
        write_pyramid(folder / f"{name}.tif")
    return folder


class Opened:
    """The page in the browser, with everything that it asked for and complained about."""

    def __init__(
        self, browser: Any, asked: Asked, width: int = 1280, scheme: str = "light", start: str = ""
    ) -> None:
        self.asked_of, self.requests, self.complaints = asked, list[str](), list[str]()
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.page.goto(asked.server.address + start)
        self.wait()

    def wait(self) -> None:
        self.page.wait_for_selector("html[data-ready=yes]")
        self.page.wait_for_selector("#stage[data-ready=yes]")

    def open(self, name: str) -> None:
        if self.text("#bag h2") == name:
            return
        self.page.evaluate("document.getElementById('stage').dataset.ready = ''")
        self.page.evaluate("name => { location.hash = 'bag=' + encodeURIComponent(name); }", name)
        self.wait()
        self.page.wait_for_selector(f"#bag h2:text-is({json.dumps(name)})")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def look_at(self, x: float, y: float, width: float) -> None:
        """Show a square of the slide around a point, and wait until its tiles are there."""
        self.page.evaluate(
            """async ([x, y, width]) => {
              const view = miueView.view, whole = view.picture.width;
              const place = [x - width / 2, y - width / 2, width, width].map((one) => one / whole);
              view.viewer.viewport.fitBounds(new OpenSeadragon.Rect(...place), true);
              const isDone = () => !view.picture.isSlide || view.viewer.world.getItemAt(0).getFullyLoaded();
              do await new Promise((done) => setTimeout(done, 150)); while (!isDone());
            }""",
            [x, y, width],
        )

    def place_of(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point of the slide is in the window, as OpenSeadragon says."""
        shown = self.page.evaluate(
            """([x, y]) => {
              const item = miueView.view.viewer.world.getItemAt(0);
              const point = item.imageToWindowCoordinates(new OpenSeadragon.Point(x, y));
              return [point.x, point.y];
            }""",
            [x, y],
        )
        return float(shown[0]), float(shown[1])

    def pixel(self, x: float, y: float) -> np.ndarray:
        """Return the color of a pixel of the window."""
        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        return np.asarray(picture)[round(y), round(x)].astype(int)

    def hide_layers(self) -> None:
        self.page.evaluate("for (const id of ['paint', 'marks', 'tip']) document.getElementById(id).hidden = true")


Show = Callable[..., Opened]


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Show]:
    """Serve predictions and open the page; what it complains about, or asks of others, fails the test."""
    every, running = list[Opened](), list[Any]()

    def open_page(predictions: Predictions, width: int = 1280, scheme: str = "light", **options: Any) -> Opened:
        server = served(predictions, tmp_path / "verdicts.csv", **options)
        running.append(server)
        every.append(Opened(browser, server.__enter__(), width, scheme))
        return every[-1]

    yield open_page
    for one in every:
        one.context.close()
        assert one.complaints == []
        assert all(url.startswith((one.asked_of.server.address, "data:", "blob:")) for url in one.requests)
    for server in running:
        server.__exit__(None, None, None)


def rows(tmp_path: Path) -> list[tuple[str, str]]:
    text = (tmp_path / "verdicts.csv").read_text()
    return [(row["bag_id"], row["label"]) for row in csv.DictReader(text.splitlines())]


def test_the_worklist_is_on_the_left_and_opens_slides(show: Show, slides: Path) -> None:
    opened = show(view_predictions(NAMES), slides=slides)
    order = [one["name"] for one in opened.asked_of.json("run.json")["cases"]]
    assert opened.page.locator("#list .name").all_inner_texts() == order
    assert opened.text("#bag h2") == order[0]
    opened.page.locator("#list button").nth(1).click()
    opened.page.wait_for_selector(f"#bag h2:text-is('{order[1]}')")
    opened.page.fill("#search", "no such")
    assert opened.page.locator("#list .name").all_inner_texts() == [order[1]]  # which is open


@pytest.mark.parametrize("across", [24, 9, 3])
def test_a_click_gives_the_numbers_of_the_patch_that_is_there(show: Show, slides: Path, across: int) -> None:
    predictions = view_predictions(NAMES)
    opened = show(predictions, slides=slides)
    opened.open("b")
    assert predictions.instances is not None
    own = predictions.instances.of_bags(["b"])
    for column, row in ((11, 7), (12, 8)):
        number, x, y = row * 24 + column, (column + 0.3) * SIDE, (row + 0.7) * SIDE
        opened.look_at(x, y, across * SIDE)
        at = opened.place_of(x, y)
        opened.page.mouse.click(*at)
        opened.page.wait_for_selector(
            f".patch caption:has-text('patch {number} at {column * SIDE}, {row * SIDE}')"
        )
        shown = dict(
            zip(
                opened.page.locator(".patch th").all_inner_texts(),
                opened.page.locator(".patch td").all_inner_texts(),
                strict=True,
            )
        )
        for name, values in {"p(tumor)": own.probabilities[:, 1], **own.uncertainties()}.items():
            told = shown[name.replace("_", " ")]
            assert float(told) == pytest.approx(float(np.float32(values[number])), rel=6e-4), name
        opened.hide_layers()
        assert np.abs(opened.pixel(*at) - color_of(column, row)).max() <= 8


def test_a_layer_has_the_colors_of_its_numbers(show: Show, slides: Path) -> None:
    predictions = view_predictions(NAMES)
    opened = show(predictions, slides=slides)
    opened.open("a")
    opened.page.select_option("#layer", label="Probability of tumor")
    opened.page.evaluate("document.getElementById('paint').style.opacity = 1")
    assert predictions.instances is not None
    p = predictions.instances.of_bags(["a"]).probabilities[:, 1]
    for across in (24, 5):
        opened.look_at(12 * SIDE, 8 * SIDE, across * SIDE)
        for column, row in ((11, 7), (12, 8), (11, 8)):
            share = p[row * 24 + column]
            color = np.array(colormaps["cividis"](round(share * 255))[:3]) * 255
            alpha = 0.12 + 0.88 * share**0.6
            wanted = alpha * color + (1 - alpha) * np.array(color_of(column, row))
            shown = opened.pixel(*opened.place_of((column + 0.5) * SIDE, (row + 0.5) * SIDE))
            assert np.abs(shown - wanted).max() <= 10, (across, column, row)
    assert (opened.text("#low"), opened.text("#high")) == ("0", "1")
    opened.page.evaluate(
        "const t = document.getElementById('threshold'); t.value = 1000; t.dispatchEvent(new Event('input'))"
    )
    opened.page.wait_for_timeout(200)
    shown = opened.pixel(*opened.place_of(11.5 * SIDE, 7.5 * SIDE))
    assert np.abs(shown - color_of(11, 7)).max() <= 8


def test_verdicts_are_rows_and_undo_is_one_too(show: Show, slides: Path, tmp_path: Path) -> None:
    opened = show(view_predictions(NAMES), slides=slides)
    order = opened.page.locator("#list .name").all_inner_texts()
    press = opened.page.keyboard.press
    press("n")
    opened.page.keyboard.type("near the margin, 12")
    press("Escape")
    press("2")
    opened.page.wait_for_selector("#progress:text-is('1 of 3 reviewed')")
    opened.page.wait_for_selector("#bag .said p:has-text('by Ada')")
    press("j")
    opened.page.wait_for_selector(f"#bag h2:text-is('{order[1]}')")
    press("0")
    opened.page.wait_for_selector("#progress:text-is('2 of 3 reviewed')")
    press("u")
    opened.page.wait_for_selector("#progress:text-is('1 of 3 reviewed')")
    opened.page.wait_for_selector("#bag .said p:has-text('taken back')")
    assert rows(tmp_path) == [(order[0], "tumor"), (order[1], "cannot tell"), (order[1], "")]
    assert "near the margin, 12" in (tmp_path / "verdicts.csv").read_text()
    opened.page.reload()
    opened.wait()
    assert opened.text("#progress") == "1 of 3 reviewed"


def test_a_note_that_follows_a_verdict_is_kept(show: Show, slides: Path, tmp_path: Path) -> None:
    opened = show(view_predictions(NAMES), slides=slides)
    opened.page.click(".choices button >> nth=0")
    opened.page.wait_for_selector("#bag .said p:has-text('by Ada')")
    opened.page.fill("#note", "a second thought")
    opened.page.locator("#note").blur()
    opened.page.wait_for_timeout(1500)
    opened.page.fill("#note", "a third")
    opened.page.click(".choices button >> nth=1")
    opened.page.wait_for_timeout(1500)
    read = list(csv.DictReader((tmp_path / "verdicts.csv").read_text().splitlines()))
    assert [(row["label"], row["note"]) for row in read] == [
        *(("normal", ""), ("normal", "a second thought"), ("tumor", "a third")),
    ]


def test_verdicts_of_another_window_are_shown(show: Show, slides: Path, tmp_path: Path) -> None:
    opened = show(view_predictions(NAMES), slides=slides)
    opened.asked_of.say(2, "normal")
    opened.page.evaluate("dispatchEvent(new Event('focus'))")
    opened.page.wait_for_selector("#progress:text-is('1 of 3 reviewed')")


def test_a_verdict_that_cannot_be_written_is_kept_and_said(
    show: Show, slides: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = show(view_predictions(NAMES), slides=slides)

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        opened.page.keyboard.press("1")
        opened.page.wait_for_selector("#alert.error:has-text('No space left on device')")
        assert opened.text("#bag .said p") == "not written yet"
    opened.page.click("#alert button:text-is('Try again')")
    opened.page.wait_for_selector("#bag .said p:has-text('by Ada')")
    assert [label for _, label in rows(tmp_path)] == ["normal"]
    assert not opened.page.is_visible("#alert")
    assert opened.complaints == [
        "error: Failed to load resource: the server responded with a status of 507 (Insufficient Storage)"
    ]
    opened.complaints.clear()


def test_the_next_patches_are_those_with_the_highest_values(show: Show, slides: Path) -> None:
    predictions = view_predictions(NAMES)
    opened = show(predictions, slides=slides)
    opened.open("c")
    opened.page.select_option("#layer", label="Distance to training patches (knn)")
    assert predictions.instances is not None
    order = np.argsort(-predictions.instances.of_bags(["c"]).scores["knn"])
    opened.page.locator("#layer").blur()
    for number in (*order[:3], order[1]):
        opened.page.keyboard.press(
            ","
            if number == order[1]
            and opened.page.query_selector(".patch caption")
            and (f"patch {order[2]} " in opened.text(".patch caption"))
            else "."
        )
        opened.page.wait_for_selector(f".patch caption:has-text('patch {number} at')")
    names = opened.page.locator(".pictures button").evaluate_all("all => all.map((one) => one.ariaLabel)")
    assert [int(re.findall(r"\d+", name)[0]) for name in names] == order[:8].tolist()


def test_hostile_names_are_shown_as_they_are(show: Show, tmp_path: Path) -> None:
    predictions = view_predictions((NASTY, "b"), 4, 4)
    predictions = replace(
        predictions, provenance=predictions.provenance.model_copy(update={"classes": (NASTY, "b" + NASTY)})
    )
    opened = show(predictions, person=NASTY, title=NASTY, slides=tmp_path)
    opened.open(NASTY)
    assert opened.text("#bag h2") == NASTY
    opened.page.fill("#note", NASTY)
    opened.page.locator(".choices button").first.click()
    opened.page.wait_for_selector("#progress:text-is('1 of 2 reviewed')")
    opened.page.reload()
    opened.wait()
    assert opened.page.input_value("#note") == NASTY
    assert opened.page.title() == f"{NASTY} · miue view"
    assert opened.page.locator("b, script:not([src])").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 820])
def test_nobody_is_kept_out(show: Show, slides: Path, width: int, scheme: str) -> None:
    opened = show(view_predictions(NAMES), width, scheme, slides=slides)
    opened.page.keyboard.press(".")
    opened.page.keyboard.press("1")
    opened.page.wait_for_selector("#bag .said p:has-text('by Ada')")
    assert grave_violations(opened.page) == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    opened.page.keyboard.press("?")
    opened.page.wait_for_selector("#help[open]")
    assert grave_violations(opened.page) == []


def test_the_keyboard_alone_does_all(show: Show, slides: Path) -> None:
    opened = show(view_predictions(NAMES), slides=slides)
    reached = set()
    for _ in range(60):
        opened.page.keyboard.press("Tab")
        reached.add(opened.page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"search", "filter", "layer", "opacity", "threshold", "in", "out", "home", "note"} <= reached
    opened.page.locator("#in").focus()
    before = opened.page.evaluate("miueView.view.viewer.viewport.getZoom()")
    opened.page.keyboard.press("Enter")
    opened.page.evaluate("document.activeElement.blur()")
    opened.page.keyboard.press("+")
    assert opened.page.evaluate("miueView.view.viewer.viewport.getZoom()") > 2 * before
    center = "miueView.view.viewer.viewport.getCenter().x"
    before = opened.page.evaluate(center)
    opened.page.keyboard.press("ArrowRight")
    assert opened.page.evaluate(center) > before


def test_a_bag_of_two_slides_has_a_button_for_each(show: Show) -> None:
    opened = show(of_two_slides(on_a_slide(made_predictions(3, 12))))
    opened.open("bag 0001")
    assert opened.page.locator("#pictures button").all_inner_texts() == ["left of bag 0001", "right of bag 0001"]
    assert opened.page.evaluate("miueView.view.patches.count") == 8
    opened.page.locator("#pictures button").nth(1).click()
    opened.page.wait_for_function("miueView.view.patches?.count === 4")


def test_bags_of_images_show_them_and_their_numbers(show: Show) -> None:
    predictions = made_predictions(3, 7)
    images = [np.full((7, 8, 8, 3), 40 * number, np.uint8) for number in range(3)]
    for of_bag in images:
        of_bag[..., 0] = 30 * np.arange(7)[:, None, None]
    store = BagDataset.from_arrays(images, ids=predictions.bags.bag_ids.astype(str).tolist())
    opened = show(predictions, store=store)
    opened.open("bag 0002")
    opened.look_at(96, 96, 200)
    opened.hide_layers()
    for number in range(7):
        at = opened.place_of(64 * (number % 3) + 20, 64 * (number // 3) + 20)
        assert np.abs(opened.pixel(*at) - [30 * number, 80, 80]).max() <= 8
        opened.page.mouse.click(*at)
        opened.page.wait_for_selector(f".patch caption:has-text('patch {number} ')")
        opened.page.wait_for_timeout(400)  # else two clicks are a double click


def test_a_report_links_to_its_bags(browser: Any, tmp_path: Path) -> None:
    predictions = view_predictions((NASTY + " #1?&", "b"), 4, 4)
    with served(predictions, tmp_path / "v.csv") as running:
        report = tmp_path / "report.html"
        write_report(report, [("ours", predictions)], view=running.server.address, resampling=Resampling(10))
        page = browser.new_page()
        page.set_default_timeout(90_000)
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        page.evaluate("name => { location.hash = 'bag=' + encodeURIComponent(name); }", NASTY + " #1?&")
        with page.expect_popup() as popup:
            page.click("#bag a:text-is('Open on the slide')")
        popup.value.wait_for_selector("#stage[data-ready=yes]", timeout=60_000)
        assert popup.value.inner_text("#bag h2") == NASTY + " #1?&"
        page.close()


@pytest.mark.parametrize("address", ["javascript:alert(1)", "", "//x", "http://a b", "http://x/#y", "file:///x"])
def test_a_report_links_to_addresses_alone(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        write_report(tmp_path / "r.html", [("ours", view_predictions())], view=address)
    assert caught.value.item == "view"


def test_real_slides_are_shown(show: Show, shared_data: Path, tmp_path: Path) -> None:
    region, scan = (
        shared_data / "CMU-1-Small-Region.svs",
        shared_data / "real_files" / "hamamatsu_test3-DAPI-2.ndpi",
    )
    if not region.exists() or not scan.exists():
        pytest.skip("needs the slides in ../shared/data")
    for path in (region, scan):
        (tmp_path / path.name).symlink_to(path)
    names = (region.stem, scan.stem)
    opened = show(view_predictions(names, 20, 20), slides=tmp_path)
    for name, size in zip(names, ((2220, 2967), (3968, 4864)), strict=True):
        opened.open(name)
        opened.look_at(size[0] / 2, size[1] / 2, size[0])
        at = [opened.place_of(size[0] * share, size[1] * 0.5) for share in (0.3, 0.5, 0.7)]
        opened.hide_layers()
        assert len({tuple(opened.pixel(*place)) for place in at}) > 1
        assert opened.text("#scale").endswith("µm")


def test_100_000_patches_are_drawn_in_time(show: Show) -> None:
    """At 30 frames a second each has 33 ms, of which drawing takes a part, whatever else the machine does."""
    opened = show(view_predictions(("big",), 400, 250))
    for zoom in (1, 4, 15, 60):
        times = opened.page.evaluate(
            """async (zoom) => {
              const { viewer, frames } = miueView.view, viewport = viewer.viewport;
              viewport.zoomTo(viewport.getHomeZoom() * zoom, null, true);
              await new Promise((done) => setTimeout(done, 500));
              frames.length = 0;
              for (let k = 0; k < 40; k++) {
                viewport.panBy(new OpenSeadragon.Point((k % 20 < 10 ? 1 : -1) * 0.02 / zoom, 0), true);
                await new Promise(requestAnimationFrame);
              }
              return frames.map((one) => one[1]);
            }""",
            zoom,
        )
        assert len(times) > 20
        assert np.median(times) < 15


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_twenty_slides_take_little_memory(browser: Any, tmp_path: Path) -> None:
    names = tuple(f"s{number:02d}" for number in range(20))
    write_pyramid(tmp_path / "slides" / "s00.tif", 96, 64)
    for name in names[1:]:
        (tmp_path / "slides" / f"{name}.tif").hardlink_to(tmp_path / "slides" / "s00.tif")
    view_predictions(names, 96, 64).save(tmp_path / "predictions")
    words = [sys.executable, "-m", "miue", "view", "predictions", "--slides", "slides", "--no-browser"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        address = running.stdout.readline().split()[-1]
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(address)
        for name in names:
            page.goto(f"{address}#bag={name}")
            page.wait_for_selector(f"#bag h2:text-is('{name}')", timeout=60_000)
            page.wait_for_selector("#stage[data-ready=yes]", timeout=60_000)
            for _ in range(3):
                page.keyboard.press("+")
                page.wait_for_timeout(300)
        page.close()
        status = Path(f"/proc/{running.pid}/status").read_text()
        running.terminate()
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])  # type: ignore[index]
    assert peak < 500 << 10
