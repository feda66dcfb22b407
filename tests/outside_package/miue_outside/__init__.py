"""Parts for miue that are not of miue."""
