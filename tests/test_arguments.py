"""Arguments of the Python interface that are of the wrong type, each with the message that helps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import parts_of_others as others
import pytest
import torch
from made_bags import separable_bags
from scipy.sparse import csr_matrix
from torch import nn

import miue
from miue.calibration import worklist
from miue.calibration.monitoring import monitor
from miue.common.errors import ConfigError, DataError, MiueError, ModelError
from miue.common.tasks import Executor, Shard
from miue.common.values import Width, check_value
from miue.datasets.digits import digits_bags
from miue.evaluation.bootstrap import bootstrap_intervals
from miue.methods import Softmax
from miue.model.calibrate import calibrate_model
from miue.model.recipe import Recipe
from miue.networks import MILNetwork
from miue.settings import RunSettings
from miue.training.job import Job
from miue.training.run import Run
from miue.training.train import train_job, train_seeds

ARRAYS = [np.ones((size, 3), np.float32) for size in (2, 3, 1, 2, 4, 1)]
LABELS = [0, 1, 0, 1, 0, 1]
loose: Any = miue
"""What a type checker does not read."""
loose_executor: Any = Executor
loose_shard: Any = Shard
loose_run: Any = Run
loose_worklist: Any = worklist
loose_seeds: Any = train_seeds
RECIPE = Recipe(distances=(), settings={"max_epochs": 1})
CALIBRATION = miue.Calibration(class_names=("a", "b"))


@pytest.fixture(autouse=True)
def _types_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call functions as a user does, without the types that tests check."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="module")
def model() -> miue.Model:
    return miue.train(
        separable_bags(20), settings={"max_epochs": 1, "distances": (), "device": "cpu"}, progress=False
    )


def test_bags_that_were_loaded_or_are_still_a_path_are_told_how_to_be_passed(
    tmp_path: Path, model: miue.Model
) -> None:
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", np.ones((2, 6), np.float32))
    loaded: Any = miue.load_bags(tmp_path)
    path: Any = tmp_path
    calls: list[Callable[[Any], object]] = [
        miue.train,
        model.predict,
        lambda bags: miue.make_folds(bags, 2),
        lambda bags: miue.write_store(tmp_path / "store", bags),
        lambda bags: miue.cross_validate(bags, miue.make_folds(separable_bags(20), 2), [1], tmp_path / "cv"),
        lambda bags: miue.concatenate([bags]),
        lambda bags: miue.check_vanishing(tmp_path, bags, tmp_path / "out"),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"expected a BagDataset, got a value.*; pass its attribute 'bags'"):
            call(loaded)
        with pytest.raises(ConfigError, match=r"open it: miue.load_bags\('.*', labels=...\).bags"):
            call(path)
        with pytest.raises(ConfigError, match=r"open it: miue.load_bags\('folder', labels=...\).bags"):
            call("folder")
        with pytest.raises(ConfigError, match=r"expected a BagDataset, got a value of type dict; make them of"):
            call({"a": np.ones((2, 3))})


@pytest.mark.parametrize(
    ("call", "item"),
    [
        (miue.evaluate, "predictions"),
        (miue.calibrate, "predictions"),
        (lambda given: miue.decide(given, miue.Calibration(class_names=("a", "b"))), "predictions"),
        (lambda given: miue.export(given, "out", "arrays"), "predictions"),
        (lambda given: miue.write_report("r.html", [("a", given)]), "source 'a'"),
    ],
)
def test_what_is_no_predictions_is_told_how_to_become_some(
    call: Callable[[Any], object], item: str, model: miue.Model
) -> None:
    for given, got in ((model, "a value of type Model"), ("folder", "'folder'")):
        with pytest.raises(ConfigError) as raised:
            call(given)
        assert (raised.value.item, raised.value.got) == (item, got)
        assert "model.predict(bags)" in raised.value.fix and "miue.read_predictions(path)" in raised.value.fix


def test_instance_labels_that_do_not_fit_name_the_bag() -> None:
    with pytest.raises(DataError, match="instance labels of bag 1: expected 3, one for each instance, got 2"):
        miue.BagDataset.from_arrays(ARRAYS[:2], LABELS[:2], instance_labels=[[0, 1], [0, 1]])
    with pytest.raises(DataError, match="lists of instance labels: expected 2, one for each bag, got 1"):
        miue.BagDataset.from_arrays(ARRAYS[:2], LABELS[:2], instance_labels=[[0, 1]])


def test_a_single_bag_is_told_to_be_a_list_of_one(model: miue.Model) -> None:
    bag: Any = np.ones((5, 6), np.float32)
    with pytest.raises(DataError, match=r"pass a single bag as a list of one, \[bag\]"):
        model.predict(bag)


@pytest.mark.parametrize("rows", [np.ones((5, 3)).view(np.matrix), csr_matrix(np.ones((5, 3)))])
def test_a_matrix_of_rows_is_not_taken_as_a_bag_for_each_row(model: miue.Model, rows: Any) -> None:
    with pytest.raises(ConfigError, match=r"the bags: expected a BagDataset, got a value of type .*matrix"):
        model.predict(rows)


class _Returns(nn.Module):
    """A module for bags (n, 3) that returns what ``make`` makes of the scores of each instance."""

    def __init__(self, make: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.make = nn.Linear(3, 2), make

    def forward(self, bag: torch.Tensor) -> Any:
        return self.make(self.layer(bag))


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (lambda scores: scores, r"a tensor of shape \(\d, 2\)"),  # one per instance, of bags of several sizes
        (lambda scores: scores.mean(), r"a tensor of shape \(\)"),
        (lambda scores: scores.mean(0, keepdim=True), r"a tensor of shape \(1, 2\)"),
        (lambda scores: (scores.mean(0), scores), "a tuple of 2"),
        (lambda scores: {"logits": scores.mean(0)}, "a value of type dict"),
    ],
)
def test_a_plain_module_that_returns_something_else_than_logits_is_named(make: Any, got: str) -> None:
    network = _Returns(make)
    with pytest.raises(ModelError, match=rf"network '_Returns': expected logits of shape \(2,\) .*, got {got};"):
        miue.train(ARRAYS, LABELS, network=network, encoder="identity", progress=False, settings={"device": "cpu"})


def test_logits_that_are_not_as_many_as_the_method_asks_for_are_named() -> None:
    class Twice(Softmax):
        def __init__(self, network: MILNetwork) -> None:
            super().__init__(network)
            self.score_width = 4

    with pytest.raises(ModelError, match=r"logits of shape \(4,\) .* \(2,\); .*\(for this method 4 scores\)"):
        miue.train(
            ARRAYS,
            LABELS,
            network=_Returns(lambda scores: scores.mean(0)),
            method=Twice,
            encoder="identity",
            progress=False,
            settings={"device": "cpu"},
        )


def test_a_plain_encoder_that_returns_several_things_is_named() -> None:
    encoder = _Returns(lambda scores: (scores, scores))
    with pytest.raises(ModelError, match="encoder '_Returns': expected .*, got a tuple of 2; return"):
        miue.train(ARRAYS, LABELS, encoder=encoder, progress=False, settings={"device": "cpu"})


@pytest.fixture(scope="module")
def predictions(model: miue.Model) -> Any:
    return model.predict(separable_bags(60, seed=1))


@pytest.mark.parametrize(
    ("call", "item", "got"),
    [
        (lambda p: loose.DeferralGoal("5%"), "max_error", "'5%'"),
        (lambda p: loose.FalseAlarmGoal(True), "rate", "True"),
        (lambda p: loose.InstanceGoal(cap=1.5), "cap", "1.5"),
        (lambda p: loose_executor("processes", "2"), "jobs", "'2'"),
        (lambda p: loose_shard("1", 2), "number", "'1'"),
        (lambda p: loose_run(settings="ray"), "settings", "'ray'"),
        (lambda p: loose.calibrate(p, deferral=0.1), "deferral", "0.1"),
        (lambda p: loose.calibrate(p, like="folder"), "like", "'folder'"),
        (lambda p: loose.calibrate(p, class_names={"a", "b"}), "class_names", "a value of type set"),
        (lambda p: calibrate_model(p, p), "model", "a value of type Predictions"),
        (lambda p: loose.decide(p, "c.json"), "calibration", "'c.json'"),
        (lambda p: monitor(CALIBRATION, [p]), "batches, entry 0", "a value of type Predictions"),
        (lambda p: loose.Model.load(None), "path", "None"),
        (lambda p: p.save(3), "path", "3"),
        (lambda p: loose.train(ARRAYS, LABELS, settings={"device": 3}), "device", "3"),
        (lambda p: loose.train(ARRAYS, LABELS, settings={"distances": "knn"}), "distances", "'knn'"),
        (lambda p: loose.train(ARRAYS, LABELS, validation=0.2), "validation", "a value of type float (0.2)"),
        (lambda p: loose.train(ARRAYS, LABELS, if_exists="ask"), "if_exists", "'ask'"),
        (lambda p: loose.train(ARRAYS, LABELS, settings={1: 2}), "settings[1]", "1"),
        (lambda p: loose.train(ARRAYS, LABELS, settings=["epochs"]), "settings", "['epochs']"),
        (
            lambda p: loose.train(ARRAYS, LABELS, settings={"options": {"a": [{}]}}),
            "options['a'], entry 0",
            "a value of type dict",
        ),
        (lambda p: loose.train(separable_bags(4).subset([])), "the bags to train on", "none"),
        (lambda p: loose_seeds(Job(RECIPE, separable_bags(4)), ["x"], Run()), "seeds, entry 0", "'x'"),
        (lambda p: train_job(p, Run()), "job", "a value of type Predictions"),
        (lambda p: loose.make_folds(separable_bags(20), 1), "the number of folds", "1"),
        (lambda p: loose.load_bags("folder", labels=["a"]), "labels", "['a']"),
        (lambda p: loose.write_report("r.html", [p]), "source 1", "a value of type Predictions"),
        (lambda p: loose.write_report("r.html", p), "sources", "a value of type Predictions"),
        (lambda p: loose.compare("cv"), "folders", "a value of type str ('cv')"),
        (lambda p: loose.compare([3]), "folders, entry 0", "3"),
        (lambda p: loose.concatenate(separable_bags(4)), "parts", "a value of type BagDataset"),
        (lambda p: loose.export(p, "o", "geojson", bounds=3), "bounds", "3"),
        (lambda p: loose.export(p, "o", "geojson", classes=[1]), "classes, entry 0", "1"),
        (lambda p: loose.check_mil(seeds=1), "seeds", "1"),
        (lambda p: loose.check_mil(separable_bags(4)), "the network", "a value of type BagDataset"),
        (lambda p: loose.cross_validate(separable_bags(20), [], [1], "cv"), "splits", "[]"),
        (lambda p: loose_worklist(p, p), "limits", "a value of type Predictions"),
        (lambda p: bootstrap_intervals(p, {}), "table", "a value of type Predictions"),
        (lambda p: bootstrap_intervals(p.bags, {}, level=95), "the level of the intervals", "95.0"),
        (lambda p: digits_bags(splits="test"), "splits", "'test'"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_passed(
    call: Callable[[Any], object], item: str, got: str, predictions: Any
) -> None:
    with pytest.raises(MiueError) as said:
        call(predictions)
    assert (said.value.item.removesuffix(f" {got}"), said.value.got) == (item, got)


@pytest.mark.parametrize(
    ("wanted", "value", "taken"),
    [
        (int, np.int64(3), 3),
        (int, torch.tensor(3), 3),
        (float, 3, 3.0),
        (float, np.float32(0.1), 0.1),
        (bool, np.bool_(True), True),
        (str, torch.device("cpu"), "cpu"),
        (Sequence[int], np.array([1, 2]), [1, 2]),
        (Sequence[float], torch.tensor([0.5]), [0.5]),
        (Sequence[str], (name for name in "ab"), ["a", "b"]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Path | None, "folder", Path("folder")),
        (others.Pooling, "maximum", others.Pooling.MAXIMUM),
        (Width, np.int32(5), 5),
    ],
)
def test_a_value_of_another_library_is_taken_as_one_of_python(wanted: Any, value: Any, taken: Any) -> None:
    assert repr(check_value("value", value, wanted)) == repr(taken)


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (int, "3"),
        (int, True),
        (int, 2.0),
        (float, "0.5"),
        (float, True),
        (bool, 1),
        (str, 3),
        (Sequence[str], "ab"),
        (Sequence[str], {"a"}),
        (Sequence[int], {1: 2}),
        (tuple[int, int], (1, 2, 3)),
        (Path | str, 3),
        (others.Pooling, "median"),
        (Width, 0),
        (miue.DeferralGoal | None, {"max_error": 0.1}),
    ],
)
def test_a_value_of_another_kind_is_refused(wanted: Any, value: Any) -> None:
    with pytest.raises(ConfigError, match="^value: expected .*, got .*"):
        check_value("value", value, wanted)


@pytest.mark.long
def test_numbers_of_numpy_and_generators_are_as_good_as_those_of_python(tmp_path: Path, predictions: Any) -> None:
    assert loose.DeferralGoal(np.float32(0.1)).max_error == 0.1  # the decimal, not 0.10000000149
    bags = separable_bags(20)
    folds, recipe = loose.make_folds(bags, np.int64(2)), Recipe(settings={"max_epochs": 1}, distances=())
    seeds = np.array([1])
    summaries = loose.cross_validate(
        bags, folds, seeds, tmp_path / "cv", recipe, settings={"device": "cpu"}, progress=False
    )
    assert summaries[0].runs == 2
    options = {"network.hidden": np.int64(8)}
    model = loose.train(iter(ARRAYS), iter(LABELS), settings={"max_epochs": 1, "options": options}, progress=False)
    assert model.config.network.options["hidden"] == 8
    assert loose.write_report(tmp_path / "r.html", (pair for pair in [("a", predictions)])).bytes
    assert len(loose.concatenate(part for part in [bags.subset([0]), bags.subset([1])])) == 2


@pytest.mark.parametrize(
    ("argument", "meant"),
    [("device", "device"), ("epochs", "max_epochs"), ("lr", "learning_rate"), ("random_state", "seed")],
)
def test_a_setting_among_the_arguments_of_training_is_told_where_it_goes(argument: str, meant: str) -> None:
    with pytest.raises(ConfigError) as said:
        loose.train(ARRAYS, LABELS, **{argument: 3})
    assert (said.value.item, said.value.fix) == (
        f"argument {argument!r} of train()",
        f"pass settings={{{meant!r}: …}}",
    )
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        loose.train(ARRAYS, LABELS, colour=3)


def test_a_seed_twice_is_no_second_run(tmp_path: Path) -> None:
    bags = separable_bags(20)
    with pytest.raises(ConfigError, match=r"seeds: expected different numbers, .* got \[1, 1\]"):
        loose.cross_validate(bags, loose.make_folds(bags, 2), [1, 1], tmp_path / "cv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"labels": {0: 1, 1: 0}},
            "the labels: expected one for each bag, in their order, got a value of type dict",
        ),
        ({"labels": "ab"}, "the labels: expected one for each bag, in their order, got a value of type str"),
        (
            {"patients": {"x", "y"}},
            "the patients: expected one for each bag, in their order, got a value of type set",
        ),
        ({"class_names": {"n", "p"}}, "the class names: expected one for each class, in their order"),
        ({"class_names": ["n", "n"]}, "the class names: expected a different text for each class"),
        ({"class_names": ["n", " "]}, "the class names: expected a different text for each class"),
        ({"ids": ["a", None]}, "id 1: expected the name of a bag, got None"),
        ({"instance_labels": 3}, "the lists of instance labels: expected 2, one for each bag, got"),
        ({"coords": 3}, r"the coords: expected an array \(n, 2\)"),
    ],
)
def test_values_without_order_or_for_other_things_are_not_taken_for_those_of_bags(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        loose.BagDataset.from_arrays(ARRAYS[:2], **options)


def test_a_masked_value_is_no_feature_and_no_position() -> None:
    masked = np.ma.masked_array(np.ones((2, 3)), mask=np.eye(2, 3) * [[1], [0]] > 0)
    said = "got a masked array, 1 of whose values are masked"
    with pytest.raises(DataError, match=f"bag 'bag_0': .*{said}"):
        loose.BagDataset.from_arrays([masked])
    with pytest.raises(DataError, match=f"X: .*{said}"):
        miue.MILUncertaintyClassifier().fit(masked, [0, 1], bag_ids=[0, 1])
    with pytest.raises(DataError, match=f"the coords of bag 0: .*{said}"):
        loose.BagDataset.from_arrays([np.ones((2, 3))], coords=[masked[:, :2]])
    with pytest.raises(DataError, match=f"the coords of bag 0: .*{said}"):
        loose.BagDataset.from_tensors(np.ones((2, 3)), bag_ids=[0, 0], coords=masked[:, :2])


def test_a_masked_label_is_unknown(model: miue.Model) -> None:
    labels = np.ma.masked_array(LABELS, mask=[True] + 5 * [False])
    assert loose.BagDataset.from_arrays(ARRAYS, labels).labels.known.tolist() == [False] + 5 * [True]
    bags = [np.ones((2, 5), np.float32) * number for number in LABELS]
    assert loose.BagDataset.from_arrays(bags, list(labels)).labels.known.tolist() == [False] + 5 * [True]
    assert model.predict(bags, labels).bags.labels.known.tolist() == [False] + 5 * [True]
    with pytest.raises(DataError, match="y, entry 0: expected a class label, got None"):
        miue.MILUncertaintyClassifier().fit(bags, labels)


def test_values_of_other_libraries_are_those_of_python() -> None:
    ids, patients = np.array([b"s1", b"s2"]), np.array([7.0, np.nan])  # HDF5 and pandas have them like this
    bags = loose.BagDataset.from_arrays(
        torch.ones(2, 3, 4), torch.tensor([0, 1], dtype=torch.bfloat16), ids=ids, patients=patients
    )
    assert bags.ids == ("s1", "s2") and bags.patients == ("7", "")
    assert bags.labels.values.tolist() == [0, 1]
    assert loose.BagDataset.from_arrays([torch.eye(3).to_sparse()]).instance_shape == (3,)


@pytest.mark.parametrize("positions", [[9], [-5], 1, slice(2), {0, 1}, None, [[0, 1]]])
def test_positions_of_no_bag_are_refused(positions: Any) -> None:
    with pytest.raises(DataError, match="position"):
        separable_bags(4).subset(positions)


def test_numbers_in_a_column_of_objects_are_features() -> None:
    frame = {"slide": ["a", "b"], "area": np.array([1, 2.5], object), "note": np.array(["x", 1], object)}
    assert loose.BagDataset.from_frame(frame, bag="slide").instance_shape == (1,)


def test_a_bag_that_is_there_twice_is_not_trained_and_validated_on() -> None:
    with pytest.raises(DataError, match="bag 'bag_0': expected each bag once, got 2; keep one of them"):
        loose.train(separable_bags(20).subset([*range(20), 0]))


@pytest.mark.long
def test_seeds_of_numpy_are_trained_in_other_processes(tmp_path: Path) -> None:
    """Tasks are written as JSON, which has no numbers of NumPy: a TypeError with the processes left open."""
    settings = RunSettings(device="cpu", executor="processes", jobs=1)
    run = Run(tmp_path / "out", settings, progress=False)
    records = train_seeds(Job(RECIPE, separable_bags(20)), np.array([1, 2]), run)  # type: ignore[arg-type]
    assert [record.seed for record in records] == [1, 2]


def test_seeds_come_from_a_generator_and_the_folder_is_a_text(tmp_path: Path) -> None:
    folder: Any = str(tmp_path / "out")
    seeds: Any = (seed for seed in (3,))
    run = Run(folder, RunSettings.of({"device": "cpu", "callbacks": []}), progress=False)
    assert run.settings.callbacks == ()
    assert [record.seed for record in train_seeds(Job(RECIPE, separable_bags(20)), seeds, run)] == [3]
    assert (tmp_path / "out" / "seed_3" / "config.json").exists()
