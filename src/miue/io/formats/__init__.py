"""Files of bags as other tools write them, found by looking: one file per kind, and one normal form."""

from miue.io.formats.base import READERS, Contents, OpenFile, refusing
from miue.io.formats.child import ENDINGS, contents_of, read_hdf5_parts, read_rows
from miue.io.formats.grid import grid_step
from miue.io.formats.hdf5 import STATISTICS
from miue.io.formats.numpy_files import UNREADABLE, read_array, read_member_header, to_texts, write_array

__all__ = [
    "ENDINGS",
    "READERS",
    "STATISTICS",
    "UNREADABLE",
    "Contents",
    "OpenFile",
    "contents_of",
    "grid_step",
    "read_array",
    "read_hdf5_parts",
    "read_member_header",
    "read_rows",
    "refusing",
    "to_texts",
    "write_array",
]
