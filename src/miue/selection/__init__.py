"""Choosing between models: cross-validation and its comparison."""
