"""CAMELYON16 as the paper uses it: slides, labels of patches, and bags with shifted and foreign slides."""
