"""Add a command with the options that every command has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from cordcal.cli._console import VERBOSITY
from cordcal.cli._errors import problem_from_interrupt, report_problem
from cordcal.cli._files import check_files

_QUIET = typer.Option("--quiet", "-q", help="Only results, warnings and errors; no progress.")
_VERBOSE = typer.Option("--verbose", "-v", help="Say more: what was read, and how fits went.")
_SHARED = {"quiet": Annotated[bool, _QUIET], "verbose": Annotated[bool, _VERBOSE]}


def add_command(
    app: typer.Typer, command: Callable[..., None], *examples: str, exit_codes: str = ""
) -> None:
    """Add a command with ``--quiet`` and ``--verbose``, and its examples below its help.

    Parameters
    ----------
    app : Typer
        Where it goes.
    command : callable
        Its function, whose arguments are its options.
    *examples : str
        What to type after ``cordcal``.
    exit_codes : str
        What its exit codes mean where they mean more than those of every command.
    """
    parts = [*([exit_codes] if exit_codes else []), *(f"Example: cordcal {x}" for x in examples)]
    app.command(epilog="\n\n".join(parts))(_with_shared_options(command))


def _with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def run(quiet: bool, verbose: bool, **options: Any) -> None:
        VERBOSITY.quiet, VERBOSITY.verbose = quiet, verbose
        try:
            check_files(options, written)
            command(**options)
        except KeyboardInterrupt as error:
            # Caught here: typer would turn it into an exit code and lose what it says.
            raise typer.Exit(report_problem(problem_from_interrupt(error))) from error

    own = inspect.signature(command)
    hints = get_type_hints(command, include_extras=True)
    written = {name: _written(name, hint) for name, hint in hints.items()}
    parameters = [each.replace(annotation=hints[name]) for name, each in own.parameters.items()]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in _SHARED.items()
    ]
    # What typer reads: newer versions the signature, older ones the annotations too.
    run.__signature__ = own.replace(parameters=[*parameters, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {**hints, **_SHARED}
    return run


def _written(name: str, hint: Any) -> str:
    """Return how people write an argument of a command: an option, or its name."""
    for each in getattr(hint, "__metadata__", ()):
        # typer holds the first declaration of an annotated option as its default.
        declared = (getattr(each, "default", None), *(getattr(each, "param_decls", None) or ()))
        for text in declared:
            if isinstance(text, str) and text.startswith("--"):
                return text
    return name
