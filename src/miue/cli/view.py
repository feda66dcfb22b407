"""``miue view``: go through the worklist on the slides themselves."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.bags import open_bags
from miue.cli.flags import takes_settings
from miue.cli.options import AsJson, GivenPredictions
from miue.cli.predictions import read_given
from miue.common.files import name_of
from miue.common.text import plural, say, show_result

if TYPE_CHECKING:
    from miue.settings import TableSettings, ViewSettings


@takes_settings(table="miue.settings:TableSettings", settings="miue.settings:ViewSettings")
def view(
    predictions: GivenPredictions,
    table: TableSettings,
    settings: ViewSettings,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="BAGS", help="The bags that were predicted, for images and positions of their instances."
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address, and open no browser.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Review bags one after another on their slides.

    Serves one page, to this machine alone, at an address that holds a random token. It has the worklist, each
    slide at any zoom with the probability of each class and each uncertainty over it, and what was predicted and
    why. A verdict is written at once, as a row at the end of --verdicts; train, calibrate and evaluate take that
    file as --labels. With --store, bags of images show their images; without --slides, the map of patches is
    shown. Slides and images need the extra 'slides'. End it with Ctrl-C.

    Example: miue view predictions --slides slides
    """
    from miue.settings import LoadSettings
    from miue.view import Content, Server, Site, VerdictFile

    given = read_given(predictions, table.instances, table.classes)
    name = name_of(predictions)
    verdicts = VerdictFile(settings.verdicts or predictions.parent / f"{name}.verdicts.csv", settings.reviewer)
    verdicts.check()
    bags = None if store is None else open_bags(store, LoadSettings(), progress=not as_json, skip_bad=True).bags
    patch_size = settings.patch_size
    content = Content(given, verdicts, title=name, slides=settings.slides, store=bags, patch_size=patch_size)
    cases = len(content.overview["cases"])
    try:
        with Server(Site(content), settings.port) as server:
            sentence = f"{plural(cases, 'bag')} at {server.address}\nverdicts: {verdicts.path}; end with Ctrl-C"
            facts = {"bags": cases, "address": server.address, "verdicts": str(verdicts.path)}
            show_result(facts, sentence, as_json)
            if not no_browser:
                webbrowser.open(server.address)
            server.serve_forever()
    except KeyboardInterrupt:
        say("ended; all verdicts are kept", err=as_json)
