"""A first look at networks of others finds, before training, what raises no error and spoils the results."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from made_bags import train_one_epoch
from torch import Tensor, nn

from miue.bags import BagDataset, Segments, segment_mean
from miue.common.errors import ConfigError, DataError, ModelError
from miue.methods import Softmax
from miue.networks import BagModuleNetwork, MILNetwork, Scores
from miue.networks.encoders import Identity
from miue.training.first_look import look_at_network


class Plain(nn.Module):
    """The mean of the instances' logits, from which the tests derive wrong ones."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(in_features, num_classes)
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(in_features))
        self.dropout = nn.Dropout(0.5)
        self.last: Any = None

    def forward(self, bag: Tensor) -> Tensor:
        return self.layer(self.dropout(bag)).mean(0)


class KeepsAttention(Plain):
    """Keeps what it computed last in an attribute and a buffer, as much published code does."""

    def forward(self, bag: Tensor) -> Tensor:
        self.last = self.layer(bag).softmax(0)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * bag.mean(0).detach()
        return (self.last * self.layer(bag - self.mean)).sum(0)


class Changes(Plain):
    def forward(self, bag: Tensor) -> Tensor:
        bag -= bag.mean(0)
        return self.layer(bag).amax(0)


class ChangesInstances(nn.Module):
    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(in_features, 3)

    def forward(self, instances: Tensor) -> Tensor:
        return self.layer(instances.mul_(0.5))


class WithoutGradient(Plain):
    def forward(self, bag: Tensor) -> Tensor:
        return super().forward(bag).detach()


class Fixed(Plain):
    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__(in_features, num_classes)
        self.requires_grad_(False)


class Draws(Plain):
    def forward(self, bag: Tensor) -> Tensor:
        return super().forward(bag + torch.randn_like(bag))


class Probabilities(Plain):
    def forward(self, bag: Tensor) -> Tensor:
        return super().forward(bag).softmax(0)


class LogProbabilities(Plain):
    def forward(self, bag: Tensor) -> Tensor:
        return super().forward(bag).log_softmax(0)


class Remembers(Plain):
    def forward(self, bag: Tensor) -> Tensor:
        logits = super().forward(bag)
        before, self.last = self.last, logits.detach()
        return logits if before is None else logits + before


class Deviation(Plain):
    def forward(self, bag: Tensor) -> Tensor:
        return (bag @ self.layer.weight.T).std(0)


class RootOfZero(Plain):
    def forward(self, bag: Tensor) -> Tensor:
        return (0 * super().forward(bag)).sqrt()


class OverAll(MILNetwork):
    """Attention over all instances of a batch, whatever bag they are of."""

    def __init__(self, encoder: Any, num_classes: int) -> None:
        super().__init__(encoder, num_classes)
        self.head = nn.Linear(encoder.out_features, num_classes)

    def project(self, features: Any) -> Any:
        return (self.head(features),)

    def score(self, projection: Any, segments: Any) -> Scores:
        (logits,) = projection
        return Scores(segment_mean(logits.softmax(0) * len(logits) * logits, segments), None)


class RectifiesInPlace(OverAll):
    def score(self, projection: Any, segments: Any) -> Scores:
        return Scores(segment_mean(projection[0].relu_(), segments), None)


