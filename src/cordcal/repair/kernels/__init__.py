"""The compiled engine: the row rule as LLVM vector code.

`installed` is whether kernels are possible, `engine` returns the kernels of a job, `warmup`
prepares the usual ones, `Stopwatch` excludes that time.  Other modules use nothing else.  numba
and the kernels are imported only when the work is worth it.

Why vector code
---------------
Row reductions (sum, largest, smallest, first largest entry) are written as LLVM vector code
(`_simd`, `_scan`).  Plain numba loops over the same rows, measured in one run on
AVX2, take about 1.3 times as long at K = 1000, 3 times near K = 100 and 4 times near K = 16:
LLVM does not reorder floating-point sums by itself, and in short rows the loop ends dominate.
Up to 48 classes four rows are reduced at a time, one row per lane; longer rows are reduced one
by one in eight lanes.

How they stay correct
---------------------
* The order of a row's sum is defined, not left to a compiler: eight interleaved lanes, folded
  by halves, which is `lane_sum` of the array engine.  So both engines give the same bits, and
  every numeric test of ``tests/repair`` runs on both and compares them.
* A kernel reads whole vectors but nothing beyond an array's last entry; a test puts arrays at
  the end of a memory page (``tests/repair/test_page_edge.py``).
* A kernel never raises.  It returns the first row of a tile with an invalid row, and the array
  engine raises the error: messages are written in one place.
* Kernels are single-threaded and release the GIL; threads work on separate blocks of rows
  (`cordcal._numeric.parallel`).
* numba's cache checks only one file for changes; so kernels have a digest of all kernel files
  in their names, and a cache that cannot be read is rebuilt (`_jit`).

===============  ===========================================================================
`_engine`        layouts, dtypes, threads and invalid rows: the engine itself
`_passes`        describe or repair rows in tiles, phase by phase; probe, search
`_ranked`        the nested rule
`_sums`          exact sums
`_curves`        piecewise linear curves of calibrators
`_scan`          row reductions: one row in eight lanes, four short rows at a time; tiles
`_simd`, `_jit`  vectors, compilation
===============  ===========================================================================
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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from cordcal._numeric.types import NumPyDType

if TYPE_CHECKING:
    from cordcal.repair.dispatch import Engine


class _TimeSpent(threading.local):
    """The time this thread has spent on preparing kernels."""

    seconds = 0.0
    nested = False


_spent = _TimeSpent()


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
    """Seconds since its creation, except those that this thread spent preparing kernels.

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


Job = Literal["describe", "probes", "repair", "repair_ranked", "curves"]
"""The jobs that kernels do; the search for a scalar belongs to ``probes``.

``curves`` are those of calibrators.
"""

_ENGINE = "cordcal.repair.kernels._engine"


@functools.cache
def disabled() -> bool:
    """Whether numba's compiler is disabled; numba, too, reads the variable only once."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def installed() -> bool:
    """Whether kernels are possible: numba is installed and may compile."""
    return not disabled() and _has_numba()


@functools.cache
def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def engine(
    job: Job, dtypes: tuple[NumPyDType, ...], weighted: bool = False, *, prepare: bool
) -> Engine | None:
    """Return the compiled engine if the kernels of a job are loaded, else None.

    ``weighted`` is whether there are class weights.  With ``prepare`` the kernels are loaded or
    compiled first; it returns None only without numba.
    """
    if not installed() or not (prepare or _ENGINE in sys.modules):
        return None
    module = _import_engine()
    if module is None:
        return None
    for kernel in module.kernels_of(job, dtypes, weighted):
        if kernel.ready is None:
            if not prepare:
                return None
            kernel.get()
    return cast("Engine", module)


@functools.cache
def _import_engine() -> Any:
    """Import numba and the kernels' sources; return None if numba does not work."""
    with preparing():
        try:
            from cordcal.repair.kernels import _engine
        except ImportError:
            return None
        return _engine


def warmup() -> None:
    """Compile the kernels ahead of the first call, or load them from the cache.

    Without it, small work runs on the array engine, which needs no preparation, and large work
    prepares its kernels by itself.  Without numba, or with its compiler disabled, this does
    nothing.  ``cordcal warmup`` does the same on the command line, for images of servers.

    Examples
    --------
    >>> warmup()
    """
    prepare()


@dataclass(frozen=True)
class Preparation:
    """What `prepare` did: kernels compiled and loaded, the seconds, and the cache's folder.

    ``folder`` is None if no folder could be written.
    """

    compiled: int
    loaded: int
    seconds: float
    folder: str | None


def prepare() -> Preparation | None:
    """Load or compile the kernels of float64 and float32 rows; return None without numba."""
    module = _import_engine() if installed() else None
    if module is None:
        return None
    start = time.perf_counter()
    kernels = {
        kernel
        for dtype in (np.dtype(np.float64), np.dtype(np.float32))
        for job in get_args(Job)
        if job != "repair_ranked"
        for kernel in module.kernels_of(job, (dtype, dtype, dtype))
    }
    for kernel in kernels:
        kernel.get()
    loaded = sum(kernel.cached for kernel in kernels)
    folders = {kernel.folder for kernel in kernels}
    return Preparation(
        compiled=len(kernels) - loaded,
        loaded=loaded,
        seconds=time.perf_counter() - start,
        folder=folders.pop() if len(folders) == 1 else None,
    )
