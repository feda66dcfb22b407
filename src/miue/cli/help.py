"""Help in sections: commands by what a person wants to do, options by what they are about."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from miue.cli.interrupt import Interrupted, saying_what_is_written
from miue.common.errors import ConfigError, may_not_read
from miue.common.text import say

HEADINGS = ("Get started", "Your data", "Decide", "Compare models", "Share")
"""Headings of the commands, in the order in which help lists them."""

METAVARS = {
    " <path>": "",
    " <list[Path]>": "",
    "<int>": "N",
    "<int range>": "N",
    "<float>": "NUMBER",
    "<float range>": "NUMBER",
}
"""What help shows for the value of an option, by what Typer shows for its type."""


FORMER_OPTIONS = {
    "--bags": "PREDICTIONS, the path alone",
    "--distance": "--max-distance",
    "--encoder": "--patch-encoder",
    "--model": "--max-epistemic",
    "--patches": "--min-patches",
    "--probability": "--min-probability",
    "--set-error": "--coverage, 1 minus the error",
    "--set-score": "--prediction-set",
    "--split": "--part",
}
"""Options of 0.1.0, and what to write in the place of each, in commands that have it; as CHANGELOG.md says."""


class Command(TyperCommand):
    """A command whose help lists options under the headings of their ``rich_help_panel``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments that are left over; options that mean a setting, or are of 0.1.0, are refused.

        Raises:
            ConfigError: such as --epochs; it says what to write.
            StorageError: a path that the user may not read.
        """
        options = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        self._refuse_former(args, options)
        self._note_second_values(ctx, args)
        if any(parameter.name == "setting" for parameter in self.params):
            for word in args:
                if name := _setting(word, options):
                    raise ConfigError(
                        item=f"option {word!r}",
                        wanted="a setting of training as --set KEY=VALUE",
                        got="an option of its own",
                        fix=f"write --set {name}=VALUE",
                    )
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            unreadable = re.fullmatch(r"\w+ '(.*)' is not readable\.", error.message, re.DOTALL)
            if unreadable is None:
                raise
            raise may_not_read(repr(unreadable[1])) from error

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an interrupt after its --out was written says that this is whole."""
        with saying_what_is_written(ctx.params.get("out")):
            return super().invoke(ctx)

    def _refuse_former(self, args: Iterable[str], options: Collection[str]) -> None:
        """Raise where an option of 0.1.0 has another name here.

        Raises:
            ConfigError: it has.
        """
        arguments = " ".join(one.metavar or "" for one in self.params if one.param_type_name == "argument")
        names = {*options, *re.findall(r"\w+", arguments)}
        for option in (word.split("=")[0] for word in args):
            now = FORMER_OPTIONS.get(option, "")
            if option not in options and now.split(",")[0] in names:
                raise ConfigError(
                    item=f"option {option!r}",
                    wanted="one that this command has",
                    got="one of miue 0.1.0",
                    fix=f"in its place write {now}",
                )

    def _note_second_values(self, ctx: Any, args: Iterable[str]) -> None:
        """Say of an option that takes one value and has two which of them counts."""
        every: list[Any] = [one for one in self.get_params(ctx) if one.param_type_name == "option"]
        options = {name: one for one in every for name in one.opts}
        values: dict[str, str] = {}
        words = iter(args)
        for word in words:
            if word == "--":
                return
            name, equals, after = word.partition("=")
            if name not in options or options[name].is_flag:
                continue
            value = after if equals else next(words, "")
            former = values.get(name, value)
            if former != value and not options[name].multiple:
                say(f"Note: {name} takes one value: {value!r} counts, not {former!r}", err=True)
            values[name] = value

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line: required arguments without braces, repeated ones with dots."""
        pieces = [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]
        arguments = [one for one in self.get_params(ctx) if one.param_type_name == "argument"]
        first = len(pieces) - len(arguments)
        for place, argument in enumerate(arguments, first):
            if argument.nargs == -1 and not pieces[place].endswith("..."):
                pieces[place] += "..."
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for the arguments and one for each heading."""
        rows = []
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None:
                name, description = row
                for shown, metavar in METAVARS.items():
                    name = name.replace(shown, metavar)
                heading = getattr(parameter, "rich_help_panel", None) or "Options"
                rows.append(
                    ("Arguments" if parameter.param_type_name == "argument" else heading, (name, description))
                )
        _write_sections(formatter, rows)


class Commands(TyperGroup):
    """Commands listed under the headings of their ``rich_help_panel``; an interrupt of one reaches ``main``."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each heading, with the first line of every command."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                heading = getattr(command, "rich_help_panel", None) or "Commands"
                rows.append((heading, (name, (command.help or "").split("\n")[0].removesuffix("."))))
        rows.sort(key=lambda row: HEADINGS.index(row[0]) if row[0] in HEADINGS else len(HEADINGS))
        _write_sections(formatter, rows)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted(error) from error


def _setting(word: str, options: Iterable[str]) -> str | None:
    """Return the setting of training that an option which does not exist means, None where it means none."""
    option = word.split("=")[0]
    if not option.startswith("--") or option in options:
        return None
    from miue.model.recipe import known_name

    return known_name(option[2:].replace("-", "_"))


def _write_sections(formatter: Any, rows: Iterable[tuple[str, tuple[str, str]]]) -> None:
    """Write rows under their headings, in the order in which headings first come."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for heading, row in rows:
        sections.setdefault(heading, []).append(row)
    for heading, section in sections.items():
        with formatter.section(heading):
            formatter.write_dl(section)
