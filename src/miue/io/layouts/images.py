"""The layout of images: a folder for each bag, whose images are its instances."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from miue.common.errors import DataError, first_few
from miue.io.formats.images import has_images
from miue.io.layouts.files import BagFiles, FilesLayout
from miue.io.layouts.layout import folders_below, folders_in


class ImagesLayout(FilesLayout):
    """Folders of images, in the folder itself or in folders below it, such as one for each class or split."""

    name = "a folder of folders of images"
    takes = ()

    @staticmethod
    def matches(path: Path) -> bool:
        """Return whether a folder below has images."""
        return path.is_dir() and next(_folders_of_images(path), None) is not None

    def find(self) -> BagFiles:
        """Return the folders of the bags.

        Raises:
            DataError: folders at several depths, or such as make no single set of bags.
        """
        folders = list(_folders_of_images(self.path))
        inner = [one for one in folders if one not in {other.parent for other in folders}]
        of_parent: dict[Path, list[Path]] = {}
        for one in inner:
            of_parent.setdefault(one.parent, []).append(one)
        if len({len(parent.parts) for parent in of_parent}) > 1:
            raise DataError(
                item=repr(str(self.path)),
                wanted="folders of images in one folder, or in several at one depth",
                got=f"some in {first_few(str(parent.relative_to(self.path)) for parent in of_parent)}",
                fix="pass one of these folders",
            )
        others = [
            one.name
            for parent in of_parent
            for one in (*folders_in(parent), *([parent] if has_images(parent) else []))
            if one not in inner and not (one != parent and folders_in(one))
        ]
        beside = f"not read: {len(others):,} ({first_few(others)}), which are no bags" if others else ""
        return BagFiles.of(self.path, of_parent, [beside])


def _folders_of_images(root: Path) -> Iterator[Path]:
    return (one for one in folders_below(root) if has_images(one))
