"""Where bags come from, and the one store that holds them on disk."""

from __future__ import annotations

from miue.io.store.store import read_store, write_store

__all__ = ["read_store", "write_store"]
