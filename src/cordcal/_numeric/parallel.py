"""Threads: one BLAS thread per fit, interruptible calls, blocks of rows on a thread pool."""

from __future__ import annotations

import functools
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

# Products and factorisations of smaller matrices take a fraction of a second.
_MIN_ROWS_FOR_THREAD = 1000


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread inside a ``with`` block.

    The number of threads belongs to the process: if blocks overlap in time, the first lowers it
    and the last restores it.
    """
    previous = _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave(previous)


class _SharedLimit:
    """One limit for all threads of the process, with a count of the blocks that use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._initial: list[int | None] = []

    def enter(self) -> list[int | None]:
        """Set every library to one thread; return the numbers this thread had before."""
        libraries = _blas_libraries()
        with self._lock:
            previous = [library.get_num_threads() for library in libraries]
            if self._blocks == 0:
                self._initial = previous
            self._blocks += 1
            for library in libraries:
                _set_threads(library, 1)
        return previous

    def leave(self, previous: list[int | None]) -> None:
        """Restore the numbers of this thread, and after the last block those of the process."""
        with self._lock:
            self._blocks -= 1
            counts = zip(_blas_libraries(), previous, self._initial, strict=True)
            for library, thread_count, process_count in counts:
                # OpenMP stores the number of threads per calling thread.
                if getattr(library, "threading_layer", None) == "openmp":
                    _set_threads(library, thread_count)
                elif self._blocks == 0:
                    _set_threads(library, process_count)


_LIMIT = _SharedLimit()


def _set_threads(library: Any, number: int | None) -> None:
    """Set a library's number of threads, even if another thread has set it last.

    Since threadpoolctl 3.8, only the first thread that limits OpenBLAS may change the limit
    until it is done; the block that ends last may belong to another thread.
    """
    if number is None:
        return
    release = getattr(library, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
    library.set_num_threads(number)
    if release is not None:
        release()


# Seconds until an interrupt is heard at the latest; a wake-up costs microseconds.
_LONGEST_WAIT = 0.1


def interruptible(function: Callable[..., Any], *arrays: Any) -> Any:
    """Call a NumPy function on arrays so that Ctrl-C works while it runs.

    A factorisation, which takes minutes for some thousand rows, handles no signals.  A large one
    runs in a thread while the caller waits; after an interrupt the thread ends by itself.

    Examples
    --------
    >>> import numpy as np
    >>> interruptible(np.linalg.cholesky, np.array([[4.0]]))
    array([[2.]])
    """
    if max(array.shape[0] for array in arrays) < _MIN_ROWS_FOR_THREAD:
        return function(*arrays)
    results: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function(*arrays))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    # A signal that arrives just before a wait does not end it, so no wait is long.
    while thread.is_alive():
        thread.join(_LONGEST_WAIT)
    if errors:
        raise errors[0]
    return results[0]


@functools.cache
def _blas_libraries() -> list[Any]:
    """Return the controllers of the loaded libraries; cached, because a lookup takes ms."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


# Starting a pool costs 0.1 ms, so threads pay off from about 1 ms of work.
THREAD_ENTRIES = 2**20
_IMPORT_PID = os.getpid()

Result = TypeVar("Result")


def default_threads() -> int:
    """Return the number of cores to use: all of them, or one inside a worker.

    A worker is a forked or spawned process, or any thread except the main one: the code that
    started it already runs workers in parallel.
    """
    is_child = multiprocessing.parent_process() is not None or os.getpid() != _IMPORT_PID
    if is_child or threading.current_thread() is not threading.main_thread():
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def run_tasks(
    tasks: Sequence[Callable[[], Result]], threads: int, finished: Callable[[int], None]
) -> list[Result]:
    """Run functions on daemon threads and return their results in order.

    The first thread begins with the first task, the others with the last one: if the first tasks
    need much memory, only one of them runs at a time until the others are done.
    The caller waits and hears interrupts; after one, no further task begins and those that run
    end by themselves.  ``finished`` is called in the caller's thread with the number of tasks
    that are done.

    Examples
    --------
    >>> run_tasks([lambda: 1, lambda: 2], threads=2, finished=lambda count: None)
    [1, 2]
    """
    results: dict[int, Result] = {}
    errors: list[BaseException] = []
    waiting = deque(range(len(tasks)))
    stopped = threading.Event()

    def work(take: Callable[[], int]) -> None:
        while not (errors or stopped.is_set()):
            try:
                number = take()
            except IndexError:
                return
            try:
                results[number] = tasks[number]()
            except BaseException as error:
                errors.append(error)

    if threads == 1 or len(tasks) == 1:
        for number, task in enumerate(tasks):
            results[number] = task()
            finished(number + 1)
        return list(results.values())
    takes = [waiting.popleft, *[waiting.pop] * (min(threads, len(tasks)) - 1)]
    pool = [threading.Thread(target=work, args=(take,), daemon=True) for take in takes]
    for thread in pool:
        thread.start()
    try:
        for thread in pool:
            while thread.is_alive():
                thread.join(_LONGEST_WAIT)
                finished(len(results))
    finally:
        stopped.set()
    if errors:
        raise errors[0]
    finished(len(results))
    return [results[number] for number in range(len(tasks))]


def chunks(rows: int, classes: int, threads: int, most: int) -> list[slice]:
    """Split the rows into blocks of at most ``most`` rows, the same number per thread."""
    size = rows
    if threads > 1:
        # A few blocks per thread, so that one slow thread does not delay the others.
        target = max(-(-rows // (4 * threads)), THREAD_ENTRIES // classes)
        rounds = -(-rows // (target * threads))
        size = rows if rows <= target else -(-rows // (rounds * threads))
    size = max(1, min(most, size))
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def run_blocks(
    work: Callable[[slice], Result], rows: int, classes: int, threads: int, most: int
) -> Iterable[Result]:
    """Run ``work`` on blocks of rows in order, on a thread pool if there are several."""
    if threads == 1 and rows <= most:
        return [work(slice(0, rows))]
    blocks = chunks(rows, classes, threads, most)
    if threads == 1 or len(blocks) == 1:
        return map(work, blocks)
    with ThreadPoolExecutor(min(threads, len(blocks))) as pool:
        return list(pool.map(work, blocks))
