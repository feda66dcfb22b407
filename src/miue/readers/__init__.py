"""Files of bags as other tools write them, found by looking: one file per kind, and one normal form."""

from miue.readers.base import Contents
from miue.readers.formats import READERS
from miue.readers.isolated import contents_of, read_rows

__all__ = ["READERS", "Contents", "contents_of", "read_rows"]
