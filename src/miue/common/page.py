"""Pages of HTML that carry everything they show: a template, scripts and data in one file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any


def render_page(
    template: Path, values: Mapping[str, Any], data: Mapping[str, Any], scripts: Sequence[str] = ()
) -> bytes:
    """Return a page as UTF-8.

    Every text is escaped; scripts run only where their hash is named in the page's content security policy,
    which allows no request at all.

    Args:
        template: of jinja2, which includes other files of its folder; it has ``scripts`` and their ``hashes``.
        values: of the template.
        data: what the figures are drawn from, JSON values without NaN.
        scripts: names of files in the folder of the template, which run as one after plotly's.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    own = "\n".join((template.parent / name).read_text("utf-8") for name in scripts)
    texts = [_plotly(), f'"use strict";\n(function () {{\n{own}\n}})();\n']
    digests = [base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii") for text in texts]
    page = environment.get_template(template.name).render(
        **values,
        scripts=[Markup(text) for text in texts],  # our own text, never anyone's data
        hashes=" ".join(f"'sha256-{digest}'" for digest in digests),
        data=Markup(json_in_html(data)),
    )
    return page.encode("utf-8", "replace")


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
