"""Files of bags as other tools write them, found by looking: one file per kind, and one normal form."""

from miue.io.formats.base import READERS, Contents, OpenFile
from miue.io.formats.child import contents_of, read_rows

__all__ = ["READERS", "Contents", "OpenFile", "contents_of", "read_rows"]
