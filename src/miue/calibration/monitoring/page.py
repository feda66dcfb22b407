"""The course of a monitor as one HTML page that opens anywhere, without a network."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from miue.calibration.monitoring.course import Course, describe_evidence, is_mix
from miue.common.text import render_page

POINTS = 1500  # of a line at most
LOWEST = -2.0  # of the vertical axis: evidence below 1 says only that nothing changed
COLORS = 8  # of the page's style
LOOKS = {False: ("solid", "dash"), True: ("dot", "dashdot")}
"""How lines of uncertainties, and of classes, are drawn in each round of the colors."""
BORDERS = {"solid": "solid", "dash": "dashed", "dot": "dotted", "dashdot": "double"}


def render_monitor(course: Course) -> bytes:
    """Return the page as UTF-8; every text is escaped, and the page may request nothing."""
    together, rows = _draw(course, _together(course))
    traces, rows_of_scores = _draw(course, [_score(course, column) for column in range(len(course.scores))])
    left_out = int((~course.counted).sum())
    values = {"course": course, "rows": rows, "rows_of_scores": rows_of_scores, "left_out": left_out}
    figures = {"together": together, "traces": traces, "layout": _layout(course)}
    return render_page(Path(__file__).with_name("page.html.j2"), values, figures, ("figure.js",))


def _together(course: Course) -> list[tuple[str, list[int], dict[str, str]]]:
    """Return name, columns and look of the lines of all uncertainties, and of the class mix."""
    lines = []
    for of_mix, what, color in ((False, "uncertainties", "c0"), (True, "class shares", "ink")):
        columns = [column for column, score in enumerate(course.scores) if is_mix(score) == of_mix]
        if columns:
            name = course.scores[columns[0]] if len(columns) == 1 else f"highest of {len(columns)} {what}"
            lines.append((name, columns, {"color": color, "dash": "solid"}))
    return lines


def _score(course: Course, column: int) -> tuple[str, list[int], dict[str, str]]:
    """Return name, column and look of the line of a score."""
    score = course.scores[column]
    alike = [one for one in course.scores if is_mix(one) == is_mix(score)]
    turn, place = divmod(alike.index(score), COLORS)
    looks = LOOKS[is_mix(score)]
    look = {"color": f"c{place}", "dash": looks[turn % len(looks)]}
    return score, [column], {"color": "ink", "dash": "solid"} if is_mix(score) and len(alike) == 1 else look


def _draw(
    course: Course, lines: list[tuple[str, list[int], dict[str, str]]]
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return lines of the highest evidence of some scores as a figure takes them, and the row of each in a table.

    Of many bags every k-th is drawn, and the last.
    """
    count = len(course.ids)
    drawn = np.unique(np.append(np.arange(0, count, max(1, count // POINTS)), count - 1))
    traces, rows = [], []
    for name, columns, look in lines:
        evidence, above = course.log10_evidence[:, columns].max(1), course.above[:, columns].any(1)
        traces.append(
            {
                "name": escape(name),  # plotly reads tags in texts
                "x": [0, *(drawn + 1).tolist()],
                "y": [0.0, *np.maximum(evidence[drawn], LOWEST).round(3).tolist()],  # before the first bag it is 1
                "mode": "lines",
                "line": {**look, "width": 2},
                "hovertemplate": "after %{x} bags: 10<sup>%{y:.1f}</sup>",
            }
        )
        row = {"name": name, "color": look["color"], "border": BORDERS[look["dash"]]}
        ends = {"now": describe_evidence(evidence[-1]), "highest": describe_evidence(evidence.max())}
        rows.append({**row, **ends, "alarm": course.ids[int(above.argmax())] if above.any() else ""})
    return traces, rows


def _layout(course: Course) -> dict[str, Any]:
    """Return axes, the ends of batches and the limits; a color is the name of one of the page's style."""
    bags = len(course.ids)
    top = max(max(course.log10_limits) + 0.6, float(course.log10_evidence.max()) + 0.3)
    step = max(1, int(np.ceil((top - LOWEST) / 8)))
    powers = [power for power in range(int(LOWEST), int(top) + 1) if power % step == 0]
    ends = np.searchsorted(course.batch_of, np.arange(len(course.batches)), side="right")[:-1].tolist()
    lines = [{"x0": end, "x1": end, "y0": 0, "y1": 1, "yref": "paper", "line": _thin("line")} for end in ends]
    labels = []
    limits = {limit: is_mix(score) for score, limit in zip(course.scores, course.log10_limits, strict=True)}
    for limit, of_mix in limits.items():
        lines.append({"x0": 0, "x1": 1, "xref": "paper", "y0": limit, "y1": limit, "line": _thin("wrong")})
        of = "" if len(limits) == 1 else f" of the {'class mix' if of_mix else 'uncertainties'}"
        side = "bottom" if limit == max(limits) else "top"
        text = {"text": f"alarm{of}", "showarrow": False, "font": {"color": "wrong", "size": 12}}
        labels.append({**text, "x": 0, "xref": "paper", "xanchor": "left", "y": limit, "yanchor": side})
    axis = {"gridcolor": "line", "zerolinecolor": "line", "automargin": True}
    return {
        "shapes": lines,
        "annotations": labels,
        "showlegend": False,
        "height": 340,
        "margin": {"l": 44, "r": 12, "t": 8, "b": 40},
        "paper_bgcolor": "card",
        "plot_bgcolor": "card",
        "font": {"color": "ink", "size": 13, "family": "inherit"},
        "xaxis": {
            **axis,
            "range": [0, bags],
            "showgrid": False,
            "tickformat": ",d",
            "dtick": 1 if bags < 9 else None,
            "title": {"text": "bags"},
        },
        "yaxis": {
            **axis,
            "range": [LOWEST - 0.1, top],
            "tickvals": powers,
            "ticktext": [f"10<sup>{power}</sup>".replace("-", "−") for power in powers],
        },
    }


def _thin(color: str) -> dict[str, Any]:
    return {"color": color, "width": 1.5, "dash": "dash"}
