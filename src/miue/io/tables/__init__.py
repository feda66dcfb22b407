"""Tables with one row for each instance."""
