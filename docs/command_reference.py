"""The page of the command, written from the command itself: every option, every exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import typer

from cordcal.cli._app import EXIT_CODES, app


def page() -> str:
    """Return the page as reStructuredText."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    parts = [_heading("The command", "="), f"{group.help}\n", _exit_codes()]
    for name, command in all_commands(group, context):
        parts.append(_command(name, command, command.callback.__annotations__))
    return "\n".join(parts)


def all_commands(group: Any, context: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command with its name, such as ``"apply"`` or ``"monitor add"``, sorted."""
    for name in sorted(group.list_commands(context)):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from all_commands(command, context, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"


def _exit_codes() -> str:
    rows = [(str(code), what) for code, what in EXIT_CODES.items()]
    errors = (
        'With ``--json`` an error is one object on stdout, ``{"error": {…}}``, with '
        "``sentence``, ``argument``, ``option``, ``rows`` (the first hundred, from 0), "
        "``n_rows``, ``reason``, ``hint`` and ``exit_code``; the sentence is on stderr all the "
        "same.\n"
    )
    return _heading("Exit codes", "-") + "\n" + _table(("code", "meaning"), rows) + "\n" + errors


def _command(name: str, command: Any, kinds: dict[str, Any]) -> str:
    arguments = [
        parameter for parameter in command.params if parameter.param_type_name == "argument"
    ]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join(_usage(parameter) for parameter in arguments)
    parts = [
        _heading(f"cordcal {name}", "-"),
        _text(command.help) + "\n",
        f".. code-block:: console\n\n   $ cordcal {name} {usage} [options]\n",
    ]
    rows = [(f"``{parameter.name}``", _text(parameter.help)) for parameter in arguments]
    rows += [
        (_written(parameter, kinds.get(parameter.name)), _description(parameter))
        for parameter in options
    ]
    parts.append(_table(("option", "meaning"), rows))
    examples = [line for line in (command.epilog or "").splitlines() if line.strip()]
    parts += [_text(line) + "\n" for line in examples if not line.startswith("Example: ")]
    shown = [line.removeprefix("Example: ") for line in examples if line.startswith("Example: ")]
    lines = "\n".join(f"   $ {line}" for line in shown)
    parts.append(f".. code-block:: console\n\n{lines}\n")
    return "\n".join(parts)


def _usage(argument: Any) -> str:
    name = argument.name.upper()
    return name if argument.required else f"[{name}]"


def _written(option: Any, kind: Any) -> str:
    names = ", ".join(f"``{name}``" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    return f"{names} ``{option.metavar or _value(kind)}``"


def _value(kind: Any) -> str:
    """Return what a value is: one of some words, a file, a number or text."""
    types = {
        kind,
        *get_args(kind),
        *(part for member in get_args(kind) for part in get_args(member)),
    }
    for member in types:
        if isinstance(member, type) and issubclass(member, Enum):
            return "|".join(str(choice.value) for choice in member)
    named = {Path: "FILE", int: "NUMBER", float: "NUMBER"}
    return next((word for member, word in named.items() if member in types), "TEXT")


def _description(option: Any) -> str:
    default = option.default
    result = _text(option.help)
    if option.required:
        return f"{result} Required."
    if default is None or isinstance(default, bool) or callable(default):
        return result
    return f"{result} By default ``{getattr(default, 'value', default)}``."


def _text(text: str | None) -> str:
    # These begin an emphasis, a substitution and a target in this markup.
    plain = re.sub(r"([*|_])", r"\\\1", text or "")
    plain = re.sub(r"`+([^`]+)`+", r"``\1``", plain)
    return "\n".join(line.strip() for line in plain.splitlines())


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    cells = [f"   * - {name}\n     - {' '.join(text.split())}" for name, text in (head, *rows)]
    lead = ".. list-table::\n   :header-rows: 1\n   :widths: 35 65\n\n"
    return lead + "\n".join(cells) + "\n"
