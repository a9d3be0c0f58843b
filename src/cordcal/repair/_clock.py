"""Seconds of work: the time a fit takes, without that of compiling and loading kernels."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class _Preparation(threading.local):
    """What this thread has spent on getting kernels, which the work at hand is not to blame for."""

    seconds = 0.0
    nested = False


_spent = _Preparation()


@contextmanager
def preparing() -> Iterator[None]:
    """Count the time of a ``with`` block as preparation."""
    if _spent.nested:
        yield
        return
    _spent.nested, start = True, time.perf_counter()
    try:
        yield
    finally:
        _spent.nested = False
        _spent.seconds += time.perf_counter() - start


class Stopwatch:
    """Seconds since it was made, but for those that this thread spent preparing kernels.

    Examples
    --------
    >>> watch = Stopwatch()
    >>> with preparing():
    ...     time.sleep(0.05)
    >>> watch.seconds() < 0.05
    True
    """

    def __init__(self) -> None:
        self._start, self._before = time.perf_counter(), _spent.seconds

    def seconds(self) -> float:
        """Return the seconds so far."""
        return time.perf_counter() - self._start - (_spent.seconds - self._before)
