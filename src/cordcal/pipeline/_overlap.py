"""Reading, computing and writing at the same time, with a bound on what is in flight."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from cordcal._validation.warn import collect_warnings, warn

Item = TypeVar("Item")
Result = TypeVar("Result")

_NUMBER = re.compile(r"\d[\d.,e+-]*")


def overlapped(
    items: Iterable[Item], work: Callable[[Item], Result], workers: int | None = None
) -> Iterator[Result]:
    """Yield ``work(item)`` for every item, in order, while other items are read and worked on.

    One thread reads one item ahead, ``workers`` threads work, and the caller consumes: at
    most ``workers`` items are worked on or wait.  What goes wrong anywhere is raised here, in the
    order of the items, and so are the package's warnings: a file of a thousand batches would
    otherwise give the same one a thousand times.

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
    read, run, once = _collecting(next), _collecting(work), _Once()
    pending: deque[Future[tuple[Result, list[str]]]] = deque()
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(threads) as pool:
        upcoming: Future[tuple[Any, list[str]]] = reader.submit(read, iterator, end)
        try:
            while (item := once.result_of(upcoming)) is not end:
                upcoming = reader.submit(read, iterator, end)
                pending.append(pool.submit(run, item))
                # Whoever works on it holds it; a batch must not outlive its result.
                del item
                if len(pending) >= threads:
                    yield once.result_of(pending.popleft())
            while pending:
                yield once.result_of(pending.popleft())
        finally:
            for future in pending:
                future.cancel()


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _collecting(work: Callable[..., Result]) -> Callable[..., tuple[Result, list[str]]]:
    def run(*arguments: object) -> tuple[Result, list[str]]:
        with collect_warnings() as messages:
            return work(*arguments), messages

    return run


class _Once:
    """Gives the warnings of all items in this thread, those that differ only in numbers once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def result_of(self, future: Future[tuple[Result, list[str]]]) -> Result:
        # Returned at once, so that nothing here outlives its use by the caller.
        result, messages = future.result()
        for message in messages:
            words = _NUMBER.sub("", message)
            if words not in self._seen:
                self._seen.add(words)
                warn(message)
        return result
