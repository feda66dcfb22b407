"""The patches of each slide, as all exports take them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from made_slides import alpha_of, prediction_table

from miue.bags import Coords
from miue.common.errors import ConfigError, DataError
from miue.common.tasks import Shard
from miue.pathology.export.patches import (
    FROM_FILE,
    FROM_GRID,
    FROM_OTHERS,
    SPECIFIED,
    class_names,
    class_number,
    class_numbers,
    file_names,
    patch_sizes,
    patches_by_slide,
)
from miue.predictions import Predictions, PredictionTable, Provenance

PLACES = {"row": [[0, 0], [512, 0], [1024, 0]], "lone": [[77, 1001]], "two": [[0, 0], [3, 500]]}


def slides_at(
    places: dict[str, list[list[int]]], of_files: list[int] | None = None, unknown: tuple[int, ...] = ()
) -> Predictions:
    """Predictions whose instances are in another order of slides than the bags."""
    ids = [slide for slide in reversed(places) for _ in places[slide]]
    coords = np.concatenate([np.array(places[slide], np.int64) for slide in reversed(places)])
    known = np.array([row not in unknown for row in range(len(ids))])
    instances = prediction_table(alpha_of(len(ids)), ids, coords, knn=np.arange(len(ids)) + 0.5)
    bags = prediction_table(alpha_of(len(places), 1), list(places))
    sizes = None if of_files is None else np.array(of_files, np.int64)
    return Predictions(replace(bags, patch_sizes=sizes), replace(instances, coords=Coords(coords, known)))


def test_a_patch_size_is_that_specified_else_of_the_file_else_of_the_grid_else_of_the_others() -> None:
    predictions = slides_at(PLACES)
    assert patch_sizes(predictions) == {
        "row": (512, FROM_GRID),
        "lone": (512, FROM_OTHERS),
        "two": (512, FROM_OTHERS),
    }
    assert patch_sizes(predictions, 64) == dict.fromkeys(PLACES, (64, SPECIFIED))
    stated = slides_at(PLACES, [256, 0, 0])
    assert patch_sizes(stated) == {"row": (256, FROM_FILE), "lone": (256, FROM_OTHERS), "two": (256, FROM_OTHERS)}
    assert patch_sizes(stated, 64)["row"] == (64, SPECIFIED)
    differing = patch_sizes(slides_at(PLACES, [0, 256, 0]))
    assert differing == {"row": (512, FROM_GRID), "lone": (256, FROM_FILE), "two": (None, FROM_GRID)}
    assert patch_sizes(slides_at({"lone": [[7, 7]]})) == {"lone": (None, FROM_GRID)}
    # a position that is not known is that of no patch: (0, 0) would be a step of 512 from (512, 0)
    placed = slides_at({"a": [[0, 0], [512, 0], [512, 256]]}, unknown=(0,))
    assert patch_sizes(placed) == {"a": (256, FROM_GRID)}
    for instances, got in (
        (None, "got no instances"),
        (replace(predictions.instances, coords=None), "got instances without x and y"),  # type: ignore[type-var]
    ):
        with pytest.raises(DataError, match=got):
            patch_sizes(replace(predictions, instances=instances))


def test_each_slide_has_the_rows_of_its_patches_in_the_order_of_the_bags() -> None:
    predictions = slides_at(PLACES)
    table = predictions.instances
    assert table is not None
    flagged = np.arange(len(table)) % 2 == 0
    given = replace(table, flagged=flagged, instance=np.arange(len(table))[::-1].copy())
    for instances in (given, replace(given, instance=None)):
        found = list(patches_by_slide(replace(predictions, instances=instances)))
        assert [patches.slide for patches in found] == list(PLACES)
        for patches in found:
            rows = np.flatnonzero(table.bag_ids.astype(str) == patches.slide)
            assert patches.coords.tolist() == PLACES[patches.slide] and len(patches) == len(rows)
            assert (patches.size, patches.size_from) == patch_sizes(predictions)[patches.slide]
            np.testing.assert_array_equal(patches.probabilities, table.probabilities[rows])
            assert patches.uncertainties["score_knn"].tolist() == (rows + 0.5).tolist()
            assert patches.flagged is not None and patches.flagged.tolist() == flagged[rows].tolist()
            numbers = np.arange(len(rows)) if instances.instance is None else instances.instance[rows]
            assert patches.instance.tolist() == numbers.tolist()
    shares = [patches_by_slide(predictions, shard=Shard(number, 2)) for number in (1, 2)]
    parts = [[patches.slide for patches in share] for share in shares]
    assert sorted(parts[0] + parts[1]) == sorted(PLACES) and all(parts)
    assert [sorted(part, key=list(PLACES).index) for part in parts] == parts


def test_slides_without_a_position_and_without_a_size_are_listed_apart_or_stop() -> None:
    places = {"a": PLACES["row"], "b": [[0, 0], [256, 0]], "two": PLACES["two"], "lost": PLACES["row"]}
    predictions = slides_at(places, unknown=(2,))  # of "lost", whose rows come first
    skipped: list[str] = []
    unsized: list[str] = []
    found = [patches.slide for patches in patches_by_slide(predictions, skipped=skipped, unsized=unsized)]
    assert found == ["a", "b"]
    assert len(skipped) == len(unsized) == 1
    assert "slide 'lost': expected a position of every patch, got 1 of 3 patches without" in skipped[0]
    wanted = "got 2 patches on no grid, beside slides with patches of 256, 512 level-0 pixels"
    assert unsized[0].startswith("slide 'two'") and wanted in unsized[0]
    with pytest.raises(DataError, match="slide 'two'"):
        list(patches_by_slide(predictions, skipped=[]))
    with pytest.raises(DataError, match="slide 'lost'"):
        list(patches_by_slide(predictions, unsized=[]))
    with pytest.raises(DataError, match="slide 'lone'.* got one patch;"):
        list(patches_by_slide(slides_at({"lone": [[7, 7]]})))
    nowhere = slides_at({"a": PLACES["row"], "b": PLACES["row"]}, unknown=(0, 1, 2))
    assert patch_sizes(nowhere) == {"a": (512, FROM_GRID), "b": (512, FROM_OTHERS)}


def test_a_part_of_the_instances_may_have_no_positions_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where instances are stored in several files, of which one has no columns x and y."""
    by_bag = PredictionTable.by_bag

    def without_those_of_lone(table: PredictionTable) -> Iterator[tuple[str, PredictionTable]]:
        for slide, of_slide in by_bag(table):
            yield slide, replace(of_slide, coords=None) if slide == "lone" else of_slide

    monkeypatch.setattr(PredictionTable, "by_bag", without_those_of_lone)
    monkeypatch.setattr(PredictionTable, "parts", lambda table: (part for _, part in table.by_bag()))
    predictions, skipped = slides_at(PLACES), list[str]()
    assert patch_sizes(predictions)["lone"] == (512, FROM_OTHERS)
    found = [patches.slide for patches in patches_by_slide(predictions, skipped=skipped)]
    assert found == ["row", "two"] and "slide 'lone'" in skipped[0] and "1 of 1 patches without" in skipped[0]


