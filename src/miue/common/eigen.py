"""Eigenvectors of symmetric matrices, also of those on which the fast algorithm fails."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def symmetric_eigen(
    matrices: Float[Tensor, "*batch D D"],
) -> tuple[Float[Tensor, "*batch D"], Float[Tensor, "*batch D D"]]:
    """Return the eigenvalues, ascending, and the orthonormal eigenvectors, as columns, of symmetric matrices.

    PyTorch calls LAPACK's divide and conquer, which does not converge on some matrices of many rows that are zero,
    such as the covariance of features most of which a ReLU switched off. QR iteration does, and takes longer.

    Raises:
        torch.linalg.LinAlgError: the algorithm fails on a matrix that is not finite.

    >>> symmetric_eigen(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))[0].tolist()
    [1.0, 2.0]
    """
    try:
        values, vectors = torch.linalg.eigh(matrices)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        if not matrices.isfinite().all():
            raise
        from scipy.linalg import eigh

        each = [eigh(one, driver="ev") for one in matrices.reshape(-1, *matrices.shape[-2:]).cpu().numpy()]
        values, vectors = (torch.from_numpy(np.stack(parts)).to(matrices) for parts in zip(*each, strict=True))
        values, vectors = values.reshape(matrices.shape[:-1]), vectors.reshape(matrices.shape)
    return values, vectors
