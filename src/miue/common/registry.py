"""Parts by name: those of miue, those registered at run time, and those that installed packages bring."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from re import fullmatch
from typing import Any, Generic, TypeVar, overload

from miue.common.errors import ConfigError, unknown_name
from miue.common.text import warn_user

P = TypeVar("P")
Q = TypeVar("Q")


class Registry(Mapping[str, P], Generic[P]):
    """Parts of one kind by name, whatever the case of the name; each is imported when it is first looked up.

    A part comes from miue itself, from ``register``, or from the entry points that installed packages declare
    in ``group``. An entry point whose package cannot be imported is an error for those who ask for it by name,
    as is a name that two packages bring; where all parts are listed these are left out with a warning.

    Args:
        kind: what the parts are, for messages: "network".
        group: the group of entry points: "miue.networks".
        parts: import path of each part of miue, "module:name", by its name.
        aliases: other names of parts.
        named: what a name of a part looks like: a regular expression, and the same in words.
        reserved: names that mean something else where a part is named.

    >>> numbers = Registry("number", "miue.doctest", {"pi": "math:pi"}, aliases={"π": "pi"})
    >>> numbers["PI"] == numbers["π"], list(numbers)
    (True, ['pi'])
    """

    def __init__(
        self,
        kind: str,
        group: str,
        parts: Mapping[str, str],
        *,
        aliases: Mapping[str, str] | None = None,
        named: tuple[str, str] = (r"[^:]+", "a name without colons"),
        reserved: Collection[str] = (),
    ) -> None:
        self.kind = kind
        self.group = group
        self._own = dict(parts)
        self._aliases = dict(aliases or {})
        self._named = named
        self._reserved = reserved
        self._registered: dict[str, P] = {}
        self._loaded: dict[str, P] = {}
        self._found: dict[str, EntryPoint] | None = None
        self._rivals: dict[str, list[EntryPoint]] = {}
        self._left_out: list[EntryPoint] = []

    @overload
    def register(self, name: str) -> Callable[[Q], Q]: ...

    @overload
    def register(self, name: str, part: Q) -> Q: ...

    def register(self, name: str, part: Any = None) -> Any:
        """Add a part, as a call or as a decorator; a name that was registered before now names the new part.

        Raises:
            ConfigError: the name of a part of miue, one that means something else, or one that no part can have.

        >>> numbers = Registry("number", "miue.doctest", {})
        >>> @numbers.register("two")
        ... def two() -> int:
        ...     return 2
        >>> numbers["two"] is two
        True
        """
        if part is None:
            return lambda decorated: self.register(name, decorated)
        problem = self._problem(name)
        if problem is not None:
            wanted, got = problem
            raise ConfigError(
                item=f"{self.kind} {name!r}", wanted=wanted, got=got, fix="register it under another name"
            )
        self._registered[self.canonical(name)] = part
        return part

    def _problem(self, name: str) -> tuple[str, str] | None:
        """Return what is wanted of a name of a part of others and what this one is, None where it is fine."""
        pattern, words = self._named
        if not isinstance(name, str):
            return words, f"{name!r} of type {type(name).__name__}"
        key = self.canonical(name)
        if key in self._own:
            return "a name that miue does not use itself", f"the name of {self._own[key]}"
        if key in self._reserved:
            return (
                "a name that miue does not use itself",
                f"{key!r}, which is no {self.kind} but a choice of its own",
            )
        return None if fullmatch(pattern, key) else (words, repr(name))

    def canonical(self, name: str) -> str:
        """Return the name under which a part is listed: in lower case, and no alias."""
        key = name.strip().lower()
        return self._aliases.get(key, key)

    def path_of_own(self, name: str) -> str | None:
        """Return the import path of a part of miue itself, None where the name is that of another or of none."""
        return self._own.get(self.canonical(name))

    def name_at(self, path: str) -> str | None:
        """Return the name under which an installed package brings what has this import path, None for none."""
        brought = (key for key, point in self._entry_points.items() if point.value == path)
        return next((key for key in brought if key not in self._rivals), None)

    def describe(self, name: str) -> str:
        """Return where the part of this name comes from, for messages.

        >>> Registry("number", "miue.doctest", {"pi": "math:pi"}).describe("pi")
        "math:pi, which is miue's own"
        """
        key = self.canonical(name)
        if key in self._own:
            return f"{self._own[key]}, which is miue's own"
        if key in self._registered:
            part = self._registered[key]
            return f"{getattr(part, '__qualname__', repr(part))}, which was registered in this process"
        return _describe(self._entry_points[key])

    def own_names(self) -> list[str]:
        """Return the names of the parts of miue itself."""
        return list(self._own)

    def aliases_of(self, name: str) -> list[str]:
        """Return the other names of a part.

        >>> Registry("number", "miue.doctest", {"pi": "math:pi"}, aliases={"π": "pi"}).aliases_of("pi")
        ['π']
        """
        return [alias for alias, meant in self._aliases.items() if meant == name]

    def help(self) -> str:
        """Return all names as a phrase for a help text; nothing is imported.

        >>> Registry("number", "miue.doctest", {"e": "math:e", "pi": "math:pi", "tau": "math:tau"}).help()
        'e, pi or tau'
        """
        *others, last = self
        return f"{', '.join(others)} or {last}" if others else last

    def __getitem__(self, name: str) -> P:
        self._warn_of_left_out()
        key = self.canonical(name)
        if key in self._registered and key not in self._own:
            return self._registered[key]
        if key in self._loaded:
            return self._loaded[key]
        if key in self._own:
            self._loaded[key] = import_part(self._own[key])
            return self._loaded[key]
        if key not in self._entry_points:
            module, _, last = name.rpartition(".")
            path = f"{module}:{last}" if module and not name.startswith(".") else None  # of a class, with a colon
            fix = "choose one of these, or install the package that brings it"
            raise unknown_name(self.kind, name, self, path, fix)
        if key in self._rivals:
            raise self._brought_twice(name, self._rivals[key])
        self._loaded[key] = self._load(self._entry_points[key])
        return self._loaded[key]

    def __contains__(self, name: object) -> bool:
        self._warn_of_left_out()
        key = self.canonical(name) if isinstance(name, str) else name
        return key in self._own or key in self._registered or key in self._entry_points

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._own, *self._registered, *self._entry_points])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the part of this name, or ``default`` where there is none."""
        return self[name] if name in self else default  # noqa: SIM401

    def items(self) -> Any:
        """Return names and parts; a part that cannot be imported is left out with a warning."""
        return dict(self._importable()).items()

    def values(self) -> Any:
        """Return the parts; one that cannot be imported is left out with a warning."""
        return dict(self._importable()).values()

    def __repr__(self) -> str:
        return f"<{self.kind}s: {', '.join(self)}>"

    def _importable(self) -> Iterator[tuple[str, P]]:
        for name in self:
            try:
                yield name, self[name]
            except ConfigError as error:
                warn_user(str(error))

    @property
    def _entry_points(self) -> dict[str, EntryPoint]:
        """Entry points by canonical name, without those whose name no part of others can have."""
        if self._found is None:
            self._found = self._find()
        return self._found

    def _find(self) -> dict[str, EntryPoint]:
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            key = self.canonical(point.name)
            if self._problem(point.name) is not None:
                self._left_out.append(point)
            elif found.setdefault(key, point).value != point.value:
                self._rivals.setdefault(key, [found[key]]).append(point)
        return found

    def _warn_of_left_out(self) -> None:
        """Warn once, when a part is looked up; texts of help list names without looking a part up."""
        if self._found is None:
            self._found = self._find()
        while self._left_out:
            point = self._left_out.pop(0)
            wanted, got = self._problem(point.name) or ("another name", repr(point.name))
            warn_user(f"{_describe(point)} is left out: expected {wanted}, got {got}")

    def _brought_twice(self, name: str, points: list[EntryPoint]) -> ConfigError:
        return ConfigError(
            item=f"{self.kind} {name!r}",
            wanted="one package that brings a part of this name",
            got=" and ".join(map(_describe, points)),
            fix="uninstall one of these packages; a part that is no reader can also be named by its import path",
        )

    def _load(self, point: EntryPoint) -> P:
        try:
            part: P = point.load()
        except (Exception, SystemExit) as error:
            raise ConfigError(
                item=f"{self.kind} {point.name!r}",
                wanted=f"what {_describe(point)} promises",
                got=f"{type(error).__name__}: {error}",
                fix="update or reinstall that package, or choose another " + self.kind,
            ) from error
        return part


def import_part(path: str) -> Any:
    """Return the object with the import path "module:name".

    Raises:
        ImportError: no such module.
        AttributeError: no such name in it.

    >>> import_part("math:pi") == import_part("cmath:pi")
    True
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise ImportError("no module or no name")
    part: Any = import_module(module)
    for step in name.split("."):
        part = getattr(part, step)
    return part


def part_at(kind: str, path: str) -> Any:
    """Return the part of this kind with the import path "module:name", which a user named.

    Raises:
        ConfigError: there is none, or something that builds nothing, such as a module of Python.
    """
    try:
        part = import_part(path)
        if not callable(part):
            raise AttributeError(f"{path!r} is a {type(part).__name__}")
        return part
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            item=f"{kind} {path!r}",
            wanted="the import path of a class or function, package.module:Class",
            got=f"{type(error).__name__}: {error}",
            fix="install that package, add its folder to PYTHONPATH, or correct the path",
        ) from error


def _describe(point: EntryPoint) -> str:
    package = "" if point.dist is None else f" of the package {point.dist.name} {point.dist.version}"
    return f"the entry point {point.name!r} ({point.value}){package}"
