"""A scikit-learn classifier of several labels of a bag: a classifier for each."""

from __future__ import annotations

from typing import Any, no_type_check

import numpy as np
from jaxtyping import Float64, Int8, Int64
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from miue.bags import GroupedRows, read_states
from miue.common.label_folders import of_label
from miue.sklearn.classifier import MILUncertaintyClassifier
from miue.sklearn.estimator import ROUTED, ROUTED_TO_FIT


class MILMultiLabelClassifier(ClassifierMixin, BaseEstimator):
    """Learn several labels of bags, of which a bag may have all, some or none, and some may be unknown.

    Each label has a classifier of its own in ``estimators_``, which learns from the bags whose label is known
    (binary relevance). Bags come in the two forms of ``BagEstimator``.

    Args:
        estimator: of each label; ``MILUncertaintyClassifier()`` if None.
    """

    __metadata_request__fit = ROUTED_TO_FIT
    __metadata_request__predict = ROUTED
    __metadata_request__predict_proba = ROUTED
    __metadata_request__score = ROUTED

    estimator: MILUncertaintyClassifier | None

    @no_type_check  # as scikit-learn wants it, nothing is checked before fit
    def __init__(self, estimator: MILUncertaintyClassifier | None = None) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any, *, bag_ids: Any = None, groups: Any = None) -> MILMultiLabelClassifier:
        """Train a classifier for each label.

        Args:
            X: bags, see the class.
            y: 1 or 0 for each bag (with ``bag_ids`` each row) and label, NaN or None where unknown; its columns
                name the labels where it is a data frame.
            bag_ids: the bag of each row of X.
            groups: as for ``MILUncertaintyClassifier``.

        Raises:
            DataError: other values, or a label that all or none of the bags have, which is named.
        """
        states, names = _states(y), getattr(y, "columns", None)
        X = list(X) if bag_ids is None else X
        labels = tuple(map(str, range(states.shape[1]) if names is None else names))
        estimators = []
        for name, column in zip(labels, states.T, strict=True):
            known = np.flatnonzero(column >= 0)
            of_rows = {"bag_ids": bag_ids, "groups": groups}
            given = {key: _safe_indexing(value, known) for key, value in of_rows.items() if value is not None}
            with of_label(name):
                base = MILUncertaintyClassifier() if self.estimator is None else clone(self.estimator)
                estimators.append(base.fit(_safe_indexing(X, known), column[known], **given))
        self.labels_, self.estimators_ = labels, estimators
        self.classes_ = [one.classes_ for one in estimators]
        return self

    def predict(self, X: Any, *, bag_ids: Any = None) -> Int64[np.ndarray, "B K"]:
        """Return 1 for each bag and label that the bag has more probably than not, else 0."""
        return np.stack([one.argmax(1) for one in self.predict_proba(X, bag_ids=bag_ids)], 1)

    def predict_proba(self, X: Any, *, bag_ids: Any = None) -> list[Float64[np.ndarray, "B 2"]]:
        """Return of each label the probabilities that each bag does not have it, and that it has it."""
        check_is_fitted(self)
        return [one.predict_proba(X, bag_ids=bag_ids) for one in self.estimators_]

    def predict_uncertainty(self, X: Any, *, bag_ids: Any = None) -> list[dict[str, Float64[np.ndarray, "B"]]]:
        """Return of each label every measure and distance score of each bag, higher where less certain."""
        check_is_fitted(self)
        return [one.predict_uncertainty(X, bag_ids=bag_ids) for one in self.estimators_]

    def score(self, X: Any, y: Any, *, bag_ids: Any = None) -> float:
        """Return the share of bags whose known labels are all predicted right; ``y`` is given as to ``fit``."""
        states = _states(y)
        if bag_ids is not None:
            states = GroupedRows.of(bag_ids).one_of_each(states, "y")
        return float(((self.predict(X, bag_ids=bag_ids) == states) | (states < 0)).all(1).mean())


def _states(y: Any) -> Int8[np.ndarray, "n K"]:
    cells = np.asarray(y, object)
    return read_states(cells, len(cells), cells.shape[1] if cells.ndim == 2 else 1)
