"""`InputError`: what is wrong with an argument, as fields and as a message; and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:  # NumPy is imported late: `cordcal --version` and `--help` do without it
    import numpy as np
    import numpy.typing as npt

    Rows = npt.NDArray[np.intp]

Option = tuple[str, str]
"""The name and the value of an argument that a hint proposes."""
OptionFormat = Callable[[str, str], str]
"""Formats the name and the value of an option for a message."""


def as_python_argument(name: str, value: str) -> str:
    """Format an option as an argument of a Python call.

    Examples
    --------
    >>> as_python_argument("input", "logits")
    'input="logits"'
    >>> as_python_argument("overwrite", "True")
    'overwrite=True'
    >>> as_python_argument("header", "True or False")
    'header=True or False'
    >>> as_python_argument("context", "month")
    "context['month']"
    >>> as_python_argument("groups", "…")
    'groups=…'
    """
    if name == "context":  # one of its columns
        return f"context[{value!r}]"
    if name == "max":
        measure, _, limit = value.partition("=")
        return f'Gate("{measure}", {limit})'
    is_literal = value.split(" or ")[0] in ("True", "False", "…") or value.isdigit()
    if name == "fitted_repair":  # a variable; for the command it is the file of a model
        return f"repair={value}"
    return f"{name}={value}" if is_literal else f'{name}="{value}"'


# How options are written in messages: as arguments of Python, unless a command is running.
_OPTION_FORMAT: ContextVar[OptionFormat] = ContextVar("option_format", default=as_python_argument)


def option_text(name: str, value: str) -> str:
    """Write an option in the caller's language: an argument in Python, an option in a command.

    Examples
    --------
    >>> option_text("rule", "learnt"), option_text("preserve", "3")
    ('rule="learnt"', 'preserve=3')
    """
    return _OPTION_FORMAT.get()(name, value)


@contextmanager
def write_options_as(option_format: OptionFormat) -> Iterator[None]:
    """Write the options of messages in another syntax inside a ``with`` block."""
    token = _OPTION_FORMAT.set(option_format)
    try:
        yield
    finally:
        _OPTION_FORMAT.reset(token)


def printable(text: str) -> str:
    r"""Return text that is safe on one line of a terminal: control characters are escaped.

    Class names, keys and file names are untrusted; an escape sequence or a line break in them
    could clear the screen or forge a line.

    Examples
    --------
    >>> print(printable("cat\x1b[2J\u202e, dog\nok"))
    cat\x1b[2J\u202e, dog\nok
    """
    if text.isprintable():
        return text
    return "".join(
        # Also lone surrogates, which represent bytes of a file name that are not valid text.
        character
        if character.isprintable()
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )


class InputError(ValueError):
    """An invalid argument: which one, in which rows, why, and what to do.

    Code reads the fields, never the message. Code that works on blocks renumbers ``rows``
    (`offset_rows`, `select_rows`); code that reads files renames the argument (`with_argument`).

    Parameters
    ----------
    argument : str
        The argument's name in the public function.
    reason : str
        What is wrong, in the same words for every row: ``"contains NaN"``.
    hint : str
        What to do. ``{option}`` is replaced by the formatted ``option``.
    rows : array_like of int
        All invalid rows; empty if the argument as a whole is invalid.
    detail : str, optional
        The reason with the numbers of the first row: ``"sums to 1.2, not 1"``.
    option : tuple of str, optional
        Name and value of an argument that the hint proposes.

    Examples
    --------
    >>> error = InputError("scores", "contains NaN", "drop such rows", rows=[3, 7])
    >>> str(error)
    'scores: row 3 contains NaN; drop such rows'
    >>> str(error.offset_rows(1000).with_argument("big.parquet"))
    'big.parquet: row 1003 contains NaN; drop such rows'
    """

    def __init__(
        self,
        argument: str,
        reason: str,
        hint: str,
        *,
        rows: Sequence[int] | npt.NDArray[Any] = (),
        detail: str | None = None,
        option: Option | None = None,
    ) -> None:
        import numpy as np

        self.argument, self.reason, self.hint = argument, reason, hint
        self.rows: Rows = np.asarray(rows, dtype=np.intp)
        self.detail, self.option = detail, option
        super().__init__(argument, reason, hint)

    def __str__(self) -> str:
        subject = f"{self.argument}: row {self.rows[0]}" if self.rows.size else self.argument
        reason = self.reason if self.detail is None else self.detail
        return f"{subject} {reason}; {self.full_hint}"

    @property
    def full_hint(self) -> str:
        """The hint, with the proposed option in the caller's language."""
        return _format_hint(self.hint, self.option)

    def offset_rows(self, first: int) -> Self:
        """Renumber the rows of a block whose first row is row ``first`` of the whole."""
        return self._replace(rows=self.rows + first)

    def select_rows(self, numbers: Sequence[int] | npt.NDArray[Any]) -> Self:
        """Renumber the rows of a selection; ``numbers`` are the selected rows of the whole."""
        import numpy as np

        return self._replace(rows=np.asarray(numbers, dtype=np.intp)[self.rows])

    def with_argument(self, argument: str) -> Self:
        """Return the error under another argument name."""
        return self._replace(argument=argument)

    def with_option_hint(self, name: str, value: str) -> Self:
        """Return the error with an option that its hint proposes as an alternative."""
        return self._replace(hint=f"{self.hint}, or pass {{option}}", option=(name, value))

    def with_hint(self, more: str) -> Self:
        """Return the error with more to its hint."""
        return self._replace(hint=f"{self.hint}; {more}")

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows: the caller's lines, without those of this package."""
        import os
        import traceback

        others = os.path.dirname(__file__), f"{os.sep}IPython{os.sep}"
        frames = [
            frame
            for frame in traceback.extract_tb(self.__traceback__)
            if not any(part in frame.filename for part in others)
        ]
        return [line.rstrip() for line in traceback.format_list(frames)] + [f"InputError: {self}"]

    def _replace(self, **changes: Any) -> Self:
        return type(self)(**{**self._fields(), **changes})

    def _fields(self) -> dict[str, Any]:
        names = ("argument", "reason", "hint", "rows", "detail", "option")
        return {name: getattr(self, name) for name in names}

    def __reduce__(self) -> tuple[Callable[..., InputError], tuple[dict[str, Any]]]:
        # Worker processes send their errors back by pickle, which drops keyword arguments.
        return _rebuild, (self._fields(),)


# Tracebacks show the public name.
InputError.__module__ = "cordcal"


def _rebuild(fields: dict[str, Any]) -> InputError:
    return InputError(**fields)


class ClusterFailure(InputError):
    """Work on a cluster that ended early for a reason other than its input."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during work that can be resumed.

    Parameters
    ----------
    progress : str
        Which results were kept.
    hint : str
        How to continue. ``{option}`` is replaced by the formatted ``option``.
    option : tuple of str, optional
        Name and value of an argument that the hint proposes.

    Examples
    --------
    >>> error = Interrupted("9 rows are kept", "pass {option}", option=("resume", "True"))
    >>> error.full_hint
    'pass resume=True'
    """

    def __init__(self, progress: str, hint: str, *, option: Option | None = None) -> None:
        self.progress, self.hint, self.option = progress, hint, option
        super().__init__(progress, hint)

    @property
    def full_hint(self) -> str:
        """The hint, with the proposed option in the caller's language."""
        return _format_hint(self.hint, self.option)

    def __str__(self) -> str:
        return f"{self.progress}; {self.full_hint}"


def _format_hint(hint: str, option: Option | None) -> str:
    return hint if option is None else hint.replace("{option}", option_text(*option))


def row_error(
    invalid: npt.NDArray[np.bool_],
    argument: str,
    reason: str,
    hint: str,
    *,
    detail: Callable[[int], str] | None = None,
    option: Option | None = None,
) -> InputError | None:
    """Return the error of all rows flagged as invalid, or None if there are none.

    ``detail`` maps a row to the reason with its numbers; it is called for the first invalid row.
    """
    rows = invalid.nonzero()[0]
    if not rows.size:
        return None
    first = None if detail is None else detail(int(rows[0]))
    return InputError(argument, reason, hint, rows=rows, detail=first, option=option)


def merge_errors(errors: Iterable[InputError | None]) -> list[InputError]:
    """Merge the errors of several blocks that have the same argument and reason.

    Examples
    --------
    >>> nan = InputError("scores", "contains NaN", "drop such rows", rows=[3])
    >>> [error.rows.tolist() for error in merge_errors([nan, None, nan.offset_rows(10)])]
    [[3, 13]]
    """
    import numpy as np

    groups: dict[tuple[str, str], list[InputError]] = {}
    for error in errors:
        if error is not None:
            groups.setdefault((error.argument, error.reason), []).append(error)
    return [
        min(group, key=_first_row)._replace(
            rows=np.sort(np.concatenate([error.rows for error in group]))
        )
        for group in groups.values()
    ]


def raise_first(*errors: InputError | None) -> None:
    """Raise the error of the earliest row, if there is any error."""
    first = min((error for error in errors if error is not None), key=_first_row, default=None)
    if first is not None:
        raise first


def _first_row(error: InputError) -> int:
    """Return the first invalid row; -1 sorts an error of the whole argument first."""
    return int(error.rows[0]) if error.rows.size else -1


@contextmanager
def renumber_rows(rows: int | Sequence[int]) -> Iterator[None]:
    """Renumber the rows of an `InputError` raised for a block of a larger input.

    ``rows`` is the number of the block's first row, or the numbers of all its rows.
    """
    try:
        yield
    except InputError as error:
        renumbered = error.offset_rows(rows) if isinstance(rows, int) else error.select_rows(rows)
        raise renumbered.with_traceback(error.__traceback__) from None


def stacklevel_outside_package() -> int:
    """Return the stacklevel that makes a warning point at the line of the user's code."""
    frame, level = sys._getframe(1), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("cordcal"):
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    return level


# ``warnings.catch_warnings`` replaces state of the whole process, so threads would see each other's
# filters.  Work on threads collects its warnings here instead, and the waiting thread issues them
# under the user's filters.
_COLLECTED: ContextVar[list[str] | None] = ContextVar("collected", default=None)


def warn(message: str) -> None:
    """Warn at the caller's line, or append to the list of `collect_warnings` in this thread.

    Examples
    --------
    >>> with collect_warnings() as messages:
    ...     warn("some rows are odd")
    >>> messages
    ['some rows are odd']
    """
    if not collected(message):
        warnings.warn(message, UserWarning, stacklevel=stacklevel_outside_package())


def collected(message: str) -> bool:
    """Append to the list of `collect_warnings` in this thread, if there is one."""
    messages = _COLLECTED.get()
    if messages is None:
        return False
    messages.append(message)
    return True


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect the warnings of this thread inside a ``with`` block."""
    messages: list[str] = []
    token = _COLLECTED.set(messages)
    try:
        yield messages
    finally:
        _COLLECTED.reset(token)
