"""Packages that only some users need, imported where they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from miue.common.errors import ConfigError


def import_extra(module: str, item: str, extra: str) -> Any:
    """Return a module of a package that an extra of miue installs.

    Args:
        module: its import path.
        item: what needs it, for the message.
        extra: name of the extra.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import_module(module.partition(".")[0])
        return import_module(module)
    except ImportError as error:
        wanted = f"the package {module.partition('.')[0]}"
        raise ConfigError(item=item, wanted=wanted, got=str(error), fix=f"pip install 'miue[{extra}]'") from error
