"""What bags must look like for a model, and the check that given bags do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from miue.bags import BagDataset, Covariate, advise_on_shape, encode_covariates, kind_of_pixels
from miue.bags.classes import ClassNames, names_or_numbers
from miue.bags.frames import describe_difference, is_reordered
from miue.common.errors import ModelError, first_few
from miue.common.text import warn_user
from miue.targets import AnyTarget

LARGEST_SIDE = 1 << 24
"""No feature is wider and no image larger; what a damaged config claims beyond it is refused."""


class DataContract(BaseModel):
    """What bags must look like for a model.

    Attributes:
        instance_shape: of every instance.
        class_names: in the order of the probabilities.
        extractor: name of the network that made the features, "" where it is unknown.
        patch_scales: of the pictures that features are of, such as "256 px of 0.5 µm", none where unknown.
        pixels: of images, "bytes" from 0 to 255, which networks take as 0 to 1, or "numbers", which they take as
            they are; "" for features, and in models of earlier versions.
        feature_names: as the columns of the table are named that was trained on; none where it has no names.
        target: what labels mean where they are more than classes.
        bag_per: what all slides of a bag share, such as "patient"; "" where a bag is one.
        encoders: how many features are of each patch encoder, in their order, where several were joined.
        covariates: how columns of the label table become numbers beside the features.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    instance_shape: tuple[Annotated[int, Field(ge=1, le=LARGEST_SIDE)], ...]
    class_names: ClassNames
    extractor: str = ""
    patch_scales: tuple[str, ...] = ()
    pixels: Literal["", "bytes", "numbers"] = ""
    feature_names: tuple[str, ...] = ()
    target: AnyTarget | None = None
    bag_per: str = ""
    encoders: dict[str, int] = {}
    covariates: tuple[Covariate, ...] = ()

    @field_validator("feature_names")
    @classmethod
    def _one_for_each_feature(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if names and (len(names),) != info.data.get("instance_shape"):
            raise ValueError(f"{len(names)} names for instances of shape {info.data.get('instance_shape')}")
        return names

    @classmethod
    def of(cls, bags: BagDataset, covariates: Sequence[Covariate] = ()) -> DataContract:
        """Return what these bags look like, with covariates as the training bags have them."""
        return cls(
            instance_shape=bags.instance_shape,
            class_names=names_or_numbers(bags.class_names, bags.num_classes),
            extractor=bags.extractor,
            patch_scales=bags.patch_scales,
            pixels=kind_of_pixels(bags),
            feature_names=bags.feature_names,
            target=cast(AnyTarget, bags.target),
            bag_per=bags.bag_per,
            encoders=dict(bags.encoders),
            covariates=tuple(covariates),
        )

    def labeled(self, bags: BagDataset) -> BagDataset:
        """Return bags with labels as the model has them, of its classes or intervals of a number, and covariates.

        Raises:
            DataError: a label of a class that the model does not have, or bags without its covariates.
        """
        bags = encode_covariates(bags, self.covariates)
        return bags.with_classes(self.class_names) if self.target is None else bags.with_target(self.target)

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.class_names)

    @property
    def num_covariates(self) -> int:
        """How many numbers follow the features of an instance."""
        return sum(one.width for one in self.covariates)

    @property
    def shape_in_words(self) -> str:
        """The shape of an instance, as messages state it: "512", "28 × 28"."""
        return _in_words(self.instance_shape)

    def check(self, bags: BagDataset) -> None:
        """Raise unless bags are as the model needs them; warn where they may mean something else than in training.

        Raises:
            ModelError: instances of another shape, features in another order, or images of another scale.
        """
        self._check_encoders(bags)
        self._check_shape(bags)
        self._check_feature_names(bags)
        self._check_extractor(bags)
        self._check_patch_scales(bags)
        self._check_pixels(bags)
        for one in self.covariates:
            if one.name in bags.covariates and (others := one.unusual(bags.covariate(one.name))):
                said = f"covariate {one.in_words} in training has other values in {others}"
                warn_user(f"{said}: these predictions extrapolate")
        if self.bag_per != bags.bag_per:
            ours, theirs = (f"one bag for each {one.bag_per or 'slide'}" for one in (self, bags))
            warn_user(
                f"the model was trained on {ours}, these are {theirs}: how certain it is may be of another kind; "
                "load them with the same bag_per",
            )

    def _check_encoders(self, bags: BagDataset) -> None:
        """Raise where bags have features of other patch encoders, or in another order, by width and name."""
        (names, widths), (theirs, other) = (
            (list(one), list(one.values())) for one in (self.encoders, bags.encoders)
        )
        reordered = names != theirs and sorted(names) == sorted(theirs)
        if (widths == other and not reordered) or (not theirs and bags.instance_shape == self.instance_shape):
            return
        ours, got = (
            " + ".join(f"{name} ({width:,})" for name, width in one.items())
            for one in (self.encoders, bags.encoders)
        )
        raise ModelError(
            item="the bags",
            wanted=f"features of {ours or 'one patch encoder'}, which the model was trained on",
            got=got or f"{_in_words(bags.instance_shape)} features of one encoder",
            fix="pass their folders in this order, those after the first as more_features=[FOLDER]",
        )

    def _check_shape(self, bags: BagDataset) -> None:
        if bags.instance_shape == tuple(self.instance_shape):
            return
        what = "image shape" if len(self.instance_shape) > 1 else "feature width"
        fix = advise_on_shape(tuple(self.instance_shape), bags.instance_shape)
        got = _in_words(bags.instance_shape)
        if self._names_differ(bags):
            got += f" ({describe_difference(self.feature_names, bags.feature_names)})"
            fix = "pass the columns that it was trained on"
        wanted = f"{what} {self.shape_in_words}, which the model was trained on"
        raise ModelError(item="the bags", wanted=wanted, got=got, fix=fix)

    def _check_feature_names(self, bags: BagDataset) -> None:
        if not self._names_differ(bags):
            return
        difference = describe_difference(self.feature_names, bags.feature_names)
        if is_reordered(bags.feature_names, self.feature_names):
            raise ModelError(
                item="the features of the bags",
                wanted="the columns in the order that the model was trained on",
                got=difference,
                fix=f"put the columns into the order of training: {first_few(self.feature_names)} (of a table: "
                "miue.load_bags(path, features=model.contract.feature_names))",
            )
        warn_user(
            f"the columns have other names than those that the model was trained on ({difference}): unless they "
            "are the same features in the same order, the predictions mean nothing",
        )

    def _names_differ(self, bags: BagDataset) -> bool:
        ours, theirs = self.feature_names, bags.feature_names
        return bool(ours and theirs) and ours != theirs

    def _check_extractor(self, bags: BagDataset) -> None:
        ours, theirs = self.extractor, bags.extractor
        if ours and theirs and ours.casefold() != theirs.casefold():
            warn_user(
                f"the model was trained on features of {ours!r}, these bags have features of {theirs!r}: unless "
                "both are names of one extractor, the predictions mean nothing",
            )

    def _check_patch_scales(self, bags: BagDataset) -> None:
        others = [scale for scale in bags.patch_scales if scale not in self.patch_scales]
        if self.patch_scales and others:
            warn_user(
                f"the model was trained on patches of {first_few(self.patch_scales)}, these bags have patches of "
                f"{first_few(others)}: where tissue is larger or smaller than in training, the predictions mean "
                "nothing; extract the features as those of training",
            )

    def _check_pixels(self, bags: BagDataset) -> None:
        """Raise where images are numbers beyond 0 to 1, not bytes; warn where they are bytes, not numbers."""
        ours, theirs = self.pixels, kind_of_pixels(bags)
        if ours == "numbers" and theirs == "bytes":
            warn_user(
                "the model was trained on images of numbers, these are of bytes, which are taken as numbers "
                "from 0 to 1: unless the training images had that scale, the predictions mean nothing",
            )
        if ours == "bytes" and theirs == "numbers" and len(bags):
            first = np.asarray(bags.instances[bags.starts[0] : bags.starts[0] + bags.sizes[0]])
            if first.min() < 0 or first.max() > 1:
                raise ModelError(
                    item=f"the images of bag {bags.ids[0]!r}",
                    wanted="bytes (uint8), as in training, or numbers from 0 to 1",
                    got=f"numbers from {first.min():g} to {first.max():g}",
                    fix="give the images as uint8, or divide them by 255",
                )


def _in_words(shape: Sequence[int]) -> str:
    return str(shape[0]) if len(shape) == 1 else " × ".join(map(str, shape))
