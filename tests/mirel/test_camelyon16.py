"""CAMELYON16 as the paper uses it, on made slides in the files of the challenge and of its tools."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from made_camelyon16 import (
    CLASSES,
    OUTLINED,
    TRAINING,
    made_camelyon16,
    made_features,
    size_of,
    write_outlines,
    write_slides,
)
from made_files import clam, trident
from typer.testing import CliRunner

from miue.bags import BagDataset
from miue.cli import app
from miue.common.errors import ConfigError, DataError, MiueError, StorageError
from miue.common.tables import read_text_columns
from miue.io import FileInstances, LoadedBags, instances
from papers.mirel.camelyon16.bags import camelyon16_bags, camelyon16_with_prad, camelyon16_with_shifts
from papers.mirel.camelyon16.slides import PARTLY_OUTLINED, TEST, camelyon16_slides
from papers.mirel.camelyon16.slides import TRAINING as OFFICIAL
from papers.mirel.paths import Paths
from papers.mirel.stores import store_of

KINDS = ("trident", "clam")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return made_camelyon16(tmp_path / "data")


def patches_of(bags: BagDataset, name: str) -> tuple[list[int], list[bool]]:
    """Classes of a slide's patches, and which of them are known."""
    bag = bags.ids.index(name)
    span = slice(bags.starts[bag], bags.starts[bag] + bags.sizes[bag])
    return bags.instance_labels.values[span].tolist(), bags.instance_labels.known[span].tolist()


def test_the_official_slides_are_270_and_129_and_their_names_tell_the_classes(tmp_path: Path) -> None:
    assert (len(OFFICIAL), len(TEST)) == (270, 129)
    assert len(set(OFFICIAL)) == 270
    assert "normal_086" not in OFFICIAL
    assert "test_049" not in TEST
    rows = [f"{name},{'Tumor' if place < 49 else 'Normal'},None,None" for place, name in enumerate(TEST)]
    (tmp_path / "reference.csv").write_text("\n".join(rows) + "\n")
    slides = camelyon16_slides(tmp_path)
    assert [list(slides.training.values()).count(c) for c in (0, 1)] == [159, 111]
    assert [list(slides.test.values()).count(c) for c in (0, 1)] == [80, 49]
    assert len(PARTLY_OUTLINED) == 21


