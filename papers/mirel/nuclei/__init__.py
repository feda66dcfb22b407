"""Nuclei-bags: real histology with the truth of every instance, repeatedly cross-validated."""
