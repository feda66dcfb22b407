"""What a file claims to contain, compared with its size."""

from __future__ import annotations

from pathlib import Path

INFLATES_AT_MOST = 64  # features compress to a half, sparse ones and images with an empty ground to a thirtieth
ROOM = 64 << 20  # bytes that any file may claim: what is small may be as empty as it likes


def can_hold(path: Path, claimed: int) -> bool:
    """Return whether a file may become as many bytes as it claims to hold."""
    return claimed <= path.stat().st_size * INFLATES_AT_MOST + ROOM
