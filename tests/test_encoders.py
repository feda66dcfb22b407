"""Features of several patch encoders: a network on each, whose disagreement is epistemic, or one on all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import fail, run
from made_bags import train_one_epoch
from made_files import features_of, trident

import miue
from miue import BagDataset, join_features
from miue.bags.arrays import JoinedInstances, RearrangedInstances
from miue.common.errors import ConfigError, DataError, MiueError, ModelError
from miue.io import FileInstances, describe_bags, find_bags_again, keep_in_memory, read_store, state_of_bags

WIDTHS = {"uni": 5, "conch": 3}
FAST = ("--set", "max_epochs=2", "--method", "softmax", "--device", "cpu", "--quiet")


def cohort(root: Path, slides: int = 24) -> tuple[Path, Path, Path]:
    """Slides with the same patches by two encoders, one of them of another scale; two slides of each patient."""
    lines = ["slide_id,case_id,label"]
    for slide in range(slides):
        positive, size = slide // 2 % 2 == 0, 3 + slide % 5
        for number, (encoder, width) in enumerate(WIDTHS.items()):
            made = features_of(size, width, seed=2 * slide + number, positive=positive) * 10**number
            trident(root / encoder, f"s{slide:02d}", made, encoder="")
        lines.append(f"s{slide:02d},p{slide // 2:02d},{'tumor' if positive else 'normal'}")
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    return root / "uni", root / "conch", root / "labels.csv"


def load(first: Path, *others: Path, labels: Path | None = None, **more: object) -> BagDataset:
    return miue.load_bags(first, labels=labels, settings={"more_features": others, **more}).bags


def in_memory(names: tuple[str, ...] = ("uni", "conch"), bags: int = 12) -> dict[str, BagDataset]:
    labels = [bag % 2 for bag in range(bags)]
    return {
        name: BagDataset.from_arrays(
            [features_of(3 + bag % 4, WIDTHS[name], 2 * bag + len(name), bool(bag % 2)) for bag in range(bags)],
            labels,
            ids=[f"s{bag:02d}" for bag in range(bags)],
        )
        for name in names
    }


def test_features_are_joined_patch_by_patch_and_stay_in_their_files(tmp_path: Path) -> None:
    uni, conch, labels = cohort(tmp_path)
    bags = load(uni, conch, labels=labels)
    alone = [miue.load_bags(one, labels=labels).bags for one in (uni, conch)]
    assert isinstance(bags.instances, JoinedInstances) and bags.encoders == WIDTHS
    for row in (0, 7, 23):
        wanted = np.concatenate([one.batch([row]).instances.numpy() for one in alone], 1)
        assert np.array_equal(bags.batch([row]).instances.numpy(), wanted)
        assert np.array_equal(bags.batch([row], rows=[np.array([2, 0])]).instances.numpy(), wanted[[2, 0]])
    assert bags.coords is not None and alone[0].coords is not None
    assert np.array_equal(bags.coords.values, alone[0].coords.values)
    again = find_bags_again(describe_bags(bags, tmp_path / "copy.npy"))
    assert not list(tmp_path.glob("*copy.npy")) and state_of_bags(again) == state_of_bags(bags)
    assert again.encoders == WIDTHS and np.array_equal(again.batch([3]).instances, bags.batch([3]).instances)
    assert keep_in_memory(bags.instances, 0.5) == len(bags.instances) * 8 * 4
    files = [part.array for part in bags.instances.parts if isinstance(part, RearrangedInstances)]
    assert [isinstance(one, FileInstances) and one.memory_share for one in files] == [0.5, 0.5]
    patients = load(uni, conch, labels=labels, bag_per="patient")
    first = np.concatenate([bags.batch([row]).instances.numpy() for row in (0, 1)])
    assert np.array_equal(patients.batch([0]).instances.numpy(), first) and patients.encoders == WIDTHS


def test_bags_are_joined_by_name_in_whatever_order(tmp_path: Path) -> None:
    parts = in_memory()
    wanted = [np.concatenate([p.batch([row]).instances.numpy() for p in parts.values()], 1) for row in (4, 1)]
    shuffled = {"uni": parts["uni"].subset([4, 1]), "conch": parts["conch"].subset([1, 4])}
    joined = join_features(shuffled)
    assert joined.ids == ("s04", "s01") and list(joined.labels) == [0, 1]
    assert np.array_equal(np.asarray(joined.instances), np.concatenate(wanted))
    assert joined.own_instance_labels.known.sum() == 0 and len(joined.instance_labels) == len(joined.instances)


def test_a_model_is_the_mean_of_a_network_on_each_encoder_and_their_disagreement_is_epistemic() -> None:
    parts = in_memory()
    bags = join_features(parts)
    model = train_one_epoch(bags, settings={"max_epochs": 3, "temperature_scaling": False}, distances=())
    predictions = model.predict(bags)
    p = []
    for member, part in zip(model.method.members(), parts.values(), strict=True):
        whole: Any = member.network.encoder
        assert whole.encoder.layers[0].in_features == part.instance_shape[0]
        member.network.encoder = whole.encoder  # without the choice of columns
        batch = part.batch(range(len(part)))
        p.append(member.bag_log_probabilities(batch).detach().double().exp().numpy())
    mean = np.mean(p, 0)
    np.testing.assert_allclose(predictions.bags.probabilities, mean, atol=1e-6)

    def entropy(of: np.ndarray) -> np.ndarray:
        return -(of * np.log(of)).sum(1)

    information = entropy(mean) - np.mean(list(map(entropy, p)), 0)
    np.testing.assert_allclose(predictions.bags.uncertainty("mutual_information"), information, atol=1e-6)
    assert information.max() > 1e-4


def test_each_network_learns_the_scale_of_its_own_features() -> None:
    parts = in_memory()
    ones = BagDataset.packed(
        np.ones((int(parts["uni"].sizes.sum()), 3), np.float32), parts["uni"].sizes, parts["uni"].ids
    )
    model = train_one_epoch(join_features({**parts, "conch": ones}), distances=())
    encoders: list[Any] = [member.network.encoder for member in model.method.members()]
    uni, conch = (encoder.encoder for encoder in encoders)
    assert torch.equal(conch.mean, torch.ones(3)) and len(uni.mean) == 5 and uni.mean.abs().max() < 1


def test_mirel_on_each_encoder_predicts_instances_by_its_residual() -> None:
    bags = join_features(in_memory())
    model = train_one_epoch(bags, method="mirel", distances=())
    assert model.method.estimators == ("residual", "bag-of-one")
    instances = model.predict(bags).instances
    assert instances is not None and len(instances) == bags.sizes.sum()


def test_one_network_reads_all_features_where_patches_are_joined() -> None:
    bags = join_features(in_memory())
    model = train_one_epoch(bags, settings={"max_epochs": 1, "join": "patches"})
    assert len(model.method.members()) == 1 and model.contract.encoders == WIDTHS
    encoder: Any = model.method.network.encoder
    assert encoder.layers[0].in_features == 8
    other = BagDataset.from_arrays([np.ones((2, 8))])
    assert len(model.predict(other).bags) == 1  # the columns of a table, which name no encoder


def test_a_model_is_saved_and_read_back_with_what_each_member_reads(tmp_path: Path) -> None:
    bags = join_features(in_memory())
    model = train_one_epoch(bags, out=tmp_path / "run")
    loaded = miue.Model.load(tmp_path / "run")
    assert [one.columns for one in loaded.config.members] == [(0, 5), (5, 8)]
    ours, theirs = loaded.predict(bags).bags, model.predict(bags).bags
    assert np.array_equal(ours.probabilities, theirs.probabilities)


@pytest.mark.long
def test_a_training_on_two_encoders_resumes_to_the_same_weights(tmp_path: Path) -> None:
    bags = join_features(in_memory())
    for out, epochs in (("a", 2), ("a", 4), ("b", 4)):
        if_exists: Any = "resume" if epochs == 4 and out == "a" else "refuse"
        settings = {"max_epochs": epochs, "distances": (), "device": "cpu"}
        miue.train(
            bags, method="softmax", progress=False, out=tmp_path / out, if_exists=if_exists, settings=settings
        )
    digests = [miue.Model.load(tmp_path / out).weights_sha256 for out in "ab"]
    assert digests[0] == digests[1]


def test_other_encoders_or_another_order_are_named() -> None:
    parts = in_memory()
    model = train_one_epoch(join_features(parts))
    for bags, got in (
        (parts["uni"], "5 features of one encoder"),
        (join_features({name: parts[name] for name in ("conch", "uni")}), "conch (3) + uni (5)"),
    ):
        with pytest.raises(ModelError) as error:
            model.predict(bags)
        assert error.value.got == got
        assert error.value.wanted == "features of uni (5) + conch (3), which the model was trained on"
    swapped = {"uni": parts["conch"], "conch": parts["uni"]}
    with pytest.raises(ModelError):
        model.predict(join_features(swapped))
    alone = train_one_epoch(parts["uni"])
    with pytest.raises(ModelError) as error:
        alone.predict(join_features(parts))
    assert error.value.wanted == "features of one patch encoder, which the model was trained on"


def test_a_slide_that_an_encoder_lacks_or_has_other_patches_of_is_named(tmp_path: Path) -> None:
    uni, conch, labels = cohort(tmp_path)
    (conch / "s03.h5").unlink()
    trident(conch, "s05", features_of(9, 3), encoder="")
    trident(conch, "s06", features_of(4, 3), step=512, encoder="")
    trident(conch, "z", features_of(4, 3), encoder="")
    with pytest.raises(DataError) as error:
        load(uni, conch, labels=labels)
    assert error.value.got.startswith("3 that cannot (s03: ")
    found = miue.load_bags(uni, labels=labels, skip_bad=True, settings={"more_features": [conch]})
    reasons = {one.bag: one.reason for one in found.left_out}
    assert reasons["s03"].endswith("no features of 'conch'")
    assert reasons["s05"].endswith("3 patches of 'uni' and 9 of 'conch'")
    assert reasons["s06"].endswith("3 patches at other coordinates of 'conch' than of 'uni'")
    assert len(reasons) == 3 and len(found.bags) == 21
    assert any(note.startswith("1 bag of") and note.endswith("z") for note in found.notes)


def test_a_folder_twice_or_of_other_bags_is_named(tmp_path: Path) -> None:
    uni, _, labels = cohort(tmp_path)
    with pytest.raises(ConfigError) as error:
        load(uni, tmp_path / "conch" / ".." / "uni", labels=labels)
    assert error.value.got == "the same one twice"
    trident(tmp_path / "others", "t1", features_of(4, 3))
    with pytest.raises(DataError) as data_error:
        load(uni, tmp_path / "others", labels=labels)
    assert data_error.value.got == "others, such as 't1'"
    with pytest.raises(MiueError):
        load(uni, tmp_path / "nothing", labels=labels)


def test_images_are_not_joined() -> None:
    images = BagDataset.from_arrays([np.ones((2, 8, 8, 3), np.uint8)])
    with pytest.raises(DataError) as error:
        join_features({"a": images, "b": images})
    assert error.value.wanted == "feature vectors"


def test_a_store_keeps_which_features_are_of_which_encoder(tmp_path: Path) -> None:
    uni, conch, labels = cohort(tmp_path)
    run("data", "pack", uni, "--more-features", conch, "--labels", labels, "--out", tmp_path / "store")
    stored, bags = read_store(tmp_path / "store"), load(uni, conch, labels=labels)
    assert stored.encoders == WIDTHS and stored.ids == bags.ids
    assert np.array_equal(np.asarray(stored.instances), np.asarray(bags.instances))
    assert "uni (5)" in run("inspect", tmp_path / "store")


@pytest.mark.long
def test_two_encoders_go_from_folders_to_a_report(tmp_path: Path) -> None:
    uni, conch, labels = cohort(tmp_path, slides=60)
    both = (uni, "--more-features", conch, "--labels", labels)
    run("train", *both, "--out", tmp_path / "run", *FAST)
    assert "uni (5)" in run("inspect", tmp_path / "run")
    assert [*json.loads((tmp_path / "run" / "config.json").read_text())["contract"]["encoders"]] == [*WIDTHS]
    assert "uni (5) + conch (3)" in fail("predict", tmp_path / "run", uni, "--out", tmp_path / "no", "--quiet")
    words = ("--part", "validation", "--coverage", "0.6", "--without", "deferral", "--without", "ood")
    run("calibrate", tmp_path / "run", *both, *words)
    run("predict", tmp_path / "run", *both, "--part", "test", "--out", tmp_path / "p", "--quiet")
    assert "AUROC" in run("evaluate", tmp_path / "p")
    run("report", tmp_path / "p", "--out", tmp_path / "report.html")
    folds = ("--folds", "2", "--out", tmp_path / "cv", "--jobs", "2", *FAST)
    run("cross-validate", *both, *folds)
    assert (tmp_path / "cv" / "fold_1" / "seed_42" / "metrics.json").exists()


@pytest.mark.slow
def test_a_choice_among_candidates_mixes_them_on_each_encoder(tmp_path: Path) -> None:
    bags = join_features(in_memory(bags=40))
    recipes = {
        name: miue.Recipe(network=name, method="softmax", settings={"max_epochs": 2}, distances=())
        for name in ("mean", "max")
    }
    miue.choose(bags, tmp_path / "choice", recipes, folds=3, progress=False, settings={"device": "cpu"})
    model = miue.Model.load(tmp_path / "choice" / "model")
    assert len(model.method.members()) in (2, 4) and len(model.predict(bags).bags) == 40
