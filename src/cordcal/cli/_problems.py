"""Errors become one message on stderr, a JSON object with ``--json``, and an exit code.

Messages of the library name its arguments; here they name the options of the command.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from cordcal._errors import InputError, Interrupted, as_python_argument
from cordcal.cli import INTERRUPTED
from cordcal.cli._console import VERBOSITY, echo_error, show_json
from cordcal.cli._vectors import parse_vector

BAD_INPUT = 2

# Options whose names differ from the library's arguments.
_OPTION_NAMES = {
    "calibrators": "--calibrator",
    "clusters": "--cluster-column",
    "groups": "--groups",
    "ids": "--id-column",
    "prefer": "--prefer",
    "evaluation": "--hold-out",
    "groups_column": "--groups",
    "labels_column": "--labels",
    "weights_column": "--weights",
    "input": "--input",
    "names": "--names",
    "sample_weight": "--weights",
    "decimals": "--decimals",
    "network_output": "--behind",
    "join": "--id-column",
    "normalize": "--normalize",
    "options": "--options",
    "preserve": "--preserve",
    "repair": "--repair",
    "rule": "--rule",
    "scheduler": "--scheduler",
    "class_names": "--class-names",
    "fitted_repair": "--model",
}
# Arguments of the library that are one option with the file that has the column.
_COLUMNS_OF_FILES = ("groups_column", "labels_column", "weights_column", "network_output")
# Arguments that only the library has, and which function, if it has another name.
_ONLY_IN_PYTHON = {
    "examples": " to cordcal.onnx.export",
    "prediction": "",
    "variants": " to cordcal.llm.read_answers",
}
# Arguments of the library that are flags without a value here.
_SWITCHES = {"overwrite": "--force", "resume": "--resume", "passthrough": "--keep none"}
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


def as_command_option(name: str, value: str, words: Sequence[str] = ()) -> str:
    """Return an argument of the library and its value as an option of the command.

    ``words`` is the command line: a column is proposed of the file that it names.

    Examples
    --------
    >>> as_command_option("input", "logits"), as_command_option("overwrite", "True")
    ('--input logits', '--force')
    >>> as_command_option("header", "False")
    '--no-header'
    >>> as_command_option("labels_column", "y", ["fit", "s.npz", "--labels", "y.csv"])
    '--labels y.csv:y'
    >>> as_command_option("variants", "exact")
    'variants="exact" to cordcal.llm.read_answers in Python'
    >>> as_command_option("context", "month"), as_command_option("context", "second opinion")
    ('--context-columns month', '--second-opinion')
    """
    if name == "context":  # one of its columns
        from cordcal.files.context import OPINION

        return "--second-opinion" if value == OPINION else f"--context-columns {value}"
    if name in _ONLY_IN_PYTHON:
        return f"{as_python_argument(name, value)}{_ONLY_IN_PYTHON[name]} in Python"
    if name == "header":
        return value.replace("True", "--header").replace("False", "--no-header")
    option = _OPTION_NAMES.get(name, f"--{name.replace('_', '-')}")
    if name in _COLUMNS_OF_FILES and option in words[:-1]:
        file = parse_vector(words[words.index(option) + 1]).file
        value = value if file is None else f"{file}:{value}"
    if value == "…":
        return option
    if "*" in value:  # unquoted, a shell would expand it to file names
        value = shlex.quote(value)
    return _SWITCHES.get(name, f"{option} {value}")


def problem_from_error(error: BaseException) -> Problem:
    """Return an exception as a problem.

    Examples
    --------
    >>> problem = problem_from_error(InputError("preserve", "is 0", "pass 1 or more"))
    >>> problem.sentence, problem.option
    ('--preserve is 0; pass 1 or more', '--preserve')
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
        str(error.with_argument(option)),
        error.argument,
        option.split()[0] if option.startswith("--") else None,
        tuple(rows[:_MAX_ROWS_LISTED]),
        len(rows),
        error.reason if error.detail is None else error.detail,
        error.full_hint,
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
    reason, hint = f"interrupted; {error.progress}", error.full_hint
    return Problem(f"{reason}; {hint}", reason=reason, hint=hint, exit_code=INTERRUPTED)


def report_problem(problem: Problem) -> int:
    """Print a problem to stderr, with ``--json`` also to stdout; return the exit code."""
    echo_error(f"cordcal: {problem.sentence}")
    if VERBOSITY.json:
        with suppress(OSError):  # stdout itself may have failed; the message is on stderr
            show_json({"error": problem.to_dict()})
    return problem.exit_code
