"""The page itself: a template, a style sheet, scripts and data, put into one file without outside references."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("page")
SCRIPTS = ("data.js", "choices.js", "figures.js", "coverage.js", "bags.js", "bag.js", "start.js")


def render_page(page: Mapping[str, Any], data: Mapping[str, Any]) -> bytes:
    """Return the page as UTF-8.

    Every text is escaped; scripts run only where their hash is named in the page's content security policy,
    which allows no request at all.

    Args:
        page: values of the template.
        data: what the figures are drawn from, JSON values without NaN.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    scripts = [_plotly(), _script()]
    text = environment.get_template("report.html.j2").render(
        **page,
        scripts=[Markup(script) for script in scripts],  # our own text, never anyone's data
        hashes=" ".join(f"'sha256-{_hash(script)}'" for script in scripts),
        style=Markup((FOLDER / "report.css").read_text("utf-8")),
        data=Markup(json_in_html(data)),
    )
    return text.encode("utf-8", "replace")


def json_in_html(data: Mapping[str, Any]) -> str:
    r"""Return JSON that may stand in a script element: no text in it can end that element.

    >>> json_in_html({"id": "</script>"})
    '{"id":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).replace("\r\n", "\n")


def _script() -> str:
    parts = [(FOLDER / name).read_text("utf-8") for name in SCRIPTS]
    return '"use strict";\n(function () {\n' + "\n".join(parts) + "\n})();\n"


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
