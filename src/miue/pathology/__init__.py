"""Whole slides: tiling, stain and focus shifts, annotations, overlays and heatmaps (the extra ``slides``)."""
