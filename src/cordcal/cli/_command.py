"""How a command is added, and how errors become one sentence and an exit code."""

from __future__ import annotations

import errno
import functools
import inspect
import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Any, get_type_hints

import typer

from cordcal._errors import InputError, Interrupted
from cordcal.cli import INTERRUPTED
from cordcal.cli._console import VERBOSITY, echo_error, show_json
from cordcal.cli._files import check_files

BAD_INPUT = 2

# What the library's arguments are called here, where it is not their name.
_OPTIONS = {
    "calibrators": "--calibrator",
    "evaluation": "--share",
    "input": "--input",
    "label": "--labels-column",
    "missing": "--answers",
    "preserve": "--preserve",
    "repair": "--repair",
    "scheduler": "--scheduler",
    "splits": "--splits",
    "class_names": "--class-names",
    "variants": "--variants",
    "features": "the key features",
}
# Settings of the library that are switches here.
_SWITCHES = {"overwrite": "--force", "resume": "--resume", "rest": "--drop-rest"}
_SYSTEM_REASONS = {
    errno.ENOENT: "does not exist",
    errno.EACCES: "may not be read or written by you",
    errno.EISDIR: "is a folder, not a file",
    errno.ENOTDIR: "lies below something that is not a folder",
    errno.ENOSPC: "does not fit: no space is left on the device",
    errno.EFBIG: "does not fit: files may not grow that large here",
    errno.EDQUOT: "does not fit: your quota of the device is used up",
    errno.EROFS: "lies on a read-only file system",
    errno.EBADF: "is closed",
}
# A list for people and programs to begin with; the count says how many there are.
_MOST_ROWS = 100


@dataclass(frozen=True)
class Problem:
    """One error of the command.

    Attributes
    ----------
    sentence : str
        What is wrong and what to do about it.
    argument, option : str or None
        The file or argument it is about, and the option that sets it.
    rows : tuple of int
        The first rows it is about, counted from 0.
    n_rows : int
        How many rows it is about.
    reason, hint : str or None
        What is wrong; what to do.
    exit_code : int
        What the command ends with.
    """

    sentence: str
    argument: str | None = None
    option: str | None = None
    rows: tuple[int, ...] = ()
    n_rows: int = 0
    reason: str | None = None
    hint: str | None = None
    exit_code: int = BAD_INPUT

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain Python values."""
        return {**asdict(self), "rows": list(self.rows)}


def as_command_option(name: str, value: str) -> str:
    """Write a setting of the library as an option.

    Examples
    --------
    >>> as_command_option("input", "logits"), as_command_option("overwrite", "True")
    ('--input logits', '--force')
    >>> as_command_option("header", "False")
    '--no-header'
    """
    if name == "header":
        return value.replace("True", "--header").replace("False", "--no-header")
    option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    if "*" in value:  # a shell would replace it by names of files
        value = shlex.quote(value)
    return _SWITCHES.get(name, f"{option} {value}")


def problem_of(error: BaseException) -> Problem:
    """Return what an error says.

    Examples
    --------
    >>> found = problem_of(InputError("splits", "is 0", "pass 1 or more"))
    >>> found.sentence, found.option
    ('--splits is 0; pass 1 or more', '--splits')
    """
    if isinstance(error, InputError):
        return _of_refusal(error)
    if isinstance(error, OSError):
        return _of_system(error)
    sentence = " ".join(str(error).split()) or type(error).__name__
    return Problem(sentence, reason=sentence)


def _of_refusal(error: InputError) -> Problem:
    option = _OPTIONS.get(error.argument, error.argument)
    rows = error.rows.tolist()
    return Problem(
        " ".join(error.with_argument(option).message(as_command_option).split()),
        error.argument,
        option if option.startswith("--") else None,
        tuple(rows[:_MOST_ROWS]),
        len(rows),
        error.reason if error.detail is None else error.detail,
        error.hint_for(as_command_option),
    )


def _of_system(error: OSError) -> Problem:
    reason = _SYSTEM_REASONS.get(error.errno or 0)
    if error.filename is None or reason is None:
        return Problem(str(error), reason=str(error))
    where = os.fspath(error.filename)
    return Problem(f"{where} {reason}", argument=where, reason=reason)


def problem_of_usage(error: Any) -> Problem:
    """Return what the parser of options says."""
    message = " ".join(error.format_message().split())
    written = getattr(getattr(error, "param", None), "opts", None)
    name = getattr(error, "option_name", None) or (written[0] if written else None)
    option = name if name is not None and name.startswith("-") else None
    return Problem(message, argument=None if option else name, option=option, reason=message)


def problem_of_interrupt(error: KeyboardInterrupt) -> Problem:
    """Return what Ctrl-C left behind, in words, and how to go on."""
    if not isinstance(error, Interrupted):
        what = "interrupted; nothing was written"
        return Problem(what, reason=what, exit_code=INTERRUPTED)
    what, hint = f"interrupted; {error.kept}", error.hint_for(as_command_option)
    return Problem(f"{what}; {hint}", reason=what, hint=hint, exit_code=INTERRUPTED)


def complain(problem: Problem) -> int:
    """Say what went wrong, also as JSON where that was asked for; return the exit code."""
    # One line, whatever a file is called.
    echo_error(f"cordcal: {' '.join(problem.sentence.split())}")
    if VERBOSITY.json:
        with suppress(OSError):  # stdout may be what went wrong; the sentence is on stderr
            show_json({"error": problem.to_dict()})
    return problem.exit_code


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
            raise typer.Exit(complain(problem_of_interrupt(error))) from error

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
