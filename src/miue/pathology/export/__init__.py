"""What a pathologist gets out: QuPath GeoJSON, heatmaps, a worklist. Reads predictions, never a network."""
