"""Commands of other packages, such as ``cordcal study`` of cordcal-study.

A package adds a command by an entry point of the group "cordcal.commands": its name is the
command's, and it refers to a function that takes the application and calls `add_command`.
Entry points are read only to list the commands or to find one that cordcal itself lacks.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from cordcal._errors import InputError
from cordcal.cli._console import counted_progress, echo, echo_heading
from cordcal.cli._options import AllowImportOption, add_command

__all__ = [
    "GROUP",
    "AllowImportOption",
    "CommandGroup",
    "add_command",
    "counted_progress",
    "echo",
    "echo_heading",
]

GROUP = "cordcal.commands"
# Commands that the documentation names, and the packages they come with.
_PACKAGES = {"study": "cordcal-study"}


class CommandGroup(TyperGroup):
    """The commands of cordcal, then those of other packages."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        own = super().list_commands(ctx)
        return [*own, *sorted({entry.name for entry in entry_points(group=GROUP)} - {*own})]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if there is none of this name."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        for entry in entry_points(group=GROUP, name=cmd_name):
            return _load(entry)
        if cmd_name in _PACKAGES:
            package = _PACKAGES[cmd_name]
            reason = f"is a command of {package}, which is not installed"
            hint = f"run pip install {package}, or make {cmd_name} in a checkout of cordcal"
            return _unavailable(cmd_name, reason, hint)
        return None


def _load(entry: EntryPoint) -> TyperCommand:
    application = typer.Typer(add_completion=False)
    package = entry.dist.name if entry.dist is not None else entry.module
    try:
        entry.load()(application)
        command: Any = typer.main.get_command(application)
    except Exception as error:  # code of others may raise anything; other commands must still run
        reason = f"cannot be loaded from {package} ({type(error).__name__}: {error})"
        return _unavailable(entry.name, reason, f"run pip install --upgrade {package}")
    command.name = entry.name
    return command  # type: ignore[no-any-return]


def _unavailable(name: str, reason: str, hint: str) -> TyperCommand:
    """Return a command that refuses to run, whatever its arguments."""

    def refuse() -> None:
        raise InputError(f"cordcal {name}", reason, hint)

    return TyperCommand(
        name,
        callback=refuse,
        help=f"Not available: {reason}.",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
