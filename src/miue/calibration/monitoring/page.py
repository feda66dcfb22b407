"""The course of a monitor as one HTML page, without scripts and without outside references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from miue.calibration.monitoring.course import Course, describe_evidence, is_mix

WIDTH, HEIGHT, LEFT, BOTTOM = 960, 320, 46, 28  # of the figure, in pixels
POINTS = 1500  # of a line at most
LOWEST = -2.0  # of the vertical axis: evidence below 1 says only that nothing changed
COLORS = 8  # of the page's style
DASHES = (None, (5, 2))  # of the uncertainties, for each round of the colors
DOTS = ((2, 2), (2, 5))  # of the classes, likewise


@dataclass(frozen=True)
class Line:
    """The course of one score, in pixels of the figure.

    Attributes:
        name: of the score.
        points: of the polyline.
        end: its evidence after the last bag, in words.
        highest: the highest it was, likewise.
        alarm: the bag of its first alarm, "" without one.
        color: of the line, a variable of the page's style.
        dash: pixels drawn and left out; None for a solid line.
    """

    name: str
    points: str
    end: str
    highest: str
    alarm: str
    color: str
    dash: tuple[int, int] | None


@dataclass(frozen=True)
class Frame:
    """The figure's axes: bags from left to right, evidence from the bottom to the top."""

    bags: int
    highest: float

    def x(self, bag: int) -> float:
        """Return the pixel of a number of bags."""
        return round(LEFT + (WIDTH - LEFT - 8) * bag / self.bags, 1)

    def y(self, log10_evidence: float) -> float:
        """Return the pixel of an evidence."""
        return round((HEIGHT - BOTTOM) * (self.highest - max(log10_evidence, LOWEST)) / (self.highest - LOWEST), 1)


def render_page(course: Course) -> bytes:
    """Return the page as UTF-8; every text is escaped, and the page may request nothing."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    top = max(max(course.log10_limits) + 0.5, float(course.log10_evidence.max()) + 0.3)
    frame = Frame(len(course.ids), top)
    ends = np.searchsorted(course.batch_of, np.arange(len(course.batches)), side="right")
    limits, limits_text = _limits(course, frame)
    step = max(1, int(np.ceil((top - LOWEST) / 8)))
    text = environment.get_template("page.html.j2").render(
        course=course,
        tables=course.tables(),
        lines=[_line(course, column, frame) for column in range(len(course.scores))],
        limits=limits,
        limits_text=limits_text,
        ends=[frame.x(end) for end in ends[:-1].tolist()],
        ticks=[(frame.y(float(power)), power) for power in range(int(LOWEST), int(top) + 1) if power % step == 0],
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        bottom=HEIGHT - BOTTOM,
        left_out=int((~course.counted).sum()),
    )
    return text.encode("utf-8", "replace")


def _limits(course: Course, frame: Frame) -> tuple[list[float], str]:
    """Return where each different limit is drawn, from the top, and the text above the first."""
    names: dict[float, list[str]] = {}
    for score, limit in zip(course.scores, course.log10_limits, strict=True):
        names.setdefault(frame.y(limit), []).append(score)
    places = sorted(names)
    of = ["of the class mix" if is_mix(names[y][0]) else "of the uncertainties" for y in places]
    return places, "alarm" if len(places) == 1 else f"alarm {'; below: '.join(of)}"


def _line(course: Course, column: int, frame: Frame) -> Line:
    """Return the line of a score; of many bags every k-th is drawn, and the last."""
    evidence = course.log10_evidence[:, column]
    drawn = np.unique(np.append(np.arange(0, len(evidence), max(1, len(evidence) // POINTS)), len(evidence) - 1))
    start = f"{frame.x(0)},{frame.y(0.0)}"  # the evidence before the first bag is 1
    points = " ".join([start, *(f"{frame.x(row + 1)},{frame.y(float(evidence[row]))}" for row in drawn.tolist())])
    score = course.scores[column]
    color, dash = _look(course.scores, score)
    alarm = course.alarms.get(score, "")
    end, highest = (describe_evidence(float(value)) for value in (evidence[-1], evidence.max()))
    return Line(score, points, end, highest, alarm, color, dash)


def _look(scores: Sequence[str], score: str) -> tuple[str, tuple[int, int] | None]:
    """Return the color and the dashes of a score: dotted for a class, but solid ink for the only class mix."""
    alike = [one for one in scores if is_mix(one) == is_mix(score)]
    if is_mix(score) and len(alike) == 1:
        return "ink", None
    round_, place = divmod(alike.index(score), COLORS)
    patterns = DOTS if is_mix(score) else DASHES
    return f"c{place}", patterns[round_ % len(patterns)]
