"""Warnings of the package, which callers on threads can collect.

``warnings.catch_warnings`` replaces state of the whole process, so threads would see each
other's filters.  Work on threads collects its warnings here instead, and the waiting thread
issues them under the user's filters.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from cordcal._numeric.arrays import stacklevel_outside_package

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
