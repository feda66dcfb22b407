"""Relative paths of what is read later, when the program may be in another working folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


def _current() -> Path | None:
    """Return the working folder, None where it was removed."""
    try:
        return Path.cwd()
    except OSError:
        return None


@dataclass(frozen=True)
class WorkingFolder:
    """The working folder of a moment, in which relative paths of that moment are found later as well.

    Another one may hold files of the same names, such as the features of another cohort.

    >>> then = WorkingFolder()
    >>> then.find(Path("features/a.npy")) == Path("features/a.npy")
    True
    """

    path: Path | None = field(default_factory=_current)

    def find(self, path: Path) -> Path:
        """Return a path of that moment as it was given, absolute where the program is elsewhere now."""
        if self.path is None or path.is_absolute() or _current() == self.path:
            return path
        return self.path / path