class Centers(nn.Module):
    """An encoder of which the features of an instance depend on the others."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.layer = nn.Linear(in_features, 3)

    def forward(self, instances: Tensor) -> Tensor:
        return self.layer(instances - instances.mean(0))


@pytest.mark.parametrize("method", ["softmax", "mirel"])
@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"network": Changes}, "network 'Changes': expected .* to stay as it is, .* got numbers changed in place"),
        ({"network": RectifiesInPlace}, "network 'RectifiesInPlace': expected .* to stay as it is"),
        (
            {"network": "mean", "encoder": ChangesInstances},
            "encoder 'ChangesInstances': expected .* to stay as it is",
        ),
        (
            {"network": WithoutGradient},
            r"network 'WithoutGradient': expected logits with a gradient, .* its 12 parameters, .*; leave out",
        ),
        (
            {"network": OverAll},
            "network 'OverAll': expected the same for a bag alone .* pool over each bag by seg",
        ),
        ({"network": "mean", "encoder": Centers}, "encoder 'Centers': expected the same for a bag alone"),
    ],
)
def test_a_network_that_would_spoil_its_results_is_refused(
    choice: dict[str, Any], message: str, method: str, bags: BagDataset
) -> None:
    with pytest.raises(ModelError, match=message):
        train_one_epoch(bags, method=method, settings={"max_epochs": 1, "bags_per_update": 1}, **choice)


class SaysItEmbeds(Plain):
    """The highest logits of instances, which are no function of an embedding."""

    embeds_bags = True

    def forward(self, bag: Tensor) -> Tensor:
        return self.layer(bag).amax(0)


class Embeds(SaysItEmbeds):
    def forward(self, bag: Tensor) -> Tensor:
        return self.layer(bag.amax(0))


@pytest.mark.long
@pytest.mark.parametrize("method", ["laplace", "sngp"])
def test_a_network_that_wrongly_says_it_embeds_bags_is_refused(method: str, bags: BagDataset) -> None:
    with pytest.raises(ConfigError, match="'SaysItEmbeds': expected logits that are its last layer of an emb"):
        train_one_epoch(bags, network=SaysItEmbeds, method=method)
    train_one_epoch(bags, network=Embeds, method=method)


def test_a_network_in_which_nothing_is_trained_is_answered(bags: BagDataset) -> None:
    with pytest.raises(ModelError, match="got a tensor without a gradient"):
        train_one_epoch(bags, network=Fixed, method="softmax")


class FixedEncoding(Plain):
    """Frozen but for its last layer."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__(in_features, 4)
        self.requires_grad_(False)
        self.head = nn.Linear(4, num_classes)

    def forward(self, bag: Tensor) -> Tensor:
        return self.head(super().forward(bag))


def test_a_frozen_network_of_which_only_the_residual_is_trained_is_warned_of(bags: BagDataset) -> None:
    with pytest.warns(UserWarning, match="'Fixed': no parameter is trained, .* 2,050 .* of MIREL alone; leave"):
        train_one_epoch(bags, network=Fixed, method="mirel")
    train_one_epoch(bags, network=FixedEncoding, method="mirel")  # without a warning


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (Draws, "network 'Draws' returns something else each time"),
        (
            Remembers,
            "network 'Remembers' returns something else each time .* attributes, only where self.training",
        ),
        (Probabilities, "network 'Probabilities' returns probabilities, which sum to 1, not logits"),
        (LogProbabilities, "network 'LogProbabilities' returns logarithms of probabilities"),
    ],
)
def test_a_network_whose_results_mean_less_is_warned_of(network: type, message: str, bags: BagDataset) -> None:
    with pytest.warns(UserWarning, match=message):
        train_one_epoch(bags, network=network, method="softmax")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:std")
def test_a_loss_that_is_not_finite_is_traced_to_the_network(bags: BagDataset) -> None:
    small = bags.subset(np.argsort(bags.sizes, kind="stable"))
    assert small.sizes[0] == 1
    with pytest.raises(
        DataError, match=r"correct network 'Deviation', which returns \[nan, nan\] .* of 1 instance"
    ):
        train_one_epoch(small, network=Deviation, method="softmax", settings={"max_epochs": 1})
    with pytest.raises(DataError, match="gradients of sqrt, norm, std and log are not finite at 0"):
        train_one_epoch(
            small, network=RootOfZero, method="softmax", settings={"max_epochs": 2, "bags_per_update": 1}
        )


