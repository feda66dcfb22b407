"""Networks, encoders, methods and distances as they are specified, and the options of their constructors."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any

from torch import nn

from miue.common import values
from miue.common.errors import ConfigError, ModelError, wrong_type
from miue.common.parts import DISTANCES, ENCODERS, METHODS, NETWORKS
from miue.common.registry import Registry, import_part, part_at
from miue.common.values import Option, check_option, is_option, plain

PartLike = str | type | Callable[..., Any] | nn.Module
"""A name, an import path "package.module:Class", a class, a factory, or a module that is built already."""

REGISTRIES: dict[str, Registry[Any]] = {
    "network": NETWORKS,
    "encoder": ENCODERS,
    "method": METHODS,
    "distance": DISTANCES,
}
FILLED_IN = {
    "encoder": ("instance_shape", "in_features"),
    "network": ("encoder", "in_features", "num_classes"),
    "method": ("network",),
}
"""Parameters that get their values from the other parts and from the data; all others are options."""


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

    @property
    def maker(self) -> Any:
        """The class or factory, also of a module that is built already."""
        return type(self.make) if self.is_built else self.make

    def parameters(self) -> dict[str, inspect.Parameter]:
        """Return the parameters of its constructor that are options, by name."""
        return {
            name: parameter
            for name, parameter in inspect.signature(self.maker).parameters.items()
            if name not in FILLED_IN[self.kind]
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }

    def check_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options as the constructor takes them.

        Raises:
            ConfigError: an option that does not exist, has a value of another type, or is missing.
        """
        known = self.parameters()
        if self.is_built and options:
            raise ConfigError(
                item=f"option '{self.kind}.{next(iter(options))}'",
                wanted=f"no options of the {self.kind}, which is built already",
                got=repr(next(iter(options.values()))),
                fix="build it with this value, or pass its class",
            )
        every = inspect.signature(self.maker).parameters.values()
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in every)
        for name in options:
            if name not in known and not takes_any:
                raise unknown_option(f"{self.kind}.{name}", self)
        for name, parameter in known.items():
            if parameter.default is parameter.empty and name not in options and not self.is_built:
                raise ConfigError(
                    item=f"{self.kind} {self.name!r}",
                    wanted=f"a value for its parameter {name!r}",
                    got="none",
                    fix=f"pass the option {self.kind}.{name}; miue fills in {', '.join(FILLED_IN[self.kind])}",
                )
        return {
            name: self._checked(known[name], value) if name in known else value for name, value in options.items()
        }

    def with_defaults(self, options: Mapping[str, Option]) -> dict[str, Option]:
        """Return options, those that are left alone with their defaults.

        They are saved with a part that is not of miue, so that a model stays the same where another version of
        its package has other defaults. A default that could not be passed as an option is left to the part.
        """
        defaults: dict[str, Option] = {}
        for name, parameter in self.parameters().items():
            value = plain(parameter.default)
            if name in options or not is_option(value):
                continue
            with suppress(ConfigError, ValueError):
                json.dumps(value, allow_nan=False)
                built = self._checked(parameter, value)
                if built == parameter.default and type(parameter.default) in (type(value), type(built)):
                    defaults[name] = value
        return {**options, **defaults}

    def options_of_module(self) -> tuple[dict[str, Option], str]:
        """Return the options with which a module is built again, from its attributes, and why that fails."""
        options: dict[str, Option] = {}
        for name in self.parameters():
            value = plain(getattr(self.make, name, inspect.Parameter.empty))
            if not is_option(value):
                return {}, f"{self.maker.__name__} has no attribute {name!r} with the value it was built with"
            options[name] = value
        return options, ""

    def _checked(self, parameter: inspect.Parameter, value: Any) -> Any:
        return check_option(f"{self.kind}.{parameter.name}", parameter, self.maker, value)


def unknown_option(key: str, *parts: Part) -> ConfigError:
    """Return the error for an option that none of the parts has, naming the nearest."""
    known = [f"{part.kind}.{name}" for part in parts for name in part.parameters()]
    if known:
        return values.unknown_option(key, known)
    wanted = f"no options: {parts[0].kind} {parts[0].name!r} has none"
    return ConfigError(item=f"option {key!r}", wanted=wanted, got=repr(key), fix="leave it out")


def find_part(kind: str, part: PartLike) -> Part:
    """Return the part that a name, an import path, a class, a factory or a module names.

    Raises:
        ConfigError: a name that does not exist, an import path without anything behind it, or something else.
    """
    registry = REGISTRIES[kind]
    if isinstance(part, str) and ":" in part:
        name = registry.name_at(part) or part.rpartition(":")[2]  # other processes are given import paths
        return _named(kind, name, part_at(kind, part))
    make = registry[part] if isinstance(part, str) else part
    if not callable(make):
        wanted = "a name, a class, a function that builds one, or a module"
        raise wrong_type(
            f"the {kind}", wanted, make, f"choose one of {registry.help()}, or pass a class of your own"
        )
    if isinstance(part, str):
        name = registry.canonical(part)
        return Part(kind, name, make) if registry.path_of_own(name) else _named(kind, name, make)
    maker = type(part) if isinstance(part, nn.Module) else part
    return _named(kind, getattr(maker, "__name__", type(maker).__name__), part)


def saved_part(kind: str, name: str, import_path: str, package: str, *, trust: bool) -> Part:
    """Return the part that a saved model names; code that is not of miue is imported only where it is trusted.

    Raises:
        ModelError: a part that is not of miue, without trust or not installed.
        ConfigError: a name that miue does not have.
    """
    registry, item = REGISTRIES[kind], f"{kind} {name!r} of a saved model"
    if not import_path:
        if registry.path_of_own(name) is None and name in registry:
            wanted, got = "a part of miue, or the import path of another", "a name that another package brings"
            raise ModelError(item=item, wanted=wanted, got=got, fix="save the model again")
        return Part(kind, registry.canonical(name), registry[name])
    code = f"{import_path!r}, code of {package or 'another package'}"
    if not trust:
        raise not_trusted(item, code)
    try:
        return _named(kind, name, import_part(import_path))
    except (ImportError, AttributeError) as error:
        module = import_path.partition(":")[0].partition(".")[0]
        install = f"install the package {package or module!r} in this environment, or add its folder to PYTHONPATH"
        fix = install if isinstance(error, ImportError) else changed_code({import_path: package})
        raise ModelError(item=item, wanted=code, got=f"{type(error).__name__}: {error}", fix=fix) from error


def not_trusted(item: str, code: str) -> ModelError:
    """Return the error for a saved model whose code is not of miue and may not be run."""
    wanted = "a part of miue itself, or leave to run the code of others"
    return ModelError(item=item, wanted=wanted, got=code, fix="if you trust that code, pass trust=True")


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
    unsaveable, found = "", None
    with suppress(ImportError, AttributeError):
        found = import_part(path)
    if not qualified or "<" in qualified:
        unsaveable = f"{getattr(maker, '__qualname__', repr(maker))} is not a name of a module"
    elif module == "__main__":
        unsaveable = f"{qualified} is defined in the script that runs, or in a notebook"
    elif found is not maker:
        unsaveable = f"{path!r} is not what was passed"
    return Part(kind, name, make, "" if unsaveable else path, unsaveable)


@cache
def find_package(import_path: str) -> str:
    """Return name and version of the installed package that an import path leads into, "" if there is none."""
    top = import_path.partition(":")[0].partition(".")[0]
    for name in packages_distributions().get(top, []):
        with suppress(PackageNotFoundError):
            return f"{name} {version(name)}"
    return ""
