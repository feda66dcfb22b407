"""Scorers and splitters of scikit-learn that count bags, where X is one array of instances with ``bag_ids``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRequest, get_routing_for_object

from miue.bags import GroupedRows

PREDICT = ("predict", "predict_proba", "predict_log_proba", "decision_function")


class BagScorer:
    """Any scorer over bags: labels and weights of rows become those of bags, and predictions get ``bag_ids``.

    It needs metadata routing: ``sklearn.set_config(enable_metadata_routing=True)``.

    Args:
        scoring: name of a scorer of scikit-learn, or a scorer such as ``make_scorer`` returns.
    """

    def __init__(self, scoring: str | Callable[..., Any]) -> None:
        self.scoring = scoring

    def __call__(self, estimator: Any, X: Any, y: Any, *, bag_ids: Any, sample_weight: Any = None) -> float:
        """Return the score of an estimator, or a pipeline that ends in one.

        Args:
            estimator: fitted.
            X: instances of all bags.
            y: label of each row, the same in a bag.
            bag_ids: the bag of each row.
            sample_weight: of each row, likewise.

        Raises:
            DataError: rows of one bag that differ.
        """
        rows = GroupedRows.of(bag_ids)
        weights = (
            {} if sample_weight is None else {"sample_weight": _of_bags(rows, sample_weight, "sample_weight")}
        )
        score = get_scorer(self.scoring)(_WithBags(estimator, bag_ids), X, _of_bags(rows, y, "y"), **weights)
        return float(score)

    def get_metadata_routing(self) -> MetadataRequest:
        """Return what a search passes on to it."""
        request = MetadataRequest(owner=self)
        for name in ("bag_ids", "sample_weight"):
            request.score.add_request(param=name, alias=True)
        return request


class BagSplitter:
    """Any splitter over bags, whose rows stay together; it needs metadata routing.

    Args:
        cv: a splitter of scikit-learn, or a number of folds, stratified where labels are classes.
    """

    def __init__(self, cv: Any = 5) -> None:
        self.cv = cv

    def split(
        self, X: Any, y: Any = None, groups: Any = None, *, bag_ids: Any
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the rows to train and to test on, of a splitter that sees one entry for each bag.

        Raises:
            DataError: rows of one bag that differ in y or groups.
        """
        rows, splitter, given = self._over_bags(y, groups, bag_ids)
        for parts in splitter.split(*given):
            train, test = (np.flatnonzero(np.isin(rows.bag, bags)) for bags in parts)
            yield train, test

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None, *, bag_ids: Any) -> int:
        """Return how many splits there are."""
        _, splitter, given = self._over_bags(y, groups, bag_ids)
        return int(splitter.get_n_splits(*given))

    def _over_bags(self, y: Any, groups: Any, bag_ids: Any) -> tuple[GroupedRows, Any, tuple[Any, ...]]:
        rows = GroupedRows.of(bag_ids)
        labels = None if y is None else _of_bags(rows, y, "y")
        splitter = check_cv(self.cv, labels, classifier=True)
        by_group = groups is not None and get_routing_for_object(splitter).split.requests.get("groups")
        owners = _of_bags(rows, groups, "groups") if by_group else None  # others warn of them
        return rows, splitter, (np.zeros(len(rows.names)), labels, owners)

    def get_metadata_routing(self) -> MetadataRequest:
        """Return what a search passes on to it."""
        request = MetadataRequest(owner=self)
        for name in ("bag_ids", "groups"):
            request.split.add_request(param=name, alias=True)
        return request


class _WithBags:
    """An estimator whose predictions are of these bags."""

    def __init__(self, estimator: Any, bag_ids: Any) -> None:
        self._estimator, self._bag_ids = estimator, bag_ids

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._estimator, name)
        if name not in PREDICT:
            return found

        @wraps(found)
        def predict(X: Any) -> Any:
            return found(X, bag_ids=self._bag_ids)

        return predict


def _of_bags(rows: GroupedRows, values: Any, what: str) -> np.ndarray:
    return rows.one_of_each(np.asarray(values), what)
