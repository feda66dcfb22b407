"""What a model is made of and how it is trained, as files say it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_serializer

from miue.common.parts import METHODS, NETWORKS
from miue.common.values import Option
from miue.model.part import Part, not_trusted, saved_part

KINDS = ("encoder", "network", "method")
Value = TypeVar("Value")


class Component(BaseModel):
    """A network, encoder or method by name, with the options of its constructor that are not left alone.

    Of a part that is not of miue these are all options, with the defaults that its package had.

    Attributes:
        name: for a reader; of a part of miue, what it is built by.
        options: by the names of the constructor's parameters.
        import_path: "package.module:Class" of a part that is not of miue, else "".
        package: name and version of the package that it comes from, where known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    options: dict[str, Option] = Field(default_factory=dict)
    import_path: str = ""
    package: str = ""
    _part: Part | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, part: Part, options: Mapping[str, Option]) -> Component:
        """Return the component that describes a part which is at hand."""
        component = cls(name=part.name, options=dict(options), import_path=part.import_path, package=part.package)
        component._part = part
        return component

    def part(self, kind: str, *, trust: bool) -> Part:
        """Return the part that it was made of, else the one that it names.

        Raises:
            ModelError: a part that is not of miue, without trust or not installed.
            ConfigError: a name that does not exist.
        """
        if self._part is not None:
            return self._part
        return saved_part(kind, self.name, self.import_path, self.package, trust=trust)

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        content = handler(self)
        return {key: value for key, value in content.items() if value or key in ("name", "options")}


class ModelConfig(BaseModel):
    """What a model is made of; network and method are separate choices.

    Attributes:
        encoder, network, method: of a mixture, the names of all of its members.
        members: of a mixture.
        columns: first and last + 1 of the features that it reads; None for all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: Component
    network: Component
    method: Component
    members: tuple[ModelConfig, ...] = ()
    columns: tuple[int, int] | None = None

    @classmethod
    def mixture(cls, members: Sequence[ModelConfig]) -> ModelConfig:
        """Return the configuration of the mixture of some."""
        encoder, network, method = (
            ", ".join(dict.fromkeys(getattr(member, kind).name for member in members)) for kind in KINDS
        )
        return cls(
            members=tuple(members),
            encoder=Component(name=encoder),
            network=Component(name=network),
            method=Component(name=f"mixture of {method}"),
        )

    @model_serializer(mode="wrap")
    def _without_no_members(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if value}

    def options(self) -> dict[str, Option]:
        """Return the options that are written down, as "network.hidden"; those of a member after its number."""
        if self.members:
            return _numbered(member.options() for member in self.members)
        return {f"{kind}.{key}": value for kind in KINDS for key, value in getattr(self, kind).options.items()}

    def chosen_options(self) -> dict[str, Option]:
        """Return ``options`` without those of the method that it would take from the network if left alone.

        Such an option is written down with its value, so that the model stays the same where the network's
        default changes; to a reader it says nothing.
        """
        if self.members:
            return _numbered(member.chosen_options() for member in self.members)
        own = not self.method.import_path and not self.network.import_path and self._members_are_own
        if not own or self.method.name not in METHODS or self.network.name not in NETWORKS:
            return self.options()
        method, network = METHODS[self.method.name], NETWORKS[self.network.name]
        options = self.method.options
        implied = {
            f"method.{key}"
            for key, value in options.items()
            if method.resolve_options({k: v for k, v in options.items() if k != key}, network).get(key) == value
        }
        return {key: value for key, value in self.options().items() if key not in implied}

    def parts(self, *, trust: bool = False) -> dict[str, Part]:
        """Return encoder, network and method by kind, of a mixture those of each member after its number.

        Raises:
            ModelError, ConfigError: as ``Component.part`` does.
        """
        if self.members:
            return _numbered(member.parts(trust=trust) for member in self.members)
        parts = {kind: getattr(self, kind).part(kind, trust=trust) for kind in KINDS}
        if self.method._part is None and not self.method.import_path and not self._members_are_own:
            member = str(self.method.options["member"])
            if not trust:
                raise not_trusted(
                    f"method.member {member!r} of a saved model", f"{member!r}, code of another package"
                )
            if ":" in member:
                saved_part("method", member.rpartition(":")[2], member, "", trust=True)
        return parts

    @property
    def _members_are_own(self) -> bool:
        """Whether the members of an ensemble, which an option names, are of a method of miue."""
        member = self.method.options.get("member")
        if not isinstance(member, str) or METHODS.path_of_own(member) is not None:
            return True
        return ":" not in member and member not in METHODS

    def packages_of_others(self) -> dict[str, str]:
        """Return name and version of the package that each part of others was saved with, by its import path."""
        known = {part.import_path: part.package for part in self._components()}
        return {path: known.get(path, "") for path in self.of_others}

    @property
    def of_others(self) -> list[str]:
        """The import paths of parts that are not of miue, of which nothing is imported."""
        if self.members:
            return list(dict.fromkeys(path for member in self.members for path in member.of_others))
        paths = [part.import_path for part in self._components() if part.import_path]
        return paths if self._members_are_own else [*paths, str(self.method.options["member"])]

    def _components(self) -> list[Component]:
        return [part for one in self.members or (self,) for part in (one.encoder, one.network, one.method)]

    @property
    def is_own(self) -> bool:
        """Whether all parts are of miue, so that what is saved of them needs no trust."""
        if self.members:
            return all(member.is_own for member in self.members)
        return self._members_are_own and all(part.is_own for part in self.parts(trust=True).values())


def _numbered(of_members: Iterable[Mapping[str, Value]]) -> dict[str, Value]:
    return {f"{number}.{key}": value for number, of_one in enumerate(of_members) for key, value in of_one.items()}
