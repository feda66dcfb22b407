"""What the scikit-learn estimators of bags share: the forms of bags, parameters, and the training."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float64
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from miue.bags import BagDataset, GroupedRows
from miue.bags.arrays import check_unmasked
from miue.bags.frames import check_columns, frame_columns, read_columns
from miue.bags.from_python import as_objects, fields_of_arrays
from miue.bags.rows import row_count
from miue.common.errors import DataError
from miue.common.text import plural
from miue.common.values import Option, is_matrix
from miue.model import DistanceLike, Model, PartLike, Recipe
from miue.predictions import Predictions, PredictionTable, uncertainty_column
from miue.settings import RunSettings
from miue.training import Job, Run, train_job

NESTED = ("options", "settings")
"""Parameters whose entries can be searched over."""
ROUTED = {"bag_ids": True}
ROUTED_TO_FIT = {"bag_ids": True, "groups": True}
"""What searches and pipelines of scikit-learn pass on to an estimator, where metadata routing is on."""
Fitted = TypeVar("Fitted", bound="BagEstimator")


class BagEstimator(BaseEstimator):
    """An estimator of bags, which come in one of two forms, the same for every method.

    Without ``bag_ids``, X is a sequence of bags, each an array (n, D) or (n, H, W[, channels]), and y and groups
    have one entry per bag. With ``bag_ids``, X is one array of all instances and bag_ids, y and groups have one
    entry per row, equal within a bag; bags are in order of first appearance. Results have one entry per bag.
    """

    __metadata_request__fit = ROUTED_TO_FIT
    __metadata_request__predict = ROUTED
    __metadata_request__predict_proba = ROUTED
    __metadata_request__predict_log_proba = ROUTED
    __metadata_request__decision_function = ROUTED
    __metadata_request__score = ROUTED

    network: PartLike
    method: PartLike
    encoder: PartLike
    options: Mapping[str, Option] | None
    distances: Sequence[DistanceLike]
    random_state: int | np.random.RandomState | None
    device: str
    verbose: bool

    def predict_uncertainty(self, X: Any, *, bag_ids: Any = None) -> dict[str, Float64[np.ndarray, "B"]]:
        """Return every measure and distance score of each bag by column name, higher where less certain."""
        return uncertainties_of(self._predictions(X, bag_ids).bags)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; where ``deep``, the entries of options and settings by themselves as well."""
        parameters: dict[str, Any] = super().get_params(deep=deep)
        for name in NESTED if deep else ():
            if isinstance(entries := parameters.get(name), Mapping):
                parameters.update({f"{name}__{entry}": value for entry, value in entries.items()})
        return parameters

    def set_params(self, **params: Any) -> BagEstimator:
        """Set parameters, such as network or max_epochs or ``options__network.hidden``."""
        nested = {key: value for key, value in params.items() if key.partition("__")[0] in NESTED and "__" in key}
        super().set_params(**{key: value for key, value in params.items() if key not in nested})
        for key, value in nested.items():
            name, _, entry = key.partition("__")
            setattr(self, name, {**(getattr(self, name) or {}), entry: value})
        return self

    def fit(self: Fitted, X: Any, y: Any, *, bag_ids: Any = None, groups: Any = None) -> Fitted:
        """Train on labeled bags; a share of them is held out for early stopping.

        A fit that fails, or is interrupted, leaves the estimator as it was: unfitted, or with its earlier model.

        Args:
            X: bags, see the class.
            y: class labels of any type that scikit-learn sorts; numbers; or two columns, time and event.
            bag_ids: the bag of each row of X.
            groups: such as patients, never divided between learning and early stopping; None where unknown.

        Raises:
            DataError: bags, labels or groups that cannot be used.
            ConfigError: a parameter that does not exist or has no such value.
        """
        before = self.__dict__.copy()
        try:
            self._fit(X, y, bag_ids, groups)
        except BaseException:
            self.__dict__ = before
            raise
        return self

    @abstractmethod
    def _fit(self, X: Any, y: Any, bag_ids: Any, groups: Any) -> None:
        """Read the labels, and train."""

    def _instances(self, X: Any, bag_ids: Any) -> tuple[GroupedRows | None, list[Any]]:
        """Return the rows of each bag, None where X is a list of bags, and the instances of each bag."""
        rows = None if bag_ids is None else GroupedRows.of(bag_ids)
        return rows, self._bags(X, rows, first_seen=True)

    def _dataset(
        self, instances: list[Any], rows: GroupedRows | None, groups: Any, labels: Any, class_names: Sequence[str]
    ) -> BagDataset:
        """Return the bags to train on."""
        fields = fields_of_arrays(
            instances,
            labels,
            ids=None if rows is None else rows.names,
            patients=None if groups is None else _groups_of_bags(groups, rows, len(instances)),
            class_names=class_names,
            feature_names=() if rows is None else tuple(map(str, getattr(self, "feature_names_in_", ()))),
        )
        dataset = BagDataset.packed(**fields)
        if rows is None and dataset.feature_names:
            self.feature_names_in_ = np.array(dataset.feature_names, object)
        self.n_features_in_ = int(np.prod(dataset.instance_shape))
        return dataset

    def _train(self, dataset: BagDataset, settings: Mapping[str, Any]) -> None:
        parts = (self.network, self.method, self.encoder)
        values = {name: _plain(value) for name, value in settings.items()}
        chosen = {name: value for name, value in values.items() if value is not None} | {"seed": self._seed()}
        recipe = Recipe(*parts, {} if self.options is None else self.options, self.distances, chosen)
        run = Run(None, RunSettings.of(device=self.device), progress=bool(self.verbose))
        self.model_: Model = train_job(Job(recipe, dataset), run)
        self.n_iter_ = self.model_.training.epochs

    def _predictions(self, X: Any, bag_ids: Any) -> Predictions:
        check_is_fitted(self)
        rows = None if bag_ids is None else GroupedRows.of(bag_ids)
        bags = BagDataset.from_arrays(
            self._bags(X, rows, first_seen=False), ids=None if rows is None else rows.names
        )
        return self.model_.predict(bags, device=self.device)

    def _bags(self, X: Any, rows: GroupedRows | None, *, first_seen: bool) -> list[Any]:
        """Return one array per bag."""
        if rows is not None:
            check_columns(X, "X")
            check_unmasked(X, "X")
            instances = np.asarray(X) if isinstance(X, list | tuple) else X
            features = getattr(instances, "ndim", 2) <= 2  # a table of polars or Arrow has no ndim
            checked = validate_data(
                self,
                instances,
                reset=first_seen,
                ensure_2d=features,
                allow_nd=not features,
                ensure_all_finite=False,  # the bags are checked, and named
            )
            if checked.dtype == object and frame_columns(X):  # decimals of polars or Arrow
                checked = read_columns(X, frame_columns(X), np.float64, "X")
            return rows.split(checked)
        bags = None if _is_no_list(X) else list(X)
        if bags is None or (bags and _dimensions(bags[0]) < 2):
            raise DataError(
                item="X",
                wanted="a sequence of bags, each an array, or one array of instances with bag_ids",
                got=f"a value of type {type(X).__name__}" if bags is None else "instances without bag_ids",
                fix="miue.train and Model.predict take a BagDataset"
                if isinstance(X, BagDataset)
                else "pass bag_ids, the bag of each row, or a list with one array for each bag",
            )
        if first_seen:
            self.__dict__.pop("feature_names_in_", None)
        return bags

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))


