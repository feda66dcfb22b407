"""What parts of others return and are called is checked, and named where it is wrong."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import parts_of_others as others
import pytest
import torch
from made_bags import build_network, train_one_epoch
from torch import nn

from miue.bags import BagDataset, Segments, segment_mean, segment_softmax
from miue.common.errors import ConfigError, ModelError
from miue.distributions import Categorical
from miue.methods import MCDropout, Softmax, check_distribution
from miue.methods.returned import check_projection
from miue.model.feature_scores import find_distance
from miue.networks import MILNetwork, Scores
from miue.networks.encoders import Encoder, Identity
from miue.scores import FeatureDistance


def test_two_distances_of_one_name_are_refused_before_training(bags: BagDataset) -> None:
    class Nearer(others.Farness):
        name = "knn"

    class FarnessAgain(others.Farness):
        pass

    for distances in (["knn", Nearer], [Nearer], ["combined", Nearer], [others.Farness, FarnessAgain]):
        with pytest.raises(ConfigError, match=r"'(knn|farness)': expected one of this name, got .*r b|Again b"):
            train_one_epoch(bags, distances=distances, settings={"max_epochs": 10**9})
    assert list(train_one_epoch(bags, distances=["knn", "knn", others.Farness]).distances) == ["knn", "farness"]


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("entropy", "'entropy', which is a measure of uncertainty"),
        ("probability", "'probability', which"),
        ("posterior_probability", "'posterior_probability', which"),
        ("knn.x", "'knn.x'"),
        ("", "''"),
        (None, "none"),
    ],
)
def test_the_name_of_a_distance_is_checked_before_training(name: str | None, got: str, bags: BagDataset) -> None:
    class Unnamed(FeatureDistance):
        state_names = ("mean",)

    kind = Unnamed if name is None else type("Named", (others.Farness,), {"name": name})
    with pytest.raises(ConfigError, match=f"distance '(Named|.*Unnamed)': .*'name'.*, got the name {got}"):
        train_one_epoch(bags, distances=[kind], settings={"max_epochs": 10**9})


class Odd(MILNetwork):
    """A network whose scores the test replaces."""

    def __init__(self, encoder: Any, num_classes: int) -> None:
        super().__init__(encoder, num_classes)
        self.head = nn.Linear(encoder.out_features, num_classes + 1)

    def project(self, features: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self.head(features),)

    def score(self, projection: Any, segments: Segments) -> Any:
        return Scores(segment_mean(projection[0], segments), None)


class Tensors(Odd):
    def score(self, projection: Any, segments: Segments) -> Any:
        return super().score(projection, segments).logits


class Rows(Odd):
    def score(self, projection: Any, segments: Segments) -> Any:
        return Scores(projection[0][:, :2], None)


class Integers(Odd):
    def score(self, projection: Any, segments: Segments) -> Any:
        return Scores(super().score(projection, segments).logits[:, :2].long(), None)


class Pooled(Odd):
    def project(self, features: torch.Tensor) -> Any:
        return (self.head(features).mean(0),)


class SaysAttention(Odd):
    has_attention = True

    def score(self, projection: Any, segments: Segments) -> Any:
        return Scores(segment_mean(projection[0], segments)[:, :2], None)


class Wider(Encoder):
    """An encoder whose features are not those that it states."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.layer, self.out_features = nn.Linear(in_features, 8), 5

    def forward(self, instances: torch.Tensor) -> Any:
        return self.layer(instances)


class FirstSeven(nn.Module):
    """A module that is right about few instances alone."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(in_features, 8)

    def forward(self, instances: torch.Tensor) -> Any:
        return self.layer(instances)[:7]


class Halved(FirstSeven):
    """A module that computes in half precision, as large encoders do."""

    def forward(self, instances: torch.Tensor) -> Any:
        return self.layer(instances).half()


@pytest.mark.parametrize(
    ("encoder", "said"),
    [
        (Wider, r"encoder 'Wider': expected features of shape \((\d+), 5\), got .* \(\1, 8\)"),
        (FirstSeven, r"encoder 'FirstSeven': expected features of shape \(\d+, 8\), got .* \(7, 8\)"),
    ],
)
def test_an_encoder_that_returns_other_than_a_vector_per_instance_is_named(
    bags: BagDataset, encoder: Any, said: str
) -> None:
    with pytest.raises(ModelError, match=said):
        train_one_epoch(bags, encoder=encoder, settings={"max_epochs": 1})


class Unsaid(Encoder):
    """An encoder that does not say how many features it has."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(in_features, 8)

    def forward(self, instances: torch.Tensor) -> Any:
        return self.layer(instances)


class SaysText(Unsaid):
    def __init__(self, in_features: int) -> None:
        super().__init__(in_features)
        self.out_features = "8"  # type: ignore[assignment]


