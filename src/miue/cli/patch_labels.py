"""``miue data patch-labels``: outlines of tumor become labels of patches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from miue.cli.flags import MANY, separate
from miue.cli.options import AsJson, Overwrite, Quiet
from miue.cli.outputs import keeps_inputs, locks_out
from miue.common.errors import ConfigError, DataError, StorageError, first_few, lacking, unknown_name
from miue.common.outputs import refuse_existing
from miue.common.text import OUTPUT, is_or_are, plural, say, show_result

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int64

    from miue.pathology.annotations import AnnotationFiles, Labeling

UNANNOTATED = ("refuse", "negative", "skip")


def _names(help: str) -> Any:
    """Return an option that takes names of groups or classes."""
    return typer.Option(metavar="NAME", help=f"{help} {MANY}", callback=separate)


@keeps_inputs
@locks_out
def data_patch_labels(
    features: Annotated[
        Path, typer.Argument(metavar="FEATURES", help="Folder of .h5 files with coords, one per slide.")
    ],
    annotations: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Folder of <slide>.xml (ASAP, ImageScope), .geojson (QuPath) or .annotations (HALO).",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="CSV to write: bag_id, instance, instance_label.", rich_help_panel=OUTPUT
        ),
    ],
    least: Annotated[float, typer.Option(help="Least share of tumor in a positive patch.")] = 0.2,
    positive: Annotated[
        list[str] | None,
        _names("Group or class that is tumor; by default Tumor, Metastasis, _0, _1."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        _names("Group cut out of it; by default Exclusion, Normal, _2."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        _names("Group or class that is neither, such as Tissue."),
    ] = None,
    unannotated: Annotated[
        str,
        typer.Option(
            metavar="|".join(UNANNOTATED), help="Slides without annotation: negative labels all patches 0."
        ),
    ] = "refuse",
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Label patches by outlines of tumor.

    The label of a patch is 1 if at least --least of its area is tumor, else 0. Outlines and coords must both be in
    level-0 pixels. In CAMELYON16, slides without an annotation have no tumor: state this with --unannotated
    negative, and make sure that no annotation is missing.

    Example: miue data patch-labels features --annotations xml --unannotated negative --out patch-labels.csv
    """
    from miue.pathology.annotations import AnnotationFiles, Groups, Labeling, write_patch_labels

    refuse_existing(out, overwrite=overwrite)
    if unannotated not in UNANNOTATED:
        raise unknown_name("treatment of slides without annotation", unannotated, UNANNOTATED)
    if not 0 < least <= 1:
        raise ConfigError(item="--least", wanted="a share above 0 up to 1", got=str(least), fix="write 0.2, say")
    usual = Groups()
    groups = Groups(
        tuple(positive or usual.positive), tuple(exclude or usual.excluded), tuple(ignore or usual.ignored)
    )
    how = Labeling(AnnotationFiles.at(annotations), least, groups, unannotated == "negative")
    files, without, others = files_of(features, how.annotations, skip=unannotated == "skip")
    if others:
        of_none = f"{plural(len(others), 'annotation')} not read, named as none of the slides: {first_few(others)}"
        say(of_none, err=True)
    counts = Counter[str](unclassified=0)
    write_patch_labels(out, label_slides(files, how, counts, progress=not quiet))
    left_out = f"; {plural(without, 'slide')} without annotation: {unannotated}" if without else ""
    if counts["unclassified"]:
        left_out += f"; left out: {plural(counts['unclassified'], 'outline')} without a class"
    of_all = f"{plural(counts['patches'], 'patch')} of {plural(len(files), 'slide')}"
    tumor = f"{counts['tumor']:,} of {of_all} {is_or_are(counts['tumor'])} tumor"
    facts = {"slides": len(files), **counts, "without_annotation": without, "not_read": others, "out": str(out)}
    show_result(facts, f"{tumor}{left_out}: {out}", as_json)


def files_of(features: Path, annotations: AnnotationFiles, *, skip: bool) -> tuple[list[Path], int, list[str]]:
    """Return the files to label, how many slides have no annotation, and which annotations are of no slide.

    Args:
        features: folder of files of patches.
        annotations: those of the slides, by name.
        skip: leave slides without annotation out.

    Raises:
        StorageError: no files.
        DataError: ``skip`` leaves none, or an annotation is named as a slide without one but for upper and lower
            case.
    """
    from miue.bags.names import strip_endings
    from miue.io.formats import ENDINGS

    there = features.iterdir() if features.is_dir() else ()
    files = sorted(file for file in there if file.suffix.lower() in ENDINGS)
    if not files:
        raise StorageError(
            item=f"{str(features)!r}", wanted="a folder of .h5 files", got="none in it", fix="check the folder"
        )
    annotated = [file for file in files if annotations.of_slide(file.stem) is not None]
    others = annotations.of_others([file.stem for file in files])
    without = {file.stem.lower(): file.stem for file in files if file not in annotated}
    for name in others:
        if (slide := without.get(strip_endings(Path(name).stem).lower())) is not None:
            raise DataError(
                item=f"slide {slide!r}",
                wanted="an annotation of the same name",
                got=f"{name!r}, which differs in upper and lower case",
                fix="rename it, or move it elsewhere if it is of another slide",
            )
    if skip and not annotated:
        fix = f"name each annotation as its slide: {files[0].stem}.xml, say"
        raise lacking(f"{str(annotations.folder)!r}", f"an annotation of a slide in {str(features)!r}", fix)
    return annotated if skip else files, len(files) - len(annotated), others


def label_slides(
    files: list[Path], how: Labeling, counts: Counter[str], *, progress: bool
) -> Iterator[tuple[str, Int64[np.ndarray, "n"]]]:
    """Yield the name of each slide with the labels of its patches, and count them."""
    from miue.common.text import tracked
    from miue.pathology.annotations import patch_labels

    for file in tracked(files, "Slides", shown=progress, unit="slides"):
        labels = patch_labels(file, how, counts)
        counts.update(patches=len(labels), tumor=int(labels.sum()))
        yield file.stem, labels
