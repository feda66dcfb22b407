"""The first class is the negative one; where its name says otherwise, it is questioned before training."""

from __future__ import annotations

import shlex
from pathlib import Path

import made_files
import numpy as np
import pytest
from commands import fail, run
from made_bags import separable_bags

import miue
from miue.bags import BagDataset
from miue.bags.classes import class_names, doubt_about_negative_class, known_labels
from miue.common.errors import DataError
from miue.io import load_bags, make_folds, read_store, write_store
from miue.model.recipe import Recipe
from miue.selection import cross_validate
from miue.training.job import Job
from miue.training.run import Run
from miue.training.train import train_job, train_seeds


@pytest.mark.parametrize("labels", [["0", "1", "1.0", "1"], ["0", "01", "1"], ["no", "Tumor", "tumor"]])
def test_two_ways_to_write_a_class_are_one_only_where_nobody_names_both(labels: list[str]) -> None:
    with pytest.raises(DataError, match=r"in how a number is written, got '.*\(\d bags?\) and '.*; write"):
        class_names(labels, "labels.csv")
    both = tuple(sorted(set(labels)))
    assert class_names(labels, "labels.csv", both) == both


@pytest.mark.parametrize(
    "names, likely",
    [
        (("LUAD", "LUSC", "Normal"), "Normal"),
        (("cancer", "healthy"), "healthy"),
        (("mut", "wt"), "wt"),
        (("MSI-H", "MSS"), "MSS"),
        (("met", "non_met"), "non_met"),
        (("Tumor", "no tumor"), "no tumor"),
        (("high grade", "Low grade", "Benign "), "Benign "),
        (("EGFR mut", "EGFR wt"), "EGFR wt"),
        (("HER2+", "HER2-"), "HER2-"),
        (("carcinoma", "normal mucosa"), "normal mucosa"),
        (("dMMR", "pMMR"), "pMMR"),
    ],
)
def test_a_class_called_as_the_negative_one_is_named_where_another_is_first(
    names: tuple[str, ...], likely: str
) -> None:
    doubt = doubt_about_negative_class(names)
    assert f"is {names[0]!r}" in doubt and f"if it is {likely!r}" in doubt
    (order,) = shlex.split(doubt.split("--classes ")[1])
    names_in_order = order.split(",")
    assert names_in_order[0] == likely and sorted(names_in_order) == sorted(names)
    assert not doubt_about_negative_class(names_in_order)


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("0", "1"),
        ("normal", "tumor"),
        ("LUAD", "LUSC"),
        ("negative", "normal", "positive"),
        ("tumor", "benign", "normal"),  # two such names: which is meant is not known
    ],
)
def test_nothing_is_asked_where_the_first_may_well_be_meant(names: tuple[str, ...]) -> None:
    assert not doubt_about_negative_class(names)


def named_bags() -> BagDataset:
    bags = separable_bags()
    arrays = [np.asarray(bags.batch([bag]).instances) for bag in range(len(bags))]
    return BagDataset.from_arrays(arrays, [("cancer", "healthy")[label] for label in bags.labels.values])


@pytest.mark.long
def test_every_training_asks_before_it_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bags, recipe = named_bags(), Recipe(settings={"max_epochs": 1}, distances=())
    asked = "the negative class is 'cancer', the first; if it is 'healthy'"
    for progress in (True, False):
        miue.train(bags, settings={**recipe.settings, "distances": ()}, progress=progress)
        assert capsys.readouterr().err.count(asked) == progress
        train_seeds(Job(recipe, bags), [1, 2], Run(tmp_path / f"seeds-{progress}", progress=progress))
        assert capsys.readouterr().err.count(asked) == progress
        cross_validate(bags, make_folds(bags, 2), [1], tmp_path / f"folds-{progress}", recipe, progress=progress)
        assert capsys.readouterr().err.count(asked) == progress


