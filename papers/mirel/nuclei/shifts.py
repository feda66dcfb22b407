"""The shifts of nuclei-bags: of stain, sharpness, compression, noise, and a rotation, which is none."""

from __future__ import annotations

from miue.datasets.image_shifts import ImageShift, rotated
from miue.pathology.stain_shifts import ALL_SHIFTS, STRENGTHS, StainShift

OF_SLIDES = [StainShift("hed", strength, "slide") for strength in STRENGTHS]
OF_SCANNERS = [StainShift(kind, strength) for kind in ("jpeg", "noise") for strength in STRENGTHS]
NUCLEI_SHIFTS: dict[str, ImageShift] = {
    **ALL_SHIFTS,
    **{shift.name: shift for shift in OF_SLIDES},
    "rotation": rotated,
    **{shift.name: shift for shift in OF_SCANNERS},
}
