"""Bags: instances in segments, what is known of them, and batches."""
