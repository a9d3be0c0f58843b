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

_QUIET = typer.Option("--quiet", "-q", help="Show only results, warnings and errors; no progress.")
_VERBOSE = typer.Option(
    "--verbose", "-v", help="Show more: what was read, how fits went, and tracebacks of errors."
)
_SHARED = {"quiet": Annotated[bool, _QUIET], "verbose": Annotated[bool, _VERBOSE]}


def add_command(
    app: typer.Typer, command: Callable[..., None], *examples: str, exit_codes: str = ""
) -> None:
    """Add a command with ``--quiet`` and ``--verbose``, and its examples below its help.

    Parameters
    ----------
    app : Typer
        The application to extend.
    command : callable
        The function to run; its parameters become options.
    *examples : str
        Example command lines, without ``cordcal``.
    exit_codes : str
        The meaning of its exit codes, if it differs from that of other commands.
    """
    paragraphs = [
        *([exit_codes] if exit_codes else []),
        *(f"Example: cordcal {example}" for example in examples),
    ]
    app.command(epilog="\n\n".join(paragraphs))(_with_shared_options(command))


def _with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def run(quiet: bool, verbose: bool, **options: Any) -> None:
        VERBOSITY.quiet, VERBOSITY.verbose = quiet, verbose
        try:
            check_files(options, option_names)
            command(**options)
        except KeyboardInterrupt as error:
            # Caught here, because typer would replace it with an exit code and lose its message.
            raise typer.Exit(report_problem(problem_from_interrupt(error))) from error

    signature = inspect.signature(command)
    hints = get_type_hints(command, include_extras=True)
    option_names = {name: _option_name(name, hint) for name, hint in hints.items()}
    parameters = [
        parameter.replace(annotation=hints[name])
        for name, parameter in signature.parameters.items()
    ]
    shared = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation
        )
        for name, annotation in _SHARED.items()
    ]
    # Newer versions of typer read the signature, older ones the annotations too.
    run.__signature__ = signature.replace(parameters=[*parameters, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {**hints, **_SHARED}
    return run


def _option_name(name: str, hint: Any) -> str:
    """Return the option that sets a parameter of a command, or the parameter's name."""
    for annotation in getattr(hint, "__metadata__", ()):
        # typer stores the first declaration of an annotated option as its default.
        declarations = (
            getattr(annotation, "default", None),
            *(getattr(annotation, "param_decls", None) or ()),
        )
        for declaration in declarations:
            if isinstance(declaration, str) and declaration.startswith("--"):
                return declaration
    return name
