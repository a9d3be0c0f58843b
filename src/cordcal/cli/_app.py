"""Put the commands together, and turn what goes wrong into one sentence and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import cordcal
from cordcal.cli import apply, audit, check, compare, demo, export, fit, info, study
from cordcal.cli._console import note
from cordcal.cli._options import sentence

EPILOG = (
    "Exit codes: 0 done; 1 a gate of check failed; 2 the input or an option is wrong (one "
    "sentence on stderr, nothing written); 130 interrupted (nothing half written)."
)
BAD_INPUT = 2

# UsageError and ClickException: typer exports only their subclass.
_USAGE_ERRORS: tuple[type[BaseException], ...] = typer.BadParameter.__mro__[1:3]

app = typer.Typer(
    name="cordcal",
    help="Calibrate a multiclass classifier's confidence, never its decision.",
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cordcal {cordcal.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for _command in (demo, audit, check, compare, study, fit, apply, export, info):
    _command.register(app)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    warnings.showwarning = _shown_once()
    try:
        code = app(args=arguments, prog_name="cordcal", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except _USAGE_ERRORS as error:
        return _complain(error.format_message())  # type: ignore[attr-defined]
    except BrokenPipeError:
        # The reader (head, less) has seen enough; keep the interpreter from flushing again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _complain(_os_message(error))
    except (ValueError, ImportError, MemoryError) as error:
        return _complain(sentence(error))


def _complain(message: str) -> int:
    one_line = " ".join(message.split())
    note(f"cordcal: {one_line}")
    return BAD_INPUT


def _os_message(error: OSError) -> str:
    reasons = {
        errno.ENOENT: "does not exist",
        errno.EACCES: "may not be read or written by you",
        errno.EISDIR: "is a folder, not a file",
        errno.ENOTDIR: "lies below something that is not a folder",
        errno.ENOSPC: "does not fit: no space is left on the device",
        errno.EROFS: "lies on a read-only file system",
    }
    reason = reasons.get(error.errno or 0)
    if error.filename is None or reason is None:
        return str(error)
    return f"{os.fspath(error.filename)} {reason}"


def _shown_once() -> Callable[..., None]:
    """Return what prints the warnings of one command, each only the first time."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        words = " ".join(str(message).split())
        if words not in shown:
            shown.add(words)
            note(f"cordcal: warning: {words}")

    return show
