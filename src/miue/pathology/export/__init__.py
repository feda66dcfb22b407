"""Exports of predictions: GeoJSON for QuPath, heatmaps, HDF5 arrays, GeoParquet, OME-TIFF. No network is read."""
