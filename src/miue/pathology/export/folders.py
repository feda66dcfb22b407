"""Exports: folders of one file for each slide, written in one process or side by side."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from miue.common.errors import DataError, unknown_name
from miue.common.files import atomic_folder, make_folder, read_json, remove_temporaries, write_json
from miue.common.folder_kinds import EXPORT
from miue.common.tasks import ALL, MOST_SHARDS, Executor, Shard, Task, report_share, run_tasks
from miue.common.text import tracked
from miue.common.values import checked
from miue.pathology.export.kinds import KINDS, WriteSlide, check_kinds
from miue.pathology.export.patches import PatchSizes, file_names, patch_sizes, patches_by_slide
from miue.predictions import Predictions, read_predictions

FORMAT = "miue-export"
VERSION = 1
SHARDS = ".shards"


@dataclass(frozen=True)
class Export:
    """What is exported.

    Attributes:
        kind: of the files.
        options: of the kind, by name.
        ids: of the slides that are written; None for all.
        patch_size: side of a patch in level-0 pixels; None for what the slide's file specifies, else its grid
            step, else that of all other slides where they agree; a slide without any of these is left out.
        skip_bad: go on after a slide that fails, instead of an error for the first.
    """

    kind: str
    options: Mapping[str, Any]
    ids: Sequence[str] | None = None
    patch_size: int | None = None
    skip_bad: bool = False


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        slides: files.
        objects: patches or regions in them.
        left_out: why slides were left out, one line each.
    """

    slides: int
    objects: int
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Share:
    """What was written of one shard of the slides.

    Attributes:
        files: name of the file of each slide that was written.
        objects: patches or regions in them.
        skipped: why slides that do not serve were left out.
        unsized: why slides without a patch size were left out.
    """

    files: dict[str, str]
    objects: int
    skipped: list[str]
    unsized: list[str]


@dataclass(frozen=True)
class SlideWriter:
    """Writes the files of an export, each from its slide alone.

    Attributes:
        predictions: of the slides that are written, with instances that have coords.
        what: is exported.
        write: writes the file of one slide.
        files: name of the file of each slide that is written.
        sizes: of the patches of each slide.
    """

    predictions: Predictions
    what: Export
    write: WriteSlide
    files: Mapping[str, str]
    sizes: PatchSizes

    @classmethod
    def of(cls, predictions: Predictions, what: Export) -> SlideWriter:
        """Return what exports predictions; each slide as it is exported beside all others, also those of one bag.

        Raises:
            ConfigError, DataError, StorageError: an option, predictions or a folder of slides that cannot be used.
        """
        kind, predictions = KINDS[what.kind], predictions.per_slide()
        write = kind.writer(predictions, **what.options)
        files = file_names(predictions.bags.bag_ids.astype(str).tolist(), kind.suffix)
        sizes = patch_sizes(predictions, what.patch_size)
        chosen = predictions if what.ids is None else predictions.of_bags(what.ids)
        files = {slide: files[slide] for slide in chosen.bags.bag_ids.astype(str).tolist()}
        return cls(chosen, what, write, files, sizes)

    def write_to(self, folder: Path, shard: Shard = ALL, *, progress: bool = False) -> Share:
        """Write the files of the slides of a shard into ``folder``.

        Raises:
            DataError, StorageError: a slide that does not serve, unless such are left out.
        """
        share = Share({}, 0, [], [])
        skipped, objects = share.skipped if self.what.skip_bad else None, 0
        every = patches_by_slide(self.predictions, self.sizes, skipped, share.unsized, shard)
        total, doing = len(shard.share(list(self.files))), KINDS[self.what.kind].doing
        for number, patches in enumerate(tracked(every, doing, shown=progress, total=total, unit="slides")):
            report_share(number / total)
            count = self.write(patches, folder / self.files[patches.slide], skipped)
            if count is not None:
                objects += count
                share.files[patches.slide] = self.files[patches.slide]
        return replace(share, objects=objects)


@checked()
def export(
    predictions: Predictions,
    out: Path | str,
    kind: str,
    *,
    ids: Sequence[str] | None = None,
    patch_size: int | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    progress: bool = False,
    **options: Any,
) -> Written:
    """Write one file per slide, of one kind.

    Kinds are "arrays" (HDF5), "geojson" (overlays for QuPath), "geoparquet" (a table of squares), "heatmap" (PNG)
    and "ome-tiff" (maps of raw values).

    Args:
        predictions: with instances that have coords.
        out: the folder.
        kind: what is written.
        ids: of the slides to write; None for all.
        patch_size: side of a patch in level-0 pixels; None for that of the slide's file or its grid.
        skip_bad: go on after a slide that fails, instead of an error for the first.
        overwrite: replace the folder.
        progress: show a bar.
        options: of the kind: slides, classes, threshold, merge and bounds of "geojson"; slides and class_name of
            "heatmap"; slides of "ome-tiff".

    Raises:
        ConfigError: no predictions, no such kind, option or class, or an argument of another type.
        DataError: an id of no slide.
        DataError, StorageError: a slide that fails; nothing was written.
    """
    writer = SlideWriter.of(predictions, _described(kind, options, ids, patch_size, skip_bad=skip_bad))
    with atomic_folder(Path(out), EXPORT, overwrite=overwrite) as folder:
        return _finish(folder, [writer.write_to(folder, progress=progress)], Path(out))


