"""Warnings of the package, which whoever works in pieces can collect.

``warnings.catch_warnings`` replaces state of the whole process, so that threads see each
other's filters.  Work that runs on threads collects its warnings here instead, and the thread
that waits for it gives them under the user's own filters.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from cordcal._numeric.arrays import stacklevel_outside_package

_COLLECTED: ContextVar[list[str] | None] = ContextVar("collected", default=None)


def warn(message: str) -> None:
    """Warn at the caller's own line, or leave the message to whoever collects in this thread.

    Examples
    --------
    >>> with collect_warnings() as messages:
    ...     warn("some rows are odd")
    >>> messages
    ['some rows are odd']
    """
    messages = _COLLECTED.get()
    if messages is None:
        warnings.warn(message, UserWarning, stacklevel=stacklevel_outside_package())
    else:
        messages.append(message)


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Yield the list that takes the warnings of the block, those of this thread alone."""
    messages: list[str] = []
    token = _COLLECTED.set(messages)
    try:
        yield messages
    finally:
        _COLLECTED.reset(token)
