"""The standard streams of a command: closed ones, full ones, and those that are not UTF-8."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

# What the commands print beyond ASCII, for terminals that cannot show it.
_ASCII = {
    "✓": "ok",
    "✗": "FAILED",
    "→": "->",
    "−": "-",
    "–": "-",
    "×": "x",
    "±": "+-",
    "≤": "<=",
    "≥": ">=",
    "…": "...",
    "·": "*",
    "’": "'",
    "“": '"',
    "”": '"',
    **dict.fromkeys("─━╌┄╴╶╸╺═", "-"),
    **dict.fromkeys("│┃╎┆║", "|"),
}
_FALLBACK = "cordcal-ascii"
# How the null device takes the place of a closed stream: reading stdin and writing stdout fail
# as they would on the closed descriptor, and stderr has nobody to tell.
_CLOSED = {
    "stdin": ("r", os.O_WRONLY),
    "stdout": ("w", os.O_RDONLY),
    "stderr": ("w", os.O_WRONLY),
}


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Replace what an encoding lacks; an error handler of codecs."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    pieces = [
        _ASCII.get(each) or each.encode("ascii", "backslashreplace").decode() for each in text
    ]
    return "".join(pieces), error.end


codecs.register_error(_FALLBACK, _in_ascii)


@contextmanager
def standard_streams() -> Iterator[None]:
    """Make the standard streams safe to use for the time of a command.

    A closed stream gets its descriptor back, so that no file is opened under its number, and
    what an encoding cannot show is written in ASCII.
    """
    before = {name: getattr(sys, name) for name in _CLOSED}
    opened: list[Any] = []
    errors: dict[str, str] = {}
    for name, (mode, flags) in _CLOSED.items():
        if before[name] is None:
            handle = os.open(os.devnull, flags)  # the lowest free number: the closed one
            opened.append(open(handle, mode, encoding="utf-8"))  # noqa: SIM115 - closed below
            setattr(sys, name, opened[-1])
        elif mode == "w" and isinstance(before[name], io.TextIOWrapper) and not is_utf8(name):
            errors[name] = before[name].errors
            before[name].reconfigure(errors=_FALLBACK)
    try:
        yield
    finally:
        for name, stream in before.items():
            setattr(sys, name, stream)
        with suppress(OSError, ValueError):
            for name, handler in errors.items():
                before[name].reconfigure(errors=handler)
        for stream in opened:
            with suppress(OSError):
                stream.close()


def is_utf8(name: str = "stdout") -> bool:
    """Whether a stream can show every character; one without an encoding keeps text as it is."""
    encoding = getattr(getattr(sys, name), "encoding", None) or "utf-8"
    return codecs.lookup(encoding).name.startswith("utf")


@contextmanager
def writing(name: str) -> Iterator[None]:
    """Name the stream in an error of the system, and drop what it did not take."""
    try:
        yield
    except OSError as error:
        discard(name)
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, name) from error
        raise


def discard(name: str) -> None:
    """Drop what a stream did not take: at its end, Python would try again and complain."""
    stream = getattr(sys, name)
    with suppress(OSError, ValueError, AttributeError):  # a stream in memory has no descriptor
        handle = os.open(os.devnull, os.O_WRONLY)
        os.dup2(handle, stream.fileno())
        os.close(handle)
        stream.flush()
