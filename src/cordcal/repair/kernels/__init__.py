"""The compiled engine: the row rule in LLVM vectors, behind a handful of functions.

`installed` says whether there can be kernels, `engine` returns those of a job if they can be
had with a given effort, `warmup` gets the usual ones ahead of time.  Nothing else is used from
outside, and nothing here is imported, numba least of all, before work is worth it.

What the vectors buy
--------------------
Row reductions (sum, largest, smallest, first largest entry) are spelled out as LLVM vector
code (`_simd`, `_scan`, `_scan_short`).  Plain numba loops over the same rows, measured in one
run on AVX2, take about 1.3 times as long at K = 1000, 3 times near K = 100 and 4 times near
K = 16: LLVM does not reorder floating sums by itself, and short rows drown in the ends of
loops.  Up to 48 classes four rows go through at a time, a row a lane; longer rows go through in
eight lanes each.

How they are kept right
-----------------------
* The order of a row's sum is defined, not left to a compiler: eight interleaved lanes, folded
  by halves, which is `lane_sum` of the array engine.  So both engines give the same bits, and
  every numeric test of ``tests/repair`` runs on both and compares them.
* A kernel reads whole vectors but nothing beyond an array's last entry; a test puts arrays at
  the very end of a page (``tests/repair/test_page_edge.py``).
* A kernel never raises.  It returns the first row of a tile that must be refused, and the
  array engine says what is wrong with it: there is one place for messages.
* Kernels are single-threaded and release the GIL; threads share out blocks of rows
  (`cordcal._numeric.parallel`).
* numba's cache looks at one file; kernels carry a digest of all kernel files in their names,
  and a cache that cannot be read is rebuilt (`_jit`).

========================  ==================================================================
`_engine`                 layouts, dtypes, threads and refused rows: the engine itself
`_passes`, `_phases`      describe or repair rows in tiles, phase by phase; probe, seek
`_ranked`                 the nested rule
`_sums`                   exact sums
`_scan`, `_scan_short`    row reductions: one row in eight lanes, four short rows at a time
`_simd`, `_tile`, `_jit`  vectors, scratch layout, compilation
========================  ==================================================================
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

if TYPE_CHECKING:
    from cordcal.repair.engines import Engine


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


Job = Literal["describe", "probes", "repair", "repair_ranked"]
"""What kernels are for; to seek a scalar belongs to ``probes``."""

Effort = Literal["have", "load", "compile"]
"""How far to go for kernels: those this process has, those in numba's cache, all."""

_ENGINE = "cordcal.repair.kernels._engine"


@functools.cache
def disabled() -> bool:
    """Whether numba was told not to compile, which it asks once, too."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def installed() -> bool:
    """Whether there can be kernels: numba is there, and may compile."""
    return not disabled() and _found()


@functools.cache
def _found() -> bool:
    return importlib.util.find_spec("numba") is not None


def engine(job: Job, dtypes: tuple[np.dtype[Any], ...], effort: Effort) -> Engine | None:
    """Return the compiled engine if it has, or gets, the kernels for a job with this effort."""
    if effort == "have" and _ENGINE not in sys.modules:
        return None
    found = _module()
    if found is None:
        return None
    for kernel in found.kernels_of(job, dtypes):
        if kernel.ready is None:
            if effort == "compile":
                kernel.get()
            elif effort == "have" or not kernel.load():
                return None
    return cast("Engine", found)


@functools.cache
def _module() -> Any:
    """Import numba and the kernels' sources; None where numba does not work after all."""
    with preparing():
        try:
            from cordcal.repair.kernels import _engine
        except ImportError:
            return None
        return _engine


def warmup() -> None:
    """Compile the kernels ahead of the first call, or load them from the cache.

    Until then, work runs on the array engine, which needs no preparation; large work gets
    its kernels by itself.  Where numba is missing, or told not to compile, nothing happens.

    Examples
    --------
    >>> warmup()
    """
    for dtype in (np.dtype(np.float64), np.dtype(np.float32)):
        for job in ("describe", "probes", "repair"):
            if installed():
                engine(job, (dtype, dtype, dtype), "compile")
