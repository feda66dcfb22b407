"""Ragged reductions against a loop over bags, in value and gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from miue.bags import (
    Segments,
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
from miue.common.errors import DataError

ragged_sizes = st.one_of(
    st.lists(st.integers(1, 11), min_size=1, max_size=7),
    st.lists(st.just(1), min_size=1, max_size=7),
    st.tuples(st.just(1), st.integers(500, 700), st.just(2)).map(list),
    st.tuples(st.just(1), st.integers(1100, 1200)).map(list),  # large
)

REDUCTIONS: dict[str, tuple[Callable[..., Tensor], Callable[[Tensor], Tensor]]] = {
    "sum": (segment_sum, lambda part: part.sum(0, keepdim=True)),
    "mean": (segment_mean, lambda part: part.mean(0, keepdim=True)),
    "max": (segment_max, lambda part: part.max(0, keepdim=True).values),
    "logsumexp": (segment_logsumexp, lambda part: part.logsumexp(0, keepdim=True)),
    "softmax": (segment_softmax, lambda part: part.softmax(0)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@given(sizes=ragged_sizes)
def test_a_reduction_equals_a_loop_over_bags_in_value_and_gradient(name: str, sizes: list[int]) -> None:
    ragged, dense = REDUCTIONS[name]
    values = torch.randn(sum(sizes), 3, dtype=torch.float64, requires_grad=True)
    twin = values.detach().clone().requires_grad_()
    result = ragged(values, Segments.of(*sizes))
    expected = torch.cat([dense(part) for part in twin.split(sizes)])
    torch.testing.assert_close(result, expected)
    weights = torch.randn_like(result)
    (result * weights + 0 * values.sum()).sum().backward()  # a softmax over bags of one is constant
    (expected * weights).sum().backward()
    torch.testing.assert_close(values.grad, twin.grad)


@given(sizes=ragged_sizes)
def test_a_weighted_sum_equals_a_matrix_product_per_bag(sizes: list[int]) -> None:
    values = torch.randn(sum(sizes), 5, dtype=torch.float64)
    weights = torch.rand(sum(sizes), 2, dtype=torch.float64)
    result = segment_weighted_sum(values, weights, Segments.of(*sizes))
    expected = [w.T @ v for w, v in zip(weights.split(sizes), values.split(sizes), strict=True)]
    torch.testing.assert_close(result, torch.stack(expected))


def test_large_bags_take_the_matrix_product_and_give_the_same() -> None:
    sizes = [601, 700]
    values, weights = torch.randn(1301, 5, dtype=torch.float64), torch.rand(1301, 2, dtype=torch.float64)
    segments = Segments.of(*sizes)
    summed = segment_sum(weights.unsqueeze(2) * values.unsqueeze(1), segments)
    torch.testing.assert_close(segment_weighted_sum(values, weights, segments), summed)


@pytest.mark.parametrize("sizes", [[3, 1, 2], [601, 700]])
def test_products_with_the_keys_of_the_bag_equal_a_loop_over_bags_in_value_and_gradient(sizes: list[int]) -> None:
    values = torch.randn(sum(sizes), 5, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(len(sizes), 2, 5, dtype=torch.float64, requires_grad=True)
    result = segment_products(values, keys, Segments.of(*sizes))
    expected = torch.cat([part @ keys[row].T for row, part in enumerate(values.split(sizes))])
    torch.testing.assert_close(result, expected)
    weights = torch.randn_like(result)
    torch.testing.assert_close(
        torch.autograd.grad(result, (values, keys), weights),
        torch.autograd.grad(expected, (values, keys), weights),
    )


def test_sums_of_very_large_bags_lose_no_digits() -> None:
    equal = torch.full((1_000_000, 1), 0.1)
    assert segment_mean(equal, Segments.of(len(equal))).item() == pytest.approx(0.1, rel=1e-6)
    attention = segment_softmax(torch.randn(200_001, 2), Segments.of(200_000, 1))
    torch.testing.assert_close(attention[:-1].double().sum(0), torch.ones(2).double(), rtol=0, atol=1e-6)
    assert torch.zeros(1, 1).index_add(0, torch.zeros(len(equal), dtype=torch.int64), equal) > 100_900  # naive


@pytest.mark.parametrize("sizes", [[200_000], [200_000] + [1] * 500], ids=["one large bag", "among many of one"])
def test_gradients_of_attention_over_very_large_bags_lose_no_digits(sizes: list[int]) -> None:
    logits = torch.full((sum(sizes), 1), -60.0)  # pooled by an attention that is the same for all
    gradients = []
    for dtype in (torch.float32, torch.float64):
        scores = torch.zeros(sum(sizes), 1, dtype=dtype).requires_grad_()
        attention = segment_softmax(scores, Segments.of(*sizes))
        upstream = logits.to(dtype) + torch.arange(sum(sizes), dtype=dtype)[:, None].remainder(7)
        gradients.append(torch.autograd.grad(attention, scores, upstream)[0].double())
    single, double = (gradient / gradient.abs().amax() for gradient in gradients)
    torch.testing.assert_close(single, double, rtol=0, atol=1e-4)


def test_products_over_very_large_bags_lose_no_digits() -> None:
    segments, equal = Segments.of(500_000), torch.full((500_000, 2), 0.3)
    weights = torch.full((500_000, 1), 1 / 500_000)
    assert segment_weighted_sum(equal, weights, segments).flatten().tolist() == pytest.approx([0.3] * 2, rel=2e-4)
    keys = torch.ones(1, 1, 2, requires_grad=True)
    segment_products(equal, keys, segments).backward(weights)
    assert keys.grad is not None
    assert keys.grad.flatten().tolist() == pytest.approx([0.3] * 2, rel=2e-4)


@pytest.mark.parametrize("reduction", [segment_logsumexp, segment_softmax])
def test_scores_of_a_thousand_do_not_overflow(reduction: Callable[..., Tensor]) -> None:
    scores = torch.tensor([1000.0, 999.0, -1000.0], requires_grad=True)
    result = reduction(scores, Segments.of(2, 1))
    result.sum().backward()
    assert result.isfinite().all()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert not torch.tensor([1000.0]).exp().isfinite()  # the naive form fails


def test_the_argmax_is_the_first_of_equals_and_counts_in_the_flat_tensor() -> None:
    values = torch.tensor([[1.0], [5.0], [5.0], [-3.0], [-2.0]])
    assert segment_argmax(values, Segments.of(3, 2)).tolist() == [[1], [4]]
    large = torch.zeros(1301, 2)
    large[[7, 9, 700, 1300], [0, 0, 1, 1]] = 1.0
    assert segment_argmax(large, Segments.of(601, 700)).tolist() == [[7, 0], [601, 700]]


def test_offsets_index_and_repetition_agree() -> None:
    segments = Segments.of(2, 1, 3)
    assert segments.offsets.tolist() == [0, 2, 3, 6]
    assert segments.index.tolist() == [0, 0, 1, 2, 2, 2]
    assert per_instance(torch.tensor([7, 8, 9]), segments).tolist() == [7, 7, 8, 9, 9, 9]
    assert segments.singletons().sizes.tolist() == [1] * 6


def test_an_empty_bag_is_named() -> None:
    with pytest.raises(DataError, match="bag number 1"):
        Segments.of(2, 0, 1)
