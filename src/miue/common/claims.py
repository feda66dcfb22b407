"""What a file claims to contain, compared with its size: against decompression bombs."""

from __future__ import annotations

from pathlib import Path

INFLATES_AT_MOST = 64  # features compress to a half, sparse ones and images with an empty ground to a thirtieth
ROOM = 64 << 20  # bytes that any file may claim: what is small may be as empty as it likes


def can_hold(path: Path, claimed: int) -> bool:
    """Return whether a file, or those below a folder, may become as many bytes as they claim to hold."""
    return claimed <= bytes_in(path) * INFLATES_AT_MOST + ROOM


def bytes_in(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder.

    Raises:
        OSError: no such file.
    """
    if not path.is_dir():
        return path.stat().st_size
    return sum(one.lstat().st_size for one in path.rglob("*") if not one.is_dir())
