"""What is asked of all bags at once, after they are loaded."""

from __future__ import annotations

from dataclasses import replace

from miue.common.errors import DataError, MiueError, first_few
from miue.common.text import tracked
from miue.io.folders.file_instances import FileInstances
from miue.io.loaded import LeftOut, LoadedBags, refuse_or_skip


def check_coords(loaded: LoadedBags, where: str, needed_by: str, *, skip_bad: bool) -> LoadedBags:
    """Return the bags after all, or where ``skip_bad`` some, were seen to have coords.

    Args:
        loaded: the bags.
        where: they come from, for messages.
        needed_by: what needs the coords, likewise.
        skip_bad: let bags without coords pass where others have them.

    Raises:
        DataError: bags without coords.
    """
    bags, bare = loaded.bags, loaded.bags.without_coords
    if not bare or (skip_bad and len(bare) < len(bags)):
        return loaded
    without = f"{len(bare):,} of {len(bags):,} bags without ({first_few(bare)})"
    alone = " (--skip-bad leaves these bags out of it alone)" if len(bare) < len(bags) else ""
    raise DataError(
        item=repr(where),
        wanted=f"coords, which {needed_by} needs",
        got="; ".join([without, *loaded.notes]),
        fix=f"extract them with the features, or leave out {needed_by}{alone}",
    )


def check_values(loaded: LoadedBags, where: str, *, skip_bad: bool, progress: bool) -> LoadedBags:
    """Return the bags after all features that stay in files were read once, to see that they are finite.

    Args:
        loaded: the bags.
        where: they come from, for messages.
        skip_bad: leave out those that cannot be used.
        progress: show a bar.

    Raises:
        DataError: features that are not finite, or cannot be read; with ``skip_bad``, of all bags.
    """
    in_files = isinstance(loaded.bags.instances, FileInstances)
    return read_values(loaded, where, skip_bad=skip_bad, progress=progress)[0] if in_files else loaded


def read_values(loaded: LoadedBags, where: str, *, skip_bad: bool, progress: bool) -> tuple[LoadedBags, list[int]]:
    """Return the bags after all features were read once, and how many rows of each are zero in every feature.

    Args:
        loaded: the bags.
        where: they come from, for messages.
        skip_bad: leave out those that cannot be used.
        progress: show a bar.

    Raises:
        DataError: features that are not finite, or cannot be read; with ``skip_bad``, of all bags.
    """
    kept, zeros, bad = [], [], []
    for bag, name in enumerate(tracked(loaded.bags.ids, "checking", shown=progress)):
        try:
            rows = loaded.bags.batch([bag]).instances.flatten(1)
        except MiueError as error:
            if not skip_bad:
                raise
            bad.append(LeftOut(name, str(error)))
            continue
        kept.append(bag)
        zeros.append(int((~rows.any(1)).sum()))
    if bad:
        refuse_or_skip(where, len(kept), bad, skip_bad=skip_bad)
        loaded = replace(loaded, bags=loaded.bags.subset(kept), left_out=(*loaded.left_out, *bad))
    return loaded, zeros
