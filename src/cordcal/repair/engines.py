"""Which engine does the work: the array one at once, the compiled one when it pays.

Both engines give the same bits, so this is a matter of seconds only, and the whole policy
is `engine_for`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Decisions, Vector
from cordcal._validation.warn import warn
from cordcal.repair import kernels, numpy_engine
from cordcal.repair.kernels import Effort, Job
from cordcal.repair.numpy_engine import Description
from cordcal.repair.solve import ConstraintValue

SETTING = "CORDCAL_ENGINE"

# Work is counted in entries of long rows, of which the array engine does about 30 million a
# second and the compiled one 500 million (measured at K = 1000, one core).
# Importing numba and loading kernels from its cache takes half a second: the array engine does
# this much in that time.
LOAD_WORK = 2**24
# Compiling the kernels of a construction and a repair takes five to ten seconds.  The array
# engine does this much in two; the kernels serve every later process, too.
COMPILE_WORK = 2**26
# Smaller calls are requests, which add up to work worth loading, but never to a compilation:
# whoever waits for one row must not wait for a compiler.
BATCH_WORK = 2**18
# What a call and a row cost beside their entries (measured at one row, and at K = 10).
CALL_WORK = 2**13
ROW_WORK = 32
# What an entry costs where all ranks are sorted and kept (measured from K = 10 to 1000).
RANKED_WORK = 8
# A row of a constraint at one candidate.
PROBE_WORK = 10


class Engine(Protocol):
    """The row rule on NumPy arrays: describe rows, probe the constraint, repair rows."""

    def describe(
        self,
        original: npt.NDArray[Any],
        direct: npt.NDArray[Any],
        decision: Decisions | None,
        weight: Vector | None,
        threads: int,
    ) -> Description:
        """Check and describe every calibration row."""

    def probes(
        self,
        etas: Sequence[float],
        reference: Vector,
        reference_rest: Vector,
        lower: Vector,
        weight: Vector | None,
        threads: int,
    ) -> list[ConstraintValue]:
        """Evaluate Σ w (s(η) − g), its derivative, and the rows at each bound, at candidates."""

    def search(
        self,
        shift: float,
        reference: Vector,
        reference_rest: Vector,
        lower: Vector,
        weight: Vector | None,
    ) -> float:
        """Return about the scalar at which Σ w (s − g) + shift vanishes, or zero."""

    def repair(
        self,
        original: npt.NDArray[Any],
        direct: npt.NDArray[Any],
        decision: Decisions | None,
        eta: float,
        out: npt.NDArray[Any],
        threads: int,
    ) -> None:
        """Write the repaired rows to ``out``, in its dtype, the decision strictly on top."""

    def repair_ranked(
        self,
        original: npt.NDArray[Any],
        direct: npt.NDArray[Any],
        decision: Decisions | None,
        etas: Vector,
        out: npt.NDArray[Any],
        threads: int,
    ) -> None:
        """Write the rows repaired by the nested rule to ``out``."""


class _Work:
    """What this process has done on the array engine."""

    def __init__(self) -> None:
        self.total = self.in_batches = 0

    def add(self, work: int) -> None:
        """Add a call's work."""
        self.total += work + CALL_WORK
        if work >= BATCH_WORK:
            self.in_batches += work

    @property
    def worth(self) -> Effort:
        """How much effort to get kernels the work so far, and that at hand, is worth."""
        if self.in_batches >= COMPILE_WORK:
            return "compile"
        return "load" if self.total >= LOAD_WORK else "have"


_done = _Work()


def row_work(reports: npt.NDArray[Any]) -> int:
    """Return the work of going through the rows of a pair of reports."""
    return reports.size + ROW_WORK * len(reports)


def engine_for(job: Job, work: int, *arrays: npt.NDArray[Any]) -> Engine:
    """Return the engine for this much work on these arrays (both inputs, then the output).

    Kernels that this process has are used.  Else kernels in numba's cache are loaded once the
    work of this process is worth that, and kernels that are nowhere are compiled once its
    batches are worth that; until then, and wherever numba is not, the array engine works.
    """
    setting = engine_setting()
    if setting == "array":
        return numpy_engine
    if not kernels.installed():
        _done.add(work)
        _hint(setting)
        return numpy_engine
    dtypes = tuple([array.dtype for array in arrays])
    if setting == "compiled":
        return kernels.engine(job, dtypes, "compile") or numpy_engine
    compiled = kernels.engine(job, dtypes, "have")
    if compiled is None:
        _done.add(work)
        compiled = kernels.engine(job, dtypes, _done.worth)
    return compiled or numpy_engine


def engine_setting() -> str:
    """Return what the environment says: ``array``, ``compiled`` or, by default, ``auto``."""
    setting = os.environ.get(SETTING, "auto")
    if setting not in ("array", "compiled", "auto"):
        raise InputError(SETTING, f"is {setting!r}", "write array, compiled or auto, or unset it")
    return setting


def _hint(setting: str) -> None:
    """Say once that numba would help, where it would, or that it was asked for in vain."""
    if setting == "compiled" and not kernels.disabled():
        raise InputError(SETTING, "is 'compiled' but numba is not installed", "pip install numba")
    if _done.worth == "compile" and not kernels.disabled():
        _hint_at_numba()


@functools.cache
def _hint_at_numba() -> None:
    warn(
        "work of this size is several times faster with numba; pip install numba, or set "
        f"{SETTING}=array to silence this hint"
    )