def test_classes_are_called_by_name_or_number() -> None:
    predictions = slides_at(PLACES)
    for names, called in (
        (("normal", "tumour"), ["normal", "tumour"]),
        (("1", "x"), ["class 1", "x"]),
        (("a", "b", "c"), ["class 0", "class 1"]),  # not of this model
    ):
        assert class_names(replace(predictions, provenance=Provenance(classes=names))) == called
    known = ["normal", "class 2", "b, c", "2"]
    assert class_numbers(known, ["2", "normal", "normal"]) == [0, 3]
    assert class_numbers(known, ["b", "c"]) == [2]
    assert [class_number(["a", "class 2", "c"], name) for name in ("2", "class 2", "0")] == [1, 1, 0]
    assert class_number(["a", "b", "c"], "2") == 2
    with pytest.raises(ConfigError, match="class '3'"):
        class_number(["a", "b", "c"], "3")


def test_file_names_fit_a_file_system() -> None:
    assert file_names([" .a", "b c"], ".h5") == {" .a": "a.h5", "b c": "b c.h5"}
    assert file_names(["ä" * 118 + "b"], ".h5")
    for slide in ("ä" * 119, "x" * 238):
        with pytest.raises(DataError, match="at most 240 bytes, got 241 bytes"):
            file_names([slide], ".h5")
