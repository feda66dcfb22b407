"""The softmax of normally distributed logits, as the posterior of a last layer gives them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from miue.common.tensors import in_double
from miue.distributions.draws import Draws

NODES = 512  # of the trapezoidal rule for two classes
REACH = 8.0  # standard deviations on either side
DRAWS = 512  # of a Sobol sequence for more classes
ROWS = 2048  # predictions integrated at once


def contrast_basis(num_classes: int) -> Float[Tensor, "C K"]:
    """Return an orthonormal basis U of the K = C − 1 directions of logits that a softmax depends on.

    >>> contrast_basis(2).flatten().tolist()
    [0.7071067811865475, -0.7071067811865475]
    """
    columns = torch.zeros(num_classes, num_classes - 1, dtype=torch.float64)
    for k in range(1, num_classes):
        columns[:k, k - 1], columns[k, k - 1] = 1.0, -float(k)
    return columns / columns.norm(dim=0)


def softmax_of_gaussian(logits: Float[Tensor, "n C"], covariance: Float[Tensor, "n K K"]) -> Draws:
    """Return E[p] and E[H(p)] of p = softmax(s), s normal with mean ``logits``.

    With two classes this is an integral over one dimension, computed by the trapezoidal rule with an error below
    1e-8 up to a standard deviation of 10 in the difference of the logits and below 1e-3 up to 60. With more it is
    the mean over 512 fixed points of a scrambled Sobol sequence, so that equal inputs give equal results. Compared
    with a million draws for three to six classes, probabilities were off by up to 0.001 and entropies by up to
    0.002 where the trace of the covariance is 4, and by up to 0.004 and 0.01 where it is 50.

    Reference: MacKay 1992, "The evidence framework applied to classification networks", Eq. 6 to 8, who
    approximates the same integral in closed form (probit).

    Args:
        logits: mean.
        covariance: of Uᵀs with U = ``contrast_basis(C)``, K = C − 1; positive semidefinite.

    >>> certain = softmax_of_gaussian(torch.tensor([[0.0, 2.0]]), torch.zeros(1, 1, 1))
    >>> round(certain.probabilities[0, 1].item(), 4), round(certain.mutual_information().item(), 6)
    (0.8808, 0.0)
    """
    means, covariances = in_double(logits), in_double(covariance)
    basis = contrast_basis(logits.shape[-1]).to(means.device)
    nodes, weights = _nodes(basis.shape[1])
    nodes, weights = nodes.to(means.device), weights.to(means.device)
    parts = []
    for mean, cov in zip(means.split(ROWS), covariances.split(ROWS), strict=True):
        values, vectors = torch.linalg.eigh(cov)
        root = vectors * values.clamp(min=0).sqrt().unsqueeze(-2)
        shifts = torch.einsum("ck,nkj,qj->nqc", basis, root, nodes)
        log_p = (mean.unsqueeze(1) + shifts).log_softmax(-1)
        p = log_p.exp()
        entropy = -(p * log_p).sum(-1)
        parts.append(Draws(torch.einsum("nqc,q->nc", p, weights), entropy @ weights))
    return Draws.concatenate(parts)


def _nodes(dimensions: int) -> tuple[Float[Tensor, "Q K"], Float[Tensor, "Q"]]:
    """Return points and weights of the expectation over a standard normal distribution."""
    if dimensions == 1:
        points = torch.linspace(-REACH, REACH, NODES, dtype=torch.float64)
        weights = (-(points**2) / 2).exp()
        return points.unsqueeze(1), weights / weights.sum()
    uniform = torch.quasirandom.SobolEngine(dimensions, scramble=True, seed=0).draw(DRAWS, dtype=torch.float64)
    points = torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9))
    points = points - points.mean(0)
    return points, torch.full((DRAWS,), 1 / DRAWS, dtype=torch.float64)
