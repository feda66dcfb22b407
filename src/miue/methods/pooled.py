"""Baselines of scikit-learn on the mean, maximum and standard deviation of a bag's features."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from miue.bags import BagBatch
from miue.common.errors import ConfigError, out_of_range
from miue.common.returned import class_name
from miue.common.tensors import in_double
from miue.common.values import Width
from miue.distributions import Categorical, Draws, PredictiveDistribution
from miue.methods.base import BAG_OF_ONE
from miue.methods.softmax import EmbeddingMethod
from miue.networks import MILNetwork
from miue.networks.pooling import PooledNetwork

INNER_FOLDS = 5  # by which the penalty of the regression is chosen
PENALTIES = np.logspace(-4, 2, 13)  # C of scikit-learn, for statistics of unit variance
NEVER = 30.0  # log-odds that are as good as none: of a class without a training bag, and of bags far beyond others
AT_ONCE = 2**22  # leaves that are looked up together


class PooledMethod(EmbeddingMethod):
    """A classifier of the statistics of a bag, fitted at once; T is that of a bag of one.

    Args:
        network: "pooled", whose embedding are the statistics.

    Raises:
        ConfigError: another network.
    """

    estimators: tuple[str, ...] = (BAG_OF_ONE,)
    takes: ClassVar[dict[str, str]] = {"network": "pooled", "encoder": "identity"}
    is_fitted_at_once: ClassVar[bool] = True
    takes_censoring = False

    def __init__(self, network: MILNetwork, *, name: str) -> None:
        if not isinstance(network, PooledNetwork):
            fix, got = "leave the network out, or choose method 'softmax'", class_name(network)
            raise ConfigError(item=f"method {name!r}", wanted="network 'pooled'", got=got, fix=fix)
        super().__init__(network, name=name)

    def statistics(self, batches: Iterable[BagBatch]) -> tuple[Float[np.ndarray, "B K"], Int64[np.ndarray, "B"]]:
        """Return the statistics and the class of each bag."""
        pairs = [(self.bag_scores(batch).logits.cpu().numpy(), batch.labels.cpu().numpy()) for batch in batches]
        statistics, labels = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        return statistics, labels


class PooledLogistic(PooledMethod):
    """Logistic regression with an L2 penalty on standardized statistics; it is the network's linear head.

    The penalty is that of the lowest log loss over five stratified folds of the training bags.

    Args:
        network: "pooled".
    """

    def __init__(self, network: MILNetwork) -> None:
        super().__init__(network, name="pooled-logistic")

    def distribution(self, logits: Float[Tensor, "n E"]) -> PredictiveDistribution:
        """Return the softmax of the regression; ``logits`` are statistics. No log-odds are below −``NEVER``."""
        found = self.logits(logits)
        return Categorical.of_logits((found - found.amax(1, keepdim=True)).clamp(min=-NEVER))

    @torch.no_grad()
    def fit_after_training(self, batches: Iterable[BagBatch]) -> None:
        """Fit the regression to the training bags; weights are those of statistics that are not standardized."""
        statistics, labels = self.statistics(batches)
        statistics = statistics.astype(np.float64)
        center, scale = statistics.mean(0), statistics.std(0)
        scale[scale <= np.finfo(np.float32).eps * np.abs(statistics).max(0)] = np.inf  # constant but for rounding
        fitted = _regression((statistics - center) / scale, labels)
        weight = fitted.coef_ / scale
        bias = fitted.intercept_ - weight @ center
        if len(fitted.classes_) == 2:  # scikit-learn has one row for two classes
            weight, bias = np.concatenate([-weight / 2, weight / 2]), np.concatenate([-bias / 2, bias / 2])
        head = self.network.last_layer
        rows, weights = torch.from_numpy(fitted.classes_), head.get_parameter("weight")
        weights.zero_()[rows] = torch.from_numpy(weight).to(weights)
        head.get_parameter("bias").fill_(bias.min() - NEVER)[rows] = torch.from_numpy(bias).to(weights)


class PooledForest(PooledMethod):
    """A random forest on statistics; its trees are draws, whose disagreement is epistemic.

    A leaf has the shares of the training bags in it, with one bag more that is of each class to equal parts, so
    that no probability is 0. Trees are kept as arrays: children and feature of each node, its threshold, and the
    shares of each leaf.

    Reference: Breiman 2001; Shaker & Hüllermeier 2020, for its uncertainty.

    Args:
        network: "pooled".
        trees: number of trees.
        leaves: most leaves of a tree, at least 2.
    """

    nodes: Tensor
    thresholds: Tensor
    shares: Tensor

    def __init__(self, network: MILNetwork, *, trees: Width = 300, leaves: Width = 64) -> None:
        super().__init__(network, name="pooled-forest")
        if leaves < 2:
            raise out_of_range("option 'method.leaves'", "at least 2", leaves)
        self.leaves = leaves
        size = 2 * leaves - 1
        self.register_buffer("nodes", torch.zeros(trees, size, 3, dtype=torch.int32))
        self.register_buffer("thresholds", torch.zeros(trees, size, dtype=torch.float64))
        self.register_buffer("shares", torch.full((trees, size, network.num_classes), 1 / network.num_classes))

    def logits(self, embedding: Float[Tensor, "n E"]) -> Float[Tensor, "n C"]:
        """Return the log of the mean probabilities."""
        return self.distribution(embedding).probabilities.log().to(embedding.dtype)

    def distribution(self, logits: Float[Tensor, "n E"]) -> PredictiveDistribution:
        """Return mean and expected entropy over the trees; ``logits`` are statistics."""
        statistics, trees = logits.float(), torch.arange(len(self.nodes), device=logits.device)
        parts = []
        for rows in statistics.split(max(1, AT_ONCE // self.shares[:, 0].numel())):
            node = torch.zeros(len(rows), len(trees), dtype=torch.long, device=rows.device)
            for _ in range(self.leaves):  # a tree is not deeper; a leaf is its own child
                left, right, feature = self.nodes[trees, node].long().unbind(-1)
                following = torch.where(rows.gather(1, feature) <= self.thresholds[trees, node], left, right)
                if torch.equal(following, node):
                    break
                node = following
            p = in_double(self.shares[trees, node])
            parts.append(Draws(p.mean(1), -(p * p.log()).sum(-1).mean(1)))
        return Draws.concatenate(parts)

    @torch.no_grad()
    def fit_after_training(self, batches: Iterable[BagBatch]) -> None:
        """Grow the trees on the training bags; their seed is drawn from torch's generator."""
        from sklearn.ensemble import RandomForestClassifier

        statistics, labels = self.statistics(batches)
        seed = int(torch.randint(2**31 - 1, ()))
        forest = RandomForestClassifier(len(self.nodes), max_leaf_nodes=self.leaves, random_state=seed)
        forest.fit(statistics.astype(np.float32), labels)
        classes = self.shares.shape[-1]
        for number, grown in enumerate(forest.estimators_):
            tree, own = grown.tree_, np.arange(grown.tree_.node_count)
            is_leaf = tree.children_left < 0
            children = [np.where(is_leaf, own, side) for side in (tree.children_left, tree.children_right)]
            counts = np.full((len(own), classes), 1 / classes)
            counts[:, forest.classes_] += tree.value[:, 0] * tree.weighted_n_node_samples[:, None]
            nodes = np.stack([*children, np.where(is_leaf, 0, tree.feature)], 1)
            self.nodes[number, : len(own)] = torch.from_numpy(nodes)
            self.thresholds[number, : len(own)] = torch.from_numpy(tree.threshold.copy())
            self.shares[number, : len(own)] = torch.from_numpy(counts / counts.sum(1, keepdims=True))


def _regression(rows: Float[np.ndarray, "B K"], labels: Int64[np.ndarray, "B"]) -> Any:
    """Return scikit-learn's regression with the penalty of the lowest loss over inner folds, if there are any."""
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
    from threadpoolctl import threadpool_limits

    folds = int(min(INNER_FOLDS, np.unique(labels, return_counts=True)[1].min()))
    with warnings.catch_warnings(), threadpool_limits(1):  # threads wait for each other longer than they compute
        warnings.simplefilter("ignore")  # of iterations: the loss is flat where they do not suffice
        if folds < 2:
            return LogisticRegression(C=float(np.median(PENALTIES)), max_iter=500).fit(rows, labels)
        search = LogisticRegressionCV(
            Cs=PENALTIES, cv=folds, scoring="neg_log_loss", max_iter=500, use_legacy_attributes=False
        )
        return search.fit(rows, labels)