@pytest.mark.parametrize(("encoder", "got"), [(Unsaid, "none"), (SaysText, "'8'")])
def test_an_encoder_says_how_many_features_it_has(bags: BagDataset, encoder: Any, got: str) -> None:
    said = f"encoder '.*{encoder.__name__}': expected an attribute out_features, .*got {got}; set self"
    with pytest.raises(ConfigError, match=said):
        train_one_epoch(bags, encoder=encoder, settings={"max_epochs": 10**9})


class Weighed(MILNetwork):
    """A network with attention that a function of the instances' scores computes."""

    has_attention = True

    def __init__(self, encoder: Any, num_classes: int) -> None:
        super().__init__(encoder, num_classes)
        self.head = nn.Linear(encoder.out_features, num_classes)

    def project(self, features: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self.head(features),)

    def score(self, projection: Any, segments: Segments) -> Any:
        return Scores(segment_mean(projection[0], segments), self.weights(projection[0][:, :1], segments))

    def weights(self, scores: torch.Tensor, segments: Segments) -> torch.Tensor:
        return segment_softmax(scores, segments)


class NotNormalized(Weighed):
    def weights(self, scores: torch.Tensor, segments: Segments) -> torch.Tensor:
        return scores.sigmoid()


class BelowZero(Weighed):
    def weights(self, scores: torch.Tensor, segments: Segments) -> torch.Tensor:
        weights = segment_softmax(scores, segments).clone()
        weights[:2] += torch.tensor([[-2.0], [2.0]])
        return weights


@pytest.mark.parametrize(("network", "got"), [(NotNormalized, "sums from"), (BelowZero, "least weight -")])
def test_attention_that_is_none_is_refused_where_it_is_used(bags: BagDataset, network: Any, got: str) -> None:
    model = train_one_epoch(bags, network=network, settings={"max_epochs": 1})
    model.predict(bags)
    with pytest.raises(ModelError) as raised:
        model.predict(bags, estimator="attention")
    assert raised.value.item == f"network '{network.__name__}'" and got in raised.value.got


@pytest.mark.long
def test_attention_of_others_that_is_one_is_taken(bags: BagDataset) -> None:
    model = train_one_epoch(bags, network=Weighed, settings={"max_epochs": 1})
    assert model.predict(bags, estimator="attention").instances is not None


def test_features_of_an_encoder_in_half_precision_are_taken(bags: BagDataset) -> None:
    model = train_one_epoch(bags, encoder=Halved, settings={"max_epochs": 1})
    assert np.isfinite(model.predict(bags).bags.probabilities).all()


class WithoutGradient(Softmax):
    def loss(self, batch: Any, epoch: int) -> Any:
        return super().loss(batch, epoch).detach()


class OfEachBag(Softmax):
    def loss(self, batch: Any, epoch: int) -> Any:
        return -self.bag_log_probabilities(batch)[:, 0]


class NotLog(Softmax):
    def log_probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.softmax(1)


class OneClassMore(Softmax):
    def distribution(self, logits: torch.Tensor) -> Any:
        return Categorical.of_logits(torch.cat([logits, logits[:, :1]], 1))


@pytest.mark.long
@pytest.mark.parametrize(
    ("part", "got"),
    [
        (Odd, r"logits: a tensor of shape \(\d+, 3\)"),
        (Tensors, r"a tensor of shape \(4, 3\)"),
        (Rows, r"logits: a tensor of shape \(\d+, 2\)"),
        (Integers, r"logits: a tensor of int64 of shape \(4, 2\)"),
        (Pooled, r"a tensor of shape \(3,\)"),
        (SaysAttention, "attention: None"),
        (WithoutGradient, "a tensor without a gradient"),
        (OfEachBag, r"a tensor of shape \(8,\)"),
        (NotLog, r"probabilities that sum to [23]\.\d+"),
        (OneClassMore, r"one of shape \(\d+, 3\)"),
    ],
)
def test_what_a_network_or_method_of_others_returns_is_checked(part: type, got: str, bags: BagDataset) -> None:
    chosen = {"network": part} if issubclass(part, MILNetwork) else {"network": "mean", "method": part}
    with pytest.raises(ModelError) as raised:
        train_one_epoch(bags, settings={"max_epochs": 1, "bags_per_update": 8}, **chosen)
    assert f"'{part.__name__}'" in raised.value.item and re.fullmatch(got, raised.value.got)


class OneLogit(Odd):
    """A network with one logit for two classes, as for a binary cross-entropy."""

    def __init__(self, encoder: Any, num_classes: int) -> None:
        super().__init__(encoder, num_classes)
        self.head = nn.Linear(encoder.out_features, 1)


@pytest.mark.parametrize("network", [Odd, OneLogit])
@pytest.mark.parametrize("method", ["softmax", "mirel", "edl", "i-edl", "r-edl", "mc-dropout", "deep-ensemble"])
def test_another_number_of_logits_than_of_classes_is_named_with_every_method(
    network: type, method: str, bags: BagDataset
) -> None:
    with pytest.raises(
        ModelError, match=rf"{network.__name__}'.*logits of shape \(\d+, 2\).*, got logits: .*, [13]\)"
    ):
        train_one_epoch(bags, network=network, method=method)


