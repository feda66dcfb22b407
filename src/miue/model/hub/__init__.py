"""Model folders and the Hugging Face Hub: the model card, and the way there and back."""

from __future__ import annotations

from miue.model.hub.card import CARD, write_card
from miue.model.hub.transfer import pull, push

__all__ = ["CARD", "pull", "push", "write_card"]
