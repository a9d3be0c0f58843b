"""Reading, computing and writing at the same time, with a bound on what is in flight."""

from __future__ import annotations

import os
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_NUMBER = re.compile(r"\d[\d.,e+-]*")


def overlapped(
    items: Iterable[Item], work: Callable[[Item], Result], workers: int | None = None
) -> Iterator[Result]:
    """Yield ``work(item)`` for every item, in order, while other items are read and worked on.

    One thread reads one item ahead, ``workers`` threads work, and the caller consumes: at
    most ``workers`` items are worked on or wait.  What goes wrong anywhere is raised here, in the
    order of the items.

    Parameters
    ----------
    items : iterable
        Read by one thread, so it may block on a file.
    work : callable
        Run by several threads at a time.
    workers : int, optional
        By default one a core.

    Examples
    --------
    >>> list(overlapped(range(5), lambda x: x * x))
    [0, 1, 4, 9, 16]
    """
    threads = workers or _cores()
    iterator, end = iter(items), object()
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(threads) as pool:
        upcoming: Future[object] = reader.submit(next, iterator, end)
        try:
            while (item := upcoming.result()) is not end:
                upcoming = reader.submit(next, iterator, end)
                pending.append(pool.submit(work, item))  # type: ignore[arg-type]
                # Whoever works on it holds it; a batch must not outlive its result.
                del item
                if len(pending) >= threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@contextmanager
def said_once() -> Iterator[None]:
    """Hold warnings back, and give those that differ only in numbers once, at the end.

    A file of a thousand batches would otherwise say the same thing a thousand times.
    """
    with warnings.catch_warnings(record=True) as held:
        warnings.simplefilter("always")
        yield
    told = set()
    for warning in held:
        words = _NUMBER.sub("", str(warning.message))
        if words not in told:
            told.add(words)
            warnings.warn(str(warning.message), warning.category, stacklevel=4)
