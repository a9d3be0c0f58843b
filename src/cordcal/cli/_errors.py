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

# What the library's arguments are called here, where it is not their name.
_OPTION_NAMES = {
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
_MAX_ROWS_LISTED = 100


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
    option = _OPTION_NAMES.get(name, f"--{name.replace('_', '-')}")
    if "*" in value:  # a shell would replace it by names of files
        value = shlex.quote(value)
    return _SWITCHES.get(name, f"{option} {value}")


def problem_from_error(error: BaseException) -> Problem:
    """Return what an error says.

    Examples
    --------
    >>> found = problem_of(InputError("splits", "is 0", "pass 1 or more"))
    >>> found.sentence, found.option
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
        " ".join(error.with_argument(option).sentence(as_command_option).split()),
        error.argument,
        option if option.startswith("--") else None,
        tuple(rows[:_MAX_ROWS_LISTED]),
        len(rows),
        error.reason if error.found is None else error.found,
        error.hint_for(as_command_option),
    )


def _problem_from_os_error(error: OSError) -> Problem:
    reason = _SYSTEM_REASONS.get(error.errno or 0)
    if error.filename is None or reason is None:
        return Problem(str(error), reason=str(error))
    where = os.fspath(error.filename)
    return Problem(f"{where} {reason}", argument=where, reason=reason)


def problem_from_usage(error: Any) -> Problem:
    """Return what the parser of options says."""
    message = " ".join(error.format_message().split())
    written = getattr(getattr(error, "param", None), "opts", None)
    name = getattr(error, "option_name", None) or (written[0] if written else None)
    option = name if name is not None and name.startswith("-") else None
    return Problem(message, argument=None if option else name, option=option, reason=message)


def problem_from_interrupt(error: KeyboardInterrupt) -> Problem:
    """Return what Ctrl-C left behind, in words, and how to go on."""
    if not isinstance(error, Interrupted):
        what = "interrupted; nothing was written"
        return Problem(what, reason=what, exit_code=INTERRUPTED)
    what, hint = f"interrupted; {error.kept}", error.hint_for(as_command_option)
    return Problem(f"{what}; {hint}", reason=what, hint=hint, exit_code=INTERRUPTED)


def report_problem(problem: Problem) -> int:
    """Say what went wrong, also as JSON where that was asked for; return the exit code."""
    # One line, whatever a file is called.
    echo_error(f"cordcal: {' '.join(problem.sentence.split())}")
    if VERBOSITY.json:
        with suppress(OSError):  # stdout may be what went wrong; the sentence is on stderr
            show_json({"error": problem.to_dict()})
    return problem.exit_code
