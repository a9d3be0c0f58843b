"""Choose what applies the row rule: the array engine, the compiled one, or another library.

Both engines give the same bits; only the time differs.  `engine_for` is the whole policy, and
`KERNEL_WORK` its one threshold.

Arrays of other libraries (torch, JAX, array-api-strict) stay in their library, on their device:
the rule itself runs on them.  A construction copies only vectors of length n back to NumPy.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Protocol

import array_api_compat
import numpy as np

from cordcal._errors import InputError, warn
from cordcal._numeric import arrays
from cordcal._numeric.arrays import lane_sum
from cordcal._numeric.types import Array, DType, Floats, NumPyDType, Predictions, Vector
from cordcal._validation.scores import check_probabilities, sum_warning_level, warn_about_pair
from cordcal.repair import kernels, numpy_engine, ranking, rule
from cordcal.repair.kernels import Job
from cordcal.repair.numpy_engine import CheckedBlock, Description, deviation
from cordcal.repair.ranking import RankedRows
from cordcal.repair.rule import RowState, Split
from cordcal.repair.solve import ConstraintValue

SETTING = "CORDCAL_ENGINE"

# The unit of work is one entry of a long row.  Once the array engine has done this much in a
# process, which takes it one to two seconds, the process goes on with kernels: numba's cache
# gives them in half a second; otherwise they are compiled in five to ten, once per installation.
# Calls of less than a 256th of it do not count, so that a request for a few rows never waits for
# a compiler.
KERNEL_WORK = 2**26

# The work of a row besides its entries (measured at K = 10), the factor for preserved rankings,
# which are sorted (measured from K = 10 to 1000), and the work of one row of the constraint at
# one candidate.
ROW_WORK = 32
RANKED_WORK = 8
PROBE_WORK = 10


def row_work(direct: Floats, *, ranked: bool = False) -> int:
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
        original: Floats,
        direct: Floats,
        prediction: Predictions | None,
        weight: Vector | None,
        threads: int,
        class_weights: Vector | None = None,
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
        original: Floats,
        direct: Floats,
        prediction: Predictions | None,
        eta: float,
        out: Floats,
        threads: int,
        class_weights: Vector | None = None,
    ) -> None:
        """Write the repaired rows to ``out``, in its dtype, the prediction strictly the first."""

    def repair_ranked(
        self,
        original: Floats,
        direct: Floats,
        prediction: Predictions | None,
        etas: Vector,
        out: Floats,
        threads: int,
    ) -> None:
        """Write the rows repaired by the nested rule to ``out``."""


class _WorkDone:
    """The work that this process has done on the array engine."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, work: int) -> bool:
        """Add a call's work; return whether this call is to be done by kernels."""
        if work < KERNEL_WORK // 256:
            return False
        self.total += work
        return self.total >= KERNEL_WORK


_work_done = _WorkDone()


def engine_for(job: Job, work: int, *arrays: Floats, weighted: bool = False) -> Engine:
    """Return the engine for this much work on these arrays (both inputs, then the output).

    ``weighted`` is whether there are class weights, for which kernels are compiled separately.
    """
    dtypes = tuple([array.dtype for array in arrays])
    return compiled_engine(job, work, dtypes, weighted=weighted) or numpy_engine


def compiled_engine(
    job: Job, work: int, dtypes: tuple[NumPyDType, ...] = (), *, weighted: bool = False
) -> Engine | None:
    """Return the compiled engine for this much work, or None to use the array engine.

    Kernels that this process has loaded are used.  Other kernels are loaded or compiled once its
    work reaches `KERNEL_WORK`.  Otherwise, and without numba, None is returned.
    """
    setting = engine_setting()
    if setting == "array":
        return None
    compiled = kernels.engine(job, dtypes, weighted, prepare=setting == "compiled")
    if compiled is None and setting == "auto" and _work_done.add(work):
        compiled = kernels.engine(job, dtypes, weighted, prepare=True)
        if compiled is None and not kernels.disabled():
            _suggest_numba()
    if compiled is None and setting == "compiled" and not kernels.disabled():
        raise InputError(SETTING, "is 'compiled' but numba is not installed", "pip install numba")
    return compiled


def engine_setting() -> str:
    """Return the environment's setting: ``array``, ``compiled`` or, by default, ``auto``."""
    setting = os.environ.get(SETTING, "auto")
    if setting not in ("array", "compiled", "auto"):
        raise InputError(SETTING, f"is {setting!r}", "write array, compiled or auto, or unset it")
    return setting


@functools.cache
def _suggest_numba() -> None:
    warn(
        "work of this size is several times faster with numba; pip install numba, or set "
        f"{SETTING}=array to silence this hint"
    )


def _check_and_widen(original: Array, direct: Array) -> tuple[Array, Array, list[float]]:
    """Check that all rows are distributions.

    Returns both arrays widened, and the largest deviations of their row sums from one.
    """
    xp = arrays.namespace(original, direct)
    wide = arrays.wide_dtype(xp, direct)
    p, q = xp.astype(original, wide), xp.astype(direct, wide)
    deviations = [
        check_probabilities(supplied, lane_sum(widened), name, supplied.dtype)
        for name, supplied, widened in (("original", original, p), ("direct", direct, q))
    ]
    return p, q, deviations


