"""How slides are cut, encoded and shifted."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from miue.common.settings import Location
from miue.common.tasks.executor import ComputeSettings
from miue.common.text import RUNNING

ENCODER = "Patch encoder"


class TileSettings(ComputeSettings):
    """How slides are cut into patches, and how these are encoded."""

    heading = "Patches"

    patch_px: int = Field(default=256, ge=8, description="Side of a patch, in pixels at the magnification.")
    magnification: float = Field(default=20.0, description="Magnification, 20 for 20× (about 0.5 µm per pixel).")
    mpp: float | None = Field(default=None, description="µm per level-0 pixel of slides that do not state it.")
    tissue: float = Field(default=0.25, description="Least share of tissue in a patch.")
    patch_encoder: Location | None = Field(
        default=None,
        description="Network: TorchScript, or an exported program (.pt2). It is code: load only what you trust. "
        "Without it, 24 plain statistics (color-texture).",
        json_schema_extra={"heading": ENCODER},
    )
    normalization: Literal["imagenet", "none"] = Field(
        default="imagenet",
        description="Input of the network: normalized with ImageNet's mean and deviation, or 0 to 1.",
        json_schema_extra={"heading": ENCODER},
    )
    batch: int = Field(
        default=64, ge=1, description="Patches per pass of the network.", json_schema_extra={"heading": ENCODER}
    )
    skip_bad: bool = Field(
        default=False,
        description="Go on after a slide that fails; list it at the end.",
        json_schema_extra={"heading": RUNNING},
    )

    def tiling(self) -> dict[str, Any]:
        """Return how slides are cut as JSON values, which ``Tiling`` takes."""
        return self.model_dump(include={"patch_px", "magnification", "tissue", "mpp"})

    def encoder(self) -> dict[str, Any]:
        """Return the encoder as JSON values, which ``open_encoder`` takes."""
        where = None if self.patch_encoder is None else str(self.patch_encoder.absolute())
        return {
            "path": where,
            "normalization": self.normalization,
            "batch": self.batch,
            "device": self.device,
        }


class ShiftSettings(TileSettings):
    """How slides are shifted."""

    heading = "Shift"

    drawn_per: Literal["patch", "slide"] = Field(
        default="patch",
        description="Stain of hed: drawn for each patch, or once per slide, as another scanner or lab would.",
    )
    tiles: Location | None = Field(
        default=None, description="Folder of .h5 files with coords: shift the same patches."
    )
    seed: int = Field(default=0, ge=0, description="Random seed of the stains, with the slide's name.")
    pictures: int = Field(
        default=0, ge=0, description="Patches per slide to draw before and after, as a PNG; at most all."
    )

    def shift(self, kind: str, strength: str) -> dict[str, Any]:
        """Return a shift of this kind and strength as JSON values, which ``read_shift`` takes."""
        cut = self.tiling() if self.tiles is None else str(self.tiles.resolve())
        drawn = {"drawn_per": self.drawn_per, "seed": self.seed, "pictures": self.pictures}
        return {"kind": kind, "strength": strength, **drawn, "tiles": cut}
