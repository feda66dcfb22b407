"""Tables of labels and how they are joined with bags by name."""
