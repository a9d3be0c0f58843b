"""Choose the engine: the array engine for small work, the compiled one when it pays.

Both engines give the same bits; only the time differs.  `engine_for` is the whole policy.  It
adds up the work of this process and compares it with two thresholds: `LOAD_WORK`, from which
loading compiled kernels from numba's cache pays, and `COMPILE_WORK`, from which compiling them
pays.  `row_work` and `probe_work` estimate the work of a call.
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
from cordcal.repair.kernels import Job, Tier
from cordcal.repair.numpy_engine import Description
from cordcal.repair.solve import ConstraintValue

SETTING = "CORDCAL_ENGINE"

# The unit of work is one entry of a long row.  The array engine does about 30 million per
# second, the compiled one 500 million (measured at K = 1000, one core).

# Importing numba and loading kernels from its cache takes half a second, in which the array
# engine does this much.
LOAD_WORK = 2**24
# Compiling the kernels of a construction and a repair takes five to ten seconds.  The array
# engine does this much in two, but later processes use the kernels, too.
COMPILE_WORK = 2**26
# Smaller calls count towards loading, never towards compiling: a request for one row must not
# wait for a compiler.
BATCH_WORK = 2**18

# The cost of a call and of a row besides its entries (measured at one row, and at K = 10), the
# factor for preserved rankings, which are sorted (measured from K = 10 to 1000), and the cost of
# one row of the constraint at one candidate.
CALL_WORK = 2**13
ROW_WORK = 32
RANKED_WORK = 8
PROBE_WORK = 10


def row_work(direct: npt.NDArray[Any], *, ranked: bool = False) -> int:
    """Return the work of one pass over all rows."""
    work = direct.size + ROW_WORK * len(direct)
    return RANKED_WORK * work if ranked else work


def probe_work(rows: int, candidates: int = 1) -> int:
    """Return the work of evaluating the constraint."""
    return PROBE_WORK * candidates * rows


class Engine(Protocol):
    """The row rule on NumPy arrays: describe rows, evaluate the constraint, repair rows."""

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
        """Return an approximate root η of Σ w (s(η) − g) + shift, or zero."""

    def repair(
        self,
        original: npt.NDArray[Any],
        direct: npt.NDArray[Any],
        decision: Decisions | None,
        eta: float,
        out: npt.NDArray[Any],
        threads: int,
    ) -> None:
        """Write the repaired rows to ``out``, in its dtype, the decision strictly the largest."""

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


class _WorkDone:
    """The work that this process has done on the array engine."""

    def __init__(self) -> None:
        self.total = self.in_batches = 0

    def add(self, work: int) -> None:
        """Add a call's work."""
        self.total += work + CALL_WORK
        if work >= BATCH_WORK:
            self.in_batches += work

    def choose_tier(self) -> Tier:
        """Return which kernels this much work is worth."""
        if self.in_batches >= COMPILE_WORK:
            return "compiled"
        return "cached" if self.total >= LOAD_WORK else "ready"


_work_done = _WorkDone()


def engine_for(job: Job, work: int, *arrays: npt.NDArray[Any]) -> Engine:
    """Return the engine for this much work on these arrays (both inputs, then the output).

    1. Kernels that this process has loaded are used.
    2. Kernels in numba's cache are loaded once the work of this process reaches `LOAD_WORK`.
    3. Other kernels are compiled once the work of its batches reaches `COMPILE_WORK`.
    4. Otherwise, and without numba, the array engine does the work.
    """
    setting = engine_setting()
    if setting == "array":
        return numpy_engine
    if not kernels.installed():
        _work_done.add(work)
        _check_numba_missing(setting)
        return numpy_engine
    dtypes = tuple([array.dtype for array in arrays])
    if setting == "compiled":
        return kernels.engine(job, dtypes, "compiled") or numpy_engine
    compiled = kernels.engine(job, dtypes, "ready")
    if compiled is None:
        _work_done.add(work)
        compiled = kernels.engine(job, dtypes, _work_done.choose_tier())
    return compiled or numpy_engine


def engine_setting() -> str:
    """Return the environment's setting: ``array``, ``compiled`` or, by default, ``auto``."""
    setting = os.environ.get(SETTING, "auto")
    if setting not in ("array", "compiled", "auto"):
        raise InputError(SETTING, f"is {setting!r}", "write array, compiled or auto, or unset it")
    return setting


def _check_numba_missing(setting: str) -> None:
    """Raise an error if the setting requires numba; warn once if numba would save time."""
    if setting == "compiled" and not kernels.disabled():
        raise InputError(SETTING, "is 'compiled' but numba is not installed", "pip install numba")
    if _work_done.choose_tier() == "compiled" and not kernels.disabled():
        _suggest_numba()


@functools.cache
def _suggest_numba() -> None:
    warn(
        "work of this size is several times faster with numba; pip install numba, or set "
        f"{SETTING}=array to silence this hint"
    )
