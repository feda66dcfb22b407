"""Bags are joined by name: as it is written first, else without the endings of files, both sides alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from unicodedata import normalize

from miue.common.errors import DataError
from miue.common.parts import READERS

SLIDES_IMAGES_AND_VIDEOS = (
    *(".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".czi", ".scn", ".svslide", ".vms", ".vmu", ".bif", ".qptiff"),
    *(".dcm", ".jpg", ".jpeg", ".png", ".mp4", ".avi", ".mov", ".mkv", ".webm", ".mpg", ".mpeg"),
)

TABLES = (".csv.gz", ".csv", ".tsv.gz", ".tsv", ".parquet")
ANNDATA = ".h5ad"
HOW_TO_READ_ANNDATA = (
    "read it in Python, miue.BagDataset.from_anndata(anndata.read_h5ad(FILE), bag=COLUMN, label=COLUMN), and "
    "train there or keep the bags with miue.write_store(FOLDER, bags)"
)

TCGA_FILE = re.compile(r"(TCGA-[^.]+)\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
"""The name of a slide in the Genomic Data Commons: a barcode, and what makes the file unique."""

TCGA_PATIENT = re.compile(r"(TCGA-[A-Z0-9]{2}-[A-Z0-9]{4})(?![A-Z0-9])", re.IGNORECASE)
"""How the names of slides of TCGA begin: the barcode of the patient."""

NUMBERED = re.compile(r"bag_\d+")
"""The name of a bag without one of its own, which says its place in a list: other bags have it too."""


def strip_endings(name: str) -> str:
    """Return a bag's name without the endings of files, of a slide of TCGA the barcode.

    Letters with marks are in one form: file systems and programs differ in how they write them.

    >>> strip_endings("007.svs"), strip_endings("s.d2f4.svs.h5"), strip_endings("u\u0308") == "\u00fc"
    ('007', 's.d2f4', True)
    >>> strip_endings("TCGA-3C-AALI-01Z-00-DX1.f6e9a5df-d8cd-45cf-b460-c8b9690b9544.svs")
    'TCGA-3C-AALI-01Z-00-DX1'
    """
    plain = normalize("NFC", _endings(tuple(READERS)).sub("", name.strip()))
    slide = TCGA_FILE.fullmatch(plain)
    return slide[1] if slide else plain


def without_folder(name: str) -> str:
    """Return the last part of a path, without the endings of files.

    >>> without_folder("/data/A/007.svs"), without_folder("C:\\\\slides\\\\007.svs"), without_folder("007")
    ('007', '007', '007')
    """
    return strip_endings(re.split(r"[/\\]", name.strip())[-1])


def patients_in_names(names: Sequence[str], patients: Sequence[str]) -> list[list[int]]:
    """Return the indices of the patients with whose names the name of each bag begins, before a mark or a space.

    >>> patients_in_names(["P1_a", "P10-2", "P1-2-b", "x"], ["P1", "P10", "P1-2"])
    [[0], [1], [0, 2], []]
    """
    index = {strip_endings(patient): number for number, patient in enumerate(patients)}
    plain = map(strip_endings, names)
    return [[index[text] for text in _beginnings(name) if text in index] for name in plain]


def barcode_of_patient(name: str) -> str:
    """Return the barcode of the patient with which the name of a slide of TCGA begins, "" of another name.

    >>> barcode_of_patient("TCGA-3C-AALI-01Z-00-DX1"), barcode_of_patient("slide_1")
    ('TCGA-3C-AALI', '')
    """
    begin = TCGA_PATIENT.match(name)
    return begin[1].upper() if begin else ""


def _beginnings(name: str) -> list[str]:
    """Return what is before each mark or space of a name."""
    return [name[: mark.start()] for mark in re.finditer(r"[\W_]", name)]


def match_names(wanted: Sequence[str], names: Sequence[str], source: str) -> list[int | None]:
    """Return the index in ``names`` of the bag of each wanted name, None where there is none.

    A name is matched exactly first, else without the endings of files, else, of a path, its last part.

    Args:
        wanted: each once.
        names: of bags, each once.
        source: what the wanted names come from, for messages.

    Raises:
        DataError: a name that may be that of two bags, or two names of one bag.

    >>> match_names(["b", "a.svs", "c", "slides/d.svs"], ["a", "b.h5", "d"], "labels.csv")
    [1, 0, None, 2]
    """
    exact = {name: index for index, name in enumerate(names)}
    indices = [exact.get(name) for name in wanted]
    alike: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        alike.setdefault(strip_endings(name), []).append(index)
    for plain in (strip_endings, without_folder):
        matched, name_of = set(indices), dict[int, str]()
        for row in [row for row, index in enumerate(indices) if index is None]:
            found = alike.get(plain(wanted[row]), [])
            if len(found) > 1:
                raise _unclear(wanted[row], source, "the name of one bag", [names[index] for index in found])
            for index in set(found) - matched:
                if (other := name_of.setdefault(index, wanted[row])) != wanted[row]:
                    raise _unclear(names[index], source, "one name of this bag", [other, wanted[row]])
                indices[row] = index
    return indices


def named_twice(names: Sequence[str]) -> str | None:
    """Return a name that is listed twice, or once more with the ending of a file; None if there is none."""
    seen = set()
    names = [normalize("NFC", name) for name in names]
    for name in map(str.strip, names):
        if name in seen:
            return name
        seen.add(name)
    return next((key for name in names if (key := strip_endings(name)) != name.strip() and key in seen), None)


@cache
def _endings(readers: tuple[str, ...]) -> re.Pattern[str]:
    """Return what matches the endings of files that readers open, of tables, slides and images."""
    known = "|".join(map(re.escape, (*readers, *TABLES, *SLIDES_IMAGES_AND_VIDEOS)))
    return re.compile(f"({known})+$", re.IGNORECASE)


def _unclear(name: str, source: str, wanted: str, options: Sequence[str]) -> DataError:
    return DataError(
        item=f"{name!r} of {source!r}",
        wanted=wanted,
        got=f"{options[0]!r} and {options[1]!r}, which differ in the ending or the folder alone",
        fix="write the names as the bags have them",
    )


def how_to_pass(path: Path) -> str:
    """Return what to do where a path is passed as that of bags and is none of a kind that is read."""
    if path.suffix.lower() == ANNDATA and path.exists():
        return HOW_TO_READ_ANNDATA
    return "pass the folder of the files" if path.is_file() else "check the path"
