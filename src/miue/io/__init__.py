"""From files to bags: found, labeled, split and checked; names are imported where they are first used.

The process that reads files of others loads this package, and none of what these names need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as below, which a test compares
    from miue.io.groups import read_groups as read_groups
    from miue.io.instance_labels import with_instance_labels as with_instance_labels
    from miue.io.instances import FileInstances as FileInstances
    from miue.io.instances import describe_bags as describe_bags
    from miue.io.instances import find_bags_again as find_bags_again
    from miue.io.instances import keep_in_memory as keep_in_memory
    from miue.io.instances import read_handed_over as read_handed_over
    from miue.io.instances import state_of_bags as state_of_bags
    from miue.io.instances import state_of_instances as state_of_instances
    from miue.io.label_bags import read_labels_for as read_labels_for
    from miue.io.label_bags import with_labels_of_run as with_labels_of_run
    from miue.io.label_table import LabelTable as LabelTable
    from miue.io.label_table import fold_columns as fold_columns
    from miue.io.label_table import read_label_table as read_label_table
    from miue.io.layouts import FilesLayout as FilesLayout
    from miue.io.layouts import StoreLayout as StoreLayout
    from miue.io.layouts import find_layout as find_layout
    from miue.io.layouts.listing import describe_bag_files as describe_bag_files
    from miue.io.layouts.table import features_of_model as features_of_model
    from miue.io.layouts.table import named_id_column as named_id_column
    from miue.io.load import NO_SPLITS as NO_SPLITS
    from miue.io.load import draw_split as draw_split
    from miue.io.load import load_bags as load_bags
    from miue.io.load import read_values as read_values
    from miue.io.loaded import LeftOut as LeftOut
    from miue.io.loaded import LoadedBags as LoadedBags
    from miue.io.packing import pack as pack
    from miue.io.split_files import read_splits as read_splits
    from miue.io.split_files import write_splits as write_splits
    from miue.io.splits import Splits as Splits
    from miue.io.splits import check_patients as check_patients
    from miue.io.splits import make_folds as make_folds
    from miue.io.splits import make_split as make_split
    from miue.io.store import read_store as read_store
    from miue.io.store import read_store_summary as read_store_summary
    from miue.io.store import verify as verify
    from miue.io.store import write_store as write_store
    from miue.io.verdicts import CANNOT_TELL as CANNOT_TELL
    from miue.io.verdicts import VERDICTS as VERDICTS
    from miue.io.verdicts import is_of_verdicts as is_of_verdicts
    from miue.io.verdicts import last_verdicts as last_verdicts

_MODULES = {
    "miue.io.groups": "read_groups",
    "miue.io.instance_labels": "with_instance_labels",
    "miue.io.instances": "FileInstances describe_bags find_bags_again keep_in_memory read_handed_over "
    "state_of_bags state_of_instances",
    "miue.io.label_bags": "read_labels_for with_labels_of_run",
    "miue.io.label_table": "LabelTable fold_columns read_label_table",
    "miue.io.layouts": "FilesLayout StoreLayout find_layout",
    "miue.io.layouts.listing": "describe_bag_files",
    "miue.io.layouts.table": "features_of_model named_id_column",
    "miue.io.load": "NO_SPLITS draw_split load_bags read_values",
    "miue.io.loaded": "LeftOut LoadedBags",
    "miue.io.packing": "pack",
    "miue.io.split_files": "read_splits write_splits",
    "miue.io.splits": "Splits check_patients make_folds make_split",
    "miue.io.store": "read_store read_store_summary verify write_store",
    "miue.io.verdicts": "CANNOT_TELL VERDICTS is_of_verdicts last_verdicts",
}
_FACE = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_FACE)


def __getattr__(name: str) -> Any:
    """Import a name where it is first used."""
    if name in _FACE:
        return getattr(import_module(_FACE[name]), name)
    raise AttributeError(f"module 'miue.io' has no attribute {name!r}")
