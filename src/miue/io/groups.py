"""Tables that say which group each bag belongs to, such as its hospital or its scanner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from miue.bags.cells import known_text
from miue.bags.columns import BAG
from miue.bags.names import match_names
from miue.common.errors import DataError, unknown_name
from miue.common.tables import read_header
from miue.io.label_table import LabelTable, read_label_table


def read_groups(
    path: Path,
    column: str,
    bag_names: Sequence[str],
    *,
    id_column: str | None = None,
    patient_of: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the group of each bag that the table at ``path`` lists; "" where its cell names none.

    A table that names none of the bags can name their patients.

    Args:
        path: CSV, or text with tabs or semicolons between columns, or Parquet; a label table, say.
        column: that of the groups.
        bag_names: those of the bags.
        id_column: that of the names of bags or patients, if it is not recognized.
        patient_of: patient of each bag whose patient is known.

    Raises:
        StorageError: missing or unreadable.
        DataError: a repeated id, a name that may be that of two bags, or none of the bags.
        ConfigError: a column that does not exist.
    """
    header = read_header(path)
    if column not in header:
        raise unknown_name("column of groups", column, header)
    columns = {"label": column} | ({} if id_column is None else {BAG: id_column})
    table = read_label_table(path, columns)
    found = _by_name(table, bag_names)
    if not found and patient_of:
        of_patients = _by_name(table, sorted(set(patient_of.values())))
        found = {bag: of_patients[patient] for bag, patient in patient_of.items() if patient in of_patients}
    if any(found.values()):
        return found
    raise DataError(
        item=f"table of groups {table.source!r}",
        wanted=f"the group of bags such as {bag_names[0]!r}",
        got=f"column {column!r} without a value for any of them"
        if found
        else f"none of them in column {table.id_column!r}, which has names such as {table.ids[0]!r}",
        fix="name the column of bags as id_column=NAME, that of groups as group_column=NAME"
        + ("" if patient_of else "; to name patients, predict with a table of labels, whose patients are kept"),
    )


def _by_name(table: LabelTable, names: Sequence[str]) -> dict[str, str]:
    """Return the cell of each of these bags, or patients, that the table lists."""
    rows = match_names(table.ids, names, table.source)
    return {names[row]: known_text(cell) for row, cell in zip(rows, table.labels, strict=True) if row is not None}
