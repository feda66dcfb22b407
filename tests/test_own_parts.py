"""Parts of others: by class, factory, module or import path; saved, and loaded where they are trusted."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import parts_of_others as others
import pytest
import torch
from made_bags import TORCHMIL_NETWORKS, separable_bags, train_one_epoch
from sealed_files import seal_again
from torch import nn

import miue
from miue.bags import BagDataset, Segments
from miue.common.errors import ConfigError, ModelError
from miue.common.values import Option
from miue.model.build import build_method
from miue.model.contract import DataContract
from miue.model.recipe import Recipe
from miue.networks import NETWORKS, BagModuleNetwork
from miue.networks.encoders import ENCODERS, MLP, Identity
from miue.scores import Mahalanobis

WIDTH = 5
CONTRACT = DataContract(instance_shape=(WIDTH,), class_names=("0", "1"))


def build(seed: int = 1, **given: Any) -> Any:
    recipe = Recipe(**{"network": "mean", "method": "softmax", **given})
    return build_method(recipe.model_config((WIDTH,)), CONTRACT, seed)


GIVEN: dict[str, dict[str, Any]] = {
    "a class of a plain module": {"network": others.PlainMean, "options": {"network.hidden": 4}},
    "a plain module": {"network": others.PlainMean(WIDTH, 2)},
    "a plain module that vmap does not take": {"network": others.LooksAtValues},
    "a plain module that embeds bags, with laplace": {"network": others.EmbedsBags, "method": "laplace"},
    "a plain module that embeds bags, with sngp": {"network": others.EmbedsBags, "method": "sngp"},
    "a plain module of lazy layers": {"network": others.LazyMean},
    "a factory": {"network": others.small_network, "options": {"network.hidden": 3}},
    "a network": {"network": others.ScaledMean, "options": {"network.scale": 2.0}},
    "a network that is built": {"network": others.ScaledMean(Identity((WIDTH,)), 2, scale=3.0)},
    "an import path": {"network": "parts_of_others:PlainMean"},
    "an encoder": {"encoder": others.Scaling, "options": {"encoder.factor": 3.0}},
    "an encoder that is built": {"encoder": others.Scaling((WIDTH,))},
    "a method": {"method": others.Smoothed, "options": {"method.smoothing": 0.3}},
    "all": {"network": others.PlainMean, "encoder": others.Scaling, "method": others.Smoothed},
    "a distance": {"distances": ["knn", others.Farness]},
}


@pytest.mark.long
@pytest.mark.parametrize("kind", GIVEN)
def test_a_part_of_others_is_trained_saved_and_loaded_where_it_is_trusted(
    kind: str, tmp_path: Path, bags: BagDataset
) -> None:
    model = train_one_epoch(bags, out=tmp_path / "run", **GIVEN[kind])
    loaded = miue.Model.load(tmp_path / "run", trust=True)
    ours, theirs = model.predict(bags), loaded.predict(bags)
    assert np.array_equal(ours.bags.probabilities, theirs.bags.probabilities)
    assert ours.instances is not None and theirs.instances is not None
    assert np.array_equal(ours.instances.probabilities, theirs.instances.probabilities)
    with pytest.raises(ModelError, match="leave to run the code of others, got 'parts_of_others:.*trust=True"):
        miue.Model.load(tmp_path / "run")
    again = train_one_epoch(bags, out=tmp_path / "run", if_exists="resume", **GIVEN[kind])
    assert again.weights_sha256 == model.weights_sha256


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, bags: BagDataset) -> None:
    train_one_epoch(bags, network=others.PlainMean).save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace("parts_of_others", "parts_of_nobody"))
    seal_again(config)
    with pytest.raises(
        ModelError, match="No module named 'parts_of_nobody'; install the package 'parts_of_nobody'"
    ):
        miue.Model.load(tmp_path / "model", trust=True)
    seal_again(config, lambda content: content["model"]["network"].update(package="parts-of-nobody 1.2"))
    with pytest.raises(ModelError, match="install the package 'parts-of-nobody 1.2'|parts-of-nobody 1.2"):
        miue.Model.load(tmp_path / "model", trust=True)


def test_nothing_is_imported_for_a_model_that_is_not_trusted(
    tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_one_epoch(bags, network=others.PlainMean).save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace("parts_of_others", "leaves_a_trace"))
    seal_again(config)
    (tmp_path / "leaves_a_trace.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelError, match="leaves_a_trace:PlainMean"):
        miue.Model.load(tmp_path / "model")
    from miue.cli.inspection import describe

    assert "leaves_a_trace:PlainMean" in str(describe(tmp_path / "model")["parameters"])
    assert "leaves_a_trace" not in sys.modules
    with pytest.raises(SystemExit):
        miue.Model.load(tmp_path / "model", trust=True)


@pytest.mark.long
@pytest.mark.parametrize("member", ["smoothed-of-others", "parts_of_others:Smoothed"])
def test_a_method_of_others_as_member_of_an_ensemble_needs_trust_as_well(
    member: str, tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(miue.METHODS, "_registered", {})
    if member == "smoothed-of-others":
        miue.METHODS.register(member, others.Smoothed)
    options = {"method.member": member, "method.size": 2, "method.smoothing": 0.2}
    model = train_one_epoch(bags, method="deep-ensemble", options=options, out=tmp_path / "run")
    again = train_one_epoch(
        bags, method="deep-ensemble", options=options, out=tmp_path / "run", if_exists="resume"
    )
    assert again.weights_sha256 == model.weights_sha256
    model.save(tmp_path / "model")
    miue.METHODS._registered.clear()  # as in another process
    for folder in ("run", "model"):
        with pytest.raises(ModelError, match="method.member 'parts_of_others:Smoothed' of a saved.*trust=True"):
            miue.Model.load(tmp_path / folder)
        loaded = miue.Model.load(tmp_path / folder, trust=True)
        assert loaded.weights_sha256 == model.weights_sha256
        assert [type(one) for one in loaded.method.members()] == [others.Smoothed] * 2
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace("parts_of_others", "parts_of_nobody"))
    seal_again(config)
    with pytest.raises(ModelError, match="No module named 'parts_of_nobody'; install the package"):
        miue.Model.load(tmp_path / "model", trust=True)


def test_nothing_is_imported_for_members_of_an_ensemble_that_are_not_trusted(
    tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"method.member": "parts_of_others:Smoothed", "method.size": 2}
    train_one_epoch(bags, method="deep-ensemble", options=options).save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace("parts_of_others", "also_leaves_a_trace"))
    seal_again(config)
    (tmp_path / "also_leaves_a_trace.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelError, match="also_leaves_a_trace:Smoothed"):
        miue.Model.load(tmp_path / "model")
    from miue.cli.inspection import describe

    assert "also_leaves_a_trace:Smoothed" in str(describe(tmp_path / "model")["parameters"])
    with pytest.raises(SystemExit):
        miue.Model.load(tmp_path / "model", trust=True)


def test_a_member_of_an_ensemble_that_others_cannot_import_is_refused_before_training(
    tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local(others.Smoothed):
        pass

    monkeypatch.setattr(miue.METHODS, "_registered", {})
    miue.METHODS.register("local", Local)
    options: dict[str, Option] = {"method.member": "local", "method.size": 2}
    with pytest.raises(ConfigError, match="method.member 'local': expected a part that another process can build"):
        train_one_epoch(bags, method="deep-ensemble", options=options, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    model = train_one_epoch(bags, method="deep-ensemble", options=options)
    assert model.predict(bags).bags.probabilities.shape == (len(bags), 2)
    with pytest.raises(ConfigError, match="method.member 'local'"):
        model.save(tmp_path / "model")
    recipe = Recipe(method="deep-ensemble", options=options)
    with pytest.raises(ConfigError, match="parts that another process can import"):
        recipe.check_importable("the executor")


@pytest.mark.parametrize(
    ("member", "named"),
    [
        ("smoothed-of-others", "parts_of_others:Smoothed"),
        ("parts_of_others:Smoothed", "parts_of_others:Smoothed"),
        ("miue.methods.mirel:MIREL", "mirel"),
        ("deterministic", "deterministic"),
        ("mirel", "mirel"),
    ],
)
def test_tasks_name_the_members_of_an_ensemble_so_that_they_can_import_them(
    member: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(miue.METHODS, "_registered", {})
    miue.METHODS.register("smoothed-of-others", others.Smoothed)
    recipe = Recipe(method="deep-ensemble", options={"method.member": member})
    recipe.check_importable("the executor")
    assert recipe.to_json()["options"] == {"method.member": named}
    assert recipe.model_config((WIDTH,)).method.options["member"] == named


def unsaveable() -> dict[str, Any]:
    class Local(others.PlainMean):
        pass

    built = others.PlainMean(WIDTH, 2)
    del built.hidden
    altered = others.PlainMean(WIDTH, 2)
    altered.hidden = 7
    return {
        "a lambda": lambda in_features, num_classes: others.PlainMean(in_features, num_classes),
        "a class within a function": Local,
        "a module without its options": built,
        "a module that is another when built again": altered,
        "a sequence": nn.Sequential(nn.Linear(WIDTH, 2)),
    }


@pytest.mark.parametrize("kind", list(unsaveable())[:4])
def test_what_cannot_be_built_again_is_refused_before_training_and_kept_in_memory(
    kind: str, tmp_path: Path, bags: BagDataset
) -> None:
    network = unsaveable()[kind]
    with pytest.raises(ConfigError, match="expected a part that another process can build again"):
        train_one_epoch(bags, network=network, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    model = train_one_epoch(bags, network=network)
    assert model.predict(bags).bags.probabilities.shape == (len(bags), 2)
    with pytest.raises(ConfigError, match="another process can build again"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_class_of_a_script_is_refused_with_out(
    tmp_path: Path, bags: BagDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(others.PlainMean, "__module__", "__main__")
    with pytest.raises(ConfigError, match="defined in the script that runs"):
        train_one_epoch(bags, network=others.PlainMean, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"network": "parts_of_nobody:Net"}, "'parts_of_nobody:Net': expected the import path"),
        ({"network": "parts_of_others:Net"}, "has no attribute 'Net'"),
        ({"network": "parts_of_others:nn"}, "path of a class or function.*'parts_of_others:nn' is a module"),
        ({"network": others.NotAModule}, "network 'NotAModule': expected a torch.nn.Module"),
        ({"network": lambda features, classes: None}, "a value for its parameter 'features'"),
        ({"network": others.PlainMean, "options": {"network.hiden": 3}}, "did you mean 'network.hidden'"),
        ({"network": others.PlainMean, "options": {"network.hidden": 3.5}}, "'network.hidden': .* valid integer"),
        (
            {"network": others.Named, "options": {"network.stain": 5}},
            "'network.stain': .* valid string",
        ),
        ({"network": others.PlainMean(WIDTH, 2), "options": {"network.hidden": 3}}, "which is built already"),
        ({"network": others.ScaledMean(Identity((WIDTH,)), 3)}, "expected 2 classes"),
        ({"network": others.ScaledMean(Identity((WIDTH,)), 2), "encoder": "mlp"}, "none beside the network"),
        ({"network": others.PlainMean(WIDTH, 3)}, r"expected logits of shape \(2,\)"),
        (
            {"method": others.PlainMean},
            "method 'PlainMean': expected a value|method 'PlainMean': expected a Method",
        ),
        ({"method": "deep-ensemble", "network": others.PlainMean(WIDTH, 2)}, "each member starts from weights"),
        (
            {"method": "deep-ensemble", "options": {"method.member": "parts_of_others:small_network"}},
            "'method.member': .*, got 'parts_of_others:small_",
        ),
        (
            {"method": "deep-ensemble", "options": {"method.member": "parts_of_nobody:Net"}},
            "method 'parts_of_nobody:Net': expected the import path",
        ),
        ({"distances": [others.PlainMean]}, "distance 'PlainMean': expected a class"),
    ],
)
def test_a_part_that_does_not_fit_is_answered(choice: dict[str, Any], message: str, bags: BagDataset) -> None:
    with pytest.raises((ConfigError, ModelError), match=message):
        train_one_epoch(bags, **choice)


def test_a_bug_in_the_constructor_of_others_stays_a_bug(bags: BagDataset) -> None:
    with pytest.raises(TypeError, match="has no len"):
        train_one_epoch(bags, network=others.Buggy)


def test_a_module_that_is_passed_keeps_its_weights_and_is_not_changed(bags: BagDataset) -> None:
    network = others.PlainMean(WIDTH, 2)
    before = [weight.clone() for weight in network.parameters()]
    method = build(network=network)
    inner = method.network.module
    assert all(torch.equal(a, b) for a, b in zip(inner.parameters(), before, strict=True))
    train_one_epoch(bags, network=network)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), before, strict=True))


def test_an_encoder_that_is_passed_keeps_its_weights_within_a_network_of_miue() -> None:
    encoder = MLP((WIDTH,), width=7)
    method = build(network="attention", encoder=encoder)
    ours = method.network.encoder.state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in encoder.state_dict().items())
    method.network.encoder.layers[0].weight.data.zero_()
    assert encoder.layers[0].weight.abs().sum() > 0  # type: ignore[operator]


@pytest.mark.parametrize("module", [others.PlainMean(WIDTH, 2), others.LooksAtValues(WIDTH, 2)])
def test_a_plain_module_scores_bags_one_by_one_and_instances_as_bags_of_one(module: nn.Module) -> None:
    network = BagModuleNetwork(Identity((WIDTH,)), 2, module)
    instances = torch.randn(6, WIDTH)
    output = network(instances, Segments.of(1, 3, 2))
    for bag, logits in zip(instances.split([1, 3, 2]), output.bag_logits, strict=True):
        torch.testing.assert_close(logits, module(bag))
    for instance, logits in zip(instances, output.instance_logits, strict=True):
        torch.testing.assert_close(logits, module(instance[None]))


def test_pytorch_does_not_ask_for_a_rule_that_vmap_lacks() -> None:
    """A warning would be an error here."""
    network, instances = (
        BagModuleNetwork(Identity((WIDTH,)), 2, others.Transformer(WIDTH, 2)).eval(),
        torch.ones(3, 5),
    )
    with torch.no_grad():
        output = network(instances, Segments.of(1, 2))
    torch.testing.assert_close(output.instance_logits[0], output.bag_logits[0])


@pytest.mark.parametrize("method", ["laplace", "sngp", "bayes-mil"])
def test_a_method_that_refuses_a_plain_module_names_its_class(method: str) -> None:
    with pytest.raises(ConfigError, match="got PlainMean"):
        build(network=others.PlainMean, method=method)


@pytest.mark.parametrize("encoder", ["mlp", others.Scaling, nn.Linear(WIDTH, 3)])
@pytest.mark.parametrize("network", [*TORCHMIL_NETWORKS, others.ScaledMean, others.PlainMean, others.OwnRule])
def test_the_seed_fixes_every_parameter_and_touches_no_other_randomness(network: Any, encoder: Any) -> None:
    if isinstance(network, str):
        pytest.importorskip("torchmil")
    first = build(7, network=network, encoder=encoder, method="mirel").state_dict()
    torch.manual_seed(99)
    expected = torch.rand(1)
    torch.manual_seed(99)
    second = build(7, network=network, encoder=encoder, method="mirel").state_dict()
    assert torch.equal(torch.rand(1), expected)
    third = build(8, network=network, encoder=encoder, method="mirel").state_dict()
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert any(not torch.equal(value, third[name]) for name, value in first.items())


def test_a_rule_of_its_own_wins_and_what_a_constructor_draws_stays() -> None:
    own = build(network=others.OwnRule).network
    assert torch.equal(own.weight, torch.full_like(own.weight, 0.25))
    drawn = build(network=others.ScaledMean).network.head.weight
    torch.testing.assert_close(drawn @ drawn.T, torch.eye(2))


def test_members_of_an_ensemble_start_as_single_networks_of_their_seeds() -> None:
    from miue.common.seeds import derive_seed

    ensemble = build(5, network=others.ScaledMean, method="deep-ensemble", options={"method.size": 3})
    for number, member in enumerate(ensemble.members()):
        alone = build(derive_seed(5, number), network=others.ScaledMean).state_dict()
        assert all(torch.equal(value, alone[name]) for name, value in member.state_dict().items())


@pytest.mark.parametrize("registry", [NETWORKS, ENCODERS], ids=["network", "encoder"])
def test_a_class_of_miue_is_saved_by_its_name(registry: Any) -> None:
    for name in registry.own_names():
        if name not in ("lenet", "alexnet", "compact"):
            given = {registry.kind: registry[name]}
            recipe = Recipe(**{"network": "mean", "encoder": "mlp", "method": "softmax", **given})
            config = recipe.model_config((WIDTH,))
            assert getattr(config, registry.kind).model_dump() == {"name": name, "options": {}}


def test_what_is_registered_and_cannot_be_called_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NETWORKS, "_registered", {"three": 3})
    with pytest.raises(ConfigError, match=r"network: expected a name.*, got a value of type int \(3\)"):
        build(network="three")


def test_a_model_stays_the_same_where_its_package_has_other_defaults_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = separable_bags()
    model = train_one_epoch(bags, network="mean", encoder=others.Scaling, out=tmp_path / "run")
    before = model.predict(bags).bags.probabilities
    saved = json.loads((tmp_path / "run" / "config.json").read_text())["model"]
    assert saved["encoder"]["options"] == {"factor": 2.0} and saved["network"]["options"] == {}
    monkeypatch.setattr(others.Scaling.__init__, "__defaults__", (9.0,))
    again = miue.Model.load(tmp_path / "run", trust=True).predict(bags).bags.probabilities
    assert np.array_equal(before, again)
    assert not np.array_equal(
        before, train_one_epoch(bags, network="mean", encoder=others.Scaling).predict(bags).bags.probabilities
    )


def test_a_default_that_is_no_option_is_left_to_the_part(tmp_path: Path) -> None:
    class Mode(StrEnum):
        SUM = "sum"

    class Odd(nn.Linear):
        def __init__(
            self,
            in_features: int,
            mode: Mode = Mode.SUM,
            limit: float = float("inf"),
            width: int = 3.5,  # type: ignore[assignment]
        ) -> None:
            super().__init__(in_features, int(width))

    config = Recipe(network="mean", method="softmax", encoder=Odd).model_config((WIDTH,))
    assert config.encoder.options == {}


def test_a_part_of_a_package_has_the_same_name_by_its_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("plain-mean", "parts_of_others:PlainMean", "miue.networks")
    monkeypatch.setattr(NETWORKS, "_found", {"plain-mean": point})
    monkeypatch.setattr(NETWORKS, "_loaded", dict(NETWORKS._loaded))
    recipe = Recipe(network="Plain-Mean", method="softmax")
    again = Recipe(**recipe.to_json())  # as a process of --jobs or a cluster is given it
    assert again.network == point.value
    assert again.model_config((WIDTH,)) == recipe.model_config((WIDTH,))


def test_a_registered_part_is_used_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(NETWORKS, "_registered", {})
    NETWORKS.register("Plain-Mean")(others.PlainMean)
    bags = separable_bags()
    train_one_epoch(bags, network="plain-mean", out=tmp_path / "run")
    saved = json.loads((tmp_path / "run" / "config.json").read_text())["model"]["network"]
    assert saved["name"] == "plain-mean" and saved["import_path"] == "parts_of_others:PlainMean"
    assert miue.Model.load(tmp_path / "run", trust=True).provenance().network


@pytest.mark.long
def test_parts_of_others_are_cross_validated_and_used_by_the_classifier(tmp_path: Path) -> None:
    from miue.io import make_folds
    from miue.selection import cross_validate

    bags = separable_bags(24)
    recipe = Recipe(network=others.PlainMean, method=others.Smoothed, settings={"max_epochs": 1})
    for _ in range(2):
        found = cross_validate(
            bags, make_folds(bags, 2, validation=0.2, seed=1), [1], tmp_path, recipe, progress=False
        )
        assert {summary.level for summary in found} >= {"bags"}
    arrays = [bags.batch([row]).instances.numpy() for row in range(len(bags))]
    classifier = miue.MILUncertaintyClassifier(others.PlainMean, "softmax", max_epochs=1, device="cpu")
    assert classifier.fit(arrays, bags.labels.values).predict(arrays).shape == (24,)


def test_a_distance_that_is_built_by_hand_is_told_to_be_passed_as_a_class() -> None:
    with pytest.raises(ConfigError, match=r"distance Mahalanobis: .*got none for .*; pass the class itself"):
        Mahalanobis()
