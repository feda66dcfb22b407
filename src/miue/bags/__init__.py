"""Bags: instances in segments, what is known of them, and batches.

Names of bags, classes and columns, and what cells of tables say, are in modules
of these names. What needs PyTorch is imported where it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from miue.bags.arrays import InstanceArray
from miue.bags.batches import READ_AHEAD, PackedBatches, ordered_batches, read_ahead, shuffled_batches
from miue.bags.classes import LabelSequence
from miue.bags.columns import ItemColumns
from miue.bags.concatenation import concatenate
from miue.bags.covariates import Covariate, encode_covariates, leaking_covariates, with_covariates
from miue.bags.dataset import BagDataset, check_dataset
from miue.bags.drawing import count_units, draw_folds, draw_one_of_each, group_by_patient, hold_out
from miue.bags.fingerprints import (
    describe_copies,
    find_same_bags,
    fingerprint,
    fingerprint_of_facts,
    warn_of_copies,
)
from miue.bags.joining import join_features, unlike_patches
from miue.bags.known import Coords, Labels, OodFlags, Outcomes, PartlyKnown, Slides
from miue.bags.merging import PATIENT, disagreements, merge_bags
from miue.bags.rows import STATES, GroupedRows, read_states

if TYPE_CHECKING:
    from miue.bags.images import (
        advise_on_shape,
        augmented,
        check_augmentation,
        kind_of_pixels,
        largest_pixel,
        rotate_flip,
    )
    from miue.bags.segments import (
        BagBatch,
        Segments,
        as_float,
        per_instance,
        segment_argmax,
        segment_logsumexp,
        segment_max,
        segment_mean,
        segment_products,
        segment_softmax,
        segment_sum,
        segment_weighted_sum,
    )
    from miue.bags.statistics import count_statistics, image_statistics

__all__ = [
    "PATIENT",
    "READ_AHEAD",
    "STATES",
    "BagBatch",
    "BagDataset",
    "Coords",
    "Covariate",
    "GroupedRows",
    "InstanceArray",
    "ItemColumns",
    "LabelSequence",
    "Labels",
    "OodFlags",
    "Outcomes",
    "PackedBatches",
    "PartlyKnown",
    "Segments",
    "Slides",
    "advise_on_shape",
    "as_float",
    "augmented",
    "check_augmentation",
    "check_dataset",
    "concatenate",
    "count_statistics",
    "count_units",
    "describe_copies",
    "disagreements",
    "draw_folds",
    "draw_one_of_each",
    "encode_covariates",
    "find_same_bags",
    "fingerprint",
    "fingerprint_of_facts",
    "group_by_patient",
    "hold_out",
    "image_statistics",
    "join_features",
    "kind_of_pixels",
    "largest_pixel",
    "leaking_covariates",
    "merge_bags",
    "ordered_batches",
    "per_instance",
    "read_ahead",
    "read_states",
    "rotate_flip",
    "segment_argmax",
    "segment_logsumexp",
    "segment_max",
    "segment_mean",
    "segment_products",
    "segment_softmax",
    "segment_sum",
    "segment_weighted_sum",
    "shuffled_batches",
    "unlike_patches",
    "warn_of_copies",
    "with_covariates",
]

_WITH_TORCH = ("segments", "images", "statistics")


def __getattr__(name: str) -> Any:
    """Import a name of a module that loads PyTorch."""
    for module in _WITH_TORCH if name in __all__ else ():
        if hasattr(found := import_module(f"miue.bags.{module}"), name):
            return getattr(found, name)
    raise AttributeError(f"module 'miue.bags' has no attribute {name!r}")
