"""Folders of bag files."""
