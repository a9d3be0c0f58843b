"""One BLAS thread while a fit runs, so that its bits do not depend on the machine.

BLAS shares out the sums of products among its threads, so their order, and with it the last
bits, depend on how many there are; a search that runs out of steps carries that to the first
digits.  Products of calibration rows are small, and one thread is the faster choice for most.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread inside a ``with`` block."""
    with _switch().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _switch() -> Any:
    """Return the switch of the BLAS threads; looking the libraries up takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
