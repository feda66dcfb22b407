"""CAMELYON16 as the paper uses it: features of slides, classes of patches, out-of-distribution slides.

Reads a folder with ``camelyon16/`` (features/, reference.csv, annotations/ or patch-labels.csv, slides.csv where
not all slides are used, shifted/<kind>-<strength>/) and ``tcga-prad/``. Features stay in their files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from miue.bags import BagDataset, Labels, OodFlags, hold_out
from miue.common.errors import DataError, not_a_folder, unknown_name
from miue.io import LeftOut, LoadedBags
from miue.io.formats import Contents
from miue.io.layouts.files import list_bag_files, make_dataset, read_contents
from miue.pathology.stain_shifts import KINDS, STRENGTHS
from miue.pathology.tile_files import read_attributes
from miue.settings import LoadSettings
from papers.mirel.camelyon16.patches import with_patch_labels
from papers.mirel.camelyon16.slides import CHOSEN, CLASSES, camelyon16_slides

HOME, FEATURES, SHIFTED, PRAD = "camelyon16", "features", "shifted", "tcga-prad"
EXTRACT = "extract features of all slides with one encoder; results/camelyon16/README.md says where they go"
VALIDATION_SHARE, VALIDATION_SEED = 0.15, 42


def camelyon16_bags(
    source: Path,
    *,
    validation_share: float = VALIDATION_SHARE,
    validation_seed: int = VALIDATION_SEED,
    progress: bool = False,
) -> LoadedBags:
    """Return the training, validation and test slides, by the official split.

    Reference: Liu & Ji 2024, Appendix D.2.

    Args:
        source: folder with ``camelyon16``.
        validation_share: share of the training slides that is held out, classes alike.
        validation_seed: of that draw.
        progress: show bars while files are opened and outlines laid over.

    Raises:
        StorageError: a file or folder that is not there; it says which, and where to get it.
        DataError: a slide without features or class, or files that do not fit together.
    """
    home = _home(source)
    slides = camelyon16_slides(home)
    classes = {**slides.training, **slides.test}
    features, left_out = _features(home / FEATURES, list(classes), progress=progress)
    held_out = _held_out(slides.training, validation_share, validation_seed)
    split_of = {name: "validation" if name in held_out else "train" for name in slides.training}
    bags = _labeled(features, classes, tuple(split_of.get(name, "test") for name in classes))
    return LoadedBags(with_patch_labels(bags, classes, home, progress=progress), tuple(left_out))


def camelyon16_with_prad(source: Path, *, progress: bool = False) -> LoadedBags:
    """Return the test slides, and those of TCGA-PRAD as the out-of-distribution set "prad".

    Raises:
        StorageError, DataError: as ``camelyon16_bags`` does; features of another width or encoder.
    """
    own, features = _test_slides(source, progress)
    prad, left_out = _features(source / PRAD, None, progress=progress)
    _check_alike(features, prad, source / PRAD, same_encoder=True)
    return LoadedBags(_with_ood_sets(own, features, {"prad": prad}), tuple(left_out))


def camelyon16_with_shifts(source: Path, kind: str, *, progress: bool = False) -> LoadedBags:
    """Return the test slides and their shifted copies, three out-of-distribution sets, such as "blur-lighter".

    Args:
        source: folder with ``camelyon16``.
        kind: "blur" or "hed"; folders of ``camelyon16/shifted`` as ``miue data shift`` writes them.
        progress: show bars.

    Raises:
        ConfigError: another kind of shift.
        StorageError, DataError: as ``camelyon16_bags`` does; copies of other patches or of another shift.
    """
    if kind not in KINDS:
        raise unknown_name("shift", kind, KINDS)
    own, features = _test_slides(source, progress)
    ood_sets = {}
    for name in [f"{kind}-{strength}" for strength in STRENGTHS]:
        folder = source / HOME / SHIFTED / name
        shifted, _ = _features(folder, list(features), progress=progress, made_by=_shift_command(source, name))
        _check_alike(features, shifted, folder, same_encoder=False)
        for slide, content in shifted.items():
            _check_shift(features[slide], content, name)
        ood_sets[name] = {f"{slide}-{name}": content for slide, content in shifted.items()}
    return LoadedBags(_with_ood_sets(own, features, ood_sets))


def _shift_command(source: Path, name: str) -> str:
    kind, strength = name.split("-")
    home = source / HOME
    return (
        f"miue data shift test_*.tif --kind {kind} --strength {strength} --tiles {home / FEATURES} "
        f"--out {home / SHIFTED / name}, with the --patch-encoder of the features"
    )


def _home(source: Path) -> Path:
    home = source / HOME
    if not home.is_dir():
        wanted = f"a folder with {FEATURES}/ (of all slides), reference.csv and annotations/"
        fix = "pass the folder that contains it as --source; results/camelyon16/README.md says how to make it"
        raise not_a_folder(home, wanted, fix)
    return home


def _test_slides(source: Path, progress: bool) -> tuple[BagDataset, dict[str, Contents]]:
    home = _home(source)
    classes = camelyon16_slides(home).test
    features, _ = _features(home / FEATURES, list(classes), progress=progress)
    bags = _labeled(features, classes, ("test",) * len(classes))
    return with_patch_labels(bags, classes, home, progress=progress), features


def _features(
    folder: Path, wanted: Sequence[str] | None, *, progress: bool, made_by: str = EXTRACT
) -> tuple[dict[str, Contents], list[LeftOut]]:
    """Return the files of the slides wanted, in that order, by name; of all slides if None.

    ``made_by`` says how such a folder comes about.

    Raises:
        StorageError: no such folder.
        DataError: a slide without a file that can be used.
    """
    if not folder.is_dir():
        wanted = "a folder of feature files, one per slide (CLAM, TRIDENT, 'miue data tile')"
        raise not_a_folder(folder, wanted, made_by)
    files = list_bag_files(folder)
    contents, unusable = read_contents(files, tuple(files.by_id), LoadSettings(), progress=progress)
    by_name = {one.id if wanted is None else one.id.lower(): one for one in contents}
    bad = {one.bag if wanted is None else one.bag.lower(): one.reason for one in unusable}
    names = sorted({*by_name, *bad}) if wanted is None else list(wanted)
    missing = [name for name in names if name not in by_name]
    if missing:
        raise DataError(
            item=f"slide {missing[0]!r} of {str(folder)!r}",
            wanted="features that can be used",
            got=f"{bad.get(missing[0], 'no file')} ({len(missing)} of {len(names)} slides lack them)",
            fix="extract them (again)"
            + (", or take the file away" if wanted is None else f", or list the slides to use in {HOME}/{CHOSEN}"),
        )
    unused = sorted(set(by_name) - set(names))
    left_out = [
        LeftOut(name, f"not a slide of the experiment, in {str(folder)!r}", is_bad=False) for name in unused
    ]
    return {name: by_name[name] for name in names}, left_out


def _labeled(features: Mapping[str, Contents], classes: Mapping[str, int], splits: tuple[str, ...]) -> BagDataset:
    bags = make_dataset(list(features.values()))
    labels = Labels.of([classes[name] for name in features])
    return replace(
        bags,
        ids=tuple(features),
        labels=labels,
        is_ood=OodFlags.all_in(len(bags)),
        splits=splits,
        instance_is_ood=OodFlags.all_in(len(bags.instances)),
        class_names=CLASSES,
    )


def _held_out(classes: Mapping[str, int], share: float, seed: int) -> set[str]:
    """Return the names of the training slides to validate on."""
    counts = [list(classes.values()).count(number) for number in range(len(CLASSES))]
    if min(counts) < 2:
        raise DataError(
            item=f"training slides of class {CLASSES[int(np.argmin(counts))]!r}",
            wanted="at least two, one of them to validate on",
            got=str(min(counts)),
            fix=f"list more slides in {HOME}/{CHOSEN}",
        )
    names = list(classes)
    _, held = hold_out(np.array(list(classes.values())), share, seed)
    return {names[row] for row in held}


def _with_ood_sets(
    own: BagDataset, features: Mapping[str, Contents], ood_sets: Mapping[str, Mapping[str, Contents]]
) -> BagDataset:
    """Return the test slides, then those of each out-of-distribution set, which have no labels."""
    others = [(name, slide, ood_set) for ood_set, slides in ood_sets.items() for name, slide in slides.items()]
    bags = make_dataset([*features.values(), *(slide for _, slide, _ in others)])
    is_ood = OodFlags.of(np.arange(len(bags)) >= len(own))
    further = len(bags.instances) - len(own.instances)
    return replace(
        bags,
        ids=(*own.ids, *(name for name, _, _ in others)),
        labels=_extended(own.labels, len(others)),
        is_ood=is_ood,
        splits=("test",) * len(bags),
        ood_sets=(*own.ood_sets, *(ood_set for _, _, ood_set in others)),
        instance_labels=_extended(own.instance_labels, further),
        instance_is_ood=is_ood.repeat(bags.sizes),
        class_names=CLASSES,
    )


def _extended(labels: Labels, further: int) -> Labels:
    unknown = Labels.unknown(further)
    return Labels(np.concatenate([labels.values, unknown.values]), np.concatenate([labels.known, unknown.known]))


def _check_alike(
    own: Mapping[str, Contents], other: Mapping[str, Contents], folder: Path, *, same_encoder: bool
) -> None:
    """Raise where the other features could not have come from the encoder of our own."""
    ours, theirs = next(iter(own.values())), next(iter(other.values()))
    if ours.instance_shape != theirs.instance_shape:
        raise DataError(
            item=f"features of {str(folder)!r}",
            wanted=f"width {ours.instance_shape[0]}, that of CAMELYON16's features",
            got=f"width {theirs.instance_shape[0]}",
            fix="extract both with one encoder",
        )
    known = ours.extractor and theirs.extractor and ours.format == theirs.format
    if same_encoder and known and ours.extractor != theirs.extractor:
        raise DataError(
            item=f"features of {str(folder)!r}",
            wanted=f"those of {ours.extractor!r}, as CAMELYON16's",
            got=f"those of {theirs.extractor!r}",
            fix="extract both with one encoder",
        )


def _check_shift(original: Contents, shifted: Contents, name: str) -> None:
    """Raise unless the copy is of the original's patches and, where it says so, of the shift of its folder."""
    if shifted.size != original.size:
        raise DataError(
            item=f"shifted slide {str(shifted.path)!r}",
            wanted=f"the {original.size} patches of {original.path.name}",
            got=str(shifted.size),
            fix="shift again with --tiles, the folder of the features",
        )
    if shifted.path.suffix.lower() not in (".h5", ".hdf5"):
        return
    said = read_attributes(shifted.path)[0]
    per_slide = "-per-slide" if said.get("drawn_per") == "slide" else ""
    if "shift" in said and f"{said['shift']}-{said.get('strength')}{per_slide}" != name:
        raise DataError(
            item=f"shifted slide {str(shifted.path)!r}",
            wanted=f"the shift {name}, the name of its folder",
            got=f"{said['shift']}-{said.get('strength')}{per_slide}",
            fix="move the file into the folder of its shift",
        )
