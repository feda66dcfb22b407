"""Which reader opens which ending."""

from __future__ import annotations

from miue.common.parts import READERS as _READERS
from miue.common.registry import Registry
from miue.io.formats.base import OpenBag

READERS: Registry[OpenBag] = _READERS