@pytest.mark.filterwarnings("ignore:std")
def test_a_network_without_finite_logits_for_one_instance_is_refused(bags: BagDataset) -> None:
    larger = bags.subset(np.flatnonzero(bags.sizes > 1))
    with pytest.raises(
        ModelError, match=r"network 'Deviation': expected finite logits for a bag of one, .* got \[nan, nan\]"
    ):
        train_one_epoch(larger, network=Deviation, method="softmax")


@pytest.mark.parametrize("method", ["softmax", "mirel"])
def test_a_network_that_fails_on_one_instance_is_refused(method: str, bags: BagDataset) -> None:
    class TopTwo(Plain):
        def forward(self, features: Tensor) -> Tensor:
            return super().forward(features.topk(2, dim=0).values)

    larger = bags.subset(np.flatnonzero(bags.sizes > 1))
    with pytest.raises(ModelError, match=r"network 'TopTwo': .* a bag of one, .* RuntimeError: selected index k"):
        train_one_epoch(larger, network=TopTwo, method=method)


def test_a_tensor_that_repeats_elements_in_memory_is_refused(bags: BagDataset) -> None:
    class Expanded(Plain):
        def __init__(self, in_features: int, num_classes: int) -> None:
            super().__init__(in_features, num_classes)
            self.register_buffer("zeros", torch.zeros(1).expand(7))

    with pytest.raises(ConfigError, match=r"tensor 'network.module.zeros' of the model: .* repeats elements"):
        train_one_epoch(bags, network=Expanded, method="softmax")


@pytest.mark.parametrize("method", ["softmax", "mirel"])
def test_what_a_network_keeps_in_attributes_does_not_matter(method: str, bags: BagDataset) -> None:
    model = train_one_epoch(bags, network=KeepsAttention, method=method)
    whole, one = model.predict(bags), model.predict(bags.subset(np.arange(1)))
    assert whole.instances is not None and one.instances is not None
    assert whole.bags.probabilities[0] == pytest.approx(one.bags.probabilities[0], abs=1e-6)
    assert whole.instances.probabilities[0] == pytest.approx(one.instances.probabilities[0], abs=1e-6)


class CountsInstances(Plain):
    """Counts its calls in training, which ``torch.vmap`` makes once for all instances."""

    def forward(self, bag: Tensor) -> Tensor:
        if self.training:
            self.mean += 1
        return super().forward(bag)


class CountsAndBranches(CountsInstances):
    def forward(self, bag: Tensor) -> Tensor:
        logits = super().forward(bag)
        return logits if float(logits.detach().sum()) > 0 else logits * 2


@pytest.mark.parametrize(
    ("kind", "modes"), [(CountsInstances, (False, True, True)), (CountsAndBranches, (True, True, False))]
)
def test_each_instance_counts_and_draws_once_in_a_network(kind: type[Plain], modes: tuple[bool, ...]) -> None:
    module = kind(5, 2)
    network, features = BagModuleNetwork(Identity((5,)), 2, module), torch.randn(3, 5)
    for number, training in enumerate(modes):
        count = 3 * sum(modes[: number + 1])
        torch.manual_seed(1)
        logits = network.train(training).score((features,), Segments.ones(3, torch.device("cpu"))).logits
        assert module.mean.tolist() == [count] * 5
        torch.manual_seed(1)
        one_by_one = torch.stack([module(row) for row in features.split(1)])
        assert torch.allclose(logits, one_by_one, atol=1e-6)  # draws as one by one
        module.mean.fill_(count)


def test_a_look_changes_nothing(bags: BagDataset) -> None:
    class Counts(Plain):
        def forward(self, bag: Tensor) -> Tensor:
            self.mean += 1e-6 * torch.rand(1)
            return super().forward(bag)

    module = Counts(5, 2)
    method = Softmax(BagModuleNetwork(Identity((5,)), 2, module)).train()
    module.dropout.eval()  # as a module may have it
    before, state = torch.random.get_rng_state(), {k: v.clone() for k, v in method.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        look_at_network(method, lambda: bags.batch([0, 1]))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(value, state[name]) for name, value in method.state_dict().items())
    assert method.training and not module.dropout.training
