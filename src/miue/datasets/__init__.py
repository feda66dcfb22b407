"""Bags that are drawn or made from known images and tables."""
