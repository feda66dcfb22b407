"""From files to bags: found, labelled, split, checked; one package for each kind of thing on disk."""
