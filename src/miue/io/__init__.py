"""From files to bags: found, labeled, split, checked; one package for each kind of thing on disk."""
