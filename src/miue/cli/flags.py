"""The fields of settings as flags of a command, and as values of a TOML file."""

from __future__ import annotations

import inspect
import re
import signal
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, wraps
from importlib import import_module
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from miue.common.errors import ConfigError, MiueError, not_readable
from miue.common.processes import RAISED

if TYPE_CHECKING:
    from miue.common.settings import Settings
    from miue.common.values import Option

MANY = "Repeat it, or separate values by commas."
OTHER_FLAGS = {
    "chosen_classes": "--class",
    "distances": "--distance",
    "microns_per_pixel": "--mpp",
    "names": "--name",
    "options": "--set",
    "table_format": "--format",
    "trackers": "--tracker",
}
"""Flags that are not called as their field."""

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
METAVARS = {list[str]: "NAME", Path: "PATH"}
"""What help shows for the value of a flag, by its type."""

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="TOML file with values of these options by name, such as max_epochs = 50; an option given on the "
        "command line counts before it.",
    ),
]


def takes_settings(*, without: Sequence[str] = (), **kinds: str) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator for a command of which some parameters are settings.

    Args:
        without: fields that are no flags of this command.
        kinds: import path "package.module:Class" of the settings by the name of the parameter; it is imported when
            the command is used, not when all commands are listed.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(ctx: typer.Context, **given: Any) -> None:
            command(**given, **ctx.meta[__name__])

        own = [p for name, p in inspect.signature(command).parameters.items() if name not in kinds]
        without_kinds = SimpleNamespace(__annotations__={p.name: p.annotation for p in own})
        types = get_type_hints(without_kinds, globalns=inspect.unwrap(command).__globals__, include_extras=True)
        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        kept = [p.replace(kind=p.KEYWORD_ONLY, annotation=types[p.name]) for p in own]
        called.__signature__ = inspect.Signature([context, *kept])  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in (context, *kept)}
        called.kinds, called.without = kinds, without  # type: ignore[attr-defined]
        return called

    return decorate


class Command(TyperCommand):
    """A command with a flag for each field of its settings."""

    def __init__(self, *args: Any, help: str | None = None, **options: Any) -> None:
        paragraphs = re.sub(r"(?<!\n)\n(?!\n)", " ", help or "")
        options["context_settings"] = HELP_NAMES | (options.get("context_settings") or {})
        super().__init__(*args, help=paragraphs, **options)

    @cached_property
    def kinds(self) -> dict[str, type[Settings]]:
        """The classes of its settings, by the name of the parameter."""
        paths = {name: path.split(":") for name, path in getattr(self.callback, "kinds", {}).items()}
        return {name: getattr(import_module(module), kind) for name, (module, kind) in paths.items()}

    @cached_property
    def flags(self) -> list[Any]:
        """The options that the fields of its settings are."""
        without = getattr(self.callback, "without", ())
        parameters = {
            name: _parameter(kind, name)
            for kind in self.kinds.values()
            for name, field in kind.model_fields.items()
            if name not in without and _extra(field).get("flag", True)
        }
        if not parameters:
            return []
        parameters["config"] = inspect.Parameter(
            "config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Config
        )
        alone = typer.Typer(add_completion=False)
        alone.command()(_with_signature(list(parameters.values())))
        return typer.main.get_command(alone).params

    def get_params(self, ctx: Any) -> list[Any]:
        """Return its own arguments and options, and those of its settings."""
        return [*super().get_params(ctx), *self.flags]

    def invoke(self, ctx: Any) -> Any:
        """Run it with the settings that flags and a file give; an error names flags in place of fields.

        Raises:
            ConfigError, StorageError: a file that cannot be read, or a field in it that no setting has.
        """
        values = {flag.name: ctx.params.pop(flag.name, None) for flag in self.flags}
        given = {name: one for name, one in values.items() if ctx.get_parameter_source(name).name != "DEFAULT"}
        options = {one.name: one.opts[-1] for one in self.get_params(ctx) if one.param_type_name == "option"}
        try:
            ctx.meta[__name__] = self._settings(given)
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(error, resumes="resume" in options) from error
        except MiueError as error:
            parts = {name: with_flags(getattr(error, name), options) for name in ("item", "wanted", "got", "fix")}
            parts["item"] = re.sub(
                r"^\w+(?=$|, entry| '|\[)", lambda name: options.get(name[0], name[0]), parts["item"]
            )
            raise error.replaced(**parts) from error

    def _settings(self, given: dict[str, Any]) -> dict[str, Settings]:
        path, kinds = given.pop("config", None), self.kinds
        fields = {name: field for kind in kinds.values() for name, field in kind.model_fields.items()}
        said = {} if path is None else read_config(path)
        for name, value in given.items():
            said |= dict(_values(name, value, fields[name].annotation, said.get(name)))
        for name in said.keys() - fields:
            next(reversed(kinds.values())).of({name: said[name]})  # which refuses it
        return {
            name: kind.of({key: value for key, value in said.items() if key in kind.model_fields})
            for name, kind in kinds.items()
        }


class Interrupted(Exception):
    """An interrupt of a command; Typer ends a plain ``KeyboardInterrupt`` without a word.

    Attributes:
        status: with which the program exits: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
    """

    def __init__(self, interrupt: KeyboardInterrupt, resumes: bool = False) -> None:
        how = "the same command with --resume continues" if resumes else "give the same command again"
        super().__init__(f"what is finished is kept, and nothing half-written; {how}")
        number = next((number for number, kind in RAISED.items() if kind is type(interrupt)), signal.SIGINT)
        self.status = 128 + number


