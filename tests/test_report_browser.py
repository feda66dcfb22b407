"""The report in a real browser: nothing goes wrong, nothing is fetched, and its controls do what they say."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accessibility import grave_violations
from made_flags import flagged_slides
from made_predictions import (
    NASTY,
    chromium,
    made_predictions,
    made_provenance,
    of_two_slides,
    on_a_slide,
    unlabeled,
    without_evidence,
)
from made_promises import exact_interval
from made_reports import store_of

from miue.bags import Coords, Labels, Outcomes
from miue.calibration import DeferralGoal, FalseAlarmGoal, calibrate, decide
from miue.evaluation.level import error_measure
from miue.predictions import Predictions, Provenance
from miue.report.levels import Resampling
from miue.report.report import write_report
from miue.targets import Survival

pytestmark = [pytest.mark.slow, pytest.mark.browser]
PAPER = 960  # pixels of a page of letter paper on its side, between its margins


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


class Opened:
    """A report in a page of the browser, with everything that it asked for and complained about."""

    def __init__(self, browser: Any, path: Path, width: int = 1200, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]", timeout=60_000)

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def column(self, number: int) -> list[str]:
        return [
            str(t) for t in self.page.locator(f"#bags-table tbody tr > :nth-child({number})").all_inner_texts()
        ]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "report.html"
    found = [(f"place_{seed}", made_predictions(120, seed=seed, provenance=mirel(seed))) for seed in (1, 2)]
    sites = {str(name): ("Cork", "Leeds")[row % 2] for row, name in enumerate(found[0][1].bags.bag_ids)}
    write_report(out, [*found, ("soft", softmax())], groups=sites, resampling=Resampling(20))
    return out


def mirel(seed: int) -> Provenance:
    return made_provenance(network="attention", method="mirel", seed=seed, classes=("no", "yes"))


def softmax() -> Predictions:
    return without_evidence(
        made_predictions(120, seed=7, provenance=Provenance(method="softmax", classes=("no", "yes")))
    )


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Opened]:
    shown = Opened(browser, report)
    yield shown
    shown.context.close()
    assert shown.complaints == []
    assert shown.asked
    assert all(url.startswith(("file:", "data:", "blob:")) for url in shown.asked)


Show = Callable[..., Opened]


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Show]:
    """Write a report of predictions and open it; what it asks for or complains about fails the test."""
    every: list[Opened] = []

    def write_and_open(*found: Predictions, width: int = 1200, scheme: str = "light", **options: Any) -> Opened:
        out = tmp_path / f"{len(every)}.html"
        sources = [(f"place_{number}", one) for number, one in enumerate(found)]
        write_report(out, sources, resampling=Resampling(20), **options)
        every.append(Opened(browser, out, width, scheme))
        return every[-1]

    yield write_and_open
    for one in every:
        one.context.close()
        assert one.complaints == []


def of_times() -> Predictions:
    """Predictions of times until an event, some of which are censored."""
    random, made = np.random.default_rng(3), without_evidence(made_predictions(60, classes=3))
    values, observed = random.exponential(9, 60), random.random(60) < 0.6
    target = Survival(edges=(3.0, 8.0))
    known = Outcomes(values, made.bags.labels.known, observed)
    labels = Labels(np.where(known.known, target.classes_of(values), 0), known.known)
    bags = replace(made.bags, outcomes=known, labels=labels, target=target)
    assert made.instances is not None
    instances = replace(made.instances, labels=Labels.unknown(len(made.instances)), target=target)
    return replace(made, bags=bags, instances=instances)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_curves_of_times_are_drawn_with_how_many_are_at_risk(show: Show, scheme: str) -> None:
    opened = show(of_times(), scheme=scheme)
    assert opened.page.locator("#own-0-plot .scatterlayer .trace").count() >= 3
    rows = opened.page.locator("#own-0-table tbody tr").all_inner_texts()
    assert sum(int(row.split("\t")[1]) for row in rows) == 40  # labeled, and not out of distribution
    assert "Log-rank test" in opened.text("#own-0-caption")
    assert opened.page.locator("#reliability").count() == 0
    heading = opened.text("#bags-table thead").lower()
    assert "median time" in heading and "probability" not in heading
    opened.page.locator("#bags-table button.link").first.click()
    assert "risk" in opened.text("#bag-caption")
    assert grave_violations(opened.page) == []


def accepted_and_errors(predictions: Predictions, share: float) -> tuple[int, int, int]:
    """(accepted, errors among them, foreign bags deferred) of the most certain share of labeled bags."""
    table = predictions.bags
    uncertainty = table.uncertainties()[error_measure(table)]
    inside = np.flatnonzero(table.judged)
    order = inside[np.argsort(uncertainty[inside])]
    accepted = order[: round(share * len(order))]
    wrong = int((table.predicted[accepted] != table.labels.values[accepted]).sum())
    return (
        len(accepted),
        wrong,
        int((uncertainty[table.is_ood.out_of_distribution] > uncertainty[accepted].max()).sum()),
    )


def test_every_figure_is_drawn_without_a_complaint_or_a_request(opened: Opened) -> None:
    for name in ("reliability", "coverage", "distributions"):
        assert opened.page.locator(f"#{name}-plot svg.main-svg").count() >= 1
        assert opened.page.locator(f"#{name}-plot .trace").count() >= 2
    assert opened.page.evaluate("document.fonts.size") == 0
    top = opened.page.evaluate("document.getElementById('verdict').getBoundingClientRect().top")
    assert top < 300  # on the first screen


@pytest.mark.parametrize("share", [0.8, 0.45])
@pytest.mark.parametrize("run", [0, 2])
def test_the_slider_shows_the_selective_risk_with_its_exact_interval_and_who_is_deferred(
    opened: Opened, share: float, run: int
) -> None:
    predictions = [made_predictions(120, seed=1), None, softmax()][run]
    assert predictions is not None
    opened.page.select_option("#choose-run", str(run))
    opened.page.evaluate(
        "share => { const s = document.getElementById('coverage-slider'); s.value = 100 * share;"
        " s.dispatchEvent(new Event('input')); }",
        share,
    )
    accepted, wrong, foreign = accepted_and_errors(predictions, share)
    assert opened.text("#coverage-accepted") == f"{accepted} of 80"
    assert opened.text("#coverage-deferred") == str(80 - accepted)
    percent = (Decimal(100 * wrong) / accepted).quantize(Decimal("0.01"), ROUND_HALF_UP)  # as a browser rounds
    assert opened.text("#coverage-error") == f"{percent} %"
    assert f"cats: {foreign} of 40 out-of-distribution bags are deferred" in opened.text("#coverage-list")
    assert opened.page.locator("#coverage-list .chips button").count() == min(10, 80 - accepted)
    low, high = exact_interval(wrong, accepted)
    shown = opened.text("#coverage-interval")
    assert shown == f"{wrong} of {accepted}; {100 * low:.1f} % to {100 * high:.1f} %"
    opened.page.click("#coverage-list > button")
    assert opened.text("#bags-count") == f"{80 - accepted + foreign} of 120 bags"


def test_the_slider_moves_by_key(opened: Opened) -> None:
    before = opened.text("#coverage-accepted")
    opened.page.focus("#coverage-slider")
    for _ in range(5):
        opened.page.keyboard.press("ArrowLeft")
    assert opened.text("#coverage-share") == "75.0 %"
    assert opened.text("#coverage-accepted") != before


def test_a_heading_sorts_by_mouse_and_by_key(opened: Opened) -> None:
    opened.page.click("#bags-table [data-key=probability]")
    falling = [float(value) for value in opened.column(3)]
    assert len(falling) == 25
    assert falling == sorted(falling, reverse=True)
    opened.page.keyboard.press("Enter")  # the heading kept the focus
    rising = [float(value) for value in opened.column(3)]
    assert rising == sorted(rising)
    assert rising[0] < falling[-1]
    assert opened.page.get_attribute("#bags-table th:nth-child(3)", "aria-sort") == "ascending"
    opened.page.click("#bags-table [data-key=id]")
    assert opened.column(1) == [f"bag {number:04d}" for number in range(25)]
    opened.page.click("#bags-next")
    assert opened.column(1)[0] == "bag 0025"


def test_the_search_and_the_choice_filter(opened: Opened) -> None:
    opened.page.fill("#bags-search", "0017")
    assert opened.column(1) == ["bag 0017"]
    opened.page.fill("#bags-search", "cats")
    assert opened.text("#bags-count") == "40 of 120 bags"
    opened.page.fill("#bags-search", "nothing of that name")
    assert opened.text("#bags-count").startswith("0 of 120 bags; change the search")
    opened.page.fill("#bags-search", "")
    table = made_predictions(120, seed=1).bags
    wrong = int(((table.predicted != table.labels.values) & table.judged).sum())
    opened.page.select_option("#bags-filter", "incorrect")
    assert opened.text("#bags-count") == f"{wrong} of 120 bags"
    assert set(opened.column(6)) == {"incorrect"}


def test_a_bag_opens_with_every_prediction_and_its_instances(opened: Opened) -> None:
    opened.page.fill("#bags-search", "bag 0017")
    opened.page.locator("#bags-table tbody button").focus()
    opened.page.keyboard.press("Enter")
    assert "Bag bag 0017" in opened.text("#bag h3")
    assert "attention mirel, seed 2" in opened.text("#bag table")
    assert "no such measure" in opened.text("#bag")  # a softmax has no vacuity
    assert opened.page.locator("#bag-plot .point path").count() == 10
    opened.page.click("#bag summary")
    shown = [float(value) for value in opened.page.locator("#bag-instances td:nth-child(3)").all_inner_texts()]
    instances = made_predictions(120, seed=1).instances
    assert instances is not None
    assert sorted(shown) == pytest.approx(np.sort(instances.probabilities[85:90, 1]), abs=6e-4)
    opened.page.click("#bag .bag-head button")
    assert not opened.page.is_visible("#bag")


def test_measures_and_levels_can_be_chosen(opened: Opened) -> None:
    opened.page.select_option("#choose-level", "instances")
    opened.page.select_option("#choose-measure", "entropy")
    assert "entropy of the expected class probabilities" in opened.text("#distributions-measure-text")
    assert "600" not in opened.text("#distributions-table")
    assert "400" in opened.text("#distributions-table")
    assert "200" in opened.text("#distributions-table")
    opened.page.select_option("#choose-run", "2")  # a softmax has an entropy too
    assert opened.page.input_value("#choose-measure") == "entropy"
    assert opened.text("#coverage-accepted") == "320 of 400"


def test_a_report_without_labels_has_no_empty_figure_and_begins_with_the_cases(show: Show) -> None:
    bare = unlabeled(made_predictions())
    shown = show(Predictions(bare.bags, None))
    assert "No label is known, so accuracy" in shown.text("#verdict")
    assert "miue calibrate" in shown.text("#verdict")
    sections = shown.page.eval_on_selector_all("main > section", "all => all.map(one => one.id)")
    assert sections[:3] == ["verdict", "cases", "notes"]
    assert "reliability" not in sections
    for name in ("coverage-plot", "coverage-missing", "coverage-error"):
        assert not shown.page.is_visible(f"#{name}"), name
    assert shown.text("#coverage-accepted") == "24 of 30"
    shown.page.locator("#bags-table tbody button").first.click()
    assert "— no predictions of instances" in shown.text("#bag")


def test_no_text_becomes_code(show: Show) -> None:
    provenance = Provenance(network=NASTY, method="%{x}", classes=(NASTY, "<img src=x onerror=alert(1)>"))
    shown = show(made_predictions(name=NASTY, ood_set=NASTY, provenance=provenance), title=NASTY)
    shown.page.locator("#bags-table tbody button").first.click()
    shown.page.wait_for_selector("#bag-plot .point path")
    assert shown.page.title() == NASTY
    assert shown.page.locator("img, b").count() == 0
    assert NASTY in shown.text("#bag h3")
    legend = str(shown.page.locator("#distributions-plot .legendtext").nth(1).text_content())
    assert "<b>" in legend


@pytest.mark.parametrize(("instances", "grid"), [(12, (3, 4)), (4, (1, 4))])
def test_a_map_is_drawn_where_coordinates_are_known(show: Show, instances: int, grid: tuple[int, int]) -> None:
    shown = show(on_a_slide(made_predictions(per_bag=instances)))
    shown.page.locator("#bags-table tbody button").first.click()
    assert shown.page.locator("#bag-plot .hm image").count() == 1
    shown.page.select_option("#bag-color", "probability")
    z = shown.page.evaluate("document.getElementById('bag-plot').data[0].z")
    assert np.array(z, float).shape == grid  # of one row, too, in whole squares
    drawn = shown.page.evaluate("(({x0, dx, y0}) => [x0, dx, y0])(document.getElementById('bag-plot').data[0])")
    assert drawn == [128, 256, 128]  # a coordinate is the upper left corner of its square


def test_the_map_of_a_patient_is_of_one_slide_at_a_time(show: Show) -> None:
    shown = show(of_two_slides(on_a_slide(made_predictions(per_bag=12))))
    shown.page.locator("#bags-table tbody button").first.click()
    sides = []
    for slide in shown.page.locator("#bag-slide option").all_text_contents():
        shown.page.select_option("#bag-slide", label=slide)
        z = shown.page.evaluate("document.getElementById('bag-plot').data[0].z")
        sides.append((slide.split(" ")[0], *np.array(z, float).shape))
        assert shown.page.locator("#bag-instances tbody tr").count() == np.prod(sides[-1][1:])
    assert sides == [("left", 2, 4), ("right", 1, 4)]


def test_one_bag_is_not_called_bags(show: Show) -> None:
    shown = show(made_predictions(1))
    assert shown.text("#reliability-groups") == "Here, each point stands for 1 bag."
    assert "of predictions of 1 bag." in shown.text("header") and shown.text("#bags-count") == "1 of 1 bag"
    assert shown.page.text_content("#cases .shown") == "Shown: attention mirel, seed 42."  # none is listed


def test_instances_that_lie_on_no_grid_are_drawn_large_enough_to_be_seen(show: Show) -> None:
    """The smallest distance of two coordinates is a pixel here, and cells of that side would hardly be seen."""
    given = on_a_slide(made_predictions(per_bag=12))
    assert given.instances is not None and given.instances.coords is not None
    places = np.random.default_rng(0).integers(0, 480, given.instances.coords.values.shape)
    places[:3] = [[0, 0], [1, 240], [480, 480]]
    scattered = replace(given, instances=replace(given.instances, coords=Coords.of(places)))
    shown = show(scattered)
    shown.page.fill("#bags-search", str(given.bags.bag_ids[0]))
    shown.page.locator("#bags-table tbody button").first.click()
    of_first = (
        "(({mode, x, marker}) => [mode, x.length, marker.size])(document.getElementById('bag-plot').data[0])"
    )
    drawn = shown.page.evaluate(of_first)
    assert drawn == ["markers", 12, 9]


def test_a_bag_without_positions_beside_bags_with_them_is_drawn_as_bars(show: Show) -> None:
    given = on_a_slide(made_predictions(per_bag=4))
    assert given.instances is not None and given.instances.coords is not None
    bare = str(given.bags.bag_ids[1])
    known = given.instances.bag_ids.astype(str) != bare
    coords = Coords(given.instances.coords.values, known)
    shown = show(replace(given, instances=replace(given.instances, coords=coords)))
    for bag, kind in ((str(given.bags.bag_ids[0]), "heatmap"), (bare, "bar")):
        shown.page.fill("#bags-search", bag)
        shown.page.locator("#bags-table tbody button").first.click()
        assert shown.text("#bag h3").endswith(bag)
        assert shown.page.evaluate("document.getElementById('bag-plot').data[0].type") == kind
        assert shown.page.locator("#bag-color").count() == (kind == "heatmap")


@pytest.mark.parametrize("count", [7, 307])
def test_instances_are_numbered_as_in_the_tables_and_thin_bars_have_no_pattern(show: Show, count: int) -> None:
    given = unlabeled(made_predictions(4, per_bag=count))
    shown = show(given)
    shown.page.fill("#bags-search", "bag 0000")
    shown.page.locator("#bags-table tbody button").first.click()
    of_bars = "(({x, marker}) => [x, marker.pattern.shape])(document.getElementById('bag-plot').data[0])"
    positions, patterns = shown.page.evaluate(of_bars)
    assert positions == list(range(count))
    assert ("/" in patterns) == (count == 7)
    assert f"{'hatched' if count == 7 else 'gray'} ones of unknown label" in shown.text("#bag-caption")
    shown.page.click("#bag summary")
    rows = shown.page.locator("#bag-instances tbody th").all_inner_texts()
    assert set(rows) <= set(map(str, range(count))) and len(rows) == min(count, 100)


def test_decisions_are_listed_filtered_and_explained(show: Show) -> None:
    given = made_predictions(120, seed=1, provenance=Provenance(classes=("no", "yes")))
    inside = given.bags.subset(np.flatnonzero(~given.bags.is_ood.values))
    goals = {"deferral": DeferralGoal(0.4, 0.6), "false_alarms": FalseAlarmGoal(0.2)}
    rules = calibrate(Predictions(inside, None), class_names=("no", "yes"), **goals)  # type: ignore[arg-type]
    assert rules.deferral is not None
    stricter = rules.deferral.model_copy(update={"threshold": 0.3})
    assert rules.prediction_sets is not None
    sets = rules.prediction_sets.model_copy(update={"thresholds": (0.2, 0.2)})
    decided = decide(given, rules.model_copy(update={"deferral": stricter, "prediction_sets": sets}))
    decisions = decided.bags.decisions
    assert decisions is not None
    assert (decisions.accepted & decisions.empty_sets).any()
    shown = show(decided)
    for choice, wanted in (
        ("sent", decisions.deferred),
        ("flagged", decisions.flagged),
        ("given", decisions.accepted),
        ("empty", decisions.empty_sets),
    ):
        assert 0 < wanted.sum() < len(given.bags)
        shown.page.select_option("#bags-filter", choice)
        assert shown.text("#bags-count") == f"{wanted.sum()} of 120 bags"
    reasons = shown.page.locator("#bags-table tbody td.long").all_inner_texts()
    assert reasons and all(reason.endswith("; empty prediction set") for reason in reasons)
    shown.page.select_option("#bags-filter", "sent")
    shown.page.fill("#bags-search", "deferred")
    assert shown.text("#bags-count") == f"{decisions.deferred.sum()} of 120 bags"
    bag = str(decided.bags.bag_ids[decisions.deferred][0])
    shown.page.fill("#bags-search", bag)
    shown.page.locator("#bags-table tbody button").first.click()
    explained = shown.text("#bag .decision")
    assert explained.startswith(f"decision deferred, as {decisions.reason[decisions.deferred][0]}")
    assert "Prediction set: " in explained


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 360])
def test_it_fits_wide_and_narrow_and_text_stands_out(browser: Any, report: Path, width: int, scheme: str) -> None:
    shown = Opened(browser, report, width, scheme)
    shown.page.locator("#bags-table tbody button").first.click()
    shown.page.wait_for_selector("#bag-plot .point path")
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    for ink in ("ink", "quiet", "accent", "wrong", "right"):
        for paper in ("card", "page"):
            assert contrast(shown, ink, paper) >= 4.5, (ink, paper)
    for paper in ("card", "page"):
        for ink in ("edge", "in", "class-0", "unknown", "ood-1", "ood-2", "run-1", "run-2", "note-line", "flag"):
            assert contrast(shown, ink, paper) >= 3, (ink, paper)
    shown.context.close()


def contrast(shown: Opened, ink: str, paper: str) -> float:
    """Contrast ratio of two colors of the style sheet (WCAG 2.1)."""
    luminances = []
    for name in (ink, paper):
        read = "name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()"
        digits = re.fullmatch(r"#([0-9a-f]{6})", shown.page.evaluate(read, name))
        assert digits is not None
        channels = np.array([int(digits[1][i : i + 2], 16) / 255 for i in (0, 2, 4)])
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        luminances.append(float(linear @ [0.2126, 0.7152, 0.0722]))
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)


def decided() -> Predictions:
    """Predictions of 120 bags with the decisions of a calibration on those in distribution."""
    given = made_predictions(120, seed=1, provenance=Provenance(classes=("no", "yes")))
    inside = given.bags.subset(np.flatnonzero(~given.bags.is_ood.values))
    goals = {"deferral": DeferralGoal(0.4, 0.6), "false_alarms": FalseAlarmGoal(0.2)}
    return decide(given, calibrate(Predictions(inside, None), class_names=("no", "yes"), **goals))  # type: ignore[arg-type]


def several(number: int) -> list[Predictions]:
    return [made_predictions(60, seed=n, provenance=Provenance(method=f"method {n}")) for n in range(number)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "given",
    [[decided()], several(2), several(3), [on_a_slide(unlabeled(made_predictions()))], [flagged_slides()]],
    ids=["decisions", "two methods", "three methods", "unlabeled slides", "flags"],
)
def test_no_rule_of_accessibility_is_broken_seriously(show: Show, given: list[Predictions], scheme: str) -> None:
    shown = show(*given, width=1280, scheme=scheme)
    shown.page.locator("#bags-table tbody button").first.click()
    shown.page.wait_for_selector("#bag-plot svg.main-svg")
    shown.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert grave_violations(shown.page) == []
    assert shown.page.locator("table:not(:has(caption))").count() == 0


def test_a_case_opens_its_bag_and_the_address_names_it(show: Show) -> None:
    predictions = made_predictions()
    far = np.where(np.arange(30) == 7, 9.0, np.linspace(1, 2, 30))
    found = replace(predictions, bags=replace(predictions.bags, scores={"knn_mean": far}))
    shown = show(found)
    assert "1 of 30 bags" in shown.text("#cases")
    assert "far from training data (knn_mean 9 >" in shown.text("#cases")
    shown.page.click("#cases li a")
    assert shown.text("#bag h3") == "Bag bag 0007"
    assert shown.page.evaluate("decodeURIComponent(location.hash)") == "#bag=bag 0007"
    shown.page.select_option("#bags-filter", "cases")
    assert shown.column(1) == ["bag 0007"]
    assert "knn mean" in shown.text("#bags-table thead")  # the score that calibration uses is the default


def test_the_patient_of_a_bag_is_shown_searched_and_saved(show: Show) -> None:
    predictions = made_predictions()
    patients = np.array([f"P<{row // 3}>" if row != 4 else "" for row in range(30)], object)
    found = replace(predictions, bags=replace(predictions.bags, patients=patients))
    shown = show(found)
    shown.page.fill("#bags-search", "p<2>")
    assert sorted(shown.column(1)) == ["bag 0006", "bag 0007", "bag 0008"]
    heads = shown.text("#bags-table thead").split("\t")
    assert shown.column(1 + [head.strip(" ▼▲") for head in heads].index("patient")) == ["P<2>"] * 3
    with shown.page.expect_download() as saving:
        shown.page.click("#bags-csv")
    rows = list(csv.DictReader(io.StringIO(Path(saving.value.path()).read_text("utf-8-sig"))))
    assert {row["patient"] for row in rows} == {"P<2>"}
    shown.page.click("#bags-table tbody button")
    assert shown.text("#bag .bag-head p").endswith("; patient P<2>")
    shown.page.fill("#bags-search", "bag 0004")
    assert "— unknown" in shown.text("#bags-table tbody")


def test_a_deep_link_opens_its_bag_and_an_unknown_one_says_so(browser: Any, report: Path) -> None:
    shown = Opened(browser, report)
    shown.page.goto(report.as_uri() + "#bag=bag%200033")
    shown.page.reload()
    shown.page.wait_for_selector("html[data-ready=yes]")
    assert shown.text("#bag h3") == "Bag bag 0033"
    box = shown.page.locator(".bag-head").bounding_box()
    assert box is not None and 0 < box["y"] < 300
    for broken in ("#bag=none", "#bag=%E0%A4%A"):
        shown.page.evaluate("hash => { location.hash = hash }", broken)
        shown.page.wait_for_function(
            "document.getElementById('bags-count').textContent.startsWith('No bag is named')"
        )
    assert shown.complaints == []
    shown.context.close()


def test_escape_closes_the_bag_and_the_focus_returns_to_its_row(opened: Opened) -> None:
    row = opened.page.locator("#bags-table tbody button").nth(3)
    name = str(row.inner_text())
    row.click()
    assert opened.page.is_visible("#bag")
    opened.page.keyboard.press("Escape")
    assert not opened.page.is_visible("#bag")
    assert opened.page.evaluate("document.activeElement.textContent") == name
    assert "#bag=" not in opened.page.url


def test_the_filtered_table_is_saved_as_csv_without_a_formula(show: Show) -> None:
    predictions = made_predictions(name='=HYPERLINK("x")')
    shown = show(predictions)
    shown.page.fill("#bags-search", "000")
    with shown.page.expect_download() as saving:
        shown.page.click("#bags-csv")
    text = Path(saving.value.path()).read_text("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 10
    assert {row["bag"][:2] for row in rows} == {"'="}
    row = next(row for row in rows if row["bag"].endswith("0003"))
    assert float(row["probability"]) == pytest.approx(predictions.bags.probabilities[3].max(), abs=1e-6)


def test_the_controls_stay_in_view_and_set_every_figure(opened: Opened) -> None:
    for place in ("#reliability", "#bags"):
        opened.page.evaluate("place => document.querySelector(place).scrollIntoView({behavior: 'instant'})", place)
        box = opened.page.locator("#choices").bounding_box()
        assert box is not None and 0 <= box["y"] < 80
    opened.page.select_option("#choose-measure", "entropy")
    for place in ("#coverage-by", "#bags-table thead", "#distributions-measure-text"):
        assert "entropy" in opened.text(place)
    assert opened.page.locator("main .controls select").count() == 1  # what the table shows


def test_a_narrow_screen_shows_the_deciding_columns(browser: Any, report: Path) -> None:
    shown = Opened(browser, report, 420)
    for column in ("id", "predicted", "probability", "uncertainty"):
        box = shown.page.locator(f"#bags-table [data-key={column}]").bounding_box()
        assert box is not None and box["x"] + box["width"] <= 420, column
    shown.page.evaluate("document.querySelector('#bags-table').parentElement.scrollLeft = 200")
    box = shown.page.locator("#bags-table tbody th").first.bounding_box()
    assert box is not None and box["x"] >= 0  # the first column stays
    shown.page.evaluate("document.querySelector('#groups .scroll').scrollLeft = 200")
    box = shown.page.locator("#groups tbody th").first.bounding_box()
    assert box is not None and box["x"] >= 0 and box["width"] < 210
    assert shown.page.locator("#bags-table tbody tr").first.bounding_box()["height"] < 120
    shown.context.close()


def test_targets_are_large_on_a_touch_screen(browser: Any, report: Path) -> None:
    context = browser.new_context(viewport={"width": 420, "height": 900}, has_touch=True, is_mobile=True)
    shown = context.new_page()
    shown.goto(report.as_uri())
    shown.wait_for_selector("html[data-ready=yes]")
    small = shown.evaluate(
        "[...document.querySelectorAll('select, button, input[type=search], nav a, summary')].filter(e =>"
        " e.offsetParent && !e.closest('.modebar') && e.getBoundingClientRect().height < 44).map(e => e.outerHTML)"
    )
    assert small == []
    context.close()


def test_print_says_what_is_shown_and_has_every_row_of_the_filtered_table(opened: Opened) -> None:
    page = opened.page
    page.set_viewport_size({"width": PAPER, "height": 700})
    page.select_option("#bags-filter", "outside")
    page.fill("#bags-search", "bag 01")
    page.click("#bags-table [data-key=id]")
    table = made_predictions(120, seed=1).bags
    wanted = [str(name) for name, far in zip(table.bag_ids, table.is_ood.values, strict=True) if far]
    wanted = [name for name in wanted if name.startswith("bag 01")]
    page.fill("#bags-search", "")
    assert len(opened.column(1)) == 25 < 40
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert len(opened.column(1)) == len(set(opened.column(1))) == 40
    title = "Shown: attention mirel, seed 1; known out of distribution: 40 of 120 bags, by bag, ascending."
    assert opened.text("#bags .shown") == title
    risk = opened.text("#coverage .shown")
    assert "attention mirel, seed 1; by least confidence; coverage 80.0 %, accepted up to 0." in risk
    for hidden in ("#choices", "#bags .controls", ".pager"):
        assert not page.is_visible(hidden), hidden
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER
    right = "e.getBoundingClientRect().right"
    wide = f"[...document.querySelectorAll('main *')].filter(e => {right} > {PAPER + 1}).length"
    assert page.evaluate(wide) == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    assert len(opened.column(1)) == 25
    page.fill("#bags-search", "bag 01")
    assert opened.column(1) == wanted
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert "search “bag 01”" in opened.page.text_content("#bags .shown")


def test_a_printed_table_takes_few_pages_on_their_sides_each_with_its_heading(opened: Opened) -> None:
    page = opened.page
    file = page.pdf(prefer_css_page_size=True)
    sides = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", file)
    assert 5 <= len(sides) <= 16 and all(float(width) > float(height) for width, height in sides)
    page.emulate_media(media="print")
    in_heading = "getComputedStyle(document.querySelector('#bags-table thead{}')).{}"
    assert page.evaluate(in_heading.format("", "breakInside")) == "avoid"
    assert page.evaluate(in_heading.format(" button", "display")) == "contents"
    assert page.evaluate(in_heading.format(" th", "position")) == "static"


def test_paper_is_white_with_figures_in_their_places_and_numbers_whole(browser: Any, report: Path) -> None:
    """On a page as wide as paper, and where the screen is dark."""
    shown = Opened(browser, report, PAPER, "dark")
    page = shown.page
    ink = "getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()"
    on_screen = page.evaluate(ink)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert (
        page.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    inks = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot:not([hidden])')].map(p => p.layout.font.color)"
    )
    assert len(inks) >= 3 and set(inks) == {"#1d2430"} and on_screen != "#1d2430"
    sizes = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot:not([hidden])')].map(p =>"
        " [p.clientWidth, p.clientHeight, p.layout.width, p.layout.height])"
    )
    assert all(size[:2] == size[2:] for size in sizes), sizes
    numbers = "[...document.querySelectorAll('#bags-table td:not(.text)')].filter(e => e.innerText)"
    lines = "(r => (r.selectNodeContents(e), r.getClientRects().length))(document.createRange())"
    assert page.evaluate(f"{numbers}.filter(e => {lines} > 1).map(e => e.innerText)") == []
    swatch = "getComputedStyle(document.querySelector('.swatch')).printColorAdjust"
    assert page.evaluate(swatch) == "exact"
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(ink) == on_screen
    assert shown.complaints == []
    shown.context.close()


def test_every_two_of_six_methods_are_compared_in_the_chosen_metric(show: Show) -> None:
    for width in (1280, 420):
        shown = show(*several(6), width=width)
        assert shown.page.locator(".pair[data-level=bags]:visible").count() == 1
        cells = shown.page.locator(".pair[data-level=bags]:visible td")
        assert cells.count() == 36
        assert shown.page.locator(".pair[data-level=bags]:visible td.same").count() == 6
        shown.page.select_option(".choose-pair[data-level=bags]", label="ECE\u00a0% ↓")
        assert "ECE" in shown.text(".pair[data-level=bags]:visible caption")
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= width


def test_what_is_drawn_at_the_start_does_not_grow_with_the_bags(show: Show) -> None:
    drawn = {}
    for bags in (60, 2000):
        shown = show(made_predictions(bags, 100))
        assert shown.text("#bags-count") == f"{bags:,} of {bags:,} bags"
        elements = int(shown.page.evaluate("document.querySelectorAll('*').length"))
        drawn[bags] = (shown.page.locator("#bags-table tbody tr").count(), elements)
    assert drawn[60][0] == drawn[2000][0] == 25
    assert drawn[2000][1] < 2 * drawn[60][1], drawn


@pytest.mark.parametrize("on_slide", [True, False], ids=["on a slide", "bars"])
def test_flagged_instances_are_marked_counted_and_filtered_with_their_promise(
    show: Show, tmp_path: Path, on_slide: bool
) -> None:
    given = flagged_slides()
    assert given.instances is not None and given.instances.flagged is not None
    if not on_slide:
        given = replace(given, instances=replace(given.instances, coords=None))
    assert given.instances is not None and given.instances.flagged is not None
    flags = given.instances.flagged.reshape(30, 8)
    bag = int(flags.sum(1).argmax())
    plain = made_predictions(30, 8, seed=1)
    store = store_of(given, tmp_path, (9, 9, 1), per_bag=8)
    shown = show(given, on_a_slide(plain) if on_slide else plain, names=["with", "without"], store=store)
    page = shown.page
    page.select_option("#bags-filter", "flags")
    assert shown.text("#bags-count") == f"{int(flags.any(1).sum())} of 30 bags"
    page.evaluate("hash => { location.hash = hash }", f"#bag=bag%20{bag:04d}")
    page.wait_for_selector("#bag-plot svg.main-svg")
    count = int(flags[bag].sum())
    said = shown.text("#bag-flags")
    assert said.startswith(f"{count} of 8 instances {'is' if count == 1 else 'are'} flagged where probability ≥ ")
    assert said.endswith("promised: on a new negative bag, any instance is flagged with chance at most 0.4.")
    assert page.locator("#bag .strip li.flagged").count() == count
    assert "with a frame are flagged" in shown.text("#bag-caption")
    page.evaluate("document.querySelectorAll('#bag details').forEach((one) => { one.open = true; })")
    rows = page.locator("#bag-instances tbody tr")
    assert (rows.count(), page.locator("#bag-instances td.flag").count()) == (8, count)
    page.select_option("#bag-shown", "flagged")
    wanted = [str(position) for position in np.flatnonzero(flags[bag])]
    assert sorted(page.locator("#bag-instances tbody th").all_inner_texts()) == sorted(wanted)
    assert page.locator("#bag .strip li:visible").count() == count
    page.select_option("#bag-shown", "others")
    assert (rows.count(), page.locator("#bag .strip li.flagged").count()) == (8 - count, 0)
    page.select_option("#bag-run", "1")
    assert "not flagged by without" in shown.text("#bag-flags")
    assert rows.count() == 8
    unflagged = int(np.flatnonzero(~flags.any(1))[0])
    page.select_option("#bags-filter", "all")
    page.evaluate("hash => { location.hash = hash }", f"#bag=bag%20{unflagged:04d}")
    page.select_option("#bag-run", "0")
    page.select_option("#bag-shown", "flagged")
    assert page.is_visible("#bag-none") and not page.is_visible("#bag-plot")
    page.select_option("#bag-shown", "all")
    assert page.is_visible("#bag-plot") and not page.is_visible("#bag-none")


LONG = "tubulovillous adenoma with high-grade dysplasia, of the ascending colon"


@pytest.mark.parametrize("width", [1280, 390])
def test_long_names_are_broken_into_lines_that_no_figure_cuts_off(show: Show, width: int) -> None:
    classes, methods = ("normal mucosa", LONG), (LONG, f"{LONG}, trained again")
    made = [
        made_predictions(40, seed=n, ood_set=f"of {LONG}", provenance=Provenance(method=method, classes=classes))
        for n, method in enumerate(methods)
    ]
    shown = show(*made, width=width)
    for measure in ("", "differential_entropy"):
        shown.page.select_option("#choose-measure", measure)
        assert texts_cut_off(shown) == []
    shown.page.locator("#bags-table tbody button").first.click()
    assert texts_cut_off(shown) == []
    assert str(shown.page.locator("#bag-plot .ytitle").text_content()).startswith("probability of")
    rows = shown.page.locator("#bag .measures tbody th")
    assert f"P({LONG})" in rows.all_inner_texts()
    assert rows.evaluate_all("all => all.every(one => one.scrollWidth <= one.clientWidth)")


def texts_cut_off(shown: Opened) -> list[str]:
    """Texts of figures that reach beyond their figure."""
    return list(
        shown.page.evaluate(
            """[...document.querySelectorAll('.js-plotly-plot:not([hidden])')].flatMap(plot => {
                const all = plot.getBoundingClientRect();
                return [...plot.querySelectorAll('svg.main-svg text')].filter(text => {
                    const box = text.getBoundingClientRect();
                    return box.width && (box.left < all.left - 1 || box.right > all.right + 1 ||
                                         box.top < all.top - 1 || box.bottom > all.bottom + 1);
                }).map(text => plot.id + ': ' + text.textContent);
            })"""
        )
    )


def test_a_long_name_hides_neither_its_end_nor_that_the_deferred_bag_is_incorrect(show: Show) -> None:
    for width in (1280, 390):
        shown = show(made_predictions(60, name="TCGA-" + 30 * "A7X9"), width=width)
        assert shown.page.locator(".chips .wrong").count() >= 1
        fits = "one.scrollWidth <= one.clientWidth && one.getBoundingClientRect().right <= innerWidth"
        assert shown.page.locator(".chips button").evaluate_all(f"all => all.every(one => {fits})")


def test_a_link_to_a_section_leads_there_from_an_open_bag_and_back_closes_the_first_bag(opened: Opened) -> None:
    page = opened.page
    page.emulate_media(reduced_motion="reduce")
    row = page.locator("#bags-table tbody button").first
    row.click()
    page.go_back()
    page.wait_for_selector("#bag", state="hidden")
    assert "#bag=" not in page.url
    page.locator("#bags-table tbody button").first.click()
    page.click("nav a[href='#reliability']")
    page.wait_for_selector("#bag", state="hidden")
    box = page.locator("#reliability").bounding_box()
    assert box is not None and 0 <= box["y"] < 200
    page.go_back()
    page.wait_for_selector("#bag")


def test_the_score_that_all_bags_share_is_drawn_as_a_bar_at_its_value(show: Show) -> None:
    for value in (0.3, 0.0):
        given = made_predictions(30)
        same = replace(given, bags=replace(given.bags, scores={"knn_mean": np.full(30, value)}))
        shown = show(same)
        shown.page.select_option("#choose-measure", "knn_mean")
        low, high = shown.page.evaluate("document.getElementById('distributions-plot').layout.xaxis.range")
        assert value - 0.01 <= low < high <= value + 0.05
        assert 0.2 * (high - low) > value - low


def test_the_legend_has_the_order_of_the_predictions_in_every_figure(opened: Opened) -> None:
    names = opened.page.locator("#verdict h3").all_inner_texts()[:3]
    for figure in ("reliability", "coverage"):
        assert opened.page.locator(f"#{figure}-plot .legendtext").all_text_contents() == names


def test_after_printing_the_provenance_is_as_it_was(opened: Opened) -> None:
    provenance = "document.querySelector('#provenance details').open"
    for before in (False, True):
        opened.page.evaluate(f"{provenance} = {str(before).lower()}")
        opened.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert opened.page.evaluate(provenance)
        opened.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert opened.page.evaluate(provenance) == before
