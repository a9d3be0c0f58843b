"""A line about work that takes long: how far it is, on a terminal or in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

# Shorter work is over before anybody wonders.
_SECONDS = 2.0
# Of nested work, only the outermost is shown.
_shown = False


def in_notebook() -> bool:
    """Return whether a notebook shows what is written, in which bars of terminals do not work."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def is_shown() -> bool:
    """Return whether work is shown already."""
    return _shown


@contextmanager
def shown() -> Iterator[None]:
    """Show nothing of the work inside; the caller shows it."""
    global _shown
    before, _shown = _shown, True
    try:
        yield
    finally:
        _shown = before


@contextmanager
def line_of_progress(title: str, steps: int | None = None) -> Iterator[Callable[[int, str], None]]:
    """Yield a function to call with the steps done and the current one's name.

    After two seconds it writes one line to stderr, which is erased at the end.

    Examples
    --------
    >>> with line_of_progress("comparing", 2) as advance:
    ...     advance(1, "svs")
    """
    if _shown or not (in_notebook() or sys.stderr.isatty()):
        yield lambda done, name: None
        return
    started, width = perf_counter(), 0

    def advance(done: int, name: str) -> None:
        nonlocal width
        seconds = perf_counter() - started
        if seconds >= _SECONDS:
            of = "" if steps is None else f" of {steps}"
            line = f"{title}: {done}{of}, {name} ({seconds:.0f} s)"
            sys.stderr.write("\r" + line.ljust(width))
            sys.stderr.flush()
            width = max(width, len(line))

    with shown():
        try:
            yield advance
        finally:
            if width:
                sys.stderr.write("\r" + " " * width + "\r")
                sys.stderr.flush()
