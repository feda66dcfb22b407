"""Errors pass from one process to another."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import pytest

from miue.common.errors import DataError, MiueError
from miue.model.predict import NoReadableBag


def kinds(of: type[MiueError] = MiueError) -> Iterator[type[MiueError]]:
    """Yield an error and all that derive from it."""
    yield of
    for kind in of.__subclasses__():
        yield from kinds(kind)


@pytest.mark.parametrize("kind", sorted(set(kinds()) - {NoReadableBag}, key=str))
def test_an_error_comes_whole_out_of_another_process(kind: type[MiueError]) -> None:
    error = kind(item="bag 'a'", wanted="a label", got="none", fix="add it")
    error.add_note("in worker 3")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert str(again) == str(error) == "bag 'a': expected a label, got none; add it"
        assert (again.item, again.wanted, again.got, again.fix) == ("bag 'a'", "a label", "none", "add it")
        assert again.__notes__ == ["in worker 3"]


def test_so_does_one_with_a_constructor_of_its_own() -> None:
    again = pickle.loads(pickle.dumps(NoReadableBag("the shards", "a: damaged")))
    assert isinstance(again, NoReadableBag) and again.got == "none (a: damaged)"


@pytest.mark.long
def test_a_worker_of_joblib_hands_over_the_error_that_a_bag_is_to_blame_for() -> None:
    from joblib import Parallel, delayed

    with pytest.raises(DataError, match="bag 'a': expected a label"):
        Parallel(n_jobs=2)([delayed(_fail)() for _ in range(2)])


def _fail() -> None:
    raise DataError(item="bag 'a'", wanted="a label", got="none", fix="add it")
