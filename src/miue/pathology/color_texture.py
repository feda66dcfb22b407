"""Color and texture of a patch as 24 plain numbers: deterministic, nothing learned, no weights to download.

A stand-in to try a pipeline with, or a baseline. It sees colors and fine grain, not cells or glands; for
results, use features of an encoder trained on pathology.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, UInt8

NAME = "color-texture"
WIDTH = 24


def color_texture(patch: UInt8[np.ndarray, "height width 3"]) -> Float32[np.ndarray, "24"]:
    """Return mean and spread of red, green, blue; of hematoxylin, eosin, DAB; of edges; and a texture histogram.

    The stains are those of Ruifrok & Johnston 2001, the texture is the histogram of the uniform local binary
    patterns of 8 neighbors at radius 1 (Ojala et al. 2002), both as scikit-image has them.

    >>> gray = color_texture(np.full((8, 8, 3), 128, np.uint8))
    >>> [round(float(value), 3) for value in gray[:6]]  # three equal means, no spread
    [0.502, 0.502, 0.502, 0.0, 0.0, 0.0]
    """
    from skimage.color import rgb2hed
    from skimage.feature import local_binary_pattern
    from skimage.filters import sobel

    colors = patch / 255.0
    stains = rgb2hed(colors)
    gray = patch.mean(2).round().astype(np.uint8)
    patterns = local_binary_pattern(gray, 8, 1, "uniform").astype(int)
    edges = sobel(gray / 255.0)
    parts = [image.reshape(-1, 3) for image in (colors, stains)]
    moments = [moment for part in parts for moment in (part.mean(0), part.std(0))]
    histogram = np.bincount(patterns.ravel(), minlength=10) / patterns.size
    return np.concatenate([*moments, [edges.mean(), edges.std()], histogram]).astype(np.float32)