class Commands(TyperGroup):
    """Commands of which an interrupt reaches ``main``."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(error) from error


def _with_signature(parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    def command(**_: Any) -> None:
        """Take options alone."""

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _extra(field: Any) -> Mapping[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _parameter(kind: type[Settings], name: str) -> inspect.Parameter:
    """Return the parameter of a function of Typer that is a flag for a field, None where it is not given."""
    field = kind.model_fields[name]
    owner: Any = next(base for base in reversed(kind.__mro__) if name in getattr(base, "model_fields", {}))
    kinds = _alternatives(field.annotation)
    inner = [kind for one in kinds if get_origin(one) is tuple for kind in get_args(one)]
    choices = [str(choice) for one in [*kinds, *inner] if get_origin(one) is Literal for choice in get_args(one)]
    of_type, is_mapping = _type_of(field.annotation), _is_mapping(field.annotation)
    default = None if field.default is False or field.default in ("", (), {}) else field.default
    option = typer.Option(
        flag_of(name),
        help=f"{field.description}{f' {MANY}' * (of_type == list[str] and not is_mapping)}",
        rich_help_panel=_extra(field).get("heading", owner.heading),
        metavar="|".join(choices) or ("KEY=VALUE" if is_mapping else METAVARS.get(of_type)),
    )
    annotation = Annotated[of_type | None, option]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _alternatives(annotation: Any) -> list[Any]:
    """Return the types that a field can have, without None and without what limits them."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for one in get_args(annotation) if one is not NoneType for kind in _alternatives(one)]
    return [annotation]


def _is_mapping(annotation: Any) -> bool:
    return any(get_origin(one) in (dict, Mapping) for one in _alternatives(annotation))


def _type_of(annotation: Any) -> Any:
    """Return the type that Typer reads from the command line for a field."""
    kinds = _alternatives(annotation)
    if any(get_origin(kind) in (tuple, list, dict, Sequence, Mapping) for kind in kinds):
        return list[str]
    return next((kind for kind in kinds if kind in (bool, int, float, Path)), str)


def _values(name: str, value: Any, annotation: Any, said: Any) -> Iterator[tuple[str, Any]]:
    """Yield the field and the value that an option gives; of KEY=VALUE, a KEY without a dot is a field itself.

    Raises:
        ConfigError: a word without "=".
    """
    if not isinstance(value, list | tuple):
        yield name, value
    elif not _is_mapping(annotation):
        (kind,) = (one for one in _alternatives(annotation) if get_origin(one) is not None)
        words = separate(list(value)) or []
        yield name, [value_of(word) for word in words] if get_args(kind)[0] in (int, float) else words
    else:
        pairs = dict(_key_value(flag_of(name), word) for word in value)
        yield from ((key, one) for key, one in pairs.items() if "." not in key)
        yield name, {**(said or {}), **{key: one for key, one in pairs.items() if "." in key}}


def _key_value(flag: str, word: str) -> tuple[str, Option]:
    key, equals, text = word.partition("=")
    if not equals or not key:
        fix = f"write {flag} KEY=VALUE"
        raise ConfigError(item=f"{flag} {word!r}", wanted="KEY=VALUE", got="no '='", fix=fix)
    return key.strip(), value_of(text.strip())


def separate(values: list[str] | None) -> list[str] | None:
    """Return the names of a repeated option as they are, and those of one between commas.

    >>> separate(["normal", "Adenocarcinoma, NOS"]), separate(["normal, tumor"])
    (['normal', 'Adenocarcinoma, NOS'], ['normal', 'tumor'])
    """
    if values is not None and len(values) > 1:
        return [name.strip() for name in values]
    return [word.strip() for value in values for word in value.split(",") if word.strip()] if values else None


def value_of(text: str) -> Option:
    """Return the number, truth value, None or list of these that ``text`` writes, else the text, less its quotes.

    >>> value_of("3"), value_of("1e-4"), value_of("true"), value_of("null"), value_of("exp"), value_of('"5"')
    (3, 0.0001, True, None, 'exp', '5')
    >>> value_of("[64, 32]"), value_of("['H, E', 'KI67']")
    ([64, 32], ['H, E', 'KI67'])
    """
    words: dict[str, Option] = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    if text[:1] in ("[", '"', "'"):
        with suppress(tomllib.TOMLDecodeError):
            value: Option = tomllib.loads(f"value = {text}")["value"]
            return value
    return text


def read_config(path: Path) -> dict[str, Any]:
    """Return the values of a TOML file by name.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise not_readable(f"settings {str(path)!r}", "a TOML file", error, "correct the file") from error


def flag_of(name: str) -> str:
    """Return the flag that a field of settings is."""
    return OTHER_FLAGS.get(name, f"--{name.replace('_', '-')}")


def with_flags(text: str, options: Mapping[str, str]) -> str:
    """Return a part of an error in which fields are flags: "pass skip_bad=True" says "pass --skip-bad".

    >>> with_flags("pass skip_bad=True, or labels=TABLE", {"skip_bad": "--skip-bad", "labels": "--labels"})
    'pass --skip-bad, or --labels TABLE'
    >>> with_flags("pass columns={'bag_id': NAME}", {"id_column": "--id-column"})
    'pass --id-column NAME'
    """
    for name, flag in options.items():
        if name.endswith("_column"):
            text = re.sub(rf"\bcolumns=\{{'(?:bag_)?{name[:-7]}': ([^{{}}]+)\}}", rf"{name}=\1", text)
        text = re.sub(rf"(?<![\w-]){name}=True\b", flag, text)
        text = re.sub(rf"(?<![\w-]){name}=(?:\[(\w+)\]|(?=\S))", rf"{flag} \1", text)
    return text
