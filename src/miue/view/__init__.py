"""The page on which a person goes through the worklist on the slides themselves, and its server."""

from __future__ import annotations

from miue.view.content import Content
from miue.view.server import Server, Site
from miue.view.verdicts import VerdictFile

__all__ = ["Content", "Server", "Site", "VerdictFile"]
