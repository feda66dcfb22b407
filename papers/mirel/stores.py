"""The bags of each experiment, made once and kept as a store.

Slides could be read where they lie, and are packed all the same: CLAM keeps each patch in a chunk of its own,
which takes some 70 times as long to read as a store, and every training reads every slide once an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from miue.bags import BagDataset
from miue.common.errors import StorageError, unknown_name
from miue.common.values import Option
from papers.mirel.paths import Paths

if TYPE_CHECKING:
    from miue.io import LoadedBags


def store_of(data: str, paths: Paths, arguments: Mapping[str, Option] | None = None) -> BagDataset:
    """Return the bags of an experiment, made on first use.

    Args:
        data: its name, such as "mnist-bags" or "camelyon16".
        paths: where files are.
        arguments: of the source of bags.

    Raises:
        ConfigError: no such bags.
        StorageError: files that are not in ``paths.source``, or a store that was made with other arguments.
        DataError: files that cannot be used.
    """
    from miue.io import read_store, read_store_summary

    make_stores({data: arguments or {}}, paths)
    path, made_by = _path(data, paths), _made_by(data, arguments or {})
    said = read_store_summary(path).made_by
    if said != made_by:
        raise StorageError(
            item=f"store {str(path)!r}",
            wanted=f"one made as {made_by}",
            got=f"{said}",
            fix="remove it, so that it is made again, or choose another --work",
        )
    return read_store(path)


def make_stores(wanted: Mapping[str, Mapping[str, Option]], paths: Paths, *, progress: bool = False) -> None:
    """Make the stores that are not there; all files are looked at before the first is packed.

    Args:
        wanted: names of bags, and the arguments of their sources.
        paths: where files are.
        progress: show bars while slides are opened and packed.

    Raises:
        ConfigError, StorageError, DataError: as ``store_of`` does.
    """
    from miue.io import FileInstances, pack, write_store

    lacking = [data for data in wanted if not (_path(data, paths) / "store.json").exists()]
    sources = {data: _opened(data, paths.source, wanted[data], progress) for data in lacking}
    for data, opened in sources.items():
        path, made_by = _path(data, paths), _made_by(data, wanted[data])
        if isinstance(opened.bags.instances, FileInstances):
            pack(
                opened.bags,
                path,
                made_by=made_by,
                left_out=opened.left_out,
                overwrite=True,
                progress=progress,
            )
        else:
            write_store(path, opened.bags, made_by=made_by, overwrite=True)


def _path(data: str, paths: Paths) -> Path:
    return paths.work / "stores" / data


def _made_by(data: str, arguments: Mapping[str, Option]) -> dict[str, Option]:
    return {"experiment": data, **arguments}


def _opened(data: str, source: Path, arguments: Mapping[str, Any], progress: bool) -> LoadedBags:
    """Return the bags as their source gives them: drawn anew, or slides whose features lie in files."""
    from miue.datasets import cifar10 as cifar10
    from miue.datasets import mnist as mnist
    from miue.datasets.gaussian import gaussian_bags
    from miue.io import LoadedBags
    from papers.mirel.camelyon16 import bags as slides

    make: dict[str, Callable[[], LoadedBags]] = {
        "mnist-bags": lambda: LoadedBags(mnist.mnist_bags(source, ood=mnist.OOD_SOURCES, **arguments)),
        "cifar10-bags": lambda: LoadedBags(cifar10.cifar10_bags(source, ood=cifar10.OOD_SOURCES, **arguments)),
        "gaussian-bags": lambda: LoadedBags(gaussian_bags(**arguments)),
        "camelyon16": lambda: slides.camelyon16_bags(source, **arguments, progress=progress),
        "camelyon16-prad": lambda: slides.camelyon16_with_prad(source, progress=progress),
        "camelyon16-blur": lambda: slides.camelyon16_with_shifts(source, "blur", progress=progress),
        "camelyon16-hed": lambda: slides.camelyon16_with_shifts(source, "hed", progress=progress),
    }
    if data not in make:
        raise unknown_name("bags", data, make)
    return make[data]()
