"""In distribution, out of distribution, unknown: three values wherever bags are kept, judged, shown or written."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run
from made_bags import separable_bags
from made_predictions import made_predictions
from made_promises import predictions_of
from made_reports import reported, unpacked
from PIL import Image

import miue
from miue.bags import BagDataset, Labels, OodFlags
from miue.bags.columns import with_named_sets
from miue.calibration import DeferralGoal, FalseAlarmGoal, calibrate, decide, find_shift
from miue.calibration.compared import usual_values
from miue.common.errors import DataError
from miue.datasets.digits import digits_bags
from miue.datasets.gaussian import gaussian_bags
from miue.datasets.image_shifts import shifted_copies
from miue.distributions import Dirichlet
from miue.evaluation import Metric, evaluate
from miue.evaluation.bootstrap import resampled_metrics
from miue.evaluation.level import evaluate_level
from miue.evaluation.metrics import NEITHER_KNOWN, NO_LABEL, NONE_KNOWN_IN, NONE_KNOWN_OUT, SEVERAL_CLASSES
from miue.io import load_bags
from miue.predictions import Predictions, PredictionTable, Provenance, by_patient, read_predictions
from miue.predictions.read import read_table
from miue.report.figures import confidence_figure
from miue.training.sets import check_labels

THREE: list[bool | None] = [False, True, None]
VALUES, KNOWN = [False, True, False], [True, True, False]


def same(flags: OodFlags, values: list[bool], known: list[bool]) -> bool:
    return flags.values.tolist() == values and flags.known.tolist() == known


def table_of(flags: list[bool | None], labels: list[int | None], alpha: list[list[float]]) -> PredictionTable:
    made = OodFlags.of(flags)
    return PredictionTable(
        Dirichlet(torch.tensor(alpha, dtype=torch.float64)),
        np.array([f"b{i}" for i in range(len(flags))], object),
        Labels.of(labels),
        made,
        np.where(made.out_of_distribution, "far", "").astype(object),
    )


def some_predictions(flags: OodFlags) -> Predictions:
    """Predictions of 30 labeled bags with the given flags."""
    made = made_predictions()
    assert made.instances is not None
    sets = np.where(flags.out_of_distribution, "cats", "").astype(object)
    labels = Labels(made.bags.labels.values, np.ones(30, bool))
    return replace(
        made,
        bags=replace(made.bags, labels=labels, is_ood=flags, ood_sets=sets),
        instances=replace(made.instances, is_ood=flags.repeat(5), ood_sets=np.repeat(sets, 5)),
    )


def test_flags_are_three_values_and_refuse_a_fourth() -> None:
    flags = OodFlags.of(THREE)
    assert same(flags, VALUES, KNOWN)
    assert flags.in_distribution.tolist() == [True, False, False]
    assert flags.out_of_distribution.tolist() == [False, True, False]
    assert same(flags[[2, 1]].repeat(2), [False, False, True, True], [False, False, True, True])
    assert same(OodFlags.concatenate([flags, OodFlags.all_in(1)]), [*VALUES, False], [*KNOWN, True])
    with pytest.raises(DataError, match="is_ood 1: expected True, False, or None where unknown, got 'x'"):
        OodFlags.of(np.array([True, "x"], object))


def test_bags_of_which_nothing_is_stated_are_unknown() -> None:
    bags = [np.ones((2, 3))] * 3
    assert not BagDataset.from_arrays(bags).is_ood.known.any()
    made = BagDataset.from_arrays(bags, is_ood=THREE)
    assert same(made.is_ood, VALUES, KNOWN)
    assert same(made.instance_is_ood, [False] * 2 + [True] * 2 + [False] * 2, [True] * 4 + [False] * 2)
    assert made.ood_sets == ("", "ood", "")


def test_a_store_keeps_the_three_values_of_bags_and_instances(tmp_path: Path) -> None:
    made = BagDataset.from_arrays([np.ones((2, 3))] * 3, is_ood=THREE)
    miue.write_store(tmp_path / "store", made)
    with (tmp_path / "store" / "bags.csv").open(newline="") as file:
        assert [row["is_ood"] for row in csv.DictReader(file)] == ["false", "true", ""]
    assert not (tmp_path / "store" / "instance_is_ood.npy").exists()  # as their bags
    back = miue.read_store(tmp_path / "store")
    assert same(back.is_ood, VALUES, KNOWN) and back.ood_sets == made.ood_sets
    assert same(back.instance_is_ood, [False] * 2 + [True] * 2 + [False] * 2, [True] * 4 + [False] * 2)
    own = OodFlags(np.array([0, 0, 1, 0, 0, 0], bool), np.array([1, 1, 1, 1, 0, 1], bool))
    miue.write_store(tmp_path / "own", replace(made, instance_is_ood=own))
    assert same(miue.read_store(tmp_path / "own").instance_is_ood, own.values.tolist(), own.known.tolist())


def test_a_table_of_instances_keeps_the_three_values_and_without_a_column_all_are_unknown(tmp_path: Path) -> None:
    rows = ["a,0,1.0,false,", "b,1,2.0,true,scanner", "c,1,3.0,,"]
    (tmp_path / "t.csv").write_text("\n".join(["bag_id,label,f,is_ood,ood_set", *rows]))
    bags = load_bags(tmp_path / "t.csv").bags
    assert same(bags.is_ood, VALUES, KNOWN) and same(bags.instance_is_ood, VALUES, KNOWN)
    (tmp_path / "bare.csv").write_text("bag_id,label,f\na,0,1.0\nb,1,2.0\n")
    assert not load_bags(tmp_path / "bare.csv").bags.is_ood.known.any()


def test_a_named_set_says_out_of_distribution_and_never_contradicts_the_flag(tmp_path: Path) -> None:
    flags, sets = with_named_sets(OodFlags.of([None, None, True]), ["far", "NA", ""], "t")
    assert same(flags, [True, False, True], [True, False, True]) and sets.tolist() == ["far", "", "ood"]
    (tmp_path / "t.csv").write_text("bag_id,p_1,is_ood,ood_set\na,0.5,false,far\n")
    with pytest.raises(
        DataError, match="line 2, column 'ood_set': expected nothing where is_ood is false, got 'far'"
    ):
        read_table(tmp_path / "t.csv")


def test_saved_predictions_keep_the_three_values_of_bags_and_instances(tmp_path: Path) -> None:
    data = replace(separable_bags(), ood_sets=("",) * len(separable_bags()))
    flags = OodFlags.of([THREE[i % 3] for i in range(len(data))])
    given = replace(
        data,
        is_ood=flags,
        instance_is_ood=flags.repeat(data.sizes),
        ood_sets=tuple("far" if flag else "" for flag in flags.out_of_distribution),
    )
    model = miue.train(separable_bags(), settings={"max_epochs": 1}, progress=False)
    model.predict(given).save(tmp_path / "p")
    back = read_predictions(tmp_path / "p")
    assert same(back.bags.is_ood, flags.values.tolist(), flags.known.tolist())
    of_instances = flags.repeat(data.sizes)
    assert back.instances is not None
    assert same(back.instances.is_ood, of_instances.values.tolist(), of_instances.known.tolist())
    unstated = model.predict(separable_bags())
    assert not unstated.bags.is_ood.known.any()
    assert unstated.instances is not None and not unstated.instances.is_ood.known.any()


def test_data_made_with_foreign_bags_says_which_bags_are_in_distribution() -> None:
    sizes = {"train": 4, "validation": 4, "test": 4}
    digits = digits_bags(sizes=sizes)
    for bags in (digits, gaussian_bags(), shifted_copies(digits.subset([0, 1]), seed=0)):
        assert bags.is_ood.known.all() and bags.instance_is_ood.known[bags.positions].all()
        assert bags.is_ood.in_distribution.any() and bags.is_ood.out_of_distribution.any()


def test_unknown_bags_count_for_the_classes_and_for_no_detection() -> None:
    alpha = [[9.0, 1.0], [1.0, 8.0], [2.0, 1.0], [1.1, 1.0], [6.0, 1.0]]
    level = evaluate_level(table_of([False, False, True, None, None], [0, 0, None, 1, 0], alpha))
    assert (level.count, level.labeled, level.in_distribution, level.out_of_distribution) == (5, 4, 2, 1)
    assert level.metrics["accuracy"].value == 0.5
    assert level.ood["far"].auroc.value == 1  # the unknown bag of 2.1 is less certain than the far one, and out
    inside = evaluate_level(table_of([False, False, True, False, False], [0, 0, None, 1, 0], alpha))
    assert inside.ood["far"].auroc.value == 0.75


@pytest.mark.parametrize(
    ("flags", "reason"),
    [([None] * 3, NEITHER_KNOWN), ([False, None, None], NONE_KNOWN_OUT), ([True, None, None], NONE_KNOWN_IN)],
)
def test_detection_is_undefined_unless_both_kinds_are_known(flags: list[bool | None], reason: str) -> None:
    table = table_of(flags, [None, 0, 0], [[9.0, 1.0], [3.0, 1.0], [1.0, 2.0]])
    level = evaluate_level(table)
    assert level.confidence.auroc.value == 1
    assert level.metrics["ue"] == Metric(None, reason)
    assert all(one.auroc == Metric(None, reason) for one in level.ood.values())
    drawn = resampled_metrics(table, {}, resamples=5, seed=0)
    assert all(np.isnan(drawn[name]).all() for name in drawn if name == "ue" or name.startswith("ood"))
    assert reason in " ".join(repr(evaluate(Predictions(table, None))).split())


def test_the_printed_evaluation_says_of_how_many_it_is_unknown() -> None:
    flags = OodFlags.of([THREE[i % 3] for i in range(30)])
    printed = " ".join(repr(evaluate(some_predictions(flags))).split())
    assert "Not known to be in or out of distribution: 10 of 30 bags, 50 of 150 instances." in printed
    known = repr(evaluate(some_predictions(OodFlags.of([i % 3 == 1 for i in range(30)]))))
    assert "Not known" not in known


def test_where_instances_alone_have_no_label_only_labels_of_instances_are_asked_for() -> None:
    bags = table_of([False] * 4, [0, 0, 1, 1], [[2.0, 1.0]] * 4)
    instances = replace(
        table_of([False] * 4, [None] * 4, [[2.0, 1.0]] * 4), bag_ids=bags.bag_ids, instance=np.zeros(4, np.int64)
    )
    printed = " ".join(repr(evaluate(Predictions(bags, instances))).split())
    assert "no labeled instance" in printed and "no labeled item" not in printed


def test_the_printed_evaluation_says_of_how_many_items_the_metrics_of_classes_are() -> None:
    table = table_of([False] * 6, [0, 0, 0, 1, 1, None], [[2.0, 1.0]] * 6)
    whose = np.array(["a", "a", "b", "b", "c", "d"], object)
    printed = " ".join(repr(evaluate(Predictions(replace(table, patients=whose), None))).split())
    assert "With a label: 5 of 6 bags, 2 of 4 patients." in printed
    assert "no patient has a label" not in printed and "no labeled item" not in printed
    assert "A patient has a label where all labeled bags have the same." in printed
    assert "With a label" not in repr(evaluate(Predictions(table_of([False], [1], [[2.0, 1.0]]), None)))


def test_where_no_patient_has_a_label_the_reason_is_that_of_patients() -> None:
    table = table_of([False] * 4, [0, 1, 0, 1], [[2.0, 1.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    whose = np.array(["a", "a", "b", "b"], object)
    evaluation = evaluate(Predictions(replace(table, patients=whose), None))
    assert evaluation.bags.metrics["accuracy"] == Metric(0.75) and evaluation.patients is not None
    of_patients = evaluation.patients.metrics["accuracy"], evaluation.patients.confidence.auroc
    assert of_patients == (Metric.undefined(SEVERAL_CLASSES),) * 2
    bare = replace(table, labels=Labels.unknown(4), patients=whose)
    unlabeled = evaluate(Predictions(bare, None)).patients
    assert unlabeled is not None and unlabeled.metrics["accuracy"] == Metric.undefined(NO_LABEL)


def test_a_patient_is_in_or_out_of_distribution_where_all_bags_are_and_else_unknown() -> None:
    flags: list[bool | None] = [False, False, True, True, False, None, False, True, None, None]
    table = table_of(flags, [None] * 10, [[2.0, 1.0]] * 10)
    whose = np.array([f"p{i // 2}" for i in range(10)], object)
    patients = by_patient(replace(table, patients=whose))
    assert patients is not None
    assert same(patients.is_ood, [False, True, False, False, False], [True, True, False, False, False])
    assert patients.ood_sets.tolist() == ["", "far", "", "", ""]


def test_a_bag_of_unknown_patient_is_not_taken_for_a_patient_of_its_name() -> None:
    table = replace(
        table_of([False] * 4, [None] * 4, [[2.0, 1.0]] * 4), bag_ids=np.array(["s1", "A", "s2", "B"], object)
    )
    patients = by_patient(replace(table, patients=np.array(["A", "", "A", ""], object)))
    assert patients is not None
    assert patients.bag_ids.tolist() == ["A", "A (bag)", "B"]
    named = replace(table, bag_ids=np.array(["A", "A (bag)", "A", "s"], object))  # bags of other names in a group
    of_names = by_patient(replace(named, patients=np.array(["A", "", "A", "A (bag)"], object)))
    assert of_names is not None and of_names.bag_ids.tolist() == ["A", "A (bag)", "A (bag) (bag)"]
    alone = by_patient(replace(table, patients=np.array(["A", "", "C", ""], object)))
    assert alone is None


def test_a_patient_with_bags_of_several_sets_is_of_none_of_them_alone() -> None:
    table = table_of([True] * 5, [None] * 5, [[2.0, 1.0]] * 5)
    sets = np.array(["organ", "scanner", "scanner", "scanner", "organ"], object)
    patients = by_patient(replace(table, ood_sets=sets, patients=np.array(["A", "A", "B", "B", "C"], object)))
    assert patients is not None
    assert dict(zip(patients.bag_ids, patients.ood_sets, strict=True)) == {
        "A": "organ + scanner",
        "B": "scanner",
        "C": "organ",
    }


def test_levels_of_which_one_lacks_an_out_of_distribution_set_are_evaluated() -> None:
    table = table_of([False, True, False, True], [0, None, 0, None], [[2.0, 1.0]] * 4)
    mixed = replace(table, patients=np.array(["p", "p", "q", "q"], object))
    printed = repr(evaluate(Predictions(mixed, None)))
    assert "no item of this out-of-distribution set at this level" in printed


def test_a_false_alarm_needs_a_bag_known_to_be_in_distribution() -> None:
    labels = np.arange(200) % 2
    alpha = torch.from_numpy(np.where(np.eye(2)[labels] > 0, 9.0, 1.0))
    score = {"far": np.linspace(0, 1, 200)}
    goals = {"scaling": False, "prediction_sets": None, "false_alarms": FalseAlarmGoal(0.2, "far")}
    made = predictions_of(Dirichlet(alpha), labels, scores=score)
    unstated = replace(made, bags=replace(made.bags, is_ood=OodFlags.unknown(200)))
    fitted = calibrate(unstated, deferral=DeferralGoal(0.4, 0.6), **goals)  # type: ignore[arg-type]
    judged = evaluate(decide(unstated, fitted)).decisions
    assert judged is not None
    flagged = judged.metrics["flagged"].value
    assert flagged is not None and 0 < flagged < 0.3
    assert judged.metrics["false_alarms"] == Metric(None, NONE_KNOWN_IN)
    known = evaluate(decide(made, fitted)).decisions
    assert known is not None and known.metrics["false_alarms"].value == flagged


def test_only_bags_known_to_be_out_of_distribution_are_refused_or_passed_over() -> None:
    bags = separable_bags()
    check_labels(replace(bags, is_ood=OodFlags.unknown(len(bags))), "training", classes_wanted=2)
    scores = {"s": np.concatenate([np.arange(40.0), np.full(40, 99.0)])}
    far = predictions_of(Dirichlet(torch.full((80, 2), 2.0)), np.zeros(80, int), scores=scores).bags
    usual = usual_values(far.subset(np.arange(40)))
    flags = OodFlags.of([None] * 40 + [True] * 40)
    assert not find_shift(replace(far, is_ood=flags), usual)
    assert find_shift(replace(far, is_ood=OodFlags.unknown(80)), usual)


def decided(flags: OodFlags) -> Predictions:
    """The same predictions with decisions of every kind and the given flags."""
    held_out = some_predictions(OodFlags.unknown(30))
    made = calibrate(
        held_out, scaling=False, deferral=None, prediction_sets=None, false_alarms=FalseAlarmGoal(0.3)
    )
    return decide(some_predictions(flags), made)


def test_a_report_of_bags_of_which_nothing_is_known_never_calls_one_in_distribution(tmp_path: Path) -> None:
    shown, written = reported(tmp_path, decided(OodFlags.unknown(30)))
    assert any("OOD detection (no bag is known to be out of distribution" in note for note in written.notes)
    assert not unpacked(shown.data["bags"]["known"]).any() and shown.data["bags"]["sets"] == [""]
    tiles = {name: shown.texts[place + 1] for place, name in enumerate(shown.texts[:-1])}
    assert tiles["not known to be in or out of distribution"] == "30"
    assert not any(text.startswith(("in distribution", "known in distribution")) for text in shown.texts)
    groups = shown.data["levels"]["bags"][0]["distributions"]["vacuity"]["groups"]
    assert [(group["name"], group["kind"]) for group in groups] == [("not known to be in or out", "unknown")]
    assert NONE_KNOWN_IN in shown.text and NEITHER_KNOWN in shown.text


def test_a_report_tells_the_three_kinds_apart(tmp_path: Path) -> None:
    shown, written = reported(tmp_path, some_predictions(OodFlags.of([THREE[i % 3] for i in range(30)])))
    assert not any("no bag is known to be out of distribution" in note for note in written.notes)
    assert unpacked(shown.data["bags"]["known"]).tolist() == KNOWN * 10
    tiles = {name: shown.texts[place + 1] for place, name in enumerate(shown.texts[:-1])}
    assert tiles["known out of distribution, cats"] == "10"
    inside = [int(tiles[f"known in distribution, label class {c}"]) for c in (0, 1)]
    unknown = [int(tiles[f"distribution unknown, label class {c}"]) for c in (0, 1)]
    assert sum(inside) == 10 and sum(unknown) == 10
    groups = shown.data["levels"]["bags"][0]["distributions"]["vacuity"]["groups"]
    assert [(one["kind"], one["count"]) for one in groups] == [("in", 10), ("unknown", 10), ("out", 10)]
    assert groups[1]["auroc"] is None and groups[2]["auroc"] is not None


def test_what_one_run_states_another_takes_over_and_contradictions_are_refused(tmp_path: Path) -> None:
    stated = some_predictions(OodFlags.of([i % 2 == 0 for i in range(30)]))
    bare = replace(some_predictions(OodFlags.unknown(30)), provenance=Provenance(method="bare"))
    shown, written = reported(tmp_path, stated, bare)
    assert "bare lacks the flags is_ood of 30 bags; those of the other predictions are used." in written.notes
    assert shown.data["levels"]["bags"][1]["distributions"]["vacuity"]["groups"][0]["count"] == 15
    turned = replace(
        some_predictions(OodFlags.of([i % 2 == 1 for i in range(30)])), provenance=Provenance(method="turned")
    )
    message = "bag 'bag 0000' of predictions 'place_1': expected out of distribution, .*got in distribution"
    with pytest.raises(DataError, match=message):
        reported(tmp_path, stated, turned)


@pytest.mark.parametrize(
    ("flags", "legend"),
    [
        (OodFlags.unknown(30), ["not known to be in or out of distribution, 30"]),
        (
            OodFlags.of([THREE[i % 3] for i in range(30)]),
            [
                "in distribution, 10",
                "not known to be in or out of distribution, 10",
                "cats (out of distribution), 10",
            ],
        ),
    ],
)
def test_the_figure_of_confidence_names_what_is_known(flags: OodFlags, legend: list[str]) -> None:
    axes = confidence_figure(Predictions(some_predictions(flags).bags, None)).axes[0]
    shown = axes.get_legend()
    assert shown is not None
    assert [text.get_text() for text in shown.get_texts()] == legend


def test_a_notebook_draws_a_figure_without_pyplot() -> None:
    figure = confidence_figure(Predictions(some_predictions(OodFlags.of(THREE * 10)).bags, None))
    with Image.open(BytesIO(figure._repr_png_())) as image:
        assert image.format == "PNG" and image.width == int(figure.bbox.width)


def test_inspect_counts_only_what_is_known(tmp_path: Path) -> None:
    some_predictions(OodFlags.of([THREE[i % 3] for i in range(30)])).save(tmp_path / "p")
    level = json.loads(run("inspect", tmp_path / "p", "--json"))["level"][0]
    assert (level["count"], level["known in distribution"], level["known out of distribution"]) == (30, 10, 10)
    miue.write_store(tmp_path / "s", BagDataset.from_arrays([np.ones((2, 3))] * 3, [0, 1, 0], is_ood=THREE))
    split = json.loads(run("inspect", tmp_path / "s", "--json"))["split"][0]
    assert (split["bags"], split["known in distribution"], split["OOD ood"]) == (3, 1, 1)


def test_words_for_an_unknown_patient_are_no_patient_and_the_column_has_many_names(tmp_path: Path) -> None:
    rows = [f"s{row},{row % 2},0.{row + 1}" for row in range(6)]
    for name in ("patient", "patient_id", "Patient", "case_id"):
        cells = ["p1", "NA", "nan", "unknown", "p1", ""]
        table = "\n".join(f"{row},{cell}" for row, cell in zip(rows, cells, strict=True))
        (tmp_path / "t.csv").write_text(f"slide_id,label,p_1,{name}\n{table}\n")
        read = read_predictions(tmp_path / "t.csv")
        assert read.bags.patients is not None
        assert read.bags.patients.tolist() == ["p1", "", "", "", "p1", ""]
        patients = by_patient(read.bags)
        assert patients is not None
        assert len(patients) == 5


@pytest.mark.parametrize("more", ["p_value", "p_threshold", "p_pred"])
def test_a_column_that_only_begins_like_a_probability_is_none(more: str, tmp_path: Path) -> None:
    for names in (("prob_0", "prob_1"), ("prob_neg", "prob_pos")):
        (tmp_path / "t.csv").write_text(
            f"bag_id,label,{names[0]},{names[1]},{more}\na,1,0.1,0.9,0.3\nb,0,0.8,0.2,0.4\n"
        )
        read = read_predictions(tmp_path / "t.csv", classes=() if names[0] == "prob_0" else ("neg", "pos"))
        np.testing.assert_allclose(read.bags.probabilities[:, 1], [0.9, 0.2])
    (tmp_path / "t.csv").write_text("bag_id,label,prob_pred\na,1,0.9\n")
    with pytest.raises(DataError, match="columns of probabilities"):
        read_predictions(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("rows", "got"),
    [
        (["a,A,0.9", "b,B,0.8", "c,C,0.7"], "got A, B, C in column 'Predicted'"),
        (["a,A,0.9", "b,B,0.8", "c,A,0.6", "d,B,0.95"], "got A, B in column 'Predicted', each with low and high"),
    ],
)
def test_the_probability_of_the_predicted_class_is_not_taken_for_that_of_the_second(
    rows: list[str], got: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("\n".join(["bag_id,Predicted,probability", *rows]) + "\n")
    with pytest.raises(DataError, match=got):
        read_predictions(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("bag_id,Predicted,probability\na,A,0.2\nb,B,0.8\nc,A,0.5\nd,B,0.5\n")
    assert read_predictions(tmp_path / "t.csv").bags.probabilities[:, 1].tolist() == [0.2, 0.8, 0.5, 0.5]


def test_a_bag_whose_score_is_no_number_is_not_decided_on() -> None:
    made = made_predictions(30)
    table = replace(
        made.bags, scores={"far": np.arange(30.0)}, labels=Labels(made.bags.labels.values, np.ones(30, bool))
    )
    table = replace(table, is_ood=OodFlags.all_in(30))
    calibration = miue.calibrate(
        Predictions(table, None), deferral=None, prediction_sets=None, false_alarms=FalseAlarmGoal(0.2, "far")
    )
    wrong = replace(table, scores={"far": np.where(np.arange(30) == 4, np.nan, 1.0)})
    with pytest.raises(DataError, match="far of bag 'bag 0004' of the predictions: expected a number, got NaN"):
        miue.decide(Predictions(wrong, None), calibration)
