"""Files of bags as other tools write them, found by looking: one file per kind, and one normal form."""

from miue.io.formats.base import Contents, OpenFile
from miue.io.formats.isolated import contents_of, read_rows
from miue.io.formats.registry import READERS

__all__ = ["READERS", "Contents", "OpenFile", "contents_of", "read_rows"]
