"""Files of bags as other tools write them, found by looking: one file per kind, and one normal form."""

from miue.readers.base import Contents, contents_of, read_rows
from miue.readers.formats import READERS

__all__ = ["READERS", "Contents", "contents_of", "read_rows"]
