"""Threads: one BLAS thread per fit, interruptible calls, blocks of rows on a pool."""

from __future__ import annotations

import functools
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

# Products and factorisations of smaller matrices take a fraction of a second.
_LARGE = 1000


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread inside a ``with`` block.

    The number of threads belongs to the process, so of blocks that overlap in time the first
    lowers it and the last restores it.
    """
    own = _LIMIT.enter()
    try:
        yield
    finally:
        _LIMIT.leave(own)


class _SharedLimit:
    """One limit for all threads of the process, with a count of the blocks that need it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._before: list[int | None] = []

    def enter(self) -> list[int | None]:
        """Lower every number to one; return this thread's own numbers."""
        libraries = _blas_libraries()
        with self._lock:
            own = [library.get_num_threads() for library in libraries]
            if self._blocks == 0:
                self._before = own
            self._blocks += 1
            for library in libraries:
                _set_threads(library, 1)
        return own

    def leave(self, own: list[int | None]) -> None:
        """Restore the thread's own numbers, and with the last block those of the process."""
        with self._lock:
            self._blocks -= 1
            for library, mine, before in zip(_blas_libraries(), own, self._before, strict=True):
                if _counts_by_thread(library):
                    _set_threads(library, mine)
                elif self._blocks == 0:
                    _set_threads(library, before)


_LIMIT = _SharedLimit()


def _counts_by_thread(library: Any) -> bool:
    # OpenMP holds the number of its threads for each calling thread.
    return getattr(library, "threading_layer", None) == "openmp"


def _set_threads(library: Any, number: int | None) -> None:
    """Set a library's number of threads, whichever thread has set it last.

    From threadpoolctl 3.8 on the first thread that limits OpenBLAS is the only one that can
    until it is done; the block that ends last may be another thread's.
    """
    if number is None:
        return
    release = getattr(library, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
    library.set_num_threads(number)
    if release is not None:
        release()


def interruptible(function: Callable[..., Any], *arrays: Any) -> Any:
    """Return what one call of NumPy makes of the arrays; Ctrl-C is heard while it runs.

    No signal gets into a factorisation, which takes minutes for some thousand rows.  A large
    one runs in a thread, for which the caller waits; one that nobody waits for any more ends
    by itself.

    Examples
    --------
    >>> import numpy as np
    >>> interruptible(np.linalg.cholesky, np.array([[4.0]]))
    array([[2.]])
    """
    if max(array.shape[0] for array in arrays) < _LARGE:
        return function(*arrays)
    found: list[Any] = []
    fell: list[BaseException] = []

    def work() -> None:
        try:
            found.append(function(*arrays))
        except BaseException as error:
            fell.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    if fell:
        raise fell[0]
    return found[0]


@functools.cache
def _blas_libraries() -> list[Any]:
    """Return the controllers of the loaded libraries; looking them up takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


# Starting a pool costs a tenth of a millisecond: threads pay from a millisecond's work on.
_THREAD_ENTRIES = 2**20
_IMPORTED_IN = os.getpid()

Result = TypeVar("Result")


def default_threads() -> int:
    """Return the number of cores to use: all of them, but one inside a worker.

    A worker is a forked or spawned process, or any thread but the main one: whoever
    started it has already shared out the cores.
    """
    child = multiprocessing.parent_process() is not None or os.getpid() != _IMPORTED_IN
    if child or threading.current_thread() is not threading.main_thread():
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def chunks(rows: int, classes: int, threads: int, most: int) -> list[slice]:
    """Cut the rows into blocks of at most ``most`` rows, equally many for each thread."""
    size = rows
    if threads > 1:
        # A few blocks a thread, so that one that is held up does not keep the others waiting.
        wanted = max(-(-rows // (4 * threads)), _THREAD_ENTRIES // classes)
        turns = -(-rows // (wanted * threads))
        size = rows if rows <= wanted else -(-rows // (turns * threads))
    size = max(1, min(most, size))
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def run_blocks(
    work: Callable[[slice], Result], rows: int, classes: int, threads: int, most: int
) -> Iterable[Result]:
    """Run the blocks of rows in order, on a pool where there is something to share out."""
    if threads == 1 and rows <= most:
        return [work(slice(0, rows))]
    blocks = chunks(rows, classes, threads, most)
    if threads == 1 or len(blocks) == 1:
        return map(work, blocks)
    with ThreadPoolExecutor(min(threads, len(blocks))) as pool:
        return list(pool.map(work, blocks))
