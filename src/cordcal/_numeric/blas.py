"""What a fit asks of BLAS and LAPACK: one thread, and calls that can be interrupted.

BLAS shares out the sums of products among its threads, so their order, and with it the last
bits, depend on how many there are; a search that runs out of steps carries that to the first
digits.  Products of calibration rows are small, and one thread is the faster choice for most.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
