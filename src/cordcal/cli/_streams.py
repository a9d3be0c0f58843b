"""Standard streams that are closed, full or not UTF-8."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

# Replacements of printed non-ASCII characters, for terminals that cannot show them.
_ASCII = {
    "✓": "ok",
    "✗": "FAILED",
    "→": "->",
    "⁺": "+",
    "⁻": "-",
    "⁰": "0",
    "−": "-",
    "–": "-",
    "×": "x",
    "±": "+-",
    "≤": "<=",
    "≥": ">=",
    "…": "...",
    "·": "*",
    "•": "*",
    "’": "'",
    "“": '"',
    "”": '"',
    **dict.fromkeys("─━╌┄╴╶╸╺═", "-"),
    **dict.fromkeys("│┃╎┆║", "|"),
}
_FALLBACK = "cordcal-ascii"
# How a closed stream is reopened on the null device: reading stdin and writing stdout fail as on
# the closed descriptor; text for stderr is discarded.
_CLOSED = {
    "stdin": ("r", os.O_WRONLY),
    "stdout": ("w", os.O_RDONLY),
    "stderr": ("w", os.O_WRONLY),
}


def _replace_with_ascii(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an encoding lacks; an error handler for `codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    pieces = [
        _ASCII.get(character) or character.encode("ascii", "backslashreplace").decode()
        for character in text
    ]
    return "".join(pieces), error.end


codecs.register_error(_FALLBACK, _replace_with_ascii)


@contextmanager
def standard_streams() -> Iterator[None]:
    """Make the standard streams safe to use while a command runs.

    A closed stream is reopened on the null device, so that no file gets its descriptor.
    Characters that an encoding lacks are written in ASCII.
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
    """Return whether a stream can encode every character; in-memory streams can."""
    encoding = getattr(getattr(sys, name), "encoding", None) or "utf-8"
    return codecs.lookup(encoding).name.startswith("utf")


@contextmanager
def writing(name: str) -> Iterator[None]:
    """Add the stream's name to an OSError, and discard its unwritten text."""
    try:
        yield
    except OSError as error:
        discard(name)
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, name) from error
        raise


def discard(name: str) -> None:
    """Discard unwritten text, which Python would otherwise try to flush again at exit."""
    stream = getattr(sys, name)
    with suppress(OSError, ValueError, AttributeError):  # a stream in memory has no descriptor
        handle = os.open(os.devnull, os.O_WRONLY)
        os.dup2(handle, stream.fileno())
        os.close(handle)
        stream.flush()
