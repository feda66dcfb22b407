"""Parts of predictions that are others than were written are refused by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from made_parts import ragged
from pyarrow import parquet
from sealed_files import seal_again

from miue.common.errors import MiueError, StorageError
from miue.common.files import file_sha256
from miue.predictions import read_predictions


def missing(folder: Path) -> None:
    (folder / "part-00001.parquet").unlink()


def truncated(folder: Path) -> None:
    path = folder / "part-00001.parquet"
    path.write_bytes(path.read_bytes()[:-9])


def copied(folder: Path) -> None:
    shutil.copy(folder / "part-00000.parquet", folder / "part-00003.parquet")


def exchanged(folder: Path) -> None:
    """Bags of equal content but their names make files of one size."""
    shutil.copy(folder / "part-00000.parquet", folder / "part-00001.parquet")


def of_another_run(folder: Path) -> None:
    ragged([5, 5, 5], seed=1).save(folder.parent.parent / "other")
    shutil.copy(folder.parent.parent / "other" / "instances" / "part-00001.parquet", folder)


def changed(folder: Path) -> None:
    path = folder / "part-00001.parquet"
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (missing, r"part-00001.parquet': expected a file that predictions.json lists, got none"),
        (truncated, r"part-00001.parquet': .* got another: it was changed, or is of another folder"),
        (copied, r"part-00003.parquet': .* got one that it does not list; remove it"),
        (exchanged, r"part-00001.parquet': .* got another"),
        (of_another_run, r"part-00001.parquet': .* got another"),
        (changed, r"part-00001.parquet': .* got another"),
    ],
)
def test_a_part_that_is_not_the_one_that_was_written_is_named(
    damage: Callable[[Path], None], said: str, tmp_path: Path, short_parts: None
) -> None:
    ragged([5, 5, 5]).save(tmp_path / "p")
    damage(tmp_path / "p" / "instances")
    with pytest.raises(StorageError, match=said):
        for part in read_predictions(tmp_path / "p").instances.parts():  # type: ignore[union-attr]
            assert len(part)


def test_a_truncated_part_is_named_before_anything_is_computed(tmp_path: Path, short_parts: None) -> None:
    ragged([5, 5, 5]).save(tmp_path / "p")
    truncated(tmp_path / "p" / "instances")
    with pytest.raises(StorageError, match=r"part-00001.parquet': .* got another"):
        read_predictions(tmp_path / "p")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["provenance"].update(classes=["a", "b", "a"]), "the class 'a' twice"),
        (lambda c: c["parts"][0].update(file="../bags.csv"), "pattern"),
        (
            lambda c: c["parts"][1].update(bags={"unknown": 5}),
            "bag 'unknown': expected a bag that the table of bags",
        ),
    ],
)
def test_a_list_of_parts_that_does_not_fit_is_named(
    change: Callable[[dict[str, Any]], object], said: str, tmp_path: Path, short_parts: None
) -> None:
    ragged([5, 5, 5]).save(tmp_path / "p")
    seal_again(tmp_path / "p" / "predictions.json", change)
    with pytest.raises(MiueError, match=said):
        read_predictions(tmp_path / "p")


def relisted(path: Path, table: pa.Table) -> None:
    """Put a table in the place of the only part, and list it as if miue had written it."""
    (file,) = (path / "instances").iterdir()
    parquet.write_table(table, file)
    facts = {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
    seal_again(path / "predictions.json", lambda content: content["parts"][0].update(facts))


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("alpha_0", [1.0, -1.0, 2.0], "row 2 of alpha"),
        ("alpha_0", ["a", "b", "c"], "expected a readable table"),
        ("alpha_0", [[1.0], [1.0], [1.0]], "expected a readable table"),
        ("label", [0, 1, 7], "expected a class index from 0 to 2"),
        ("instance", [0, None, 2], "column 'instance': expected a whole number"),
        ("score_knn", [0.5, float("nan"), 2.0], "column 'score_knn': expected a finite number"),
        ("x", [0.0, 1e300, 2.0], "at most 2.53 from 0"),
    ],
)
def test_values_that_no_prediction_has_are_named(
    column: str, values: list[Any], said: str, tmp_path: Path
) -> None:
    ragged([3]).save(tmp_path / "p")
    (file,) = (tmp_path / "p" / "instances").iterdir()
    table = parquet.read_table(file)
    kept = table.drop_columns([column]) if column in table.column_names else table
    kept = kept.append_column("y", pa.array([1.0] * 3)) if column == "x" else kept
    relisted(tmp_path / "p", kept.append_column(column, pa.array(values)))
    with pytest.raises(MiueError, match=said):
        len(read_predictions(tmp_path / "p").instances.bag_ids)  # type: ignore[union-attr]


def test_a_part_with_fewer_rows_than_listed_is_named(tmp_path: Path) -> None:
    ragged([3, 4]).save(tmp_path / "p")
    (file,) = (tmp_path / "p" / "instances").iterdir()
    relisted(tmp_path / "p", parquet.read_table(file).slice(0, 6))
    with pytest.raises(StorageError, match="part-00000.parquet.*expected 7 rows, got 6"):
        len(read_predictions(tmp_path / "p").instances.bag_ids)  # type: ignore[union-attr]


def test_a_folder_without_its_parts_is_named(tmp_path: Path) -> None:
    ragged([3, 4]).save(tmp_path / "p")
    shutil.rmtree(tmp_path / "p" / "instances")
    with pytest.raises(StorageError, match="part-00000.parquet': expected a file that .* got none"):
        read_predictions(tmp_path / "p")
