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
    """Let BLAS use one thread inside a ``with`` block."""
    with _switch().limit(limits=1, user_api="blas"):
        yield


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
def _switch() -> Any:
    """Return the switch of the BLAS threads; looking the libraries up takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
