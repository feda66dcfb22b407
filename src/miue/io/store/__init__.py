"""The bag store: the folder in which bags are kept on disk, written and read as one."""

from __future__ import annotations

from miue.io.store.store import read_store, write_store

__all__ = ["read_store", "write_store"]
