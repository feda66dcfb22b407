"""Covariates such as age and sex: from the label table to predictions, equal to what is computed by hand."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import fail, run
from made_bags import train_one_epoch
from made_files import features_of, trident

import miue
from miue import BagDataset, concatenate, join_features, merge_bags, with_covariates
from miue.bags import Covariate, encode_covariates, leaking_covariates
from miue.common.errors import ConfigError, DataError, MiueError
from miue.io import describe_bags, find_bags_again, read_store, write_store
from miue.networks.encoders import MLP, WithCovariates

FAST = ("--set", "max_epochs=2", "--device", "cpu", "--quiet")


def made(bags: int = 24, seed: int = 0) -> BagDataset:
    """Bags with an age, unknown of each fifth, and a sex."""
    draws = np.random.default_rng(seed)
    arrays = [features_of(3 + bag % 4, 5, 100 * seed + bag, bool(bag % 2)) for bag in range(bags)]
    names = [f"s{bag:02d}" for bag in range(bags)]
    data = BagDataset.from_arrays(arrays, [bag % 2 for bag in range(bags)], ids=names)
    ages = [age if bag % 5 else None for bag, age in enumerate(draws.integers(30, 90, bags).tolist())]
    return with_covariates(data, {"age": ages, "sex": [*"FFMM"] * (bags // 4)})


def encoder_of(method: Any) -> Any:
    """The encoder of the features alone."""
    return method.network.encoder.encoder


def cohort(root: Path, slides: int = 40) -> tuple[Path, Path]:
    """Two slides of each patient, with age and sex."""
    draws, lines = np.random.default_rng(0), ["slide_id,case_id,label,age,sex"]
    for patient in range(slides // 2):
        age, sex = draws.integers(30, 90), "FM"[draws.integers(2)]
        for slide in range(2):
            name = f"p{patient:02d}-{slide}"
            trident(
                root / "uni",
                name,
                features_of(4 + patient % 3, seed=2 * patient + slide, positive=patient % 2 == 0),
            )
            lines.append(f"{name},p{patient:02d},{'tumor' if patient % 2 == 0 else 'normal'},{age},{sex}")
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    return root / "uni", root / "labels.csv"


@pytest.mark.parametrize("network", ["mean", "attention", "max"])
def test_logits_are_those_of_the_features_and_a_linear_term_of_the_covariates(network: str) -> None:
    bags = made()
    model = train_one_epoch(bags, network=network, settings={"max_epochs": 3}, distances=())
    net: Any = model.method.network.double()
    encoder = net.encoder
    encoded = model.contract.labeled(bags)
    batch = encoded.batch(range(len(bags)))
    x, c = batch.instances[:, :5].double(), torch.from_numpy(np.asarray(encoded.encoded_covariates)).double()
    features, head, width = net.encode(batch.instances.double()), net.last_layer, encoder.encoder.out_features
    term = c @ encoder.embedding.weight.T @ head.weight[:, width:].T
    h = batch.segments.split(encoder.encoder(x))
    if network == "attention":
        attention = batch.segments.split(net.score(net.project(features), batch.segments).attention)
        embedding = torch.cat([weights.T @ part for weights, part in zip(attention, h, strict=True)])
    else:
        embedding = torch.stack([part.mean(0) if network == "mean" else part.amax(0) for part in h])
    by_hand = embedding @ head.weight[:, :width].T + head.bias + term
    torch.testing.assert_close(net.score(net.project(features), batch.segments).logits, by_hand)
    of_instances = net.score(net.project(features), batch.segments.singletons()).logits
    instances_by_hand = encoder.encoder(x) @ head.weight[:, :width].T + head.bias
    torch.testing.assert_close(of_instances, instances_by_hand + term.repeat_interleave(batch.segments.sizes, 0))


def test_gradients_of_covariates_are_those_of_finite_differences() -> None:
    encoder: Any = WithCovariates(MLP((3,), width=5), 2, width=4).double()
    inputs = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(encoder, inputs)
    encoder(inputs).sum().backward()
    assert encoder.embedding.weight.grad.abs().min() > 0
    split = encoder.eval().from_dropout(encoder.until_dropout(inputs))
    torch.testing.assert_close(split, encoder(inputs))


def of(*cells: str) -> dict[str, str]:
    return {f"s{bag}": cell for bag, cell in enumerate(cells)}


def test_numbers_are_standardized_and_categories_have_a_column_for_each_level() -> None:
    age = Covariate.fit("age", of("60", "", "40", "50"))
    assert (age.mean, age.low, age.high, age.width) == (50, 40, 60, 2)
    by_hand = np.array([[0, 0], [0, 1], [10 / age.deviation, 0]])
    np.testing.assert_allclose(age.encode(of("50", "", "60")), by_hand, rtol=1e-6)
    sex = Covariate.fit("sex", of("F", "M", "", "F"))
    assert sex.encode(of("M", "F", "", "X")).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert Covariate.fit("same", of("2", "2", "2")).encode(of("2", "3")).tolist() == [[0], [1]]
    complete = Covariate.fit("age", of("60", "40"))
    assert complete.encode(of("", "60")).tolist() == [[0], [1]]  # an unknown age is the mean of training
    assert complete.unusual(of("65", "71", "")) == "2 bags (s1: 71, s2: unknown)"


def test_a_cell_among_numbers_that_is_none_and_a_name_for_each_bag_are_refused() -> None:
    for wrong in ("70 years", "inf"):
        with pytest.raises(DataError) as error:
            Covariate.fit("age", of("60", "40", wrong))
        assert (error.value.item, error.value.got) == ("covariate 'age' of bag 's2'", repr(wrong))
    with pytest.raises(DataError) as error:
        Covariate.fit("case", of(*(f"p{bag}" for bag in range(20))))
    assert error.value.item == "covariate 'case'" and error.value.got.startswith("20 levels in 20 bags")
    bags = made()
    model = train_one_epoch(bags, distances=())
    with pytest.raises(DataError) as error:
        model.predict(with_covariates(bags, {**bags.covariates, "age": ["60 a", *bags.covariates["age"][1:]]}))
    assert (error.value.item, error.value.got) == ("covariate 'age' of bag 's00'", "'60 a'")
    with pytest.raises(DataError) as error:
        with_covariates(made(4), {"age": [1, 2]})
    assert error.value.got == "2"
    images = with_covariates(BagDataset.from_arrays([np.ones((2, 8, 8, 3), np.uint8)] * 2), {"age": [1, 2]})
    with pytest.raises(DataError) as error:
        encode_covariates(images, [Covariate.fit("age", of("1", "2"))])
    assert error.value.wanted == "feature vectors beside covariates"


def test_covariates_stay_with_their_bags(tmp_path: Path) -> None:
    bags = made()
    assert bags.subset([3, 0]).covariates["sex"] == ("M", "F")
    without = BagDataset.from_arrays([np.ones((2, 5))], ids=["other"])
    both = concatenate([bags, without])
    assert both.covariates["age"][-1] == "" and len(both.covariates["sex"]) == 25
    again = find_bags_again(describe_bags(bags, tmp_path / "copy.npy"))
    assert {name: tuple(cells) for name, cells in again.covariates.items()} == bags.covariates
    write_store(tmp_path / "store", bags)
    assert read_store(tmp_path / "store").covariates == bags.covariates
    loaded = miue.load_bags(tmp_path / "store", settings={"covariates": ["sex"]}).bags
    assert list(loaded.covariates) == ["sex"]
    same = with_covariates(bags.subset([0, 2]), {"age": [50, None]})
    assert merge_bags(same, ["p", "p"]).covariates == {"age": ("50",)}
    with pytest.raises(DataError) as error:
        merge_bags(with_covariates(same, {"age": [50, 51]}), ["p", "p"])
    assert error.value.got == "covariate age 50 of 's00' and 51 of 's02'"


def test_a_model_is_saved_with_how_covariates_become_numbers(tmp_path: Path) -> None:
    bags = made()
    model = train_one_epoch(bags, out=tmp_path / "run", method="mirel")
    loaded = miue.Model.load(tmp_path / "run")
    ours, theirs = loaded.predict(bags), model.predict(bags)
    assert np.array_equal(ours.bags.probabilities, theirs.bags.probabilities)
    assert ours.instances is not None and len(ours.instances) == bags.sizes.sum()
    saved = json.loads((tmp_path / "run" / "config.json").read_text())["contract"]
    assert [one["name"] for one in saved["covariates"]] == ["age", "sex"] and saved["instance_shape"] == [5]
    with pytest.raises(DataError) as error:
        loaded.predict(with_covariates(bags, {"sex": bags.covariates["sex"]}))
    assert error.value.wanted == "the covariates age, sex"
    older = with_covariates(bags, {**bags.covariates, "age": [30, *bags.covariates["age"][1:]]})
    assert not np.array_equal(loaded.predict(older).bags.probabilities[0], ours.bags.probabilities[0])


def test_a_run_with_other_covariates_is_another_run(tmp_path: Path) -> None:
    bags = made()
    train_one_epoch(bags, out=tmp_path / "run")
    other = with_covariates(bags, {**bags.covariates, "sex": ["M", *bags.covariates["sex"][1:]]})
    with pytest.raises(MiueError):
        train_one_epoch(other, out=tmp_path / "run", if_exists="resume")


@pytest.mark.parametrize(
    ("method", "network"),
    [
        ("deep-ensemble", "attention"),
        ("mc-dropout", "gated-attention"),
        ("sngp", "attention"),
        ("laplace", "mean"),
        ("bayes-mil", "attention"),
        ("pooled-logistic", None),
        ("pooled-forest", None),
        ("one-sided-gp", None),
    ],
)
def test_every_kind_of_method_reads_covariates(method: str, network: str | None) -> None:
    bags = made()
    parts = {} if network is None else {"network": network}
    options = {"method.size": 2} if method == "deep-ensemble" else {}
    model = train_one_epoch(
        bags, method=method, distances=(), settings={"max_epochs": 1, "options": options}, **parts
    )
    women = with_covariates(bags, {**bags.covariates, "sex": ["F"] * len(bags)})
    p, of_women = (model.predict(one).bags.probabilities for one in (bags, women))
    are_women = np.array([sex == "F" for sex in bags.covariates["sex"]])
    assert np.allclose(p[are_women], of_women[are_women], atol=1e-6)
    assert method == "pooled-forest" or np.abs(p[~are_women] - of_women[~are_women]).max() > 1e-7


def test_a_value_unlike_those_of_training_is_named_and_distances_are_of_features() -> None:
    bags = made()
    model = train_one_epoch(bags, distances=("knn",))
    usual = model.predict(bags).bags
    ages = [*bags.covariates["age"]]
    strange = with_covariates(bags, {"age": ["700", "", *ages[2:]], "sex": ["X", *bags.covariates["sex"][1:]]})
    with pytest.warns(UserWarning, match="extrapolate") as said:
        far = model.predict(strange).bags
    texts = [str(one.message) for one in said]
    assert any("sex (F, M) in training has other values in 1 bag (s00: X)" in text for text in texts)
    assert any("values in 1 bag (s00: 700)" in text for text in texts)  # an unknown age was there in training
    assert np.array_equal(far.scores["knn_mean"], usual.scores["knn_mean"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(bags)


def test_a_covariate_that_tells_the_label_is_warned_of() -> None:
    bags = made()
    numbers = [bag % 2 * 10 + bag / 100 for bag in range(24)]
    leaks = with_covariates(bags, {"stage": ["I", "II"] * 12, "score": numbers, "sex": ["F", "M", "M", "M"] * 6})
    assert leaking_covariates(leaks) == ["stage", "score"]
    assert leaking_covariates(leaks.subset(range(8))) == []
    with pytest.warns(UserWarning, match="'stage' tells the label of every bag"):
        train_one_epoch(with_covariates(bags, {"stage": leaks.covariates["stage"]}))
    number = bags.with_outcomes(numbers)
    assert leaking_covariates(with_covariates(number, {"twice": [2 * one for one in numbers]})) == ["twice"]
    assert leaking_covariates(with_covariates(number, {"age": bags.covariates["age"]})) == []


def test_encoders_and_covariates_are_read_together() -> None:
    bags = made()
    other = BagDataset.packed(np.ones((int(bags.sizes.sum()), 3), np.float32), bags.sizes, bags.ids)
    model = train_one_epoch(join_features({"uni": bags, "conch": other}), distances=())
    assert [encoder_of(one).columns for one in model.method.members()] == [slice(0, 5), slice(5, 8)]
    assert len(model.predict(join_features({"uni": bags, "conch": other})).bags) == 24


@pytest.mark.long
def test_covariates_go_from_a_table_to_an_evaluation(tmp_path: Path) -> None:
    folder, labels = cohort(tmp_path)
    words = ("--labels", labels, "--label-column", "label")
    run("train", folder, *words, "--covariates", "age,sex", "--out", tmp_path / "run", *FAST)
    assert "sex (F, M)" in run("inspect", tmp_path / "run")
    run("predict", tmp_path / "run", folder, *words, "--part", "test", "--out", tmp_path / "p", "--quiet")
    assert "AUROC" in run("evaluate", tmp_path / "p")
    rows = [line.split(",") for line in labels.read_text().splitlines()]
    new = tmp_path / "new.csv"
    new.write_text("\n".join(",".join((row[0], row[3], row[4])) for row in rows) + "\n")
    run("predict", tmp_path / "run", folder, "--labels", new, "--part", "all", "--out", tmp_path / "q", "--quiet")
    assert len(miue.read_predictions(tmp_path / "q").bags) == 40
    said = fail("predict", tmp_path / "run", folder, "--out", tmp_path / "no", "--quiet")
    assert "covariates age, sex" in said and "--labels TABLE" in said
    patients = (*words, "--covariates", "age", "--covariates", "sex", "--bag-per", "patient")
    run("cross-validate", folder, *patients, "--folds", "2", "--out", tmp_path / "cv", "--jobs", "2", *FAST)
    assert (tmp_path / "cv" / "fold_1" / "seed_42" / "metrics.json").exists()


def test_a_column_that_is_the_label_or_is_not_there_is_refused(tmp_path: Path) -> None:
    folder, labels = cohort(tmp_path, slides=8)
    for names, error in ((["label"], ConfigError), (["height"], DataError)):
        with pytest.raises(error) as raised:
            miue.load_bags(folder, labels=labels, settings={"covariates": names})
        assert names[0] in f"{raised.value.got}{raised.value.wanted}"
