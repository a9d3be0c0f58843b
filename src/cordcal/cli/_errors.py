"""Turn errors into one message on stderr, a JSON object with ``--json``, and an exit code."""

from __future__ import annotations

import errno
import os
import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from cordcal._errors import InputError, Interrupted
from cordcal.cli import INTERRUPTED
from cordcal.cli._console import VERBOSITY, echo_error, show_json

BAD_INPUT = 2

# Options whose names differ from the library's arguments.
_OPTION_NAMES = {
    "calibrators": "--calibrator",
    "evaluation": "--share",
    "input": "--input",
    "join": "--join",
    "missing": "--missing",
    "normalize": "--normalize",
    "options": "--options",
    "preserve": "--preserve",
    "repair": "--repair",
    "rule": "--rule",
    "scheduler": "--scheduler",
    "splits": "--splits",
    "class_names": "--class-names",
    "variants": "--variants",
    "features": "the key features",
}
# Arguments of the library that are flags without a value here.
_SWITCHES = {"overwrite": "--force", "resume": "--resume", "passthrough": "--drop-rest"}
_SYSTEM_REASONS = {
    errno.ENOENT: "does not exist",
    errno.EACCES: "cannot be read or written: permission denied",
    errno.EISDIR: "is a folder, not a file",
    errno.ENOTDIR: "has a parent that is not a folder",
    errno.ENOSPC: "does not fit: no space is left on the device",
    errno.EFBIG: "does not fit: it exceeds the size limit for files",
    errno.EDQUOT: "does not fit: your disk quota is used up",
    errno.EROFS: "is on a read-only file system",
    errno.EBADF: "is closed",
}
# Enough to start with; `n_rows` has the full count.
_MAX_ROWS_LISTED = 100


@dataclass(frozen=True)
class Problem:
    """An error of a command, with the keys of its JSON form.

    Attributes
    ----------
    sentence : str
        The full message: what is wrong and what to do about it.
    argument, option : str or None
        The file or argument at fault, and the option that sets it.
    rows : tuple of int
        The first rows at fault, counted from 0.
    n_rows : int
        How many rows are at fault.
    reason, hint : str or None
        What is wrong; what to do.
    exit_code : int
        The exit code of the command.
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
    """Return an argument of the library and its value as an option of the command.

    Examples
    --------
    >>> as_command_option("input", "logits"), as_command_option("overwrite", "True")
    ('--input logits', '--force')
    >>> as_command_option("header", "False")
    '--no-header'
    """
    if name == "header":
        return value.replace("True", "--header").replace("False", "--no-header")
    option = _OPTION_NAMES.get(name, f"--{name.replace('_', '-')}")
    if "*" in value:  # unquoted, a shell would expand it to file names
        value = shlex.quote(value)
    return _SWITCHES.get(name, f"{option} {value}")


def problem_from_error(error: BaseException) -> Problem:
    """Return an exception as a problem.

    Examples
    --------
    >>> problem = problem_from_error(InputError("splits", "is 0", "pass 1 or more"))
    >>> problem.sentence, problem.option
    ('--splits is 0; pass 1 or more', '--splits')
    """
    if isinstance(error, InputError):
        return _problem_from_input_error(error)
    if isinstance(error, OSError):
        return _problem_from_os_error(error)
    sentence = " ".join(str(error).split()) or type(error).__name__
    return Problem(sentence, reason=sentence)


def _problem_from_input_error(error: InputError) -> Problem:
    option = _OPTION_NAMES.get(error.argument, error.argument)
    rows = error.rows.tolist()
    return Problem(
        " ".join(error.with_argument(option).message(as_command_option).split()),
        error.argument,
        option if option.startswith("--") else None,
        tuple(rows[:_MAX_ROWS_LISTED]),
        len(rows),
        error.reason if error.detail is None else error.detail,
        error.hint_for(as_command_option),
    )


def _problem_from_os_error(error: OSError) -> Problem:
    reason = _SYSTEM_REASONS.get(error.errno or 0)
    if error.filename is None or reason is None:
        return Problem(str(error), reason=str(error))
    path = os.fspath(error.filename)
    return Problem(f"{path} {reason}", argument=path, reason=reason)


def problem_from_usage(error: Any) -> Problem:
    """Return an error of the option parser as a problem."""
    message = " ".join(error.format_message().split())
    declared = getattr(getattr(error, "param", None), "opts", None)
    name = getattr(error, "option_name", None) or (declared[0] if declared else None)
    option = name if name is not None and name.startswith("-") else None
    return Problem(message, argument=None if option else name, option=option, reason=message)


def problem_from_interrupt(error: KeyboardInterrupt) -> Problem:
    """Return a problem that states what is kept after Ctrl-C, and how to continue."""
    if not isinstance(error, Interrupted):
        reason = "interrupted; nothing was written"
        return Problem(reason, reason=reason, exit_code=INTERRUPTED)
    reason, hint = f"interrupted; {error.progress}", error.hint_for(as_command_option)
    return Problem(f"{reason}; {hint}", reason=reason, hint=hint, exit_code=INTERRUPTED)


def report_problem(problem: Problem) -> int:
    """Print a problem to stderr, with ``--json`` also to stdout; return the exit code."""
    # One line, even if a file name contains line breaks.
    echo_error(f"cordcal: {' '.join(problem.sentence.split())}")
    if VERBOSITY.json:
        with suppress(OSError):  # stdout itself may have failed; the message is on stderr
            show_json({"error": problem.to_dict()})
    return problem.exit_code
