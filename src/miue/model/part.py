"""How a network, encoder, method or score is specified: a name, an import path, a class, a factory or a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any

from torch import nn

from miue.common.errors import ConfigError, ModelError, wrong_type
from miue.common.parts import DISTANCES, ENCODERS, METHODS, NETWORKS
from miue.common.registry import Registry, import_part, part_at
from miue.common.third_party import count_as_third_party

PartLike = str | type | Callable[..., Any] | nn.Module
"""A name, an import path "package.module:Class", a class, a factory, or a module that is built already."""

REGISTRIES: dict[str, Registry[Any]] = {
    "network": NETWORKS,
    "encoder": ENCODERS,
    "method": METHODS,
    "distance": DISTANCES,
}


@dataclass(frozen=True)
class Part:
    """A part that can be built, and how a saved model names it.

    Attributes:
        kind: "network", "encoder", "method" or "distance".
        name: for a reader.
        make: class, factory, or a module that is built already.
        import_path: "package.module:Class" of a part that is not of miue, else "".
        unsaveable: why another process could not build it, "" where it could.
    """

    kind: str
    name: str
    make: Any
    import_path: str = ""
    unsaveable: str = ""

    @property
    def is_own(self) -> bool:
        """Whether it is a part of miue."""
        return not self.import_path and not self.unsaveable

    @property
    def is_built(self) -> bool:
        """Whether it is a module that is built already."""
        return isinstance(self.make, nn.Module)

    @property
    def package(self) -> str:
        """Name and version of the package to install for it, "" where that is not known."""
        return find_package(self.import_path) if self.import_path else ""


def find_part(kind: str, part: PartLike) -> Part:
    """Return the part that a name, an import path, a class, a factory or a module names.

    Raises:
        ConfigError: a name that does not exist, an import path without anything behind it, or something else.
    """
    registry = REGISTRIES[kind]
    if isinstance(part, str) and ":" in part:
        name = registry.name_at(part) or part.rpartition(":")[2]  # other processes are given import paths
        return _named(kind, name, part_at(kind, part))
    if isinstance(part, str):
        name = registry.canonical(part)
        other = None if part in registry else next((one for one, of in REGISTRIES.items() if part in of), None)
        if other is not None:
            raise ConfigError(
                item=f"{kind} {part!r}",
                wanted=f"one of {', '.join(sorted(registry))}",
                got=f"the name of {'an' if other == 'encoder' else 'a'} {other}",
                fix=f"pass it as the {other}, or choose one of these",
            )
        registered = registry[part]
        if not callable(registered):
            raise ConfigError(
                item=f"{kind} {part!r}",
                wanted="a class, or a function that builds one",
                got=f"a value of type {type(registered).__name__}, {registry.describe(part)}",
                fix=f"correct what is registered, or choose another {kind}",
            )
        return Part(kind, name, registered) if registry.path_of_own(name) else _named(kind, name, registered)
    if not callable(part):
        raise wrong_type(
            f"the {kind}",
            "a name, a class, a function that builds one, or a module",
            part,
            f"choose one of {registry.help()}, or pass a class of your own",
        )
    maker = type(part) if isinstance(part, nn.Module) else part
    return _named(kind, getattr(maker, "__name__", type(maker).__name__), part)


def saved_part(kind: str, name: str, import_path: str, package: str, *, trust: bool) -> Part:
    """Return the part that a saved model names; code that is not of miue is imported only where it is trusted.

    Raises:
        ModelError: a part that is not of miue, without trust or not installed.
        ConfigError: a name that miue does not have.
    """
    registry = REGISTRIES[kind]
    if not import_path:
        if registry.path_of_own(name) is None and name in registry:
            raise ModelError(
                item=f"{kind} {name!r} of a saved model",
                wanted="a part of miue, or the import path of another",
                got="a name that another package brings",
                fix="save the model again",
            )
        return Part(kind, registry.canonical(name), registry[name])
    what = f"{import_path!r}, code of {package or 'another package'}"
    if not trust:
        raise ModelError(
            item=f"{kind} {name!r} of a saved model",
            wanted="a part of miue itself, or leave to run the code of others",
            got=what,
            fix="if you trust that code, pass trust=True (on the command line --trust)",
        )
    try:
        return _named(kind, name, import_part(import_path))
    except (ImportError, AttributeError) as error:
        module = import_path.partition(":")[0].partition(".")[0]
        install = f"install the package {package or module!r} in this environment, or add its folder to PYTHONPATH"
        raise ModelError(
            item=f"{kind} {name!r} of a saved model",
            wanted=what,
            got=f"{type(error).__name__}: {error}",
            fix=install if isinstance(error, ImportError) else changed_code({import_path: package}),
        ) from error


def other_versions(packages: Mapping[str, str]) -> dict[str, str]:
    """Return which packages of saved parts are installed in another version: "name 2.0" by "name 1.2".

    Args:
        packages: name and version by import path, "" where that is not known.
    """
    installed = {package: find_package(path) for path, package in packages.items()}
    return {package: there for package, there in installed.items() if package and there and there != package}


def changed_code(packages: Mapping[str, str]) -> str:
    """Return what to do where parts of others no longer are what they were when a model was saved.

    Args:
        packages: name and version by import path, "" where that is not known.
    """
    if others := other_versions(packages):
        return f"install {', '.join(others)}, with which it was saved ({', '.join(others.values())} is installed)"
    return f"the code of {', '.join(packages)} has changed since it was saved: use that of then, or train again"


def _named(kind: str, name: str, make: Any) -> Part:
    """Return the part that is built by ``make``, which may be one of miue."""
    maker = type(make) if isinstance(make, nn.Module) else make
    module, qualified = getattr(maker, "__module__", ""), getattr(maker, "__qualname__", "")
    path = f"{module}:{qualified}"
    registry = REGISTRIES[kind]
    for own in registry.own_names():
        if registry.path_of_own(own) == path:
            return Part(kind, own, make)
    count_as_third_party(module)
    unsaveable = ""
    if not qualified or "<" in qualified:
        unsaveable = f"{getattr(maker, '__qualname__', repr(maker))} is not a name of a module"
    elif module == "__main__":
        unsaveable = f"{qualified} is defined in the script that runs, or in a notebook"
    elif _or_none(path) is not maker:
        unsaveable = f"{path!r} is not what was passed"
    return Part(kind, name, make, "" if unsaveable else path, unsaveable)


def _or_none(path: str) -> Any:
    try:
        return import_part(path)
    except (ImportError, AttributeError):
        return None


@cache
def find_package(import_path: str) -> str:
    """Return name and version of the installed package that an import path leads into, "" if there is none."""
    top = import_path.partition(":")[0].partition(".")[0]
    for name in packages_distributions().get(top, []):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return ""