def checked_foreign(original: Array, direct: Array, prediction: Predictions | None) -> CheckedBlock:
    """Check all rows in the dtype they came in; return them as one block of NumPy arrays."""
    *wide, deviations = _check_and_widen(original, direct)
    warn_about_pair(deviations, original, direct)
    p, q = arrays.to_numpy(original), arrays.to_numpy(direct)
    wide_p, wide_q = (arrays.to_numpy(array).astype(np.float64) for array in wide)
    return CheckedBlock(slice(0, len(q)), p, q, prediction, wide_p, wide_q, *deviations)


def _on_device(prediction: Predictions, like: Array) -> Array:
    """Return the predictions as an array of the library and on the device of ``like``."""
    return arrays.namespace(like).asarray(prediction, device=array_api_compat.device(like))


def weights_like(class_weights: Vector | None, wide: Array) -> Array | None:
    """Return class weights as an array of the library, device and dtype of ``wide``."""
    if class_weights is None:
        return None
    xp = arrays.namespace(wide)
    return xp.astype(arrays.array_like(class_weights, wide), wide.dtype)


def describe_foreign(
    original: Array,
    direct: Array,
    prediction: Predictions | None,
    class_weights: Vector | None = None,
) -> tuple[RowState, Split, Array]:
    """Check and describe all rows; return the state, the split and the widened direct rows."""
    p, q, (original_deviation, _) = _check_and_widen(original, direct)
    keep = arrays.first_argmax(original) if prediction is None else _on_device(prediction, direct)
    w = weights_like(class_weights, q)
    moved = arrays.first_argmax(direct if w is None else q * w[None, :]) != keep
    state, part = rule.row_state(p, q, keep, moved, w)
    warn_about_pair((original_deviation, deviation(arrays.to_numpy(part.total))), original, direct)
    return state, part, q


def describe(
    original: Array,
    direct: Array,
    prediction: Predictions | None,
    weight: Vector | None,
    threads: int,
    class_weights: Vector | None = None,
) -> Description:
    """Check and describe every calibration row, of any library."""
    if isinstance(direct, np.ndarray):
        weighted = class_weights is not None
        engine = engine_for("describe", row_work(direct), original, direct, weighted=weighted)
        return engine.describe(original, direct, prediction, weight, threads, class_weights)
    (state,) = row_states(original, direct, prediction, class_weights)
    return Description.from_state(state, weight, int(np.count_nonzero(state.changed)))


def row_states(
    original: Array,
    direct: Array,
    prediction: Predictions | None,
    class_weights: Vector | None = None,
) -> Iterator[RowState]:
    """Check and describe rows of any library, in blocks of NumPy vectors."""
    if isinstance(direct, np.ndarray):
        for block in numpy_engine.described_blocks(
            original, direct, prediction, class_weights=class_weights
        ):
            yield block.state
    else:
        yield numpy_state(describe_foreign(original, direct, prediction, class_weights)[0])


def checked_blocks(
    original: Array, direct: Array, prediction: Predictions | None
) -> Iterator[CheckedBlock]:
    """Check rows of any library; yield them in blocks of NumPy arrays."""
    if isinstance(direct, np.ndarray):
        yield from numpy_engine.checked_blocks(original, direct, prediction)
    else:
        yield checked_foreign(original, direct, prediction)


def numpy_state(state: RowState) -> RowState:
    """Return the state as NumPy vectors, with numbers in float64."""
    vectors = {field.name: arrays.to_numpy(getattr(state, field.name)) for field in fields(state)}
    return RowState(
        **{
            name: vector.astype(np.float64) if vector.dtype.kind == "f" else vector
            for name, vector in vectors.items()
        }
    )


def repair_foreign(
    original: Array,
    direct: Array,
    prediction: Predictions | None,
    eta: float,
    dtype: DType,
    class_weights: Vector | None = None,
) -> Array:
    """Return the repaired rows in ``dtype``, the prediction strictly the first."""
    xp = arrays.namespace(direct)
    state, part, wide = describe_foreign(original, direct, prediction, class_weights)
    level = sum_warning_level(direct.dtype, direct.shape[1])
    repaired = xp.astype(rule.repair_rows(wide, state, part, eta, level), dtype)
    return rule.make_first(repaired, state.prediction, weights_like(class_weights, wide))


def rank_foreign(
    original: Array, direct: Array, prediction: Predictions | None, levels: int
) -> tuple[RankedRows, Array]:
    """Check all rows and arrange them in the original order; return the widened direct ones too."""
    p, q, deviations = _check_and_widen(original, direct)
    warn_about_pair(deviations, original, direct)
    keep = None if prediction is None else _on_device(prediction, direct)
    order = ranking.kept_order(original, keep)
    return ranking.rank_rows(p, q, order, levels), q


def repair_ranked_foreign(
    original: Array, direct: Array, prediction: Predictions | None, etas: list[float], dtype: DType
) -> Array:
    """Return the rows repaired by the nested rule in ``dtype``, the first ranks in order."""
    xp = arrays.namespace(direct)
    rows, wide = rank_foreign(original, direct, prediction, len(etas))
    level = sum_warning_level(direct.dtype, direct.shape[1])
    repaired = ranking.repair_rows(wide, rows, etas, level)
    return ranking.raise_order(xp.astype(repaired, dtype), rows, len(etas))