@pytest.mark.long
@pytest.mark.parametrize(("background", "asks"), [(1, False), (None, True)])  # without one, flags take the first
def test_no_training_asks_where_the_background_is_named(
    background: int | None, asks: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = Recipe(settings={"max_epochs": 1}, distances=(), options={"method.background": background})
    bags = named_bags()
    train_job(Job(recipe, bags), Run(tmp_path / "run", progress=True))
    train_seeds(Job(recipe, bags), [1, 2], Run(tmp_path / "seeds", progress=True))
    cross_validate(bags, make_folds(bags, 2), [1], tmp_path / "folds", recipe)
    write_store(tmp_path / "store", bags)
    named = f"method.background={'none' if background is None else background}"
    once = ("--quiet", "--set", "max_epochs=1", "--set", named)
    said = run("train", tmp_path / "store", "--out", tmp_path / "quiet", *once)
    assert (capsys.readouterr().err + said).count("the negative class is") == (4 if asks else 0)


def bags_of_types(*, inside: int) -> BagDataset:
    """Bags of three types, one instance of four of the type ``inside``; two bags have no label."""
    random, labels = np.random.default_rng(0), np.arange(14) % 3
    types = [np.array([label, label, label, inside]) for label in labels]
    arrays = [random.normal(size=(4, 5)) + 3 * one[:, None] for one in types]
    names, known = ("fibroblast", "10", "9, rare"), [*map(int, labels[:12]), None, None]
    return BagDataset.from_arrays(arrays, known, class_names=names, instance_labels=types)


ONE_EPOCH: dict[str, object] = {"max_epochs": 1}


@pytest.mark.parametrize(
    ("method", "inside", "options", "said"),
    [
        (
            "mirel",
            1,
            {},
            "class, 'fibroblast', to be of this class, but 4 of 16 labeled instances in such bags are not",
        ),
        (
            "mirel",
            0,
            {"method.background": 2},
            "class, '9, rare', to be of this class, but 4 of 16 labeled instances",
        ),
        ("mirel", 0, {}, ""),
        ("mirel", 1, {"method.background": None}, ""),
        ("softmax", 1, {}, ""),
    ],
)
@pytest.mark.filterwarnings("ignore:2 of 14 bags have no label")
def test_labels_of_instances_that_contradict_the_negative_class_are_said(
    method: str, inside: int, options: dict[str, int | None], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bags = bags_of_types(inside=inside)
    miue.train(bags, method=method, settings={**ONE_EPOCH, "options": options, "distances": ()}, progress=True)
    shown = capsys.readouterr().err
    assert said in shown and ("method.background" in shown) == bool(said)


def test_labels_of_instances_are_those_of_the_bags_of_a_subset(capsys: pytest.CaptureFixture[str]) -> None:
    for inside, rows in ((0, range(11, -1, -1)), (1, range(2, 11))):
        bags = bags_of_types(inside=inside).subset(list(rows))
        miue.train(bags, method="mirel", settings={**ONE_EPOCH, "distances": ()}, progress=True)
        assert ("labeled instances in such bags are not" in capsys.readouterr().err) == bool(inside)


def test_bags_without_a_label_are_left_out_of_training_and_counted(tmp_path: Path) -> None:
    bags = bags_of_types(inside=0)
    with pytest.warns(UserWarning, match="2 of 14 bags have no label, so that nothing is learned .*bag_12"):
        model = miue.train(bags, settings={**ONE_EPOCH, "distances": ()}, out=tmp_path / "run", progress=False)
    record = model.training
    assert record is not None and record.training_bags + record.validation_bags == 12
    assert '"bag_12","bag_12","",""' in (tmp_path / "run" / "splits.csv").read_text()


def test_a_class_without_a_bag_to_train_on_is_warned_of(tmp_path: Path) -> None:
    lines = [f"b{bag},{'ab'[bag % 2]},{bag}.5,{row}" for bag in range(8) for row in (1, 2)]
    (tmp_path / "t.csv").write_text("bag_id,label,f,g\n" + "\n".join(lines) + "\n")
    once = ("--out", tmp_path / "run", "--quiet", "--set", "max_epochs=1", "--distance", "none")
    with pytest.warns(UserWarning, match="no bag to train on is of class 'c', so that the model cannot learn it"):
        run("train", tmp_path / "t.csv", *once, "--classes", "a,b,c")


def test_a_rare_class_without_a_split_does_not_refuse_bags_without_a_label(tmp_path: Path) -> None:
    rows = [
        f"{bag},{label},{bag}.5,{row}" for bag, label in enumerate([*"aabbc" * 3, "d", "d", ""]) for row in (1, 2)
    ]
    (tmp_path / "t.csv").write_text("bag_id,label,f,g\n" + "\n".join(rows) + "\n")
    once = ("--quiet", "--set", "max_epochs=1", "--distance", "none")
    with pytest.warns(UserWarning, match="1 of 18 bags have no label"):
        said = run("train", tmp_path / "t.csv", "--out", tmp_path / "run", *once)
    assert "no split was drawn (class 'd'" in said and "Trained" in said


@pytest.mark.parametrize("word", ["none", "None", "unknown"])
def test_a_word_that_can_be_a_class_or_an_unknown_label_is_asked_for(word: str, tmp_path: Path) -> None:
    _, labels = made_files.slides(tmp_path, patients=12)
    labels.write_text(labels.read_text().replace("normal", word))
    features = tmp_path / "features_uni_v1"
    with pytest.raises(
        DataError, match=f"label '{word}' .*a class, or an empty cell .*--classes {word},tumor"
    ) as told:
        load_bags(features, labels=labels)
    assert "if it is none, empty these cells" in str(told.value)
    bags = load_bags(features, labels=labels, classes=(word, "tumor")).bags
    assert bags.class_names == (word, "tumor") and bags.labels.known.all()
    named = load_bags(features, labels=labels, classes=("negative", "tumor")).bags
    assert named.labels.known.tolist() == (bags.labels.values == 1).tolist()
    with pytest.raises(DataError, match="expected one of the classes given: NONE, UNKNOWN, tumor"):
        load_bags(features, labels=labels, classes=("NONE", "UNKNOWN", "tumor"))


@pytest.mark.parametrize(
    ("labels", "are_classes"),
    [
        (["0.00", "1.37", "2.74"], False),
        (["0.5", "1.5"], False),
        (["51", "57", "62", "66"], False),
        (["2", "3", "4"], False),
        (["0", "1", "3"], False),
        (["0.0", "1.0"], True),
        (["-1", "1"], True),
        (["1", "2.0", "3"], True),
        (["51", "old", "62"], True),
    ],
)
def test_numbers_are_classes_only_where_they_count_or_are_two(labels: list[str], are_classes: bool) -> None:
    arrays = [np.ones((1, 2))] * len(labels)
    if are_classes:
        assert class_names(labels, "t.csv") == BagDataset.from_arrays(arrays, labels).class_names
        return
    with pytest.raises(DataError, match="predict numbers with task=regression"):
        class_names(labels, "t.csv")
    with pytest.raises(DataError, match="predict numbers with task=regression"):
        BagDataset.from_arrays(arrays, labels)
    assert class_names(labels, "t.csv", labels) == tuple(labels)
    assert BagDataset.from_arrays(arrays, labels, class_names=labels).class_names == tuple(labels)


def test_other_words_for_nothing_are_unknown_labels_unless_they_are_classes() -> None:
    labels = ["NA", "n/a", "nan", "null", "", "low"]
    assert known_labels(labels, "t.csv") == ("", "", "", "", "", "low")
    assert known_labels(labels, "t.csv", ["NA", "low"]) == ("NA", "", "", "", "", "low")


def test_classes_with_commas_are_ordered_as_the_note_says(tmp_path: Path) -> None:
    _, labels = made_files.slides(tmp_path, patients=12)
    text = labels.read_text().replace(",normal", ",normal mucosa").replace(",tumor", ',"Adenocarcinoma, NOS"')
    labels.write_text(text)
    names = ("Adenocarcinoma, NOS", "normal mucosa")
    advice = "--classes 'normal mucosa' --classes 'Adenocarcinoma, NOS'"
    assert advice in doubt_about_negative_class(names)
    words = ["data", "pack", tmp_path / "features_uni_v1", "--labels", labels, "--quiet"]
    made = run(*words, "--out", tmp_path / "store", *shlex.split(advice))
    assert "negative class: normal mucosa" in made
    assert read_store(tmp_path / "store").class_names == names[::-1]
    refused = fail(*words, "--out", tmp_path / "other", "--classes", ",".join(names))
    assert "one of the classes given: Adenocarcinoma, NOS" in refused.replace("'", "")


@pytest.mark.parametrize("columns", ["p_0,p_1,p_2", "prob_0,prob_1,prob_2"])
@pytest.mark.parametrize(
    ("classes", "wanted", "got"),
    [("low,high", 3, "2 names"), ("low,mid,high,other", 3, "4 names"), ("low,mid,low", 2, "'low' twice")],
)
def test_a_table_takes_one_name_for_each_of_its_probabilities(
    classes: str, wanted: int, got: str, columns: str, tmp_path: Path
) -> None:
    table = tmp_path / "theirs.csv"
    table.write_text(f"bag_id,label,{columns}\na,0,0.6,0.3,0.1\nb,2,0.2,0.3,0.5\n")
    for command in (["evaluate", table], ["report", table, "--out", tmp_path / "report.html", "--quiet"]):
        said = " ".join(fail(*command, "--classes", classes).split())
        assert f"--classes {classes}: expected {wanted} different names, one for each probability" in said
        assert f"got {got}" in said
    assert "100.00" in run("evaluate", table, "--classes", "low,mid,high")
