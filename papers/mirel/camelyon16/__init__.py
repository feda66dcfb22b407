"""CAMELYON16 as the paper uses it: slides, labels of patches, and bags in and out of distribution."""
