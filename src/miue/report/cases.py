"""The bags to look at first, each with its reason and a link that opens it in the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from miue.calibration.worklist import Worklist, worklist
from miue.report.runs import Run

SHOWN = 8


@dataclass(frozen=True)
class Case:
    """A bag to look at.

    Attributes:
        bag: its id.
        link: opens it in the page.
        reason: why it is on the list.
        predicted: the predicted class and its probability.
        patient: whose it is, "" where that is unknown.
    """

    bag: str
    link: str
    reason: str
    predicted: str
    patient: str = ""


@dataclass(frozen=True)
class Cases:
    """The bags to look at first by one set of predictions.

    Attributes:
        title: of the run.
        cases: the most pressing ones.
        count: how many there are in all.
        bags: how many bags were judged.
        judged: (reason, where it begins).
        not_judged: (reason, why nothing can be said of it).
        advice: what to know where the list is long.
        reasons: of every bag by its id; "" of those that are routine.
    """

    title: str
    cases: list[Case]
    count: int
    bags: int
    judged: list[tuple[str, str]]
    not_judged: list[tuple[str, str]]
    advice: str
    reasons: dict[str, str]


def find_cases(run: Run) -> Cases:
    """Return what the worklist of a run puts first; no label is read."""
    listed: Worklist = worklist(run.predictions)
    first = [row for row in listed.rows if row["look"] == "first"]
    return Cases(
        run.title,
        [_case(row) for row in first[:SHOWN]],
        len(first),
        len(listed.rows),
        list(listed.judged.items()),
        list(listed.not_judged.items()),
        listed.advice,
        {str(row["slide"]): str(row["reason"]) for row in listed.rows},
    )


def link_to_bag(bag: str) -> str:
    """Return the link that opens a bag in the page.

    >>> link_to_bag("slide 7/a")
    '#bag=slide%207%2Fa'
    """
    return f"#bag={quote(bag, safe='', errors='replace')}"


def _case(row: dict[str, Any]) -> Case:
    bag = str(row["slide"])
    name = str(row["predicted"])
    predicted = f"class {name}" if name.isdigit() else name  # beside a probability, a number alone is no name
    said = f"{predicted}, {row['probability']:.2f}"
    return Case(bag, link_to_bag(bag), str(row["reason"]), said, row.get("patient", ""))
