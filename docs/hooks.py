"""What MkDocs does beyond its plugins: formulas become MathML, results/ becomes pages, no page asks other servers.

MathML is drawn by the browser itself, so that a built page needs no script and no network for its formulas.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

import miue.common.parts

ROOT = Path(__file__).resolve().parents[1]
TOGGLE = re.compile(r'<input class="md-toggle" data-md-toggle="(search|drawer)"')
SEARCH = 'data-md-component="search" role="dialog"'
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.S)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.S)


TABLE = re.compile(r"\]\(([^)\s:]+\.csv)\)")
PARTS = re.compile(r"^<!-- parts: (\w+) -->$", re.M)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page with a reference of every part of miue where a line says ``<!-- parts: NETWORKS -->``.

    Its links between docs/ and results/, which lie beside each other in a checkout, lead into the site, where
    results/ lies within.
    """
    if page.file.src_uri.startswith("results/"):
        markdown = re.sub(r"\]\(((?:\.\./)+)docs/", r"](\1", markdown)
    else:
        markdown = re.sub(r"\]\(\.\./((?:\.\./)*results/)", r"](\1", markdown)
    return PARTS.sub(lambda found: "\n\n".join(f"::: {path}" for path in part_paths(found[1])), markdown)


def part_paths(registry: str) -> list[str]:
    """Return the dotted paths of the parts of miue in a registry, each once."""
    parts = getattr(miue.common.parts, registry)
    return list(dict.fromkeys(parts.path_of_own(name).replace(":", ".") for name in parts.own_names()))


def on_page_content(content: str, **_: Any) -> str:
    """Return the page with each formula, marked by the extension arithmatex, as MathML."""
    content = BLOCK.sub(lambda found: _mathml(found[1], "block"), content)
    content = INLINE.sub(lambda found: _mathml(found[1], "inline"), content)
    if 'class="arithmatex"' in content:
        raise ValueError("a formula was not converted to MathML")
    return content


def on_post_page(output: str, **_: Any) -> str:
    """Return the page with a plain link to the repository, which asks GitHub for no number of stars, and names.

    The theme leaves the search and the boxes that open it and the navigation without a name for screen readers.
    """
    output = output.replace(' data-md-component="source"', "")
    output = output.replace(SEARCH, f'{SEARCH} aria-label="Search"')
    return TOGGLE.sub(r'\g<0> aria-label="\1"', output)


def on_post_template(output_content: str, **_: Any) -> str:
    """Return a page that is made from a template alone, as 404.html, with the same names."""
    return on_post_page(output_content)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages, figures and linked tables of results/, whose links to each other stay as they are."""
    paths = sorted((ROOT / "results").rglob("*"))
    pages = [path for path in paths if path.suffix == ".md"]
    linked = {(page.parent / link).resolve() for page in pages for link in TABLE.findall(page.read_text("utf-8"))}
    linked |= {path for path in paths if path.suffix == ".csv" and path.parent.name in ("results", "figures")}
    for path in paths:
        if path.suffix in (".md", ".png") or path in linked:
            files.append(
                File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, use_directory_urls=True)
            )
    return files


def _mathml(latex: str, display: str) -> str:
    """Return the formula as MathML; a command that the converter does not know would be shown as it is."""
    found = convert(html.unescape(latex).strip(), display=display)
    if "\\" in found:
        raise ValueError(f"a formula with a command that is not known: {latex}")
    return found.replace("<math ", '<math tabindex="0" ', 1) if display == "block" else found
