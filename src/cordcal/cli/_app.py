"""The application: all commands, their exit codes and the handling of errors."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import typer

import cordcal
from cordcal._errors import write_options_as
from cordcal.cli import (
    answers,
    apply,
    audit,
    certify,
    check,
    compare,
    demo,
    export,
    fit,
    info,
    monitor,
)
from cordcal.cli._console import (
    VERBOSITY,
    discard,
    echo,
    echo_error,
    echo_traceback,
    standard_streams,
    writing,
)
from cordcal.cli._options import print_help
from cordcal.cli._problems import (
    as_command_option,
    problem_from_error,
    problem_from_usage,
    report_problem,
)
from cordcal.cli.plugins import CommandGroup

BUG = 70  # EX_SOFTWARE of sysexits.h
NO_READER = 141  # what a shell reports for a process stopped by SIGPIPE

EXIT_CODES = {
    0: "done",
    1: "a gate of check failed, monitor raised an alarm, certify kept an earlier "
    "certificate because nothing could be certified, or audit or compare --strict found "
    "something to check first",
    2: "the input or an option is wrong (one message on stderr, nothing written), a gate could "
    "not be evaluated, or stdout is closed or full",
    BUG: "an error in cordcal itself (a traceback on stderr; please report it)",
    130: "interrupted (one line on stderr states which results are kept)",
    NO_READER: "the reader of stdout, such as head, stopped before the end",
}
EPILOG = f"Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}."

# UsageError and ClickException: typer exports only their subclass.
_USAGE_ERRORS: tuple[type[BaseException], ...] = typer.BadParameter.__mro__[1:3]

app = typer.Typer(
    name="cordcal",
    cls=CommandGroup,
    help="Calibrate a multiclass classifier's confidence without changing its predictions.",
    epilog=EPILOG,
    add_completion=False,
    rich_markup_mode=None,  # rich squeezes texts into 19 characters on a terminal of 80
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        echo(f"cordcal {cordcal.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print_help(context)


for _command in (
    *(demo, audit, check, monitor, compare, fit, certify, apply, answers, export, info),
):
    _command.register(app)


def registered_commands() -> dict[str, Any]:
    """Return every command of typer by its name, such as ``"apply"`` or ``"monitor add"``."""
    groups: list[Any] = [group.typer_instance for group in app.registered_groups]
    prefixes: dict[str, Any] = {"": app, **{f"{group.info.name} ": group for group in groups}}
    return {
        f"{prefix}{command.callback.__name__}": command
        for prefix, group in prefixes.items()
        for command in group.registered_commands
    }


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    # Not from the parsed options, because parsing may fail.
    VERBOSITY.quiet, VERBOSITY.verbose, VERBOSITY.json = False, False, "--json" in words
    option_format = partial(as_command_option, words=words)
    with standard_streams(), _warnings_shown_once(), write_options_as(option_format):
        try:
            code = app(args=list(words), prog_name="cordcal", standalone_mode=False)
            with writing("stdout"):
                sys.stdout.flush()
            return int(code or 0)
        except _USAGE_ERRORS as error:
            return report_problem(problem_from_usage(error))
        except (BrokenPipeError, SystemExit) as error:
            # click and rich turn a broken pipe into SystemExit.
            if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
                raise
            discard("stdout")
            return NO_READER
        except (OSError, ValueError, ImportError, MemoryError, Warning) as error:
            if VERBOSITY.verbose:
                echo_traceback(error)
            return report_problem(problem_from_error(_name_stream(error)))
        except Exception as error:
            # Python's own exit code 1 would look like a failed gate of check.
            echo_traceback(error)
            return BUG


def _name_stream(error: Exception) -> Exception:
    """Return the error, or that of stdout if flushing it explains an OSError."""
    try:
        with writing("stdout"):
            sys.stdout.flush()
    except OSError as stream_error:
        return stream_error if isinstance(error, OSError) else error
    return error


@contextmanager
def _warnings_shown_once() -> Iterator[None]:
    """Print each warning of a command once, in the form of the command's messages."""
    before = warnings.showwarning
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in shown:
            shown.add(text)
            echo_error(f"cordcal: warning: {text}")

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before
