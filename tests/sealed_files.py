"""Folders that are changed and sealed again, as if miue had written them so: what lies beyond the digests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from miue.common.files import file_sha256
from miue.common.records import FILES, sealed
from miue.common.tables import read_columns
from miue.predictions.decode import TEXT
from miue.predictions.folder import LOCKED, columns_sha256


def seal_again(main: Path, change: Callable[[dict[str, Any]], object] = lambda content: None) -> None:
    """Change what the main file of a folder says, and list the files that are there now.

    Args:
        main: config.json, store.json, predictions.json, or another sealed file.
        change: of its content, in place.
    """
    content = json.loads(main.read_text("utf-8"))
    change(content)
    if isinstance(content.get(FILES), dict):
        locked = content.get(LOCKED, {})
        for name in [name for name in content[FILES] if (main.parent / name).exists()]:
            path = main.parent / name
            content[FILES][name] = (
                columns_sha256(read_columns(path, TEXT), locked[name], str(path))
                if name in locked
                else file_sha256(path)
            )
    main.write_text(json.dumps(sealed(content)), "utf-8")
