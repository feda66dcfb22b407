"""How many instances of each bag are flagged, and which rows are of which bag."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_flags import flagged_slides
from made_predictions import made_predictions

from miue.bags import GroupedRows
from miue.predictions import UNKNOWN, StoredInstances, read_predictions


@pytest.mark.parametrize("kind", ["in memory", "stored", "computed when read"])
def test_flags_are_counted_by_bag(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decided = flagged_slides()
    whole = decided.instances
    assert whole is not None and whole.flagged is not None
    table = whole.subset(np.random.default_rng(0).permutation(len(whole)))
    if kind == "stored":
        decided.save(tmp_path / "p")
        read = read_predictions(tmp_path / "p").instances
        assert isinstance(read, StoredInstances)
        table = read
        monkeypatch.setattr(StoredInstances, "_read", lambda *_: pytest.fail("more than the flags was read"))
    elif kind == "computed when read":
        whole = replace(whole, flagged=None)
        replace(decided, instances=whole, provenance=UNKNOWN).save(tmp_path / "p")
        read = read_predictions(tmp_path / "p").instances
        assert isinstance(read, StoredInstances) and read.flagged_by_bag() is None
        table = read.flagged_by(lambda part: replace(part, flagged=part.probabilities[:, 1] > 0.5))
        whole = replace(whole, flagged=whole.probabilities[:, 1] > 0.5)
    assert whole.flagged is not None
    wanted = dict.fromkeys(map(str, whole.bag_ids), 0)
    for name, flag in zip(whole.bag_ids, whole.flagged, strict=True):
        wanted[str(name)] += int(flag)
    assert 0 < sum(wanted.values()) < len(whole)
    assert table.flagged_by_bag() == wanted
    assert replace(whole, flagged=None).flagged_by_bag() is None


@given(st.lists(st.sampled_from(["a", "b", "c", "1"]), max_size=12))
def test_the_bags_of_rows_in_any_order_are_those_of_their_names(ids: list[str]) -> None:
    rows = made_predictions(1, 12).instances
    assert rows is not None
    table = replace(rows.subset(np.arange(len(ids))), bag_ids=np.array(ids, object))
    found, wanted = table.rows_of_bags(), GroupedRows.of(ids)
    assert found.names == wanted.names and found.bag.tolist() == wanted.bag.tolist()