def of_bags(values: np.ndarray, rows: GroupedRows | None, count: int, item: str = "y") -> np.ndarray:
    """Return one entry for each of ``count`` bags, of entries of rows where X is one array.

    Raises:
        DataError: not one for each, or rows of one bag that differ.
    """
    found = values if rows is None else rows.one_of_each(values, item)
    if len(found) != count:
        raise row_count(item, f"one for each of {plural(count, 'bag')}", str(len(found)))
    return found


def _groups_of_bags(groups: Any, rows: GroupedRows | None, count: int) -> list[Any]:
    """Return the group of each of ``count`` bags, None where unknown.

    Raises:
        DataError: not one for each bag, or each row of X, or a bag whose rows differ.
    """
    values = as_objects(groups, "groups")
    if rows is not None:
        values = rows.one_of_each(values, "groups")
    if len(values) != count:
        raise row_count("groups", f"one for each of {count} bags", str(len(values)))
    return list(values)


def _is_no_list(value: Any) -> bool:
    """Return whether a value has no bags in an order, such as a path, a dict, a matrix or a groupby of pandas."""
    if isinstance(value, str | bytes | Mapping | Set) or hasattr(value, "groups") or is_matrix(value):
        return True
    return getattr(value, "ndim", 1) == 0 or not (hasattr(value, "__iter__") or hasattr(value, "__getitem__"))


def _dimensions(bag: Any) -> int:
    """Return those of a bag, 2 where its rows differ in length, which is refused where bags are read."""
    try:
        return np.ndim(bag)
    except ValueError:
        return 2


def _plain(value: Any) -> Any:
    """Return a number of NumPy, as a search draws it, as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def uncertainties_of(table: PredictionTable) -> dict[str, Float64[np.ndarray, "n"]]:
    """Return measures and scores by the names of their columns in saved tables."""
    return {uncertainty_column(name): values for name, values in table.uncertainties().items()}