class Sharpened(Categorical):
    """A distribution of another package, which tables of predictions do not hold."""


class LogsForProbabilities(Softmax):
    def distribution(self, logits: Any) -> Any:
        return Categorical(logits.log_softmax(-1))


class CombinesSums(MCDropout):
    def combine(self, draws: Any) -> Any:
        return Categorical(sum(draw.probabilities for draw in draws))  # not their mean


@pytest.mark.long
@pytest.mark.parametrize("method", [LogsForProbabilities, CombinesSums])
def test_a_method_of_others_that_makes_no_probabilities_is_named(method: Any, bags: BagDataset) -> None:
    options = {"method.draws": 2} if method is CombinesSums else {}
    with pytest.raises(ModelError) as raised:
        train_one_epoch(bags, network="attention", encoder="mlp", method=method, options=options)
    assert raised.value.item == f"method '{method.__name__}' with network 'AttentionNetwork'"
    assert raised.value.got.endswith("in row 0 of the class probabilities")


class Resharpened(MCDropout):
    def combine(self, draws: Any) -> Any:
        return Sharpened(super().combine(draws).probabilities)


class WithoutPasses(Softmax):
    def passes(self, seed: int) -> Any:
        yield from ()


def test_a_method_of_others_without_a_pass_is_named(bags: BagDataset) -> None:
    with pytest.raises(ModelError, match=r"'WithoutPasses': expected at least one .* passes\(\), got none"):
        train_one_epoch(bags, method=WithoutPasses, settings={"max_epochs": 1}).predict(bags)


def test_what_a_method_of_others_combines_is_checked(bags: BagDataset) -> None:
    with pytest.raises(ModelError) as raised:
        train_one_epoch(bags, method=Resharpened, settings={"max_epochs": 1}).predict(bags)
    assert "'Resharpened'" in raised.value.item and raised.value.got == "a value of type Sharpened"
    assert raised.value.fix.startswith("return Draws(probabilities, expected_entropy)")


def test_a_tensor_in_place_of_a_projection_or_a_distribution_is_named() -> None:
    network = build_network("mean", Identity((5,)), 2)
    with pytest.raises(ModelError, match=r"got a tensor of shape \(3, 2\);"):
        check_projection(network, torch.ones(3, 2), 3)
    with pytest.raises(ModelError, match=r"got a tensor of shape \(3, 2\);"):
        check_distribution(NotLog(network), network, lambda: torch.full((3, 2), 0.5), 3, 2)


def test_a_distance_that_fits_other_tensors_than_it_names_is_refused(bags: BagDataset) -> None:
    class Forgetful(others.Farness):
        name = "forgetful"
        state_names = ("mean", "spread")

    with pytest.raises(ModelError, match="distance 'forgetful': .*, got means .*, factor"):
        train_one_epoch(bags, distances=[Forgetful])


@pytest.mark.parametrize(
    ("state", "got"),
    [
        (None, "none"),
        ({"means": torch.ones(5).numpy()}, "means (a value of type ndarray)"),
        ({"means": torch.tensor(1.0)}, "means (a tensor of shape ())"),
    ],
)
def test_a_distance_that_fits_something_else_than_tensors_is_refused(state: Any, got: str) -> None:
    class Odd(others.Farness):
        name = "odd"
        state_names = tuple(state or ("factor", "means"))

        @classmethod
        def _fitted_state(cls, features: torch.Tensor, bag_labels: object, generator: object) -> Any:
            return state

    with pytest.raises(ModelError) as raised:
        Odd.fit(torch.randn(9, 5), None, generator=torch.Generator())
    assert (raised.value.item, raised.value.got) == ("distance 'odd'", got)


def test_a_distance_without_an_abstract_method_is_refused_before_training() -> None:
    class Unfinished(FeatureDistance):
        name = "unfinished"
        state_names = ("means",)

    with pytest.raises(
        ConfigError, match="distance .*Unfinished': .* got one without _distances, _fitted_state; define"
    ):
        find_distance(Unfinished)


@pytest.mark.parametrize(
    ("wrong", "got"), [(float("nan"), "nan"), (float("inf"), "inf"), (None, r"shape \(\d+, 1\)")]
)
def test_a_distance_of_others_that_is_no_finite_number_of_each_instance_is_named(
    wrong: float | None, got: str, bags: BagDataset
) -> None:
    class Wrong(others.Farness):
        name = "wrong"

        def _distances(self, rows: torch.Tensor) -> torch.Tensor:
            right = super()._distances(rows)
            return right[:, None] if wrong is None else right.index_fill(0, torch.tensor([0]), wrong)

    with pytest.raises(ModelError, match=f"distance 'wrong': expected a finite number for each .*, got {got};"):
        train_one_epoch(bags, distances=[Wrong])