def test_a_label_table_may_stand_for_the_reference(source: Path) -> None:
    rows = "\n".join(f"p,{name}.tif,{word.lower()}" for name, word in CLASSES.items())
    (source / "camelyon16" / "reference.csv").write_text(f"case_id,slide_id,label\n{rows}\n")
    assert camelyon16_slides(source / "camelyon16").test == {
        name: int(word == "Tumor") for name, word in CLASSES.items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_slides_have_their_class_split_features_and_the_truth_of_their_patches(tmp_path: Path, kind: str) -> None:
    bags = camelyon16_bags(made_camelyon16(tmp_path, kind)).bags
    assert bags.ids == (*TRAINING, *CLASSES)
    assert bags.labels.values.tolist() == [0] * 7 + [1] * 7 + [1, 0, 0, 1]
    assert bags.labels.known.all()
    assert [bags.splits.count(name) for name in ("train", "validation", "test")] == [12, 2, 4]
    held_out = [name for name, split in zip(bags.ids, bags.splits, strict=True) if split == "validation"]
    assert [name[:5] for name in held_out] == ["norma", "tumor"]
    assert bags.class_names == ("normal", "tumor")
    assert bags.is_ood.in_distribution.all()
    read = bags.batch([bags.ids.index("tumor_003")]).instances.numpy()
    assert np.array_equal(read, made_features("tumor_003"))
    size = size_of("test_001")
    outlined = OUTLINED + 1  # a quarter of the fourth patch, a tenth of the fifth
    assert patches_of(bags, "test_001") == ([1] * outlined + [0] * (size - outlined), [True] * size)
    assert patches_of(bags, "normal_002") == ([0] * size_of("normal_002"), [True] * size_of("normal_002"))


def test_outside_outlines_that_are_not_whole_and_without_outlines_nothing_is_known(source: Path) -> None:
    (source / "camelyon16" / "annotations" / "test_001.xml").unlink()
    bags = camelyon16_bags(source).bags
    partly, size = OUTLINED + 1, size_of("test_114")
    assert patches_of(bags, "test_114")[1] == [True] * partly + [False] * (size - partly)
    assert patches_of(bags, "test_114")[0][:partly] == [1] * partly
    assert not any(patches_of(bags, "test_001")[1])
    assert all(patches_of(bags, "test_002")[1])


def test_names_may_be_written_as_in_the_first_release(source: Path) -> None:
    expected = camelyon16_bags(source).bags
    home = source / "camelyon16"
    for folder in ("features", "annotations"):
        for path in (home / folder).iterdir():
            path.rename(path.with_name(path.name.capitalize()))
    rows = "".join(f"{name.capitalize()}.tif,{word},None,None\n" for name, word in CLASSES.items())
    (home / "reference.csv").write_text(rows)
    found = camelyon16_bags(source).bags
    assert found.ids == expected.ids
    assert np.array_equal(found.instance_labels.values, expected.instance_labels.values)
    assert np.array_equal(found.instance_labels.known, expected.instance_labels.known)


def test_a_table_made_by_the_command_says_the_same_as_the_outlines(source: Path) -> None:
    home = source / "camelyon16"
    outlined = camelyon16_bags(source).bags.instance_labels
    command = ["data", "patch-labels", home / "features", "--annotations", home / "annotations"]
    command += ["--unannotated", "negative", "--out", home / "patch-labels.csv", "--quiet"]
    result = CliRunner().invoke(app, list(map(str, command)))
    assert result.exit_code == 0, result.output
    shutil.rmtree(home / "annotations")
    listed = camelyon16_bags(source).bags.instance_labels
    assert np.array_equal(listed.known, outlined.known)
    assert np.array_equal(listed.values[listed.known], outlined.values[outlined.known])
    assert listed.values[listed.known].any()


def test_the_held_out_slides_depend_on_the_seed_alone(source: Path) -> None:
    first, again = (camelyon16_bags(source).bags.splits for _ in range(2))
    others = [camelyon16_bags(source, validation_seed=seed).bags.splits for seed in range(3)]
    assert first == again
    assert any(other != first for other in others)
    assert camelyon16_bags(source, validation_share=0.5).bags.splits.count("validation") == 7


@pytest.mark.parametrize("kind", ["blur", "hed"])
def test_foreign_and_shifted_slides_stand_beside_the_test_slides_and_nowhere_else(source: Path, kind: str) -> None:
    prad, shifts = camelyon16_with_prad(source).bags, camelyon16_with_shifts(source, kind).bags
    assert set(prad.splits) == set(shifts.splits) == {"test"}
    assert prad.ids[:4] == shifts.ids[:4] == tuple(CLASSES)
    assert prad.ood_sets == ("",) * 4 + ("prad",) * 5
    strengths = [f"{kind}-{strength}" for strength in ("lighter", "light", "strong")]
    assert shifts.ood_sets == ("",) * 4 + tuple(name for name in strengths for _ in CLASSES)
    assert shifts.ids[4] == f"test_001-{kind}-lighter"
    for bags in (prad, shifts):
        foreign = np.array(bags.ood_sets) != ""
        assert np.array_equal(bags.is_ood.values, foreign)
        assert np.array_equal(bags.labels.known, ~foreign)
        inside = np.repeat(~foreign, bags.sizes)
        assert np.array_equal(bags.instance_is_ood.values, ~inside)
        assert not bags.instance_labels.known[~inside].any()
        assert patches_of(bags, "test_001") == patches_of(camelyon16_bags(source).bags, "test_001")
    strong = shifts.batch([shifts.ids.index(f"test_003-{kind}-strong")]).instances.numpy()
    assert strong == pytest.approx(made_features("test_003") + 3)


def test_a_shift_that_does_not_exist_is_answered_with_the_nearest(source: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'blur'"):
        camelyon16_with_shifts(source, "blurr")


def test_no_feature_is_read_before_it_is_asked_for(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> np.ndarray:
        raise AssertionError("features were read")

    monkeypatch.setattr(instances, "read_rows", refuse)
    for make in (camelyon16_bags, camelyon16_with_prad, with_blur):
        bags = make(source).bags
        assert isinstance(bags.instances, FileInstances)
        with pytest.raises(AssertionError, match="features were read"):
            bags.batch([0])


def test_files_that_are_no_slide_of_the_experiment_are_left_out_and_listed(source: Path) -> None:
    write_slides(source / "camelyon16" / "features", ["test_049", "normal_008"])
    opened = camelyon16_bags(source)
    assert [one.bag for one in opened.left_out] == ["normal_008", "test_049"]
    paths = Paths(source, source.parent / "work", source.parent / "results")
    store_of("camelyon16", paths)
    left_out = read_text_columns(source.parent / "work" / "stores" / "camelyon16" / "left_out.csv")
    assert left_out["bag_id"] == ["normal_008", "test_049"]
    assert all("not a slide of the experiment" in reason for reason in left_out["reason"])


def with_blur(source: Path) -> LoadedBags:
    return camelyon16_with_shifts(source, "blur")


def remove(path: str) -> Any:
    def act(source: Path) -> None:
        target = source / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    return act


def write(path: str, text: str) -> Any:
    def act(source: Path) -> None:
        (source / path).write_text(text)

    return act


def of_another_width(source: Path) -> None:
    shutil.rmtree(source / "tcga-prad")
    trident(source / "tcga-prad", "TCGA-1", made_features("TCGA-1", width=7))


def of_another_encoder(source: Path) -> None:
    for path in (source / "tcga-prad").iterdir():
        with h5py.File(path, "r+") as file:
            file["features"].attrs["encoder"] = "conch_v1"


def without_coords(source: Path) -> None:
    shutil.rmtree(source / "camelyon16" / "features")
    for name in (*TRAINING, *CLASSES):
        clam(source / "camelyon16", name, made_features(name))
    shutil.rmtree(source / "camelyon16" / "h5_files")
    (source / "camelyon16" / "pt_files").rename(source / "camelyon16" / "features")


def one_without_coords(source: Path) -> None:
    with h5py.File(source / "camelyon16" / "features" / "tumor_001.h5", "r+") as file:
        del file["coords"]


def of_other_patches(source: Path) -> None:
    folder = source / "camelyon16" / "shifted" / "blur-light"
    trident(folder, "test_002", made_features("test_002")[1:])


def of_another_shift(source: Path) -> None:
    shifted = source / "camelyon16" / "shifted"
    shutil.copy(shifted / "hed-light" / "test_002.h5", shifted / "blur-strong" / "test_002.h5")


def other_names(source: Path) -> None:
    shutil.rmtree(source / "camelyon16" / "annotations")
    table = source / "camelyon16" / "patch-labels.csv"
    table.write_text("bag_id,instance,instance_label\nslide_1,0,1\nslide_1,1,0\n")


def tumor_in_normal(source: Path) -> None:
    other_names(source)
    with (source / "camelyon16" / "patch-labels.csv").open("a") as file:
        file.write("tumor_001,0,1\nnormal_001,0,1\n")


def without_tissue(source: Path) -> None:
    trident(source / "camelyon16" / "features", "tumor_002", np.zeros((0, 6), np.float32))


BAD = {
    "no folder": (remove("camelyon16"), camelyon16_bags, r"features/ \(of all slides\).*--source"),
    "no features": (remove("camelyon16/features"), camelyon16_bags, "features'.*a folder of feature files"),
    "a slide is missing": (
        remove("camelyon16/features/tumor_004.h5"),
        camelyon16_bags,
        r"slide 'tumor_004' of .*no file \(1 of 18 slides lack them\); .*slides.csv",
    ),
    "all slides are wanted": (remove("camelyon16/slides.csv"), camelyon16_bags, "129 test slides"),
    "a slide without tissue": (without_tissue, camelyon16_bags, "'tumor_002'.*slide without tissue"),
    "no reference": (remove("camelyon16/reference.csv"), camelyon16_bags, "copy testing/reference.csv"),
    "a test slide without class": (
        write("camelyon16/reference.csv", "test_001,Tumor,IDC,Macro\ntest_002,Normal,None,None\n"),
        camelyon16_bags,
        "slide 'test_003'.*none, for 2 of 4 test slides; take the challenge's whole reference.csv",
    ),
    "a class that is none": (
        write("camelyon16/reference.csv", "test_001,Benign,None,None\n"),
        camelyon16_bags,
        "slide 'test_001' of .*got 'Benign'",
    ),
    "a name that is none": (
        write("camelyon16/slides.csv", "slide_id\nnormal_001\nnormal_086\n"),
        camelyon16_bags,
        "slide 'normal_086' of .*an official name",
    ),
    "neither outlines nor table": (remove("camelyon16/annotations"), camelyon16_bags, "lesion_annotations"),
    "outlines of an unknown slide": (
        lambda source: write_outlines(source / "camelyon16" / "annotations", "tumor_112"),
        camelyon16_bags,
        "annotation .*tumor_112.xml'.*take it out of the folder",
    ),
    "outlines of a normal slide": (
        lambda source: write_outlines(source / "camelyon16" / "annotations", "test_002"),
        camelyon16_with_prad,
        "slide 'test_002': expected no tumor.*test_002.xml.*check reference.csv",
    ),
    "two annotations of a slide": (
        write("camelyon16/annotations/Tumor_001.geojson", "{}"),
        camelyon16_bags,
        "slide 'tumor_001': expected one annotation",
    ),
    "a table of other names": (
        other_names,
        camelyon16_bags,
        "patch-labels.csv'.*such as 'slide_1'; write bag_id as",
    ),
    "tumor in a normal slide of a table": (
        tumor_in_normal,
        camelyon16_bags,
        "slide 'normal_001': expected no tumor.*patch-labels.csv",
    ),
    "no coords": (without_coords, camelyon16_bags, "features of slide 'tumor_001'.*no coords.*patch-labels"),
    "no coords of one slide": (one_without_coords, camelyon16_bags, "slide 'tumor_001'.*got no coords"),
    "one training slide of a class": (
        write("camelyon16/slides.csv", "slide_id\nnormal_001\nnormal_002\ntumor_001\ntest_001\ntest_002\n"),
        camelyon16_bags,
        "class 'tumor': expected at least two",
    ),
    "no PRAD": (remove("tcga-prad"), camelyon16_with_prad, "tcga-prad'.*all slides with one encoder"),
    "PRAD of another width": (of_another_width, camelyon16_with_prad, "tcga-prad'.*width 6.*got width 7"),
    "PRAD of another encoder": (of_another_encoder, camelyon16_with_prad, "'uni_v1'.*got those of 'conch_v1'"),
    "no shifted slides": (
        remove("camelyon16/shifted"),
        with_blur,
        "no such folder or file; miue data shift .*--kind blur --strength lighter --tiles",
    ),
    "a strength is missing": (remove("camelyon16/shifted/blur-light"), with_blur, "--kind blur --strength light "),
    "a copy is missing": (
        remove("camelyon16/shifted/blur-light/test_114.h5"),
        with_blur,
        "slide 'test_114' of .*1 of 4",
    ),
    "copies of other patches": (of_other_patches, with_blur, "the .* patches of test_002.h5"),
    "copies of another shift": (of_another_shift, with_blur, "got hed-light; move the file"),
}


@pytest.mark.long
@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_used_is_named_with_what_to_do(source: Path, case: str) -> None:
    spoil, make, message = BAD[case]
    make(source)
    spoil(source)
    with pytest.raises(MiueError, match=message) as caught:
        make(source)
    assert isinstance(caught.value, (DataError, StorageError))
