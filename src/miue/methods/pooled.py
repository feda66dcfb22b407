"""Baselines of scikit-learn on the mean, maximum and standard deviation of a bag's features."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from miue.bags.segments import BagBatch
from miue.common.double_precision import in_double
from miue.common.errors import ConfigError, out_of_range
from miue.common.returned import class_name
from miue.common.values import Width
from miue.distributions import Categorical, Draws, PredictiveDistribution
from miue.methods.base import BAG_OF_ONE, Method
from miue.networks import MILNetwork
from miue.networks.pooling import PooledNetwork

INNER_FOLDS = 5  # by which the penalty of the regression is chosen
PENALTIES = np.logspace(-4, 2, 13)  # C of scikit-learn, for statistics of unit variance


class PooledMethod(Method):
    """A classifier of the statistics of a bag, fitted at once; T is that of a bag of one.

    Args:
        network: "pooled".

    Raises:
        ConfigError: another network.
    """

    estimators: tuple[str, ...] = (BAG_OF_ONE,)
    takes: ClassVar[dict[str, str]] = {"network": "pooled", "encoder": "identity"}
    is_fitted_at_once: ClassVar[bool] = True

    def __init__(self, network: MILNetwork) -> None:
        super().__init__(network)
        if not isinstance(network, PooledNetwork):
            fix = "leave the network out, or choose method 'softmax'"
            got = class_name(network)
            raise ConfigError(item="a method on pooled features", wanted="network 'pooled'", got=got, fix=fix)

    def loss(self, batch: BagBatch, epoch: int) -> Float[Tensor, ""]:
        """Return the mean negative log-likelihood of the bags, which nothing minimizes step by step."""
        log_p = self.bag_log_probabilities(batch)
        return -log_p.gather(1, batch.labels.unsqueeze(1)).mean()

    def log_probabilities(self, logits: Float[Tensor, "n K"]) -> Float[Tensor, "n C"]:
        """Return the log of the probabilities; ``logits`` are statistics."""
        return self.distribution(logits).probabilities.log()

    def instance_logits(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
        """Return the log of the probabilities of each instance."""
        return self.log_probabilities(super().instance_logits(features)).to(features.dtype)

    @torch.no_grad()
    def fit_after_training(self, batches: Iterable[BagBatch]) -> None:
        """Fit the classifier to the statistics of the training bags."""
        pairs = [(self.bag_scores(batch).logits.cpu().numpy(), batch.labels.cpu().numpy()) for batch in batches]
        statistics, labels = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        self.fit_statistics(statistics.astype(np.float64), labels)

    @abstractmethod
    def fit_statistics(self, statistics: Float64[np.ndarray, "B K"], labels: Int64[np.ndarray, "B"]) -> None:
        """Fit the classifier and keep it in buffers.

        Args:
            statistics: of each training bag, the K = 3D numbers of ``PooledNetwork``.
            labels: class of each.
        """


class PooledLogistic(PooledMethod):
    """Logistic regression with an L2 penalty on standardized statistics, chosen by inner folds.

    The penalty is that of the lowest log loss over five stratified folds of the training bags.

    Args:
        network: "pooled".
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, network: MILNetwork) -> None:
        super().__init__(network)
        self.register_buffer("weight", torch.zeros(network.num_classes, network.score_width, dtype=torch.float64))
        self.register_buffer("bias", torch.zeros(network.num_classes, dtype=torch.float64))

    def logits(self, statistics: Float[Tensor, "n K"]) -> Float[Tensor, "n C"]:
        """Return the log-odds of each class, up to a constant."""
        return in_double(statistics) @ in_double(self.weight).T + in_double(self.bias)

    def distribution(self, logits: Float[Tensor, "n K"]) -> PredictiveDistribution:
        """Return the probabilities; ``logits`` are statistics."""
        return Categorical.of_logits(self.logits(logits))

    def log_probabilities(self, logits: Float[Tensor, "n K"]) -> Float[Tensor, "n C"]:
        """Return the log of the probabilities; ``logits`` are statistics."""
        return self.logits(logits).log_softmax(-1)

    def fit_statistics(self, statistics: Float64[np.ndarray, "B K"], labels: Int64[np.ndarray, "B"]) -> None:
        """Fit the regression; weights are those of statistics that are not standardized."""
        from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

        center, scale = statistics.mean(0), statistics.std(0)
        scale[scale <= np.finfo(np.float32).eps * np.abs(statistics).max(0)] = np.inf  # constant but for rounding
        rows, folds = (statistics - center) / scale, min(INNER_FOLDS, np.bincount(labels)[np.unique(labels)].min())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of iterations: the loss is flat there, and any of them will do
            if folds < 2:
                fitted = LogisticRegression(C=float(np.median(PENALTIES)), max_iter=500).fit(rows, labels)
            else:
                search = LogisticRegressionCV(
                    Cs=PENALTIES, cv=int(folds), scoring="neg_log_loss", max_iter=500, use_legacy_attributes=False
                )
                fitted = search.fit(rows, labels)
        weight, bias = fitted.coef_ / scale, fitted.intercept_
        bias = bias - weight @ center
        if len(fitted.classes_) == 2:  # scikit-learn has one row for two classes
            weight, bias = np.concatenate([-weight / 2, weight / 2]), np.concatenate([-bias / 2, bias / 2])
        self.bias.fill_(-np.inf if len(fitted.classes_) < len(self.bias) else 0.0)
        self.weight.zero_()
        self.weight[fitted.classes_] = torch.from_numpy(weight).to(self.weight)
        self.bias[fitted.classes_] = torch.from_numpy(bias).to(self.bias)


