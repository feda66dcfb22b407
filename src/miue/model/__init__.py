"""A trained model: what it is made of, how it predicts, how it is saved. Loads no trainer."""

from __future__ import annotations

from miue.model.model import Model

__all__ = ["Model"]
