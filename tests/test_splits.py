"""Splits: by patient and class, read, written, and refused where they leak."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_files
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miue.bags import BagDataset, OodFlags, draw_folds, draw_one_of_each, group_by_patient, hold_out
from miue.bags.drawing import folds_for
from miue.common.errors import ConfigError, DataError, StorageError
from miue.io import LoadedBags, Splits, draw_split, load_bags, make_folds, make_split, read_splits, write_splits
from miue.io.splits import check_splits

NAMES = tuple("abcdef")


def patients(count: int = 30, slides: int = 2, seed: int = 0) -> BagDataset:
    """Bags of ``count`` patients with up to ``slides`` each, a third of them positive."""
    random = np.random.default_rng(seed)
    whose = [p for p in range(count) for _ in range(random.integers(1, slides + 1))]
    data = BagDataset.from_arrays(
        [np.ones((1, 2))] * len(whose),
        [int(p % 3 == 0) for p in whose],
        ids=[f"s{row}" for row in range(len(whose))],
        class_names=["normal", "tumor"],
    )
    return replace(data, patients=tuple(f"p{p}" for p in whose))


def six(splits: tuple[str, ...] = ("",) * 6) -> BagDataset:
    data = BagDataset.from_arrays([np.ones((1, 2))] * 6, [0, 1, 0, 1, 0, 1], ids=NAMES)
    return replace(data, splits=splits, patients=("p", "q", "r", "s", "t", "u"))


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(count=st.integers(15, 60), slides=st.integers(1, 4), folds=st.integers(2, 5), seed=st.integers(0, 9))
def test_no_patient_is_in_two_splits_and_every_bag_is_tested_once(
    count: int, slides: int, folds: int, seed: int
) -> None:
    data = patients(count, slides, seed)
    made = make_folds(data, folds, seed=seed)
    tested = []
    for fold in range(folds):
        assigned = made.assign(data, fold)  # raises where a patient is in two splits or a class is missing
        for name in ("train", "validation", "test"):
            mine = {p for p, s in zip(data.patient_groups, assigned.splits, strict=True) if s == name}
            others = {p for p, s in zip(data.patient_groups, assigned.splits, strict=True) if s != name}
            assert mine and not mine & others
        tested += [name for name, split in zip(data.ids, assigned.splits, strict=True) if split == "test"]
    assert sorted(tested) == sorted(data.ids)


def test_classes_are_alike_in_all_splits() -> None:
    data = patients(90, 1)
    assigned = make_split(data).assign(data)
    for name, share in (("train", 0.69), ("validation", 0.11), ("test", 0.2)):
        inside = np.array(assigned.splits) == name
        assert inside.mean() == pytest.approx(share, abs=0.03)
        assert data.labels.values[inside].mean() == pytest.approx(1 / 3, abs=0.06)


@pytest.mark.long
@pytest.mark.parametrize(("count", "folds"), [(24, 2), (60, 5)])
def test_bags_for_calibration_are_of_patients_of_their_own(count: int, folds: int, tmp_path: Path) -> None:
    data = patients(count, 3)
    made = make_folds(data, folds, calibration=0.3)
    for fold in range(folds):
        splits = made.assign(data, fold).splits
        plain = make_folds(data, folds).assign(data, fold).splits
        assert [s if s != "calibration" else "train" for s in splits] == list(plain)
        for name in ("train", "validation", "calibration", "test"):
            inside = [bag for bag, split in enumerate(splits) if split == name]
            mine = {data.patient_groups[bag] for bag in inside}
            assert mine and not mine & {p for p, s in zip(data.patient_groups, splits, strict=True) if s != name}
            assert set(data.labels.values[inside].tolist()) == {0, 1}
    write_splits(tmp_path / "splits.csv", made, data)
    assert read_splits(tmp_path / "splits.csv").assign(data).splits == made.assign(data).splits
    with pytest.raises(DataError, match="at least 8 patients"):
        make_folds(patients(21), 2, calibration=0.3)


@pytest.mark.parametrize(
    ("drawn", "wanted", "fix"),
    [
        (
            lambda bags: make_split(bags),
            "5 .* to test on a share of 0.2, got 4",
            "or test on a larger share",
        ),
        (
            lambda bags: make_split(bags, calibration=0.2),
            "10 .* to test on a share of 0.2, got 4",
            "of this class$",
        ),
        (
            lambda bags: make_folds(bags, 5),
            "5 .* for 5 folds, got 4",
            "or draw fewer folds",
        ),
        (
            lambda bags: make_folds(bags, 2, calibration=0.2),
            "8 .* for 2 folds, got 4",
            "of this class, or keep no bags for calibration",
        ),
    ],
)
@pytest.mark.parametrize("who", ["patients", "bags"])
def test_a_class_of_too_few_says_how_many_are_wanted_for_what_was_asked(
    drawn: Any, wanted: str, fix: str, who: str
) -> None:
    bags = patients(12, 1) if who == "patients" else replace(patients(12, 1), patients=None)
    least = "bags of at least" if who == "patients" else "at least"
    with pytest.raises(DataError, match=f"class 'tumor': expected {least} {wanted.replace('.*', who)}; .*{fix}"):
        drawn(bags)


@pytest.mark.parametrize(
    "drawn",
    [
        lambda: make_split(patients(40), test=0),
        lambda: make_split(patients(40), test=1),
        lambda: make_split(patients(40), validation=1),
        lambda: make_folds(patients(40), 2, calibration=-0.1),
    ],
)
def test_a_share_that_is_none_is_said(drawn: Any) -> None:
    with pytest.raises(ConfigError, match="the share '(test|validation|calibration)': expected .* below 1, got"):
        drawn()


def test_the_same_seed_draws_the_same_and_another_one_other_splits() -> None:
    data = patients()
    assert make_split(data, seed=1) == make_split(data, seed=1)
    assert len({str(make_split(data, seed=seed).folds) for seed in range(6)}) == 6
    labels, seeds = np.arange(60) % 2, (0, 2, 4, -2, 2**32 - 4)
    drawn = {tuple(next(draw_folds(labels, 3, seed))[1].tolist()) for seed in seeds}
    assert len(drawn) == len(seeds)


def test_a_class_with_too_few_patients_is_named() -> None:
    with pytest.raises(
        DataError, match="class 'tumor': expected bags of at least 11 patients for 11 folds, got 10"
    ):
        make_folds(patients(30), 11)


def test_foreign_bags_are_tested_in_each_fold_that_does_not_learn_from_their_patient() -> None:
    bags = patients(12, slides=1)
    whose = ("p0", "p3", *(f"x{n}" for n in range(10)))
    is_ood = np.arange(24) >= 12
    doubled = bags.subset([*range(12), *range(12)])
    data = replace(
        doubled,
        ids=(*bags.ids, *(f"ood{n}" for n in range(12))),
        patients=(*(bags.patients or ()), *whose),
        is_ood=OodFlags.of(is_ood),
        ood_sets=("",) * 12 + ("prostate",) * 12,
    )
    folds = make_folds(data, 3).folds
    for fold in folds:
        assert {fold.get(f"ood{n}") for n in range(2, 12)} == {"test"}
        for n, patient in enumerate(("s0", "s3")):
            assert (fold.get(f"ood{n}") == "test") == (fold[patient] == "test")
    assert sum(fold.get("ood0") == "test" for fold in folds) == 1


def test_splits_print_what_each_fold_has_in_each_split_and_no_names() -> None:
    folds = {"a": "train", "b": "train", "c": "own"}, {"a": "test", "b": "train"}
    shown = repr(Splits("splits.csv", folds, of_patients=True)).splitlines()
    assert [line.split() for line in (shown[0], *shown[2:4])] == [
        ["fold", "train", "test", "own"],
        ["0", "2", "0", "1"],
        ["1", "1", "1", "0"],
    ]
    assert shown[4:] == ["Patients of splits.csv"]


def test_bags_without_a_label_are_in_no_split() -> None:
    data = patients()
    data = replace(data, labels=replace(data.labels, known=np.arange(len(data)) != 3))
    assert make_split(data).assign(data).splits[3] == ""


def test_splits_are_written_and_read_back(tmp_path: Path) -> None:
    data = patients()
    made = make_folds(data, 3)
    write_splits(tmp_path / "splits.csv", made, data)
    assert read_splits(tmp_path / "splits.csv").folds == made.folds
    first = (tmp_path / "splits.csv").read_text().splitlines()[:2]
    assert first[0] == "bag_id,patient,label,fold_0,fold_1,fold_2"
    assert first[1].startswith("s0,p0,tumor,")


def test_bags_that_differ_in_the_ending_alone_stay_apart(tmp_path: Path) -> None:
    data = replace(six(), ids=("a.png", "a.jpg", "b.svs", "c", "d", "e"), patients=None)
    given = dict(zip(data.ids, ("train", "test", "test", "train", "validation", "validation"), strict=True))
    write_splits(tmp_path / "splits.csv", Splits("given", (given,)), data)
    assert read_splits(tmp_path / "splits.csv").folds == (given,)
    assert read_splits(tmp_path / "splits.csv").assign(data).splits == tuple(given.values())
    less = Splits("x", ({"a.png": "train", "c.h5": "train", "b": "validation", "e.h5": "validation"},))
    assert less.assign(data).splits == ("train", "", "validation", "train", "", "validation")
    with pytest.raises(DataError, match=r"'a' of 'x': expected the name of one bag, got 'a.png' and 'a.jpg'"):
        Splits("x", ({"a": "train"},)).assign(data)
    with pytest.raises(DataError, match=r"'c' of 'x': expected one name of this bag, got 'c.h5' and 'c.svs'"):
        Splits("x", ({"c.h5": "train", "c.svs": "test"},)).assign(data)


def test_splits_are_written_by_the_names_of_the_bags(tmp_path: Path) -> None:
    data = replace(six(), ids=tuple(f"{name}.svs" for name in NAMES), patients=("p.h5", *"qrstu"))
    for splits in (Splits("x", ({"a": "train", "d": "test"},)), Splits("x", ({"p": "train", "s": "test"},), True)):
        write_splits(tmp_path / "splits.csv", splits, data)
        assert read_splits(tmp_path / "splits.csv").folds == ({"a.svs": "train", "d.svs": "test"},)


def test_bags_of_unknown_patients_are_patients_of_their_own() -> None:
    data = replace(six(), patients=("p", "", "", "", "", "p"))
    assert data.patient_groups == ("p", "b", "c", "d", "e", "p")
    check_splits(replace(data, splits=("train", "train", "test", "test", "", "")), "x")
    many = replace(patients(40, 1), patients=("",) * 40)
    assert sorted(make_split(many).assign(many).splits)[0] == "test"
    kept, out = hold_out(many.labels.values, 0.2, seed=1, groups=group_by_patient(many.patients or ()))
    assert len(kept) == 32 and len(out) == 8


def test_the_patients_of_bags_are_gathered_once_not_for_each_bag() -> None:
    data = patients()
    assert data.patient_groups is data.patient_groups


def test_bags_are_held_out_by_share_or_number_with_classes_alike() -> None:
    labels = np.repeat([0, 1], [40, 20])
    for size in (0.3, 18):
        kept, out = hold_out(labels, size, seed=1)
        assert sorted([*kept, *out]) == list(range(60)) and len(out) == 18
        assert labels[out].sum() == 6
    assert hold_out(labels, 18, seed=1)[1].tolist() == hold_out(labels, 0.3, seed=1)[1].tolist()
    assert hold_out(labels, 18, seed=1)[1].tolist() != hold_out(labels, 18, seed=2)[1].tolist()
    assert len(hold_out(labels, 0.001, seed=1)[1]) == 2  # one of each class at the least
    assert sorted(labels[hold_out(labels, 2, seed=1)[1]]) == [0, 1]  # and as a number
    assert len(hold_out(np.array([0, 0, 1, 1]), 0.9, seed=1)[0]) == 2
    assert len(hold_out(labels, 0.295, seed=1)[1]) == 18  # of 17.7
    assert hold_out(labels, 18, seed=2**32 + 1)[1].tolist() == hold_out(labels, 18, seed=1)[1].tolist()


@pytest.mark.parametrize("size", [0.1, 0.2, 0.9, 12])
@pytest.mark.parametrize("rare", [2, 3, 5])
def test_both_sides_have_bags_of_a_rare_class(size: float | int, rare: int) -> None:
    labels = np.array([0] * (114 - rare) + [1] * rare + [2] * 6)
    for seed in range(5):
        kept, out = hold_out(labels, size, seed)
        assert set(labels[kept]) == set(labels[out]) == {0, 1, 2}
        assert sorted([*kept, *out]) == list(range(120))
        assert len(out) == (size if isinstance(size, int) else round(size * 120))


def test_groups_are_held_out_whole_or_the_lack_is_named() -> None:
    labels, groups = 2 * (np.arange(60) % 2), np.arange(60) // 4  # numbers of classes may have gaps
    kept, out = hold_out(labels, 0.2, seed=3, groups=groups)
    assert not set(groups[kept]) & set(groups[out]) and sorted([*kept, *out]) == list(range(60))
    assert 8 <= len(out) <= 16
    assert set(labels[kept]) == set(labels[out]) == {0, 2}
    alone = np.where(np.arange(60) < 4, 1, labels)
    with pytest.raises(DataError, match="two or more of each class.*got 1 of the rarest class"):
        hold_out(alone, 0.2, seed=3, groups=groups)
    rare = np.repeat([0, 1, 2, 3], [54, 2, 2, 2])  # of three patients, each has bags of two of these classes
    of_three = np.r_[np.arange(54), 97, 98, 98, 99, 99, 97]
    with pytest.raises(
        DataError, match=r"got 2 of the rarest class, which no draw divided so.*\(0 as the share\)"
    ):
        hold_out(rare, 0.2, seed=3, groups=of_three)
    apart = np.array([1, 1, 0, 0, 2, 2, 1]), np.array([1, 3, 0, 2, 3, 1, 0])  # sides may lack a class each
    with pytest.raises(DataError, match="which no draw divided so"):
        hold_out(apart[0], 0.3, seed=0, groups=apart[1])
    with pytest.raises(DataError, match="got 1 of the rarest class;"):
        hold_out(np.array([0, 1]), 0.5, seed=3, groups=np.array([0, 1]))
    with pytest.raises(DataError, match="bags to hold out: expected two or more of each class"):
        hold_out(np.array([0, 0, 1]), 0.2, seed=3)


@pytest.mark.parametrize("number", [12, 40])
def test_a_number_of_bags_is_held_out_of_groups_as_its_share_is(number: int) -> None:
    labels, groups = np.arange(60) % 2, np.arange(60) // 4
    out = hold_out(labels, number, seed=3, groups=groups)[1]
    assert abs(len(out) - number) <= 4
    assert out.tolist() == hold_out(labels, number / 60, seed=3, groups=groups)[1].tolist()


def test_of_few_patients_one_of_each_class_is_held_out_where_the_share_is_less() -> None:
    labels, groups = np.repeat([0, 1], 20), np.arange(40) // 5
    kept, out = hold_out(labels, 0.1, seed=0, groups=groups)
    assert np.bincount(labels[kept]).tolist() == [15, 15] and np.bincount(labels[out]).tolist() == [5, 5]


@pytest.mark.parametrize("share", [0.05, 0.15, 0.3, 0.45, 0.5, 0.7, 0.9, 0.97])
@pytest.mark.parametrize("groups", [1, 2, 3, 5, 10, 200])
def test_folds_come_as_near_to_a_share_as_at_most_ten_do(share: float, groups: int) -> None:
    count, held = folds_for(share, groups)
    assert 1 <= held < count <= max(2, groups)
    nearest = min(abs(h / c - share) for c in range(2, min(10, max(2, groups)) + 1) for h in range(1, c))
    assert abs(held / count - share) <= nearest + 1e-9


def test_of_folds_that_are_equally_near_to_a_share_there_are_the_fewest() -> None:
    assert folds_for(0.55, 5) == (2, 1)  # not 3 of 5, which is nearer by rounding alone


@pytest.mark.parametrize("share", [0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.45, 0.6, 0.8])
def test_about_the_share_asked_for_is_held_out_of_patients_and_tested_on(share: float) -> None:
    data = BagDataset.from_arrays(
        [np.ones((1, 2))] * 100, [0, 0, 1, 1] * 25, patients=[f"p{row // 2}" for row in range(100)]
    )
    groups = np.array(data.patient_groups)
    kept, out = hold_out(data.labels.values, share, seed=1, groups=groups)
    assert not set(groups[kept]) & set(groups[out]) and sorted([*kept, *out]) == list(range(100))
    assert len(out) / 100 == pytest.approx(share, abs=0.04)
    splits = list(make_split(data, test=share, validation=0.0, seed=1).folds[0].values())
    assert splits.count("test") / 100 == pytest.approx(share, abs=0.04)
    assert splits.count("train") + splits.count("test") == 100


def test_a_rare_class_does_not_change_how_much_is_held_out() -> None:
    labels = np.repeat([0, 1, 2], [56, 52, 2])
    kept, out = hold_out(labels, 0.2, seed=42, groups=np.arange(110))
    assert np.bincount(labels[out]).tolist()[2] == np.bincount(labels[kept]).tolist()[2] == 1
    assert 20 <= len(out) <= 24
    for seed in range(5):
        kept, out = hold_out(labels, 0.8, seed, groups=np.arange(110))
        assert set(labels[kept]) == set(labels[out]) == {0, 1, 2}
    with pytest.raises(DataError, match="at least 3, one of each class"):
        hold_out(labels, 2, seed=42)


def test_one_bag_of_each_group_is_drawn_and_folds_test_each_bag_once() -> None:
    groups = group_by_patient(["a", "", "b", "a", "", "b", "a"])
    drawn = {tuple(draw_one_of_each(groups, seed).tolist()) for seed in range(50)}
    assert all(len(rows) == 4 and {1, 4} <= set(rows) for rows in drawn)
    assert len(drawn) == 6  # three bags of a, two of b
    assert draw_one_of_each(np.array(["b", "a"], object), 0).tolist() == [0, 1]  # not in the order of the names
    numbered = group_by_patient(["1", "", "1"])
    assert numbered[0] == numbered[2] != numbered[1]  # patient "1" is not the unknown one of row 1
    labels = np.repeat([0, 1], [20, 10])
    for whole in (None, np.arange(30) // 2):
        tested = [rows for _, rows in draw_folds(labels, 5, 0, groups=whole)]
        assert sorted(np.concatenate(tested)) == list(range(30))
        assert all(labels[rows].sum() == 2 for rows in tested)


def test_splits_of_clam_are_read(tmp_path: Path) -> None:
    (tmp_path / "splits_0.csv").write_text(",train,val,test\n0,a,c,e\n1,b,d,f\n")
    (tmp_path / "splits_1.csv").write_text(",train,val,test\n0,c,a,b\n1,d,,\n2,e,,\n3,f,,\n")
    one = read_splits(tmp_path / "splits_0.csv")
    assert one.assign(six()).splits == ("train", "train", "validation", "validation", "test", "test")
    both = read_splits(tmp_path)
    assert len(both) == 2
    assert both.folds[1] == {
        "c": "train",
        "d": "train",
        "e": "train",
        "f": "train",
        "a": "validation",
        "b": "test",
    }


def test_folds_of_clam_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in range(11):
        first = "a" if number == 10 else "c"
        (tmp_path / f"splits_{number}.csv").write_text(f",train,val,test\n0,{first},e,f\n")
    assert [fold.get("a", "") for fold in read_splits(tmp_path).folds] == [""] * 10 + ["train"]


def test_folds_of_a_table_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "splits.csv").write_text("bag_id,fold_10,fold_2\na,train,\nb,,test\n")
    assert read_splits(tmp_path / "splits.csv").folds == ({"b": "test"}, {"a": "train"})


def test_splits_of_clam_as_truth_values_are_read(tmp_path: Path) -> None:
    rows = [f"{n},{k < 2},{2 <= k < 4},{k >= 4}" for k, n in enumerate(NAMES)]
    (tmp_path / "splits_0_bool.csv").write_text("\n".join([",train,val,test", *rows]) + "\n")
    found = read_splits(tmp_path / "splits_0_bool.csv").assign(six())
    assert found.splits == ("train", "train", "validation", "validation", "test", "test")


@pytest.mark.parametrize("cells", [("True", "False"), ("true", ""), ("1", "0"), ("1.0", "0.0"), ("1", "")])
def test_truth_values_of_any_kind_are_read_with_rows_left_empty_below(
    tmp_path: Path, cells: tuple[str, str]
) -> None:
    part = ["train"] * 4 + ["val", "test"]
    rows = [
        ",".join([name, *(cells[one != mine] for one in ("train", "val", "test"))])
        for name, mine in zip(NAMES, part, strict=True)
    ]
    (tmp_path / "s.csv").write_text("\n".join([",train,val,test", *rows, ",,,", ",,,"]) + "\n")
    read = read_splits(tmp_path / "s.csv").folds[0]
    assert read == dict(zip(NAMES, ["train"] * 4 + ["validation", "test"], strict=True))


def test_bags_called_1_and_0_are_no_truth_values(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(",train,val,test\n0,1,0,\n")
    assert read_splits(tmp_path / "s.csv").folds[0] == {"1": "train", "0": "validation"}


def test_a_table_of_patients_splits_their_bags(tmp_path: Path) -> None:
    data = replace(six(), patients=("p", "p", "q", "q", "r", "r"))
    (tmp_path / "s.csv").write_text("Patient ID,split\np,train\nq,test\nr,train\n")
    assigned = read_splits(tmp_path / "s.csv").assign(data)
    assert assigned.splits == ("train", "train", "test", "test", "train", "train")
    assert read_splits(tmp_path / "s.csv").assign(six_called(*"pqr")).splits == ("train", "test", "train")


def test_names_that_no_bag_has_are_left_out_of_splits_that_do_not_have_every_bag() -> None:
    splits = Splits("x", ({"a": "train", "gone": "train", "b": "test"}, {"gone": "test"}))
    kept, absent = splits.without_absent(six())
    assert (kept.folds, absent) == (({"a": "train", "b": "test"}, {}), ["gone"])
    unread = Splits("x", ({"A 1": "train", "B 1": "test"},))  # names that are written in another way
    assert unread.without_absent(six()) == (unread, [])


def six_called(*names: str) -> BagDataset:
    """Bags of two classes, the only ones of their patients."""
    return BagDataset.from_arrays([np.ones((1, 2))] * len(names), None, ids=names)


def test_bags_in_no_split_are_said(tmp_path: Path) -> None:
    made_files.trident(tmp_path / "f", "c", np.ones((2, 3), np.float32))
    for name in "ab":
        made_files.trident(tmp_path / "f", name, np.ones((2, 3), np.float32))
    (tmp_path / "s.csv").write_text(",train,val,test\n0,a,,b\n")
    opened = load_bags(tmp_path / "f", splits=tmp_path / "s.csv")
    assert opened.bags.splits == ("train", "test", "")
    assert f"1 bag in no split of {str(tmp_path / 's.csv')!r}: c" in opened.notes


@pytest.mark.parametrize("header", ["Slide_ID,Split", "slide_id,FOLD_0"])
def test_columns_of_splits_are_found_in_any_case(header: str, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(f"{header}\na,train\nb,Test\n")
    assert read_splits(tmp_path / "s.csv").folds == ({"a": "train", "b": "test"},)


def test_splits_of_mirel_are_those_of_patients(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "s.npz",
        train_patients=np.array(["p", "q"]),
        val_patients=np.array(["r", "s"]),
        test_patients=np.array(["t", "u"]),
    )
    found = read_splits(tmp_path / "s.npz")
    assert found.assign(six()).splits == ("train", "train", "validation", "validation", "test", "test")
    np.savez(tmp_path / "o.npz", train_patients=np.array(["p", 1], object))
    with pytest.raises(StorageError, match="without pickled objects"):
        read_splits(tmp_path / "o.npz")
    whole = (tmp_path / "s.npz").read_bytes()
    for damaged in (b"PK\x03\x04junkjunk", whole[:200] + b"\xff" * 40 + whole[240:]):
        (tmp_path / "d.npz").write_bytes(damaged)
        with pytest.raises(StorageError, match="an .npz of texts"):
            read_splits(tmp_path / "d.npz")


MIREL = {"train_patients": ["p", "q"], "val_patients": ["r", "s"], "test_patients": ["t", "u"]}


def test_a_member_of_splits_that_is_no_array_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", **{name: np.array(names) for name, names in MIREL.items()})  # type: ignore[arg-type]
    for content in (b"", b"no array", b"\x93NUMPY\x01\x00"):
        with (
            zipfile.ZipFile(tmp_path / "s.npz") as whole,
            zipfile.ZipFile(tmp_path / "d.npz", "w") as damaged,
        ):
            for name in whole.namelist():
                damaged.writestr(name, content if name.startswith("val") else whole.read(name))
        with pytest.raises(StorageError, match="d.npz': expected an .npz of texts"):
            read_splits(tmp_path / "d.npz")
    np.save(tmp_path / "one.npy", np.array(["p"]))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(StorageError, match="one.npz': expected an .npz of texts"):
        read_splits(tmp_path / "one.npz")


NO_CHARACTERS = [
    np.array([code, 65], order + "u4").view(order + "U1")
    for code, order in ((0xD8000041, "<"), (0x110000, ">"), (0xD800, "<"))
]


@pytest.mark.parametrize(
    "names", [np.zeros(3), np.array([["p"]]), np.array([True]), np.array([b"\xe9"]), *NO_CHARACTERS]
)
def test_an_array_of_splits_that_holds_no_names_is_named(names: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", **{**MIREL, "val_patients": names})  # type: ignore[arg-type]
    with pytest.raises(StorageError, match="s.npz': expected an .npz of texts"):
        read_splits(tmp_path / "s.npz")


def test_a_header_of_splits_that_claims_more_than_is_there_is_refused_before_memory_is_taken(
    tmp_path: Path,
) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<U9", "fortran_order": False, "shape": (10**13,)})
    with zipfile.ZipFile(tmp_path / "s.npz", "w") as archive:
        archive.writestr("train_patients.npy", header.getvalue())
    with pytest.raises(StorageError, match="train_patients of 360,000,000,000,128 bytes, where there are"):
        read_splits(tmp_path / "s.npz")


def test_splits_without_one_of_their_parts_are_refused_and_an_empty_one_is_taken(tmp_path: Path) -> None:
    without = {name: np.array(names) for name, names in MIREL.items() if name != "test_patients"}
    np.savez(tmp_path / "s.npz", **without)  # type: ignore[arg-type]
    with pytest.raises(
        DataError, match="s.npz': expected an array test_patients, got train_patients, val_patients"
    ):
        read_splits(tmp_path / "s.npz")
    np.savez(tmp_path / "v.npz", train_patients=np.array(["p"]), test_patients=np.array(["q"]))
    with pytest.raises(DataError, match="v.npz': expected an array val_patients"):
        read_splits(tmp_path / "v.npz")
    np.savez(tmp_path / "s.npz", **without, test_patients=np.array([], str))  # type: ignore[arg-type]
    assert "test" not in read_splits(tmp_path / "s.npz").folds[0].values()
    (tmp_path / "c.csv").write_text(",train,val\n0,a,c\n1,b,d\n")
    with pytest.raises(
        DataError, match="c.csv': expected columns train, val, test .CLAM.*got columns , train, val;"
    ):
        read_splits(tmp_path / "c.csv")
    (tmp_path / "c.csv").write_text("slide_id,train,val\na,True,False\n")
    with pytest.raises(DataError, match="name the columns so, empty without bags"):
        read_splits(tmp_path / "c.csv")
    (tmp_path / "c.csv").write_text(",train,val,test\n0,a,c,\n1,b,d,\n")
    assert read_splits(tmp_path / "c.csv").folds == (
        {"a": "train", "b": "train", "c": "validation", "d": "validation"},
    )


def test_a_patient_in_two_splits_is_refused() -> None:
    data = replace(six(), patients=("p", "q", "r", "s", "p", "u"))
    splits = Splits("given", ({"a": "train", "b": "train", "e": "test", "f": "test"},))
    with pytest.raises(
        DataError, match="patient 'p' in 'given': expected all bags of a patient in one split, got train and test"
    ):
        splits.assign(data)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (("test",) * 6, "expected bags to train on, got none"),
        (
            ("train", "train", "test", "", "", ""),
            "test bags of 'x': expected at least one bag of each class, got none of class '1'",
        ),
    ],
)
def test_splits_that_cannot_be_used_are_refused_before_training(splits: tuple[str, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_splits(six(splits), "x")


def test_bags_that_have_a_split_keep_it() -> None:
    loaded = LoadedBags(patients(30))
    assert "split by patient and class" in draw_split(loaded, 0.2).drawn
    own = LoadedBags(replace(loaded.bags, splits=("train", *("",) * (len(loaded.bags) - 1))))
    assert draw_split(own, 0.2) is own


def test_a_bag_out_of_distribution_is_no_bag_of_its_class_in_a_split() -> None:
    data = six(("train", "train", "test", "test", "", ""))
    check_splits(data, "x")
    with pytest.raises(DataError, match="test bags of 'x'.*got none of class '1'"):
        check_splits(replace(data, is_ood=OodFlags.of([False, False, False, True, False, False])), "x")


def test_names_without_a_bag_and_bags_twice_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="bag 'z' of 'x': expected a bag of the data, got no such one"):
        Splits("x", ({"a": "train", "z": "test"},)).assign(six())
    for fold in (-1, 1):
        with pytest.raises(DataError, match=f"fold {fold} of 'x': expected a number from 0 to 0"):
            Splits("x", ({"a": "train"},)).assign(six(), fold)
    (tmp_path / "splits_0.csv").write_text("train,val,test\na,a,b\n")
    with pytest.raises(DataError, match="'a' in splits .*: expected one split, got train and validation"):
        read_splits(tmp_path / "splits_0.csv")
    with pytest.raises(DataError, match="fold 2 of 'x': expected a number from 0 to 0"):
        Splits("x", ({"a": "train"},)).assign(six(), 2)


@pytest.mark.parametrize("kind", ["bag", "patient"])
def test_bags_that_are_left_out_may_be_listed_in_splits(kind: str, tmp_path: Path) -> None:
    features = tmp_path / "features"
    features.mkdir()
    for number in range(6):
        made_files.trident(features, f"s{number}", made_files.features_of(0 if number == 5 else 4))
    labels, splits = tmp_path / "labels.csv", tmp_path / "splits.csv"
    rows = [f"s{number},p{number},{number % 2}\n" for number in range(6)]
    labels.write_text("slide_id,case_id,label\n" + "".join(rows))
    column, letter = ("slide_id", "s") if kind == "bag" else ("case_id", "p")
    parts = ["train", "train", "test", "test", "train", "train"]
    rows = [f"{letter}{number},{part}\n" for number, part in enumerate(parts)]
    splits.write_text(f"{column},split\n{''.join(rows)}{letter}06,test\n")
    found = load_bags(features, labels=labels, splits=splits, skip_bad=True)
    assert found.bags.splits == ("train", "train", "test", "test", "train")
    reasons = {one.bag: one.reason for one in found.left_out}
    assert "without tissue" in reasons["s5"]
    assert f"listed in '{splits}', but the data have no such one" in reasons[f"{letter}06"]
    assert "s6" not in reasons
    labels.write_text(labels.read_text().replace("s5,p5,1\n", ""))
    with pytest.raises(DataError, match=f"{kind} '{letter}06' of .*, and 1 more.*skip_bad=True"):
        load_bags(features, labels=labels, splits=splits)
    splits.write_text("slide_id,split\nx,train\ny,test\n")
    with pytest.raises(DataError, match="bag 'x' of .* got no such one, and 1 more"):
        load_bags(features, labels=labels, splits=splits, skip_bad=True)


def test_files_that_are_no_splits_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("slide_id,fold_0\na,trian\n")
    with pytest.raises(DataError, match="a.csv', line 2, split 'trian'.* did you mean 'train'"):
        read_splits(tmp_path / "a.csv")
    (tmp_path / "c.csv").write_text("train,val,test\nTrue,False,False\n")
    with pytest.raises(DataError, match="a column with the id of the bag, such as slide_id"):
        read_splits(tmp_path / "c.csv")
    (tmp_path / "b.csv").write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match="columns train, val, test"):
        read_splits(tmp_path / "b.csv")
    with pytest.raises(StorageError, match=r"splits_0\.csv, splits_1\.csv"):
        read_splits(tmp_path)


@pytest.mark.parametrize("heading", ["case_id,note", "Patient ID,note", "note,case_id"])
def test_truth_values_of_patients_are_splits_of_patients(heading: str, tmp_path: Path) -> None:
    parts = {"p": "1,0,0", "q": "1,0,0", "r": "0,1,0", "s": "0,1,0", "t": "0,0,1", "u": "0,0,1"}
    rows = [f"x,{p},{cells}" if heading.startswith("note") else f"{p},x,{cells}" for p, cells in parts.items()]
    (tmp_path / "splits_0.csv").write_text("\n".join([f"{heading},train,val,test", *rows, ""]))
    expected = ("train", "train", "validation", "validation", "test", "test")
    assert read_splits(tmp_path / "splits_0.csv").assign(six()).splits == expected
    assert read_splits(tmp_path).assign(six()).splits == expected
    (tmp_path / "splits_1.csv").write_text("train,val,test\na,c,e\nb,d,f\n")
    with pytest.raises(DataError, match=r"folds of bags alone.*bags in '.*splits_1.csv', of patients in '.*_0"):
        read_splits(tmp_path)


def test_names_of_bags_that_are_numbers_are_no_counts(tmp_path: Path) -> None:
    (tmp_path / "splits_0.csv").write_text(",train,val,test\n0,10,11,12\n1,13,,\n")
    assert read_splits(tmp_path / "splits_0.csv").folds[0]["13"] == "train"