class PooledForest(PooledMethod):
    """A random forest on statistics; its trees are draws, whose disagreement is epistemic.

    A leaf has the shares of the training bags in it, with one bag more that is of each class to equal parts, so
    that no probability is 0. Trees are kept as arrays: children and feature of each node, its threshold, and the
    shares of each leaf.

    Reference: Breiman 2001; Shaker & Hüllermeier 2020, for its uncertainty.

    Args:
        network: "pooled".
        trees: number of trees.
        leaves: most leaves of a tree.
    """

    nodes: Tensor
    thresholds: Tensor
    shares: Tensor

    def __init__(self, network: MILNetwork, *, trees: Width = 300, leaves: Width = 64) -> None:
        super().__init__(network)
        if leaves < 2:
            raise out_of_range("option 'method.leaves'", "at least 2", leaves)
        self.leaves = leaves
        size = 2 * leaves - 1
        self.register_buffer("nodes", torch.zeros(trees, size, 3, dtype=torch.int32))
        self.register_buffer("thresholds", torch.zeros(trees, size, dtype=torch.float64))
        self.register_buffer("shares", torch.full((trees, size, network.num_classes), 1 / network.num_classes))

    def distribution(self, logits: Float[Tensor, "n K"]) -> PredictiveDistribution:
        """Return mean and expected entropy over the trees; ``logits`` are statistics."""
        statistics, trees = logits.float(), torch.arange(len(self.nodes), device=logits.device)
        parts = []
        for rows in statistics.split(max(1, 2**22 // self.shares[:, 0].numel())):
            node = torch.zeros(len(rows), len(trees), dtype=torch.long, device=rows.device)
            for _ in range(self.leaves):  # a tree is not deeper; a leaf is its own child
                left, right, feature = self.nodes[trees, node].long().unbind(-1)
                goes_left = rows.gather(1, feature) <= self.thresholds[trees, node]
                following = torch.where(goes_left, left, right)
                if torch.equal(following, node):
                    break
                node = following
            p = in_double(self.shares[trees, node])
            parts.append(Draws(p.mean(1), -(p * p.log()).sum(-1).mean(1)))
        return Draws.concatenate(parts)

    def fit_statistics(self, statistics: Float64[np.ndarray, "B K"], labels: Int64[np.ndarray, "B"]) -> None:
        """Grow the trees; their randomness is that of torch's generator, which the training seeds."""
        from sklearn.ensemble import RandomForestClassifier

        seed = int(torch.randint(2**31 - 1, ()))
        forest = RandomForestClassifier(len(self.nodes), max_leaf_nodes=self.leaves, random_state=seed)
        forest.fit(statistics.astype(np.float32), labels)
        classes = self.shares.shape[-1]
        for number, grown in enumerate(forest.estimators_):
            tree, own = grown.tree_, np.arange(grown.tree_.node_count)
            is_leaf = tree.children_left < 0
            children = [np.where(is_leaf, own, side) for side in (tree.children_left, tree.children_right)]
            feature = np.where(is_leaf, 0, tree.feature)
            counts = np.full((len(own), classes), 1 / classes)
            counts[:, forest.classes_] += tree.value[:, 0] * tree.weighted_n_node_samples[:, None]
            self.nodes[number, : len(own)] = torch.from_numpy(np.stack([*children, feature], 1))
            self.thresholds[number, : len(own)] = torch.from_numpy(tree.threshold.copy())
            self.shares[number, : len(own)] = torch.from_numpy(counts / counts.sum(1, keepdims=True))
