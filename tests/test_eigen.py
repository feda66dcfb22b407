"""Eigenvectors are found where the fast algorithm fails."""

from __future__ import annotations

from typing import NoReturn

import pytest
import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

import miue
from miue.bags import BagDataset
from miue.common.tensors import symmetric_eigen
from miue.scores.principal_components import principal_components

LARGEST_WITHOUT_DIVISION = 25  # of which LAPACK's divide and conquer is QR iteration


def fail(matrix: Tensor) -> NoReturn:
    raise LinAlgError("linalg.eigh: The algorithm failed to converge")


@pytest.mark.parametrize("shape", [(6, 6), (2, 6, 6), (3, 2, 1, 1)])
def test_matrices_on_which_the_fast_algorithm_fails_are_solved(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    factors = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrices = factors @ factors.mT
    wanted = torch.linalg.eigh(matrices)
    monkeypatch.setattr(torch.linalg, "eigh", fail)
    values, vectors = symmetric_eigen(matrices)
    torch.testing.assert_close(values, wanted.eigenvalues)
    torch.testing.assert_close(vectors @ torch.diag_embed(values) @ vectors.mT, matrices)
    torch.testing.assert_close(vectors.mT @ vectors, torch.eye(shape[-1]).double().expand(shape))


def test_principal_components_of_features_most_of_which_are_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    features = torch.zeros(40, 64)
    features[:, ::16] = torch.randn(40, 4, generator=torch.Generator().manual_seed(1)).relu()
    _, wanted = principal_components(features, 8)
    monkeypatch.setattr(torch.linalg, "eigh", fail)
    _, found = principal_components(features, 8)
    assert found.shape == (64, 4)
    torch.testing.assert_close(found @ found.mT, wanted @ wanted.mT)


def test_a_matrix_that_is_not_finite_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.linalg, "eigh", fail)
    with pytest.raises(LinAlgError):
        symmetric_eigen(torch.full((30, 30), torch.nan))


@pytest.mark.parametrize("method", ["laplace", "sngp", "softmax"])
def test_a_training_ends_well_where_the_fast_algorithm_fails(
    method: str, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    distances = [] if method != "softmax" else ["knn", "reconstruction", "typicality", "vim"]
    fast, failed = torch.linalg.eigh, []

    def fail_on_large(matrices: Tensor) -> object:
        if matrices.shape[-1] <= LARGEST_WITHOUT_DIVISION:
            return fast(matrices)
        failed.append(matrices)
        return fail(matrices)

    monkeypatch.setattr(torch.linalg, "eigh", fail_on_large)
    settings = {"max_epochs": 1}
    model = miue.train(
        bags, method=method, settings={**settings, "distances": distances, "device": "cpu"}, progress=False
    )
    assert set(model.distances) == set(distances)
    assert failed
