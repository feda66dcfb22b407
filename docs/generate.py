"""Write docs/cli.md and the end of docs/choosing.md from commands and registries; with --check, only compare."""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from typer.main import get_command

from miue.cli import app
from miue.common.parts import DISTANCES, ENCODERS, METHODS, NETWORKS
from miue.common.registry import Registry
from miue.common.tables import read_rows
from miue.distributions.measures import MEASURES
from miue.model.part import find_part
from miue.settings import TrainingConfig

COMMANDS = (
    ("demo",),
    ("data", "make"),
    ("data", "tile"),
    ("data", "pack"),
    ("data", "split"),
    ("data", "shift"),
    ("data", "patch-labels"),
    ("train",),
    ("choose",),
    ("cross-validate",),
    ("compare",),
    ("check", "mil"),
    ("check", "vanishing"),
    ("predict",),
    ("merge",),
    ("calibrate",),
    ("decide",),
    ("worklist",),
    ("view",),
    ("monitor",),
    ("evaluate",),
    ("report",),
    ("inspect",),
    ("export", "geojson"),
    ("export", "heatmap"),
    ("export", "arrays"),
    ("export", "geoparquet"),
    ("export", "ome-tiff"),
    ("hub", "card"),
    ("hub", "push"),
    ("hub", "pull"),
)

CLI_HEAD = """# Commands

Generated from the source. `miue COMMAND --help` says more. Options of several commands are listed first, and those
whose meaning differs again with their command. Options with several values are repeated or take values separated
by commas.
"""
REPEATED = re.compile(r" Repeat it(, or separate values by commas)?\.")
MIL_CHECKS = Path(__file__).parents[1] / "results" / "checks" / "mil.csv"
MIL_TEST = ("single-concept", "300")  # test and training bags that every network was checked with
GENERATED = "<!-- docs/generate.py writes what follows from the source -->\n"


