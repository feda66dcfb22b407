"""Numbers that describe how an image looks, not what it shows: sharpness, noise, color."""

from __future__ import annotations

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn.functional import pad

DILATIONS = (1, 2, 4)
ROUNDING = 1 / 12  # variance of the rounding of a pixel to a byte
PIXELS_AT_ONCE = 1 << 17  # whose bands stay in a CPU's cache


def count_statistics(channels: int) -> int:
    """Return S, the number of statistics of an image: 6 of a gray one, 27 of a color one."""
    return 6 * channels + len(DILATIONS) * channels * (channels - 1) // 2


def image_statistics(images: UInt8[Tensor, "n H W c"]) -> Float[Tensor, "n S"]:
    """Return the statistics of each image in float32.

    Log energy of the Laplacian and of three band passes per channel, band j being x_j − x_{j+1} with
    x_{j+1} = x_j under the kernel [1 2 1] / 4 of dilation 1, 2 and 4 in both directions (à trous);
    atanh of the correlations between channels within each band; mean and log standard deviation of the optical
    density −ln(max(x, 1) / 255) per channel. Energies include 1/12, the variance of rounding to bytes, so that an
    image of one color has finite statistics. Pixels outside an image equal those at its edge.

    Reference: Starck & Murtagh 1994 (à trous).

    >>> image_statistics(torch.zeros(2, 5, 5, 3, dtype=torch.uint8)).shape
    torch.Size([2, 27])
    """
    at_once = max(1, PIXELS_AT_ONCE // (images.shape[1] * images.shape[2]))
    parts = [_statistics(part.permute(0, 3, 1, 2).float()) for part in images.split(at_once)]
    return torch.cat(parts) if parts else images.new_zeros(0, count_statistics(images.shape[3])).float()


def _statistics(pixels: Float[Tensor, "n c H W"]) -> Float[Tensor, "n S"]:
    around = pad(pixels, (1, 1, 1, 1), mode="replicate")
    crossed = around[..., 1:-1, :-2] + around[..., 1:-1, 2:] + around[..., :-2, 1:-1] + around[..., 2:, 1:-1]
    statistics = [_energies(crossed - 4 * pixels).log()]
    first, second = torch.triu_indices(pixels.shape[1], pixels.shape[1], 1)
    smooth = pixels
    for dilation in DILATIONS:
        smoother = _smoothed(smooth, dilation)
        band, smooth = smooth - smoother, smoother
        energies = _energies(band)
        products = (band[:, first] * band[:, second]).mean((2, 3))
        statistics += [energies.log(), (products / (energies[:, first] * energies[:, second]).sqrt()).atanh()]
    density = -(pixels.clamp(min=1) / 255).log()
    variance = density.var((2, 3), correction=0) + ROUNDING / 255**2
    return torch.cat([*statistics, density.mean((2, 3)), variance.log() / 2], 1)


def _energies(band: Float[Tensor, "n c H W"]) -> Float[Tensor, "n c"]:
    return band.square().mean((2, 3)) + ROUNDING


def _smoothed(pixels: Float[Tensor, "n c H W"], dilation: int) -> Float[Tensor, "n c H W"]:
    """Return the images under [1 2 1] / 4 in both directions."""
    wide = pad(pixels, (dilation,) * 4, mode="replicate")
    rows = wide[..., : -2 * dilation, :] + 2 * wide[..., dilation:-dilation, :] + wide[..., 2 * dilation :, :]
    both = rows[..., : -2 * dilation] + 2 * rows[..., dilation:-dilation] + rows[..., 2 * dilation :]
    return both / 16
