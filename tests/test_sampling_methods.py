"""Methods that draw: ensembles, MC dropout, Bayes-MIL; and the attention proxy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import exp, log, pi, sqrt
from pathlib import Path

import numpy as np
import pytest
import torch
from made_bags import build_method, build_network, labeled_batch, separable_bags
from scipy import integrate, stats

import miue
from miue.bags import BagDataset, Segments
from miue.common.errors import ConfigError, DataError
from miue.distributions import Categorical, Draws
from miue.methods import BayesMIL, MCDropout, Method
from miue.methods.base import attention_proxy
from miue.methods.bayes_mil import VariationalLinear
from miue.model import encoding as draws
from miue.model.build import member_seeds
from miue.model.part import Part, PartLike
from miue.model.predict import predict
from miue.networks import AttentionNetwork, initialize, seeded
from miue.networks.encoders import MLP
from miue.predictions import read_predictions
from miue.training.run_folder import IfExists

SETTINGS = {"seed": 3, "max_epochs": 2, "learning_rate": 1e-3}
DRAWING = [
    ("deep-ensemble", {"method.size": 3}),
    ("mc-dropout", {"method.draws": 4}),
    ("bayes-mil", {"method.draws": 5}),
]
ENSEMBLE = ("deep-ensemble", {"method.member": "mc-dropout", "method.size": 2, "encoder.dropout": 0.25})
NAMES = ["ensemble", "mc-dropout", "bayes-mil", "ensemble of mc-dropout"]


def train(bags: BagDataset, method: PartLike, **options: int | float | str) -> miue.Model:
    return miue.train(
        bags, method=method, settings={**SETTINGS, "options": options, "device": "cpu"}, progress=False
    )


@cache
def trained(method: PartLike, **options: int | float | str) -> miue.Model:
    """A model of the separable bags, trained once for all tests that only predict with it."""
    return train(separable_bags(), method, **options)


def test_draws_split_total_uncertainty_into_data_and_model() -> None:
    random = np.random.default_rng(0)
    p = random.dirichlet(np.ones(3), (7, 11))  # 7 draws of 11 items
    draws = Draws.of([Categorical(torch.from_numpy(one)) for one in p])
    mean = p.mean(0)
    entropy, each = -(mean * np.log(mean)).sum(1), -(p * np.log(p)).sum(2)
    np.testing.assert_allclose(draws.entropy().numpy(), entropy)
    np.testing.assert_allclose(draws.expected_entropy().numpy(), each.mean(0))
    divergence = (p * np.log(p / mean)).sum(2).mean(0)
    np.testing.assert_allclose(draws.mutual_information().numpy(), divergence, atol=1e-12)


def test_an_expected_entropy_above_the_entropy_is_refused() -> None:
    with pytest.raises(DataError, match="row 1 of the expected entropy"):
        Draws(torch.tensor([[0.5, 0.5], [0.9, 0.1]]), torch.tensor([0.6, 0.6]))


@pytest.mark.long
@pytest.mark.parametrize(("method", "options"), DRAWING)
def test_predictions_with_draws_depend_on_the_seed_alone(
    method: str, options: dict[str, int], bags: BagDataset, tmp_path: Path
) -> None:
    model = trained(method, **options)
    first = model.predict(bags, seed=1)
    torch.manual_seed(77)
    again, other = model.predict(bags, seed=1), model.predict(bags, seed=2)
    assert np.array_equal(first.bags.probabilities, again.bags.probabilities)
    if method != "deep-ensemble":
        assert not np.array_equal(first.bags.probabilities, other.bags.probabilities)
    assert isinstance(first.bags.distribution, Draws)
    assert (first.bags.uncertainties()["mutual_information"] > 0).any()
    first.save(tmp_path / "out")
    back = read_predictions(tmp_path / "out")
    for name, values in first.bags.uncertainties().items():
        np.testing.assert_allclose(back.bags.uncertainties()[name], values, atol=1e-12)


class DrawsWithoutSayingSo(MCDropout):
    """Draws from the seed of its passes, the same for all bags."""

    draws_at_random = False
    encodes_at_random = False

    def passes(self, seed: int) -> Iterator[Method]:
        """Yield the method with noise on its last layer."""
        last = self.network.last_layer
        assert isinstance(last, torch.nn.Linear)
        weight = last.weight.data
        trained, generator = weight.clone(), torch.Generator().manual_seed(seed)
        yield self
        weight.copy_(trained + torch.randn(weight.shape, generator=generator).to(weight))
        yield self
        weight.copy_(trained)


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "options"),
    [*DRAWING, ENSEMBLE, (DrawsWithoutSayingSo, {})],
    ids=[*NAMES, "method that does not say that it draws"],
)
def test_what_is_predicted_of_a_bag_does_not_depend_on_the_others(
    method: PartLike, options: dict[str, int | float], bags: BagDataset
) -> None:
    model = trained(method, **options)
    together = model.predict(bags, seed=1)
    chosen = np.array([17, 3, 29])
    few = model.predict(bags.subset(chosen), seed=1)
    assert together.instances is not None
    assert few.instances is not None
    rows = np.concatenate([np.flatnonzero(together.instances.bag_ids == bags.ids[i]) for i in chosen])
    for all_of_them, some, kept in (
        (together.bags, few.bags, chosen),
        (together.instances, few.instances, rows),
    ):
        for name, values in all_of_them.uncertainties().items():
            np.testing.assert_allclose(
                some.uncertainties()[name], values[kept], rtol=1e-5, atol=1e-6, err_msg=name
            )


@pytest.mark.parametrize(
    ("method", "options"),
    [*DRAWING, ENSEMBLE],
    ids=NAMES,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8])
def test_the_place_of_a_bag_in_a_list_without_names_does_not_matter(
    method: str, options: dict[str, int | float | str], dtype: type
) -> None:
    model = trained(method, **options)
    random = np.random.default_rng(7)
    listed: list[np.ndarray] = [(9 * random.random((size, 5))).astype(dtype) for size in (3, 1, 6, 2, 4, 5)]

    def predicted(arrays: list[np.ndarray]) -> list[np.ndarray]:
        predictions = model.predict(BagDataset.from_arrays(arrays), seed=1)
        assert predictions.instances is not None
        instances = predictions.instances.probabilities
        ends = np.cumsum([len(array) for array in arrays])[:-1]
        of_bags = np.split(predictions.bags.probabilities, len(arrays))
        return [np.concatenate(rows) for rows in zip(of_bags, np.split(instances, ends), strict=True)]

    expected = predicted(listed)
    chosen = [4, 1]
    wider = random.random((2, 5)).astype(np.uint8 if dtype == np.uint8 else np.float32)
    for found, wanted in (
        (predicted(listed[::-1])[::-1], expected),
        ([predicted([array])[0] for array in listed], expected),
        (predicted([listed[row] for row in chosen]), [expected[row] for row in chosen]),
        (predicted([wider, *listed])[1:], expected),
    ):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_named_bags_draw_by_their_names(bags: BagDataset) -> None:
    model = trained("mc-dropout", **{"encoder.dropout": 0.5})
    array = bags.batch([0]).instances.numpy()
    drawn = model.predict(BagDataset.from_arrays([array, array], ids=["a", "b"])).bags.probabilities
    assert not np.array_equal(drawn[0], drawn[1])


def test_a_built_method_can_be_built_again_with_its_draws() -> None:
    """Files keep the options of a module that was passed built, which are attributes of their names."""
    network = build_network("attention", MLP((5,), width=7, dropout=0.3), 2)
    options, why_not = Part("method", "mc-dropout", MCDropout(network, draws=3)).options_of_module()
    assert (options, why_not) == ({"draws": 3}, "")


@pytest.mark.long
def test_a_member_of_an_ensemble_is_the_network_trained_alone(bags: BagDataset) -> None:
    ensemble = train(bags, "deep-ensemble", **{"method.size": 3})
    seeds = member_seeds(ensemble.method, 3)
    assert len(set(seeds)) == 3
    training, validation = bags.subset(np.arange(30)), bags.subset(np.arange(30, 40))
    ensemble = miue.train(
        training,
        validation=validation,
        method="deep-ensemble",
        settings={**SETTINGS, "options": {"method.size": 2}},
        progress=False,
    )
    for member, seed in zip(ensemble.method.members(), member_seeds(ensemble.method, 3), strict=True):
        settings = {**SETTINGS, "seed": seed}
        alone = miue.train(training, validation=validation, method="softmax", settings=settings, progress=False)
        for name, value in alone.method.state_dict().items():
            assert torch.equal(member.state_dict()[name], value)


def test_an_ensemble_predicts_the_mean_of_its_members(bags: BagDataset) -> None:
    model = trained("deep-ensemble", **{"method.size": 3})
    batch = bags.batch(np.arange(len(bags)))
    with torch.no_grad():
        each = [m.distribution(m.bag_scores(batch).logits).probabilities for m in model.method.members()]
    np.testing.assert_allclose(model.predict(bags).bags.probabilities, torch.stack(each).mean(0), rtol=1e-5)


def test_the_log_probabilities_of_an_ensemble_are_those_of_its_mean() -> None:
    ensemble, batch = build_method("deep-ensemble", size=3), labeled_batch([3, 1, 4])
    initialize(ensemble.members()[1], torch.Generator().manual_seed(4))
    each = torch.stack([member.bag_log_probabilities(batch).exp() for member in ensemble.members()])
    torch.testing.assert_close(ensemble.bag_log_probabilities(batch).exp(), each.mean(0))


def test_the_loss_of_an_ensemble_is_the_sum_of_its_members_losses() -> None:
    ensemble, batch = build_method("deep-ensemble", size=2), labeled_batch([3, 1, 4])
    initialize(ensemble.members()[1], torch.Generator().manual_seed(4))
    first, second = (member.loss(batch, 1) for member in ensemble.members())
    torch.testing.assert_close(ensemble.loss(batch, 1), first + second)


def test_members_that_draw_draw_different_numbers() -> None:
    ensemble = build_method("deep-ensemble", classes=2, size=3, member="bayes-mil", draws=1)
    assert len({torch.rand(()).item() for _ in ensemble.passes(seed=0)}) == 3


def test_an_ensemble_has_the_negative_class_of_its_members() -> None:
    for background in (None, 1):
        ensemble = build_method("deep-ensemble", size=2, member="mirel", background=background)
        assert ensemble.negative_class == background


def test_an_option_of_members_that_is_a_number_is_no_truth_value() -> None:
    with pytest.raises(ConfigError, match=r"option 'method.draws'.*a valid integer, got True"):
        build_method("deep-ensemble", member="mc-dropout", draws=True)


@pytest.mark.long
def test_an_interrupted_ensemble_resumes_to_the_same_weights(tmp_path: Path, bags: BagDataset) -> None:
    def run(folder: Path, if_exists: IfExists) -> miue.Model:
        return miue.train(
            bags,
            method="deep-ensemble",
            settings={**SETTINGS, "options": {"method.size": 2}, "device": "cpu"},
            out=folder,
            if_exists=if_exists,
            progress=False,
        )

    whole = run(tmp_path / "whole", "refuse").method.state_dict()
    run(tmp_path / "cut", "refuse")
    for lost in ("config.json", "members/1/checkpoints/last.safetensors"):
        (tmp_path / "cut" / lost).unlink()
    resumed = run(tmp_path / "cut", "resume").method.state_dict()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_dropout_is_on_in_the_draws_of_mc_dropout_and_nowhere_else(bags: BagDataset) -> None:
    method = train(bags, "mc-dropout").method
    layers = [layer for layer in method.modules() if isinstance(layer, torch.nn.Dropout)]
    assert [layer.p for layer in layers] == [0.25, 0.25]
    for one in method.passes(0):
        assert all(layer.training for layer in layers)
        assert not one.network.training
    assert not any(layer.training for layer in layers)


@pytest.mark.long
def test_members_that_draw_by_dropout_have_the_dropout_that_one_alone_has(bags: BagDataset) -> None:
    alone = train(bags, "mc-dropout")
    two: dict[str, int | float | str] = {"method.size": 2}
    ensemble = train(bags, "deep-ensemble", **{"method.member": "mc-dropout", **two})
    assert ensemble.config.encoder == alone.config.encoder
    assert ensemble.config.encoder.options["dropout"] == 0.25
    assert "dropout" not in train(bags, "deep-ensemble", **two).config.encoder.options


def test_mc_dropout_with_an_encoder_that_has_no_dropout_names_the_encoder(bags: BagDataset) -> None:
    with pytest.raises(ConfigError) as error:
        miue.train(bags, method="mc-dropout", encoder="identity", settings=SETTINGS, progress=False)
    assert (error.value.item, error.value.got) == ("method 'mc-dropout'", "Identity without any")


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("mc-dropout", {"method.draws": 0}, "option 'method.draws': expected at least 1, got 0"),
        ("mc-dropout", {"encoder.dropout": 0.0}, "an encoder with dropout"),
        ("deep-ensemble", {"method.size": 0}, "option 'method.size'"),
        ("bayes-mil", {"method.draws": -1}, "option 'method.draws'"),
    ],
)
def test_draws_that_cannot_be_are_refused(method: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train(separable_bags(), method, **options)


@pytest.mark.parametrize("network", ["mean", "max", "dsmil"])
def test_bayes_mil_says_which_networks_it_takes(network: str, bags: BagDataset) -> None:
    with pytest.raises(ConfigError, match="method 'bayes-mil': expected network 'attention' or 'gated-attention'"):
        miue.train(bags, method="bayes-mil", network=network, settings=SETTINGS, progress=False)


@pytest.mark.parametrize("network", ["mean", "attention"])
def test_bayes_mil_advises_no_other_network_where_there_are_three_classes(network: str) -> None:
    bags = replace(separable_bags(), class_names=("a", "b", "c"))
    with pytest.raises(ConfigError, match="and two classes, got .* with 3 classes; choose another method$"):
        miue.train(bags, method="bayes-mil", network=network, settings=SETTINGS, progress=False)


def test_a_bag_whose_every_attention_underflows_is_still_pooled(bags: BagDataset) -> None:
    method = train(bags, "bayes-mil").method
    assert isinstance(method, BayesMIL)
    with torch.no_grad():
        method.score.bias[0] = -1e4
    assert torch.tensor(-1e4).sigmoid() == 0  # so Σ a_k h_k / Σ a_k, as it is written, is 0 / 0
    log_probabilities = method.bag_log_probabilities(bags.batch(np.arange(len(bags))))
    assert log_probabilities.isfinite().all()


def test_bayes_mil_pools_by_the_attention_over_its_sum() -> None:
    method, batch = build_method("bayes-mil", classes=2), labeled_batch([3, 1, 4], classes=2)
    features = method.encode(batch.instances)
    score = method.score(method.content(features).tanh() * method.gate(features).sigmoid())[:, :1]
    expected = [
        (a * h).sum(0) / a.sum()
        for a, h in zip(score.sigmoid().split([3, 1, 4]), features.split([3, 1, 4]), strict=True)
    ]
    log_p = method.head(torch.stack(expected)).log_softmax(-1)
    torch.testing.assert_close(method.bag_log_probabilities(batch), log_p)
    of_instances = {"attention": torch.cat([1 - score.sigmoid(), score.sigmoid()], 1)}
    of_instances["bag-of-one"] = method.head(features).softmax(-1)
    for estimator, probabilities in of_instances.items():
        predicted = method.predict([features], batch.segments, estimator)
        torch.testing.assert_close(predicted.bags.probabilities, log_p.exp().double())
        torch.testing.assert_close(predicted.instances.probabilities, probabilities.double())


def test_a_drawn_score_of_bayes_mil_is_normal_with_the_deviation_that_the_network_gives() -> None:
    method = build_method("bayes-mil", classes=2)
    with torch.no_grad():
        for parameter in (method.score.weight, method.score.log_alpha):
            parameter.zero_()
        method.score.bias.copy_(torch.tensor([0.3, 2 * np.log(1.7)]))
    features = torch.zeros(2000, method.network.encoder.out_features, dtype=method.score.weight.dtype)
    torch.manual_seed(1)
    attention = method._forward(features, Segments.of(len(features)), method._moments(features))[1]
    standard = (attention.detach().logit() - 0.3) / 1.7
    assert stats.kstest(standard.flatten().numpy(), "norm").pvalue > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("estimator", ["attention", "bag-of-one"])
def test_draws_of_bayes_mil_share_the_moments_of_its_attention(
    estimator: str, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = train(bags, "bayes-mil").method
    seen: list[int] = []
    moments = VariationalLinear.moments

    def counted(layer: VariationalLinear, inputs: torch.Tensor) -> torch.Tensor:
        seen.append(len(inputs) if layer is method.content else 0)
        return moments(layer, inputs)

    monkeypatch.setattr(VariationalLinear, "moments", counted)

    def predicted() -> list[np.ndarray]:
        (tables,) = predict(method, bags, estimator=estimator, device="cpu", seed=3)
        return [table.probabilities for table in tables]

    shared = predicted()
    assert sum(seen) == len(bags.positions)
    monkeypatch.setattr(draws, "SHARED_NUMBERS", 0)
    for ours, alone in zip(shared, predicted(), strict=True):
        np.testing.assert_allclose(ours, alone, rtol=1e-5)


def test_the_loss_of_bayes_mil_adds_the_divergences_of_all_scores_of_a_bag() -> None:
    batch = labeled_batch([3, 1, 4], classes=2)
    losses = []
    for coefficient in (0.0, 0.5):
        method = build_method("bayes-mil", classes=2, weight_divergence=0.0, attention_divergence=coefficient)
        torch.manual_seed(0)
        losses.append(method.loss(batch, 1).item())
    torch.manual_seed(0)
    features = method.encode(batch.instances)
    _, _, mean, log_variance = method._forward(features, batch.segments, method._moments(features))
    labels = batch.labels.repeat_interleave(batch.segments.sizes)
    of_scores = method._score_divergence(mean, log_variance, labels)
    assert losses[1] - losses[0] == pytest.approx(0.5 * of_scores.sum().item() / 3)


def test_a_variational_layer_learns_from_inputs_that_are_zero() -> None:
    layer = VariationalLinear(3, 2, log_alpha=-1.0)
    layer.sample(torch.zeros(1, 3)).sum().backward()  # whose outputs have no variance, and √0 no derivative
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_a_variational_layer_draws_outputs_with_the_mean_and_variance_of_its_weights() -> None:
    layer = VariationalLinear(3, 2, log_alpha=-1.0).double()
    inputs = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    draws = layer.sample(inputs.expand(40_000, 3))
    torch.testing.assert_close(draws.mean(0), layer(inputs)[0], atol=0.02, rtol=0)
    variance = (inputs**2 @ (exp(-1) * layer.weight**2).T)[0]
    torch.testing.assert_close(draws.var(0), variance, rtol=0.05, atol=0)


@pytest.mark.parametrize("log_alpha", [-4.0, -1.0, 0.0, 2.0])
def test_the_divergence_of_a_variational_layer_follows_the_integral(log_alpha: float) -> None:
    """−KL = ½ log α − E log|ε| + const, ε ~ N(1, α), which goes to zero as α grows (Molchanov et al. 2017)."""
    alpha = exp(log_alpha)

    def integrand(e: float) -> float:
        return log(abs(e)) * exp(-((e - 1) ** 2) / (2 * alpha)) / sqrt(2 * pi * alpha)

    reach = 12 * sqrt(alpha)
    expected_log = sum(integrate.quad(integrand, a, b, limit=400)[0] for a, b in ((1 - reach, 0), (0, 1 + reach)))
    constant = -0.5 * (np.euler_gamma + log(2))
    layer = VariationalLinear(1, 1, log_alpha=log_alpha).double()
    divergence = -(0.5 * log_alpha - expected_log + constant)
    assert layer.divergence().item() == pytest.approx(divergence, abs=0.02)


def test_the_divergence_of_scores_is_that_of_two_normal_distributions() -> None:
    mean, log_variance = torch.randn(5, 1, dtype=torch.float64), torch.randn(5, 1, dtype=torch.float64)
    label = torch.tensor([0, 1, 1, 0, 1])
    normal = torch.distributions.Normal
    posterior = normal(mean.squeeze(1), (log_variance / 2).exp().squeeze(1))
    prior = normal(
        torch.tensor([-5.0, 0.0])[label].double(), (torch.tensor([-1.0, 3.0])[label] / 2).exp().double()
    )
    expected = torch.distributions.kl_divergence(posterior, prior)
    torch.testing.assert_close(
        BayesMIL._score_divergence(mean, log_variance, label), expected, rtol=1e-6, atol=1e-6
    )


def test_the_attention_proxy_is_normalized_over_each_bag() -> None:
    attention = torch.tensor([[0.2], [0.5], [0.3], [1.0], [0.5], [0.5]])
    proxy = attention_proxy(attention, torch.zeros(3, 2), Segments.of(3, 1, 2))
    expected = [0.0, 1.0, 1 / 3, 0.5, 0.5, 0.5]  # a bag of one, and equal attention, say nothing
    assert proxy.probabilities[:, 1].tolist() == pytest.approx(expected, abs=1e-6)


def test_the_attention_proxy_of_equal_instances_says_nothing_although_scores_are_rounded() -> None:
    with seeded(3):
        network = AttentionNetwork(MLP((5,), width=512, scaling="as-is"), 2)
        rows = 3 * torch.randn(40, 5)
    naive, sizes = 0, [2 + number % 23 for number in range(len(rows))]
    with torch.no_grad():
        for row, size in zip(rows, sizes, strict=True):
            segments = Segments.of(size)
            logits, attention = network.score(network.project(network.encode(row.expand(size, 5))), segments)
            assert attention is not None
            naive += bool((attention != attention[0]).any())
            assert (attention_proxy(attention, logits, segments).probabilities == 0.5).all()
    assert naive
    rounded = torch.tensor([[0.5], [0.5 + 2**-22], [0.2], [0.8]])
    proxy = attention_proxy(rounded, torch.zeros(2, 2), Segments.of(2, 2))
    assert proxy.probabilities[:, 1].tolist() == [0.5, 0.5, 0.0, 1.0]


def test_the_attention_proxy_takes_the_column_of_the_predicted_class() -> None:
    attention = torch.tensor([[0.9, 0.2], [0.1, 0.8]])
    for logits, positive in (([1.0, 0.0], [1.0, 0.0]), ([0.0, 1.0], [0.0, 1.0])):
        proxy = attention_proxy(attention, torch.tensor([logits]), Segments.of(2))
        assert proxy.probabilities[:, 1].tolist() == positive


@pytest.mark.parametrize("estimator", ["residual", "bag-of-one", "attention"])
def test_the_instance_estimator_is_a_choice(estimator: str, bags: BagDataset) -> None:
    model = trained("mirel")
    chosen = model.predict(bags, estimator=estimator)
    default = model.predict(bags)
    assert chosen.instances is not None
    assert default.instances is not None
    assert chosen.provenance.estimator == estimator
    same = np.array_equal(chosen.instances.probabilities, default.instances.probabilities)
    assert same == (estimator == "residual")
    assert np.array_equal(chosen.bags.probabilities, default.bags.probabilities)


@pytest.mark.long
def test_an_estimator_that_is_not_there_is_answered(bags: BagDataset) -> None:
    with pytest.raises(ConfigError, match="did you mean 'bag-of-one'"):
        trained("i-edl").predict(bags, estimator="bag-of-on")
    with pytest.raises(ConfigError, match="instance estimator 'residual'"):
        trained("i-edl").predict(bags, estimator="residual")
    model = miue.train(bags, network="max", settings=SETTINGS, progress=False)
    with pytest.raises(ConfigError, match="a network with attention and two classes, got MaxNetwork"):
        model.predict(bags, estimator="attention")
    with pytest.raises(ConfigError, match="got AttentionNetwork with 3 classes"):
        build_method("softmax", classes=3).check_estimator("attention")


@pytest.mark.parametrize("method", ["mc-dropout", "bayes-mil", "deterministic"])
def test_training_and_prediction_leave_the_caller_s_random_numbers_as_they_were(
    method: str, bags: BagDataset
) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model = miue.train(bags, method=method, settings={"max_epochs": 1, "device": "cpu"}, progress=False)
    model.predict(bags)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("method", ["mc-dropout", "bayes-mil", "softmax"])
@pytest.mark.parametrize("source", ["arrays", "tensors", "files"])
def test_bags_in_fortran_order_are_predicted_as_they_are_in_any_other(
    method: str, source: str, tmp_path: Path
) -> None:
    random = np.random.default_rng(3)
    arrays = [random.normal(size=(size, 5)).astype(np.float32) for size in (1, 7, 1, 30)]
    turned = [np.asfortranarray(array) for array in arrays]
    if source == "files":
        for number, array in enumerate(turned):
            np.save(tmp_path / f"bag_{number}.npy", array)
        bags = miue.load_bags(tmp_path).bags
    else:
        bags = BagDataset.from_arrays(turned if source == "arrays" else list(map(torch.from_numpy, turned)))
    model = trained(method)
    expected, found = model.predict(BagDataset.from_arrays(arrays)), model.predict(bags)
    for level in ("bags", "instances"):
        theirs, ours = getattr(expected, level), getattr(found, level)
        np.testing.assert_array_equal(ours.probabilities, theirs.probabilities)
        for name, values in theirs.uncertainties().items():
            np.testing.assert_array_equal(ours.uncertainty(name), values, name)