def paths_of(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words of every command that is no group, and the command."""
    if not hasattr(command, "commands"):
        yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from paths_of(below, (*path, name))


def commands_page() -> str:
    """Return the page of all commands: options that several of them share are described once."""
    commands = dict(paths_of(get_command(app)))
    unlisted = set(commands) ^ set(COMMANDS)
    assert not unlisted, f"COMMANDS must list each command once: {unlisted}"
    options = {path: dict(options_of(commands[path], path)) for path in COMMANDS}
    counts = Counter(option for of_command in options.values() for option in of_command.items())
    usual = {option[0].split()[0]: (option, count) for option, count in reversed(counts.most_common())}
    shared = {option for option, count in usual.values() if count > 1}
    sections = [CLI_HEAD, "## Shared options\n", *(line(*option) for option in counts if option in shared)]
    for path in COMMANDS:
        own = [line(*option) for option in options[path].items() if option not in shared]
        named = ", ".join(f"`{option[0].split()[0]}`" for option in options[path].items() if option in shared)
        sections += ["", f"## miue {' '.join(path)}", "", prose(commands[path]), "", *own]
        sections += [f"- Shared: {named}"] * bool(named)
    return "\n".join(sections) + "\n"


def options_of(command: Any, path: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the names of each argument and option, and what it is."""
    context = command.make_context(" ".join(path), [], resilient_parsing=True)
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            names = re.sub(r"<(int|float)( range)?>", "N", record[0])
            yield re.sub(r" <.*>", "", names), REPEATED.sub("", " ".join(record[1].split()))


def line(names: str, meaning: str) -> str:
    """Return an option as an entry of a list."""
    return f"- `{names}`: {markdown(meaning)}"


def prose(command: Any) -> str:
    """Return the first paragraph of a command's help, and its example."""
    first, *others = (" ".join(part.split()) for part in inspect.cleandoc(command.help).split("\n\n"))
    examples = [f"`{part.removeprefix('Example: ')}`" for part in others if part.startswith("Example: ")]
    return "\n\n".join([markdown(first), *examples])


def markdown(text: str) -> str:
    """Return a text in which names of options and what Markdown would interpret are shown as they are."""
    return re.sub(r"([*_\[\]])", r"\\\1", text).replace("<", "&lt;")


def parts() -> str:
    """Return tables of all parts of miue by name."""
    methods = [(*row, ", ".join(METHODS[row[0]].estimators)) for row in described(METHODS)]
    networks = [
        (*row, "yes" if NETWORKS[row[0]].has_attention else "no", mil_assumption(row[0]))
        for row in described(NETWORKS)
    ]
    measures = [(name, measure.kind, measure.describes) for name, measure in MEASURES.items()]
    sections = {
        "Networks": table(
            (
                "`--network`",
                "what it is",
                "options (`--set network.…`)",
                "attention",
                "[MIL assumption](mil_assumption.md)",
            ),
            networks,
        ),
        "Encoders": table(("`--encoder`", "what it is", "options (`--set encoder.…`)"), described(ENCODERS)),
        "Methods": table(
            ("`--method`", "what it is", "options (`--set method.…`)", "instances from (`--estimator`)"), methods
        ),
        "Distances": table(("`--distance`", "what it is"), [row[:2] for row in described(DISTANCES)]),
        "Training settings": table(("`--set`", "values", "default", "what it is"), settings()),
        "Measures": table(("measure", "uncertainty", "what it is"), measures),
    }
    return "".join(f"\n## {title}\n\n{rows}" for title, rows in sections.items())


def settings() -> list[tuple[str, str, str, str]]:
    """Return name, values, default and meaning of every setting of training."""
    schema = TrainingConfig.model_json_schema()["properties"]
    rows = []
    for name, field in TrainingConfig.model_fields.items():
        shape = schema[name].get("anyOf", [schema[name]])[0]  # of an optional one
        values = ", ".join(f"`{value}`" for value in shape.get("enum", ())) or value_range(shape)
        default = "by the size of the data" if field.is_required() else f"`{literal(field.default)}`"
        rows.append((name, values, default, str(field.description)))
    return rows


def value_range(field: dict[str, Any]) -> str:
    """Return the values a JSON schema allows, in words."""
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {field[key]:g}" for key, sign in signs.items() if key in field and field[key] < 2**53]
    kind = {"integer": "whole number", "number": "number", "boolean": "`true`, `false`"}[field["type"]]
    return " ".join([kind, ", ".join(limits)]).strip()


def mil_assumption(network: str) -> str:
    """Return the verdict of ``MIL_TEST``, with the AUC of shifted bags under softmax and MIREL."""
    rows = [row for row in read_rows(MIL_CHECKS) if (row["test"], row["train_bags"]) == MIL_TEST]
    rows = [row for row in rows if row["network"] == network]
    verdicts = ", ".join(dict.fromkeys(row["verdict"] for row in rows))
    values = " / ".join(f"{float(row['shifted']):.2f}" for row in rows)
    return f"{verdicts} ({values})" if rows else "not measured"


def described(registry: Registry[Any]) -> list[tuple[str, str, str]]:
    """Return name, summary and options of each part of miue in a registry."""
    rows = []
    for name in registry.own_names():
        options = find_part(registry.kind, name).parameters() if registry is not DISTANCES else {}
        defaults = [f"`{option}={literal(parameter.default)}`" for option, parameter in options.items()]
        aliases = "".join(f" Also `{alias}`." for alias in registry.aliases_of(name))
        rows.append((name, summary(registry[name]) + aliases, ", ".join(defaults)))
    return rows


def literal(value: object) -> str:
    """Return a default as it is written on the command line."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def summary(part: Any) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((inspect.getdoc(part) or "").split("\n\n")[0].split())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, its first column as code."""
    lines = [head, ["---"] * len(head), *((f"`{first}`", *others) for first, *others in rows)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def choosing_page() -> str:
    """Return the page on choices, whose beginning is written by hand."""
    written = Path(__file__).with_name("choosing.md").read_text("utf-8")
    return written.split(GENERATED)[0] + GENERATED + parts()


if __name__ == "__main__":
    for name, content in (("cli.md", commands_page()), ("choosing.md", choosing_page())):
        page = Path(__file__).with_name(name)
        if "--check" not in sys.argv:
            page.write_text(content, "utf-8")
        elif page.read_text("utf-8") != content:
            sys.exit(f"docs/{name} is out of date; run python docs/generate.py")
