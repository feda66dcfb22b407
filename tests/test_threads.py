"""Items computed in threads give what they give one after another, and PyTorch is left as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from miue.common.devices import in_threads


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [0, 1, 2, 23])
def test_results_are_in_the_order_of_the_items(threads: int, count: int) -> None:
    assert list(in_threads(lambda item: item * item, range(count))) == [item * item for item in range(count)]
    assert torch.get_num_threads() == threads


def test_each_item_is_computed_by_one_thread_without_gradients(threads: int) -> None:
    weights, meeting = torch.ones(2, requires_grad=True), threading.Barrier(threads, timeout=60)

    def work(item: int) -> tuple[int, bool]:
        meeting.wait()  # fails unless as many items as threads are computed at once
        return torch.get_num_threads(), (item * weights).requires_grad

    assert list(in_threads(work, range(2 * threads))) == [(1, False)] * 2 * threads
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


def test_the_first_error_is_raised_and_pytorch_left_as_it_was(threads: int) -> None:
    def work(item: int) -> int:
        if item > 4:
            raise ValueError(str(item))
        return item

    with pytest.raises(ValueError, match="^5$"):
        list(in_threads(work, range(23)))
    assert torch.get_num_threads() == threads
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("computing")]


def test_a_thread_that_begins_later_has_all_threads_again(threads: int) -> None:
    list(in_threads(lambda item: item, range(4)))
    found: list[int] = []
    later = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert found == [threads]
