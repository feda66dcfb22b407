"""Shifts of histology: out of focus, stained otherwise, compressed or scanned with more noise than in training.

The paper names three strengths, lighter, light and strong, of Gaussian blur and of HED color variation, after
Tellez et al. 2019, and gives no parameter of them. So the parameters here are, in part, ours:

===========  ==============  ===========================================  ===========  =======================
strength     blur: σ         HED: range r of ratio and offset, U(−r, r)   JPEG:        noise: standard
             in pixels                                                    quality      deviation, gray levels
===========  ==============  ===========================================  ===========  =======================
lighter      0.5 (ours)      0.02 (ours)                                  60 (ours)    4 (ours)
light        1.0 (ours)      0.05 (HED-light of Tellez et al.)            30 (ours)    8 (ours)
strong       2.0 (ours)      0.2 (HED-strong of Tellez et al.)            10 (ours)    16 (ours)
===========  ==============  ===========================================  ===========  =======================

HED is drawn for each patch by itself, as in their augmentation, or once for a whole slide, as another scanner
shifts it. Noise is Gaussian, independent for each pixel and channel.
σ counts pixels of the patch as it is encoded: 1 pixel is about 0.5 µm at 20×.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from jaxtyping import Float64, UInt8

from miue.common.errors import ConfigError, unknown_name

STRENGTHS = ("lighter", "light", "strong")
PARAMETERS: dict[str, tuple[str, tuple[float | int, ...]]] = {
    "blur": ("sigma_px", (0.5, 1.0, 2.0)),
    "hed": ("hed_range", (0.02, 0.05, 0.2)),
    "jpeg": ("jpeg_quality", (60, 30, 10)),
    "noise": ("noise_deviation", (4.0, 8.0, 16.0)),
}
"""Of each kind the name of its parameter, and its value at each strength."""
KINDS = tuple(PARAMETERS)
DRAWN_PER = ("patch", "slide")
_PIXELS_AT_ONCE = 1 << 20  # whose optical densities are held at once

ImageChange = Callable[[np.ndarray], np.ndarray]
"""(m, H, W, 3) bytes to as many changed ones."""


def blurred(images: UInt8[np.ndarray, "m H W 3"], sigma: float) -> UInt8[np.ndarray, "m H W 3"]:
    """Return each image under a Gaussian of ``sigma`` pixels, its edge pixels repeated outwards."""
    from skimage.filters import gaussian

    shifted = np.empty_like(images)
    for i, image in enumerate(images):
        soft = gaussian(image, sigma, mode="nearest", preserve_range=True, channel_axis=-1)
        shifted[i] = np.clip(np.round(soft), 0, 255)
    return shifted


def compressed(images: UInt8[np.ndarray, "m H W 3"], quality: int) -> UInt8[np.ndarray, "m H W 3"]:
    """Return each image as it is after it was stored as JPEG of this quality, 1 to 95."""
    from PIL import Image

    shifted = np.empty_like(images)
    for i, image in enumerate(images):
        stored = BytesIO()
        Image.fromarray(image).save(stored, "JPEG", quality=quality)
        shifted[i] = np.asarray(Image.open(stored))
    return shifted


def with_noise(
    images: UInt8[np.ndarray, "m H W 3"], deviation: float, random: np.random.Generator
) -> UInt8[np.ndarray, "m H W 3"]:
    """Return each image with Gaussian noise of this standard deviation in gray levels."""
    shifted = np.empty_like(images)
    for i, image in enumerate(images):
        shifted[i] = np.clip(np.round(image + random.normal(0, deviation, image.shape)), 0, 255)
    return shifted


def stain_varied(
    images: UInt8[np.ndarray, "m H W 3"], span: float, random: np.random.Generator
) -> UInt8[np.ndarray, "m H W 3"]:
    """Return each image with its hematoxylin, eosin and DAB scaled by 1 + a and raised by b, drawn for it.

    Optical density −ln(I / 255) is split into the three stains of Ruifrok & Johnston 2001 (scikit-image's
    ``hed_from_rgb``), each stain s becomes (1 + a) s + b, and the image is put together again. b is in units of
    optical density, which is ours: the published variation acts on a color space that has no unit.

    Reference: Tellez et al. 2019, "HED-light" and "HED-strong".

    Args:
        images: RGB, glass near 255.
        span: a and b are drawn from U(−span, span), one of each for every stain of every image.
        random: what draws them.
    """
    return stains_changed(images, draw_stain_change(span, random, len(images)))


def draw_stain_change(span: float, random: np.random.Generator, count: int = 1) -> Float64[np.ndarray, "k 2 3"]:
    """Return how so many images, or slides, are to change: a, then b, of hematoxylin, eosin and DAB."""
    return random.uniform(-span, span, (count, 2, 3))


def stains_changed(
    images: UInt8[np.ndarray, "m H W 3"], change: Float64[np.ndarray, "k 2 3"]
) -> UInt8[np.ndarray, "m H W 3"]:
    """Return each image with each stain scaled by 1 + a and raised by b.

    Args:
        images: RGB, glass near 255.
        change: (a, b) of the three stains for each image, or one for all of them.
    """
    from skimage.color import hed_from_rgb, rgb_from_hed

    of_images = np.broadcast_to(change[:, :, None, None, :], (len(images), 2, 1, 1, 3))
    shifted = np.empty_like(images)
    at_once = max(1, _PIXELS_AT_ONCE // (images.shape[1] * images.shape[2]))
    for begin in range(0, len(images), at_once):
        part = slice(begin, begin + at_once)
        drawn = of_images[part]
        density = -np.log(np.maximum(images[part], 1) / 255.0)
        stains = density @ hed_from_rgb * (1 + drawn[:, 0]) + drawn[:, 1]
        light = 255.0 * np.exp(-(stains @ rgb_from_hed))
        shifted[part] = np.clip(np.round(light), 0, 255)
    return shifted


@dataclass(frozen=True)
class StainShift:
    """One kind of shift at one strength.

    Attributes:
        kind: "blur", "hed", "jpeg" or "noise".
        strength: "lighter", "light" or "strong".
        drawn_per: of HED: "patch", each by itself, as stains are augmented; "slide", once for all patches of a
            slide, as another stainer or scanner shifts it. Draws per patch cancel in the mean over a bag.
    """

    kind: str
    strength: str
    drawn_per: str = "patch"

    def __post_init__(self) -> None:
        for what, name, known in (
            ("shift", self.kind, KINDS),
            ("strength", self.strength, STRENGTHS),
            ("unit that stains are drawn for", self.drawn_per, DRAWN_PER),
        ):
            if name not in known:
                raise unknown_name(what, name, known)
        if self.kind != "hed" and self.drawn_per != "patch":
            wanted = "no unit to draw for: nothing is drawn that a whole slide could share"
            item, got = f"the shift {self.kind!r}", f"drawn per {self.drawn_per}"
            raise ConfigError(item=item, wanted=wanted, got=got, fix="leave it out, or choose the kind hed")

    @property
    def name(self) -> str:
        """Kind and strength, such as "hed-strong" (drawn per patch) or "hed-strong-per-slide"."""
        return f"{self.kind}-{self.strength}" + ("-per-slide" if self.drawn_per == "slide" else "")

    @property
    def _value(self) -> float | int:
        return PARAMETERS[self.kind][1][STRENGTHS.index(self.strength)]

    @property
    def parameters(self) -> dict[str, float | int | str]:
        """The numbers behind kind and strength, by name."""
        drawn: dict[str, float | int | str] = {"drawn_per": self.drawn_per} if self.kind == "hed" else {}
        return {PARAMETERS[self.kind][0]: self._value, **drawn}

    def of_slide(self, random: np.random.Generator) -> ImageChange:
        """Return what shifts the patches of one slide, batch after batch, in order."""
        value = self._value
        if self.drawn_per == "slide":
            change = draw_stain_change(value, random)
            return lambda images: stains_changed(images, change)
        changes: dict[str, ImageChange] = {
            "blur": lambda images: blurred(images, value),
            "hed": lambda images: stain_varied(images, value, random),
            "jpeg": lambda images: compressed(images, int(value)),
            "noise": lambda images: with_noise(images, value, random),
        }
        return changes[self.kind]

    def __call__(
        self, images: UInt8[np.ndarray, "m H W 3"], random: np.random.Generator
    ) -> UInt8[np.ndarray, "m H W 3"]:
        """Return the shifted images, all of one slide."""
        return self.of_slide(random)(images)


ALL_SHIFTS = {shift.name: shift for shift in (StainShift(kind, s) for kind in ("blur", "hed") for s in STRENGTHS)}
"""Blur and HED, drawn per patch, at each strength: those of the paper's experiments."""
