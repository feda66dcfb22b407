"""The paper's experiments: presets, runs that can be killed and continued, tables beside the published numbers."""

from __future__ import annotations

from papers.mirel.preset import Preset, preset, preset_names
from papers.mirel.published import PublishedTable, published_table, published_tables

__all__ = ["Preset", "PublishedTable", "preset", "preset_names", "published_table", "published_tables"]
