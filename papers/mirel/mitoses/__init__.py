"""Mitoses-bags: real histology from three scanners, each in turn the one that is trained on."""
