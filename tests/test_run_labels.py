"""Labels that the table of a run lists, after other programs wrote it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_bags import separable_bags

from miue.bags.labels import Labels
from miue.common.errors import DataError
from miue.io.labels.run_labels import with_labels_of_run

BAGS = replace(separable_bags(4), labels=Labels.unknown(4), class_names=())
HEADING = "bag_id,patient,label,fold_0\n"


def test_labels_that_another_program_wrote_with_a_point_are_those_of_the_run(tmp_path: Path) -> None:
    rows = [f"{name},p{row},{row % 2}.0,train\n" for row, name in enumerate(BAGS.ids)]
    (tmp_path / "splits.csv").write_text(HEADING + "".join(rows))
    labeled, said = with_labels_of_run(BAGS, tmp_path / "splits.csv", ("0", "1"))
    assert list(labeled.labels) == [0, 1, 0, 1]
    assert "class 0: 2, class 1: 2" in said


def test_a_bag_that_a_run_lists_with_two_labels_is_named(tmp_path: Path) -> None:
    name = BAGS.ids[1]
    rows = [f"{one},p,0,train\n" for one in BAGS.ids]
    (tmp_path / "splits.csv").write_text(HEADING + "".join(rows) + f"{name},p,0,train\n")
    assert list(with_labels_of_run(BAGS, tmp_path / "splits.csv", ("0", "1"))[0].labels) == [0, 0, 0, 0]
    (tmp_path / "splits.csv").write_text(HEADING + "".join(rows) + f"{name},p,1,train\n")
    with pytest.raises(
        DataError, match=f"bag '{name}' of splits .*: expected one patient, label .* got 2; put back"
    ):
        with_labels_of_run(BAGS, tmp_path / "splits.csv", ("0", "1"))
