"""Commands of other distributions: ``cordcal study`` of cordcal-study.

Only their names are known here.  A distribution is imported when its command is listed or runs;
nothing, entry points included, is searched for code to run.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperCommand

from cordcal._errors import InputError
from cordcal.cli._console import counted_progress, echo, echo_heading
from cordcal.cli._options import Group, add_command

__all__ = [
    "CommandGroup",
    "add_command",
    "counted_progress",
    "echo",
    "echo_heading",
]

# The distribution of each command.  Its module ``command`` has a function ``register``, which takes
# the application and calls `add_command`.
_DISTRIBUTIONS = {"study": "cordcal-study"}


class CommandGroup(Group):
    """The commands of cordcal, then those of other distributions that are installed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        others = [name for name in _DISTRIBUTIONS if find_spec(_package(name)) is not None]
        return [*super().list_commands(ctx), *others]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if there is none of this name."""
        command = super().get_command(ctx, cmd_name)
        if command is not None or cmd_name not in _DISTRIBUTIONS:
            return command
        return _load(cmd_name)


def _package(name: str) -> str:
    return _DISTRIBUTIONS[name].replace("-", "_")


def _load(name: str) -> TyperCommand:
    distribution = _DISTRIBUTIONS[name]
    if find_spec(_package(name)) is None:
        reason = f"is a command of {distribution}, which is not installed"
        hint = f"run pip install {distribution}, or make {name} in a checkout of cordcal"
        return _unavailable(name, reason, hint)
    application = typer.Typer(add_completion=False, rich_markup_mode=None)
    try:
        import_module(f"{_package(name)}.command").register(application)
        command: Any = typer.main.get_command(application)
    except Exception as error:  # of whatever version: cordcal's own commands must still run
        reason = f"cannot be loaded from {distribution} ({type(error).__name__}: {error})"
        return _unavailable(name, reason, f"run pip install --upgrade {distribution}")
    command.name = name
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