def export_side_by_side(
    predictions: Predictions,
    stored: Path,
    out: Path,
    kind: str,
    executor: Executor,
    *,
    ids: Sequence[str] | None = None,
    patch_size: int | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    progress: bool = False,
    **options: Any,
) -> Written:
    """Write what ``export`` writes, byte for byte, in processes that read the predictions from their folder.

    Args:
        predictions: with instances that have coords.
        stored: folder that they were read from.
        out: the folder.
        kind: what is written.
        executor: where shards of the slides are written.
        ids, patch_size, skip_bad, overwrite, progress, options: as ``export`` takes them.

    Raises:
        MiueError: as ``export``, or of the executor; nothing was written.
    """
    what = _described(kind, options, ids, patch_size, skip_bad=skip_bad)
    writer = SlideWriter.of(predictions, what)  # says what is wrong before workers start
    count = min(MOST_SHARDS, len(writer.files))
    with atomic_folder(out, EXPORT, overwrite=overwrite) as folder:
        make_folder(folder / SHARDS)
        shared = {
            "stored": str(stored.resolve()),
            "folder": str(folder.resolve()),
            "what": _to_json(what),
        }
        tasks = [
            Task(
                name=f"shard {number}/{count} of {out}",
                function="miue.pathology.export.folders:export_task",
                arguments={**shared, "shard": [number, count]},
                part=(folder / SHARDS / f"{number}.json").resolve(),
            )
            for number in range(1, count + 1)
        ]
        run_tasks(tasks, executor, doing=KINDS[kind].doing, unit="shards", progress=progress)
        shares = [Share(**read_json(task.part, what="a shard")) for task in tasks]
        shutil.rmtree(folder / SHARDS)
        remove_temporaries(folder)  # of a worker that was killed
        return _finish(folder, shares, out)


def export_task(stored: str, folder: str, what: str, shard: Sequence[int]) -> None:
    """Write the files of a shard of the slides into ``folder``, and last what came of it."""
    which = Shard(*shard)
    share = _opened(stored, folder, what).write_to(Path(folder), which)
    write_json(Path(folder) / SHARDS / f"{which.number}.json", asdict(share))


@lru_cache(1)
def _opened(stored: str, folder: str, what: str) -> SlideWriter:
    """Return the writer of an export, which is made once in each process; each export has its own folder."""
    said = json.loads(what)
    return SlideWriter.of(read_predictions(stored), _described(**said))


def _to_json(what: Export) -> str:
    """Return what is exported as JSON; the folder of slides is absolute."""
    options = {
        name: str(value.resolve()) if isinstance(value, Path) else value for name, value in what.options.items()
    }
    return json.dumps(asdict(replace(what, options=options)))


def _described(
    kind: str, options: Mapping[str, Any], ids: Sequence[str] | None, patch_size: int | None, *, skip_bad: bool
) -> Export:
    """Return what is exported.

    Raises:
        ConfigError: no such kind, or an option that it does not take.
    """
    check_kinds([kind])
    known = KINDS[kind].options
    for name in options:
        if name not in known:
            raise unknown_name(f"option of {kind}", name, known or ["none"])
    slides = options.get("slides")
    paths = {"slides": Path(slides)} if isinstance(slides, str) else {}
    return Export(kind, {**options, **paths}, ids, patch_size, skip_bad)


def _finish(folder: Path, shares: Sequence[Share], out: Path) -> Written:
    """List the slides in the folder, and return what was written.

    Raises:
        DataError: no slide was written.
    """
    files = {slide: file for share in shares for slide, file in share.files.items()}
    skipped = [reason for share in shares for reason in share.skipped]
    left_out = (*skipped, *(reason for share in shares for reason in share.unsized))
    said = {"format": FORMAT, "version": VERSION, "slides": dict(sorted(files.items())), "left_out": left_out}
    write_json(folder / EXPORT.shown_by[0], said)
    if not files:
        raise DataError(
            item=f"{str(out)!r}",
            wanted="at least one slide to write",
            got=f"none ({left_out[0] if left_out else 'no bag has patches'})",
            fix="mend the slides, or the predictions",
        )
    return Written(len(files), sum(share.objects for share in shares), left_out)
